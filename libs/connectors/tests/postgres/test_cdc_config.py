"""Tests of a CDC source's config: its meaning, refusals and warnings."""

from __future__ import annotations

from typing import Any

import pytest

from herdmesh.connect.errors import ConfigError
from herdmesh.connect.plugins.plugin_registry import describe
from herdmesh.connectors.postgres.cdc.connector import PostgresCdcSource
from herdmesh.connectors.postgres.cdc.settings import SnapshotMode, warnings_of
from herdmesh.connectors.postgres.cdc.tables import check_topics
from herdmesh.connectors.postgres.connection import quoted
from libs.connectors.tests.postgres import replicated
from libs.connectors.tests.postgres.replicated import CONFIG

JAVA = {
    **CONFIG,
    "tasks.max": "1",
    "database.port": "5433",
    "database.password": "secret",
    "plugin.name": "pgoutput",
    "slot.name": "s",
    "publication.name": "p",
    "publication.autocreate.mode": "filtered",
    "table.include.list": "public.a.*, inventory.orders",
    "snapshot.mode": "never",
    "tombstones.on.delete": "false",
    "heartbeat.interval.ms": "5000",
    "decimal.handling.mode": "string",
    "time.precision.mode": "connect",
    "slot.drop.on.stop": "true",
    "max.batch.size": "100",
    "poll.interval.ms": "100",
}


def test_debeziums_config_is_read() -> None:
    connector = PostgresCdcSource()
    assert connector.validate(JAVA) == []
    read = replicated.settings(**{name.replace(".", "_"): value for name, value in JAVA.items()})
    assert read.connection.libpq()["password"] == "secret"
    assert "secret" not in repr(read)
    assert (read.connection.place, read.slot, read.publication) == ("127.0.0.1:5433/postgres", "s", "p")
    assert (read.snapshot, read.tombstones, read.drops_slot) == (SnapshotMode.NEVER, False, True)
    assert (read.heartbeat_s, read.heartbeat_topic) == (5.0, "__debezium-heartbeat.app")
    assert (read.modes.decimals, read.modes.times, read.batch_changes) == ("string", "connect", 100)
    assert read.topic("public", "a") == "app.public.a"
    assert [read.tables.has("public", name) for name in ("a", "AB", "b")] == [True, True, False]
    assert [read.tables.has("inventory", name) for name in ("orders", "orders2")] == [True, False]
    assert connector.exactly_once_support(JAVA) is False
    assert connector.exactly_once_support(CONFIG) is True
    assert connector.exactly_once_support({}) is None


def test_the_session_prints_the_expected_text_forms() -> None:
    options = replicated.settings().connection.libpq()["options"]
    assert "-c datestyle=ISO,\\ MDY" in options
    assert "-c intervalstyle=iso_8601" in options


def test_class_name_and_aliases() -> None:
    found = describe(PostgresCdcSource)
    assert found.class_name == "io.debezium.connector.postgresql.PostgresConnector"
    assert "PostgresConnector" in found.aliases


def test_tables_are_selected_by_schema_and_name() -> None:
    tables = replicated.settings(schema_exclude_list="audit.*", table_exclude_list=r"public\.tmp_.*").tables
    names = [("public", "a"), ("audit2", "a"), ("public", "tmp_1"), ("pg_catalog", "pg_class"),
             ("information_schema", "tables"), ("pg_toast", "pg_toast_1")]  # fmt: skip
    assert [tables.has(*name) for name in names] == [True, False, False, False, False, False]


def test_columns_are_selected() -> None:
    columns = replicated.settings(column_exclude_list="public.a.text").columns
    assert [columns.has(f"public.a.{name}") for name in ("id", "text")] == [True, False]


@pytest.mark.parametrize(
    ("more", "field"),
    [
        ({"database.hostname": None}, "database.hostname"),
        ({"topic.prefix": ""}, "topic.prefix"),
        ({"plugin.name": "decoderbufs"}, "plugin.name"),
        ({"slot.name": "My-Slot"}, "slot.name"),
        ({"snapshot.mode": "custom"}, "snapshot.mode"),
        ({"publication.autocreate.mode": "no_tables"}, "publication.autocreate.mode"),
        ({"table.include.list": "a(b"}, "table.include.list"),
        ({"table.include.list": "a", "table.exclude.list": "b"}, "table.exclude.list"),
        ({"skipped.operations": "x"}, "skipped.operations"),
        ({"max.batch.size": "0"}, "max.batch.size"),
        ({"database.sslmode": "maybe"}, "database.sslmode"),
        ({"provide.transaction.metadata": "true"}, "provide.transaction.metadata"),
        ({"message.key.columns": "public.a:id"}, "message.key.columns"),
        ({"column.mask.with.5.chars": "public.a.text"}, "column.mask.with.5.chars"),
        ({"schema.name.adjustment.mode": "avro"}, "schema.name.adjustment.mode"),
    ],
)
def test_invalid_settings_are_refused_with_their_key(more: dict[str, str | None], field: str) -> None:
    config = {name: value for name, value in {**CONFIG, **more}.items() if value is not None}
    (error,) = PostgresCdcSource().validate(config)
    assert error.field == field
    assert field in str(error)


def test_keys_without_an_effect_are_named() -> None:
    found = {one.field: one.message for one in warnings_of({**JAVA, "snapshott.mode": "x", "transforms.a.b": "c"})}
    assert found.keys() == {"poll.interval.ms", "snapshott.mode"}
    assert warnings_of(CONFIG) == []


PARTITION = {"server": "app"}


@pytest.mark.parametrize(
    ("partition", "offset"),
    [(None, None), ({"server": "other"}, None), ({"file": "x"}, None), (PARTITION, {}), (PARTITION, {"lsn": "1"})],
)
def test_offsets_of_other_connectors_are_refused(
    partition: dict[str, Any] | None, offset: dict[str, Any] | None
) -> None:
    with pytest.raises(ConfigError):
        PostgresCdcSource().alter_offsets(CONFIG, [(partition, offset)])


def test_its_own_offsets_may_be_altered() -> None:
    offsets = [(PARTITION, None), (PARTITION, {"lsn_commit": 5}), (PARTITION, {"lsn": 5, "lsn_proc": 5, "txId": 1})]
    assert PostgresCdcSource().alter_offsets(CONFIG, offsets) is True


def test_there_is_one_task() -> None:
    connector = PostgresCdcSource()
    connector.start(CONFIG)
    assert connector.task_configs(5) == [CONFIG]


@pytest.mark.parametrize(
    ("one", "other", "topic"),
    [
        (("public", "my table"), ("public", "my-table"), ""),
        (("public", "my table"), ("public", "my_table"), "app.public.my_table"),
        (("public", "größe"), ("public", "gr__e"), "app.public.gr__e"),
        (("public", "größe"), ("public", "grüße"), "app.public.gr__e"),
        (("a b", "t"), ("a?b", "t"), "app.a_b.t"),
        (("a", "b.c"), ("a.b", "c"), "app.a.b.c"),
    ],
)
def test_two_tables_never_share_a_topic(one: tuple[str, str], other: tuple[str, str], topic: str) -> None:
    settings = replicated.settings()
    if not topic:
        check_topics([one, other, one], settings)
        return
    with pytest.raises(ConfigError) as refused:
        check_topics([one, ("public", "else"), other], settings)
    assert refused.value.field == "table.exclude.list"
    told = str(refused.value)
    assert told.startswith(f'tables {quoted(*one)} and {quoted(*other)} would both go to topic "{topic}": ')
