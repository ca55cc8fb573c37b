"""Tests of the HTTP sink's config under Aiven's names and Confluent's, and of refusals by key."""

from __future__ import annotations

import base64
import re

import pytest

from herdmesh.connect.config.redaction import redacted
from herdmesh.connect.errors import ConfigError
from herdmesh.connect.plugins.plugin_registry import PluginRegistry, describe
from herdmesh.connectors.http.connector import HttpSink
from herdmesh.connectors.http.keys import AIVENS, CONFLUENTS, KEYS, statuses_of
from herdmesh.connectors.http.settings import Framing, settings_of, warnings_of

URL = "https://receiver:8443/in"


def of(**config: str) -> dict[str, str | None]:
    """Return a config: _ in names stands for a dot, and the URL has a default."""
    named: dict[str, str | None] = {name.replace("_", "."): value for name, value in config.items()}
    return named if "http.api.url" in named else {"http.url": URL, **named}


@pytest.mark.parametrize(
    ("config", "field"),
    [
        ({"http.url": ""}, "http.url"),
        ({}, "http.url"),
        ({"http.url": "ftp://host/x"}, "http.url"),
        ({"http.url": "https:///x"}, "http.url"),
        ({"http.url": "https://host:port/x"}, "http.url"),
        ({"http.url": "https://user:geheim-0@host/x"}, "http.url"),
        ({"http.url": "https://host/a b"}, "http.url"),
        ({"http.url": "https://${key}.host/x"}, "http.url"),
        ({"http.url": "https://host/${partition}"}, "http.url"),
        ({"http.api.url": "nothing"}, "http.api.url"),
        ({"http.url": URL, "http.api.url": URL}, "http.api.url"),
        ({"http.url": URL, "request.method": "GET"}, "request.method"),
        ({"http.url": URL, "http.authorization.type": "magic"}, "http.authorization.type"),
        ({"http.url": URL, "auth.type": "BEARER"}, "auth.type"),
        ({"http.url": URL, "http.authorization.type": "static"}, "http.headers.authorization"),
        ({"http.url": URL, "http.authorization.type": "basic"}, "http.authorization.user"),
        ({"http.url": URL, "auth.type": "BASIC", "connection.user": "u"}, "http.authorization.password"),
        ({"http.url": URL, "http.authorization.type": "oauth2"}, "oauth2.access.token.url"),
        (
            {"http.url": URL, "http.authorization.type": "oauth2", "oauth2.access.token.url": URL},
            "oauth2.client.id",
        ),
        ({"http.url": URL, "http.headers.additional": "X-One"}, "http.headers.additional"),
        ({"http.url": URL, "http.headers.additional": "X-One:a,x-one:b"}, "http.headers.additional"),
        ({"http.url": URL, "http.headers.additional": "Idempotency-Key:mine"}, "http.headers.additional"),
        ({"http.url": URL, "http.headers.additional": "X-One:é"}, "http.headers.additional"),
        ({"http.url": URL, "http.headers.additional": "A:b", "http.headers.secret": "a:c"}, "http.headers.secret"),
        ({"http.url": URL, "http.headers.secret": "verysecretvalue"}, "http.headers.secret"),
        (
            {"http.url": URL, "http.headers.content.type": "a/b", "http.headers.additional": "content-type:c/d"},
            "http.headers.content.type",
        ),
        (
            {
                "http.url": URL,
                "http.headers.additional": "Authorization:x",
                "http.authorization.type": "static",
                "http.headers.authorization": "y",
            },
            "http.authorization.type",
        ),
        ({"http.url": URL, "http.timeout": "0"}, "http.timeout"),
        ({"http.url": URL, "batch.max.size": "0"}, "batch.max.size"),
        ({"http.url": URL, "batching.enabled": "true", "batch.separator": r"\x"}, "batch.separator"),
        ({"http.url": URL, "batch.json.as.array": "true", "batch.suffix": "]"}, "batch.suffix"),
        (
            {"http.url": URL, "batch.json.as.array": "true", "request.body.format": "string"},
            "batch.json.as.array",
        ),
        ({"http.url": URL, "retry.on.status.codes": "200-"}, "retry.on.status.codes"),
        ({"http.url": URL, "retry.on.status.codes": "many"}, "retry.on.status.codes"),
        ({"http.url": URL, "behavior.on.null.values": "delete"}, "behavior.on.null.values"),
        ({"http.url": URL, "herdmesh.http.connections": "65"}, "herdmesh.http.connections"),
        ({"http.url": URL, "herdmesh.http.connections": None}, "herdmesh.http.connections"),
        ({"http.url": URL, "headers": "A:b|C:d"}, "headers"),
        ({"http.url": URL, "regex.patterns": "a"}, "regex.patterns"),
        ({"http.url": URL, "kafka.retry.backoff.ms": "5"}, "kafka.retry.backoff.ms"),
    ],
)
def test_invalid_configs_are_refused_by_key(config: dict[str, str | None], field: str) -> None:
    (problem,) = HttpSink().validate(config)
    assert problem.field == field
    assert "geheim-0" not in str(problem)
    assert "verysecretvalue" not in str(problem)
    with pytest.raises(ConfigError):
        HttpSink().start(config)


def test_one_class_serves_both_java_connectors() -> None:
    registry = PluginRegistry([describe(HttpSink)])
    for name in ("HttpSink", "io.aiven.kafka.connect.http.HttpSinkConnector"):
        assert registry.find(name) is registry.find("io.confluent.connect.http.HttpSinkConnector")


