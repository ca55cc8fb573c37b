"""Transaction interfaces of a source task (KIP-618): requests for the end of a transaction, and acknowledgements.

Owns the two interfaces that an author sees: the request to end a transaction, and the metadata of a written record. The
loop ends transactions and delivers acknowledgements (`herdmesh.engine.source.boundaries`,
`herdmesh.engine.delivery.delivery_reports`).

Invariant: both are optional, and free of cost for a task that uses neither.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol


@dataclass(frozen=True, slots=True)
class RecordMetadata:
    """Topic, partition, offset and timestamp of a record in Kafka (Java: `RecordMetadata`)."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int


class TransactionContext(Protocol):
    """Requests of a task for the end of its transactions, with `transaction.boundary=connector` (Java:
    `TransactionContext`).

    Call the methods within `poll`, about the batch that it returns. A transaction begins with the first batch after the
    end of the previous transaction, and ends only by a request: records that the run has sent when it ends, or when
    Kafka's `transaction.timeout.ms` expires, never become visible, and are polled again from the last committed offset.

    A request for both a commit and an abort of the same batch, or after the same record, ends the run: either may lose
    data.
    """

    def commit_transaction(self) -> None:
        """Commit once the batch is sent; when `poll` returns no batch, commit at once."""
        ...

    def commit_transaction_after(self, at: int, source_offset: Mapping[str, Any] | None) -> None:
        """Commit once the record at that index of the batch is sent, and begin another transaction with the next
        record.

        Args:
            at: index of the record in the batch's columns, from 0. Records that a transformation filters count.
            source_offset: the source offset after that record, as the batch has it for its last record.
        """
        ...

    def abort_transaction(self) -> None:
        """Abort all records of the open transaction, including this batch, and their dead letters. Their offsets are
        committed all the same, so that they are not polled again (as in Connect).
        """
        ...

    def abort_transaction_after(self, at: int, source_offset: Mapping[str, Any] | None) -> None:
        """Abort all records of the open transaction up to that record; arguments as of `commit_transaction_after`."""
        ...
