"""Calls: the table of callers' requests under way, from the request to its one answer.

Owns the deadline of a call, and that it is answered. Does not own what a request does: that is its handler's
(`handler.py`, `handlers_by_request.py`).

Connect validates before it looks whether it leads; here only a leader has workers to validate on, so a herder that does
not lead refuses first. A write is answered only when the watch has brought it back, so that a caller's next read sees
it.

An error for which this herder itself would refuse a call with a request id (the config is bad by now, the connector is
gone, no worker is there) is not its answer yet: the call may be the retry of one that was applied, by a leader before
us. So the store is asked first, by the same write with `retry_only`.

A write that is under way when this herder stops leading is seen through all the same: the store answers it and the
watch brings it back to followers too; a restart that came too late for its epoch was not applied, and its caller is
told so. A logger level is not seen through: it is in effect only when a leader has told the workers.

Invariant: every call is answered exactly once, at the latest at its deadline, with the stage it was at. The answer is
true whichever herder leads by then, or says to ask again.
"""

from __future__ import annotations

from herdmesh.herder.state.calls import hedged_commands, initial_offsets
from herdmesh.herder.state.calls.handlers_by_request import handler_of
from herdmesh.herder.state.memory import Call, Command, Mesh
from herdmesh.herder.state.model.events import CommandReplied, RequestReceived, WriteDone
from herdmesh.herder.state.model.instructions import Reply
from herdmesh.herder.state.model.requests import Answer
from herdmesh.herder.state.workers import commands
from herdmesh.rpc.errors import HerdmeshError, QueueFull

#: Each keeps its request until it is answered; more are told to slow down.
CALLS_MAX = 4_000


def begin(mesh: Mesh, event: RequestReceived) -> None:
    """Start a call on the leader."""
    call = Call(event.call, event.request, event.options, event.deadline_ms)
    if len(mesh.calls) >= CALLS_MAX:
        _reply(mesh, call, QueueFull(f"{CALLS_MAX} calls are under way; try again a little later"))
        return
    mesh.calls[call.id] = call
    try:
        _reply_if_known(mesh, call, handler_of(call.request).begin(mesh, call))
    except HerdmeshError as error:
        _refuse(mesh, call, error)


def answered(mesh: Mesh, call_id: int, command: Command, reply: CommandReplied) -> None:
    """A worker answered a command of a call."""
    call = mesh.calls.get(call_id)
    if call is None:
        return
    call.asked.discard(command.id)
    if isinstance(command.question, hedged_commands.ASKED_TWICE):
        commands.forget(mesh, call)
    try:
        _reply_if_known(mesh, call, handler_of(call.request).answered(mesh, call, command, reply))
    except HerdmeshError as error:
        _refuse(mesh, call, error)


def worker_lost(mesh: Mesh, call_id: int, command: Command) -> None:
    """The worker that was to answer a command of a call is gone."""
    call = mesh.calls.get(call_id)
    if call is None:
        return
    call.asked.discard(command.id)
    if call.asked and isinstance(command.question, hedged_commands.ASKED_TWICE):
        return  # another worker was asked the same meanwhile
    try:
        _reply_if_known(mesh, call, handler_of(call.request).worker_lost(mesh, call, command))
    except HerdmeshError as error:
        _refuse(mesh, call, error)


def written(mesh: Mesh, call_id: int, event: WriteDone) -> None:
    """The store acknowledged a call's write, or knew it from before."""
    call = mesh.calls.get(call_id)
    if call is None:
        return
    try:
        _reply_if_known(mesh, call, handler_of(call.request).written(mesh, call, event))
    except HerdmeshError as error:
        _refuse(mesh, call, error)


def write_failed(mesh: Mesh, call_id: int, error: HerdmeshError) -> None:
    """The store refused a call's write, or its outcome is unknown."""
    call = mesh.calls.get(call_id)
    if call is None:
        return
    try:
        _reply_if_known(mesh, call, handler_of(call.request).write_failed(mesh, call, error))
    except HerdmeshError as refusal:
        _refuse(mesh, call, refusal)


def answer_applied(mesh: Mesh) -> None:
    """The config watch moved on: answer the calls whose write it has brought, and take up those that waited for it."""
    for call in [mesh.calls[number] for number in sorted(mesh.reading_back)]:
        _look_again(mesh, call)


def expire(mesh: Mesh) -> None:
    """Answer the calls whose deadline has passed, and look again at those that wait for time."""
    for call in list(mesh.calls.values()):
        handler = handler_of(call.request)
        if mesh.now >= call.deadline_ms:
            _reply(mesh, call, handler.expired(call))
        elif handler.waits_for_time(call):
            _look_again(mesh, call)


def cancel(mesh: Mesh, call_id: int) -> None:
    """Nobody waits for the answer any more."""
    call = mesh.calls.pop(call_id, None)
    if call is not None:
        _forget(mesh, call)


def fail_unwritten(mesh: Mesh, why: str) -> None:
    """This herder stops leading, and no worker answers it any more: calls whose write is not under way, or which
    workers are to carry out, are to be tried elsewhere."""
    for call in list(mesh.calls.values()):
        answer = handler_of(call.request).deposed(call, why)
        if answer is not None:
            _reply(mesh, call, answer)
        call.asked.clear()
    answer_applied(mesh)


def _look_again(mesh: Mesh, call: Call) -> None:
    try:
        _reply_if_known(mesh, call, handler_of(call.request).look_again(mesh, call))
    except HerdmeshError as error:
        _refuse(mesh, call, error)


def _refuse(mesh: Mesh, call: Call, error: HerdmeshError) -> None:
    """Refuse a call, unless it is the retry of one that was applied."""
    handler = handler_of(call.request)
    may_be_retry = bool(call.options.request_id and call.name) and call.refusal is None
    if may_be_retry and handler.may_be_recorded(call):
        call.refusal = error
        mesh.reading_back.discard(call.id)
        handler.look_back(mesh, call)
    else:
        _reply(mesh, call, error)


def _reply_if_known(mesh: Mesh, call: Call, answer: Answer | HerdmeshError | None) -> None:
    if answer is not None:
        _reply(mesh, call, answer)


def _reply(mesh: Mesh, call: Call, answer: Answer | HerdmeshError) -> None:
    mesh.calls.pop(call.id, None)
    _forget(mesh, call)
    mesh.out.append(Reply(call.id, answer))


def _forget(mesh: Mesh, call: Call) -> None:
    mesh.reading_back.discard(call.id)
    initial_offsets.forget(mesh, call)
    commands.forget(mesh, call)
