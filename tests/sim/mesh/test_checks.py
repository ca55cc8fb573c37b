"""Checks of the stories that no mutant tells apart: which life of a worker a drain was of."""

from __future__ import annotations

import pytest

from herdmesh.herder.state.requests import Draining, DrainWorker
from tests.sim.mesh.clients import Operation, Outcome
from tests.sim.mesh.story import quiet
from tests.sim.mesh.world import World, simulated


@pytest.mark.parametrize("recorded", ["before this life", "in this life", "never"])
def test_a_drain_is_of_the_life_that_it_was_recorded_in(recorded: str) -> None:
    """Whenever the caller began to ask."""
    quiet()
    with simulated():
        world = World(0)
        worker, checker = world.workers[0], world.checker
        operation = Operation("client-1-0", DrainWorker(worker.name), begun_ms=0)

        def record() -> None:
            checker._applied(operation.id, "RecordDrain")  # pyright: ignore[reportPrivateUsage]

        world.begin()
        world.advance(1_000)
        if recorded == "before this life":
            record()
        world.advance(1_000)
        worker.kill()
        world.restart(worker)
        if recorded == "in this life":
            record()
        operation.outcome, operation.answer = Outcome.ACKNOWLEDGED, Draining(worker.name)
        checker.answered(operation)
    assert (worker.incarnation in checker.drained) == (recorded != "before this life")
    assert [found.check for found in checker.violations] == ["acknowledged, not in effect"] * (recorded == "never")
