"""Lifecycle of connectors from create to delete, as stories in events; the workers of these stories obey."""

from __future__ import annotations

from dataclasses import replace

import pytest

from herdmesh.connect.error_class import ErrorClass
from herdmesh.connect.spi.waits import Wait
from herdmesh.connect.topics.commit_scope import CommitScope
from herdmesh.herder.state.model import StatusEntry
from herdmesh.herder.state.model import events as ev
from herdmesh.herder.state.model.instructions import PutConfig
from herdmesh.herder.state.model.requests import (
    CreateConnector,
    DeleteConnector,
    PatchConnector,
    RestartConnector,
    Restarting,
    RestartTask,
    SetTarget,
    UpdateConnector,
    WriteOptions,
    Written,
)
from herdmesh.rpc.errors import TaskNotFound
from herdmesh.session.messages import SetUnitTarget
from herdmesh.session.model import Condition, Failure, RunState, TargetState, UnitId
from services.herder.tests.world import BROKEN, World, sink


@pytest.fixture
def world() -> World:
    """A leader and two workers."""
    world = World()
    world.lead()
    world.worker("w1")
    world.worker("w2")
    return world


def states(world: World, name: str) -> list[RunState]:
    view = world.herder.connector(name)
    assert view is not None
    return [view.status.state, *(task.status.state for task in view.tasks)]


def test_a_created_connector_runs_before_its_tasks(world: World) -> None:
    written = world.ask(CreateConnector("c", sink(2)))
    assert isinstance(written, Written)
    assert (written.name, written.created) == ("c", True)
    assert written.revision is not None
    assert written.validation is not None, "what the worker warned of is told"
    assert states(world, "c") == [RunState.RUNNING] * 3
    assert world.placed() == {"w1": 1, "w2": 1}
    # Fencing comes before the first start too: the count is durable before a task may run.
    assert world.config.counts == [("c", 2)]
    assert [start.task_count for _, start in world.starts if start.unit.task is not None] == [2, 2]


def test_generations_rise_and_carry_the_epoch(world: World) -> None:
    world.ask(CreateConnector("a", sink(3)))
    world.ask(CreateConnector("b", sink(3)))
    orders = [start.assignment.order for _, start in world.starts]
    assert orders == sorted(set(orders))
    assert {epoch for epoch, _ in orders} == {1}


def test_an_update_restarts_only_its_own_connector_and_tasks(world: World) -> None:
    world.ask(CreateConnector("a", sink(2)))
    world.ask(CreateConnector("b", sink(2)))
    before = len(world.starts)
    world.ask(UpdateConnector("a", {**sink(2), "file": "other"}))
    units = [start.unit for _, start in world.starts[before:]]
    assert sorted(map(str, units)) == ["a", "a-0", "a-1"]
    assert states(world, "a") == states(world, "b") == [RunState.RUNNING] * 3


def test_an_update_restarts_tasks_even_when_their_configs_are_equal(world: World) -> None:
    world.ask(CreateConnector("a", sink(2)))
    world.ask(UpdateConnector("a", {**sink(2), "converter": "other"}))
    assert [held.starts for worker in world.workers.values() for held in worker.held.values()] == [1, 1, 1]
    assert world.config.commits == ["a", "a"]
    assert sum(1 for _, start in world.starts if start.unit == UnitId("a", 0)) == 2


@pytest.mark.parametrize("request_id", ["", "r1"])
def test_an_equal_config_writes_nothing_and_restarts_nothing(world: World, request_id: str) -> None:
    world.ask(CreateConnector("a", sink(2)))
    starts, stored, offset = len(world.starts), world.config.entries["a"], world.config.offset
    for same in (UpdateConnector("a", sink(2, name="a")), PatchConnector("a", {"tasks.max": "2", "absent": None})):
        for _ in range(2):  # a retry of the same id too
            written = world.ask(same, WriteOptions(request_id and f"{request_id}-{type(same).__name__}"))
            assert isinstance(written, Written)
            assert (written.unchanged, written.created) == (True, False)
            assert written.validation is not None
    assert (world.config.entries["a"], world.config.offset) == (stored, offset)
    assert len(world.starts) == starts
    changed = world.ask(PatchConnector("a", {"note": "new"}))
    assert isinstance(changed, Written)
    assert not changed.unchanged


