"""The offsets of a connector (KIP-875): told in any state, changed while it is stopped.

Owns what must be true before a worker may change them, in Connect's order (reference offsets-topic 10.3): something is
asked for; the connector is there; its target state is STOPPED; it has no task set, and no task of it runs any more or
could still commit. And what follows: the statuses of the tasks, which remember that something was committed, go with
offsets that are forgotten; else the next run would take them for lost. The change is a worker's, all or none.

Departs from Connect: a connector that was told to stop a moment ago is waited for; it is no error.

While the connector is left alone everything here may be done twice, so a question is asked again when its worker goes,
and a retry does all of it again; what a reset forgot is known from before it. Once something else was done to the
connector that would undo what came after: `offset_records` keeps with the config store how far each request came, so
that whoever leads tells a retry the end of the first, or that nobody knows it. Offsets that were forgotten while their
statuses could not be removed make a task fail as DATA_LOSS, loudly, until the request is repeated.

Invariant: from the moment a change finds the connector ready to its end no other call of this leader changes the
connector: `initial_offsets.hold` keeps them, a resume above all. A caller that is told that nothing was changed is told
so by whoever would have changed it.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import replace
from typing import Final

from herdmesh.connect.error_class import ErrorClass
from herdmesh.herder.state.calls import offset_records
from herdmesh.herder.state.calls.connector_names import given_name
from herdmesh.herder.state.leadership import leadership_queries
from herdmesh.herder.state.memory import Call, Command, Mesh, Op, OpKind, Stage
from herdmesh.herder.state.model import ConnectorEntry, TargetState
from herdmesh.herder.state.model.events import CommandReplied, WriteDone
from herdmesh.herder.state.model.instructions import DeleteStatuses
from herdmesh.herder.state.model.questions import AlterOffsets, FenceTasks, ReadOffsets
from herdmesh.herder.state.model.requests import ChangeOffsets, GetOffsets, OffsetsTold
from herdmesh.herder.state.workers import commands
from herdmesh.rpc.errors import (
    ConnectorNotFound,
    ConnectorNotStopped,
    HerdmeshError,
    NoLeader,
    NoWorker,
    OffsetsRefused,
    RequestInvalid,
    Timeout,
    WriteOutcomeUnknown,
)

_WAITING: Final = (Stage.OTHER_OFFSETS, Stage.STOPPING)
_WRITING: Final = (Stage.WRITING, Stage.READING_BACK)
_CHANGING: Final = (Stage.CHANGING_OFFSETS, Stage.FORGETTING, Stage.WRITING)
_RETRIABLE: Final = (ErrorClass.RETRIABLE, ErrorClass.UNREACHABLE, ErrorClass.FENCED)


def read(mesh: Mesh, call: Call, request: GetOffsets) -> None:
    """Ask a worker. Raises ConnectorNotFound, NoWorker, or InvalidConfig when no worker has the class."""
    call.name = given_name(mesh, request.name)
    entry = _entry(mesh, call.name)
    call.stage = Stage.READING_OFFSETS
    commands.ask_able(mesh, call, ReadOffsets(call.name, entry.config))


def was_read(call: Call, command: Command, reply: CommandReplied) -> OffsetsTold:
    """A worker told, or could not. Raises NoWorker for what may go away by itself, OffsetsRefused."""
    failure = reply.failure
    if failure is not None and failure.error_class in _RETRIABLE:
        raise NoWorker(f"worker {command.worker_id} could not read the offsets: {failure.message}; try again")
    if failure is not None:
        raise OffsetsRefused(call.name, failure.message, "read")
    return reply.offsets or OffsetsTold(())


def begin(mesh: Mesh, call: Call, request: ChangeOffsets) -> OffsetsTold | None:
    """Start a change. Raises as `go_on`, and RequestInvalid."""
    if not (request.offsets or request.reset or request.rewind_to_ms is not None):
        raise RequestInvalid("Partitions / offsets need to be provided for an alter offsets request", "offsets")
    call.name = given_name(mesh, request.name)
    call.stage = Stage.STOPPING
    return go_on(mesh, call, request)


def go_on(mesh: Mesh, call: Call, request: ChangeOffsets) -> OffsetsTold | None:
    """Take the next step that waits for nobody's answer.

    Raises:
        ConnectorNotFound, ConnectorNotStopped: as it is now.
        NoWorker: nobody is there to do it.
        InvalidConfig: no worker has the class.
        WriteOutcomeUnknown: any of these, when somebody may have changed them before.
    """
    if call.stage is Stage.FORGETTING:
        return _told_when_forgotten(mesh, call, request)
    if call.stage is Stage.BEGUN and mesh.applied(call.revision):
        mesh.reading_back.discard(call.id)
        with _truly(mesh, call):
            _ask(mesh, call, request, _stopped(mesh, call.name))
    elif call.stage in _WAITING:
        with _truly(mesh, call):
            entry = _stopped(mesh, call.name)
            if _is_free(mesh, call) and _has_wound_down(mesh, entry):
                mesh.offsets_under_way[call.name] = call.id
                _prepare(mesh, call, request, entry)
    return None


def answered(
    mesh: Mesh, call: Call, request: ChangeOffsets, command: Command, reply: CommandReplied
) -> OffsetsTold | None:
    """A worker fenced, or read them, or changed them, or could not.

    Raises:
        NoWorker: it could not, and changed nothing.
        WriteOutcomeUnknown: it, or one that was asked before, may have changed them.
        OffsetsRefused: with its words, or the connector's.
    """
    with _truly(mesh, call):
        match command.question:
            case FenceTasks():
                if reply.failure is not None:
                    raise _not_done(command, "fence the earlier tasks", reply.failure.message)
                _look(mesh, call, request, _stopped(mesh, call.name))
            case ReadOffsets():
                # Who cannot tell what a reset forgets, such as too much for one answer, may forget it all the same.
                call.offsets_before = reply.offsets if reply.failure is None else None
                offset_records.begins(mesh, call, request)
            case AlterOffsets():
                _require_changed(call, command, reply)
                return _was_changed(mesh, call, request, reply.offsets or OffsetsTold(()))
            case _:
                raise AssertionError(f"{command.question} changes no offsets")
    return None


def lost(mesh: Mesh, call: Call, request: ChangeOffsets, command: Command) -> OffsetsTold | None:
    """The worker went without answering: another one is asked. Raises as `go_on`."""
    call.stage = Stage.STOPPING
    if isinstance(command.question, AlterOffsets) and not request.dry_run:
        call.may_have = f"worker {command.worker_id} went away while it changed the offsets of {call.name}"
    return go_on(mesh, call, request)


def written(mesh: Mesh, call: Call, request: ChangeOffsets, event: WriteDone) -> OffsetsTold | None:
    """A store has done what it was asked for: the config store recorded, or told what it had recorded; or the status
    store removed the tasks' statuses.

    Raises:
        WriteOutcomeUnknown: a request of this id was begun, and nobody knows how it ended.
        HerdmeshError: as `go_on`.
    """
    recorded = event.offsets
    if recorded is None:
        return _told_when_forgotten(mesh, call, request)
    if recorded.ended:
        return recorded.told if recorded.repeated else call.offsets_told
    if recorded.repeated and offset_records.in_doubt(mesh, call):
        # This request's own beginning, when the store's first answer to it was lost, looks the same.
        call.may_have = f"a request of this id is on record as having begun to change the offsets of {call.name}"
        call.offsets_before = recorded.told
    with _truly(mesh, call):
        if call.refusal is not None:
            raise call.refusal
        call.begun, call.revision = True, event.revision
        if call.may_have and recorded.overtaken:
            raise WriteOutcomeUnknown(
                f"{call.may_have}, and may have done it; the connector was changed since, and doing it again might "
                "undo what came of that: look at the offsets, and ask again under a new request_id"
            )
    call.stage = Stage.BEGUN
    mesh.reading_back.add(call.id)
    return go_on(mesh, call, request)


def not_written(call: Call, error: HerdmeshError) -> HerdmeshError:
    """What the caller is told when a store did not do, or did not tell, what it was asked for."""
    if call.stage is Stage.FORGETTING:
        return WriteOutcomeUnknown(
            "the offsets were forgotten, but the tasks' statuses still say that there were some: "
            f"{error.message}; repeat the request, or the tasks fail when they start"
        )
    return offset_records.not_recorded(call, error)


def too_late(call: Call) -> HerdmeshError:
    """What the caller of a change is told at its deadline: that it is not known, once somebody was asked to write."""
    if not _may_be_made(call):
        return Timeout(call.stage.value)
    return WriteOutcomeUnknown(
        f"the deadline passed while {call.stage.value}: whether the offsets of {call.name} were changed is not known; "
        "look at them, or repeat the request with a longer deadline"
    )


def deposed(call: Call, why: str) -> HerdmeshError:
    """What the caller of a change is told when this herder stops leading: as `too_late`."""
    if not _may_be_made(call):
        return NoLeader(f"this herder stopped leading: {why}")
    return WriteOutcomeUnknown(
        f"this herder stopped leading ({why}) while {call.stage.value}: whether the offsets of {call.name} were "
        "changed is not known; look at them, or repeat the request"
    )


def _may_be_made(call: Call) -> bool:
    change = call.request
    assert isinstance(change, ChangeOffsets)
    return not change.dry_run and (bool(call.may_have) or call.stage in _CHANGING)


@contextmanager
def _truly(mesh: Mesh, call: Call) -> Generator[None]:
    """Raise WriteOutcomeUnknown in place of what says that nothing was changed, when that is not known."""
    try:
        yield
    except WriteOutcomeUnknown:
        raise
    except HerdmeshError as error:
        if not call.may_have:
            offset_records.left_alone(mesh, call)
            raise
        raise WriteOutcomeUnknown(
            f"{call.may_have}, and may have done it: {error.message}; look at them, or repeat the request"
        ) from error


def _prepare(mesh: Mesh, call: Call, request: ChangeOffsets, entry: ConnectorEntry) -> None:
    unfenced = mesh.connector(call.name).unfenced
    if request.dry_run:
        _ask(mesh, call, request, entry)
    elif unfenced:
        _fence(mesh, call, max(unfenced) + 1)
    else:
        _look(mesh, call, request, entry)


def _fence(mesh: Mesh, call: Call, task_count: int) -> None:
    members = [member for member in mesh.members.values() if member.session is not None]
    if not members:
        raise NoWorker("no worker is connected that could fence the connector's earlier tasks; try again")
    call.stage = Stage.FENCING_STOPPED
    commands.ask(mesh, call, commands.preferred(mesh, members), FenceTasks(call.name, task_count))


def _look(mesh: Mesh, call: Call, request: ChangeOffsets, entry: ConnectorEntry) -> None:
    """What a reset forgets nobody can look up afterwards, should the worker go that does it."""
    if request.reset and call.offsets_before is None and not call.may_have:
        call.stage = Stage.READING_OFFSETS
        commands.ask_able(mesh, call, ReadOffsets(call.name, entry.config))
    else:
        offset_records.begins(mesh, call, request)


def _ask(mesh: Mesh, call: Call, request: ChangeOffsets, entry: ConnectorEntry) -> None:
    """Ask a worker. It is to find whatever is written of the connector after the beginning; what was written before it
    the watch has brought."""
    call.stage = Stage.CHANGING_OFFSETS
    question = AlterOffsets(
        call.name,
        entry.config,
        request.offsets,
        call.revision,
        entry.incarnation,
        request.reset,
        request.rewind_to_ms,
        request.dry_run,
        request.allow_forward,
        timeout_ms=commands.time_left_ms(mesh, call),
    )
    commands.ask_able(mesh, call, question)


def _require_changed(call: Call, command: Command, reply: CommandReplied) -> None:
    failure = reply.failure
    if failure is None:
        return
    if reply.uncertain:
        raise WriteOutcomeUnknown(
            f"worker {command.worker_id} cannot tell whether the offsets of {call.name} were changed: "
            f"{failure.message}; look at them, or repeat the request"
        )
    if failure.error_class in _RETRIABLE:
        raise _not_done(command, "change the offsets", failure.message)
    raise OffsetsRefused(call.name, failure.message)


def _not_done(command: Command, what: str, why: str) -> NoWorker:
    return NoWorker(f"worker {command.worker_id} could not {what}: {why}; nothing was changed, try again")


def _was_changed(mesh: Mesh, call: Call, request: ChangeOffsets, told: OffsetsTold) -> OffsetsTold | None:
    if request.reset and call.may_have and not told.offsets and call.offsets_before is not None:
        # All or none: there was nothing left to forget, because whoever was asked before forgot it.
        told = replace(told, offsets=call.offsets_before.offsets)
    call.offsets_told = told
    forgets = request.reset or any(one.offset_json is None for one in request.offsets)
    if request.dry_run:
        return told
    if not forgets or not _task_statuses(mesh, call.name):
        return _end(mesh, call, request, told)
    call.stage = Stage.FORGETTING
    op = mesh.op(Op(OpKind.CALL, call=call.id))
    mesh.out.append(DeleteStatuses(op, call.name, 0, mesh.next_generation))
    return None


def _told_when_forgotten(mesh: Mesh, call: Call, request: ChangeOffsets) -> OffsetsTold | None:
    assert call.offsets_told is not None
    return None if _task_statuses(mesh, call.name) else _end(mesh, call, request, call.offsets_told)


def _end(mesh: Mesh, call: Call, request: ChangeOffsets, told: OffsetsTold) -> OffsetsTold | None:
    """Everything is done: the answer, or None while it is recorded for whoever asks again."""
    if not call.options.request_id:
        return told
    offset_records.ended(mesh, call, request, told)
    return None


def _entry(mesh: Mesh, name: str) -> ConnectorEntry:
    entry = mesh.entries.get(name)
    if entry is None or not entry.has_config:
        raise ConnectorNotFound(name)
    return entry


def _stopped(mesh: Mesh, name: str) -> ConnectorEntry:
    entry = _entry(mesh, name)
    if entry.wanted_state is not TargetState.STOPPED:
        raise ConnectorNotStopped(name)
    return entry


def _is_free(mesh: Mesh, call: Call) -> bool:
    """True when no other call changes the connector; false makes this one wait."""
    holder = mesh.offsets_under_way.get(call.name, call.id)
    others = (other for other in mesh.calls.values() if other.name == call.name and other.id != call.id)
    free = holder == call.id and not any(other.stage in _WRITING for other in others)
    call.stage = Stage.STOPPING if free else Stage.OTHER_OFFSETS
    return free


def _has_wound_down(mesh: Mesh, entry: ConnectorEntry) -> bool:
    """True when there is no task set, and nobody holds a task of an earlier one, as far as workers have dialled in."""
    if leadership_queries.adopting(mesh) or entry.tasks or entry.task_count or entry.inconsistent:
        return False
    return not any(next(unit.holds(), None) is not None for unit in mesh.connector(entry.name).tasks())


def _task_statuses(mesh: Mesh, name: str) -> bool:
    return any(task is not None for task in mesh.statuses.get(name, {}))
