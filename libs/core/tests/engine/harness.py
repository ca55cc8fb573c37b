"""Harness that runs the engine in tests: specs, links that script a worker, topics, and runs in processes of their own.

Owns no test. Invariant: a run started here ends with the test, whatever the test does to it.

Processes of runs are forked, as Spark's are, by one that has imported their modules: each import costs half a second.
"""

from __future__ import annotations

import faulthandler
import json
import multiprocessing
import os
import signal
import time
import uuid
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing.context import ForkServerContext, ForkServerProcess
from pathlib import Path
from typing import Any, cast

from confluent_kafka import Consumer, IsolationLevel, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import AlterConfigOpType, ConfigEntry, ConfigResource
from confluent_kafka.admin._listoffsets import OffsetSpec  # the package re-exports it, but not for type checkers
from confluent_kafka.admin._resource import ResourceType
from confluent_kafka.cimpl import NewPartitions, NewTopic

from herdmesh.connect.spi.connector import PartitionId
from herdmesh.connect.topics import config_topic
from herdmesh.connect.topics.config_records import ConfigRecord
from herdmesh.engine import Command, ProgressReport, RunOutcome, RunSpec, TaskKind, run
from herdmesh.engine.librdkafka import clients
from herdmesh.engine.runtime import failure
from herdmesh.kafka.client_settings import NO_AUTO_CREATION
from herdmesh.kafka.listed_offsets import list_offsets

_QUEUED_MAX = 50_000
_SET, _TAKE_BACK = AlterConfigOpType.SET, AlterConfigOpType.DELETE
WAIT_S = 45.0
_forking: ForkServerContext = multiprocessing.get_context("forkserver")
_forking.set_forkserver_preload(["__main__", __name__, "pyarrow.parquet"])
JSON_VALUES = {
    "key.converter": "org.apache.kafka.connect.storage.StringConverter",
    "value.converter": "org.apache.kafka.connect.json.JsonConverter",
    "value.converter.schemas.enable": "false",
}


def make_spec(
    bootstrap: str,
    name: str,
    task_class: str,
    config: Mapping[str, str],
    *,
    kind: TaskKind = TaskKind.SINK,
    **more: Any,
) -> RunSpec:
    """A spec of task 0 of 1 whose run ends as soon as there is nothing to read."""
    # The run learns the sooner that it has read everything.
    defaults = {**JSON_VALUES, "consumer.override.fetch.max.wait.ms": "20"} if kind is TaskKind.SINK else JSON_VALUES
    full: dict[str, str | None] = {"name": name, **defaults, **config}
    settings: dict[str, Any] = {
        "run_id": uuid.uuid4().hex,
        "task": 0,
        "task_count": 1,
        "connector_config": full,
        "task_config": full,
        "group_id": "test-cluster",
        "offset_storage_topic": "engine-offsets",
        "worker_config": {"offset.storage.partitions": "2"},
        "linger_ms": 0,
        **more,
    }
    settings.setdefault("transactional_id", f"test-cluster-{name}-{settings['task']}")
    return RunSpec(connector=name, kind=kind, task_class=task_class, bootstrap_servers=bootstrap, **settings)


@dataclass
class Link:
    """A worker in the same thread: remembers progress reports, and sends the commands that `say` returns for them."""

    say: Callable[[ProgressReport], Sequence[Command]] = lambda _progress: ()
    reports: list[ProgressReport] = field(default_factory=lambda: list[ProgressReport]())
    stored: dict[bytes, bytes | None] = field(default_factory=lambda: dict[bytes, bytes | None]())
    """The content of an offsets file of a worker."""

    def progress(self, progress: ProgressReport) -> None:
        self.reports.append(progress)

    def commands(self) -> Sequence[Command]:
        return self.say(self.reports[-1] if self.reports else ProgressReport())

    def wake_with(self, wake: Callable[[], None]) -> None:
        """Not needed: these commands are there when the loop looks."""

    def store_offsets(self, offsets: Mapping[bytes, bytes | None]) -> None:
        self.stored |= offsets


def run_here(spec: RunSpec, link: Link | None = None) -> RunOutcome:
    """Execute a run in this thread."""
    return run(spec, link or Link())


@dataclass
class Process:
    """A run in a process of its own, frozen at its failpoint if it has one."""

    child: ForkServerProcess
    out: Path
    log: Path

    def until_frozen(self, wait_s: float = WAIT_S) -> None:
        """Wait until the process has stopped itself. (It announces the stop a moment before: a SIGCONT in between has
        no effect.)
        """
        deadline_s = time.monotonic() + wait_s
        while not (self.log.exists() and self.log.read_text() and self._is_stopped()):
            assert self.child.is_alive(), self.out.read_text() if self.out.exists() else self._last_words()
            assert time.monotonic() < deadline_s, "the failpoint was not reached"
            time.sleep(0.02)

    def _last_words(self) -> str:
        said = self.out.with_suffix(".err")
        return f"ended by {self.child.exitcode}: {said.read_text() if said.exists() else 'without a word'}"

    def _is_stopped(self) -> bool:
        return Path(f"/proc/{self.child.pid}/stat").read_text().rpartition(")")[2].split()[0] in ("T", "t")

    def kill(self) -> None:
        self.child.kill()
        self.exit_code()

    def resume(self) -> dict[str, Any]:
        """Let the process continue, and return how the run ended."""
        assert self.child.pid is not None
        os.kill(self.child.pid, signal.SIGCONT)
        return self.ended()

    def ended(self) -> dict[str, Any]:
        """Wait for the end: `{"reason": ...}` or `{"error_class": ..., "message": ...}`."""
        self.exit_code()
        return json.loads(self.out.read_text())

    def exit_code(self) -> int:
        """Wait for the end; the exit code of a signal is below zero."""
        self.child.join(WAIT_S)
        code = self.child.exitcode
        assert code is not None, f"the run has not ended after {WAIT_S:g} s"
        return code