def test_aivens_config_has_the_same_meaning() -> None:
    settings = settings_of(
        of(
            http_authorization_type="static",
            http_headers_authorization="Bearer tok-123456",
            http_headers_content_type="application/vnd.x+json",
            http_headers_additional="X-One: a:b , X-Two:c",
            batching_enabled="true",
            batch_max_size="2",
            batch_prefix=r"<\n",
            batch_suffix=r"\n>",
            http_timeout="7",
            max_retries="3",
            retry_backoff_ms="1500",
        )
    )
    assert settings.headers == {
        "X-One": "a:b",
        "X-Two": "c",
        "Content-Type": "application/vnd.x+json",
        "Authorization": "Bearer tok-123456",
    }
    assert (settings.batch_records_max, settings.framing) == (2, Framing(b"<\n", b"\n", b"\n>"))
    assert (settings.timeout_s, settings.retries, settings.retry_backoff_s) == (7, 3, 1.5)
    assert "tok-123456" not in repr(settings)
    assert redacted("it was tok-123456") == "it was ***"


def test_confluents_config_has_the_same_meaning() -> None:
    settings = settings_of(
        of(
            http_api_url="http://h/${topic}?id=${key}",
            request_method="put",
            auth_type="BASIC",
            connection_user="me",
            connection_password="geheim!",
            batch_max_size="10",
            batch_json_as_array="true",
            retry_on_status_codes="400-",
        )
    )
    assert settings.headers["Authorization"] == "Basic " + base64.b64encode(b"me:geheim!").decode()
    assert settings.method == "PUT"
    assert settings.url.by_key
    assert settings.url.filled({"topic": "t", "key": "5"}) == "http://h/t?id=5"
    assert (settings.batch_records_max, settings.framing) == (10, Framing(b"[", b",", b"]"))
    assert {400, 429, 503, 999} <= settings.retry_on
    assert "geheim!" not in repr(settings)


@pytest.mark.parametrize(
    ("config", "records_max", "framing", "content_type"),
    [
        ({}, 1, (b"", b"", b""), "application/json"),
        ({"batch.max.size": "1"}, 1, (b"", b"", b""), "application/json"),
        ({"batch.max.size": "9", "batching.enabled": "false"}, 1, (b"", b"", b""), "application/json"),
        ({"batch.max.size": "9"}, 9, (b"", b"\n", b"\n"), "application/x-ndjson"),
        ({"batching.enabled": "true"}, 500, (b"", b"\n", b"\n"), "application/x-ndjson"),
        (
            {"batching.enabled": "true", "batch.json.as.array": "true"}, 500, (b"[", b",", b"]"), "application/json",
        ),
        (
            {"batching.enabled": "true", "request.body.format": "string", "batch.separator": r"\\|\t|"},
            500, (b"", b"\\|\t|", b"\n"), "text/plain; charset=utf-8",
        ),
        # The Java connectors' class names select their defaults.
        ({"connector.class": CONFLUENTS, "batch.max.size": "9"}, 9, (b"", b",", b""), "application/json"),
        (
            {"connector.class": CONFLUENTS, "batch.max.size": "9", "batch.prefix": "[", "batch.suffix": "]"},
            9, (b"[", b",", b"]"), "application/json",
        ),
        ({"connector.class": AIVENS, "batch.max.size": "9"}, 1, (b"", b"", b""), "application/json"),
        ({"connector.class": AIVENS, "batching.enabled": "true"}, 500, (b"", b"\n", b"\n"), "application/x-ndjson"),
    ],
)  # fmt: skip
def test_batching_of_records_by_config(
    config: dict[str, str], records_max: int, framing: tuple[bytes, bytes, bytes], content_type: str
) -> None:
    settings = settings_of({"http.url": URL, **config})
    assert settings.batch_records_max == records_max
    assert settings.framing == Framing(*framing)
    assert settings.headers["Content-Type"] == content_type


def test_statuses_are_numbers_or_ranges() -> None:
    assert statuses_of("k", "429, 500-502,998-") == {429, 500, 501, 502, 998, 999}


def test_keys_without_effect_have_warnings_and_secrets_are_passwords() -> None:
    warned = warnings_of(of(behavior_on_error="log", batch_separator=";", reporter_bootstrap_servers="b:1"))
    assert {one.field for one in warned} == {"behavior.on.error", "batch.separator", "reporter.bootstrap.servers"}
    assert warnings_of(of(batching_enabled="true", batch_separator=";")) == []
    (alone,) = warnings_of({"http.url": URL, "connector.class": AIVENS, "batch.max.size": "9"})
    assert (alone.field, "batching.enabled=true" in alone.message) == ("batch.max.size", True)
    secret = {key.name for key in KEYS.keys.values() if key.type == "PASSWORD"}
    assert secret == {
        "http.headers.authorization",
        "http.headers.secret",
        "http.authorization.password",
        "connection.password",
        "oauth2.client.secret",
        "https.ssl.key.password",
    }


@pytest.mark.parametrize("key", ["http.url", "http.api.url"])
@pytest.mark.parametrize(
    "url",
    [
        "http://me:hunter2@h/x",
        "http://me:hun/ter2@h/x",
        "http://me:hunter2@h:99999/x",
        "ftp://me:hunter2@h/x",
        "me:hunter2@h/x",
        "http://me:hun ter2@h/x",
        "http://me:hun?ter2@h/${offset}",
        "http://me:1/hunter2@h/${offset}",
        "http://me:1#hunter2@h/${topik}",
    ],
)
def test_errors_about_a_url_do_not_show_its_password(key: str, url: str) -> None:
    (found,) = HttpSink().validate({"topics": "t", key: url})
    assert found.field == key
    assert re.search("hun|ter2", str(found) + found.fix) is None
