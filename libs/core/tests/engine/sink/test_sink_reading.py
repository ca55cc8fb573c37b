"""Reading control and committable offsets of a sink's task (Connect's `SinkTaskContext` and `preCommit`), against a
real broker.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest

from herdmesh.connect.error_class import ErrorClass
from herdmesh.connect.errors import ConnectError, RecordError, RetriableError
from herdmesh.connect.spi.connector import Config, PartitionId, SinkBatch, StagingSinkTask, TaskContext
from herdmesh.engine import ProgressReport, RunEnd, Stop
from herdmesh.engine.runtime.contract import Command
from herdmesh.engine.runtime.errors import TaskFailed
from herdmesh.engine.sink.task_requests import SinkTaskRequests
from libs.core.tests.engine.harness import WAIT_S, Kafka, Link, make_spec, processes, run_here
from libs.core.tests.engine.reading_sinks import PATH, ReadingSink
from libs.core.tests.engine.sinks import ListSink
from libs.core.tests.engine.sqlite_ledger import SqliteSink

SOON = {"offset.storage.partitions": "2", "offset.flush.interval.ms": "50"}
"""A short commit interval."""


@pytest.fixture(scope="module")
def kafka_topics(kafka_bootstrap: str) -> Kafka:
    return Kafka(kafka_bootstrap)


def ids() -> list[int]:
    return [value["id"] for value in ListSink.values]


def test_records_a_task_held_back_from_the_commit_are_read_again_after_a_kill(
    kafka_topics: Kafka, tmp_topic: Callable[..., str], tmp_path: Path
) -> None:
    topic, name = kafka_topics.create_topic(tmp_topic(), 1), tmp_topic("sink")
    kafka_topics.produce_ids(topic, range(10))
    config = {"topics": topic, "hold": "7", "all": "10"}
    with processes(tmp_path) as start:
        killed = start(make_spec(kafka_topics.bootstrap, name, f"{PATH}:HoldingSink", config, worker_config=SOON))
        assert killed.exit_code() == -signal.SIGKILL, "it was asked again, and did not rest"
    assert kafka_topics.committed(f"connect-{name}", (topic, 0)) == [7]
    outcome = run_here(make_spec(kafka_topics.bootstrap, name, f"{PATH}:ReadingSink", config))
    assert (outcome.reason, ids()) == (RunEnd.QUIET, [7, 8, 9])
    assert kafka_topics.committed(f"connect-{name}", (topic, 0)) == [10]


def test_a_run_continues_while_its_task_holds_back_offsets_and_invalid_ones_are_ignored(
    kafka_topics: Kafka, tmp_topic: Callable[..., str], caplog: pytest.LogCaptureFixture
) -> None:
    topic, name = kafka_topics.create_topic(tmp_topic(), 1), tmp_topic("sink")
    kafka_topics.produce_ids(topic, range(10))
    link = Link()
    outcome = run_here(
        make_spec(kafka_topics.bootstrap, name, f"{PATH}:LateSink", {"topics": topic}, worker_config=SOON), link
    )
    assert (outcome.reason, ids()) == (RunEnd.QUIET, list(range(10))), "nothing is given twice to a run that goes on"
    assert [one == {(topic, 0): 10} for one in ReadingSink.asked].count(True) == 3
    told = [part.committed_offset for one in link.reports for part in one.partitions]
    assert set(told) <= {-1, 0, 10}, "of partitions that miss or have too much nothing new is committed"
    assert kafka_topics.committed(f"connect-{name}", (topic, 0)) == [10]
    assert f"{(topic, 0)}: ignored the task's offset 11: it is not from 0 to 10" in caplog.text
    assert "ignored offsets of partitions that the task does not own: [('another', 0)]" in caplog.text


def test_a_stopped_run_reports_held_back_records_as_unread(kafka_topics: Kafka, tmp_topic: Callable[..., str]) -> None:
    """Otherwise the worker would take the task as caught up, and leave it idle."""
    topic, name = kafka_topics.create_topic(tmp_topic(), 1), tmp_topic("sink")
    kafka_topics.produce_ids(topic, range(10))
    config = {"topics": topic, "hold": "7", "all": "11"}
    link = Link(lambda progress: [Stop()] if progress.records_in == 10 else [])
    outcome = run_here(make_spec(kafka_topics.bootstrap, name, f"{PATH}:HoldingSink", config), link)
    (part,) = outcome.progress.partitions
    assert (outcome.reason, part.committed_offset, part.position, part.end_offset) == (RunEnd.STOPPED, 0, 0, 10)


@pytest.mark.parametrize("where", ["Seeking", "SeekingInFlush"])
def test_a_task_that_seeks_back_gets_the_records_again(
    kafka_topics: Kafka, tmp_topic: Callable[..., str], where: str
) -> None:
    topic, name = kafka_topics.create_topic(tmp_topic(), 1), tmp_topic("sink")
    kafka_topics.produce_ids(topic, range(10))
    config = {"topics": topic, "back": "4", "begin": "0"}
    outcome = run_here(make_spec(kafka_topics.bootstrap, name, f"{PATH}:{where}Sink", config, worker_config=SOON))
    assert (outcome.reason, ids()) == (RunEnd.QUIET, [*range(10), *range(4, 10)])
    assert kafka_topics.committed(f"connect-{name}", (topic, 0)) == [10]


def test_no_commit_passes_the_offset_a_task_seeks_back_to(kafka_topics: Kafka, tmp_topic: Callable[..., str]) -> None:
    """The run is stopped right after the seek: the next run reads the records again."""
    topic, name = kafka_topics.create_topic(tmp_topic(), 1), tmp_topic("sink")
    kafka_topics.produce_ids(topic, range(10))
    config = {"topics": topic, "back": "4", "begin": "0"}
    spec = make_spec(kafka_topics.bootstrap, name, f"{PATH}:SeekingSink", config)
    outcome = run_here(spec, Link(lambda _progress: [Stop()] if "seek" in ListSink.calls else []))
    assert (outcome.reason, ids()) == (RunEnd.STOPPED, list(range(10)))
    assert kafka_topics.committed(f"connect-{name}", (topic, 0)) == [4]


def test_a_seek_back_that_arrives_with_the_stop_command_is_applied(
    kafka_topics: Kafka, tmp_topic: Callable[..., str]
) -> None:
    """By a thread of its own, when everything read is committed."""
    topic, name = kafka_topics.create_topic(tmp_topic(), 1), tmp_topic("sink")
    kafka_topics.produce_ids(topic, range(10))

    def say(progress: ProgressReport) -> list[Command]:
        if [part.committed_offset for part in progress.partitions] != [10]:
            return []
        ReadingSink.reading.seek({(topic, 0): 4})
        return [Stop()]

    config = {"topics": topic}
    spec = make_spec(kafka_topics.bootstrap, name, f"{PATH}:ReadingSink", config, worker_config=SOON, linger_ms=600_000)
    assert run_here(spec, Link(say)).reason is RunEnd.STOPPED
    assert kafka_topics.committed(f"connect-{name}", (topic, 0)) == [4]


def test_a_pre_commit_that_returns_nothing_is_reported(kafka_topics: Kafka, tmp_topic: Callable[..., str]) -> None:
    """The task's starting offsets are kept until its author fixes it."""
    topic, name = kafka_topics.create_topic(tmp_topic(), 1), tmp_topic("sink")
    with pytest.raises(ConnectError, match=r"ForgetfulSink\.pre_commit returned nothing: return the offsets"):
        run_here(make_spec(kafka_topics.bootstrap, name, f"{PATH}:ForgetfulSink", {"topics": topic}))
    assert kafka_topics.committed(f"connect-{name}", (topic, 0)) == [0]


