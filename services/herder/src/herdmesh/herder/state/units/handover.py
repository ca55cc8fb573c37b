"""Handover of units: the start of a unit on a worker, its stop, and the loss of its worker.

Owns the rule between two owners of a unit: stop, acknowledge, start; and the consequences of losing a worker without
an acknowledgement. Does not own the choice of workers (`placement.py`), nor whether a task set may start
(`task_sets.py`).

Invariant: a unit is started only when no other placement is known that may run it, under a generation higher than every
earlier one. Being wrong about a lost worker is safe: the fence of the data plane decides (docs/design/README.md,
section 1).
"""

from __future__ import annotations

from collections.abc import Iterable

from herdmesh.connect.task_counts import NO_COUNTS
from herdmesh.connect.topics import CommitScope
from herdmesh.herder.state.memory import (
    Connector,
    Fleet,
    Generate,
    HerderMemory,
    Inventory,
    Leadership,
    Member,
    Placement,
    Step,
    StoreViews,
    Unit,
)
from herdmesh.herder.state.model import ConnectorEntry, StatusEntry
from herdmesh.herder.state.model.restart_policy import note_of, policy_of, read_back, tag_of
from herdmesh.herder.state.units import task_counts
from herdmesh.session.messages import StartUnit, StopUnit
from herdmesh.session.model import Assignment, Condition, RunState, TargetState, UnitId

#: Key of the group under which a sink commits; by default `connect-<name>`.
GROUP_KEY = "consumer.override.group.id"
#: A unit that its worker released unasked (it was fenced, it refused) is started again after this time, doubled each
#: time it happens again within a minute, so that two owners of one id cannot fence each other in a hot loop.
RELEASE_BACKOFF_MS = 1_000
RELEASE_BACKOFF_MS_MAX = 60_000


def matches(entry: ConnectorEntry, unit: UnitId, assignment: Assignment) -> bool:
    """True when the unit was started from what is wanted now, so that it may be kept or adopted.

    A connector: the same config record (its revision names it, through re-creates too; the incarnation is compared
    unless it was started before a manifest gave it one). A task: the same task set of the same incarnation. A task is
    deliberately not compared by config revision: the set's version changes with every config that matters to
    tasks, and an equal config that another writer wrote again restarts the connector only, as in Connect.
    """
    if unit.task is None:
        same_life = assignment.incarnation in ("", entry.incarnation)
        return same_life and assignment.config_revision == entry.config_revision
    if not tasks_wanted(entry) or unit.task >= len(entry.tasks):
        return False
    return assignment.incarnation == entry.incarnation and assignment.task_digest == entry.digest_of(unit.task)


def tasks_wanted(entry: ConnectorEntry) -> bool:
    """True when workers are to hold the committed task set. A foreign set waits until it is committed as ours."""
    return (
        entry.has_config
        and entry.adopted
        and not entry.inconsistent
        and entry.wanted_state is not TargetState.STOPPED
        and len(entry.task_digests) == len(entry.tasks)
    )


def is_wanted(entry: ConnectorEntry, unit: UnitId) -> bool:
    """True when a worker is to hold the unit."""
    if not entry.has_config:
        return False
    return unit.task is None or (tasks_wanted(entry) and unit.task < len(entry.tasks))


def reported_generation(stores: StoreViews, unit: UnitId) -> int:
    """The highest generation that any worker of ours has reported for the unit: older claims are superseded, even when
    the newer worker has not dialled in yet. Java's generations belong to another group and do not count.
    """
    status = stores.status_of(unit)
    return status.generation if status is not None and status.worker_incarnation else 0


def reported_conditions(stores: StoreViews, unit: UnitId, hold: Placement) -> tuple[Condition, ...]:
    """The conditions in the worker's status of this very assignment, above all STALLED."""
    status = stores.status_of(unit)
    if status is None or status.generation != hold.assignment.generation or status.state is not hold.state:
        return ()
    return status.conditions


def remembers(connector: Connector, status: StatusEntry) -> bool:
    """True when the status has a commit of the current incarnation of the name."""
    return status.commit_scope is not None and status.generation >= connector.commits_from


def scope_of(stores: StoreViews, connector: Connector, entry: ConnectorEntry, task: int) -> CommitScope | None:
    """The scope of a task's last commit, and of all commits of the connector's tasks under the same group: its
    partitions may have belonged to another task number, also to a removed one. None = nothing is known.

    If tasks committed under several groups, the group in the config counts, if a task has committed under it; else the
    group of this task number. The herder does not resolve references: a group that is configured by one is found only
    for a number that committed itself.
    """
    if connector.committed is None:
        connector.committed = {}
        for status in stores.statuses.get(entry.name, {}).values():
            _add_scope(connector, status)
    committed = connector.committed
    status = stores.status_of(UnitId(entry.name, task))
    own = status.commit_scope if status is not None and remembers(connector, status) else None
    given = entry.config.get(GROUP_KEY)
    group = given if isinstance(given, str) and given else f"connect-{entry.name}"
    if group not in committed:
        if own is None or not own.group:  # of a source: no group holds its offsets, each task reads its own
            return own
        group = own.group
    mine = own if own is not None and own.group == group else CommitScope(group, ())
    return mine.beside(committed[group])


