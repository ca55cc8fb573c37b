"""The sink loop against a real broker: its starting offsets, its commits, its end."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, TopicPartition

from herdmesh.connect.error_class import ErrorClass
from herdmesh.connect.errors import RecordError
from herdmesh.connect.task_counts import ErrorCounts
from herdmesh.connect.topics.commit_scope import CommitScope
from herdmesh.engine import ProgressReport, RunEnd, Stop
from herdmesh.engine.fencing.fence import Fence
from herdmesh.engine.librdkafka import clients
from herdmesh.engine.librdkafka.batch_consumer import BatchConsumer, Heard
from herdmesh.engine.runtime import failure
from herdmesh.engine.runtime.contract import Command, Share
from herdmesh.engine.runtime.errors import ForeignMembers, OffsetsLost, TaskFailed, TaskFenced
from herdmesh.engine.sink import partitions, sink_commits
from herdmesh.engine.sink.ownership import owner
from herdmesh.engine.sink.positions import PartitionRange
from libs.core.tests.engine.harness import WAIT_S, Kafka, Link, make_spec, run_here
from libs.core.tests.engine.sinks import PATH, AwaySink, ListSink

pytestmark = pytest.mark.kafka
LIST_SINK = f"{PATH}:ListSink"
BUSY_SINK = f"{PATH}:BusySink"


@pytest.fixture(scope="module")
def kafka_topics(kafka_bootstrap: str) -> Kafka:
    return Kafka(kafka_bootstrap)


def without_ids(scope: CommitScope | None) -> CommitScope | None:
    """A scope to compare: test_topics_made_again covers the ids of topics."""
    return None if scope is None else CommitScope(scope.group, scope.topics, scope.elsewhere)


def ids() -> list[int]:
    return sorted(value["id"] for value in ListSink.values)


def test_records_are_put_once_and_offsets_committed(kafka_topics: Kafka, tmp_topic: Callable[..., str]) -> None:
    topic, name = kafka_topics.create_topic(tmp_topic()), tmp_topic("sink")
    kafka_topics.produce_ids(topic, range(1_000))
    spec = make_spec(kafka_topics.bootstrap, name, LIST_SINK, {"topics": topic})

    outcome = run_here(spec)

    assert outcome.reason is RunEnd.QUIET
    assert ids() == list(range(1_000))
    assert (outcome.progress.records_in, outcome.progress.records_out) == (1_000, 1_000)
    assert without_ids(outcome.progress.commit_scope) == CommitScope(f"connect-{name}", (topic,))
    assert all(p.committed_offset == p.position == p.end_offset for p in outcome.progress.partitions)
    assert sum(kafka_topics.committed(f"connect-{name}", (topic, 0), (topic, 1))) == 1_000
    assert ListSink.calls[:2] == ["start", "open 2"]
    assert ListSink.calls[-1] == "stop"
    first = ListSink.batches[0]
    assert [record.offset for record in first.records()] == list(range(first.first_offset, first.last_offset + 1))
    assert next(first.records()).key.isdigit()

    kafka_topics.produce_ids(topic, range(1_000, 1_010))
    assert run_here(spec).progress.records_in == 10
    assert ids() == list(range(1_000, 1_010))


def test_tasks_share_the_partitions_without_overlap(kafka_topics: Kafka, tmp_topic: Callable[..., str]) -> None:
    topic, name = kafka_topics.create_topic(tmp_topic(), 4), tmp_topic("sink")
    kafka_topics.produce_ids(topic, range(200))
    found: list[int] = []
    for task in range(3):
        spec = make_spec(kafka_topics.bootstrap, name, LIST_SINK, {"topics": topic}, task=task, task_count=3)
        run_here(spec)
        found.extend(ids())
    assert sorted(found) == list(range(200))


def test_transaction_markers_leave_no_lag(kafka_topics: Kafka, tmp_topic: Callable[..., str]) -> None:
    topic, name = kafka_topics.create_topic(tmp_topic(), 1), tmp_topic("sink")
    kafka_topics.produce_ids(topic, range(5), transactional_id=tmp_topic("id"))
    outcome = run_here(make_spec(kafka_topics.bootstrap, name, LIST_SINK, {"topics": topic}))
    assert ids() == list(range(5))
    assert [p.committed_offset for p in outcome.progress.partitions] == [6]
    assert kafka_topics.committed(f"connect-{name}", (topic, 0)) == [6]


def test_a_lost_group_of_a_task_that_has_committed_fails_with_the_numbers(
    kafka_topics: Kafka, tmp_topic: Callable[..., str]
) -> None:
    topic, name = kafka_topics.create_topic(tmp_topic(), 1), tmp_topic("sink")
    kafka_topics.produce_ids(topic, range(5))
    config, scope = {"topics": topic}, CommitScope(f"connect-{name}", (topic,))
    with pytest.raises(OffsetsLost, match=r"no committed offset any more \(records 0 to 5\)"):
        run_here(make_spec(kafka_topics.bootstrap, name, LIST_SINK, config, commit_scope=scope))
    assert ListSink.calls == ["start", "stop"]
    anew = {**config, "herdmesh.offsets.missing": "reset"}
    run_here(make_spec(kafka_topics.bootstrap, name, LIST_SINK, anew, commit_scope=scope))
    assert ids() == list(range(5))


def test_another_group_or_other_topics_begin_by_the_reset_policy(
    kafka_topics: Kafka, tmp_topic: Callable[..., str]
) -> None:
    """Although the task has committed before: like a task that never did, and as in Connect."""
    (old, new), name, group = (
        (kafka_topics.create_topic(tmp_topic(), 1) for _ in "ab"),
        tmp_topic("sink"),
        tmp_topic("g"),
    )
    kafka_topics.produce_ids(old, range(5))
    kafka_topics.produce_ids(new, range(5, 8))

    def ran(topics: str, scope: CommitScope | None, **more: str) -> CommitScope | None:
        spec = make_spec(kafka_topics.bootstrap, name, LIST_SINK, {"topics": topics, **more}, commit_scope=scope)
        return without_ids(run_here(spec).progress.commit_scope)

    scope = ran(old, None)
    other = ran(old, scope, **{"consumer.override.group.id": group})
    assert (other, ids()) == (CommitScope(group, (old,)), list(range(5))), "another group"
    both = ran(f"{old},{new}", scope)
    assert (both, ids()) == (CommitScope(f"connect-{name}", tuple(sorted((old, new)))), [5, 6, 7]), "one topic more"
    moved = ran(new, other, **{"consumer.override.group.id": group})
    assert (moved, ids()) == (CommitScope(group, (new,)), [5, 6, 7]), "another topic"


def test_a_changed_number_of_tasks_does_not_skip_offsets_silently(
    kafka_topics: Kafka, tmp_topic: Callable[..., str]
) -> None:
    """All of one task's partitions go to another, whose own commits were for other topics. Beside them a partition that
    is new, of a topic that others have offsets in: no loss."""
    name = tmp_topic("sink")
    before, after = 2, 3
    topic = next(one for one in iter(lambda: tmp_topic(), "") if owner(one, 0, before) != owner(one, 0, after))
    kafka_topics.create_topic(topic, 1)
    kafka_topics.produce_ids(topic, range(5))
    scope = CommitScope(f"connect-{name}", ("another",), (topic,))

    def ran(task: int, count: int, given: CommitScope | None) -> CommitScope | None:
        spec = make_spec(
            kafka_topics.bootstrap, name, LIST_SINK, {"topics": topic}, task=task, task_count=count, commit_scope=given
        )
        return without_ids(run_here(spec).progress.commit_scope)

    mine = owner(topic, 0, after)
    with pytest.raises(OffsetsLost, match=r"no committed offset any more \(records 0 to 5\)"):
        ran(mine, after, scope)
    assert ran(owner(topic, 0, before), before, None) == CommitScope(f"connect-{name}", (topic,))
    assert ran(mine, after, scope) == CommitScope(f"connect-{name}", (topic,)), "committed by the number before"
    idle = ran((mine + 1) % after, after, scope)
    assert idle == scope, "one that has no partitions keeps what it was told"

    kafka_topics.grow(topic, 2)
    assert owner(topic, 1, after) == (mine + 1) % after
    assert ran((mine + 1) % after, after, scope) == CommitScope(f"connect-{name}", (topic,)), "a new partition"


def test_a_group_with_members_of_another_program_is_refused_by_name(
    kafka_topics: Kafka, tmp_topic: Callable[..., str]
) -> None:
    topic, name = kafka_topics.create_topic(tmp_topic(), 1), tmp_topic("sink")
    joined: list[bool] = []
    member: Any = Consumer(
        {"bootstrap.servers": kafka_topics.bootstrap, "group.id": f"connect-{name}", "client.id": "a-java-task"}
    )
    try:

        def on_assign(_member: Any, _partitions: Any) -> None:
            joined.append(True)

        member.subscribe([topic], on_assign=on_assign)
        while not joined:
            member.poll(1.0)
        spec = make_spec(kafka_topics.bootstrap, name, LIST_SINK, {"topics": topic})
        with pytest.raises(ForeignMembers, match="a-java-task"):
            run_here(spec)
    finally:
        member.close()


def test_new_partitions_are_found_during_a_run(kafka_topics: Kafka, tmp_topic: Callable[..., str]) -> None:
    stem, name = tmp_topic(), tmp_topic("sink")
    first, second = kafka_topics.create_topic(f"{stem}-a", 1), f"{stem}-b"
    kafka_topics.produce_ids(first, range(5))
    made: list[str] = []

    def say(progress: ProgressReport) -> list[Command]:
        if progress.records_in == 5 and not made:
            made.append(kafka_topics.create_topic(second, 1))
            kafka_topics.produce_ids(second, range(5, 9))
        return [Stop()] if progress.records_in == 9 else []

    config = {"topics.regex": f"{stem}-.*", "consumer.override.metadata.max.age.ms": "200"}
    spec = make_spec(kafka_topics.bootstrap, name, LIST_SINK, config, linger_ms=int(WAIT_S * 1_000))
    assert run_here(spec, Link(say)).reason is RunEnd.STOPPED
    assert ids() == list(range(9))
    assert kafka_topics.committed(f"connect-{name}", (first, 0), (second, 0)) == [5, 4]


def test_an_unreadable_record_fails_with_its_position_and_earlier_records_are_committed(
    kafka_topics: Kafka, tmp_topic: Callable[..., str]
) -> None:
    topic, name = kafka_topics.create_topic(tmp_topic(), 1), tmp_topic("sink")
    spec = make_spec(kafka_topics.bootstrap, name, LIST_SINK, {"topics": topic})
    kafka_topics.produce_ids(topic, range(3))
    run_here(spec)
    kafka_topics.produce(topic, [b"{not json"])
    with pytest.raises(RecordError) as failed:
        run_here(spec)
    message, _, error_class = failure.classify(failed.value)
    assert error_class is ErrorClass.FATAL
    assert "VALUE_CONVERTER" in message
    assert f"topic '{topic}', partition 0, offset 3" in message
    assert kafka_topics.committed(f"connect-{name}", (topic, 0)) == [3]


def test_a_failing_task_is_stopped_and_nothing_is_committed(kafka_topics: Kafka, tmp_topic: Callable[..., str]) -> None:
    topic, name = kafka_topics.create_topic(tmp_topic(), 1), tmp_topic("sink")
    kafka_topics.produce_ids(topic, range(3))
    with pytest.raises(OSError, match="no space left"):
        run_here(make_spec(kafka_topics.bootstrap, name, f"{PATH}:BrokenSink", {"topics": topic}))
    assert ListSink.calls[-1] == "stop"
    assert kafka_topics.committed(f"connect-{name}", (topic, 0)) == [0]


class AtFirstWord(Link):
    """Calls `then` at the first progress report, before the run continues."""

    def __init__(self, then: Callable[[ProgressReport], None]) -> None:
        super().__init__()
        self._then = then

    def progress(self, progress: ProgressReport) -> None:
        super().progress(progress)
        if len(self.reports) == 1:
            self._then(progress)


def test_the_first_progress_report_means_that_the_task_started_and_took_over(
    kafka_topics: Kafka, tmp_topic: Callable[..., str]
) -> None:
    """The status RUNNING follows from it. The starting offsets are read and committed after it."""
    topic, name = kafka_topics.create_topic(tmp_topic(), 1), tmp_topic("sink")
    spec = make_spec(kafka_topics.bootstrap, name, LIST_SINK, {"topics": topic})
    older = Fence(clients.producer(spec, {}), spec.transactional_id)
    older.take_over()
    group = Consumer({"bootstrap.servers": kafka_topics.bootstrap, "group.id": f"connect-{name}"})

    def look(progress: ProgressReport) -> None:
        assert ListSink.calls == ["start"]
        assert progress.commit_scope is None
        with pytest.raises(TaskFenced):
            older.commit_offsets([TopicPartition(topic, 0, 1)], group.consumer_group_metadata())

    link = AtFirstWord(look)
    outcome = run_here(spec, link)
    group.close()
    assert len(link.reports) > 1
    assert outcome.progress.commit_scope is not None
    assert kafka_topics.committed(f"connect-{name}", (topic, 0)) == [0]


def test_starting_offsets_are_committed_with_the_first_records(
    kafka_topics: Kafka, tmp_topic: Callable[..., str]
) -> None:
    """But before them where the run begins at the end: the next run after a death would begin at another end."""
    topic, early, late = kafka_topics.create_topic(tmp_topic(), 1), tmp_topic("sink"), tmp_topic("sink")
    kafka_topics.produce_ids(topic, range(3))
    link = Link()
    run_here(make_spec(kafka_topics.bootstrap, early, LIST_SINK, {"topics": topic}), link)
    first = next(one for one in link.reports if one.commit_scope)
    assert [one.committed_offset for one in first.partitions] == [first.records_in]
    assert first.records_in > 0
    link = Link()
    at_end = {"topics": topic, "consumer.override.auto.offset.reset": "latest"}
    run_here(make_spec(kafka_topics.bootstrap, late, LIST_SINK, at_end), link)
    first = next(one for one in link.reports if one.commit_scope)
    assert (first.records_in, [one.committed_offset for one in first.partitions]) == (0, [3])


def test_a_run_yields_its_slot(kafka_topics: Kafka, tmp_topic: Callable[..., str]) -> None:
    topic, name = kafka_topics.create_topic(tmp_topic(), 1), tmp_topic("sink")
    spec = make_spec(kafka_topics.bootstrap, name, LIST_SINK, {"topics": topic}, continuous=True)
    assert run_here(spec, Link(lambda _progress: [Share(0)])).reason is RunEnd.YIELDED


def test_a_sink_whose_target_is_unreachable_yields_its_slot(kafka_topics: Kafka, tmp_topic: Callable[..., str]) -> None:
    """It retries for ever, and would keep the slot from all others as long."""
    topic, name = kafka_topics.create_topic(tmp_topic(), 1), tmp_topic("sink")
    kafka_topics.produce_ids(topic, range(10))
    config = {"topics": topic, "errors.retry.delay.max.ms": "10", "refusals": "1000000000"}

    def say(_progress: ProgressReport) -> list[Command]:
        tries = ListSink.calls.count("put")
        return [Stop()] if tries > 50 else [Share(0)] if tries > 2 else []

    outcome = run_here(make_spec(kafka_topics.bootstrap, name, BUSY_SINK, config), Link(say))
    assert (outcome.reason, outcome.progress.records_in) == (RunEnd.YIELDED, 0)
    assert kafka_topics.committed(f"connect-{name}", (topic, 0)) == [0]


def test_a_missing_topic_is_waited_for(kafka_topics: Kafka, tmp_topic: Callable[..., str]) -> None:
    outcome = run_here(make_spec(kafka_topics.bootstrap, tmp_topic("sink"), LIST_SINK, {"topics": tmp_topic("none")}))
    assert (outcome.reason, outcome.progress.partitions) == (RunEnd.QUIET, ())


@pytest.mark.parametrize("path", ["no.such.module:Task", f"{PATH}:Nothing", f"{PATH}:CountingSource"])
def test_an_invalid_task_class_is_named(kafka_topics: Kafka, path: str) -> None:
    with pytest.raises(TaskFailed, match=path.partition(":")[2]) as failed:
        run_here(make_spec(kafka_topics.bootstrap, "c", path, {"topics": "t"}))
    assert failed.value.error_class is ErrorClass.BAD_CONFIG


def test_an_unusable_client_setting_is_named(kafka_topics: Kafka) -> None:
    config = {"topics": "t", "consumer.override.fetch.min.bytes": "many"}
    with pytest.raises(Exception, match=r"fetch\.min\.bytes") as failed:
        run_here(make_spec(kafka_topics.bootstrap, "c", LIST_SINK, config))
    assert failure.error_class(failed.value) is ErrorClass.BAD_CONFIG


def test_a_batch_the_task_refuses_for_now_is_put_again_and_a_stop_loses_none(
    kafka_topics: Kafka, tmp_topic: Callable[..., str]
) -> None:
    """RetriableError from put, as Connect means it: neither a failure nor a skipped record."""
    topic, name = kafka_topics.create_topic(tmp_topic(), 1), tmp_topic("sink")
    kafka_topics.produce_ids(topic, range(100))
    config = {"topics": topic, "errors.retry.delay.max.ms": "10", "refusals": "1000000000"}
    link = Link(lambda _progress: [Stop()] if ListSink.calls.count("put") > 2 else [])
    stopped = run_here(make_spec(kafka_topics.bootstrap, name, BUSY_SINK, config), link)
    assert (stopped.reason, stopped.progress.records_in, ListSink.values) == (RunEnd.STOPPED, 0, [])
    assert kafka_topics.committed(f"connect-{name}", (topic, 0)) == [0]
    done = run_here(make_spec(kafka_topics.bootstrap, name, BUSY_SINK, {**config, "refusals": "3"}))
    assert (ids(), done.progress.errors) == (list(range(100)), ErrorCounts())
    assert kafka_topics.committed(f"connect-{name}", (topic, 0)) == [100]


@pytest.mark.parametrize("away", ["put", "flush"])
def test_a_sink_whose_target_is_unreachable_stops_on_command_and_commits_only_durable_records(
    kafka_topics: Kafka, tmp_topic: Callable[..., str], away: str
) -> None:
    """It is being paused or moved to another worker, and has not failed."""
    topic, name = kafka_topics.create_topic(tmp_topic(), 2), tmp_topic("sink")
    kafka_topics.produce_ids(topic, range(10), partition=0)
    kafka_topics.produce_ids(topic, range(10), partition=1)
    durable: list[int] = []

    def say(progress: ProgressReport) -> list[Command]:
        if away == "flush" and progress.commit_scope:
            AwaySink.away = True
        durable[:] = [max(one.committed_offset, 0) for one in progress.partitions]
        return [Stop()] if AwaySink.away else []

    config = {"topics": topic, "errors.retry.delay.max.ms": "10", "away": away}
    link = Link(say)
    outcome = run_here(make_spec(kafka_topics.bootstrap, name, f"{PATH}:AwaySink", config), link)
    assert (outcome.reason, ListSink.calls[-2:]) == (RunEnd.STOPPED, ["flush", "stop"])
    assert sum(kafka_topics.committed(f"connect-{name}", (topic, 0), (topic, 1))) == sum(durable)


def test_offsets_do_not_expire_while_a_batch_is_retried_for_days(
    kafka_topics: Kafka, tmp_topic: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broker expires the offsets of a group without members: here at once. The unreachable target is not called."""
    monkeypatch.setattr(sink_commits, "RECOMMIT_INTERVAL_S", 0.05)
    topic, name = kafka_topics.create_topic(tmp_topic(), 1), tmp_topic("sink")
    group = f"connect-{name}"
    kafka_topics.produce_ids(topic, range(10))
    config = {"topics": topic, "errors.retry.delay.max.ms": "10", "refusals": "0"}
    run_here(make_spec(kafka_topics.bootstrap, name, BUSY_SINK, config))
    kafka_topics.produce_ids(topic, range(5))
    committed: list[int] = []

    def say(_progress: ProgressReport) -> list[Command]:
        tries = ListSink.calls.count("put")
        if tries > 2 and not committed:
            kafka_topics.admin.delete_consumer_groups([group])[group].result()
        if tries > 2:
            committed.extend(kafka_topics.committed(group, (topic, 0)))
        return [Stop()] if tries > 1_000 or 10 in committed else []

    run_here(make_spec(kafka_topics.bootstrap, name, BUSY_SINK, {**config, "refusals": "1000000000"}), Link(say))
    assert committed[-1] == 10, "where the batch begins"
    assert set(ListSink.calls[2:-2]) == {"put"}


