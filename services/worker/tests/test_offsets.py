"""Offsets changed on request: Connect's error texts, all or nothing, and tasks start from them."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from herdmesh.connect.error_class import ErrorClass
from herdmesh.connect.errors import ConfigError, DataError
from herdmesh.connect.plugins.plugin_registry import PluginRegistry
from herdmesh.connect.topics import offsets_topic
from herdmesh.connect.topics.config_records import ManifestRecord
from herdmesh.connectors.file_stream.sink.connector import FileStreamSink
from herdmesh.connectors.file_stream.source.connector import FileStreamSource
from herdmesh.engine.fencing.fence import Fence
from herdmesh.engine.librdkafka import clients
from herdmesh.engine.runtime.errors import TaskFailed, TaskFenced
from herdmesh.engine.sink import manifest, partitions
from herdmesh.session.model import OffsetEntry, UnitId
from herdmesh.session.worker_commands import AlterOffsets, ReadOffsets
from herdmesh.topicstore.contract import Revision
from herdmesh.worker.effects.offsets import offset_write_outcome
from herdmesh.worker.effects.offsets.offset_file import OffsetFile
from herdmesh.worker.effects.offsets.offset_forms import OffsetsResult, changed_message, sink_offsets
from herdmesh.worker.effects.offsets.offset_write_outcome import OutcomeUnknown
from herdmesh.worker.effects.offsets.offsets import Offsets
from herdmesh.worker.effects.runs.specs import RunSpecs
from herdmesh.worker.settings import WorkerSettings
from herdmesh.worker.state.model import TaskSpec
from libs.core.tests.engine.harness import Kafka, run_here, write

TEXT = "org.apache.kafka.connect.storage.StringConverter"
NOWHERE = "127.0.0.1:1"
WAIT_MS = 60_000
NO_LONG = "The value for the 'position' key in the offset is expected to be a Long value"


@dataclass
class Bench:
    """A worker's offsets, and runs of task 0, against one broker."""

    specs: RunSpecs
    offset_file: OffsetFile | None = None

    def alter(self, config: dict[str, str | None], *offsets: tuple[Any, Any], config_offset: int | None = None) -> None:
        entries = tuple(OffsetEntry(json.dumps(partition), json.dumps(offset)) for partition, offset in offsets)
        revision = None if config_offset is None else Revision("store", (config_offset,))
        question = AlterOffsets(str(config["name"]), config, entries, revision, timeout_ms=WAIT_MS)
        asyncio.run(Offsets(self.specs, self.offset_file).alter(question))

    def change(
        self, config: dict[str, str | None], *offsets: tuple[Any, Any], timeout_ms: int = WAIT_MS, **more: Any
    ) -> tuple[list[tuple[Any, Any]], str]:
        """Result of a change for a connector that exists and is stopped."""
        entries = tuple(OffsetEntry(json.dumps(partition), json.dumps(offset)) for partition, offset in offsets)
        question = AlterOffsets(str(config["name"]), config, entries, timeout_ms=timeout_ms, **more)
        told = asyncio.run(Offsets(self.specs, self.offset_file).alter(question))
        return documents(told), told.message

    def read(self, config: dict[str, str | None]) -> list[tuple[Any, Any]]:
        question = ReadOffsets(str(config["name"]), config)
        return documents(asyncio.run(Offsets(self.specs, self.offset_file).read(question)))

    def note(self, config: dict[str, str | None]) -> str:
        """The note beside the offsets."""
        question = ReadOffsets(str(config["name"]), config)
        return asyncio.run(Offsets(self.specs, self.offset_file).read(question)).message

    def run(self, config: dict[str, str | None]) -> None:
        """One run of the only task, until it has read everything."""
        unit, spec = UnitId(str(config["name"]), 0), TaskSpec(config, config, 1)
        run_here(replace(self.specs.run_spec(unit, spec, "run", commit_scope=None), linger_ms=0, stays_warm=False))


@contextmanager
def standalone(here: Bench, folder: Path) -> Generator[OffsetFile]:
    """The bench keeps sources' offsets in a file, as a worker in standalone mode."""
    here.offset_file = file = OffsetFile(str(folder / "offsets"))
    file.open()
    try:
        yield file
    finally:
        file.close()


def documents(told: OffsetsResult) -> list[tuple[Any, Any]]:
    return [(json.loads(partition), json.loads(offset)) for partition, offset in told.offsets]


