"""One story (simulated run) from one seed: clients and faults, healing, and the verdict; then an idle mesh and one
loss.

Owns the order of a story and its report. `tell(seed)` is all a test needs; the same seed gives the same trace, line by
line.
"""

from __future__ import annotations

import logging
from collections import Counter
from dataclasses import dataclass, field

import structlog

from herdmesh.session.model import UnitId
from herdmesh.worker.state import events
from tests.sim.mesh import verdict
from tests.sim.mesh.checks import Violation
from tests.sim.mesh.clients import Client, Operation, Operator
from tests.sim.mesh.faults import Faults
from tests.sim.mesh.world import World, simulated

CLIENTS = 3
#: Stories from this seed on have an operator who changes offsets besides.
OPERATED = 1_000_000
_CALM_MS = 5_000
_UNRULY_MS = (15_000, 40_000)
_SETTLE_MS = 400_000
_REST_MS = 10_000


@dataclass
class Report:
    """Result of a story."""

    seed: int
    violations: list[Violation]
    trace: list[str]
    faults: Counter[str]
    #: harm done by the network to messages, and their number.
    harmed: Counter[str]
    carried: int
    counts: Counter[str]
    operations: list[Operation] = field(default_factory=lambda: [])
    virtual_ms: int = 0
    settled_ms: int = 0
    events: int = 0

    def __str__(self) -> str:
        found = "\n".join(f"  {violation}" for violation in self.violations)
        return f"seed {self.seed}: {len(self.violations)} violations\n{found}"


def quiet() -> None:
    """Silence logging: a story's processes log every fault they meet, as they should; here it would hide the rest."""
    logging.disable(logging.CRITICAL)
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))


def tell(seed: int, *, trace: bool = False, violations_max: int = 20) -> Report:
    """Run the story of `seed`, to its end or to so many violations."""
    with simulated():
        return _Story(seed, trace, violations_max).run()


class _Story:
    def __init__(self, seed: int, trace: bool, violations_max: int) -> None:
        self._world = World(seed, trace=trace)
        self._world.checker.violations_max = violations_max
        self._faults = Faults(self._world)
        self._clients = [Client(f"client-{number}", self._world) for number in range(CLIENTS)]
        if seed >= OPERATED:
            self._clients.append(Operator(f"client-{CLIENTS}", self._world))
        self._settled_ms = 0

    def run(self) -> Report:
        world = self._world
        world.begin()
        for client in self._clients:
            client.begin()
        world.advance(_CALM_MS)
        self._faults.begin()
        world.advance(world.rng.randint(*_UNRULY_MS))
        for client in self._clients:
            client.stopped = True
        world.trace("story", "the faults are over")
        self._faults.heal()
        healed_ms = world.now
        if self._settle():
            self._settled_ms = world.now - healed_ms
            self._rest()
            self._afterwards()
        return Report(
            seed=world.seed,
            violations=world.checker.violations,
            trace=world.trace_lines or [],
            faults=self._faults.counts,
            harmed=world.network.harmed,
            carried=world.network.carried,
            counts=world.checker.counts,
            operations=[operation for client in self._clients for operation in client.operations],
            virtual_ms=world.now,
            settled_ms=self._settled_ms,
            events=world.scheduler.handled,
        )

    def _settle(self) -> bool:
        """Wait until everything is in its requested state."""
        world = self._world
        end_ms = world.now + _SETTLE_MS
        found = ["not looked yet"]
        while found and world.now < end_ms:
            world.advance(1_000 if world.now < end_ms - _SETTLE_MS + 20_000 else 5_000)
            busy = [f"{client.name} waits for an answer" for client in self._clients if client.busy]
            found = busy + verdict.problems(world)
            if world.checker.violations:
                return False
        for problem in found:
            world.checker.find("as it was asked for", problem)
        for problem in verdict.lost_restarts(world):
            world.checker.find("acknowledged, not in effect", problem)
        return not found

    def _rest(self) -> None:
        """Check that nothing moves while nothing happens, once every worker has its share.

        A unit that was stopped to move by then starts once more, when it has stopped: a task that never does is killed
        after its worker's timeout, and counts as lost after the leader's.
        """
        world = self._world
        rules = world.rules("")
        world.checker.moving.clear()
        self._until_balanced()
        due = self._moves() + Counter(world.checker.moving)
        end_ms = world.now + rules.stop_timeout_ms
        while world.checker.moving and world.now < end_ms:
            world.advance(world.tick_ms)
        world.advance(_REST_MS)
        if self._moves() != due:
            text = f"while nothing happens: {self._moves() - due}; begun and not ended: {due - self._moves()}"
            world.checker.find("moves are minimal", text)

    def _until_balanced(self) -> None:
        """Wait for the balance, which the verdict cannot judge where workers differ in their plugins."""
        world = self._world
        end_ms = world.now + _SETTLE_MS
        world.advance(1_000 + 2 * world.tick_ms)
        while world.now < end_ms:
            leader = world.leader()
            if leader is not None and not any("than its share" in view.reason for view in leader.herder.workers()):
                return
            world.advance(1_000)
        world.checker.find("as it was asked for", "balance never comes to an end")

    def _afterwards(self) -> None:
        """One more change to an idle mesh, and the moves it may cause."""
        world = self._world
        if world.checker.violations:
            return
        draw = world.rng.random()
        if draw < 0.4:
            self._lose_the_leader()
        elif draw < 0.8:
            self._lose_a_worker()
        else:
            self._stop_all_workers()

    def _lose_the_leader(self) -> None:
        world = self._world
        leader = world.leader()
        assert leader is not None
        before = self._moves()
        world.down.add(leader)
        leader.kill()
        world.advance(_REST_MS)
        if world.leader() is None:
            world.checker.find("moves are minimal", "no herder took over from a killed leader")
        if self._moves() != before:
            world.checker.find("moves are minimal", f"a killed leader moved {self._moves() - before}")

    def _lose_a_worker(self) -> None:
        world = self._world
        held = verdict.holdings(world)
        worker = world.rng.choice(world.workers)
        lost = {unit for unit, places in held.items() if places[0][0] is worker}
        before = self._moves()
        world.down.add(worker)
        worker.kill()
        world.advance(_REST_MS + 5_000)
        moved = self._moves() - before
        others = {unit for unit in moved if unit not in lost}
        if others and not world.uneven:
            world.checker.find("moves are minimal", f"{worker.name} was lost with {lost}, and {others} moved too")

    def _stop_all_workers(self) -> None:
        """Stop every worker, as when the whole mesh goes down: nothing starts anywhere meanwhile."""
        world = self._world
        before = self._moves()
        world.down.update(world.workers)
        for worker in world.workers:
            life = worker.life
            world.trace(worker.name, "is told to stop")
            worker.take(life, lambda worker=worker: worker.handle(events.LeaveRequested()))
            world.advance(world.rng.randint(0, 100))
        world.advance(2 * _REST_MS)
        if self._moves() != before:
            world.checker.find("moves are minimal", f"all workers were stopped, and {self._moves() - before} started")
        left = [worker.name for worker in world.workers if worker.alive]
        if left:
            world.checker.find("as it was asked for", f"{left} were told to stop, and live")

    def _moves(self) -> Counter[UnitId]:
        """Starts so far, by unit."""
        return Counter({unit: len(found) for unit, found in self._world.checker.starts.items()})
