"""The memory engine: the same store over topics that live in this process.

Owns `MemoryBroker` (topics, election groups, transactional identities) and `MemoryTopicStore`. It does what a
broker does as far as a store can see: partitions by murmur2, a marker offset after each transaction, epochs that
fence, one owner per election group, topics checked at start, compaction. A difference that a caller could see is a
bug here.

Beyond a broker it offers what tests need: `freeze`/`thaw` (a process stopped and continued, or cut off from the
network), `lose_next_answer` (a commit whose answer does not arrive), `compact`, `produce` (a writer outside every
fence). Everything runs on the event loop in a fixed order; with an injected clock it is deterministic.
Invariant: records become visible whole transactions at a time.
"""

from __future__ import annotations

import asyncio
import time
from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Generic

from herdmesh.topicstore.contract import ChangeT, StateT, StoredRecord
from herdmesh.topicstore.core import MayWrite, TopicStoreCore, always
from herdmesh.topicstore.errors import TopicMisconfigured
from herdmesh.topicstore.log import (
    CommitNotSent,
    CommitUncertain,
    LogEvents,
    LogIdentity,
    Place,
    Positions,
    Transaction,
)
from herdmesh.topicstore.partitioner import partition_of
from herdmesh.topicstore.settings import StoreTuning, TopicSettings
from herdmesh.topicstore.stages import OnStage, Stage, failpoints_of

_BATCH_RECORDS = 500


def wall_clock_ms() -> int:
    return time.time_ns() // 1_000_000


@dataclass(slots=True)
class _Partition:
    records: list[StoredRecord] = field(default_factory=list[StoredRecord])
    next_offset: int = 0

    def since(self, offset: int, limit: int) -> list[StoredRecord]:
        start = bisect_left(self.records, offset, key=lambda record: record.offset)
        return self.records[start : start + limit]


@dataclass(slots=True)
class MemoryTopic:
    """One topic. `store_id` differs for each topic ever made by a broker, names reused or not."""

    name: str
    store_id: str
    cleanup_policy: str
    partitions: list[_Partition]

    def records(self) -> list[StoredRecord]:
        """What is in the topic now, partition after partition."""
        return [record for partition in self.partitions for record in partition.records]

    def compact(self, *, drop_tombstones: bool = False) -> None:
        """Keep the last record of each key, as a log cleaner that has caught up does; offsets stay."""
        for partition in self.partitions:
            last = {record.key: record.offset for record in partition.records}
            partition.records = [
                record
                for record in partition.records
                if last[record.key] == record.offset and not (drop_tombstones and record.value is None)
            ]


class MemoryBroker:
    """What several `MemoryTopicStore`s share. Use one per simulated cluster."""

    def __init__(self, now_ms: Callable[[], int] = wall_clock_ms) -> None:
        self.topics: dict[str, MemoryTopic] = {}
        self.now_ms = now_ms
        self._made = 0
        self._epochs: dict[str, int] = {}
        self._groups: dict[str, list[MemoryLog]] = {}
        self._readers: list[MemoryLog] = []

    def create_topic(self, name: str, partitions: int, cleanup_policy: str) -> MemoryTopic:
        """Make a topic; one of that name must not exist."""
        assert name not in self.topics
        self._made += 1
        topic = MemoryTopic(name, f"memory-{self._made}", cleanup_policy, [_Partition() for _ in range(partitions)])
        self.topics[name] = topic
        return topic

    def fence(self, transactional_id: str) -> int:
        """Initialise an identity: whoever held it before can commit no more. Returns the new epoch."""
        self._epochs[transactional_id] = self._epochs.get(transactional_id, 0) + 1
        return self._epochs[transactional_id]

    def epoch(self, transactional_id: str) -> int:
        return self._epochs.get(transactional_id, 0)

    def produce(self, topic: str, key: bytes | None, value: bytes | None) -> Place:
        """Append one record outside any transaction, as a plain producer may; returns partition and offset."""
        partition = 0 if key is None else partition_of(key, len(self.topics[topic].partitions))
        offset = self._append(topic, partition, key, value)
        self._notify()
        return partition, offset

    def append_transaction(self, records: Iterable[tuple[str, int, bytes, bytes | None]]) -> None:
        """Append records (topic, partition, key, value) and a marker to each partition they touch."""
        touched: dict[tuple[str, int], None] = {}
        for topic, partition, key, value in records:
            self._append(topic, partition, key, value)
            touched[topic, partition] = None
        for topic, partition in touched:
            self.topics[topic].partitions[partition].next_offset += 1
        self._notify()

    def _append(self, topic: str, partition: int, key: bytes | None, value: bytes | None) -> int:
        log = self.topics[topic].partitions[partition]
        offset = log.next_offset
        log.records.append(StoredRecord(topic, partition, offset, key, value, self.now_ms()))
        log.next_offset += 1
        return offset

    # Election groups: the longest-standing member owns partition 0.

    def join(self, group: str, member: MemoryLog) -> None:
        self._groups.setdefault(group, []).append(member)
        self._tell_owner(group)

    def leave(self, group: str, member: MemoryLog) -> None:
        members = self._groups.get(group, [])
        if member in members:
            members.remove(member)
            member.tell_owner(False)
            self._tell_owner(group)

    def owner(self, group: str) -> MemoryLog | None:
        members = self._groups.get(group, [])
        return members[0] if members else None

    def _tell_owner(self, group: str) -> None:
        owner = self.owner(group)
        if owner is not None:
            owner.tell_owner(True)

    # Readers.

    def attach(self, reader: MemoryLog) -> None:
        self._readers.append(reader)

    def detach(self, reader: MemoryLog) -> None:
        if reader in self._readers:
            self._readers.remove(reader)

    def _notify(self) -> None:
        for reader in self._readers:
            reader.poke()


