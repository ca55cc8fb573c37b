"""The source loop against a real broker: records and offsets in one transaction, Connect's bytes, one owner at a
time.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import ClassVar

import pytest
from confluent_kafka import KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from herdmesh.connect.error_class import ErrorClass
from herdmesh.connect.errors import ConfigError, RetriableError
from herdmesh.connect.model.data import Batch
from herdmesh.connect.spi.connector import Config, SourceBatch, SourceTask, SourceTaskContext
from herdmesh.connect.topics.commit_scope import CommitScope
from herdmesh.engine import ProgressReport, RunEnd, RunSpec, Share, Stop, TaskFailed, TaskKind
from herdmesh.engine.delivery.delivery_reports import DeliveryFailures
from herdmesh.engine.delivery.producing import Refused
from herdmesh.engine.runtime.contract import Command
from herdmesh.engine.source.source_transaction import SourceTransaction
from herdmesh.engine.source.unstable_offsets import OpenTransactionScan
from herdmesh.topicstore.partitioner import partition_of
from libs.core.tests.engine.harness import WAIT_S, Kafka, Link, make_spec, processes, run_here
from libs.core.tests.engine.sinks import PATH

pytestmark = pytest.mark.kafka
PARTITIONS = 3


@pytest.fixture(scope="module")
def kafka_topics(kafka_bootstrap: str) -> Kafka:
    return Kafka(kafka_bootstrap)


def counting(
    kafka: Kafka, name: str, topic: str, until: int, settings: Mapping[str, str] | None = None, **more: object
) -> RunSpec:
    config = {
        "topic": topic,
        "until": str(until),
        "topic.creation.default.partitions": str(PARTITIONS),
        "topic.creation.default.replication.factor": "1",
        **(settings or {}),
    }
    return make_spec(
        kafka.bootstrap, name, f"{PATH}:CountingSource", config,
        kind=TaskKind.SOURCE, offset_storage_topic=f"{name}-offsets", **more,
    )  # fmt: skip


def numbers(kafka: Kafka, topic: str) -> list[int]:
    return sorted(json.loads(value or b"")["n"] for _, value in kafka.records(topic, PARTITIONS))


def test_a_source_sends_each_record_once_and_continues_at_its_offset(
    kafka_topics: Kafka, tmp_topic: Callable[..., str]
) -> None:
    topic, name = tmp_topic(), tmp_topic("source")
    outcome = run_here(counting(kafka_topics, name, topic, 25))
    assert (outcome.reason, outcome.wake_after_ms) == (RunEnd.QUIET, 77)
    assert (outcome.progress.records_in, outcome.progress.commit_scope) == (25, CommitScope("", (f"{name}-offsets",)))
    assert outcome.progress.produced == ((topic, 25),)
    again = run_here(counting(kafka_topics, name, topic, 40)).progress
    assert (again.records_in, again.produced) == (15, ((topic, 15),))
    assert numbers(kafka_topics, topic) == list(range(40))


def test_offsets_are_written_as_connect_writes_them(kafka_topics: Kafka, tmp_topic: Callable[..., str]) -> None:
    topic, name = tmp_topic(), tmp_topic("source")
    run_here(counting(kafka_topics, name, topic, 25))
    stored = kafka_topics.messages(f"{name}-offsets", 2)
    key = json.dumps([name, {"counter": "a"}], separators=(",", ":")).encode()
    assert (stored[-1].key(), stored[-1].value()) == (key, b'{"next":25}')
    assert stored[-1].partition() == partition_of(key, 2)
    for message in kafka_topics.messages(topic, PARTITIONS):
        assert message.partition() == partition_of(message.key() or b"", PARTITIONS)


def test_offsets_are_stored_in_the_workers_file_once_the_records_are_committed(
    kafka_topics: Kafka, tmp_topic: Callable[..., str]
) -> None:
    """Standalone mode: records whose offset is not stored are sent again, and no offset goes to the offsets topic."""
    topic, name = tmp_topic(), tmp_topic("source")
    key = json.dumps([name, {"counter": "a"}], separators=(",", ":")).encode()
    refusing = Refusing()
    with pytest.raises(TaskFailed, match="disk full"):
        run_here(counting(kafka_topics, name, topic, 10, source_offsets={}), refusing)
    assert refusing.seen == {key: b'{"next":10}'}
    assert numbers(kafka_topics, topic) == list(range(10)), "committed before they were to be stored"
    link = Link()
    outcome = run_here(counting(kafka_topics, name, topic, 25, source_offsets={}), link)
    assert (outcome.progress.commit_scope, link.stored) == (CommitScope("", ()), {key: b'{"next":25}'})
    assert numbers(kafka_topics, topic) == sorted([*range(10), *range(25)]), "at least once"
    run_here(counting(kafka_topics, name, topic, 40, source_offsets={key: b'{"next":25}'}), link)
    assert numbers(kafka_topics, topic) == sorted([*range(10), *range(40)])
    assert f"{name}-offsets" not in AdminClient({"bootstrap.servers": kafka_topics.bootstrap}).list_topics().topics


@dataclass
class Refusing(Link):
    """A worker whose disk is full."""

    seen: dict[bytes, bytes | None] = field(default_factory=lambda: dict[bytes, bytes | None]())

    def wake_with(self, wake: Callable[[], None]) -> None:
        """Not needed: these commands are there when the loop looks."""

    def store_offsets(self, offsets: Mapping[bytes, bytes | None]) -> None:
        self.seen |= offsets
        raise TaskFailed("disk full", ErrorClass.RETRIABLE)


def test_a_snapshot_task_without_an_offset_keeps_its_slot_until_it_is_done(
    kafka_topics: Kafka, tmp_topic: Callable[..., str]
) -> None:
    """Then its run ends for waiting tasks, and its next run starts at the time it named."""
    topic, name = tmp_topic(), tmp_topic("source")

    def share(_: ProgressReport) -> list[Command]:
        return [Share(run_ms=0)]

    spec = counting(kafka_topics, name, topic, 45, linger_ms=60_000)
    outcome = run_here(replace(spec, task_class=f"{PATH}:SnapshotSource"), Link(share))
    assert (outcome.reason, outcome.wake_after_ms) == (RunEnd.QUIET, 77)
    assert numbers(kafka_topics, topic) == list(range(45))


def test_a_stopped_source_commits_the_records_it_sent(kafka_topics: Kafka, tmp_topic: Callable[..., str]) -> None:
    topic, name = tmp_topic(), tmp_topic("source")

    def say(progress: ProgressReport) -> list[Command]:
        return [Stop()] if progress.records_in else []

    spec = counting(kafka_topics, name, topic, 10, linger_ms=int(WAIT_S * 1_000))
    assert run_here(spec, Link(say)).reason is RunEnd.STOPPED
    assert numbers(kafka_topics, topic) == list(range(10))


def test_a_record_the_topic_refuses_fails_the_task_as_fatal(kafka_topics: Kafka, tmp_topic: Callable[..., str]) -> None:
    topic, name = tmp_topic(), tmp_topic("source")
    kafka_topics.create_topic(topic, 1, **{"max.message.bytes": "50"})
    with pytest.raises(TaskFailed, match=f"refused a record for topic {topic}") as failed:
        run_here(counting(kafka_topics, name, topic, 10))
    assert failed.value.error_class is ErrorClass.FATAL
    assert re.search(
        r"Message size too large: the record has \d+ bytes of key and value; "
        rf"raise max\.message\.bytes of topic {topic}, or,"
        r" .* lower producer\.override\.batch\.size",
        str(failed.value),
    ), str(failed.value)
    assert kafka_topics.records(topic, 1) == []


def test_killed_and_stale_owners_leave_each_record_visible_once(
    kafka_topics: Kafka, tmp_topic: Callable[..., str], tmp_path: Path
) -> None:
    """For each failpoint: freeze an owner there, let a second one do the work, then kill or wake the first."""
    points = ["before-write", "after-write", "after-offset-commit"]
    cases = [(point, harm, tmp_topic(), tmp_topic("source")) for point in points for harm in ("kill", "wake")]
    with processes(tmp_path) as start:
        frozen = [start(counting(kafka_topics, name, topic, 30), point) for point, _, topic, name in cases]
        for process, (_, harm, topic, name) in zip(frozen, cases, strict=True):
            process.until_frozen()
            if harm == "kill":
                process.kill()
            run_here(counting(kafka_topics, name, topic, 50))
        for process, (point, harm, _, _) in zip(frozen, cases, strict=True):
            if harm == "wake":
                ended = process.resume()
                # An owner that had sent everything before it froze ends normally; all others learn it at their next
                # write.
                assert ended.get("error_class", point) in ("FENCED", "after-offset-commit"), ended
        for _, _, topic, _ in cases:
            assert numbers(kafka_topics, topic) == list(range(50))


def test_a_connector_may_keep_its_offsets_in_a_topic_of_its_own(
    kafka_topics: Kafka, tmp_topic: Callable[..., str]
) -> None:
    """Offsets committed before the topic existed count until it holds newer ones; the worker's topic gets a copy."""
    topic, name, own = tmp_topic(), tmp_topic("source"), tmp_topic("own-offsets")
    run_here(counting(kafka_topics, name, topic, 25))
    with_own = counting(kafka_topics, name, topic, 40)
    with_own = replace(with_own, connector_config={**with_own.connector_config, "offsets.storage.topic": own})
    assert run_here(with_own).progress.records_in == 15
    assert kafka_topics.topic_config(own, "cleanup.policy") == "compact"
    last = [kafka_topics.messages(where, 2)[-1] for where in (own, f"{name}-offsets")]
    assert [message.value() for message in last] == [b'{"next":40}'] * 2
    assert last[0].key() == last[1].key()
    key = last[0].key() or b""
    producer = Producer({"bootstrap.servers": kafka_topics.bootstrap})
    producer.produce(own, b'{"next":30}', key, partition_of(key, 2))
    assert producer.flush(30) == 0
    assert run_here(with_own).progress.records_in == 10, "the own topic counts"
    assert run_here(counting(kafka_topics, name, topic, 45)).progress.records_in == 5, "and leaves no gap when it goes"