def bench(bootstrap: str, offsets: str = "connect-offsets", configs: str = "connect-configs") -> Bench:
    settings = WorkerSettings(
        bootstrap_servers=bootstrap,
        config_storage_topic=configs,
        offset_storage_topic=offsets,
        offset_storage_partitions=2,
        offset_storage_replication_factor=1,
    )
    return Bench(RunSpecs(settings, PluginRegistry.discover()))


def source(file: Path, topic: str = "t") -> dict[str, str | None]:
    return {
        "name": f"src-{topic}", "connector.class": "FileStreamSource", "file": str(file), "topic": topic,
        "value.converter": TEXT, "topic.creation.default.partitions": "1",
        "topic.creation.default.replication.factor": "1",
    }  # fmt: skip


def sink(file: Path, topic: str, **more: str) -> dict[str, str | None]:
    return {
        "name": f"snk-{topic}", "connector.class": "FileStreamSink", "topics": topic, "file": str(file),
        "key.converter": TEXT, "value.converter": TEXT, **more,
    }  # fmt: skip


def at(topic: str, partition: Any = 0) -> dict[str, Any]:
    return {"kafka_topic": topic, "kafka_partition": partition}


NOT_GONE_ON_FROM = "the next run does not use them and starts these topics by auto.offset.reset"

# --- refusals before anything is written: the texts of Java's answers as recorded from 4.3.1


@pytest.mark.parametrize(
    ("partition", "offset", "text"),
    [
        ({"filename": "a"}, {"position": "x"}, NO_LONG),
        ({"filename": "a"}, {"position": 1.5}, NO_LONG),
        ({"filename": "a"}, {"position": -1},
         "The value for the 'position' key in the offset should be a non-negative value"),
        ({"bad": "a"}, {"position": 1}, "Partition objects should contain the key 'filename'"),
        (None, {"position": 1}, "Partition objects cannot be null"),
        ({"filename": "a"}, {}, "Offset objects should either be null or contain the key 'position'"),
        ({"filename": "a"}, {"position": {"nested": 1}},
         "Offsets may only contain primitive types as values, but field position contains MAP"),
    ],
)  # fmt: skip
def test_a_file_source_refuses_invalid_offsets_with_connects_texts(
    partition: Any, offset: Any, text: str, tmp_path: Path
) -> None:
    with pytest.raises((ConfigError, DataError)) as refused:
        bench(NOWHERE).alter(source(tmp_path / "a"), (partition, offset))
    assert str(refused.value) == text


def test_any_offset_of_a_file_source_can_be_removed(tmp_path: Path) -> None:
    """As in Connect: an offset that should never have been stored can be removed, and does not prevent a reset."""
    garbage = [(None, None), ({"bad": "a"}, None), ({"filename": "a"}, None)]
    assert FileStreamSource().alter_offsets(source(tmp_path / "a"), garbage)


@pytest.mark.parametrize(
    ("partition", "offset", "text"),
    [
        (None, {"kafka_offset": 1}, "The partition for a sink connector offset cannot be null or missing"),
        ({"kafka_partition": 0}, {"kafka_offset": 2},
         "The partition for a sink connector offset must contain the keys 'kafka_topic' and 'kafka_partition'"),
        (at("t", None), {"kafka_offset": 2}, "Kafka partitions must be valid numbers and may not be null"),
        ({"kafka_topic": None, "kafka_partition": 0}, None,
         "Kafka topic names must be valid strings and may not be null"),
        (at("t", "zero"), {"kafka_offset": 2},
         "Failed to parse the following Kafka partition value in the provided offsets: 'zero'. Partition values for "
         "sink connectors need to be integers."),
        (at("t", 1.5), {"kafka_offset": 2},
         "Failed to parse the following Kafka partition value in the provided offsets: '1.5'. Partition values for "
         "sink connectors need to be integers."),
        (at("t"), {"kafka_offset": "abc"},
         "Failed to parse the following Kafka offset value in the provided offsets: 'abc'. Offset values for sink "
         "connectors need to be integers."),
        (at("t"), {"position": 1},
         "The offset for a sink connector should either be null or contain the key 'kafka_offset'"),
        (at("t"), {"kafka_offset": -5}, "The offset for a sink connector must not be negative: -5"),
    ],
)  # fmt: skip
def test_a_sink_refuses_invalid_offsets_with_connects_texts(
    partition: Any, offset: Any, text: str, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError) as refused:
        bench(NOWHERE).alter(sink(tmp_path / "a", "t"), (partition, offset))
    assert str(refused.value) == text


