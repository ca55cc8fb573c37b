"""Runs whose Kafka client has forgotten every broker (librdkafka 5301): deaf for good, and they must not stay.

That such a client is told from one whose broker is away is tried in `topicstore/test_kafka_forgotten.py`.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

import pytest
from confluent_kafka import KafkaException

from herdmesh.connect.errors import RetriableError
from herdmesh.engine import ErrorClass, RunEnd, failure
from herdmesh.engine.source_cluster import BEGINNING, Reader, SourceCluster
from herdmesh.kafka.contact import Contact
from libs.core.tests.engine.harness import WAIT_S, Kafka, Link, make_spec, run_here
from libs.core.tests.engine.sinks import PATH
from tests.support.forgetful_proxy import forgetful_proxy

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(240)]
OFTEN = {"topic.metadata.refresh.interval.ms": "100"}


@pytest.fixture(scope="module")
def kafka_topics(kafka_bootstrap: str) -> Kafka:
    return Kafka(kafka_bootstrap)


def _port(kafka: Kafka) -> int:
    return int(kafka.bootstrap.rpartition(":")[2])


def test_a_sink_run_that_would_hear_of_nothing_ends_as_in_an_outage(
    kafka_topics: Kafka, tmp_topic: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    topic, name, link = kafka_topics.create_topic(tmp_topic(), 1), tmp_topic("sink"), Link()
    kafka_topics.produce_ids(topic, range(5))

    def is_lost(_contact: Contact, _consumer: object) -> bool:
        return bool(link.reports) and link.reports[-1].records_in == 5

    monkeypatch.setattr(Contact, "is_lost", is_lost)
    spec = make_spec(kafka_topics.bootstrap, name, f"{PATH}:ListSink", {"topics": topic}, continuous=True)
    with pytest.raises(KafkaException) as raised:
        run_here(spec, link)
    assert failure.error_class(raised.value) is ErrorClass.UNREACHABLE


def test_a_warm_run_that_would_hear_of_nothing_rests(
    kafka_topics: Kafka, tmp_topic: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """All is committed, and the worker sees when there is more."""
    topic, name, link = kafka_topics.create_topic(tmp_topic(), 1), tmp_topic("sink"), Link()
    kafka_topics.produce_ids(topic, range(5))

    def is_lost(_contact: Contact, _consumer: object) -> bool:
        return bool(link.reports) and link.reports[-1].warm

    monkeypatch.setattr(Contact, "is_lost", is_lost)
    spec = make_spec(
        kafka_topics.bootstrap, name, f"{PATH}:ListSink", {"topics": topic}, linger_ms=100, stays_warm=True
    )
    assert run_here(spec, link).reason is RunEnd.QUIET
    assert kafka_topics.committed(f"connect-{name}", (topic, 0)) == [5]


async def test_a_reader_of_another_cluster_reads_on(kafka_topics: Kafka, tmp_topic: Callable[..., str]) -> None:
    topic = kafka_topics.create_topic(tmp_topic(), 1)
    async with forgetful_proxy(_port(kafka_topics)) as proxy:
        cluster = SourceCluster("a", proxy.bootstrap, {**OFTEN}, {**OFTEN}, tmp_topic("reader"))
        reader = await asyncio.to_thread(cluster.reader, {(topic, 0): BEGINNING}, 100)
        try:
            for number in range(3):
                async with asyncio.timeout(WAIT_S):
                    await proxy.forget()
                value = b"%d" % number
                kafka_topics.produce(topic, [value])
                assert await asyncio.to_thread(_next, reader) == [value]
                assert (topic, 1) in await asyncio.to_thread(_counts, cluster)
        finally:
            await asyncio.to_thread(reader.close)


def _next(reader: Reader) -> list[bytes]:
    end_s = time.monotonic() + WAIT_S
    while time.monotonic() < end_s:
        if found := [value for stretch in _read(reader) for value in stretch]:
            return found
    return []


def _read(reader: Reader) -> list[list[bytes]]:
    try:
        return [stretch.values for stretch in reader.read(10, 0.1)]
    except RetriableError:  # as a task is asked again
        return []


def _counts(cluster: SourceCluster) -> set[tuple[str, int]]:
    end_s = time.monotonic() + WAIT_S
    while True:
        try:
            return set(cluster.partition_counts().items())
        except RetriableError:
            assert time.monotonic() < end_s
