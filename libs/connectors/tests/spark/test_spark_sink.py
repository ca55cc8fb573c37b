"""Tests of `SparkSink` with a real broker and a real Spark:
exact rows in files and a database, with kills and freezes.
"""

from __future__ import annotations

import csv
import json
import sqlite3
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.orc
import pyarrow.parquet
import pytest

from herdmesh.connect.errors import ConfigError
from herdmesh.connectors.spark.sink import jdbc
from herdmesh.connectors.spark.sink.settings import settings_of
from herdmesh.engine import RunEnd, RunSpec
from herdmesh.engine.runtime.errors import TaskFailed
from libs.core.tests.engine.harness import Kafka, make_spec, processes, run_here
from tests.support.sizes import SOAKING

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.timeout(400), pytest.mark.usefixtures("spark")]

TASK = "herdmesh.connectors.spark.sink.task:SparkSinkTask"
RECORDS = 300
#: The standard suite has Spark write JSON, too.
KINDS = ["parquet", "orc", "json", "csv"] if SOAKING else ["parquet"]
#: Each costs a JVM; the file tests cover the first one, too.
DATABASE_POINTS = ["before-publish", "after-target-commit"] if SOAKING else ["after-target-commit"]
#: Spark queries a database before anything is staged, and on a busy machine a JVM takes a minute to start.
SPARK_S = 150.0
pa: Any = pyarrow
pq: Any = pyarrow.parquet
orc: Any = pyarrow.orc


@pytest.fixture(scope="module")
def kafka_topics(kafka_bootstrap: str) -> Kafka:
    return Kafka(kafka_bootstrap)


def sink(kafka: Kafka, name: str, topic: str, folder: Path, kind: str, **more: str) -> RunSpec:
    config = {"topics": topic, "staging.directory": str(folder / "staging"), "spark.format": kind, **more}
    return make_spec(kafka.bootstrap, name, TASK, config)


def files_sink(kafka: Kafka, name: str, topic: str, folder: Path, kind: str = "parquet", **more: str) -> RunSpec:
    more = {"spark.option.path": str(folder / "out"), "flush.records": "100", **more}
    return sink(kafka, name, topic, folder, kind, **more)


def rows_of(folder: Path, kind: str) -> list[dict[str, Any]]:
    """Return every row that Spark wrote."""
    found: list[dict[str, Any]] = []
    for path in sorted((folder / "out").glob(f"*.{kind}")):
        if kind == "parquet":
            found += pq.read_table(path).to_pylist()
        elif kind == "orc":
            found += orc.read_table(path).to_pylist()
        elif kind == "json":
            found += map(json.loads, path.read_text().splitlines())
        else:
            with path.open() as file:
                found += csv.DictReader(file)
    return found


def ids(folder: Path, kind: str = "parquet") -> list[int]:
    return sorted(int(row["id"]) for row in rows_of(folder, kind))


def waiting(folder: Path) -> list[str]:
    """Return the files that are not written yet."""
    return [path.name for path in (folder / "staging").glob("*/.staged/*")]


@pytest.mark.parametrize("kind", KINDS)
def test_rows_are_exact_in_every_file_format(
    kafka_topics: Kafka, tmp_topic: Callable[..., str], tmp_path: Path, kind: str
) -> None:
    topic, name = kafka_topics.create_topic(tmp_topic()), tmp_topic("sink")
    kafka_topics.produce_ids(topic, range(RECORDS))
    spec = files_sink(kafka_topics, name, topic, tmp_path, kind, **{"spark.option.header": "true"})
    assert run_here(spec).reason is RunEnd.QUIET
    assert ids(tmp_path, kind) == list(range(RECORDS))
    assert waiting(tmp_path) == []
    kafka_topics.produce_ids(topic, range(RECORDS, RECORDS + 7))
    assert run_here(spec).progress.records_in == 7
    assert ids(tmp_path, kind) == list(range(RECORDS + 7))


