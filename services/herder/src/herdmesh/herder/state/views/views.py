"""Views of connectors, tasks and workers: config, target state, status, progress and lag joined for callers.

Owns the join, and reads only. Reports of workers over their sessions come first; while workers may still dial in to a
new leader, the status store's records come next.

Invariant: a unit is never shown RUNNING unless its worker's stream is open, or its lease is live and it has not yet
dialled in to a leader.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum, unique

from herdmesh.connect.spi import WAITING, Wait
from herdmesh.connect.task_counts import TaskCounts
from herdmesh.connect.topics import NOT_KNOWN, Lag, sum_of
from herdmesh.herder.state.leadership import leadership_queries
from herdmesh.herder.state.memory import (
    Connector,
    Fleet,
    HerderMemory,
    Member,
    Placement,
    Step,
    StoreViews,
    Unit,
)
from herdmesh.herder.state.model import (
    AutoRestart,
    ConnectorEntry,
    ConnectorType,
    StatusEntry,
    TaskProgress,
    restart_policy,
)
from herdmesh.herder.state.units import balance, handover, task_counts, task_sets
from herdmesh.herder.state.views import explanations
from herdmesh.herder.state.workers import drains, duplicate_ids, plugin_catalog, plugin_eligibility
from herdmesh.session.model import Condition, Failure, Properties, RunState, SlotUse, TargetState, UnitId


@unique
class WorkerState(StrEnum):
    """State of a worker's session; names are those of the proto's `WorkerState`."""

    CONNECTED = "CONNECTED"
    DRAINING = "DRAINING"
    DRAINED = "DRAINED"
    LOST = "LOST"


@dataclass(frozen=True, slots=True)
class UnitView:
    """Status of a connector or task. `since_ms` by the herder's clock, None = unknown."""

    state: RunState
    worker_id: str = ""
    failure: Failure | None = None
    conditions: tuple[Condition, ...] = ()
    generation: int = 0
    start_count: int = 0
    since_ms: int | None = None
    auto_restart: AutoRestart | None = None
    #: one line: why it is where it is and what happens next; empty = it runs as wanted.
    explanation: str = ""
    #: why its worker has it (empty = no worker has it), and since when by the herder's clock (None = unknown).
    placed_because: str = ""
    placed_ms: int | None = None


@dataclass(frozen=True, slots=True)
class TaskView:
    """One task of the committed set."""

    id: UnitId
    config: Properties
    status: UnitView
    progress: TaskProgress | None


@dataclass(frozen=True, slots=True)
class ConnectorView:
    """One connector."""

    name: str
    type: ConnectorType
    entry: ConnectorEntry
    status: UnitView
    tasks: tuple[TaskView, ...]
    lag: Lag
    counts: TaskCounts


@dataclass(frozen=True, slots=True)
class WorkerView:
    """One worker."""

    worker_id: str
    incarnation: str
    address: str
    state: WorkerState
    slots: int
    connectors: tuple[str, ...]
    tasks: tuple[UnitId, ...]
    connected_ms: int
    #: one line for a state other than CONNECTED, or why it has more or fewer units than its share.
    reason: str = ""
    conditions: tuple[Condition, ...] = ()
    #: None = unknown: it is lost, or has sent no heartbeat yet.
    slot_use: SlotUse | None = None


@dataclass(frozen=True, slots=True)
class ClusterView:
    """The leader, and the counters of its leadership."""

    leader_id: str
    leader_address: str
    epoch: int
    workers: tuple[WorkerView, ...]
    start_count: int
    adopted_count: int


def connector_view(memory: HerderMemory, name: str) -> ConnectorView | None:
    """The connector now; None when no connector has that name.

    A herder that does not lead knows its config, and its units' statuses from the status store.
    """
    connector = memory.inventory.connectors.get(name) or Connector(name, memory.stores.entries.get(name))
    entry = connector.stored
    if entry is None:
        return None
    type_ = plugin_catalog.type_of(memory.fleet, entry)
    tasks = tuple(_task_view(memory, connector, entry, task) for task in range(len(entry.tasks)))
    status = unit_view(memory, connector, connector.units.get(None) or Unit(UnitId(name)))
    return ConnectorView(name, type_, entry, status, tasks, _lag(type_, tasks), task_counts.total(connector, entry))


def names(stores: StoreViews) -> list[str]:
    """The names of all connectors, sorted."""
    return sorted(name for name, entry in stores.entries.items() if entry.has_config)


def unit_view(memory: HerderMemory, connector: Connector, unit: Unit) -> UnitView:
    """The status of a unit."""
    return _with_restarts(memory.step, connector, unit, _placed_view(memory, connector, unit))


