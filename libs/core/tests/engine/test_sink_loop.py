"""The sink loop against a real broker: where it begins, what it commits, how it ends."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition

from herdmesh.connect.errors import RecordError
from herdmesh.engine import Progress, RunEnd, Stop, clients, failure
from herdmesh.engine.contract import Command, ErrorClass, Share
from herdmesh.engine.errors import ForeignMembers, OffsetsLost, TaskFailed, TaskFenced
from herdmesh.engine.fence import Fence
from libs.core.tests.engine.harness import WAIT_S, Kafka, Link, make_spec, run_here
from libs.core.tests.engine.sinks import PATH, ListSink

pytestmark = pytest.mark.kafka
LIST_SINK = f"{PATH}:ListSink"


@pytest.fixture(scope="module")
def kafka_topics(kafka_bootstrap: str) -> Kafka:
    return Kafka(kafka_bootstrap)


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
    assert outcome.progress.has_committed
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


def test_markers_of_transactions_leave_no_lag(kafka_topics: Kafka, tmp_topic: Callable[..., str]) -> None:
    topic, name = kafka_topics.create_topic(tmp_topic(), 1), tmp_topic("sink")
    kafka_topics.produce_ids(topic, range(5), transactional_id=tmp_topic("id"))
    outcome = run_here(make_spec(kafka_topics.bootstrap, name, LIST_SINK, {"topics": topic}))
    assert ids() == list(range(5))
    assert [p.committed_offset for p in outcome.progress.partitions] == [6]
    assert kafka_topics.committed(f"connect-{name}", (topic, 0)) == [6]


def test_a_lost_group_under_a_task_that_has_committed_fails_with_the_numbers(
    kafka_topics: Kafka, tmp_topic: Callable[..., str]
) -> None:
    topic, name = kafka_topics.create_topic(tmp_topic(), 1), tmp_topic("sink")
    kafka_topics.produce_ids(topic, range(5))
    config = {"topics": topic}
    with pytest.raises(OffsetsLost, match=r"no committed offset any more \(records 0 to 5\)"):
        run_here(make_spec(kafka_topics.bootstrap, name, LIST_SINK, config, has_committed=True))
    assert ListSink.calls == ["start", "stop"]
    anew = {**config, "herdmesh.offsets.missing": "reset"}
    run_here(make_spec(kafka_topics.bootstrap, name, LIST_SINK, anew, has_committed=True))
    assert ids() == list(range(5))


def test_a_group_somebody_else_consumes_with_is_refused_by_name(
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


def test_new_partitions_are_found_while_the_run_lasts(kafka_topics: Kafka, tmp_topic: Callable[..., str]) -> None:
    stem, name = tmp_topic(), tmp_topic("sink")
    first, second = kafka_topics.create_topic(f"{stem}-a", 1), f"{stem}-b"
    kafka_topics.produce_ids(first, range(5))
    made: list[str] = []

    def say(progress: Progress) -> list[Command]:
        if progress.records_in == 5 and not made:
            made.append(kafka_topics.create_topic(second, 1))
            kafka_topics.produce_ids(second, range(5, 9))
        return [Stop()] if progress.records_in == 9 else []

    config = {"topics.regex": f"{stem}-.*", "consumer.override.metadata.max.age.ms": "200"}
    spec = make_spec(kafka_topics.bootstrap, name, LIST_SINK, config, linger_ms=int(WAIT_S * 1_000))
    assert run_here(spec, Link(say)).reason is RunEnd.STOPPED
    assert ids() == list(range(9))
    assert kafka_topics.committed(f"connect-{name}", (first, 0), (second, 0)) == [5, 4]


def test_a_record_that_cannot_be_read_fails_with_its_place_and_keeps_what_came_before(
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
    """Calls `then` at the first progress, before the run goes on."""

    def __init__(self, then: Callable[[Progress], None]) -> None:
        super().__init__()
        self._then = then

    def progress(self, progress: Progress) -> None:
        super().progress(progress)
        if len(self.reports) == 1:
            self._then(progress)


def test_the_first_word_comes_of_a_task_that_started_and_took_over(
    kafka_topics: Kafka, tmp_topic: Callable[..., str]
) -> None:
    """RUNNING follows from it. Where the run begins is read and committed after it."""
    topic, name = kafka_topics.create_topic(tmp_topic(), 1), tmp_topic("sink")
    spec = make_spec(kafka_topics.bootstrap, name, LIST_SINK, {"topics": topic})
    older = Fence(clients.producer(spec, {}), spec.transactional_id)
    older.take_over()
    group = Consumer({"bootstrap.servers": kafka_topics.bootstrap, "group.id": f"connect-{name}"})

    def look(progress: Progress) -> None:
        assert ListSink.calls == ["start"]
        assert not progress.has_committed
        with pytest.raises(TaskFenced):
            older.commit_offsets([TopicPartition(topic, 0, 1)], group.consumer_group_metadata())

    link = AtFirstWord(look)
    outcome = run_here(spec, link)
    group.close()
    assert len(link.reports) > 1
    assert outcome.progress.has_committed
    assert kafka_topics.committed(f"connect-{name}", (topic, 0)) == [0]


def test_where_a_run_begins_is_committed_with_its_first_records(
    kafka_topics: Kafka, tmp_topic: Callable[..., str]
) -> None:
    """But before them where it begins at the end: whoever comes after a death would begin at another one."""
    topic, early, late = kafka_topics.create_topic(tmp_topic(), 1), tmp_topic("sink"), tmp_topic("sink")
    kafka_topics.produce_ids(topic, range(3))
    link = Link()
    run_here(make_spec(kafka_topics.bootstrap, early, LIST_SINK, {"topics": topic}), link)
    first = next(one for one in link.reports if one.has_committed)
    assert [one.committed_offset for one in first.partitions] == [first.records_in]
    assert first.records_in > 0
    link = Link()
    at_end = {"topics": topic, "consumer.override.auto.offset.reset": "latest"}
    run_here(make_spec(kafka_topics.bootstrap, late, LIST_SINK, at_end), link)
    first = next(one for one in link.reports if one.has_committed)
    assert (first.records_in, [one.committed_offset for one in first.partitions]) == (0, [3])


def test_a_run_yields_its_slot(kafka_topics: Kafka, tmp_topic: Callable[..., str]) -> None:
    topic, name = kafka_topics.create_topic(tmp_topic(), 1), tmp_topic("sink")
    spec = make_spec(kafka_topics.bootstrap, name, LIST_SINK, {"topics": topic}, continuous=True)
    assert run_here(spec, Link(lambda _progress: [Share(0)])).reason is RunEnd.YIELDED


def test_a_topic_that_does_not_exist_is_waited_for(kafka_topics: Kafka, tmp_topic: Callable[..., str]) -> None:
    outcome = run_here(make_spec(kafka_topics.bootstrap, tmp_topic("sink"), LIST_SINK, {"topics": tmp_topic("none")}))
    assert (outcome.reason, outcome.progress.partitions) == (RunEnd.QUIET, ())


@pytest.mark.parametrize("path", ["no.such.module:Task", f"{PATH}:Nothing", f"{PATH}:CountingSource"])
def test_a_task_class_that_is_none_is_named(kafka_topics: Kafka, path: str) -> None:
    with pytest.raises(TaskFailed, match=path.partition(":")[2]) as failed:
        run_here(make_spec(kafka_topics.bootstrap, "c", path, {"topics": "t"}))
    assert failed.value.error_class is ErrorClass.BAD_CONFIG


def test_an_unusable_client_setting_is_named(kafka_topics: Kafka) -> None:
    config = {"topics": "t", "consumer.override.fetch.min.bytes": "many"}
    with pytest.raises(Exception, match=r"fetch\.min\.bytes") as failed:
        run_here(make_spec(kafka_topics.bootstrap, "c", LIST_SINK, config))
    assert failure.error_class(failed.value) is ErrorClass.BAD_CONFIG
