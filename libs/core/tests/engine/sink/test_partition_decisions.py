"""Decisions of a run without Kafka: ownership, starting offsets, settings, manifests, limits, commands, failures."""

from __future__ import annotations

import errno
import pickle
from collections.abc import Callable, Mapping, Sequence

import pytest
from confluent_kafka import KafkaError, KafkaException, Message
from hypothesis import given
from hypothesis import strategies as st

from herdmesh.connect.clients.offset_reset import OffsetReset, Start, read_offset_reset
from herdmesh.connect.error_class import ErrorClass
from herdmesh.connect.errors import ConfigError, DataError, RecordError, RetriableError, UnreachableError
from herdmesh.connect.spi.connector import PartitionId
from herdmesh.connect.topics.commit_scope import TOPICS_MAX, CommitScope
from herdmesh.engine.librdkafka.record_columns import of_messages
from herdmesh.engine.runtime import failpoints, failure
from herdmesh.engine.runtime.contract import Command, ProgressReport, Rate, RunEnd, RunSpec, Share, Stop, TaskKind
from herdmesh.engine.runtime.errors import (
    ForeignMembers,
    ManifestInvalid,
    OffsetsLost,
    TaskFailed,
    TaskFenced,
)
from herdmesh.engine.runtime.limits import RateLimits
from herdmesh.engine.runtime.meter import Meter
from herdmesh.engine.runtime.run_commands import RunCommands
from herdmesh.engine.runtime.settings import offsets_topic_settings, sink_settings, source_settings
from herdmesh.engine.sink import manifest
from herdmesh.engine.sink.ownership import owner, owns
from herdmesh.engine.sink.positions import PartitionRange, starting_offsets

TOPIC = "flights"


