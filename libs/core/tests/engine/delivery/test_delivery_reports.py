"""Notifications that a source task gets for its committed records, against a real broker
(docs/reference/connect/data-model.md, section 3).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, ClassVar

import pytest

from herdmesh.connect.error_class import ErrorClass
from herdmesh.connect.spi.connector import Config, SourceBatch, SourceTask, SourceTaskContext
from herdmesh.connect.spi.source_transactions import RecordMetadata
from herdmesh.engine import RunSpec, TaskFailed, TaskKind
from libs.core.tests.engine.harness import Kafka, make_spec, processes, run_here
from libs.core.tests.engine.sinks import CountingSource

pytestmark = pytest.mark.kafka
PARTITIONS = 3
INTERVAL = {"transaction.boundary": "interval", "transaction.boundary.interval.ms": "60000"}
FILTER = {
    "transforms": "drop",
    "transforms.drop.type": "org.apache.kafka.connect.transforms.Filter",
    "transforms.drop.predicate": "empty",
    "predicates": "empty",
    "predicates.empty.type": "org.apache.kafka.connect.transforms.predicates.RecordIsTombstone",
}


class HearingSource(CountingSource):
    """Remembers its notifications, and may raise in one."""

    heard: ClassVar[list[Any]] = []
    """Pairs of a value and its position; "commit" where that was called."""
    fails: ClassVar[bool] = False

    def start(self, config: Config, context: SourceTaskContext) -> None:
        super().start(config, context)
        HearingSource.heard = []
        self._every = int(str(config.get("empty") or 0))
        self._asks = context.transactions

    def poll(self) -> SourceBatch | None:
        batch = super().poll()
        if batch is not None and self._every:
            batch.values = [None if one["n"] % self._every == 0 else one for one in batch.values]
        if batch is not None and self._asks is not None:
            self._asks.abort_transaction_after(3, {"next": self._next - 6})
            self._asks.commit_transaction()
        return batch

    def commit_batch(self, batch: SourceBatch, metadata: Sequence[RecordMetadata | None]) -> None:
        HearingSource.heard += zip(batch.values, metadata, strict=True)
        if HearingSource.fails:
            raise ValueError("in commit_batch")

    def commit(self) -> None:
        HearingSource.heard.append("commit")
        if HearingSource.fails:
            raise ValueError("in commit")


@pytest.fixture(scope="module")
def kafka_topics(kafka_bootstrap: str) -> Kafka:
    return Kafka(kafka_bootstrap)


def hearing(kafka: Kafka, name: str, topic: str, until: int, **config: str) -> RunSpec:
    full = {
        "topic": topic,
        "until": str(until),
        "topic.creation.default.partitions": str(PARTITIONS),
        "topic.creation.default.replication.factor": "1",
        **config,
    }
    return make_spec(
        kafka.bootstrap, name, f"{__name__}:HearingSource", full,
        kind=TaskKind.SOURCE, offset_storage_topic=f"{name}-offsets",
    )  # fmt: skip


def test_a_task_is_notified_of_each_record_position_and_of_none_for_filtered_records(
    kafka_topics: Kafka, tmp_topic: Callable[..., str]
) -> None:
    topic, name = tmp_topic(), tmp_topic("source")
    run_here(hearing(kafka_topics, name, topic, 45, empty="7", **FILTER, **INTERVAL))
    heard, last = HearingSource.heard[:-1], HearingSource.heard[-1]
    assert last == "commit", "once all of its records are told"
    assert "commit" not in heard, "one transaction"
    assert [None if value is None else value["n"] for value, _ in heard] == [
        None if number % 7 == 0 else number for number in range(45)
    ], "each once and in order"
    assert all((value is None) == (place is None) for value, place in heard)
    there = {
        (message.topic(), message.partition(), message.offset(), message.timestamp()[1]): json.loads(
            message.value() or b""
        )
        for message in kafka_topics.messages(topic, PARTITIONS)
    }
    told = {
        (place.topic, place.partition, place.offset, place.timestamp_ms): value
        for value, place in heard
        if place is not None
    }
    assert told == there


def test_records_of_an_aborted_transaction_are_reported_without_a_position(
    kafka_topics: Kafka, tmp_topic: Callable[..., str]
) -> None:
    topic, name = tmp_topic(), tmp_topic("source")
    run_here(hearing(kafka_topics, name, topic, 20, **{"transaction.boundary": "connector"}))
    batches = HearingSource.heard[:11], HearingSource.heard[11:]
    for first, batch in enumerate(batches):
        assert [value["n"] for value, _ in batch[:-1]] == list(range(first * 10, first * 10 + 10))
        assert [place is None for _, place in batch[:-1]] == [True] * 4 + [False] * 6
        assert batch[-1] == "commit"
    assert len(kafka_topics.records(topic, PARTITIONS)) == 12


def test_an_error_in_a_commit_notification_changes_nothing(
    kafka_topics: Kafka,
    tmp_topic: Callable[..., str],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(HearingSource, "fails", True)
    topic, name = tmp_topic(), tmp_topic("source")
    spec = hearing(kafka_topics, name, topic, 20, **INTERVAL)
    assert run_here(spec).progress.records_in == 20
    assert run_here(spec).progress.records_in == 0
    assert [one.getMessage() for one in caplog.records if one.levelname == "ERROR"] == [
        *["the task failed in commit_batch; its records are committed all the same"] * 2,
        "the task failed in commit; its offsets are committed all the same",
    ]


def test_a_record_the_topic_refuses_is_named_also_with_delivery_reports(
    kafka_topics: Kafka, tmp_topic: Callable[..., str]
) -> None:
    topic, name = tmp_topic(), tmp_topic("source")
    kafka_topics.create_topic(topic, PARTITIONS, **{"max.message.bytes": "50"})
    with pytest.raises(TaskFailed, match=f"refused a record for topic {topic}") as failed:
        run_here(hearing(kafka_topics, name, topic, 10))
    assert failed.value.error_class is ErrorClass.FATAL
    assert HearingSource.heard == []


def test_a_fenced_owner_gets_no_notification_and_reports_fenced(
    kafka_topics: Kafka, tmp_topic: Callable[..., str], tmp_path: Path
) -> None:
    topic, name = tmp_topic(), tmp_topic("source")
    spec = hearing(kafka_topics, name, topic, 30, **INTERVAL)
    with processes(tmp_path) as start:
        process = start(spec, "after-write")
        process.until_frozen()
        run_here(spec)
        assert [value["n"] for value, _ in HearingSource.heard[:-1]] == list(range(30))
        assert process.resume().get("error_class") == "FENCED"
    assert len(kafka_topics.records(topic, PARTITIONS)) == 30


def test_only_a_task_that_overrides_the_method_has_its_records_reported() -> None:
    assert HearingSource().wants_metadata()
    assert not CountingSource().wants_metadata()
    assert not _Plain().wants_metadata()


class _Plain(SourceTask):
    def start(self, config: Config, context: SourceTaskContext) -> None:
        return

    def poll(self) -> SourceBatch | None:
        return None


def test_a_task_may_not_write_records_to_its_offsets_topic(kafka_topics: Kafka, tmp_topic: Callable[..., str]) -> None:
    """The run would wait for its own transaction (KIP-618); a topic that holds none of its offsets is allowed."""
    name, own = tmp_topic("source"), tmp_topic("own-offsets")
    with pytest.raises(TaskFailed, match="Source tasks may not produce to their own offsets topics") as refused:
        run_here(hearing(kafka_topics, name, f"{name}-offsets", 10))
    assert refused.value.error_class is ErrorClass.BAD_CONFIG
    with pytest.raises(TaskFailed, match=f"{own} has the offsets of {name}"):
        run_here(hearing(kafka_topics, name, own, 10, **{"offsets.storage.topic": own}))
