"""Calls: the table of callers' requests under way, from the request to its one answer.

Owns the deadline of a call, and that it is answered. Does not own what a request does: that is its handler's
(`handler.py`, `handlers_by_request.py`).

Connect validates a config before it checks whether it leads. Here only a leader has workers to validate on, so a herder
that does not lead refuses first. A write is answered only when the watch has brought it back, so that a caller's next
read sees it.

An error for which this herder itself would refuse a call with a request id (the config is invalid by now, the connector
is deleted, no worker is connected) is not its answer yet: the call may be the retry of one that an earlier leader
applied. So the store is queried first, by the same write with `retry_only`.

A write that is under way when this herder stops leading is completed all the same: the store answers it, and the watch
brings it to followers too. A restart that was too late for its epoch was not applied, and its caller gets that error. A
change of a logger level is not completed: it takes effect only when a leader has sent it to the workers.

Invariant: every call is answered exactly once, at the latest at its deadline, with the stage it was in. The answer
holds whichever herder leads by then, or says to try again.
"""

from __future__ import annotations

from herdmesh.herder.state.calls import hedged_commands, initial_offsets
from herdmesh.herder.state.calls.handlers_by_request import handler_of
from herdmesh.herder.state.memory import (
    Call,
    CallTable,
    Command,
    HerderMemory,
    Step,
)
from herdmesh.herder.state.model.events import CommandReplied, RequestReceived, WriteDone
from herdmesh.herder.state.model.instructions import Reply
from herdmesh.herder.state.model.requests import Answer
from herdmesh.rpc.errors import HerdmeshError, QueueFull

#: Each call keeps its request until it is answered; the next call is refused with QueueFull.
CALLS_MAX = 4_000


def begin(memory: HerderMemory, event: RequestReceived) -> None:
    """Start a call on the leader."""
    call = Call(event.call, event.request, event.options, event.deadline_ms)
    if len(memory.call_table.calls) >= CALLS_MAX:
        _reply(
            memory.step,
            memory.call_table,
            call,
            QueueFull(f"{CALLS_MAX} calls are under way; try again a little later"),
        )
        return
    memory.call_table.add(call)
    try:
        _reply_if_known(memory.step, memory.call_table, call, handler_of(call.request).begin(memory, call))
    except HerdmeshError as error:
        _refuse(memory, call, error)


def on_reply(memory: HerderMemory, call_id: int, command: Command, reply: CommandReplied) -> None:
    """A worker replied to a command of a call."""
    call = memory.call_table.calls.get(call_id)
    if call is None:
        return
    call.command_ids.discard(command.id)
    if isinstance(command.body, hedged_commands.HEDGED):
        memory.call_table.forget_commands(call)
    try:
        _reply_if_known(
            memory.step, memory.call_table, call, handler_of(call.request).on_reply(memory, call, command, reply)
        )
    except HerdmeshError as error:
        _refuse(memory, call, error)


def on_worker_lost(memory: HerderMemory, call_id: int, command: Command) -> None:
    """The worker that was to reply to a command of a call is gone."""
    call = memory.call_table.calls.get(call_id)
    if call is None:
        return
    call.command_ids.discard(command.id)
    if call.command_ids and isinstance(command.body, hedged_commands.HEDGED):
        return  # another worker has the same command by now
    try:
        _reply_if_known(
            memory.step, memory.call_table, call, handler_of(call.request).on_worker_lost(memory, call, command)
        )
    except HerdmeshError as error:
        _refuse(memory, call, error)


def on_write_completed(memory: HerderMemory, call_id: int, event: WriteDone) -> None:
    """The store acknowledged a call's write, now or for an earlier request of the same id."""
    call = memory.call_table.calls.get(call_id)
    if call is None:
        return
    try:
        _reply_if_known(
            memory.step, memory.call_table, call, handler_of(call.request).on_write_completed(memory, call, event)
        )
    except HerdmeshError as error:
        _refuse(memory, call, error)


def on_write_failed(memory: HerderMemory, call_id: int, error: HerdmeshError) -> None:
    """The store refused a call's write, or its outcome is unknown."""
    call = memory.call_table.calls.get(call_id)
    if call is None:
        return
    try:
        _reply_if_known(
            memory.step, memory.call_table, call, handler_of(call.request).on_write_failed(memory, call, error)
        )
    except HerdmeshError as refusal:
        _refuse(memory, call, refusal)


def answer_applied(memory: HerderMemory) -> None:
    """The config watch moved on: answer the calls whose write it has brought, and continue those that waited for it."""
    for call in memory.call_table.waiting_for_watch():
        _look_again(memory, call)


def expire(memory: HerderMemory) -> None:
    """Answer the calls whose deadline has passed, and check those that wait for time to pass."""
    for call in list(memory.call_table.calls.values()):
        if memory.step.now >= call.deadline_ms:
            _reply(memory.step, memory.call_table, call, handler_of(call.request).expired(call))
        elif call.changes_offsets or call.stage in initial_offsets.WAITING:
            _look_again(memory, call)  # no other event announces its next step


def cancel(call_table: CallTable, call_id: int) -> None:
    """The caller hung up: remove the call."""
    call = call_table.calls.get(call_id)
    if call is not None:
        call_table.remove(call)


def fail_unwritten(memory: HerderMemory, why: str) -> None:
    """This herder stops leading, and no worker replies any more: answer the calls whose write is not under way, or that
    need workers, so that callers try another herder.
    """
    for call in list(memory.call_table.calls.values()):
        answer = handler_of(call.request).deposed(call, why)
        if answer is not None:
            _reply(memory.step, memory.call_table, call, answer)
        call.command_ids.clear()
    answer_applied(memory)


def _look_again(memory: HerderMemory, call: Call) -> None:
    try:
        _reply_if_known(memory.step, memory.call_table, call, handler_of(call.request).look_again(memory, call))
    except HerdmeshError as error:
        _refuse(memory, call, error)


def _refuse(memory: HerderMemory, call: Call, error: HerdmeshError) -> None:
    """Refuse a call, unless it is the retry of one that was applied."""
    handler = handler_of(call.request)
    may_be_retry = bool(call.options.request_id and call.name) and call.refusal is None
    if may_be_retry and handler.may_be_recorded(call):
        call.refusal = error
        memory.call_table.stop_waiting(call)
        handler.look_back(memory, call)
    else:
        _reply(memory.step, memory.call_table, call, error)


def _reply_if_known(step: Step, call_table: CallTable, call: Call, answer: Answer | HerdmeshError | None) -> None:
    if answer is not None:
        _reply(step, call_table, call, answer)


def _reply(step: Step, call_table: CallTable, call: Call, answer: Answer | HerdmeshError) -> None:
    call_table.remove(call)
    step.emit(Reply(call.id, answer))
