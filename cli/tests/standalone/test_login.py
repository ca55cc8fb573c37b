"""Tests of the message of `herd run` when the brokers refuse its login."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from herdmesh.cli.commands import run
from herdmesh.cli.errors import EXIT_UNAVAILABLE, EXIT_USAGE, CommandError
from herdmesh.connect.java.properties_files import parse
from herdmesh.standalone.worker_properties import WorkerPlan, plan_worker
from tests.support.guarded_broker import GuardedBroker
from tests.support.standalone import WORKER

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"


def plan(bootstrap: str, more: str) -> WorkerPlan:
    return plan_worker("w.properties", parse((WORKER.format(bootstrap=bootstrap, folder="x") + more).encode()))


def login(password: str) -> str:
    jaas = f'{PLAIN} required username="u0" password="{password}";'
    return f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\nsasl.jaas.config={jaas}\n"


async def test_a_refused_login_is_reported_with_the_brokers_message(
    guarded: GuardedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert await run.until_kafka_serves(plan(guarded.guarded, login("secret-0")), asyncio.Event()) == 1
    monkeypatch.setattr(run, "PATIENCE_S", 5.0)
    with pytest.raises(CommandError) as refused:
        await run.until_kafka_serves(plan(guarded.guarded, login("wrong")), asyncio.Event())
    assert refused.value.exit_code == EXIT_UNAVAILABLE
    assert "Authentication failed: Invalid username or password" in refused.value.message
    assert "wrong" not in refused.value.message


async def test_a_missing_certificate_file_is_reported(tmp_path: Path) -> None:
    more = f"security.protocol=SSL\nssl.truststore.type=PEM\nssl.truststore.location={tmp_path / 'ca.pem'}\n"
    with pytest.raises(CommandError, match=r"ssl\.ca\.location") as refused:
        await run.until_kafka_serves(plan("127.0.0.1:9", more), asyncio.Event())
    assert refused.value.exit_code == EXIT_USAGE
