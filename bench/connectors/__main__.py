"""Connectors of Herdmesh and of Java Connect 4.3.1, on one broker and one PostgreSQL server, in one run.

    make bench-connectors
    make bench-connectors ARGS="--quick"
    make bench-connectors ARGS="--only mirror,postgres --records 200000 --rounds 1"
    make bench-connectors ARGS="--before ../before/.venv/bin/python --no-java --rounds 6"

Each row runs the sides alternately, round by round, and the first side of a round alternates too. Prints a table for
each row: figure, ours, Java's, ratio ours / Java's. Run it alone: the ratios cancel the machine's own speed, not
another load on it. `--before` is the interpreter of an older checkout's environment (`make setup` there): its services
run the rows alternately with this tree's, so that before and after are of one run. `--no-java` leaves Java out: a
comparison of two trees then takes half the time, and can have more rounds.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import tempfile
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from bench.connectors import figures, jobs, plugins, postgres
from bench.connectors.jobs import Pair
from bench.connectors.postgres import TableJob
from bench.records import workload
from bench.records.figures import of_tasks
from bench.records.jobs import Job, Mirror, Sink, Source
from bench.records.moving import Moved, Place, move
from bench.sides import JavaSide, OurSide, Side
from bench.table import Row, table
from herdmesh.devstack.broker import Broker
from herdmesh.devstack.errors import JarsUnavailable
from herdmesh.devstack.jars import ensure_jars
from herdmesh.devstack.postgres import Postgres
from tests.support.java_connect import CONNECT_JARS, MIRROR_JARS

_PAIRS = {pair.name: pair for pair in jobs.pairs()}
_TABLES = {job.name: job for job in postgres.JOBS}
_OURS = "herdmesh"
Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Sizes:
    """Number of records and rounds. `loaded`: records into a database."""

    records: int
    loaded: int
    rounds: int


FULL = Sizes(2_000_000, 1_000_000, 3)
QUICK = Sizes(50_000, 50_000, 1)


@dataclass(frozen=True, slots=True)
class Runner:
    """One way to do a row's work: on a side, under a name, with a number of tasks."""

    label: str
    run: Callable[[str, int], Awaitable[Moved]]


@dataclass(frozen=True, slots=True)
class Wanted:
    """The rows and sides to measure."""

    pairs: Sequence[Pair]
    tables: Sequence[TableJob]
    before: str = ""
    """The interpreter of an older tree, or empty."""
    has_java: bool = True

    @property
    def jars(self) -> str:
        """The smallest group of jars that Java needs for all rows."""
        return MIRROR_JARS if any(isinstance(pair.ours, Mirror) for pair in self.pairs) else CONNECT_JARS


@dataclass(frozen=True, slots=True)
class Sides:
    """The running clusters: this tree's, Java's, and an older tree's if one is given."""

    ours: Side
    java: Side | None
    before: Side | None

    def of_ours(self) -> list[tuple[str, Side]]:
        """Our sides, each with its label."""
        return [(_OURS, self.ours), *([(figures.BEFORE, self.before)] if self.before else [])]


async def main(sizes: Sizes, wanted: Wanted, say: Say) -> None:
    """Measure and print."""
    with tempfile.TemporaryDirectory(prefix="herdmesh-bench-connectors-") as name:
        folder = Path(name)
        more = plugins.java_settings(folder / "java-plugins") if wanted.tables and wanted.has_java else None
        environment = plugins.our_environment(folder / "our-plugins")
        broker = Broker(folder / "kafka", port=0)
        await broker.start()
        try:
            place = Place(broker.bootstrap, folder, sizes.records)
            await asyncio.to_thread(_write_input, wanted, place, sizes.loaded, say)
            async with (
                _running(OurSide(broker, folder / "ours", 1, environment)) as ours,
                contextlib.AsyncExitStack() as stack,
            ):
                java: Side | None = None
                before: Side | None = None
                if wanted.has_java:
                    theirs = JavaSide(broker, folder / "theirs", 1, wanted.jars, more)
                    java = await stack.enter_async_context(_running(theirs))
                if wanted.before:
                    older = OurSide(
                        broker, folder / "before", 1, environment, python=wanted.before, group="bench-before"
                    )
                    before = await stack.enter_async_context(_running(older))
                sides = Sides(ours, java, before)
                for pair in wanted.pairs:
                    await _pair(pair, sides, place, sizes.rounds, say)
                if wanted.tables:
                    loading = replace(place, records=sizes.loaded)
                    async with _postgres(folder / "postgres") as server:
                        for job in wanted.tables:
                            await _table(job, sides, loading, server, sizes.rounds, say)
        finally:
            await broker.stop()


def _write_input(wanted: Wanted, place: Place, loaded: int, say: Say) -> None:
    given = [pair.ours for pair in wanted.pairs]
    if any(not isinstance(job, Source) for job in given):
        say(f"writing {place.records:,} records")
        workload.write_topic(place.bootstrap, workload.JSON_TOPIC, place.records, workload.text)
    if any(isinstance(job, Source) for job in given):
        workload.write_file(place.input_file, place.records)
    if wanted.tables:
        say(f"writing {loaded:,} records with their schema")
        workload.write_topic(place.bootstrap, workload.SCHEMA_TOPIC, loaded, workload.enveloped)


