"""Offsets that a worker prepares for the service that writes them with their connector: everything but the write."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition

from herdmesh.connect.errors import ConfigError
from herdmesh.connect.topics import offsets_topic
from herdmesh.connect.topics.config_records import ManifestRecord
from herdmesh.connectors.file_stream.sink.connector import FileStreamSink
from herdmesh.engine.fencing.fence import Fence
from herdmesh.engine.librdkafka import clients
from herdmesh.engine.runtime.errors import TaskFailed, TaskFenced
from herdmesh.session.model import OffsetEntry, UnitId
from herdmesh.session.worker_commands import AlterOffsets
from herdmesh.topicstore.contract import Revision
from herdmesh.worker.effects.offsets.offset_forms import OFFSETS_BYTES_MAX, OffsetsResult, Prepared, bounded
from herdmesh.worker.effects.offsets.offsets import Offsets
from herdmesh.worker.state.model import TaskSpec
from libs.core.tests.engine.harness import Kafka, write
from services.worker.tests.test_offsets import WAIT_MS, Bench, at, bench, documents, sink, source, standalone


def prepare(here: Bench, config: dict[str, str | None], *offsets: tuple[Any, Any], **more: Any) -> OffsetsResult:
    """Result of a change that is only prepared, for a connector that does not exist."""
    entries = tuple(OffsetEntry(json.dumps(partition), json.dumps(offset)) for partition, offset in offsets)
    question = AlterOffsets(str(config["name"]), config, entries, prepare=True, timeout_ms=WAIT_MS, **more)
    return asyncio.run(Offsets(here.specs, here.offset_file).alter(question))


@pytest.mark.kafka
def test_prepared_records_of_a_source_equal_those_of_a_write_in_each_topic(
    kafka_bootstrap: str, tmp_topic: Callable[..., str], tmp_path: Path
) -> None:
    shared, own = tmp_topic("shared"), tmp_topic("own")
    kafka, here = Kafka(kafka_bootstrap), bench(kafka_bootstrap, shared)
    config = source(tmp_path / "a") | {"offsets.storage.topic": own}
    entries = [({"filename": "a"}, {"position": 6}), ({"filename": "b"}, {"position": 0}), ({"filename": "gone"}, None)]
    told = prepare(here, config, *entries)
    assert (documents(told), told.message) == (
        entries[:2], "The offsets for this connector have been altered successfully"
    )  # fmt: skip
    assert told.prepared is not None
    assert (told.prepared.group, told.prepared.group_offsets) == ("", ())
    assert [kafka.partition_count(topic) for topic in (shared, own)] == [2, 2], "whoever writes creates no topic"
    assert here.read(config) == kafka.records(shared, 2) == kafka.records(own, 2) == []
    here.alter(config, *entries)
    written = {topic: kafka.records(topic, 2) for topic in (shared, own)}
    for topic, records in written.items():
        assert sorted((key, value) for to, key, value in told.prepared.records if to == topic) == sorted(
            (key or b"", value) for key, value in records
        )
    # Over the offsets of an earlier connector of the name, the result is as after the write.
    moved = ({"filename": "b"}, {"position": 9})
    assert documents(prepare(here, config, moved)) == [entries[0], moved]
    reset = prepare(here, config, reset=True)
    assert documents(reset) == here.read(config) == entries[:2]
    assert reset.prepared is not None
    forgotten = [offsets_topic.encode_key(str(config["name"]), partition) for partition, _ in entries[:2]]
    assert sorted(reset.prepared.records) == sorted((topic, key, None) for topic in (shared, own) for key in forgotten)
    assert {topic: kafka.records(topic, 2) for topic in (shared, own)} == written
    empty = prepare(here, config)
    assert empty.prepared == Prepared(), "nothing is to be written, and nothing is written yet"


@pytest.mark.kafka
def test_prepared_offsets_of_a_sink_have_its_group_and_the_last_commits_metadata(
    kafka_bootstrap: str, tmp_topic: Callable[..., str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kafka, here = Kafka(kafka_bootstrap), bench(kafka_bootstrap)
    topic = kafka.create_topic(tmp_topic(), 3)
    for partition in (0, 1):
        kafka.produce(topic, [b"x"] * 4, partition=partition)
    group = f"own-{topic}"
    config = sink(tmp_path / "out", topic, **{"consumer.override.group.id": group})
    left = Consumer({"bootstrap.servers": kafka_bootstrap, "group.id": group})
    try:
        left.commit(offsets=[TopicPartition(topic, 0, 4, "staged")], asynchronous=False)
    finally:
        left.close()
    entries = [(at(topic), {"kafka_offset": 1}), (at(topic, 1), {"kafka_offset": 2})]
    told = prepare(here, config, *entries, (at(topic, 2), None))
    assert documents(told) == entries
    assert told.prepared == Prepared((), group, ((topic, 0, 1, "staged"), (topic, 1, 2, "")))
    assert kafka.committed(group, (topic, 0), (topic, 1), (topic, 2)) == [4, -1001, -1001]

    # Preparing refuses everything that a write refuses, and, before `alter_offsets`, removals, which no transaction can
    # do.
    def never(_self: FileStreamSink, _config: Any, _offsets: Any) -> bool:
        raise AssertionError("the connector is asked")

    monkeypatch.setattr(FileStreamSink, "alter_offsets", never)
    with pytest.raises(ConfigError, match="outside of its records 0 to 4"):
        prepare(here, config, (at(topic), {"kafka_offset": 5}))
    for asked, more in (((at(topic), None), {}), (None, {"reset": True})):
        with pytest.raises(ConfigError, match=rf"deleted \({topic}-0\), .*: create it with initial state STOPPED"):
            prepare(here, config, *([] if asked is None else [asked]), **more)
    with kafka.member(group, topic), pytest.raises(TaskFailed, match="has live members"):
        prepare(here, config, *entries)
    assert kafka.committed(group, (topic, 0), (topic, 1)) == [4, -1001]


@pytest.mark.kafka
@pytest.mark.parametrize("kind", ["source", "sink"])
def test_preparing_fences_an_older_owner(
    kind: str, kafka_bootstrap: str, tmp_topic: Callable[..., str], tmp_path: Path
) -> None:
    """Otherwise the prepared offsets might not match the stored ones when they are written."""
    kafka, here = Kafka(kafka_bootstrap), bench(kafka_bootstrap, tmp_topic("offsets"))
    topic, file = kafka.create_topic(tmp_topic()), tmp_path / "file"
    config = source(file, topic) if kind == "source" else sink(file, topic)
    entry = ({"filename": "a"}, {"position": 1}) if kind == "source" else (at(topic), {"kafka_offset": 0})
    spec = here.specs.without_class(UnitId(str(config["name"]), 0), TaskSpec(config, config, 1))
    old = Fence(clients.producer(spec, {}), spec.transactional_id)
    old.take_over()
    assert prepare(here, config, entry).prepared is not None
    group = f"connect-{config['name']}"
    consumer = clients.consumer(spec, group, {})
    try:
        with pytest.raises(TaskFenced):
            old.commit_offsets([TopicPartition(topic, 0, 7)], consumer.consumer_group_metadata())
    finally:
        consumer.close()
        old.close()
    assert kafka.committed(group, (topic, 0)) == [-1001]


@pytest.mark.kafka
def test_preparing_in_standalone_mode_writes_the_offsets(
    kafka_bootstrap: str, tmp_topic: Callable[..., str], tmp_path: Path
) -> None:
    kafka, here = Kafka(kafka_bootstrap), bench(kafka_bootstrap)
    topic = kafka.create_topic(tmp_topic())
    kafka.produce(topic, [b"x"] * 4, partition=0)
    with standalone(here, tmp_path):
        for config, entry in (
            (source(tmp_path / "a"), ({"filename": "a"}, {"position": 3})),
            (sink(tmp_path / "out", topic), (at(topic), {"kafka_offset": 2})),
        ):
            told = prepare(here, config, entry)
            assert told.prepared is None
            assert documents(told) == here.read(config) == [entry]
        forgotten = prepare(here, sink(tmp_path / "out", topic), (at(topic), None))
        assert (forgotten.offsets, forgotten.prepared) == ((), None)


def test_prepared_offsets_are_returned_whole_or_refused() -> None:
    half = Prepared((("t", b"k", b"x" * (OFFSETS_BYTES_MAX // 2)),))
    told = bounded(OffsetsResult((("x" * (OFFSETS_BYTES_MAX // 2), "y"),), "done", half))
    assert told == OffsetsResult((), "done (its 1 offsets are too many to be returned here)", half)
    many = Prepared((), "g", tuple(("t" * 249, number, 0, "m" * 4096) for number in range(4_000)))
    assert Prepared((("t", b"key", None),), "g", (("t", 0, 5, "\u20ac"),)).byte_count == 8
    with pytest.raises(ConfigError, match="create it with initial state STOPPED, change its offsets then"):
        bounded(OffsetsResult((), "done", many))


def test_offsets_over_the_limit_are_counted_instead_of_listed() -> None:
    told = bounded(OffsetsResult((("x" * 9_000_000, "y"), ("x" * 9_000_000, "y")), "done"))
    assert told == OffsetsResult((), "done (its 2 offsets are too many to be returned here)")
    assert OffsetsResult((("\u00e9", "\u20ac"),)).byte_count == 5


@pytest.mark.kafka
@pytest.mark.parametrize("kind", ["source", "sink"])
def test_a_late_worker_prepares_nothing_for_a_connector_created_meanwhile(
    kind: str, kafka_bootstrap: str, tmp_topic: Callable[..., str], tmp_path: Path
) -> None:
    """It was frozen after it got the request; another worker got it then, and the connector exists."""
    kafka, configs, offsets = Kafka(kafka_bootstrap), tmp_topic("configs"), tmp_topic("offsets")
    topic, file = kafka.create_topic(tmp_topic()), tmp_path / "file"
    kafka.produce(topic, [b"x"] * 4, partition=0)
    here = bench(kafka_bootstrap, offsets, kafka.create_topic(configs, 1))
    config = source(file, topic) if kind == "source" else sink(file, topic)
    entry = ({"filename": "a"}, {"position": 1}) if kind == "source" else (at(topic), {"kafka_offset": 1})
    name = str(config["name"])
    write(kafka_bootstrap, configs, ManifestRecord(name, "i1", deleted=True))
    here.alter(config, entry, config_offset=0)
    write(kafka_bootstrap, configs, ManifestRecord(name, "i2"))
    later = ({"filename": "a"}, {"position": 2}) if kind == "source" else (at(topic), {"kafka_offset": 2})
    with pytest.raises(TaskFenced, match=f"a connector {name} was created meanwhile"):
        here.alter(config, later, config_offset=2)
    with pytest.raises(TaskFenced, match=f"a connector {name} was created meanwhile"):
        prepare(here, config, later, revision=Revision("store", (2,)))
    if kind == "source":
        assert [value for _, value in kafka.records(offsets, 2)] == [b'{"position":1}']
    else:
        assert kafka.committed(f"connect-{name}", (topic, 0)) == [1]
