"""Requested restarts: KIP-745 and the restart of a task, as in Connect's own tests.

Source: docs/reference/connect/herder.md, sections 4.4 and 10.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest

from herdmesh.herder.state.model import events as ev
from herdmesh.herder.state.model import instructions as ins
from herdmesh.herder.state.model.requests import (
    CreateConnector,
    DeleteConnector,
    RestartConnector,
    Restarting,
    RestartItem,
    RestartTask,
    SetTarget,
    WriteOptions,
)
from herdmesh.rpc.errors import ConnectorNotFound, NoLeader, NotLeader, StatusNotFound, TaskNotFound
from herdmesh.session.model import RunState, TargetState, UnitId
from services.herder.tests.world import BROKEN, World, sink

A, A0, A1, A2 = UnitId("a"), UnitId("a", 0), UnitId("a", 1), UnitId("a", 2)
RESTARTING, RUNNING, FAILED = RunState.RESTARTING, RunState.RUNNING, RunState.FAILED


@pytest.fixture
def world() -> World:
    """A leader, two workers and a connector of three tasks."""
    world = World()
    world.lead()
    world.worker("w1")
    world.worker("w2")
    world.ask(CreateConnector("a", sink(3)))
    return world


def fail(world: World, *units: UnitId) -> None:
    for unit in units:
        world.fail(next(worker for worker in world.workers.values() if unit in worker.held), unit, BROKEN)


def started(world: World, ask: Callable[[], object]) -> Counter[UnitId]:
    """Units that were started while `ask` ran."""
    before = len(world.starts)
    ask()
    world.run()
    return Counter(start.unit for _, start in world.starts[before:])


def plan(world: World, request: RestartConnector) -> list[tuple[int | None, RunState, bool]]:
    answer = world.ask(request)
    assert isinstance(answer, Restarting)
    return [(item.task, item.state, item.restarted) for item in answer.items]


def test_restart_connector(world: World) -> None:
    assert started(world, lambda: world.ask(RestartConnector("a"))) == {A: 1}
    assert world.config.commits == ["a"], "task configs were made again, equal ones, and not committed again"


def test_restart_unknown_connector(world: World) -> None:
    for request in (RestartConnector("b"), RestartTask("b", 0)):
        with pytest.raises(ConnectorNotFound):
            world.ask(request)


def test_restart_connector_redirect_to_leader(world: World) -> None:
    world.post(ev.LeadershipFollowing("h2", "there:2", 2))
    for request in (RestartConnector("a"), RestartConnector("a", include_tasks=True), RestartTask("a", 0)):
        with pytest.raises(NotLeader) as refused:
            world.ask(request)
        assert refused.value.leader_address == "there:2"


def test_restart_connector_and_tasks_unknown_connector(world: World) -> None:
    with pytest.raises(ConnectorNotFound):
        world.ask(RestartConnector("b", include_tasks=True))


def test_restart_connector_and_tasks_not_leader() -> None:
    with pytest.raises(NoLeader):
        World().ask(RestartConnector("a", include_tasks=True))


def test_restart_connector_and_tasks_unknown_status(world: World) -> None:
    """A connector that never got a status, because no worker could run it."""
    world.ask(CreateConnector("b", sink(1)))
    for worker in world.workers.values():
        worker.held.pop(UnitId("b"), None)
        worker.held.pop(UnitId("b", 0), None)
    world.kill("w1")
    world.kill("w2")
    for unit in [unit for unit in world.statuses if unit.connector == "b"]:
        del world.statuses[unit]
    world.kill_herder()
    world.lead()
    world.advance(10_000)
    with pytest.raises(StatusNotFound, match="Status for connector b not found"):
        world.ask(RestartConnector("b", include_tasks=True))
    assert isinstance(world.ask(RestartConnector("b")), Restarting), "without flags nothing is planned from statuses"


def test_restart_connector_and_tasks_success(world: World) -> None:
    fail(world, A1)
    assert plan(world, RestartConnector("a", include_tasks=True)) == [
        (task, RESTARTING, True) for task in (None, 0, 1, 2)
    ]


def test_a_restart_plan_names_the_worker_of_each_unit(world: World) -> None:
    """As in Connect's answer, for restarted and other units."""
    fail(world, A1)
    holders = {unit.task: worker.id for worker in world.workers.values() for unit in worker.held}
    answer = world.ask(RestartConnector("a", include_tasks=True, only_failed=True))
    assert isinstance(answer, Restarting)
    assert {item.task: item.worker_id for item in answer.items} == holders
    assert len(set(holders.values())) == 2