async def _pair(pair: Pair, sides: Sides, place: Place, rounds: int, say: Say) -> None:
    def runner(label: str, side: Side, job: Job) -> Runner:
        return Runner(label, lambda name, tasks: move(side, job, tasks, name, place))

    runners = [runner(label, side, pair.ours) for label, side in sides.of_ours()]
    if (java := sides.java) is not None:
        runners += [runner(label, java, job) for label, job in pair.java.items()]
    for tasks in pair.tasks:
        found = await _rounds(pair.name, pair.figure, runners, tasks, rounds, say)
        rows = _rows(of_tasks(pair.figure, tasks), pair.goal, found, steady=isinstance(pair.ours, Sink))
        _print(f"{place.records:,} records, {rounds} round(s)", rows, say)


async def _table(job: TableJob, sides: Sides, place: Place, server: Postgres, rounds: int, say: Say) -> None:
    def runner(label: str, way: postgres.Way, side: Side) -> Runner:
        return Runner(label, lambda name, tasks: postgres.load(side, way, job, tasks, name, place, server))

    runners = [runner(label, postgres.OURS, side) for label, side in sides.of_ours()]
    if (java := sides.java) is not None:
        runners += [runner(way.label, way, java) for way in postgres.JAVAS]
    for tasks in job.tasks:
        found = await _rounds(job.name, job.figure, runners, tasks, rounds, say)
        rows = _rows(of_tasks(job.figure, tasks), job.goal, found, steady=True)
        _print(f"{place.records:,} records, {rounds} round(s)", rows, say)


async def _rounds(
    name: str, figure: str, runners: Sequence[Runner], tasks: int, rounds: int, say: Say
) -> dict[str, list[Moved]]:
    """The results of each runner, in the order of rounds."""
    found: dict[str, list[Moved]] = {runner.label: [] for runner in runners}
    for number in range(rounds):
        # The first side finds files colder, so the sides alternate in that too.
        first = number % len(runners)
        for runner in (*runners[first:], *runners[:first]):
            moved = await runner.run(f"{name}-{tasks}-{number}-{runners.index(runner)}", tasks)
            found[runner.label].append(moved)
            say(
                f"{runner.label}, {of_tasks(figure, tasks)}: {moved.total:,.0f}/s, first after {moved.first_s:.2f} s, "
                f"{moved.cpu_per_million_s:.2f} s of processor time a million"
            )
    return found


def _rows(figure: str, goal: float, found: dict[str, list[Moved]], *, steady: bool) -> list[Row]:
    javas = {label: moved for label, moved in found.items() if label != _OURS}
    return figures.rows_of(figure, goal, found[_OURS], javas, steady=steady)


@contextlib.asynccontextmanager
async def _running(side: Side) -> AsyncGenerator[Side]:
    await side.start()
    try:
        yield side
    finally:
        await side.stop()


@contextlib.asynccontextmanager
async def _postgres(folder: Path) -> AsyncGenerator[Postgres]:
    server = Postgres(folder, settings=postgres.SETTINGS)
    await server.start()
    try:
        yield server
    finally:
        await server.stop()


def _print(title: str, rows: Sequence[Row], say: Say) -> None:
    say(f"\n{title}\n\n{table(rows)}\n")


def wanted_of(only: str) -> Wanted:
    """The rows that `--only` names; all when it is empty. Raises SystemExit for an unknown name."""
    names = [name.strip() for name in only.split(",")] if only else [*_PAIRS, *_TABLES]
    if unknown := [name for name in names if name not in _PAIRS and name not in _TABLES]:
        raise SystemExit(f"--only {', '.join(unknown)}: there are {', '.join((*_PAIRS, *_TABLES))}")
    return Wanted(
        [_PAIRS[name] for name in names if name in _PAIRS], [_TABLES[name] for name in names if name in _TABLES]
    )


def _fetch(wanted: Wanted) -> None:
    """Fetch all jars and archives before any process is started."""
    if not wanted.has_java:
        return
    try:
        ensure_jars(wanted.jars)
        if wanted.tables:
            plugins.debezium()
    except JarsUnavailable as error:
        raise SystemExit(f"{error}\nWithout them: --only file-sink,file-source,{_sdk_names()}") from error


def _sdk_names() -> str:
    return ",".join(name for name in _PAIRS if name.startswith("sdk-"))


def run() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m bench.connectors", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="small sizes: does it run, not how fast")
    parser.add_argument("--only", default="", help="rows, separated by commas")
    parser.add_argument("--records", type=int, help="instead of 2,000,000, and of 1,000,000 into a database")
    parser.add_argument("--rounds", type=int, help="instead of 3")
    parser.add_argument("--before", default="", metavar="PYTHON", help="interpreter of an older checkout, run beside")
    parser.add_argument("--no-java", action="store_true", help="with --before: only the two trees of ours")
    options = parser.parse_args()
    if options.no_java and not options.before:
        parser.error("--no-java leaves nothing to compare with: name an older checkout's interpreter by --before")
    sizes = QUICK if options.quick else FULL
    sizes = Sizes(
        options.records or sizes.records, options.records or sizes.loaded, options.rounds or sizes.rounds
    )  # fmt: skip
    wanted = replace(wanted_of(options.only), before=options.before, has_java=not options.no_java)
    _fetch(wanted)
    asyncio.run(main(sizes, wanted, lambda line: print(line, flush=True)))


if __name__ == "__main__":
    run()