def test_an_offsets_topic_that_is_not_compacted_is_refused(kafka_topics: Kafka, tmp_topic: Callable[..., str]) -> None:
    name, own = tmp_topic("source"), kafka_topics.create_topic(tmp_topic())
    spec = counting(kafka_topics, name, tmp_topic(), 5)
    with pytest.raises(ConfigError, match=r"cleanup\.policy=delete") as refused:
        run_here(replace(spec, connector_config={**spec.connector_config, "offsets.storage.topic": own}))
    assert refused.value.field == "offsets.storage.topic"


def _forget(kafka: Kafka, topic: str, before: int) -> None:
    gone = TopicPartition(topic, 0, before)
    assert kafka.admin.delete_records([gone])[gone].result(WAIT_S).low_watermark == before


def test_offsets_are_read_from_the_first_offset_of_the_topic(
    kafka_topics: Kafka, tmp_topic: Callable[..., str]
) -> None:
    """It is no longer 0, as in a topic with a retention time; and other partitions are empty."""
    topic, name = tmp_topic(), tmp_topic("source")
    offsets = kafka_topics.create_topic(f"{name}-offsets", 1)
    kafka_topics.produce(offsets, [b"others'"] * 5)
    run_here(counting(kafka_topics, name, topic, 25))
    _forget(kafka_topics, offsets, 5)
    kafka_topics.grow(offsets, 2)
    assert run_here(counting(kafka_topics, name, topic, 40)).progress.records_in == 15


