"""Tests of a PostgreSQL source's config: selection of
tables, combinations of keys, warnings. Without a server.
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from herdmesh.connect.errors import ConfigError
from herdmesh.connect.plugins.plugin_registry import describe
from herdmesh.connectors.postgres.source.catalog import TableId
from herdmesh.connectors.postgres.source.connector import PostgresSourceConnector, dealt
from herdmesh.connectors.postgres.source.settings import settings_of, warnings_of
from herdmesh.connectors.postgres.source.task import tables_of, tables_text
from herdmesh.connectors.postgres.types import NumericMapping

BASE = {"connection.url": "jdbc:postgresql://h/db?user=u", "mode": "bulk", "topic.prefix": "p-"}
NAMES = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1, max_size=8)
TABLES = st.lists(st.builds(TableId, NAMES, NAMES, NAMES), unique=True, max_size=30)
ORDERS = TableId("db", "public", "orders")


@pytest.mark.parametrize(
    ("lists", "chosen"),
    [
        ({}, True),
        ({"table.whitelist": "orders"}, True),
        ({"table.whitelist": "a, public.orders"}, True),
        ({"table.whitelist": "db.public.orders"}, True),
        ({"table.whitelist": '"db"."public"."orders"'}, True),
        ({"table.whitelist": "other.orders"}, False),
        ({"table.whitelist": "order"}, False),
        ({"table.blacklist": "orders"}, False),
        ({"table.blacklist": "other"}, True),
        ({"table.include.list": r"db\.public\..*"}, True),
        ({"table.include.list": "orders"}, False),  # the whole name
        ({"table.include.list": ".*", "table.exclude.list": ".*orders"}, False),
    ],
)
def test_selection_of_tables(lists: dict[str, str], chosen: bool) -> None:
    assert settings_of({**BASE, **lists}).tables.has(ORDERS) is chosen


@pytest.mark.parametrize(
    ("more", "field"),
    [
        ({"mode": "odd"}, "mode"),
        ({"mode": "timestamp"}, "timestamp.column.name"),
        ({"mode": "timestamp+incrementing", "incrementing.column.name": "id"}, "timestamp.column.name"),
        ({"mode": "incrementing", "query": "SELECT 1"}, "incrementing.column.name"),
        ({"query": "SELECT 1", "table.whitelist": "t"}, "query"),
        ({"table.whitelist": "t", "table.blacklist": "u"}, "table.whitelist"),
        ({"table.include.list": "("}, "table.include.list"),
        ({"table.types": "SEQUENCE"}, "table.types"),
        ({"db.timezone": "Mars/Olympus"}, "db.timezone"),
        ({"numeric.mapping": "odd"}, "numeric.mapping"),
        ({"timestamp.granularity": "odd"}, "timestamp.granularity"),
        ({"poll.interval.ms": "0"}, "poll.interval.ms"),
        ({"connection.url": "jdbc:oracle:thin:@h"}, "connection.url"),
        ({"topic.prefix": ""}, "topic.prefix"),
        ({"topic.prefix": "my topics/"}, "topic.prefix"),
        ({"topic.prefix": "p" * 249}, "topic.prefix"),
        ({"topic.prefix": "..", "query": "SELECT 1"}, "topic.prefix"),
    ],
)
def test_invalid_settings_are_refused_with_their_key(more: dict[str, str], field: str) -> None:
    (error,) = PostgresSourceConnector().validate({**BASE, **more})
    assert error.field == field


def test_an_invalid_topic_prefix_is_accepted_with_transformations() -> None:
    assert not PostgresSourceConnector().validate({**BASE, "topic.prefix": "my topics/", "transforms": "rename"})
    assert not PostgresSourceConnector().validate({**BASE, "topic.prefix": "p" * 249, "query": "SELECT 1"})


def test_a_config_of_confluents_is_accepted_unchanged() -> None:
    config = {
        **BASE,
        "connector.class": "io.confluent.connect.jdbc.JdbcSourceConnector",
        "connection.password": "secret-word",
        "mode": "timestamp+incrementing",
        "incrementing.column.name": "id",
        "timestamp.column.name": "changed, made",
        "numeric.precision.mapping": "true",
        "table.types": "TABLE,view",
        "validate.non.null": "false",
        "transforms": "t",
        "transforms.t.type": "org.apache.kafka.connect.transforms.InsertField$Value",
    }
    settings = settings_of(config)
    assert settings.timestamps == ("changed", "made")
    assert settings.types.numeric is NumericMapping.PRECISION_ONLY
    assert settings.tables.types == ("TABLE", "VIEW")
    assert settings.has_sign
    assert not warnings_of(config)
    assert "secret-word" not in repr(settings)
    assert config["connector.class"] == describe(PostgresSourceConnector).class_name


def test_a_config_of_aivens_connector_is_accepted_unchanged() -> None:
    """With its own names for the initial timestamp and the quoting of names."""
    config = {
        **BASE, "connector.class": "io.aiven.connect.jdbc.JdbcSourceConnector", "mode": "timestamp",
        "timestamp.column.name": "changed", "timestamp.initial.ms": "1700000000000", "sql.quote.identifiers": "true",
        "table.names.qualify": "true",
    }  # fmt: skip
    settings = settings_of(config)
    assert (settings.initial_us, settings.from_now) == (1_700_000_000_000_000, False)
    assert not warnings_of(config)
    assert settings_of({**config, "timestamp.initial": "5"}).initial_us == 5_000
    assert [one.field for one in warnings_of({**config, "sql.quote.identifiers": "false"})] == ["sql.quote.identifiers"]
    for wrong in ("-1", "soon"):
        (error,) = PostgresSourceConnector().validate({**config, "timestamp.initial.ms": wrong})
        assert error.field == "timestamp.initial.ms"
    assert config["connector.class"] in PostgresSourceConnector.aliases


def test_settings_without_effect_are_named() -> None:
    more = {
        "dialect.name": "OracleDatabaseDialect", "quote.sql.identifiers": "never", "query.retry.attempts": "5",
        "transaction.isolation.mode": "DEFAULT", "poll.intervall.ms": "1", "herdmesh.wait.for.writers": "true",
    }  # fmt: skip
    assert [one.field for one in warnings_of({**BASE, **more})] == [
        "dialect.name", "quote.sql.identifiers", "query.retry.attempts", "poll.intervall.ms",
        "herdmesh.wait.for.writers",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("more", "exactly_once", "has_sign"),
    [
        ({}, False, False),
        ({"mode": "incrementing"}, True, False),  # only the server knows the column
        ({"mode": "incrementing", "incrementing.column.name": "id"}, True, True),
        ({"mode": "timestamp", "timestamp.column.name": "t"}, True, True),
        ({"mode": "incrementing", "incrementing.column.name": "id", "query": "SELECT 1 AS id"}, True, False),
        ({"mode": "odd"}, None, None),
    ],
)
def test_exactly_once_and_sign_by_mode(more: dict[str, str], exactly_once: bool | None, has_sign: bool | None) -> None:
    assert PostgresSourceConnector().exactly_once_support({**BASE, **more}) is exactly_once
    if has_sign is not None:
        assert settings_of({**BASE, **more}).has_sign is has_sign


@given(TABLES, st.integers(1, 12))
def test_every_table_has_one_task_and_tasks_are_even(found: list[TableId], tasks_max: int) -> None:
    groups = dealt(found, tasks_max)
    assert [table for group in groups for table in group] == found
    sizes = [len(group) for group in groups]
    assert len(groups) == min(tasks_max, len(found))
    assert not sizes or max(sizes) - min(sizes) <= 1 <= min(sizes)


@given(TABLES)
def test_tables_in_a_task_config_round_trip(found: list[TableId]) -> None:
    assert tables_of({"tables": tables_text(found)}) == found


@pytest.mark.parametrize("text", ["", "orders", '["orders"]', "[[1]]"])
def test_a_task_config_without_tables_is_refused(text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        tables_of({"tables": text})
    assert caught.value.field == "tables"