@pytest.fixture(autouse=True)
def _brokers_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Clear the broker errors noted by runs that other tests executed in this process."""
    monkeypatch.setattr(failure, "_brokers", failure._Brokers())  # pyright: ignore[reportPrivateUsage]


def spec(connector_config: dict[str, str | None], worker_config: dict[str, str | None] | None = None) -> RunSpec:
    return RunSpec(
        run_id="r1",
        connector="c",
        task=0,
        task_count=1,
        kind=TaskKind.SINK,
        task_class="m:C",
        connector_config=connector_config,
        task_config={},
        bootstrap_servers="127.0.0.1:1",
        group_id="connect-cluster",
        offset_storage_topic="connect-offsets",
        transactional_id="connect-cluster-c-0",
        worker_config=worker_config or {},
    )


@given(st.text(min_size=1), st.integers(0, 10_000), st.integers(1, 64))
def test_every_partition_has_exactly_one_owner(topic: str, partition: int, task_count: int) -> None:
    owners = [task for task in range(task_count) if owns(topic, partition, task, task_count)]
    assert owners == [owner(topic, partition, task_count)]


def test_partitions_of_a_topic_are_spread_evenly() -> None:
    owned = [sum(owns(TOPIC, partition, task, 3) for partition in range(12)) for task in range(3)]
    assert owned == [4, 4, 4]


SCOPE = CommitScope("g", (TOPIC,))


def starts(
    *ranges: PartitionRange, committed: bool = True, missing: bool = False, reset: str = "earliest"
) -> list[int]:
    found = starting_offsets(
        {(TOPIC, number): known for number, known in enumerate(ranges)},
        group="g",
        scope=SCOPE if committed else None,
        reset_missing=missing,
        reset=read_offset_reset(reset),
    )
    return [found[TOPIC, number] for number in range(len(ranges))]


def test_a_committed_offset_is_used() -> None:
    assert starts(PartitionRange(5, 0, 9), PartitionRange(0, 0, 0), PartitionRange(9, 3, 9)) == [5, 0, 9]


def test_without_any_commit_the_reset_policy_decides() -> None:
    assert starts(PartitionRange(None, 2, 9), committed=False) == [2]
    assert starts(PartitionRange(None, 2, 9), committed=False, reset="latest") == [9]


def test_a_reset_by_duration_begins_at_the_first_record_that_is_new_enough() -> None:
    hour = "by_duration:PT1H"
    assert starts(PartitionRange(None, 2, 9, by_time=5), committed=False, reset=hour) == [5]
    assert starts(PartitionRange(None, 2, 9), committed=False, reset=hour) == [9], "all records are older"
    assert starts(PartitionRange(4, 2, 9, by_time=5), committed=False, reset=hour) == [4]
    assert starts(PartitionRange(1, 2, 9, by_time=5), missing=True, reset=hour) == [5]


def test_a_reset_of_none_fails_the_task_with_the_partitions_and_the_fix() -> None:
    assert starts(PartitionRange(4, 2, 9), committed=False, reset="none") == [4]
    ranges = (PartitionRange(None, 2, 9), PartitionRange(4, 2, 9), PartitionRange(None, 0, 0))
    with pytest.raises(TaskFailed) as failed:
        starts(*ranges, committed=False, reset="none")
    text = str(failed.value)
    assert text.startswith("Undefined offset with no reset policy for partitions: [flights-0, flights-2]")
    assert "herd offsets alter" in text
    assert failed.value.error_class is ErrorClass.BAD_CONFIG
    with pytest.raises(TaskFailed, match=r"\[flights-0\]"):
        starts(PartitionRange(1, 2, 9), missing=True, reset="none")


def test_offsets_missing_everywhere_after_a_commit_are_a_loss_with_the_numbers() -> None:
    with pytest.raises(OffsetsLost) as lost:
        starts(PartitionRange(None, 2, 9), PartitionRange(None, 0, 7))
    assert "flights-0 has no committed offset any more (records 2 to 9)" in str(lost.value)
    assert "flights-1" in str(lost.value)
    assert "herdmesh.offsets.missing=reset" in str(lost.value)
    assert lost.value.error_class is ErrorClass.DATA_LOSS


_NONE = PartitionRange(None, 2, 9)
_FIVE = PartitionRange(5, 2, 9)


@pytest.mark.parametrize(
    ("group", "ranges", "begins"),
    [
        ("g", {("a", 0): _NONE, ("b", 0): _NONE}, None),
        ("g", {("a", 0): _NONE, ("fresh", 0): _NONE}, None),
        ("g", {("a", 0): _NONE, ("fresh", 0): _FIVE}, None),
        ("g", {("a", 0): _FIVE, ("b", 0): _NONE}, [5, 2]),
        ("g", {("a", 0): _FIVE, ("fresh", 0): _NONE}, [5, 2]),
        ("g", {("fresh", 0): _NONE}, [2]),
        ("other", {("a", 0): _NONE, ("b", 0): _NONE}, [2, 2]),
        ("other", {("a", 0): _FIVE, ("b", 0): _NONE}, [5, 2]),
    ],
)
def test_offsets_are_lost_only_where_they_were_committed(
    group: str, ranges: dict[PartitionId, PartitionRange], begins: list[int] | None
) -> None:
    """None = lost; the error names the topics that had offsets, not new ones."""

    def found() -> dict[PartitionId, int]:
        scope = CommitScope("g", ("a", "b", "gone"))
        return starting_offsets(ranges, group=group, scope=scope, reset_missing=False, reset=OffsetReset())

    if begins is None:
        with pytest.raises(OffsetsLost, match="a-0 has no committed offset any more") as lost:
            found()
        assert "fresh" not in str(lost.value)
    else:
        assert list(found().values()) == begins


def test_a_commit_scope_is_small_and_hides_no_loss() -> None:
    names = [f"t{number:03}" for number in range(TOPICS_MAX + 5)]
    scope = CommitScope.of("g", [*reversed(names), *names])
    assert scope.topics == tuple(names[:TOPICS_MAX])
    assert all(scope.covers("g", name) for name in names)
    assert not scope.covers("g", "t0005")
    exact = CommitScope.of("g", names[: TOPICS_MAX - 1])
    assert [name for name in names if exact.covers("g", name)] == names[: TOPICS_MAX - 1]
    assert exact.beside(["z", "a", "a", names[0]]).elsewhere == ("a",)
    assert scope.beside(["a"]) == scope, "what is committed elsewhere takes nobody's room"


def test_a_topic_from_another_task_is_lost_only_where_no_partition_has_an_offset() -> None:
    def found(forgotten: tuple[str, ...]) -> dict[PartitionId, int]:
        ranges = {("a", 0): _FIVE, ("users", 3): _NONE, ("fresh", 0): _NONE}
        scope = CommitScope("g", ("a",), ("users",))
        return starting_offsets(
            ranges, group="g", scope=scope, forgotten=forgotten, reset_missing=False, reset=OffsetReset()
        )

    assert list(found(()).values()) == [5, 2, 2]
    with pytest.raises(OffsetsLost, match="users-3 has no committed offset any more") as lost:
        found(("users",))
    assert "fresh" not in str(lost.value)


def test_one_offset_missing_beside_others_is_a_new_partition() -> None:
    assert starts(PartitionRange(4, 0, 9), PartitionRange(None, 0, 7)) == [4, 0]


@pytest.mark.parametrize("committed", [1, 10])
def test_an_offset_out_of_range_is_always_a_loss(committed: int) -> None:
    with pytest.raises(OffsetsLost, match=f"flights-0 was committed up to {committed}, outside of its records 2 to 9"):
        starts(PartitionRange(committed, 2, 9), committed=False)


def test_the_config_may_allow_a_reset_of_lost_offsets() -> None:
    assert starts(PartitionRange(1, 2, 9), PartitionRange(5, 0, 9), missing=True) == [2, 5]
    assert starts(PartitionRange(None, 2, 9), missing=True, reset="latest") == [9]


def test_sink_settings_come_from_the_config_and_its_overrides() -> None:
    settings = sink_settings(
        spec(
            {
                "topics": " a, b,a ",
                "consumer.override.group.id": "mine",
                "consumer.override.auto.offset.reset": "latest",
                "consumer.override.max.poll.records": "5",
                "consumer.override.max.partition.fetch.bytes": "100",
                "consumer.override.metadata.max.age.ms": "1000",
            },
            {"offset.flush.interval.ms": "200", "consumer.fetch.min.bytes": "7"},
        )
    )
    assert settings.topics == ("a", "b")
    assert settings.wants("a")
    assert not settings.wants("c")
    assert settings.group == "mine"
    assert settings.reset.start is Start.LATEST
    assert settings.flush_interval_ms == 200
    assert settings.metadata_max_age_ms == 1_000
    assert settings.batch_records_max == 5
    assert settings.warnings == ()
    assert settings.consumer["fetch.message.max.bytes"] == "100"
    assert settings.consumer["fetch.min.bytes"] == "7"


def test_sink_defaults_are_connects() -> None:
    settings = sink_settings(spec({"topics": "a"}))
    assert settings.group == "connect-c"
    assert settings.reset == OffsetReset()
    assert settings.flush_interval_ms == 60_000
    assert settings.metadata_max_age_ms == 300_000
    assert settings.batch_records_max == 1_000
    assert (settings.rate.records_per_second, settings.rate.bytes_per_second) == (0, 0)


def test_a_fetch_limit_bounds_prefetched_records() -> None:
    consumer = sink_settings(spec({"topics": "a", "consumer.override.fetch.max.bytes": "2000000"})).consumer
    assert (consumer["queued.max.messages.kbytes"], consumer["fetch.message.max.bytes"]) == (1953, 2_000_000)
    config = {"topics": "a", "consumer.override.max.partition.fetch.bytes": "9"}
    assert "queued.max.messages.kbytes" not in sink_settings(spec({**config})).consumer


def test_a_regex_matches_whole_names_and_no_internal_topics() -> None:
    settings = sink_settings(spec({"topics.regex": ".*lights"}))
    assert settings.wants("flights")
    assert not settings.wants("flights2")
    assert not settings.wants("__flights")


@pytest.mark.parametrize(
    ("config", "field"),
    [
        ({}, "topics"),
        ({"topics": " , "}, "topics"),
        ({"topics": "a", "topics.regex": "b"}, "topics.regex"),
        ({"topics.regex": "("}, "topics.regex"),
        ({"topics": "a", "consumer.override.auto.offset.reset": "sometimes"}, "consumer.override.auto.offset.reset"),
        ({"topics": "a", "herdmesh.offsets.missing": "ignore"}, "herdmesh.offsets.missing"),
        ({"topics": "a", "consumer.override.max.poll.records": "0"}, "consumer.override.max.poll.records"),
        ({"topics": "a", "herdmesh.rate.records.per.second": "0"}, "herdmesh.rate.records.per.second"),
    ],
)
def test_an_invalid_setting_names_its_key(config: dict[str, str | None], field: str) -> None:
    with pytest.raises(ConfigError) as refused:
        sink_settings(spec(config))
    assert refused.value.field == field


def test_topics_of_a_source_belong_to_the_first_matching_group() -> None:
    settings = source_settings(
        spec(
            {
                "topic.creation.groups": "logs, default,rest,none",
                "topic.creation.default.partitions": "2",
                "topic.creation.default.replication.factor": "3",
                "topic.creation.default.retention.ms": "5",
                "topic.creation.default.include": "ignored",
                "topic.creation.logs.include": "log-\\d+,logs",
                "topic.creation.logs.exclude": "log-1",
                "topic.creation.logs.partitions": "9",
                "topic.creation.logs.cleanup.policy": "compact",
                "topic.creation.rest.include": "log.*",
                "topic.creation.rest.replication.factor": "-1",
            }
        )
    )
    made = {topic: settings.new_topic(topic) for topic in ("log-2", "logs", "log-1", "log", "catalog-2")}
    assert {topic: group.name for topic, group in made.items()} == {
        "log-2": "logs",
        "logs": "logs",
        "log-1": "rest",
        "log": "rest",
        "catalog-2": "default",
    }
    logs, rest, default = made["logs"], made["log"], made["catalog-2"]
    assert (logs.partitions, logs.replication_factor, logs.config) == (9, 3, {"cleanup.policy": "compact"})
    assert (rest.partitions, rest.replication_factor, rest.config) == (2, -1, {})
    assert (default.partitions, default.replication_factor, default.config) == (2, 3, {"retention.ms": "5"})


def test_source_settings() -> None:
    settings = source_settings(
        spec({"topic.creation.default.partitions": "4", "topic.creation.default.cleanup.policy": "compact"})
    )
    assert settings.offsets_topic == "connect-offsets"
    made = settings.new_topic("any")
    assert (made.partitions, made.replication_factor) == (4, -1)
    assert made.config == {"cleanup.policy": "compact"}
    assert offsets_topic_settings(spec({}, {"offset.storage.partitions": "5"})) == (
        5,
        -1,
        {"cleanup.policy": "compact"},
    )
    named = {"topic": "o", "min.insync.replicas": "2", "cleanup.policy": "delete", "file.filename": "f"}
    made = offsets_topic_settings(spec({}, {f"offset.storage.{name}": value for name, value in named.items()}))
    assert made == (25, -1, {"min.insync.replicas": "2", "cleanup.policy": "compact"})
    by_time: dict[str, str | None] = {"transaction.boundary": "INTERVAL", "offsets.storage.topic": "own"}
    timed = spec(by_time, {"offset.flush.interval.ms": "9"})
    assert source_settings(timed).transaction_interval_ms == 9
    assert source_settings(timed).offsets_topic == "own"
    assert settings.topic_creation
    assert not source_settings(spec({}, {"topic.creation.enable": "false"})).topic_creation
    with pytest.raises(ConfigError, match="Not a number of type LONG"):
        source_settings(spec({"transaction.boundary": "interval", "transaction.boundary.interval.ms": "soon"}))


@pytest.mark.parametrize(
    ("config", "timeout_ms", "told"),
    [
        ({}, 60_000, None),
        ({"transaction.boundary": "interval", "transaction.boundary.interval.ms": "30000"}, 60_000, None),
        # Connect's default interval is Kafka's limit to the millisecond.
        ({"transaction.boundary": "interval"}, 120_000, "120000"),
        ({"transaction.boundary": "interval", "transaction.boundary.interval.ms": "86400000"}, 900_000, "900000"),
        ({"transaction.boundary": "interval", "producer.override.transaction.timeout.ms": "70000"}, 70_000, "70000"),
        ({"transaction.boundary": "CONNECTOR"}, 60_000, None),
    ],
)
def test_transaction_timeout_is_raised_with_the_interval(
    config: dict[str, str | None], timeout_ms: int, told: str | None
) -> None:
    settings = source_settings(spec(config))
    assert settings.transaction_timeout_ms == timeout_ms
    assert str(settings.producer.get("transaction.timeout.ms")) == str(told)
    assert settings.connector_boundaries is (config.get("transaction.boundary") == "CONNECTOR")


@pytest.mark.parametrize(
    ("key", "value"), [("transaction.boundary", "Connector"), ("exactly.once.support", " REQUIRED ")]
)
def test_at_least_once_is_refused_beside_settings_that_need_transactions(key: str, value: str) -> None:
    """Also where nobody has validated the config."""
    asked: dict[str, str | None] = {"herdmesh.delivery.guarantee": "at_least_once"}
    assert source_settings(spec(asked)).at_least_once
    assert not source_settings(spec({key: value})).at_least_once
    with pytest.raises(ConfigError, match=f"at_least_once contradicts {key}={value.strip().lower()}") as refused:
        source_settings(spec({**asked, key: value}))
    assert (refused.value.field, f"or write {key}=" in refused.value.fix) == ("herdmesh.delivery.guarantee", True)


def test_a_size_limit_has_no_effect_where_the_connector_ends_transactions() -> None:
    size: dict[str, str | None] = {"herdmesh.transaction.max.bytes": "5"}
    assert source_settings(spec(size)).warnings == ()
    (warning,) = source_settings(spec({**size, "transaction.boundary": "connector"})).warnings
    assert "herdmesh.transaction.max.bytes has no effect" in warning


@given(st.text(max_size=600))
def test_a_commit_manifest_survives_the_offset_metadata(text: str) -> None:
    assert manifest.decode(manifest.encode(text)) == text


def test_offset_metadata_of_other_programs_names_no_files() -> None:
    for metadata in (None, "", "by hand", "{not json", '{"a":1}', "[1]"):
        assert manifest.decode(metadata) == ""


def test_a_commit_manifest_that_is_too_long_or_too_new_is_refused() -> None:
    with pytest.raises(ManifestInvalid, match="4096"):
        manifest.encode("x" * 4_096)
    with pytest.raises(ManifestInvalid, match="newer"):
        manifest.decode('{"herdmesh":2,"publish":"x"}')


def test_the_meter_reports_the_rate_of_the_last_seconds() -> None:
    meter = Meter(0.0)
    for second in range(1, 21):
        meter.count(100, 90, float(second))
    assert (meter.records_in, meter.records_out, meter.records_dropped) == (2_000, 1_800, 200)
    assert meter.rate(20.0) == pytest.approx(100.0, rel=0.3)
    assert meter.rate(100.0) == pytest.approx(0.0, abs=20.0)
    assert meter.report_due(20.0)
    meter.count(1, 1, 20.1)
    assert not meter.report_due(20.1)
    assert meter.report_due(20.3)
    assert not meter.report_due(21.0)
    assert meter.report_due(22.4)


class ScriptedLink:
    """A worker whose commands the test scripts, one list per call."""

    def __init__(self, *said: Sequence[Command]) -> None:
        self._said = list(said)

    def progress(self, progress: ProgressReport) -> None:
        raise AssertionError("nothing is reported here")

    def commands(self) -> Sequence[Command]:
        return self._said.pop(0) if self._said else []

    def wake_with(self, wake: Callable[[], None]) -> None:
        """Not needed: these commands are there when the loop looks."""

    def store_offsets(self, offsets: Mapping[bytes, bytes | None]) -> None:
        raise AssertionError("nothing is stored here")


def test_a_run_ends_at_a_stop_command_and_keeps_that_result() -> None:
    limits = RateLimits(20.0, 0.0, 2, 0.0)
    control = RunCommands(ScriptedLink([], [Rate(5.0), Stop("drain")]), limits, 0.0)
    assert control.wish(1.0) is None
    assert control.wish(2.0) is RunEnd.STOPPED
    assert control.wish(3.0) is RunEnd.STOPPED
    assert limits.records.allowed == 5.0


def test_a_run_yields_after_its_time_slice() -> None:
    control = RunCommands(ScriptedLink([Share(5_000)]), RateLimits(0, 0, 1, 10.0), 10.0)
    assert control.wish(11.0) is None
    assert control.wish(15.0) is RunEnd.YIELDED


def test_a_run_with_a_time_slice_ends_once_it_has_read_everything() -> None:
    control = RunCommands(ScriptedLink([], [Share(5_000)]), RateLimits(0, 0, 1, 10.0), 10.0)
    assert control.wish(11.0, quiet_s=1.0) is None, "nobody waits"
    assert control.wish(11.1, quiet_s=0.04) is None, "a stream of records is not quiet between two of them"
    assert control.wish(11.2, quiet_s=0.05) is RunEnd.YIELDED


def test_a_pause_ends_at_its_time_slice_if_the_run_yields_and_always_at_a_stop() -> None:
    def paused(*said: list[Command], yields: bool) -> RunEnd | None:
        return RunCommands(ScriptedLink(*said), RateLimits(0, 0, 1, 0.0), 0.0).pause(
            0.0, lambda _now_s: None, yields=yields
        )

    assert paused([Share(0)], yields=True) is RunEnd.YIELDED
    assert paused([Share(0)], yields=False) is None
    assert paused([Share(0), Stop()], yields=True) is paused([Stop()], yields=False) is RunEnd.STOPPED
    assert paused(yields=True) is None


@pytest.mark.parametrize(
    ("error", "error_class"),
    [
        (KafkaException(KafkaError(KafkaError._FENCED)), ErrorClass.FENCED),
        (KafkaException(KafkaError(KafkaError.INVALID_PRODUCER_ID_MAPPING)), ErrorClass.FENCED),
        (KafkaException(KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED)), ErrorClass.BAD_CONFIG),
        (KafkaException(KafkaError(KafkaError.MSG_SIZE_TOO_LARGE)), ErrorClass.FATAL),
        (KafkaException(KafkaError(KafkaError._TRANSPORT)), ErrorClass.UNREACHABLE),
        (KafkaException(KafkaError(KafkaError._ALL_BROKERS_DOWN)), ErrorClass.UNREACHABLE),
        (KafkaException(KafkaError(KafkaError.COORDINATOR_LOAD_IN_PROGRESS)), ErrorClass.UNREACHABLE),
        (KafkaException(KafkaError(KafkaError.COORDINATOR_NOT_AVAILABLE)), ErrorClass.UNREACHABLE),
        (KafkaException(KafkaError(KafkaError._TIMED_OUT)), ErrorClass.RETRIABLE),
        (ConfigError("bad", field="f"), ErrorClass.BAD_CONFIG),
        (RecordError("VALUE_CONVERTER", "s", "t", 0, 1, DataError("x")), ErrorClass.FATAL),
        (PermissionError(errno.EACCES, "no"), ErrorClass.BAD_CONFIG),
        (OSError(errno.ENOSPC, "disk full"), ErrorClass.RETRIABLE),
        (MemoryError(), ErrorClass.RETRIABLE),
        (RetriableError("away"), ErrorClass.RETRIABLE),
        (UnreachableError("no listener", waits_for="PostgreSQL db:5432"), ErrorClass.UNREACHABLE),
        (KafkaException(KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART)), ErrorClass.RETRIABLE),
        (TaskFenced("gone"), ErrorClass.FENCED),
        (OffsetsLost("gone"), ErrorClass.DATA_LOSS),
        (ZeroDivisionError(), ErrorClass.UNKNOWN),
    ],
)
def test_every_exception_has_a_class_and_a_message(error: Exception, error_class: ErrorClass) -> None:
    message, trace, found = failure.classify(error)
    assert found is error_class
    assert message
    assert "\n" not in message
    assert type(error).__name__ in trace


def test_a_timeout_without_any_reachable_broker_is_unreachable() -> None:
    """The client reports separately that all brokers are down; a refused login gives its reason, and takes
    precedence.
    """
    late = KafkaException(KafkaError(KafkaError._TIMED_OUT))
    wrapped = TaskFailed("committing did not succeed", ErrorClass.RETRIABLE)
    wrapped.__cause__ = late
    other = TaskFailed("the consumer group has live members", ErrorClass.RETRIABLE)
    failure.note_error(KafkaError(KafkaError._ALL_BROKERS_DOWN))
    assert failure.error_class(late) is ErrorClass.RETRIABLE, "said of clients of other connectors"
    failure.watch_brokers()
    assert failure.error_class(wrapped) is ErrorClass.RETRIABLE
    failure.note_error(KafkaError(KafkaError._ALL_BROKERS_DOWN))
    assert failure.error_class(late) is failure.error_class(wrapped) is ErrorClass.UNREACHABLE
    assert failure.error_class(other) is ErrorClass.RETRIABLE, "brokers told so"
    failure.note_error(KafkaError(KafkaError._AUTHENTICATION))
    assert failure.error_class(wrapped) is ErrorClass.BAD_CONFIG


def test_values_that_cross_processes_can_be_pickled() -> None:
    errors = [TaskFailed("m", ErrorClass.FATAL), TaskFenced("f"), OffsetsLost("o"), ForeignMembers("g", ["a at b"])]
    for error in errors:
        copied = pickle.loads(pickle.dumps(error))
        assert (type(copied), str(copied), copied.error_class) == (type(error), str(error), error.error_class)
    given_spec = spec({"a": None})
    assert pickle.loads(pickle.dumps(given_spec)) == given_spec


def test_a_mistyped_failpoint_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HERDMESH_FAILPOINTS", "before-lunch=stop")
    with pytest.raises(ValueError, match="before-lunch"):
        failpoints.arm("c")
    monkeypatch.setenv("HERDMESH_FAILPOINTS", "")
    failpoints.arm("c")
    failpoints.hit("before-write")


def test_messages_without_headers_create_no_header_column() -> None:
    bare, headed = Message(topic="t", offset=1), Message(topic="t", offset=1, headers=[("h", b"1"), ("h", None)])
    assert not of_messages(("t", 0), [bare, bare]).headers
    assert of_messages(("t", 0), [bare, headed]).headers == [[], [("h", b"1"), ("h", None)]]
