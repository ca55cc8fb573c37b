"""Counts of tasks continue over restarts, moves, changes of the config and of the leader."""

from __future__ import annotations

import pytest

from herdmesh.connect.task_counts import ErrorCounts, TaskCounts
from herdmesh.herder.state import Rules
from herdmesh.herder.state.model.requests import (
    CreateConnector,
    DeleteConnector,
    DrainWorker,
    RestartConnector,
    SetTarget,
    UpdateConnector,
)
from herdmesh.session.model import TargetState, UnitId
from services.herder.tests.world import World, sink
from services.herder.tests.world_worker import Worker

FIRST, SECOND = UnitId("a", 0), UnitId("a", 1)


@pytest.fixture
def world() -> World:
    """A leader, two workers, and a connector whose two tasks moved 100 and 20 records."""
    world = World(rules=Rules(herder_id="h1"))
    world.lead()
    world.worker("w1")
    world.worker("w2")
    world.ask(CreateConnector("a", sink(2)))
    holder(world, FIRST).move(FIRST, 100)
    holder(world, SECOND).move(SECOND, 20)
    world.run()
    return world


def holder(world: World, unit: UnitId) -> Worker:
    return next(worker for worker in world.workers.values() if worker.alive and unit in worker.held)


def total(world: World) -> int:
    """Records of the connector, as its view has them."""
    view = world.herder.connector("a")
    assert view is not None
    assert view.counts.records_in == view.counts.records_out
    return view.counts.records_out


def counts(world: World, unit: UnitId) -> TaskCounts:
    """Counts that the task continues on its worker."""
    return holder(world, unit).held[unit].counts


def test_a_restart_continues_the_counts(world: World) -> None:
    holder(world, FIRST).move(FIRST, 7, told=False)
    world.ask(RestartConnector("a", include_tasks=True))
    world.run()
    assert holder(world, FIRST).held[FIRST].starts == 1, "stopped and started"
    assert counts(world, FIRST) == TaskCounts(107, 107, 0, ErrorCounts(failures=2)), "with those of its last moment"
    assert total(world) == 127


def test_a_changed_config_and_a_removed_task_keep_the_counts(world: World) -> None:
    world.ask(UpdateConnector("a", sink(1, more="x")))
    world.run()
    assert counts(world, FIRST).records_out == 100
    assert total(world) == 120, "those of the removed task, too"
    world.ask(UpdateConnector("a", sink(2)))
    world.run()
    assert counts(world, SECOND).records_out == 20


def test_a_drain_and_the_loss_of_a_worker_keep_the_counts(world: World) -> None:
    """A killed worker tells nothing any more: what its last heartbeat had continues."""
    world.ask(DrainWorker("w1"))
    world.advance(2_000)
    assert holder(world, FIRST).id == holder(world, SECOND).id == "w2"
    assert (counts(world, FIRST).records_out, counts(world, SECOND).records_out) == (100, 20)
    world.worker("w3")
    holder(world, FIRST).move(FIRST, 5)
    holder(world, FIRST).move(FIRST, 1, told=False)
    world.run()
    world.kill("w2")
    world.advance(10_000)
    assert counts(world, FIRST).records_out == 105
    assert total(world) == 125


def test_a_stopped_connector_keeps_its_counts(world: World) -> None:
    world.ask(SetTarget("a", TargetState.STOPPED))
    world.run()
    assert total(world) == 120
    world.ask(SetTarget("a", TargetState.STARTED))
    world.advance(2_000)
    assert counts(world, FIRST).records_out == 100


def test_a_new_leader_gets_the_counts_from_the_workers(world: World) -> None:
    world.kill_herder()
    world.lead()
    world.advance(5_000)
    for worker in world.workers.values():
        worker.tell_counts()
    world.run()
    assert total(world) == 120
    world.ask(RestartConnector("a", include_tasks=True))
    world.run()
    assert counts(world, FIRST).records_out == 100


def test_a_connector_that_is_created_again_begins_at_0(world: World) -> None:
    world.ask(DeleteConnector("a"))
    world.run()
    world.ask(CreateConnector("a", sink(2)))
    world.advance(2_000)
    assert total(world) == counts(world, FIRST).records_out == 0
