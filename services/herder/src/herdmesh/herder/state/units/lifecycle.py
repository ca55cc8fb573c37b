"""Lifecycle of connectors: `reconcile` compares the wanted state of a connector with its placements, and closes the
gap.

Owns the comparison, and the removal of statuses that deleted connectors and tasks leave behind. Does not own the choice
of workers (`placement.py`).

Invariant: `reconcile` may be called at any time and any number of times: called again with nothing changed it does
nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from herdmesh.herder.state.leadership import generations, leadership_queries
from herdmesh.herder.state.memory import (
    Agenda,
    CallTable,
    Connector,
    Fleet,
    Generate,
    HerderMemory,
    Leadership,
    Op,
    OpKind,
    Placement,
    Step,
    StoreViews,
    Unit,
)
from herdmesh.herder.state.model import ConnectorEntry
from herdmesh.herder.state.model.instructions import DeleteStatuses
from herdmesh.herder.state.units import handover, leader_statuses, restarts, task_sets
from herdmesh.herder.state.workers import plugin_eligibility
from herdmesh.session.messages import SetUnitTarget
from herdmesh.session.model import RunState, TargetState, UnitId

#: between two removals of statuses of one connector: the watch needs a moment to show the first.
CLEAN_PAUSE_MS = 2_000
#: between a change of a unit and the check whether statuses can be removed since.
CLEAN_SOON_MS = 100
#: units of one connector stopped, and started, in one step; each is a message and a line in the log.
STOPS_MAX = STARTS_MAX = 100


def reconcile(memory: HerderMemory, connector: Connector, tasks: Collection[int | None] | None = None) -> None:
    """Do everything that can be done for one connector now. `tasks` = the only units that changed (None in it = the
    connector itself), so that no other is checked.
    """
    entry = connector.stored
    if entry is None:
        if not leadership_queries.adopting(memory):
            connector.commits_from, connector.committed = memory.leadership.next_generation, None
    elif tasks is None:
        _make_units(connector, entry)
    if tasks is None:
        units = list(connector.units.values())
    else:
        ordered = sorted(tasks, key=lambda task: -1 if task is None else task)
        units = [unit for task in ordered if (unit := connector.units.get(task)) is not None]
    handover.expire_stops(memory.step, memory.fleet, memory.inventory, connector, units)
    looked_at = _stop_unwanted(memory, connector, entry, units)
    for unit in units[looked_at:]:
        memory.agenda.touch_later(unit.id)
    del units[looked_at:]
    if entry is not None:
        _set_targets(memory.fleet, entry, units)
        task_sets.advance(memory, connector)
        restarts.restart_failed(memory, connector, units)
        _start_ready(memory, connector, entry, units)
        leader_statuses.write_changes(memory.step, memory.stores, memory.call_table, connector, units)
    for unit in units:
        if unit.placement is None and not unit.superseded and (entry is None or not handover.is_wanted(entry, unit.id)):
            connector.units.pop(unit.id.task, None)
    _clean_statuses(memory, connector, entry, tasks)
    nothing_left = not (connector.units or connector.unfenced or connector.cleaning)
    if entry is None and nothing_left and connector.name not in memory.stores.statuses:
        memory.inventory.remove(connector.name)


def ready(memory: HerderMemory, entry: ConnectorEntry, unit: Unit) -> bool:
    """True when the unit may be started as soon as a worker can run it."""
    return may_start(memory) and ready_itself(memory, entry, unit)


def may_start(memory: HerderMemory) -> bool:
    """False while no unit at all is `ready`. Check this once before iterating over thousands of units."""
    return (
        memory.stores.status_store_read
        and not leadership_queries.gathering(memory)
        and not leadership_queries.assembling(memory.fleet)
    )


def ready_itself(memory: HerderMemory, entry: ConnectorEntry, unit: Unit) -> bool:
    """Like `ready`; the caller must have checked `may_start`."""
    if unit.placement is not None or unit.superseded or not handover.is_wanted(entry, unit.id):
        return False
    if memory.step.now < unit.not_before_ms:
        return False
    if unit.waits_for and memory.step.now < unit.waits_until_ms and unit.waits_for not in memory.fleet.members:
        return False
    if unit.id.task is not None and not task_sets.gate_open(entry):
        return False
    return not leadership_queries.kept_for(memory, unit.id)


def able(fleet: Fleet, entry: ConnectorEntry, worker_id: str) -> bool:
    """True when the worker takes work and has the plugins of the connector's config, in the requested versions."""
    member = fleet.members.get(worker_id)
    return member is not None and member.takes_work and plugin_eligibility.runs(fleet, member, entry)


