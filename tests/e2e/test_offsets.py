"""Offsets of connectors on a real mesh (KIP-875): read while they run, changed while they are stopped, with a count of
the resulting records. A reset must not look like a loss to the next run.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from herdmesh.api.herder.v1 import offset_messages_pb2 as pb
from herdmesh.cli.errors import CommandError
from tests.support.mesh import Mesh

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.asyncio(loop_scope="session")]

STRING = "org.apache.kafka.connect.storage.StringConverter"
DONE = "The offsets for this connector have been {} successfully"
YEAR_2026_S = 1_767_225_600


class Offsets:
    """A user's view of the offsets of one connector; pairs of partition and offset as JSON."""

    def __init__(self, mesh: Mesh, name: str) -> None:
        self.mesh, self.name = mesh, name
        self.message = ""

    async def get(self) -> list[tuple[Any, Any]]:
        reply = await self.mesh.client.call(lambda stub: stub.GetOffsets, pb.GetOffsetsRequest(name=self.name))
        return documents(reply)

    async def alter(self, *offsets: tuple[Any, Any], dry_run: bool = False) -> list[tuple[Any, Any]]:
        request = pb.AlterOffsetsRequest(name=self.name, dry_run=dry_run)
        for partition, offset in offsets:
            entry = request.offsets.add(partition_json=json.dumps(partition))
            if offset is not None:
                entry.offset_json = json.dumps(offset)
        return self._told(await self.mesh.client.call(lambda stub: stub.AlterOffsets, request))

    async def reset(self, request_id: str = "", *, dry_run: bool = False) -> list[tuple[Any, Any]]:
        request = pb.ResetOffsetsRequest(name=self.name, request_id=request_id, dry_run=dry_run)
        return self._told(await self.mesh.client.call(lambda stub: stub.ResetOffsets, request))

    async def rewind(self, time_s: int) -> list[tuple[Any, Any]]:
        request = pb.RewindOffsetsRequest(name=self.name)
        request.time.FromDatetime(datetime.fromtimestamp(time_s, UTC))
        return self._told(await self.mesh.client.call(lambda stub: stub.RewindOffsets, request))

    def _told(self, reply: Any) -> list[tuple[Any, Any]]:
        self.message = reply.message
        return documents(reply)


def documents(reply: Any) -> list[tuple[Any, Any]]:
    return [(json.loads(one.partition_json), json.loads(one.offset_json)) for one in reply.offsets]


def at(topic: str, *offsets: tuple[int, int]) -> list[tuple[Any, Any]]:
    return [
        ({"kafka_topic": topic, "kafka_partition": partition}, {"kafka_offset": offset})
        for partition, offset in offsets
    ]


def lines(file: Path) -> list[str]:
    return file.read_text().split() if file.exists() else []


async def until_lines(file: Path, expected: list[str]) -> None:
    """Wait for exactly these lines, in any order."""
    async with asyncio.timeout(60):
        found = await asyncio.to_thread(lines, file)
        while len(found) < len(expected):
            await asyncio.sleep(0.05)
            found = await asyncio.to_thread(lines, file)
    assert sorted(found) == sorted(expected)


