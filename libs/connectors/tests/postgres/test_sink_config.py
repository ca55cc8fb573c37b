"""Tests of a PostgreSQL sink's config: its meaning, refusals and warnings."""

from __future__ import annotations

from datetime import UTC

import pytest

from herdmesh.connect.errors import ConfigError
from herdmesh.connect.plugins.plugin_registry import PluginRegistry, describe
from herdmesh.connectors.postgres.sink.connector import PostgresSink
from herdmesh.connectors.postgres.sink.settings import InsertMode, PkMode, TableName, sink_settings

BASE = {"name": "orders-db", "connection.url": "jdbc:postgresql://db:5432/shop", "connection.user": "app"}


def test_defaults_are_confluents() -> None:
    found = sink_settings(BASE)
    assert (found.insert_mode, found.pk_mode, found.pk_fields) == (InsertMode.INSERT, PkMode.NONE, ())
    assert (found.deletes, found.auto_create, found.auto_evolve, found.folds_case) == (False, False, False, False)
    assert (found.zone, found.retries_max) == (UTC, None)
    assert found.table_of("orders") == TableName("", "orders")
    assert found.ledger == TableName("", "herdmesh_ledger")


def test_a_config_of_the_java_connector_is_accepted_unchanged() -> None:
    config = {
        **BASE, "connector.class": "io.confluent.connect.jdbc.JdbcSinkConnector", "insert.mode": "UPSERT",
        "pk.mode": "record_key", "pk.fields": "id, region", "delete.enabled": "true", "auto.create": "true",
        "table.name.format": "Shop.${topic}_copy", "fields.whitelist": "a,b", "max.retries": "3",
        "quote.sql.identifiers": "NEVER", "batch.size": "500", "retry.backoff.ms": "10", "dialect.name": "x",
    }  # fmt: skip
    assert PostgresSink().validate(config) == []
    found = sink_settings(config)
    assert (found.insert_mode, found.pk_fields, found.whitelist) == (InsertMode.UPSERT, ("id", "region"), {"a", "b"})
    assert (found.retries_max, found.table_of("Orders").sql) == (3, '"shop"."orders_copy"')
    warned = [warning.field for warning in PostgresSink().warnings(config)]
    assert warned == ["batch.size", "retry.backoff.ms", "dialect.name"]
    connector = PostgresSink()
    connector.start(config)
    assert connector.task_configs(2) == [config, config]
    registry = PluginRegistry([describe(PostgresSink)])
    assert registry.find(config["connector.class"]).connector is registry.find("PostgresSink").connector


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"delete.enabled": "true"}, "delete.enabled"),
        ({"insert.mode": "upsert"}, "pk.mode"),
        ({"insert.mode": "update"}, "pk.mode"),
        ({"insert.mode": "merge"}, "insert.mode"),
        ({"pk.mode": "kafka", "pk.fields": "a,b"}, "pk.fields"),
        ({"db.timezone": "Middle/Earth"}, "db.timezone"),
        ({"quote.sql.identifiers": "sometimes"}, "quote.sql.identifiers"),
        ({"herdmesh.ledger.table": "a.b.c"}, "herdmesh.ledger.table"),
        ({"max.retries": "-1"}, "max.retries"),
        ({"connection.url": "jdbc:mysql://db/shop"}, "connection.url"),
        ({"sql.quote.identifiers": "sometimes"}, "sql.quote.identifiers"),
        # Java's keys that would write other rows, or to other tables
        ({"table.name.normalize": "true"}, "table.name.normalize"),
        ({"topics.to.tables.mapping": "orders:shop"}, "topics.to.tables.mapping"),
        ({"handle.tombstone": "true"}, "handle.tombstone"),
        ({"replace.null.with.default": "false"}, "replace.null.with.default"),
    ],
)
def test_invalid_settings_are_refused_by_their_field(changes: dict[str, str], field: str) -> None:
    with pytest.raises(ConfigError) as refused:
        PostgresSink().start({**BASE, **changes})
    assert refused.value.field == field
    assert field in [problem.field for problem in PostgresSink().validate({**BASE, **changes})]


def test_confluents_class_name_suggests_the_connector_for_another_database() -> None:
    (problem,) = PostgresSink().validate({**BASE, "connection.url": "jdbc:mysql://db/shop"})
    assert problem.field == "connection.url"
    assert "SparkSink with spark.format=jdbc" in problem.fix


def test_a_config_of_aivens_connector_is_accepted_unchanged() -> None:
    config = {
        **BASE, "connector.class": "io.aiven.connect.jdbc.JdbcSinkConnector", "insert.mode": "multi",
        "sql.quote.identifiers": "false", "table.name.normalize": "false", "handle.tombstone": "",
        "replace.null.with.default": "TRUE", "topics": "Orders",
    }  # fmt: skip
    assert PostgresSink().validate(config) == []
    assert PostgresSink().warnings(config) == []
    found = sink_settings(config)
    assert (found.insert_mode, found.table_of("Orders").sql) == (InsertMode.INSERT, '"orders"')
    assert not sink_settings({**BASE, "sql.quote.identifiers": "true"}).folds_case
    assert not sink_settings({**config, "quote.sql.identifiers": "always"}).folds_case
    registry = PluginRegistry([describe(PostgresSink)])
    assert registry.find(config["connector.class"]).connector is PostgresSink


def test_an_unknown_key_has_a_warning() -> None:
    of_all = {"errors.tolerance": "all", "transforms": "", "consumer.override.max.poll.records": "5"}
    (warning,) = PostgresSink().warnings({**BASE, "topics": "t", "auto.creat": "true", **of_all})
    assert (warning.field, warning.fix) == ("auto.creat", "did you mean auto.create?")


def test_kafkas_coordinates_have_their_own_column_names() -> None:
    found = sink_settings({**BASE, "pk.mode": "kafka"})
    assert found.pk_fields == ("__connect_topic", "__connect_partition", "__connect_offset")


@pytest.mark.parametrize("topic", ["a.b.c", "a.", ".a"])
def test_a_topic_without_a_table_name_is_refused(topic: str) -> None:
    assert sink_settings(BASE).table_of("a.b") == TableName("a", "b")
    with pytest.raises(ConfigError, match=r"table\.name\.format"):
        sink_settings(BASE).table_of(topic)


@pytest.mark.parametrize(
    ("format", "topic", "table"),
    [
        ('"${topic}"', "shop.orders.v1", TableName("", "shop.orders.v1")),
        ('"My.Schema"."T"', "orders", TableName("My.Schema", "T")),
        ('shop."${topic}"', "a.b", TableName("shop", "a.b")),
        ('"say ""hi"""', "orders", TableName("", 'say "hi"')),
        ("${topic}", 'a"b.c"d', TableName('a"b', 'c"d')),
    ],
)
def test_a_part_of_a_table_name_may_be_quoted_as_in_java(format: str, topic: str, table: TableName) -> None:
    assert sink_settings({**BASE, "table.name.format": format}).table_of(topic) == table


@pytest.mark.parametrize("format", ['"${topic}', '"a"b', '"a".', 'a."b".c', '""', "a.b.c", "a."])
def test_a_name_with_other_dots_is_refused(format: str) -> None:
    with pytest.raises(ConfigError, match="is not a table name") as refused:
        sink_settings({**BASE, "table.name.format": format}).table_of("orders")
    assert refused.value.field == "table.name.format"
    assert "double quotes" in refused.value.fix
