"""Partitions of records without a key (sticky partitioner): by a test clock and simulated clusters, and on a real
one.
"""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer

from herdmesh.engine.librdkafka.sticky_partitioner import ASKED_AGAIN_S, STICKS_S, StickyPartitioner
from libs.core.tests.engine.harness import Kafka


class Cluster:
    """Names the leader of each partition of every topic, and counts requests."""

    def __init__(self, *leaders: int) -> None:
        self.leaders, self.asked, self.is_away = leaders, 0, False

    def list_topics(self, topic: str, timeout: float) -> Any:
        self.asked += 1
        if self.is_away:
            raise KafkaException(KafkaError(KafkaError._TRANSPORT))
        found = {number: SimpleNamespace(leader=leader) for number, leader in enumerate(self.leaders)}
        return SimpleNamespace(topics={topic: SimpleNamespace(partitions=found)})


class Clock:
    now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def of(cluster: Cluster, clock: Clock) -> StickyPartitioner:
    stands_for: Any = cluster
    return StickyPartitioner(stands_for, clock)


def chosen(spread: StickyPartitioner, clock: Clock, times: int = 200) -> set[int | None]:
    """All partitions chosen in a second or two."""
    found: set[int | None] = set()
    for _ in range(times):
        clock.now_s += STICKS_S
        found.add(spread.partition("t"))
    return found


def test_one_partition_is_used_for_some_milliseconds_then_another() -> None:
    cluster, clock = Cluster(1, 1, 1, 1), Clock()
    spread = of(cluster, clock)
    first = spread.partition("t")
    clock.now_s += STICKS_S * 0.9
    assert {spread.partition("t") for _ in range(50)} == {first}
    assert chosen(spread, clock) == {0, 1, 2, 3}
    assert cluster.asked == 1


def test_partitions_without_a_leader_are_avoided_and_changes_are_noticed() -> None:
    cluster, clock = Cluster(1, -1, 2), Clock()
    spread = of(cluster, clock)
    assert chosen(spread, clock) == {0, 2}
    cluster.leaders = (-1, 3, 3, 3)
    clock.now_s += ASKED_AGAIN_S
    assert chosen(spread, clock) == {1, 2, 3}
    assert cluster.asked == 2


@pytest.mark.parametrize("is_away", [True, False], ids=["away", "unknown-topic"])
def test_the_client_chooses_while_the_cluster_metadata_is_unavailable(is_away: bool) -> None:
    cluster, clock = Cluster(), Clock()
    cluster.is_away = is_away
    spread = of(cluster, clock)
    assert chosen(spread, clock) == {None}
    assert cluster.asked == 1
    cluster.is_away, cluster.leaders = False, (1,)
    clock.now_s += ASKED_AGAIN_S
    assert chosen(spread, clock) == {0}


@pytest.mark.kafka
def test_all_partitions_of_a_real_topic_are_used(kafka_bootstrap: str, tmp_topic: Callable[..., str]) -> None:
    topic = Kafka(kafka_bootstrap).create_topic(tmp_topic(), 3)
    clock = Clock()
    spread = StickyPartitioner(Producer({"bootstrap.servers": kafka_bootstrap}), clock)
    found = {spread.partition(topic)}
    for _ in range(200):
        clock.now_s += STICKS_S
        found.add(spread.partition(topic))
    assert found == {0, 1, 2}
