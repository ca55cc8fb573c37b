"""Invalid records in both topics: no crash, no change by unreadable ones, each counted and listed.

Twice: record by record through the pure states, beside the oracles of Java's rules; and through real topics, half of
them before a store starts and half while it runs, with writes of ours in between that must stay as they are.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeVar

import pytest
from confluent_kafka import Producer
from google.protobuf.message import Message

from herdmesh.configstore.service import wire
from herdmesh.configstore.state.changes import Change as ConfigChange
from herdmesh.configstore.state.config import ConfigState
from herdmesh.configstore.state.mutations import PutConnectorConfig, WriteContext
from herdmesh.configstore.state.writes import plan
from herdmesh.connect.model.java_values import utf8_text
from herdmesh.connect.topics import config_topic
from herdmesh.connect.topics.status_topic import State, TaskStatus
from herdmesh.statusstore.service import wire as status_wire
from herdmesh.statusstore.state.leases import LeaseTable
from herdmesh.statusstore.state.statuses import Change as StatusChange
from herdmesh.statusstore.state.statuses import StatusPut, StatusState, TopicPut
from herdmesh.statusstore.state.writes import Put, PutMode, decide_puts
from herdmesh.topicstore import NotWriter, StoreRole
from herdmesh.topicstore.contract import KEEP_ALIVE_KEY, Revision, StoredRecord, WriteDecision
from herdmesh.topicstore.kafka.kafka_store import KafkaTopicStore
from herdmesh.topicstore.settings import MURMUR2_RANDOM, TopicSettings
from tests.support import fuzz
from tests.support.config_topic import TOPIC, revision
from tests.support.config_world import Replica, follows_java
from tests.support.fuzz import Raw
from tests.support.java_status_rules import JavaStatuses
from tests.support.side_by_side import SideBySide
from tests.support.sizes import soak_or
from tests.support.status_reading import reads_as_java

#: Of each topic, through the pure state and through the real topic.
_PURE_RECORDS = soak_or(4_000, 100_000)
_REAL_RECORDS = soak_or(50_000, 100_000)
_LISTED = 100
#: One store waits for the broker while the other's records are read.
together = SideBySide()
_WAIT_S = 60.0


# The pure states.


@pytest.mark.timeout(600)
def test_unreadable_records_change_nothing_in_the_config_state() -> None:
    replica, refused = Replica(), list[tuple[int, bytes]]()
    state = replica.state
    for offset, (key, value) in enumerate(fuzz.config_stream(1, _PURE_RECORDS)):
        record = StoredRecord(TOPIC, 0, offset, key, value, offset)
        name = getattr(config_topic.decode(key, value), "connector", "")
        before = (state.connector(name), state.leadership, state.session_key)
        if replica.refuses(record):
            refused.append((offset, key))
            assert state.connector(name).looks_like(before[0]), (offset, key, value)
            assert (state.leadership, state.session_key) == before[1:]
        assert state.refused.count == len(refused), (offset, key, value)
        if state.connector(name).foreign:
            follows_java(state.connector(name), replica)
    for one in state.stored():
        if one.foreign:
            follows_java(one, replica)
    listed = [(offset, utf8_text(key)) for offset, key in refused[-_LISTED:]]
    assert [(one.offset, one.key) for one in state.refused.latest] == listed
    wire.snapshot_head(state, revision(_PURE_RECORDS)).SerializeToString()
    for one in wire.chosen(state, ()):
        assert wire.entry(one, "fuzz").SerializeToString()
    assert _PURE_RECORDS // 3 < len(refused) < _PURE_RECORDS * 2 // 3


@pytest.mark.timeout(600)
def test_unreadable_records_change_nothing_in_the_status_state() -> None:
    state, java = StatusState(), JavaStatuses()
    refused = list[tuple[int, bytes]]()
    for offset, (key, value) in enumerate(fuzz.status_stream(2, _PURE_RECORDS)):
        changes = state.apply(StoredRecord("connect-status", 0, offset, key, value, offset))
        assert all(map(_sent, changes))
        if not java.read(key, value, offset) and key != KEEP_ALIVE_KEY:
            refused.append((offset, key))
            assert not changes, (offset, key, value)
        assert state.undecodable_count == len(refused), (offset, key, value)
        if offset % 2_500 == 0:
            assert reads_as_java(state, java), offset
    assert reads_as_java(state, java)
    assert [one.offset for one in state.undecodable] == [offset for offset, _ in refused[-_LISTED:]]
    assert _PURE_RECORDS // 3 < len(refused) < _PURE_RECORDS * 2 // 3


def _sent(change: StatusChange) -> bytes:
    """The message to a watcher about it: no record prevents its creation."""
    match change:
        case StatusPut():
            message: Message = status_wire.status_to(change.stored, Revision("store", (1,)), LeaseTable())
        case TopicPut():
            message = status_wire.topic_to(change.status)
        case _:
            return b"a key alone"
    return message.SerializeToString()


# Real topics.


class SeenConfig(ConfigState):
    """The state of a store under test, which remembers its records in order. Its copies do not."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[StoredRecord] = []

    def apply(self, record: StoredRecord) -> Sequence[ConfigChange]:
        self.seen.append(record)
        return super().apply(record)


