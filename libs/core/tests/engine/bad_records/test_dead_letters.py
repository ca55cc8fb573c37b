"""A poison record in each stage, against a real broker: the skipped records, the errors that fail the task, and the
content of the dead letter queue, byte for byte (issue 6, point 4).
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Mapping
from typing import Any, cast

import pytest
from confluent_kafka import Message

from herdmesh.connect.converters import CONVERTERS as CONVERTER_CLASSES
from herdmesh.connect.error_class import ErrorClass
from herdmesh.connect.errors import ConfigError, RecordError, RetriableError
from herdmesh.connect.model.data import Header, Struct
from herdmesh.connect.model.schemas import INT32, INT64, OPTIONAL_STRING, STRING, SchemaBuilder
from herdmesh.connect.spi.connector import SinkBatch
from herdmesh.engine import ProgressReport, RunEnd, RunSpec, Stop, TaskFailed
from herdmesh.engine.bad_records.dead_letters.dead_letter import CUT_HEADER
from herdmesh.engine.runtime import failure
from herdmesh.engine.runtime.contract import Command
from libs.core.tests.engine.harness import WAIT_S, Kafka, Link, make_spec, run_here
from libs.core.tests.engine.sinks import PATH, ListSink, MakingSink
from tests.support.sizes import soak_or

pytestmark = pytest.mark.kafka
JSON = "org.apache.kafka.connect.json.JsonConverter"
MASK = "org.apache.kafka.connect.transforms.MaskField$Value"
DATA_ERROR = b"org.apache.kafka.connect.errors.DataException"
NO_JSON = b"Converting byte[] to Kafka Connect data failed due to serialization error: "
PREFIX = "__connect.errors."
RECORDS = soak_or(2_000, 1_000_000)
CONVERTERS = {
    f"{part}.converter{name}": value for part in ("key", "value", "header")
    for name, value in (("", JSON), (".schemas.enable", "false"))
}  # fmt: skip
CHAIN = {**CONVERTERS, "transforms": "mask", "transforms.mask.type": MASK, "transforms.mask.fields": "secret"}
#: Stage, differing fields of the poison record, and the class and message of the error.
SINK_POISONS: list[tuple[str, dict[str, Any], str, bytes]] = [
    ("KEY_CONVERTER", {"key": b"{"}, JSON, NO_JSON),
    ("VALUE_CONVERTER", {"value": b'{"id":'}, JSON, NO_JSON),
    ("HEADER_CONVERTER", {"headers": [("own", b"1"), ("bad", b"{")]}, JSON, NO_JSON),
    (
        "TRANSFORMATION", {"value": b"7"}, MASK,
        b"Only Map objects supported in absence of schema for [mask fields], found: java.lang.Long",
    ),
]  # fmt: skip
EACH_STAGE = pytest.mark.parametrize(
    ("stage", "poison", "class_name", "message"), SINK_POISONS, ids=[one[0] for one in SINK_POISONS]
)


@pytest.fixture(scope="module")
def kafka_topics(kafka_bootstrap: str) -> Kafka:
    return Kafka(kafka_bootstrap)


def letters_of(kafka: Kafka, topic: str) -> list[Message]:
    return kafka.messages(topic, 1)


def told(headers: Any) -> dict[str, bytes | None]:
    """The context headers of a dead letter; also checks their order."""
    own = [(name, value) for name, value in headers if name.startswith(PREFIX)]
    assert [name.removeprefix(PREFIX) for name, _ in own] == [
        "topic", "partition", "offset", "connector.name", "task.id", "stage", "class.name", "exception.class.name",
        "exception.message", "exception.stacktrace",
    ]  # fmt: skip
    return {name.removeprefix(PREFIX): value for name, value in own}


# --- sinks


def sink_spec(kafka: Kafka, name: str, topic: str, config: Mapping[str, str], *, task: str = "ListSink") -> RunSpec:
    queue = {
        "errors.deadletterqueue.topic.name": f"{name}-dlq",
        "errors.deadletterqueue.topic.replication.factor": "1",
        "errors.deadletterqueue.context.headers.enable": "true",
    }
    return make_spec(kafka.bootstrap, name, f"{PATH}:{task}", {"topics": topic, **CHAIN, **queue, **config})


def poisoned(kafka: Kafka, topic: str, poison: dict[str, Any], at: int = RECORDS // 2) -> None:
    """Produce good records with ids, and one poison record."""
    good = [b'{"id":%d,"secret":"x"}' % number for number in range(RECORDS)]
    kafka.produce(topic, good[:at], partition=0)
    whole: dict[str, Any] = {"key": b'"k"', "value": b'{"id":-1,"secret":"x"}', "headers": [("own", b"1")], **poison}
    kafka.produce(topic, [whole["value"]], key=whole["key"], headers=whole["headers"], timestamp=1_234, partition=0)
    kafka.produce(topic, good[at:], partition=0)


@EACH_STAGE
def test_a_tolerated_poison_record_costs_one_record(
    kafka_topics: Kafka, tmp_topic: Callable[..., str], stage: str, poison: dict[str, Any], class_name: str,
    message: bytes, caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    topic, name = kafka_topics.create_topic(tmp_topic(), 1), tmp_topic("sink")
    poisoned(kafka_topics, topic, poison)
    logged = {"errors.log.enable": "true", "errors.log.include.messages": "true"}
    outcome = run_here(sink_spec(kafka_topics, name, topic, {"errors.tolerance": "all", **logged}))
    assert [value["id"] for value in ListSink.values] == list(range(RECORDS)), "nothing else lost, and in order"
    assert kafka_topics.committed(f"connect-{name}", (topic, 0)) == [RECORDS + 1]
    progress, errors = outcome.progress, outcome.progress.errors
    assert (progress.records_in, progress.records_out, progress.records_dropped) == (RECORDS + 1, RECORDS, 1)
    assert (errors.failures, errors.errors, errors.skipped, errors.retries) == (1, 1, 1, 0)
    assert (errors.logged, errors.dead_letters, errors.dead_letters_failed) == (1, 1, 0)
    assert errors.last_error_ms > 1_600_000_000_000
    [letter] = letters_of(kafka_topics, f"{name}-dlq")
    original = {"key": b'"k"', "value": b'{"id":-1,"secret":"x"}', "headers": [("own", b"1")], **poison}
    headers: list[Any] = cast("list[Any]", letter.headers())
    assert (letter.key(), letter.value(), letter.timestamp()[1]) == (original["key"], original["value"], 1_234)
    assert headers[: len(original["headers"])] == original["headers"]
    found = told(headers[len(original["headers"]) :])
    trace = found.pop("exception.stacktrace")
    assert found == {
        "topic": topic.encode(), "partition": b"0", "offset": b"%d" % (RECORDS // 2),
        "connector.name": name.encode(), "task.id": b"0", "stage": stage.encode(),
        "class.name": class_name.encode(), "exception.class.name": DATA_ERROR, "exception.message": message,
    }  # fmt: skip
    assert trace is not None
    assert trace.startswith(DATA_ERROR + b": " + message + b"\n\tat ")
    assert (
        f"Error encountered in task {name}-0. Executing stage '{stage}' with class '{class_name}', where consumed "
        f"record is {{topic='{topic}', partition=0, offset={RECORDS // 2}, timestamp=1234, timestampType=CreateTime}}."
    ) in caplog.text


@EACH_STAGE
def test_a_poison_record_without_tolerance_ends_the_task_before_its_batch(
    kafka_topics: Kafka, tmp_topic: Callable[..., str], stage: str, poison: dict[str, Any], class_name: str,
    message: bytes,
) -> None:  # fmt: skip
    """The dead letter queue gets the fatal record too, as in Connect."""
    topic, name = kafka_topics.create_topic(tmp_topic(), 1), tmp_topic("sink")
    poisoned(kafka_topics, topic, poison, at=RECORDS - 10)
    with pytest.raises(RecordError, match=f"Error in stage {stage}") as ended:
        run_here(sink_spec(kafka_topics, name, topic, {}))
    assert class_name in str(ended.value)
    assert failure.classify(ended.value)[2] is ErrorClass.FATAL
    [done] = kafka_topics.committed(f"connect-{name}", (topic, 0))
    assert 0 < done <= RECORDS - 10
    assert [value["id"] for value in ListSink.values] == list(range(done))
    [letter] = letters_of(kafka_topics, f"{name}-dlq")
    found = told([one for one in cast("list[Any]", letter.headers()) if one[0].startswith(PREFIX)])
    assert (found["stage"], found["exception.message"]) == (stage.encode(), message)


def test_a_dead_letter_without_context_headers_is_the_record_alone(
    kafka_topics: Kafka, tmp_topic: Callable[..., str]
) -> None:
    topic, name = kafka_topics.create_topic(tmp_topic(), 1), tmp_topic("sink")
    kafka_topics.produce(topic, [b"{"], key=b"1", partition=0)
    plain = {"errors.tolerance": "all", "errors.deadletterqueue.context.headers.enable": "false"}
    run_here(sink_spec(kafka_topics, name, topic, plain))
    [letter] = letters_of(kafka_topics, f"{name}-dlq")
    assert (letter.key(), letter.value(), letter.headers()) == (b"1", b"{", None)
    assert ListSink.values == []
    assert kafka_topics.committed(f"connect-{name}", (topic, 0)) == [1]


def test_a_dead_letter_of_a_dead_letter_keeps_its_headers(kafka_topics: Kafka, tmp_topic: Callable[..., str]) -> None:
    topic, name = kafka_topics.create_topic(tmp_topic(), 1), tmp_topic("sink")
    kafka_topics.produce(topic, [b"{"], key=b"1", partition=0)
    run_here(sink_spec(kafka_topics, name, topic, {"errors.tolerance": "all"}))
    plain = {"header.converter": "org.apache.kafka.connect.storage.SimpleHeaderConverter"}
    again = tmp_topic("again")
    run_here(sink_spec(kafka_topics, again, f"{name}-dlq", {"errors.tolerance": "all", **plain}))
    [letter] = letters_of(kafka_topics, f"{again}-dlq")
    headers = cast("list[Any]", letter.headers())
    assert [told(headers[at : at + 10])["topic"] for at in (0, 10)] == [topic.encode(), f"{name}-dlq".encode()]


@pytest.mark.parametrize("swallow", ["false", "true"])
@pytest.mark.parametrize("tolerance", ["all", "none"])
def test_errant_records_reported_by_a_task_become_dead_letters(
    kafka_topics: Kafka, tmp_topic: Callable[..., str], tolerance: str, swallow: str
) -> None:
    """TASK_PUT: the record as it was read, although the task got another topic, value and position."""
    topic, name = kafka_topics.create_topic(tmp_topic(), 1), tmp_topic("sink")
    values = [b'{"id":1}', None, b'{"id":-2}', b'{"id":3}']
    kafka_topics.produce(topic, values, partition=0)
    config = {
        **CONVERTERS, "errors.tolerance": tolerance, "swallow": swallow, "transforms": "drop,route",
        "transforms.drop.type": "org.apache.kafka.connect.transforms.Filter", "transforms.drop.predicate": "p",
        "predicates": "p", "predicates.p.type": "org.apache.kafka.connect.transforms.predicates.RecordIsTombstone",
        "transforms.route.type": "org.apache.kafka.connect.transforms.RegexRouter",
        "transforms.route.regex": ".*", "transforms.route.replacement": "elsewhere",
    }  # fmt: skip
    spec = sink_spec(kafka_topics, name, topic, config, task="PickySink")
    if tolerance == "all":
        outcome = run_here(spec)
        assert [value["id"] for value in ListSink.values] == [1, 3]
        assert kafka_topics.committed(f"connect-{name}", (topic, 0)) == [4]
        assert (outcome.progress.errors.failures, outcome.progress.errors.skipped) == (1, 0)
    else:
        with pytest.raises(RecordError, match=r"TASK_PUT .*offset 2: no negative id: -2"):
            run_here(spec)
        assert kafka_topics.committed(f"connect-{name}", (topic, 0)) < [3]
    [letter] = letters_of(kafka_topics, f"{name}-dlq")
    assert letter.value() == b'{"id":-2}'
    found = told(letter.headers())
    assert (found["topic"], found["offset"], found["stage"]) == (topic.encode(), b"2", b"TASK_PUT")
    assert found["class.name"] == b"org.apache.kafka.connect.sink.SinkTask"
    assert (found["exception.class.name"], found["exception.message"]) == (b"ValueError", b"no negative id: -2")


MADE = SchemaBuilder("STRUCT").name("made.Value").field("id", INT32).field("secret", OPTIONAL_STRING).build()
MADE_JSON = (
    b'{"schema":{"type":"struct","fields":[{"type":"int32","optional":false,"field":"id"},'
    b'{"type":"string","optional":true,"field":"secret"}],"optional":false,"name":"made.Value"},'
    b'"payload":{"id":5,"secret":"seen"}}'
)


@pytest.mark.parametrize("tolerance", ["all", "none"])
def test_errant_records_created_by_a_task_are_written_by_the_converters(
    kafka_topics: Kafka, tmp_topic: Callable[..., str], tolerance: str, caplog: pytest.LogCaptureFixture
) -> None:
    """TASK_PUT: no transformation sees them, and their topic, partition and offset are those the task set."""
    headers = [Header("number", 1, INT64), Header("text", "t", STRING)]
    MakingSink.made = [
        SinkBatch("made", 7, 9, 9, [Struct(MADE, [5, "seen"])], [5], [9], [42], [headers], INT32, MADE),
        SinkBatch("made", -1, -1, -1, [None], [None], [-1], [None]),
    ]
    topic, name = kafka_topics.create_topic(tmp_topic(), 1), tmp_topic("sink")
    kafka_topics.produce(topic, [b'{"schema":null,"payload":{"secret":"x"}}'], key=b"\0\0\0\1", partition=0)
    config = {
        "key.converter": "org.apache.kafka.connect.converters.IntegerConverter",
        "value.converter.schemas.enable": "true",
        "header.converter": "org.apache.kafka.connect.storage.SimpleHeaderConverter",
        "errors.tolerance": tolerance, "errors.log.enable": "true", "errors.log.include.messages": "true",
    }  # fmt: skip
    spec = sink_spec(kafka_topics, name, topic, config, task="MakingSink")
    if tolerance == "none":
        with pytest.raises(RecordError, match=r"TASK_PUT .*topic 'made', partition 7, offset 9: cannot be split"):
            run_here(spec)
        assert kafka_topics.committed(f"connect-{name}", (topic, 0)) < [1]
    else:
        outcome = run_here(spec)
        errors = outcome.progress.errors
        assert (outcome.progress.records_out, errors.failures, errors.dead_letters, errors.logged) == (1, 2, 2, 2)
        assert kafka_topics.committed(f"connect-{name}", (topic, 0)) == [1]
    first, *rest = letters_of(kafka_topics, f"{name}-dlq")
    assert (first.key(), first.value(), first.timestamp()[1]) == (b"\0\0\0\5", MADE_JSON, 42)
    own: list[Any] = cast("list[Any]", first.headers())
    assert own[:2] == [("number", b"1"), ("text", b"t")]
    found = told(own[2:])
    assert (found["topic"], found["partition"], found["offset"]) == (b"made", b"7", b"9")
    assert (found["stage"], found["class.name"]) == (b"TASK_PUT", b"org.apache.kafka.connect.sink.SinkTask")
    assert (found["exception.class.name"], found["exception.message"]) == (b"ValueError", b"cannot be split further")
    consumed = "where consumed record is {topic='made', partition=7, offset=9, timestamp=42, timestampType=CreateTime}."
    assert consumed in caplog.text
    assert len(rest) == (0 if tolerance == "none" else 1)
    for bare in rest:
        assert (bare.key(), bare.value()) == (None, None)
        assert bare.timestamp()[1] > 1_600_000_000_000, "the task gave no time: that of sending"
        found = told(bare.headers())
        assert (found["topic"], found["partition"], found["offset"]) == (b"made", b"-1", b"-1")


def test_no_offset_is_committed_before_its_dead_letters_are_acknowledged(
    kafka_topics: Kafka, tmp_topic: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from herdmesh.engine.bad_records import dead_letters
    from herdmesh.engine.fencing.fence import Fence

    order: list[str] = []
    settle, commit = dead_letters.SinkDeadLetters.flush, Fence.commit_offsets

    def settled(self: dead_letters.SinkDeadLetters) -> None:
        settle(self)
        assert len(self.producer) == 0
        order.append("settled")

    def committed(self: Fence, *args: Any) -> None:
        order.append("committed")
        commit(self, *args)

    monkeypatch.setattr(dead_letters.SinkDeadLetters, "flush", settled)
    monkeypatch.setattr(Fence, "commit_offsets", committed)
    topic, name = kafka_topics.create_topic(tmp_topic(), 1), tmp_topic("sink")
    kafka_topics.produce(topic, [b"{"] * 100, partition=0)
    run_here(sink_spec(kafka_topics, name, topic, {"errors.tolerance": "all"}))
    assert len(letters_of(kafka_topics, f"{name}-dlq")) == 100
    assert order
    assert order == ["settled", "committed"] * (len(order) // 2)


def test_a_dead_letter_queue_that_cannot_be_created_fails_the_task_with_the_fix(
    kafka_topics: Kafka, tmp_topic: Callable[..., str]
) -> None:
    topic, name = kafka_topics.create_topic(tmp_topic(), 1), tmp_topic("sink")
    config = {"errors.deadletterqueue.topic.replication.factor": "3"}
    says = (
        rf"Could not initialize dead letter queue with topic={name}-dlq: .*replication\.factor \(it is 3\) to at most"
    )
    with pytest.raises(TaskFailed, match=says) as ended:
        run_here(sink_spec(kafka_topics, name, topic, config))
    assert ended.value.error_class is ErrorClass.BAD_CONFIG


def test_the_dead_letter_queue_is_created_with_the_admin_settings_of_the_connector(
    kafka_topics: Kafka, tmp_topic: Callable[..., str]
) -> None:
    topic, name = kafka_topics.create_topic(tmp_topic(), 1), tmp_topic("sink")
    config = {"admin.override.socket.keepalive.enable": "perhaps"}
    with pytest.raises(ConfigError) as refused:
        run_here(sink_spec(kafka_topics, name, topic, config))
    assert refused.value.field == "admin.override.socket.keepalive.enable"
    run_here(sink_spec(kafka_topics, name, topic, {"admin.override.client.id": "queues"}))
    assert f"{name}-dlq" in kafka_topics.admin.list_topics(timeout=WAIT_S).topics


def cut_sizes(headers: Any) -> Any:
    """The value of the header that marks a dead letter as cut."""
    [found] = [value for name, value in headers if name == CUT_HEADER]
    return json.loads(found)


LARGE = {"producer.override.max.request.size": "3000000"}


@pytest.mark.parametrize(("queue_bytes", "override", "value_kept"), [
    (None, {}, 1_024), (None, LARGE, 1_024), ("4500", {}, 1_024), ("1600", {}, 0),
], ids=["client", "broker", "small", "smaller"])  # fmt: skip
def test_a_record_too_large_for_the_dead_letter_queue_is_cut(
    kafka_topics: Kafka, tmp_topic: Callable[..., str], queue_bytes: str | None, override: dict[str, str],
    value_kept: int,
) -> None:  # fmt: skip
    """Whether the client or the broker refuses it, also without context headers: a cut dead letter names its record's
    position, the others are whole.
    """
    topic, name = kafka_topics.create_topic(tmp_topic(), 1, **{"max.message.bytes": "3000000"}), tmp_topic("sink")
    kafka_topics.create_topic(f"{name}-dlq", 1, **({"max.message.bytes": queue_bytes} if queue_bytes else {}))
    big = b"{" + random.Random(1).randbytes(1_200_000)
    values, client = [b'{"id":1}', b"{", big, b'{"id":2}', b"[["], {"message.max.bytes": 3_000_000}
    kafka_topics.produce(topic, values, client=client, partition=0, key=b'"k"', headers=[("own", b"1")])
    plain = {"errors.deadletterqueue.context.headers.enable": "false"}
    errors = run_here(
        sink_spec(kafka_topics, name, topic, {"errors.tolerance": "all", **plain, **override})
    ).progress.errors
    assert (errors.skipped, errors.dead_letters, errors.dead_letters_failed, errors.dead_letters_cut) == (3, 3, 0, 1)
    assert [value["id"] for value in ListSink.values] == [1, 2]
    assert kafka_topics.committed(f"connect-{name}", (topic, 0)) == [5]
    found = letters_of(kafka_topics, f"{name}-dlq")
    assert sorted(one.value() or b"" for one in found if len(one.headers() or ()) == 1) == [b"[[", b"{"]
    [cut] = [one for one in found if len(one.headers() or ()) > 1]
    headers = cast("list[Any]", cut.headers())
    assert cut.value() == big[:value_kept] or len(cut.value() or b"") in range(value_kept - 3, value_kept)
    assert cut_sizes(headers) == {"key_bytes": 3, "value_bytes": len(big), "headers": 1}
    assert (("own", b"1") in headers, cut.key()) == ((True, b'"k"') if value_kept else (False, b""))
    said = dict(headers)
    assert (said[PREFIX + "topic"], said[PREFIX + "partition"], said[PREFIX + "offset"]) == (topic.encode(), b"0", b"2")
    assert said[PREFIX + "exception.class.name"] == DATA_ERROR


def test_dead_letters_that_only_together_exceed_the_limit_are_written_whole(
    kafka_topics: Kafka, tmp_topic: Callable[..., str]
) -> None:
    """The broker's limit holds for all records of one partition in a request, and the client does not split a
    request.
    """
    topic, name = kafka_topics.create_topic(tmp_topic(), 1), tmp_topic("sink")
    kafka_topics.create_topic(f"{name}-dlq", 1, **{"max.message.bytes": "3000"})
    bad = [b"{" + b"%d" % number * 300 for number in range(10, 40)]
    kafka_topics.produce(topic, bad, partition=0)
    plain = {"errors.deadletterqueue.context.headers.enable": "false", "errors.tolerance": "all"}
    errors = run_here(sink_spec(kafka_topics, name, topic, plain)).progress.errors
    assert (errors.dead_letters, errors.dead_letters_failed, errors.dead_letters_cut) == (30, 0, 0)
    assert sorted(one.value() or b"" for one in letters_of(kafka_topics, f"{name}-dlq")) == bad
    assert kafka_topics.committed(f"connect-{name}", (topic, 0)) == [30]


@pytest.mark.parametrize(("queue", "says"), [
    ({"max.message.bytes": "100"}, r"raise max\.message\.bytes of topic {queue}, and producer\.override\.max\.request"),
    ({"cleanup.policy": "compact"}, r"{queue} must not be compacted"),
    ({"message.timestamp.before.max.ms": "1000"}, r"raise message\.timestamp\.before\.max\.ms"),
], ids=["size", "compacted", "time"])  # fmt: skip
@pytest.mark.parametrize("tolerance", ["all", "none"])
def test_a_dead_letter_the_queue_refuses_fails_the_task_before_its_record_is_committed(
    kafka_topics: Kafka, tmp_topic: Callable[..., str], queue: dict[str, str], says: str, tolerance: str
) -> None:
    topic, name = kafka_topics.create_topic(tmp_topic(), 1), tmp_topic("sink")
    kafka_topics.create_topic(f"{name}-dlq", 1, **queue)
    kafka_topics.produce(topic, [b'{"id":1}', b"{" * 200, b'{"id":2}'], partition=0, key=None, timestamp=1_234)
    spec = sink_spec(kafka_topics, name, topic, {"errors.tolerance": tolerance})
    with pytest.raises(TaskFailed, match=says.format(queue=f"{name}-dlq")) as failed:
        run_here(spec)
    assert f"the dead letter of topic {topic}, partition 0, offset 1 cannot be written" in failed.value.message
    assert "The record had failed with: Converting byte[] to Kafka Connect data failed" in failed.value.message
    assert kafka_topics.committed(f"connect-{name}", (topic, 0)) < [2]
    kafka_topics.alter(f"{name}-dlq", **dict.fromkeys(queue, ""))
    if tolerance == "all":
        run_here(spec)
        assert [one.value() for one in letters_of(kafka_topics, f"{name}-dlq")] == [b"{" * 200]
        assert kafka_topics.committed(f"connect-{name}", (topic, 0)) == [3]


def test_a_stop_ends_the_wait_for_a_retry_and_the_record_is_read_again(
    kafka_topics: Kafka, tmp_topic: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As with an unreachable registry: the records before its batch are committed, and it is not skipped."""
    topic, name = kafka_topics.create_topic(tmp_topic(), 1), tmp_topic("sink")
    kafka_topics.produce(topic, [b'{"id":0}', b'{"id":1}', b'{"away":1}', b'{"id":2}'], partition=0)
    converter: Any = CONVERTER_CLASSES["JsonConverter"]
    read, read_many = converter.read, converter.read_many

    def reached(data: Any) -> bool:
        if data is not None and b"away" in data:
            raise RetriableError("the registry is away")
        return True

    def one(self: Any, data: Any) -> Any:
        return reached(data) and read(self, data)

    def many(self: Any, data: Any) -> Any:
        return all(map(reached, data)) and read_many(self, data)

    monkeypatch.setattr(converter, "read", one)
    monkeypatch.setattr(converter, "read_many", many)

    def say(progress: ProgressReport) -> list[Command]:
        return [Stop()] if progress.errors.failures else []

    spec = sink_spec(kafka_topics, name, topic, {"errors.retry.timeout": "-1", "errors.tolerance": "all"})
    link = Link(say)
    assert run_here(spec, link).reason is RunEnd.STOPPED
    assert link.reports[-1].errors.skipped == 0
    assert kafka_topics.committed(f"connect-{name}", (topic, 0)) < [3]
    assert letters_of(kafka_topics, f"{name}-dlq") == []
    monkeypatch.undo()
    run_here(spec)
    assert kafka_topics.committed(f"connect-{name}", (topic, 0)) == [4]
