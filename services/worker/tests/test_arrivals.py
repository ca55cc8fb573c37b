"""Hearing of a record as soon as Kafka has it, against a real broker."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Generator
from pathlib import Path

import pytest
from confluent_kafka import Producer

from herdmesh.connect.plugins import PluginRegistry, describe
from herdmesh.engine.contract import PartitionProgress, Progress
from herdmesh.worker.connectors.file_stream import FileStreamSink
from herdmesh.worker.effects.arrivals import Arrivals
from herdmesh.worker.effects.idle_watch import IdleWatch
from herdmesh.worker.effects.specs import RunSpecs
from herdmesh.worker.settings import WorkerSettings
from herdmesh.worker.state.events import TaskHasWork
from herdmesh.worker.state.instructions import WatchTask
from herdmesh.worker.state.model import TaskSpec, UnitId
from libs.core.tests.engine.harness import Kafka

pytestmark = pytest.mark.kafka
WAIT_S = 30.0


class Ear:
    """Counts what it is told."""

    def __init__(self) -> None:
        self._told = threading.Semaphore(0)

    def __call__(self) -> None:
        self._told.release()

    def hears(self) -> None:
        assert self._told.acquire(timeout=WAIT_S), "nothing was heard"

    def heard_more(self) -> bool:
        return self._told.acquire(blocking=False)


@pytest.fixture
def kafka_topics(kafka_bootstrap: str) -> Kafka:
    return Kafka(kafka_bootstrap)


@pytest.fixture
def ear() -> Ear:
    return Ear()


@pytest.fixture
def arrivals(kafka_bootstrap: str, ear: Ear) -> Generator[Arrivals]:
    found = Arrivals(kafka_bootstrap, {}, ear)
    yield found
    found.close()
    found.join()


def test_each_end_is_told_once(
    kafka_topics: Kafka, tmp_topic: Callable[..., str], arrivals: Arrivals, ear: Ear
) -> None:
    topic, other = kafka_topics.create_topic(tmp_topic(), 2), kafka_topics.create_topic(f"{tmp_topic()}-other", 1)
    kafka_topics.produce(topic, [b"before"], partition=1)
    arrivals.listen({(topic, 0): 0, (topic, 1): 1, (other, 0): 0})
    kafka_topics.produce(topic, [b"a", b"b"], partition=1)
    ear.hears()
    kafka_topics.produce(topic, [b"c"], partition=1)
    kafka_topics.produce(topic, [b"d"], partition=0)
    ear.hears()  # of partition 0: of 1 nobody named another end
    arrivals.listen({(topic, 1): 4, (other, 0): 0})
    kafka_topics.produce(topic, [b"e"], partition=0)
    kafka_topics.produce(other, [b"f"], partition=0)
    ear.hears()
    kafka_topics.produce(topic, [b"g"], partition=1)
    ear.hears()
    assert not ear.heard_more()


def test_what_a_reader_of_committed_records_does_not_see_is_not_told(
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
    ear.hears()
    assert not ear.heard_more()
    kafka_topics.produce(topic, [b"seen"])
    ear.hears()


async def test_an_idle_task_is_woken_long_before_the_next_look(
    kafka_topics: Kafka, tmp_topic: Callable[..., str], tmp_path: Path
) -> None:
    woken: asyncio.Queue[TaskHasWork] = asyncio.Queue(10)
    settings = WorkerSettings(bootstrap_servers=kafka_topics.bootstrap)
    specs = RunSpecs(settings, PluginRegistry([describe(FileStreamSink)]))
    watch = IdleWatch(settings.bootstrap_servers, {}, 3_600_000, specs, woken.put)
    watch.start()

    def goes_idle(name: str, topic: str, end: int) -> None:
        config = {"name": name, "connector.class": "FileStreamSink", "topics": topic, "file": str(tmp_path / name)}
        read = Progress(partitions=(PartitionProgress(topic, 0, end, end, end),))
        watch.watch(WatchTask(UnitId(name, 0), 1, TaskSpec(config, config, 1), read, 0, True))

    async def wakes() -> str:
        async with asyncio.timeout(WAIT_S):
            return (await woken.get()).unit.connector

    try:
        late, idle = kafka_topics.create_topic(tmp_topic(), 1), kafka_topics.create_topic(f"{tmp_topic()}-idle", 1)
        kafka_topics.produce(late, [b"not read yet"])
        kafka_topics.produce(idle, [b"read"])
        goes_idle("late", late, 0)
        goes_idle("idle", idle, 1)
        assert await wakes() == "late"  # by the first look; the next is in an hour
        kafka_topics.produce(idle, [b"new"])
        assert await wakes() == "idle"
    finally:
        await watch.close()
