"""The Kafka broker of a story, reduced to its availability.

Owns whether it answers, and the queue of requests until it does: writes and reads of the stores, take-overs, commits
and ends of runs. `log` owns the contents of its topics; `dataplane` owns who has which transactional id.

Invariant: during an outage no record is written or read, and no id changes its owner; waiting requests continue in
their order, each a little later.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.sim.mesh.scheduler import Deed

if TYPE_CHECKING:
    from tests.sim.mesh.world import World


class Broker:
    """One broker."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.away = False
        self.left_ms = 0
        self._waiting: list[Deed] = []

    def leave(self) -> None:
        """Begin an outage: it answers no request any more."""
        if not self.away:
            self.away, self.left_ms = True, self._world.now
            self._world.trace("broker", "is away")

    def come_back(self) -> None:
        """End the outage: it answers again."""
        if not self.away:
            return
        self.away = False
        self._world.trace("broker", "is back")
        waiting, self._waiting = self._waiting, []
        for deed in waiting:
            self._world.scheduler.at(self._world.now + self._world.rng.randint(1, 400), deed)

    def when_there(self, deed: Deed) -> bool:
        """True when the broker is available now; else `deed` is executed after the outage."""
        if self.away:
            self._waiting.append(deed)
        return not self.away
