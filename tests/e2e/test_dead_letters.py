"""Records that a sink cannot read, from failure to an empty queue: dead letters listed, shown, repaired, replayed, as a
script would.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from herdmesh.api.herder.v1 import admin_messages_pb2 as admin
from tests.e2e.test_herd import herd
from tests.support.mesh import Mesh

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.asyncio(loop_scope="session")]

WAIT_S = 60.0


def lines_of(file: Path) -> list[str]:
    return file.read_text().splitlines() if file.exists() else []


async def until_lines(file: Path, count: int) -> list[str]:
    """Lines that a file sink has written, once there are so many."""
    async with asyncio.timeout(WAIT_S):
        while True:
            lines = await asyncio.to_thread(lines_of, file)
            if len(lines) >= count:
                return lines
            await asyncio.sleep(0.1)


async def until_left(mesh: Mesh, name: str, *offsets: int) -> Sequence[admin.DeadLetter]:
    """The remaining dead letters, once they are these, newest first."""
    async with asyncio.timeout(WAIT_S):
        while True:
            request = admin.ListDeadLettersRequest(name=name)
            found = (await mesh.client.call(lambda stub: stub.ListDeadLetters, request)).letters
            if [one.offset for one in found] == [*offsets]:
                return found
            await asyncio.sleep(0.1)


async def test_dead_letters_are_replayed_until_none_is_left(
    mesh: Mesh, tmp_path: Path, tmp_topic: Callable[..., str]
) -> None:
    topic, queue, file, json_out = mesh.create_topic(tmp_topic(), 1), tmp_topic("dlq"), tmp_path / "out", ("-o", "json")
    name = f"sink-{topic}"
    for value in (b'{"id":1}', b"{bad", b'{"id":2}', b"{worse"):
        mesh.produce_raw(topic, 0, value)
    await mesh.apply(
        name,
        {
            "connector.class": "FileStreamSink", "topics": topic, "file": str(file), "herdmesh.linger.ms": "1000",
            "key.converter": "org.apache.kafka.connect.storage.StringConverter",
            "value.converter": "org.apache.kafka.connect.json.JsonConverter", "value.converter.schemas.enable": "false",
            "errors.tolerance": "all", "errors.deadletterqueue.topic.name": queue,
            "errors.deadletterqueue.topic.replication.factor": "1",
            "errors.deadletterqueue.context.headers.enable": "true",
        },
    )  # fmt: skip
    await until_lines(file, 2)
    await until_left(mesh, name, 1, 0)

    code, listed, _ = await herd(mesh, "dlq", "list", name, *json_out)
    assert (code, [one["letter"] for one in listed]) == (0, ["0:1", "0:0"])
    assert listed[1]["original"] == {"topic": topic, "partition": 0, "offset": 1}
    code, letter, _ = await herd(mesh, "dlq", "show", name, "0:0", *json_out)
    assert (code, letter["value"], letter["error"]["stage"]) == (0, "{bad", "VALUE_CONVERTER")

    # repaired it is read; replayed unchanged it fails again, and becomes a new dead letter
    mended = json.dumps({**letter, "value": {"id": 3}})
    code, done, _ = await herd(mesh, "dlq", "replay", name, "-f", "-", *json_out, stdin=mended)
    assert (code, done["replayed_count"], done["refused"]) == (0, 1, [])
    assert len(await until_lines(file, 3)) == 3
    code, done, _ = await herd(mesh, "dlq", "replay", name, "--all", *json_out)
    assert (code, [one["letter"] for one in done["replayed"]]) == (0, ["0:1"])
    (again,) = await until_left(mesh, name, 2)
    assert [(one.name, one.value) for one in again.headers] == [("__herdmesh.replayed", f"{queue}-0@1".encode())]

    mended = json.dumps([{**listed[0], "letter": "0:2", "value": '{"id":4}'}])
    code, text, _ = await herd(mesh, "dlq", "replay", name, "-f", "-", stdin=mended)
    assert (code, text.strip()) == (0, f"1 dead letter of {name} replayed: 1 to {topic}")
    assert len(await until_lines(file, 4)) == 4
    code, text, _ = await herd(mesh, "dlq", "list", name)
    assert (code, text.strip()) == (0, f"no dead letters of {name} are left")
