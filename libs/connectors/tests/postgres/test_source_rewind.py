"""Tests of rewinding tables of a real PostgreSQL to a time with a worker's
own offsets: exactly the rows that are not older are sent again.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import psycopg
import pytest

from herdmesh.connect.errors import ConfigError
from herdmesh.connectors.postgres.source.connector import PostgresSourceConnector
from herdmesh.session.model import UnitId
from herdmesh.worker.state.model import TaskSpec
from libs.core.tests.engine.harness import Kafka, run_here
from services.worker.tests.test_offsets import bench

BEGUN_S = 1_704_164_400
ROWS = 10


@pytest.mark.parametrize("mode", ["timestamp", "timestamp+incrementing"])
def test_all_rows_that_are_not_older_are_sent_again(
    kafka_bootstrap: str, tmp_database: str, tmp_topic: Callable[..., str], mode: str
) -> None:
    """Two rows a second; the moments have microseconds, a rewind has milliseconds."""
    topics = tmp_topic("rows")
    with psycopg.connect(tmp_database, autocommit=True) as database:
        for table in ("early", "late"):
            database.execute(f"CREATE TABLE {table} (id int NOT NULL, at timestamptz NOT NULL)".encode())
        database.execute(
            b"INSERT INTO early SELECT n, to_timestamp(%s + n / 2) FROM generate_series(0, %s) n", (BEGUN_S, ROWS - 1)
        )
        database.execute(
            b"INSERT INTO late VALUES (100, to_timestamp(%s) - interval '1 microsecond'), (101, to_timestamp(%s)), "
            b"(102, to_timestamp(%s) + interval '1 microsecond')", (BEGUN_S + 3,) * 3,
        )  # fmt: skip
    config: dict[str, str | None] = {
        "name": f"src-{topics}", "connector.class": "PostgresSource", "connection.url": tmp_database, "mode": mode,
        "timestamp.column.name": "at", "incrementing.column.name": "id", "table.whitelist": "early,late",
        "topic.prefix": f"{topics}-", "value.converter": "org.apache.kafka.connect.json.JsonConverter",
        "value.converter.schemas.enable": "false", "topic.creation.default.partitions": "1",
        "topic.creation.default.replication.factor": "1",
    }  # fmt: skip
    here = bench(kafka_bootstrap, tmp_topic("offsets"))

    def times(table: str) -> Counter[int]:
        found = Kafka(kafka_bootstrap).records(f"{topics}-{table}")
        return Counter(json.loads(value or b"")["id"] for _, value in found)

    connector = PostgresSourceConnector()
    connector.start(config)
    (task,) = connector.task_configs(1)
    connector.stop()

    def run() -> None:
        spec = here.specs.run_spec(UnitId(f"src-{topics}", 0), TaskSpec(config, task, 1), "run", commit_scope=None)
        run_here(replace(spec, linger_ms=0, stays_warm=False))

    run()
    once: dict[str, Counter[int]] = {table: times(table) for table in ("early", "late")}
    assert once == {"early": Counter(range(ROWS)), "late": Counter((100, 101, 102))}
    before = here.read(config)
    to_ms = (BEGUN_S + 3) * 1_000
    dry = here.change(config, rewind_to_ms=to_ms, dry_run=True)[0]
    assert here.read(config) == before
    assert here.change(config, rewind_to_ms=to_ms)[0] == here.read(config) == dry
    assert {_moment(offset) for _, offset in dry} == {(to_ms - 1, 999_999_000)}
    run()
    assert times("early") - once["early"] == Counter((6, 7, 8, 9))
    assert times("late") - once["late"] == Counter((101, 102))
    assert here.read(config) == before, "and it is where it was"
    assert here.change(config, rewind_to_ms=(BEGUN_S + 3_600) * 1_000)[0] == before, "a rewind does not go forward"


def test_numbers_alone_cannot_be_rewound_to_a_time(
    kafka_bootstrap: str, tmp_database: str, tmp_topic: Callable[..., str]
) -> None:
    config: dict[str, str | None] = {
        "name": tmp_topic("src"), "connector.class": "PostgresSource", "connection.url": tmp_database,
        "mode": "incrementing", "incrementing.column.name": "id", "table.whitelist": "t", "topic.prefix": "t-",
    }  # fmt: skip
    here = bench(kafka_bootstrap, tmp_topic("offsets"))
    partition = {"protocol": "1", "table": "db.public.t"}
    here.change(config, (partition, {"incrementing": 7}))
    with pytest.raises(ConfigError, match="cannot be rewound to a time"):
        here.change(config, rewind_to_ms=5)
    assert here.read(config) == [(partition, {"incrementing": 7})]


def _moment(offset: Any) -> tuple[int, int]:
    return offset["timestamp"], offset["timestamp_nanos"]