def start_at_destination(memory: HerderMemory, connector: Connector, unit: Unit) -> bool:
    """Start a ready unit on its destination; False when it waits for a generation, as then all other units do."""
    assert unit.destination is not None
    if not generations.generations_left(memory.leadership):
        return False
    handover.start(memory, connector, unit, unit.destination)
    generations.reserve_ahead(memory.leadership)
    return True


def _stop_unwanted(
    memory: HerderMemory, connector: Connector, entry: ConnectorEntry | None, units: Sequence[Unit]
) -> int:
    """Stop units that are not to run, or not as they were started. Returns how many of the units were checked: it ends
    after `STOPS_MAX` stops.
    """
    stopped = 0
    for looked_at, unit in enumerate(units):
        if stopped == STOPS_MAX:
            return looked_at
        hold = unit.placement
        if hold is not None:
            _stop_if_unwanted(memory, connector, entry, unit, hold)
            stopped += unit.placement is not hold
    return len(units)


def _stop_if_unwanted(
    memory: HerderMemory, connector: Connector, entry: ConnectorEntry | None, unit: Unit, hold: Placement
) -> None:
    if entry is None:
        handover.stop(memory.fleet, memory.inventory, connector, unit, "the connector was deleted")
    elif not handover.is_wanted(entry, unit.id):
        stopped = entry.wanted_state is TargetState.STOPPED
        reason = "the connector was stopped" if stopped else "not in the task set any more"
        handover.stop(memory.fleet, memory.inventory, connector, unit, reason)
    elif not handover.matches(entry, unit.id, hold.assignment):
        # It will start again from the new config, on the same worker: a change of config is no reason to move.
        unit.restarting = True
        handover.stop(memory.fleet, memory.inventory, connector, unit, "its config changed", destination=hold.worker_id)
    elif hold.assignment.generation < entry.restarts.get(unit.id.task, 0):
        restarts.restart_unit(memory, connector, unit)
    elif (
        hold.assignment.generation
        < handover.reported_generation(memory.stores, unit.id)
        < memory.leadership.next_generation
    ):
        # An earlier leader gave the unit to another worker later. That worker's last status was written after this
        # one was adopted, and its higher generation hides all later reports of this one.
        unit.restarting = True
        handover.stop(
            memory.fleet, memory.inventory, connector, unit, "a newer owner has reported it", destination=hold.worker_id
        )


def _make_units(connector: Connector, entry: ConnectorEntry) -> None:
    connector.unit(None)
    if handover.tasks_wanted(entry):
        for task in range(len(entry.tasks)):
            connector.unit(task)


def _set_targets(fleet: Fleet, entry: ConnectorEntry, units: Iterable[Unit]) -> None:
    for unit in units:
        hold = unit.placement
        target = handover.target_of(entry, unit.id)
        if hold is None or hold.target is target:
            continue
        if fleet.send_to(hold.worker_id, SetUnitTarget(unit.id, target)):
            hold.target = target


def _start_ready(memory: HerderMemory, connector: Connector, entry: ConnectorEntry, units: Sequence[Unit]) -> None:
    started = 0
    for number, unit in enumerate(units):
        if started == STARTS_MAX:
            for left in units[number:]:
                memory.agenda.touch_later(left.id)
            return
        if not ready(memory, entry, unit):
            continue
        if unit.destination is None or not able(memory.fleet, entry, unit.destination):
            memory.agenda.place_units_of(connector.name)
            continue
        if not start_at_destination(memory, connector, unit):
            return
        started += 1


