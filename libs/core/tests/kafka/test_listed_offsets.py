"""Begin and end offsets of partitions, queried from a real broker by clients without cached metadata, also
concurrently.
"""

from __future__ import annotations

import multiprocessing
import os
import time
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._listoffsets import OffsetSpec  # the package re-exports it, but not for type checkers

from herdmesh.kafka.client_settings import NO_AUTO_CREATION
from herdmesh.kafka.listed_offsets import list_offsets, read_topic_metadata
from libs.core.tests.engine.harness import WAIT_S, Kafka
from tests.support.guarded_broker import GuardedBroker
from tests.support.sizes import SOAKING

PARTITIONS = 3
_HAMMERED_S = 30.0
_PROCESSES = 6
_QUESTIONS = 40


def client(bootstrap: str, **more: Any) -> AdminClient:
    return AdminClient({"bootstrap.servers": bootstrap, "reconnect.backoff.ms": 20, **NO_AUTO_CREATION, **more})


def code_of(answer: Any) -> int:
    with pytest.raises(KafkaException) as failed:
        answer.result(WAIT_S)
    return failed.value.args[0].code()


@pytest.fixture(scope="module")
def filled(kafka_bootstrap: str) -> str:
    """A topic with two records in partition 1."""
    kafka = Kafka(kafka_bootstrap)
    topic = kafka.create_topic("listed-offsets-filled", PARTITIONS)
    kafka.produce(topic, [b"a", b"b"], partition=1)
    return topic


@pytest.mark.kafka
def test_each_partition_gets_its_begin_and_end_offset_or_its_error(
    kafka_bootstrap: str, filled: str, tmp_topic: Callable[..., str]
) -> None:
    admin, away = client(kafka_bootstrap), tmp_topic()
    places = [TopicPartition(filled, number) for number in range(PARTITIONS + 1)] + [TopicPartition(away, 0)]
    ends = list_offsets(admin, dict.fromkeys(places, OffsetSpec.latest()), timeout_s=WAIT_S)
    assert [ends[place].result(WAIT_S).offset for place in places[:PARTITIONS]] == [0, 2, 0]
    assert code_of(ends[places[PARTITIONS]]) == KafkaError._UNKNOWN_PARTITION
    assert code_of(ends[places[-1]]) == KafkaError.UNKNOWN_TOPIC_OR_PART
    known = read_topic_metadata(admin, [filled], WAIT_S)
    begins = list_offsets(admin, {places[1]: OffsetSpec.earliest()}, timeout_s=WAIT_S, known=known)
    assert begins[places[1]].result(WAIT_S).offset == 0


def test_listing_offsets_creates_no_topic(guarded: GuardedBroker, tmp_topic: Callable[..., str]) -> None:
    """The broker creates topics automatically, as any other client of ours would make it do."""
    safe, usual = client(guarded.bootstrap), AdminClient({"bootstrap.servers": guarded.bootstrap})
    away, made = TopicPartition(tmp_topic("away"), 0), TopicPartition(tmp_topic("made"), 0)
    asked = list_offsets(safe, {away: OffsetSpec.latest()}, timeout_s=WAIT_S)
    assert code_of(asked[away]) == KafkaError.UNKNOWN_TOPIC_OR_PART
    deadline_s = time.monotonic() + WAIT_S
    while not read_topic_metadata(usual, [made.topic], WAIT_S)[made.topic].partitions:
        assert time.monotonic() < deadline_s, "this broker makes none: the test shows nothing"
        time.sleep(0.05)
    assert away.topic not in safe.list_topics(timeout=WAIT_S).topics


@pytest.mark.kafka
def test_offsets_of_many_topics_come_in_one_call(kafka_bootstrap: str, tmp_topic: Callable[..., str]) -> None:
    admin, kafka, topics = (
        client(kafka_bootstrap),
        Kafka(kafka_bootstrap),
        [tmp_topic(str(number)) for number in range(5)],
    )
    for topic in topics:
        kafka.create_topic(topic, 1)
    asked = {TopicPartition(topic, 0): OffsetSpec.latest() for topic in topics}
    answers = list_offsets(admin, asked, timeout_s=WAIT_S)
    assert [answers[place].result(WAIT_S).offset for place in asked] == [0] * 5


@pytest.mark.kafka
def test_partition_without_a_leader_is_not_queried(kafka_bootstrap: str, filled: str) -> None:
    admin = client(kafka_bootstrap)
    known = read_topic_metadata(admin, [filled], WAIT_S)
    known[filled].partitions[0].leader = -1
    places = [TopicPartition(filled, 0), TopicPartition(filled, 1)]
    answers = list_offsets(admin, dict.fromkeys(places, OffsetSpec.latest()), timeout_s=WAIT_S, known=known)
    assert code_of(answers[places[0]]) == KafkaError.LEADER_NOT_AVAILABLE
    assert answers[places[1]].result(WAIT_S).offset == 2


def test_unreachable_cluster_fails_every_answer() -> None:
    place = TopicPartition("t", 0)
    answers = list_offsets(client("127.0.0.1:1"), {place: OffsetSpec.latest()}, timeout_s=0.2)
    assert code_of(answers[place]) in (KafkaError._TRANSPORT, KafkaError._TIMED_OUT)


@pytest.mark.kafka
@pytest.mark.skipif(not SOAKING, reason="half a minute of both processors: make soak ARGS=tasks")
def test_no_process_crashes_while_listing_offsets(kafka_bootstrap: str, filled: str) -> None:
    """With the client's own method, half of these processes crashed within 40 s (docs/internals/bugs.md)."""
    context = multiprocessing.get_context("spawn")
    started = [context.Process(target=_ask, args=(kafka_bootstrap, filled)) for _ in range(_PROCESSES)]
    for one in started:
        one.start()
    for one in started:
        one.join()
    assert [one.exitcode for one in started] == [0] * _PROCESSES


def _ask(bootstrap: str, topic: str) -> None:
    specs = OffsetSpec.earliest(), OffsetSpec.latest()
    deadline_s = time.monotonic() + _HAMMERED_S
    while time.monotonic() < deadline_s:
        admin = client(bootstrap)
        known = None
        asked: list[dict[TopicPartition, Any]] = []
        for turn in range(_QUESTIONS):
            places = {TopicPartition(topic, number): specs[turn % 2] for number in range(PARTITIONS)}
            asked.append(list_offsets(admin, places, timeout_s=WAIT_S, known=known))
            known = known or read_topic_metadata(admin, [topic], WAIT_S)
        for answers in asked:
            for answer in answers.values():
                answer.result(WAIT_S)
    os._exit(0)
