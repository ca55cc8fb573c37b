"""A rate limit of a connector whose tasks are on two workers, through the real mesh."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Producer

from herdmesh.cli.display.views import Json
from herdmesh.engine.sink.ownership import owner
from tests.support.mesh import Mesh
from tests.support.sizes import SOAKING, soak_or

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.timed, pytest.mark.asyncio(loop_scope="session")]

STRING = "org.apache.kafka.connect.storage.StringConverter"
LIMIT = 400
TRIES_MAX = 5


def _moved(shown: Json) -> list[int]:
    return [task.get("progress", {}).get("records_in", 0) for task in shown["tasks"]]


async def _rates(mesh: Mesh, name: str, length_s: float) -> list[float]:
    """Records per second of each task, between two progress reports."""

    async def told() -> tuple[float, list[int]]:
        before = sum(_moved(mesh.board.connectors[name]))
        shown = await mesh.until(name, lambda one: sum(_moved(one)) > before, "moving")
        return time.monotonic(), _moved(shown)

    begun_s, before = await told()
    await mesh.until(name, lambda _: time.monotonic() >= begun_s + length_s, "that old")
    ended_s, after = await told()
    return [(later - earlier) / (ended_s - begun_s) for earlier, later in zip(before, after, strict=True)]


def _produce(bootstrap: str, topic: str, partition: int, count: int) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5})
    for number in range(count):
        producer.produce(topic, b"%d" % number, partition=partition)
    assert producer.flush(30) == 0


async def test_tasks_on_two_workers_share_the_limit(mesh: Mesh, tmp_path: Path, tmp_topic: Callable[..., str]) -> None:
    """Three tasks, and only one has records: it uses the whole limit, not a third. Then all have some (soak)."""
    topic = mesh.create_topic(tmp_topic(), partitions=3)
    name, length_s = f"out-{topic}", soak_or(2, 10)
    await asyncio.to_thread(_produce, mesh.bootstrap, topic, 0, LIMIT * (length_s + 40))  # more than it can read
    config = {
        "connector.class": "FileStreamSink",
        "tasks.max": "3",
        "topics": topic,
        "file": str(tmp_path / "out.txt"),
        "key.converter": STRING,
        "value.converter": STRING,
        "herdmesh.trigger": "continuous",
        "herdmesh.rate.records.per.second": str(LIMIT),
    }
    await mesh.apply(name, config)
    shown = await mesh.until_running(name, 3)
    assert len({task["worker_id"] for task in shown["tasks"]}) == 2, "or the test shows nothing"
    hot = owner(topic, 0, 3)
    await mesh.until(name, lambda one: _moved(one)[hot] >= LIMIT * 2, "on its way")
    if (
        not SOAKING
    ):  # a busy machine has stretches in which it moves less: the test still finds a third of the limit, and none
        stretches: list[list[float]] = []
        while not (stretches and stretches[-1][hot] > LIMIT / 2):
            assert len(stretches) < TRIES_MAX, stretches
            stretches.append(await _rates(mesh, name, length_s))
            assert sum(stretches[-1]) < LIMIT * 2, stretches
        await mesh.delete(name)
        return
    rates = await _rates(mesh, name, length_s)
    close = 0.05
    assert sum(rates) == pytest.approx(LIMIT, rel=close), rates
    assert rates[hot] == pytest.approx(LIMIT, rel=close), rates
    for partition in range(3):
        await asyncio.to_thread(_produce, mesh.bootstrap, topic, partition, LIMIT * length_s)
    await mesh.until(name, lambda one: min(_moved(one)) >= LIMIT, "on their way")
    rates = await _rates(mesh, name, length_s)
    assert sum(rates) == pytest.approx(LIMIT, rel=close), rates
    assert min(rates) >= LIMIT / 3 * 0.9, "each has its part"
