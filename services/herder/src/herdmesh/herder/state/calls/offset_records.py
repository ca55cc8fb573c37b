"""Offset records: how far each change of offsets came, kept by the config store, so that a request id changes once.

Owns the two records of a change: its beginning, written before a worker gets the command, and its answer, written
before the caller gets it. A retry that finds the second gets the recorded answer, also when the connector runs again. A
retry that finds the first alone repeats the change only if the store knows of no other change to the connector since:
tasks may have run meanwhile, from other offsets. `look_back` reads the records alone, so that a retry is looked up also
when the request would be refused by now.

A beginning is in the config topic too: a worker that is late with an earlier change finds it, and does not write over
this one. The store refuses it from a herder that no longer leads: another leader may have given the connector tasks.
Dry runs leave no record. Requests without an id leave no record of their end. A refusal leaves the first record: a
retry then tries again, and the leader that refused knows that nothing was written.

Invariant: no worker gets a change of offsets before its leader, leading still, has recorded the beginning.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from herdmesh.herder.state.memory import (
    Call,
    CallStage,
    CallTable,
    Leadership,
    Op,
    OpKind,
    Step,
)
from herdmesh.herder.state.model.instructions import RecordOffsets
from herdmesh.herder.state.model.requests import ChangeOffsets, OffsetsAnswer
from herdmesh.rpc.errors import HerdmeshError, RequestIdUnknown, RequestInvalid, WriteOutcomeUnknown

RECORDED_BYTES_MAX: Final = 32 * 1024
"""Bytes of the offsets in one record, about 500 partitions of a sink: stores keep them in memory for a day and more."""
_NOTHING: Final = OffsetsAnswer(())


def begins(step: Step, leadership: Leadership, call_table: CallTable, call: Call, request: ChangeOffsets) -> None:
    """Record the beginning, and the offsets that a reset is to delete, before a worker gets the command."""
    call.stage = CallStage.BEGINNING
    # A record without a request id can never be looked up.
    before = call.offsets_before if call.options.request_id else None
    _record(step, leadership, call_table, call, request, before or _NOTHING, ended=False)


def ended(
    step: Step, leadership: Leadership, call_table: CallTable, call: Call, request: ChangeOffsets, told: OffsetsAnswer
) -> None:
    """Record the answer, before the caller gets it."""
    call.stage = CallStage.WRITING
    _record(step, leadership, call_table, call, request, told, ended=True)


def note_untouched(call_table: CallTable, call: Call) -> None:
    """The call is refused, and nothing was written for its id. Note that for a retry."""
    if call.begun and call.options.request_id:
        call_table.note_untouched_offsets(call.options.request_id)


def in_doubt(call_table: CallTable, call: Call) -> bool:
    """True when an earlier request of this id was begun, did not end, and may have changed the offsets. From now on the
    current request may change them. False without an id: then only the store's first response was lost.
    """
    if not call.options.request_id:
        return False
    known = call_table.were_offsets_untouched(call.options.request_id)
    if call.refusal is None:
        call_table.begin_offsets_anew(call.options.request_id)
    return not known


def look_back(step: Step, leadership: Leadership, call_table: CallTable, call: Call, request: ChangeOffsets) -> None:
    """Query how far an earlier request of this id came; without one, `call.refusal` is the answer."""
    call.stage = CallStage.LOOKING_BACK
    _record(step, leadership, call_table, call, request, _NOTHING, ended=False)


def not_recorded(call: Call, error: HerdmeshError) -> HerdmeshError:
    """The answer when the store refused to record the progress of the change, or its outcome is unknown."""
    if isinstance(error, RequestInvalid):
        return RequestInvalid(
            f"this request_id was used for another change of offsets, or for something else: {error.message}",
            "request_id",
        )
    if call.stage is CallStage.LOOKING_BACK:
        assert call.refusal is not None
        return call.refusal if isinstance(error, RequestIdUnknown) else error
    if call.stage is CallStage.WRITING:
        return WriteOutcomeUnknown(
            f"the offsets of {call.name} were changed, but this could not be recorded: {error.message}; repeat the "
            "request with the same request_id"
        )
    if call.may_have:
        return WriteOutcomeUnknown(f"{call.may_have}, and may have done it: {error.message}; repeat the request")
    return error


def _record(
    step: Step,
    leadership: Leadership,
    call_table: CallTable,
    call: Call,
    request: ChangeOffsets,
    told: OffsetsAnswer,
    *,
    ended: bool,
) -> None:
    if told.byte_count > RECORDED_BYTES_MAX:
        told = OffsetsAnswer(
            (), f"{told.message} (its {len(told.offsets)} offsets are too many to be returned again)".strip()
        )
    op = call_table.op(Op(OpKind.CALL, call=call.id))
    options = replace(call.options, retry_only=call.stage is CallStage.LOOKING_BACK)
    step.emit(RecordOffsets(op, call.name, request, ended, told, options, leadership.epoch))
