"""Tests of validation for each key of a config: it works,
or is reported as without effect, unsupported or unknown.
"""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from pydantic import SecretStr

from herdmesh.connect.config_providers.resolver import ConfigProviders
from herdmesh.connect.validation.worker_keys import NOT_READ, READ, WORKER_KEYS
from herdmesh.connectors.common.known_keys import FAMILIES, published
from herdmesh.worker.effects.plugins.plugins import discover
from herdmesh.worker.effects.plugins.validation import validate
from herdmesh.worker.settings import WorkerSettings
from libs.connectors.tests.common.published_keys.page import PAGE, TITLES, page, row
from tests.support.sizes import soak_or

_REGISTRY = discover("").registry
_PG = {"connection.url": "jdbc:postgresql://h/db", "connection.user": "u"}
_MM = "org.apache.kafka.connect.mirror."
CONFIGS: Mapping[str, dict[str, str]] = {
    "jdbc-source": {"connector.class": "PostgresSource", **_PG, "mode": "bulk", "topic.prefix": "p"},
    "jdbc-sink": {"connector.class": "PostgresSink", **_PG, "topics": "t"},
    "debezium-jdbc": {"connector.class": "PostgresSink", **_PG, "topics": "t"},
    "s3-sink": {
        "connector.class": "io.confluent.connect.s3.S3SinkConnector", "topics": "t", "s3.bucket.name": "b",
        "s3.region": "eu-west-1", "format.class": "io.confluent.connect.s3.format.json.JsonFormat",
        "storage.class": "io.confluent.connect.s3.storage.S3Storage", "flush.size": "3",
    },
    "hdfs-sink": {
        "connector.class": "io.confluent.connect.hdfs.HdfsSinkConnector", "topics": "t", "hdfs.url": "hdfs://h:1",
        "format.class": "io.confluent.connect.hdfs.json.JsonFormat", "flush.size": "3",
    },
    "debezium-postgres": {
        "connector.class": "io.debezium.connector.postgresql.PostgresConnector", "database.hostname": "h",
        "database.user": "u", "database.dbname": "d", "topic.prefix": "p",
    },
    "http-sink": {"connector.class": "HttpSink", "topics": "t", "http.url": "http://127.0.0.1:1"},
    "file-source": {"connector.class": "FileStreamSource", "topic": "t", "file": "f"},
    "file-sink": {"connector.class": "FileStreamSink", "topics": "t", "file": "f"},
    "datagen": {"connector.class": "DatagenConnector", "kafka.topic": "t", "quickstart": "users"},
    "mirror-source": {
        "connector.class": f"{_MM}MirrorSourceConnector", "source.cluster.alias": "a", "target.cluster.alias": "b",
        "source.cluster.bootstrap.servers": "h:1", "topics": "t",
    },
    "mirror-heartbeat": {
        "connector.class": f"{_MM}MirrorHeartbeatConnector", "source.cluster.alias": "a", "target.cluster.alias": "b",
    },
    "mirror-checkpoint": {
        "connector.class": f"{_MM}MirrorCheckpointConnector", "source.cluster.alias": "a", "target.cluster.alias": "b",
        "source.cluster.bootstrap.servers": "h:1", "groups": "g",
    },
}  # fmt: skip


def said(config: Mapping[str, str]) -> tuple[dict[str, str], dict[str, list[str]]]:
    """Return (warnings with their fixes, errors), by key."""
    worker = WorkerSettings().worker_config()
    found = validate({"name": "v", **config}, _REGISTRY, worker, ConfigProviders.of(worker))
    warnings = {one.name: f"{one.message} ({one.fix})" for one in found.warnings}
    assert len(warnings) == len(found.warnings), "two warnings about one key"
    return warnings, {one.name: list(one.errors) for one in found.fields if one.errors}


@pytest.mark.parametrize("name", CONFIGS)
def test_a_plain_config_has_no_warnings_or_errors(name: str) -> None:
    warnings, errors = said(CONFIGS[name])
    away = {"connection.url", "file", "store.url", "hdfs.url", "s3.bucket.name"}
    assert set(errors) <= away, "no server and no file is there"
    assert warnings == {}


