"""Translation of a consumer group's offsets from the source cluster to the copies at the target, with MirrorMaker 2's
records.

Owns the bytes of offset syncs and checkpoints (Java: `OffsetSync`, `Checkpoint`) and the translation. Pure: knows no
cluster and no clock.

    offset sync    (topic, partition) -> the record at `upstream` of the source is at `downstream` of its copy
    checkpoint     (group, copy, partition) -> the group is at `upstream`, so its consumers continue at `downstream`

Invariant: a translated offset never skips a record that the group has not read. How many records between two syncs were
copied is unknown, so a group continues right behind the last sync before its offset and reads some records again.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from herdmesh.sdk import PartitionId

_VERSION = 0
"""Of a checkpoint's value."""
_SYNCS_MAX = 192
"""Of one partition, before they are thinned out: two for each power of two of distance are 126 at most."""
_OWED_MAX = 1_000
"""Batches of one partition while nobody can say where its copy ends; more are taken for one."""


@dataclass(frozen=True, slots=True)
class OffsetSync:
    """Two offsets of the same record: in `partition` of the source cluster, and in its copy."""

    partition: PartitionId
    upstream: int
    downstream: int

    def key(self) -> bytes:
        """Of its record."""
        topic, number = self.partition
        return text_bytes(topic) + struct.pack(">i", number)

    def value(self) -> bytes:
        """Of its record."""
        return struct.pack(">qq", self.upstream, self.downstream)


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """How far a group is. `partition` is the copy's."""

    group: str
    partition: PartitionId
    upstream: int
    downstream: int
    metadata: str = ""
    """What the group has put beside its offset."""

    def key(self) -> bytes:
        """Of its record."""
        topic, number = self.partition
        return text_bytes(self.group) + text_bytes(topic) + struct.pack(">i", number)

    def value(self) -> bytes:
        """Of its record."""
        return struct.pack(">hqq", _VERSION, self.upstream, self.downstream) + text_bytes(self.metadata)


def read_sync(key: bytes, value: bytes) -> OffsetSync:
    """The reverse of `key` and `value`. Raises ValueError for other bytes."""
    try:
        topic, at = _read_text(key, 0)
        (number,) = struct.unpack_from(">i", key, at)
        upstream, downstream = struct.unpack_from(">qq", value)
    except (struct.error, IndexError) as error:
        raise ValueError(f"no offset sync: {key!r}, {value!r}") from error
    return OffsetSync((topic, number), upstream, downstream)


def read_checkpoint(key: bytes, value: bytes) -> Checkpoint:
    """The reverse of `key` and `value`. Raises ValueError for other bytes, and for a version nobody knows."""
    try:
        group, at = _read_text(key, 0)
        topic, at = _read_text(key, at)
        (number,) = struct.unpack_from(">i", key, at)
        version, upstream, downstream = struct.unpack_from(">hqq", value)
        metadata, _ = _read_text(value, struct.calcsize(">hqq"))
    except (struct.error, IndexError) as error:
        raise ValueError(f"no checkpoint: {key!r}, {value!r}") from error
    if version != _VERSION:
        raise ValueError(f"a checkpoint of version {version}, and {_VERSION} is known")
    return Checkpoint(group, (topic, number), upstream, downstream, metadata)


def text_bytes(text: str) -> bytes:
    """Kafka's `STRING`: its length in two bytes, and UTF-8."""
    encoded = text.encode()
    return struct.pack(">h", len(encoded)) + encoded


def _read_text(data: bytes, at: int) -> tuple[str, int]:
    (length,) = struct.unpack_from(">h", data, at)
    end = at + 2 + length
    if length < 0 or end > len(data):
        raise ValueError(f"a text of {length} bytes in {data!r}")
    return data[at + 2 : end].decode(), end


class Translation:
    """The offset syncs of all partitions, as far as they are needed: the nearer to the last one, the denser."""

    def __init__(self) -> None:
        self._syncs: dict[PartitionId, list[OffsetSync]] = {}

    def add(self, sync: OffsetSync) -> None:
        """Take the next one. One that goes back, on either side, says that a topic was made anew: what was known of it
        is over."""
        known = self._syncs.setdefault(sync.partition, [])
        if known and (sync.upstream < known[-1].upstream or sync.downstream < known[-1].downstream):
            known.clear()
        if known and known[-1].upstream == sync.upstream:
            known.pop()
        known.append(sync)
        if len(known) > _SYNCS_MAX:
            self._syncs[sync.partition] = _thinned(known)

    def of(self, partition: PartitionId, upstream: int) -> int | None:
        """Where a group that is at `upstream` goes on; None where that cannot be said: it is before all that is known.

        As in Java: exactly at a sync it is the sync's, and anywhere behind it the one after, also at the end.
        """
        before = [sync for sync in self._syncs.get(partition, ()) if sync.upstream <= upstream]
        if not before:
            return None
        last = before[-1]
        return last.downstream + (upstream > last.upstream)


