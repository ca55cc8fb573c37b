"""Reasons of placements: why a unit's worker has it, for an operator who looks at a healthy task."""

from __future__ import annotations

import pytest

from herdmesh.connect.error_class import ErrorClass
from herdmesh.herder.state.model.requests import (
    CreateConnector,
    DrainWorker,
    RestartConnector,
    RestartTask,
    UpdateConnector,
)
from herdmesh.herder.state.views import views
from herdmesh.herder.wire import views as wire
from herdmesh.session.model import Failure, RunState, UnitId
from services.herder.tests.world import BROKEN, World, sink

AWAY = Failure("Kafka does not answer", error_class=ErrorClass.RETRIABLE)


@pytest.fixture
def world() -> World:
    """Two workers share connector `a` of two tasks."""
    made = World()
    made.lead()
    made.worker("w1")
    made.worker("w2")
    made.ask(CreateConnector("a", sink(2)))
    made.advance(1_000)
    return made


def shown(world: World, task: int | None) -> views.UnitView:
    view = world.herder.connector("a")
    assert view is not None
    return view.status if task is None else view.tasks[task].status


def told(world: World) -> list[str]:
    """The reasons of the connector and its tasks; each must run as wanted."""
    found = [shown(world, task) for task in (None, 0, 1)]
    assert [(one.state, one.explanation) for one in found] == [(RunState.RUNNING, "")] * 3
    return [one.placed_because for one in found]


def test_a_new_unit_has_the_reason_that_it_is_new(world: World) -> None:
    assert told(world) == ["it is new"] * 3
    assert {shown(world, task).placed_ms for task in (None, 0, 1)} != {None}


def test_a_lost_worker_is_the_reason_of_a_placement(world: World) -> None:
    lost = next(unit.task for unit in world.workers["w2"].held if unit.task is not None)
    world.kill("w2")
    world.advance(10_000)
    assert told(world)[1:] == ["worker w2 was lost" if task == lost else "it is new" for task in (0, 1)]
    placed_ms = shown(world, lost).placed_ms
    assert placed_ms is not None
    world.worker("w3")
    world.advance(10_000)
    assert "worker w1 had more than its share" in told(world)


def test_a_draining_worker_is_the_reason_of_a_placement(world: World) -> None:
    moved = {unit.task for unit in world.workers["w2"].held}
    world.ask(DrainWorker("w2"))
    world.advance(1_000)
    assert told(world) == ["worker w2 drains" if task in moved else "it is new" for task in (None, 0, 1)]


def test_a_changed_config_is_the_reason_of_a_placement(world: World) -> None:
    world.ask(UpdateConnector("a", sink(2, note="new")))
    world.advance(1_000)
    assert told(world) == ["its config changed"] * 3


def test_restarts(world: World) -> None:
    world.ask(RestartTask("a", 1))
    world.advance(1_000)
    assert told(world) == ["it is new", "it is new", "a restart was requested"]
    world.ask(RestartConnector("a", include_tasks=True))
    world.advance(1_000)
    assert told(world) == ["a restart was requested"] * 3
    world.fail(next(one for one in world.workers.values() if UnitId("a", 0) in one.held), UnitId("a", 0), AWAY)
    world.advance(5_000)
    assert told(world)[1] == "it failed; restart 1 of 10"


def test_an_adopted_unit_has_the_reason_that_the_leader_found_it(world: World) -> None:
    world.kill_herder()
    world.lead()
    world.advance(1_000)
    assert told(world) == [f"leader epoch {world.config.epoch} found it there and left it"] * 3
    assert shown(world, 0).placed_ms is None


def test_a_unit_lost_under_an_earlier_leader_has_the_reason_that_no_worker_had_it(world: World) -> None:
    for name in ("w1", "w2"):
        world.kill(name)
    world.kill_herder()
    world.lead()
    world.advance(20_000)
    world.worker("w3")
    world.advance(5_000)
    assert told(world) == [f"no worker had it (leader epoch {world.config.epoch})"] * 3


def test_a_unit_without_a_worker_has_no_reason(world: World) -> None:
    world.kill("w1")
    world.kill("w2")
    world.advance(10_000)
    assert {shown(world, task).placed_because for task in (None, 0, 1)} == {""}


def test_the_wire_has_the_reason_in_a_connector_and_not_in_a_list_of_statuses(world: World) -> None:
    view = world.herder.connector("a")
    assert view is not None
    status = wire.connector(view).tasks[0].status
    assert (status.placed_because, status.HasField("placed_time")) == ("it is new", True)
    world.fail(next(one for one in world.workers.values() if UnitId("a", 0) in one.held), UnitId("a", 0), BROKEN)
    view = world.herder.connector("a")
    assert view is not None
    for task in wire.connector_status(view).tasks:
        assert (task.status.placed_because, task.status.HasField("placed_time")) == ("", False)
