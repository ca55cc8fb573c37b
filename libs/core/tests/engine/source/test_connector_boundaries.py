"""`transaction.boundary=connector` against a real broker: records become visible, and offsets move, only as the task
requests (KIP-618; docs/reference/connect/offsets-topic.md, section 7; docs/reference/connect/data-model.md, section 3).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest

from herdmesh.connect.error_class import ErrorClass
from herdmesh.connect.errors import RecordError
from herdmesh.connect.model.data import Batch
from herdmesh.connect.spi.connector import Config, SourceBatch, SourceTask, SourceTaskContext
from herdmesh.engine import ProgressReport, RunEnd, RunSpec, Share, Stop, TaskFailed, TaskFenced, TaskKind
from herdmesh.engine.delivery.delivery_reports import DeliveryFailures
from herdmesh.engine.delivery.source_delivery import SourceDelivery
from herdmesh.engine.fencing.fence import Fence
from herdmesh.engine.librdkafka import clients
from herdmesh.engine.runtime.contract import Command
from herdmesh.engine.runtime.settings import source_settings
from herdmesh.engine.source import source_transaction
from herdmesh.engine.source.source_transaction import SourceTransaction
from libs.core.tests.engine.harness import Kafka, Link, make_spec, processes, run_here

pytestmark = pytest.mark.kafka
PARTITION = {"counter": "a"}
SIZE = 10
"""Records of a batch."""


class AskingSource(SourceTask):
    """Counts from the committed number to `until`, and makes the requests in the config's `asks` after records:
    `{"3": "commit"}`, and `commit-all` for the last record of a batch. Every tenth has no value.
    """

    commits: ClassVar[list[int]] = []
    """The number to continue with, at each `commit`."""

    def start(self, config: Config, context: SourceTaskContext) -> None:
        AskingSource.commits = []
        assert context.transactions is not None
        self._transactions = context.transactions
        self._topic = str(config["topic"])
        self._until = int(str(config["until"]))
        self._asks: dict[str, str] = json.loads(config["asks"] or "{}")
        self._poison = config.get("poison")
        committed = context.committed_offset(PARTITION)
        self._next = 0 if committed is None else int(committed["next"])

    def poll(self) -> SourceBatch | None:
        first, end = self._next, min(self._next - self._next % SIZE + SIZE, self._until)
        if first == end:
            return None
        self._next = end
        for number in range(first, end):
            for asked in self._asks.get(str(number), "").split():
                self._ask(asked, number - first, number + 1, is_last=number == end - 1)
        values: list[Any] = [self._value(number) for number in range(first, end)]
        return SourceBatch(self._topic, values, PARTITION, {"next": end})

    def _value(self, number: int) -> Any:
        return None if number % SIZE == 7 else {"n": object() if str(number) == self._poison else number}

    def _ask(self, asked: str, at: int, after: int, *, is_last: bool) -> None:
        asks = self._transactions
        if asked == "commit-all":
            assert is_last
            asks.commit_transaction()
        elif asked == "abort-all":
            assert is_last
            asks.abort_transaction()
        elif asked == "commit":
            asks.commit_transaction_after(at, {"next": after})
        else:
            asks.abort_transaction_after(at, {"next": after})

    def commit(self) -> None:
        AskingSource.commits.append(self._next)

    def wake_after_ms(self) -> int:
        return 77


@pytest.fixture(scope="module")
def kafka_topics(kafka_bootstrap: str) -> Kafka:
    return Kafka(kafka_bootstrap)


def asking(
    kafka: Kafka,
    name: str,
    topic: str,
    until: int,
    asks: Mapping[int, str],
    *,
    config: Mapping[str, str] | None = None,
    **more: Any,
) -> RunSpec:
    full = {
        "topic": topic,
        "until": str(until),
        "asks": json.dumps(asks),
        "transaction.boundary": "Connector",
        "topic.creation.default.partitions": "1",
        "topic.creation.default.replication.factor": "1",
        **(config or {}),
    }
    return make_spec(
        kafka.bootstrap, name, f"{__name__}:AskingSource", full,
        kind=TaskKind.SOURCE, offset_storage_topic=f"{name}-offsets", **more,
    )  # fmt: skip


def until_polled(count: int) -> Link:
    """A worker that stops the run once it has polled `count` records."""
    return Link(lambda progress: [Stop()] if progress.records_in >= count else [])


def numbers(kafka: Kafka, topic: str) -> list[int | None]:
    """Numbers that a reader of committed records sees, None for a record without a value."""
    return [None if value is None else json.loads(value)["n"] for _, value in kafka.records(topic, 1)]


def counted(*parts: range) -> list[int | None]:
    return [None if number % SIZE == 7 else number for part in parts for number in part]


def moved(kafka: Kafka, name: str) -> list[int]:
    """The committed offsets, in order."""
    return [json.loads(value or b"")["next"] for _, value in kafka.records(f"{name}-offsets", 2)]


def test_only_records_the_task_commits_are_visible_and_the_others_are_polled_again(
    kafka_topics: Kafka, tmp_topic: Callable[..., str]
) -> None:
    """Within a batch, over several, at the end of one; and a stop, like a kill, leaves the rest to the next run."""
    topic, name = tmp_topic(), tmp_topic("source")
    spec = asking(kafka_topics, name, topic, 50, {3: "commit", 5: "commit", 21: "commit", 29: "commit-all"})
    outcome = run_here(spec, until_polled(50))
    assert outcome.reason is RunEnd.STOPPED
    assert numbers(kafka_topics, topic) == counted(range(30))
    assert moved(kafka_topics, name) == [4, 6, 22, 30]
    assert AskingSource.commits == [30], "all that was polled is committed then, and only then"
    assert outcome.progress.produced == ((topic, 30),)
    again = run_here(asking(kafka_topics, name, topic, 60, {59: "commit-all"}))
    assert (again.reason, again.progress.records_in) == (RunEnd.QUIET, 30), "quiet once its transaction has ended"
    assert numbers(kafka_topics, topic) == counted(range(60))


def test_records_the_task_aborts_are_never_visible_and_not_polled_again(
    kafka_topics: Kafka, tmp_topic: Callable[..., str]
) -> None:
    topic, name = tmp_topic(), tmp_topic("source")
    asks = {4: "commit", 15: "abort", 19: "commit-all", 29: "abort abort-all", 39: "commit-all"}
    outcome = run_here(asking(kafka_topics, name, topic, 40, asks))
    assert (outcome.reason, outcome.progress.records_in) == (RunEnd.QUIET, 40)
    assert numbers(kafka_topics, topic) == counted(range(5), range(16, 20), range(30, 40))
    assert moved(kafka_topics, name) == [5, 16, 20, 30, 40], "the offsets of what is given up are committed"
    assert outcome.progress.produced == ((topic, 19),)
    assert AskingSource.commits == [20, 30, 40]
    assert run_here(asking(kafka_topics, name, topic, 40, {})).progress.records_in == 0


def test_a_filtered_record_still_ends_a_transaction(kafka_topics: Kafka, tmp_topic: Callable[..., str]) -> None:
    topic, name = tmp_topic(), tmp_topic("source")
    drops = {
        "transforms": "drop",
        "transforms.drop.type": "org.apache.kafka.connect.transforms.Filter",
        "transforms.drop.predicate": "empty",
        "predicates": "empty",
        "predicates.empty.type": "org.apache.kafka.connect.transforms.predicates.RecordIsTombstone",
    }
    run_here(asking(kafka_topics, name, topic, 10, {7: "commit"}, config=drops), until_polled(10))
    assert numbers(kafka_topics, topic) == [0, 1, 2, 3, 4, 5, 6]
    assert moved(kafka_topics, name) == [8]


def test_a_contradiction_ends_the_run_and_commits_nothing(kafka_topics: Kafka, tmp_topic: Callable[..., str]) -> None:
    topic, name = tmp_topic(), tmp_topic("source")
    with pytest.raises(TaskFailed, match="both commit and abort of same record against topic/partition") as ended:
        run_here(asking(kafka_topics, name, topic, 20, {13: "commit abort"}))
    assert ended.value.error_class is ErrorClass.FATAL
    assert numbers(kafka_topics, topic) == []
    assert moved(kafka_topics, name) == []


def test_a_run_with_an_open_transaction_neither_goes_idle_nor_yields_its_slot(
    kafka_topics: Kafka, tmp_topic: Callable[..., str]
) -> None:
    """It would have to send all of it again, without end; Kafka's transaction timeout ends it."""
    topic, name = tmp_topic(), tmp_topic("source")

    def say(progress: ProgressReport) -> list[Command]:
        return [Share(run_ms=0)] if progress.records_in else []

    yielded = run_here(asking(kafka_topics, name, topic, 100, {29: "commit-all"}), Link(say))
    assert (yielded.reason, numbers(kafka_topics, topic)) == (RunEnd.YIELDED, counted(range(30)))
    late = {"producer.override.transaction.timeout.ms": "1000"}
    with pytest.raises(TaskFailed, match=r"has not ended the transaction it began 1000 ms ago") as ended:
        run_here(asking(kafka_topics, name, topic, 35, {}, config=late))
    assert ended.value.error_class is ErrorClass.RETRIABLE
    assert numbers(kafka_topics, topic) == counted(range(30))


