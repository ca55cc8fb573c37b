"""Harness of the topic store suite: a small state, decisions over it, and a cluster per engine.

Owns no test. Service suites may use it for a store of their own. Invariant: a test body cannot distinguish the engines,
except by using a feature that only one engine offers.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from herdmesh.topicstore import (
    Beside,
    NewRecord,
    OnStage,
    Revision,
    StoredRecord,
    StoreRole,
    StoreTuning,
    TopicSettings,
    TopicStore,
    WatchChange,
    WatchSnapshot,
    WriteDecision,
)
from herdmesh.topicstore.core import MayWrite, always
from herdmesh.topicstore.kafka.kafka_store import KafkaTopicStore
from herdmesh.topicstore.memory.memory_broker import MemoryBroker
from herdmesh.topicstore.memory.memory_store import MemoryTopicStore
from tests.support.side_by_side import SideBySideTest

WAIT_S = 45.0
MEMORY, KAFKA = "memory", "kafka"


@dataclass(frozen=True, slots=True)
class Entry:
    """Value of a key, with the partition and offset that set it: the offset is the key's own revision."""

    value: bytes
    partition: int
    offset: int


@dataclass(frozen=True, slots=True)
class Change:
    key: bytes
    entry: Entry | None


@dataclass(slots=True)
class KeyValues:
    """Keys and values; audited records; a poison pill for tests of a state that breaks its own contract."""

    entries: dict[bytes, Entry] = field(default_factory=dict[bytes, Entry])
    audited: tuple[bytes, ...] = ()

    def apply(self, record: StoredRecord) -> Sequence[Change]:
        if record.key == b"poison":
            raise RuntimeError("the state choked on poison")
        if record.topic.endswith("-audit"):
            self.audited = (*self.audited, record.value or b"")
            return [Change(b"audit", None)]
        if record.key is None:
            return []
        if record.value is None:
            return [Change(record.key, None)] if self.entries.pop(record.key, None) is not None else []
        self.entries[record.key] = Entry(record.value, record.partition, record.offset)
        return [Change(record.key, self.entries[record.key])]

    def copy(self) -> KeyValues:
        return KeyValues(dict(self.entries), self.audited)

    def values(self) -> dict[bytes, bytes]:
        return {key: entry.value for key, entry in self.entries.items()}


class Conflict(Exception):
    """The key is not as the caller expected; `found` is the current entry."""

    def __init__(self, found: Entry | None) -> None:
        super().__init__(f"found {found}")
        self.found = found


@dataclass(frozen=True, slots=True)
class Written:
    """Answer of the suite's writes: the key's entry right after, and the write's revision."""

    entry: Entry | None
    revision: Revision


Decide = Callable[[KeyValues], WriteDecision[Written]]


def _written(key: bytes) -> Callable[[KeyValues, Revision], Written]:
    return lambda state, revision: Written(state.entries.get(key), revision)


def put(key: bytes, value: bytes) -> Decide:
    return lambda _: WriteDecision([NewRecord(key, value)], _written(key))


def put_beside(key: bytes, value: bytes, beside: Beside) -> Decide:
    return lambda _: WriteDecision([NewRecord(key, value)], _written(key), beside)


def create(key: bytes, value: bytes) -> Decide:
    """The key must not exist."""
    return replace_at(key, value, None)


def replace_at(key: bytes, value: bytes | None, offset: int | None) -> Decide:
    """The key must have been set at `offset` (None: must not exist)."""

    def decide(state: KeyValues) -> WriteDecision[Written]:
        found = state.entries.get(key)
        if (found.offset if found else None) != offset:
            raise Conflict(found)
        return WriteDecision([NewRecord(key, value)], _written(key))

    return decide


def put_once(key: bytes, value: bytes) -> Decide:
    """A no-op when the key has this value already."""

    def decide(state: KeyValues) -> WriteDecision[Written]:
        found = state.entries.get(key)
        return WriteDecision([] if found and found.value == value else [NewRecord(key, value)], _written(key))

    return decide


Store = TopicStore[KeyValues, Change]

#: Partition, key and value.
Lying = tuple[int, bytes | None, bytes | None]


class Cluster(Protocol):
    """One topic and the replicas on it."""

    settings: TopicSettings

    async def open(
        self,
        settings: TopicSettings | None = None,
        *,
        tuning: StoreTuning | None = None,
        may_write: MayWrite = always,
        on_stage: OnStage | None = None,
    ) -> Store:
        """A started replica; closed with the cluster."""
        ...

    async def produce(self, key: bytes, value: bytes | None) -> None:
        """Write to the topic without any store, as a program does that knows nothing of the fence."""
        ...

    def produce_within(self, key: bytes, value: bytes | None) -> None:
        """As `produce`, within a decision: it holds the loop, on which other tests' stores may live."""
        ...

    async def usurp(self) -> None:
        """Initialise the stores' transactional id, as a Java leader with the same id would."""
        ...

    def usurp_within(self) -> None:
        """As `usurp`, within a stage of a write: it holds the thread that the write is sent in."""
        ...

    async def topics(self) -> set[str]:
        """The names of all topics."""
        ...

    async def make_topic(self, name: str, partitions: int) -> None:
        """Create a topic of no store."""
        ...

    async def lying_in(self, name: str) -> list[Lying]:
        """Committed, readable records of a topic, partition after partition."""
        ...

    async def group_offsets(self, group: str) -> dict[tuple[str, int], tuple[int, str]]:
        """Topic and partition -> offset and metadata that the group has committed."""
        ...

    async def close(self) -> None: ...


