"""Worker sessions: hello and adoption, reports, silence, broken streams, and the loss of workers.

Owns adoption (hello), reports, silence and broken streams. Does not own placement.

Invariants: a worker keeps after hello exactly the units that `Welcome.adopted` names; messages of a replaced session
are ignored; only a stream that stays broken for the grace, silence for the session timeout, or another incarnation of
the same worker id frees units, and only that worker's.
"""

from __future__ import annotations

from herdmesh.herder.state.calls import calls, loggers
from herdmesh.herder.state.leadership import leadership_queries
from herdmesh.herder.state.memory import (
    Agenda,
    Connector,
    Fleet,
    Generate,
    HerderMemory,
    Inventory,
    Member,
    Placement,
    Step,
    Unit,
)
from herdmesh.herder.state.model.events import (
    CommandReplied,
    StreamBroken,
    TaskConfigsMade,
    UnitReported,
    WorkerHeartbeat,
    WorkerHello,
    WorkerLeft,
)
from herdmesh.herder.state.model.instructions import CloseSession
from herdmesh.herder.state.units import handover, rate_limits, task_counts, task_sets
from herdmesh.herder.state.workers import drains, duplicate_ids
from herdmesh.rpc.errors import NoLeader, Superseded
from herdmesh.session.messages import Released, StopUnit, Welcome
from herdmesh.session.model import HeldUnit, RunState, TargetState, UnitId

_TARGET_IN_STATE = {
    RunState.RUNNING: TargetState.STARTED,
    RunState.PAUSED: TargetState.PAUSED,
    RunState.STOPPED: TargetState.STOPPED,
}


def hello(memory: HerderMemory, event: WorkerHello) -> None:
    """Open a session: adopt the units that match, stop the others, free those that the worker no longer holds."""
    refused = leadership_queries.refusal(memory.step, memory.leadership)
    if refused is None and event.epoch_max > memory.leadership.epoch:
        refused = NoLeader("the worker has seen a newer leader than this herder; dial again")
    if refused is not None:
        memory.step.emit(CloseSession(event.session, refused))
        return
    before = memory.fleet.members.get(event.worker_id)
    refused = duplicate_ids.refusal(memory.step, memory.agenda, before, event)
    if refused is not None:
        memory.step.emit(CloseSession(event.session, refused))
        return
    if before is not None:
        _replace(memory, before, event)
    member = Member(
        worker_id=event.worker_id,
        incarnation=event.incarnation,
        address=event.address,
        slots=event.slots,
        plugins=event.plugins,
        refused=event.refused,
        has_plugin_folders=event.has_plugin_folders,
        session=event.session,
        connected_ms=memory.step.now,
        last_message_ms=memory.step.now,
        replaced=duplicate_ids.replaced(before, event),
    )
    drains.on_hello(memory.step, memory.fleet, member, before, event)
    if before is not None:
        member.load = before.load
    memory.fleet.join(member, event.session)
    memory.fleet.note_plugins(member)
    memory.fleet.note_unrest()
    claims = {held_unit.unit: held_unit for held_unit in event.held_units}
    known = _reconcile_known(memory.step, memory.inventory, member, claims)
    adopted = [
        held_unit.unit
        for held_unit in sorted(event.held_units, key=lambda item: item.unit.order)
        if _adopt(memory, member, held_unit, counted=held_unit.unit not in known)
    ]
    memory.fleet.send(
        event.session, Welcome(tuple(adopted), memory.step.rules.session_timeout_ms, memory.step.rules.herder_id)
    )
    kept = frozenset(adopted)
    for held_unit in event.held_units:
        if held_unit.unit not in kept:
            memory.fleet.send(
                event.session, StopUnit(held_unit.unit, held_unit.assignment, "no longer wanted on this worker")
            )
    if before is None or before.incarnation != member.incarnation:
        _assemble(memory.step, memory.fleet)
    loggers.catch_up(memory.stores, memory.fleet, member, event.logger_revision)
    drains.remind(memory.fleet, member, event.draining)
    memory.agenda.place_all()
    memory.agenda.show_worker(member.worker_id)


