"""Queueing more records than the client holds, and some it refuses, against a real broker."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer

from herdmesh.connect.model.data import Batch
from herdmesh.engine.delivery import producing
from herdmesh.engine.librdkafka.column_queue import ColumnQueue, column_queue
from libs.core.tests.engine.harness import Kafka

pytestmark = pytest.mark.kafka
RECORDS = 500
TOO_LARGE = frozenset((0, 7, 8, RECORDS - 1))
Way = Callable[[Producer], ColumnQueue | None]


def one_by_one(producer: Producer) -> None:
    """The way for records that want a report each."""
    return


def columns(producer: Producer) -> ColumnQueue:
    """The way for whole batches. Fails with a client version that was not tried."""
    found = column_queue(producer)
    assert found is not None
    return found


EITHER_WAY = pytest.mark.parametrize("way", [one_by_one, columns])


@EITHER_WAY
def test_a_full_queue_is_waited_for_and_a_refused_record_is_named_with_the_others_in_order(
    kafka_bootstrap: str, tmp_topic: Callable[..., str], way: Way
) -> None:
    kafka = Kafka(kafka_bootstrap)
    topic = kafka.create_topic(tmp_topic(), 1)
    producer = Producer(
        {"bootstrap.servers": kafka_bootstrap, "queue.buffering.max.messages": 20, "message.max.bytes": 1_000}
    )
    values = [b"x" * 5_000 if number in TOO_LARGE else b"%d" % number for number in range(RECORDS)]
    refused = producing.produce(producer, Batch(topic, None, [], values), columns=way(producer))
    assert [place for place, _ in refused] == sorted(TOO_LARGE)
    assert {error.code() for _, error in refused} == {KafkaError.MSG_SIZE_TOO_LARGE}
    producing.produce_all(producer, topic, {b"last": None})
    with pytest.raises(KafkaException, match="MSG_SIZE_TOO_LARGE"):
        producing.produce_all(producer, topic, {b"k": b"x" * 5_000})
    assert producer.flush(20) == 0
    sent = [(None, b"%d" % number) for number in range(RECORDS) if number not in TOO_LARGE]
    assert kafka.records(topic) == [*sent, (b"last", None)]


@EITHER_WAY
def test_a_record_larger_than_the_whole_queue_is_refused_without_waiting(
    kafka_bootstrap: str, tmp_topic: Callable[..., str], way: Way
) -> None:
    kafka = Kafka(kafka_bootstrap)
    topic = kafka.create_topic(tmp_topic(), 1)
    producer = Producer({"bootstrap.servers": kafka_bootstrap, "queue.buffering.max.kbytes": 2})
    values = [b"x" * 5_000 if number in TOO_LARGE else b"%d" % number for number in range(RECORDS)]
    refused = producing.produce(producer, Batch(topic, None, [], values), columns=way(producer))
    assert [place for place, _ in refused] == sorted(TOO_LARGE)
    assert all("larger than producer.buffer.memory" in str(error) for _, error in refused)
    assert producer.flush(20) == 0
    assert [value for _, value in kafka.records(topic)] == [value for value in values if len(value) < 2_000]
