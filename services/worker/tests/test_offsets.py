"""Offsets written for somebody who asks: Connect's texts for what is wrong, all or none, and tasks start there."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition

from herdmesh.connect import offsets_topic
from herdmesh.connect.config_records import ManifestRecord
from herdmesh.connect.errors import ConfigError, DataError
from herdmesh.connect.plugins import PluginRegistry
from herdmesh.engine import clients
from herdmesh.engine.errors import ForeignMembers, TaskFenced
from herdmesh.engine.fence import Fence
from herdmesh.worker.effects.offset_file import OffsetFile
from herdmesh.worker.effects.offsets import Offsets
from herdmesh.worker.effects.specs import RunSpecs
from herdmesh.worker.settings import WorkerSettings
from herdmesh.worker.state.model import TaskSpec, UnitId
from herdmesh.worker.state.questions import AlterOffsets
from libs.core.tests.engine.harness import Kafka, run_here, write

TEXT = "org.apache.kafka.connect.storage.StringConverter"
NOWHERE = "127.0.0.1:1"
NO_LONG = "The value for the 'position' key in the offset is expected to be a Long value"


@dataclass
class Bench:
    """A worker's offsets, and runs of task 0, against one broker."""

    specs: RunSpecs
    offset_file: OffsetFile | None = None

    def alter(self, config: dict[str, str | None], *offsets: tuple[Any, Any], config_offset: int | None = None) -> None:
        entries = tuple((json.dumps(partition), json.dumps(offset)) for partition, offset in offsets)
        question = AlterOffsets(str(config["name"]), config, entries, config_offset)
        asyncio.run(Offsets(self.specs, self.offset_file).alter(question))

    def run(self, config: dict[str, str | None]) -> None:
        """One run of the only task, until it has read everything."""
        unit, spec = UnitId(str(config["name"]), 0), TaskSpec(config, config, 1)
        run_here(replace(self.specs.run_spec(unit, spec, "run", has_committed=False), linger_ms=0))


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


# --- what is wrong with them: the texts of Java's answers (golden/rest.jsonl), before anything is written


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
def test_what_a_file_source_refuses(partition: Any, offset: Any, text: str, tmp_path: Path) -> None:
    with pytest.raises((ConfigError, DataError)) as refused:
        bench(NOWHERE).alter(source(tmp_path / "a"), (partition, offset))
    assert str(refused.value) == text


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
def test_what_a_sink_refuses(partition: Any, offset: Any, text: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as refused:
        bench(NOWHERE).alter(sink(tmp_path / "a", "t"), (partition, offset))
    assert str(refused.value) == text


def test_offsets_that_are_no_objects_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="JSON objects or null"):
        bench(NOWHERE).alter(source(tmp_path / "a"), ({"filename": "a"}, [1]))
    question = AlterOffsets("c", source(tmp_path / "a"), (("{bad", None),))
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


# --- where tasks start then, with a real broker


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
    # What another connector of that name left is forgotten with null, but not beside others that stay.
    here.alter(config, (at(topic), {"kafka_offset": 3}), (at(topic, 1), {"kafka_offset": 0}))
    with pytest.raises(ConfigError, match="cannot be forgotten while group"):
        here.alter(config, (at(topic), None))
    here.alter(config, (at(topic), None), (at(topic, 1), {"kafka_offset": 0}))
    assert kafka.committed(group, (topic, 0), (topic, 1)) == [-1001, 0]
    reset = sink(tmp_path / "out", topic, **{"herdmesh.offsets.missing": "reset"})
    here.alter(reset, (at(topic), {"kafka_offset": 999}))
    assert kafka.committed(group, (topic, 0)) == [999]


@pytest.mark.kafka
@pytest.mark.parametrize("kind", ["source", "sink"])
def test_a_worker_that_is_late_writes_nothing_under_the_connector_that_came_meanwhile(
    kind: str, kafka_bootstrap: str, tmp_topic: Callable[..., str], tmp_path: Path
) -> None:
    """It was frozen when it was asked; another worker was, and the connector is there."""
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
    with pytest.raises(TaskFenced, match=f"there is a connector {name} by now"):
        here.alter(config, later, config_offset=2)
    if kind == "source":
        assert [value for _, value in kafka.records(offsets, 2)] == [b'{"position":1}']
    else:
        assert kafka.committed(f"connect-{name}", (topic, 0)) == [1]


@pytest.mark.kafka
def test_a_write_cuts_off_an_older_owner_and_refuses_a_group_with_members(
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
    member = Consumer({"bootstrap.servers": kafka_bootstrap, "group.id": f"connect-snk-{topic}"})
    try:
        member.subscribe([topic])
        for _ in range(100):
            member.poll(0.1)
            if member.assignment():
                break
        with pytest.raises(ForeignMembers):
            here.alter(config, (at(topic), {"kafka_offset": 0}))
    finally:
        member.close()
