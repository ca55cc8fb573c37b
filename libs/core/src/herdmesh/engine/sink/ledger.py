"""Ledger in the target, for sinks whose target has transactions (docs/design/worker.md, section 3).

Owns what such a task implements, `LedgerSinkTask`, and where the loop begins by what a ledger says. One kind of ledger,
a table, is `sql_ledger`. Knows no target.

    claim     after the take-over the task makes the rows of its partitions its own, and says where they stand
    put       one transaction of the target writes the records and moves the row of their partition
    advance   rows follow over offsets of which nothing is left to write (records left out, transaction markers)
    commit    the group's offsets follow; only lag tools look at them, and a task whose ledger has no row yet

Invariant: what the target has of a partition are the records below its row's offset, each once. The ledger decides
where a run begins, forwards and backwards: a target that was restored from a backup gets what it lacks again.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence

from herdmesh.connect.spi import PartitionId, SinkBatch, SinkTask


class LedgerSinkTask(SinkTask):
    """Writes records outside exactly once: the target keeps, for each partition, the next offset to write, and changes
    it in the transaction that writes.

    All methods may raise RetriableError while the target is away. `put` is then given the same batch again; elsewhere
    it ends the run, and the next one begins where the ledger says. `flush` is not used.
    """

    @abstractmethod
    def claim(self, partitions: Sequence[PartitionId]) -> Mapping[PartitionId, int]:
        """Take these partitions over: when it returns, no transaction of an earlier owner can commit any more. Called
        once for all partitions that are added, before `open`; the fence is taken.

        Returns the next offset to write of each partition that the ledger has.
        """

    @abstractmethod
    def begin(self, starts: Mapping[PartitionId, int]) -> None:
        """The loop reads on from these offsets, which may not be what the ledger says: set it, durably."""

    @abstractmethod
    def put(self, batch: SinkBatch) -> None:
        """Write the batch and move the row of (`original_topic`, `partition`) from where this owner last moved it to
        `last_offset` + 1, in one transaction that is durable on return.

        The row may stand before `first_offset`: offsets between are of records that were left out, or of none. A
        transaction whose outcome is not known (RetriableError) is looked up in the ledger when the batch comes again.
        What is given to `context.reporter` must be safe before the row moves past it: `reporter.settle()`.

        Raises:
            LedgerTaken: the row is another owner's; nothing was changed.
            TaskFailed: the row stands where this owner did not put it; nothing was changed.
        """

    @abstractmethod
    def advance(self, positions: Mapping[PartitionId, int]) -> None:
        """Of records below these offsets none is left to be put: move the rows that stand before, durably. Never
        moves one back. Raises as `put`."""

    @abstractmethod
    def forget(self, partitions: Sequence[PartitionId]) -> None:
        """These partitions are gone, with their topic: so are their rows."""

    def flush(self) -> None:
        """Not used: `put` is durable."""
        return


def over_group(
    offsets: Mapping[PartitionId, tuple[int | None, str]], claimed: Mapping[PartitionId, int]
) -> dict[PartitionId, tuple[int | None, str]]:
    """The group's offsets with their metadata; where the ledger has a row, its offset."""
    return {partition: (claimed.get(partition, offset), text) for partition, (offset, text) in offsets.items()}
