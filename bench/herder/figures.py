"""The requests to each cluster, and the rows of the table from the answers of two clusters.

Owns sizes, order and goals; knows neither cluster. Invariant: both sides get the same requests in the same order, and a
number is the waiting time of a user: from the call until its effect is visible.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from confluent_kafka import Consumer, Producer, TopicPartition

from bench.sides import Side
from bench.table import Row
from bench.usage import cpu_s, memory_mb

TOPIC = "bench-herder-input"
_CALLERS = 8
_EFFECT_PAUSE_S = 0.005
_SOON = {"reconnect.backoff.ms": 20}


@dataclass(frozen=True, slots=True)
class Sizes:
    """Full or quick."""

    creates: int
    updates: int
    many: tuple[int, ...]
    lists: int
    idle_s: float
    moved: int
    warm: int


FULL = Sizes(creates=50, updates=20, many=(100, 300), lists=20, idle_s=30.0, moved=12, warm=400)
QUICK = Sizes(creates=5, updates=3, many=(10, 20), lists=5, idle_s=3.0, moved=4, warm=50)


@dataclass(slots=True)
class Answers:
    """The times of one side, in seconds."""

    create_s: list[float] = field(default_factory=list[float])
    first_record_s: list[float] = field(default_factory=list[float])
    delete_s: list[float] = field(default_factory=list[float])
    update_s: list[float] = field(default_factory=list[float])
    failover_s: float = 0.0
    moved: int = 0
    many_s: dict[int, float] = field(default_factory=dict[int, float])
    list_s: list[float] = field(default_factory=list[float])
    idle_cores: float = 0.0
    idle_all_cores: float = 0.0
    memory_mb: float = 0.0
    memory_all_mb: float = 0.0


def sink(file: Path, stamp: str = "0") -> dict[str, str]:
    """One task that appends to `file`; `stamp` is in every line it writes."""
    return {
        "connector.class": "org.apache.kafka.connect.file.FileStreamSinkConnector",
        "tasks.max": "1",
        "topics": TOPIC,
        "file": str(file),
        "key.converter": "org.apache.kafka.connect.storage.StringConverter",
        "value.converter": "org.apache.kafka.connect.json.JsonConverter",
        "value.converter.schemas.enable": "false",
        "transforms": "stamp",
        "transforms.stamp.type": "org.apache.kafka.connect.transforms.InsertField$Value",
        "transforms.stamp.static.field": "stamp",
        "transforms.stamp.static.value": f"stamp-{stamp}.",
    }


async def ask(side: Side, bootstrap: str, folder: Path, sizes: Sizes, say: Callable[[str], None]) -> Answers:
    """Send all requests, in an order that leaves one worker for the figures of one. Sinks write into `folder`."""
    answers = Answers()
    say(f"{side.name}: kill -9 of one of two workers")
    await _failover(side, folder, sizes, answers)
    say(f"{side.name}: create and delete")
    await _create_and_delete(side, folder, sizes, answers)
    say(f"{side.name}: update")
    await _update(side, bootstrap, folder, sizes, answers)
    for number in sizes.many:
        say(f"{side.name}: {number} connectors")
        answers.many_s[number] = await _many(side, folder, number)
    for _ in range(sizes.lists):
        begun_s = time.monotonic()
        assert await side.list_with_status() == sum(sizes.many)
        answers.list_s.append(time.monotonic() - begun_s)
    say(f"{side.name}: idle")
    await _idle(side, sizes, answers)
    return answers


async def _failover(side: Side, folder: Path, sizes: Sizes, answers: Answers) -> None:
    names = [f"moved-{number}" for number in range(sizes.moved)]
    for name in names:
        await side.put(name, sink(folder / name))
    await side.until_running(names)
    begun_s = time.monotonic()
    answers.moved = await side.kill_a_worker()
    assert answers.moved, "the killed worker held nothing"
    await side.until_running(names)
    answers.failover_s = time.monotonic() - begun_s
    for name in names:
        await side.delete(name)
        await side.until_gone(name)


async def _create_and_delete(side: Side, folder: Path, sizes: Sizes, answers: Answers) -> None:
    for number in range(sizes.creates):
        name, file = f"created-{number}", folder / f"created-{number}"
        begun_s = time.monotonic()
        written = asyncio.create_task(asyncio.to_thread(_until_stamped, file, "0"))
        await side.put(name, sink(file))
        await side.until_running([name])
        answers.create_s.append(time.monotonic() - begun_s)
        answers.first_record_s.append(await written - begun_s)
        begun_s = time.monotonic()
        await side.delete(name)
        await side.until_gone(name)
        answers.delete_s.append(time.monotonic() - begun_s)


async def _update(side: Side, bootstrap: str, folder: Path, sizes: Sizes, answers: Answers) -> None:
    """Time config updates while records flow: an update is effective with the first line that only the new config can
    write.
    """
    file = folder / "updated"
    await side.put("updated", sink(file))
    await side.until_running(["updated"])
    over = threading.Event()
    load = threading.Thread(target=_load, args=(bootstrap, over))
    load.start()
    try:
        for number in range(1, sizes.updates + 1):
            begun_s = time.monotonic()
            await side.put("updated", sink(file, str(number)))
            answers.update_s.append(await asyncio.to_thread(_until_stamped, file, str(number)) - begun_s)
    finally:
        over.set()
        load.join()
    await side.delete("updated")
    await side.until_gone("updated")


async def _many(side: Side, folder: Path, number: int) -> float:
    """Seconds until `number` connectors are RUNNING; those of the round before exist already and are not
    created again.
    """
    names = [f"many-{number}-{index}" for index in range(number)]
    waiting = iter(names)

    async def caller() -> None:
        for name in waiting:
            await side.put(name, sink(folder / name))

    begun_s = time.monotonic()
    await asyncio.gather(*(caller() for _ in range(_CALLERS)))
    await side.until_running(names)
    return time.monotonic() - begun_s


async def _idle(side: Side, sizes: Sizes, answers: Answers) -> None:
    control, everything = side.control_plane(), side.everything()
    before = cpu_s(control), cpu_s(everything)
    await asyncio.sleep(sizes.idle_s)
    answers.idle_cores = (cpu_s(control) - before[0]) / sizes.idle_s
    answers.idle_all_cores = (cpu_s(everything) - before[1]) / sizes.idle_s
    answers.memory_mb, answers.memory_all_mb = memory_mb(control), memory_mb(everything)


def write_one(bootstrap: str) -> None:
    """One record, so that a new sink has something to write."""
    producer = Producer({"bootstrap.servers": bootstrap})
    producer.produce(TOPIC, json.dumps({"id": 0}).encode())
    assert producer.flush(30) == 0


def warm(bootstrap: str, sizes: Sizes) -> None:
    """Connect clients that each commit a consumer group's offset in a transaction and leave, as tasks of both sides do.

    The broker's JVM compiles frequent code. Without this the side that is measured first pays for it: of the broker's
    processor time, the sixty connectors created first took 123 ms each, the third sixty 65 ms.
    """
    for number in range(sizes.warm):
        name = f"bench-herder-warm-{number}"
        producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": name, **_SOON})
        producer.init_transactions(30)
        consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": name, **_SOON})
        consumer.assign([TopicPartition(TOPIC, 0, 0)])
        assert consumer.poll(30) is not None
        producer.begin_transaction()
        offset = TopicPartition(TOPIC, 0, 1)
        producer.send_offsets_to_transaction([offset], consumer.consumer_group_metadata(), 30)
        producer.commit_transaction(30)
        consumer.close()


def _load(bootstrap: str, over: threading.Event) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0})
    number = 0
    while not over.wait(_EFFECT_PAUSE_S):
        number += 1
        producer.produce(TOPIC, json.dumps({"id": number}).encode())
        producer.poll(0)
    assert producer.flush(30) == 0


def _until_stamped(file: Path, stamp: str) -> float:
    """The time at which the first line with this stamp appeared. Blocking."""
    wanted = f"stamp-{stamp}.".encode()
    deadline_s = time.monotonic() + 120
    read = b""
    position = 0
    while time.monotonic() < deadline_s:
        if file.exists():
            with file.open("rb") as reader:
                reader.seek(position)
                read = read[-64:] + reader.read()
                position = reader.tell()
            if wanted in read:
                return time.monotonic()
        time.sleep(0.002)
    raise TimeoutError(f"no line of {file} has {stamp!r}")


# --- rows


def rows(ours: Answers, java: Answers, sizes: Sizes) -> list[Row]:
    """The table: lower is better in every row."""
    found: list[Row] = []
    for figure, mine, theirs in (
        ("create -> RUNNING", ours.create_s, java.create_s),
        ("create -> first record written", ours.first_record_s, java.first_record_s),
        ("update -> effective: first line the new config wrote", ours.update_s, java.update_s),
        ("delete -> nothing shown of it", ours.delete_s, java.delete_s),
        (f"list with status of {sum(sizes.many)}", ours.list_s, java.list_s),
    ):
        for label, point in (("p50", 0.5), ("p99", 0.99)):
            found.append(_row(f"{figure}, {label}", _at(mine, point) * 1e3, _at(theirs, point) * 1e3, "ms"))
    found.append(
        _row(
            f"kill -9 of one of two workers -> all of {sizes.moved} RUNNING (it held {ours.moved} units; {java.moved})",
            ours.failover_s * 1e3,
            java.failover_s * 1e3,
            "ms",
        )
    )
    found += [
        _row(
            f"{number} connectors created by {_CALLERS} callers -> all RUNNING",
            ours.many_s[number] * 1e3,
            their * 1e3,
            "ms",
        )
        for number, their in java.many_s.items()
    ]
    total = sum(sizes.many)
    found += [
        _row(
            f"idle CPU with {total} connectors, stores and herder; Java: its worker",
            ours.idle_cores,
            java.idle_cores,
            "cores",
        ),
        _row("idle CPU, all processes", ours.idle_all_cores, java.idle_all_cores, "cores"),
        _row("memory (PSS), stores and herder; Java: its worker", ours.memory_mb, java.memory_mb, "MB"),
        _row("memory (PSS), all processes", ours.memory_all_mb, java.memory_all_mb, "MB"),
    ]
    return found


def _row(figure: str, ours: float, java: float, unit: str) -> Row:
    digits = 3 if unit == "cores" else 1 if unit == "ms" else 0
    ratio = ours / java if java else float("inf")
    return Row(figure, f"{ours:,.{digits}f} {unit}", f"{java:,.{digits}f} {unit}", ratio, "< 1x", ratio < 1)


def _at(times: Sequence[float], point: float) -> float:
    """A quantile; with few times the maximum serves as the last percent."""
    if point == 0.5:
        return statistics.median(times)
    ordered = sorted(times)
    return ordered[min(len(ordered) - 1, round(point * len(ordered)))]
