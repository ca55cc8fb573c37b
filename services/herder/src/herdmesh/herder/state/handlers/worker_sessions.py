"""Workers: their sessions, what they say, and when they count as lost.

Owns adoption (hello), reports, silence and broken streams. Owns no placement.

Invariants: a worker keeps after hello exactly what `Welcome.adopted` names; a session that was replaced is never
listened to again; only a broken stream that stays broken for the grace, silence for the session timeout, or another
incarnation of the same worker id frees units, and only that worker's.
"""

from __future__ import annotations

from herdmesh.herder.state.calls import calls, loggers
from herdmesh.herder.state.leadership import leadership_queries
from herdmesh.herder.state.memory import Connector, Generate, Hold, Member, Mesh, Unit
from herdmesh.herder.state.model import Holding, RunState, TargetState, UnitId
from herdmesh.herder.state.model.events import (
    CommandReplied,
    StreamBroken,
    TaskConfigsMade,
    UnitReported,
    WorkerHeartbeat,
    WorkerHello,
    WorkerLeft,
)
from herdmesh.herder.state.model.instructions import CloseSession, Heartbeat, Released, StopUnit, Welcome
from herdmesh.herder.state.units import holds, rate_limits, task_sets
from herdmesh.herder.state.workers import commands, drains, duplicate_ids, plugin_catalog
from herdmesh.rpc.errors import NoLeader, StaleGeneration

_TOLD = {
    RunState.RUNNING: TargetState.STARTED,
    RunState.PAUSED: TargetState.PAUSED,
    RunState.STOPPED: TargetState.STOPPED,
}


def hello(mesh: Mesh, event: WorkerHello) -> None:
    """Open a session: adopt what matches, stop the rest, free what the worker no longer has."""
    refused = leadership_queries.refusal(mesh)
    if refused is None and event.epoch_max > mesh.epoch:
        refused = NoLeader("the worker has seen a newer leader than this herder; dial again")
    if refused is not None:
        mesh.out.append(CloseSession(event.session, refused))
        return
    before = mesh.members.get(event.worker_id)
    refused = duplicate_ids.refusal(mesh, before, event)
    if refused is not None:
        mesh.out.append(CloseSession(event.session, refused))
        return
    if before is not None:
        _replace(mesh, before, event)
    member = Member(
        worker_id=event.worker_id,
        incarnation=event.incarnation,
        address=event.address,
        slots=event.slots,
        plugins=event.plugins,
        refused=event.refused,
        has_plugin_folders=event.has_plugin_folders,
        session=event.session,
        connected_ms=mesh.now,
        heard_ms=mesh.now,
        replaced=duplicate_ids.replaced(before, event),
    )
    drains.greet(mesh, member, before, event)
    if before is not None:
        member.load = before.load
    mesh.members[event.worker_id] = member
    plugin_catalog.note(mesh, member)
    mesh.departed.pop(event.worker_id, None)
    mesh.sessions[event.session] = event.worker_id
    mesh.awaited.pop(event.worker_id, None)
    mesh.unrest_ms = mesh.now
    claims = {holding.unit: holding for holding in event.holdings}
    known = _reconcile_known(mesh, member, claims)
    adopted = [
        holding.unit
        for holding in sorted(event.holdings, key=lambda item: item.unit.order)
        if _adopt(mesh, member, holding, counted=holding.unit not in known)
    ]
    mesh.send(event.session, Welcome(tuple(adopted), mesh.rules.session_timeout_ms, mesh.rules.herder_id))
    kept = frozenset(adopted)
    for holding in event.holdings:
        if holding.unit not in kept:
            mesh.send(event.session, StopUnit(holding.unit, holding.assignment, "not wanted here any more"))
    if before is None or before.incarnation != member.incarnation:
        _assemble(mesh)
    loggers.catch_up(mesh, member, event.logger_revision)
    drains.remind(mesh, member, event.draining)
    mesh.place_again = True
    mesh.show_worker(member.worker_id)


