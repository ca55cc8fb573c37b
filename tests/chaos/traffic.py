"""Twelve connectors under small loads, and the promises about their data in the end.

Owns the configs, one thread that writes records and lines, and the counting. Invariant: an id is counted as written
only when the broker acknowledged it, or the file has it.

    5 Parquet sinks (10 tasks, one idle)  every record exactly once
    4 file sources  (4 tasks)             every line exactly once, in order
    3 file sinks    (3 tasks)             every record at least once
"""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec
from confluent_kafka import Producer

from tests.support.mesh import Mesh, assert_exact, parquet_sink

PARQUET = ("flights", "orders", "clicks", "meters")
IDLE = "quiet"
SOURCES = ("letters", "words", "phrases", "books")
FILES = ("notes", "logs", "marks")
#: (connector, tasks)
TASKS = {
    **{f"parquet-{one}": 2 for one in (*PARQUET, IDLE)},
    **{f"source-{one}": 1 for one in SOURCES},
    **{f"file-{one}": 1 for one in FILES},
}
_STRING = {
    "key.converter": "org.apache.kafka.connect.storage.StringConverter",
    "value.converter": "org.apache.kafka.connect.storage.StringConverter",
}
#: A record and a line cost the processor little, the fetches and transactions that carry them much: so 100 records a
#: second for a topic and 10 lines for a file come in one portion, which leaves the cores to recovering processes.
_PERIOD_S = 1.0
_RECORDS_PER_PERIOD = 100
_LINES_PER_PERIOD = 10


class Traffic:
    """`start`, then `finish` when all harm is over, then `assert_exact`."""

    def __init__(self, mesh: Mesh, folder: Path) -> None:
        self._mesh, self._folder = mesh, folder
        self.records: Counter[str] = Counter()
        self.lines = 0
        self._sent = 0
        self._failures: list[str] = []
        self._stopping = threading.Event()
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="traffic")

    async def start(self) -> None:
        """Create topics, files and connectors, wait until all run, and begin to write."""
        folder, mesh = self._folder, self._mesh
        folder.mkdir(parents=True)
        for topic in (*PARQUET, IDLE, *FILES):
            await asyncio.to_thread(mesh.create_topic, topic, 2)
        for topic in SOURCES:
            await asyncio.to_thread(mesh.create_topic, topic, 1)
            (folder / f"{topic}.txt").touch()
        configs: dict[str, dict[str, Any]] = {}
        for topic in (*PARQUET, IDLE):
            configs[f"parquet-{topic}"] = parquet_sink(topic, folder / topic) | {"rotate.interval.ms": "2000"}
        for topic in SOURCES:
            file = str(folder / f"{topic}.txt")
            configs[f"source-{topic}"] = {
                "connector.class": "FileStreamSource",
                "topic": topic,
                "file": file,
                "tasks.max": "1",
                **_STRING,
            }
        for topic in FILES:
            file = str(folder / f"{topic}.out")
            configs[f"file-{topic}"] = {
                "connector.class": "FileStreamSink",
                "topics": topic,
                "file": file,
                "tasks.max": "1",
                **_STRING,
            }
        assert set(configs) == set(TASKS)
        await asyncio.gather(*(mesh.apply(name, config) for name, config in configs.items()))
        await asyncio.gather(*(mesh.until_running(name, tasks, 120) for name, tasks in TASKS.items()))
        self._thread.start()

    def check(self) -> None:
        """Raise the thread's error, if any."""
        if self._error is not None:
            raise self._error

    def finish(self) -> None:
        """Stop writing; everything sent is acknowledged, or it raises. Blocks."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join(90)
        self.check()
        assert not self._failures, self._failures[:3]

    async def assert_exact(self) -> str:
        """Assert that everything arrived as promised; returns a text with the amounts."""
        mesh, folder = self._mesh, self._folder
        for topic in PARQUET:
            await mesh.until_committed(f"parquet-{topic}", topic)
        for topic in FILES:
            await mesh.until_committed(f"file-{topic}", topic)
        for topic in PARQUET:
            # the commit is first, the file gets its name right after it
            await mesh.until_published(folder / topic, self.records[topic])
            await asyncio.to_thread(assert_exact, folder / topic, self.records[topic])
        for topic in SOURCES:
            found = [int(value) for value in await asyncio.to_thread(mesh.consume_values, topic, self.lines)]
            assert found == list(range(self.lines)), _difference(topic, found, self.lines)
        doubled = 0
        for topic in FILES:
            text = await asyncio.to_thread((folder / f"{topic}.out").read_text)
            times = Counter(int(line) for line in text.splitlines())
            lost = [number for number in range(self.records[topic]) if number not in times]
            assert not lost, f"file-{topic}: {len(lost)} of {self.records[topic]} records lost, first {lost[:5]}"
            doubled += times.total() - len(times)
        return (
            f"{sum(self.records[topic] for topic in PARQUET)} records in Parquet and {self.lines * len(SOURCES)} lines "
            f"in topics exactly once, {sum(self.records[topic] for topic in FILES)} records in files at least once "
            f"({doubled} doubled)"
        )

    def _run(self) -> None:
        try:
            producer = Producer(
                {
                    "bootstrap.servers": self._mesh.bootstrap,
                    "partitioner": "murmur2_random",
                    "enable.idempotence": True,
                    "linger.ms": 5,
                    "log_level": 0,
                }
            )
            while not self._stopping.wait(_PERIOD_S):
                self._write(producer)
            left = producer.flush(60)
            if left or self._failures:
                self._failures.append(f"{left} records were not acknowledged")
        except BaseException as error:  # noqa: BLE001 - handed to the run by check()
            self._error = error

    def _write(self, producer: Producer) -> None:
        numbers = range(self._sent, self._sent + _RECORDS_PER_PERIOD)
        for topic in (*PARQUET, *FILES):
            for number in numbers:
                value = msgspec.json.encode({"id": number}) if topic in PARQUET else str(number).encode()
                producer.produce(topic, value, key=str(number).encode(), on_delivery=self._delivered)
        self._sent = numbers.stop
        lines = "".join(f"{number}\n" for number in range(self.lines, self.lines + _LINES_PER_PERIOD))
        for topic in SOURCES:
            with (self._folder / f"{topic}.txt").open("a") as file:
                file.write(lines)
        self.lines += _LINES_PER_PERIOD
        producer.poll(0)

    def _delivered(self, error: Any, message: Any) -> None:
        if error is not None:
            self._failures.append(str(error))
        else:
            self.records[message.topic()] += 1


def _difference(topic: str, found: list[int], expected: int) -> str:
    times = Counter(found)
    lost = [number for number in range(expected) if number not in times]
    doubled = [number for number, count in times.items() if count > 1]
    return (
        f"source-{topic}: {len(found)} of {expected} lines; {len(lost)} lost, first {lost[:5]}; "
        f"{len(doubled)} doubled, first {doubled[:5]}; in order: {found == sorted(found)}"
    )