def _with_restarts(step: Step, connector: Connector, unit: Unit, view: UnitView) -> UnitView:
    """Add the state of the automatic restarts."""
    history, entry = unit.history, connector.stored
    if history is None or entry is None:
        return view
    if not history.attempts_ms and view.state not in (RunState.FAILED, RunState.RESTARTING):
        return view  # nearly all of thousands: nothing failed lately
    rules = restart_policy.policy_of(step.rules.restart, entry.config)
    failed = view.state is RunState.FAILED
    under_way = view.state is RunState.RESTARTING and bool(history.attempts_ms)
    auto_restart = restart_policy.shown(rules, history, failed, under_way, step.now)
    explanation = view.explanation
    if failed:
        cure = f"`herd restart {unit.id.connector}`"
        if unit.id.task is not None:
            cure = f"`herd restart {unit.id.connector} --task {unit.id.task}`"
        paused = entry.wanted_state is not TargetState.STARTED
        refers = any(isinstance(value, str) and "${" in value for value in entry.config.values())
        explanation = restart_policy.explained(rules, history, view.failure, cure, paused, refers=refers)
    elif under_way:
        explanation = f"restart {history.attempt} of {rules.attempts_max}: {view.explanation or 'is under way'}"
    return replace(view, auto_restart=auto_restart, explanation=explanation)


def unit_state(memory: HerderMemory, unit: Unit) -> RunState:
    """The state of the unit's view, while this herder leads, without the cost of the view."""
    held = unit.placement
    if held is not None:
        member = memory.fleet.members.get(held.worker_id)
        if member is None or member.session is None:
            return RunState.UNASSIGNED
        return held.state or _state_between_placements(unit)
    status = memory.stores.status_of(unit.id)
    if status is not None and not unit.superseded and leadership_queries.kept_for(memory, unit.id):
        return status.state
    return _state_between_placements(unit)


def _state_between_placements(unit: Unit) -> RunState:
    return RunState.RESTARTING if unit.restarting else RunState.UNASSIGNED


def _placed_view(memory: HerderMemory, connector: Connector, unit: Unit) -> UnitView:
    hold = unit.placement
    if hold is not None:
        return _held_view(memory, connector, unit, hold)
    why = explanations.of_unit(memory, connector, unit)
    status = memory.stores.status_of(unit.id)
    if leadership_queries.refusal(memory.step, memory.leadership) is not None:
        no_leader = Condition("NO_LEADER", "no herder leads; this is what its worker reported last")
        if status is not None and memory.stores.lease_lives(status.worker_id, status.worker_incarnation):
            return _stored_view(status, no_leader, why)
        return UnitView(RunState.UNASSIGNED, conditions=(no_leader,), explanation=why)
    if status is not None and not unit.superseded and leadership_queries.kept_for(memory, unit.id):
        waiting = f"worker {status.worker_id} has not dialled in to the new leader yet"
        return _stored_view(status, Condition("WAITING_FOR_WORKER", waiting), why)
    if unit.superseded:
        superseded = unit.superseded[-1]
        stopping = Condition("STOPPING", f"worker {superseded.worker_id} is stopping it", superseded.stop_sent_ms)
        return UnitView(
            _state_between_placements(unit),
            superseded.worker_id,
            None,
            (stopping, *_conditions(memory.fleet, connector, unit)),
            superseded.assignment.generation,
            unit.start_count,
            explanation=why,
        )
    return UnitView(
        _state_between_placements(unit),
        conditions=_conditions(memory.fleet, connector, unit),
        start_count=unit.start_count,
        since_ms=unit.idle_since_ms,
        explanation=why,
    )


def worker_views(memory: HerderMemory) -> tuple[WorkerView, ...]:
    """All workers, sorted by id."""
    return tuple(_worker_view(memory, memory.fleet.members[worker_id]) for worker_id in sorted(memory.fleet.members))


def worker_view(memory: HerderMemory, worker_id: str) -> WorkerView | None:
    """One worker, also one that drained and left since; None when it is gone for another reason."""
    member, departed = memory.fleet.members.get(worker_id), memory.fleet.departed.get(worker_id)
    if member is not None or departed is None:
        return _worker_view(memory, member) if member is not None else None
    reason = "drained, and it left" if departed.incarnation else "drained, and gone; it has no units left"
    return replace(_worker_view(memory, departed), state=WorkerState.DRAINED, reason=reason)


def cluster_view(memory: HerderMemory) -> ClusterView:
    """The cluster, from a leader or a follower."""
    epoch = memory.leadership.epoch if leadership_queries.refusal(memory.step, memory.leadership) is None else 0
    return ClusterView(
        memory.leadership.leader_id,
        memory.leadership.leader_address,
        epoch,
        worker_views(memory),
        memory.leadership.start_count,
        memory.leadership.adopted_count,
    )


