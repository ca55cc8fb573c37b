"""Error class of a failed run, which decides whether it is restarted, for real failures: against a broker that
refuses.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

import pytest

from herdmesh.connect.error_class import ErrorClass
from herdmesh.engine import TaskKind
from herdmesh.engine.fencing import fence
from herdmesh.engine.librdkafka import clients, topic_creation
from herdmesh.engine.runtime import failure
from herdmesh.engine.source import source_offsets
from libs.core.tests.engine.harness import make_spec, run_here
from tests.support.guarded_broker import GuardedBroker

COUNTING = "libs.core.tests.engine.sinks:CountingSource"


@pytest.fixture(autouse=True)
def short_retries(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shorten the retries: users get a minute; the error at the end is the same after two seconds."""
    monkeypatch.setattr(clients, "RETRY_TIMEOUT_S", 2.0)
    monkeypatch.setattr(fence, "RETRY_TIMEOUT_S", 2.0)
    for module in (source_offsets, topic_creation):
        monkeypatch.setattr(module, "CALL_TIMEOUT_S", 2.0)


async def outcome(bootstrap: str, name: str, topic: str, login: Mapping[str, str]) -> tuple[str, ErrorClass]:
    """Message and class of a source that cannot run."""
    overrides = {f"producer.override.{key}": value for key, value in login.items()}
    spec = make_spec(bootstrap, name, COUNTING, {"topic": topic, "until": "5", **overrides}, kind=TaskKind.SOURCE)

    def told() -> tuple[str, ErrorClass]:
        with pytest.raises(Exception) as raised:
            run_here(spec)
        message, _, found = failure.classify(raised.value)
        return message, found

    return await asyncio.to_thread(told)


async def test_a_refused_login_is_a_config_error(guarded: GuardedBroker, tmp_topic: Callable[..., str]) -> None:
    """The calls only report that no broker could be reached, as during an outage."""
    _, login = guarded.new_user()
    wrong = {**login, "sasl.password": "wrong"}
    message, found = await outcome(guarded.guarded, tmp_topic("source"), tmp_topic(), wrong)
    assert found is ErrorClass.BAD_CONFIG
    assert "refuses the login" in message
    assert "Invalid username or password" in message
    assert "wrong" not in message.partition("password")[2], "the password is not told"


async def test_a_missing_right_is_a_config_error(guarded: GuardedBroker, tmp_topic: Callable[..., str]) -> None:
    _, login = guarded.new_user()
    message, found = await outcome(guarded.guarded, tmp_topic("source"), tmp_topic(), login)
    assert found is ErrorClass.BAD_CONFIG
    assert "TRANSACTIONAL_ID_AUTHORIZATION_FAILED" in message


async def test_an_unreachable_broker_is_retriable(tmp_topic: Callable[..., str]) -> None:
    """Also after refused logins of other runs."""
    _, found = await outcome("127.0.0.1:9", tmp_topic("source"), tmp_topic(), {})
    assert found is ErrorClass.UNREACHABLE
