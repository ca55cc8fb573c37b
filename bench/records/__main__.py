"""Records through real workers of Herdmesh and of Java Connect 4.3.1, on one broker, in one run.

    make bench-records
    make bench-records ARGS="--quick --only rows"
    make bench-records ARGS="--only json,schema --records 1000000 --rounds 2"

Parts: `rows` (records per second and processor time of each job, with 1 and 2 tasks, the sides alternately), `latency`
and `idle`; the name of a job selects only its row. Prints a table for each part: figure, ours, Java's, ratio ours /
Java's. Run it alone: the ratios cancel the machine's own speed, not another load on it.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import tempfile
from collections.abc import AsyncGenerator, Callable, Generator, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.records import figures, idle, latency, workload
from bench.records.jobs import AVRO, JOBS, Job, Mirror, Sink, Source, avro
from bench.records.moving import Moved, Place, move
from bench.sides import JavaSide, OurSide, Side
from bench.table import Row, table
from herdmesh.devstack.broker import Broker
from herdmesh.devstack.errors import JarsUnavailable
from herdmesh.devstack.jars import ensure_jars
from tests.support.java_connect import AVRO_JARS, CONNECT_JARS, MIRROR_JARS
from tests.support.real_registry import real_registry

_JOBS = {job.name: job for job in JOBS}
_PARTS = ("rows", "latency", "idle")


@dataclass(frozen=True, slots=True)
class Sizes:
    """Full or quick."""

    records: int
    rounds: int
    latency: latency.Sizes
    idle: idle.Sizes


FULL = Sizes(2_000_000, 3, latency.FULL, idle.FULL)
QUICK = Sizes(100_000, 1, latency.QUICK, idle.QUICK)


@dataclass(frozen=True, slots=True)
class Wanted:
    """The parts and jobs to measure."""

    jobs: Sequence[Job]
    latency: bool
    idle: bool
    registry: str
    """The address of the registry of Avro's schema; empty when no job needs it."""


async def main(sizes: Sizes, wanted: Wanted, say: Callable[[str], None]) -> None:
    """Measure and print."""
    with tempfile.TemporaryDirectory(prefix="herdmesh-bench-records-") as name:
        folder = Path(name)
        broker = Broker(folder / "kafka", port=0)
        await broker.start()
        try:
            place = Place(broker.bootstrap, folder, sizes.records)
            if wanted.jobs or wanted.latency:
                await asyncio.to_thread(_write_input, wanted, place, say)
                jars = _jars(wanted)
                async with (
                    _running(OurSide(broker, folder / "ours", 1)) as ours,
                    _running(JavaSide(broker, folder / "theirs", 1, jars)) as java,
                ):
                    await _rows(ours, java, wanted.jobs, place, sizes.rounds, say)
                    if wanted.latency:
                        _print("latency", await _latency(ours, java, place, sizes.latency, say), say)
            if wanted.idle:
                _print("idle", await _idle(broker, folder, sizes.idle, say), say)
        finally:
            await broker.stop()


def _write_input(wanted: Wanted, place: Place, say: Callable[[str], None]) -> None:
    say(f"writing {place.records:,} records")
    topics = {job.topic for job in wanted.jobs if not isinstance(job, Source)}
    forms: dict[str, Callable[[int], bytes]] = {
        workload.JSON_TOPIC: workload.text,
        workload.SCHEMA_TOPIC: workload.enveloped,
    }
    if wanted.registry:
        forms[workload.AVRO_TOPIC] = workload.avro(workload.register_avro(wanted.registry))
    for topic, value in forms.items():
        if topic in topics:
            workload.write_topic(place.bootstrap, topic, place.records, value)
    if any(isinstance(job, Source) for job in wanted.jobs):
        workload.write_file(place.input_file, place.records)


async def _rows(
    ours: Side, java: Side, jobs: Sequence[Job], place: Place, rounds: int, say: Callable[[str], None]
) -> None:
    rows: list[Row] = []
    for job in jobs:
        for tasks in job.tasks:
            made: list[tuple[Moved, Moved]] = []
            for number in range(rounds):
                # The first side finds the broker's files colder, so the sides alternate in that too.
                order = (ours, java) if number % 2 == 0 else (java, ours)
                found: dict[str, Moved] = {}
                for side in order:
                    name = f"{job.name}-{tasks}-{number}-{'ours' if side is ours else 'java'}"
                    moved = found[side.name] = await move(side, job, tasks, name, place)
                    say(
                        f"{side.name}, {job.figure}, {tasks} task(s): {moved.total:,.0f}/s, first after "
                        f"{moved.first_s:.2f} s, {moved.cpu_per_million_s:.2f} s of processor time a million"
                    )
                made.append((found[ours.name], found[java.name]))
            rows += figures.moved_rows(job, tasks, made)
    if rows:
        _print(f"{place.records:,} records, {rounds} round(s)", rows, say)