def _task_view(memory: HerderMemory, connector: Connector, entry: ConnectorEntry, task: int) -> TaskView:
    unit = connector.units.get(task) or Unit(UnitId(connector.name, task))
    return TaskView(unit.id, entry.tasks[task], unit_view(memory, connector, unit), unit.progress)


def _held_view(memory: HerderMemory, connector: Connector, unit: Unit, hold: Placement) -> UnitView:
    member = memory.fleet.members.get(hold.worker_id)
    noted = handover.reported_conditions(memory.stores, unit.id, hold)
    if (
        member is not None and member.session is not None
    ):  # the report over the session replaces the condition in the status
        noted = (*(one for one in noted if one.type != WAITING), *_waiting(unit.wait))
    conditions = (*noted, *_conditions(memory.fleet, connector, unit))
    state = hold.state
    if state is None:
        state = _state_between_placements(unit)
        conditions = (Condition("STARTING", f"worker {hold.worker_id} is starting it", hold.since_ms), *conditions)
    since_ms = hold.since_ms if hold.since_known else None
    if member is None or member.session is None:
        broken_ms = member.broken_ms if member is not None else None
        gone = Condition("WORKER_LOST", f"the stream of worker {hold.worker_id} broke", broken_ms)
        state, since_ms, conditions = RunState.UNASSIGNED, broken_ms or since_ms, (gone, *conditions)
    return UnitView(
        state,
        hold.worker_id,
        hold.failure if state is RunState.FAILED else None,
        conditions,
        hold.assignment.generation,
        unit.start_count,
        since_ms,
        explanation=explanations.of_unit(memory, connector, unit),
        placed_because=hold.because,
        placed_ms=hold.placed_ms,
    )


def _stored_view(status: StatusEntry, condition: Condition, why: str) -> UnitView:
    failure = None
    if status.state is RunState.FAILED:
        trace = status.trace or ""
        failure = Failure(next(iter(trace.splitlines()), "failed"), trace)
    conditions = (condition, *(one for one in status.conditions if one.type == WAITING))
    return UnitView(status.state, status.worker_id, failure, conditions, status.generation, explanation=why)


def _waiting(wait: Wait | None) -> tuple[Condition, ...]:
    return () if wait is None else (Condition(WAITING, wait.text(), wait=wait),)


def _conditions(fleet: Fleet, connector: Connector, unit: Unit) -> tuple[Condition, ...]:
    """Conditions that explain where a unit is, when its state alone does not."""
    entry = connector.stored
    found: list[Condition] = []
    if entry is None:
        return ()
    if unit.id.task is None and connector.trouble:
        found.append(Condition("TASK_CONFIGS", connector.trouble))
    if unit.id.task is None and entry.inconsistent:
        found.append(Condition("INCONSISTENT_TASKS", "the stored task set is incomplete and will be generated again"))
    if unit.placement is None and handover.is_wanted(entry, unit.id):
        able = [member for member in fleet.members.values() if plugin_eligibility.runs(fleet, member, entry)]
        if not any(member.takes_work for member in able):
            found.append(Condition("NO_WORKER", f"no connected worker can take {entry.class_name or 'it'}"))
        elif unit.id.task is not None and not task_sets.gate_open(entry):
            found.append(Condition("WAITING_FOR_OLD_TASKS", "waits until all tasks of the previous set have ended"))
    return tuple(found)


def _lag(type_: ConnectorType, tasks: tuple[TaskView, ...]) -> Lag:
    if type_ is not ConnectorType.SINK or not tasks:
        return NOT_KNOWN
    if any(task.status.state is not RunState.RUNNING for task in tasks):
        return NOT_KNOWN  # no run checks its partitions: the last known lag may be outdated
    return sum_of(NOT_KNOWN if task.progress is None else task.progress.lag for task in tasks)


def worker_state(member: Member) -> WorkerState:
    """The state of a worker that has not left."""
    if member.session is None:
        return WorkerState.LOST
    if not member.draining:
        return WorkerState.CONNECTED
    return WorkerState.DRAINING if member.load else WorkerState.DRAINED


def _worker_view(memory: HerderMemory, member: Member) -> WorkerView:
    units = sorted(member.load, key=lambda unit: unit.order)
    return WorkerView(
        member.worker_id,
        member.incarnation,
        member.address,
        worker_state(member),
        member.slots,
        tuple(unit.connector for unit in units if unit.task is None),
        tuple(unit for unit in units if unit.task is not None),
        member.connected_ms,
        drains.reason(memory.step, memory.stores, memory.fleet, member) or balance.reason(memory, member),
        duplicate_ids.conditions(memory.step, member),
        member.slot_use if member.session is not None else None,
    )