def test_an_equal_config_of_another_writer_restarts_the_connector_only(world: World) -> None:
    """As Connect's workers, which write an equal config too."""
    world.ask(CreateConnector("a", sink(2)))
    before = len(world.starts)
    world.config.write(PutConfig(0, "a", sink(2, name="a"), WriteOptions()))
    world.post(ev.ConfigChanged("a", world.config.entries["a"], None))
    world.advance(50)
    assert [str(start.unit) for _, start in world.starts[before:]] == ["a"]
    assert world.config.commits == ["a"]


def test_a_restart_of_units_keeps_them_on_their_workers(world: World) -> None:
    world.ask(CreateConnector("a", sink(4)))
    where = world.running()
    world.ask(UpdateConnector("a", {**sink(4), "file": "other"}))
    assert world.running() == where


def test_pause_and_resume_in_place(world: World) -> None:
    world.ask(CreateConnector("a", sink(2)))
    before = len(world.starts)
    world.ask(SetTarget("a", TargetState.PAUSED))
    assert states(world, "a") == [RunState.PAUSED] * 3
    world.ask(SetTarget("a", TargetState.STARTED))
    assert states(world, "a") == [RunState.RUNNING] * 3
    assert len(world.starts) == before


def test_a_stop_ends_the_tasks_and_keeps_the_connector(world: World) -> None:
    world.ask(CreateConnector("a", sink(2)))
    world.ask(SetTarget("a", TargetState.STOPPED))
    assert states(world, "a") == [RunState.STOPPED]
    assert world.placed() == {"w1": 0, "w2": 0}
    assert world.placed("connectors") == {"w1": 1, "w2": 0}
    world.ask(SetTarget("a", TargetState.STARTED))
    assert states(world, "a") == [RunState.RUNNING] * 3


def test_a_stopped_connector_keeps_the_commits_of_its_tasks(world: World) -> None:
    world.ask(CreateConnector("a", sink(1)))
    world.ask(SetTarget("a", TargetState.STOPPED))
    world.advance(10_000)
    assert UnitId("a", 0) in world.statuses


def test_a_task_starts_with_the_scope_of_its_last_commit(world: World) -> None:
    """Also under another config, since the group or the topics may differ. A new number gets the commits of the others,
    and a new connector of the name gets none.
    """
    scope = CommitScope("connect-a", ("t",))

    def started() -> list[tuple[int | None, CommitScope | None]]:
        return [(start.unit.task, start.commit_scope) for _, start in world.starts]

    world.ask(CreateConnector("a", sink(1)))
    known = world.statuses[UnitId("a", 0)] = replace(world.statuses[UnitId("a", 0)], commit_scope=scope)
    world.post(ev.StatusPut(known))
    world.starts.clear()
    world.ask(UpdateConnector("a", sink(2, topics="u")))
    assert sorted(started(), key=str) == [(0, scope), (1, CommitScope("connect-a", (), ("t",))), (None, None)]
    world.ask(DeleteConnector("a"))
    world.advance(3_000)
    world.starts.clear()
    world.ask(CreateConnector("a", sink(1)))
    assert sorted(started(), key=str) == [(0, None), (None, None)]


def test_a_connector_created_stopped_or_paused_starts_no_task(world: World) -> None:
    world.ask(CreateConnector("s", sink(2), TargetState.STOPPED))
    world.ask(CreateConnector("p", sink(2), TargetState.PAUSED))
    assert states(world, "s") == [RunState.STOPPED]
    assert states(world, "p") == [RunState.PAUSED]
    world.ask(SetTarget("p", TargetState.STARTED))
    assert states(world, "p") == [RunState.RUNNING] * 3


def test_a_delete_stops_all_units_and_then_removes_statuses(world: World) -> None:
    world.ask(CreateConnector("a", sink(2)))
    world.ask(DeleteConnector("a"))
    world.advance(3_000)
    assert world.running() == {}
    assert world.statuses == {}
    assert world.herder.connector("a") is None
    assert world.herder.connector_names() == []


def test_a_name_created_again_is_another_connector(world: World) -> None:
    world.ask(CreateConnector("a", sink(2)))
    first = {start.assignment.incarnation for _, start in world.starts if start.unit.task is not None}
    world.ask(DeleteConnector("a"))
    world.ask(CreateConnector("a", sink(2)))
    second = {start.assignment.incarnation for _, start in world.starts if start.unit.task is not None}
    assert len(second - first) == 1
    assert states(world, "a") == [RunState.RUNNING] * 3


