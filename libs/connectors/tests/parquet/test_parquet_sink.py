"""Tests of `ParquetSink` with a real broker: exact rows, with kills and freezes at each step."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet
import pytest

from herdmesh.connect.error_class import ErrorClass
from herdmesh.connect.errors import ConfigError
from herdmesh.connectors.parquet.connector import ParquetSink
from herdmesh.engine import RunEnd, RunSpec
from herdmesh.engine.runtime import failure
from herdmesh.engine.runtime.errors import OffsetsLost
from herdmesh.engine.runtime.failpoints import NAMES
from libs.core.tests.engine.harness import Kafka, make_spec, processes, run_here

TASK = "herdmesh.connectors.files.task:FileSinkTask"
RECORDS = 400
pq: Any = pyarrow.parquet


@pytest.fixture(scope="module")
def kafka_topics(kafka_bootstrap: str) -> Kafka:
    return Kafka(kafka_bootstrap)


def sink(kafka: Kafka, name: str, topic: str, folder: Path, **more: str) -> RunSpec:
    config = {"topics": topic, "directory": str(folder), "flush.records": "100", **more}
    return make_spec(kafka.bootstrap, name, TASK, config)


def published(folder: Path) -> list[str]:
    return sorted(entry.name for entry in folder.iterdir() if not entry.name.startswith("."))


def staged(folder: Path) -> list[str]:
    return sorted(entry.name for entry in folder.iterdir() if entry.name.startswith("."))


def ids(folder: Path) -> list[int]:
    """Return the field `id` of every row of every published file."""
    return sorted(row for name in published(folder) for row in pq.read_table(folder / name)["id"].to_pylist())


@pytest.mark.kafka
def test_rows_are_exact_and_file_names_have_their_offsets(
    kafka_topics: Kafka, tmp_topic: Callable[..., str], tmp_path: Path
) -> None:
    topic, name = kafka_topics.create_topic(tmp_topic()), tmp_topic("sink")
    kafka_topics.produce_ids(topic, range(RECORDS), partition=1)
    spec = sink(kafka_topics, name, topic, tmp_path / "made" / "when-absent")
    assert run_here(spec).reason is RunEnd.QUIET
    folder = tmp_path / "made" / "when-absent"
    assert ids(folder) == list(range(RECORDS))
    assert staged(folder) == []
    ranges = [name.removesuffix(".parquet").split("+")[1:] for name in published(folder)]
    assert [partition for partition, _, _ in ranges] == ["1"] * len(ranges)
    assert ranges[0][1] == "0000000000"
    assert ranges[-1][2] == "0000000399"
    assert kafka_topics.committed(f"connect-{name}", (topic, 0), (topic, 1)) == [0, RECORDS]

    assert run_here(spec).progress.records_in == 0
    assert ids(folder) == list(range(RECORDS))


@pytest.mark.kafka
@pytest.mark.parametrize("harm", ["kill", "wake"])
def test_each_record_is_in_one_file_once_after_a_kill_or_freeze(
    kafka_topics: Kafka, tmp_topic: Callable[..., str], tmp_path: Path, harm: str
) -> None:
    """For each failpoint: freeze an owner there, kill it or
    let a second one work and wake it, and count the rows.
    """
    cases = [(point, kafka_topics.create_topic(tmp_topic()), tmp_topic("sink"), tmp_path / point) for point in NAMES]
    for _, topic, _, _ in cases:
        kafka_topics.produce_ids(topic, range(RECORDS))
    with processes(tmp_path) as start:
        frozen = [start(sink(kafka_topics, name, topic, folder), point) for point, topic, name, folder in cases]
        for process, (point, topic, name, folder) in zip(frozen, cases, strict=True):
            process.until_frozen()
            assert ids(folder) == [], point
            if harm == "kill":
                process.kill()
            kafka_topics.produce_ids(topic, range(RECORDS, RECORDS + 10))
            run_here(sink(kafka_topics, name, topic, folder))
            assert ids(folder) == list(range(RECORDS + 10)), point
            assert staged(folder) == [], point
        if harm == "wake":
            for process, (point, _, _, folder) in zip(frozen, cases, strict=True):
                before = published(folder)
                ended = process.resume()
                assert ended.get("error_class") == "FENCED", (point, ended)
                assert published(folder) == before
                assert ids(folder) == list(range(RECORDS + 10)), point


@pytest.mark.kafka
def test_a_missing_committed_file_fails_the_run_until_offsets_may_be_reset(
    kafka_topics: Kafka, tmp_topic: Callable[..., str], tmp_path: Path
) -> None:
    topic, name, folder = kafka_topics.create_topic(tmp_topic(), 1), tmp_topic("sink"), tmp_path / "out"
    kafka_topics.produce_ids(topic, range(RECORDS))  # one batch, so one file
    with processes(tmp_path) as start:
        process = start(sink(kafka_topics, name, topic, folder), "before-publish")
        process.until_frozen()
        process.kill()
    (lost,) = staged(folder)
    (folder / lost).unlink()
    kafka_topics.produce_ids(topic, range(RECORDS, RECORDS + 5))
    with pytest.raises(OffsetsLost, match="neither staged nor published"):
        run_here(sink(kafka_topics, name, topic, folder))
    run_here(sink(kafka_topics, name, topic, folder, **{"herdmesh.offsets.missing": "reset"}))
    assert ids(folder) == list(range(RECORDS, RECORDS + 5))


@pytest.mark.kafka
def test_tombstones_and_changing_fields_become_rows(
    kafka_topics: Kafka, tmp_topic: Callable[..., str], tmp_path: Path
) -> None:
    topic = kafka_topics.create_topic(tmp_topic(), 1)
    kafka_topics.produce(topic, [b'{"id":1,"x":{"y":[1.50]}}', None, b'{"id":2.5,"z":null}', b'{"id":3,"x":"text"}'])
    run_here(sink(kafka_topics, tmp_topic("sink"), topic, tmp_path / "out", compression="snappy"))
    (name,) = published(tmp_path / "out")
    assert pq.read_table(tmp_path / "out" / name).to_pylist() == [
        {"id": 1.0, "x": '{"y":[1.5]}'}, {"id": None, "x": None}, {"id": 2.5, "x": None}, {"id": 3.0, "x": "text"},
    ]  # fmt: skip


def test_an_unusable_folder_is_refused_by_its_field(tmp_path: Path) -> None:
    connector = ParquetSink()
    (tmp_path / "file").write_text("")
    assert connector.validate({"directory": str(tmp_path / "new" / "folder")}) == []
    assert not (tmp_path / "new").exists()
    for bad in (tmp_path / "file", tmp_path / "file" / "below", tmp_path / ("x" * 2_000), Path("/proc/no")):
        (problem,) = connector.validate({"directory": str(bad)})
        assert problem.field == "directory"
    with pytest.raises(ConfigError, match="directory"):
        connector.start({})
    with pytest.raises(ConfigError, match="compression"):
        connector.start({"directory": str(tmp_path), "compression": "rar"})


def test_task_configs_have_an_absolute_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    connector = ParquetSink()
    connector.start({"directory": "out"})
    assert [config["directory"] for config in connector.task_configs(2)] == [str(tmp_path / "out")] * 2


def test_a_folder_that_became_unwritable_fails_the_task_as_a_bad_config(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    spec = make_spec("127.0.0.1:1", "sink", TASK, {"topics": "t", "directory": str(tmp_path / "file")})
    with pytest.raises(ConfigError) as failed:
        run_here(spec)
    assert failure.error_class(failed.value) is ErrorClass.BAD_CONFIG
