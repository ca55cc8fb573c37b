"""Translation of a consumer group's offsets from the source cluster
to the copies at the target, with MirrorMaker 2's records.

Owns the bytes of offset syncs and checkpoints (Java: `OffsetSync`,
`Checkpoint`) and the translation. Pure: knows no cluster and no clock.

    offset sync    (topic, partition) -> the record at `upstream` of the source is at `downstream` of its copy
    checkpoint     (group, copy, partition) -> the group is at `upstream`, so its consumers continue at `downstream`

Invariant: a translated offset never skips a record that the group has not read. The number of records copied between
two syncs is unknown, so a group continues right after the last sync before its offset and reads some records again.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from herdmesh.sdk import PartitionId

_VERSION = 0
"""Version of a checkpoint's value."""
_SYNCS_MAX = 192
"""Maximum syncs of one partition before they are thinned out:
two for each power of two of distance are at most 126.
"""
_PENDING_MAX = 1_000
"""Maximum batches of one partition while the end of its copy is unknown; more are merged to one."""


@dataclass(frozen=True, slots=True)
class OffsetSync:
    """Two offsets of the same record: in `partition` of the source cluster, and in its copy."""

    partition: PartitionId
    upstream: int
    downstream: int

    def key(self) -> bytes:
        """Return the key of its record."""
        topic, number = self.partition
        return text_bytes(topic) + struct.pack(">i", number)

    def value(self) -> bytes:
        """Return the value of its record."""
        return struct.pack(">qq", self.upstream, self.downstream)


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The position of a group, at the source and at the target. `partition` is the copy's."""

    group: str
    partition: PartitionId
    upstream: int
    downstream: int
    metadata: str = ""
    """The group's metadata of its offset."""

    def key(self) -> bytes:
        """Return the key of its record."""
        topic, number = self.partition
        return text_bytes(self.group) + text_bytes(topic) + struct.pack(">i", number)

    def value(self) -> bytes:
        """Return the value of its record."""
        return struct.pack(">hqq", _VERSION, self.upstream, self.downstream) + text_bytes(self.metadata)


def read_sync(key: bytes, value: bytes) -> OffsetSync:
    """Parse `key` and `value`. Raises ValueError for other bytes."""
    try:
        topic, at = _read_text(key, 0)
        (number,) = struct.unpack_from(">i", key, at)
        upstream, downstream = struct.unpack_from(">qq", value)
    except (struct.error, IndexError) as error:
        raise ValueError(f"no offset sync: {key!r}, {value!r}") from error
    return OffsetSync((topic, number), upstream, downstream)


def read_checkpoint(key: bytes, value: bytes) -> Checkpoint:
    """Parse `key` and `value`. Raises ValueError for other bytes, and for an unknown version."""
    try:
        group, at = _read_text(key, 0)
        topic, at = _read_text(key, at)
        (number,) = struct.unpack_from(">i", key, at)
        version, upstream, downstream = struct.unpack_from(">hqq", value)
        metadata, _ = _read_text(value, struct.calcsize(">hqq"))
    except (struct.error, IndexError) as error:
        raise ValueError(f"no checkpoint: {key!r}, {value!r}") from error
    if version != _VERSION:
        raise ValueError(f"a checkpoint of version {version}, and only {_VERSION} is supported")
    return Checkpoint(group, (topic, number), upstream, downstream, metadata)


def text_bytes(text: str) -> bytes:
    """Encode Kafka's `STRING`: its length in two bytes, and UTF-8."""
    encoded = text.encode()
    return struct.pack(">h", len(encoded)) + encoded


def _read_text(data: bytes, at: int) -> tuple[str, int]:
    (length,) = struct.unpack_from(">h", data, at)
    end = at + 2 + length
    if length < 0 or end > len(data):
        raise ValueError(f"a string of {length} bytes in {data!r}")
    return data[at + 2 : end].decode(), end


class Translation:
    """The offset syncs of all partitions, thinned out: the nearer to the last one, the denser."""

    def __init__(self) -> None:
        self._syncs: dict[PartitionId, list[OffsetSync]] = {}

    def add(self, sync: OffsetSync) -> None:
        """Add the next sync. A sync with a lower offset than the last, on either side, means that a topic was
        recreated: the earlier syncs are discarded.
        """
        known = self._syncs.setdefault(sync.partition, [])
        if known and (sync.upstream < known[-1].upstream or sync.downstream < known[-1].downstream):
            known.clear()
        if known and known[-1].upstream == sync.upstream:
            known.pop()
        known.append(sync)
        if len(known) > _SYNCS_MAX:
            self._syncs[sync.partition] = _thinned(known)

    def of(self, partition: PartitionId, upstream: int) -> int | None:
        """Translate a group's position `upstream`; None if it is before all known syncs.

        As in Java: a position exactly at a sync has the sync's offset,
        and any position after it the offset behind that, also at the end.
        """
        before = [sync for sync in self._syncs.get(partition, ()) if sync.upstream <= upstream]
        if not before:
            return None
        last = before[-1]
        return last.downstream + (upstream > last.upstream)


