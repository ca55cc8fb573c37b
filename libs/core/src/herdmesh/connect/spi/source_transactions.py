"""Transaction interfaces of a source task (KIP-618): requests for the end of a transaction, and acknowledgements.

Owns the two interfaces that an author sees: asking for the end of a transaction, and learning where Kafka put a record.
The loop ends transactions and delivers acknowledgements (`herdmesh.engine.source.boundaries`,
`herdmesh.engine.delivery.delivery_reports`).

Invariant: both are optional, and free of cost for a task that uses neither.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol


@dataclass(frozen=True, slots=True)
class RecordMetadata:
    """Where a record is in Kafka (Java: `RecordMetadata`)."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int


class TransactionContext(Protocol):
    """Where transactions end, as the task says: with `transaction.boundary=connector` (Java: `TransactionContext`).

    To be called within `poll`, of the batch that it returns. A transaction begins by itself with the first batch after
    the end of the one before, and does not end in any other way: what the run has sent when it ends, or when Kafka's
    `transaction.timeout.ms` is over, is never visible, and is polled again from the last offset that was committed.

    To ask for a commit and an abort of the same batch, or after the same record, ends the run: either may lose data.
    """

    def commit_transaction(self) -> None:
        """Commit once the batch is sent; when there is none, at once."""
        ...

    def commit_transaction_after(self, at: int, source_offset: Mapping[str, Any] | None) -> None:
        """Commit once the record at that index of the batch is sent, and begin another transaction with the next.

        Args:
            at: index of the record in the batch's columns, from 0. A record that a transformation drops counts.
            source_offset: the source offset after that record, as the batch gives it for its last one.
        """
        ...

    def abort_transaction(self) -> None:
        """Give up all records of the open transaction, the batch among them, and their dead letters. Their offsets are
        committed all the same, so that they are not polled again (as by Connect)."""
        ...

    def abort_transaction_after(self, at: int, source_offset: Mapping[str, Any] | None) -> None:
        """Give up all records of the open transaction up to that one; arguments as of `commit_transaction_after`."""
        ...