@pytest.mark.parametrize("kind", KINDS)
def test_a_write_leaves_another_tasks_unfinished_write_alone(
    kafka_topics: Kafka, tmp_topic: Callable[..., str], tmp_path: Path, kind: str
) -> None:
    """Spark's default moves the other task's files as committed, and deletes the rest."""
    temporary = tmp_path / "out" / "_temporary"
    half = temporary / "0" / "_temporary" / "attempt_1_0001_m_000000_1" / f"part-half.{kind}"
    whole = temporary / "0" / "task_1_0001_m_000000" / f"part-whole.{kind}"
    for one in (half, whole):
        one.parent.mkdir(parents=True)
        one.write_bytes(b"{}")
    topic = kafka_topics.create_topic(tmp_topic(), 1)
    kafka_topics.produce_ids(topic, range(RECORDS))
    run_here(files_sink(kafka_topics, tmp_topic("sink"), topic, tmp_path, kind, **{"spark.option.header": "true"}))
    assert ids(tmp_path, kind) == list(range(RECORDS))
    assert half.exists()
    assert whole.exists()
    assert [path.name for path in temporary.iterdir()] == ["0"]


def test_structs_have_the_types_of_their_schema(
    kafka_topics: Kafka, tmp_topic: Callable[..., str], tmp_path: Path
) -> None:
    topic = kafka_topics.create_topic(tmp_topic(), 1)
    fields = [
        {"field": "id", "type": "int32"},
        {"field": "at", "type": "int64", "name": "org.apache.kafka.connect.data.Timestamp"},
        {"field": "day", "type": "int32", "name": "org.apache.kafka.connect.data.Date"},
        {"field": "time", "type": "int32", "name": "org.apache.kafka.connect.data.Time", "optional": True},
        {
            "field": "price", "type": "bytes", "name": "org.apache.kafka.connect.data.Decimal",
            "parameters": {"scale": "2"},
        },
        {"field": "tags", "type": "array", "items": {"type": "string"}},
        {"field": "place", "type": "struct", "optional": True, "fields": [{"field": "city", "type": "string"}]},
    ]  # fmt: skip
    values: list[dict[str, Any]] = [
        {"id": 1, "at": 1_700_000_000_123, "day": 19_000, "time": 61_000, "price": "MDk=", "tags": ["a"],
         "place": {"city": "Ulm"}},
        {"id": 2, "at": 0, "day": 0, "time": None, "price": "AQ==", "tags": [], "place": None},
    ]  # fmt: skip
    schema = {"type": "struct", "fields": fields}
    kafka_topics.produce(topic, (json.dumps({"schema": schema, "payload": one}).encode() for one in values))
    run_here(files_sink(kafka_topics, tmp_topic("sink"), topic, tmp_path, **{"value.converter.schemas.enable": "true"}))
    (path,) = (tmp_path / "out").glob("*.parquet")
    table = pq.read_table(path)
    types = {field.name: str(field.type) for field in table.schema}
    assert types["id"] == "int32"
    assert types["at"].startswith("timestamp[")
    assert (types["day"], types["time"], types["price"]) == ("date32[day]", "int32", "decimal128(38, 2)")
    first, second = table.to_pylist()
    assert first["at"].timestamp() == 1_700_000_000.123
    assert (first["id"], first["time"], first["price"]) == (1, 61_000, Decimal("123.45"))
    assert (first["tags"], first["place"]) == (["a"], {"city": "Ulm"})
    assert (second["price"], second["tags"], second["place"]) == (Decimal("0.01"), [], None)


@pytest.mark.parametrize(
    ("harm", "points"), [("kill", ["after-write", "before-publish"]), ("wake", ["before-publish"])]
)
def test_each_record_is_written_once_after_a_kill_or_freeze_around_a_write(
    kafka_topics: Kafka, tmp_topic: Callable[..., str], tmp_path: Path, harm: str, points: list[str]
) -> None:
    cases = [(point, kafka_topics.create_topic(tmp_topic()), tmp_topic("sink"), tmp_path / point) for point in points]
    for _, topic, _, _ in cases:
        kafka_topics.produce_ids(topic, range(RECORDS))
    with processes(tmp_path) as start:
        frozen = [start(files_sink(kafka_topics, name, topic, folder), point) for point, topic, name, folder in cases]
        for process, (point, topic, name, folder) in zip(frozen, cases, strict=True):
            process.until_frozen()
            assert waiting(folder) != [], point
            if harm == "kill":
                process.kill()
            kafka_topics.produce_ids(topic, range(RECORDS, RECORDS + 10))
            run_here(files_sink(kafka_topics, name, topic, folder))
            assert ids(folder) == list(range(RECORDS + 10)), point
            assert waiting(folder) == [], point
        if harm == "wake":
            for process, (point, _, _, folder) in zip(frozen, cases, strict=True):
                assert process.resume().get("error_class") == "FENCED", point
                assert ids(folder) == list(range(RECORDS + 10)), point


