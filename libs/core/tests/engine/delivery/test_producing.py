"""Queueing of records, against a real broker: every field of a record arrives, whichever way its batch is queued."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import TIMESTAMP_CREATE_TIME, Producer

from herdmesh.connect.model.data import Batch
from herdmesh.engine.delivery import producing
from libs.core.tests.engine.harness import Kafka

pytestmark = pytest.mark.kafka


def test_the_client_takes_a_timestamp_of_zero_as_now(kafka_bootstrap: str, tmp_topic: Callable[..., str]) -> None:
    """docs/connectors/mirror.md names this behaviour."""
    kafka = Kafka(kafka_bootstrap)
    topic, producer = kafka.create_topic(tmp_topic(), 1), Producer({"bootstrap.servers": kafka_bootstrap})
    assert producing.produce(producer, Batch(topic, 0, [], [b"zero", b"one"], timestamps_ms=[0, 1])) == []
    assert producer.flush(20) == 0
    zero_ms, one_ms = (message.timestamp()[1] for message in kafka.messages(topic, 1))
    assert zero_ms > 1_600_000_000_000
    assert one_ms == 1


@pytest.mark.parametrize("times", [[1_234, None], []], ids=["times", "no-times"])
@pytest.mark.parametrize("headers", [[[("a", b"1"), ("a", None)], []], []], ids=["headers", "no-headers"])
def test_every_field_of_a_record_arrives(
    kafka_bootstrap: str, tmp_topic: Callable[..., str], times: list[int | None], headers: list[Any]
) -> None:
    """Positional arguments of the client's call differ only by its version: another version may read them otherwise."""
    kafka, partition = Kafka(kafka_bootstrap), 1 if times else None
    topic, producer = kafka.create_topic(tmp_topic(), 2), Producer({"bootstrap.servers": kafka_bootstrap})
    batch = Batch(topic, partition, [b"k", None], [b"v", None], timestamps_ms=times, headers=headers)
    assert producing.produce(producer, batch) == []
    assert producer.flush(20) == 0
    found = kafka.messages(topic, 2)
    first, second = sorted(found, key=lambda message: message.key() is None)
    assert [(one.key(), one.value()) for one in (first, second)] == [(b"k", b"v"), (None, None)]
    assert (first.headers() or [], second.headers() or []) == (headers[0] if headers else [], [])
    assert partition is None or {one.partition() for one in found} == {partition}
    (kind, first_ms), (_, second_ms) = first.timestamp(), second.timestamp()
    assert kind == TIMESTAMP_CREATE_TIME
    assert (first_ms == 1_234) is bool(times)
    assert second_ms > 1_600_000_000_000, "without a time of its own: now"
