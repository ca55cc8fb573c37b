"""The sink loop with a ledger in the target (SQLite), against a real broker: its starting offsets, and each record
written once.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

import pytest

from herdmesh.connect.error_class import ErrorClass
from herdmesh.connect.spi.connector import PartitionId, SinkBatch
from herdmesh.engine import ProgressReport, RunEnd, RunSpec, Stop
from herdmesh.engine.fencing.fence import Fence
from herdmesh.engine.librdkafka import clients
from herdmesh.engine.runtime import failure
from herdmesh.engine.runtime.contract import Command
from herdmesh.engine.runtime.errors import LedgerTaken, OffsetsLost, TaskFailed, TaskFenced
from herdmesh.engine.sink.sql_ledger import NOBODY, SqlLedger
from libs.core.tests.engine.harness import WAIT_S, Kafka, Link, make_spec, processes, run_here
from libs.core.tests.engine.sqlite_ledger import PATH, SqliteSink

pytestmark = pytest.mark.kafka
SINK = f"{PATH}:SqliteSink"
DROP_TOMBSTONES = {
    "transforms": "drop",
    "transforms.drop.type": "org.apache.kafka.connect.transforms.Filter",
    "transforms.drop.predicate": "none",
    "predicates": "none",
    "predicates.none.type": "org.apache.kafka.connect.transforms.predicates.RecordIsTombstone",
}


@pytest.fixture(scope="module")
def kafka_topics(kafka_bootstrap: str) -> Kafka:
    return Kafka(kafka_bootstrap)


class Target:
    """The database of one test's sink."""

    def __init__(self, kafka: Kafka, folder: Path, name: str, topics: str, path: str = SINK, **config: str) -> None:
        self.name, self._file = name, folder / "target.db"
        given = {"topics": topics, "file": str(self._file), **config}
        self.spec: RunSpec = make_spec(kafka.bootstrap, name, path, given)

    def ids(self) -> list[int]:
        with sqlite3.connect(self._file) as connection:
            return [row[0] for row in connection.execute("SELECT id FROM ids ORDER BY id")]

    def rows(self) -> dict[tuple[str, int], int]:
        with sqlite3.connect(self._file) as connection:
            text = "SELECT kafka_topic, kafka_partition, next_offset FROM ledger WHERE connector = ?"
            return {(row[0], row[1]): row[2] for row in connection.execute(text, (self.name,))}

    def ledger(self, owner: str) -> SqlLedger:
        """The ledger as another owner sees it; commits by itself."""
        connection = sqlite3.connect(self._file, isolation_level=None)
        return SqlLedger(connection.execute, "ledger", self.name, owner, marker="?")


def test_the_ledger_moves_with_the_records_and_the_group_follows(
    kafka_topics: Kafka, tmp_topic: Callable[..., str], tmp_path: Path
) -> None:
    topic = kafka_topics.create_topic(tmp_topic())
    kafka_topics.produce_ids(topic, range(300))
    target = Target(kafka_topics, tmp_path, tmp_topic("sink"), topic)
    assert run_here(target.spec).reason is RunEnd.QUIET
    assert target.ids() == list(range(300))
    committed = kafka_topics.committed(f"connect-{target.name}", (topic, 0), (topic, 1))
    assert list(target.rows().values()) == committed
    assert sum(committed) == 300
    assert SqliteSink.calls[:2] == ["claim 2", "begin [0, 0]"]
    assert run_here(target.spec).progress.records_in == 0


@pytest.mark.parametrize(("place", "again"), [(4, list(range(4, 10))), (10, []), (7, [7, 8, 9])])
def test_the_ledger_overrides_the_group_offsets(
    kafka_topics: Kafka, tmp_topic: Callable[..., str], tmp_path: Path, place: int, again: list[int]
) -> None:
    """Backwards, as after a restore of the target; the group's offset is 10."""
    topic = kafka_topics.create_topic(tmp_topic(), 1)
    kafka_topics.produce_ids(topic, range(10))
    target = Target(kafka_topics, tmp_path, tmp_topic("sink"), topic)
    run_here(target.spec)
    target.ledger(NOBODY).alter({(topic, 0): place})
    run_here(target.spec)
    assert target.ids() == sorted([*range(10), *again])
    assert target.rows() == {(topic, 0): 10}


