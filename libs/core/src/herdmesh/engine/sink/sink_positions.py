"""Positions of a sink run: the next offset to read of each partition, and what is committed of it.

Owns both, and nobody else writes them: the loop moves a position past records that were put, `ConsumerControl` where
the task seeks, `SinkAssignment` where partitions begin or go, and `SinkCommits` records what it committed, each by a
method of its own name here. Talks to nobody.

Invariant: a partition is committed, or begins at a start that is to be committed, only while it has a position; and a
position moves forward only by records that were put or skipped (`read_to`), by the end of its partition (`ended`), or
because the task or the operator's reset policy said so (`seek`, `reset`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping

from herdmesh.connect.spi import PartitionId


class SinkPositions:
    """Positions of one run's partitions. Used from the loop's thread only."""

    def __init__(self) -> None:
        self._next: dict[PartitionId, int] = {}
        self._committed: dict[PartitionId, int] = {}
        #: where partitions begin, until the first commit of them.
        self._starts: dict[PartitionId, int] = {}
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
        """What this run committed last of the partition; None = nothing since it was assigned, sought or reset."""
        return self._committed.get(partition)

    def to_commit(self) -> dict[PartitionId, int]:
        """All positions, as a commit of everything that was read would have them."""
        return dict(self._next)

    def to_commit_again(self) -> dict[PartitionId, int]:
        """What is committed, and the starts that are not: what a commit may name without asking the task."""
        return self._committed | self._starts

    @property
    def has_starts(self) -> bool:
        """True while partitions begin at offsets that Kafka does not know as committed."""
        return bool(self._starts)

    @property
    def is_dirty(self) -> bool:
        """True when something was read that is not committed, or is not to be committed any more."""
        return self._next != self._committed

    @property
    def is_all_read(self) -> bool:
        """True when each partition was read to its end."""
        return len(self._ended) >= len(self._next)

    def assign(self, starts: Mapping[PartitionId, int]) -> None:
        """Partitions that the run has from now on, with the first offset to read of each."""
        self._next.update(starts)

    def commit_starts_later(self, starts: Mapping[PartitionId, int]) -> None:
        """These starts are to be committed with the first records."""
        self._starts.update(starts)

    def read_to(self, partition: PartitionId, position: int) -> None:
        """The records before this position were put or skipped."""
        self._next[partition] = position
        self._ended.discard(partition)

    def ended(self, partition: PartitionId, end: int) -> None:
        """The partition was read to its end. Transaction markers are no records: only the end tells that the position
        moved past them."""
        if partition in self._next:
            self._next[partition] = max(self._next[partition], end)
            self._ended.add(partition)

    def seek(self, partition: PartitionId, position: int) -> None:
        """The task wants to read on from another position.

        What was committed before counts until the next commit, and no further than this position: the run may come to
        committed records again, with records before them that nobody made durable. And where the position moves
        forward, a commit that does not ask the task must not pass over records that were put and not flushed.
        """
        kept = self._committed.pop(partition, self._starts.get(partition, position))
        self._starts[partition] = min(position, kept)
        self._next[partition] = position
        self._ended.discard(partition)

    def reset(self, partition: PartitionId, start: int) -> None:
        """Read on from another position, because the records at the last one are gone."""
        self._committed.pop(partition, None)
        self._starts[partition] = self._next[partition] = start
        self._ended.discard(partition)

    def drop(self, partitions: Collection[PartitionId]) -> None:
        """Partitions that the run does not have any more. What was committed of them goes with the next commit."""
        for partition in partitions:
            del self._next[partition]
            self._starts.pop(partition, None)
        self._ended.difference_update(partitions)

    def set_committed(self, offsets: Mapping[PartitionId, int]) -> None:
        """These offsets are committed, and nothing else is."""
        self._committed = dict(offsets)
        if offsets:
            self._starts.clear()

    def return_to_committed(self) -> None:
        """The run ends: what the task holds back is to be read again by the next one."""
        self._next.update((one, at) for one, at in self._committed.items() if one in self._next)

    def allowed(
        self, allowed: Mapping[PartitionId, int], requested: Mapping[PartitionId, int]
    ) -> tuple[dict[PartitionId, int], list[tuple[PartitionId, int, int]]]:
        """What may be committed of what was requested of the task, when it allows this much.

        A partition keeps what is committed, or its start, where the task names no offset or one beyond what it was
        given; and no offset is beyond a position that the task has meanwhile sought (docs/reference/connect/
        offsets-topic.md, section 8).

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