@dataclass
class MemoryCluster:
    settings: TopicSettings
    broker: MemoryBroker = field(default_factory=MemoryBroker)
    opened: list[MemoryTopicStore[KeyValues, Change]] = field(
        default_factory=lambda: list[MemoryTopicStore[KeyValues, Change]]()
    )

    async def open(
        self,
        settings: TopicSettings | None = None,
        *,
        tuning: StoreTuning | None = None,
        may_write: MayWrite = always,
        on_stage: OnStage | None = None,
    ) -> MemoryTopicStore[KeyValues, Change]:
        store = MemoryTopicStore[KeyValues, Change](
            self.broker,
            settings or self.settings,
            KeyValues(),
            may_write=may_write,
            tuning=tuning,
            on_stage=on_stage,
        )
        self.opened.append(store)
        await store.start()
        return store

    async def produce(self, key: bytes, value: bytes | None) -> None:
        self.produce_within(key, value)

    def produce_within(self, key: bytes, value: bytes | None) -> None:
        self.broker.produce(self.settings.topic, key, value)

    async def usurp(self) -> None:
        self.usurp_within()

    def usurp_within(self) -> None:
        self.broker.fence(self.settings.transactional_id)

    async def topics(self) -> set[str]:
        return set(self.broker.topics)

    async def make_topic(self, name: str, partitions: int) -> None:
        self.broker.create_topic(name, partitions, "compact")

    async def lying_in(self, name: str) -> list[Lying]:
        return [
            (record.partition, record.key, record.value)
            for partition in self.broker.topics[name].partitions
            for record in partition.since(0, len(partition.records))
        ]

    async def group_offsets(self, group: str) -> dict[tuple[str, int], tuple[int, str]]:
        return self.broker.group_offsets.get(group, {})

    async def close(self) -> None:
        await asyncio.gather(*(store.close() for store in self.opened))


@dataclass
class KafkaCluster:
    settings: TopicSettings
    opened: list[KafkaTopicStore[KeyValues, Change]] = field(
        default_factory=lambda: list[KafkaTopicStore[KeyValues, Change]]()
    )

    async def open(
        self,
        settings: TopicSettings | None = None,
        *,
        tuning: StoreTuning | None = None,
        may_write: MayWrite = always,
        on_stage: OnStage | None = None,
    ) -> KafkaTopicStore[KeyValues, Change]:
        settings = settings or self.settings
        settings = replace(settings, client_id_base=f"{settings.topic}-{len(self.opened)}")
        store = KafkaTopicStore[KeyValues, Change](
            settings, KeyValues(), may_write=may_write, tuning=tuning, on_stage=on_stage
        )
        self.opened.append(store)
        await store.start()
        return store

    async def produce(self, key: bytes, value: bytes | None) -> None:
        await asyncio.to_thread(self.produce_within, key, value)

    def produce_within(self, key: bytes, value: bytes | None) -> None:
        producer = Producer(
            {"bootstrap.servers": self.settings.bootstrap_servers, "partitioner": "murmur2_random", "linger.ms": 0}
        )
        producer.produce(self.settings.topic, value, key)
        assert producer.flush(WAIT_S) == 0

    async def usurp(self) -> None:
        await asyncio.to_thread(self.usurp_within)

    def usurp_within(self) -> None:
        producer = Producer(
            {
                "bootstrap.servers": self.settings.bootstrap_servers,
                "transactional.id": self.settings.transactional_id,
            }
        )
        producer.init_transactions(WAIT_S)

    async def topics(self) -> set[str]:
        admin = AdminClient({"bootstrap.servers": self.settings.bootstrap_servers})
        return set((await asyncio.to_thread(admin.list_topics, timeout=WAIT_S)).topics)

    async def make_topic(self, name: str, partitions: int) -> None:
        admin: Any = AdminClient({"bootstrap.servers": self.settings.bootstrap_servers})
        await asyncio.to_thread(admin.create_topics([NewTopic(name, partitions, 1)])[name].result, WAIT_S)
        deadline_s = time.monotonic() + WAIT_S
        # The broker that creates a topic may know it before the broker's metadata do.
        while name not in (await asyncio.to_thread(admin.list_topics, timeout=WAIT_S)).topics:
            assert time.monotonic() < deadline_s, f"{name} was created and is not in the metadata"
            await asyncio.sleep(0.02)

    async def lying_in(self, name: str) -> list[Lying]:
        return await asyncio.to_thread(self._lying_in, name)

    def _lying_in(self, name: str) -> list[Lying]:
        consumer = self._consumer("unused")
        found: list[Lying] = []
        for number in sorted(consumer.list_topics(name, WAIT_S).topics[name].partitions):
            consumer.assign([TopicPartition(name, number, 0)])
            while (message := consumer.poll(WAIT_S)) is not None and message.error() is None:
                found.append((number, _bytes(message.key()), _bytes(message.value())))
            assert message is not None, "the partition could not be read to its end"
        consumer.close()
        return found

    async def group_offsets(self, group: str) -> dict[tuple[str, int], tuple[int, str]]:
        return await asyncio.to_thread(self._group_offsets, group)

    def _group_offsets(self, group: str) -> dict[tuple[str, int], tuple[int, str]]:
        consumer = self._consumer(group)
        known = [
            TopicPartition(topic.topic, number)
            for topic in consumer.list_topics(timeout=WAIT_S).topics.values()
            if topic.topic.startswith(self.settings.topic)
            for number in topic.partitions
        ]
        committed = consumer.committed(known, WAIT_S)
        consumer.close()
        return {
            (one.topic, one.partition): (one.offset, one.metadata or "")
            for one in committed
            if one.error is None and one.offset >= 0
        }

    def _consumer(self, group: str) -> Consumer:
        return Consumer(
            {
                "bootstrap.servers": self.settings.bootstrap_servers,
                "group.id": group,
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
            }
        )

    async def close(self) -> None:
        await asyncio.gather(*(store.close() for store in self.opened))


