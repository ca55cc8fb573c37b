"""Poison records of sources, against a real broker: dead letters in the transaction of their batch."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Mapping
from typing import Any, cast

import pytest

from herdmesh.connect.converters import CONVERTERS as CONVERTER_CLASSES
from herdmesh.connect.errors import InvalidRecordError, RecordError, RetriableError
from herdmesh.connect.model.data import Header
from herdmesh.connect.model.schemas import OPTIONAL_STRING
from herdmesh.connect.spi.connector import SourceBatch
from herdmesh.engine import ProgressReport, RunEnd, RunSpec, Stop, TaskFailed, TaskKind
from herdmesh.engine.runtime.contract import Command, Share
from herdmesh.engine.source.source_transaction import SourceTransaction
from libs.core.tests.engine.bad_records.test_dead_letters import CHAIN, JSON, MASK, PREFIX, cut_sizes, letters_of, told
from libs.core.tests.engine.harness import WAIT_S, Kafka, Link, make_spec, run_here
from libs.core.tests.engine.sinks import PATH, GivenSource

pytestmark = pytest.mark.kafka


@pytest.fixture(scope="module")
def kafka_topics(kafka_bootstrap: str) -> Kafka:
    return Kafka(kafka_bootstrap)


def source_spec(kafka: Kafka, name: str, config: Mapping[str, str], *batches: SourceBatch) -> RunSpec:
    GivenSource.batches = list(batches)
    more = {
        "errors.deadletterqueue.topic.name": f"{name}-dlq",
        "errors.deadletterqueue.topic.replication.factor": "1",
        "errors.deadletterqueue.context.headers.enable": "true",
        "topic.creation.default.partitions": "1",
    }
    return make_spec(
        kafka.bootstrap, name, f"{PATH}:GivenSource", {**CHAIN, **more, **config},
        kind=TaskKind.SOURCE, offset_storage_topic=f"{name}-offsets",
    )  # fmt: skip


def given(topic: str, count: int, first: int = 0, **poison: Any) -> SourceBatch:
    """Good records, with a poison record in their middle if one is given."""
    ids = range(first, first + count)
    batch = SourceBatch(
        topic, [{"id": one} for one in ids], None, None, keys=[str(one) for one in ids],
        timestamps_ms=[1_234] * count, headers=[[Header("own", 1)] for _ in ids],
    )  # fmt: skip
    for column, value in poison.items():
        cast("list[Any]", getattr(batch, column)).insert(count // 2, value)
    if poison:
        for column, value in (
            ("values", {"id": -1}),
            ("keys", "k"),
            ("headers", [Header("own", 1)]),
            ("timestamps_ms", 5),
        ):
            if column not in poison:
                cast("list[Any]", getattr(batch, column)).insert(count // 2, value)
    return batch


SOURCE_POISONS: list[tuple[str, dict[str, Any], str]] = [
    ("KEY_CONVERTER", {"keys": object()}, JSON),
    ("VALUE_CONVERTER", {"values": {"id": object()}}, JSON),
    ("HEADER_CONVERTER", {"headers": [Header("own", 1), Header("bad", object())]}, JSON),
    ("TRANSFORMATION", {"values": "text"}, MASK),
    ("KAFKA_PRODUCE", {"values": {"id": -1, "big": "x" * 2_000}}, "org.apache.kafka.clients.producer.KafkaProducer"),
]
SMALL = {"producer.override.max.request.size": "1500"}
LONG_TRANSACTIONS = {"transaction.boundary": "interval", "transaction.boundary.interval.ms": "60000"}
"""The first transaction of a run lasts 50 ms by default, which may end between two polls."""
SOURCE_STAGES = pytest.mark.parametrize(
    ("stage", "poison", "class_name"), SOURCE_POISONS, ids=[one[0] for one in SOURCE_POISONS]
)


@SOURCE_STAGES
def test_a_tolerated_poison_record_of_a_source_becomes_a_dead_letter_in_its_transaction(
    kafka_topics: Kafka, tmp_topic: Callable[..., str], stage: str, poison: dict[str, Any], class_name: str
) -> None:
    topic, name = tmp_topic(), tmp_topic("source")
    config = {"errors.tolerance": "all", **(SMALL if stage == "KAFKA_PRODUCE" else {})}
    outcome = run_here(source_spec(kafka_topics, name, config, given(topic, 500, **poison), given(topic, 500, 500)))
    ids = [json.loads(value or b"")["id"] for _, value in kafka_topics.records(topic, 1)]
    assert ids == list(range(1_000)), "nothing else lost, and in order"
    progress, errors = outcome.progress, outcome.progress.errors
    assert (progress.records_in, progress.records_out) == (1_001, 1_000)
    assert (errors.failures, errors.dead_letters) == (1, 1)
    letters = letters_of(kafka_topics, f"{name}-dlq")
    if stage == "KAFKA_PRODUCE":
        assert (errors.dead_letters_failed, errors.dead_letters_cut) == (0, 1), "too large for the client's requests"
        [letter] = letters
        headers = cast("list[Any]", letter.headers())
        assert cut_sizes(headers)["value_bytes"] > 2_000
        assert dict(headers)[PREFIX + "stage"] == b"KAFKA_PRODUCE"
        return
    assert errors.skipped == 1
    [letter] = letters
    headers = cast("list[Any]", letter.headers())
    found = told(headers[1:] if stage != "HEADER_CONVERTER" else headers[2:])
    assert headers[0] == ("own", b'{"schema":null,"payload":1}')
    assert (found["topic"], found["partition"], found["offset"]) == (topic.encode(), b"-1", b"-1")
    assert (found["stage"], found["class.name"]) == (stage.encode(), class_name.encode())
    if stage == "TRANSFORMATION":
        assert (letter.key(), letter.value()) == (b'{"schema":null,"payload":"k"}', b'{"schema":null,"payload":"text"}')
        assert letter.timestamp()[1] == 5
    assert GivenSource.commits[-1] == 2


@SOURCE_STAGES
def test_a_poison_record_of_a_source_without_tolerance_ends_the_task_before_its_batch(
    kafka_topics: Kafka, tmp_topic: Callable[..., str], stage: str, poison: dict[str, Any], class_name: str
) -> None:
    topic, name = tmp_topic(), tmp_topic("source")
    overrides = LONG_TRANSACTIONS | (SMALL if stage == "KAFKA_PRODUCE" else {})
    spec = source_spec(kafka_topics, name, overrides, given(topic, 10), given(topic, 10, 10, **poison))
    with pytest.raises(RecordError, match=f"Error in stage {stage}") as ended:
        run_here(spec)
    assert class_name in str(ended.value)
    assert GivenSource.commits == [], "what was polled last is not in Kafka"
    ids = [json.loads(value or b"")["id"] for _, value in kafka_topics.records(topic, 1)]
    assert ids == ([] if stage == "KAFKA_PRODUCE" else list(range(10)))
    assert len(letters_of(kafka_topics, f"{name}-dlq")) == 1
    GivenSource.batches[1] = given(topic, 10, 10)
    run_here(spec)
    ids = [json.loads(value or b"")["id"] for _, value in kafka_topics.records(topic, 1)]
    assert ids == list(range(20)), "and once it is mended, the task goes on where it was"


BOTH_WAYS = pytest.mark.parametrize("guarantee", ["exactly_once", "at_least_once"])


@BOTH_WAYS
def test_a_source_record_too_large_for_the_dead_letter_queue_is_cut(
    kafka_topics: Kafka, tmp_topic: Callable[..., str], guarantee: str
) -> None:
    """It is cut before it is sent, as a refusal would abort the transaction; and no request exceeds the topic's
    limit.
    """
    topic, name = tmp_topic(), tmp_topic("source")
    kafka_topics.create_topic(f"{name}-dlq", 1, **{"max.message.bytes": "5000"})
    text = random.Random(1).randbytes(3_000).hex()
    batch = SourceBatch(topic, [text, *(str(number) for number in range(10))], None, None, value_schema=OPTIONAL_STRING)
    config = {"errors.tolerance": "all", "herdmesh.delivery.guarantee": guarantee}
    errors = run_here(source_spec(kafka_topics, name, config, batch)).progress.errors
    assert (errors.dead_letters, errors.dead_letters_failed, errors.dead_letters_cut) == (11, 0, 1)
    cut, *whole = letters_of(kafka_topics, f"{name}-dlq")
    assert [json.loads(one.value() or b"")["payload"] for one in whole] == [str(number) for number in range(10)]
    assert text[:900] in (cut.value() or b"").decode()
    assert cut_sizes(cut.headers())["value_bytes"] > len(text)


@BOTH_WAYS
def test_a_source_dead_letter_the_queue_refuses_fails_the_task_before_its_offset_is_committed(
    kafka_topics: Kafka, tmp_topic: Callable[..., str], guarantee: str
) -> None:
    topic, name = tmp_topic(), tmp_topic("source")
    kafka_topics.create_topic(f"{name}-dlq", 1, **{"cleanup.policy": "compact"})
    batch = SourceBatch(topic, ["text"], None, None, value_schema=OPTIONAL_STRING)
    config = {"errors.tolerance": "all", "herdmesh.delivery.guarantee": guarantee}
    with pytest.raises(TaskFailed, match=rf"{name}-dlq must not be compacted") as failed:
        run_here(source_spec(kafka_topics, name, config, batch))
    place = f"a record for topic {topic}, at or before source offset {{next=1}} of source partition {{given=a}}"
    assert failed.value.message.startswith(f"the dead letter of {place} cannot be written to topic {name}-dlq")
    assert GivenSource.commits == []


def test_a_timestamp_that_kafka_rejects_ends_a_source_whatever_the_tolerance(
    kafka_topics: Kafka, tmp_topic: Callable[..., str]
) -> None:
    """As in Connect, which checks neither tolerance nor dead letter queue; there, -1 is an invalid timestamp."""
    topic, name = tmp_topic(), tmp_topic("source")
    no_time = SourceBatch(topic, [{"id": 1}], None, None, timestamps_ms=[-1])
    spec = source_spec(kafka_topics, name, {"errors.tolerance": "all"}, no_time)
    run_here(spec)
    GivenSource.batches.append(SourceBatch(topic, [{"id": 2}, {"id": 3}], None, None, timestamps_ms=[5, -2]))
    with pytest.raises(InvalidRecordError, match=r"^Invalid record timestamp -2$"):
        run_here(spec)
    [record] = kafka_topics.messages(topic, 1)
    assert record.timestamp()[1] > 1_600_000_000_000
    assert letters_of(kafka_topics, f"{name}-dlq") == []


def test_a_source_record_with_a_schema_becomes_a_dead_letter_with_that_schema(
    kafka_topics: Kafka, tmp_topic: Callable[..., str]
) -> None:
    topic, name = tmp_topic(), tmp_topic("source")
    batch = SourceBatch(topic, ["text"], None, None, value_schema=OPTIONAL_STRING, partition=3)
    run_here(source_spec(kafka_topics, name, {"errors.tolerance": "all"}, batch))
    [letter] = letters_of(kafka_topics, f"{name}-dlq")
    assert letter.key() is None
    assert letter.value() == b'{"schema":{"type":"string","optional":true},"payload":"text"}'
    assert told(letter.headers())["partition"] == b"3"


def test_a_record_for_a_missing_partition_becomes_a_dead_letter(
    kafka_topics: Kafka, tmp_topic: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """KAFKA_PRODUCE, of a record that the dead letter queue does accept; also where a busy broker does not report the
    number of partitions at once.
    """
    asked: list[str] = []
    ask = SourceTransaction._ask_partitions  # pyright: ignore[reportPrivateUsage]

    def busy(self: SourceTransaction, of: str) -> int:
        asked.append(of)
        return 0 if len(asked) < 3 else ask(self, of)

    monkeypatch.setattr(SourceTransaction, "_ask_partitions", busy)
    topic, name = tmp_topic(), tmp_topic("source")
    overrides = {"errors.tolerance": "all", "transaction.boundary": "poll"}
    lost = SourceBatch(topic, [{"id": -1}], None, None, partition=7)
    spec = source_spec(kafka_topics, name, overrides, given(topic, 5), lost, given(topic, 5, 5))
    outcome = run_here(spec)
    ids = [json.loads(value or b"")["id"] for _, value in kafka_topics.records(topic, 1)]
    assert ids == list(range(10))
    errors = outcome.progress.errors
    assert (errors.failures, errors.dead_letters, errors.dead_letters_failed) == (1, 1, 0)
    [letter] = letters_of(kafka_topics, f"{name}-dlq")
    assert letter.value() == b'{"schema":null,"payload":{"id":-1}}'
    found = told(letter.headers())
    assert (found["stage"], found["partition"]) == (b"KAFKA_PRODUCE", b"7")
    assert found["class.name"] == b"org.apache.kafka.clients.producer.KafkaProducer"


@pytest.mark.parametrize("route", ["..", "", "a b", "x" * 250])
def test_a_record_that_a_transformation_routes_to_no_topic_becomes_a_dead_letter(
    kafka_topics: Kafka, tmp_topic: Callable[..., str], route: str
) -> None:
    topic, name = tmp_topic(), tmp_topic("source")
    overrides = {
        "transforms": "route", "transforms.route.type": "org.apache.kafka.connect.transforms.RegexRouter",
        "transforms.route.regex": ".*bad", "transforms.route.replacement": route,
    }  # fmt: skip
    lost = SourceBatch(f"{topic}bad", [{"id": -1}], None, None)
    spec = source_spec(kafka_topics, name, {**overrides, "errors.tolerance": "all"}, given(topic, 5), lost)
    run_here(spec)
    assert [json.loads(value or b"")["id"] for _, value in kafka_topics.records(topic, 1)] == list(range(5))
    [letter] = letters_of(kafka_topics, f"{name}-dlq")
    found = told(letter.headers())
    assert (found["stage"], found["topic"]) == (b"KAFKA_PRODUCE", f"{topic}bad".encode())
    said = (found["exception.message"] or b"").decode()
    assert f"for topic {route}: " in said
    assert "topic name" in said
    with pytest.raises(RecordError, match=r"KAFKA_PRODUCE.*topic name"):
        run_here(source_spec(kafka_topics, f"{name}-2", overrides, lost))


def test_a_source_without_error_settings_creates_no_dead_letter_queue(
    kafka_topics: Kafka, tmp_topic: Callable[..., str]
) -> None:
    """No `errors.*`: the topic of the queue is not created, and counts are zero."""
    topic, name = tmp_topic(), tmp_topic("source")
    spec = source_spec(kafka_topics, name, {"errors.deadletterqueue.topic.name": ""}, given(topic, 10))
    assert run_here(spec, Link(lambda _progress: ())).progress.errors.failures == 0
    assert f"{name}-dlq" not in kafka_topics.admin.list_topics(timeout=WAIT_S).topics


def test_a_source_that_retries_a_record_for_ever_yields_its_slot(
    kafka_topics: Kafka, tmp_topic: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    topic, name = tmp_topic(), tmp_topic("source")
    looks: list[int] = []

    def away(_self: Any, *_data: Any) -> Any:
        looks.append(1)
        raise RetriableError("the registry is away")

    for write in ("write", "write_many"):
        monkeypatch.setattr(CONVERTER_CLASSES["JsonConverter"], write, away)
    config = {"errors.retry.timeout": "-1", "errors.retry.delay.max.ms": "10"}
    spec = source_spec(kafka_topics, name, config, given(topic, 10))

    def say(_progress: ProgressReport) -> list[Command]:
        tries = len(looks)
        return [Stop()] if tries > 50 else [Share(0)] if tries else []

    assert run_here(spec, Link(say)).reason is RunEnd.YIELDED
    monkeypatch.undo()
    assert run_here(spec).progress.records_in == 10


def test_a_poll_that_raises_a_retriable_error_is_repeated(kafka_topics: Kafka, tmp_topic: Callable[..., str]) -> None:
    """RetriableError from poll, with a linger of 0: the run neither fails nor counts as idle."""
    topic, name = tmp_topic(), tmp_topic("source")
    outcome = run_here(source_spec(kafka_topics, name, {"refusals": "2"}, given(topic, 10)))
    assert (outcome.reason, outcome.progress.records_in) == (RunEnd.QUIET, 10)
    assert outcome.progress.errors.failures == 0
