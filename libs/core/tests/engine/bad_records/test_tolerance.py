"""Handling of a record failure, and its log line and headers, by Connect's rules
(docs/reference/connect/data-model.md, section 5).
"""

from __future__ import annotations

import logging

import pytest
from confluent_kafka import TIMESTAMP_CREATE_TIME, TIMESTAMP_NOT_AVAILABLE, Message

from herdmesh.connect.chain.record_failure_policy import TRANSFORMATION, VALUE_CONVERTER, RecordSkipped
from herdmesh.connect.config.redaction import keep_secret
from herdmesh.connect.converters import make_converter
from herdmesh.connect.error_class import ErrorClass
from herdmesh.connect.errors import ConfigError, DataError, RecordError, RetriableError
from herdmesh.connect.model.data import Batch, Header, Struct
from herdmesh.connect.model.schemas import OPTIONAL_STRING, Schema
from herdmesh.connect.task_counts import ErrorCounts
from herdmesh.engine.bad_records.error_reports import LogReporter, context_headers, log_text, stack_trace
from herdmesh.engine.bad_records.tolerance import (
    Counts,
    FailedRecords,
    Failure,
    RetryStopped,
    SourceRecord,
    Tolerance,
    error_settings,
)
from herdmesh.engine.runtime import failure
from herdmesh.engine.runtime.contract import RunEnd
from libs.core.tests.engine.heard import Heard

RECORD = Batch("t", 3, [b"k"], [b"v"], [7], [5])
_FACTOR = "errors.deadletterqueue.topic.replication.factor"
CONVERTER = make_converter("c", {"c": "JsonConverter"}, role="value")


class World:
    """A tolerance whose clock advances only in its pauses."""

    def __init__(self, *, stop_after: int | None = None, **settings: str) -> None:
        self.now_s = 0.0
        self.pauses_ms: list[float] = []
        self.ranges: list[tuple[float, float]] = []
        self.heard = Heard()
        self.counts = Counts()
        self._stop_after = stop_after
        config = {f"errors.{name.replace('_', '.')}": value for name, value in settings.items()}
        policy = error_settings(config)
        self.failed = FailedRecords(policy, self.counts, [self.heard])
        self.tolerance = Tolerance(
            policy, self.failed, origin=lambda _batch, _at: message(), pause=self._pause, clock=lambda: self.now_s,
            chance=self._chance,
        )  # fmt: skip

    def _pause(self, seconds: float, yields: bool) -> RunEnd | None:
        if len(self.pauses_ms) == self._stop_after:
            return RunEnd.YIELDED if yields else RunEnd.STOPPED
        self.pauses_ms.append(round(seconds * 1000, 3))
        self.now_s += seconds
        return None

    def _chance(self, low: float, high: float) -> float:
        self.ranges.append((low, high))
        return high / 2

    def attempt(self, *raised: BaseException, stage: str = VALUE_CONVERTER) -> str:
        """Attempt a call that raises these errors one after the other, the last one for ever unless it is None."""
        left = list(raised)

        def call() -> str:
            if not left:
                return "done"
            error = left.pop(0)
            raise error

        return self.tolerance.attempt(call, stage, CONVERTER, RECORD, 0)

    def told(self) -> ErrorCounts:
        """The counts, without the time of the last failure."""
        assert (self.counts.last_error_ms > 0) == bool(self.counts.errors)
        self.counts.last_error_ms = 0
        return self.counts.so_far()


def message(kind: int = TIMESTAMP_CREATE_TIME) -> Message:
    return Message(topic="t", partition=3, offset=7, key=b"k", value=b"v", headers=[], timestamp=(kind, 5))


def again(count: int) -> list[BaseException]:
    return [RetriableError("away") for _ in range(count)]


@pytest.mark.parametrize("stage", ["KEY_CONVERTER", "VALUE_CONVERTER", "HEADER_CONVERTER", "TRANSFORMATION"])
def test_a_tolerated_error_of_any_stage_skips_the_record(stage: str) -> None:
    world = World(tolerance="all")
    with pytest.raises(RecordSkipped):
        world.attempt(TypeError("x"), stage=stage)
    assert world.told() == ErrorCounts(failures=1, errors=1, skipped=1)
    assert [one.stage for one in world.heard.failures] == [stage]
    assert world.attempt() == "done"