def _assemble(mesh: Mesh) -> None:
    """Where nothing runs yet, the first worker waits for others to share with."""
    wait_ms = mesh.rules.initial_delay_ms
    if leadership_queries.assembling(mesh):
        mesh.assembling_until_ms = min(mesh.now + wait_ms, mesh.assembling_since_ms + 3 * wait_ms)
    elif len(mesh.members) == 1 and not any(member.load for member in mesh.members.values()):
        mesh.assembling_since_ms, mesh.assembling_until_ms = mesh.now, mesh.now + wait_ms


def _replace(mesh: Mesh, before: Member, event: WorkerHello) -> None:
    """The same worker id dials in again: end the older stream; another incarnation means the older process is gone."""
    if before.session is not None and before.session != event.session:
        replaced = StaleGeneration(f"worker {before.worker_id} opened another session")
        mesh.out.append(CloseSession(before.session, replaced))
        _end_session(mesh, before)
    if before.incarnation != event.incarnation:
        drains.gone(mesh, before, held_nothing=not before.load)
        # Its runs may outlive it for seconds (a JVM, a Python process), so its tasks are lost, not acknowledged.
        holds.lose_all(mesh, before)


def _reconcile_known(mesh: Mesh, member: Member, claims: dict[UnitId, Holding]) -> set[UnitId]:
    """Drop what this worker says it has not; returns the units it was known to hold."""
    known: set[UnitId] = set()
    for unit_id in sorted(member.load, key=lambda item: item.order):
        connector = mesh.connector(unit_id.connector)
        unit = connector.unit(unit_id.task)
        claim = claims.get(unit_id)
        for hold in [hold for hold in unit.holds() if hold.worker_id == member.worker_id]:
            if claim is not None and claim.assignment == hold.assignment:
                if hold is unit.hold:
                    known.add(unit_id)
                else:
                    hold.stop_sent_ms = mesh.now
            else:
                holds.acknowledged(mesh, connector, unit, hold)
                unit.not_before_ms = 0
    return known


def _adopt(mesh: Mesh, member: Member, holding: Holding, counted: bool) -> bool:
    """True when the worker may keep what it claims; otherwise it is a stray until the worker says it is gone."""
    connector = mesh.connector(holding.unit.connector)
    unit = connector.unit(holding.unit.task)
    mesh.touch_unit(unit.id)
    hold = unit.hold
    if hold is not None and hold.worker_id == member.worker_id and hold.assignment == holding.assignment:
        if holding.stopping:
            holds.stops_by_itself(mesh, connector, unit, hold)
            return False
        _refresh(mesh, connector, unit, holding)
        return True
    if any(stray.worker_id == member.worker_id and stray.assignment == holding.assignment for stray in unit.strays):
        return False
    claim = Hold(member.worker_id, holding.assignment, mesh.now)
    claim.because = f"leader epoch {mesh.epoch} found it there and left it"
    entry = connector.stored
    others = max((other.assignment.order for other in unit.holds()), default=(0, 0))
    newest = max(unit.newest_generation, holds.reported(mesh, holding.unit))
    stale = claim.assignment.order < others or claim.assignment.generation < newest
    if entry is None or stale or holding.stopping or not holds.matches(entry, holding.unit, holding.assignment):
        mesh.stray(unit, claim)
        return False
    if hold is not None:
        holds.stop(mesh, connector, unit, "another worker holds a newer assignment")
    mesh.take(unit, claim)
    _refresh(mesh, connector, unit, holding)
    claim.since_known = False
    if counted:
        mesh.adopted_count += 1
    return True


