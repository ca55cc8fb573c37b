"""One run: five exactly-once paths through one mesh, beside each the same at least once, under the same kills.

2 workers, 2 herders, 2 replicas of each store, a broker, and a real PostgreSQL, origin of one path and target of
another, which is not killed. Owns the order of a run: `kills` owns the kills, `paths` and `twins` the data, `truth` the
counting.

All waits are on progress, none on time. The origins grow only a little ahead of the slowest path, and get more right
before each kill, so that every path has records left a moment before it. Kill k happens when the
slowest path has passed (k - 1) / KILLS of its records.

Two kills are *aimed*, the first among them: every path and every twin is held right after its next write (failpoints,
`hold`), the paths' transactions are verified to be open at the broker, and then a worker is killed, with the held
runs. So each has certainly sent records that it must send again, whatever the other kills hit.

Invariant: a run without progress for `STALL_S` fails, and prints the position of each path and each connector.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from herdmesh.devstack.postgres import Postgres
from tests.chaos.faults import Fault
from tests.chaos.harm import Harm
from tests.exactly_once import plain_sinks, twins
from tests.exactly_once.holds import Holds
from tests.exactly_once.kills import AIMED, KILLS, kills
from tests.exactly_once.paths import OUTPUTS, PATHS, POINTS, Origins, Progress, configs
from tests.exactly_once.truth import Result, open_transaction, results
from tests.support.mesh import Mesh, running_mesh

WORKERS, HERDERS, REPLICAS = 2, 2, 2
#: All tasks fit on one worker, should the other be dead.
SLOTS = 20
_ALL = (*PATHS, *twins.TWINS)
_POINTS = POINTS | twins.POINTS
_ROOT = Path(__file__).parents[2]
STALL_S = 240.0
#: The lead of the origins over the slowest path, and the share that each kill releases: parts of all records.
_LEAD = 1 / 30
_OF_A_KILL = 200


@dataclass
class Outcome:
    """Actions and findings of a run."""

    seed: int
    records: int
    kills: Counter[str] = field(default_factory=Counter[str])
    """By role."""
    left: list[int] = field(default_factory=list[int])
    """Of each kill: records in the origins that the fastest path had not written yet."""
    results: Mapping[str, Result] = field(default_factory=dict[str, Result])
    timeline: list[str] = field(default_factory=list[str])
    seconds: float = 0.0

    def summary(self) -> str:
        """A summary for the test's output."""
        roles = ", ".join(f"{role} {times}" for role, times in sorted(self.kills.items()))
        lines = [f"{path}: {result}" for path, result in self.results.items()]
        head = f"seed {self.seed}, {self.records} records, {self.kills.total()} kills ({roles}), {self.seconds:.0f} s"
        return "\n".join([head, *lines])


