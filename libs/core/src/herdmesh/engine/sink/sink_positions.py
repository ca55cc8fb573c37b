"""Positions of a sink run: the next offset to read of each partition, and its committed offset.

Owns both; no other module writes them. The loop moves a position past records that were put, `ConsumerControl` on a
seek of the task, `SinkAssignment` when partitions are added or removed, and `SinkCommits` records commits, each by a
method of its own here. Makes no calls to Kafka.

Invariant: a partition has a start to commit only while it has a position; its committed offset stays until the first
commit after the partition was dropped. A position moves forward only by records that were put or skipped (`read_to`),
by the end of its partition (`ended`), or by the task or the operator's reset policy (`seek`, `reset`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping

from herdmesh.connect.spi import PartitionId


class SinkPositions:
    """Positions of one run's partitions. Used from the loop's thread only."""

    def __init__(self) -> None:
        self._next: dict[PartitionId, int] = {}
        self._committed: dict[PartitionId, int] = {}
        #: starting offsets of partitions, until their first commit.
        self._starts: dict[PartitionId, int] = {}
        #: offsets at which partitions were begun in this run.
        self._begun: dict[PartitionId, int] = {}
        #: partitions that were read to their end.
        self._ended: set[PartitionId] = set()

    def __len__(self) -> int:
        return len(self._next)

    def __contains__(self, partition: object) -> bool:
        return partition in self._next

    def __iter__(self) -> Iterator[PartitionId]:
        return iter(self._next)

    def __getitem__(self, partition: PartitionId) -> int:
        """The next offset to read. Raises KeyError for a partition that the run does not have."""
        return self._next[partition]

    def get(self, partition: PartitionId) -> int | None:
        """The next offset to read; None for a partition that the run does not have."""
        return self._next.get(partition)

    def committed(self, partition: PartitionId) -> int | None:
        """The last offset that this run committed in the partition; None = none since it was assigned, sought or
        reset."""
        return self._committed.get(partition)

    def pending(self, partition: PartitionId) -> int:
        """Offsets between the next one to read and the last commit, or the run's start in the partition: if the run
        ends now, the next one reads their records again.
        """
        begun = self._starts.get(partition, self._begun[partition])
        return max(0, self._next[partition] - self._committed.get(partition, begun))

    def to_commit(self) -> dict[PartitionId, int]:
        """All positions, as a commit of all records read needs them."""
        return dict(self._next)

    def to_commit_again(self) -> dict[PartitionId, int]:
        """The committed offsets, and the starts that are not committed yet: offsets that need no permission of the
        task.
        """
        return self._committed | self._starts

    @property
    def has_starts(self) -> bool:
        """True while partitions have starting offsets that are not committed."""
        return bool(self._starts)

    @property
    def is_dirty(self) -> bool:
        """True when the positions differ from the committed offsets."""
        return self._next != self._committed

    @property
    def is_all_read(self) -> bool:
        """True when each partition was read to its end."""
        return len(self._ended) >= len(self._next)

    def assign(self, starts: Mapping[PartitionId, int]) -> None:
        """Add partitions, with the first offset to read of each."""
        self._next.update(starts)
        self._begun.update(starts)

    def commit_starts_later(self, starts: Mapping[PartitionId, int]) -> None:
        """Note starting offsets to commit with the first records."""
        self._starts.update(starts)

    def read_to(self, partition: PartitionId, position: int) -> None:
        """Move the position: the records before it were put or skipped."""
        self._next[partition] = position
        self._ended.discard(partition)

    def ended(self, partition: PartitionId, end: int) -> None:
        """Handle the end of the partition. Transaction markers are not records: only this event moves the position past
        them.
        """
        if partition in self._next:
            self._next[partition] = max(self._next[partition], end)
            self._ended.add(partition)

    def seek(self, partition: PartitionId, position: int) -> None:
        """Move the position where the task seeks.

        The lower of the committed offset and this position counts until the next commit: the run may reach the
        committed offset again, with earlier records that were not made durable. And if the position moves forward, a
        commit without the task must not skip records that were put and not flushed.
        """
        kept = self._committed.pop(partition, self._starts.get(partition, position))
        self._starts[partition] = min(position, kept)
        self._next[partition] = position
        self._ended.discard(partition)

    def reset(self, partition: PartitionId, start: int) -> None:
        """Move the position, because the records at the last one are gone."""
        self._committed.pop(partition, None)
        self._starts[partition] = self._next[partition] = self._begun[partition] = start
        self._ended.discard(partition)

    def drop(self, partitions: Collection[PartitionId]) -> None:
        """Remove partitions. The next commit removes their committed offsets."""
        for partition in partitions:
            del self._next[partition]
            self._starts.pop(partition, None)
            self._begun.pop(partition, None)
        self._ended.difference_update(partitions)

    def set_committed(self, offsets: Mapping[PartitionId, int]) -> None:
        """Set the committed offsets; all others are forgotten."""
        self._committed = dict(offsets)
        if offsets:
            self._starts.clear()

    def return_to_committed(self) -> None:
        """At the end of the run, move positions back to the committed offsets: the next run reads the records that the
        task holds back.
        """
        self._next.update((one, at) for one, at in self._committed.items() if one in self._next)

    def allowed(
        self, allowed: Mapping[PartitionId, int], requested: Mapping[PartitionId, int]
    ) -> tuple[dict[PartitionId, int], list[tuple[PartitionId, int, int]]]:
        """The offsets to commit when the task got `requested` and allows `allowed`.

        A partition keeps its committed offset, or its start, if the task names no offset or one beyond `requested`; and
        no offset is beyond a position to which the task has sought since (docs/reference/connect/offsets-topic.md,
        section 8).

        Returns the offsets, and (partition, offset, requested) of those that were ignored because they were out of
        range.
        """
        if allowed == requested == self._next:
            return dict(requested), []
        before = self._starts | self._committed
        found: dict[PartitionId, int] = {}
        ignored: list[tuple[PartitionId, int, int]] = []
        for partition, position in self._next.items():
            offset = allowed.get(partition)
            if offset is not None and not 0 <= offset <= requested[partition]:
                ignored.append((partition, offset, requested[partition]))
                offset = None
            found[partition] = before.get(partition, position) if offset is None else min(offset, position)
        return found, ignored

    def topics(self) -> Iterable[str]:
        """The topics of the partitions, with repeats."""
        return (topic for topic, _ in self._next)