def test_a_pre_commit_that_raises_ends_the_run_and_the_next_run_gets_the_records_again(
    kafka_topics: Kafka, tmp_topic: Callable[..., str]
) -> None:
    """Where Connect's consumer seeks back and the task continues."""
    topic, name = kafka_topics.create_topic(tmp_topic(), 1), tmp_topic("sink")
    config, sink = {"topics": topic}, f"connect-{name}"
    kafka_topics.produce_ids(topic, range(3))
    run_here(make_spec(kafka_topics.bootstrap, name, f"{PATH}:ReadingSink", config))
    kafka_topics.produce_ids(topic, range(3, 6))
    with pytest.raises(RetriableError, match="the other side is away"):
        run_here(make_spec(kafka_topics.bootstrap, name, f"{PATH}:UnsureSink", config, worker_config=SOON))
    assert (ids()[0], kafka_topics.committed(sink, (topic, 0))) == (3, [3])
    run_here(make_spec(kafka_topics.bootstrap, name, f"{PATH}:ReadingSink", config))
    assert (ids(), kafka_topics.committed(sink, (topic, 0))) == ([3, 4, 5], [6])


def test_a_task_that_seeks_at_its_start_begins_there(kafka_topics: Kafka, tmp_topic: Callable[..., str]) -> None:
    """Forward, which only the task can allow, and committed with its first records."""
    topic, name = kafka_topics.create_topic(tmp_topic(), 1), tmp_topic("sink")
    kafka_topics.produce_ids(topic, range(9))
    config = {"topics": topic, "back": "0", "begin": "6"}
    outcome = run_here(make_spec(kafka_topics.bootstrap, name, f"{PATH}:SeekingSink", config))
    assert (outcome.reason, ids()) == (RunEnd.QUIET, [6, 7, 8])
    assert kafka_topics.committed(f"connect-{name}", (topic, 0)) == [9]


