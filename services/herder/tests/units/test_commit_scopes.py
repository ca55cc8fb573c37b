"""Commit scopes that tasks start with: earlier commits of all numbers of their connector, because partitions move
between numbers.

Owns the leader's side: which statuses count, how long they stay, and what remains after a leader change. A run's use of
a scope is tested with the engine (`libs/core/tests/engine/sink/test_sink_loop.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from herdmesh.connect.error_class import ErrorClass
from herdmesh.connect.topics.commit_scope import TOPICS_MAX, CommitScope
from herdmesh.herder.state.model import events as ev
from herdmesh.herder.state.model.requests import (
    CreateConnector,
    DeleteConnector,
    DrainWorker,
    RestartConnector,
    SetTarget,
    UndrainWorker,
    UpdateConnector,
)
from herdmesh.session.model import Failure, TargetState, UnitId
from services.herder.tests.world import World, sink

GROUP = "connect-a"
ORDERS = CommitScope(GROUP, ("orders",))
USERS = CommitScope(GROUP, ("users",))


@pytest.fixture
def world() -> World:
    """A leader and two workers."""
    world = World()
    world.lead()
    world.worker("w1")
    world.worker("w2")
    return world


def commit(world: World, task: int, scope: CommitScope) -> None:
    """Have the task commit and write its status."""
    unit = UnitId("a", task)
    for worker in world.workers.values():
        if unit in worker.held:
            worker.held[unit].commit_scope = scope
    status = world.statuses[unit] = replace(world.statuses[unit], commit_scope=scope)
    world.post(ev.StatusPut(status))


def told(world: World) -> dict[int, CommitScope | None]:
    """The scope that each task got at its last start."""
    return {start.unit.task: start.commit_scope for _, start in world.starts if start.unit.task is not None}


def named(scope: CommitScope | None) -> set[str]:
    return set() if scope is None else {*scope.topics, *scope.elsewhere}


def test_a_larger_set_knows_the_commits_of_every_number(world: World) -> None:
    world.ask(CreateConnector("a", sink(2)))
    commit(world, 0, ORDERS)
    commit(world, 1, USERS)
    world.starts.clear()
    world.ask(UpdateConnector("a", sink(3)))
    assert told(world) == {
        0: ORDERS.beside(["users"]),
        1: USERS.beside(["orders"]),
        2: CommitScope(GROUP, (), ("orders", "users")),
    }


def test_commits_of_a_removed_number_outlive_its_status_and_its_leader(world: World) -> None:
    world.ask(CreateConnector("a", sink(3)))
    commit(world, 0, ORDERS)
    commit(world, 2, USERS)
    world.ask(UpdateConnector("a", sink(2)))
    world.advance(5_000)
    assert UnitId("a", 2) not in world.statuses
    world.kill_herder()
    world.lead()
    world.advance(20_000)
    world.starts.clear()
    world.ask(UpdateConnector("a", sink(4)))
    assert set(told(world)) == {0, 1, 2, 3}
    assert all(named(scope) == {"orders", "users"} for scope in told(world).values())


def test_commits_of_a_removed_number_stay_until_the_other_tasks_have_started(world: World) -> None:
    world.ask(CreateConnector("a", sink(2)))
    commit(world, 0, ORDERS)
    commit(world, 1, USERS)
    world.ask(SetTarget("a", TargetState.PAUSED))
    world.ask(UpdateConnector("a", sink(1)))
    world.ask(DrainWorker("w1"))
    world.ask(DrainWorker("w2"))
    world.starts.clear()
    world.ask(SetTarget("a", TargetState.STARTED))
    world.advance(400_000)
    assert not told(world)
    assert UnitId("a", 1) in world.statuses
    world.ask(UndrainWorker("w1"))
    world.advance(20_000)
    assert told(world) == {0: ORDERS.beside(["users"])}
    assert UnitId("a", 1) not in world.statuses


def fails(world: World) -> None:
    """Task configs cannot be created until the config is corrected."""
    world.task_failures["a"] = Failure("no such file", error_class=ErrorClass.BAD_CONFIG)
    world.ask(SetTarget("a", TargetState.STARTED))
    world.advance(10_000)
    del world.task_failures["a"]


def is_paused(world: World) -> None:
    world.ask(SetTarget("a", TargetState.PAUSED))
    world.advance(10_000)


def finds_no_worker(world: World) -> None:
    """All workers drain, and a restart takes the connector from its worker (seed 7259 of the mesh's stories)."""
    world.ask(DrainWorker("w1"))
    world.ask(DrainWorker("w2"))
    world.ask(RestartConnector("a"))
    world.advance(3_000)
    assert not world.running()
    world.ask(SetTarget("a", TargetState.STARTED))
    world.advance(400_000)


def finds_no_worker_and_its_leader_dies(world: World) -> None:
    finds_no_worker(world)
    world.kill_herder()
    world.lead()
    world.advance(20_000)


def loses_its_workers(world: World) -> None:
    for name in world.workers:
        world.kill(name)
    world.ask(SetTarget("a", TargetState.STARTED))
    world.advance(400_000)
    for name in world.workers:
        world.revive(name)
    world.advance(20_000)


@pytest.mark.parametrize(
    "meanwhile", [fails, is_paused, finds_no_worker, finds_no_worker_and_its_leader_dies, loses_its_workers]
)
def test_commits_of_a_stopped_connector_reach_its_next_tasks(world: World, meanwhile: Callable[[World], None]) -> None:
    """Otherwise offsets that are lost meanwhile would look like a first start. Statuses that are no longer needed are
    removed.
    """
    world.ask(CreateConnector("a", sink(2)))
    commit(world, 0, ORDERS)
    commit(world, 1, USERS)
    world.ask(SetTarget("a", TargetState.STOPPED))
    world.ask(UpdateConnector("a", sink(1)))
    world.advance(5_000)
    world.starts.clear()
    meanwhile(world)
    for name in world.workers:
        world.ask(UndrainWorker(name))
    world.ask(SetTarget("a", TargetState.STARTED))
    world.ask(RestartConnector("a"))
    world.advance(20_000)
    assert told(world) == {0: ORDERS.beside(["users"])}
    assert UnitId("a", 1) not in world.statuses


def test_a_connector_without_tasks_keeps_no_statuses_of_earlier_tasks(world: World) -> None:
    world.ask(CreateConnector("a", sink(2)))
    commit(world, 1, USERS)
    world.task_counts["a"] = 0
    world.ask(SetTarget("a", TargetState.STOPPED))
    world.ask(SetTarget("a", TargetState.STARTED))
    world.advance(20_000)
    assert set(world.statuses) == {UnitId("a")}


def test_commits_of_an_earlier_incarnation_do_not_count(world: World) -> None:
    """Its worker was unreachable during the deletion, so that its statuses could not be removed."""
    world.ask(CreateConnector("a", sink(3)))
    for task in range(3):
        commit(world, task, USERS)
    lost = next(worker for worker in world.workers.values() if any(unit.task is not None for unit in worker.held))
    lost.frozen = True
    world.ask(DeleteConnector("a"))
    assert any(status.commit_scope for status in world.statuses.values()), "nothing is left: the test is void"
    world.starts.clear()
    world.call(CreateConnector("a", sink(2)))
    world.advance(400_000)
    assert told(world) == {0: None, 1: None}


@pytest.mark.parametrize(
    ("config", "committed", "begins"),
    [
        ({}, CommitScope("g", ("orders",)), [CommitScope("g", ("orders",)), None]),
        ({"consumer.override.group.id": "g"}, USERS, [USERS, None]),
        (
            {"consumer.override.group.id": "g"},
            CommitScope("g", ("orders",)),
            [CommitScope("g", ("orders",)), CommitScope("g", (), ("orders",))],
        ),
        ({}, CommitScope("", ("offsets",)), [CommitScope("", ("offsets",)), None]),
    ],
)
def test_the_group_in_the_config_decides_which_commits_count(
    world: World, config: dict[str, str], committed: CommitScope, begins: list[CommitScope | None]
) -> None:
    """If a number has committed under it; else each number has its own group, and a source's scope is never shared."""
    world.ask(CreateConnector("a", sink(1)))
    commit(world, 0, committed)
    world.starts.clear()
    world.ask(UpdateConnector("a", sink(2, **config)))
    assert told(world) == dict(enumerate(begins))


def test_topics_beyond_the_limit_of_a_scope_are_left_out(world: World) -> None:
    full = CommitScope.of(GROUP, (f"t{number:03}" for number in range(TOPICS_MAX)))
    world.ask(CreateConnector("a", sink(2)))
    commit(world, 0, full)
    commit(world, 1, USERS)
    world.starts.clear()
    world.ask(UpdateConnector("a", sink(2, more="x")))
    assert told(world) == {0: full, 1: USERS.beside(full.topics)}
    assert len(named(told(world)[1])) == TOPICS_MAX
