"""Faults of processes, links and stores in a story, from one seed.

Owns the kinds of faults, how often they come, and healing. Each fault happens to real processes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from herdmesh.worker.state import events
from tests.sim.mesh.node import Node

if TYPE_CHECKING:
    from tests.sim.mesh.world import World

_PAUSE_MS = (100, 2_500)


class Faults:
    """One story's faults."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._rng = world.rng
        self.counts: Counter[str] = Counter()
        self._deeds: list[tuple[int, Callable[[], str | None]]] = [
            (6, self._kill_worker),
            (4, self._freeze_worker),
            (2, self._leave),
            (4, self._kill_herder),
            (3, self._freeze_herder),
            (6, self._snap),
            (5, self._cut),
            (2, self._isolate),
            (4, self._slow_link),
            (2, self._kill_store),
            (2, self._freeze_store),
            (2, self._elect),
            (2, self._slow_store),
            (2, self._clock),
            (2, self._wake_up_leading),
            (2, self._fence),
            (2, self._broker),
        ]
        #: each story has its own mix: some faults often, some never.
        self._weights = [weight * self._rng.choice((0, 1, 1, 3)) for weight, _ in self._deeds]
        if not any(self._weights):
            self._weights = [weight for weight, _ in self._deeds]

    def begin(self) -> None:
        self._world.scheduler.at(self._world.now + self._rng.randint(*_PAUSE_MS), self._next)

    def heal(self) -> None:
        """End all faults: links are whole, frozen processes continue, dead ones are started again."""
        world = self._world
        world.network.heal_all()
        world.broker.come_back()
        for replica in world.stores:
            replica.slow_ms = 0
        for node in world.nodes:
            node.thaw()

    def _next(self) -> None:
        if not self._world.network.unruly:
            return
        deed = self._rng.choices([deed for _, deed in self._deeds], self._weights)[0]
        what = deed()
        if what is not None:
            self.counts[what] += 1
        self.begin()

    # --- faults

    def _kill(self, node: Node, what: str) -> str:
        self._world.trace(node.name, "is killed")
        node.kill()
        self._later(lambda: None if node.alive else self._world.restart(node), 50, 12_000)
        return what

    def _freeze(
        self, node: Node, what: str, *, clock: bool = False, between_ms: tuple[int, int] = (200, 12_000)
    ) -> str:
        self._world.trace(node.name, "stands still" + (", and its clock with it" if clock else ""))
        node.freeze()

        def thaw() -> None:
            self._world.trace(node.name, "goes on")
            node.thaw(clock_stood_still=clock)

        self._later(thaw, *between_ms)
        return what

    def _kill_worker(self) -> str | None:
        node = self._any(self._world.workers)
        return self._kill(node, "worker killed") if node is not None else None

    def _freeze_worker(self) -> str | None:
        node = self._any(self._world.workers)
        return self._freeze(node, "worker stands still") if node is not None else None

    def _leave(self) -> str | None:
        """A clean stop."""
        workers = [worker for worker in self._world.workers if worker.well and not worker.exited]
        if not workers:
            return None
        worker = self._rng.choice(workers)
        life = worker.life
        self._world.trace(worker.name, "is told to stop")
        worker.take(life, lambda: worker.handle(events.LeaveRequested()))

        def again() -> None:
            if not worker.alive:
                self._world.restart(worker)
            elif worker.life == life:
                self._later(again, 1_000, 2_000)

        self._later(again, 3_000, 15_000)
        return "worker stopped cleanly"

    def _kill_herder(self) -> str | None:
        node = self._any(self._world.herders)
        return self._kill(node, "herder killed") if node is not None else None

    def _freeze_herder(self) -> str | None:
        node = self._any(self._world.herders)
        clock = self._rng.random() < 0.4
        what = "herder's machine sleeps" if clock else "herder stands still"
        return self._freeze(node, what, clock=clock) if node is not None else None

    def _wake_up_leading(self) -> str | None:
        """The leader's machine sleeps past its lease; it wakes up believing that it leads, cut off from processes that
        know better, and a worker's session with the new leader breaks: it may dial the old one.
        """
        leader = self._world.leader()
        if leader is None:
            return None
        asleep_ms = self._rng.randint(5_000, 9_000)
        self._freeze(leader, "", clock=True, between_ms=(asleep_ms, asleep_ms))
        for replica in self._world.config:
            self._world.network.cut(leader.name, replica.name)

        def heal() -> None:
            for replica in self._world.config:
                self._world.network.heal(leader.name, replica.name)

        def dial_again() -> None:
            for stream in list(self._world.network.streams):
                if stream.near.process in self._world.workers and stream.far.process is not leader:
                    stream.snap()

        self._later(dial_again, asleep_ms, asleep_ms + 500)
        self._later(dial_again, asleep_ms + 500, asleep_ms + 3_000)
        self._later(heal, asleep_ms + 1_000, asleep_ms + 8_000)
        return "leader wakes up past its lease"

    def _kill_store(self) -> str | None:
        node = self._any(self._world.stores)
        return self._kill(node, f"{node.name[:-2]} store killed") if node is not None else None

    def _freeze_store(self) -> str | None:
        node = self._any(self._world.stores)
        return self._freeze(node, f"{node.name[:-2]} store stands still") if node is not None else None

    def _elect(self) -> str | None:
        """The group elects another writer though the old one lives."""
        log = self._rng.choice(self._world.logs)
        log.elect()
        return f"{log.topic} store's writer replaced"

    def _slow_store(self) -> str | None:
        replica = self._rng.choice(self._world.stores)
        replica.slow_ms = self._rng.choice((50, 500, 3_000))

        def over() -> None:
            replica.slow_ms = 0

        self._later(over, 500, 8_000)
        return f"{replica.topic} store slow"

    def _snap(self) -> str | None:
        streams = [stream for stream in self._world.network.streams if stream.whole]
        if not streams:
            return None
        stream = self._rng.choice(streams)
        near, far = stream.near.process.name, stream.far.process.name
        self._world.trace("network", "%s - %s: the stream breaks", near, far)
        stream.snap()
        return "stream broken"

    def _cut(self) -> str | None:
        one, other = self._pair()
        self._world.trace("network", "%s - %s: cut", one, other)
        self._world.network.cut(one, other)

        def heal() -> None:
            self._world.trace("network", "%s - %s: whole again", one, other)
            self._world.network.heal(one, other)

        self._later(heal, 200, 12_000)
        return "link cut"

    def _isolate(self) -> str | None:
        """A worker is cut off from every herder, and not from Kafka: it counts as lost, and continues to work."""
        worker = self._rng.choice(self._world.workers)
        self._world.trace("network", "%s: cut off from the herders", worker.name)
        for herder in self._world.herders:
            self._world.network.cut(worker.name, herder.name)

        def heal() -> None:
            for herder in self._world.herders:
                self._world.network.heal(worker.name, herder.name)

        self._later(heal, 4_000, 20_000)
        return "worker cut off from all herders"

    def _slow_link(self) -> str | None:
        one, other = self._pair()
        ms = self._rng.choice((30, 300, 2_000))
        self._world.network.slow(one, other, ms)
        self._later(lambda: self._world.network.slow(one, other, 0), 500, 10_000)
        return "link slow"

    def _clock(self) -> str | None:
        node = self._any(self._world.nodes)
        if node is None:
            return None
        node.jump(self._rng.choice((200, 1_500, 5_000, 20_000)))
        return "clock leaps"

    def _fence(self) -> str | None:
        """Another process initialises the id of a task that rightfully runs."""
        owners = self._world.dataplane.all_owners()
        if not owners:
            return None
        run = self._rng.choice(owners)
        self._world.trace("data", "%s is fenced from outside", run)
        self._world.dataplane.fence(run.task_id)
        return "owner fenced from outside"

    def _broker(self) -> str | None:
        """The broker becomes unreachable and returns; sometimes the stores elect other writers then."""
        world = self._world
        if world.broker.away:
            return None
        world.broker.leave()
        elects = [log for log in world.logs if self._rng.random() < 0.3]

        def back() -> None:
            world.broker.come_back()
            for log in elects:
                log.elect()

        self._later(back, 300, 9_000)
        return "broker away"

    # --- choosing

    def _any(self, nodes: Sequence[Node]) -> Node | None:
        found = [node for node in nodes if node.well]
        return self._rng.choice(found) if found else None

    def _pair(self) -> tuple[str, str]:
        world = self._world
        one = self._rng.choice([*world.herders, *world.workers])
        others = [node for node in [*world.stores, *world.herders] if node is not one]
        return one.name, self._rng.choice(others).name

    def _later(self, deed: Callable[[], object], low_ms: int, high_ms: int) -> None:
        at_ms = self._world.now + self._rng.randint(low_ms, high_ms)
        self._world.scheduler.at(at_ms, lambda: deed() if self._world.network.unruly else None)
