"""Warm runs (running with nothing to do), against a real broker: their commits before that, and their end."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from herdmesh.engine import EndWarmRun, ProgressReport, RunEnd, RunSpec, TaskKind
from herdmesh.engine.runtime.contract import Command, Stop
from herdmesh.engine.sink import partitions, sink_assignment
from libs.core.tests.engine.harness import WAIT_S, Kafka, Link, make_spec, run_here
from libs.core.tests.engine.sinks import PATH, CountingSource, ListSink

pytestmark = pytest.mark.kafka
LINGER_MS = 100


class PatientSource(CountingSource):
    """Does not name the time of its next poll."""

    def wake_after_ms(self) -> int:
        return 0


@pytest.fixture(scope="module")
def kafka_topics(kafka_bootstrap: str) -> Kafka:
    return Kafka(kafka_bootstrap)


def test_a_warm_sink_has_committed_everything_and_continues_until_the_warm_run_is_ended(
    kafka_topics: Kafka, tmp_topic: Callable[..., str]
) -> None:
    topic, name = kafka_topics.create_topic(tmp_topic(), 1), tmp_topic("sink")
    kafka_topics.produce_ids(topic, range(5))
    committed: dict[int, int] = {}

    def say(progress: ProgressReport) -> list[Command]:
        if not progress.warm:
            return []
        read = progress.records_in
        if read not in committed:
            (committed[read],) = kafka_topics.committed(f"connect-{name}", (topic, 0))
            if read != 6:  # two records written one after the other may arrive so
                kafka_topics.produce_ids(topic, range(read, read + 2))
        return [EndWarmRun()] if read == 7 else []

    spec = make_spec(
        kafka_topics.bootstrap, name, f"{PATH}:ListSink", {"topics": topic}, linger_ms=LINGER_MS, stays_warm=True
    )
    outcome = run_here(spec, Link(say))
    assert outcome.reason is RunEnd.QUIET
    assert committed.pop(6, 6) == 6
    assert committed == {5: 5, 7: 7}, "what it has read when it says that it is warm"
    # Records that came with the command are read before the run ends, or left to the next run: never lost.
    read = outcome.progress.records_in
    assert sorted(value["id"] for value in ListSink.values) == list(range(read))
    assert kafka_topics.committed(f"connect-{name}", (topic, 0)) == [read]


def test_a_stopped_warm_sink_does_not_commit_a_second_time(kafka_topics: Kafka, tmp_topic: Callable[..., str]) -> None:
    topic, name = kafka_topics.create_topic(tmp_topic(), 1), tmp_topic("sink")
    kafka_topics.produce_ids(topic, range(5))
    spec = make_spec(
        kafka_topics.bootstrap, name, f"{PATH}:ListSink", {"topics": topic}, linger_ms=LINGER_MS, stays_warm=True
    )
    link = Link(lambda progress: [Stop("told to")] if progress.warm else [])
    outcome = run_here(spec, link)
    assert outcome.reason is RunEnd.STOPPED
    assert kafka_topics.committed(f"connect-{name}", (topic, 0)) == [5]
    warm = next(one for one in link.reports if one.warm)
    assert outcome.progress.commit_time_ms == warm.commit_time_ms


def test_a_warm_sink_reads_records_of_a_new_partition(
    kafka_topics: Kafka, tmp_topic: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As soon as an idle task would, not when its metadata expires."""
    monkeypatch.setattr(sink_assignment, "WARM_REFRESH_INTERVAL_S", 0.1)
    topic, name = kafka_topics.create_topic(tmp_topic(), 1), tmp_topic("sink")
    begun_s = time.monotonic()

    def say(progress: ProgressReport) -> list[Command]:
        if progress.warm and kafka_topics.partition_count(topic) == 1:
            kafka_topics.grow(topic, 2)
            kafka_topics.produce_ids(topic, range(3), partition=1)
        is_over = progress.records_in == 3 or time.monotonic() - begun_s > WAIT_S / 3
        return [EndWarmRun()] if progress.warm and is_over else []

    spec = make_spec(
        kafka_topics.bootstrap, name, f"{PATH}:ListSink", {"topics": topic}, linger_ms=LINGER_MS, stays_warm=True
    )
    outcome = run_here(spec, Link(say))
    assert (outcome.reason, outcome.progress.records_in) == (RunEnd.QUIET, 3)
    assert kafka_topics.committed(f"connect-{name}", (topic, 1)) == [3]


def test_a_warm_sink_stays_while_its_brokers_are_unreachable(
    kafka_topics: Kafka, tmp_topic: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sink_assignment, "WARM_REFRESH_INTERVAL_S", 0.1)
    topic, name = kafka_topics.create_topic(tmp_topic(), 1), tmp_topic("sink")
    owned, asked = partitions.owned_partitions, list[float]()

    def away(*given: Any) -> partitions.Owned:
        asked.append(time.monotonic())
        if 1 < len(asked) < 4:
            raise KafkaException(KafkaError(KafkaError._TRANSPORT))
        return owned(*given)

    monkeypatch.setattr(partitions, "owned_partitions", away)
    spec = make_spec(
        kafka_topics.bootstrap, name, f"{PATH}:ListSink", {"topics": topic}, linger_ms=LINGER_MS, stays_warm=True
    )
    outcome = run_here(spec, Link(lambda progress: [EndWarmRun()] if progress.warm and len(asked) > 4 else []))
    assert outcome.reason is RunEnd.QUIET
    assert min(after - before for before, after in itertools.pairwise(asked[1:])) >= 0.1


@pytest.mark.parametrize(("task", "warm"), [("PatientSource", True), ("CountingSource", False)])
def test_a_source_stays_warm_unless_it_names_its_next_poll(
    kafka_topics: Kafka, tmp_topic: Callable[..., str], task: str, warm: bool
) -> None:
    topic, name = tmp_topic(), tmp_topic("source")

    def say(progress: ProgressReport) -> list[Command]:
        return [EndWarmRun()] if progress.warm else []

    config = {"topic": topic, "until": "10", "topic.creation.default.partitions": "1"}
    config["topic.creation.default.replication.factor"] = "1"
    module = __name__ if task == "PatientSource" else PATH
    spec: RunSpec = make_spec(
        kafka_topics.bootstrap, name, f"{module}:{task}", config,
        kind=TaskKind.SOURCE, offset_storage_topic=f"{name}-offsets", linger_ms=LINGER_MS, stays_warm=True,
    )  # fmt: skip
    link = Link(say)
    outcome = run_here(spec, link)
    assert (outcome.reason, outcome.progress.records_in) == (RunEnd.QUIET, 10)
    said = [one for one in link.reports if one.warm]
    assert bool(said) is warm
    assert all(one.produced == ((topic, 10),) for one in said), "committed before it says that it is warm"