def commit_scope_changed(
    inventory: Inventory, unit: UnitId, before: StatusEntry | None, now: StatusEntry | None
) -> None:
    """A status changed: read the commits of the connector's tasks anew, unless this status only adds to them."""
    connector = inventory.connectors.get(unit.connector)
    if connector is None or connector.committed is None or unit.task is None:
        return
    was = before.commit_scope if before is not None and remembers(connector, before) else None
    scope = now.commit_scope if now is not None and remembers(connector, now) else None
    if scope == was:
        return
    if was is not None and (scope is None or scope.group != was.group or not _topics(scope) >= _topics(was)):
        connector.committed = None
    elif now is not None:
        _add_scope(connector, now)


def _add_scope(connector: Connector, status: StatusEntry) -> None:
    scope = status.commit_scope
    if status.unit.task is None or scope is None or connector.committed is None or not remembers(connector, status):
        return
    connector.committed.setdefault(scope.group, set()).update(_topics(scope))


def _topics(scope: CommitScope) -> set[str]:
    return {*scope.topics, *scope.elsewhere}


def target_of(entry: ConnectorEntry, unit: UnitId) -> TargetState:
    """The target state of a held unit; STOPPED is for connectors only."""
    return entry.wanted_state if unit.task is None or entry.wanted_state is TargetState.PAUSED else TargetState.STARTED


def read_history(step: Step, stores: StoreViews, inventory: Inventory, entry: ConnectorEntry, unit: Unit) -> None:
    """Read the unit's restart history as earlier leaders left it. The statuses must be known."""
    generation = unit.placement.assignment.generation if unit.placement is not None else 0
    ours = inventory.take_history_before(unit.id)
    unit.history = read_back(stores.status_of(unit.id), tag_of(entry, unit.id), generation, step.now, ours)


def start(memory: HerderMemory, connector: Connector, unit: Unit, worker_id: str) -> None:
    """Start the unit on a worker. The caller has checked that nothing else may run it and that a generation is left."""
    entry = connector.stored
    assert entry is not None
    assert not unit.superseded
    if unit.history is None:
        read_history(
            memory.step, memory.stores, memory.inventory, entry, unit
        )  # later nobody can: the new owner's status replaces it
    task = unit.id.task
    assignment = Assignment(
        epoch=memory.leadership.epoch,
        generation=memory.leadership.take_generation(),
        incarnation=entry.incarnation,
        config_revision=entry.config_revision,
        task_digest="" if task is None else entry.digest_of(task),
    )
    target = target_of(entry, unit.id)
    hold = Placement(
        worker_id,
        assignment,
        memory.step.now,
        target=target,
        because=_because(memory.leadership, memory.stores, unit),
        placed_ms=memory.step.now,
    )
    hold.displaced = not unit.balancing and unit.last_worker_id not in ("", worker_id)
    unit.balancing = False
    memory.inventory.take(unit, hold)
    if hold.displaced:
        memory.fleet.note_unrest()
    assert unit.history is not None
    unit.history.next_ms = None  # a due restart is done by this start
    unit.start_count += 1
    memory.fleet.send_to(
        worker_id,
        StartUnit(
            unit=unit.id,
            assignment=assignment,
            connector_config=entry.config,
            task_config=None if task is None else entry.tasks[task],
            target=target,
            task_count=0 if task is None else len(entry.tasks),
            tasks_max=entry.tasks_max if task is None else 0,
            commit_scope=None if task is None else scope_of(memory.stores, connector, entry, task),
            revision=None if task is None else memory.stores.config_revision,
            traceparent=memory.inventory.traces.of(unit.id.connector, memory.step.now),
            counts=NO_COUNTS if task is None else task_counts.before(connector, entry, task),
        ),
        note_of(unit.history, policy_of(memory.step.rules.restart, entry.config).attempts_max),
    )


def _because(leadership: Leadership, stores: StoreViews, unit: Unit) -> str:
    """Why the unit is started. Each reason is given once."""
    because, unit.because = unit.because, ""
    if because:
        return because
    return "it is new" if stores.status_of(unit.id) is None else f"no worker had it (leader epoch {leadership.epoch})"


