"""One run of chaos: 3 workers, 2 herders, 2 replicas of each store, a broker, 12 connectors under load, and faults.

Owns the order of a run and the judging. Faults come in rounds from a seed; after each round, when its harm is over:

- every connector and task is RUNNING again within `SETTLE_S` (or the caller's limit) of the last fault or of the
  first worker ready, whichever is later (a freeze ends when it is woken; the broker's fault when it serves again); one
  that is moved later on, to balance, as its leader logged it, has that time from when it was stopped;
- a task that ran on a worker that was not harmed was not restarted (its generation is the same), unless its leader
  logged that it moved it for balance, which comes when no worker has joined or left for a while; such moves are
  counted, and the simulator checks that they come late and are few. Each hop of a unit counts, as the leaders logged
  them (`moves`). Where the broker was harmed, a run may end with its transaction, and begin again on its worker: a task
  whose run did not end, as its worker logged it, is not restarted there either.

A fault without a target (no herder leads) is executed in the next round, and no run ends before each target was killed.

Users change connectors all along: one is updated, others are created, patched and deleted, one is paused, resumed,
stopped and restarted. In the end: nothing acknowledged is lost, the data is exact (`traffic`), herder, status stores
and processes agree on what runs where (`truth`), and no process is left behind.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

import grpc.aio

from herdmesh.cli.errors import CommandError
from herdmesh.cli.mesh.client import HerderClient
from herdmesh.devstack.readiness import serves
from tests.chaos.faults import TARGETS, Fault, Way, rounds
from tests.chaos.harm import Harm, own_sessions
from tests.chaos.moves import Starts, balanced, ended, heard, hops, starts
from tests.chaos.traffic import IDLE, TASKS, Traffic
from tests.chaos.truth import UNITS, Place, Unit, differing, named, not_running, places, run_processes, stored
from tests.support.control import ControlWriter, LivesWriter
from tests.support.mesh import Mesh, role_of, running_mesh
from tests.support.states import StateWriter

WORKERS, HERDERS, REPLICAS = 3, 2, 2
#: All tasks fit on one worker, should the others be dead.
SLOTS = 20
#: The connector that users pause, resume, stop and restart all along. With its task there are 18, which three workers
#: and two share evenly: without it no worker has two more than another, so that no task is moved because it goes.
STATES = "states"
#: The limit that the issue promises.
SETTLE_S = 10.0
_QUICK_RECONNECT = [(f"grpc.{which}_reconnect_backoff_ms", 100) for which in ("initial", "min", "max")]
#: Maximum time between the log line of a unit's stop and its visible effect.
MOVE_S = 1.0
#: All must be RUNNING for so long before it counts: a leader may not have noticed a fault yet.
STEADY_S = 1.5
#: A worker's session, and a margin. The units of a dead worker may be shown as RUNNING for so long, counted from when
#: the leader knows that it leads: to a new leader, a worker that died together with the old one has missed no heartbeat
#: yet.
LEASE_S = 7.0
#: Three times a lease, and a margin: only to distinguish late from never.
AGREE_S = 20.0
#: How long a run waits for a task, beyond the promise, before it stops; only to distinguish late from never.
GIVEN_UP_S = 60.0


@dataclass
class Outcome:
    """Actions and findings of a run. It is good when `violations` is empty."""

    seed: int
    rounds: int = 0
    faults: Counter[tuple[str, Way]] = field(default_factory=Counter[tuple[str, Way]])
    """By target and way."""
    settle_s: list[float] = field(default_factory=lambda: list[float]())
    worker_ready_s: list[float] = field(default_factory=lambda: list[float]())
    excused: int = 0
    """Number of restarts excused as moves for balance."""
    outages: int = 0
    """Number of runs on unharmed workers that ended with the broker, and began again on the same worker."""
    acknowledged: int = 0
    """Changes by users."""
    violations: list[str] = field(default_factory=lambda: list[str]())
    timeline: list[str] = field(default_factory=lambda: list[str]())
    data: str = ""

    def missed(self) -> set[str]:
        """Targets that were not killed."""
        return set(TARGETS - {target for target, way in self.faults if way is Way.KILL})

    def settled(self) -> str:
        """How long it took until all were RUNNING again."""
        took_s = sorted(self.settle_s)
        return f"RUNNING again after (s): median {_at(took_s, 0.5)}, worst {_at(took_s, 1.0)}"

    def summary(self) -> str:
        """A summary of a few lines."""
        ready = sorted(self.worker_ready_s)
        lines = [
            f"chaos: seed {self.seed}, {self.rounds} rounds, {self.faults.total()} faults, "
            f"{len(self.violations)} violations, {self.excused} moves for balance excused, "
            f"{self.outages} runs that ended with the broker",
            f"faults: {', '.join(f'{target} {way} {times}' for (target, way), times in sorted(self.faults.items()))}",
            self.settled(),
            f"a worker was ready after (s): median {_at(ready, 0.5)}, worst {_at(ready, 1.0)}",
            self.data,
        ]
        return "\n".join([*lines, *(f"VIOLATION {one}" for one in self.violations)])


class Workers:
    """When each worker became ready, seen from outside."""

    def __init__(self, mesh: Mesh, outcome: Outcome) -> None:
        self._mesh, self._outcome = mesh, outcome
        self._names = {name for name in mesh.stack.processes if role_of(name) == "worker"}
        self.ready_s: dict[str, float] = {}
        """Since when a worker serves without a break; absent while it does not."""

    async def watch(self) -> None:
        """Update until cancelled."""
        await asyncio.gather(*(self._watch(name) for name in self._names))

    def away(self) -> Sequence[str]:
        """Workers that do not serve now."""
        return sorted(self._names - self.ready_s.keys())

    async def _watch(self, name: str) -> None:
        address = next(one.address for one in self._mesh.stack.state.services if one.name == name)
        lost_s = time.monotonic()
        # gRPC's own pause between two connections grows to minutes: a worker that is back would be seen too late.
        async with grpc.aio.insecure_channel(address, options=_QUICK_RECONNECT) as channel:
            while True:
                if await serves(channel, timeout_s=0.5):
                    if name not in self.ready_s:
                        self.ready_s[name] = time.monotonic()
                        self._outcome.worker_ready_s.append(self.ready_s[name] - lost_s)
                elif self.ready_s.pop(name, None) is not None:
                    lost_s = time.monotonic()
                await asyncio.sleep(0.1)


class Chaos:
    """A run on a mesh that is up."""

    def __init__(self, mesh: Mesh, seed: int, folder: Path, settle_s: float) -> None:
        self.outcome = Outcome(seed)
        self._settle_s = settle_s
        self.harm = Harm(mesh)
        self._mesh = mesh
        # of little patience: the time without a leader is part of the measurement
        self._observer = HerderClient(mesh.stack.state.herder, patience_s=0.5)
        self._traffic, self._folder = Traffic(mesh, folder), folder
        self._workers = Workers(mesh, self.outcome)
        self._pauses = random.Random(seed ^ 1)
        self._addresses: dict[str, str] = {}
        self._owed: list[Fault] = []
        self.outcome.faults, self.outcome.timeline = self.harm.done, self.harm.timeline

    async def run(self, seconds: float) -> Outcome:
        """Execute faults for about so long. Raises errors of the harness; violations by the mesh are in the outcome."""
        self._addresses = {one.address: one.name for one in self._mesh.stack.state.services}
        await self._traffic.start()
        self.harm.note("all connectors run")
        watching = asyncio.create_task(self._workers.watch())
        try:
            async with (
                ControlWriter(self._mesh, "control") as control,
                LivesWriter(self._mesh) as lives,
                StateWriter(self._mesh, STATES, IDLE, self._folder / STATES, self.outcome.seed) as states,
            ):
                until_s = time.monotonic() + seconds
                for faults in rounds(self.outcome.seed):
                    if time.monotonic() > until_s and not self.outcome.missed():
                        break
                    if any("never" in one for one in self.outcome.violations):
                        break
                    await self._round(faults)
                    self._traffic.check()
            self.harm.note("harm is over, counting")
            await asyncio.to_thread(self._traffic.finish)
            try:
                await states.rest()
                await self._agree()
                self.outcome.data = await self._traffic.assert_exact()
                await control.assert_nothing_lost()
                await lives.assert_nothing_lost()
                self.outcome.acknowledged = control.acknowledged + lives.acknowledged + states.acknowledged
                self.outcome.data += (
                    f"; {control.acknowledged} updates, {lives.acknowledged} creations, patches and deletions and "
                    f"{states.acknowledged} pauses, resumes, stops and restarts acknowledged, none lost"
                )
            except (AssertionError, CommandError) as error:
                self._violated(str(error))
        finally:
            self.harm.wake_all()
            await self._observer.__aexit__(None, None, None)
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)
        return self.outcome

    async def _round(self, faults: Sequence[Fault]) -> None:
        """Some faults, and the check after them."""
        before = await self._look()
        self.outcome.rounds += 1
        begun_s = time.monotonic()
        owed, self._owed = self._owed, []
        for fault in [*owed, *faults]:
            await self._wait(fault.gap_s)
            if not await self.harm.do(fault):
                self._owed.append(fault)
        await self.harm.over()
        after = await self._settled()
        if after is not None:
            self._judge(before, after, begun_s)
        # Also while a worker is still starting: it need not be ready when the next is harmed.
        await self._wait(self._pauses.uniform(0, 4))

    async def _settled(self) -> dict[Unit, Place] | None:
        """Wait until everything runs, and stays so; notes how long it took. While no leader answers, nothing counts
        as running. A unit that is moved later on, to balance, has its own time.
        """
        since_s, ready_s = self._since_s, self._workers.ready_s.values
        down: dict[Unit, float] = {}
        silent_s = self.harm.last_s
        slowest = (0.0, "")
        good_s: float | None = None
        seen: dict[Unit, Place] = {}
        while good_s is None or time.monotonic() - good_s < STEADY_S:
            trouble = ""
            try:
                seen = await places(self._observer)
            except CommandError as error:
                seen, trouble = {}, f"no leader answers ({error.message}); "
                silent_s = time.monotonic()
            now_s = time.monotonic()
            trouble += not_running(seen)
            if now_s - silent_s < LEASE_S and (away := self._workers.away()):
                trouble += f"{away} may have units that only look RUNNING"
            for unit in UNITS:
                place = seen.get(unit)
                if place is None or place.state != "RUNNING":
                    down.setdefault(unit, now_s)
                elif (fell_s := down.pop(unit, None)) is not None:
                    took_s = now_s - due_since_s(since_s(), fell_s, ready_s())
                    if took_s > self._settle_s and self._balanced(unit, fell_s - MOVE_S):
                        self._excused(f"{named(unit)} is there {took_s:.1f} s after the harm: moved to balance")
                        took_s = now_s - fell_s
                    slowest = max(slowest, (took_s, named(unit)))
            good_s = (good_s or now_s) if not trouble else None
            if trouble and (now_s - since_s() > GIVEN_UP_S or now_s - self.harm.last_s > 2 * GIVEN_UP_S):
                self._violated(f"never RUNNING again within {GIVEN_UP_S:g} s: {trouble}")
                return None
            await asyncio.sleep(0.1)
        took_s, which = slowest
        self.outcome.settle_s.append(took_s)
        self.harm.note(f"all RUNNING, the slowest after {took_s:.1f} s {which}")
        if took_s > self._settle_s:
            self._violated(f"{which} was RUNNING again only after {took_s:.1f} s")
        return seen

    async def _agree(self) -> None:
        """Assert that the herder, both replicas of the status store and the processes agree."""
        until_s = time.monotonic() + AGREE_S
        while True:
            told = await self._look()
            trouble = not_running(told)
            for address in self._mesh.stack.addresses("status-store"):
                trouble = trouble or differing(told, await stored(address))
            tasks = Counter(place.worker_id for unit, place in told.items() if unit[1] is not None)
            for worker_id, count in (await asyncio.to_thread(run_processes, self._mesh)).items():
                if count > tasks[worker_id]:
                    trouble = trouble or f"{worker_id} has {count} runs for {tasks[worker_id]} tasks"
            if not trouble:
                return
            assert time.monotonic() < until_s, f"not agreed after {AGREE_S:g} s: {trouble}"
            await asyncio.sleep(0.1)

    async def _look(self) -> dict[Unit, Place]:
        """The leader's view, waiting for one as a user would. Raises CommandError when there is none in time."""
        until_s = time.monotonic() + GIVEN_UP_S
        while True:
            try:
                return await places(self._observer)
            except CommandError:
                if time.monotonic() > until_s:
                    raise
            await asyncio.sleep(0.1)

    def _since_s(self) -> float:
        """The last fault, or the first worker ready after it when none was ready at it."""
        last_s = self.harm.last_s
        ready = sorted(self._workers.ready_s.values())
        if not ready:
            return time.monotonic()
        return max(last_s, ready[0])

    def _judge(self, before: dict[Unit, Place], after: dict[Unit, Place], begun_s: float) -> None:
        """Check that every restart of a task is explained by a fault of this round, or by a worker that came back in
        it.
        """
        begun: Starts | None = None
        known: set[tuple[Unit, int]] = set()
        gone = ended(self._logs("worker")) if self._harmed("broker", begun_s) else set[tuple[Unit, int]]()
        for unit, was in before.items():
            now = after[unit]
            if unit[0] not in TASKS or now.generation == was.generation or was.state != "RUNNING":
                continue
            if begun is None:
                begun, known = starts(self._logs("herder")), heard(self._logs("worker"))
            # A unit may have been moved to a worker that came back and was then harmed itself.
            between = [hop for hop in hops(begun, unit, was.generation, now.generation) if (unit, hop[0]) in known]
            path = [(was.generation, was.worker_id), *between, (now.generation, now.worker_id)]
            for (generation, left_id), (_, took_id) in pairwise(path):
                left, took = self._addresses.get(left_id, ""), self._addresses.get(took_id, "")
                if self._harmed(left, begun_s):
                    continue
                if took == left and (unit, generation) in gone:
                    self.outcome.outages += 1
                    continue
                if took != left and self._balanced(unit, begun_s):
                    self._excused(f"{named(unit)} was moved to balance ({left} -> {took})")
                    continue
                self._violated(
                    f"{named(unit)} was restarted (generation {was.generation} -> {now.generation}, {left} -> {took}), "
                    f"and neither was harmed" + (", and its run had not ended" if gone else "")
                )

    def _balanced(self, unit: Unit, since_s: float) -> bool:
        """Whether a leader moved the unit for balance since then."""
        moved = balanced(self._logs("herder"), unit)
        return bool(moved) and max(moved) >= since_s + time.time() - time.monotonic()

    def _logs(self, role: str) -> Iterable[Path]:
        return self._mesh.stack.layout.logs_dir.glob(f"{role}*.log")

    def _harmed(self, service: str, since_s: float) -> bool:
        return self.harm.harmed.get(service, 0.0) >= since_s

    def _excused(self, what: str) -> None:
        self.outcome.excused += 1
        self.harm.note(f"EXCUSED {what}")

    def _violated(self, what: str) -> None:
        self.outcome.violations.append(what)
        self.harm.note(f"VIOLATION {what}")

    async def _wait(self, seconds: float) -> None:
        """Let the schedule's time pass."""
        until_s = time.monotonic() + seconds
        while time.monotonic() < until_s:
            self._traffic.check()
            await asyncio.sleep(0.05)


