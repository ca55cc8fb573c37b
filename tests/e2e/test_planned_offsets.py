"""The offsets in a plan, compared with the effect: planned, applied, and the records counted, over the real mesh."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition

from herdmesh.api.herder.v1 import config_messages_pb2 as messages
from herdmesh.rpc import properties
from tests.support.mesh import Mesh

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.asyncio(loop_scope="session")]

STRING = "org.apache.kafka.connect.storage.StringConverter"
CREATED = (
    "Offsets: it continues from those that an earlier connector of this name left, if there are any; initial offsets "
    "can be given with the create."
)


async def planned(mesh: Mesh, name: str, config: dict[str, str | None]) -> list[str]:
    """The plan's lines about offsets."""
    request = messages.PlanConfigRequest(name=name, config=properties.to_proto(config))
    found = await mesh.client.call(lambda stub: stub.PlanConfig, request)
    return [note for note in found.notes if note.startswith("Offsets:")]


class Sink:
    """A connector that writes each value as a line, and the test's position in its lines."""

    def __init__(self, mesh: Mesh, name: str, file: Path) -> None:
        self.mesh, self.name, self.file, self.read = mesh, name, file, 0

    async def plan(self, topics: str, **more: str) -> list[str]:
        return await planned(self.mesh, self.name, self.config(topics, **more))

    async def apply(self, topics: str, **more: str) -> None:
        await self.mesh.apply(self.name, dict(self.config(topics, **more)))

    def config(self, topics: str, **more: str) -> dict[str, str | None]:
        found: dict[str, str | None] = {
            "connector.class": "FileStreamSink",
            "topics": topics,
            "file": str(self.file),
            **more,
        }
        return found | dict.fromkeys(("key.converter", "value.converter"), STRING)

    async def lines(self, expected: list[str]) -> None:
        """Check that exactly these lines are new since the last call, sorted; additional ones would show at the
        next.
        """
        async with asyncio.timeout(60):
            found = await asyncio.to_thread(self._new)
            while len(found) < len(expected):
                await asyncio.sleep(0.1)
                found = await asyncio.to_thread(self._new)
        assert sorted(found) == expected
        self.read += len(found)

    def _new(self) -> list[str]:
        text = self.file.read_text() if self.file.exists() else ""
        return text[: text.rfind("\n") + 1].splitlines()[self.read :]


def write(mesh: Mesh, topic: str, *values: str) -> None:
    for value in values:
        mesh.produce_raw(topic, 0, value.encode())


def commit(mesh: Mesh, group: str, topic: str, offset: int) -> None:
    consumer = Consumer({"bootstrap.servers": mesh.bootstrap, "group.id": group})
    try:
        consumer.commit(offsets=[TopicPartition(topic, 0, offset)], asynchronous=False)
    finally:
        consumer.close()


