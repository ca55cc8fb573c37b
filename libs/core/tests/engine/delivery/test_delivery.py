"""Delivery of a run: batch sizes, rate limits, regular expressions, and topics that are created, grow or are
deleted.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any, ClassVar

import pytest

from herdmesh.connect.spi.connector import Config, PartitionId, SinkBatch, SinkTask, SourceBatch, TaskContext
from herdmesh.engine import Command, ProgressReport, RunEnd, RunOutcome, Stop, TaskKind
from herdmesh.engine.runtime.limits import CREDIT_S, SLICE_S
from libs.core.tests.engine.harness import WAIT_S, Kafka, Link, make_spec, run_here
from libs.core.tests.engine.sinks import PATH, CountingSource, ListSink
from tests.support.sizes import SOAKING, soak_or

pytestmark = [pytest.mark.kafka, pytest.mark.timed]

LIST_SINK = f"{PATH}:ListSink"


@pytest.fixture(scope="module")
def kafka_topics(kafka_bootstrap: str) -> Kafka:
    return Kafka(kafka_bootstrap)


def ids() -> list[int]:
    return sorted(value["id"] for value in ListSink.values)


class TimedSink(SinkTask):
    """Remembers the time and count of each put, and the positions of the records, over all tasks of a test."""

    taken: ClassVar[list[tuple[float, int]]] = []
    places: ClassVar[Counter[tuple[str, int, int]]] = Counter()
    opened: ClassVar[dict[int, list[tuple[float, Sequence[PartitionId]]]]] = {}
    starts: ClassVar[list[int]] = []

    @classmethod
    def forget(cls) -> None:
        for remembered in (cls.taken, cls.places, cls.opened, cls.starts):
            remembered.clear()

    def start(self, config: Config, context: TaskContext) -> None:
        self._task = context.task
        TimedSink.starts.append(context.task)

    def open(self, partitions: Sequence[PartitionId]) -> None:
        TimedSink.opened.setdefault(self._task, []).append((time.monotonic(), list(partitions)))

    def put(self, batch: SinkBatch) -> None:
        TimedSink.taken.append((time.monotonic(), len(batch)))
        TimedSink.places.update((batch.original_topic, batch.partition, offset) for offset in batch.offsets)

    def flush(self) -> None:
        return


TIMED_SINK = f"{__name__}:TimedSink"


class TimedSource(CountingSource):
    """Remembers the time and count of each poll."""

    taken: ClassVar[list[tuple[float, int]]] = []

    def poll(self) -> SourceBatch | None:
        batch = super().poll()
        if batch is not None:
            TimedSource.taken.append((time.monotonic(), len(batch.values)))
        return batch


def assert_kept(taken: Sequence[tuple[float, int]], per_second: float, wanted: int) -> None:
    """Check that the first `wanted` records came at that rate. However busy the machine is, they must not come faster:
    the number is at most what the rate allows since the first, a slice at either end, and the credit for lost time. In
    `make test` they may take three times as long and a second, under `make soak` a twentieth longer or shorter.
    """
    first_s, count, took_s = taken[0][0], 0, 0.0
    for at_s, more in taken:
        count, took_s = count + more, at_s - first_s
        assert count <= per_second * (took_s + 2 * SLICE_S + CREDIT_S), f"{count} in {took_s:.2f} s"
        if count >= wanted:
            break
    length_s = wanted / per_second
    print(f"{count} in {took_s:.2f} s at {per_second:g} a second")
    assert count >= wanted
    if SOAKING and length_s >= 10:
        assert count - taken[0][1] == pytest.approx(per_second * took_s, rel=0.05)  # from the first slice on
    assert took_s <= 3 * length_s + 1


def test_a_batch_has_at_most_max_poll_records(kafka_topics: Kafka, tmp_topic: Callable[..., str]) -> None:
    topic, name = kafka_topics.create_topic(tmp_topic(), 1), tmp_topic("sink")
    kafka_topics.produce_ids(topic, range(100))
    config = {"topics": topic, "consumer.override.max.poll.records": "7"}
    run_here(make_spec(kafka_topics.bootstrap, name, LIST_SINK, config))
    assert ids() == list(range(100))
    assert max(map(len, ListSink.batches)) <= 7


def test_fetch_max_bytes_bounds_a_batch(kafka_topics: Kafka, tmp_topic: Callable[..., str]) -> None:
    topic, name = kafka_topics.create_topic(tmp_topic(), 1), tmp_topic("sink")
    value = b'{"id":1,"name":"%s"}' % (b"x" * 100_000)
    kafka_topics.produce(topic, [value] * 120)
    config = {"topics": topic, "consumer.override.fetch.max.bytes": "1000000"}
    run_here(make_spec(kafka_topics.bootstrap, name, LIST_SINK, config))
    assert len(ListSink.values) == 120
    assert max(map(len, ListSink.batches)) * 100_000 <= 3_000_000, "12 MB came in pieces of two fetches at most"


@pytest.mark.parametrize(
    ("limit", "value", "per_second"),
    [
        ({"herdmesh.rate.records.per.second": "400"}, b'{"id":1}', 400.0),
        ({"herdmesh.rate.bytes.per.second": "20000"}, b'{"id":1,"name":"%s"}' % (b"x" * 80), 200.0),
    ],
)
def test_a_sink_keeps_to_its_rate_limit(
    kafka_topics: Kafka,
    tmp_topic: Callable[..., str],
    limit: dict[str, str],
    value: bytes,
    per_second: float,
) -> None:
    """200 records a second of 100 bytes: a key of up to 4 and a value of 98 weigh about 101."""
    topic, name = kafka_topics.create_topic(tmp_topic(), 1), tmp_topic("sink")
    length_s = soak_or(1, 10)
    wanted, produced = int(per_second * length_s), int(per_second * (length_s + 10))
    kafka_topics.produce(topic, [value] * produced)
    TimedSink.forget()
    ended_at: list[int] = []

    def say(progress: ProgressReport) -> list[Command]:
        taken = sum(count for _, count in TimedSink.taken)
        use = progress.records_rate or progress.bytes_rate
        is_held_back = use is not None and use.wants_more  # a stalled machine may make it not want more
        if taken < produced and not (taken >= wanted and is_held_back):
            return []
        ended_at.append(taken)
        return [Stop()]

    link = Link(say)
    spec = make_spec(kafka_topics.bootstrap, name, TIMED_SINK, {"topics": topic, **limit}, linger_ms=60_000)
    assert run_here(spec, link).reason is RunEnd.STOPPED
    weight = (len(value) + 3) / 100 if "bytes" in next(iter(limit)) else 1.0
    assert_kept(TimedSink.taken, per_second / weight, wanted)
    assert ended_at[0] < produced, "it says that it is held back"


def test_a_source_keeps_to_its_rate_limit(kafka_topics: Kafka, tmp_topic: Callable[..., str]) -> None:
    topic, name = kafka_topics.create_topic(tmp_topic(), 1), tmp_topic("source")
    config = {"topic": topic, "until": "100000", "herdmesh.rate.records.per.second": "100"}
    TimedSource.taken.clear()

    def say(_: ProgressReport) -> list[Command]:
        return [Stop()] if sum(count for _, count in TimedSource.taken) >= 110 else []

    spec = make_spec(
        kafka_topics.bootstrap, name, f"{__name__}:TimedSource", config, kind=TaskKind.SOURCE, linger_ms=60_000
    )
    run_here(spec, Link(say))
    assert_kept(TimedSource.taken, 100, 110)  # ten at once, every tenth of a second


def test_a_source_transaction_ends_at_its_byte_limit(kafka_topics: Kafka, tmp_topic: Callable[..., str]) -> None:
    topic, name = kafka_topics.create_topic(tmp_topic(), 1), tmp_topic("source")
    config = {
        "topic": topic,
        "until": "1000",
        "herdmesh.transaction.max.bytes": "500",
        "transaction.boundary": "interval",
        "transaction.boundary.interval.ms": "60000",
    }
    link = Link()
    run_here(make_spec(kafka_topics.bootstrap, name, f"{PATH}:CountingSource", config, kind=TaskKind.SOURCE), link)
    commits = {progress.commit_time_ms for progress in link.reports if progress.commit_time_ms is not None}
    sizes = [dict(progress.produced).get(topic, 0) for progress in link.reports]
    steps = [later - earlier for earlier, later in pairwise(sizes) if later > earlier]
    assert len(commits) > 5
    assert max(steps) <= 60, "ten records of some twelve bytes a batch, so 500 bytes are five batches"


def test_topics_regex_is_a_java_regex(kafka_topics: Kafka, tmp_topic: Callable[..., str]) -> None:
    stem, name = tmp_topic(), tmp_topic("sink")
    wanted = kafka_topics.create_topic(f"{stem}-abc", 1)
    other = kafka_topics.create_topic(f"{stem}-a1", 1)
    kafka_topics.produce_ids(wanted, range(3))
    kafka_topics.produce_ids(other, range(3, 6))
    config = {
        "topics.regex": f"\\Q{stem}\\E-[a-z&&[^x]]++"
    }  # quoting, intersection, possessive: Python has none of them
    run_here(make_spec(kafka_topics.bootstrap, name, LIST_SINK, config))
    assert ids() == [0, 1, 2]


def test_deleted_topics_are_released_and_read_from_the_start_when_recreated(
    kafka_topics: Kafka, tmp_topic: Callable[..., str]
) -> None:
    stem, name = tmp_topic(), tmp_topic("sink")
    kept, deleted = (kafka_topics.create_topic(f"{stem}-{which}", 1) for which in ("kept", "deleted"))
    kafka_topics.produce_ids(kept, range(5))
    kafka_topics.produce_ids(deleted, range(5, 10))
    steps: list[str] = []

    def say(progress: ProgressReport) -> list[Command]:
        owned = {one.topic for one in progress.partitions}
        if not steps and progress.records_in == 10:
            kafka_topics.admin.delete_topics([deleted])[deleted].result()
            steps.append("deleted")
        elif steps == ["deleted"] and owned == {kept}:
            kafka_topics.produce_ids(kept, range(10, 13))
            steps.append("let go")
        elif steps == ["deleted", "let go"] and progress.records_in == 13:
            kafka_topics.create_topic(deleted, 1)
            kafka_topics.produce_ids(deleted, range(13, 15))
            steps.append("made again")
        return [Stop()] if progress.records_in == 15 else []

    config = {"topics.regex": f"{stem}-.*", "consumer.override.metadata.max.age.ms": "200"}
    spec = make_spec(
        kafka_topics.bootstrap,
        name,
        LIST_SINK,
        config,
        linger_ms=int(WAIT_S * 1_000),
        worker_config={"offset.flush.interval.ms": "100"},
    )
    assert run_here(spec, Link(say)).reason is RunEnd.STOPPED
    assert steps == ["deleted", "let go", "made again"]
    assert ids() == list(range(15))


def _run_tasks(specs: Sequence[Any], links: Sequence[Link]) -> list[RunOutcome | Exception]:
    """Run tasks side by side, each in a thread of its own."""
    ended: list[RunOutcome | Exception] = []

    def one(spec: Any, link: Link) -> None:
        try:
            ended.append(run_here(spec, link))
        except Exception as error:  # noqa: BLE001 - returned to the test
            ended.append(error)

    threads = [threading.Thread(target=one, args=pair) for pair in zip(specs, links, strict=True)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WAIT_S)
    return ended


def test_a_growing_topic_ends_no_run_of_three_tasks(kafka_topics: Kafka, tmp_topic: Callable[..., str]) -> None:
    """New partitions are owned within metadata.max.age.ms, no record is lost or duplicated."""
    topic, name, max_age_s = kafka_topics.create_topic(tmp_topic(), 3), tmp_topic("sink"), 1.0
    per_partition = soak_or(200, 20_000)
    TimedSink.forget()
    stop, grown_s = threading.Event(), list[float]()

    def grow() -> None:
        for number in range(3):
            kafka_topics.produce_ids(topic, range(per_partition), partition=number)
        wait_until(lambda: sum(TimedSink.places.values()) >= per_partition)  # while the tasks are reading
        kafka_topics.grow(topic, 7)
        grown_s.append(time.monotonic())
        for number in range(7):
            kafka_topics.produce_ids(topic, range(per_partition), partition=number)
        wait_until(lambda: sum(TimedSink.places.values()) >= 10 * per_partition)
        stop.set()

    config = {"topics": topic, "consumer.override.metadata.max.age.ms": str(int(max_age_s * 1_000))}
    specs = [
        make_spec(
            kafka_topics.bootstrap, name, TIMED_SINK, config, task=number, task_count=3, linger_ms=int(WAIT_S * 1_000)
        )
        for number in range(3)
    ]
    links = [Link(lambda _: [Stop()] if stop.is_set() else []) for _ in specs]
    grower = threading.Thread(target=grow)
    grower.start()
    ended = _run_tasks(specs, links)
    grower.join(WAIT_S)
    assert [one.reason for one in ended if isinstance(one, RunOutcome)] == [RunEnd.STOPPED] * 3, ended
    assert sorted(TimedSink.starts) == [0, 1, 2], "no run ended"
    late = [(at_s, parts) for opened in TimedSink.opened.values() for at_s, parts in opened[1:]]
    assert sorted(part for _, parts in late for part in parts) == [(topic, number) for number in range(3, 7)]
    # Three times the promise: the test must catch a run that checks only when it ends, or at librdkafka's five minutes.
    assert max(at_s for at_s, _ in late) - grown_s[0] <= 3 * max_age_s
    assert sorted({topic for topic, _, _ in TimedSink.places}) == [topic]
    assert set(TimedSink.places.values()) == {1}, "none doubled"
    counts = Counter(number for _, number, _ in TimedSink.places)
    assert counts == {number: per_partition * (2 if number < 3 else 1) for number in range(7)}, "none lost"
    assert kafka_topics.committed(f"connect-{name}", *((topic, number) for number in range(7))) == [
        counts[number] for number in range(7)
    ]


def wait_until(true: Callable[[], bool]) -> None:
    deadline_s = time.monotonic() + WAIT_S
    while not true():
        assert time.monotonic() < deadline_s
        time.sleep(0.02)


def test_a_transformation_that_renames_topics_keeps_the_original_position(
    kafka_topics: Kafka, tmp_topic: Callable[..., str]
) -> None:
    """KIP-793: original topic, partition and offsets are those of the record that was read."""
    stem, name = tmp_topic(), tmp_topic("sink")
    topic = kafka_topics.create_topic(f"{stem}-2026", 2)
    for number in range(2):
        kafka_topics.produce_ids(topic, range(10 * number, 10 * number + 4 + number), partition=number)
    config = {
        "topics": topic,
        "transforms": "r,drop",
        "transforms.r.type": "org.apache.kafka.connect.transforms.RegexRouter",
        "transforms.r.regex": "(.*)-2026",
        "transforms.r.replacement": "$1-year",
        "transforms.drop.type": "org.apache.kafka.connect.transforms.Filter",
        "transforms.drop.predicate": "null",
        "predicates": "null",
        "predicates.null.type": "org.apache.kafka.connect.transforms.predicates.RecordIsTombstone",
    }
    kafka_topics.produce(topic, [None], partition=0)
    kafka_topics.produce_ids(topic, [9], partition=0)
    run_here(make_spec(kafka_topics.bootstrap, name, LIST_SINK, config))
    assert {batch.topic for batch in ListSink.batches} == {f"{stem}-year"}
    assert {batch.original_topic for batch in ListSink.batches} == {topic}
    places: Mapping[int, list[int]] = {
        number: [offset for batch in ListSink.batches if batch.partition == number for offset in batch.offsets]
        for number in range(2)
    }
    assert places == {0: [0, 1, 2, 3, 5], 1: [0, 1, 2, 3, 4]}
    assert all(record.topic == f"{stem}-year" for batch in ListSink.batches for record in batch.records())
    assert kafka_topics.committed(f"connect-{name}", (topic, 0), (topic, 1)) == [6, 5]


def test_topics_of_a_source_are_created_by_the_rules_of_their_group(
    kafka_topics: Kafka, tmp_topic: Callable[..., str]
) -> None:
    name = tmp_topic("source")
    for number, (topic, partitions) in enumerate(((f"{name}-wide", 5), (f"{name}-wide-not", 2), (f"{name}-plain", 2))):
        config = {
            "topic": topic,
            "until": "5",
            "topic.creation.groups": "wide",
            "topic.creation.default.partitions": "2",
            "topic.creation.default.replication.factor": "1",
            "topic.creation.wide.include": f"{name}-w.*,other",
            "topic.creation.wide.exclude": ".*-not",
            "topic.creation.wide.partitions": "5",
            "topic.creation.wide.retention.ms": "1234567",
        }
        spec = make_spec(
            kafka_topics.bootstrap, f"{name}-{number}", f"{PATH}:CountingSource", config, kind=TaskKind.SOURCE
        )
        run_here(spec)
        assert kafka_topics.partition_count(topic) == partitions
        retention = kafka_topics.topic_config(topic, "retention.ms")
        assert (retention == "1234567") is (partitions == 5)