def _clean_statuses(
    memory: HerderMemory, connector: Connector, entry: ConnectorEntry | None, tasks: Collection[int | None] | None
) -> None:
    """Remove statuses of deleted connectors and tasks, once no worker can write them
    (docs/reference/connect/status-topic.md, section 6). A change of some units only (`tasks`) is checked a moment
    later, once for all changes until then.

    A stopped connector keeps its tasks' statuses, unlike in Connect: they record that offsets were committed, without
    which offsets lost while it was stopped would look like a first start.
    """
    stored = memory.stores.statuses.get(connector.name)
    if tasks is None:
        connector.has_leftovers = connector.cleaning_due = False
    elif entry is not None:
        count = len(entry.tasks)
        if connector.has_leftovers or any(task is not None and task >= count for task in tasks):
            _clean_soon(memory.step, memory.agenda, connector)
        return
    if not stored or connector.cleaning or leadership_queries.adopting(memory) or memory.step.now < connector.clean_ms:
        return
    if entry is None:
        if not connector.units:
            _clean(memory.step, memory.leadership, memory.call_table, connector, None)
        return
    if entry.inconsistent or entry.wanted_state is TargetState.STOPPED:
        return
    if entry.tasks and not task_sets.gate_open(entry):
        return
    if entry.applied_config is None and not entry.adopted:
        return  # no task set is known to us; our first commit decides
    count = len(entry.tasks)
    left = [status for task, status in stored.items() if task is not None and task >= count]
    connector.has_leftovers = bool(left)
    if all(status.unit.task in connector.units for status in left):
        return
    if not any(handover.remembers(connector, status) for status in left) or _have_all_reported(
        memory.stores, connector, entry
    ):
        _clean(memory.step, memory.leadership, memory.call_table, connector, count)


def _clean_soon(step: Step, agenda: Agenda, connector: Connector) -> None:
    if not connector.cleaning_due:
        connector.cleaning_due = True
        agenda.wake(connector.name, step.now + CLEAN_SOON_MS)


def _have_all_reported(stores: StoreViews, connector: Connector, entry: ConnectorEntry) -> bool:
    """True when every task of the set has reported since its start: the commits of removed task numbers, which each
    task gets at its start, are in its own status by then, and outlive those tasks and this leader.

    A stop empties the set. Whatever happens until new tasks are created (a pause, a failure, no worker, a new leader),
    the next tasks must find the commits of the earlier ones.
    """
    if not entry.tasks and entry.applied_config is not None:
        return _has_committed_configs(connector, entry)
    for task in range(len(entry.tasks)):
        hold, status = connector.unit(task).placement, stores.status_of(UnitId(entry.name, task))
        if hold is None or status is None or status.generation < hold.assignment.generation:
            return False
    return True


def _has_committed_configs(connector: Connector, entry: ConnectorEntry) -> bool:
    """True when the running connector has created its task configs, and the watch has brought their commit.

    False before it runs: only its report RUNNING leads to a task-config request.
    """
    hold = connector.unit(None).placement
    if hold is None or hold.state is not RunState.RUNNING or entry.wanted_state is not TargetState.STARTED:
        return False
    under_way = connector.busy or connector.wait_revision is not None
    return not (under_way or connector.generate is not Generate.NO or connector.made is not None)


def _clean(
    step: Step, leadership: Leadership, call_table: CallTable, connector: Connector, tasks_from: int | None
) -> None:
    connector.cleaning = True
    op = call_table.op(Op(OpKind.CLEAN, connector.name))
    step.emit(DeleteStatuses(op, connector.name, tasks_from, leadership.next_generation))


def cleaned(step: Step, agenda: Agenda, connector: Connector) -> None:
    """A removal of statuses ended, with or without success; statuses that remain are removed again."""
    connector.cleaning = False
    connector.clean_ms = step.now + CLEAN_PAUSE_MS
    agenda.wake(connector.name, connector.clean_ms)
    agenda.touch(connector.name)