async def test_a_sink_continues_from_its_altered_offset(
    mesh: Mesh, tmp_path: Path, tmp_topic: Callable[..., str]
) -> None:
    topic, file = mesh.create_topic(tmp_topic(), partitions=2), tmp_path / "out.txt"
    name = f"snk-{topic}"
    producer = Producer({"bootstrap.servers": mesh.bootstrap})
    for number in range(3):
        for partition in (0, 1):
            when_ms = (YEAR_2026_S + number) * 1_000
            producer.produce(topic, f"{partition}:{number}", partition=partition, timestamp=when_ms)
    assert producer.flush(30) == 0
    everything = [f"{partition}:{number}" for partition in (0, 1) for number in range(3)]
    offsets = Offsets(mesh, name)
    config = {"connector.class": "FileStreamSink", "topics": topic, "file": str(file), "tasks.max": "2"}
    await mesh.apply(name, config | dict.fromkeys(("key.converter", "value.converter"), STRING))
    await mesh.until_committed(name, topic)
    await until_lines(file, everything)
    assert await offsets.get() == at(topic, (0, 3), (1, 3))
    with pytest.raises(CommandError) as running:
        await offsets.alter(*at(topic, (0, 2)))
    assert running.value.reason == "CONNECTOR_NOT_STOPPED"

    await mesh.lifecycle("StopConnector", name)
    with pytest.raises(CommandError, match="create their topics first"):
        await offsets.alter(*at(topic, (0, 2), (9, 0)))
    assert await offsets.alter(*at(topic, (0, 1)), dry_run=True) == at(topic, (0, 1), (1, 3))
    assert await offsets.get() == at(topic, (0, 3), (1, 3))
    assert await offsets.alter(*at(topic, (0, 2))) == at(topic, (0, 2), (1, 3))
    assert offsets.message == DONE.format("altered")
    expected = [*everything, "0:2"]
    await mesh.lifecycle("ResumeConnector", name)
    await until_lines(file, expected)
    await mesh.until_committed(name, topic)

    await mesh.lifecycle("StopConnector", name)
    before = await offsets.reset(f"reset-{name}")
    assert (before, offsets.message) == (at(topic, (0, 3), (1, 3)), DONE.format("reset"))
    assert await offsets.get() == []
    assert await offsets.reset(f"reset-{name}") == before, "a retry is told the first outcome"
    await mesh.lifecycle("ResumeConnector", name)
    expected += everything
    await until_lines(file, expected)  # by auto.offset.reset, and no DATA_LOSS
    await mesh.until_committed(name, topic)

    await mesh.lifecycle("StopConnector", name)
    assert await offsets.rewind(YEAR_2026_S + 1) == at(topic, (0, 1), (1, 1))
    await mesh.lifecycle("ResumeConnector", name)
    await until_lines(file, expected + [one for one in everything if not one.endswith(":0")])


async def test_a_source_continues_from_its_altered_offset(
    mesh: Mesh, tmp_path: Path, tmp_topic: Callable[..., str]
) -> None:
    file, topic = tmp_path / "in.txt", mesh.create_topic(tmp_topic(), partitions=1)
    file.write_text("first\nsecond\nthird\n")
    name, partition = f"src-{topic}", {"filename": str(file)}
    offsets = Offsets(mesh, name)
    config = {"connector.class": "FileStreamSource", "file": str(file), "topic": topic, "value.converter": STRING}
    await mesh.apply(name, config)
    expected = [b"first", b"second", b"third"]
    assert await asyncio.to_thread(mesh.consume_values, topic, 3) == expected
    await mesh.lifecycle("StopConnector", name)
    stopped = [(partition, {"position": 19})]
    with pytest.raises(CommandError, match="cannot be rewound to a time"):
        await offsets.rewind(YEAR_2026_S)
    with pytest.raises(CommandError, match="should be a non-negative value"):
        await offsets.alter((partition, {"position": -1}), dry_run=True)
    assert await offsets.reset(dry_run=True) == stopped
    assert await offsets.get() == stopped
    assert await offsets.alter((partition, {"position": 6})) == [(partition, {"position": 6})]
    assert offsets.message == DONE.format("altered")
    await mesh.lifecycle("ResumeConnector", name)
    expected += [b"second", b"third"]
    assert await asyncio.to_thread(mesh.consume_values, topic, 5) == expected

    await mesh.lifecycle("StopConnector", name)
    assert await offsets.reset() == stopped
    assert await offsets.get() == []
    await mesh.lifecycle("ResumeConnector", name)
    expected += [b"first", b"second", b"third"]
    assert await asyncio.to_thread(mesh.consume_values, topic, 8) == expected
    await mesh.until_running(name, 1)


async def test_offsets_of_an_unknown_connector_are_refused(mesh: Mesh) -> None:
    with pytest.raises(CommandError) as unknown:
        await Offsets(mesh, "nobody").get()
    assert unknown.value.reason == "CONNECTOR_NOT_FOUND"
    with pytest.raises(CommandError) as unknown:
        await Offsets(mesh, "nobody").reset()
    assert unknown.value.reason == "CONNECTOR_NOT_FOUND"
