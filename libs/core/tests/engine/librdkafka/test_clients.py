"""Creation of a run's clients: the login of each, and the error for settings that librdkafka refuses."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest
from confluent_kafka import OFFSET_INVALID, KafkaError, KafkaException, TopicPartition

from herdmesh.connect.errors import ConfigError
from herdmesh.engine import RunSpec, TaskKind
from herdmesh.engine.fencing.fence import Fence
from herdmesh.engine.librdkafka import clients
from herdmesh.engine.runtime import progress_ticks
from herdmesh.engine.runtime.settings import ClientConfig, sink_settings, source_settings
from herdmesh.kafka.checked_producer import CheckedProducer
from libs.core.tests.engine.harness import make_spec

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"


def login(user: str) -> dict[str, str]:
    jaas = f'{PLAIN} required username="{user}" password="p";'
    return {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "sasl.jaas.config": jaas}


def under(prefix: str, config: dict[str, str]) -> dict[str, str]:
    return {prefix + name: value for name, value in config.items()}


def test_a_sinks_clients_use_the_login_of_its_consumer() -> None:
    """In Connect a sink has only a consumer, so users configure no login for other clients."""
    spec = make_spec("b:1", "c", "x:Y", {"topics": "t", **under("consumer.override.", login("me"))})
    settings = sink_settings(spec)
    assert settings.access["sasl.username"] == settings.consumer["sasl.username"] == "me"


def test_a_sources_clients_use_the_login_of_its_producer_unless_they_have_one() -> None:
    config = under("producer.override.", login("me"))
    settings = source_settings(make_spec("b:1", "c", "x:Y", config, kind=TaskKind.SOURCE))
    users = [one["sasl.username"] for one in (settings.producer, settings.admin, settings.offsets_consumer)]
    assert users == ["me", "me", "me"]
    worker = {**login("worker"), **under("admin.", login("admin"))}
    settings = source_settings(make_spec("b:1", "c", "x:Y", config, kind=TaskKind.SOURCE, worker_config=worker))
    users = [one["sasl.username"] for one in (settings.producer, settings.admin, settings.offsets_consumer)]
    assert users == ["me", "admin", "worker"]


@pytest.mark.parametrize(
    ("name", "value", "field"),
    [
        ("ssl.ca.location", "absent.pem", "consumer.override.ssl.ca.location"),
        ("ssl.cipher.suites", "none-such", "consumer.override.ssl.cipher.suites"),
    ],
)
def test_settings_that_create_no_client_are_a_config_error(name: str, value: str, field: str) -> None:
    overrides = {"security.protocol": "SSL", name: value}
    spec = make_spec("b:1", "c", "x:Y", {"topics": "t", **under("consumer.override.", overrides)})
    with pytest.raises(ConfigError) as refused:
        clients.consumer(spec, "g", sink_settings(spec).consumer)
    assert refused.value.field == field


def test_an_answer_without_an_offset_is_retried() -> None:
    answers = [SimpleNamespace(offset=OFFSET_INVALID), SimpleNamespace(offset=0)]
    assert clients.retried(lambda: clients.offset_of(answers.pop(0))) == 0
    assert not answers


@pytest.mark.parametrize(("level", "shown"), [(logging.NOTSET, False), (logging.DEBUG, True)])
def test_log_lines_of_a_client_go_to_its_logger(level: int, shown: bool, caplog: pytest.LogCaptureFixture) -> None:
    """Not raw to stderr; and debug lines once the level of `librdkafka` allows them."""
    spec = make_spec("127.0.0.1:1", "c", "x:Y", {"topics": "t"})
    logging.getLogger("librdkafka").setLevel(level)
    try:
        consumer = clients.consumer(spec, "g", {})
        consumer.assign([TopicPartition("t", 0)])
        while not any(line.getMessage().startswith("FAIL ") for line in caplog.records):
            consumer.poll(0.1)
        consumer.close()
    finally:
        logging.getLogger("librdkafka").setLevel(logging.NOTSET)
    found = [line for line in caplog.records if line.name == "librdkafka.consumer"]
    assert any(line.levelno >= logging.WARNING and "Connection refused" in line.getMessage() for line in found)
    assert any(line.levelno == logging.DEBUG for line in found) is shown


_NAMED: dict[str, Callable[[RunSpec], Any]] = {
    "connector-consumer-a b-3": lambda spec: clients.consumer(spec, "g", {}),
    "connector-consumer-a b": lambda spec: clients.consumer(spec, "g", {}, for_worker=True),
    "connector-producer-a b-3": lambda spec: clients.producer(spec, {}),
    "connector-offset-producer-a b": lambda spec: clients.offsets_producer(spec, {}),
    "connector-producer-a b-3 ": lambda spec: clients.offsets_producer(
        replace(spec, worker_config={"exactly.once.source.support": "enabled"}), {}
    ),
    "connector-dlq-producer-a b-3": lambda spec: clients.dead_letter_producer(spec, {}),
    "connector-adminclient-a b-3": lambda spec: clients.admin(spec, {}),
    "connector-worker-adminclient-a b": lambda spec: clients.admin(spec, {}, for_worker=True),
    "mine": lambda spec: clients.producer(spec, {"client.id": "mine"}),
    "mine ": lambda spec: clients.offsets_producer(spec, {"client.id": "mine"}),
}


@pytest.mark.parametrize("name", _NAMED)
def test_clients_have_connects_client_ids(name: str, caplog: pytest.LogCaptureFixture) -> None:
    """As the client itself prints it in a line of its log (docs/reference/connect/offsets-topic.md, section 9)."""
    client = _NAMED[name](make_spec("127.0.0.1:1", "a b", "x:Y", {"topics": "t"}, task=3, task_count=4))
    deadline_s = time.monotonic() + 60
    while not any(line.getMessage().startswith("FAIL ") for line in caplog.records):
        assert time.monotonic() < deadline_s, "it says nothing"
        client.poll(0.05)
    (said,) = {line.getMessage().split("[")[1].split("#")[0] for line in caplog.records if "FAIL" in line.getMessage()}
    assert said == name.rstrip()


@pytest.mark.parametrize("is_fenced", [True, False])
def test_a_producer_is_idempotent_and_uses_the_fences_id_whatever_its_config(
    is_fenced: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A warning names ignored settings. Unreviewed settings are no way around it."""
    made = list[dict[str, Any]]()

    def opened(client: Callable[..., Any], _kind: str, config: dict[str, Any], _on_error: Any) -> Any:
        made.append(config)
        return client({**config, "log_level": 0}, logger=logging.getLogger(__name__))

    monkeypatch.setattr(clients, "opened", opened)
    given = {"transactional.id": "mine", "enable.idempotence": "false", "acks": "0"}
    spec = make_spec("127.0.0.1:1", "c", "x:Y", under("producer.override.", given), kind=TaskKind.SOURCE)
    settings = source_settings(spec)
    named = [name for name in given if any(f"producer.override.{name}" in text for text in settings.warnings)]
    assert named == list(given)
    unseen: list[ClientConfig] = [dict(given)] if is_fenced else []
    for overrides in (settings.producer, *unseen):
        clients.producer(spec, overrides, is_fenced=is_fenced)
        config = made.pop()
        assert (config["enable.idempotence"], config["acks"]) == (True, "all")
        assert config.get("transactional.id") == (spec.transactional_id if is_fenced else None)


def test_a_retried_kafka_call_ticks_the_progress_counter(monkeypatch: pytest.MonkeyPatch) -> None:
    """An unreachable Kafka has a limit of its own; the watchdog of runs is for calls that do not return."""
    monkeypatch.setattr(clients, "_RETRY_PAUSE_S", 0.0)
    answers: list[Callable[[], int]] = [_not_ready, _not_ready, lambda: 7]
    moves = [progress_ticks.moves()]

    def ask() -> int:
        moves.append(progress_ticks.moves())
        return answers.pop(0)()

    assert clients.retried(ask) == 7
    assert moves[0] == moves[1] < moves[2] < moves[3]
    answers += [_not_ready, lambda: 0]
    # The producer is not called: a transaction's calls are retried by the same rule.
    Fence(cast("CheckedProducer", None), "id")._until_done(ask, "asking")  # pyright: ignore[reportPrivateUsage]
    assert moves[4] < moves[5]


def _not_ready() -> int:
    # Retriable or not: librdkafka sets this flag on a transaction's errors.
    raise KafkaException(KafkaError(KafkaError.NOT_COORDINATOR, "not yet", retriable=True))