@pytest.mark.parametrize(
    ("include_tasks", "only_failed", "failed", "restarted"),
    [
        (False, False, (), {A}),
        (False, True, (), set[UnitId]()),
        (False, True, (A, A0), {A}),
        (True, False, (A0,), {A, A0, A1, A2}),
        (True, True, (), set[UnitId]()),
        (True, True, (A0, A2), {A0, A2}),
        (True, True, (A, A2), {A, A2}),
    ],
)
def test_a_restart_selects_units_by_its_flags(
    world: World, include_tasks: bool, only_failed: bool, failed: tuple[UnitId, ...], restarted: set[UnitId]
) -> None:
    fail(world, *failed)
    shown: list[tuple[int | None, RunState, bool]] = []
    request = RestartConnector("a", include_tasks=include_tasks, only_failed=only_failed)
    assert started(world, lambda: shown.extend(plan(world, request))) == dict.fromkeys(restarted, 1)
    before = {unit: FAILED if unit in failed else RUNNING for unit in (A, A0, A1, A2)}
    assert shown == [
        (unit.task, RESTARTING if unit in restarted else before[unit], unit in restarted) for unit in before
    ]


def test_do_restart_connector_and_tasks_empty_plan(world: World) -> None:
    request = RestartConnector("a", include_tasks=True, only_failed=True)
    assert plan(world, request) == [(task, RUNNING, False) for task in (None, 0, 1, 2)]
    assert world.config.entries["a"].restarts == {}


def test_do_restart_connector_and_tasks_no_assignments(world: World) -> None:
    """No worker holds a unit: each starts as soon as one can run it, and is not restarted then."""
    world.kill("w1")
    world.kill("w2")
    world.advance(5_000)
    assert started(world, lambda: world.ask(RestartConnector("a", include_tasks=True))) == {}
    assert started(world, lambda: world.worker("w3")) == {A: 1, A0: 1, A1: 1, A2: 1}


def test_restart_task(world: World) -> None:
    fail(world, A1)
    holder = next(worker.id for worker in world.workers.values() if A1 in worker.held)
    answer = world.ask(RestartTask("a", 1))
    assert answer == Restarting((RestartItem(1, RESTARTING, True, holder),))
    assert world.starts[-1][0] == holder
    assert world.workers[holder].held[A1].state is RUNNING
    assert started(world, lambda: world.ask(RestartTask("a", 1))) == {A1: 1}, "whatever its state"


@pytest.mark.parametrize("task", [3, -1, 2**31 - 1])
def test_restart_unknown_task(world: World, task: int) -> None:
    with pytest.raises(TaskNotFound, match=f"no task {task}"):
        world.ask(RestartTask("a", task))


def test_preserve_highest_impact_restart_request(world: World) -> None:
    """Requests during a restart take nothing from it, and add no second one."""
    for worker in world.workers.values():
        worker.stop_silently = True
    for include_tasks, only_failed in [(True, False), (False, False), (False, True), (True, True)]:
        world.ask(RestartConnector("a", include_tasks=include_tasks, only_failed=only_failed))
    for worker in world.workers.values():
        worker.stop_silently = False

    def acknowledge() -> None:
        world.advance(world.rules.stop_timeout_ms + 1_000)

    assert started(world, acknowledge) == {A: 1, A0: 1, A1: 1, A2: 1}