def database_config(folder: Path) -> dict[str, str]:
    return {"spark.option.url": f"jdbc:sqlite:{folder}/db.sqlite", "spark.option.dbtable": "flights"}


def table(folder: Path, query: str = "SELECT id, name FROM flights ORDER BY id") -> list[tuple[Any, ...]]:
    with sqlite3.connect(folder / "db.sqlite", timeout=20) as database:
        return database.execute(query).fetchall()


def tables(folder: Path) -> set[str]:
    return {name for (name,) in table(folder, "SELECT name FROM sqlite_master WHERE type = 'table'")}


def test_a_database_has_each_record_once_wherever_an_owner_is_killed(
    kafka_topics: Kafka, tmp_topic: Callable[..., str], tmp_path: Path
) -> None:
    specs: dict[str, RunSpec] = {}
    for point in DATABASE_POINTS:
        folder = tmp_path / point
        folder.mkdir()
        topic = kafka_topics.create_topic(tmp_topic())
        kafka_topics.produce_ids(topic, range(RECORDS))
        specs[point] = sink(kafka_topics, tmp_topic("sink"), topic, folder, "jdbc", **database_config(folder))
    with processes(tmp_path) as start:
        for process in [start(spec, point) for point, spec in specs.items()]:  # both JVMs start at the same time
            process.until_frozen(SPARK_S)
            process.kill()
    for point, spec in specs.items():
        folder = tmp_path / point
        run_here(spec)
        assert table(folder) == [(number, f"n{number}") for number in range(RECORDS)], point
        left = tables(folder) - {"flights", jdbc.LEDGER}
        assert len(left) == (point == "after-target-commit"), "one that was killed leaves its own until the next write"
        numbers = table(folder, f"SELECT writer, last_number, scratch FROM {jdbc.LEDGER} ORDER BY writer")
        found = [(writer.rpartition("@")[0], last) for writer, last, _ in numbers]
        topic = spec.connector_config["topics"]
        assert found == [(f"connect-{spec.connector}/{topic}-{n}", 1) for n in (0, 1)], point


def test_a_repeated_write_and_an_owner_suspended_within_one_change_nothing(tmp_path: Path) -> None:
    """No failpoint reaches this point: Spark wrote to the
    scratch table, and another owner did everything else.
    """
    rows = tmp_path / "rows.parquet"
    pq.write_table(pa.table({"id": [1, 2], "name": ["a", "b"]}), rows)
    config = {"spark.format": "jdbc", "staging.directory": str(tmp_path), **database_config(tmp_path)}
    slow, quick = (jdbc.JdbcTarget(settings_of(config)) for _ in range(2))
    assert slow.last_number("w") == 0
    frame = slow._spark.rows(rows)  # pyright: ignore[reportPrivateUsage]
    names, _ = slow._names_in_target(frame)  # pyright: ignore[reportPrivateUsage]
    scratch = slow._make_scratch("w")  # pyright: ignore[reportPrivateUsage]
    slow._spark.appending(frame, dbtable=scratch).save()  # pyright: ignore[reportPrivateUsage]
    for _ in range(2):
        quick.write(rows, "w", 1)
    assert quick.last_number("w") == 1
    slow._move(names, scratch, "w", 1)  # pyright: ignore[reportPrivateUsage]
    assert table(tmp_path) == [(1, "a"), (2, "b")]
    with pytest.raises(TaskFailed, match="wrote nothing"):  # not its scratch table: it must not use the number
        slow._move(names, scratch, "w", 2)  # pyright: ignore[reportPrivateUsage]
    assert table(tmp_path) == [(1, "a"), (2, "b")]
    quick.write(rows, "w", 2)
    quick.write(rows, "other", 1)
    assert len(table(tmp_path)) == 6
    assert tables(tmp_path) == {"flights", jdbc.LEDGER}


