"""Transaction boundaries that a source task requests (`transaction.boundary=connector`, KIP-618;
docs/reference/connect/offsets-topic.md, section 7, docs/reference/connect/data-model.md, section 3).

Owns the open requests of the task, and the split of a batch in which a transaction ends. Commits and aborts nothing:
the loop does. Only a batch with a boundary costs a split; no record is examined.

Invariant: each request is fulfilled once, in the order of the records. Contradicting requests end the run when the
batch is taken, not in the task's call, where the task might swallow the error.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from enum import Enum
from typing import Any

from herdmesh.connect.error_class import ErrorClass
from herdmesh.connect.spi import SourceBatch
from herdmesh.engine.runtime import TaskFailed

OffsetMap = Mapping[str, Any]


class End(Enum):
    """The end of a transaction."""

    COMMIT = "commit"
    ABORT = "abort"


Piece = tuple[SourceBatch | None, End | None]
"""The data to send (None = nothing more), and how the transaction then ends (None = not yet)."""


class Boundaries:
    """The `TransactionContext` of a run."""

    def __init__(self) -> None:
        self._whole: set[End] = set()
        #: by the record's index in the batch.
        self._after: dict[int, dict[End, OffsetMap | None]] = {}

    def commit_transaction(self) -> None:
        """See `TransactionContext`, as for the three other methods."""
        self._whole.add(End.COMMIT)

    def commit_transaction_after(self, at: int, source_offset: OffsetMap | None) -> None:
        """See `TransactionContext`."""
        self._after.setdefault(at, {})[End.COMMIT] = source_offset

    def abort_transaction(self) -> None:
        """See `TransactionContext`."""
        self._whole.add(End.ABORT)

    def abort_transaction_after(self, at: int, source_offset: OffsetMap | None) -> None:
        """See `TransactionContext`."""
        self._after.setdefault(at, {})[End.ABORT] = source_offset

    def pieces(self, batch: SourceBatch | None) -> list[Piece]:
        """Split the batch just polled where transactions end, by the open requests, and clear the requests. None = no
        batch was polled.

        Raises:
            TaskFailed: FATAL: the requests contradict each other, or name a record that is not in the batch.
        """
        whole, after = self._whole, self._after
        if not whole and not after:
            return [] if batch is None else [(batch, None)]
        self._whole, self._after = set(), {}
        if len(whole) > 1:
            raise TaskFailed("Connector requested both commit and abort of same transaction", ErrorClass.FATAL)
        found: list[Piece] = [] if batch is None else _cut(batch, after)
        if batch is None and after:
            raise TaskFailed(
                f"the task requested the end of a transaction after record {min(after)} and returned no batch",
                ErrorClass.FATAL,
            )
        for end in whole:
            if found and found[-1][1] is None:
                found[-1] = found[-1][0], end
            else:
                found.append((None, end))
        return found


def _cut(batch: SourceBatch, after: Mapping[int, Mapping[End, OffsetMap | None]]) -> list[Piece]:
    """Split the batch after the requested records. The last piece keeps the batch's own offset."""
    found: list[Piece] = []
    begin, count = 0, len(batch)
    for at in sorted(after):
        if not 0 <= at < count:
            raise TaskFailed(
                f"the task requested the end of a transaction after record {at} of a batch of {count}: the first has "
                "the index 0",
                ErrorClass.FATAL,
            )
        if len(after[at]) > 1:
            raise TaskFailed(
                "Connector requested both commit and abort of same record against topic/partition "
                f"{batch.topic}/{'null' if batch.partition is None else batch.partition}",
                ErrorClass.FATAL,
            )
        ((end, source_offset),) = after[at].items()
        found.append((_part(batch, begin, at + 1, source_offset), end))
        begin = at + 1
    if begin < count or not found:
        found.append((_part(batch, begin, count, batch.source_offset), None))
    return found


def _part(batch: SourceBatch, begin: int, end: int, source_offset: OffsetMap | None) -> SourceBatch:
    if begin == 0 and end == len(batch):
        return batch
    return replace(
        batch,
        values=batch.values[begin:end],
        source_offset=batch.source_offset if end == len(batch) else source_offset,
        keys=batch.keys[begin:end],
        timestamps_ms=batch.timestamps_ms[begin:end],
        headers=batch.headers[begin:end],
    )
