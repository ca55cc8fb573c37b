"""Check of the config topic for a newer task set, which every run makes after its take-over and before it moves a
record.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from threading import Event
from typing import Any, ClassVar

import msgspec
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from herdmesh.connect.error_class import ErrorClass
from herdmesh.connect.spi.connector import Config, SourceBatch, SourceTaskContext
from herdmesh.connect.topics.config_records import ManifestRecord, TargetState, TargetStateRecord
from herdmesh.connect.topics.offsets_topic import encode_key
from herdmesh.engine import RunEnd, TaskKind
from herdmesh.engine.fencing import task_set_check
from herdmesh.engine.fencing.fence import Fence
from herdmesh.engine.runtime.contract import RunSpec, TaskSetClaim
from herdmesh.engine.runtime.errors import TaskFailed, TaskFenced
from herdmesh.engine.source.source_offsets import SourceOffsets
from herdmesh.engine.source.stored_offsets import StoredOffsetsReader
from libs.core.tests.engine.harness import WAIT_S, Kafka, Link, make_spec, run_here, write
from libs.core.tests.engine.sinks import PATH, CountingSource
from tests.support.guarded_broker import GuardedBroker

DIGESTS = ("aa", "bb")


@pytest.fixture
def kafka_topics(kafka_bootstrap: str) -> Kafka:
    return Kafka(kafka_bootstrap)


def manifest(connector: str, generation: int, **more: Any) -> ManifestRecord:
    made = ManifestRecord(connector, "i1", task_digests=DIGESTS, task_count=2, task_config_generation=generation)
    return msgspec.structs.replace(made, **more)


def claiming(kafka: Kafka, name: str, config: str, offset: int, digest: str = "7:aa") -> RunSpec:
    spec = make_spec(kafka.bootstrap, name, f"{PATH}:ListSink", {"topics": kafka.create_topic(f"{name}-in", 1)})
    return replace(spec, claim=TaskSetClaim(config, offset, "i1", digest))


def test_a_run_of_the_current_task_set_moves_records(kafka_topics: Kafka, tmp_topic: Callable[..., str]) -> None:
    config, name = kafka_topics.create_topic(tmp_topic("configs"), 1), tmp_topic("sink")
    assert run_here(claiming(kafka_topics, name, config, 0)).reason is RunEnd.QUIET, "nobody wrote anything since"
    write(kafka_topics.bootstrap, config, manifest(name, 6), manifest("another", 9))
    write(kafka_topics.bootstrap, config, manifest(name, 7), TargetStateRecord(name, TargetState.PAUSED))
    assert run_here(claiming(kafka_topics, f"{name}-2", config, 0)).reason is RunEnd.QUIET, "nothing about this one"
    assert run_here(replace(claiming(kafka_topics, name + "-3", config, 0), connector=name)).reason is RunEnd.QUIET


@pytest.mark.parametrize(
    "newer",
    [{"task_config_generation": 8}, {"incarnation": "i2"}, {"deleted": True}, {"task_digests": ("cc", "bb")}],
    ids=lambda newer: next(iter(newer)),
)
def test_a_run_of_a_superseded_task_set_moves_no_record(
    kafka_topics: Kafka, tmp_topic: Callable[..., str], newer: dict[str, Any]
) -> None:
    config, name = kafka_topics.create_topic(tmp_topic("configs"), 1), tmp_topic("sink")
    write(kafka_topics.bootstrap, config, manifest(name, 7))
    write(kafka_topics.bootstrap, config, manifest(name, 7, **newer))
    with pytest.raises(TaskFenced, match="a task set that was replaced"):
        run_here(claiming(kafka_topics, name, config, 0))


def test_the_config_topic_is_not_read_when_nothing_was_written_since_the_known_end(
    kafka_topics: Kafka, tmp_topic: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The leader may not have read the marker of the last transaction yet; a marker is no record."""
    config, name = kafka_topics.create_topic(tmp_topic("configs"), 1), tmp_topic("sink")
    write(kafka_topics.bootstrap, config, manifest(name, 7))

    def never(*_: object) -> None:
        raise AssertionError("the topic was read")

    monkeypatch.setattr(task_set_check, "_newest", never)
    for number, offset in enumerate((1, 2)):
        spec = replace(claiming(kafka_topics, f"{name}-{number}", config, offset), connector=name)
        link = Link()
        assert run_here(spec, link).reason is RunEnd.QUIET
        assert link.reports[0].config_offset == 2, "told with the first word, for the next run to begin at"