def _assemble(step: Step, fleet: Fleet) -> None:
    """While nothing runs anywhere, have the first worker wait for others, so that units are spread over all of them."""
    wait_ms = step.rules.initial_delay_ms
    if fleet.assembling.is_open:
        fleet.assembling.lengthen(wait_ms)
    elif len(fleet.members) == 1 and not any(member.load for member in fleet.members.values()):
        fleet.assembling.open(wait_ms)


def _replace(memory: HerderMemory, before: Member, event: WorkerHello) -> None:
    """The worker id dialled in again: end the older stream; another incarnation means the older process is gone."""
    if before.session is not None and before.session != event.session:
        replaced = Superseded(f"worker {before.worker_id} opened another session")
        memory.step.emit(CloseSession(before.session, replaced))
        _end_session(memory, before)
    if before.incarnation != event.incarnation:
        drains.gone(memory.fleet, before, held_nothing=not before.load)
        # Its runs may outlive it for seconds (a JVM, a Python process), so its tasks are lost, not acknowledged.
        handover.lose_all(memory.step, memory.fleet, memory.inventory, before)


def _reconcile_known(step: Step, inventory: Inventory, member: Member, claims: dict[UnitId, HeldUnit]) -> set[UnitId]:
    """Drop the placements that this worker does not claim; returns the units that it was known to hold."""
    known: set[UnitId] = set()
    for unit_id in sorted(member.load, key=lambda item: item.order):
        connector = inventory.connector(unit_id.connector)
        unit = connector.unit(unit_id.task)
        claim = claims.get(unit_id)
        for hold in [hold for hold in unit.placements() if hold.worker_id == member.worker_id]:
            if claim is not None and claim.assignment == hold.assignment:
                if hold is unit.placement:
                    known.add(unit_id)
                else:
                    hold.stop_sent_ms = step.now
            else:
                handover.stop_acknowledged(step, inventory, connector, unit, hold)
                unit.not_before_ms = 0
    return known


def _adopt(memory: HerderMemory, member: Member, held_unit: HeldUnit, counted: bool) -> bool:
    """True when the worker may keep the claimed unit; otherwise the claim is a superseded placement until the worker
    reports its stop.
    """
    connector = memory.inventory.connector(held_unit.unit.connector)
    unit = connector.unit(held_unit.unit.task)
    memory.agenda.touch_unit(unit.id)
    hold = unit.placement
    if hold is not None and hold.worker_id == member.worker_id and hold.assignment == held_unit.assignment:
        if held_unit.stopping:
            handover.stops_by_itself(memory.inventory, connector, unit, hold)
            return False
        _refresh(memory.step, memory.fleet, connector, unit, held_unit)
        return True
    if any(
        superseded.worker_id == member.worker_id and superseded.assignment == held_unit.assignment
        for superseded in unit.superseded
    ):
        return False
    claim = Placement(member.worker_id, held_unit.assignment, memory.step.now)
    claim.because = f"leader epoch {memory.leadership.epoch} found it there and left it"
    entry = connector.stored
    others = max((other.assignment.order for other in unit.placements()), default=(0, 0))
    newest = max(unit.newest_generation, handover.reported_generation(memory.stores, held_unit.unit))
    stale = claim.assignment.order < others or claim.assignment.generation < newest
    if (
        entry is None
        or stale
        or held_unit.stopping
        or not handover.matches(entry, held_unit.unit, held_unit.assignment)
    ):
        memory.inventory.supersede(unit, claim)
        return False
    if hold is not None:
        handover.stop(memory.fleet, memory.inventory, connector, unit, "another worker holds a newer assignment")
    memory.inventory.take(unit, claim)
    _refresh(memory.step, memory.fleet, connector, unit, held_unit)
    claim.since_known = False
    if counted:
        memory.leadership.count_adopted()
    return True


