"""Arrival hints as soon as Kafka has a record, against a real broker."""

from __future__ import annotations

import asyncio
import itertools
import queue
import threading
import time
from collections.abc import Callable, Generator, Mapping
from pathlib import Path
from typing import Any, Self

import pytest
from confluent_kafka import Consumer, KafkaException, Message, Producer

from herdmesh.connect.plugins.plugin_registry import PluginRegistry, describe
from herdmesh.connect.spi.connector import PartitionId
from herdmesh.connectors.file_stream.sink.connector import FileStreamSink
from herdmesh.engine.runtime.contract import PartitionProgress, ProgressReport
from herdmesh.session.model import UnitId
from herdmesh.worker.effects.runs.arrival_watch import Arrivals
from herdmesh.worker.effects.runs.idle_watch import IdleWatch
from herdmesh.worker.effects.runs.specs import RunSpecs
from herdmesh.worker.settings import WorkerSettings
from herdmesh.worker.state.events import TaskHasWork, TaskWaits
from herdmesh.worker.state.instructions import WatchTask
from herdmesh.worker.state.model import TaskSpec
from libs.core.tests.engine.harness import Kafka

pytestmark = pytest.mark.kafka
WAIT_S = 30.0


class Ear:
    """Callback that keeps the partition of each call: the one whose record the watching thread took last."""

    def __init__(self) -> None:
        self.taken: PartitionId = ("", -1)
        self._told: queue.Queue[PartitionId] = queue.Queue(100)

    def __call__(self) -> None:
        self._told.put_nowait(self.taken)

    def hears(self) -> PartitionId:
        return self._told.get(timeout=WAIT_S)

    def heard_more(self) -> bool:
        return not self._told.empty()


@pytest.fixture
def kafka_topics(kafka_bootstrap: str) -> Kafka:
    return Kafka(kafka_bootstrap)


@pytest.fixture
def ear() -> Ear:
    return Ear()


@pytest.fixture
def arrivals(kafka_bootstrap: str, ear: Ear, monkeypatch: pytest.MonkeyPatch) -> Generator[Arrivals]:
    class Noted(Consumer):
        def poll(self, timeout: float = -1) -> Message | None:
            message = super().poll(timeout)
            if message is not None:
                ear.taken = (message.topic() or "", message.partition() or 0)
            return message

    monkeypatch.setattr("herdmesh.worker.effects.runs.arrival_watch.Consumer", Noted)
    found = Arrivals(kafka_bootstrap, {}, ear)
    yield found
    found.close()
    found.join()


def test_an_arrival_is_reported_once_for_each_end(
    kafka_topics: Kafka, tmp_topic: Callable[..., str], arrivals: Arrivals, ear: Ear
) -> None:
    topic, other = kafka_topics.create_topic(tmp_topic(), 2), kafka_topics.create_topic(f"{tmp_topic()}-other", 1)
    last = kafka_topics.create_topic(f"{tmp_topic()}-last", 1)
    kafka_topics.produce(topic, [b"before"], partition=1)
    arrivals.listen({(topic, 0): 0, (topic, 1): 1, (other, 0): 0})
    kafka_topics.produce(topic, [b"a", b"b"], partition=1)
    assert ear.hears() == (topic, 1)
    kafka_topics.produce(topic, [b"c"], partition=1)
    kafka_topics.produce(topic, [b"d"], partition=0)
    assert ear.hears() == (topic, 0), "of 1 nobody named another end"
    arrivals.listen({(topic, 1): 4, (other, 0): 0, (last, 0): 0})
    kafka_topics.produce(topic, [b"e"], partition=0)
    kafka_topics.produce(other, [b"f"], partition=0)
    assert ear.hears() == (other, 0), "nobody listens to 0 any more"
    kafka_topics.produce(topic, [b"g"], partition=1)
    assert ear.hears() == (topic, 1), "another end was named"
    for partition in (0, 1):
        kafka_topics.produce(topic, [b"h"], partition=partition)
    kafka_topics.produce(other, [b"i"], partition=0)
    kafka_topics.produce(last, [b"j"], partition=0)
    assert ear.hears() == (last, 0), "the others were told"
    assert not ear.heard_more()


def test_records_invisible_to_read_committed_are_not_reported(
    kafka_topics: Kafka, tmp_topic: Callable[..., str], arrivals: Arrivals, ear: Ear
) -> None:
    topic, last = kafka_topics.create_topic(tmp_topic(), 1), kafka_topics.create_topic(f"{tmp_topic()}-last", 1)
    arrivals.listen({(topic, 0): 0, (last, 0): 0})
    producer = Producer({"bootstrap.servers": kafka_topics.bootstrap, "transactional.id": tmp_topic("id")})
    producer.init_transactions()
    producer.begin_transaction()
    producer.produce(topic, b"never")
    producer.flush()
    producer.abort_transaction()
    kafka_topics.produce(last, [b"seen"])
    assert ear.hears() == (last, 0)
    assert not ear.heard_more()
    kafka_topics.produce(topic, [b"seen"])
    assert ear.hears() == (topic, 0)