def test_the_end_of_the_config_topic_is_read_after_the_take_over(
    kafka_topics: Kafka, tmp_topic: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    config, name = kafka_topics.create_topic(tmp_topic("configs"), 1), tmp_topic("sink")
    write(kafka_topics.bootstrap, config, manifest(name, 7))
    take_over = Fence.take_over

    def overtaken(fence: Fence) -> None:
        take_over(fence)
        write(kafka_topics.bootstrap, config, manifest(name, 8))

    monkeypatch.setattr(Fence, "take_over", overtaken)
    with pytest.raises(TaskFenced):
        run_here(claiming(kafka_topics, name, config, 2))


class InOrder(CountingSource):
    """Records its own calls together with those of the run."""

    calls: ClassVar[list[str]] = []

    def start(self, config: Config, context: SourceTaskContext) -> None:
        self.calls.append("start")
        super().start(config, context)

    def poll(self) -> SourceBatch | None:
        self.calls.append("poll")
        return super().poll()


def test_offsets_are_read_after_the_take_over_and_a_source_starts_after_both(
    kafka_topics: Kafka, tmp_topic: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Although the reader prepares its clients meanwhile: the run continues after offsets that the previous owner still
    commits then.
    """
    config, name = kafka_topics.create_topic(tmp_topic("configs"), 1), tmp_topic("source")
    write(kafka_topics.bootstrap, config, manifest(name, 7))
    settings = {"topic": tmp_topic(), "until": "40"} | {
        f"topic.creation.default.{key}": "1" for key in ("partitions", "replication.factor")
    }
    spec = make_spec(
        kafka_topics.bootstrap, name, f"{__name__}:InOrder", settings,
        kind=TaskKind.SOURCE, offset_storage_topic=kafka_topics.create_topic(f"{name}-offsets", 2),
    )  # fmt: skip
    ready, calls = Event(), InOrder.calls
    prepare, take_over, read, verify = (
        StoredOffsetsReader.prepare,
        Fence.take_over,
        StoredOffsetsReader.read,
        task_set_check.ClaimCheck.verify,
    )

    def prepared(reader: StoredOffsetsReader) -> None:
        prepare(reader)
        ready.set()

    def taken(fence: Fence) -> None:
        assert ready.wait(WAIT_S), "the reader is not prepared"
        key = encode_key(name, {"counter": "a"})
        write_offsets(kafka_topics.bootstrap, spec.offset_storage_topic, key, b'{"next":25}')
        take_over(fence)
        calls.append("take over")

    def told(reader: StoredOffsetsReader, fence: Fence | None) -> SourceOffsets:
        calls.append("read")
        return read(reader, fence)

    def verified(claim: task_set_check.ClaimCheck) -> int | None:
        calls.append("verify")
        return verify(claim)

    monkeypatch.setattr(StoredOffsetsReader, "prepare", prepared)
    monkeypatch.setattr(Fence, "take_over", taken)
    monkeypatch.setattr(StoredOffsetsReader, "read", told)
    monkeypatch.setattr(task_set_check.ClaimCheck, "verify", verified)
    calls.clear()
    outcome = run_here(replace(spec, claim=TaskSetClaim(config, 0, "i1", "7:aa")))
    assert calls[:5] == ["take over", "read", "verify", "start", "poll"]
    assert outcome.progress.records_in == 15


def write_offsets(bootstrap: str, topic: str, key: bytes, value: bytes) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "partitioner": "murmur2_random"})
    producer.produce(topic, value, key)
    assert producer.flush(WAIT_S) == 0


def test_a_missing_config_topic_is_reported(kafka_topics: Kafka, tmp_topic: Callable[..., str]) -> None:
    with pytest.raises(TaskFailed, match="config_storage_topic") as failed:
        run_here(claiming(kafka_topics, tmp_topic("sink"), tmp_topic("nowhere"), 0))
    assert failed.value.error_class is ErrorClass.RETRIABLE


def test_a_config_topic_without_read_permission_is_reported(
    guarded: GuardedBroker, tmp_topic: Callable[..., str]
) -> None:
    kafka = Kafka(guarded.bootstrap)
    spec = claiming(kafka, tmp_topic("sink"), kafka.create_topic(tmp_topic("configs"), 1), 0)
    _, login = guarded.new_user()
    admin = AdminClient({"bootstrap.servers": guarded.guarded, **login})
    with pytest.raises(TaskFailed, match="Describe and Read") as failed:
        task_set_check.begin_check(spec, admin).verify()
    assert failed.value.error_class is ErrorClass.RETRIABLE


def test_a_task_beyond_a_smaller_task_set_moves_no_record(kafka_topics: Kafka, tmp_topic: Callable[..., str]) -> None:
    config, name = kafka_topics.create_topic(tmp_topic("configs"), 1), tmp_topic("sink")
    write(kafka_topics.bootstrap, config, manifest(name, 7, task_digests=("aa",), task_count=1))
    spec = claiming(kafka_topics, name, config, 0, digest="7:bb")
    with pytest.raises(TaskFenced):
        run_here(replace(spec, task=1, task_count=2, transactional_id=f"{spec.transactional_id}-1"))


def test_a_config_topic_that_is_not_the_meshs_is_reported(kafka_topics: Kafka, tmp_topic: Callable[..., str]) -> None:
    config, name = kafka_topics.create_topic(tmp_topic("configs"), 1), tmp_topic("sink")
    with pytest.raises(TaskFailed, match="config_storage_topic") as failed:
        run_here(claiming(kafka_topics, name, config, 5_000))
    assert failed.value.error_class is ErrorClass.RETRIABLE
