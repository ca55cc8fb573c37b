"""Columns of the batch consumer, equal to the client's own messages whatever fields records have; events are reported
as by the client. With both implementations, against a real broker.
"""

from __future__ import annotations

import ctypes
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Message, Producer, TopicPartition
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from herdmesh.connect.spi.connector import PartitionId
from herdmesh.engine.librdkafka import native
from herdmesh.engine.librdkafka.batch_consumer import BatchConsumer
from herdmesh.engine.librdkafka.record_columns import RecordColumns
from libs.core.tests.engine.harness import WAIT_S, Kafka

pytestmark = pytest.mark.kafka

_texts = st.none() | st.binary(max_size=20) | st.just(b"a\nb")
_headers = st.lists(st.tuples(st.text("aé", min_size=1, max_size=3), st.none() | st.binary(max_size=5)), max_size=3)
_records = st.lists(
    st.tuples(st.integers(0, 2), _texts, _texts, _headers, st.none() | st.integers(1, 10**12)), min_size=1, max_size=80
)


@pytest.fixture(params=["columns", "messages"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """With the compiled loops, and without them."""
    assert native.loops() is not None, "the client in use was not tried, or set-up did not compile libs/core"
    if request.param == "messages":
        monkeypatch.setattr(native, "loops", lambda: None)
    return request.param


@contextmanager
def reading(
    bootstrap: str, *partitions: PartitionId, followed: bool = True
) -> Generator[tuple[Consumer, BatchConsumer]]:
    config: dict[str, Any] = {
        "bootstrap.servers": bootstrap, "group.id": "intake", "enable.auto.commit": False,
        "auto.offset.reset": "error", "enable.partition.eof": True, "fetch.wait.max.ms": 20,
    }  # fmt: skip
    consumer = Consumer(config)
    intake = BatchConsumer(consumer)
    try:
        if followed:
            intake.follow(partitions)
        consumer.list_topics(
            timeout=WAIT_S
        )  # if partitions were assigned earlier, the client would look for leaders only after half a second
        consumer.assign([TopicPartition(*one, OFFSET_BEGINNING) for one in partitions])
        yield consumer, intake
    finally:
        intake.close()
        consumer.close()


def read(intake: BatchConsumer, count: int, records_max: int = 1_000) -> list[RecordColumns]:
    found: list[RecordColumns] = []
    until_s = time.monotonic() + WAIT_S
    while sum(map(len, found)) < count:
        assert time.monotonic() < until_s, f"{sum(map(len, found))} of {count} records"
        taken, events = intake.take(records_max, 0.05)
        assert all(code_of(event) == KafkaError._PARTITION_EOF for event in events)
        found += taken
    return found


def code_of(event: Message) -> int:
    error = event.error()
    assert error is not None
    return error.code()


@given(records=_records, records_max=st.sampled_from([1, 7, 1_000]))
@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_columns_equal_the_messages_that_were_sent(
    way: str, kafka_bootstrap: str, tmp_topic: Callable[..., str], records: list[Any], records_max: int
) -> None:
    topic, producer = (
        Kafka(kafka_bootstrap).create_topic(tmp_topic(), 3),
        Producer({"bootstrap.servers": kafka_bootstrap}),
    )
    for partition, value, key, headers, time_ms in records:
        producer.produce(topic, value, key, partition, headers=headers or None, timestamp=time_ms or 0)
    assert producer.flush(WAIT_S) == 0
    sent = {number: [one[1:] for one in records if one[0] == number] for number in range(3)}
    with reading(kafka_bootstrap, *((topic, number) for number in range(3))) as (_, intake):
        taken = read(intake, len(records), records_max)
    for number, expected in sent.items():
        parts = [one for one in taken if one.partition == (topic, number)]
        offsets = [offset for one in parts for offset in one.offsets]
        assert offsets == list(range(len(expected)))
        assert [(one.first_offset, one.last_offset) for one in parts] == [(p.offsets[0], p.offsets[-1]) for p in parts]
        columns = [
            row for one in parts for row in zip(one.values, one.keys, headers_of(one), one.times_ms, strict=True)
        ]
        again = [message for one in parts for message in one]
        assert [one.offset() for one in again] == offsets
        assert {(one.topic(), one.partition()) for one in again} <= {(topic, number)}
        for row, message, (value, key, headers, time_ms) in zip(columns, again, expected, strict=True):
            assert row[:3] == (value, key, headers)
            assert time_ms is None or row[3] == time_ms
            assert (message.value(), message.key(), message.headers() or []) == (value, key, headers)
            assert message.timestamp()[1] == row[3]
        assert sum(one.byte_count for one in parts) == sum(len(v or b"") + len(k or b"") for v, k, *_ in expected)


def headers_of(taken: RecordColumns) -> list[Any]:
    return [*taken.headers] or [[]] * len(taken)


def test_end_of_partition_and_offset_out_of_range_are_events(
    way: str, kafka_bootstrap: str, tmp_topic: Callable[..., str]
) -> None:
    kafka = Kafka(kafka_bootstrap)
    topic = kafka.create_topic(tmp_topic(), 1)
    kafka.produce(topic, [b"0", b"1"], partition=0)
    with reading(kafka_bootstrap, (topic, 0)) as (consumer, intake):
        read(intake, 2)
        end = next_event(intake)
        assert (code_of(end), end.topic(), end.partition(), end.offset()) == (KafkaError._PARTITION_EOF, topic, 0, 2)
        consumer.incremental_unassign([TopicPartition(topic, 0)])
        intake.follow([(topic, 0)])
        consumer.incremental_assign([TopicPartition(topic, 0, 7)])
        gone = next_event(intake)
        assert (code_of(gone), gone.topic(), gone.partition()) == (KafkaError._AUTO_OFFSET_RESET, topic, 0)
        assert "out of range" in str(gone.error()).lower()


def next_event(intake: BatchConsumer) -> Message:
    until_s = time.monotonic() + WAIT_S
    while time.monotonic() < until_s:
        _, events = intake.take(10, 0.05)
        if events:
            return events[0]
    raise AssertionError("nothing is told")


def test_after_a_seek_back_only_the_records_from_there_are_read(
    way: str, kafka_bootstrap: str, tmp_topic: Callable[..., str]
) -> None:
    """Records fetched before the seek are discarded."""
    kafka = Kafka(kafka_bootstrap)
    topic = kafka.create_topic(tmp_topic(), 1)
    kafka.produce(topic, [b"%d" % number for number in range(500)], partition=0)
    with reading(kafka_bootstrap, (topic, 0)) as (consumer, intake):
        assert read(intake, 10, 10)[0].first_offset == 0
        consumer.incremental_unassign([TopicPartition(topic, 0)])
        intake.follow([(topic, 0)])
        consumer.incremental_assign([TopicPartition(topic, 0, 3)])
        assert [offset for one in read(intake, 497) for offset in one.offsets] == list(range(3, 500))


def test_a_null_beside_end_of_partition_events_stays_null(
    way: str, kafka_bootstrap: str, tmp_topic: Callable[..., str]
) -> None:
    """An end-of-partition event has a text, which is no record's value: counted at once with records, it was taken for
    one.
    """
    kafka = Kafka(kafka_bootstrap)
    topic = kafka.create_topic(tmp_topic(), 2)
    kafka.produce(topic, [None, None, b"1"], partition=1)
    for _ in range(3):
        with reading(kafka_bootstrap, (topic, 0), (topic, 1)) as (_consumer, intake):
            wait_for_items(intake, 5)  # both end events lie beside the records: as many as there are nulls
            assert [value for one in read(intake, 3) for value in one.values] == [None, None, b"1"]


def wait_for_items(intake: BatchConsumer, count: int) -> None:
    """Wait until `count` items lie in the consumer's queue, if it has one."""
    queue = intake._queue  # pyright: ignore[reportPrivateUsage]
    if queue is None:
        return
    length = native.librdkafka().rd_kafka_queue_length
    length.restype, length.argtypes = ctypes.c_size_t, [ctypes.c_void_p]
    until_s = time.monotonic() + WAIT_S
    while length(queue) < count:
        assert time.monotonic() < until_s, f"{length(queue)} of {count}"
        time.sleep(0.02)


def test_partitions_without_follow_are_read_too(way: str, kafka_bootstrap: str, tmp_topic: Callable[..., str]) -> None:
    kafka = Kafka(kafka_bootstrap)
    topic = kafka.create_topic(tmp_topic(), 1)
    kafka.produce(topic, [b"0", b"1"], partition=0)
    with reading(kafka_bootstrap, (topic, 0), followed=False) as (_, intake):
        assert [value for one in read(intake, 2) for value in one.values] == [b"0", b"1"]


def test_an_unfollowed_partition_is_not_read_and_may_be_followed_again(
    way: str, kafka_bootstrap: str, tmp_topic: Callable[..., str]
) -> None:
    kafka = Kafka(kafka_bootstrap)
    topic = kafka.create_topic(tmp_topic(), 2)
    for number in range(2):
        kafka.produce(topic, [b"0", b"1"], partition=number)
    with reading(kafka_bootstrap, (topic, 0), (topic, 1)) as (consumer, intake):
        read(intake, 4)
        for _ in range(3):
            consumer.incremental_unassign([TopicPartition(topic, 0)])
            intake.unfollow([(topic, 0)])
            kafka.produce(topic, [b"2"], partition=1)
            assert [one.partition for one in read(intake, 1)] == [(topic, 1)]
            intake.follow([(topic, 0)])
            consumer.incremental_assign([TopicPartition(topic, 0, 1)])
            assert [(one.partition, list(one.offsets)) for one in read(intake, 1)] == [((topic, 0), [1])]


def test_a_closed_consumer_is_not_read(way: str, kafka_bootstrap: str) -> None:
    with reading(kafka_bootstrap) as (consumer, intake):
        intake.close()
        consumer.close()
        with pytest.raises(RuntimeError, match="closed"):
            intake.take(10, 0)


def test_without_compiled_loops_or_a_supported_client_the_fast_path_is_disabled(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The worker logs it at its start, with the installed and the supported version."""
    other = "Fast path disabled: unsupported confluent-kafka 2.17 (supported: 2.16.1); throughput will be lower"
    missing = "Fast path disabled: the compiled library none.so of herdmesh-core is missing, or not of this platform; "
    assert native.fast_path_disabled() == ""
    try:
        for name, value, said in (("__version__", "2.17", other), ("", tmp_path / "none.so", missing)):
            native.librdkafka.cache_clear()
            native.loops.cache_clear()
            with monkeypatch.context() as patch:
                if name:
                    patch.setattr(confluent_kafka, name, value)
                else:
                    patch.setattr(native, "_LOOPS", value)
                assert native.loops() is None
                assert native.fast_path_disabled().startswith(said)
    finally:
        native.librdkafka.cache_clear()
        native.loops.cache_clear()


def test_a_wait_for_records_is_ended_from_another_thread(kafka_bootstrap: str, tmp_topic: Callable[..., str]) -> None:
    topic = Kafka(kafka_bootstrap).create_topic(tmp_topic(), 1)
    with reading(kafka_bootstrap, (topic, 0)) as (_, intake):
        while not intake.take(10, WAIT_S)[1]:  # the end of the partition: from now on nothing ends a wait by itself
            pass
        begun_s = time.monotonic()
        waker = threading.Timer(0.05, intake.wake)
        waker.start()
        assert intake.take(10, WAIT_S) == ([], [])
        waker.join()
        intake.wake()
        assert intake.take(10, WAIT_S) == ([], []), "a wake-up before the wait is not lost"
        assert time.monotonic() - begun_s < WAIT_S / 3
    intake.wake()  # has no effect on a closed one
