"""Ledger in the target, for sinks whose target has transactions (docs/design/worker.md, section 3).

Owns `LedgerSinkTask`, the interface of such a task, and the rule by which a ledger determines where the loop begins.
One kind of ledger, a table, is `sql_ledger`. Knows no target.

    claim     after the take-over the task claims the rows of its partitions, and returns their offsets
    put       one transaction of the target writes the records and moves the row of their partition
    advance   rows follow past offsets without records to write (skipped records, transaction markers)
    commit    the group's offsets follow; only lag tools read them, and a task whose ledger has no row yet

Invariant: the target has exactly the records of a partition below its row's offset, each once. The ledger determines
where a run begins, forwards and backwards: a target that was restored from a backup gets its missing records again.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence

from herdmesh.connect.spi import PartitionId, SinkBatch, SinkTask


class LedgerSinkTask(SinkTask):
    """Base class of tasks that write records exactly once: the target stores, for each partition, the next offset to
    write, and changes it in the transaction that writes.

    All methods may raise RetriableError while the target is unreachable. `put` then gets the same batch again; in any
    other method it ends the run, and the next one begins at the ledger's offsets. `flush` is not used.
    """

    @abstractmethod
    def claim(self, partitions: Sequence[PartitionId]) -> Mapping[PartitionId, int]:
        """Take these partitions over: when it returns, no transaction of an earlier owner can commit any more. Called
        once for all added partitions, before `open`, after the fence was taken.

        Returns the next offset to write of each partition that the ledger has.
        """

    @abstractmethod
    def begin(self, starts: Mapping[PartitionId, int]) -> None:
        """Set the ledger to these offsets, durably: the loop continues reading there, even if the ledger has others."""

    @abstractmethod
    def put(self, batch: SinkBatch) -> None:
        """Write the batch and move the row of (`original_topic`, `partition`) from the last offset set by this owner to
        `last_offset` + 1, in one transaction that is durable on return.

        The row may be before `first_offset`: the offsets between belong to skipped records, or to none. If the outcome
        of a transaction is unknown (RetriableError), the ledger shows it when the batch comes again. Records given to
        `context.reporter` must be safe before the row moves past them: `reporter.flush_dead_letters()`.

        Raises:
            LedgerTaken: the row belongs to another owner; nothing was changed.
            TaskFailed: the row is not where this owner left it; nothing was changed.
        """

    @abstractmethod
    def advance(self, positions: Mapping[PartitionId, int]) -> None:
        """Move the rows that are before these offsets, durably: no record below them remains to be put. Never moves a
        row back. Raises as `put`.
        """

    @abstractmethod
    def forget(self, partitions: Sequence[PartitionId]) -> None:
        """Delete the rows of these partitions, which were deleted with their topic."""

    def flush(self) -> None:
        """Not used: `put` is durable."""
        return


def over_group(
    offsets: Mapping[PartitionId, tuple[int | None, str]], claimed: Mapping[PartitionId, int]
) -> dict[PartitionId, tuple[int | None, str]]:
    """The group's offsets with their metadata; for a partition with a row in the ledger, the row's offset."""
    return {partition: (claimed.get(partition, offset), text) for partition, (offset, text) in offsets.items()}