def _thinned(syncs: list[OffsetSync]) -> list[OffsetSync]:
    """Return the first and the last sync for each power of two of distance from the end."""
    end = syncs[-1].upstream
    kept: dict[int, list[OffsetSync]] = {}
    for sync in syncs:
        kept.setdefault((end - sync.upstream).bit_length(), []).append(sync)
    return [sync for same in kept.values() for sync in (same[:1] if len(same) == 1 else (same[0], same[-1]))]


def is_news(found: Checkpoint, last: Checkpoint | None) -> bool:
    """Return whether a checkpoint is to be written: it is the first one,
    the group went back at the source, or it is further at the target.
    """
    return last is None or found.upstream < last.upstream or found.downstream > last.downstream


def to_set(checkpoints: Iterable[Checkpoint], there: Mapping[PartitionId, int]) -> list[Checkpoint]:
    """Return the checkpoints that move their group forward at the target; `there`: its offsets there, without
    partitions in which it has none.
    """
    return [one for one in checkpoints if one.downstream > there.get(one.partition, -1)]


@dataclass(slots=True)
class _Copied:
    """The records of a partition that were copied since `base` was read."""

    base: int
    """The last known end of the copy: all later records are at it or after."""
    pending: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])
    """Batches that are committed and have no sync yet: number of records, and source offset of the last."""
    open: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])
    """The same for the open transaction."""
    last_synced: int | None = None
    """The last sync's `downstream`."""
    is_anew: bool = False
    """The copy was deleted and recreated, and no sync shows it yet."""


class Syncing:
    """Computes the offset syncs that a task has to write
    from the ends of the copies before and after a commit.

    The n-th record copied since a copy ended at E is at E + n - 1 or after: other writers, and the markers of
    transactions, only move it back. So a sync uses that offset, and it is exact if nobody else writes to the copy.

    Correct only if each record becomes one of the same partition, so not with transformations.
    """

    def __init__(self, lag_max: int) -> None:
        self._lag_max = lag_max
        self._copied: dict[PartitionId, _Copied] = {}

    def begin(self, ends: Mapping[PartitionId, int]) -> None:
        """Set the ends before the first record; partitions that are missing here get no syncs."""
        self._copied = {partition: _Copied(end) for partition, end in ends.items()}

    def took(self, partition: PartitionId, count: int, last_upstream: int) -> None:
        """Note a batch that was handed over: number of records, and source offset of the last."""
        found = self._copied.get(partition)
        if found is not None and count:
            found.open.append((count, last_upstream))

    def committed(self) -> None:
        """Note that all batches handed over are committed in the copies."""
        for found in self._copied.values():
            found.pending += found.open
            found.open.clear()
            if len(found.pending) > _PENDING_MAX:
                found.pending = [(sum(count for count, _ in found.pending), found.pending[-1][1])]

    def partitions_due(self) -> list[PartitionId]:
        """Return the partitions that need the ends of their copies."""
        return [partition for partition, found in self._copied.items() if found.pending]

    def syncs_due(self, ends: Mapping[PartitionId, int]) -> list[OffsetSync]:
        """Return the syncs to write, given the ends of the copies. A partition whose end is not after all its records,
        and the marker of their transaction, gets none: the end was read too soon, or the records are not in this copy.
        """
        syncs: list[OffsetSync] = []
        for partition, end in ends.items():
            found = self._copied[partition]
            if end < found.base:
                self.made_again({partition: end})
            elif end > found.base + sum(count for count, _ in found.pending):
                syncs += self._syncs_of(partition, found)
                found.base = end
                found.pending.clear()
        return syncs

    def made_again(self, ends: Mapping[PartitionId, int]) -> None:
        """Note that copies were deleted and recreated, and their ends: nobody knows which records since the last check
        are in them. Call it right after a commit, while no transaction is open.
        """
        for partition, end in ends.items():
            if partition in self._copied:
                self._copied[partition] = _Copied(end, is_anew=True)

    def _syncs_of(self, partition: PartitionId, found: _Copied) -> Iterable[OffsetSync]:
        at = found.base - 1
        if found.is_anew:
            # This sync goes back, whatever the earlier copy had: by that a reader discards its syncs of the earlier
            # copy.
            found.is_anew = False
            count, upstream = found.pending[0]
            yield OffsetSync(partition, upstream - count + 1, 0)
        for place, (count, upstream) in enumerate(found.pending, 1):
            if found.last_synced is None:
                # Of `count` records that end at `upstream`, the first is at this offset or before: correct, but not
                # always exact.
                found.last_synced = at + 1
                yield OffsetSync(partition, upstream - count + 1, at + 1)
            at += count
            if at > found.last_synced and (place == len(found.pending) or at - found.last_synced > self._lag_max):
                found.last_synced = at
                yield OffsetSync(partition, upstream, at)