@contextmanager
def processes(folder: Path) -> Generator[Callable[..., Process]]:
    """A starter of runs in processes: `start(spec, failpoint="")`. Kills the remaining ones at the end."""
    started: list[Process] = []

    def start(spec: RunSpec, failpoint: str = "") -> Process:
        stem = folder / f"run-{len(started)}"
        log, out = stem.with_suffix(".log"), stem.with_suffix(".out")
        environment = {
            **os.environ,
            "HERDMESH_FAILPOINTS": f"{failpoint}=stop" if failpoint else "",
            "HERDMESH_FAILPOINT_LOG": str(log),
        }
        child = _forking.Process(target=_run, args=(spec, out, stem.with_suffix(".err"), environment))
        child.start()
        started.append(Process(child, out, log))
        return started[-1]

    try:
        yield start
    finally:
        for process in started:
            process.kill()


def _run(spec: RunSpec, out: Path, said: Path, environment: Mapping[str, str]) -> None:
    """Execute a spec, and write how it ended."""
    os.environ.clear()
    os.environ.update(environment)
    os.dup2(os.open(said, os.O_WRONLY | os.O_CREAT), 2)
    faulthandler.enable()  # a process that dies of a signal prints its stack
    try:
        outcome = run(spec, Link())
        ended = {"reason": str(outcome.reason), "records_in": outcome.progress.records_in}
    except Exception as error:  # noqa: BLE001 - the supervisor of this process; everything is reported
        message, _, error_class = failure.classify(error)
        ended = {"message": message, "error_class": str(error_class)}
    out.write_text(json.dumps(ended))