async def _latency(ours: Side, java: Side, place: Place, sizes: latency.Sizes, say: Callable[[str], None]) -> list[Row]:
    rounds: list[tuple[latency.Latencies, latency.Latencies]] = []
    for number in range(sizes.rounds):
        found: dict[str, latency.Latencies] = {}
        for side in (ours, java) if number % 2 == 0 else (java, ours):
            say(f"{side.name}: latency")
            found[side.name] = await latency.measure(side, _sink("json"), place.bootstrap, place.folder, sizes, number)
        rounds.append((found[ours.name], found[java.name]))
    return figures.latency_rows(rounds)


async def _idle(broker: Broker, folder: Path, sizes: idle.Sizes, say: Callable[[str], None]) -> list[Row]:
    await asyncio.to_thread(idle.write_input, broker.bootstrap)
    found: list[dict[int, idle.Idle]] = []
    for side in (OurSide(broker, folder / "ours-idle", 1), JavaSide(broker, folder / "theirs-idle", 1)):
        output = folder / f"idle-{len(found)}"
        output.mkdir()
        async with _running(side):
            found.append(await idle.measure(side, _sink("string"), output, sizes, say))
    return figures.idle_rows(*found)


@contextlib.asynccontextmanager
async def _running(side: Side) -> AsyncGenerator[Side]:
    await side.start()
    try:
        yield side
    finally:
        await side.stop()


def _jars(wanted: Wanted) -> str:
    """The smallest group of jars that Java needs for all rows."""
    if any(isinstance(job, Mirror) for job in wanted.jobs):
        return MIRROR_JARS
    return AVRO_JARS if wanted.registry else CONNECT_JARS


def _sink(name: str) -> Sink:
    job = _JOBS[name]
    assert isinstance(job, Sink)
    return job


def _print(title: str, rows: Sequence[Row], say: Callable[[str], None]) -> None:
    say(f"\n{title}\n\n{table(rows)}\n")


def _names(only: str) -> Sequence[str]:
    names = [name.strip() for name in only.split(",")] if only else list(_PARTS)
    known = (*_PARTS, *_JOBS, AVRO)
    unknown = [name for name in names if name not in known]
    if unknown:
        raise SystemExit(f"--only {', '.join(unknown)}: there are {', '.join(known)}")
    return names


def _wanted(names: Sequence[str], registry: str) -> Wanted:
    jobs = [job for job in JOBS if "rows" in names or job.name in names]
    if registry:
        jobs.append(avro(registry))
    return Wanted(jobs, "latency" in names, "idle" in names, registry)


@contextlib.contextmanager
def _registry(names: Sequence[str]) -> Generator[str]:
    """The address of a registry if the Avro row is selected, with Java's converter fetched too; else an empty text."""
    if "rows" not in names and AVRO not in names:
        yield ""
        return
    with contextlib.ExitStack() as started:
        try:
            ensure_jars(AVRO_JARS)
            address = started.enter_context(real_registry())
        except JarsUnavailable as error:
            rest = ",".join((*_JOBS, "latency", "idle"))
            raise SystemExit(f"{error}\nThe rest needs neither registry nor Avro: --only {rest}") from error
        yield address


def run() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m bench.records", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="small sizes: does it run, not how fast")
    parser.add_argument("--only", default="", help="parts or jobs, separated by commas")
    parser.add_argument("--records", type=int, help="instead of 2,000,000")
    parser.add_argument("--rounds", type=int, help="instead of 3")
    options = parser.parse_args()
    sizes = QUICK if options.quick else FULL
    sizes = Sizes(options.records or sizes.records, options.rounds or sizes.rounds, sizes.latency, sizes.idle)
    names = _names(options.only)
    with _registry(names) as registry:
        asyncio.run(main(sizes, _wanted(names, registry), lambda line: print(line, flush=True)))


if __name__ == "__main__":
    run()