def test_offsets_that_are_no_objects_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="JSON objects or null"):
        bench(NOWHERE).alter(source(tmp_path / "a"), ({"filename": "a"}, [1]))
    question = AlterOffsets("c", source(tmp_path / "a"), (OffsetEntry("{bad"),), timeout_ms=WAIT_MS)
    with pytest.raises(DataError):
        asyncio.run(Offsets(bench(NOWHERE).specs, None).alter(question))


def test_a_standalone_workers_offsets_go_to_its_file(tmp_path: Path) -> None:
    file = OffsetFile(str(tmp_path / "offsets"))
    file.open()
    try:
        here = bench(NOWHERE)
        here.offset_file = file
        here.alter(source(tmp_path / "a"), ({"filename": "a"}, {"position": 3}), ({"filename": "b"}, None))
        assert file.of("src-t") == {offsets_topic.encode_key("src-t", {"filename": "a"}): b'{"position":3}'}
    finally:
        file.close()


def test_a_partition_named_twice_gets_its_last_offset() -> None:
    entries = [(at("t", 1), 5), (at("t"), 3), (at("t", "1"), 4), (at("t"), None)]
    forms = [
        (json.dumps(one), None if offset is None else json.dumps({"kafka_offset": offset})) for one, offset in entries
    ]
    assert sink_offsets(forms) == {("t", 1): 4, ("t", 0): None}


# --- start positions of tasks, with a real broker


@pytest.mark.kafka
def test_a_standalone_workers_file_has_no_offsets_of_a_sink(
    kafka_bootstrap: str, tmp_topic: Callable[..., str], tmp_path: Path
) -> None:
    kafka, here = Kafka(kafka_bootstrap), bench(kafka_bootstrap)
    topic = kafka.create_topic(tmp_topic())
    kafka.produce(topic, [b"x"] * 4, partition=0)
    with standalone(here, tmp_path) as file:
        config, now = sink(tmp_path / "out", topic), [(at(topic), {"kafka_offset": 2})]
        assert here.change(config, *now)[0] == here.read(config) == now
        assert kafka.committed(f"connect-snk-{topic}", (topic, 0)) == [2]
        assert file.of(str(config["name"])) == {}


@pytest.mark.kafka
def test_a_file_sources_task_starts_at_its_initial_offset(
    kafka_bootstrap: str, tmp_topic: Callable[..., str], tmp_path: Path
) -> None:
    offsets = tmp_topic("offsets")
    kafka, here = Kafka(kafka_bootstrap), bench(kafka_bootstrap, offsets)
    file, topic = tmp_path / "in.txt", tmp_topic()
    file.write_text("first\nsecond\nthird\n")
    config = source(file, topic)
    here.alter(config, ({"filename": str(file)}, {"position": 6}), ({"filename": "gone"}, None))
    here.run(config)
    assert [value for _, value in kafka.records(topic)] == [b"second", b"third"]
    # In Connect's bytes: a Java worker finds them too.
    stored, name = kafka.records(offsets, 2), config["name"]
    assert (f'["{name}",{{"filename":"{file}"}}]'.encode(), b'{"position":6}') in stored
    assert (f'["{name}",{{"filename":"gone"}}]'.encode(), None) in stored


@pytest.mark.kafka
def test_a_sinks_tasks_start_at_its_initial_offsets(
    kafka_bootstrap: str, tmp_topic: Callable[..., str], tmp_path: Path
) -> None:
    kafka, here = Kafka(kafka_bootstrap), bench(kafka_bootstrap)
    topic = kafka.create_topic(tmp_topic())
    for partition in (0, 1):
        kafka.produce(topic, (f"{partition}:{number}".encode() for number in range(3)), partition=partition)
    config = sink(tmp_path / "out", topic)
    here.alter(config, (at(topic), {"kafka_offset": 2}), (at(topic, "1"), {"kafka_offset": "1"}))
    assert kafka.committed(f"connect-snk-{topic}", (topic, 0), (topic, 1)) == [2, 1]
    here.run(config)
    assert sorted((tmp_path / "out").read_text().split()) == ["0:2", "1:1", "1:2"]