@pytest.mark.parametrize(("age_s", "says"), [(59, False), (60, True)])
def test_a_transaction_that_kafka_may_have_timed_out_is_reported_so(
    kafka_topics: Kafka, tmp_topic: Callable[..., str], monkeypatch: pytest.MonkeyPatch, age_s: int, says: bool
) -> None:
    """Kafka reports both cases with the same error."""
    topic, name, now_s = kafka_topics.create_topic(tmp_topic(), 1), tmp_topic("source"), [1_000.0]
    monkeypatch.setattr(source_transaction, "time", SimpleNamespace(monotonic=lambda: now_s[0]))
    spec = make_spec(kafka_topics.bootstrap, name, "x:Y", {}, kind=TaskKind.SOURCE)
    fence = Fence(clients.producer(spec, {}), spec.transactional_id)
    fence.take_over()
    open_one = SourceTransaction(spec, source_settings(spec), Link(), SourceDelivery(fence), DeliveryFailures(), None)
    open_one.begin()
    assert open_one.produce(Batch(topic, 0, [], [b"sent in time"])) == []
    assert fence.producer.flush(10.0) == 0
    now_s[0] += age_s
    next_owner = Fence(clients.producer(spec, {}), spec.transactional_id)
    next_owner.take_over()
    with pytest.raises(TaskFenced, match="another owner has taken over") as ended:
        open_one.commit()
    assert ("took longer than transaction.timeout.ms (60000)" in str(ended.value)) is says
    fence.close()
    next_owner.close()