def test_a_run_without_records_commits_its_offsets_again(kafka_topics: Kafka, tmp_topic: Callable[..., str]) -> None:
    """The worker wakes an idle sink for this: a broker expires the offsets of a group without members."""
    topic, name = kafka_topics.create_topic(tmp_topic(), 2), tmp_topic("sink")
    kafka_topics.produce_ids(topic, range(10))
    spec = make_spec(kafka_topics.bootstrap, name, LIST_SINK, {"topics": topic})
    first = run_here(spec).progress
    again = run_here(spec).progress
    assert (again.records_in, again.partitions) == (0, first.partitions)
    assert again.commit_time_ms is not None
    assert first.commit_time_ms is not None
    assert again.commit_time_ms > first.commit_time_ms


class Strayed:
    """The client's event for a position that has no record."""

    def __init__(self, topic: str) -> None:
        self._topic = topic

    def error(self) -> KafkaError:
        return KafkaError(KafkaError._AUTO_OFFSET_RESET, "the offset is out of range")

    def topic(self) -> str:
        return self._topic

    def partition(self) -> int:
        return 0

    def offset(self) -> int | None:
        return None


def test_a_position_set_back_and_returned_to_its_old_value_is_flushed_at_the_end(
    kafka_topics: Kafka, tmp_topic: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A topic recreated during a run that reads as many records again as it had committed, and ends right then."""
    topic, name = kafka_topics.create_topic(tmp_topic(), 1), tmp_topic("sink")
    kafka_topics.produce_ids(topic, range(10))
    take = BatchConsumer.take
    strayed: list[Any] = [Strayed(topic)]

    def shorter(*_: object) -> dict[tuple[str, int], PartitionRange]:
        return {(topic, 0): PartitionRange(10, 0, 5)}

    def events_too(intake: BatchConsumer, records_max: int, wait_s: float) -> Heard:
        records, events = take(intake, records_max, wait_s)
        if not events or not strayed:
            return records, events
        monkeypatch.setattr(partitions, "ranges", shorter)
        return records, [*events, strayed.pop()]

    monkeypatch.setattr(BatchConsumer, "take", events_too)
    config = {"topics": topic, "herdmesh.offsets.missing": "reset"}
    outcome = run_here(make_spec(kafka_topics.bootstrap, name, LIST_SINK, config))
    assert not strayed, "it was set back"
    assert ids() == sorted([*range(10), *range(10)])
    assert (outcome.reason, outcome.progress.records_in) == (RunEnd.QUIET, 20)
    assert ListSink.calls[-2:] == ["flush", "stop"]
    assert ListSink.calls.count("flush") == 3, "at the beginning, before it was set back, and at the end"