@pytest.mark.kafka
def test_a_sinks_offsets_are_written_all_or_none(
    kafka_bootstrap: str, tmp_topic: Callable[..., str], tmp_path: Path
) -> None:
    kafka, here = Kafka(kafka_bootstrap), bench(kafka_bootstrap)
    topic = kafka.create_topic(tmp_topic())
    kafka.produce(topic, [b"x"] * 4, partition=0)
    config, group = sink(tmp_path / "out", topic), f"connect-snk-{topic}"
    with pytest.raises(ConfigError, match="outside of its records 0 to 4"):
        here.alter(config, (at(topic, 1), {"kafka_offset": 0}), (at(topic), {"kafka_offset": 5}))
    with pytest.raises(ConfigError, match="create their topics first"):
        here.alter(config, (at(topic), {"kafka_offset": 1}), (at(topic, 99), {"kafka_offset": 0}))
    assert kafka.committed(group, (topic, 0), (topic, 1)) == [-1001, -1001]
    # Offsets of another connector of that name are removed with null.
    here.alter(config, (at(topic), {"kafka_offset": 3}), (at(topic, 1), {"kafka_offset": 0}))
    here.alter(config, (at(topic), None))
    assert kafka.committed(group, (topic, 0), (topic, 1)) == [-1001, 0]
    reset = sink(tmp_path / "out", topic, **{"herdmesh.offsets.missing": "reset"})
    here.alter(reset, (at(topic), {"kafka_offset": 999}))
    assert kafka.committed(group, (topic, 0)) == [999]


@pytest.mark.kafka
def test_a_write_fences_an_older_owner_and_refuses_a_group_with_members(
    kafka_bootstrap: str, tmp_topic: Callable[..., str], tmp_path: Path
) -> None:
    kafka, here = Kafka(kafka_bootstrap), bench(kafka_bootstrap)
    topic = kafka.create_topic(tmp_topic())
    config = sink(tmp_path / "out", topic)
    spec = here.specs.without_class(UnitId(str(config["name"]), 0), TaskSpec(config, config, 1))
    old = Fence(clients.producer(spec, {}), spec.transactional_id)
    old.take_over()
    here.alter(config, (at(topic), {"kafka_offset": 0}))
    consumer = clients.consumer(spec, f"connect-snk-{topic}", {})
    try:
        with pytest.raises(TaskFenced):
            old.commit_offsets([TopicPartition(topic, 0, 7)], consumer.consumer_group_metadata())
    finally:
        consumer.close()
    assert kafka.committed(f"connect-snk-{topic}", (topic, 0)) == [0]
    with kafka.member(f"connect-snk-{topic}", topic):
        with pytest.raises(TaskFailed, match="has live members") as refused:
            here.alter(config, (at(topic), {"kafka_offset": 0}))
        assert refused.value.error_class is ErrorClass.BAD_CONFIG


# --- prepared: everything but the write, which the creator of the connector does


# --- of existing connectors: read, altered, reset, rewound

FALSE = (
    "The Connect framework-managed offsets for this connector have been altered successfully. However, if this "
    "connector manages offsets externally, they will need to be manually altered in the system that the connector uses."
)


def test_connects_texts_reflect_the_result_of_alter_offsets() -> None:
    done = "The offsets for this connector have been reset successfully"
    assert changed_message(agreed=True, reset=True, dry_run=False) == done
    assert changed_message(agreed=False, reset=False, dry_run=False) == FALSE
    assert changed_message(agreed=False, reset=False, dry_run=True).startswith("dry run: nothing was changed")


def test_a_standalone_sources_offsets_are_read_and_reset_in_its_file(tmp_path: Path) -> None:
    file = OffsetFile(str(tmp_path / "offsets"))
    file.open()
    try:
        here, config = bench(NOWHERE), source(tmp_path / "a")
        here.offset_file = file
        entry = ({"filename": "a"}, {"position": 3})
        assert here.change(config, entry, dry_run=True)[0] == [entry]
        assert here.read(config) == []
        assert here.change(config, entry)[0] == here.read(config) == [entry]
        assert here.change(config, reset=True, dry_run=True)[0] == here.read(config) == [entry]
        assert here.change(config, reset=True)[0] == [entry]
        assert here.read(config) == []
    finally:
        file.close()