def test_offsets_deleted_during_the_read_fail_the_run_as_retriable(
    kafka_topics: Kafka, tmp_topic: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    topic, name = tmp_topic(), tmp_topic("source")
    offsets = kafka_topics.create_topic(f"{name}-offsets", 1)
    kafka_topics.produce(offsets, [b"others'"] * 5)
    bounds = OpenTransactionScan.bounds

    def then_gone(beyond: OpenTransactionScan, partitions: Iterable[int]) -> tuple[dict[int, int], dict[int, int]]:
        found = bounds(beyond, partitions)
        _forget(kafka_topics, offsets, 5)
        return found

    monkeypatch.setattr(OpenTransactionScan, "bounds", then_gone)
    with pytest.raises(TaskFailed, match=f"{offsets} lost records while it was read") as refused:
        run_here(counting(kafka_topics, name, topic, 25))
    assert refused.value.error_class is ErrorClass.RETRIABLE


class Scripted(SourceTask):
    """Returns the given batches, and then nothing."""

    script: ClassVar[list[SourceBatch | RetriableError]] = []

    def start(self, config: Config, context: SourceTaskContext) -> None:
        self._left = iter(self.script)

    def poll(self) -> SourceBatch | None:
        given = next(self._left, None)
        if isinstance(given, RetriableError):
            raise given
        return given


def scripted(
    kafka: Kafka, name: str, monkeypatch: pytest.MonkeyPatch, *script: SourceBatch | RetriableError
) -> RunSpec:
    monkeypatch.setattr(Scripted, "script", script)
    return make_spec(
        kafka.bootstrap, name, f"{__name__}:Scripted", {}, kind=TaskKind.SOURCE, offset_storage_topic=f"{name}-offsets"
    )


@pytest.mark.parametrize("second", [[], [b"x"]], ids=["an offset", "a record"])
def test_errors_after_a_refused_record_do_not_hide_the_refusal(
    kafka_topics: Kafka, tmp_topic: Callable[..., str], monkeypatch: pytest.MonkeyPatch, second: list[bytes]
) -> None:
    """The client accepts nothing into the broken transaction, and reports for later records only that its state is
    wrong.
    """
    topic, other, name = tmp_topic(), kafka_topics.create_topic(tmp_topic()), tmp_topic("source")
    kafka_topics.create_topic(topic, 1, **{"max.message.bytes": "50"})
    first = SourceBatch(topic, [b"x" * 100], {"p": 0}, {"next": 1})
    spec = scripted(kafka_topics, name, monkeypatch, first, SourceBatch(other, second, {"p": 0}, {"next": 2}))
    held = {"transaction.boundary": "interval", "transaction.boundary.interval.ms": "60000"}  # until both are in it
    spec = replace(spec, connector_config={**spec.connector_config, **held})
    refusals: list[object] = []
    produce, add = SourceTransaction.produce, DeliveryFailures.add

    def produce_and_hear(transaction: SourceTransaction, raw: Batch) -> Refused:
        if raw.topic == topic:
            refused = produce(transaction, raw)
            while not refusals:
                transaction._outlet.producer.poll(0.1)  # pyright: ignore[reportPrivateUsage]
            return refused
        return produce(transaction, raw)

    def note(failures: DeliveryFailures, error: KafkaError, message: Message) -> None:
        refusals.append(error)
        add(failures, error, message)

    monkeypatch.setattr(SourceTransaction, "produce", produce_and_hear)
    monkeypatch.setattr(DeliveryFailures, "add", note)
    with pytest.raises(TaskFailed, match=f"refused a record for topic {topic}") as failed:
        run_here(spec)
    assert failed.value.error_class is ErrorClass.FATAL
    assert kafka_topics.records(topic, 1) == kafka_topics.records(other, 1) == []


def test_a_source_moves_its_offset_without_a_record(
    kafka_topics: Kafka, tmp_topic: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each partition's offset before the run may go idle, in one transaction; an unchanged offset is not written."""
    name = tmp_topic("source")
    moves = [SourceBatch("none", [], {"p": number}, {"next": 5}) for number in (0, 1, 0)]
    outcome = run_here(scripted(kafka_topics, name, monkeypatch, *moves))
    assert (outcome.reason, outcome.progress.records_in, outcome.progress.produced) == (RunEnd.QUIET, 0, ())
    stored = sorted(kafka_topics.records(f"{name}-offsets", 2))
    assert stored == [(f'["{name}",{{"p":{number}}}]'.encode(), b'{"next":5}') for number in (0, 1)]
    again = run_here(scripted(kafka_topics, name, monkeypatch, *moves))
    assert again.progress.commit_time_ms is None, "nothing has moved since"
    assert sorted(kafka_topics.records(f"{name}-offsets", 2)) == stored


def test_a_source_deletes_an_offset_with_null_and_an_offset_without_a_partition_is_kept(
    kafka_topics: Kafka, tmp_topic: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last offset of each partition is written, null as a tombstone; an offset already deleted is not deleted
    again.
    """
    name = tmp_topic("source")
    first = SourceBatch("none", [], {"p": 0}, {"next": 5})
    moves = [SourceBatch("none", [], None, {"next": 1}), SourceBatch("none", [], {"p": 0}, None)]
    run_here(scripted(kafka_topics, name, monkeypatch, first))
    run_here(scripted(kafka_topics, name, monkeypatch, *moves))
    key, none = f'["{name}",{{"p":0}}]'.encode(), f'["{name}",null]'.encode()
    stored = kafka_topics.records(f"{name}-offsets", 2)
    assert [value for found, value in stored if found == key] == [b'{"next":5}', None]
    assert [value for found, value in stored if found == none] == [b'{"next":1}']
    again = [run_here(scripted(kafka_topics, name, monkeypatch, one)).progress for one in moves]
    assert [progress.commit_time_ms for progress in again] == [None, None], "they are as they were"


def test_offsets_lost_with_their_topic_are_logged(
    kafka_topics: Kafka,
    tmp_topic: Callable[..., str],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """As with Connect the source begins from the start; no log for a first start, nor for another topic."""
    name = tmp_topic("source")
    spec = scripted(kafka_topics, name, monkeypatch)
    run_here(replace(spec, commit_scope=CommitScope.of("", ["another"])))
    assert "was deleted" not in caplog.text
    kafka_topics.admin.delete_topics([f"{name}-offsets"])[f"{name}-offsets"].result()
    run_here(replace(spec, commit_scope=CommitScope.of("", [f"{name}-offsets"])))
    assert f"offsets topic {name}-offsets was deleted, and {name} had committed offsets to it" in caplog.text


class Disowning(Scripted):
    """Refuses its first commit."""

    asked: ClassVar[int] = 0

    def may_commit(self) -> bool:
        Disowning.asked += 1
        return Disowning.asked > 1


def test_a_commit_the_task_refuses_is_aborted_and_the_next_run_begins_at_the_last_commit(
    kafka_topics: Kafka, tmp_topic: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    topic, name = kafka_topics.create_topic(tmp_topic(), 1), tmp_topic("source")
    spec = scripted(kafka_topics, name, monkeypatch, SourceBatch(topic, [b"x"], {"p": 0}, {"next": 1}))
    spec = replace(spec, task_class=f"{__name__}:Disowning")
    monkeypatch.setattr(Disowning, "asked", 0)
    assert run_here(spec).reason is RunEnd.YIELDED, "it is to be run again at once"
    assert kafka_topics.records(topic, 1) == kafka_topics.records(f"{name}-offsets", 2) == []
    assert run_here(spec).reason is RunEnd.QUIET
    assert len(kafka_topics.records(topic, 1)) == len(kafka_topics.records(f"{name}-offsets", 2)) == 1


class Idle(SourceTask):
    """Has no records, and counts its commit notifications."""

    commits: ClassVar[int] = 0

    def start(self, config: Config, context: SourceTaskContext) -> None:
        Idle.commits = 0

    def poll(self) -> SourceBatch | None:
        return None

    def commit(self) -> None:
        Idle.commits += 1


def test_a_source_with_nothing_to_commit_is_notified_at_each_flush_interval(
    kafka_topics: Kafka, tmp_topic: Callable[..., str]
) -> None:
    name = tmp_topic("source")
    worker = {"offset.storage.partitions": "2", "offset.flush.interval.ms": "150"}
    spec = make_spec(
        kafka_topics.bootstrap, name, f"{__name__}:Idle", {}, kind=TaskKind.SOURCE, linger_ms=1_000,
        offset_storage_topic=f"{name}-offsets", worker_config=worker,
    )  # fmt: skip
    begun_s = time.monotonic()
    heard = Link(lambda _progress: [Stop()] if Idle.commits >= 3 else [])
    waits = replace(spec, linger_ms=int(WAIT_S * 1_000))
    assert run_here(waits, heard).progress.commit_time_ms is None
    assert 3 <= Idle.commits <= 2 + (time.monotonic() - begun_s) / 0.15
    assert kafka_topics.messages(f"{name}-offsets", 2) == []
    run_here(replace(spec, worker_config={"offset.storage.partitions": "2"}))
    assert Idle.commits == 0, "a minute by default"


def test_a_source_that_cannot_poll_logs_it_once(
    kafka_topics: Kafka,
    tmp_topic: Callable[..., str],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    away, sends = RetriableError("away"), SourceBatch("none", [], {"p": 0}, {"next": 5})
    run_here(scripted(kafka_topics, tmp_topic("source"), monkeypatch, away, away, away, sends, away))
    assert [one.getMessage() for one in caplog.records if "cannot poll" in one.getMessage()] == [
        "the task cannot poll now; retrying: away"
    ] * 2