def _bytes(found: str | bytes | None) -> bytes | None:
    return found.encode() if isinstance(found, str) else found


@asynccontextmanager
async def cluster_on(bootstrap: str | None, topic: str) -> AsyncGenerator[Cluster]:
    """A cluster on a broker, or on the memory engine (None); closed at the end."""
    made = MemoryCluster(suite_settings(topic)) if bootstrap is None else KafkaCluster(suite_settings(topic, bootstrap))
    try:
        yield made
    finally:
        await made.close()


def cluster_of(test: SideBySideTest) -> AbstractAsyncContextManager[Cluster]:
    """The fixture `cluster`, for tests that run side by side."""
    bootstrap = test.fixture("kafka_bootstrap") if test.parameters["bootstrap"] == KAFKA else None
    return cluster_on(bootstrap, test.topic())


def suite_settings(topic: str, bootstrap_servers: str = "") -> TopicSettings:
    """Settings of a test's own topic, with an audit topic; heartbeats quick enough for tests."""
    return TopicSettings(
        topic=topic,
        transactional_id=f"id-{topic}",
        election_group=f"group-{topic}",
        bootstrap_servers=bootstrap_servers,
        audit_topic=f"{topic}-audit",
        heartbeat_interval_ms=100,
        start_timeout_ms=20_000,
    )


async def until_role(store: Store, role: StoreRole) -> None:
    """Wait until `store` takes `role`."""
    async with asyncio.timeout(WAIT_S):
        async for current in store.role_changes():
            if current is role:
                return
    raise AssertionError(f"the store closed before it became {role}")


async def writer_of(cluster: Cluster) -> Store:
    """A replica that may write."""
    store = await cluster.open()
    await until_role(store, StoreRole.WRITER)
    return store


class Watcher:
    """A watch followed in the background; keeps the state it implies and every event."""

    def __init__(self, store: Store, resume: Revision | None = None) -> None:
        self.snapshot: WatchSnapshot[KeyValues] | None = None
        self.changes: list[tuple[Change, Revision]] = []
        self.revisions: list[Revision] = []
        self.error: Exception | None = None
        self._moved = asyncio.Event()
        self._task = asyncio.get_running_loop().create_task(self._follow(store, resume))

    async def _follow(self, store: Store, resume: Revision | None) -> None:
        try:
            async for event in store.watch(resume):
                if isinstance(event, WatchSnapshot):
                    self.snapshot = event
                elif isinstance(event, WatchChange):
                    self.changes += [(change, event.revision) for change in event.changes]
                self.revisions.append(event.revision)
                self._moved.set()
        except Exception as error:  # noqa: BLE001  # kept for the test to look at
            self.error = error
            self._moved.set()

    async def until(self, condition: Callable[[Watcher], bool]) -> None:
        async with asyncio.timeout(WAIT_S):
            while not condition(self):
                self._moved.clear()
                await self._moved.wait()

    async def until_revision(self, revision: Revision) -> None:
        await self.until(lambda me: me.error is not None or any(seen.includes(revision) for seen in me.revisions[-1:]))

    def state(self) -> dict[bytes, Entry]:
        """Snapshot and changes folded."""
        entries = dict(self.snapshot.state.entries) if self.snapshot else {}
        for change, _ in self.changes:
            if change.entry is None:
                entries.pop(change.key, None)
            else:
                entries[change.key] = change.entry
        return entries

    async def stop(self) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