def stop(
    fleet: Fleet,
    inventory: Inventory,
    connector: Connector,
    unit: Unit,
    reason: str,
    destination: str | None = None,
    because: str = "",
) -> None:
    """Take the unit from its worker; it goes to `destination` once the worker acknowledges. `because` is the reason of
    its next start, if it differs from the reason of the stop.
    """
    hold = unit.placement
    if hold is None:
        return
    unit.because = because or reason
    unit.balancing = False
    inventory.drop(unit, hold)
    inventory.supersede(unit, hold)
    unit.destination = destination
    if unit.id.task is None:
        _forget_task_configs(connector)
    fleet.send_to(hold.worker_id, StopUnit(unit.id, hold.assignment, reason))
    inventory.agenda.touch_unit(unit.id)


def stops_by_itself(inventory: Inventory, connector: Connector, unit: Unit, hold: Placement) -> None:
    """The worker releases the unit without a stop command; the unit starts anew after that."""
    inventory.drop(unit, hold)
    inventory.supersede(unit, hold)
    unit.because = f"worker {hold.worker_id} released it"
    if unit.id.task is None:
        _forget_task_configs(connector)
    inventory.agenda.touch_unit(unit.id)


def stop_acknowledged(step: Step, inventory: Inventory, connector: Connector, unit: Unit, hold: Placement) -> None:
    """A worker reports that it no longer runs the unit."""
    asked = hold is not unit.placement
    inventory.drop(unit, hold)
    if not asked:
        unit.because = f"worker {hold.worker_id} released it"
        settled = step.now - hold.since_ms >= RELEASE_BACKOFF_MS_MAX
        unit.release_count = 0 if settled else unit.release_count
        backoff_ms = min(RELEASE_BACKOFF_MS * 2**unit.release_count, RELEASE_BACKOFF_MS_MAX)
        unit.release_count = min(unit.release_count + 1, 10)
        unit.not_before_ms = step.now + backoff_ms
        inventory.agenda.wake_unit(unit.id, unit.not_before_ms)
        if unit.id.task is None:
            _forget_task_configs(connector)
    inventory.agenda.touch_unit(unit.id)


def lose(step: Step, fleet: Fleet, inventory: Inventory, connector: Connector, unit: Unit, hold: Placement) -> None:
    """A worker that is unreachable may still run the unit: its task must be fenced before a changed set starts."""
    was_current = hold is unit.placement
    inventory.drop(unit, hold)
    if unit.id.task is None:
        if was_current:
            _forget_task_configs(connector)
    else:
        connector.unfenced.add(unit.id.task)
        connector.fencing.discard(unit.id.task)
    if was_current:
        unit.because = f"worker {hold.worker_id} was lost"
        unit.waits_for = hold.worker_id
        unit.waits_until_ms = step.now + step.rules.rebalance_delay_ms
        if step.rules.rebalance_delay_ms:
            fleet.wait_for_return(hold.worker_id, unit.waits_until_ms)
            inventory.agenda.wake_unit(unit.id, unit.waits_until_ms)
    inventory.agenda.place_all()
    inventory.agenda.touch_unit(unit.id)


def lose_all(step: Step, fleet: Fleet, inventory: Inventory, member: Member) -> None:
    """Every unit of a worker is lost; no other unit is touched."""
    for unit_id in sorted(member.load, key=lambda item: item.order):
        connector = inventory.connector(unit_id.connector)
        unit = connector.unit(unit_id.task)
        for hold in [hold for hold in unit.placements() if hold.worker_id == member.worker_id]:
            lose(step, fleet, inventory, connector, unit, hold)


def expire_stops(step: Step, fleet: Fleet, inventory: Inventory, connector: Connector, units: Iterable[Unit]) -> None:
    """Count a stop without an acknowledgement within `stop_timeout_ms` as a loss, so that a stuck task blocks nothing
    for ever.
    """
    for unit in units:
        for hold in list(unit.superseded):
            if step.now - hold.stop_sent_ms >= step.rules.stop_timeout_ms:
                lose(step, fleet, inventory, connector, unit, hold)


def state_reported(step: Step, fleet: Fleet, connector: Connector, unit: Unit, state: RunState | None) -> None:
    """The worker that holds the unit reports its state; set the times and follow-ups of a change."""
    hold = unit.placement
    assert hold is not None
    if hold.state is state:
        return
    if hold.state is None and hold.displaced:
        fleet.note_unrest()
    hold.state = state
    hold.since_ms, hold.since_known = step.now, True
    hold.judged = False
    unit.restarting = unit.restarting and state is None
    unit.shows_restarting = unit.shows_restarting and state is None
    if state is RunState.RUNNING and hold.ran_since_ms is None:
        hold.ran_since_ms = step.now
    if state is RunState.RUNNING and unit.id.task is None:
        connector.generate = Generate.WANTED
        connector.generate_attempts = connector.generate_ms = 0


def _forget_task_configs(connector: Connector) -> None:
    """The instance that was to create task configs is gone; the next start of the connector requests them anew."""
    connector.generate = Generate.NO
    connector.made = None
    connector.trouble = ""
