"""Tests of `Datagen`: its config, the schedule of records, and continuing after a kill."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from herdmesh.connect.errors import ConfigError
from herdmesh.connect.plugins.plugin_registry import PluginRegistry, describe
from herdmesh.connect.spi.connector import SourceTaskContext
from herdmesh.connectors.datagen.connector import Datagen
from herdmesh.connectors.datagen.settings import seed_of, settings_of
from herdmesh.connectors.datagen.task import DatagenTask, Pace
from herdmesh.engine import RunEnd, RunSpec, TaskKind
from libs.core.tests.engine.harness import Kafka, make_spec, processes, run_here

JAVA = "io.confluent.kafka.connect.datagen.DatagenConnector"
SCHEMA = '{"type":"record","name":"r","fields":[{"name":"id","type":"long"},{"name":"name","type":"string"}]}'
BASE = {"kafka.topic": "t", "quickstart": "users"}


@pytest.mark.parametrize(
    ("config", "field"),
    [
        ({"quickstart": "users"}, "kafka.topic"),
        ({"kafka.topic": "t"}, "schema.string"),
        ({**BASE, "schema.string": SCHEMA}, "quickstart"),
        ({"kafka.topic": "t", "quickstart": "inventory"}, "quickstart"),
        ({"kafka.topic": "t", "schema.string": "{}"}, "schema.string"),
        ({"kafka.topic": "t", "schema.filename": "/nowhere/at/all"}, "schema.filename"),
        ({"kafka.topic": "t", "schema.string": SCHEMA, "schema.keyfield": "key"}, "schema.keyfield"),
        ({**BASE, "max.interval": "-1"}, "max.interval"),
        ({**BASE, "kafka.topic": "a b"}, "kafka.topic"),
        ({**BASE, "random.seed": "x"}, "random.seed"),
    ],
)
def test_invalid_configs_are_refused_by_key(config: dict[str, str], field: str) -> None:
    connector = Datagen()
    problems = connector.validate(config)
    assert [problem.field for problem in problems] == [field]


def test_confluents_class_name_and_a_schema_file_are_accepted(tmp_path: Path) -> None:
    file = tmp_path / "schema.avsc"
    file.write_text(SCHEMA)
    connector = PluginRegistry([describe(Datagen)]).find(JAVA).load()
    config = {"kafka.topic": "t", "schema.filename": str(file), "schema.keyfield": "id", "generate.timeout": "5"}
    assert list(connector.validate(config)) == []
    assert [warning.field for warning in connector.warnings(config)] == ["generate.timeout"]
    misspelt = {"max.intervall": "0", "topic.creation.default.partitions": "2", "exactly.once.support": "required"}
    assert [one.field for one in connector.warnings({**BASE, "name": "d", **misspelt})] == ["max.intervall"]
    connector.start(config)
    assert [one["task.id"] for one in connector.task_configs(3)] == ["0", "1", "2"]


def test_altered_offsets_are_validated() -> None:
    partition = {"task.id": 0}
    assert Datagen().alter_offsets(BASE, [(partition, None), (partition, {"current.iteration": 7})])
    wrong: list[tuple[dict[str, Any] | None, dict[str, Any] | None]] = [
        (None, None), ({"task": 0}, None), (partition, {}), (partition, {"current.iteration": "7"}),
    ]  # fmt: skip
    for bad in wrong:
        with pytest.raises(ConfigError):
            Datagen().alter_offsets(BASE, [bad])


def test_the_seed_is_configured_or_derived_from_the_name() -> None:
    unset = settings_of(BASE)
    assert seed_of(unset, "one") == seed_of(unset, "one") != seed_of(unset, "two")
    assert seed_of(settings_of({**BASE, "random.seed": "-5"}), "one") == -5


def test_records_are_due_half_an_interval_apart_on_average() -> None:
    pace, now_s, made = Pace(100, 7), 1_000.0, 0
    assert pace.due(0, 10, now_s) == 1, "the first at once"
    made = 1
    while made < 4_000:
        now_s += pace.wait_s(now_s) + 1e-6
        count = pace.due(made, 5_000, now_s)
        assert count >= 1
        made += count
    assert 0.045 < (now_s - 1_000.0) / made < 0.055
    assert pace.due(made, 5_000, now_s) == 0
    late = pace.due(made, 5_000, now_s + 3_600)
    assert 10 <= late <= 40, "an hour that was missed is not made up for"
    assert Pace(0, 7).due(0, 5_000, now_s) == 5_000


def task_of(config: dict[str, str], offset: dict[str, Any] | None = None, poll_max: int = 10_000) -> DatagenTask:
    task = DatagenTask()
    task.start(
        {**config, "task.id": "0"},
        SourceTaskContext("gen", 0, 1, "run", lambda _partition: offset, poll_records_max=lambda: poll_max),
    )
    return task


def test_a_task_ends_after_its_iterations_with_a_long_wake_time() -> None:
    task = task_of({**BASE, "max.interval": "0", "iterations": "7"}, {"current.iteration": 3}, poll_max=3)
    batches = [task.poll(), task.poll()]
    assert [(len(one), one.source_offset) for one in batches if one is not None] == [
        (3, {"current.iteration": 6, "random.seed": seed_of(settings_of(BASE), "gen"), "task.generation": 1}),
        (1, {"current.iteration": 7, "random.seed": seed_of(settings_of(BASE), "gen"), "task.generation": 1}),
    ]
    assert task.poll() is None
    assert task.wake_after_ms() > 3_600_000


def test_a_task_continues_from_javas_offset() -> None:
    java = {"task.generation": 4, "current.iteration": 1_000, "random.seed": -123}
    batch = task_of({**BASE, "max.interval": "0"}, java, poll_max=1).poll()
    assert batch is not None
    assert batch.source_offset is not None
    assert batch.source_offset["current.iteration"] == 1_001
    assert batch.source_offset["task.generation"] == 5
    with pytest.raises(ConfigError, match=r"current\.iteration"):
        task_of(BASE, {"current.iteration": "x"})


# --- with a broker


@pytest.fixture(scope="module")
def broker(kafka_bootstrap: str) -> Kafka:
    return Kafka(kafka_bootstrap)


def specs(broker: Kafka, name: str, topic: str, more: dict[str, str], *, tasks: int = 1) -> list[RunSpec]:
    """Return the run specs of the connector's tasks."""
    config = {"kafka.topic": topic, "quickstart": "orders", "max.interval": "0", "iterations": "12000", **more}
    connector = Datagen()
    assert not connector.validate(config)
    connector.start(config)
    return [
        make_spec(
            broker.bootstrap, name, connector.task_class(), config, kind=TaskKind.SOURCE, task_config=task,
            task=number, task_count=tasks, offset_storage_topic=f"{name}-offsets",
            worker_config={"offset.storage.partitions": "1"},
        )
        for number, task in enumerate(connector.task_configs(tasks))
    ]  # fmt: skip


