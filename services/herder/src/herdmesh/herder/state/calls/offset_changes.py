"""Offset requests of a connector (KIP-875): listed in any state, changed while the connector is stopped.

Owns the conditions under which a worker may change offsets, in Connect's order
(docs/reference/connect/offsets-topic.md, section 10.3): the request changes something; the connector exists; its target
state is STOPPED; it has no task set, and no task of it runs any more or could still commit. Owns also the consequence:
the statuses of the tasks record that offsets were committed, so they are deleted together with offsets that are reset;
else the next run would treat those offsets as lost. Does not own the change itself: a worker makes it, all or none.

Departs from Connect: a request for a connector that is still stopping waits instead of failing.

As long as nothing else is done to the connector every step here is idempotent: a command is sent again when its worker
is lost, a retry repeats all steps, and the offsets that a reset deletes are read before it. Once something else was
done to the connector, a repetition would undo later changes. So `offset_records` keeps with the config store how far
each request came: any leader can answer a retry with the outcome of the first, or that the outcome is unknown. If
offsets were reset but their statuses could not be deleted, a task fails as DATA_LOSS until the request is repeated.

Invariant: from the moment a change finds the connector ready to its end no other call of this leader changes the
connector: `initial_offsets.must_wait` makes them wait, a resume above all. "Nothing was changed" is the answer only
when the worker that would have changed the offsets reports so.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Final

from herdmesh.connect.error_class import ErrorClass
from herdmesh.herder.state.calls import offset_records
from herdmesh.herder.state.calls.connector_names import given_name
from herdmesh.herder.state.calls.handler import SEEN_THROUGH, RequestHandler, no_longer_leads
from herdmesh.herder.state.leadership import leadership_queries
from herdmesh.herder.state.memory import (
    Call,
    CallStage,
    CallTable,
    Command,
    Fleet,
    HerderMemory,
    Op,
    OpKind,
    Step,
    StoreViews,
)
from herdmesh.herder.state.model import ConnectorEntry
from herdmesh.herder.state.model.events import CommandReplied, WriteDone
from herdmesh.herder.state.model.instructions import DeleteStatuses
from herdmesh.herder.state.model.requests import Answer, ChangeOffsets, GetOffsets, OffsetsAnswer
from herdmesh.herder.state.workers import commands
from herdmesh.rpc.errors import (
    ConnectorNotFound,
    ConnectorNotStopped,
    HerdmeshError,
    NoWorker,
    OffsetsRefused,
    RequestInvalid,
    WriteOutcomeUnknown,
)
from herdmesh.session.model import TargetState
from herdmesh.session.worker_commands import AlterOffsets, FenceTasks, ReadOffsets

_WAITING: Final = (CallStage.OTHER_OFFSETS, CallStage.STOPPING)
_WRITING: Final = (CallStage.WRITING, CallStage.READING_BACK)
_CHANGING: Final = (CallStage.CHANGING_OFFSETS, CallStage.FORGETTING, CallStage.WRITING)
_RETRIABLE: Final = (ErrorClass.RETRIABLE, ErrorClass.UNREACHABLE, ErrorClass.FENCED)


@dataclass(frozen=True)
class GetOffsetsHandler(RequestHandler):
    """Lists of all offsets of a connector."""

    request: GetOffsets

    def begin(self, memory: HerderMemory, call: Call) -> Answer | None:
        """Send the command to a worker. Raises ConnectorNotFound, NoWorker, or InvalidConfig when no worker has the
        class.
        """
        call.name = given_name(memory.stores, self.request.name)
        entry = _entry(memory.stores, call.name)
        call.stage = CallStage.READING_OFFSETS
        commands.send_to_able_worker(memory, call, ReadOffsets(call.name, entry.config))
        return None

    def on_reply(self, memory: HerderMemory, call: Call, command: Command, reply: CommandReplied) -> Answer | None:
        """The worker's offsets. Raises NoWorker for a temporary failure, OffsetsRefused for any other."""
        failure = reply.failure
        if failure is not None and failure.error_class in _RETRIABLE:
            raise NoWorker(f"worker {command.worker_id} could not read the offsets: {failure.message}; try again")
        if failure is not None:
            raise OffsetsRefused(call.name, failure.message, "read")
        return reply.offsets or OffsetsAnswer(())

    def on_worker_lost(self, memory: HerderMemory, call: Call, command: Command) -> Answer | None:
        """Send the command to another worker. Raises as `begin`."""
        return self.begin(memory, call)


