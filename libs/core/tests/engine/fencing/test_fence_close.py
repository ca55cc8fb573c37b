"""Closing of a fence: a producer that was fenced meanwhile closes silently, so the original error stays visible."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from queue import Empty, SimpleQueue
from threading import Event
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, TopicPartition

from herdmesh.connect.error_class import ErrorClass
from herdmesh.engine.delivery.delivery_reports import DeliveryFailures
from herdmesh.engine.fencing import fence as fence_module
from herdmesh.engine.fencing.fence import Fence
from herdmesh.engine.librdkafka import clients
from herdmesh.engine.runtime.errors import TaskFailed, TaskFenced
from herdmesh.engine.runtime.failure import classify
from herdmesh.kafka.call_timeout import bounded
from herdmesh.kafka.checked_producer import CheckedProducer
from libs.core.tests.engine.harness import Kafka, make_spec


def _producer(bootstrap: str) -> CheckedProducer:
    return clients.opened(CheckedProducer, "producer", {"bootstrap.servers": bootstrap, "transactional.id": "close-me"})


def test_closing_a_fenced_producer_does_not_hide_the_fence(kafka_bootstrap: str, tmp_topic: Callable[..., str]) -> None:
    topic = tmp_topic()
    first, second = (Fence(_producer(kafka_bootstrap), "close-me") for _ in range(2))
    consumer = Consumer({"bootstrap.servers": kafka_bootstrap, "group.id": "close-me"})
    first.take_over()
    second.take_over()

    def run() -> None:
        try:
            first.commit_offsets([TopicPartition(topic, 0, 1)], consumer.consumer_group_metadata())
        finally:
            first.close()

    with pytest.raises(TaskFenced):
        run()
    second.close()
    consumer.close()


@pytest.mark.parametrize("by", ["poll", "commit", "produce"])
def test_a_record_refused_because_of_the_fence_reports_fenced(
    kafka_bootstrap: str, tmp_topic: Callable[..., str], by: str
) -> None:
    topic, name = tmp_topic(), tmp_topic("source")
    Kafka(kafka_bootstrap).create_topic(topic, 1)
    spec = make_spec(kafka_bootstrap, name, "x:Y", {"topic": topic})
    failures = DeliveryFailures()
    owner = Fence(clients.producer(spec, {}, failures.add), spec.transactional_id)
    owner.take_over()
    owner.begin()
    owner.producer.produce(topic, b"sent in time")
    owner.producer.flush(60.0)
    next_owner = Fence(clients.producer(spec, {}), spec.transactional_id)
    next_owner.take_over()
    owner.producer.produce(topic, b"sent too late")

    def run() -> None:
        if by == "poll":
            owner.producer.flush(60.0)
        if by == "produce":
            with suppress(KafkaException):  # the error of the record before
                owner.producer.flush(60.0)
            with pytest.raises(KafkaException, match="_FATAL") as fatal:
                owner.producer.produce(topic, b"later still")
            owner.raise_fatal(fatal.value)
        owner.commit()

    with pytest.raises(TaskFenced if by == "produce" else (TaskFenced, KafkaException)) as ended:
        run()
    owner.close()
    next_owner.close()
    assert classify(ended.value)[2] is ErrorClass.FENCED


class _Stuck:
    """Kafka's client when a broker leaves in the middle of the call `at`: the call ignores its timeout, and blocks all
    other calls of the handle.
    """

    def __init__(self, at: str) -> None:
        self.never = Event()
        self._at = at
        self._hangs = False

    guess = None

    def __getattr__(self, name: str) -> Any:
        def call(*_arguments: object) -> Any:
            assert not self._hangs, f"{name}: a handle that hangs was asked for more"
            if name == self._at:
                self._hangs = True
                self.never.wait()
            return SimpleNamespace(orig_broker_id=1) if name == "list_topics" else 0

        return call


def _abort(fence: Fence) -> None:
    fence.begin()
    fence.abort()


_ASKED: dict[str, Callable[[Fence], None]] = {
    "init_transactions": lambda fence: fence.take_over(),
    "send_offsets_to_transaction": lambda fence: fence.commit_offsets([], None),
    "commit_transaction": lambda fence: fence.commit_offsets([], None),
    "abort_transaction": _abort,
}


@pytest.mark.parametrize("at", _ASKED)
def test_a_call_that_never_returns_is_abandoned_with_its_client(at: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("herdmesh.kafka.call_timeout.HANG_TIMEOUT_S", 0.05)
    monkeypatch.setattr("herdmesh.kafka.call_timeout._SECOND_LOOK_S", 0.05)
    stuck: Any = _Stuck(at)
    fence = Fence(stuck, "stuck-id")
    with pytest.raises(TaskFailed, match="stuck-id does not return") as failure:
        _ASKED[at](fence)
    assert failure.value.error_class is ErrorClass.UNREACHABLE, "an outage spends no restart"
    fence.close()
    stuck.never.set()


def test_closing_does_not_wait_for_an_abort_that_never_returns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fence_module, "_CLOSE_TIMEOUT_S", 0.05)
    monkeypatch.setattr("herdmesh.kafka.call_timeout._SECOND_LOOK_S", 0.05)
    stuck: Any = _Stuck("abort_transaction")
    fence = Fence(stuck, "stuck-id")
    fence.begin()
    fence.close()
    stuck.never.set()


def test_a_result_that_arrived_during_a_process_stall_counts_despite_the_timeout(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """To a waiting thread, a stalled process looks as if the call had taken that long."""
    late = Event()
    looks = list[float]()

    class Late:
        def __init__(self) -> None:
            self._answers: SimpleQueue[object] = SimpleQueue()
            self.put = self._answers.put

        def get(self, *, timeout: float) -> object:
            looks.append(timeout)
            if len(looks) == 1:
                late.set()
                raise Empty
            return self._answers.get(timeout=timeout)

    monkeypatch.setattr("herdmesh.kafka.call_timeout.SimpleQueue", Late)
    bounded(late.wait, 0.01)
    assert len(looks) == 2