def test_a_paused_partition_gives_no_records_until_it_is_resumed(
    kafka_topics: Kafka, tmp_topic: Callable[..., str]
) -> None:
    topic, name = kafka_topics.create_topic(tmp_topic(), 2), tmp_topic("sink")
    kafka_topics.produce_ids(topic, range(5), partition=0)
    kafka_topics.produce_ids(topic, range(5, 10), partition=1)
    while_paused: list[list[int]] = []

    def say(progress: ProgressReport) -> list[Command]:
        if progress.records_in >= 5 and len(while_paused) < 10:  # with 100 ms of waiting for records between two
            while_paused.append(ids())
            if len(while_paused) == 10:
                ReadingSink.reading.resume([(topic, 1)])
        return []

    outcome = run_here(make_spec(kafka_topics.bootstrap, name, f"{PATH}:PausingSink", {"topics": topic}), Link(say))
    assert while_paused == [list(range(5))] * 10
    assert (outcome.reason, ids()) == (RunEnd.QUIET, list(range(10)))
    assert kafka_topics.committed(f"connect-{name}", (topic, 0), (topic, 1)) == [5, 5]


def test_a_commit_requested_by_a_task_does_not_wait_for_the_flush_interval(
    kafka_topics: Kafka, tmp_topic: Callable[..., str]
) -> None:
    topic, name = kafka_topics.create_topic(tmp_topic(), 1), tmp_topic("sink")
    kafka_topics.produce_ids(topic, range(5))
    deadline_s = time.monotonic() + WAIT_S / 3
    seen: list[int] = []

    def say(progress: ProgressReport) -> list[Command]:
        committed = max((part.committed_offset for part in progress.partitions), default=0)
        if committed == 5 and 5 not in seen:
            kafka_topics.produce_ids(topic, range(5, 10))
        seen.append(committed)
        return [Stop()] if committed == 10 or time.monotonic() > deadline_s else []

    config = {"topics": topic}
    spec = make_spec(kafka_topics.bootstrap, name, f"{PATH}:CommittingSink", config, linger_ms=600_000)
    run_here(spec, Link(say))
    assert seen[-1] == 10, "while the run lasted"


def test_a_refused_batch_is_retried_after_the_time_the_task_sets(
    kafka_topics: Kafka, tmp_topic: Callable[..., str], caplog: pytest.LogCaptureFixture
) -> None:
    topic, name = kafka_topics.create_topic(tmp_topic(), 1), tmp_topic("sink")
    kafka_topics.produce_ids(topic, range(1))
    run_here(make_spec(kafka_topics.bootstrap, name, f"{PATH}:ImpatientSink", {"topics": topic}))
    told = [record.getMessage() for record in caplog.records if "cannot accept a batch" in record.getMessage()]
    assert [text.partition(" in ")[2].partition(":")[0] for text in told] == ["7 ms", "600 ms"], "once, then as ever"
    assert ids() == [0]


