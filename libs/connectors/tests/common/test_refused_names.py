"""Tests of names that Kafka or PostgreSQL cannot have: they
are refused at creation, by their key, with the reason.
"""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from herdmesh.connect.config_providers.resolver import ConfigProviders
from herdmesh.connect.plugins.plugin_registry import PluginRegistry, describe
from herdmesh.connect.spi.connector import Connector
from herdmesh.connectors.file_stream.sink.connector import FileStreamSink
from herdmesh.connectors.file_stream.source.connector import FileStreamSource
from herdmesh.connectors.postgres.cdc.connector import PostgresCdcSource
from herdmesh.connectors.postgres.sink.connector import PostgresSink
from herdmesh.connectors.postgres.source.connector import PostgresSourceConnector
from herdmesh.worker.effects.plugins import validation
from herdmesh.worker.settings import WorkerSettings

_CLASSES: tuple[type[Connector], ...] = (
    FileStreamSink, FileStreamSource, PostgresCdcSource, PostgresSink, PostgresSourceConnector,
)  # fmt: skip
_REGISTRY = PluginRegistry(map(describe, _CLASSES))
_WORKER = WorkerSettings().worker_config()
_URL = {"connection.url": "jdbc:postgresql://h/d", "connection.user": "u"}
_CDC = {"database.hostname": "h", "database.user": "u", "database.dbname": "d", "topic.prefix": "p"}
_FILE_SINK = {"topics": "t", "file": "f"}
_FILE_SOURCE = {"topic": "t", "file": "f"}
_READ = {**_URL, "topic.prefix": "p", "mode": "timestamp+incrementing"}
_LONG, _WIDE = "n" * 64, "ü" * 32
"""64 bytes each."""


def errors(connector: type[Connector], config: Mapping[str, str | None]) -> dict[str, str]:
    full = {"name": "v", "connector.class": connector.class_name, **config}
    result = validation.validate(full, _REGISTRY, _WORKER, ConfigProviders.of(_WORKER))
    return {one.name: " ".join([*one.errors, *one.fixes]) for one in result.fields if one.errors}


@pytest.mark.parametrize(
    "name", ["a/b", "a%2f", "..", "ü", "e\u0301", "\U0001f600", "\u05d0", "a b", "a'\"", "t" * 250]
)
@pytest.mark.parametrize(
    ("connector", "base", "key"),
    [
        (FileStreamSink, _FILE_SINK, "topics"),
        (FileStreamSink, _FILE_SINK, "errors.deadletterqueue.topic.name"),
        (FileStreamSource, _FILE_SOURCE, "topic"),
        (FileStreamSource, _FILE_SOURCE, "offsets.storage.topic"),
    ],
)
def test_an_invalid_topic_name_is_refused_by_its_key(
    connector: type[Connector], base: dict[str, str | None], key: str, name: str
) -> None:
    found = errors(connector, {**base, key: name})
    assert list(found) == [key]
    assert "topic name" in found[key]
    assert errors(connector, {**base, key: "t" * 249}) == {}


@pytest.mark.parametrize("name", [_LONG, _WIDE], ids=["letters", "umlauts"])
@pytest.mark.parametrize(
    ("connector", "base", "key"),
    [
        (PostgresCdcSource, _CDC, "slot.name"),
        (PostgresCdcSource, _CDC, "publication.name"),
        (PostgresSink, {**_URL, "topics": "t"}, "table.name.format"),
        (PostgresSink, {**_URL, "topics": "t"}, "herdmesh.ledger.table"),
        (PostgresSink, {**_URL, "topics": "t", "pk.mode": "record_key"}, "pk.fields"),
        (PostgresSourceConnector, {**_READ, "timestamp.column.name": "t"}, "incrementing.column.name"),
        (PostgresSourceConnector, {**_READ, "incrementing.column.name": "t"}, "timestamp.column.name"),
    ],
)
def test_a_name_that_postgresql_would_truncate_is_refused_with_its_bytes(
    connector: type[Connector], base: dict[str, str | None], key: str, name: str
) -> None:
    found = errors(connector, {**base, key: name})
    assert list(found) == [key]
    assert "it has 64 bytes, and PostgreSQL's names have at most 63" in found[key]
    if key != "slot.name":
        assert errors(connector, {**base, key: "ü" * 31 + "n"}) == {}


def test_a_table_named_by_a_topic_is_refused_unless_a_transformation_may_rename_it() -> None:
    found = errors(PostgresSink, {**_URL, "topics": f"t, {_LONG}"})
    assert list(found) == ["table.name.format"]
    assert "64 bytes" in found["table.name.format"]
    route = {
        "transforms": "r", "transforms.r.type": "org.apache.kafka.connect.transforms.RegexRouter",
        "transforms.r.regex": "n+", "transforms.r.replacement": "n",
    }  # fmt: skip
    assert errors(PostgresSink, {**_URL, "topics": f"t,{_LONG}", **route}) == {}
