"""Values of client settings: none ends the process; each is accepted, or refused with its key and a fix."""

from __future__ import annotations

import subprocess
import sys
from itertools import product

import pytest

from herdmesh.connect.clients.client_overrides import CLIENTS
from herdmesh.connect.clients.librdkafka_settings import client_settings, librdkafka_names
from herdmesh.connect.errors import ConfigError
from herdmesh.engine.librdkafka.client_trial import refused, worker_violations
from libs.core.tests.connect.clients.client_settings_page import java_names
from tests.support.sizes import SOAKING

_FEW = ("", "-1", "bogus", "\0")
_ALL = (
    *_FEW, " ", "0", "1", "1.5", "NaN", "true", "null", "99999999999999999999", "-99999999999999999999", "2147483648",
    "-2147483649", "\n", "a\0b", "\ud800", "x" * 70_000, "%s%n%n", "ünïcödé", "\U0001f600", "a,b,,", ",", "(", "[",
    "*", "all", "/nonexistent/file", "\u0661", "1_000",
)  # fmt: skip


def names_of(client: str) -> list[str]:
    return sorted({*java_names(client), *librdkafka_names(client)})


def main() -> None:
    """Run in a process of its own, which prints each value before it tries it, so the reader sees which one crashed
    it.
    """
    values = _ALL if SOAKING else _FEW
    for client in CLIENTS:
        for name, value in product(names_of(client), values):
            print(client, name, ascii(value)[:60], flush=True)
            full = f"{client}.override.{name}"
            try:
                given = client_settings(client, {}, {full: value})
                found = [(one.field, one.message, one.fix) for one in refused(client, given, dict)]
            except ConfigError as error:
                found = [(error.field, str(error), error.fix)]
            for field, message, fix in found:
                assert field == full, (field, full)
                assert full in message, message
                assert fix or "is missing" in message, message
    print("done")


def test_no_value_of_a_client_setting_crashes_the_process() -> None:
    code = "from libs.core.tests.engine.runtime.test_client_values import main; main()"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    lines = ended.stdout.splitlines()
    assert (ended.returncode, lines[-1]) == (0, "done"), (lines[-1:], ended.stderr[-2_000:])
    assert len(lines) > 1_000


@pytest.mark.parametrize(
    ("setting", "value", "text"),
    [
        ("consumer.auto.offset.reset", "bogus", "earliest, latest, none"),
        ("consumer.group.id", "", "need a group"),
        ("consumer.group.id", "\0", "NUL character"),
        ("consumer.group.id", "ü" * 20_000, "40000 bytes"),
        ("consumer.max.poll.interval.ms", "-1", "must be 1 to"),
        ("consumer.max.poll.records", "many", "Not a number of type INT"),
        ("consumer.max.poll.records", "99999999999", "must be 1 to"),
        ("consumer.client.dns.lookup", "nowhere", "Invalid value"),
        ("producer.compression.type", "bogus", "Invalid value"),
        ("producer.linger.ms", "1_000", "Not a number of type LONG"),
        ("producer.client.id", "a\ud800", "surrogate"),
        ("admin.client.dns.lookup", "nowhere", "Invalid value"),
        ("admin.debug", "everything", "Invalid value"),
    ],
)
def test_an_invalid_value_of_a_worker_setting_is_refused_by_its_own_key(setting: str, value: str, text: str) -> None:
    (found,) = worker_violations(
        {setting: value, "producer.linger.ms": "5", "consumer.fetch.min.bytes": "1"} | {setting: value}
    )
    assert found.field == setting
    assert text in found.message
    assert setting in found.message
    assert found.fix


def test_a_consumer_setting_is_no_producer_setting() -> None:
    given = client_settings("producer", {}, {"producer.override.max.poll.records": "-1"})
    assert (given.engine, [one.field for one in given.warnings]) == ({}, ["producer.override.max.poll.records"])