class MemoryLog:
    """`Log` over a `MemoryBroker`."""

    def __init__(self, broker: MemoryBroker, settings: TopicSettings, on_stage: OnStage) -> None:
        self._broker = broker
        self._on_stage = on_stage
        self._settings = settings
        self._shards: list[_Partition] = []
        self._positions: list[int] = []
        self._events: LogEvents | None = None
        self._poked = False
        self._epoch: int | None = None
        self._writing = asyncio.Lock()
        self._told_owner = False
        self._frozen = False
        self._lose_answer: bool | None = None

    async def open(self) -> LogIdentity:
        settings = self._settings
        own = self._open_topic(settings.topic, settings.partitions, "compact", settings.topic_configs)
        self._shards = list(own.partitions)
        if settings.audit_topic is not None:
            audit = self._open_topic(settings.audit_topic, 1, "delete", settings.audit_topic_configs)
            self._shards += audit.partitions
        self._positions = [0] * len(self._shards)
        return LogIdentity(own.store_id, settings.topic, settings.partitions, settings.audit_topic)

    def _open_topic(self, name: str, partitions: int, policy: str, configs: Mapping[str, str]) -> MemoryTopic:
        topic = self._broker.topics.get(name)
        if topic is None:
            return self._broker.create_topic(name, partitions, policy)
        if topic.cleanup_policy != policy:
            raise TopicMisconfigured(name, "cleanup.policy", policy, topic.cleanup_policy)
        if len(topic.partitions) != partitions:
            raise TopicMisconfigured(name, "partitions", str(partitions), str(len(topic.partitions)))
        return topic

    def read(self, events: LogEvents) -> None:
        self._events = events
        self._broker.attach(self)
        self.poke()

    def join_election(self) -> None:
        self._broker.join(self._settings.election_group, self)

    async def leave_election(self) -> None:
        self._broker.leave(self._settings.election_group, self)

    async def end(self) -> Positions:
        await asyncio.sleep(0)
        return tuple(partition.next_offset for partition in self._shards)

    async def prove_ownership(self) -> bool:
        await asyncio.sleep(0)
        return self._broker.owner(self._settings.election_group) is self

    async def take_over(self) -> None:
        async with self._writing:
            await asyncio.sleep(0)
            self._epoch = self._broker.fence(self._settings.transactional_id)

    async def commit(self, transaction: Transaction, placed: Callable[[Sequence[Place]], None]) -> None:
        async with self._writing:
            await asyncio.sleep(0)
            if self._epoch is None:
                raise CommitNotSent("the writer was released")
            if self._epoch != self._broker.epoch(self._settings.transactional_id):
                raise CommitNotSent("a newer writer holds this transactional id")
            self._on_stage(Stage.BEFORE_SEND)
            lose, self._lose_answer = self._lose_answer, None
            places = self._places(transaction)
            self._on_stage(Stage.AFTER_SEND)
            placed(places)
            self._on_stage(Stage.BEFORE_COMMIT)
            if lose is False:
                # The transaction is aborted: its records take their offsets and are never seen, as on a broker.
                self._append_aborted(transaction)
            else:
                self._append(transaction, places)
            self._on_stage(Stage.AFTER_COMMIT)
            await asyncio.sleep(0)
            if lose is not None:
                raise CommitUncertain("the answer was lost")

    def _places(self, transaction: Transaction) -> list[Place]:
        ends = [partition.next_offset for partition in self._shards]
        places: list[Place] = []
        for shard in transaction.shards:
            places.append((shard, ends[shard]))
            ends[shard] += 1
        return places

    def _append(self, transaction: Transaction, places: Sequence[Place | None]) -> None:
        values = [record.value for record in transaction.records]
        for index, value in zip(transaction.behind, transaction.values_behind(places), strict=True):
            values[index] = value
        own = self._settings.partitions
        self._broker.append_transaction(
            (record.topic or self._settings.topic, shard if shard < own else 0, record.key, value)
            for record, shard, value in zip(transaction.records, transaction.shards, values, strict=True)
        )

    def _append_aborted(self, transaction: Transaction) -> None:
        for shard in transaction.shards:
            self._shards[shard].next_offset += 1
        for shard in set(transaction.shards):
            self._shards[shard].next_offset += 1  # the abort marker
        self.poke()

    async def read_audit(self, offsets: Sequence[int]) -> list[StoredRecord]:
        await asyncio.sleep(0)
        audit = self._shards[self._settings.partitions]
        found = (audit.since(offset, 1) for offset in sorted(set(offsets)))
        return [record for records in found for record in records if record.offset in offsets]

    def now_ms(self) -> int:
        return self._broker.now_ms()

    async def release(self) -> None:
        async with self._writing:
            self._epoch = None

    async def close(self) -> None:
        self._broker.detach(self)
        self._events = None

    # What the broker and tests call.

    def tell_owner(self, owned: bool) -> None:
        if not self._frozen and owned != self._told_owner and self._events is not None:
            self._told_owner = owned
            self._events.on_owner(owned)

    def poke(self) -> None:
        if not self._poked and not self._frozen and self._events is not None:
            self._poked = True
            asyncio.get_running_loop().call_soon(self._pump)

    def freeze(self) -> None:
        self._frozen = True
        self._broker.leave(self._settings.election_group, self)

    def thaw(self) -> None:
        self._frozen = False
        self.tell_owner(False)
        self._broker.join(self._settings.election_group, self)
        self.poke()

    def lose_next_answer(self, *, applied: bool) -> None:
        self._lose_answer = applied

    def _pump(self) -> None:
        self._poked = False
        if self._frozen or self._events is None:
            return
        records: list[StoredRecord] = []
        for shard, partition in enumerate(self._shards):
            found = partition.since(self._positions[shard], _BATCH_RECORDS - len(records))
            records += found
            complete = len(records) < _BATCH_RECORDS
            self._positions[shard] = (
                partition.next_offset if complete else found[-1].offset + 1 if found else self._positions[shard]
            )
        self._events.on_records(records, tuple(self._positions))
        if any(mine < shard.next_offset for mine, shard in zip(self._positions, self._shards, strict=True)):
            self.poke()