def test_a_smaller_set_starts_after_the_larger_has_stopped(world: World) -> None:
    world.ask(CreateConnector("a", sink(4)))
    world.workers["w2"].stop_silently = True
    world.ask(UpdateConnector("a", sink(1)))
    # w2 still runs two tasks of the old set: no task of the new one may start.
    assert not any(unit.task is not None for unit in world.workers["w1"].held)
    world.workers["w2"].stop_silently = False
    world.hang_up(world.workers["w2"])
    world.advance(1_000)  # it dials in again, gets stops for its units that are not adopted, and acknowledges
    assert states(world, "a") == [RunState.RUNNING] * 2
    assert world.workers["w1"].fences == world.workers["w2"].fences == []


def test_statuses_of_a_shrunk_set_are_removed(world: World) -> None:
    world.ask(CreateConnector("a", sink(4)))
    world.ask(UpdateConnector("a", sink(1)))
    world.advance(5_000)
    assert {unit.task for unit in world.statuses} == {None, 0}


def test_a_failed_task_stays_failed_while_others_run(world: World) -> None:
    world.ask(CreateConnector("a", sink(2)))
    worker = next(worker for worker in world.workers.values() if UnitId("a", 0) in worker.held)
    world.fail(worker, UnitId("a", 0), BROKEN)
    world.advance(120_000)
    assert states(world, "a") == [RunState.RUNNING, RunState.FAILED, RunState.RUNNING]
    view = world.herder.connector("a")
    assert view is not None
    assert view.tasks[0].status.failure == BROKEN


def test_a_restart_of_a_task_and_a_restart_of_failed_units(world: World) -> None:
    world.ask(CreateConnector("a", sink(3)))
    worker = next(worker for worker in world.workers.values() if UnitId("a", 1) in worker.held)
    world.fail(worker, UnitId("a", 1), BROKEN)
    before = len(world.starts)
    answer = world.ask(RestartConnector("a", include_tasks=True, only_failed=True))
    assert isinstance(answer, Restarting)
    assert [(item.task, item.state, item.restarted) for item in answer.items] == [
        (None, RunState.RUNNING, False),
        (0, RunState.RUNNING, False),
        (1, RunState.RESTARTING, True),
        (2, RunState.RUNNING, False),
    ]
    assert [str(start.unit) for _, start in world.starts[before:]] == ["a-1"]
    world.ask(RestartTask("a", 0))
    assert [str(start.unit) for _, start in world.starts[before:]] == ["a-1", "a-0"]
    with pytest.raises(TaskNotFound):
        world.ask(RestartTask("a", 3))


def test_restart_with_tasks_restarts_all_where_they_are(world: World) -> None:
    world.ask(CreateConnector("a", sink(3)))
    where = world.running()
    before = len(world.starts)
    world.ask(RestartConnector("a", include_tasks=True))
    assert sorted(str(start.unit) for _, start in world.starts[before:]) == ["a", "a-0", "a-1", "a-2"]
    assert world.running() == where


def test_a_unit_released_unasked_starts_again_after_a_backoff(world: World) -> None:
    world.ask(CreateConnector("a", sink(1)))
    unit = UnitId("a", 0)
    worker = next(worker for worker in world.workers.values() if unit in worker.held)
    world.release(worker, unit)
    assert unit not in world.running()
    world.advance(1_500)
    assert unit in world.running()


def test_a_failed_task_config_request_is_retried(world: World) -> None:
    world.task_failures["a"] = Failure("the database is away", error_class=ErrorClass.RETRIABLE)
    world.ask(CreateConnector("a", sink(1)))
    view = world.herder.connector("a")
    assert view is not None
    assert "the database is away" in view.status.conditions[0].message
    del world.task_failures["a"]
    world.advance(2_000)
    assert states(world, "a") == [RunState.RUNNING] * 2


def test_more_tasks_than_allowed_fail_the_connector(world: World) -> None:
    world.task_counts["a"] = 3
    world.ask(CreateConnector("a", sink(2)))
    view = world.herder.connector("a")
    assert view is not None
    assert view.status.state is RunState.FAILED
    assert view.status.failure is not None
    assert "has generated 3 tasks, which is greater than 2" in view.status.failure.message
    world.ask(UpdateConnector("a", sink(3)))
    assert states(world, "a") == [RunState.RUNNING] * 4


