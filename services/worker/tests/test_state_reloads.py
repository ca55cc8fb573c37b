"""Values with a ttl, in milliseconds: looked up when it expires; only units whose values changed are restarted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import pytest

from herdmesh.connect.error_class import ErrorClass
from herdmesh.engine.runtime.contract import ProgressReport, RunEnd
from herdmesh.session.model import Assignment, Failure, RunState, TargetState, UnitId
from herdmesh.worker.state import TaskLimits, WorkerLimits, WorkerState, events, instructions
from herdmesh.worker.state.model import ConnectorSpec, TaskSpec
from services.worker.tests import leader

InstructionT = TypeVar("InstructionT")
CONNECTOR = UnitId("c")
CONFIG = {"connector.class": "FileStreamSink"}
ASSIGNED = Assignment(1, 1)


def only(kind: type[InstructionT], out: Sequence[instructions.Instruction]) -> InstructionT:
    found = [one for one in out if isinstance(one, kind)]
    assert len(found) == 1, out
    return found[0]


def machine() -> WorkerState:
    state = WorkerState("life", WorkerLimits(TaskLimits(stop_timeout_ms=10_000)))
    state.handle(leader.welcome(1, frozenset()), 0.0)
    return state


def running(state: WorkerState, number: int, ttl_ms: int, now: float = 0.0) -> str:
    """Start a task whose run gets values with this ttl; its run id."""
    start = leader.start_unit(1, UnitId("c", number), ASSIGNED, TargetState.STARTED, TaskSpec(CONFIG, {}, 2))
    run_id = only(instructions.SubmitRun, state.handle(start, now)).run_id
    state.handle(events.ValuesResolved(UnitId("c", number), run_id, ttl_ms), now)
    state.handle(events.RunProgress(run_id, ProgressReport()), now)
    return run_id


def started(state: WorkerState, ttl_ms: int) -> int:
    start = leader.start_unit(1, CONNECTOR, ASSIGNED, TargetState.STARTED, ConnectorSpec(CONFIG, 3))
    op_id = only(instructions.StartConnector, state.handle(start, 0.0)).op_id
    state.handle(events.ValuesResolved(CONNECTOR, str(op_id), ttl_ms), 0.0)
    state.handle(events.ConnectorStarted("c", op_id), 0.0)
    return op_id


def test_values_are_looked_up_after_their_ttl_and_only_changed_ones_end_a_run() -> None:
    state = machine()
    kept, changed = running(state, 0, 5_000), running(state, 1, 7_000)
    assert state.next_deadline() == 5.0
    assert state.handle(events.Tick(), 5.0) == [instructions.CheckValues(UnitId("c", 0), kept)]
    assert state.next_deadline() == 7.0, "one look-up at a time"
    assert state.handle(events.Tick(), 7.0) == [instructions.CheckValues(UnitId("c", 1), changed)]
    assert state.handle(events.ValuesChecked(UnitId("c", 0), kept, changed=False, ttl_ms=4_000), 7.5) == []
    assert state.next_deadline() == 11.5
    out = state.handle(events.ValuesChecked(UnitId("c", 1), changed, changed=True, ttl_ms=7_000), 8.0)
    assert only(instructions.StopRun, out).run_id == changed
    assert len(out) == 1, "nobody is told: the task goes on"
    state.handle(events.RunFinished(changed, RunEnd.STOPPED, ProgressReport(), 0), 8.5)
    out = state.handle(events.RunEnded(changed), 8.6)
    assert only(instructions.SubmitRun, out).unit == UnitId("c", 1)
    assert [one.state for one in state.held_units()] == [RunState.RUNNING] * 2


def test_a_failed_lookup_changes_nothing_and_is_retried() -> None:
    state = machine()
    run_id = running(state, 0, 3_600_000)
    state.handle(events.Tick(), 3_600.0)
    assert state.handle(events.ValuesUnknown(UnitId("c", 0), run_id), 3_601.0) == []
    assert state.next_deadline() == 3_661.0, "within a minute"
    assert only(instructions.CheckValues, state.handle(events.Tick(), 3_661.0)).made_by == run_id


def test_the_minimum_ttl_is_a_second() -> None:
    state = machine()
    running(state, 0, 0)
    assert state.next_deadline() == 1.0


def test_an_idle_task_is_woken_by_changed_values() -> None:
    """A changed value may be the watched topic or file."""
    state = machine()
    run_id = running(state, 0, 5_000)
    state.handle(events.RunFinished(run_id, RunEnd.QUIET, ProgressReport(), 0), 1.0)
    assert only(instructions.WatchTask, state.handle(events.RunEnded(run_id), 1.0))
    assert state.handle(events.Tick(), 5.0) == [instructions.CheckValues(UnitId("c", 0), run_id)]
    assert state.handle(events.ValuesChecked(UnitId("c", 0), run_id, changed=False, ttl_ms=1_000), 5.1) == []
    state.handle(events.Tick(), 6.1)
    out = state.handle(events.ValuesChecked(UnitId("c", 0), run_id, changed=True, ttl_ms=1_000), 6.2)
    assert out[0] == instructions.UnwatchTask(UnitId("c", 0))
    assert only(instructions.SubmitRun, out).run_id != run_id


def test_changed_values_do_not_stop_an_ending_run_and_its_task_is_checked_again() -> None:
    state = machine()
    run_id = running(state, 0, 5_000)
    state.handle(events.Tick(), 5.0)
    state.handle(events.RunFinished(run_id, RunEnd.QUIET, ProgressReport(), 0), 5.1)
    assert state.handle(events.ValuesChecked(UnitId("c", 0), run_id, changed=True, ttl_ms=5_000), 5.2) == []
    state.handle(events.RunEnded(run_id), 5.3)
    assert only(instructions.CheckValues, state.handle(events.Tick(), 10.2)).made_by == run_id


def test_the_values_of_a_task_that_neither_runs_nor_is_idle_are_not_looked_up() -> None:
    """Its next run resolves everything anyway."""
    state = machine()
    run_id = running(state, 0, 5_000)
    state.handle(leader.set_target(1, UnitId("c", 0), TargetState.PAUSED), 1.0)
    state.handle(events.RunFinished(run_id, RunEnd.STOPPED, ProgressReport(), 0), 1.1)
    state.handle(events.RunEnded(run_id), 1.2)
    assert state.handle(events.Tick(), 5.0) == []
    assert state.next_deadline() is None
    assert state.handle(events.ValuesChecked(UnitId("c", 0), run_id, changed=True, ttl_ms=1_000), 6.0) == []


def test_values_that_no_longer_expire_are_not_looked_up_again() -> None:
    state = machine()
    run_id = running(state, 0, 5_000)
    state.handle(events.Tick(), 5.0)
    assert state.handle(events.ValuesChecked(UnitId("c", 0), run_id, changed=False, ttl_ms=None), 5.1) == []
    assert state.next_deadline() is None


def test_a_task_that_fails_while_it_is_stopped_for_changed_values_is_failed() -> None:
    state = machine()
    run_id = running(state, 0, 5_000)
    state.handle(events.Tick(), 5.0)
    state.handle(events.ValuesChecked(UnitId("c", 0), run_id, changed=True, ttl_ms=5_000), 5.1)
    state.handle(events.RunFailed(run_id, Failure("the login is refused", error_class=ErrorClass.BAD_CONFIG)), 5.2)
    assert only(instructions.SendReport, state.handle(events.RunEnded(run_id), 5.3)).state is RunState.FAILED


def failed(state: WorkerState, run_id: str, now: float) -> None:
    state.handle(events.RunFailed(run_id, Failure("the login is refused", error_class=ErrorClass.BAD_CONFIG)), now)
    assert only(instructions.SendReport, state.handle(events.RunEnded(run_id), now)).state is RunState.FAILED


def test_a_failed_task_is_released_for_a_new_start_once_its_values_changed() -> None:
    state = machine()
    run_id = running(state, 0, 5_000)
    failed(state, run_id, 1.0)
    assert state.handle(events.Tick(), 5.0) == [instructions.CheckValues(UnitId("c", 0), run_id)]
    assert state.handle(events.ValuesChecked(UnitId("c", 0), run_id, changed=False, ttl_ms=1_000), 5.1) == []
    assert state.handle(events.Tick(), 6.1) == [instructions.CheckValues(UnitId("c", 0), run_id)]
    out = state.handle(events.ValuesChecked(UnitId("c", 0), run_id, changed=True, ttl_ms=1_000), 6.2)
    report = only(instructions.SendReport, out)
    assert (report.state, report.assignment) == (RunState.UNASSIGNED, ASSIGNED)
    assert not any(isinstance(one, instructions.WriteStatus) for one in out), "what it failed on stays readable"
    again = leader.start_unit(1, UnitId("c", 0), Assignment(1, 2), TargetState.STARTED, TaskSpec(CONFIG, {}, 2))
    assert only(instructions.SubmitRun, state.handle(again, 6.3)).run_id != run_id


@pytest.mark.parametrize("hopeless", [ErrorClass.FATAL, ErrorClass.DATA_LOSS])
def test_a_task_with_a_failure_that_no_value_mends_is_not_restarted(hopeless: ErrorClass) -> None:
    """A provider whose values differ at every lookup would restart it after each ttl."""
    state = machine()
    run_id = running(state, 0, 5_000)
    state.handle(events.Tick(), 5.0)
    state.handle(events.RunFailed(run_id, Failure("offsets are gone", error_class=hopeless)), 5.1)
    assert only(instructions.SendReport, state.handle(events.RunEnded(run_id), 5.1)).state is RunState.FAILED
    late = events.ValuesChecked(UnitId("c", 0), run_id, changed=True, ttl_ms=1_000)
    assert state.handle(late, 5.2) == [], "looked up while it failed"
    assert state.handle(events.Tick(), 6.2) == []
    assert state.next_deadline() is None


def test_a_run_that_failed_for_a_missing_value_is_checked_again() -> None:
    state = machine()
    start = leader.start_unit(1, UnitId("c", 0), ASSIGNED, TargetState.STARTED, TaskSpec(CONFIG, {}, 1))
    run_id = only(instructions.SubmitRun, state.handle(start, 0.0)).run_id
    state.handle(events.ValuesResolved(UnitId("c", 0), run_id, 2_000), 0.1)
    failed(state, run_id, 0.2)
    assert only(instructions.CheckValues, state.handle(events.Tick(), 2.1)).made_by == run_id
    assert state.handle(events.ValuesUnknown(UnitId("c", 0), run_id), 2.2) == []
    state.handle(events.Tick(), 4.2)
    out = state.handle(events.ValuesChecked(UnitId("c", 0), run_id, changed=True, ttl_ms=2_000), 4.3)
    assert only(instructions.SendReport, out).state is RunState.UNASSIGNED


def test_a_failed_task_that_is_paused_waits_until_it_is_resumed() -> None:
    state = machine()
    run_id = running(state, 0, 1_000)
    failed(state, run_id, 0.5)
    state.handle(leader.set_target(1, UnitId("c", 0), TargetState.PAUSED), 0.6)
    state.handle(events.Tick(), 1.0)
    assert state.handle(events.ValuesChecked(UnitId("c", 0), run_id, changed=True, ttl_ms=1_000), 1.1) == []
    state.handle(leader.set_target(1, UnitId("c", 0), TargetState.STARTED), 1.2)
    assert only(instructions.CheckValues, state.handle(events.Tick(), 2.1)).made_by == run_id
    out = state.handle(events.ValuesChecked(UnitId("c", 0), run_id, changed=True, ttl_ms=1_000), 2.2)
    assert only(instructions.SendReport, out).state is RunState.UNASSIGNED


def test_changed_values_restart_a_connector_and_its_new_task_configs_are_offered() -> None:
    state = machine()
    op_id = started(state, 2_000)
    assert state.handle(events.Tick(), 2.0) == [instructions.CheckValues(CONNECTOR, str(op_id))]
    out = state.handle(events.ValuesChecked(CONNECTOR, str(op_id), changed=True, ttl_ms=2_000), 2.1)
    stop = only(instructions.StopConnector, out)
    assert len(out) == 1, "its state stays RUNNING"
    again = only(instructions.StartConnector, state.handle(events.ConnectorStopped("c", stop.op_id), 2.2))
    assert again.op_id != op_id
    ask = only(instructions.MakeTaskConfigs, state.handle(events.ConnectorStarted("c", again.op_id), 2.3))
    assert ask.tasks_max == 3
    offered = state.handle(events.TaskConfigsMade("c", ask.op_id, [{"a": "b"}]), 2.4)
    assert only(instructions.SendTaskConfigs, offered).tasks == [{"a": "b"}]
    assert state.handle(events.Tick(), 9.0) == [], "what was given to the first start is out of use"


def test_a_connector_paused_during_a_reload_is_not_started() -> None:
    state = machine()
    op_id = started(state, 2_000)
    state.handle(events.Tick(), 2.0)
    out = state.handle(events.ValuesChecked(CONNECTOR, str(op_id), changed=True, ttl_ms=2_000), 2.1)
    stop = only(instructions.StopConnector, out)
    state.handle(leader.set_target(1, CONNECTOR, TargetState.PAUSED), 2.2)
    out = state.handle(events.ConnectorStopped("c", stop.op_id), 2.3)
    assert not any(isinstance(one, instructions.StartConnector) for one in out)
    assert only(instructions.SendReport, out).state is RunState.PAUSED
