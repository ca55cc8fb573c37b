"""Tests of the PostgreSQL source through the engine, with a
real server and a real broker: exactly once after kills.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from herdmesh.connect.plugins.plugin_registry import PluginRegistry, describe
from herdmesh.connectors.postgres.source.connector import PostgresSourceConnector
from herdmesh.engine import RunSpec, TaskKind
from libs.connectors.tests.postgres.reading import config_of, task_configs
from libs.core.tests.engine.harness import JSON_VALUES, Kafka, make_spec, processes, run_here

ROWS = 2_000


@pytest.fixture(scope="module")
def broker(kafka_bootstrap: str) -> Kafka:
    return Kafka(kafka_bootstrap)


@pytest.fixture
def admin(tmp_database: str) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(tmp_database, autocommit=True) as connection:
        connection.execute("""
            CREATE TABLE payments (
                id bigserial PRIMARY KEY, payer text NOT NULL, amount numeric(9, 2) NOT NULL,
                changed timestamptz NOT NULL DEFAULT clock_timestamp())
        """)
        yield connection


def pay(connection: psycopg.Connection[Any], count: int) -> None:
    connection.execute(
        "INSERT INTO payments (payer, amount) SELECT 'p' || g, g / 100.0 FROM generate_series(1, %s) g", (count,)
    )


def spec_of(broker: Kafka, name: str, config: dict[str, str]) -> RunSpec:
    """Return the run spec of the connector's task, by the Java class name."""
    plugin = PluginRegistry([describe(PostgresSourceConnector)]).find(config["connector.class"])
    assert (plugin.connector, TaskKind(plugin.kind)) == (PostgresSourceConnector, TaskKind.SOURCE)
    (task,) = task_configs({**config, "name": name, **JSON_VALUES})
    return make_spec(
        broker.bootstrap, name, plugin.load().task_class(), {}, kind=TaskKind.SOURCE, connector_config=dict(config),
        task_config=dict(task), offset_storage_topic=f"{name}-offsets", worker_config={
            "offset.storage.partitions": "1", **JSON_VALUES,
        },
    )  # fmt: skip


@pytest.mark.parametrize("failpoint", ["before-write", "after-write", "after-offset-commit"])
def test_a_killed_run_continues_without_loss_or_duplicates(
    broker: Kafka,
    admin: psycopg.Connection[Any],
    tmp_database: str,
    tmp_topic: Callable[..., str],
    tmp_path: Path,
    failpoint: str,
) -> None:
    name, prefix = tmp_topic("source"), tmp_topic("from-")
    topic = broker.create_topic(f"{prefix}payments", 2)
    pay(admin, ROWS)
    config = config_of(
        tmp_database, mode="timestamp+incrementing", incrementing__column__name="id", timestamp__column__name="changed",
        topic__prefix=prefix, batch__max__rows="100", herdmesh__key__columns="id",
    )  # fmt: skip
    spec = spec_of(broker, name, config)
    with processes(tmp_path) as start:
        process = start(spec, failpoint)
        process.until_frozen()
        process.kill()
    pay(admin, ROWS)
    run_here(spec)
    found = [json.loads(value or b"") for _, value in broker.records(topic, 2)]
    assert sorted(row["id"] for row in found) == [*range(1, 2 * ROWS + 1)]
    assert {row["payer"] for row in found} == {f"p{number}" for number in range(1, ROWS + 1)}


def test_a_source_continues_from_confluents_offsets_and_stores_them(
    broker: Kafka, admin: psycopg.Connection[Any], tmp_database: str, tmp_topic: Callable[..., str]
) -> None:
    """The offset of Java's JdbcSourceTask (with a HashMap's order) names the last row."""
    name, prefix = tmp_topic("source"), tmp_topic("from-")
    topic = broker.create_topic(f"{prefix}payments", 1)
    pay(admin, 20)
    broker.create_topic(f"{name}-offsets", 1, **{"cleanup.policy": "compact"})
    key = f'["{name}",{{"protocol":"1","table":"{admin.info.dbname}.public.payments"}}]'.encode()
    broker.produce(f"{name}-offsets", [b'{"incrementing":11}'], key=key, partition=0)
    config = config_of(
        tmp_database, mode="incrementing", incrementing__column__name="id", topic__prefix=prefix,
        numeric__mapping="best_fit",
    )  # fmt: skip
    assert run_here(spec_of(broker, name, config)).progress.records_in == 9
    found = [json.loads(value or b"") for _, value in broker.records(topic)]
    assert [(one["id"], one["payer"], one["amount"]) for one in found] == [
        (number, f"p{number}", number / 100) for number in range(12, 21)
    ]
    assert broker.records(f"{name}-offsets") == [(key, b'{"incrementing":11}'), (key, b'{"incrementing":20}')]
