"""A broker that lost the marker of a committed transaction, as Kafka does when it dies at the wrong moment
(ADR 0006): tasks finish the transaction and continue at its offsets, nothing lost and nothing duplicated.

The state is created in the broker's files: stopped, the last batch of a partition's log, which is the marker, is cut
off.
"""

from __future__ import annotations

import asyncio
import json
import logging
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import pyarrow.parquet
import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from herdmesh.connect.error_class import ErrorClass
from herdmesh.connect.spi.connector import PartitionId
from herdmesh.connect.topics import offsets_topic
from herdmesh.connect.topics.offsets_topic import OffsetRecord
from herdmesh.connectors.files.task import FileSinkTask
from herdmesh.devstack.broker import QUICK_JVM, Broker
from herdmesh.engine import RunSpec, TaskKind
from herdmesh.engine.fencing.fence import Fence
from herdmesh.engine.fencing.hung_group_transaction import GROUP_OFFSETS_TOPIC, partition_of_group
from herdmesh.engine.librdkafka.group_offsets import group_offsets
from herdmesh.engine.runtime.contract import ProgressReport
from herdmesh.engine.runtime.errors import TaskFailed
from libs.core.tests.engine import sinks
from libs.core.tests.engine.harness import JSON_VALUES, WAIT_S, Kafka, Link, make_spec, run_here
from tests.support.broker_files import cut_marker

pytestmark = pytest.mark.own_broker

TOPIC = "in"
SINK = "hung-sink"
SOURCE = "hung-source"
OUT = f"{SOURCE}-out"
OFFSETS = "hung-offsets"
ABORTED = "aborted-source"
ABORTED_OFFSETS = "aborted-offsets"
LASTING = "lasting"
GROUP = f"connect-{SINK}"
GROUP_PARTITIONS = 5
RECORDS = 20


class UnpublishedOnce(FileSinkTask):
    """Fails between its first commit and its publishing, like a process that dies there."""

    failed: ClassVar[bool] = False

    def publish(self, manifests: Mapping[PartitionId, str]) -> None:
        if not UnpublishedOnce.failed:
            UnpublishedOnce.failed = True
            raise OSError("the process dies here")
        super().publish(manifests)


class NotCommitted:
    """Makes the next transaction of offsets fail after they were sent, as when a restarted broker loads its groups
    again. Then commits succeed again.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._restore = monkeypatch.undo
        monkeypatch.setattr(Fence, "commit", self._fail)

    def _fail(self) -> None:
        self._restore()
        error = KafkaError(KafkaError.COORDINATOR_LOAD_IN_PROGRESS, "loading", txn_requires_abort=True)
        raise TaskFailed("committing did not succeed: loading", ErrorClass.RETRIABLE) from KafkaException(error)


class Lasting:
    """A sink's run that exists before the broker dies, and after."""

    def __init__(self, kafka: Kafka, folder: Path) -> None:
        self.folder = folder
        self.spec = make_spec(
            kafka.bootstrap, LASTING, "herdmesh.connectors.files.task:FileSinkTask",
            {**JSON_VALUES, "topics": LASTING, "directory": str(folder), "value.converter.schemas.enable": "false"},
            worker_config={"offset.flush.interval.ms": "100"},
        )  # fmt: skip
        # A daemon: in a selection of these tests nobody waits for its end.
        self._thread = threading.Thread(target=self._run, name="lasting run", daemon=True)
        self._committed = threading.Event()
        self._error: TaskFailed | None = None
        self._thread.start()

    def until_committed(self) -> None:
        assert self._committed.wait(60), self._error

    def failure(self) -> str:
        self._thread.join(60)
        assert self._error is not None
        return self._error.message

    def _run(self) -> None:
        try:
            run_here(replace(self.spec, continuous=True), _Told(self._committed))
        except TaskFailed as error:
            self._error = error


class _Told(Link):
    def __init__(self, committed: threading.Event) -> None:
        super().__init__()
        self._event = committed

    def progress(self, progress: ProgressReport) -> None:
        if any(one.committed_offset == RECORDS for one in progress.partitions):
            self._event.set()