def test_a_ledger_without_a_group_is_no_loss_and_an_offset_out_of_range_is(
    kafka_topics: Kafka, tmp_topic: Callable[..., str], tmp_path: Path
) -> None:
    """Forwards: the group, another one, has no offset at all."""
    topic, group = kafka_topics.create_topic(tmp_topic(), 1), tmp_topic("group")
    kafka_topics.produce_ids(topic, range(10))
    name = tmp_topic("sink")
    first = Target(kafka_topics, tmp_path, name, topic)
    run_here(first.spec)
    other = Target(kafka_topics, tmp_path, name, topic, **{"consumer.override.group.id": group})
    assert run_here(other.spec).progress.records_in == 0
    assert kafka_topics.committed(group, (topic, 0)) == [10]

    first.ledger(NOBODY).alter({(topic, 0): 11})
    with pytest.raises(OffsetsLost, match=f"{topic}-0 was committed up to 11, outside of its records 0 to 10"):
        run_here(first.spec)
    anew = Target(kafka_topics, tmp_path, name, topic, **{"herdmesh.offsets.missing": "reset"})
    assert run_here(anew.spec).progress.records_in == 10
    assert anew.rows() == {(topic, 0): 10}


def test_a_run_that_begins_at_the_end_writes_that_offset_to_the_ledger(
    kafka_topics: Kafka, tmp_topic: Callable[..., str], tmp_path: Path
) -> None:
    topic = kafka_topics.create_topic(tmp_topic(), 1)
    kafka_topics.produce_ids(topic, range(3))
    latest = {"consumer.override.auto.offset.reset": "latest"}
    target = Target(kafka_topics, tmp_path, tmp_topic("sink"), topic, **latest)
    run_here(target.spec)
    assert target.rows() == {(topic, 0): 3}


def test_offsets_of_filtered_records_and_of_markers_go_into_the_ledger(
    kafka_topics: Kafka, tmp_topic: Callable[..., str], tmp_path: Path
) -> None:
    """Otherwise the ledger would not move where all records are filtered, until its offset is gone from the topic."""
    topic = kafka_topics.create_topic(tmp_topic(), 1)
    kafka_topics.produce_ids(topic, range(2), transactional_id=tmp_topic("id"))
    kafka_topics.produce(topic, [None, None, None])
    kafka_topics.produce_ids(topic, range(2, 4))
    kafka_topics.produce(topic, [None], transactional_id=tmp_topic("id"))
    target = Target(kafka_topics, tmp_path, tmp_topic("sink"), topic, **DROP_TOMBSTONES)
    outcome = run_here(target.spec)
    assert target.ids() == [0, 1, 2, 3]
    assert target.rows() == {(topic, 0): 10}
    assert [one.committed_offset for one in outcome.progress.partitions] == [10]
    kafka_topics.produce(topic, [None])
    run_here(target.spec)
    assert target.rows() == {(topic, 0): 11}
    assert SqliteSink.calls == ["claim 1", "begin [10]", "advance 1"]


def test_a_commit_whose_confirmation_was_lost_is_not_repeated(
    kafka_topics: Kafka, tmp_topic: Callable[..., str], tmp_path: Path
) -> None:
    topic = kafka_topics.create_topic(tmp_topic(), 1)
    kafka_topics.produce_ids(topic, range(50))
    config = {"errors.retry.delay.max.ms": "10"}
    target = Target(kafka_topics, tmp_path, tmp_topic("sink"), topic, f"{PATH}:UnsureSink", **config)
    assert run_here(target.spec).progress.records_in == 50
    assert target.ids() == list(range(50))


@pytest.mark.parametrize("sink", ["SqliteSink", "WithoutLedger"])
def test_a_death_after_the_targets_commit_costs_duplicates_only_without_a_ledger(
    kafka_topics: Kafka, tmp_topic: Callable[..., str], tmp_path: Path, sink: str
) -> None:
    """With the ledger none; without its offsets the records come twice."""
    topic = kafka_topics.create_topic(tmp_topic(), 1)
    kafka_topics.produce_ids(topic, range(20))
    target = Target(kafka_topics, tmp_path, tmp_topic("sink"), topic, f"{PATH}:{sink}")
    with processes(tmp_path) as start:
        process = start(target.spec, "after-target-commit")
        process.until_frozen()
        process.kill()
    assert kafka_topics.committed(f"connect-{target.name}", (topic, 0)) == [0]
    written = target.ids()
    assert written
    run_here(target.spec)
    assert target.ids() == sorted([*range(20), *(written if sink == "WithoutLedger" else [])])


@pytest.mark.parametrize("is_fenced", [True, False])
def test_a_taken_over_row_ends_the_run_as_fenced_only_if_the_fence_was_taken(
    kafka_topics: Kafka, tmp_topic: Callable[..., str], tmp_path: Path, is_fenced: bool
) -> None:
    topic = kafka_topics.create_topic(tmp_topic(), 1)
    kafka_topics.produce_ids(topic, range(5))
    target = Target(kafka_topics, tmp_path, tmp_topic("sink"), topic)
    later: list[Fence] = []

    def say(progress: ProgressReport) -> list[Command]:
        if progress.records_in == 5 and not later:
            later.append(Fence(clients.producer(target.spec, {}), target.spec.transactional_id))
            if is_fenced:
                later[0].take_over()
            assert target.ledger("later").claim([(topic, 0)]) == {(topic, 0): 5}
            kafka_topics.produce_ids(topic, range(5, 9))
        return []

    with pytest.raises(TaskFailed, match=r"another owner|taken over by later") as failed:
        run_here(_lasting(target.spec), Link(say))
    assert type(failed.value) is (TaskFenced if is_fenced else LedgerTaken)
    assert failure.error_class(failed.value) is (ErrorClass.FENCED if is_fenced else ErrorClass.RETRIABLE)
    assert target.ids() == list(range(5))
    later[0].close()


