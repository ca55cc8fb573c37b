"""Promises that hold once the faults are over: the mesh is in its requested state, all views agree, and it is idle.

Owns the comparison of four views of the same thing: the wanted state in the config store, the workers' held units, the
leader's view and the status store's. Each returns problems as text; `story` waits until there are none.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from herdmesh.configstore.state.connector import ConnectorState
from herdmesh.connect.topics.config_records import TargetState as Target
from herdmesh.herder.state.model.requests import RestartConnector, Restarting, RestartTask
from herdmesh.herder.state.views.views import UnitView
from herdmesh.session.model import HeldUnit, RunState, TargetState, UnitId
from herdmesh.worker.state.model import Phase
from tests.sim.mesh.clients import Outcome

if TYPE_CHECKING:
    from tests.sim.mesh.herder import HerderProcess
    from tests.sim.mesh.worker import WorkerProcess
    from tests.sim.mesh.world import World

Held = dict[UnitId, list[tuple["WorkerProcess", HeldUnit]]]


def holdings(world: World) -> Held:
    """The truth: the workers' held units."""
    found: Held = {}
    for worker in world.workers:
        if worker.alive:
            for one in worker.state.held_units():
                found.setdefault(UnitId(one.unit.connector, one.unit.task), []).append((worker, one))
    return found


def problems(world: World) -> list[str]:
    """Current deviations from the requested state."""
    leader = world.leader()
    if leader is None:
        return ["no herder leads"]
    found: list[str] = []
    away = [worker.name for worker in world.workers if not (worker.alive and worker.session.welcomed)]
    found += [f"{name} has no session" for name in away]
    found += [
        f"{worker.name} has unwritten statuses"
        for worker in world.workers
        if worker.alive and worker.statuses.unwritten
    ]
    writers = [*world.stores, *(herder for herder in world.herders if herder.alive)]
    found += [f"{node.name} has a write under way" for node in writers if node.writing]
    found += leader_knows(world, leader)
    held = holdings(world)
    wanted = dict(_wanted(world))
    found += [f"{unit} is held and not wanted" for unit in held if unit not in wanted]
    for unit, connector in wanted.items():
        found += _unit(world, leader, connector, unit, held.get(unit, []))
    found += _statuses(world, set(wanted))
    found += [problem for worker in world.workers if worker.alive for problem in _levels(world, worker)]
    if not found:
        found += _balance(world, held)
    return found


def _wanted(world: World) -> Iterator[tuple[UnitId, ConnectorState]]:
    for name, connector in world.config_log.state.connectors.items():
        yield UnitId(name), connector
        if connector.target_state is not Target.STOPPED:
            yield from ((UnitId(name, task), connector) for task in range(len(connector.tasks)))


def leader_knows(world: World, leader: HerderProcess) -> list[str]:
    """Check that the leader's view of the configs is the config store's."""
    stored = world.config_log.state.connectors
    names = leader.herder.connector_names()
    if names != sorted(stored):
        return [f"the leader knows {names}, stored are {sorted(stored)}"]
    found: list[str] = []
    for name, connector in stored.items():
        view = leader.herder.connector(name)
        assert view is not None
        if dict(view.entry.config) != dict(connector.config or {}):
            found.append(f"the leader has another config of {name}")
    return found


def _levels(world: World, worker: WorkerProcess) -> Iterator[str]:
    """Check that a worker has every log level of the cluster, except those set for itself since."""
    stored = world.config_log.state.logger_levels
    newest = max((change.revision for change in stored.values()), default=0)
    if newest and (worker.told.revision is None or worker.told.revision.next_offsets != (newest,)):
        yield f"{worker.name} was told logger levels up to {worker.told.revision}, the newest is at {newest}"
    for logger, change in stored.items():
        wanted, level = worker.own_levels.get(logger, change.level.level), worker.levels.get(logger)
        if level != wanted:
            yield f"{worker.name} has {logger} at {level} instead of {wanted}"


