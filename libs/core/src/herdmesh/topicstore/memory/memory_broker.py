"""An in-memory Kafka broker with the behaviour that a topic store can observe.

Owns topics, transactional identities with their open transactions, election groups, and groups' committed offsets. It
has a marker offset after each transaction, epochs that fence, readers that stop before the first open transaction (the
last stable offset), one owner per election group, and compaction that spares young records. A difference that a caller
could observe is a bug here. Everything is synchronous; with an injected clock it is deterministic.

Invariant: records become visible whole transactions at a time, in offset order within a partition.
"""

from __future__ import annotations

import time
from bisect import bisect_left, insort
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from herdmesh.topicstore.contract import GroupOffset, StoredRecord
from herdmesh.topicstore.partitioner import partition_of


def wall_clock_ms() -> int:
    return time.time_ns() // 1_000_000


class Fenced(Exception):
    """Another owner has initialised the identity since."""


def _offset(record: StoredRecord) -> int:
    return record.offset


@dataclass(slots=True)
class MemoryPartition:
    """`records` are committed; below `stable` no more records will come."""

    records: list[StoredRecord] = field(default_factory=lambda: list[StoredRecord]())
    next_offset: int = 0
    #: First offsets of the open transactions.
    open: list[int] = field(default_factory=lambda: list[int]())

    @property
    def stable(self) -> int:
        """The last stable offset: the end of the readable records."""
        return min(self.open, default=self.next_offset)

    def since(self, offset: int, limit: int) -> list[StoredRecord]:
        """Up to `limit` readable records from `offset` on."""
        start = bisect_left(self.records, offset, key=_offset)
        return self.records[start : min(start + limit, bisect_left(self.records, self.stable, key=_offset))]


@dataclass(slots=True)
class MemoryTopic:
    """One topic. `store_id` differs for each topic that a broker ever creates, even if the name is reused."""

    name: str
    store_id: str
    cleanup_policy: str
    partitions: list[MemoryPartition]
    min_compaction_lag_ms: int
    now_ms: Callable[[], int]

    def records(self) -> list[StoredRecord]:
        """The committed records of the topic, partition after partition."""
        return [record for partition in self.partitions for record in partition.records]

    def compact(self, *, drop_tombstones: bool = False, young_too: bool = False) -> None:
        """Keep the last record of each key, as a log cleaner that has caught up does; offsets stay. Records after one
        that is younger than the topic's minimum compaction lag are kept and do not replace older ones, unless
        `young_too`.
        """
        oldest_young_ms = self.now_ms() - self.min_compaction_lag_ms
        for partition in self.partitions:
            end = partition.stable
            if not young_too:
                young = (record.offset for record in partition.records if record.timestamp_ms > oldest_young_ms)
                end = min(end, next(young, end))
            last = {record.key: record.offset for record in partition.records if record.offset < end}
            partition.records = [
                record
                for record in partition.records
                if record.offset >= end
                or (last[record.key] == record.offset and not (drop_tombstones and record.value is None))
            ]


@dataclass(slots=True)
class _Transaction:
    records: list[tuple[MemoryPartition, StoredRecord]] = field(
        default_factory=lambda: list[tuple[MemoryPartition, StoredRecord]]()
    )
    firsts: dict[tuple[str, int], int] = field(default_factory=lambda: dict[tuple[str, int], int]())
    group_offsets: list[tuple[str, GroupOffset]] = field(default_factory=lambda: list[tuple[str, GroupOffset]]())


class Member(Protocol):
    """A member of an election group."""

    def tell_owner(self, owned: bool) -> None: ...


