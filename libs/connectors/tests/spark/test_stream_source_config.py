"""Tests of configs that `SparkStreamSource` refuses before
it starts, and of accepted offsets. Needs no Spark.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from herdmesh.connect.errors import ConfigError
from herdmesh.connectors.spark.stream_source.connector import SparkStreamSource
from herdmesh.connectors.spark.stream_source.position import Position
from herdmesh.connectors.spark.stream_source.settings import settings_of

KAFKA = {"format": "kafka"}


def config(**more: str | None) -> dict[str, str | None]:
    """Return a valid config; names of options have no prefix, and `_` for dots."""
    full: dict[str, str | None] = {
        "spark.format": "kafka", "topic": "t", "spark.option.kafka.bootstrap.servers": "b:9092",
        "spark.option.subscribe": "from", **more,
    }  # fmt: skip
    return {name: value for name, value in full.items() if value is not None}


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("spark.format", "parquet"),
        ("spark.format", "delta"),
        ("spark.format", "rate"),
        ("spark.format", "socket"),
        ("spark.format", "com.example.unheard-of"),
        ("spark.option.kafka.bootstrap.servers", None),
        ("spark.option.subscribe", None),
        ("spark.option.minpartitions", "7"),
        ("spark.sql.session.timeZone", "CET"),
        ("spark.memory", "much"),
    ],
)
def test_invalid_configs_are_refused_by_field(field: str, value: str | None) -> None:
    with pytest.raises(ConfigError) as failed:
        settings_of(config(**{field: value}))
    assert failed.value.field == field
    assert failed.value.fix


def test_a_format_without_positions_is_refused_with_a_reason_and_an_alternative() -> None:
    (problem,) = SparkStreamSource().validate(config(**{"spark.format": "jdbc"}))
    assert "SparkJdbcSource" in problem.fix
    (problem,) = SparkStreamSource().validate(config(**{"spark.format": "json"}))
    assert "checkpoint" in str(problem)


def test_options_reach_spark_unchanged_and_no_text_shows_passwords() -> None:
    secret = {"spark.option.kafka.sasl.jaas.config": "hunter22", "spark.option.maxoffsetspertrigger": "9"}
    settings = settings_of(config(**secret))
    assert settings.options == {
        "kafka.bootstrap.servers": "b:9092", "subscribe": "from", "kafka.sasl.jaas.config": "hunter22",
        "maxoffsetspertrigger": "9",
    }  # fmt: skip
    assert "hunter22" not in repr(settings)


def test_keys_without_effect_have_warnings() -> None:
    assert [one.field for one in SparkStreamSource().warnings(config(topics="t"))] == ["topics"]


def test_a_stream_has_one_task() -> None:
    connector = SparkStreamSource()
    connector.start(config())
    assert connector.task_configs(9) == [config()]
    assert connector.exactly_once_support(config()) is True


@pytest.mark.parametrize("position", [Position('{"a":{"0":7}}'), Position('{"offset":1}', '{"offset":9}', 3)])
def test_a_stored_position_round_trips(position: Position) -> None:
    assert Position.of(position.offset()) == position
    assert SparkStreamSource().alter_offsets(config(), [(KAFKA, position.offset()), (KAFKA, None)])


@pytest.mark.parametrize(
    ("partition", "offset"),
    [
        (None, {"position": "{}"}),
        ({"format": "iceberg"}, {"position": "{}"}),
        (KAFKA, {}),
        (KAFKA, {"position": 7}),
        (KAFKA, {"position": "7"}),
        (KAFKA, {"position": "{"}),
        (KAFKA, {"position": "{}", "rows": 7}),
        (KAFKA, {"position": "{}", "end": "{}"}),
        (KAFKA, {"position": "{}", "end": "{}", "rows": -1}),
        (KAFKA, {"position": "{}", "end": "{}", "rows": True}),
    ],
)
def test_offsets_of_other_connectors_are_refused(
    partition: Mapping[str, Any] | None, offset: Mapping[str, Any]
) -> None:
    with pytest.raises(ConfigError):
        SparkStreamSource().alter_offsets(config(), [(partition, offset)])