def test_without_tolerance_the_first_error_is_reported_and_ends_the_run() -> None:
    world = World()
    with pytest.raises(RecordError, match=r"Error in stage VALUE_CONVERTER .* topic 't', partition 3, offset 7: bad"):
        world.attempt(DataError("bad"))
    assert world.told() == ErrorCounts(failures=1, errors=1)
    assert len(world.heard.failures) == 1
    assert world.tolerance.eager is False


@pytest.mark.parametrize("failures", [1, 3])
def test_retriable_errors_are_retried(failures: int) -> None:
    world = World(retry_timeout="-1")
    assert world.attempt(*again(failures)) == "done"
    assert world.told() == ErrorCounts(failures=failures, retries=failures)
    assert world.pauses_ms == [300.0, 600.0, 1200.0][:failures]
    assert world.heard.failures == []


@pytest.mark.parametrize("tolerance", ["none", "all"])
def test_a_record_with_exhausted_retries_is_skipped_whatever_the_tolerance(
    tolerance: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Rule 2. Pauses of 300 + 600 ms, and the time left until the deadline."""
    world = World(tolerance=tolerance, retry_timeout="1000")
    with pytest.raises(RecordSkipped):
        world.attempt(*again(9))
    assert world.pauses_ms == [300.0, 600.0, 100.0]
    assert world.told() == ErrorCounts(failures=4, errors=1, skipped=1, retries=3)
    assert ("errors.tolerance is none, as in Connect" in caplog.text) == (tolerance == "none")
    if tolerance == "none":
        with pytest.raises(RecordError):
            world.attempt(DataError("another"))


def test_without_a_retry_timeout_nothing_is_retried() -> None:
    world = World(tolerance="all")
    with pytest.raises(RecordSkipped):
        world.attempt(*again(1))
    assert world.pauses_ms == []
    assert world.told() == ErrorCounts(failures=1, errors=1, skipped=1)


def test_a_pause_beyond_the_longest_is_random_below_it() -> None:
    world = World(retry_timeout="-1", retry_delay_max_ms="1000")
    assert world.attempt(*again(4)) == "done"
    assert world.pauses_ms == [300.0, 600.0, 500.0, 500.0]
    assert world.ranges == [(0, 1000), (0, 1000)]
    long = World(retry_timeout="-1")
    assert long.attempt(*again(70)) == "done"
    assert set(long.pauses_ms[8:]) == {30_000.0}


@pytest.mark.parametrize(("timeout", "reason"), [("-1", RunEnd.YIELDED), ("60000", RunEnd.STOPPED)])
def test_an_ending_run_skips_no_record_and_only_endless_retries_yield_to_other_tasks(
    timeout: str, reason: RunEnd
) -> None:
    world = World(stop_after=1, tolerance="all", retry_timeout=timeout)
    with pytest.raises(RetryStopped) as ended:
        world.attempt(*again(9))
    assert ended.value.reason is reason
    assert world.counts.skipped == 0
    assert world.heard.failures == []


def test_a_retry_that_fails_with_another_error_is_judged_by_that_error() -> None:
    world = World(tolerance="all", retry_timeout="-1")
    with pytest.raises(RecordSkipped):
        world.attempt(RetriableError("away"), DataError("bad"))
    assert world.told() == ErrorCounts(failures=2, errors=1, skipped=1, retries=1)


def test_config_errors_are_never_tolerated() -> None:
    """ADR 0007."""
    world = World(tolerance="all")
    with pytest.raises(RecordError) as ended:
        world.attempt(ConfigError("401", field="value.converter.basic.auth.user.info"))
    assert failure.classify(ended.value)[2] is ErrorClass.BAD_CONFIG
    assert len(world.heard.failures) == 1


def test_a_refused_batch_is_put_again_until_accepted_and_is_not_counted() -> None:
    world, refusals = World(retry_delay_max_ms="1000"), again(4)

    def put() -> None:
        if refusals:
            raise refusals.pop()

    world.tolerance.until_taken(put)
    assert world.pauses_ms == [300.0, 600.0, 500.0, 500.0]
    assert world.told() == ErrorCounts()
    with pytest.raises(ValueError, match="other"):
        world.tolerance.until_taken(lambda: (_ for _ in ()).throw(ValueError("other")))
    with pytest.raises(RetryStopped) as ended:
        World(stop_after=1).tolerance.until_taken(lambda: (_ for _ in ()).throw(RetriableError("away")))
    assert ended.value.reason is RunEnd.YIELDED


def test_a_failure_outside_the_chain_is_counted_and_skips_no_record() -> None:
    world = World(tolerance="all")
    world.failed.add_outside(Failure("TASK_PUT", "c.C", ValueError("x"), message()))
    assert world.counts.so_far() == ErrorCounts(failures=1, last_error_ms=world.counts.last_error_ms)
    strict = World()
    with pytest.raises(RecordError, match=r"TASK_PUT .* offset 7: x"):
        strict.failed.add_outside(Failure("TASK_PUT", "c.C", ValueError("x"), message()))
    assert strict.told() == ErrorCounts(failures=1, errors=1)


@pytest.mark.parametrize(
    ("config", "says"),
    [
        ({"errors.tolerance": "ALL"}, "String must be one of: none, all"),
        ({"errors.retry.timeout": "1s"}, "Not a number of type LONG"),
        ({"errors.log.enable": "1"}, "either true or false"),
    ],
)
def test_an_invalid_setting_is_named(config: dict[str, str | None], says: str) -> None:
    with pytest.raises(ConfigError, match=says) as refused:
        error_settings(config)
    assert [refused.value.field] == list(config)


@pytest.mark.parametrize(
    ("connector", "worker", "factor"),
    [({}, {}, 3), ({}, {_FACTOR: "1"}, 1), ({_FACTOR: "2"}, {_FACTOR: "1"}, 2), ({}, {_FACTOR: "-1"}, -1)],
)
def test_the_worker_has_the_replication_factor_of_dead_letter_queues_that_set_none(
    connector: dict[str, str | None], worker: dict[str, str | None], factor: int
) -> None:
    assert error_settings(connector, worker).replication_factor == factor


def test_error_counts_of_runs_add_up() -> None:
    first, second = ErrorCounts(1, 2, 3, 4, 5, 6, 7, 80), ErrorCounts(10, 20, 30, 40, 50, 60, 70, 8)
    assert first + second == ErrorCounts(11, 22, 33, 44, 55, 66, 77, 80)


# --- log lines and headers


ROW = Schema("STRUCT", fields=[("a", OPTIONAL_STRING), ("b", OPTIONAL_STRING)])


def source_record() -> SourceRecord:
    batch = Batch(
        "t", None, ["k"], [Struct(ROW, ["x", None])], timestamps_ms=[5], key_schema=OPTIONAL_STRING, value_schema=ROW,
        headers=[[Header("h", True)]],
    )  # fmt: skip
    return SourceRecord(batch, 0, {"file": "f"}, {"position": 9})


@pytest.mark.parametrize(
    ("record", "messages", "tail"),
    [
        (message(), False, "."),
        (
            message(), True,
            ", where consumed record is {topic='t', partition=3, offset=7, timestamp=5, timestampType=CreateTime}.",
        ),
        (message(TIMESTAMP_NOT_AVAILABLE), True, ", where consumed record is {topic='t', partition=3, offset=7}."),
        (source_record(), False, "."),
        (
            source_record(), True,
            ", where source record is = SourceRecord{sourcePartition={file=f}, sourceOffset={position=9}} "
            "ConnectRecord{topic='t', kafkaPartition=null, key=k, keySchema=Schema{STRING}, value=Struct{a=x}, "
            "valueSchema=Schema{STRUCT}, timestamp=5, headers=ConnectHeaders(headers=[ConnectHeader(key=h, value=true, "
            "schema=null)])}.",
        ),
    ],
)  # fmt: skip
def test_the_log_line_equals_connects(record: Message | SourceRecord, messages: bool, tail: str) -> None:
    failed = Failure(TRANSFORMATION, "org.example.Cast$Value", DataError("bad"), record)
    head = "Error encountered in task c-0. Executing stage 'TRANSFORMATION' with class 'org.example.Cast$Value'"
    assert log_text("c-0", failed, messages=messages) == head + tail


def test_the_log_line_has_the_exception_and_is_counted(caplog: pytest.LogCaptureFixture) -> None:
    counts = Counts()
    with caplog.at_level(logging.ERROR):
        LogReporter("c", 1, counts, messages=False).report(
            Failure("TASK_PUT", "x.Y", raised(DataError("bad")), message())
        )
    [line] = caplog.records
    assert line.levelno == logging.ERROR
    assert line.getMessage() == "Error encountered in task c-1. Executing stage 'TASK_PUT' with class 'x.Y'."
    assert line.exc_info is not None
    assert isinstance(line.exc_info[1], DataError)
    assert counts.logged == 1


def test_dead_letter_headers_equal_connects_byte_for_byte() -> None:
    keep_secret(["hunter-two"])
    failed = Failure(VALUE_CONVERTER, CONVERTER.java_class, raised(DataError("bad é hunter-two")), message())
    *told, (name, trace) = context_headers("c", 4, failed)
    assert told == [
        ("__connect.errors.topic", b"t"),
        ("__connect.errors.partition", b"3"),
        ("__connect.errors.offset", b"7"),
        ("__connect.errors.connector.name", b"c"),
        ("__connect.errors.task.id", b"4"),
        ("__connect.errors.stage", b"VALUE_CONVERTER"),
        ("__connect.errors.class.name", b"org.apache.kafka.connect.json.JsonConverter"),
        ("__connect.errors.exception.class.name", b"org.apache.kafka.connect.errors.DataException"),
        ("__connect.errors.exception.message", "bad é ***".encode()),
    ]
    assert name == "__connect.errors.exception.stacktrace"
    assert trace is not None
    first, second, *_ = trace.decode().splitlines()
    assert first == "org.apache.kafka.connect.errors.DataException: bad é ***"
    assert second.startswith("\tat libs.core.tests.engine.bad_records.test_tolerance.raised(test_tolerance.py:")


def test_a_missing_error_message_is_a_null_header_and_an_unknown_number_is_minus_one() -> None:
    headers = dict(context_headers("c", 0, Failure("KAFKA_PRODUCE", "k.P", KeyError(), source_record())))
    prefix = "__connect.errors."
    assert headers[prefix + "exception.message"] is None
    assert headers[prefix + "exception.class.name"] == b"KeyError"
    assert (headers[prefix + "topic"], headers[prefix + "partition"], headers[prefix + "offset"]) == (
        b"t",
        b"-1",
        b"-1",
    )
    assert headers[prefix + "exception.stacktrace"] == b"KeyError\n"


def test_a_trace_names_causes_and_is_bounded() -> None:
    def deep(left: int) -> None:
        if left:
            deep(left - 1)
        raise ValueError("at the bottom")

    def above() -> None:
        try:
            deep(300)
        except ValueError as error:
            raise DataError("above") from error

    with pytest.raises(DataError) as failed:
        above()
    lines = stack_trace(failed.value).splitlines()
    assert lines[0] == "org.apache.kafka.connect.errors.DataException: above"
    causes = [at for at, line in enumerate(lines) if line == "Caused by: ValueError: at the bottom"]
    assert len(causes) == 1
    assert len(lines) == causes[0] + 102
    assert lines[-1] == "\t... 202 more"


def raised(error: Exception) -> Exception:
    """The error as it is after it was raised, with a traceback."""
    try:
        raise error
    except Exception as caught:  # noqa: BLE001 - it is the given error
        return caught