def _refresh(mesh: Mesh, connector: Connector, unit: Unit, holding: Holding) -> None:
    """Take over the state a hello tells. A RUNNING connector is asked for task configs only when the set needs it."""
    hold = unit.hold
    entry = connector.stored
    assert hold is not None
    assert entry is not None
    state = None if holding.state is RunState.UNASSIGNED else holding.state
    was_known = hold.state is state
    holds.said(mesh, connector, unit, state)
    hold.failure = holding.failure
    # What it was told follows from the state; a unit that is FAILED or starting is told again: its target may have been
    # changed while nobody led.
    hold.target = _TOLD.get(holding.state)
    if unit.id.task is None and state is RunState.RUNNING:
        asked = connector.generate is not Generate.NO and was_known
        connector.generate = Generate.WANTED if asked or not entry.set_is_current else Generate.NO


def heartbeat(mesh: Mesh, event: WorkerHeartbeat) -> None:
    """The worker lives; note how far its tasks have come."""
    member = mesh.member_of(event.session)
    if member is None:
        return
    member.heard_ms = mesh.now
    limited: dict[str, Connector] = {}
    for progress in event.progress:
        connector = mesh.connectors.get(progress.unit.connector)
        unit = connector.units.get(progress.unit.task) if connector is not None else None
        if unit is not None and unit.hold is not None and unit.hold.worker_id == member.worker_id:
            was_limited = unit.progress is not None and unit.progress.is_limited
            unit.progress = progress
            mesh.show(progress.unit.connector)
            if connector is not None and (progress.is_limited or was_limited):
                limited[connector.name] = connector
    for connector in limited.values():
        rate_limits.settle(mesh, connector)
    for unit_id, wait in event.waits:
        connector = mesh.connectors.get(unit_id.connector)
        unit = connector.units.get(unit_id.task) if connector is not None else None
        if unit is not None and unit.hold is not None and unit.hold.worker_id == member.worker_id:
            unit.wait = wait
            mesh.show(unit_id.connector)


def reported(mesh: Mesh, event: UnitReported) -> None:
    """A unit changed state, or a stop is acknowledged."""
    member = mesh.member_of(event.session)
    if member is None:
        return
    member.heard_ms = mesh.now
    connector = mesh.connectors.get(event.unit.connector)
    unit = connector.units.get(event.unit.task) if connector is not None else None
    hold = None
    if unit is not None:
        mine = (hold for hold in unit.holds() if hold.worker_id == member.worker_id)
        hold = next((hold for hold in mine if hold.assignment == event.assignment), None)
    if connector is None or unit is None or hold is None:
        if event.state is not RunState.UNASSIGNED:
            mesh.send(event.session, StopUnit(event.unit, event.assignment, "this worker does not hold it"))
        return
    if event.state is RunState.UNASSIGNED:
        holds.acknowledged(mesh, connector, unit, hold)
        return
    if hold is not unit.hold:
        return  # it is being stopped; only the acknowledgement counts
    hold.failure = event.failure
    holds.said(mesh, connector, unit, event.state)
    # What it has done is the last that it was told, as far as we can know: it may have begun to pause before it dialled
    # in as RUNNING. Anything else that it should do it is told again.
    hold.target = _TOLD.get(event.state, hold.target)
    mesh.touch_unit(unit.id)


def task_configs(mesh: Mesh, event: TaskConfigsMade) -> None:
    """A connector made task configs; those of an older instance are ignored."""
    member = mesh.member_of(event.session)
    if member is None:
        return
    member.heard_ms = mesh.now
    connector = mesh.connectors.get(event.connector)
    hold = connector.unit(None).hold if connector is not None else None
    if connector is None or hold is None or hold.worker_id != member.worker_id:
        return
    if hold.assignment == event.assignment:
        task_sets.made(mesh, connector, event.tasks, event.failure)


def replied(mesh: Mesh, event: CommandReplied) -> None:
    """A worker carried out a command."""
    member = mesh.member_of(event.session)
    if member is not None:
        member.heard_ms = mesh.now
    command = commands.take(mesh, event.session, event.command_id)
    if command is None:
        return
    if command.call is not None:
        calls.answered(mesh, command.call, command, event)
    else:
        task_sets.fenced(mesh, command.connector, event.failure)