def test_derby_has_each_number_once(tmp_path: Path) -> None:
    """Derby folds names to upper case, and has its own syntax for an empty copy of a table."""
    rows = tmp_path / "rows.parquet"
    pq.write_table(pa.table({"id": [1, 2], "name": ["a", "b"]}), rows)
    where = {"url": f"jdbc:derby:{tmp_path}/db;create=true", "dbtable": "flights"}
    options = {f"spark.option.{name}": value for name, value in where.items()}
    target = jdbc.JdbcTarget(settings_of({"spark.format": "jdbc", "staging.directory": str(tmp_path), **options}))
    for number in (1, 1, 2):
        target.write(rows, "w", number)
    assert target.last_number("w") == 2
    session = target._spark.session()  # pyright: ignore[reportPrivateUsage]
    found = session.read.format("jdbc").options(**where).load().collect()
    assert sorted(tuple(row) for row in found) == [(1, "a"), (1, "a"), (2, "b"), (2, "b")]
    _check_odd_values(tmp_path, where)


def _check_odd_values(folder: Path, where: dict[str, str]) -> None:
    """Check that a FLOAT32 in a decimal column has its own digits, and that days before 1582 are unchanged."""
    rows = folder / "odd.parquet"
    price, day = pa.array([0.1, 39.946712], pa.float32()), pa.array([-170_000, 2_932_896], pa.int32())
    pq.write_table(pa.table({"id": [1, 2], "price": price, "day1": day.cast(pa.date32())}), rows)
    where = {**where, "dbtable": "odd"}
    options = {f"spark.option.{name}": value for name, value in where.items()}
    target = jdbc.JdbcTarget(settings_of({"spark.format": "jdbc", "staging.directory": str(folder), **options}))
    with target._connection() as database:  # pyright: ignore[reportPrivateUsage]
        database.run("CREATE TABLE odd (id BIGINT, price DECIMAL(20, 12), day1 DATE)")
        database.commit()
    target.write(rows, "odd", 1)
    session = target._spark.session()  # pyright: ignore[reportPrivateUsage]
    read = session.read.format("jdbc").options(**where).load()
    found = sorted(tuple(row) for row in read.selectExpr("id", "string(price)", "string(day1)").collect())
    assert found == [(1, "0.100000000000", "1504-07-23"), (2, "39.946712000000", "9999-12-31")]


def test_a_missing_column_fails_the_task_until_the_table_has_it_without_loss(
    kafka_topics: Kafka, tmp_topic: Callable[..., str], tmp_path: Path
) -> None:
    topic = kafka_topics.create_topic(tmp_topic(), 1)
    kafka_topics.produce_ids(topic, range(3))
    table(tmp_path, "CREATE TABLE flights (id INTEGER, name TEXT)")
    spec = sink(kafka_topics, tmp_topic("sink"), topic, tmp_path, "jdbc", **database_config(tmp_path))
    for _ in range(2):
        with pytest.raises(ConfigError, match="email") as failed:
            run_here(spec)
        assert failed.value.field == "spark.option.dbtable"
        assert table(tmp_path) == []
    table(tmp_path, "ALTER TABLE flights ADD COLUMN email TEXT")
    run_here(spec)
    assert table(tmp_path, "SELECT * FROM flights ORDER BY id") == [(n, f"n{n}", "e@x") for n in range(3)]


def test_a_missing_format_is_reported_by_name(
    kafka_topics: Kafka, tmp_topic: Callable[..., str], tmp_path: Path
) -> None:
    topic = kafka_topics.create_topic(tmp_topic(), 1)
    kafka_topics.produce_ids(topic, range(3))
    with pytest.raises(ConfigError, match="nonsense") as failed:
        run_here(sink(kafka_topics, tmp_topic("sink"), topic, tmp_path, "nonsense"))
    assert failed.value.field == "spark.format"
