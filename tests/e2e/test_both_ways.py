"""A file's lines through Kafka into Parquet and back into a file, through the real mesh."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.dataset
import pytest

from herdmesh.api.herder.v1 import admin_messages_pb2 as admin_messages
from herdmesh.rpc.request_ids import new_request_id
from tests.support.mesh import Mesh, assert_exact, parquet_sink

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.asyncio(loop_scope="session")]

STRING = "org.apache.kafka.connect.storage.StringConverter"


def _source(file: Path, topic: str) -> dict[str, Any]:
    return {
        "connector.class": "org.apache.kafka.connect.file.FileStreamSourceConnector",
        "tasks.max": "1",
        "file": str(file),
        "topic": topic,
        "key.converter": STRING,
        "value.converter": STRING,
    }


async def test_file_to_topic_to_parquet(mesh: Mesh, tmp_path: Path, tmp_topic: Callable[..., str]) -> None:
    """Both connectors by Java class name and short name, transformations applied, an appended file followed."""
    topic = mesh.create_topic(tmp_topic())
    file, folder = tmp_path / "in.jsonl", tmp_path / "out"
    rows = [{"id": number, "email": f"user{number}@example.com", "note": f"n{number}"} for number in range(2_000)]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows[:1_500]))
    await mesh.apply(f"in-{topic}", _source(file, topic))
    await mesh.apply(
        f"out-{topic}",
        parquet_sink(
            topic,
            folder,
            2,
            **{
                "transforms": "src,mask,ren",
                "transforms.src.type": "org.apache.kafka.connect.transforms.InsertField$Value",
                "transforms.src.static.field": "source",
                "transforms.src.static.value": "x",
                "transforms.mask.type": "org.apache.kafka.connect.transforms.MaskField$Value",
                "transforms.mask.fields": "email",
                "transforms.ren.type": "org.apache.kafka.connect.transforms.ReplaceField$Value",
                "transforms.ren.renames": "note:comment",
            },
        ),
    )
    await mesh.until_running(f"in-{topic}", 1)
    await mesh.until_running(f"out-{topic}", 2)
    await mesh.until_published(folder, 1_500, timeout_s=60)
    with file.open("a") as more:
        more.write("".join(json.dumps(row) + "\n" for row in rows[1_500:]))
    await mesh.until_published(folder, 2_000, timeout_s=60)
    assert_exact(folder, 2_000)
    found: Any = pyarrow.dataset
    table = found.dataset([str(one) for one in folder.glob("*.parquet")]).to_table()
    first = next(row for row in table.to_pylist() if row["id"] == 7)
    assert first == {"id": 7, "email": "", "comment": "n7", "source": "x"}


async def test_topic_to_file_and_idle_tasks_wake(mesh: Mesh, tmp_path: Path, tmp_topic: Callable[..., str]) -> None:
    """A file sink writes each value as a line; once it is idle, new records wake it."""
    topic = mesh.create_topic(tmp_topic(), partitions=1)
    file, name = tmp_path / "out.txt", f"out-{topic}"
    config = {
        "connector.class": "FileStreamSink",
        "tasks.max": "1",
        "topics": topic,
        "file": str(file),
        "key.converter": STRING,
        "value.converter": STRING,
        "herdmesh.linger.ms": "300",
    }
    mesh.produce(topic, range(500))
    await mesh.apply(name, config)
    await mesh.until_running(name, 1)
    await _until_lines(file, 500)
    await mesh.until(
        name, lambda one: one["tasks"][0].get("progress", {}).get("activity") == "IDLE", "idle after its linger time"
    )
    mesh.produce(topic, range(500, 600))
    await _until_lines(file, 600)
    assert [json.loads(line)["id"] for line in file.read_text().splitlines()] == list(range(600))


async def test_source_resumes_at_its_offset(mesh: Mesh, tmp_path: Path, tmp_topic: Callable[..., str]) -> None:
    """Stopped and resumed, or deleted and recreated, a file source sends only new lines: its offset is in
    Connect's offsets topic.
    """
    topic = mesh.create_topic(tmp_topic(), partitions=1)
    file, name = tmp_path / "in.txt", f"in-{topic}"
    file.write_text("".join(f"line {number}\n" for number in range(100)))
    await mesh.apply(name, _source(file, topic))
    assert len(await asyncio.to_thread(mesh.consume_values, topic, 100)) == 100
    await mesh.lifecycle("StopConnector", name)
    await mesh.until(name, lambda one: one["connector"]["state"] == "STOPPED" and not _running(one), "STOPPED")
    with file.open("a") as more:
        more.write("line 100\n")
    await mesh.lifecycle("ResumeConnector", name)
    await mesh.until_running(name, 1)
    values = await asyncio.to_thread(mesh.consume_values, topic, 101)
    assert values == [f"line {number}".encode() for number in range(101)]
    await _until_topics(mesh, name, [topic])
    reset = admin_messages.ResetTopicsRequest(request_id=new_request_id(), name=name)
    await mesh.client.call(lambda stub: stub.ResetTopics, reset)
    await _until_topics(mesh, name, [])
    with file.open("a") as more:
        more.write("line 101\n")
    await _until_topics(mesh, name, [topic])
    await mesh.delete(name)
    await _until_topics(mesh, name, [])
    # A deleted connector leaves its offsets: a new one of the same name continues from them.
    with file.open("a") as more:
        more.write("line 102\n")
    await mesh.apply(name, _source(file, topic))
    values = await asyncio.to_thread(mesh.consume_values, topic, 103)
    assert values == [f"line {number}".encode() for number in range(103)]


async def _until_topics(mesh: Mesh, name: str, topics: list[str]) -> None:
    """Wait until these are the topics that the connector is known to use (KIP-558)."""
    request = admin_messages.ListTopicsRequest(name=name)
    async with asyncio.timeout(60):
        found = await mesh.client.call(lambda stub: stub.ListTopics, request)
        while list(found.topics) != topics:
            await asyncio.sleep(0.2)
            found = await mesh.client.call(lambda stub: stub.ListTopics, request)


def _running(shown: dict[str, Any]) -> bool:
    return any(task["state"] == "RUNNING" for task in shown["tasks"])


async def _until_lines(file: Path, lines: int, timeout_s: float = 60.0) -> None:
    def count() -> int:
        return file.read_text().count("\n") if file.exists() else 0

    async with asyncio.timeout(timeout_s):
        found = await asyncio.to_thread(count)
        while found < lines:
            await asyncio.sleep(0.1)
            found = await asyncio.to_thread(count)