@dataclass(frozen=True)
class ChangeOffsetsHandler(RequestHandler):
    """Changes of the offsets of a stopped connector.

    Its steps raise:
        ConnectorNotFound, ConnectorNotStopped: by the connector's current entry.
        NoWorker: no worker is connected, or a worker failed and changed nothing.
        InvalidConfig: no worker has the class.
        OffsetsRefused: with the reason of the worker or of the connector.
        WriteOutcomeUnknown: in place of any of these, when a worker may have changed the offsets before.
    """

    request: ChangeOffsets

    def begin(self, memory: HerderMemory, call: Call) -> Answer | None:
        """Wait for the connector to stop. Also raises RequestInvalid for a request that changes nothing."""
        request = self.request
        if not (request.offsets or request.reset or request.rewind_to_ms is not None):
            raise RequestInvalid("Partitions / offsets need to be provided for an alter offsets request", "offsets")
        call.name, call.changes_offsets = given_name(memory.stores, request.name), True
        call.stage = CallStage.STOPPING
        return self.look_again(memory, call)

    def look_again(self, memory: HerderMemory, call: Call) -> Answer | None:
        """Take the next step, if it waits for no reply."""
        if call.stage is CallStage.FORGETTING:
            return self._end_when_forgotten(memory, call)
        if call.stage is CallStage.BEGUN and memory.stores.applied(call.revision):
            memory.call_table.stop_waiting(call)
            with _truly(memory.call_table, call):
                self._send_change(memory, call, _stopped(memory.stores, call.name))
        elif call.stage in _WAITING:
            with _truly(memory.call_table, call):
                entry = _stopped(memory.stores, call.name)
                if _is_free(memory.call_table, call) and _has_wound_down(memory, entry):
                    memory.call_table.reserve_offsets(call)
                    self._prepare(memory, call, entry)
        return None

    def on_reply(self, memory: HerderMemory, call: Call, command: Command, reply: CommandReplied) -> Answer | None:
        """A worker fenced the tasks, read the offsets or changed them, or failed to."""
        with _truly(memory.call_table, call):
            match command.body:
                case FenceTasks():
                    if reply.failure is not None:
                        raise _not_done(command, "fence the earlier tasks", reply.failure.message)
                    self._read_or_begin(memory, call, _stopped(memory.stores, call.name))
                case ReadOffsets():
                    # A worker that fails to read the offsets (too many for one reply, say) may still be able to reset
                    # them.
                    call.offsets_before = reply.offsets if reply.failure is None else None
                    offset_records.begins(memory.step, memory.leadership, memory.call_table, call, self.request)
                case AlterOffsets():
                    _require_changed(call, command, reply)
                    return self._changed(memory, call, reply.offsets or OffsetsAnswer(()))
                case _:
                    raise AssertionError(f"{command.body} changes no offsets")
        return None

    def on_worker_lost(self, memory: HerderMemory, call: Call, command: Command) -> Answer | None:
        """Send the command to another worker."""
        call.stage = CallStage.STOPPING
        if isinstance(command.body, AlterOffsets) and not self.request.dry_run:
            call.may_have = f"worker {command.worker_id} disconnected while it changed the offsets of {call.name}"
        return self.look_again(memory, call)

    def on_write_completed(self, memory: HerderMemory, call: Call, event: WriteDone) -> Answer | None:
        """A store acknowledged: the config store recorded, or returned its record; or the status store deleted the
        tasks' statuses.
        """
        recorded = event.offsets
        if recorded is None:
            return self._end_when_forgotten(memory, call)
        if recorded.ended:
            return recorded.response if recorded.repeated else call.offsets_after
        if recorded.repeated and offset_records.in_doubt(memory.call_table, call):
            # The record may also be this request's own, when the store's first response to it was lost.
            call.may_have = f"a request of this id is on record as having begun to change the offsets of {call.name}"
            call.offsets_before = recorded.response
        with _truly(memory.call_table, call):
            if call.refusal is not None:
                raise call.refusal
            call.begun, call.revision = True, event.revision
            if call.may_have and recorded.overtaken:
                raise WriteOutcomeUnknown(
                    f"{call.may_have}, and may have changed them; the connector was changed since, and a second change "
                    "of the offsets might undo that: read the offsets, and repeat the request under a new request_id"
                )
        call.stage = CallStage.BEGUN
        memory.call_table.wait_for_watch(call)
        return self.look_again(memory, call)

    def on_write_failed(self, memory: HerderMemory, call: Call, error: HerdmeshError) -> Answer | HerdmeshError | None:
        """A store refused, or its outcome is unknown."""
        if call.stage is CallStage.FORGETTING:
            error = WriteOutcomeUnknown(
                "the offsets were removed, but the tasks' statuses still record earlier commits: "
                f"{error.message}; repeat the request, or the tasks fail when they start"
            )
        else:
            error = offset_records.not_recorded(call, error)
        return no_longer_leads(memory.step, memory.leadership, error) or error

    def may_be_recorded(self, call: Call) -> bool:
        return not self.request.dry_run and not call.begun

    def look_back(self, memory: HerderMemory, call: Call) -> None:
        offset_records.look_back(memory.step, memory.leadership, memory.call_table, call, self.request)

    def expired(self, call: Call) -> HerdmeshError:
        """The answer at the deadline: WriteOutcomeUnknown once a worker may have written."""
        if not self._may_be_made(call):
            return super().expired(call)
        return WriteOutcomeUnknown(
            f"the deadline passed while {call.stage.value}: whether the offsets of {call.name} were changed is not "
            "known; read them, or repeat the request with a longer deadline"
        )

    def deposed(self, call: Call, why: str) -> HerdmeshError | None:
        """The answer when this herder stops leading: WriteOutcomeUnknown once a worker may have written."""
        if call.stage in SEEN_THROUGH or not self._may_be_made(call):
            return super().deposed(call, why)
        return WriteOutcomeUnknown(
            f"this herder stopped leading ({why}) while {call.stage.value}: whether the offsets of {call.name} were "
            "changed is not known; read them, or repeat the request"
        )

    def _may_be_made(self, call: Call) -> bool:
        return not self.request.dry_run and (bool(call.may_have) or call.stage in _CHANGING)

    def _prepare(self, memory: HerderMemory, call: Call, entry: ConnectorEntry) -> None:
        unfenced = memory.inventory.connector(call.name).unfenced
        if self.request.dry_run:
            self._send_change(memory, call, entry)
        elif unfenced:
            _fence(memory.step, memory.fleet, memory.call_table, call, max(unfenced) + 1)
        else:
            self._read_or_begin(memory, call, entry)

    def _read_or_begin(self, memory: HerderMemory, call: Call, entry: ConnectorEntry) -> None:
        """Before a reset, read the offsets: if the worker that deletes them is lost, nobody can look them up
        afterwards.
        """
        if self.request.reset and call.offsets_before is None and not call.may_have:
            call.stage = CallStage.READING_OFFSETS
            commands.send_to_able_worker(memory, call, ReadOffsets(call.name, entry.config))
        else:
            offset_records.begins(memory.step, memory.leadership, memory.call_table, call, self.request)

    def _send_change(self, memory: HerderMemory, call: Call, entry: ConnectorEntry) -> None:
        """Send the change to a worker. The worker looks for records of the connector written after the beginning; the
        watch has brought the earlier ones.
        """
        call.stage = CallStage.CHANGING_OFFSETS
        body = AlterOffsets(
            call.name,
            entry.config,
            self.request.offsets,
            call.revision,
            entry.incarnation,
            self.request.reset,
            self.request.rewind_to_ms,
            self.request.dry_run,
            self.request.allow_forward,
            timeout_ms=commands.time_left_ms(memory.step, call),
        )
        commands.send_to_able_worker(memory, call, body)

    def _changed(self, memory: HerderMemory, call: Call, told: OffsetsAnswer) -> Answer | None:
        if self.request.reset and call.may_have and not told.offsets and call.offsets_before is not None:
            # A change is all or none: there was nothing left to delete, because the lost worker had deleted everything.
            told = replace(told, offsets=call.offsets_before.offsets)
        call.offsets_after = told
        forgets = self.request.reset or any(one.offset_json is None for one in self.request.offsets)
        if self.request.dry_run:
            return told
        if not forgets or not _task_statuses(memory.stores, call.name):
            return self._end(memory, call, told)
        call.stage = CallStage.FORGETTING
        op = memory.call_table.op(Op(OpKind.CALL, call=call.id))
        memory.step.emit(DeleteStatuses(op, call.name, 0, memory.leadership.next_generation))
        return None

    def _end_when_forgotten(self, memory: HerderMemory, call: Call) -> Answer | None:
        assert call.offsets_after is not None
        return None if _task_statuses(memory.stores, call.name) else self._end(memory, call, call.offsets_after)

    def _end(self, memory: HerderMemory, call: Call, told: OffsetsAnswer) -> Answer | None:
        """The change is complete: the answer, or None while it is being recorded for a retry."""
        if not call.options.request_id:
            return told
        offset_records.ended(memory.step, memory.leadership, memory.call_table, call, self.request, told)
        return None