async def test_a_sink_reads_from_the_offsets_of_its_plan(
    mesh: Mesh, tmp_path: Path, tmp_topic: Callable[..., str]
) -> None:
    """Other topics, another group, and deleted and recreated: records that are read again and records that are not."""
    t, u, v = (mesh.create_topic(tmp_topic(which), partitions=1) for which in "tuv")
    name, group = f"sink-{t}", tmp_topic("group")
    sink = Sink(mesh, name, tmp_path / "out.txt")
    write(mesh, t, "t0", "t1")
    write(mesh, u, "u0", "u1")
    write(mesh, v, "v0", "v1")
    assert await sink.plan(f"{t},{u}") == [CREATED]
    await sink.apply(f"{t},{u}")
    await sink.lines(["t0", "t1", "u0", "u1"])
    await asyncio.gather(mesh.until_committed(name, t), mesh.until_committed(name, u))

    assert await sink.plan(f"{u},{v}") == [
        f"Offsets: {t} would no longer be read; the committed offsets stay in group connect-{name}.",
        f"Offsets: {v} would be read from the offsets in group connect-{name}, else from the beginning.",
    ]
    await sink.apply(f"{u},{v}")
    await sink.lines(["v0", "v1"])
    write(mesh, t, "t2")
    write(mesh, u, "u2")
    await sink.lines(["u2"])
    await asyncio.gather(mesh.until_committed(name, u), mesh.until_committed(name, v))
    assert mesh.committed(name, t) == 2, "stays"

    other = {"consumer.override.group.id": group}
    late = {"consumer.override.auto.offset.reset": "latest"}
    notes = [
        f"Offsets: another consumer group, {group}: it begins from that group's offsets, where it has none from the "
        f"beginning; the offsets of group connect-{name} stay.",
        f"Offsets: {v} would no longer be read; the committed offsets stay in group connect-{name}.",
    ]
    assert await sink.plan(u, **other) == notes
    await sink.apply(u, **other)
    await sink.lines(["u0", "u1", "u2"])

    # The previous group is as it was left, by the change and by the deletion.
    await mesh.delete(name)
    commit(mesh, group, v, 1)
    assert await sink.plan(f"{t},{v}", **other, **late) == [CREATED]
    await sink.apply(f"{t},{v}", **other, **late)
    await sink.lines(["v1"])
    write(mesh, t, "t3")
    await sink.lines(["t3"])
    assert await sink.plan(f"{t},{u},{v}") == [
        f"Offsets: another consumer group, connect-{name}: it begins from that group's offsets, where it has none from "
        f"the beginning; the offsets of group {group} stay.",
        f"Offsets: {u} would be read from the offsets in group connect-{name}, else from the beginning.",
    ]
    await sink.apply(f"{t},{u},{v}")
    await sink.lines(["t2", "t3"])
    await asyncio.gather(*(mesh.until_committed(name, topic) for topic in (t, u, v)))
    await sink.lines([])


async def test_a_source_continues_at_the_offsets_of_its_plan(
    mesh: Mesh, tmp_path: Path, tmp_topic: Callable[..., str]
) -> None:
    """Another file and back, another topic to write to, an offsets topic of its own and back."""
    topic, second = (mesh.create_topic(tmp_topic(which), partitions=1) for which in ("one", "two"))
    name, own, a, b = f"src-{topic}", tmp_topic("offsets"), tmp_path / "a.txt", tmp_path / "b.txt"
    base: dict[str, str | None] = {"connector.class": "FileStreamSource", "value.converter": STRING}
    seen: list[bytes] = []

    async def step(says: list[str], sends: str, **config: str) -> None:
        assert await planned(mesh, name, base | config) == says
        await mesh.apply(name, base | config)
        seen.append(sends.encode())
        assert await asyncio.to_thread(mesh.consume_values, second, len(seen)) == seen

    def other_file(new: Path, old: Path) -> str:
        begins = "begins at its own offset, else at its beginning"
        return f"Offsets: they are kept by file name: {new} {begins}; the offset of {old} stays."

    a.write_text("a0\na1\n")
    b.write_text("b0\n")
    await mesh.apply(name, {**base, "file": str(a), "topic": topic})
    assert await asyncio.to_thread(mesh.consume_values, topic, 2) == [b"a0", b"a1"]
    own_topic = (
        f"Offsets: another offsets topic, {own}: a source partition continues from its offset there, if it has "
        "one, else from its offset in the worker's topic, where every commit is written too."
    )
    kept = {"topic": second, "offsets.storage.topic": own}
    await step([own_topic, other_file(b, a)], "b0", file=str(b), **kept)
    # Only lines that a file got while the task read the other one are sent when it comes back.
    with a.open("a") as more:
        more.write("a2\n")
    await step([other_file(a, b)], "a2", file=str(a), **kept, **{"batch.size": "7"})
    with b.open("a") as more:
        more.write("b1\n")
    back = "Offsets: the worker's offsets topic instead of its own: it continues, as it has every commit too."
    await step([back, other_file(b, a)], "b1", file=str(b), topic=second)
