"""Tests of `SparkSink` into Delta and Iceberg, with their own jars and the matching Spark; the same Spark counts the
rows in the tables. Only in the soak, because that Spark is 490 MB.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest

from herdmesh.connect.errors import ConfigError
from herdmesh.connectors.spark.sink.delta import DeltaTarget
from herdmesh.connectors.spark.sink.settings import settings_of
from herdmesh.engine import RunSpec
from herdmesh.sdk.spark import task_session
from libs.connectors.tests.spark.stream_reading import Reader
from libs.core.tests.engine.harness import Kafka, make_spec, processes, run_here
from tests.support.sizes import SOAKING
from tests.support.tally import note

pytestmark = [
    pytest.mark.kafka,
    pytest.mark.spark,
    pytest.mark.timeout(900),
    pytest.mark.usefixtures("spark_for_jars"),
    pytest.mark.skipif(not SOAKING, reason="a Spark of its own, 490 MB: make soak ARGS=lakehouse"),
]

RECORDS = 300
SPARK_S = 150.0
KILLS = 3
pa: Any = pyarrow
pq: Any = pyarrow.parquet


@pytest.fixture(scope="module")
def kafka_topics(kafka_bootstrap: str) -> Kafka:
    return Kafka(kafka_bootstrap)


def delta_config(folder: Path) -> dict[str, str]:
    return {
        "spark.format": "delta",
        "spark.option.path": str(folder / "table"),
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    }


def iceberg_config(folder: Path) -> dict[str, str]:
    return {
        "spark.format": "iceberg",
        "spark.option.path": "lake.shop.flights",
        "spark.sql.catalog.lake": "org.apache.iceberg.spark.SparkCatalog",
        "spark.sql.catalog.lake.type": "hadoop",
        "spark.sql.catalog.lake.warehouse": str(folder / "warehouse"),
    }


CONFIGS = {"delta": delta_config, "iceberg": iceberg_config}


def sink(kafka: Kafka, name: str, topic: str, folder: Path, kind: str, **more: str) -> RunSpec:
    config = {"topics": topic, "staging.directory": str(folder / "staging"), **CONFIGS[kind](folder), **more}
    return make_spec(kafka.bootstrap, name, "herdmesh.connectors.spark.sink.task:SparkSinkTask", config)


def session(folder: Path, kind: str) -> Any:
    settings = settings_of({"staging.directory": str(folder), **CONFIGS[kind](folder)})
    return task_session.session_of(task_session.begin(settings.memory, settings.session))


def rows(folder: Path, kind: str) -> list[tuple[int, str]]:
    """Return the table's rows, read by Spark."""
    reading = session(folder, kind).read.format(kind)
    config = CONFIGS[kind](folder)
    found = reading.load(config["spark.option.path"]).select("id", "name").collect()
    return sorted((row.id, row.name) for row in found)


def expected(count: int) -> list[tuple[int, str]]:
    return [(number, f"n{number}") for number in range(count)]


@pytest.mark.parametrize("kind", list(CONFIGS))
def test_the_table_is_created_and_appended_to(
    kafka_topics: Kafka, tmp_topic: Callable[..., str], tmp_path: Path, kind: str
) -> None:
    topic, name = kafka_topics.create_topic(tmp_topic()), tmp_topic("sink")
    kafka_topics.produce_ids(topic, range(RECORDS))
    spec = sink(kafka_topics, name, topic, tmp_path, kind, **{"flush.records": "100"})
    run_here(spec)
    assert rows(tmp_path, kind) == expected(RECORDS)
    kafka_topics.produce_ids(topic, range(RECORDS, RECORDS + 7))
    assert run_here(spec).progress.records_in == 7
    assert rows(tmp_path, kind) == expected(RECORDS + 7)


