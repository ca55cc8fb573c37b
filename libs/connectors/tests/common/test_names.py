"""Tests of connectors with names that Connect allows: no name fails a run, and none repeats records."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from herdmesh.engine import RunEnd, TaskKind
from libs.core.tests.engine.harness import Kafka, make_spec, run_here

_PACKAGE = "herdmesh.connectors"
NAMES = ["ünïcödé", "日本", "\u0645 😀", " a b ", "../a/b", "%s%20+:*?\"'<>|\\", "n" * 900]
pytestmark = [pytest.mark.kafka]


@pytest.fixture(params=range(len(NAMES)))
def name(request: pytest.FixtureRequest, tmp_topic: Callable[..., str]) -> str:
    return f"{NAMES[request.param]}{tmp_topic()}"


@pytest.mark.parametrize("task", ["file_stream.sink.task:FileStreamSinkTask", "files.task:FileSinkTask"])
def test_a_sink_with_any_name_continues_where_its_last_run_ended(
    kafka_bootstrap: str, tmp_topic: Callable[..., str], tmp_path: Path, name: str, task: str
) -> None:
    kafka, out = Kafka(kafka_bootstrap), tmp_path / "out"
    topic = kafka.create_topic(tmp_topic())
    kafka.produce_ids(topic, range(3))
    config = {"topics": topic, "file": str(out), "directory": str(out)}
    spec = make_spec(kafka.bootstrap, name, f"{_PACKAGE}.{task}", config)
    read = [outcome.progress.records_in for outcome in (run_here(spec), run_here(spec))]
    assert read == [3, 0]


def test_a_source_with_any_name_continues_where_its_last_run_ended(
    kafka_bootstrap: str, tmp_topic: Callable[..., str], tmp_path: Path, name: str
) -> None:
    (tmp_path / "in").write_text("1\n2\n")
    kafka = Kafka(kafka_bootstrap)
    config = {"topic": kafka.create_topic(tmp_topic()), "file": str(tmp_path / "in")}
    task = f"{_PACKAGE}.file_stream.source.task:FileStreamSourceTask"
    spec = make_spec(kafka.bootstrap, name, task, config, kind=TaskKind.SOURCE)
    outcomes = [run_here(spec), run_here(spec)]
    assert [outcome.progress.records_out for outcome in outcomes] == [2, 0]
    assert {outcome.reason for outcome in outcomes} == {RunEnd.QUIET}