@pytest.mark.kafka
def test_a_sources_offsets_come_from_both_topics_and_a_reset_removes_the_stored_keys(
    kafka_bootstrap: str, tmp_topic: Callable[..., str], tmp_path: Path
) -> None:
    """Its own topic over the worker's; a Java worker's keys may have spaces and another order than ours."""
    shared, own = tmp_topic("shared"), tmp_topic("own")
    kafka, here = Kafka(kafka_bootstrap), bench(kafka_bootstrap, shared)
    config = source(tmp_path / "a")
    name = str(config["name"])
    for file, position in (("a", 1), ("b", 2)):
        here.change(config, ({"filename": file}, {"position": position}))
    here.change({**config, "name": "other"}, ({"filename": "x"}, {"position": 9}))
    config["offsets.storage.topic"] = own
    here.change(config, ({"filename": "b"}, {"position": 5}))
    foreign = f'["{name}", {{"z":1,"filename":"c"}}]'.encode()
    java = Producer({"bootstrap.servers": kafka_bootstrap, "partitioner": "murmur2_random"})
    java.produce(own, b'{"position":7}', foreign)
    assert java.flush(30) == 0
    both = [
        ({"filename": "a"}, {"position": 1}), ({"filename": "b"}, {"position": 5}),
        ({"z": 1, "filename": "c"}, {"position": 7}),
    ]  # fmt: skip
    assert here.read(config) == both
    assert here.change(config, reset=True, dry_run=True)[0] == here.read(config) == both
    assert here.change(config, reset=True)[0] == both
    assert here.read(config) == []
    assert here.change(config, reset=True)[0] == []
    assert (foreign, None) in kafka.records(own, 2)
    assert here.read({**config, "name": "other"}) == [({"filename": "x"}, {"position": 9})]