def _unit(
    world: World,
    leader: HerderProcess,
    connector: ConnectorState,
    unit: UnitId,
    held: list[tuple[WorkerProcess, HeldUnit]],
) -> list[str]:
    config = connector.config or {}
    view = leader.herder.connector(unit.connector)
    if view is None or (unit.task is not None and unit.task >= len(view.tasks)):
        return [f"the leader shows no {unit}"]
    shown = view.status if unit.task is None else view.tasks[unit.task].status
    able = [
        worker
        for worker in world.workers
        if any(one.class_name == config.get("connector.class") for one in worker.plugins)
    ]
    if not held and not able:
        return []
    if not held and all(_drained(leader, worker) for worker in able):
        return []
    if len(held) != 1:
        where = [worker.name for worker, _ in held]
        return [f"{unit} is on {where}, shown {shown.state} {shown.conditions}"]
    worker, one = held[0]
    if worker not in able and not all(_drained(leader, other) for other in able):
        return [f"{unit} is on {worker.name}, which has not its plugin"]
    found: list[str] = []
    if shown.state.value != one.state.value or shown.worker_id != worker.name:
        # The leader shows a connector whose task configs cannot be made as FAILED.
        final = unit.task is None and shown.state is RunState.FAILED and shown.failure is not None
        if not final:
            found.append(f"{unit} is {one.state} on {worker.name}, shown {shown.state} on {shown.worker_id}")
    found += _state(world, connector, unit, worker, one, shown)
    return found


def _drained(leader: HerderProcess, worker: WorkerProcess) -> bool:
    view = leader.herder.worker(worker.name)
    return view is not None and view.state.value in ("DRAINING", "DRAINED")


def _state(
    world: World, connector: ConnectorState, unit: UnitId, worker: WorkerProcess, one: HeldUnit, shown: UnitView
) -> list[str]:
    """Check that a unit is in its target state, or FAILED with a reason, and that its reported state is real."""
    target = TargetState(connector.target_state.value) if connector.target_state else TargetState.STARTED
    expected = {TargetState.STARTED: "RUNNING", TargetState.PAUSED: "PAUSED", TargetState.STOPPED: "STOPPED"}[target]
    found: list[str] = []
    waits = shown.auto_restart is not None and shown.auto_restart.next_ms is not None
    if waits and target is TargetState.STARTED:  # a paused unit keeps waiting
        found.append(f"{unit} waits for a restart: {shown.auto_restart}")
    if one.state.value != expected and not shown.explanation:
        found.append(f"{unit} is {one.state}, wanted {expected}, and nobody explains it")
    if one.state.value == "FAILED":
        if one.failure is None or not one.failure.message:
            found.append(f"{unit} is FAILED without a reason")
    elif one.state.value != expected:
        found.append(f"{unit} is {one.state}, wanted {expected}")
    mine = worker.state.connectors.get(unit.connector) if unit.task is None else worker.state.tasks.get(one.unit)
    if mine is not None and mine.releasing:
        found.append(f"{unit} is being stopped on {worker.name}")
    if unit.task is None:
        if target is TargetState.STARTED and one.state.value == "RUNNING":
            found += _task_set(connector)
        return found
    if one.state.value == "RUNNING" and "always" in (connector.config or {}):
        found.append(f"{unit} runs, and will fail")
    task = worker.state.tasks.get(one.unit)
    owners = world.dataplane.owners.get((unit.connector, unit.task), [])
    idle = task is not None and task.phase is Phase.IDLE
    if one.state.value == "RUNNING" and not idle and not any(run.worker is worker for run in owners):
        found.append(f"{unit} is RUNNING on {worker.name} and no run of it owns its id")
    if one.state.value != "RUNNING" and owners:
        found.append(f"{unit} is {one.state} and {owners[0]} owns its id")
    if connector.tasks and not one.assignment.task_digest.endswith(connector.tasks[unit.task].digest):
        found.append(f"{unit} runs with another task config than the committed one")
    return found


def _task_set(connector: ConnectorState) -> list[str]:
    config = connector.config or {}
    if connector.pending_fencing or connector.inconsistent or connector.applied_config != config:
        return [f"the task set of {connector.name} is not the one of its config"]
    if len(connector.tasks) != int(str(config["tasks.max"])):
        return [f"{connector.name} has {len(connector.tasks)} tasks, its connector makes {config['tasks.max']}"]
    return []


