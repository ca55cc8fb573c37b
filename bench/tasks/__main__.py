"""Converters, transformations and tasks alone: processor time a record, of this tree and of an older one alternately.

    make bench-tasks ARGS="--before ../before/.venv/bin/python"
    make bench-tasks ARGS="--before ../before/.venv/bin/python --only FileSink,Postgres --rounds 30"
    make bench-tasks

`--before` is the interpreter of an older checkout's environment (`make setup` there). Both run this tree's cases, each
in a process of its own, a round after the other; the first side alternates. Without it only this tree is measured. A
row's figures are those of each side's best round: other activity of the machine can only add to a round. A ratio is
before / now; above 1 this tree is faster. After it are the quartiles of the ratios of single rounds.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg

from bench.tasks.samples import RECORDS
from herdmesh.devstack.errors import DevstackError
from herdmesh.devstack.postgres import Postgres

Say = Callable[[str], None]
ROUNDS = 40
_ROUND_S = 0.02
"""Target processor time of a round: long compared with the clock's steps, short compared with disturbances."""
_MOST_REPEATS = 40
_ROOT = Path(__file__).parents[2]
_SETTINGS = {"wal_level": "logical", "fsync": "off", "autovacuum": "off"}


class CaseFailed(Exception):
    """A case that cannot run in that tree; the text has the reason."""


class Runner:
    """A process that runs cases."""

    def __init__(self, python: str, dsn: str) -> None:
        command = [python, "-m", "bench.tasks.runner", dsn]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=_ROOT
        )  # fmt: skip
        self.cases: list[str] = self._answer()["cases"]

    def seconds(self, case: str, repeats: int) -> float:
        """The processor time of the case, run `repeats` times. Raises CaseFailed."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"case": case, "repeats": repeats}) + "\n")
        self._process.stdin.flush()
        found = self._answer()
        if "error" in found:
            raise CaseFailed(found["error"])
        return found["seconds"]

    def close(self) -> None:
        """End the process."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit(f"a runner ended with {self._process.wait()}; its error is above")
        return json.loads(line)


@dataclass(frozen=True, slots=True)
class Row:
    """One case: microseconds of processor time a record, by round."""

    case: str
    now_us: Sequence[float]
    before_us: Sequence[float] = ()

    @property
    def ratio(self) -> float | None:
        """How many times as fast this tree is; None = there is nothing to compare with."""
        return min(self.before_us) / min(self.now_us) if self.before_us else None

    @property
    def text(self) -> str:
        """A line of the table."""
        if not self.before_us:
            return f"{self.case:58} {min(self.now_us):9.3f}"
        each = [before / now for before, now in zip(self.before_us, self.now_us, strict=True)]
        low, _, high = statistics.quantiles(each, n=4) if len(each) > 1 else each * 3
        return (
            f"{self.case:58} {min(self.before_us):9.3f} {min(self.now_us):9.3f} "
            f"{self.ratio:6.2f} ({low:.2f} to {high:.2f})"
        )


def measured(case: str, now: Runner, before: Runner | None, rounds: int) -> Row:
    """Run a case, a round of each tree after the other. Raises CaseFailed."""
    sides = [now] if before is None else [now, before]
    took_s = max(side.seconds(case, 2) for side in sides) / 2
    repeats = max(2, min(_MOST_REPEATS, round(_ROUND_S / max(took_s, 1e-6))))
    found: dict[Runner, list[float]] = {side: [] for side in sides}
    for number in range(rounds):
        for side in sides if number % 2 == 0 else reversed(sides):
            found[side].append(side.seconds(case, repeats) / repeats / RECORDS * 1e6)
    return Row(case, found[now], found[before] if before is not None else ())


def main(python: str, only: Sequence[str], rounds: int, dsns: Sequence[str], say: Say) -> list[Row]:
    """Measure and print. `python`: the interpreter of an older tree, or empty; `dsns`: a database for each side, or
    none.
    """
    rows: list[Row] = []
    with ExitStack() as stack:
        now = Runner(sys.executable, dsns[0] if dsns else "")
        stack.callback(now.close)
        before: Runner | None = None
        if python:
            before = Runner(python, dsns[1] if dsns else "")
            stack.callback(before.close)
        names = [case for case in now.cases if not only or any(one.lower() in case.lower() for one in only)]
        heading = f"{'case, us of processor time a record':58} {'before':>9} {'now':>9} {'ratio':>6}"
        say(heading if python else f"{'case, us of processor time a record':58} {'now':>9}")
        for case in names:
            try:
                rows.append(measured(case, now, before, rounds))
            except CaseFailed as error:
                say(f"{case:58} not measured: {error}")
            else:
                say(rows[-1].text)
    return rows


async def _with_server(python: str, only: Sequence[str], rounds: int, say: Say) -> list[Row]:
    with tempfile.TemporaryDirectory(prefix="herdmesh-bench-tasks-") as folder:
        server = Postgres(Path(folder), settings=_SETTINGS)
        await server.start()
        try:
            with psycopg.connect(server.dsn, autocommit=True) as connection:
                connection.execute("CREATE DATABASE now")
                connection.execute("CREATE DATABASE before")
            dsns = [server.dsn.replace("/postgres", f"/{name}") for name in ("now", "before")]
            return await asyncio.to_thread(main, python, only, rounds, dsns, say)
        finally:
            await server.stop()


def run() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m bench.tasks", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--before", default="", metavar="PYTHON", help="interpreter of an older checkout, run in turn")
    parser.add_argument("--only", default="", help="parts of cases' names, separated by commas")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help=f"instead of {ROUNDS}")
    parser.add_argument("--without-server", action="store_true", help="leave out the cases that need PostgreSQL")
    options = parser.parse_args()
    only = [one.strip() for one in options.only.split(",") if one.strip()]

    def say(line: str) -> None:
        print(line, flush=True)

    if options.without_server:
        main(options.before, only, options.rounds, (), say)
        return
    try:
        asyncio.run(_with_server(options.before, only, options.rounds, say))
    except DevstackError as error:
        raise SystemExit(f"{error}\nWithout a server: --without-server") from error


if __name__ == "__main__":
    run()
