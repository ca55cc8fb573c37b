"""Tests of the CDC source through the record loop to a real broker:
a reader of committed records counts them after kills and freezes.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from herdmesh.connectors.postgres.cdc.connector import PostgresCdcSource
from herdmesh.engine import RunEnd, RunSpec, TaskKind
from libs.connectors.tests.postgres.cdc_driving import Database
from libs.core.tests.engine.harness import Kafka, make_spec, processes, run_here

_JSON = "org.apache.kafka.connect.json.JsonConverter"
ROWS = 40
CHANGES = 30


@pytest.fixture(scope="module")
def broker(kafka_bootstrap: str) -> Kafka:
    return Kafka(kafka_bootstrap)


@pytest.fixture
def database(tmp_database: str) -> Iterator[Database]:
    made = Database(tmp_database)
    made.run(
        "CREATE TABLE items (id int PRIMARY KEY, text text)",
        "CREATE TABLE parts (id int PRIMARY KEY)",
        f"INSERT INTO items SELECT i, 'row ' || i FROM generate_series(1, {ROWS}) i",
    )
    try:
        yield made
    finally:
        made.close()


def spec_of(broker: Kafka, name: str, config: Mapping[str, str | None]) -> RunSpec:
    """Return the run spec of the connector's task."""
    connector = PostgresCdcSource()
    full = {
        **config,
        "topic.prefix": name,
        "max.batch.size": "16",
        "key.converter": _JSON,
        "key.converter.schemas.enable": "false",
        "value.converter": _JSON,
        "value.converter.schemas.enable": "false",
    }
    assert not connector.validate(full)
    connector.start(full)
    (task,) = connector.task_configs(1)
    connector.stop()
    return make_spec(
        broker.bootstrap, name, connector.task_class(), {}, kind=TaskKind.SOURCE, connector_config=full,
        task_config=task, offset_storage_topic=f"{name}-offsets", worker_config={"offset.storage.partitions": "1"},
    )  # fmt: skip


def change(database: Database, start: int) -> None:
    """Run one transaction of both tables, mixed, large enough for many batches."""
    with database.connection.transaction():
        for number in range(start, start + CHANGES):
            database.run(f"INSERT INTO parts VALUES ({number})", f"DELETE FROM items WHERE id = {number}")


def records(broker: Kafka, topic: str) -> list[tuple[str, Any]]:
    """Return operation, or `tombstone`, and the key's id, of all committed records."""
    found: list[tuple[str, Any]] = []
    for key, value in broker.records(topic):
        assert key is not None
        found.append(("tombstone" if value is None else json.loads(value)["op"], json.loads(key)["id"]))
    return found


def check(broker: Kafka, name: str, done: int) -> None:
    """Check that every row and every change is there once."""
    numbers = range(1, done + 1)
    assert records(broker, f"{name}.public.parts") == [("c", number) for number in numbers]
    items = records(broker, f"{name}.public.items")
    assert [one for one in items if one[0] != "tombstone"] == [
        *(("r", number) for number in range(1, ROWS + 1)),
        *(("d", number) for number in numbers),
    ]
    assert [one for one in items if one[0] == "tombstone"] == [("tombstone", number) for number in numbers]


@pytest.mark.parametrize("failpoint", ["before-write", "after-write", "after-offset-commit"])
def test_a_killed_run_continues_without_loss_or_duplicates(
    broker: Kafka, database: Database, tmp_topic: Callable[..., str], tmp_path: Path, failpoint: str
) -> None:
    name = tmp_topic("app")
    spec = spec_of(broker, name, database.config())
    assert run_here(spec).reason is RunEnd.QUIET
    change(database, 1)
    with processes(tmp_path) as start:
        process = start(spec, failpoint)
        process.until_frozen()
        process.kill()
    run_here(spec)
    check(broker, name, CHANGES)


def test_a_frozen_run_is_replaced_and_changes_nothing_when_it_wakes(
    broker: Kafka, database: Database, tmp_topic: Callable[..., str], tmp_path: Path
) -> None:
    """It holds the slot while it is frozen."""
    name = tmp_topic("app")
    spec = spec_of(broker, name, database.config())
    run_here(spec)
    change(database, 1)
    with processes(tmp_path) as start:
        process = start(spec, "after-write")
        process.until_frozen()
        assert run_here(spec).progress.records_out > 0
        assert process.resume()["error_class"] == "FENCED"
    check(broker, name, CHANGES)


def test_rows_are_sent_once_during_writes_and_kills(
    broker: Kafka, database: Database, tmp_topic: Callable[..., str], tmp_path: Path
) -> None:
    """The first run is killed before it commits anything, so
    the snapshot is taken a second time, of other rows.
    """
    name = tmp_topic("app")
    spec = spec_of(broker, name, database.config(table_include_list=r"public\.parts"))
    database.run("INSERT INTO parts SELECT generate_series(1, 100)")
    with processes(tmp_path) as start:
        process = start(spec, "after-write")
        process.until_frozen()
        database.run("INSERT INTO parts SELECT generate_series(101, 200)")
        process.kill()
    for number in range(201, 204):
        run_here(spec)
        database.run(f"INSERT INTO parts VALUES ({number})")
    run_here(spec)
    counts = Counter(records(broker, f"{name}.public.parts"))
    assert counts == Counter([*(("r", number) for number in range(1, 201)), ("c", 201), ("c", 202), ("c", 203)])


def test_offsets_are_debeziums(broker: Kafka, database: Database, tmp_topic: Callable[..., str]) -> None:
    name = tmp_topic("app")
    run_here(spec_of(broker, name, database.config()))
    key, value = broker.records(f"{name}-offsets")[-1]
    assert key is not None
    assert value is not None
    assert json.loads(key) == [name, {"server": name}]
    assert json.loads(value).keys() == {"lsn_commit", "lsn", "lsn_proc"}
