"""The simulated cluster of one story: a broker, replicas that come and go, and the clients' way to them.

Owns the processes' lives and the network's loss. `clients` owns the requests, `faults` the faults.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from herdmesh.rpc.errors import Unreachable
from herdmesh.topicstore import StoreRole
from tests.sim.stores.broker import SimBroker
from tests.sim.stores.clock import pause
from tests.sim.stores.process import Life
from tests.support.history import History

AnswerT = TypeVar("AnswerT")


class World:
    """One cluster. Every choice comes from `rng`; `trace` records the story, line by line."""

    replicas: Sequence[str] = ("s1", "s2", "s3")
    timeouts_s: Sequence[float] = (1.0, 4.0, 12.0)
    over = False

    def __init__(self, side: Any, rng: random.Random, *, fenced: bool = True) -> None:
        loop = asyncio.get_running_loop()
        self.side = side
        self.rng = rng
        self.now_s: Callable[[], float] = loop.time
        self.broker = SimBroker(loop.time)
        self.history = History(loop.time)
        self.trace: list[str] = []
        self.faults: Counter[str] = Counter()
        self.loss = 0.0
        self.on_death: Callable[[Life[Any]], None] = lambda _: None
        self.bugs: list[str] = []
        self.lives: dict[str, Life[Any]] = {}
        self._ever: list[Life[Any]] = []
        self._fenced = fenced
        self._starts: Counter[str] = Counter()

    async def pause(self, seconds: float) -> None:
        """See `ClientWorld`."""
        await pause(seconds)

    def note(self, text: str) -> None:
        self.trace.append(f"{self.now_s():.4f} {text}")

    def fault(self, kind: str, text: str = "") -> None:
        """Count and trace one fault."""
        self.faults[kind] += 1
        self.note(f"fault: {kind} {text}")

    def start(self, name: str) -> None:
        """Start the process again; it must be dead or new."""
        assert name not in self.lives or self.lives[name].dead
        self._starts[name] += 1
        settings = self.side.settings
        if not self._fenced:  # a build whose replicas do not share the identity that fences
            settings = replace(settings, transactional_id=f"{settings.transactional_id}-{name}")
        life = Life(
            name,
            self._starts[name],
            self.broker,
            settings,
            self.side.initial(),
            lambda store: self.side.server(store, self.broker.now_ms),
            random.Random(self.rng.random()),
        )
        life.on_harm = lambda _, deed: self.fault(f"{deed.replace(' ', ' at ')}", life.label)
        life.on_death = lambda life: self.on_death(life)
        life.bugs = self.bugs
        self.lives[name] = life
        self._ever.append(life)
        self.note(f"start {life.label}")

    async def end(self) -> None:
        """End every process, those that were killed long ago included: their tasks still wait at a gate."""
        for life in self._ever:
            life.end()
        me = asyncio.current_task()
        while left := [task for task in asyncio.all_tasks() if task is not me]:
            for task in left:
                task.cancel()
            await asyncio.wait(left, timeout=10.0)

    def running(self) -> list[Life[Any]]:
        return [life for life in self.lives.values() if not life.dead and not life.stopped]

    def writers(self) -> list[Life[Any]]:
        """Lives that believe they are the writer, running or not."""
        return [life for life in self.lives.values() if not life.dead and life.store.role is StoreRole.WRITER]

    async def call(
        self, name: str, call: Callable[[Any], Coroutine[Any, Any, AnswerT]], timeout_s: float
    ) -> tuple[AnswerT, str]:
        """A unary call to a replica, and the life that answered. Raises `HerdmeshError`."""
        await pause(self._hop_s())
        life = self.lives[name]
        if self._lost():
            await pause(timeout_s)
            raise Unreachable("the request was lost")
        answer = await life.call(call(life.server), timeout_s)
        await pause(self._hop_s())
        if self._lost():
            self.faults["answer lost on the way"] += 1
            raise Unreachable("the answer was lost")
        return answer, life.label

    async def stream(self, name: str, call: Callable[[Any], AsyncGenerator[AnswerT, None]]) -> AsyncIterator[AnswerT]:
        """A streaming call. Raises `HerdmeshError`."""
        await pause(self._hop_s())
        life = self.lives[name]
        async for event in life.stream(call(life.server)):
            yield event

    def _lost(self) -> bool:
        return self.loss > 0 and self.rng.random() < self.loss

    def _hop_s(self) -> float:
        return self.rng.choice((0.0003, 0.0005, 0.001, 0.003))


async def until(condition: Callable[[], bool], limit_s: float) -> bool:
    """Poll a condition of the story every 50 ms of its time; False when the time is up."""
    loop = asyncio.get_running_loop()
    end_s = loop.time() + limit_s
    while not condition():
        if loop.time() > end_s:
            return False
        await pause(0.05)
    return True
