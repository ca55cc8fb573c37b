"""The Kafka broker of a story, as far as being there goes.

Owns whether it answers, and what waits until it does: writes and reads of the stores, take-overs, commits and ends of
runs. What is in its topics: `log`; who owns which transactional id: `dataplane`.

Invariant: while it is away no record is written or read, and no id changes its owner; what waited goes on in the order
of asking, each a little later.
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
        """It answers nobody any more."""
        if not self.away:
            self.away, self.left_ms = True, self._world.now
            self._world.trace("broker", "is away")

    def come_back(self) -> None:
        """It answers again."""
        if not self.away:
            return
        self.away = False
        self._world.trace("broker", "is back")
        waiting, self._waiting = self._waiting, []
        for deed in waiting:
            self._world.scheduler.at(self._world.now + self._world.rng.randint(1, 400), deed)

    def when_there(self, deed: Deed) -> bool:
        """True when it is there now; else `deed` is done once it is back."""
        if self.away:
            self._waiting.append(deed)
        return not self.away