def _thinned(syncs: list[OffsetSync]) -> list[OffsetSync]:
    """The first and the last of each power of two of distance from the end."""
    end = syncs[-1].upstream
    kept: dict[int, list[OffsetSync]] = {}
    for sync in syncs:
        kept.setdefault((end - sync.upstream).bit_length(), []).append(sync)
    return [sync for same in kept.values() for sync in (same[:1] if len(same) == 1 else (same[0], same[-1]))]


def is_news(found: Checkpoint, last: Checkpoint | None) -> bool:
    """Whether it is to be told: the first one, the group went back at the source, or it is further at the target."""
    return last is None or found.upstream < last.upstream or found.downstream > last.downstream


def to_set(checkpoints: Iterable[Checkpoint], there: Mapping[PartitionId, int]) -> list[Checkpoint]:
    """Those that take their group forward at the target; `there`: where it is, without partitions it never had."""
    return [one for one in checkpoints if one.downstream > there.get(one.partition, -1)]


@dataclass(slots=True)
class _Copied:
    """What was copied of a partition since `base` was seen."""

    base: int
    """The end of the copy when it was last looked at: all that came later is at it or behind."""
    owed: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])
    """Records, and the source's offset of the last of them; committed, and not told yet."""
    open: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])
    """Likewise, of the transaction that is open."""
    told: int | None = None
    """The last sync's `downstream`."""
    is_anew: bool = False
    """The copy was deleted and made again, and no sync says so yet."""


class Syncing:
    """Which offset syncs a task has to write, from where the copies end before and after a commit.

    The n-th record that was copied since a copy ended at E is at E + n - 1 or behind: other writers, and the markers of
    transactions, only push it back. So that is what a sync says of it, and where nobody else writes it is exact.

    Only right where each record that is handed over becomes one of the same partition: not with transformations.
    """

    def __init__(self, lag_max: int) -> None:
        self._lag_max = lag_max
        self._copied: dict[PartitionId, _Copied] = {}

    def begin(self, ends: Mapping[PartitionId, int]) -> None:
        """Before the first record; of partitions that are missing there will be no syncs."""
        self._copied = {partition: _Copied(end) for partition, end in ends.items()}

    def took(self, partition: PartitionId, count: int, last_upstream: int) -> None:
        """So many records were handed over, the last of which is there at the source."""
        found = self._copied.get(partition)
        if found is not None and count:
            found.open.append((count, last_upstream))

    def committed(self) -> None:
        """All that was handed over is in the copies."""
        for found in self._copied.values():
            found.owed += found.open
            found.open.clear()
            if len(found.owed) > _OWED_MAX:
                found.owed = [(sum(count for count, _ in found.owed), found.owed[-1][1])]

    def owed(self) -> list[PartitionId]:
        """Whose copies have to be looked at."""
        return [partition for partition, found in self._copied.items() if found.owed]

    def told(self, ends: Mapping[PartitionId, int]) -> list[OffsetSync]:
        """The syncs to write, now that the copies end there. A partition that does not end behind all its records, and
        the marker of their transaction, is not told of: it was looked at too soon, or is not where they went."""
        syncs: list[OffsetSync] = []
        for partition, end in ends.items():
            found = self._copied[partition]
            if end < found.base:
                self.made_again({partition: end})
            elif end > found.base + sum(count for count, _ in found.owed):
                syncs += self._syncs_of(partition, found)
                found.base = end
                found.owed.clear()
        return syncs

    def made_again(self, ends: Mapping[PartitionId, int]) -> None:
        """These copies were deleted and made again, and now end there: which of the records since the last look are in
        them nobody knows. Right after a commit, while no transaction is open."""
        for partition, end in ends.items():
            if partition in self._copied:
                self._copied[partition] = _Copied(end, is_anew=True)

    def _syncs_of(self, partition: PartitionId, found: _Copied) -> Iterable[OffsetSync]:
        at = found.base - 1
        if found.is_anew:
            # It goes back, whatever the copy before had: by that a reader forgets what it knew of that one.
            found.is_anew = False
            count, upstream = found.owed[0]
            yield OffsetSync(partition, upstream - count + 1, 0)
        for place, (count, upstream) in enumerate(found.owed, 1):
            if found.told is None:
                # Of `count` records with the last one there the first is there or before: right, if not always exact.
                found.told = at + 1
                yield OffsetSync(partition, upstream - count + 1, at + 1)
            at += count
            if at > found.told and (place == len(found.owed) or at - found.told > self._lag_max):
                found.told = at
                yield OffsetSync(partition, upstream, at)