def by_number(broker: Kafka, topic: str) -> list[tuple[bytes | None, Any]]:
    found = [(key, json.loads(value or b"")) for key, value in broker.records(topic)]
    return sorted(found, key=lambda one: one[1]["orderid"])


@pytest.mark.kafka
def test_a_killed_run_continues_with_the_same_records_as_an_uninterrupted_one(
    broker: Kafka, tmp_topic: Callable[..., str], tmp_path: Path
) -> None:
    calm, rough = broker.create_topic(tmp_topic("calm"), 1), broker.create_topic(tmp_topic("rough"), 1)
    (spec,) = specs(broker, tmp_topic("calm"), calm, {"random.seed": "5"})
    outcome = run_here(spec)
    assert (outcome.reason, outcome.progress.records_out) == (RunEnd.QUIET, 12_000)
    assert outcome.wake_after_ms > 3_600_000
    expected = by_number(broker, calm)
    assert [one["orderid"] for _, one in expected] == list(range(12_000))
    assert expected[17][0] == b"17"

    (spec,) = specs(broker, tmp_topic("rough"), rough, {"random.seed": "5"})
    for point in ("after-write", "after-offset-commit"):
        folder = tmp_path / point
        folder.mkdir()
        with processes(folder) as start:
            process = start(spec, point)
            process.until_frozen()
            process.kill()
    run_here(spec)
    assert by_number(broker, rough) == expected
    assert run_here(spec).progress.records_out == 0


@pytest.mark.kafka
def test_tasks_share_a_topic_without_equal_records(broker: Kafka, tmp_topic: Callable[..., str]) -> None:
    topic = broker.create_topic(tmp_topic(), 1)
    name = tmp_topic("gen")
    for spec in specs(broker, name, topic, {"quickstart": "stock_trades", "iterations": "500"}, tasks=2):
        run_here(spec)
    records = broker.records(topic)
    assert len(records) == 1_000
    assert len({value for _, value in records}) > 990
    keys = [json.loads(key or b"") for key, _ in broker.records(f"{name}-offsets", 1)]
    assert [name, {"task.id": 1}] in keys