@pytest.mark.parametrize("kind", list(CONFIGS))
def test_fields_partition_the_table(
    kafka_topics: Kafka, tmp_topic: Callable[..., str], tmp_path: Path, kind: str
) -> None:
    topic = kafka_topics.create_topic(tmp_topic(), 1)
    kafka_topics.produce_ids(topic, range(3))
    run_here(sink(kafka_topics, tmp_topic("sink"), topic, tmp_path, kind, **{"spark.partition.by": "name"}))
    assert rows(tmp_path, kind) == expected(3)
    folders = {path.parent.name for path in tmp_path.rglob("*.parquet") if "staging" not in path.parts}
    assert folders == {"name=n0", "name=n1", "name=n2"}


def test_delta_has_each_record_once_after_an_owner_is_killed_past_its_commit(
    kafka_topics: Kafka, tmp_topic: Callable[..., str], tmp_path: Path
) -> None:
    """At this point any other format gets the rows twice: they are in the table, and nothing else records it."""
    topic, name = kafka_topics.create_topic(tmp_topic()), tmp_topic("sink")
    spec = sink(kafka_topics, name, topic, tmp_path, "delta")
    with processes(tmp_path) as start:
        for number in range(KILLS):
            kafka_topics.produce_ids(topic, range(number * RECORDS, (number + 1) * RECORDS))
            process = start(spec, "after-target-commit")
            process.until_frozen(SPARK_S)
            process.kill()
    run_here(spec)
    assert rows(tmp_path, "delta") == expected(KILLS * RECORDS)
    note("SparkSink into Delta", runs=1, operations=KILLS * RECORDS, faults={"kill after the table's commit": KILLS})


def test_each_number_is_in_a_delta_table_once_for_any_writer(tmp_path: Path) -> None:
    path = tmp_path / "rows.parquet"
    pq.write_table(pa.table({"id": [1, 2], "name": ["a", "b"]}), path)
    settings = settings_of({"staging.directory": str(tmp_path), **delta_config(tmp_path)})
    one, other = DeltaTarget(settings), DeltaTarget(settings)
    assert one.last_number("w") == 0
    for target in (one, other, one):
        target.write(path, "w", 1)
    assert (one.last_number("w"), other.last_number("v")) == (1, 0)
    slow = one._spark.appending(one._spark.rows(path), txnAppId="w", txnVersion="1")  # pyright: ignore[reportPrivateUsage]
    slow.save()  # a writer that read the log before the other wrote
    assert rows(tmp_path, "delta") == [(1, "a"), (2, "b")]
    other.write(path, "w", 2)
    one.write(path, "v", 1)
    assert len(rows(tmp_path, "delta")) == 6


def test_a_column_missing_in_a_delta_table_waits_until_the_config_allows_it(
    kafka_topics: Kafka, tmp_topic: Callable[..., str], tmp_path: Path
) -> None:
    topic, name = kafka_topics.create_topic(tmp_topic(), 1), tmp_topic("sink")
    session(tmp_path, "delta").sql(f"CREATE TABLE delta.`{tmp_path}/table` (id BIGINT, name STRING) USING delta")
    kafka_topics.produce_ids(topic, range(3))
    with pytest.raises(ConfigError, match="metadata mismatch") as failed:
        run_here(sink(kafka_topics, name, topic, tmp_path, "delta"))
    assert failed.value.field == "spark.format"
    run_here(sink(kafka_topics, name, topic, tmp_path, "delta", **{"spark.option.mergeSchema": "true"}))
    assert rows(tmp_path, "delta") == expected(3)


def test_an_iceberg_table_is_read_once_by_snapshots_and_files_wherever_a_run_ends(tmp_path: Path) -> None:
    spark = session(tmp_path, "iceberg")
    spark.sql("CREATE TABLE lake.shop.flights (id BIGINT, name STRING) USING iceberg")
    for first in (0, 100, 200):
        data = spark.range(first, first + 100, numPartitions=3).selectExpr("id", "concat('n', id) AS name")
        data.writeTo("lake.shop.flights").append()
    for polls in (1, 2, 3, 7):
        reader = Reader(**iceberg_config(tmp_path), **{
            "batch.max.rows": "40", "spark.option.streaming-max-files-per-micro-batch": "2", "key.column": "id",
        })  # fmt: skip
        found = reader.run(1)
        while rows := reader.run(polls):
            found += rows
        assert sorted((row["id"], row["name"]) for row in found) == expected(300)
