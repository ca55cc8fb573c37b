"""Measures of real records by runs: every record once, whichever report it was in, and also for a run that fails."""

from __future__ import annotations

import gc
from collections.abc import Callable, Generator, Iterable
from functools import reduce
from operator import add

import pytest

from herdmesh.connect.spi.connector import SinkBatch, SourceBatch
from herdmesh.engine import TaskKind
from herdmesh.engine.runtime import meter
from herdmesh.engine.runtime.contract import ProgressReport
from herdmesh.engine.runtime.measures import NOTHING, Measures
from libs.core.tests.engine.harness import Kafka, Link, make_spec, run_here
from libs.core.tests.engine.sinks import PATH, CountingSource, ListSink

pytestmark = pytest.mark.kafka


class UnflushableSink(ListSink):
    """Accepts records and fails to make them durable."""

    def flush(self) -> None:
        raise RuntimeError("the disk is full")


class Cycle:
    """An object that only a collection frees."""

    alive = most = 0

    def __init__(self) -> None:
        self.itself = self
        Cycle.alive += 1
        Cycle.most = max(Cycle.most, Cycle.alive)

    def __del__(self) -> None:
        Cycle.alive -= 1


class CyclicSink(ListSink):
    """Creates a reference cycle with each batch."""

    def put(self, batch: SinkBatch) -> None:
        Cycle()


class CyclicSource(CountingSource):
    """Creates a reference cycle with each batch."""

    def poll(self) -> SourceBatch | None:
        Cycle()
        return super().poll()


@pytest.fixture
def no_collector(monkeypatch: pytest.MonkeyPatch) -> Generator[None]:
    """Switch Python's automatic collection off, and make runs report after each batch."""
    monkeypatch.setattr(meter, "REPORT_INTERVAL_S", 0.0)
    monkeypatch.setattr(meter, "IDLE_REPORT_INTERVAL_S", 0.0)
    gc.collect()
    gc.disable()
    Cycle.most = Cycle.alive
    yield
    gc.enable()


@pytest.fixture(scope="module")
def kafka_topics(kafka_bootstrap: str) -> Kafka:
    return Kafka(kafka_bootstrap)


def total(reports: Iterable[ProgressReport]) -> Measures:
    return reduce(add, (report.measures for report in reports), NOTHING)


def test_each_record_of_a_sink_is_measured_once(kafka_topics: Kafka, tmp_topic: Callable[..., str]) -> None:
    topic = kafka_topics.create_topic(tmp_topic(), 2)
    kafka_topics.produce_ids(topic, range(300))
    link = Link()
    outcome = run_here(make_spec(kafka_topics.bootstrap, tmp_topic("c"), f"{PATH}:ListSink", {"topics": topic}), link)
    found = total([*link.reports, outcome.progress])
    assert found.batch_records.total == sum(found.latency_ms.buckets) == 300
    assert found.batch_records.count == found.call_ms.count >= 2, "one put for each partition at least"
    assert found.commit_ms.count >= 1
    assert (found.commit_failures, found.active_records_now, found.transaction_records.count) == (0, 0, 0)
    assert 0 < found.latency_ms.total_ms < 300 * 60_000


def test_each_record_of_a_source_is_measured_once(kafka_topics: Kafka, tmp_topic: Callable[..., str]) -> None:
    link, config = Link(), {"topic": tmp_topic(), "until": "25"}
    spec = make_spec(
        kafka_topics.bootstrap, tmp_topic("c"), f"{PATH}:CountingSource", config,
        kind=TaskKind.SOURCE, offset_storage_topic=tmp_topic("o"),
    )  # fmt: skip
    outcome = run_here(spec, link)
    found = total([*link.reports, outcome.progress])
    assert found.batch_records.total == found.transaction_records.total == sum(found.latency_ms.buckets) == 25
    assert found.call_ms.count == found.batch_records.count
    assert found.commit_ms.count == found.transaction_records.count >= 1
    assert found.active_records.largest == found.transaction_records.largest


def test_a_failed_run_reports_its_counters_up_to_the_failure(
    kafka_topics: Kafka, tmp_topic: Callable[..., str]
) -> None:
    topic = kafka_topics.create_topic(tmp_topic(), 1)
    kafka_topics.produce_ids(topic, [0], partition=0)
    link = Link()
    with pytest.raises(RuntimeError, match="the disk is full"):
        run_here(
            make_spec(kafka_topics.bootstrap, tmp_topic("c"), f"{__name__}:UnflushableSink", {"topics": topic}), link
        )
    assert link.reports[-1].records_in == 1
    found = total(link.reports)
    assert (found.batch_records.total, found.commit_failures, found.active_records_now) == (1, 1, 1)


@pytest.mark.usefixtures("no_collector")
def test_cycles_of_batches_are_collected_with_the_next_report(
    kafka_topics: Kafka, tmp_topic: Callable[..., str]
) -> None:
    topic = kafka_topics.create_topic(tmp_topic(), 1)
    kafka_topics.produce_ids(topic, range(100))
    config = {"topics": topic, "consumer.override.max.poll.records": "5"}
    spec = make_spec(kafka_topics.bootstrap, tmp_topic("c"), f"{__name__}:CyclicSink", config)
    assert run_here(spec).progress.records_in == 100
    assert 1 <= Cycle.most <= 2, "of twenty"
    spec = make_spec(
        kafka_topics.bootstrap, tmp_topic("c"), f"{__name__}:CyclicSource", {"topic": tmp_topic(), "until": "100"},
        kind=TaskKind.SOURCE, offset_storage_topic=tmp_topic("o"),
    )  # fmt: skip
    assert run_here(spec).progress.records_in == 100
    assert Cycle.most <= 2, "of ten or more"