def sink(kafka: Kafka, folder: Path) -> RunSpec:
    return make_spec(
        kafka.bootstrap, SINK, f"{__name__}:UnpublishedOnce",
        {**JSON_VALUES, "topics": TOPIC, "directory": str(folder), "value.converter.schemas.enable": "false"},
    )  # fmt: skip


def source(kafka: Kafka, until: int, name: str = SOURCE, offsets: str = OFFSETS) -> RunSpec:
    return make_spec(
        kafka.bootstrap, name, f"{sinks.PATH}:CountingSource",
        {
            "topic": f"{name}-out", "until": str(until),
            "topic.creation.default.partitions": "1", "topic.creation.default.replication.factor": "1",
            # One transaction: the first of a run lasts 50 ms by default, which may end before all is polled.
            "transaction.boundary": "interval", "transaction.boundary.interval.ms": "60000",
        },
        kind=TaskKind.SOURCE, offset_storage_topic=offsets, worker_config={"offset.storage.partitions": "1"},
    )  # fmt: skip


def abort(kafka: Kafka) -> None:
    """Leave the state of a source's run whose commit was not executed."""
    kafka.create_topic(ABORTED_OFFSETS, 1)
    config = {"bootstrap.servers": kafka.bootstrap, "transactional.id": f"test-cluster-{ABORTED}-0"}
    producer = Producer(config)
    producer.init_transactions(60)
    producer.begin_transaction()
    key, value = offsets_topic.encode(OffsetRecord(ABORTED, {"counter": "a"}, {"next": RECORDS}))
    producer.produce(ABORTED_OFFSETS, value, key)
    assert producer.flush(60) == 0
    producer.abort_transaction(60)


@dataclass
class Hung:
    """The broker and its clients after its return."""

    kafka: Kafka
    folder: Path
    """Folder of the sink's files."""
    lasting: Lasting


@pytest.fixture(scope="module")
def hung(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hung]:
    data_dir, folder = tmp_path_factory.mktemp("hung-kafka"), tmp_path_factory.mktemp("hung-files")
    broker = Broker(data_dir, port=0, jvm=QUICK_JVM)
    asyncio.run(broker.start())
    try:
        kafka = Kafka(broker.bootstrap)
        for topic in (TOPIC, LASTING):
            kafka.create_topic(topic, 1)
            kafka.produce_ids(topic, range(RECORDS))
        lasting = Lasting(kafka, tmp_path_factory.mktemp("lasting-files"))
        with pytest.raises(OSError, match="dies here"):
            run_here(sink(kafka, folder))
        run_here(source(kafka, RECORDS))
        abort(kafka)
        lasting.until_committed()
        for topic, partitions in ((OFFSETS, 1), (ABORTED_OFFSETS, 1), (GROUP_OFFSETS_TOPIC, GROUP_PARTITIONS)):
            kafka.settled(topic, partitions)  # a commit is answered before its marker is there
        asyncio.run(broker.stop())
        cut_marker(data_dir, OFFSETS, 0)
        cut_marker(data_dir, ABORTED_OFFSETS, 0)
        for group in (GROUP, f"connect-{LASTING}"):
            cut_marker(data_dir, GROUP_OFFSETS_TOPIC, partition_of_group(group, GROUP_PARTITIONS))
        asyncio.run(broker.start())
        yield Hung(Kafka(broker.bootstrap), folder, lasting)
    finally:
        asyncio.run(broker.stop())


def _committed(kafka: Kafka, group: str, timeout_s: float = 60.0) -> int:
    consumer = Consumer({"bootstrap.servers": kafka.bootstrap, "group.id": group})
    try:
        return consumer.committed([TopicPartition(TOPIC, 0)], timeout=timeout_s)[0].offset
    finally:
        consumer.close()


