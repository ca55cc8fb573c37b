"""Transaction boundaries by record (`transaction.boundary=connector`, KIP-618; docs/reference/connect/data-model.md,
section 3).

Owns the open requests of a task that returns records, and passes them to the loop's `TransactionContext`, which knows
only batches: the author does not see in which batch a record will be, nor at which position of it.

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
    """A `TransactionContext` for tasks that return single records. Call it where records are created: within
    `poll_records` (or its result, for example a generator) or `poll_async`.
    """

    def __init__(self, loop: TransactionContext) -> None:
        self._loop = loop
        self._all: dict[_End, None] = {}
        #: by the record's identity; keeps the record alive, so that no other object gets the same identity.
        self._after: dict[int, tuple[SourceRecord | SourceOffset, dict[_End, None]]] = {}

    def commit_transaction(self) -> None:
        """Commit once all records that this call of `poll_records` or `poll_async` returns are sent; without records,
        at once.
        """
        self._all[_End.COMMIT] = None

    def commit_transaction_after(self, record: SourceRecord | SourceOffset) -> None:
        """Commit once this record object is sent; the next record begins a new transaction. A record that a
        transformation filters counts as sent.
        """
        self._after.setdefault(id(record), (record, {}))[1][_End.COMMIT] = None

    def abort_transaction(self) -> None:
        """Abort the open transaction once the records that this call returns are sent too. The offsets of all its
        records are committed nevertheless, so that they are not polled again (as in Connect).
        """
        self._all[_End.ABORT] = None

    def abort_transaction_after(self, record: SourceRecord | SourceOffset) -> None:
        """Abort the open transaction up to and including this record object, and commit the offsets."""
        self._after.setdefault(id(record), (record, {}))[1][_End.ABORT] = None

    def given(self, last: SourceRecord | SourceOffset | None) -> bool:
        """Called when the records of a call have come to their end. `last` is the last of those not passed to the loop
        yet, None = there is none. True = the loop was requested to end a transaction without a batch; the caller then
        returns no batch.
        """
        wanted, self._all = self._all, {}
        if last is None:
            for end in wanted:
                self._ask_now(end)
            return bool(wanted)
        for end in wanted:
            self._after.setdefault(id(last), (last, {}))[1][end] = None
        return False

    def handed(self, records: Sequence[SourceRecord]) -> None:
        """Called with the records of the batch that is passed to the loop now."""
        if not self._after:
            return
        for at, record in enumerate(records):
            asked = self._after.pop(id(record), None)
            for end in () if asked is None else asked[1]:
                ask = self._loop.commit_transaction_after if end is _End.COMMIT else self._loop.abort_transaction_after
                ask(at, record.source_offset)

    def handed_offset(self, offset: SourceOffset) -> None:
        """Called with the offset that is passed to the loop now, without a record."""
        asked = self._after.pop(id(offset), None)
        for end in () if asked is None else asked[1]:
            self._ask_now(end)

    def handed_batch(self) -> None:
        """Called for a batch that the task created itself: a request for all records applies to its last record."""
        wanted, self._all = self._all, {}
        for end in wanted:
            self._ask_now(end)

    def _ask_now(self, end: _End) -> None:
        (self._loop.commit_transaction if end is _End.COMMIT else self._loop.abort_transaction)()
