"""Batches queued by librdkafka's own call against a real broker: they arrive like records queued one by one, and
records that Kafka or the client refuses fail the same way.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka import KafkaError, KafkaException, Producer
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from herdmesh.connect.error_class import ErrorClass
from herdmesh.connect.model.data import Batch
from herdmesh.connect.model.packed_texts import PackedBytes
from herdmesh.engine.delivery import producing
from herdmesh.engine.delivery.delivery_reports import DeliveryFailures
from herdmesh.engine.delivery.source_delivery import SourceDelivery
from herdmesh.engine.fencing.fence import held
from herdmesh.engine.librdkafka import native
from herdmesh.engine.librdkafka.column_queue import ANY_PARTITION, ColumnQueue, column_queue
from herdmesh.engine.runtime.contract import TaskKind
from herdmesh.engine.runtime.errors import TaskFailed
from herdmesh.engine.runtime.failure import error_class
from herdmesh.engine.runtime.settings import source_settings
from herdmesh.engine.source.source_transaction import SourceTransaction
from libs.core.tests.engine.harness import Kafka, Link, make_spec

pytestmark = pytest.mark.kafka
RECORDS = 300


def columns_of(producer: Producer) -> ColumnQueue:
    """The column queue of a producer. Fails with a client version that was not tried: then add it, once these tests
    pass with it.
    """
    found = column_queue(producer)
    assert found is not None
    return found


def test_an_unsupported_client_version_has_no_such_call(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(confluent_kafka, "__version__", "1.0.0")
    native.librdkafka.cache_clear()
    try:
        assert column_queue(Producer({"log_level": 0})) is None
    finally:
        native.librdkafka.cache_clear()


def test_a_closed_producer_takes_nothing() -> None:
    producer = Producer({"log_level": 0})
    columns = columns_of(producer)
    producer.close()
    with pytest.raises(RuntimeError, match="closed"):
        columns.put("topic", ANY_PARTITION, [b"1"], [])


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    values=st.lists(st.none() | st.binary(max_size=30), min_size=64, max_size=150),
    keys=st.none() | st.sampled_from([(b"a", b"b", None, b"", b"longer than the others"), (b"k",), (None,)]),
)
def test_keys_and_values_arrive_unchanged_in_order(
    kafka_bootstrap: str, tmp_topic: Callable[..., str], values: list[bytes | None], keys: tuple[bytes | None, ...]
) -> None:
    """Null and the empty text stay different, too."""
    kafka = Kafka(kafka_bootstrap)
    topic, producer = kafka.create_topic(tmp_topic(), 1), Producer({"bootstrap.servers": kafka_bootstrap})
    column = [keys[number % len(keys)] for number in range(len(values))] if keys else []
    batch = Batch(topic, None, column, values)
    assert producing.produce(producer, batch, columns=columns_of(producer)) == []
    assert producer.flush(20) == 0
    assert kafka.records(topic, 1) == list(zip(column or [None] * len(values), values, strict=True))


@given(st.lists(st.binary(max_size=30).map(lambda line: line.replace(b"\n", b"")), min_size=100, max_size=150))
@settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_packed_values_arrive_like_those_of_a_list(
    kafka_bootstrap: str, tmp_topic: Callable[..., str], lines: list[bytes]
) -> None:
    kafka = Kafka(kafka_bootstrap)
    topic, producer = kafka.create_topic(tmp_topic(), 1), Producer({"bootstrap.servers": kafka_bootstrap})
    packed = PackedBytes.lines(b"".join(line + b"\n" for line in lines))
    for part in (packed, packed[20:90], packed[:20]):  # the last of these are queued one by one
        assert producing.produce(producer, Batch(topic, None, [], part), columns=columns_of(producer)) == []
    assert producer.flush(20) == 0
    assert [value for _, value in kafka.records(topic, 1)] == [*lines, *lines[20:90], *lines[:20]]


def test_a_key_goes_to_the_same_partition_as_when_queued_one_by_one(
    kafka_bootstrap: str, tmp_topic: Callable[..., str]
) -> None:
    kafka, keys = Kafka(kafka_bootstrap), [b"%d" % number for number in range(RECORDS)]
    producer = Producer({"bootstrap.servers": kafka_bootstrap, "partitioner": "murmur2_random"})
    found: list[dict[bytes | None, int | None]] = []
    for columns in (None, columns_of(producer)):
        topic = kafka.create_topic(tmp_topic(), 5)
        assert producing.produce(producer, Batch(topic, None, keys, keys), columns=columns) == []
        assert producer.flush(20) == 0
        found.append({one.key(): one.partition() for one in kafka.messages(topic, 5)})
    assert found[0] == found[1]
    assert len(found[1]) == RECORDS
    topic = kafka.create_topic(tmp_topic(), 5)
    assert producing.produce(producer, Batch(topic, 3, keys, keys), columns=columns_of(producer)) == []
    assert producer.flush(20) == 0
    assert {one.partition() for one in kafka.messages(topic, 5)} == {3}


@pytest.mark.parametrize("large", [0, RECORDS // 2, RECORDS - 1], ids=["first", "middle", "last"])
@pytest.mark.parametrize("messages", [10_000, 7], ids=["one-request", "many-requests"])
def test_a_record_the_topic_refuses_fails_the_commit_and_is_named(
    kafka_bootstrap: str, tmp_topic: Callable[..., str], large: int, messages: int
) -> None:
    """As for records with a report each: the topic, the reason, and an error class that is not retried."""
    kafka = Kafka(kafka_bootstrap)
    topic = kafka.create_topic(tmp_topic(), 1, **{"max.message.bytes": "20000"})
    spec = make_spec(kafka.bootstrap, tmp_topic("source"), "x:Y", {}, kind=TaskKind.SOURCE)
    failures = DeliveryFailures()
    fence = held(spec, {"batch.num.messages": messages}, failures.add)
    fence.take_over()
    open_one = SourceTransaction(spec, source_settings(spec), Link(), SourceDelivery(fence), failures, None)
    values: list[bytes | None] = [b"%d" % number for number in range(RECORDS)]
    values[large] = os.urandom(30_000)  # random bytes, which no compression makes small
    open_one.begin()
    assert open_one.produce(Batch(topic, 0, [], values)) == []
    with pytest.raises(TaskFailed, match=topic) as failed:
        open_one.commit()
    assert "too large" in str(failed.value)
    assert failed.value.error_class is ErrorClass.FATAL
    fence.close()
    assert kafka.records(topic, 1) == []


@pytest.mark.parametrize("then", ["a record", "an offset"])
def test_errors_after_a_refused_record_do_not_hide_the_refusal(
    kafka_bootstrap: str, tmp_topic: Callable[..., str], then: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The client accepts nothing into the broken transaction; for later records it reports only that its state is
    wrong, and for the batch's last record only that it was purged.
    """
    kafka = Kafka(kafka_bootstrap)
    topic = kafka.create_topic(tmp_topic(), 1, **{"max.message.bytes": "20000"})
    spec = make_spec(kafka.bootstrap, tmp_topic("source"), "x:Y", {}, kind=TaskKind.SOURCE)
    failures = DeliveryFailures()
    fence = held(spec, {"batch.num.messages": 7}, failures.add)
    fence.take_over()
    open_one = SourceTransaction(spec, source_settings(spec), Link(), SourceDelivery(fence), failures, None)
    values: list[bytes | None] = [b"%d" % number for number in range(RECORDS)]
    values[0] = os.urandom(30_000)
    open_one.begin()
    assert open_one.produce(Batch(topic, 0, [], values)) == []
    while "current transaction must be aborted" not in caplog.text:
        fence.producer.poll(0.05)
    with pytest.raises((TaskFailed, KafkaException)) as failed:  # noqa: PT012
        if then == "a record":
            open_one.produce(Batch(topic, 0, [], [b"%d" % number for number in range(RECORDS)]))
        else:
            open_one.move(b"key", b"value")
        open_one.commit()
    error: Exception = failed.value
    if isinstance(error, KafkaException):  # as the loop does
        with pytest.raises(TaskFailed) as told:
            open_one.raise_refused(error)
        error = told.value
    fence.close()
    assert f"ProduceRequest for {topic}" in str(error)
    assert "too large" in str(error)
    assert error_class(error) is ErrorClass.FATAL
    assert kafka.records(topic, 1) == []