class Kafka:
    """Topics, records and offsets of the test broker."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self.admin: Any = AdminClient({"bootstrap.servers": bootstrap})
        self._asking = AdminClient({"bootstrap.servers": bootstrap, **NO_AUTO_CREATION})

    def create_topic(self, topic: str, partitions: int = 2, **config: str) -> str:
        """Create the topic, and return when it can be read and written; the broker answers before that, and lists it
        before that.
        """
        self.admin.create_topics([NewTopic(topic, partitions, 1, config=config)])[topic].result()
        self._until_there(topic, partitions)
        return topic

    def alter(self, topic: str, **config: str) -> None:
        """Set the topic's config; "" = the broker's default."""
        delete, put = AlterConfigOpType.DELETE, AlterConfigOpType.SET
        entries = [
            ConfigEntry(key, value or None, incremental_operation=put if value else delete)
            for key, value in config.items()
        ]
        resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=entries)
        untyped: Any = self.admin
        untyped.incremental_alter_configs([resource])[resource].result()

    def produce(
        self,
        topic: str,
        values: Iterable[bytes | None],
        *,
        transactional_id: str = "",
        client: Mapping[str, Any] | None = None,
        **at: Any,
    ) -> None:
        """Produce records in order, spread over the partitions unless `partition` is given; with numbers as keys unless
        `key` is given. `client`: more of the producer's settings.
        """
        config: dict[str, Any] = {"bootstrap.servers": self.bootstrap, "linger.ms": 5, "partitioner": "random"}
        config |= client or {}
        if transactional_id:
            config["transactional.id"] = transactional_id
        producer = Producer(config)
        if transactional_id:
            producer.init_transactions()
            producer.begin_transaction()
        for number, value in enumerate(values):
            with_key: dict[str, Any] = {"key": str(number).encode(), **at}
            if number % _QUEUED_MAX == _QUEUED_MAX - 1:
                producer.flush()
            producer.produce(topic, value, **with_key)
        if transactional_id:
            producer.commit_transaction()
        producer.flush()

    def produce_ids(self, topic: str, ids: Iterable[int], **more: Any) -> None:
        """Produce JSON objects with a field `id`."""
        self.produce(topic, (b'{"id":%d,"name":"n%d","email":"e@x"}' % (number, number) for number in ids), **more)

    def grow(self, topic: str, partitions: int) -> None:
        """Give the topic that many partitions; returns when they can be read and written. (The broker answers before
        that: the client discards records for a partition that it does not know yet.)
        """
        self.admin.create_partitions([NewPartitions(topic, partitions)])[topic].result()
        self._until_there(topic, partitions)

    def _until_there(self, topic: str, partitions: int) -> None:
        deadline_s = time.monotonic() + WAIT_S
        asked = {TopicPartition(topic, number): OffsetSpec.latest() for number in range(partitions)}
        while any(one.exception() for one in list_offsets(self._asking, asked, timeout_s=WAIT_S).values()):
            assert time.monotonic() < deadline_s, f"nobody has the {partitions} partitions of {topic}"
            time.sleep(0.02)

    def partition_count(self, topic: str) -> int:
        return len(self.admin.list_topics(topic, timeout=WAIT_S).topics[topic].partitions)

    def topic_config(self, topic: str, name: str) -> str:
        resource = ConfigResource(ResourceType.TOPIC, topic)
        return self.admin.describe_configs([resource])[resource].result()[name].value

    def set_topic_config(self, topic: str, changes: Mapping[str, str | None]) -> None:
        """Change the topic's config; None = the broker's default again."""
        entries = [
            ConfigEntry(name, value, incremental_operation=_TAKE_BACK if value is None else _SET)
            for name, value in changes.items()
        ]
        resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=entries)
        self.admin.incremental_alter_configs([resource])[resource].result(WAIT_S)

    def committed(self, group: str, *partitions: PartitionId) -> list[int]:
        """Committed offsets, -1001 = none."""
        consumer = Consumer({"bootstrap.servers": self.bootstrap, "group.id": group})
        try:
            asked = [TopicPartition(*one) for one in partitions]
            return [found.offset for found in consumer.committed(asked, timeout=WAIT_S)]
        finally:
            consumer.close()

    @contextmanager
    def member(self, group: str, topic: str) -> Generator[None]:
        """Keep a member with partitions of the topic in the group as long as this context lasts."""
        consumer = Consumer({"bootstrap.servers": self.bootstrap, "group.id": group})
        try:
            consumer.subscribe([topic])
            deadline_s = time.monotonic() + 60
            while not consumer.assignment():
                assert time.monotonic() < deadline_s, "it does not become a member"
                consumer.poll(0.1)
            yield
        finally:
            consumer.close()

    def records(
        self, topic: str, partitions: int = 1, *, is_settling: bool = True
    ) -> list[tuple[bytes | None, bytes | None]]:
        """Keys and values of all committed records."""
        return [(one.key(), one.value()) for one in self.messages(topic, partitions, is_settling=is_settling)]

    def settled(self, topic: str, partitions: int) -> None:
        """Wait until no transaction is open there: a broker answers a commit before its marker is in the topic, and a
        reader of committed records reaches the end before it.
        """
        latest = cast("OffsetSpec", OffsetSpec.latest())
        asked = {TopicPartition(topic, number): latest for number in range(partitions)}

        def ends(level: IsolationLevel) -> list[int]:
            answers = list_offsets(self._asking, asked, isolation_level=level, timeout_s=WAIT_S)
            return [one.result(WAIT_S).offset for one in answers.values()]

        def is_settled() -> bool:  # repeated while a partition of a new topic does not know its leader
            return clients.retried(lambda: ends(IsolationLevel.READ_COMMITTED) == ends(IsolationLevel.READ_UNCOMMITTED))

        deadline_s = time.monotonic() + WAIT_S
        while not is_settled():
            assert time.monotonic() < deadline_s, f"a transaction stays open in {topic}"
            time.sleep(0.02)

    def messages(self, topic: str, partitions: int, *, is_settling: bool = True) -> list[Message]:
        """All committed records, once no transaction is open any more; or now, where one is to stay open."""
        if is_settling:
            self.settled(topic, partitions)
        consumer = Consumer(
            {
                "bootstrap.servers": self.bootstrap,
                "group.id": "reader",
                "isolation.level": "read_committed",
                "enable.partition.eof": True,
                "auto.offset.reset": "earliest",
                "fetch.wait.max.ms": 20,  # the end is reported once a fetch has waited for records, 500 ms by default
                "reconnect.backoff.ms": 20,
            }
        )
        found: list[Message] = []
        try:
            consumer.assign([TopicPartition(topic, number, 0) for number in range(partitions)])
            ended: set[int | None] = set()
            while len(ended) < partitions:
                message = consumer.poll(WAIT_S)
                assert message is not None, "the topic does not end"
                error = message.error()
                if error is None:
                    found.append(message)
                elif (
                    error.code() == KafkaError._PARTITION_EOF
                ):  # any other error is about a broker, which the client retries
                    ended.add(message.partition())
        finally:
            consumer.close()
        return found


def write(bootstrap: str, topic: str, *records: ConfigRecord) -> None:
    """Write one transaction, as the config store writes the config topic; returns when it can be read, as the store
    does. (A commit is answered before its marker is in the topic.)
    """
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": topic})
    producer.init_transactions(WAIT_S)
    producer.begin_transaction()
    for record in records:
        key, value = config_topic.encode(record)
        producer.produce(topic, key=key, value=value)
    producer.commit_transaction(WAIT_S)
    Kafka(bootstrap).settled(topic, 1)
