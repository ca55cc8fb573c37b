"""Hand-over of a file source and a file sink from Java Connect 4.3.1 to a mesh of ours and back, while lines keep
coming.

The promises, with their reasons:

- no line is lost, however Java ends;
- a clean stop commits on both sides (Java: the final commit of a task that stops; ours: the run's last transaction), so
  every line is in the topic once, in order, and in the file once, in order, over both hand-overs;
- after kill -9 of Java, lines that Java's source produced after its last offset commit are in the topic twice, and only
  those; with exactly-once support none is (for readers of committed records);
- after kill -9 of Java, lines that its sink wrote after its last offset commit are in the file once more than in the
  topic, and only those: a file takes part in no transaction, in Java as with us.

A second source reads the same lines and keeps its offsets in a topic of its own (`offsets.storage.topic`), from which
each side continues, with a copy in the cluster's.

A stop in which Java hangs (`JavaConnect.stop`) ends in kill -9, and is judged by the promises after that.
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pytest
from confluent_kafka import Consumer, KafkaError, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from herdmesh.devstack.broker import Broker
from tests.support.beside_java import beside_java
from tests.support.java_connect import DISCARDED, EXACTLY_ONCE, QUICK_CLIENTS, JavaConnect, until_left
from tests.support.mesh import Mesh, running_mesh
from tests.support.sizes import SOAKING, soak_or

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.timeout(soak_or(600, 3_600))]

STRING = "org.apache.kafka.connect.storage.StringConverter"
WIDTH = 10
"""Bytes of a line with its end: a position in the file identifies the line."""
LINES = soak_or(1_500, 10_000)
"""Lines that each side must bring to the end of the way before the next hand-over."""
CASES = [
    pytest.param("plain", "stop", id="plain"),
    *([pytest.param("exactly-once", "stop", id="exactly-once")] if SOAKING else []),
    *([pytest.param("plain", "kill", id="plain-kill-9")] if SOAKING else []),
    *([pytest.param("exactly-once", "kill", id="exactly-once-kill-9")] if SOAKING else []),
]


class LineWriter:
    """Appends numbered lines to a file from a thread, some thousand a second, until stopped."""

    def __init__(self, file: Path) -> None:
        self.written = 0
        self._file = file
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="lines")

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.finish()

    def finish(self) -> list[str]:
        """Stop; returns all lines."""
        self._stopping.set()
        self._thread.join()
        return [line(number) for number in range(self.written)]

    def _run(self) -> None:
        with self._file.open("ab", buffering=0) as file:
            while not self._stopping.wait(0.01):
                upto = self.written + 20
                file.write("".join(line(number) + "\n" for number in range(self.written, upto)).encode())
                self.written = upto


def line(number: int) -> str:
    return f"{number:0{WIDTH - 1}d}"


@dataclass(frozen=True)
class Cut:
    """Committed positions when Java ended: everything before these numbers may be there once only."""

    source_line: int
    sink_offset: int


class Way:
    """The way of a line: file, source, topic, sink, file."""

    def __init__(self, bootstrap: str, group: str, folder: Path) -> None:
        self.topic = f"{group}-lines"
        self.group = group
        self.file_in, self.file_out = folder / "in.txt", folder / "out.txt"
        self.source, self.sink = f"{group}-src", f"{group}-snk"
        self.own_source, self.own_topic, self.own_offsets = f"{group}-own", f"{group}-own-lines", f"{group}-own-offsets"
        self._bootstrap = bootstrap
        common = {"tasks.max": "1", "key.converter": STRING, "value.converter": STRING}
        self.source_config = {
            **common,
            "connector.class": "FileStreamSource",
            "file": str(self.file_in),
            "topic": self.topic,
            # Java uses the lines that it has read beyond a batch only when the file has grown again
            # (FileStreamSourceTask.poll): the last of a file that grows no more would stay with it.
            "batch.size": "1000000",
        }
        self.own_config = {**self.source_config, "topic": self.own_topic, "offsets.storage.topic": self.own_offsets}
        self.sink_config = {
            **common,
            "connector.class": "FileStreamSink",
            "file": str(self.file_out),
            "topics": self.topic,
        }

    def create_topic(self) -> None:
        admin: Any = AdminClient({"bootstrap.servers": self._bootstrap})
        for made in admin.create_topics([NewTopic(one, 1, 1) for one in (self.topic, self.own_topic)]).values():
            made.result(45)

    def arrived(self) -> list[str]:
        """The lines of the sink's file."""
        return self.file_out.read_text().splitlines() if self.file_out.exists() else []

    async def until_arrived(self, lines: int, timeout_s: float = soak_or(60, 180)) -> int:
        """Wait until the sink's file has so many lines; returns how many it has."""
        try:
            async with asyncio.timeout(timeout_s):
                found = len(await asyncio.to_thread(self.arrived))
                while found < lines:
                    await asyncio.sleep(0.1)
                    found = len(await asyncio.to_thread(self.arrived))
                return found
        except TimeoutError:
            raise AssertionError(f"{len(self.arrived())} of {lines} lines after {timeout_s:g} s") from None

    async def until_left(self) -> None:
        """Wait until Java's sink is out of its group: our task refuses to consume beside a live member, by name."""
        await until_left(self._bootstrap, f"connect-{self.sink}")

    def in_topic(self, topic: str = "") -> list[tuple[int, str]]:
        """A topic, the sink's unless one is named, as a reader of committed records sees it: offsets and lines."""
        found = self._read(topic or self.topic, 0)
        return [(offset, value.decode()) for offset, _key, value in found if value is not None]

    async def until_in_own_topic(self, last: str) -> list[str]:
        """Wait until the other source has produced the last line; returns all lines that are there."""
        async with asyncio.timeout(60):
            lines = [one for _, one in await asyncio.to_thread(self.in_topic, self.own_topic)]
            while not lines or lines[-1] != last:
                await asyncio.sleep(0.2)
                lines = [one for _, one in await asyncio.to_thread(self.in_topic, self.own_topic)]
            return lines

    def own_positions(self) -> list[int]:
        """Positions of the other source by its own topic, and by the cluster's."""
        key = f'["{self.own_source}",'.encode()
        return [
            json.loads([value or b"{}" for _, found, value in records if found.startswith(key)][-1])["position"]
            for records in (
                [one for partition in range(5) for one in self._read(topic, partition)]
                for topic in (self.own_offsets, f"{self.group}-offsets")
            )
        ]

    def cut(self) -> Cut:
        """The offsets that the source and the sink have committed now."""
        key = f'["{self.source}",'.encode()
        position = 0
        for partition in range(5):
            for _offset, found, value in self._read(f"{self.group}-offsets", partition):
                if found.startswith(key) and value is not None:
                    position = json.loads(value)["position"]
        consumer = Consumer({"bootstrap.servers": self._bootstrap, "group.id": f"connect-{self.sink}"})
        (committed,) = consumer.committed([TopicPartition(self.topic, 0)], 45)
        consumer.close()
        return Cut(position // WIDTH, max(0, committed.offset))

    def _read(self, topic: str, partition: int) -> list[tuple[int, bytes, bytes | None]]:
        consumer = Consumer(
            {
                "bootstrap.servers": self._bootstrap,
                "group.id": f"{self.group}-check",
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
                "enable.partition.eof": True,
                "fetch.wait.max.ms": 20,  # how long the client waits for more before it reports the end: 500 by default
            }
        )
        try:
            consumer.assign([TopicPartition(topic, partition, 0)])
            records: list[tuple[int, bytes, bytes | None]] = []
            while True:
                messages: list[Any] = consumer.consume(1_000, 0.2)
                for message in messages:
                    if message.error() is None:
                        records.append((message.offset(), message.key() or b"", message.value()))
                    elif message.error().code() == KafkaError._PARTITION_EOF:
                        return records
        finally:
            consumer.close()


@beside_java
@pytest.mark.parametrize(("mode", "end"), CASES)
async def test_no_line_is_lost_from_java_to_us_and_back(
    mode: str, end: str, kafka: Broker, tmp_topic: Callable[..., str], tmp_path: Path
) -> None:
    group = tmp_topic("g")
    way = Way(kafka.bootstrap, group, tmp_path)
    await asyncio.to_thread(way.create_topic)
    java = JavaConnect(kafka.bootstrap, tmp_path / "java", group=group, settings=_settings(mode))
    with LineWriter(way.file_in) as writer:
        try:
            await asyncio.to_thread(java.start)
            await asyncio.to_thread(java.create, way.source, way.source_config)
            await asyncio.to_thread(java.create, way.sink, way.sink_config)
            await asyncio.to_thread(java.create, way.own_source, way.own_config)
            count = await way.until_arrived(LINES)
            stopped = await asyncio.to_thread(java.stop) if end == "stop" else await asyncio.to_thread(java.kill)
            cut = await asyncio.to_thread(way.cut)
            await way.until_left()
            (tmp_path / "mesh").mkdir()
            async with running_mesh(tmp_path / "mesh", kafka, workers=1, group=group) as mesh:
                await _running(mesh, way)
                count = await way.until_arrived(count + LINES)
            await asyncio.to_thread(java.start)
            await way.until_arrived(count + LINES)
            lines = await asyncio.to_thread(writer.finish)
            await _until_all(way, lines)
            own_lines = await way.until_in_own_topic(lines[-1])
            has_committed = await asyncio.to_thread(java.stop)
        finally:
            await asyncio.to_thread(java.stop)
    assert not [error for error in java.errors() if not DISCARDED.fullmatch(error)], "it could not go on as it found it"
    topic, arrived = await asyncio.to_thread(way.in_topic), await asyncio.to_thread(way.arrived)
    if stopped:
        assert [one for _offset, one in topic] == lines
        assert arrived == lines
        assert own_lines == lines
        assert not has_committed or set(await asyncio.to_thread(way.own_positions)) == {len(lines) * WIDTH}
    else:
        assert set(own_lines) == set(lines)
        assert mode != "exactly-once" or own_lines == lines
        _assert_doubled_only_after(cut, lines, topic, arrived, exactly_once=mode == "exactly-once")


def _settings(mode: str) -> dict[str, str]:
    return {
        **QUICK_CLIENTS,
        "offset.flush.interval.ms": "500",
        # a setting that a Java cluster sharing topics with a mesh must have (docs/reference/guarantees.md)
        "isolation.level": "read_committed",
        "consumer.isolation.level": "read_committed",
        # the shortest the broker allows: a killed worker is out of its groups soon
        "session.timeout.ms": "6000",
        "heartbeat.interval.ms": "1500",
        "consumer.session.timeout.ms": "6000",
        # a task that is abandoned in the stop commits nothing: on a busy machine that takes more than 5 s
        "task.shutdown.graceful.timeout.ms": "12000",
        **(EXACTLY_ONCE if mode == "exactly-once" else {}),
    }


async def _running(mesh: Mesh, way: Way) -> None:
    await asyncio.gather(*(mesh.until_running(one, 1) for one in (way.source, way.sink, way.own_source)))


async def _until_all(way: Way, lines: list[str]) -> None:
    """Wait until the last line has arrived; it comes after all others, as there is one partition and one task."""
    await way.until_arrived(len(lines))
    async with asyncio.timeout(60):
        last = (await asyncio.to_thread(way.arrived))[-1]
        while last != lines[-1]:
            await asyncio.sleep(0.1)
            last = (await asyncio.to_thread(way.arrived))[-1]


def _assert_doubled_only_after(
    cut: Cut, lines: list[str], topic: list[tuple[int, str]], arrived: list[str], *, exactly_once: bool
) -> None:
    in_topic, in_file = Counter(one for _offset, one in topic), Counter(arrived)
    assert set(in_topic) == set(in_file) == set(lines), "lost"
    assert not in_topic - in_file, "a record of the topic is not in the file"
    doubled = {one for one, times in in_topic.items() if times > 1}
    assert not exactly_once or not doubled, f"{len(doubled)} lines doubled in the topic"
    assert all(int(one) >= cut.source_line for one in doubled), "produced again although the offset was committed"
    assert max(in_topic.values()) <= 2
    again = in_file - in_topic
    after = {one for offset, one in topic if offset >= cut.sink_offset}
    assert set(again) <= after, "written again although the offset was committed"
    assert all(times == 1 for times in again.values())
    print(f"doubled in the topic: {len(doubled)}, written again: {len(again)}, {cut}")
