"""Giving a fence up never hides why: a producer that was fenced meanwhile closes in silence."""

from __future__ import annotations

from collections.abc import Callable
from threading import Event
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from herdmesh.engine import ErrorClass, clients
from herdmesh.engine import fence as fence_module
from herdmesh.engine.errors import TaskFailed, TaskFenced
from herdmesh.engine.failure import classify
from herdmesh.engine.fence import Fence
from herdmesh.engine.source import DeliveryFailures
from libs.core.tests.engine.harness import Kafka, make_spec


def _producer(bootstrap: str) -> Producer:
    return clients.opened(Producer, "producer", {"bootstrap.servers": bootstrap, "transactional.id": "close-me"})


def test_a_fenced_producer_closes_without_hiding_the_fence(kafka_bootstrap: str, tmp_topic: Callable[..., str]) -> None:
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


@pytest.mark.parametrize("by", ["poll", "commit"])
def test_a_record_that_is_refused_because_of_the_fence_says_fenced(
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
    owner.producer.flush(10.0)
    next_owner = Fence(clients.producer(spec, {}), spec.transactional_id)
    next_owner.take_over()
    owner.producer.produce(topic, b"sent too late")

    def run() -> None:
        if by == "poll":
            owner.producer.flush(10.0)
        owner.commit()

    with pytest.raises((TaskFenced, KafkaException)) as ended:
        run()
    owner.close()
    next_owner.close()
    assert classify(ended.value)[2] is ErrorClass.FENCED


class _Stuck:
    """Kafka's client when a broker leaves in the middle of a commit: the call ignores its timeout, and no other call of
    the handle comes to its turn."""

    def __init__(self) -> None:
        self.never = Event()

    def begin_transaction(self) -> None:
        """Which asks nobody."""

    def commit_transaction(self, _timeout_s: float) -> None:
        self.never.wait()

    def abort_transaction(self, _timeout_s: float) -> None:
        raise AssertionError("a handle that hangs was asked for more")

    purge = abort_transaction


def test_a_commit_that_never_returns_is_given_up_and_its_client_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fence_module, "HANG_TIMEOUT_S", 0.05)
    stuck: Any = _Stuck()
    fence = Fence(stuck, "stuck-id")
    fence.begin()
    with pytest.raises(TaskFailed, match="stuck-id does not return") as failure:
        fence.commit()
    assert failure.value.error_class is ErrorClass.RETRIABLE
    fence.close()
    stuck.never.set()