@contextmanager
def _truly(call_table: CallTable, call: Call) -> Generator[None]:
    """Raise WriteOutcomeUnknown in place of an error that says that nothing was changed, when that is not certain."""
    try:
        yield
    except WriteOutcomeUnknown:
        raise
    except HerdmeshError as error:
        if not call.may_have:
            offset_records.note_untouched(call_table, call)
            raise
        raise WriteOutcomeUnknown(
            f"{call.may_have}, and may have done it: {error.message}; read them, or repeat the request"
        ) from error


def _fence(step: Step, fleet: Fleet, call_table: CallTable, call: Call, task_count: int) -> None:
    members = [member for member in fleet.members.values() if member.session is not None]
    if not members:
        raise NoWorker("no worker is connected that could fence the connector's earlier tasks; try again")
    call.stage = CallStage.FENCING_STOPPED
    commands.send_command(
        step, fleet, call_table, call, commands.preferred(step, members), FenceTasks(call.name, task_count)
    )


def _require_changed(call: Call, command: Command, reply: CommandReplied) -> None:
    failure = reply.failure
    if failure is None:
        return
    if reply.outcome_unknown:
        raise WriteOutcomeUnknown(
            f"worker {command.worker_id} does not know whether the offsets of {call.name} were changed: "
            f"{failure.message}; read them, or repeat the request"
        )
    if failure.error_class in _RETRIABLE:
        raise _not_done(command, "change the offsets", failure.message)
    raise OffsetsRefused(call.name, failure.message)