def test_partitions_are_closed_after_the_last_commit_and_after_an_error(
    kafka_topics: Kafka, tmp_topic: Callable[..., str], caplog: pytest.LogCaptureFixture
) -> None:
    topic, name = kafka_topics.create_topic(tmp_topic(), 2), tmp_topic("sink")
    kafka_topics.produce_ids(topic, range(3))
    run_here(make_spec(kafka_topics.bootstrap, name, f"{PATH}:ReadingSink", {"topics": topic}))
    assert ListSink.calls[-3:] == ["flush", "close 2", "stop"]
    kafka_topics.produce_ids(topic, range(3))
    with pytest.raises(OSError, match="no space left"):
        run_here(make_spec(kafka_topics.bootstrap, name, f"{PATH}:BrokenReadingSink", {"topics": topic}))
    assert ListSink.calls[-2:] == ["close 2", "stop"]
    assert "the task failed in close, too" in caplog.text


@pytest.mark.parametrize("swallow", ["false", "true"])
def test_errant_records_reported_in_flush_are_not_committed_by_a_second_flush(
    kafka_topics: Kafka, tmp_topic: Callable[..., str], swallow: str
) -> None:
    """Errors are not tolerated: the run ends, and the records that the task dropped from its buffer go to the next
    run.
    """
    topic, name = kafka_topics.create_topic(tmp_topic(), 1), tmp_topic("sink")
    kafka_topics.produce_ids(topic, [0, -1, 2])
    config = {"topics": topic, "errors.log.enable": "true", "swallow": swallow}
    with pytest.raises(RecordError, match="no negative id: -1"):
        run_here(make_spec(kafka_topics.bootstrap, name, f"{PATH}:LateReportingSink", config))
    assert kafka_topics.committed(f"connect-{name}", (topic, 0)) <= [1]


class Staged(StagingSinkTask):
    """Does nothing."""

    def start(self, config: Config, context: TaskContext) -> None: ...

    def put(self, batch: SinkBatch) -> None: ...

    def recover(self, manifests: Mapping[PartitionId, str]) -> None: ...

    def commit_due(self) -> bool:
        return False

    def stage(self) -> Mapping[PartitionId, str]:
        return {}

    def publish(self, manifests: Mapping[PartitionId, str]) -> None: ...


class StagedWithPreCommit(Staged):
    """Would hold back what it staged."""

    def pre_commit(self, offsets: Mapping[PartitionId, int]) -> Mapping[PartitionId, int]:
        return {}


@pytest.mark.parametrize("task", [Staged, SqliteSink])
def test_staging_and_ledger_sinks_may_pause_but_not_seek(task: type[Staged | SqliteSink]) -> None:
    reading = SinkTaskRequests(task())
    reading.assign([("t", 0)])
    reading.pause([("t", 0)])
    with pytest.raises(ConnectError, match=f"a {'Staging' if task is Staged else 'Ledger'}SinkTask cannot seek"):
        reading.seek({("t", 0): 1})
    with pytest.raises(TaskFailed, match="StagedWithPreCommit has a pre_commit") as refused:
        SinkTaskRequests(StagedWithPreCommit())
    assert refused.value.error_class is ErrorClass.FATAL


def test_reading_requests_are_taken_once_and_only_for_owned_partitions() -> None:
    reading = SinkTaskRequests(ReadingSink())
    a, b = ("t", 0), ("t", 1)

    def refused(call: Callable[[Sequence[PartitionId]], None]) -> None:
        with pytest.raises(ConnectError, match="the task does not own t-1; open names the partitions that it owns"):
            call([a, b])

    reading.assign([a])
    refused(reading.pause)
    refused(reading.resume)
    refused(lambda named: reading.seek(dict.fromkeys(named, 1)))
    with pytest.raises(ValueError, match="offsets must be 0 or more"):
        reading.seek({a: -1})
    with pytest.raises(ValueError, match="0 ms or more"):
        reading.retry_after(-1)
    assert not reading.asks
    reading.assign([a, b])
    reading.seek({a: 1, b: 2})
    reading.seek({a: 3})
    reading.pause([a, b])
    reading.resume([b])
    assert reading.asks
    reading.assign([b])
    wishes = reading.take()
    assert (wishes.seeks, wishes.pauses) == ({b: 2}, {b: False}), "the other one is gone"
    assert not reading.asks
    assert reading.take().seeks == {}
