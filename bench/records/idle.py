"""The cost of tasks without records: processor time and memory, for growing numbers of tasks.

Owns the connectors (ten tasks each, all on one topic of ten partitions) and the times to settle. Invariant: a cost is
measured only when every task is RUNNING and had the time to become idle.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka import Producer

from bench.records import workload
from bench.records.jobs import Sink
from bench.sides import Side
from bench.usage import cpu_s, memory_mb

TOPIC = "bench-records-idle"
TASKS = 10
"""Tasks of each connector, and partitions of the topic."""
_CALLERS = 8


@dataclass(frozen=True, slots=True)
class Sizes:
    """Numbers of tasks; seconds to settle and to measure."""

    tasks: tuple[int, ...]
    settle_s: float
    measure_s: float


FULL = Sizes(tasks=(100, 300, 1_000), settle_s=30.0, measure_s=30.0)
QUICK = Sizes(tasks=(20, 40), settle_s=10.0, measure_s=3.0)


@dataclass(frozen=True, slots=True)
class Idle:
    """The cost of that number of tasks."""

    cores: float
    memory_mb: float


def write_input(bootstrap: str) -> None:
    """Write a record to each partition, so that every task has had a record."""
    workload.create_topic(bootstrap, TOPIC, TASKS)
    producer = Producer({"bootstrap.servers": bootstrap})
    for partition in range(TASKS):
        producer.produce(TOPIC, workload.text(partition), partition=partition)
    assert producer.flush(30) == 0


async def measure(side: Side, job: Sink, folder: Path, sizes: Sizes, say: Callable[[str], None]) -> dict[int, Idle]:
    """The cost by number of tasks; 0 = of the side without tasks."""
    found: dict[int, Idle] = {}
    names: list[str] = []
    for count in (0, *sizes.tasks):
        new = [f"idle-{number}" for number in range(len(names), count // TASKS)]
        waiting = iter(new)

        async def caller(waiting: Iterator[str] = waiting) -> None:
            for name in waiting:
                await side.put(name, {**job.config(folder / f"{name}.txt", TASKS), "topics": TOPIC})

        await asyncio.gather(*(caller() for _ in range(_CALLERS)))
        names += new
        await side.until_running(new, tasks=TASKS)
        await asyncio.sleep(sizes.settle_s)
        used_s = cpu_s(side.everything())
        await asyncio.sleep(sizes.measure_s)
        cost = Idle((cpu_s(side.everything()) - used_s) / sizes.measure_s, memory_mb(side.everything()))
        say(f"{side.name}, {count} idle tasks: {cost.cores:.3f} cores, {cost.memory_mb:,.0f} MB")
        found[count] = cost
    return found