def test_the_known_keys_page_matches_validation() -> None:
    """For published keys of every definition (all in the soak,
    here each tenth); validation calls none of them unknown.
    """
    written = PAGE.read_text(encoding="utf-8")
    lines = iter(written.splitlines())
    rows = {  # lines of the page, by definition and key
        (name, key): next(line for line in lines if line.startswith(f"| `{key.replace('|', '&#124;')}` |"))
        for name in TITLES
        for key in sorted(published()[name])
    }
    assert page(lambda name, key: rows[name, key]) == written, f"python -m {page.__module__}"
    for name, key in list(rows)[:: soak_or(10, 1)]:
        assert row(name, key, CONFIGS[name], said) == rows[name, key], f"python -m {page.__module__}"


@pytest.mark.parametrize("name", CONFIGS)
def test_keys_of_a_related_connector_are_not_called_unknown(name: str) -> None:
    """All of them are in one config, and each must have its own warning."""
    keys = {key for owner in FAMILIES.get(name, ()) if owner != name for key in published()[owner]}
    warnings, _ = said({**dict.fromkeys(sorted(keys), "1"), **CONFIGS[name]})
    for key in keys:
        assert "did you mean" not in warnings.get(key, ""), key
        assert "no such setting" not in warnings.get(key, ""), key


def test_each_worker_property_is_read_or_has_a_warning() -> None:
    assert NOT_READ.keys().isdisjoint(READ)
    assert NOT_READ.keys() | READ == WORKER_KEYS
    settings = WorkerSettings(worker_properties=SecretStr("rest.advertised.port=1,session.timeout.ms=5,foo.bar=1"))
    told = {one.field: f"{one.message} ({one.fix})" for one in settings.warnings()}
    assert "there is no REST server" in told["rest.advertised.port"]
    assert "set HERDMESH_SESSION_TIMEOUT_MS" in told["session.timeout.ms"]
    assert "neither Connect nor Herdmesh knows" in told["foo.bar"]


@pytest.mark.parametrize("name", CONFIGS)
def test_a_misspelt_key_is_reported_with_the_right_one(name: str) -> None:
    warnings, _ = said({**CONFIGS[name], "task.max": "1"})
    assert (
        warnings["task.max"] == "task.max has no effect: this connector has no such setting (did you mean tasks.max?)"
    )


@pytest.mark.parametrize(
    ("of", "key", "text"),
    [
        ("jdbc-source", "connection.loginTimeout", "no JDBC driver is used"),
        ("jdbc-source", "timestamp.fields.list", "a setting of the JDBC sink"),
        ("jdbc-source", "tabel.whitelist", "did you mean table.whitelist?"),
        ("jdbc-sink", "date.timezone", "not supported"),
        ("jdbc-sink", "primary.key.fields", "write pk.fields"),
        ("debezium-postgres", "database.server.name", "write topic.prefix"),
        ("debezium-postgres", "incremental.snapshot.chunk.size", "not supported"),
        ("mirror-source", "groups", "a setting of MirrorCheckpointConnector"),
        ("http-sink", "batch.seperator", "did you mean batch.separator?"),
        ("http-sink", "report.errors.as", "not supported"),
        ("mirror-source", "topics.blacklist", "write topics.exclude"),
        ("mirror-source", "groups.blacklist", "no such setting"),
        ("mirror-checkpoint", "groups.blacklist", "write groups.exclude"),
        ("mirror-source", "a->b.enabled", "the file of connect-mirror-maker"),
        ("debezium-postgres", "database.history.kafka.topic", "a history of schemas"),
        ("debezium-postgres", "schema.history.internal.kafka.topic", "a history of schemas"),
        ("debezium-postgres", "database.server.id", "connectors of other databases"),
        ("debezium-postgres", "database.hostnam", "did you mean database.hostname?"),
        ("debezium-postgres", "driver.socketTimeout", "no JDBC driver is used"),
        ("s3-sink", "schema.generator.class", "older versions"),
        ("s3-sink", "s3.credentials.provider.sts.role.arn", "no class that provides credentials"),
        ("hdfs-sink", "schemas.cache.config", "older versions"),
        ("http-sink", "ssl.enabled", "the scheme of the URL"),
        ("file-sink", "offset.flush.interval.ms", "a property of workers"),
        ("file-sink", "consumer.max.poll.records", "write consumer.override.max.poll.records"),
        ("file-sink", "flie", "did you mean file?"),
        ("file-source", "consumer.max.poll.records", "reads nothing from Kafka"),
        ("file-sink", "errors.tolerence", "did you mean errors.tolerance?"),
        ("file-sink", "herdmesh.rate.record.per.second", "did you mean herdmesh.rate.records.per.second?"),
        ("file-sink", "value.converter.schemas.enable", "set value.converter too"),
        ("file-sink", "transforms.a.type", "add a to transforms"),
        ("file-sink", "predicates.a.pattern", "add a to predicates"),
        ("file-sink", "transform", "did you mean transforms?"),
    ],
)
def test_each_unread_key_has_a_fix(of: str, key: str, text: str) -> None:
    warnings, _ = said({**CONFIGS[of], key: "1"})
    assert text in warnings[key]


