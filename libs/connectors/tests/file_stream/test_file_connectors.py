"""Tests of the file connectors with a real broker: a file
through a topic to a file, resumed and in Connect's bytes.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from herdmesh.connect.plugins.plugin_registry import PluginRegistry
from herdmesh.engine import RunSpec, TaskKind
from libs.core.tests.engine.harness import Kafka, make_spec, run_here

LINES = [f"line {number} é" for number in range(5_000)]
STRINGS = {"value.converter": "org.apache.kafka.connect.storage.StringConverter"}


def spec_of(kafka: Kafka, name: str, connector_class: str, config: dict[str, str]) -> RunSpec:
    """Return the run spec of the connector's task."""
    plugin = PluginRegistry.discover().find(connector_class)
    connector = plugin.load()
    assert not connector.validate(config)
    connector.start(config)
    (task_config,) = connector.task_configs(1)
    return make_spec(
        kafka.bootstrap, name, connector.task_class(), {**STRINGS, **config},
        kind=TaskKind(plugin.kind), task_config=task_config, offset_storage_topic=f"{name}-offsets",
    )  # fmt: skip


@pytest.mark.kafka
def test_lines_arrive_once_and_in_order(kafka_bootstrap: str, tmp_topic: Callable[..., str], tmp_path: Path) -> None:
    kafka = Kafka(kafka_bootstrap)
    topic, source, sink = kafka.create_topic(tmp_topic(), 1), tmp_topic("source"), tmp_topic("sink")
    read, written = tmp_path / "in.txt", tmp_path / "out.txt"
    read.write_text("\n".join(LINES) + "\nhalf")
    source_spec = spec_of(kafka, source, "FileStreamSource", {"file": str(read), "topic": topic})
    sink_spec = spec_of(
        kafka, sink, "org.apache.kafka.connect.file.FileStreamSinkConnector", {"file": str(written), "topics": topic}
    )

    outcome = run_here(source_spec)
    assert (outcome.progress.records_in, outcome.wake_after_ms) == (len(LINES), 1_000)
    run_here(sink_spec)
    assert written.read_text().splitlines() == LINES

    with read.open("a") as file:
        file.write(" done\n")
    assert run_here(source_spec).progress.records_in == 1
    assert run_here(sink_spec).progress.records_in == 1
    assert written.read_text().splitlines() == [*LINES, "half done"]

    key, value = kafka.records(f"{source}-offsets", 2)[-1]
    assert key == json.dumps([source, {"filename": str(read)}], separators=(",", ":")).encode()
    assert value == b'{"position":%d}' % read.stat().st_size


def test_the_shipped_connectors_are_registered() -> None:
    registry = PluginRegistry.discover()
    for short, full in (
        ("FileStreamSource", "org.apache.kafka.connect.file.FileStreamSourceConnector"),
        ("FileStreamSink", "org.apache.kafka.connect.file.FileStreamSinkConnector"),
        ("MirrorSource", "org.apache.kafka.connect.mirror.MirrorSourceConnector"),
        ("MirrorCheckpoint", "org.apache.kafka.connect.mirror.MirrorCheckpointConnector"),
        ("MirrorHeartbeat", "org.apache.kafka.connect.mirror.MirrorHeartbeatConnector"),
        ("ParquetSink", "herdmesh.ParquetSink"),
        ("FileSink", "herdmesh.FileSink"),
        ("S3SinkConnector", "io.confluent.connect.s3.S3SinkConnector"),
        ("HdfsSink", "io.confluent.connect.hdfs3.Hdfs3SinkConnector"),
        ("SparkStreamSource", "herdmesh.SparkStreamSource"),
    ):
        assert registry.find(short) is registry.find(full)
