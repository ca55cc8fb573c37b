"""The figures, one function each: the requests to both sides, and the rows of the table from their results.

Owns sizes, order and goals. Invariant: both sides of a row are measured in this run, on this broker, one after the
other, each in a process of its own.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from bench.stores import workload
from bench.stores.java import Answer, JavaStores
from bench.table import Row
from herdmesh.api.configstore.v1 import config_read_service_pb2 as config_read
from tests.support.configstore_process import ConfigStoreProcess
from tests.support.statusstore_process import StatusStoreProcess

_ANSWER_BYTES_MAX = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Sizes:
    """Full or quick."""

    records: int
    connectors: int
    rounds: int
    writes: int
    statuses: int
    watchers: int
    watched_writes: int


FULL = Sizes(100_000, 1_000, 3, 2_048, 1_000, 1_000, 150)
QUICK = Sizes(10_000, 200, 1, 256, 100, 100, 40)


class Bench:
    """The common parts of all figures: the broker, Java, a folder, the sizes."""

    def __init__(self, bootstrap: str, java: JavaStores, folder: Path, sizes: Sizes) -> None:
        self.bootstrap = bootstrap
        self.java = java
        self.folder = folder
        self.sizes = sizes
        self._topics = 0

    def topic(self, purpose: str) -> str:
        """A new topic name."""
        self._topics += 1
        return f"bench-{purpose}-{self._topics}"

    async def ask_java(self, command: str, **options: object) -> Answer:
        """Run one command of Java's driver."""
        return await asyncio.to_thread(lambda: self.java.ask(command, **options))

    async def ask(self, question: str, **options: object) -> dict[str, Any]:
        """Run one question of our side."""
        process = await start_ours(question, options)
        output, _ = await process.communicate()
        return json.loads(output.splitlines()[-1])

    async def fill(self, purpose: str, partitions: int, records: Sequence[workload.Record], *, ours: bool) -> str:
        """Create a topic of these records."""
        topic = self.topic(purpose)
        await asyncio.to_thread(lambda: workload.fill(self.bootstrap, topic, partitions, records, transactions=ours))
        return topic

    @asynccontextmanager
    async def config_store(self, topic: str) -> AsyncGenerator[ConfigStoreProcess]:
        """Run a real config store that writes."""
        store = ConfigStoreProcess(self.bootstrap, topic, self.folder / f"{topic}.log")
        await store.start()
        try:
            await store.until_writing()
            yield store
        finally:
            await store.stop()


async def start_ours(question: str, options: dict[str, object]) -> asyncio.subprocess.Process:
    """A process of `bench.stores.ours`."""
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "bench.stores.ours", question, json.dumps(options)),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        limit=_ANSWER_BYTES_MAX,
    )


async def replay(bench: Bench) -> list[Row]:
    """Measure the start of a store on a topic with history."""
    sizes = bench.sizes
    plain = workload.config_records(sizes.connectors, sizes.records)
    ours = workload.config_records_with_manifests(sizes.connectors, sizes.records)
    statuses = workload.status_records(sizes.connectors, sizes.records)
    rows: list[Row] = []
    for name, kind, topic in (
        ("Connect's own records", "replay-config", await bench.fill("replay", 1, plain, ours=False)),
        ("as we write them, manifests in between", "replay-config", await bench.fill("manifests", 1, ours, ours=True)),
        ("status topic, 5 partitions", "replay-status", await bench.fill("status", 5, statuses, ours=False)),
    ):
        first: list[float] = []
        warm: list[float] = []
        mine: list[float] = []
        for _ in range(sizes.rounds):
            mine.append((await bench.ask(kind, bootstrap=bench.bootstrap, topic=topic))["replay_ms"])
            answer = [float(text) for text in (await bench.ask_java(kind, topic=topic, rounds=3))["replay_ms"]]
            first.append(answer[0])
            warm.append(min(answer[1:]))
        title = f"replay of {sizes.records:,}, {name}"
        rows.append(_less(title, mine, first, "ms", 1.0))
        rows.append(_less(f"{title}; Java's JVM warm", mine, warm, "ms", None))
    return rows