class MemoryTopicStore(TopicStoreCore[StateT, ChangeT], Generic[StateT, ChangeT]):
    """`TopicStore` in memory. Stores given one `broker` and equal topic settings are replicas of each other."""

    def __init__(
        self,
        broker: MemoryBroker,
        settings: TopicSettings,
        initial: StateT,
        *,
        may_write: MayWrite = always,
        tuning: StoreTuning | None = None,
        on_stage: OnStage | None = None,
    ) -> None:
        """`on_stage` takes the place of the failpoints."""
        on_stage = on_stage or failpoints_of(settings.topic)
        self._memory = MemoryLog(broker, settings, on_stage)
        super().__init__(self._memory, initial, may_write, tuning or StoreTuning(), on_stage)

    def freeze(self) -> None:
        """Nothing reaches this replica any more: no records, no loss of ownership. Another replica is elected. Its own
        calls still go out, which is worse than a stopped process and thus the better test."""
        self._memory.freeze()

    def thaw(self) -> None:
        """End of `freeze`: this replica learns what happened and joins the election again."""
        self._memory.thaw()

    def lose_next_answer(self, *, applied: bool) -> None:
        """The next commit takes effect (or not, by `applied`) and its answer is lost either way."""
        self._memory.lose_next_answer(applied=applied)