def _refusal(kafka: Kafka, group: str) -> int:
    """Error code for the group's offsets, once the broker has loaded them."""
    deadline_s = time.monotonic() + 60
    while True:
        with pytest.raises(KafkaException) as refused:
            _committed(kafka, group, 1.0)  # the client retries until then, when the offsets are not stable
        code = refused.value.args[0].code()
        if code not in (KafkaError.NOT_COORDINATOR, KafkaError.COORDINATOR_LOAD_IN_PROGRESS):
            return code
        assert time.monotonic() < deadline_s, "the broker does not load the group"
        time.sleep(0.02)


def _ids(folder: Path) -> list[int]:
    untyped: Any = pyarrow.parquet
    return sorted(one for path in folder.glob("[!.]*.parquet") for one in untyped.read_table(path)["id"].to_pylist())


def test_a_sink_continues_after_a_commit_whose_marker_the_broker_lost(
    hung: Hung, caplog: pytest.LogCaptureFixture
) -> None:
    kafka, folder = hung.kafka, hung.folder
    assert _refusal(kafka, GROUP) in (KafkaError.UNSTABLE_OFFSET_COMMIT, KafkaError._TIMED_OUT)
    with closing(Consumer({"bootstrap.servers": kafka.bootstrap, "group.id": GROUP})) as member:
        # Raises nothing: a client that ignores open transactions gets the offsets all the same.
        group_offsets(member, kafka.admin, GROUP, WAIT_S)
    assert not list(folder.glob("[!.]*.parquet"))
    kafka.produce_ids(TOPIC, range(RECORDS, 2 * RECORDS))
    with caplog.at_level(logging.WARNING):
        outcome = run_here(sink(kafka, folder))
    assert outcome.progress.records_in == RECORDS, "the records of the hung commit were read again"
    assert _ids(folder) == list(range(2 * RECORDS))
    assert _committed(kafka, GROUP) == 2 * RECORDS
    assert [one.message for one in caplog.records if "still open" in one.message] != []
    assert not [group for group in _groups(kafka) if ".unhang-" in group]


def _groups(kafka: Kafka) -> list[str]:
    return [group.group_id for group in kafka.admin.list_consumer_groups().result().valid]


def test_a_source_continues_from_offsets_whose_marker_the_broker_lost(
    hung: Hung, caplog: pytest.LogCaptureFixture
) -> None:
    kafka = hung.kafka
    assert len(kafka.records(OUT)) == RECORDS
    assert [key for key, _value in kafka.records(OFFSETS, is_settling=False) if key and SOURCE.encode() in key] == []
    with caplog.at_level(logging.WARNING):
        outcome = run_here(source(kafka, 2 * RECORDS))
    assert outcome.progress.records_in == RECORDS, "the records of the hung commit were sent again"
    assert sorted(json.loads(value or b"")["n"] for _key, value in kafka.records(OUT)) == list(range(2 * RECORDS))
    assert [one.message for one in caplog.records if "by a commit" in one.message] != []


def test_a_source_ignores_offsets_whose_abort_marker_the_broker_lost(
    hung: Hung, caplog: pytest.LogCaptureFixture
) -> None:
    """The records before these offsets were never visible: committing the offsets now would lose the records."""
    kafka = hung.kafka
    with caplog.at_level(logging.WARNING):
        outcome = run_here(source(kafka, RECORDS, ABORTED, ABORTED_OFFSETS))
    assert outcome.progress.records_in == RECORDS
    assert [one.message for one in caplog.records if "by an abort" in one.message] != []


def test_a_run_that_outlives_its_broker_does_not_abort_a_commit_whose_marker_was_lost(
    hung: Hung, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Chaos, seed 5: the run's next commit failed, and its abort also aborted the one before, whose file was
    published.
    """
    kafka, lasting = hung.kafka, hung.lasting
    NotCommitted(monkeypatch)
    kafka.produce_ids(LASTING, range(RECORDS, 2 * RECORDS))
    assert lasting.failure() == "committing did not succeed: loading"
    outcome = run_here(lasting.spec)
    assert outcome.progress.records_in == RECORDS, "the records of the commit that succeeded were read again"
    assert _ids(lasting.folder) == list(range(2 * RECORDS))