def test_a_record_failure_aborts_its_transaction_and_still_writes_its_dead_letter(
    kafka_topics: Kafka, tmp_topic: Callable[..., str]
) -> None:
    topic, name = tmp_topic(), tmp_topic("source")
    letters = {
        "errors.deadletterqueue.topic.name": f"{name}-dlq",
        "errors.deadletterqueue.topic.replication.factor": "1",
        "poison": "25",
    }
    with pytest.raises(RecordError, match="VALUE_CONVERTER"):
        run_here(asking(kafka_topics, name, topic, 40, {12: "commit"}, config=letters))
    assert numbers(kafka_topics, topic) == counted(range(13))
    assert moved(kafka_topics, name) == [13]
    assert len(kafka_topics.records(f"{name}-dlq", 1)) == 1


def test_a_record_kafka_refuses_is_discarded_with_its_aborted_transaction(
    kafka_topics: Kafka, tmp_topic: Callable[..., str]
) -> None:
    topic, name = tmp_topic(), tmp_topic("source")
    kafka_topics.create_topic(topic, 1, **{"max.message.bytes": "100"})
    outcome = run_here(asking(kafka_topics, name, topic, 10, {9: "abort-all"}))
    assert (outcome.reason, moved(kafka_topics, name)) == (RunEnd.QUIET, [10])
    with pytest.raises(TaskFailed, match=f"refused a record for topic {topic}"):
        run_here(asking(kafka_topics, name, topic, 20, {19: "commit-all"}))
    assert (moved(kafka_topics, name), numbers(kafka_topics, topic)) == ([10], [])


def test_in_standalone_mode_offsets_are_stored_when_the_task_commits(
    kafka_topics: Kafka, tmp_topic: Callable[..., str]
) -> None:
    topic, name = tmp_topic(), tmp_topic("source")
    link = until_polled(30)
    run_here(asking(kafka_topics, name, topic, 30, {4: "abort", 19: "commit-all"}, source_offsets={}), link)
    assert link.stored == {f'["{name}",{{"counter":"a"}}]'.encode(): b'{"next":20}'}
    assert numbers(kafka_topics, topic) == counted(range(5, 20))


def test_killed_and_stale_owners_leave_each_transaction_whole_and_visible_once(
    kafka_topics: Kafka, tmp_topic: Callable[..., str], tmp_path: Path
) -> None:
    """Freeze an owner within a transaction, let a second one do the work, then kill or wake the first."""
    asks = {4: "commit", 13: "abort", 27: "commit", 29: "commit-all"}
    cases = [
        (point, harm, tmp_topic(), tmp_topic("source"))
        for point, harm in (("after-write", "kill"), ("after-offset-commit", "kill"), ("after-write", "wake"))
    ]
    with processes(tmp_path) as start:
        frozen = [start(asking(kafka_topics, name, topic, 30, asks), point) for point, _, topic, name in cases]
        for process, (_, harm, topic, name) in zip(frozen, cases, strict=True):
            process.until_frozen()
            if harm == "kill":
                process.kill()
            run_here(asking(kafka_topics, name, topic, 30, asks))
        for process, (_, harm, _, _) in zip(frozen, cases, strict=True):
            if harm == "wake":
                assert process.resume().get("error_class") == "FENCED"
        for _, _, topic, _ in cases:
            assert numbers(kafka_topics, topic) == counted(range(5), range(14, 30))