def _not_done(command: Command, what: str, why: str) -> NoWorker:
    return NoWorker(f"worker {command.worker_id} could not {what}: {why}; nothing was changed, try again")


def _entry(stores: StoreViews, name: str) -> ConnectorEntry:
    entry = stores.entries.get(name)
    if entry is None or not entry.has_config:
        raise ConnectorNotFound(name)
    return entry


def _stopped(stores: StoreViews, name: str) -> ConnectorEntry:
    entry = _entry(stores, name)
    if entry.wanted_state is not TargetState.STOPPED:
        raise ConnectorNotStopped(name)
    return entry


def _is_free(call_table: CallTable, call: Call) -> bool:
    """True when no other call changes the connector; otherwise this call waits."""
    others_write = any(other.stage in _WRITING for other in call_table.others_of(call))
    free = call_table.offsets_holder(call) is None and not others_write
    call.stage = CallStage.STOPPING if free else CallStage.OTHER_OFFSETS
    return free


def _has_wound_down(memory: HerderMemory, entry: ConnectorEntry) -> bool:
    """True when there is no task set, and no connected worker holds a task of an earlier one."""
    if leadership_queries.adopting(memory) or entry.tasks or entry.task_count or entry.inconsistent:
        return False
    return not any(next(unit.placements(), None) is not None for unit in memory.inventory.connector(entry.name).tasks())


def _task_statuses(stores: StoreViews, name: str) -> bool:
    return any(task is not None for task in stores.statuses.get(name, {}))