async def writes(bench: Bench) -> list[Row]:
    """Measure acknowledged connector configs by 64 callers, and by one."""
    sizes = bench.sizes
    config = "\x01".join(f"{name}={value}" for name, value in workload.connector_config("template").items())

    async def java(mode: str, callers: int, calls: int, exactly_once: bool) -> Answer:
        topic = bench.topic("java-writes")
        return await bench.ask_java(
            "writes",
            topic=topic,
            group=topic,
            config=config,
            mode=mode,
            callers=callers,
            each=calls // callers,
            warm_up=calls // 8,
            exactly_once="enabled" if exactly_once else "disabled",
        )

    async def direct(callers: int, calls: int) -> dict[str, Any]:
        topic = bench.topic("writes")
        options: dict[str, Any] = {"callers": callers, "each": calls // callers, "warm_up": calls // 8}
        return await bench.ask("direct-writes", bootstrap=bench.bootstrap, topic=topic, **options)

    async def grpc(callers: int, calls: int) -> dict[str, Any]:
        options: dict[str, Any] = {"callers": callers, "each": calls // callers, "warm_up": calls // 8}
        async with bench.config_store(bench.topic("writes")) as store:
            return await bench.ask("grpc-writes", address=store.address, **options)

    many, few = sizes.writes, max(sizes.writes // 4, 64)
    over_grpc = _rate(await grpc(64, many))
    on_store = _rate(await direct(64, many))
    rows: list[Row] = []
    for mode, mode_name in (("tick", "one herder thread, as Connect does"), ("threads", "64 threads on the store")):
        for exactly_once in (False, True):
            kind = "exactly-once" if exactly_once else "plain"
            calls = few if mode == "tick" or exactly_once else many
            theirs = _java_rate(await java(mode, 64, calls, exactly_once))
            goal = 3.0 if mode == "tick" else None
            rows.append(_more(f"writes, 64 callers over gRPC; Java {kind}, {mode_name}", over_grpc, theirs, goal))
            rows.append(
                _more(f"writes, 64 callers in the store's process; Java {kind}, {mode_name}", on_store, theirs, goal)
            )
    alone_grpc, alone = _latencies(await grpc(1, few)), _latencies(await direct(1, few))
    for exactly_once in (False, True):
        kind = "exactly-once" if exactly_once else "plain"
        theirs = sorted(int(text) / 1000 for text in (await java("threads", 1, few, exactly_once))["latencies_us"])
        for at, name in ((0.5, "p50"), (0.99, "p99")):
            for where, mine in (("over gRPC", alone_grpc), ("in the store's process", alone)):
                goal = 1.2 if name == "p50" and where != "over gRPC" else None
                rows.append(
                    _less(
                        f"one caller alone, {name}, {where}; Java {kind}",
                        [_at(mine, at)],
                        [_at(theirs, at)],
                        "ms",
                        goal,
                    )
                )
    return rows


async def statuses(bench: Bench) -> list[Row]:
    """Measure many tasks' statuses at once."""
    sizes = bench.sizes
    topic = bench.topic("statuses")
    store = StatusStoreProcess(bench.bootstrap, topic, bench.folder / f"{topic}.log")
    await store.start()
    try:
        await store.until_writing()
        mine = await bench.ask(
            "statuses",
            address=store.address,
            tasks=sizes.statuses,
            singles=sizes.statuses // 5,
            rounds=max(3, sizes.rounds),
        )
    finally:
        await store.stop()
    theirs = await bench.ask_java(
        "statuses", topic=bench.topic("java-statuses"), tasks=sizes.statuses, rounds=max(3, sizes.rounds)
    )
    fired = [float(text) for text in theirs["fired_ms"]]
    one_by_one = [float(text) for text in theirs["one_by_one_ms"]]
    batch = mine["batch_ms"]
    title = f"{sizes.statuses:,} statuses by one batch call over gRPC, read back"
    singles = [took * 5 for took in mine["one_by_one_ms"]]
    return [
        _less(f"{title}; Java: each put and read back before the next", batch, one_by_one, "ms", 1 / 5),
        _less(f"{title}; Java: all puts fired, flushed, read back", batch, fired, "ms", 1 / 5),
        _less(f"{sizes.statuses:,} statuses by a call each, read back; Java the same", singles, one_by_one, "ms", None),
    ]


async def watching(bench: Bench) -> list[Row]:
    """Measure one caller with many watchers attached, against the same caller without."""
    sizes = bench.sizes
    rows: list[Row] = []
    for name, pause_ms, calls in (("one after the other", 0, sizes.watched_writes), ("5 a second", 200, 40)):
        alone = await _watched(bench, 0, pause_ms, calls)
        watched = await _watched(bench, sizes.watchers, pause_ms, calls)
        for at, percentile in ((0.5, "p50"), (0.99, "p99")):
            title = f"a write, {percentile}, {name}, with {sizes.watchers:,} watchers / without"
            goal = 1.5 if percentile == "p50" else None
            mine, base = _at(watched["latencies"], at), _at(alone["latencies"], at)
            rows.append(_less(title, [mine], [base], "ms", goal, base_is_ours=True))
        rows.append(
            Row(
                f"watchers after {calls} writes, {name}: all caught up after",
                f"{watched['caught_up_ms']:,.0f} ms",
                "-",
                None,
                "none cut off",
                not watched["problems"] and watched["least"] >= calls,
            )
        )
    return rows


async def _watched(bench: Bench, watchers: int, pause_ms: int, calls: int) -> dict[str, Any]:
    async with bench.config_store(bench.topic("watched")) as store:
        watch: asyncio.subprocess.Process | None = None
        if watchers:
            watch = await start_ours("watch", {"address": store.address, "watchers": watchers, "filter": []})
            assert watch.stdout is not None
            assert (await watch.stdout.readline()).strip() == b"ready"
        options: dict[str, Any] = {"callers": 1, "each": calls, "warm_up": 5, "pause_ms": pause_ms}
        answer = await bench.ask("grpc-writes", address=store.address, **options)
        result: dict[str, Any] = {"latencies": _latencies(answer)}
        if watch is not None:
            snapshot = await store.read.GetSnapshot(config_read.GetSnapshotRequest(connectors=["none"]))
            until = snapshot.meta.revision.next_offsets[0] - 1  # the last offset is the transaction's marker
            output, _ = await watch.communicate(f"{until}\n".encode())
            result |= json.loads(output.splitlines()[-1])
        return result


async def memory(bench: Bench) -> list[Row]:
    """Measure the memory of a real store process after its replay."""
    rows: list[Row] = []
    connectors = bench.sizes.connectors
    records = [
        record
        for number in range(connectors)
        for record in workload.created(f"team-{number % 37}.connector-{number}", tasks=10)
    ]
    topic = await bench.fill("memory", 1, records, ours=False)
    async with bench.config_store(topic) as store:
        rss_mb = psutil.Process(store.pid).memory_info().rss / 1e6
    java = await bench.ask_java("replay-config", topic=topic, rounds=1)
    rows.append(
        Row(
            f"memory of the store's process, {connectors:,} connectors x 10 tasks (Java: used heap alone)",
            f"{rss_mb:.0f} MB",
            f"{float(java['heap_mb'][0]):.0f} MB",
            None,
            "< 150 MB",
            rss_mb < 150,
        )
    )
    return rows


FIGURES: dict[str, Callable[[Bench], Awaitable[list[Row]]]] = {
    "replay": replay,
    "writes": writes,
    "statuses": statuses,
    "watching": watching,
    "memory": memory,
}


def _rate(answer: dict[str, Any]) -> float:
    return len(answer["latencies_us"]) / answer["total_ms"] * 1000


def _java_rate(answer: Answer) -> float:
    assert answer["failures"] == ["0"], "a write of Java's failed"
    return len(answer["latencies_us"]) / float(answer["total_ms"][0]) * 1000


def _latencies(answer: dict[str, Any]) -> list[float]:
    return sorted(latency / 1000 for latency in answer["latencies_us"])


def _at(ordered: Sequence[float], share: float) -> float:
    return ordered[min(int(len(ordered) * share), len(ordered) - 1)]


def _less(
    figure: str,
    ours: Sequence[float],
    java: Sequence[float],
    unit: str,
    at_most: float | None,
    *,
    base_is_ours: bool = False,
) -> Row:
    mine, theirs = statistics.median(ours), statistics.median(java)
    ratio = mine / theirs
    goal = "" if at_most is None else f"<= {at_most:g}x"
    shown = f"{theirs:,.1f} {unit}" + (" (ours)" if base_is_ours else "")
    return Row(figure, f"{mine:,.1f} {unit}", shown, ratio, goal, None if at_most is None else ratio <= at_most)


def _more(figure: str, ours: float, java: float, at_least: float | None) -> Row:
    ratio = ours / java
    goal = "" if at_least is None else f">= {at_least:g}x"
    return Row(figure, f"{ours:,.0f}/s", f"{java:,.0f}/s", ratio, goal, None if at_least is None else ratio >= at_least)