def _statuses(world: World, wanted: set[UnitId]) -> list[str]:
    """Check that the status store shows the workers' held units."""
    writer = next((replica for replica in world.status if replica.claims and replica.log.writer is replica), None)
    if writer is None:
        return ["no status store writes"]
    held = holdings(world)
    found: list[str] = []
    # A stopped connector keeps its tasks' statuses.
    keeping = {name for name, one in world.config_log.state.connectors.items() if one.target_state is Target.STOPPED}
    # Commit scopes of removed tasks stay as well until every task got them; a task that no worker may take waits.
    waiting = {unit.connector for unit in wanted if unit.task is not None and unit not in held}
    # So do statuses that a stop left, until the connector runs and has made tasks that can get them.
    waiting |= {
        name
        for name, one in world.config_log.state.connectors.items()
        if not one.tasks and one.applied_config is not None and not _runs(held.get(UnitId(name), []))
    }
    keeping |= waiting & {
        stored.status.connector
        for stored in writer.state.statuses()
        if UnitId(stored.status.connector, stored.task) not in wanted and stored.status.commit_scope is not None
    }
    for stored in writer.state.statuses():
        unit = UnitId(stored.status.connector, stored.task)
        state, _ = writer.keeper.table.effective(stored.status)
        if unit not in wanted:
            if unit.connector not in keeping:
                found.append(f"a status of {unit} is left")
            continue
        places = held.get(unit, [])
        if len(places) != 1:
            continue  # reported by the other checks
        worker, one = places[0]
        if one.state.value != state.value and state.value != "RESTARTING":
            found.append(f"the status of {unit} is {state.value}, it is {one.state} on {worker.name}")
        elif stored.status.worker_id != worker.name and one.state.value != "UNASSIGNED":
            found.append(f"the status of {unit} names {stored.status.worker_id}, it is on {worker.name}")
    return found


def _runs(places: list[tuple[WorkerProcess, HeldUnit]]) -> bool:
    return any(one.state.value == "RUNNING" for _, one in places)


def _balance(world: World, held: Held) -> list[str]:
    """Check that loads differ by at most one, among workers that take units, where every worker can take everything."""
    leader = world.leader()
    assert leader is not None
    takers = [worker.name for worker in world.workers if not _drained(leader, worker)]
    if world.uneven or not takers:
        return []
    places = [(unit, worker.name) for unit, found in held.items() for worker, _ in found]
    found = [f"{unit} is on {name}, which drains" for unit, name in places if name not in takers]
    for kind in ("connectors", "tasks"):
        loads = dict.fromkeys(takers, 0)
        for unit, name in places:
            if (unit.task is None) == (kind == "connectors") and name in loads:
                loads[name] += 1
        if max(loads.values()) - min(loads.values()) > 1:
            found.append(f"{kind} are not balanced: {loads}")
    return found


def lost_restarts(world: World) -> list[str]:
    """Check that every acknowledged restart took place: the unit that runs now was started after the request."""
    held = holdings(world)
    found: list[str] = []
    for operation in world.checker.answers.values():
        if operation.outcome is not Outcome.ACKNOWLEDGED or not isinstance(operation.answer, Restarting):
            continue
        name = getattr(operation.request, "name", "")
        request, items = operation.request, operation.answer.items
        units: list[UnitId] = []
        if isinstance(request, RestartTask):
            units = [UnitId(name, request.task)]
        elif isinstance(request, RestartConnector) and not request.only_failed:
            # With failed units only, those that restart already are reported as restarted too (KIP-745).
            units = [UnitId(name, item.task) for item in items if item.task is None or request.include_tasks]
        for unit in units:
            places = held.get(unit, [])
            starts = world.checker.starts.get(unit, [])
            if len(places) != 1 or not starts:
                continue
            order = places[0][1].assignment.order
            started_ms = next((one.at_ms for one in starts if one.order == order), 0)
            if started_ms < operation.begun_ms:
                found.append(f"{operation.id} restarted {unit}, which has run since before ({started_ms / 1000:.3f} s)")
    return found