def test_keys_of_converters_transformations_and_predicates_are_known_by_their_classes() -> None:
    cast, matches = "org.apache.kafka.connect.transforms.Cast$Value", "org.apache.kafka.connect.transforms.predicates."
    good = {
        "value.converter": "JsonConverter", "value.converter.schemas.enable": "false", "transforms": "a.b,c",
        "transforms.a.b.type": cast, "transforms.a.b.spec": "int8", "transforms.a.b.predicate": "p",
        "transforms.a.b.negate": "true", "transforms.c.type": cast, "transforms.c.spec": "int8", "predicates": "p",
        "predicates.p.type": f"{matches}TopicNameMatches", "predicates.p.pattern": "x",
    }  # fmt: skip
    assert said({**CONFIGS["file-sink"], **good}) == ({}, {})
    bad = {
        "value.converter.schema.enable": "value.converter.schemas.enable",
        "transforms.a.b.specs": "transforms.a.b.spec",
        "transforms.a.b.predicates": "transforms.a.b.predicate", "predicates.p.patern": "predicates.p.pattern",
        "transforms.d.type": "transforms.c.type",
    }  # fmt: skip
    warnings, _ = said({**CONFIGS["file-sink"], **good, **dict.fromkeys(bad, "1")})
    assert set(warnings) == set(bad)
    for key in bad:
        assert key == "transforms.d.type" or f"did you mean {bad[key]}?" in warnings[key]


def test_all_unsupported_and_unknown_keys_are_reported_at_once() -> None:
    not_built = {"message.key.columns": "a", "converters": "b", "heartbeat.action.query": "c", "column.mask.hash": "d"}
    warnings, errors = said({**CONFIGS["debezium-postgres"], **not_built, "slot.nam": "x", "errors.tolerence": "all"})
    assert set(errors) == set(not_built)
    assert {"slot.nam", "errors.tolerence"} <= set(warnings)
    refused = {"headers": "a:b", "regex.patterns": "x", "http.proxy.host": "h"}
    warnings, errors = said({**CONFIGS["http-sink"], **refused, "batch.seperator": ","})
    assert set(errors) == set(refused)
    assert "batch.seperator" in warnings


def test_an_empty_separator_is_accepted_with_the_identity_policy() -> None:
    """Java 4.3.1 accepts it."""
    empty = {"replication.policy.separator": ""}
    for name in ("mirror-source", "mirror-checkpoint"):
        identity = {"replication.policy.class": f"{_MM}IdentityReplicationPolicy"}
        assert said({**CONFIGS[name], **empty, **identity})[1] == {}
        assert set(said({**CONFIGS[name], **empty})[1]) == {"replication.policy.separator"}