def due_since_s(harmed_s: float, fell_s: float, ready_s: Iterable[float]) -> float:
    """Start of a unit's time to be RUNNING again: the end of the harm, also where the harm was noticed
    late; or, for a unit moved for balance, when the last worker before that was ready.
    """
    return max([harmed_s, *(at_s for at_s in ready_s if at_s <= fell_s)])


async def run_chaos(folder: Path, seed: int, seconds: float, settle_s: float = SETTLE_S) -> Outcome:
    """A whole run in this folder: mesh up, harm, mesh down. Logs of all processes stay in `folder`/stack/logs.

    A task that is RUNNING again later than `settle_s` after the harm is a violation.
    """
    print(f"chaos: seed {seed}, {seconds:g} s, logs in {folder / 'stack' / 'logs'}", flush=True)
    begun_s = time.monotonic()
    sessions: set[int] = set()
    async with running_mesh(
        folder / "stack", None, WORKERS, "chaos", herders=HERDERS, store_replicas=REPLICAS, slots=SLOTS
    ) as mesh:
        print(f"the mesh serves after {time.monotonic() - begun_s:.1f} s", flush=True)
        chaos = Chaos(mesh, seed, folder / "data", settle_s)
        noting = asyncio.create_task(_note_sessions(mesh, sessions))
        try:
            outcome = await chaos.run(seconds)
        finally:
            noting.cancel()
        stopping_s = time.monotonic()
    print(f"the mesh stopped in {time.monotonic() - stopping_s:.1f} s", flush=True)
    left = own_sessions(sorted(sessions))
    if left:
        outcome.violations.append(f"left behind: {[(one.pid, one.name()) for one in left]}")
    return outcome


async def _note_sessions(mesh: Mesh, sessions: set[int]) -> None:
    """Note the sessions: every service leads a session of its own, in which all its children live."""
    while True:
        sessions |= {process.mark.pid for process in mesh.stack.processes.values() if process.mark is not None}
        if (pid := mesh.stack.broker.pid) is not None:
            sessions.add(pid)
        await asyncio.sleep(0.2)


def _at(ordered: Sequence[float], share: float) -> str:
    return f"{ordered[int(share * (len(ordered) - 1))]:.1f}" if ordered else "-"
