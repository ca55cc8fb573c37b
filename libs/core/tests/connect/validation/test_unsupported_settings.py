"""Settings that Connect accepts and this release refuses, each by name; supported settings are not refused."""

from __future__ import annotations

from typing import Any

import pytest

from herdmesh.connect.validation.connector_config import validate_connector
from herdmesh.connect.validation.unsupported_settings import refusals
from libs.core.tests.connect.example_plugins import ABSENT, PLUGINS, SINK, SOURCE, changed

_PACKAGE = "org.apache.kafka.connect."
_MASK = {
    "transforms": "m",
    "transforms.m.type": f"{_PACKAGE}transforms.MaskField$Value",
    "transforms.m.fields": "a",
}


def refused(change: dict[str, Any]) -> list[tuple[str, str]]:
    config = changed(SINK, change)
    found = refusals(config, PLUGINS.find("ExampleSink"), {})
    assert all(one.fix for one in found), found
    return [(one.field, one.message) for one in found]


@pytest.mark.parametrize(
    "change",
    [
        {},
        _MASK,
        {"key.converter": "Json", "key.converter.schemas.enable": "false", "header.converter": "Simple"},
        {"header.converter": "Json", "header.converter.schemas.enable": "false"},
        {"transforms": "t", "transforms.t.type": f"{_PACKAGE}transforms.Cast$Value", "transforms.t.spec": "int8"},
        {
            **_MASK,
            "transforms.m.predicate": "p",
            "predicates": "p",
            "predicates.p.type": f"{_PACKAGE}transforms.predicates.RecordIsTombstone",
        },
        {"topics": ABSENT, "topics.regex": "a.*"},
        {"topics": ABSENT, "topics.regex": "\\Qa.b\\E-[a-z&&[^x]]++\\p{Alpha}"},
        {"herdmesh.rate.records.per.second": "1", "herdmesh.rate.bytes.per.second": "1000000"},
        {"herdmesh.trigger": "continuous", "consumer.override.max.poll.records": "1"},
        {"errors.tolerance": "all", "errors.retry.timeout": "-1", "errors.log.enable": "true"},
        {"errors.deadletterqueue.topic.name": "d", "errors.deadletterqueue.context.headers.enable": "true"},
        {"herdmesh.restart.backoff.ms": "10", "herdmesh.restart.backoff.max.ms": "10"},
        {"herdmesh.memory.max": "128MB"},
        {"producer.override.security.protocol": "SSL", "producer.override.ssl.truststore.location": "a sink has none"},
    ],
)
def test_supported_settings_are_not_refused(change: dict[str, Any]) -> None:
    assert refused(change) == []


@pytest.mark.parametrize(
    ("change", "field", "says"),
    [
        ({"topics": ABSENT, "topics.regex": "\\p{javaMirrored}"}, "topics.regex", "has no counterpart outside Java"),
        ({"herdmesh.rate.records.per.second": "0"}, "herdmesh.rate.records.per.second", "Value must be at least 1"),
        ({"herdmesh.rate.bytes.per.second": "-1"}, "herdmesh.rate.bytes.per.second", "Value must be at least 1"),
        ({"herdmesh.rate.bytes.per.second": "1MB"}, "herdmesh.rate.bytes.per.second", "Not a number of type LONG"),
        ({"herdmesh.transaction.max.bytes": "0"}, "herdmesh.transaction.max.bytes", "Value must be at least 1"),
        ({"herdmesh.memory.max": "much"}, "herdmesh.memory.max", "Not a size such as 512MB or 2GB"),
        ({"herdmesh.memory.max": "512"}, "herdmesh.memory.max", "Size must be at least 128MB"),
        ({"herdmesh.trigger": "sometimes"}, "herdmesh.trigger", "String must be one of: available, continuous"),
        (
            {"consumer.override.bootstrap.servers": "elsewhere:9092"},
            "consumer.override.bootstrap.servers",
            "reading from another cluster than the workers' is not supported yet",
        ),
        ({"path": "/readonly"}, "path", "not writable"),
        (
            {"herdmesh.restart.backoff.ms": "10", "herdmesh.restart.backoff.max.ms": "9"},
            "herdmesh.restart.backoff.max.ms",
            "must not be below herdmesh.restart.backoff.ms (10)",
        ),
        (
            {"herdmesh.delivery.guarantee": "at_most_once"},
            "herdmesh.delivery.guarantee",
            "String must be one of: exactly_once, at_least_once",
        ),
        ({"herdmesh.delivery.guarantee": "at_least_once"}, "herdmesh.delivery.guarantee", "is for sources only"),
        ({"herdmesh.linger.ms": "-1"}, "herdmesh.linger.ms", "Value must be at least 0"),
        (
            {"consumer.override.security.protocol": "SASL_SSL", "consumer.override.sasl.mechanism": "PLAIN"},
            "consumer.override.sasl.jaas.config",
            "is missing, and PLAIN needs it",
        ),
        (
            {"consumer.override.security.protocol": "SSL", "consumer.override.ssl.truststore.location": "t.jks"},
            "consumer.override.ssl.truststore.location",
            "reads certificates as PEM",
        ),
    ],
)
def test_unsupported_settings_are_refused_by_name(change: dict[str, Any], field: str, says: str) -> None:
    ((found, message),) = refused(change)
    assert found == field
    assert says in message
    assert not validate_connector(changed(SINK, change), PLUGINS).error_count  # refused by Herdmesh, not by Connect


@pytest.mark.parametrize(
    "more", [{}, {"offsets.storage.topic": "own"}, {"herdmesh.delivery.guarantee": "at_least_once"}]
)
def test_a_source_may_not_write_to_another_cluster(more: dict[str, str]) -> None:
    elsewhere = "producer.override.bootstrap.servers"
    worker: dict[str, str] = dict.fromkeys(("key.converter", "value.converter"), f"{_PACKAGE}json.JsonConverter")
    config = changed(SOURCE, {elsewhere: "elsewhere:9092", **more})
    (found,) = refusals(config, PLUGINS.find("ExampleSource"), worker)
    assert (found.field, bool(found.fix)) == (elsewhere, True)
    assert "writing to another cluster than the workers' is not supported yet" in found.message


def test_at_least_once_delivery_is_refused_beside_keys_that_need_exactly_once() -> None:
    plugin, asked = PLUGINS.find("ExampleSource"), {"herdmesh.delivery.guarantee": "at_least_once"}
    worker: dict[str, str] = dict.fromkeys(("key.converter", "value.converter"), f"{_PACKAGE}json.JsonConverter")
    assert refusals(changed(SOURCE, asked), plugin, worker) == []
    more = {"exactly.once.support": "Required", "transaction.boundary": "connector"}
    found = refusals(changed(SOURCE, {**asked, **more}), plugin, worker)
    assert [(one.field, one.message.partition(",")[0], one.fix) for one in found] == [
        (
            "herdmesh.delivery.guarantee",
            f"herdmesh.delivery.guarantee=at_least_once contradicts {key}",
            f"leave herdmesh.delivery.guarantee out, or write {instead}",
        )
        for key, instead in (
            ("exactly.once.support=required", "exactly.once.support=requested"),
            ("transaction.boundary=connector", "transaction.boundary=poll or interval"),
        )
    ]
    assert refusals(changed(SOURCE, more), plugin, worker) == []


def test_a_transformation_that_could_not_be_started_is_refused() -> None:
    change = {"transforms": "i", "transforms.i.type": f"{_PACKAGE}transforms.InsertField$Value"}
    assert refused(change) == [("transforms.i.type", "No field insertion configured")]
