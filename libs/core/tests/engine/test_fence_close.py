"""Giving a fence up never hides why: a producer that was fenced meanwhile closes in silence."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from herdmesh.engine.errors import TaskFenced
from herdmesh.engine.fence import Fence


def _producer(bootstrap: str) -> Producer:
    return Producer({"bootstrap.servers": bootstrap, "transactional.id": "close-me"})


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