def _refresh(step: Step, fleet: Fleet, connector: Connector, unit: Unit, held_unit: HeldUnit) -> None:
    """Store the state in a hello. Request task configs from a RUNNING connector only when its set needs it."""
    hold = unit.placement
    entry = connector.stored
    assert hold is not None
    assert entry is not None
    state = None if held_unit.state is RunState.UNASSIGNED else held_unit.state
    was_known = hold.state is state
    handover.state_reported(step, fleet, connector, unit, state)
    hold.failure = held_unit.failure
    # The state implies the last target. A FAILED or starting unit is sent its target again: it may have changed while
    # nobody led.
    hold.target = _TARGET_IN_STATE.get(held_unit.state)
    if unit.id.task is None and state is RunState.RUNNING:
        asked = connector.generate is not Generate.NO and was_known
        connector.generate = Generate.WANTED if asked or not entry.set_is_current else Generate.NO


def heartbeat(step: Step, fleet: Fleet, inventory: Inventory, event: WorkerHeartbeat) -> None:
    """The worker lives; store the progress and the waits of its units."""
    member = fleet.member_of(event.session)
    if member is None:
        return
    member.last_message_ms = step.now
    if event.slot_use is not None and event.slot_use != member.slot_use:
        member.slot_use = event.slot_use
        inventory.agenda.show_worker(member.worker_id)
    limited: dict[str, Connector] = {}
    for progress in event.progress:
        connector = inventory.connectors.get(progress.unit.connector)
        unit = connector.units.get(progress.unit.task) if connector is not None else None
        if unit is not None and unit.placement is not None and unit.placement.worker_id == member.worker_id:
            was_limited = unit.progress is not None and unit.progress.is_limited
            unit.progress = progress
            inventory.agenda.show(progress.unit.connector)
            if connector is not None:
                task_counts.note(connector, unit, unit.placement, progress.counts)
                if progress.is_limited or was_limited:
                    limited[connector.name] = connector
    for connector in limited.values():
        rate_limits.share_limits(fleet, connector)
    for unit_id, wait in event.waits:
        connector = inventory.connectors.get(unit_id.connector)
        unit = connector.units.get(unit_id.task) if connector is not None else None
        if unit is not None and unit.placement is not None and unit.placement.worker_id == member.worker_id:
            unit.wait = wait
            inventory.agenda.show(unit_id.connector)


def reported(step: Step, fleet: Fleet, inventory: Inventory, event: UnitReported) -> None:
    """A unit changed state, or the worker acknowledges a stop."""
    member = fleet.member_of(event.session)
    if member is None:
        return
    member.last_message_ms = step.now
    connector = inventory.connectors.get(event.unit.connector)
    unit = connector.units.get(event.unit.task) if connector is not None else None
    hold = None
    if unit is not None:
        mine = (hold for hold in unit.placements() if hold.worker_id == member.worker_id)
        hold = next((hold for hold in mine if hold.assignment == event.assignment), None)
    if connector is None or unit is None or hold is None:
        if event.state is not RunState.UNASSIGNED:
            fleet.send(event.session, StopUnit(event.unit, event.assignment, "this worker does not hold it"))
        return
    if event.state is RunState.UNASSIGNED:
        if unit.placement in (None, hold):
            task_counts.note(connector, unit, hold, event.counts)
        handover.stop_acknowledged(step, inventory, connector, unit, hold)
        return
    if hold is not unit.placement:
        return  # it is being stopped; only the acknowledgement counts
    hold.failure = event.failure
    handover.state_reported(step, fleet, connector, unit, event.state)
    # The reported state is taken for the last target that the worker knows: it may have begun to pause before it
    # dialled in as RUNNING. Any other target is sent again.
    hold.target = _TARGET_IN_STATE.get(event.state, hold.target)
    inventory.agenda.touch_unit(unit.id)


def task_configs(step: Step, fleet: Fleet, inventory: Inventory, event: TaskConfigsMade) -> None:
    """A connector returned task configs; those of an older instance are ignored."""
    member = fleet.member_of(event.session)
    if member is None:
        return
    member.last_message_ms = step.now
    connector = inventory.connectors.get(event.connector)
    hold = connector.unit(None).placement if connector is not None else None
    if connector is None or hold is None or hold.worker_id != member.worker_id:
        return
    if hold.assignment == event.assignment:
        task_sets.made(step, inventory.agenda, connector, event.tasks, event.failure)