def test_a_transaction_with_records_that_no_report_covers_does_not_commit(
    kafka_bootstrap: str, tmp_topic: Callable[..., str]
) -> None:
    """They leave the client's queue by themselves, as when they expire: no request, no error of `produce`."""
    kafka = Kafka(kafka_bootstrap)
    topic = kafka.create_topic(tmp_topic(), 1)
    spec = make_spec(kafka.bootstrap, tmp_topic("source"), "x:Y", {}, kind=TaskKind.SOURCE)
    fence = held(spec, {"linger.ms": 30_000})
    fence.take_over()
    outlet = SourceDelivery(fence)
    fence.begin()
    assert outlet.columns is not None
    values = [b"%d" % number for number in range(RECORDS)]
    assert outlet.columns.put(topic, 0, values, []) == []
    fence.producer.purge()
    fence.producer.produce(topic, b"another")
    with pytest.raises(TaskFailed, match=f"{RECORDS} message\\(s\\) failed delivery"):
        outlet.commit({}, [])
    fence.close()
    assert kafka.records(topic, 1) == []


def test_a_vanished_partition_is_no_record_failure_unless_the_task_chose_the_partition(
    kafka_bootstrap: str, tmp_topic: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise `errors.tolerance=all` would skip them one by one."""
    topic, producer = (
        Kafka(kafka_bootstrap).create_topic(tmp_topic(), 1),
        Producer({"bootstrap.servers": kafka_bootstrap}),
    )
    producer.produce(topic, b"so that the client knows the topic")
    assert producer.flush(20) == 0
    columns = columns_of(producer)

    def gone(_topic: str) -> int:
        return 9

    monkeypatch.setattr(columns.spread, "partition", gone)
    with pytest.raises(KafkaException, match="UNKNOWN_PARTITION"):
        producing.produce(producer, Batch(topic, None, [], [b"v"] * RECORDS), columns=columns)
    refused = producing.produce(producer, Batch(topic, 9, [], [b"v"] * RECORDS), columns=columns)
    assert [place for place, _ in refused] == list(range(RECORDS)), "the task chose it: each record's own"


def test_the_culprits_report_wins_over_those_of_its_neighbours() -> None:
    said: Any = SimpleNamespace(topic=lambda: "t", key=lambda: None, value=lambda: b"v")
    failures = DeliveryFailures()
    failures.add(KafkaError(KafkaError._INVALID_DIFFERENT_RECORD), said)
    assert failures
    assert not failures.names_culprit
    failures.add(KafkaError(KafkaError.INVALID_RECORD), said)
    failures.add(KafkaError(KafkaError._INVALID_DIFFERENT_RECORD), said)
    with pytest.raises(TaskFailed, match=r"Kafka refused a record for topic t.*the record has no key") as failed:
        failures.raise_first()
    assert failed.value.error_class is ErrorClass.FATAL


@pytest.mark.parametrize(
    "values",
    [[0, None], ["text"], [memoryview(b"12345678").cast("i")]],
    ids=["numbers", "texts", "items of four bytes"],
)
def test_a_value_that_is_not_bytes_is_refused_as_when_queued_one_by_one(values: list[Any]) -> None:
    columns = columns_of(Producer({"log_level": 0}))
    with pytest.raises(TypeError):
        columns.put("topic", ANY_PARTITION, values, [])


def test_a_column_of_another_length_is_refused() -> None:
    producer = Producer({"log_level": 0})
    with pytest.raises(ValueError, match="1 keys for 300 values"):
        producing.produce(producer, Batch("t", None, [b"k"], [b"v"] * RECORDS), columns=columns_of(producer))


def test_records_that_reach_no_request_fail_by_the_report_of_the_last_record(
    kafka_bootstrap: str, tmp_topic: Callable[..., str]
) -> None:
    """The client itself discards records of an invalid topic: the commit's error only refers to the delivery
    reports.
    """
    spec = make_spec(kafka_bootstrap, tmp_topic("source"), "x:Y", {}, kind=TaskKind.SOURCE)
    failures = DeliveryFailures()
    fence = held(spec, {}, failures.add)
    fence.take_over()
    open_one = SourceTransaction(spec, source_settings(spec), Link(), SourceDelivery(fence), failures, None)
    open_one.begin()
    open_one.sent["no name"] = 0  # as for a topic whose metadata was read
    numbers = [b"%d" % number for number in range(RECORDS)]
    # The second text when the cluster's answer about the topic comes between the batch and its last record.
    said = "refused a record for topic no name|Local: Unknown topic"
    with pytest.raises((TaskFailed, KafkaException), match=said) as failed:  # noqa: PT012
        assert open_one.produce(Batch("no name", None, [b"k"] * RECORDS, numbers)) == []
        open_one.commit()
    fence.close()
    at_once = isinstance(failed.value, KafkaException)
    assert error_class(failed.value) is (ErrorClass.RETRIABLE if at_once else ErrorClass.BAD_CONFIG)
