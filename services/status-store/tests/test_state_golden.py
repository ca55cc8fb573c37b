"""Tests with the recorded status topics of Java Connect 4.3.1: reading them gives the state that Connect's REST showed
after each scenario; and the same operations, decided by us, give the same keys, values and partitions.

Not compared in the views, because it is not in the status topic: `type` (from the plugin), `name`, HTTP status, and the
connectors that the config topic no longer has. Topic views are compared for the workers that track topics.

Not compared in the writes, because we write only records that change what readers see: tombstones of keys that are not
stored, an active topic that is already stored (Connect's workers write it again until they have read it back), and a
task's UNASSIGNED over a RUNNING of the same generation, which every reader of Connect's ignores
(docs/reference/connect/status-topic.md, section 5.2; a worker of ours names its process, so that its own UNASSIGNED
counts).
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Coroutine, Iterable, Sequence
from typing import Any
from urllib.parse import unquote

import pytest
from confluent_kafka import Consumer, TopicPartition

from herdmesh.connect.topics import status_topic
from herdmesh.connect.topics.decoding import Tombstone, Undecodable, Unknown
from herdmesh.connect.topics.status_topic import ConnectorStatus, State, StatusRecord, TaskStatus, TopicStatus
from herdmesh.statusstore.effects.store import make_store
from herdmesh.statusstore.settings import StatusStoreSettings
from herdmesh.statusstore.state.statuses import StatusState, StoredStatus, stale_in_connect
from herdmesh.statusstore.state.writes import (
    Put,
    PutMode,
    decide_puts,
    decide_topic_deletion,
    decide_topics,
)
from herdmesh.topicstore.contract import NewRecord, StoredRecord, StoreRole, WriteDecision
from herdmesh.topicstore.partitioner import partition_of
from tests.support import golden

Json = dict[str, Any]
#: Key -> partition and value of its records, in order. Across keys the recordings have only the millisecond.
ByKey = dict[bytes | None, list[tuple[int, bytes | None]]]

PARTITIONS = 5  # Connect's default, also in the recorded clusters
DUMP = golden.lines("status-topic.jsonl")
EXPECTED = golden.lines("expect.jsonl")
WORKERS = sorted({line["worker"] for line in DUMP})


def _record(line: Json) -> StoredRecord:
    key, value = golden.key_and_value(line)
    return StoredRecord(line["topic"], line["partition"], line["offset"], key, value, line["timestamp"])


def _shown(stored: StoredStatus) -> Json:
    """A status as `GET /connectors/<c>/status` shows it: without an absent trace, with null for an absent version."""
    status = stored.status
    shown: Json = {"state": status.state.value, "worker_id": status.worker_id, "version": status.version}
    if stored.task is not None:
        shown["id"] = stored.task
    if status.trace is not None:
        shown["trace"] = status.trace
    return shown


# -- reading


@pytest.mark.parametrize("worker", WORKERS)
def test_every_scenario_gives_connects_view(worker: str) -> None:
    state = StatusState()
    dump = [line for line in DUMP if line["worker"] == worker]
    applied = statuses = topics = 0
    for expected in (line for line in EXPECTED if line["worker"] == worker):
        last = max((at for at, line in enumerate(dump) if line["scenario"] == expected["scenario"]), default=-1)
        for line in dump[applied : last + 1]:
            state.apply(_record(line))
        applied = max(applied, last + 1)
        for path, view in expected["views"].items():
            if view["status"] != 200 or not path.endswith(("/status", "/topics")):
                continue
            name = unquote(path.split("/")[2])
            if path.endswith("/status"):
                statuses += 1
                connector = state.get(name, None)
                assert connector is not None, (expected["id"], name)
                assert _shown(connector) == view["body"]["connector"], (expected["id"], name)
                assert [_shown(task) for task in state.tasks_of(name)] == view["body"]["tasks"], (expected["id"], name)
            else:
                topics += 1
                named = [topic.topic for topic in state.topics_of(name)]
                assert named == sorted(view["body"][name]["topics"]), (expected["id"], name)
    assert state.undecodable_count == 0
    if golden.is_own():
        assert applied == len(dump)
        assert statuses > 100
        assert topics > 100


def test_our_encoding_equals_the_bytes_of_java() -> None:
    for line in DUMP:
        record = _record(line)
        decoded = status_topic.decode(record.key, record.value)
        if isinstance(decoded, ConnectorStatus | TaskStatus | TopicStatus | Tombstone):
            assert status_topic.encode(decoded) == (record.key, record.value), line["id"]
        assert not golden.is_own() or not isinstance(decoded, Undecodable | Unknown), line["id"]


# -- writing


def _effective(worker: str) -> list[Json]:
    """The lines that change the state for a reader of their key."""
    last: dict[str, StatusRecord | None] = {}
    found: list[Json] = []
    for line in (line for line in DUMP if line["worker"] == worker):
        record = _record(line)
        decoded = status_topic.decode(record.key, record.value)
        previous = last.get(line["key_b64"])
        match decoded:
            case Undecodable() | Unknown():
                continue
            case Tombstone():
                if previous is None:
                    continue
                last[line["key_b64"]] = None
            case _:
                if previous == decoded or _ignored(previous, decoded):
                    continue
                last[line["key_b64"]] = decoded
        found.append(line)
    return found


def _ignored(previous: StatusRecord | None, status: StatusRecord) -> bool:
    return isinstance(previous, TaskStatus) and isinstance(status, TaskStatus) and stale_in_connect(previous, status)


def _decided(state: StatusState, line: Json) -> Sequence[NewRecord]:
    """Our records for the operation that Java executed when it wrote this line."""
    record = _record(line)
    decoded = status_topic.decode(record.key, record.value)
    if isinstance(decoded, TopicStatus):
        return decide_topics(state, [decoded])
    if isinstance(decoded, Tombstone) and decoded.topic is not None:
        return decide_topic_deletion(state, decoded.connector, [decoded.topic])
    if isinstance(decoded, Tombstone):
        # The author of a tombstone is the leader, whom it does not name: as new as anything stored.
        generation = 2**31 - 1
        if decoded.task is None:
            decoded = ConnectorStatus(decoded.connector, State.DESTROYED, "leader:8083", generation)
        else:
            decoded = TaskStatus(decoded.connector, decoded.task, State.DESTROYED, "leader:8083", generation)
    assert isinstance(decoded, ConnectorStatus | TaskStatus)
    return decide_puts(state, [Put(decoded, PutMode.PUT)]).records


def _by_key(records: Iterable[tuple[bytes | None, int, bytes | None]]) -> ByKey:
    grouped: ByKey = {}
    for key, partition, value in records:
        grouped.setdefault(key, []).append((partition, value))
    return grouped


def _as_java_wrote(lines: Sequence[Json]) -> ByKey:
    return _by_key((record.key, record.partition, record.value) for record in map(_record, lines))


@pytest.mark.parametrize("worker", WORKERS)
def test_our_decisions_give_the_recorded_records(worker: str) -> None:
    state, offset = StatusState(), itertools.count()
    lines = _effective(worker)
    written: list[tuple[bytes | None, int, bytes | None]] = []
    for line in lines:
        for new in _decided(state, line):
            partition = partition_of(new.key, PARTITIONS)
            written.append((new.key, partition, new.value))
            state.apply(StoredRecord("t", partition, next(offset), new.key, new.value, line["timestamp"]))
    assert _by_key(written) == _as_java_wrote(lines)
    if golden.is_own():
        assert len(written) > 150


async def test_writes_through_the_real_store_give_the_recorded_records(
    kafka_bootstrap: str, tmp_topic: Callable[..., str]
) -> None:
    topic = tmp_topic("status")
    lines = _effective(WORKERS[0]) if WORKERS else []
    settings = StatusStoreSettings(
        bootstrap_servers=kafka_bootstrap,
        group_id=tmp_topic("group"),
        status_storage_topic=topic,
        status_storage_replication_factor=1,
    )
    store = make_store(settings)
    await store.start()
    try:
        async with asyncio.timeout(30):
            async for role in store.role_changes():
                if role is StoreRole.WRITER:
                    break

        def write(line: Json) -> Coroutine[Any, Any, None]:
            def decide(scratch: StatusState) -> WriteDecision[None]:
                return WriteDecision(_decided(scratch, line), lambda _, __: None)

            return store.write(decide)

        await asyncio.gather(*map(write, lines))
        wanted = StatusState()
        for line in lines:
            wanted.apply(_record(line))
        assert [stored.status for stored in store.state.statuses()] == [stored.status for stored in wanted.statuses()]
        for connector in wanted.topics:
            assert store.state.topics_of(connector) == wanted.topics_of(connector)
    finally:
        await store.close()
    assert await asyncio.to_thread(_in_topic, kafka_bootstrap, topic, len(lines)) == _as_java_wrote(lines)


def _in_topic(bootstrap: str, topic: str, count: int) -> ByKey:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "unused", "isolation.level": "read_committed"})
    found: list[tuple[bytes | None, int, bytes | None]] = []
    try:
        consumer.assign([TopicPartition(topic, partition, 0) for partition in range(PARTITIONS)])
        while len(found) < count:
            messages = consumer.consume(count - len(found), 5)
            assert messages, f"{len(found)} of {count} records are in the topic"
            for message in messages:
                partition = message.partition()
                assert message.error() is None
                assert partition is not None
                found.append((message.key(), partition, message.value()))
    finally:
        consumer.close()
    return _by_key(found)
