"""Tests of the bench: its own connectors keep the SDK's promises, both sides read its configs alike, and its check
refuses a wrong table.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import psycopg
import pytest

from bench.connectors import figures, jobs, lines, plugins, postgres
from bench.connectors.__main__ import wanted_of
from bench.records import workload
from bench.records.moving import Moved
from herdmesh.connect.plugins.plugin_registry import PluginRegistry, describe
from herdmesh.connect.validation.connector_config import validate_connector
from herdmesh.connectors.file_stream.sink.connector import FileStreamSink
from herdmesh.connectors.file_stream.source.connector import FileStreamSource
from herdmesh.connectors.mirror.source.connector import MirrorSourceConnector
from herdmesh.connectors.postgres.sink.connector import PostgresSink
from herdmesh.sdk import SourceTask, SourceTaskContext
from herdmesh.sdk.testing import RecordForm, SinkSuite, SinkWorld, SourceSuite, SourceWorld

RECORDS = 1_500
_FILE = Path("file.txt")


class LinesWorld(SourceWorld):
    def config(self) -> dict[str, str]:
        path = self.folder / "lines"
        path.touch()
        return {"file": str(path), "topic": self.name}

    def write(self, numbers: range) -> None:
        with (self.folder / "lines").open("a") as file:
            file.writelines(f"{number}\n" for number in numbers)

    def number_of(self, value: bytes) -> int:
        return int(json.loads(value))


class LinesSinkWorld(SinkWorld):
    forms = (RecordForm.TEXT,)

    def config(self) -> dict[str, str]:
        return {"file": str(self.folder / "out")}

    def found(self) -> list[int]:
        path = self.folder / "out"
        return [int(line) for line in path.read_text().splitlines() if line != "null"] if path.exists() else []


class TestBatchLinesSource(SourceSuite):
    connector = lines.BatchLinesSource
    world = LinesWorld


class TestRecordLinesSource(SourceSuite):
    connector = lines.RecordLinesSource
    world = LinesWorld


class TestBatchLinesSink(SinkSuite):
    connector = lines.BatchLinesSink
    world = LinesSinkWorld


class TestRecordLinesSink(SinkSuite):
    connector = lines.RecordLinesSink
    world = LinesSinkWorld


@pytest.mark.parametrize("task_class", [lines.BatchLinesSourceTask, lines.RecordLinesSourceTask])
def test_a_line_is_sent_when_its_end_is_written(
    tmp_path: Path, task_class: type[lines.BatchLinesSourceTask | lines.RecordLinesSourceTask]
) -> None:
    file = tmp_path / "lines"
    file.write_text("1\n2")
    task = task_class()
    task.start({"file": str(file), "topic": "t"}, SourceTaskContext("c", 0, 1, "run", lambda _partition: None))
    assert polled(task) == (["1"], {"position": 2})
    assert task.poll() is None
    with file.open("a") as more:
        more.write("3\n")
    assert polled(task) == (["23"], {"position": 5})
    task.stop()


def polled(task: SourceTask) -> tuple[list[Any], Mapping[str, Any] | None]:
    batch = task.poll()
    assert batch is not None
    return list(batch.values), batch.source_offset


def test_workers_find_the_bench_s_connectors_as_if_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    environment = plugins.our_environment(tmp_path / "plugins")
    monkeypatch.setattr(sys, "path", [environment["PYTHONPATH"].split(os.pathsep)[0], *sys.path])
    found = PluginRegistry.discover()
    assert {found.find(one.class_name).connector for one in plugins.CONNECTORS} == set(plugins.CONNECTORS)


def our_registry() -> PluginRegistry:
    shipped = (FileStreamSink, FileStreamSource, MirrorSourceConnector, PostgresSink)
    return PluginRegistry(describe(one) for one in (*shipped, *plugins.CONNECTORS))


def config_of(job: jobs.Job, *, java: bool) -> dict[str, str]:
    if isinstance(job, jobs.Sink):
        return job.config(_FILE, 1, java=java)
    return job.config(_FILE, "t") if isinstance(job, jobs.Source) else job.config("127.0.0.1:1", "a", 1)


@pytest.mark.parametrize("pair", jobs.pairs(), ids=lambda pair: pair.name)
def test_a_pair_s_configs_differ_only_in_the_class(pair: jobs.Pair) -> None:
    # Sinks have the poll size in their config on both sides, so Java has only its best way.
    given = pair.java.get(jobs.JAVA, pair.java[jobs.TUNED])
    ours, java = config_of(pair.ours, java=False), config_of(given, java=True)
    different = {key for key, _ in set(ours.items()) ^ set(java.items())}
    assert different == ({"connector.class"} if pair.name.startswith("sdk-") else set())
    assert violations(ours) == []
    if jobs.JAVA in pair.java:
        tuned = set(config_of(pair.java[jobs.TUNED], java=True).items())
        assert set(java.items()) < tuned, "Java's best has more, and nothing else"
        assert all(".override." in key or "consumer" in key for key, _ in tuned - set(java.items()))


@pytest.mark.parametrize("job", postgres.JOBS, ids=lambda job: job.name)
def test_all_ways_into_a_table_read_and_write_the_same(job: postgres.TableJob) -> None:
    ours = postgres.OURS.config(job, "t", 2, 1)
    assert violations(ours) == []
    for way in postgres.JAVAS:
        java = way.config(job, "t", 2, 1)
        for key in ("topics", "tasks.max", "insert.mode", "consumer.override.max.poll.records", "value.converter"):
            assert java[key] == ours[key]
        assert java["collection.name.format"] == ours["table.name.format"]
        assert java.get("primary.key.fields") == ours.get("pk.fields")


def violations(config: Mapping[str, str]) -> list[tuple[str, Any]]:
    found = validate_connector({**config, "name": "bench"}, our_registry())
    return [(one.name, one.value.problems) for one in found.fields if one.value.problems]


def write_rows(dsn: str, numbers: range) -> None:
    rows = [tuple(workload.record(number).values()) for number in numbers]
    with psycopg.connect(dsn, autocommit=True) as connection, connection.cursor() as cursor:
        cursor.execute(f"CREATE TABLE t ({postgres.COLUMNS})".encode())
        with cursor.copy(b"COPY t FROM STDIN") as copy:
            for row in rows:
                copy.write_row(row)


@pytest.mark.parametrize(
    "change",
    [
        "DELETE FROM t WHERE id = 7",
        "UPDATE t SET id = -1 WHERE id = 7",
        "UPDATE t SET amount = amount + 0.01 WHERE id = 7",
        "UPDATE t SET name = 'user8' WHERE id = 7",
        "UPDATE t SET email = '' WHERE id = 7",
        "UPDATE t SET ts = ts + 1 WHERE id = 7",
        "UPDATE t SET note = 'late' WHERE id = 7",
        "INSERT INTO t SELECT id + 100000, name, email, amount, ts, note FROM t WHERE id = 7",
    ],
)
def test_a_table_must_have_every_record_once_as_sent(tmp_database: str, change: str) -> None:
    write_rows(tmp_database, range(RECORDS))
    postgres.check_table(tmp_database, "t", RECORDS)
    with psycopg.connect(tmp_database, autocommit=True) as connection:
        connection.execute(change.encode())
    with pytest.raises(AssertionError, match="t has rows"):
        postgres.check_table(tmp_database, "t", RECORDS)


def moved(per_s: float) -> Moved:
    return Moved(1_000, 0.0, 1_000 / per_s, 1.0)


def test_the_goal_holds_against_each_of_java_s_ways_fastest_first() -> None:
    javas = {"slow": [moved(100), moved(400), moved(110)], "fast": [moved(200), moved(210), moved(190)]}
    rows = figures.rows_of("f", 2.0, [moved(300), moved(300), moved(300)], javas, steady=False)
    told = {row.figure: row for row in rows}
    assert rows[0].figure == "f, against fast: total"
    assert rows[0].goal == ">= 2x"
    assert rows[0].met is False
    assert rows[0].ratio == pytest.approx(1.5)
    assert rows[0].spread == pytest.approx((300 / 210, 300 / 190))
    assert (told["f, against slow: total"].goal, told["f, against slow: total"].met) == (">= 2x", True)


def test_unknown_row_names_are_refused() -> None:
    assert [job.name for job in wanted_of("postgres,mirror").tables] == ["postgres"]
    assert len(wanted_of("").pairs) == len(jobs.pairs())
    with pytest.raises(SystemExit, match="no-such"):
        wanted_of("no-such")
