"""Transaction boundaries by record (`transaction.boundary=connector`, KIP-618; docs/reference/connect/data-model.md,
section 3).

Owns the open requests of a task that returns records, and passes them to the loop's `TransactionContext`, which knows
batches alone: the author does not see in which batch a record will be, nor at which position of it.

Invariant: a request for a record reaches the loop in the same `poll` that returns the record; a request for all records
applies to the last one, however many batches they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import TYPE_CHECKING

from herdmesh.connect.spi import TransactionContext

if TYPE_CHECKING:
    from herdmesh.sdk.records import SourceOffset, SourceRecord


class _End(Enum):
    COMMIT = "commit"
    ABORT = "abort"


class RecordTransactions:
    """As `TransactionContext`, for tasks that give records one by one. To be called where records are made: within
    `poll_records` (or what it returned, a generator say) or `poll_async`."""

    def __init__(self, loop: TransactionContext) -> None:
        self._loop = loop
        self._all: dict[_End, None] = {}
        #: by the record's identity; with the record, so that it stays the only one of that identity.
        self._after: dict[int, tuple[SourceRecord | SourceOffset, dict[_End, None]]] = {}

    def commit_transaction(self) -> None:
        """Commit once all records that this call of `poll_records` or `poll_async` gives are sent; when it gives none,
        at once."""
        self._all[_End.COMMIT] = None

    def commit_transaction_after(self, record: SourceRecord | SourceOffset) -> None:
        """Commit once this very record is sent, and begin another transaction with the next. One that a transformation
        drops counts."""
        self._after.setdefault(id(record), (record, {}))[1][_End.COMMIT] = None

    def abort_transaction(self) -> None:
        """Give up all records of the open transaction, once those that this call gives are sent too. Their offsets are
        committed all the same, so that they are not polled again (as by Connect)."""
        self._all[_End.ABORT] = None

    def abort_transaction_after(self, record: SourceRecord | SourceOffset) -> None:
        """Give up all records of the open transaction up to this very one, and commit their offsets."""
        self._after.setdefault(id(record), (record, {}))[1][_End.ABORT] = None

    def given(self, last: SourceRecord | SourceOffset | None) -> bool:
        """Told when a call's records have come to their end: the last of those that are not handed over yet, None =
        there is none. True = the loop was asked for an end without a batch, so it is to be given none."""
        wanted, self._all = self._all, {}
        if last is None:
            for end in wanted:
                self._ask_now(end)
            return bool(wanted)
        for end in wanted:
            self._after.setdefault(id(last), (last, {}))[1][end] = None
        return False

    def handed(self, records: Sequence[SourceRecord]) -> None:
        """Told of the records of the batch that is handed over now."""
        if not self._after:
            return
        for at, record in enumerate(records):
            asked = self._after.pop(id(record), None)
            for end in () if asked is None else asked[1]:
                ask = self._loop.commit_transaction_after if end is _End.COMMIT else self._loop.abort_transaction_after
                ask(at, record.source_offset)

    def handed_offset(self, offset: SourceOffset) -> None:
        """Told of the offset that is handed over now, without a record."""
        asked = self._after.pop(id(offset), None)
        for end in () if asked is None else asked[1]:
            self._ask_now(end)

    def handed_batch(self) -> None:
        """Told of a batch that the task made itself: what was asked of all records is of its last."""
        wanted, self._all = self._all, {}
        for end in wanted:
            self._ask_now(end)

    def _ask_now(self, end: _End) -> None:
        (self._loop.commit_transaction if end is _End.COMMIT else self._loop.abort_transaction)()