class MemoryBroker:
    """The broker that several `MemoryTopicStore`s share. Use one per simulated cluster."""

    def __init__(self, now_ms: Callable[[], int] = wall_clock_ms) -> None:
        self.topics: dict[str, MemoryTopic] = {}
        #: Committed offsets: group -> topic and partition -> offset and metadata.
        self.group_offsets: dict[str, dict[tuple[str, int], tuple[int, str]]] = {}
        self.now_ms = now_ms
        self.cluster_id = "memory"
        self._made = 0
        self._epochs: dict[str, int] = {}
        self._transactions: dict[str, _Transaction] = {}
        self._groups: dict[str, list[Member]] = {}
        self._readers: list[Callable[[], None]] = []

    # Topics.

    def create_topic(
        self, name: str, partitions: int, cleanup_policy: str, min_compaction_lag_ms: int = 0
    ) -> MemoryTopic:
        """Create a topic; the name must be free."""
        assert name not in self.topics
        self._made += 1
        made = [MemoryPartition() for _ in range(partitions)]
        topic = MemoryTopic(name, f"memory-{self._made}", cleanup_policy, made, min_compaction_lag_ms, self.now_ms)
        self.topics[name] = topic
        return topic

    def produce(self, topic: str, key: bytes | None, value: bytes | None) -> tuple[int, int]:
        """Append one record outside any transaction, as a plain producer may; returns partition and offset."""
        partition = 0 if key is None else partition_of(key, len(self.topics[topic].partitions))
        record = self._append(topic, partition, key, value)
        insort(self.topics[topic].partitions[partition].records, record, key=_offset)
        self._notify()
        return partition, record.offset

    # Transactions. Methods with an epoch raise `Fenced` when it is not the identity's newest.

    def fence(self, transactional_id: str) -> int:
        """Initialise an identity: its open transaction is aborted and its earlier owner can no longer commit.
        Returns the new epoch.
        """
        self._end(transactional_id, commit=False)
        self._epochs[transactional_id] = self.epoch(transactional_id) + 1
        return self._epochs[transactional_id]

    def epoch(self, transactional_id: str) -> int:
        return self._epochs.get(transactional_id, 0)

    def send(
        self, transactional_id: str, epoch: int, topic: str, partition: int, key: bytes, value: bytes | None
    ) -> int:
        """Append one record to the identity's transaction, which is begun if none is open. Returns its offset."""
        self._require(transactional_id, epoch)
        transaction = self._transactions.setdefault(transactional_id, _Transaction())
        log = self.topics[topic].partitions[partition]
        if (topic, partition) not in transaction.firsts:
            transaction.firsts[topic, partition] = log.next_offset
            log.open.append(log.next_offset)
        record = self._append(topic, partition, key, value)
        transaction.records.append((log, record))
        return record.offset

    def send_offsets(self, transactional_id: str, epoch: int, group: str, offsets: Sequence[GroupOffset]) -> None:
        """Add offsets of a group to the identity's transaction, which is begun if none is open."""
        self._require(transactional_id, epoch)
        transaction = self._transactions.setdefault(transactional_id, _Transaction())
        transaction.group_offsets += [(group, offset) for offset in offsets]

    def end(self, transactional_id: str, epoch: int, *, commit: bool) -> None:
        """End the identity's transaction: its records and offsets become visible, or never do."""
        self._require(transactional_id, epoch)
        self._end(transactional_id, commit=commit)

    def _require(self, transactional_id: str, epoch: int) -> None:
        if epoch != self.epoch(transactional_id):
            raise Fenced("a newer writer holds this transactional id")

    def _end(self, transactional_id: str, *, commit: bool) -> None:
        transaction = self._transactions.pop(transactional_id, None)
        if transaction is None:
            return
        for (topic, partition), first in transaction.firsts.items():
            log = self.topics[topic].partitions[partition]
            log.open.remove(first)
            log.next_offset += 1  # the marker
        if commit:
            for log, record in transaction.records:
                insort(log.records, record, key=_offset)
            for group, offset in transaction.group_offsets:
                committed = self.group_offsets.setdefault(group, {})
                committed[offset.topic, offset.partition] = (offset.offset, offset.metadata)
        self._notify()

    def _append(self, topic: str, partition: int, key: bytes | None, value: bytes | None) -> StoredRecord:
        log = self.topics[topic].partitions[partition]
        record = StoredRecord(topic, partition, log.next_offset, key, value, self.now_ms())
        log.next_offset += 1
        return record

    # Election groups: the longest-standing member is the owner.

    def join(self, group: str, member: Member) -> None:
        self._groups.setdefault(group, []).append(member)
        self._tell_owner(group)

    def leave(self, group: str, member: Member) -> None:
        members = self._groups.get(group, [])
        if member in members:
            members.remove(member)
            member.tell_owner(False)
            self._tell_owner(group)

    def owner(self, group: str) -> Member | None:
        members = self._groups.get(group, [])
        return members[0] if members else None

    def _tell_owner(self, group: str) -> None:
        owner = self.owner(group)
        if owner is not None:
            owner.tell_owner(True)

    # Readers.

    def attach(self, poke: Callable[[], None]) -> None:
        """Call `poke` whenever there may be new records to read."""
        self._readers.append(poke)

    def detach(self, poke: Callable[[], None]) -> None:
        if poke in self._readers:
            self._readers.remove(poke)

    def _notify(self) -> None:
        for poke in self._readers:
            poke()