@pytest.mark.kafka
def test_a_read_creates_no_offsets_topic_and_a_change_calls_alter_offsets_once(
    kafka_bootstrap: str, tmp_topic: Callable[..., str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    offsets, asked = tmp_topic("offsets"), list[Any]()

    def alter_offsets(_self: FileStreamSource, _config: Any, changed: Any) -> bool:
        asked.append(changed)
        return True

    monkeypatch.setattr(FileStreamSource, "alter_offsets", alter_offsets)
    here, config = bench(kafka_bootstrap, offsets), source(tmp_path / "a")
    entry = ({"filename": "a"}, {"position": 1})
    assert here.read(config) == []
    assert here.change(config, entry, dry_run=True)[0] == [entry]
    assert here.change(config, reset=True, dry_run=True)[0] == []
    assert offsets not in AdminClient({"bootstrap.servers": kafka_bootstrap}).list_topics(timeout=60).topics
    assert asked == [[entry], []]
    assert here.change(config, entry) == ([entry], "The offsets for this connector have been altered successfully")
    assert here.change(config, reset=True)[0] == [entry]
    assert asked[2:] == [[entry], [(entry[0], None)]]


@pytest.mark.kafka
def test_a_sinks_offsets_are_reset_and_rewound_in_its_own_group(
    kafka_bootstrap: str, tmp_topic: Callable[..., str], tmp_path: Path
) -> None:
    kafka, here = Kafka(kafka_bootstrap), bench(kafka_bootstrap)
    topic = kafka.create_topic(tmp_topic())
    producer = Producer({"bootstrap.servers": kafka_bootstrap})
    for number in range(4):
        producer.produce(topic, b"x", partition=0, timestamp=1_000 + number)
    producer.produce(topic, b"x", partition=1, timestamp=1_000)
    assert producer.flush(30) == 0
    group = f"own-{topic}"
    config = sink(tmp_path / "out", topic, **{"consumer.override.group.id": group})
    committed = [(at(topic), {"kafka_offset": 3}), (at(topic, 1), {"kafka_offset": 1})]
    assert here.read(config) == []
    assert here.change(config, *committed)[0] == here.read(config) == committed
    rewound = [(at(topic), {"kafka_offset": 2}), (at(topic, 1), {"kafka_offset": 1})]
    assert here.change(config, rewind_to_ms=1_002, dry_run=True)[0][: len(rewound)] == rewound
    assert here.read(config) == committed
    found, message = here.change(config, rewind_to_ms=1_002)
    assert (found[:2], message) == (rewound, "The offsets for this connector have been altered successfully")
    assert kafka.committed(group, (topic, 0), (topic, 1)) == [2, 1]
    # A rewind goes beyond the read records only if that is allowed, and reports it.
    forward = f"{topic}-0 is at 2 and goes to 3"
    for dry_run in (True, False):
        with pytest.raises(ConfigError, match=rf"forward, past .*: {forward}; .*--allow-forward") as refused:
            here.change(config, rewind_to_ms=1_003, dry_run=dry_run)
        assert refused.value.field == "time"
    assert kafka.committed(group, (topic, 0), (topic, 1)) == [2, 1]
    _, message = here.change(config, rewind_to_ms=1_003, dry_run=True, allow_forward=True)
    assert message == f"{changed_message(agreed=False, reset=False, dry_run=True)} (forward: {forward})"
    _, message = here.change(config, rewind_to_ms=1_003, allow_forward=True)
    assert message == f"The offsets for this connector have been altered successfully (forward: {forward})"
    assert kafka.committed(group, (topic, 0), (topic, 1)) == [3, 1]
    now = here.read(config)
    assert here.change(config, reset=True)[0] == now
    assert here.read(config) == []
    assert here.change(config, reset=True)[0] == [], "a group that is gone is reset already"


@pytest.mark.kafka
def test_the_metadata_of_the_last_commit_is_kept_with_the_new_offset(
    kafka_bootstrap: str, tmp_topic: Callable[..., str], tmp_path: Path
) -> None:
    """The files that it staged may still have to be published."""
    kafka, here = Kafka(kafka_bootstrap), bench(kafka_bootstrap)
    topic = kafka.create_topic(tmp_topic())
    kafka.produce(topic, [b"x"] * 4, partition=0)
    config, group = sink(tmp_path / "out", topic), f"connect-snk-{topic}"
    consumer = Consumer({"bootstrap.servers": kafka_bootstrap, "group.id": group})
    try:
        consumer.commit(offsets=[TopicPartition(topic, 0, 4, "staged")], asynchronous=False)
        here.change(config, (at(topic), {"kafka_offset": 1}))
        [found] = consumer.committed([TopicPartition(topic, 0)], 10)
        assert (found.offset, found.metadata) == (1, "staged")
        # of a recreated topic: a task would take the new offset for one of the earlier topic, and ignore it
        before = manifest.encode("staged", "another-id")
        assert here.note(config) == ""
        consumer.commit(offsets=[TopicPartition(topic, 0, 4, before)], asynchronous=False)
        assert here.note(config).endswith(f"created again since: {topic}; {NOT_GONE_ON_FROM}")
        here.change(config, (at(topic), {"kafka_offset": 2}))
        [found] = consumer.committed([TopicPartition(topic, 0)], 10)
        [topic_id] = partitions.topic_ids(kafka.admin, [topic]).values()
        assert (found.offset, found.metadata) == (2, manifest.encode("staged", topic_id))
    finally:
        consumer.close()


@pytest.mark.kafka
def test_more_offsets_than_the_producers_buffer_holds_are_written(
    kafka_bootstrap: str, tmp_topic: Callable[..., str], tmp_path: Path
) -> None:
    here = bench(kafka_bootstrap, tmp_topic("offsets"))
    config = source(tmp_path / "a") | {"producer.override.buffer.memory": "2048"}
    many = [({"filename": f"{number:0200}"}, {"position": number}) for number in range(40)]
    assert here.change(config, *many)[0] == here.read(config) == many
    assert here.change(config, reset=True)[0] == many
    assert here.read(config) == []


@pytest.mark.kafka
@pytest.mark.parametrize("refusing", ["client", "broker"])
def test_a_sources_offsets_are_written_all_or_none(
    refusing: str, kafka_bootstrap: str, tmp_topic: Callable[..., str], tmp_path: Path
) -> None:
    """One of them exceeds the limit of the client, or of the broker."""
    kafka, offsets = Kafka(kafka_bootstrap), tmp_topic("offsets")
    here, config = bench(kafka_bootstrap, offsets), source(tmp_path / "a")
    before = [({"filename": "a"}, {"position": 1})]
    assert here.change(config, *before)[0] == before
    size = 2_000_000
    if refusing == "broker":
        kafka.set_topic_config(offsets, {"max.message.bytes": "5000"})
        size = 10_000
    large = ({"filename": "x" * size}, {"position": 3})
    # Uncompressed, and the records that the broker accepts are in a batch of their own.
    config |= {"producer.override.compression.type": "none", "producer.override.batch.size": "500"}
    with pytest.raises((TaskFailed, KafkaException), match=r"MSG_SIZE_TOO_LARGE|Message size too large") as refused:
        here.change(config, ({"filename": "a"}, {"position": 2}), ({"filename": "b"}, {"position": 2}), large)
    assert not isinstance(refused.value, OutcomeUnknown)
    assert here.read(config) == before
    after = [({"filename": "a"}, {"position": 4})]
    assert here.change(config, *after)[0] == here.read(config) == after, "nor does it come with the next change"
    assert len(kafka.records(offsets, 2)) == 2


class StoppedSink:
    """A sink of four records without tasks, whose offset a worker has set to 1."""

    def __init__(self, bootstrap: str, names: Callable[..., str], folder: Path) -> None:
        self.kafka, self._configs = Kafka(bootstrap), names("configs")
        self.topic = self.kafka.create_topic(names())
        self.kafka.produce(self.topic, [b"x"] * 4, partition=0)
        self._here = bench(bootstrap, configs=self.kafka.create_topic(self._configs, 1))
        self._config = sink(folder / "out", self.topic)
        self.name = str(self._config["name"])
        write(bootstrap, self._configs, ManifestRecord(self.name, "i1", task_config_generation=1))
        self._here.change(
            self._config, (at(self.topic), {"kafka_offset": 1}), revision=Revision("store", (1,)), incarnation="i1"
        )

    def resume(self) -> None:
        """Give it tasks."""
        tasks = ManifestRecord(self.name, "i1", task_digests=("d",), task_config_generation=2)
        write(self.kafka.bootstrap, self._configs, tasks)

    def begin_another(self) -> None:
        """Begin another change of its offsets: its state is unchanged, and recorded again later."""
        write(self.kafka.bootstrap, self._configs, ManifestRecord(self.name, "i1", task_config_generation=1))

    def reset(self, timeout_ms: int = WAIT_MS) -> None:
        """Reset by a worker that does not know of those tasks."""
        self._here.change(
            self._config, revision=Revision("store", (1,)), incarnation="i1", reset=True, timeout_ms=timeout_ms
        )

    def committed(self) -> list[int]:
        return self.kafka.committed(f"connect-{self.name}", (self.topic, 0))


@pytest.mark.kafka
@pytest.mark.parametrize("meanwhile", ["tasks", "another change"])
def test_a_late_worker_changes_no_offsets_set_meanwhile(
    meanwhile: str, kafka_bootstrap: str, tmp_topic: Callable[..., str], tmp_path: Path
) -> None:
    """It was frozen after it got the request; another worker got it then, and the caller has continued."""
    stopped = StoppedSink(kafka_bootstrap, tmp_topic, tmp_path)
    if meanwhile == "tasks":
        stopped.resume()
    else:
        stopped.begin_another()
    with pytest.raises(TaskFenced, match="was changed, or another change of its offsets began"):
        stopped.reset()
    assert stopped.committed() == [1]


@pytest.mark.kafka
def test_a_group_is_not_deleted_after_the_callers_deadline(
    kafka_bootstrap: str, tmp_topic: Callable[..., str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A deletion is the one write that no fence refuses."""
    stopped = StoppedSink(kafka_bootstrap, tmp_topic, tmp_path)

    def late(_self: FileStreamSink, _config: Any, _offsets: Any) -> bool:
        monkeypatch.setattr(offset_write_outcome, "time", SimpleNamespace(monotonic=lambda: time.monotonic() + 61))
        return True

    monkeypatch.setattr(FileStreamSink, "alter_offsets", late)
    with pytest.raises(TaskFailed, match="answered too late; nothing was written") as refused:
        stopped.reset()
    assert refused.value.error_class is ErrorClass.RETRIABLE
    assert not isinstance(refused.value, OutcomeUnknown)
    monkeypatch.setattr(offset_write_outcome, "time", time)
    assert stopped.committed() == [1]
    stopped.reset(timeout_ms=200_000)  # the caller waits longer than the connector takes
    assert stopped.committed() == [-1001]


@pytest.mark.kafka
def test_a_group_is_not_deleted_when_tasks_start_during_alter_offsets(
    kafka_bootstrap: str, tmp_topic: Callable[..., str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stopped = StoppedSink(kafka_bootstrap, tmp_topic, tmp_path)

    def resumed(_self: FileStreamSink, _config: Any, _offsets: Any) -> bool:
        stopped.resume()
        return True

    monkeypatch.setattr(FileStreamSink, "alter_offsets", resumed)
    with pytest.raises(TaskFenced, match="was changed, or another change of its offsets began"):
        stopped.reset()
    assert stopped.committed() == [1]