class SeenStatuses(StatusState):
    """As `SeenConfig`; a copy begins with nothing seen."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[StoredRecord] = []

    def apply(self, record: StoredRecord) -> Sequence[StatusChange]:
        self.seen.append(record)
        return super().apply(record)


Seen = TypeVar("Seen", SeenConfig, SeenStatuses)
Write = Callable[[Any, int], WriteDecision[None]]


async def _lived_through(
    bootstrap: str, topic: str, partitions: int, empty: Callable[[], Seen], raw: Sequence[Raw], write: Write
) -> tuple[Seen, int]:
    """A store writes, is closed, and finds half of `raw` when it starts again and the other half after that, writing
    all the while. Returns its state when it has read everything, and the number of its last write.
    """
    settings = TopicSettings(
        topic=topic,
        transactional_id=f"{topic}-writer",
        election_group=f"{topic}-election",
        partitions=partitions,
        bootstrap_servers=bootstrap,
        client_id_base=topic,
    )
    store = KafkaTopicStore[Any, Any](settings, empty())
    await store.start()
    try:
        await _writing(store)
        await store.write(lambda state: write(state, 0))
    finally:
        await store.close()
    await asyncio.to_thread(_produce, bootstrap, topic, raw[: len(raw) // 2])
    state = empty()
    store = KafkaTopicStore[Any, Any](settings, state)
    await store.start()
    try:
        await _writing(store)
        producing = asyncio.create_task(asyncio.to_thread(_produce, bootstrap, topic, raw[len(raw) // 2 :]))
        number = 0
        while number == 0 or not producing.done():
            number += 1
            await _written(store, partial(_numbered, write, number))
        await producing
        await store.barrier()
    finally:
        await store.close()
    assert await asyncio.to_thread(_has_seen, state, raw)
    return state, number


def _has_seen(state: Any, raw: Sequence[Raw]) -> bool:
    return not Counter(raw) - Counter((one.key or b"", one.value) for one in state.seen)


def _numbered(write: Write, number: int, state: Any) -> WriteDecision[None]:
    return write(state, number)


async def _written(store: KafkaTopicStore[Any, Any], write: Callable[[Any], WriteDecision[None]]) -> None:
    """Write as every caller does: a store that is not the writer for a moment has written nothing, and the call is
    repeated.
    """
    while True:
        try:
            return await store.write(write)
        except NotWriter:
            await _writing(store)


async def _writing(store: KafkaTopicStore[Any, Any]) -> None:
    async with asyncio.timeout(_WAIT_S):
        async for role in store.role_changes():
            if role is StoreRole.WRITER:
                return


def _nothing(*_: object) -> None:
    return None


def _produce(bootstrap: str, topic: str, records: Sequence[Raw]) -> None:
    """Write them as any tool would; blocks until the broker has all."""
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "partitioner": MURMUR2_RANDOM,
            "enable.idempotence": True,
            "queue.buffering.max.kbytes": 65_536,
            "linger.ms": 20,
        }
    )
    for key, value in records:
        while True:
            try:
                producer.produce(topic, key=key, value=value)
                break
            except BufferError:
                producer.poll(0.1)
    assert producer.flush(_WAIT_S) == 0


def _put_config(state: ConfigState, number: int) -> WriteDecision[None]:
    context = WriteContext("PutConnectorConfig", 1, "incarnation")
    planned = plan(state, PutConnectorConfig("kept", {"number": str(number)}), context)
    return WriteDecision(planned.records, _nothing)


def _put_status(state: StatusState, number: int) -> WriteDecision[None]:
    status = TaskStatus("kept", 0, State.RUNNING, "w:1", number, worker_incarnation="i")
    return WriteDecision(decide_puts(state, [Put(status, PutMode.PUT)]).records, _nothing)


@together
@pytest.mark.timeout(600)
async def test_a_config_store_survives_invalid_records(kafka_bootstrap: str, tmp_topic: Callable[..., str]) -> None:
    raw = await asyncio.to_thread(list[Raw], fuzz.config_stream(3, _REAL_RECORDS))
    state, number = await _lived_through(kafka_bootstrap, tmp_topic("configs"), 1, SeenConfig, raw, _put_config)
    await asyncio.to_thread(_configs_are_right, state, number)


def _configs_are_right(state: SeenConfig, number: int) -> None:
    """Check the configs. Takes seconds: in a thread of its own, as the other test's store lives on the same loop."""
    replica, refused = Replica(), list[int]()
    for seen in state.seen:
        record = StoredRecord(TOPIC, 0, seen.offset, seen.key, seen.value, seen.timestamp_ms)
        if replica.refuses(record):
            refused.append(record.offset)
    assert state.refused.count == len(refused)
    assert [one.offset for one in state.refused.latest] == refused[-_LISTED:]
    for one in state.stored():
        if one.foreign:
            follows_java(one, replica)
    kept = state.connector("kept")
    assert (kept.config, kept.foreign, kept.incarnation) == ({"number": str(number)}, False, "incarnation")


@together
@pytest.mark.timeout(600)
async def test_a_status_store_survives_invalid_records(kafka_bootstrap: str, tmp_topic: Callable[..., str]) -> None:
    raw = await asyncio.to_thread(list[Raw], fuzz.status_stream(4, _REAL_RECORDS))
    state, number = await _lived_through(kafka_bootstrap, tmp_topic("status"), 5, SeenStatuses, raw, _put_status)
    await asyncio.to_thread(_statuses_are_right, state, number)


def _statuses_are_right(state: SeenStatuses, number: int) -> None:
    """As `_configs_are_right`."""
    java, refused = JavaStatuses(), list[tuple[int, int]]()
    for record in state.seen:
        read = java.read(record.key or b"", record.value, record.timestamp_ms, record.partition)
        if not read and record.key != KEEP_ALIVE_KEY:
            refused.append((record.partition, record.offset))
    assert state.undecodable_count == len(refused)
    assert [(one.partition, one.offset) for one in state.undecodable] == refused[-_LISTED:]
    assert reads_as_java(state, java)
    kept = state.get("kept", 0)
    assert kept is not None
    assert kept.status.generation == number