def test_the_watch_retries_with_a_new_client_after_a_failure(
    kafka_topics: Kafka, tmp_topic: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first client is refused and the second one's `poll` raises another error; the third works, and its log lines
    are polled while no partition is watched.
    """
    failing = iter([KafkaException("no such setting"), RuntimeError("whatever"), None])
    heard, polled_idle = threading.Event(), threading.Event()

    class Failing(Consumer):
        def __init__(self, *given: Any, **named: Any) -> None:
            self._failure = next(failing)
            if isinstance(self._failure, KafkaException):
                raise self._failure
            super().__init__(*given, **named)

        def poll(self, timeout: float = -1) -> Message | None:
            if self._failure is not None:
                raise self._failure
            if not self.assignment():
                polled_idle.set()
            return super().poll(timeout)

    monkeypatch.setattr("herdmesh.worker.effects.runs.arrival_watch.Consumer", Failing)
    monkeypatch.setattr("herdmesh.worker.effects.runs.arrival_watch._RETRY_PAUSE_S", 0.01)
    monkeypatch.setattr("herdmesh.worker.effects.runs.arrival_watch._LOG_POLL_S", 0.01)
    topic = kafka_topics.create_topic(tmp_topic(), 1)
    arrivals = Arrivals(kafka_topics.bootstrap, {}, heard.set)
    try:
        arrivals.listen({(topic, 0): 0})
        kafka_topics.produce(topic, [b"a"])
        assert heard.wait(WAIT_S)
        assert polled_idle.wait(WAIT_S)
    finally:
        arrivals.close()
        arrivals.join()
    assert next(failing, "none is left") == "none is left"


class Watched:
    """An idle watch with rounds an hour apart unless there is an arrival, and the task it woke."""

    def __init__(self, bootstrap_servers: str, folder: Path) -> None:
        self._folder = folder
        self._woken: asyncio.Queue[TaskHasWork | TaskWaits] = asyncio.Queue(10)
        specs = RunSpecs(
            WorkerSettings(bootstrap_servers=bootstrap_servers), PluginRegistry([describe(FileStreamSink)])
        )
        self._watch = IdleWatch(bootstrap_servers, {}, 3_600_000, specs, self._woken.put)

    async def __aenter__(self) -> Self:
        self._watch.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._watch.close()

    def goes_idle(self, name: str, topic: str, end: int) -> None:
        config = {"name": name, "connector.class": "FileStreamSink", "topics": topic, "file": str(self._folder / name)}
        read = ProgressReport(partitions=(PartitionProgress(topic, 0, end, end, end),))
        self._watch.watch(WatchTask(UnitId(name, 0), 1, TaskSpec(config, config, 1), read, 0))

    async def wakes(self) -> str:
        async with asyncio.timeout(WAIT_S):
            return (await self._woken.get()).unit.connector


async def test_an_arrival_wakes_an_idle_task_long_before_the_next_round(
    kafka_topics: Kafka, tmp_topic: Callable[..., str], tmp_path: Path
) -> None:
    late, idle = kafka_topics.create_topic(tmp_topic(), 1), kafka_topics.create_topic(f"{tmp_topic()}-idle", 1)
    kafka_topics.produce(late, [b"not read yet"])
    kafka_topics.produce(idle, [b"read"])
    async with Watched(kafka_topics.bootstrap, tmp_path) as watch:
        watch.goes_idle("late", late, 0)
        watch.goes_idle("idle", idle, 1)
        assert await watch.wakes() == "late"  # by the first round; the next is in an hour
        kafka_topics.produce(idle, [b"new"])
        assert await watch.wakes() == "idle"


async def test_a_recreated_topic_wakes_its_task_with_a_lower_end(
    kafka_topics: Kafka, tmp_topic: Callable[..., str], tmp_path: Path
) -> None:
    topic = kafka_topics.create_topic(tmp_topic(), 1)
    async with Watched(kafka_topics.bootstrap, tmp_path) as watch:
        kafka_topics.produce(topic, [b"of the new one"])
        watch.goes_idle("remade", topic, 1_000)
        assert await watch.wakes() == "remade"


async def test_rounds_keep_a_minimum_distance_however_many_arrivals_come(
    kafka_topics: Kafka, tmp_topic: Callable[..., str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: asyncio.Queue[float] = asyncio.Queue(1_000)

    class Restless:
        """Reports an arrival at once, whatever is watched."""

        def __init__(self, _: str, __: Mapping[str, str], heard: Callable[[], None]) -> None:
            self._heard = heard

        def listen(self, ends: Mapping[PartitionId, int]) -> None:
            if ends:
                looks.put_nowait(time.monotonic())
                self._heard()

        def close(self) -> None: ...

        def join(self) -> None: ...

    monkeypatch.setattr("herdmesh.worker.effects.runs.idle_watch.Arrivals", Restless)
    topic = kafka_topics.create_topic(tmp_topic(), 1)
    async with Watched(kafka_topics.bootstrap, tmp_path) as watch, asyncio.timeout(WAIT_S):
        watch.goes_idle("idle", topic, 0)
        at = [await looks.get() for _ in range(10)]
    assert min(after - before for before, after in itertools.pairwise(at)) > 0.015


def test_the_watch_starts_its_thread_at_the_next_call_if_it_could_not(
    arrivals: Arrivals, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else idle sinks would wait for the slower polls until the worker ends."""
    started = list[str]()

    def start(thread: threading.Thread) -> None:
        started.append(thread.name)
        if len(started) == 1:
            raise RuntimeError("can't start new thread")

    with monkeypatch.context() as full:
        full.setattr(threading.Thread, "start", start)
        with pytest.raises(RuntimeError, match="new thread"):
            arrivals.listen({("t", 0): 1})
        arrivals.listen({("t", 0): 2})
        arrivals.listen({("t", 0): 3})
    assert started == ["arrivals", "arrivals"]
    arrivals._thread = None  # pyright: ignore[reportPrivateUsage] - it was not really started