def _lasting(spec: RunSpec) -> RunSpec:
    """A spec whose run continues when everything is read."""
    return replace(spec, linger_ms=int(WAIT_S * 1_000))


class LookingSink(SqliteSink):
    """Notes the number of dead letters in the queue before the target's commit."""

    kafka: Kafka
    queue: str

    def _write(self, batch: SinkBatch) -> None:
        super()._write(batch)
        SqliteSink.calls.append(f"letters {len(LookingSink.kafka.records(LookingSink.queue))}")


class Sleeper(SqliteSink):
    """Stops in `claim`, before it claims its rows."""

    meanwhile: ClassVar[list[Callable[[], None]]] = []

    def claim(self, partitions: Sequence[PartitionId]) -> Mapping[PartitionId, int]:
        self.meanwhile.pop()()
        return super().claim(partitions)


def test_a_stale_owner_that_slept_through_a_reset_does_not_undo_it(
    kafka_topics: Kafka, tmp_topic: Callable[..., str], tmp_path: Path
) -> None:
    topic, name = kafka_topics.create_topic(tmp_topic(), 1), tmp_topic("sink")
    kafka_topics.produce_ids(topic, range(10))
    target = Target(kafka_topics, tmp_path, name, topic)
    run_here(target.spec)
    assert target.rows() == {(topic, 0): 10}
    fences: list[Fence] = []

    def reset() -> None:
        fences.append(Fence(clients.producer(target.spec, {}), target.spec.transactional_id))
        fences[0].take_over()
        target.ledger(NOBODY).alter({(topic, 0): None})
        for done in kafka_topics.admin.delete_consumer_groups([f"connect-{name}"]).values():
            done.result(WAIT_S)

    Sleeper.meanwhile.append(reset)
    with pytest.raises(TaskFenced):
        run_here(Target(kafka_topics, tmp_path, name, topic, path=f"{__name__}:Sleeper").spec)
    assert run_here(target.spec).progress.records_in == 10, "all are read again"


def test_dead_letters_are_acknowledged_before_the_target_moves_past_their_records(
    kafka_topics: Kafka, tmp_topic: Callable[..., str], tmp_path: Path
) -> None:
    """One that the converter fails on, one that the task reports."""
    topic = kafka_topics.create_topic(tmp_topic(), 1)
    LookingSink.kafka, LookingSink.queue = kafka_topics, tmp_topic("queue")
    kafka_topics.produce(topic, [b'{"id":1}', b"{not json", b'{"id":-1}', b'{"id":2}'])
    tolerant = {
        "errors.tolerance": "all",
        "errors.deadletterqueue.topic.name": LookingSink.queue,
        "errors.deadletterqueue.topic.replication.factor": "1",
    }
    target = Target(kafka_topics, tmp_path, tmp_topic("sink"), topic, f"{__name__}:LookingSink", **tolerant)
    run_here(target.spec)
    assert target.ids() == [1, 2]
    assert SqliteSink.calls[-1] == "letters 2"
    assert target.rows() == {(topic, 0): 4}


def test_a_deleted_topic_is_removed_from_the_ledger(
    kafka_topics: Kafka, tmp_topic: Callable[..., str], tmp_path: Path
) -> None:
    """So a later topic of the same name is read from its start."""
    stem = tmp_topic()
    kept, gone = kafka_topics.create_topic(f"{stem}-a", 1), kafka_topics.create_topic(f"{stem}-b", 1)
    kafka_topics.produce_ids(kept, range(3))
    kafka_topics.produce_ids(gone, range(3, 6))
    often = {"consumer.override.metadata.max.age.ms": "200"}
    target = Target(kafka_topics, tmp_path, tmp_topic("sink"), "", **{"topics.regex": f"{stem}-.*", **often})
    deleted: list[str] = []

    def say(progress: ProgressReport) -> list[Command]:
        if progress.records_in == 6 and not deleted:
            kafka_topics.admin.delete_topics([gone])[gone].result()
            deleted.append(gone)
        return [Stop()] if "forget 1" in SqliteSink.calls else []

    assert run_here(_lasting(target.spec), Link(say)).reason is RunEnd.STOPPED
    assert target.rows() == {(kept, 0): 3}
