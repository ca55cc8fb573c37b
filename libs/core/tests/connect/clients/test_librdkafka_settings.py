"""Java's client settings: each has a row, librdkafka accepts the translated ones, and the rest is reported."""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka import Consumer, Producer

from herdmesh.connect.clients.client_overrides import CLIENTS
from herdmesh.connect.clients.librdkafka_settings import (
    SETTINGS,
    Passed,
    client_settings,
    librdkafka_names,
    meaning,
    override_warnings,
    worker_warnings,
)
from herdmesh.connect.errors import ConfigError
from libs.core.tests.connect.clients.client_settings_page import PAGE, java_names, page

_EXAMPLES = {
    "allow.auto.create.topics": "true",
    "check.crcs": "TRUE",
    "enable.metrics.push": "False",
    "client.dns.lookup": "use_all_dns_ips",
    "compression.type": "ZSTD",
    "metadata.recovery.strategy": "REBOOTSTRAP",
}

#: Further settings that librdkafka requires beside a value at its bound.
_BESIDE = {
    "reconnect.backoff.ms": {"reconnect.backoff.max.ms": "3600000"},
    "reconnect.backoff.max.ms": {"reconnect.backoff.ms": "0"},
    "retry.backoff.ms": {"retry.backoff.max.ms": "300000"},
    "retry.backoff.max.ms": {"retry.backoff.ms": "1"},
    "fetch.wait.max.ms": {"socket.timeout.ms": "300000"},
    "linger.ms": {"delivery.timeout.ms": "1000000"},
    "delivery.timeout.ms": {"linger.ms": "0"},
    "message.max.bytes": {"receive.message.max.bytes": "2147483647"},
}


def test_the_page_is_generated_from_the_table() -> None:
    assert PAGE.read_text(encoding="utf-8") == page()


def test_the_table_has_exactly_kafkas_settings() -> None:
    named = {name for client in CLIENTS for name in java_names(client)}
    assert named == set(SETTINGS)


@pytest.mark.parametrize("client", ["consumer", "producer"])
def test_librdkafka_accepts_translated_values_at_both_bounds(client: str) -> None:
    """Also beyond them: a value out of bounds is moved to the bound and reported."""
    make: Any = Consumer if client == "consumer" else Producer
    base = {"group.id": "g"} if client == "consumer" else {}
    for name in java_names(client):
        passed = meaning(client, name)
        if not isinstance(passed, Passed):
            continue
        for value in ["0", "-1", "9999999999999"] if passed.least is not None else [_EXAMPLES.get(name, "x")]:
            given = client_settings(client, {}, {f"{client}.override.{name}": value})
            assert given.config.keys() <= librdkafka_names(client)
            assert given.config or given.warnings
            for key, one in given.config.items():
                make({**base, **_BESIDE.get(key, {}), key: one})


def test_units_names_and_words_are_translated() -> None:
    worker = {"producer.buffer.memory": "33554432", "producer.compression.type": "GZIP", "producer.linger.ms": "7"}
    own = {
        "producer.override.compression.gzip.level": "5",
        "producer.override.compression.zstd.level": "3",
        "producer.override.send.buffer.bytes": "-1",
        "producer.override.request.timeout.ms": "4000",
        "producer.override.acks": "all",
        "producer.override.linger.ms": "9",
        "producer.override.queue.buffering.max.messages": "10",
    }
    found = client_settings("producer", worker, own)
    assert found.config == {
        "queue.buffering.max.kbytes": "32768",
        "compression.type": "gzip",
        "compression.level": "5",
        "socket.send.buffer.bytes": "0",
        "request.timeout.ms": "4000",
        "socket.timeout.ms": "4000",
        "linger.ms": "9",
        "queue.buffering.max.messages": "10",
    }
    assert [one.field for one in found.warnings] == ["producer.override.compression.zstd.level"]


def test_a_setting_without_effect_is_reported_once_with_its_full_name_and_reason() -> None:
    own = {
        "consumer.override.isolation.level": "read_uncommitted",
        "consumer.override.sesion.timeout.ms": "1",
        "consumer.override.fetch.max.wait.ms": "900000",
        "producer.override.linger.ms": "5",
        "admin.override.retries": "3",
    }
    told = {one.field: one.message for one in override_warnings(["consumer", "admin"], own, {"consumer.bad": "1"})}
    assert set(told) == set(own)
    assert all(name in message for name, message in told.items())
    assert "read_committed" in told["consumer.override.isolation.level"]
    assert "300000 is used" in told["consumer.override.fetch.max.wait.ms"]
    worker = {"consumer.bad": "1", "consumer.override.fetch.min.bytes": "1", "group.id": "g"}
    assert [one.field for one in worker_warnings(worker)] == ["consumer.bad", "consumer.override.fetch.min.bytes"]


def test_a_setting_that_equals_the_fixed_value_is_no_warning() -> None:
    own = {"consumer.override.isolation.level": "read_committed", "consumer.override.enable.auto.commit": "false"}
    assert override_warnings(["consumer"], own, {}) == []


def test_text_in_place_of_a_number_is_an_error_with_the_full_name() -> None:
    with pytest.raises(ConfigError) as raised:
        client_settings("consumer", {}, {"consumer.override.fetch.min.bytes": "many"})
    assert raised.value.field == "consumer.override.fetch.min.bytes"