@pytest.mark.parametrize(
    ("of", "mistakes"),
    [
        ("jdbc-source", {"mode": "increment", "poll.interval.ms": "5s", "numeric.mapping": "best-fit"}),
        ("jdbc-source", {"query.masked": "select 1"}),
        ("jdbc-sink", {"insert.mode": "upsrt", "pk.mode": "key", "auto.create": "yes", "errors.tolerance": "al"}),
        ("debezium-postgres", {"snapshot.mode": "initial-only", "slot.name": "My-Slot", "table.include.list": "p.(a"}),
        ("mirror-source", {"replication.policy.class": "x.Y", "tasks.max": "0"}),
        ("mirror-source", {"topics": "[a"}),
        ("s3-sink", {"flush.size": "many", "format.class": "JsonFormat", "storage.class": "x"}),
        ("http-sink", {"http.authorization.type": "none-such", "batching.enabled": "si"}),
        ("file-sink", {"consumer.override.max.poll.records": "x", "consumer.override.fetch.min.bytes": "y"}),
        ("file-sink", {"value.converter": "org.apache.kafka.connect.json.JsonConvertor", "tasks.max": "x"}),
    ],
)
def test_all_mistakes_are_reported_at_once_each_with_a_fix(of: str, mistakes: dict[str, str]) -> None:
    worker = WorkerSettings().worker_config()
    found = validate({"name": "v", **CONFIGS[of], **mistakes}, _REGISTRY, worker, ConfigProviders.of(worker))
    told = {one.name: list(zip(one.errors, one.fixes, strict=True)) for one in found.fields if one.errors}
    assert mistakes.keys() <= told.keys()
    assert [(name, error) for name in mistakes for error, fix in told[name] if not fix] == []


@pytest.mark.parametrize(
    ("of", "malformed", "not_built"),
    [
        ("debezium-postgres", {"snapshot.mode": "custom", "max.batch.size": "many"},
         {"heartbeat.action.query": "q", "signal.data.collection": "a.b", "converters": "c", "post.processors": "d"}),
        ("jdbc-sink", {"insert.mode": "bulk", "batch.size": "x"},
         {"table.name.normalize": "true", "handle.tombstone": "true", "topics.to.tables.mapping": "a:b"}),
        ("jdbc-source", {"mode": "zz"}, {"query.masked": "select 1"}),
        ("http-sink", {"batching.enabled": "si"}, {"headers": "a:b", "regex.patterns": "x", "http.proxy.host": "h"}),
    ],
)  # fmt: skip
def test_unsupported_keys_are_reported_beside_malformed_values(
    of: str, malformed: dict[str, str], not_built: dict[str, str]
) -> None:
    """Earlier they were reported one round later, once every value was well-formed."""
    together = said({**CONFIGS[of], **malformed, **not_built})[1]
    assert together.keys() >= {*malformed, *not_built}
    assert said({**CONFIGS[of], **not_built})[1].keys() == not_built.keys()
    assert all("not supported" in together[key][0] for key in not_built)


@pytest.mark.parametrize(
    ("name", "mistake"),
    [
        ("jdbc-source", {"mode": "incremental"}),
        ("jdbc-source", {"query": "SELECT 1", "table.whitelist": "a"}),
        ("jdbc-sink", {"pk.mode": "key"}),
        ("s3-sink", {"flush.size": "0"}),
        ("http-sink", {"http.url": "ftp://h"}),
        ("file-sink", {"errors.tolerance": "some"}),
        ("mirror-source", {"replication.policy.class": "x.Y"}),
        ("mirror-checkpoint", {"sync.group.offsets.enabled": "true"}),
        ("debezium-postgres", {"snapshot.mode": "sometimes"}),
    ],
)
def test_an_unread_key_is_reported_beside_a_mistake(name: str, mistake: dict[str, str]) -> None:
    warnings, errors = said({**CONFIGS[name], **mistake, "task.max": "1"})
    assert errors
    assert "did you mean tasks.max?" in warnings["task.max"]


def test_an_unread_key_of_a_file_sink_is_reported_beside_a_mistake() -> None:
    config = {"connector.class": "FileSink", "topics": "t", "directory": "/nowhere/x", "format": "xml", "task.max": "1"}
    warnings, errors = said(config)
    assert "format" in errors
    assert "did you mean tasks.max?" in warnings["task.max"]