def replied(memory: HerderMemory, event: CommandReplied) -> None:
    """A worker replied to a command."""
    member = memory.fleet.member_of(event.session)
    if member is not None:
        member.last_message_ms = memory.step.now
    command = memory.call_table.take_command(event.command_id, event.session)
    if command is None:
        return
    if command.call is not None:
        calls.on_reply(memory, command.call, command, event)
    else:
        task_sets.fenced(memory.step, memory.inventory, command.connector, event.failure)


def leaving(step: Step, agenda: Agenda, fleet: Fleet, event: WorkerLeft) -> None:
    """The worker stops cleanly: move all its units to other workers, then send `Released`."""
    member = fleet.member_of(event.session)
    if member is None:
        return
    member.last_message_ms = step.now
    drains.leaves(step, fleet, member)
    fleet.note_unrest()
    agenda.place_all()
    agenda.show_worker(member.worker_id)


def broken(memory: HerderMemory, event: StreamBroken) -> None:
    """The stream ended. The worker may dial in again during the grace before its units move."""
    member = memory.fleet.member_of(event.session)
    if member is None:
        return
    _end_session(memory, member)
    member.broken_ms = memory.step.now
    memory.fleet.note_unrest()
    memory.agenda.place_all()
    memory.agenda.show_worker(member.worker_id)
    for unit in member.load:
        memory.agenda.touch_unit(unit)
    if member.leaving and not member.load:
        _forget(memory.agenda, memory.fleet, member, held_nothing=True)


def tick(memory: HerderMemory, stalled_ms: int) -> None:
    """Find lost workers, close windows that are over, and send heartbeats. `stalled_ms`, during which this process was
    frozen and could not receive, is not counted as silence of the workers.
    """
    rules = memory.step.rules
    for member in list(memory.fleet.members.values()):
        member.last_message_ms = min(memory.step.now, member.last_message_ms + stalled_ms)
        if member.broken_ms is not None:
            member.broken_ms += stalled_ms
        silent = memory.step.now - member.last_message_ms >= rules.session_timeout_ms
        away = member.session is None and memory.step.now - (member.broken_ms or 0) >= rules.stream_grace_ms
        if silent or away:
            _lose(memory, member, silent)
    if memory.fleet.assembling.close():
        memory.agenda.place_all()
    if memory.fleet.leaving.close():
        memory.agenda.place_all()
    if memory.fleet.stop_waiting():
        memory.agenda.place_all()
    memory.fleet.send_heartbeats()


def release_leavers(memory: HerderMemory) -> None:
    """Release leaving workers that hold no unit any more."""
    for member in list(memory.fleet.members.values()):
        if member.leaving and not member.load and member.session is not None:
            memory.fleet.send(member.session, Released())
            memory.step.emit(CloseSession(member.session, None))
            _end_session(memory, member)
            _forget(memory.agenda, memory.fleet, member, held_nothing=True)


def _lose(memory: HerderMemory, member: Member, silent: bool) -> None:
    if member.session is not None:
        why = "it was silent for the session timeout" if silent else "its stream broke"
        memory.step.emit(CloseSession(member.session, Superseded(f"this worker counts as lost: {why}")))
        _end_session(memory, member)
    held_nothing = not member.load
    handover.lose_all(memory.step, memory.fleet, memory.inventory, member)
    _forget(memory.agenda, memory.fleet, member, held_nothing=held_nothing)


def _forget(agenda: Agenda, fleet: Fleet, member: Member, *, held_nothing: bool) -> None:
    drains.gone(fleet, member, held_nothing=held_nothing)
    fleet.remove(member.worker_id)
    fleet.note_unrest()
    agenda.place_all()
    agenda.show_worker(member.worker_id)


def _end_session(memory: HerderMemory, member: Member) -> None:
    """Close the worker's session; its open commands go to other workers."""
    session = memory.fleet.end_session(member)
    if session is None:
        return
    for command in memory.call_table.take_commands_of(session):
        if command.call is not None:
            calls.on_worker_lost(memory, command.call, command)
        else:
            task_sets.fence_again(memory.inventory, command.connector)
