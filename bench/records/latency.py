"""The latency of records at 1,000 records a second, steadily and after a pause longer than our runs linger.

Owns the clock: from the producer's call to the moment a reader of the file has the line. Every record carries the time
when it was sent. Invariants: the first seconds, in which either side still compiles or starts, do not count as steady;
the sides are measured alternately, several times, because other activity of the machine between two of them would
affect the result.
"""

from __future__ import annotations

import asyncio
import json
import re
import statistics
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from confluent_kafka import Producer

from bench.records import workload
from bench.records.jobs import Sink
from bench.sides import Side

RATE = 1_000
_INTERVAL_S = 1 / RATE
_SENT = re.compile(rb'sent_ns"?[:=](\d+)')
_LOOK_S = 0.0003
_TIMEOUT_S = 60.0


@dataclass(frozen=True, slots=True)
class Sizes:
    """Times of a round, in seconds; `pause_s` is longer than a run of ours lingers."""

    rounds: int
    warm_s: float
    steady_s: float
    pause_s: float
    pauses: int
    burst_s: float


#: An even number, so that each side is equally often the first: the second finds the broker warmer, by 0.2 to 0.4 ms
#: for the first record after a pause.
FULL = Sizes(rounds=4, warm_s=10.0, steady_s=20.0, pause_s=10.0, pauses=4, burst_s=2.0)
QUICK = Sizes(rounds=2, warm_s=3.0, steady_s=3.0, pause_s=8.0, pauses=1, burst_s=1.0)


@dataclass(slots=True)
class Latencies:
    """Times in milliseconds."""

    steady_ms: list[float] = field(default_factory=list[float])
    first_ms: list[float] = field(default_factory=list[float])
    """Latency of the first record after each pause."""
    burst_ms: list[float] = field(default_factory=list[float])
    """Latency of the other records after it."""


async def measure(side: Side, job: Sink, bootstrap: str, folder: Path, sizes: Sizes, number: int) -> Latencies:
    """One round: run the job with one task on a topic of its own and time records through it."""
    name = f"latency-{side.name.split()[0].lower()}-{number}"
    topic, file = f"bench-records-{name}", folder / f"{name}.txt"
    await asyncio.to_thread(workload.create_topic, bootstrap, topic, 1)
    await side.put(name, {**job.config(file, 1), "topics": topic})
    await side.until_running([name])
    watch = _Watch(file)
    found = Latencies()
    try:
        sender = _Sender(bootstrap, topic)
        await asyncio.to_thread(sender.send, sizes.warm_s)
        await asyncio.to_thread(watch.until, sender.sent)
        watch.take()
        await asyncio.to_thread(sender.send, sizes.steady_s)
        await asyncio.to_thread(watch.until, sender.sent)
        found.steady_ms = watch.take()
        for _ in range(sizes.pauses):
            await asyncio.sleep(sizes.pause_s)
            await asyncio.to_thread(sender.send, sizes.burst_s)
            await asyncio.to_thread(watch.until, sender.sent)
            first, *others = watch.take()
            found.first_ms.append(first)
            found.burst_ms += others
    finally:
        watch.close()
        await side.delete(name)
        await side.until_gone(name)
    return found


def at(times: Sequence[float], point: float) -> float:
    """A quantile; with few times the maximum serves as the last percent."""
    if point == 0.5:
        return statistics.median(times)
    ordered = sorted(times)
    return ordered[min(len(ordered) - 1, round(point * len(ordered)))]


class _Sender:
    """Sends a record each millisecond."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self._topic = topic
        self._producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0, "compression.type": "lz4"})
        self.sent = 0

    def send(self, duration_s: float) -> None:
        """Send for that time. Blocking."""
        begun_s = time.monotonic()
        for number in range(int(duration_s * RATE)):
            wait_s = begun_s + number * _INTERVAL_S - time.monotonic()
            if wait_s > 0:
                time.sleep(wait_s)
            fields = {"sent_ns": time.time_ns(), **workload.record(self.sent)}
            self._producer.produce(self._topic, json.dumps(fields).encode())
            self._producer.poll(0)
            self.sent += 1
        assert self._producer.flush(_TIMEOUT_S) == 0


class _Watch:
    """Reads the file as it grows, in a thread of its own."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._lock = threading.Lock()
        self._times_ms: list[float] = []
        self._seen = 0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._body, name="watch")
        self._thread.start()

    def take(self) -> list[float]:
        """The times of the lines since the last call, in their order."""
        with self._lock:
            taken, self._times_ms = self._times_ms, []
        return taken

    def until(self, lines: int) -> None:
        """Wait for so many lines in all. Raises TimeoutError."""
        deadline_s = time.monotonic() + _TIMEOUT_S
        while self._seen < lines:
            if time.monotonic() > deadline_s:
                raise TimeoutError(f"{self._seen} of {lines} lines")
            time.sleep(0.05)

    def close(self) -> None:
        """End the thread."""
        self._over.set()
        self._thread.join()

    def _body(self) -> None:
        while not self._file.exists():
            if self._over.wait(0.005):
                return
        rest = b""
        with self._file.open("rb") as reader:
            while not self._over.is_set():
                chunk = reader.read()
                now_ns = time.time_ns()
                if not chunk:
                    time.sleep(_LOOK_S)
                    continue
                *lines, rest = (rest + chunk).split(b"\n")
                sent = [int(found[1]) for line in lines if (found := _SENT.search(line))]
                with self._lock:
                    self._times_ms += [(now_ns - sent_ns) / 1e6 for sent_ns in sent]
                self._seen += len(sent)