def leaving(mesh: Mesh, event: WorkerLeft) -> None:
    """The worker stops cleanly: everything goes elsewhere, then `Released`."""
    member = mesh.member_of(event.session)
    if member is None:
        return
    member.heard_ms = mesh.now
    drains.leaves(mesh, member)
    mesh.unrest_ms = mesh.now
    mesh.place_again = True
    mesh.show_worker(member.worker_id)


def broken(mesh: Mesh, event: StreamBroken) -> None:
    """The stream ended. The worker has the grace to dial in again before its units go elsewhere."""
    member = mesh.member_of(event.session)
    if member is None:
        return
    _end_session(mesh, member)
    member.broken_ms = mesh.unrest_ms = mesh.now
    mesh.place_again = True
    mesh.show_worker(member.worker_id)
    for unit in member.load:
        mesh.touch_unit(unit)
    if member.leaving and not member.load:
        _forget(mesh, member, held_nothing=True)


def tick(mesh: Mesh, stalled_ms: int) -> None:
    """Find the lost and the drained, and say that we live. Time in which this process itself stood still, and so could
    not listen, is not held against workers."""
    rules = mesh.rules
    for member in list(mesh.members.values()):
        member.heard_ms = min(mesh.now, member.heard_ms + stalled_ms)
        if member.broken_ms is not None:
            member.broken_ms += stalled_ms
        silent = mesh.now - member.heard_ms >= rules.session_timeout_ms
        away = member.session is None and mesh.now - (member.broken_ms or 0) >= rules.stream_grace_ms
        if silent or away:
            _lose(mesh, member, silent)
    if mesh.assembling_until_ms and not leadership_queries.assembling(mesh):
        mesh.assembling_since_ms = mesh.assembling_until_ms = 0
        mesh.place_again = True
    if mesh.leaving_until_ms and mesh.now >= mesh.leaving_until_ms:
        mesh.leaving_since_ms = mesh.leaving_until_ms = 0
        mesh.place_again = True
    for worker_id in [worker_id for worker_id, until_ms in mesh.awaited.items() if mesh.now >= until_ms]:
        del mesh.awaited[worker_id]
        mesh.place_again = True
    if mesh.now - mesh.heartbeat_ms >= rules.heartbeat_ms:
        mesh.heartbeat_ms = mesh.now
        for session in mesh.sessions:
            mesh.send(session, Heartbeat())


def release_leavers(mesh: Mesh) -> None:
    """Let go of leaving workers that hold nothing more."""
    for member in list(mesh.members.values()):
        if member.leaving and not member.load and member.session is not None:
            mesh.send(member.session, Released())
            mesh.out.append(CloseSession(member.session, None))
            _end_session(mesh, member)
            _forget(mesh, member, held_nothing=True)


def _lose(mesh: Mesh, member: Member, silent: bool) -> None:
    if member.session is not None:
        why = "it was silent for the session timeout" if silent else "its stream broke"
        mesh.out.append(CloseSession(member.session, StaleGeneration(f"this worker counts as lost: {why}")))
        _end_session(mesh, member)
    held_nothing = not member.load
    holds.lose_all(mesh, member)
    _forget(mesh, member, held_nothing=held_nothing)


def _forget(mesh: Mesh, member: Member, *, held_nothing: bool) -> None:
    drains.gone(mesh, member, held_nothing=held_nothing)
    mesh.members.pop(member.worker_id, None)
    mesh.unrest_ms = mesh.now
    mesh.place_again = True
    mesh.show_worker(member.worker_id)


def _end_session(mesh: Mesh, member: Member) -> None:
    """Nothing goes over the worker's session any more; what was asked over it is asked of another worker."""
    session, member.session = member.session, None
    if session is None:
        return
    mesh.sessions.pop(session, None)
    for command in commands.orphans(mesh, session):
        if command.call is not None:
            calls.worker_lost(mesh, command.call, command)
        else:
            task_sets.fence_again(mesh, command.connector)
