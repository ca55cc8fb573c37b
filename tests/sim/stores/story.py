"""One story (simulated run) from one seed: clients and faults on a simulated cluster, healing, and the verdict.

Owns the order of a story and its report. `tell(side, seed)` is all a test needs; the same seed and side give the same
trace, line by line.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any

from herdmesh.topicstore import StoreRole
from tests.sim.stores import clock
from tests.sim.stores.faults import Faults
from tests.sim.stores.world import World, until
from tests.support.history import Outcome
from tests.support.store_checks import Granted, Violation, check
from tests.support.store_clients import Client, Herder, Watcher

CLIENTS = 5
OPERATIONS = 24
_STORY_S = 600.0
_SETTLE_S = 60.0


@dataclass
class Report:
    """Result of a story."""

    seed: int
    violations: list[Violation]
    trace: list[str]
    outcomes: Counter[Outcome]
    faults: Counter[str]
    reads: int
    changes_told: int
    resumed: int
    cut_off: int
    transactions: int
    virtual_s: float

    @property
    def operations(self) -> int:
        return self.outcomes.total()

    def __str__(self) -> str:
        found = "\n".join(map(str, self.violations))
        return f"seed {self.seed}: {len(self.violations)} violations\n{found}"


def tell(side: Callable[[], Any], seed: int, *, fenced: bool = True) -> Report:
    """Run the story of `seed`."""

    async def story() -> Report:
        return await _Story(side(), seed, fenced).run()

    return clock.run(story)


class _Story:
    def __init__(self, side: Any, seed: int, fenced: bool) -> None:
        self._seed = seed
        self._world = World(side, random.Random(seed), fenced=fenced)
        self._faults = Faults(self._world, seed)
        self._violations: list[Violation] = []
        self._background: list[asyncio.Task[None]] = []

    async def run(self) -> Report:
        world = self._world
        for name in World.replicas:
            world.start(name)
        clients = [Client(world, f"client-{number}", OPERATIONS) for number in range(CLIENTS)]
        watchers = [Watcher(world, f"watcher-{number}", slow=number == 0) for number in range(3)]
        herders = [Herder(world, f"herder-{number}") for number in range(2)] if world.side.has_requests else []
        for work in [self._faults.run(), *(watcher.run() for watcher in watchers)]:
            self._spawn(work)
        for herder in herders:
            self._spawn(herder.run())
            self._spawn(herder.lead())
        asking = [asyncio.get_running_loop().create_task(client.run()) for client in clients]
        _, late = await asyncio.wait(asking, timeout=_STORY_S)
        for client in asking:
            if client in late:
                self._find("liveness", f"a client had not ended after {_STORY_S:g} s")
            elif (error := client.exception()) is not None:
                raise error
        self._background[0].cancel()
        await self._settle(clients, watchers)
        granted = [grant for herder in herders for grant in herder.granted]
        report = self._report(granted)
        await world.end()
        return report

    async def _settle(self, clients: list[Client], watchers: list[Watcher]) -> None:
        """Heal, read everywhere, let the watchers come to the end."""
        world = self._world
        problem = await self._faults.heal()
        if problem is not None:
            self._find("liveness", problem)
            return
        for name in World.replicas:
            if not await clients[0].read(linearizable=True, replica=name):
                self._find("liveness", f"{name} is healed and does not read")
        end = world.history.reads[-1].revision if world.history.reads else ()
        settled = await until(
            lambda: all(watcher.last is not None and _reached(watcher.last, end) for watcher in watchers), _SETTLE_S
        )
        if not settled:
            self._find("liveness", f"watchers are at {[watcher.last for watcher in watchers]}, the end was {end}")

    def _report(self, granted: list[Granted]) -> Report:
        world = self._world
        log = world.side.log(world.broker.archive)
        self._violations += check(world.history, log, granted)
        self._violations += [Violation("internal error", bug) for bug in world.bugs]
        self._violations += [Violation("S11 compaction", text) for text in self._compacted()]
        return Report(
            seed=self._seed,
            violations=self._violations,
            trace=world.trace,
            outcomes=Counter(operation.outcome for operation in world.history.operations),
            faults=world.faults,
            reads=len(world.history.reads),
            changes_told=sum(watch.told for watch in world.history.watches),
            resumed=sum(watch.resumed for watch in world.history.watches),
            cut_off=sum(watch.cut_off for watch in world.history.watches),
            transactions=len(world.broker.archive),
            virtual_s=world.now_s(),
        )

    def _compacted(self) -> list[str]:
        """Running replicas agree, the writer that never stopped with those that replayed a compacted topic."""
        world = self._world
        ends = {
            life.label: life.store
            for life in world.running()
            if life.store.role in (StoreRole.WRITER, StoreRole.REPLICA)
        }
        if len({store.revision for store in ends.values()}) > 1:
            return []  # a replica is a record behind; a client's next read would wait for it
        told = {label: world.side.everything(store.state) for label, store in ends.items()}
        first = next(iter(told), None)
        return [f"{label} differs from {first}" for label, state in told.items() if state != told[first or label]]

    def _find(self, check_name: str, text: str) -> None:
        self._violations.append(Violation(check_name, text))

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        self._background.append(asyncio.get_running_loop().create_task(work))


def _reached(revision: tuple[int, ...], end: tuple[int, ...]) -> bool:
    return all(mine >= theirs for mine, theirs in zip(revision, end, strict=True))