def test_a_half_read_change_of_ours_is_not_taken_for_a_foreign_writers(world: World) -> None:
    """1. The config record of an update is read; 2. the connector looks foreign; 3. the manifest follows."""
    world.ask(CreateConnector("a", sink(2)))
    before = len(world.starts)
    entry = world.config.entries["a"]
    world.post(ev.ConfigChanged("a", replace(entry, foreign=True), None))
    world.post(ev.ConfigChanged("a", entry, world.config.next()))
    world.run()
    world.advance(3_000)
    assert len(world.starts) == before


def test_a_connector_resumed_before_its_stop_completed_gets_its_tasks_back(world: World) -> None:
    """An author's stop may take long; if the connector is resumed meanwhile, it is RUNNING again and the leader never
    saw it STOPPED. Found by tests/sim/mesh.
    """
    world.ask(CreateConnector("c", sink(2)))
    world.advance(1_000)
    holder = next(one for one in world.workers.values() if UnitId("c") in one.held)
    holder.frozen = True
    world.ask(SetTarget("c", TargetState.STOPPED))
    # The stop is still under way when the resume comes: of the two, only the resume has an effect.
    holder.backlog = [sent for sent in holder.backlog if not isinstance(sent.message, SetUnitTarget)]
    world.ask(SetTarget("c", TargetState.STARTED))
    holder.thaw()
    world.advance(10_000)
    view = world.herder.connector("c")
    assert view is not None
    assert [task.status.state for task in view.tasks] == [RunState.RUNNING, RunState.RUNNING]


def test_a_pause_that_completes_after_its_resume_is_reverted(world: World) -> None:
    """A task that is pausing is still RUNNING when its worker dials in again, and is to run by then. Found by
    tests/sim/mesh.
    """
    world.ask(CreateConnector("c", sink(1)))
    world.advance(1_000)
    unit = UnitId("c", 0)
    holder = next(one for one in world.workers.values() if unit in one.held)
    world.hang_up(holder)
    world.advance(1_000)
    held = holder.held[unit]
    held.target, held.state = TargetState.PAUSED, RunState.PAUSED
    assert holder.session is not None
    holder.say(ev.UnitReported(holder.session, unit, held.assignment, held.state))
    world.advance(1_000)
    assert held.state is RunState.RUNNING
    assert states(world, "c") == [RunState.RUNNING] * 2


def test_a_stalled_condition_is_shown_while_its_worker_reports_it(world: World) -> None:
    world.ask(CreateConnector("c", sink(1)))
    world.advance(1_000)
    unit = UnitId("c", 0)

    def shown_after(*said: StatusEntry) -> tuple[list[str], str]:
        for one in said:
            world.post(ev.StatusPut(one))
        world.run()
        view = world.herder.connector("c")
        assert view is not None
        status = view.tasks[0].status
        return [one.type for one in status.conditions], status.explanation

    assert shown_after() == ([], "")
    runs = world.statuses[unit]
    stalled = replace(runs, conditions=(Condition("STALLED", "its run has done nothing since ..."),))
    why = "its run has done nothing since ..."
    assert shown_after(stalled) == (["STALLED"], why)
    assert shown_after(replace(stalled, generation=runs.generation - 1)) == ([], ""), "of an earlier claim"
    assert shown_after(stalled, runs) == ([], "")


def test_a_wait_is_shown_while_its_worker_reports_it(world: World) -> None:
    world.ask(CreateConnector("c", sink(1)))
    world.advance(1_000)
    unit = UnitId("c", 0)
    holder = next(one for one in world.workers.values() if unit in one.held)
    assert holder.session is not None
    wait = Wait("PostgreSQL db:5432", "connection refused", 1_790_000_000_000, 3)

    def shown_after(told: Wait | None) -> tuple[list[str], str]:
        assert holder.session is not None
        holder.say(ev.WorkerHeartbeat(holder.session, (), ((unit, told),)))
        world.run()
        view = world.herder.connector("c")
        assert view is not None
        status = view.tasks[0].status
        return [one.type for one in status.conditions], status.explanation

    text = "waits for PostgreSQL db:5432: connection refused (3 tries)"
    assert shown_after(wait) == (["WAITING"], text)
    assert shown_after(None) == ([], "")