class _Run:
    """A run in progress."""

    def __init__(self, mesh: Mesh, origins: Origins, progress: Progress, holds: Holds, outcome: Outcome) -> None:
        self._mesh = mesh
        self._holds = holds
        self._origins = origins
        self._progress = progress
        self._outcome = outcome
        self._harm = Harm(mesh)
        self._lead = int(outcome.records * _LEAD)
        #: Each kill raises it: that kill then has new records for every path.
        self._grown_max = outcome.records - KILLS * (outcome.records // _OF_A_KILL)
        self._seen: dict[str, int] = {}
        self._moved_s = time.monotonic()
        outcome.timeline = self._harm.timeline

    async def drive(self) -> None:
        """Move all data through, with all kills."""
        records = self._outcome.records
        for number, (role, fault) in enumerate(kills(self._outcome.seed)):
            await self._until(number * records // KILLS)
            if role == AIMED:
                if self._outcome.kills:  # the first time all runs are armed already
                    self._holds.again()
                await self._hold_all()
            await self._kill(role, fault)
        self._grown_max = records
        await self._until(records)
        await self._harm.over()
        await twins.until_through(self._mesh, records, STALL_S)
        self._harm.note("all is through")

    async def _kill(self, role: str, fault: Fault) -> None:
        while not await self._harm.has(fault):
            self._raise_if_stalled()
            await asyncio.sleep(0.25)
        seen = await self._look()
        if role != AIMED:  # an aimed kill has released records already, and the runs are held
            await self._give_more()
        left = self._origins.grown - max(seen.values())
        before = self._harm.count
        await self._harm.do(fault)
        while self._harm.count == before:  # the process ended meanwhile
            await asyncio.sleep(0.25)
            await self._harm.do(fault)
        self._holds.end()
        self._outcome.kills[role] += 1
        self._outcome.left.append(left)

    async def _hold_all(self) -> None:
        """Wait until each path and each twin has written something that is not committed."""
        await self._give_more()
        while not set(_POINTS) <= self._holds.held():
            self._raise_if_stalled()
            await asyncio.sleep(0.05)
        for topic in OUTPUTS.values():
            while not await asyncio.to_thread(open_transaction, self._mesh, topic):
                self._raise_if_stalled()
                await asyncio.sleep(0.05)
        self._harm.note("all paths and their twins are held between a write and its commit")

    async def _give_more(self) -> None:
        """Release more records to each path, also to one that has written all there are."""
        self._grown_max += self._outcome.records // _OF_A_KILL
        await asyncio.to_thread(self._origins.grow, min(self._origins.grown + self._lead, self._grown_max))

    async def _until(self, count: int) -> None:
        """Wait until every path has written so many records. Lets the origins grow."""
        while min((await self._look()).values()) < count:
            self._holds.end()
            self._raise_if_stalled()
            await asyncio.sleep(0.05)

    async def _look(self) -> dict[str, int]:
        seen = await self._progress.look()
        if seen != self._seen:
            self._seen, self._moved_s = seen, time.monotonic()
        assert max(seen.values()) <= self._origins.grown, f"more came out than went in ({self._origins.grown}): {seen}"
        await asyncio.to_thread(self._origins.grow, min(self._grown_max, min(seen.values()) + self._lead))
        return seen

    def _raise_if_stalled(self) -> None:
        if time.monotonic() - self._moved_s < STALL_S:
            return
        states = {
            name: [(task["state"], task.get("error")) for task in shown["tasks"]]
            for name, shown in self._mesh.board.connectors.items()
        }
        raise AssertionError(f"nothing moves for {STALL_S:g} s: {self._seen}; tasks: {states}")


async def run_exactly_once(folder: Path, seed: int, records: int) -> Outcome:
    """A whole run in this folder: mesh and PostgreSQL up, data and kills, all counted, all down. Logs of all processes
    stay in `folder`/stack/logs.
    """
    print(f"exactly once: seed {seed}, {records} records, logs in {folder / 'stack' / 'logs'}", flush=True)
    begun_s = time.monotonic()
    outcome = Outcome(seed, records)
    # It is never killed, so it need not sync.
    postgres = Postgres(folder / "postgres", settings={"fsync": "off"})
    starting = asyncio.create_task(postgres.start())  # in parallel to the mesh
    plugins = folder / "plugins"
    plain_sinks.install(plugins)
    mesh_of = running_mesh(
        folder / "stack",
        None,
        WORKERS,
        "exactly-once",
        herders=HERDERS,
        store_replicas=REPLICAS,
        slots=SLOTS,
        is_quick=True,
        ends_by_force=True,
        worker_env={"PYTHONPATH": os.pathsep.join((str(plugins), str(_ROOT), os.environ.get("PYTHONPATH", "")))},
    )
    try:
        async with mesh_of as mesh:
            await starting
            print(f"the mesh serves after {time.monotonic() - begun_s:.1f} s", flush=True)
            outcome.results = await _through(mesh, folder, postgres.dsn, outcome)
    finally:
        await asyncio.wait([starting])
        await postgres.stop()
    outcome.seconds = time.monotonic() - begun_s
    return outcome


async def _through(mesh: Mesh, folder: Path, dsn: str, outcome: Outcome) -> Mapping[str, Result]:
    origins = await asyncio.to_thread(Origins, mesh, folder, dsn)
    progress = Progress(mesh, folder, dsn)
    try:
        holds = Holds(mesh, _POINTS)  # before there are runs: they read it when they begin
        paths = configs(mesh, folder, dsn)
        applied = {**paths, **twins.configs(paths, folder)}
        await asyncio.gather(*(mesh.apply(name, config) for name, config in applied.items()))
        await _Run(mesh, origins, progress, holds, outcome).drive()
    finally:
        progress.close()
        origins.close()
    # No connector writes during the count, and none that woke up late can write after it.
    await asyncio.gather(*(mesh.lifecycle("StopConnector", name) for name in _ALL))
    await asyncio.gather(
        *(mesh.until(name, lambda one: one["connector"]["state"] == "STOPPED", "STOPPED") for name in _ALL)
    )
    return await asyncio.to_thread(results, mesh, folder, dsn, outcome.records)