def test_process_restart_requests_dequeue(world: World) -> None:
    """A restart is done once: neither time nor other changes repeat it."""
    assert sum(started(world, lambda: world.ask(RestartConnector("a", include_tasks=True))).values()) == 4
    assert started(world, lambda: world.advance(120_000)) == {}
    assert started(world, lambda: world.ask(SetTarget("a", TargetState.PAUSED))) == {}
    world.kill_herder()
    assert started(world, world.lead) == {}
    assert started(world, lambda: world.advance(5_000)) == {}


def test_process_restart_requests_failure_suppression(world: World) -> None:
    """A unit that fails to start again does not keep the others from starting."""
    for worker in world.workers.values():
        worker.fail_starts = BROKEN
    assert started(world, lambda: world.ask(RestartConnector("a", include_tasks=True))) == {A: 1, A0: 1, A1: 1, A2: 1}
    view = world.herder.connector("a")
    assert view is not None
    assert [task.status.state for task in view.tasks] == [FAILED] * 3


def test_a_restart_ends_the_backoff_of_an_unheld_unit(world: World) -> None:
    worker = next(worker for worker in world.workers.values() if A0 in worker.held)
    assert started(world, lambda: world.release(worker, A0)) == {}, "given up unasked, it waits for a second"
    assert started(world, lambda: world.ask(RestartTask("a", 0))) == {A0: 1}


def test_a_unit_restarts_into_its_target_state(world: World) -> None:
    world.ask(SetTarget("a", TargetState.PAUSED))
    assert sum(started(world, lambda: world.ask(RestartConnector("a", include_tasks=True))).values()) == 4
    assert {held.state for worker in world.workers.values() for held in worker.held.values()} == {RunState.PAUSED}


def test_a_restart_record_of_another_writer_is_carried_out(world: World) -> None:
    record = ev.RestartRecorded("a", include_tasks=True, only_failed=False, revision=None)
    assert started(world, lambda: world.post(record)) == {A: 1, A0: 1, A1: 1, A2: 1}
    unknown = ev.RestartRecorded("b", include_tasks=True, only_failed=False, revision=None)
    assert started(world, lambda: world.post(unknown)) == {}


def test_connects_restart_record_is_written_where_connect_writes_one(world: World) -> None:
    """The store decides by flags and task whether it writes one; they are those of the user's request."""
    asked: list[tuple[bool, bool, int | None]] = []
    write = world.config.write

    def spy(wanted: ins.Write) -> object:
        if isinstance(wanted, ins.RequestRestart):
            asked.append((wanted.include_tasks, wanted.only_failed, wanted.task))
        return write(wanted)

    world.config.write = spy  # type: ignore[method-assign,assignment]
    world.ask(RestartConnector("a"))
    world.ask(RestartConnector("a", include_tasks=True))
    world.ask(RestartConnector("a", only_failed=True))
    world.ask(RestartTask("a", 2))
    assert asked == [(False, False, None), (True, False, None), (False, True, None), (False, False, 2)]


def test_a_retried_restart_restarts_nothing_and_gets_the_same_answer(world: World) -> None:
    first = world.ask(RestartConnector("a", include_tasks=True), WriteOptions("r1"))
    again: list[object] = []
    retry = RestartConnector("a", include_tasks=True)
    assert started(world, lambda: again.append(world.ask(retry, WriteOptions("r1")))) == {}
    assert again == [first]
    assert started(world, lambda: world.ask(retry, WriteOptions("r2"))) == {A: 1, A0: 1, A1: 1, A2: 1}


def test_a_recreated_connector_ignores_restarts_of_its_predecessor(world: World) -> None:
    world.ask(RestartConnector("a", include_tasks=True))
    world.ask(DeleteConnector("a"))
    world.advance(5_000)
    assert started(world, lambda: world.ask(CreateConnector("a", sink(3)))) == {A: 1, A0: 1, A1: 1, A2: 1}
    assert world.config.entries["a"].restarts == {}
