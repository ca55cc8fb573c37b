"""`SparkStreamSource` in a whole mesh, by `herd apply`: Kafka's records and numbers that Spark generates go into topics
while runs and workers are killed, and each is there once. Only in the soak: a Spark that has a jar for Kafka is 490 MB.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest
from confluent_kafka import Consumer, TopicPartition

from herdmesh.devstack.broker import Broker
from herdmesh.devstack.jars import ensure_jars
from herdmesh.sdk.spark import task_session
from libs.connectors.tests.spark import lake
from libs.core.tests.engine.harness import Kafka
from tests.chaos.truth import runs_of
from tests.e2e.test_herd import herd
from tests.support import tally
from tests.support.mesh import Mesh, running_mesh
from tests.support.sizes import SOAKING

pytestmark = [
    pytest.mark.kafka,
    pytest.mark.spark,
    pytest.mark.timeout(900),
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.skipif(not SOAKING, reason="a Spark of its own, 490 MB: make soak ARGS=lakehouse"),
]

PARTITIONS = 4
RECORDS = 200_000
"""Records in the first topic when reading begins."""
MORE = 20_000
"""Records written for each kill."""
_STAGE_S = 180.0


async def test_spark_streams_are_exactly_once_while_the_mesh_is_killed(
    kafka: Broker, tmp_path: Path, tmp_topic: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(task_session.JARS_VARIABLE, ",".join(ensure_jars("spark-kafka").split(":")))
    monkeypatch.setenv(task_session.HOME_VARIABLE, str(lake.home()))
    async with running_mesh(tmp_path / "streaming", kafka, workers=2, ends_by_force=True) as mesh:
        topic, out, rate = tmp_topic("in"), tmp_topic("out"), tmp_topic("rate")
        for one, partitions in ((topic, PARTITIONS), (out, PARTITIONS), (rate, 1)):
            mesh.create_topic(one, partitions)
        written = await asyncio.to_thread(mesh.produce, topic, range(RECORDS))
        await _apply(mesh, tmp_path, "clicks", {
            "spark.format": "kafka", "spark.option.kafka.bootstrap.servers": mesh.bootstrap,
            "spark.option.subscribe": topic, "spark.option.startingOffsets": "earliest", "topic": out,
        })  # fmt: skip
        await _until_there(mesh, out, written)
        per_s = await asyncio.to_thread(_records_per_s, mesh.bootstrap, out)
        await _apply(mesh, tmp_path, "numbers", {
            "spark.format": "rate-micro-batch", "spark.option.rowsPerBatch": "1000", "topic": rate,
        })  # fmt: skip
        await _until_there(mesh, rate, 2_000)
        kills = Counter[str]()
        for what in ("run", "worker", "run", "worker"):
            numbers = await asyncio.to_thread(_count, mesh.bootstrap, rate)
            written += await asyncio.to_thread(mesh.produce, topic, range(written, written + MORE))
            kills[what] += await _kill(mesh, what)
            await mesh.until_serving()
            await _until_there(mesh, out, written)
            await _until_there(mesh, rate, numbers + 2_000)
        await mesh.lifecycle("StopConnector", "numbers")
        await mesh.until("numbers", lambda one: one["connector"]["state"] == "STOPPED" and not one["tasks"], "STOPPED")
        broker = Kafka(mesh.bootstrap)
        rows = [json.loads(value or b"") for _, value in await asyncio.to_thread(broker.records, out, PARTITIONS)]
        found = Counter((row["partition"], row["offset"]) for row in rows)
        ends = await asyncio.to_thread(_ends, mesh, topic)
        assert found == Counter((number, offset) for number, end in enumerate(ends) for offset in range(end))
        numbers = Counter(
            json.loads(value or b"")["value"] for _, value in await asyncio.to_thread(broker.records, rate)
        )
        assert numbers == Counter(range(len(numbers)))
        print(f"kafka: {written} records, {per_s:,.0f} a second; rate: {len(numbers)}; killed: {dict(kills)}")
        tally.note("streams in a mesh", runs=1, operations=written + len(numbers), faults=kills)


async def _apply(mesh: Mesh, folder: Path, name: str, config: dict[str, str]) -> None:
    common = {
        "connector.class": "SparkStreamSource", "poll.interval.ms": "200", "tasks.max": "1",
        "value.converter": "org.apache.kafka.connect.json.JsonConverter", "value.converter.schemas.enable": "false",
    }  # fmt: skip
    file = folder / f"{name}.json"
    file.write_text(json.dumps({"name": name, "config": {**common, **config}}))
    code, _, said = await herd(mesh, "apply", "-f", str(file))
    assert code == 0, said
    await mesh.until_running(name, 1)


async def _kill(mesh: Mesh, what: str) -> int:
    """kill -9 of every run that a worker has now, or of the worker of the stream; returns how many processes that were.
    Both connectors' tasks may be on one worker.
    """
    shown = await mesh.get("clicks")
    worker = mesh.service_at(shown["tasks"][0]["worker_id"])
    if what == "worker":
        mesh.kill(worker)
        return 1
    deadline_s = time.monotonic() + _STAGE_S
    while not (runs := await asyncio.to_thread(runs_of, psutil.Process(mesh.pid(worker)))):
        assert time.monotonic() < deadline_s, "no run to be killed"
        await asyncio.sleep(0.05)
    for one in runs:
        one.kill()
    return len(runs)


async def _until_there(mesh: Mesh, topic: str, records: int) -> None:
    """Wait until readers of committed records have so many."""
    deadline_s = time.monotonic() + _STAGE_S
    while (found := await asyncio.to_thread(_count, mesh.bootstrap, topic, records)) < records:
        assert time.monotonic() < deadline_s, f"{found} of {records} in {topic} after {_STAGE_S:g} s"
        await asyncio.sleep(0.2)


def _count(bootstrap: str, topic: str, at_least: int = 0) -> int:
    """Count the records, only when there may be so many: the ends of partitions count markers too."""
    kafka = Kafka(bootstrap)
    partitions = kafka.partition_count(topic)
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "looks"})
    try:
        ends = [consumer.get_watermark_offsets(TopicPartition(topic, number), 20)[1] for number in range(partitions)]
    finally:
        consumer.close()
    return sum(ends) if sum(ends) < at_least else len(kafka.messages(topic, partitions, is_settling=False))


def _records_per_s(bootstrap: str, topic: str) -> float:
    """Rate from the first record's time to the last one's, without the start of Spark."""
    times: list[Any] = [one.timestamp()[1] for one in Kafka(bootstrap).messages(topic, PARTITIONS)]
    return (len(times) - 1) / max(1, max(times) - min(times)) * 1_000


def _ends(mesh: Mesh, topic: str) -> list[int]:
    found = Counter(one.partition() for one in Kafka(mesh.bootstrap).messages(topic, PARTITIONS))
    return [found[number] for number in range(PARTITIONS)]
