"""Session, leaving and connectors, in milliseconds: events in, instructions out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import pytest

from herdmesh.connect.error_class import ErrorClass
from herdmesh.engine.runtime.contract import ProgressReport, RunEnd
from herdmesh.session import worker_commands
from herdmesh.session.model import Assignment, Condition, Failure, RunState, TargetState, UnitId
from herdmesh.worker.state import TaskLimits, WorkerLimits, WorkerState, events, instructions
from herdmesh.worker.state.model import ConnectorSpec, PutMode, TaskSpec
from services.worker.tests import leader

InstructionT = TypeVar("InstructionT")
CONNECTOR = UnitId("c")
TASK = UnitId("c", 0)
CONFIG = {"connector.class": "FileStreamSink"}


def only(kind: type[InstructionT], out: Sequence[instructions.Instruction]) -> InstructionT:
    found = [one for one in out if isinstance(one, kind)]
    assert len(found) == 1, out
    return found[0]


def assignment(generation: int = 1) -> Assignment:
    return Assignment(1, generation)


def machine() -> WorkerState:
    state = WorkerState("life", WorkerLimits(TaskLimits(stop_timeout_ms=10_000), leave_timeout_ms=10_000))
    state.handle(leader.welcome(1, frozenset()), 0.0)
    return state


def start_connector(target: TargetState = TargetState.STARTED, generation: int = 1) -> events.Command:
    return leader.start_unit(1, CONNECTOR, assignment(generation), target, ConnectorSpec(CONFIG, 2))


def running_connector(state: WorkerState) -> None:
    call = only(instructions.StartConnector, state.handle(start_connector(), 0.0))
    state.handle(events.ConnectorStarted("c", call.op_id), 0.1)


def running_task(state: WorkerState, unit: UnitId = TASK) -> str:
    start = leader.start_unit(1, unit, assignment(), TargetState.STARTED, TaskSpec(CONFIG, {}, 1))
    run_id = only(instructions.SubmitRun, state.handle(start, 0.0)).run_id
    state.handle(events.RunProgress(run_id, ProgressReport()), 0.1)
    return run_id


def generate(generation: int = 1) -> events.Command:
    return leader.generate(1, "c", assignment(generation), 3)


# --- session


def test_units_that_were_not_adopted_are_released_and_the_rest_runs_on() -> None:
    state = machine()
    kept, lost = running_task(state, UnitId("c", 0)), running_task(state, UnitId("c", 1))
    state.handle(events.SessionClosed(), 1.0)
    out = state.handle(leader.welcome(2, frozenset([UnitId("c", 0)])), 2.0)
    assert out == [instructions.StopRun(lost, "the herder did not adopt it")]
    assert kept != lost
    assert len(state.held_units()) == 2, "its end is still to be told"
    assert [one.stopping for one in state.held_units()] == [False, True], "the next leader must not adopt it"


def test_without_a_session_nothing_stops() -> None:
    state = machine()
    running_task(state)
    assert state.handle(events.SessionClosed(), 1.0) == []
    assert state.held_units()[0].state is RunState.RUNNING
    assert state.next_deadline() is None


def test_a_stale_status_releases_only_the_unit_of_that_generation() -> None:
    state = machine()
    run_id = running_task(state)
    assert state.handle(events.StatusStale(TASK, 7), 1.0) == []
    out = state.handle(events.StatusStale(TASK, 1), 1.0)
    assert only(instructions.StopRun, out).run_id == run_id


# --- leaving


def test_leaving_waits_for_the_herder_then_ends() -> None:
    state = machine()
    run_id = running_task(state)
    assert state.handle(events.LeaveRequested(), 1.0) == [instructions.SendLeaving()]
    assert state.next_deadline() == 11.0
    state.handle(leader.stop_unit(1, TASK, assignment(), "moved"), 1.1)
    out = state.handle(events.RunEnded(run_id), 1.2)
    assert only(instructions.SendReport, out).state is RunState.UNASSIGNED
    assert not any(isinstance(one, instructions.Exit) for one in out), "the herder has the last word"
    assert state.handle(leader.released(1), 1.3) == [instructions.Exit(0)]
    assert state.handle(events.Tick(), 99.0) == []


def test_leaving_is_bounded_when_the_herder_does_not_answer() -> None:
    state = machine()
    run_id = running_task(state)
    state.handle(events.LeaveRequested(), 1.0)
    out = state.handle(events.Tick(), 11.0)
    assert only(instructions.StopRun, out).run_id == run_id
    assert only(instructions.CancelRun, state.handle(events.Tick(), 21.0))
    assert state.next_deadline() == 22.0
    assert state.handle(events.Tick(), 22.0) == [instructions.Exit(0)]


def test_leaving_without_a_session_stops_all_units() -> None:
    state = machine()
    run_id = running_task(state)
    state.handle(events.SessionClosed(), 0.5)
    assert only(instructions.StopRun, state.handle(events.LeaveRequested(), 1.0)).run_id == run_id
    assert only(instructions.Exit, state.handle(events.RunEnded(run_id), 1.2)).code == 0


def test_nothing_new_is_started_while_leaving() -> None:
    state = machine()
    state.handle(events.LeaveRequested(), 1.0)
    out = state.handle(start_connector(), 1.1)
    assert out == [instructions.SendReport(CONNECTOR, assignment(), RunState.UNASSIGNED)]


def test_a_dead_spark_ends_every_run_and_leaves_with_an_error() -> None:
    state = machine()
    running_task(state)
    out = state.handle(events.SparkGone("Spark's JVM died"), 1.0)
    assert only(instructions.SendLeaving, out)
    assert not any(isinstance(one, instructions.SubmitRun) for one in out)
    out = state.handle(leader.stop_unit(1, TASK, assignment(), "moved"), 1.1)
    assert only(instructions.SendReport, out).state is RunState.UNASSIGNED
    assert state.handle(leader.released(1), 1.2) == [instructions.Exit(1)]


def test_a_dead_spark_without_a_herder_ends_at_once() -> None:
    state = machine()
    running_task(state)
    state.handle(events.SessionClosed(), 0.5)
    assert only(instructions.Exit, state.handle(events.SparkGone("gone"), 1.0)).code == 1


def test_a_drain_command_is_confirmed_and_in_later_hellos() -> None:
    state = machine()
    running_task(state)
    assert state.handle(leader.drain(1, True, "command"), 1.0) == [instructions.SendReply("command")]
    assert (state.draining, len(state.held_units())) == (True, 1), "it stops nothing"
    assert state.handle(leader.drain(1, True), 1.0) == [], "a reminder wants no reply"
    state.handle(leader.welcome(2, frozenset([TASK])), 3.0)
    assert state.handle(leader.drain(1, False, "command"), 4.0) == [], "a leader of before is not heard"
    assert state.draining


def test_draining_releases_all_units_and_keeps_the_process() -> None:
    state = machine()
    run_id = running_task(state)
    assert only(instructions.StopRun, state.handle(events.DrainRequested(), 1.0))
    out = state.handle(events.RunEnded(run_id), 1.1)
    assert only(instructions.Drained, out)
    assert state.draining
    assert not any(isinstance(one, instructions.Exit) for one in out)


# --- connectors


def test_a_connector_starts_and_makes_task_configs() -> None:
    state = machine()
    call = only(instructions.StartConnector, state.handle(start_connector(), 0.0))
    assert state.handle(generate(), 0.1) == [], "one call at a time"
    out = state.handle(events.ConnectorStarted("c", call.op_id), 0.2)
    assert only(instructions.SendReport, out).state is RunState.RUNNING
    ask = only(instructions.MakeTaskConfigs, out)
    assert ask.tasks_max == 3
    out = state.handle(events.TaskConfigsMade("c", ask.op_id, [{"file": "f"}]), 0.3)
    assert only(instructions.SendTaskConfigs, out).tasks == [{"file": "f"}]


def test_a_connector_that_cannot_start_is_failed_and_fails_pending_requests() -> None:
    state = machine()
    call = only(instructions.StartConnector, state.handle(start_connector(), 0.0))
    state.handle(generate(), 0.1)
    failure = Failure("no such folder", "trace", ErrorClass.BAD_CONFIG)
    out = state.handle(events.ConnectorStarted("c", call.op_id, failure), 0.2)
    assert only(instructions.WriteStatus, out).mode is PutMode.PUT_SAFE
    assert only(instructions.SendReport, out).failure == failure
    assert only(instructions.SendTaskConfigs, out).failure == failure
    assert only(instructions.SendTaskConfigs, state.handle(generate(), 0.3)).failure == failure


def test_stopping_ends_the_failed_state_of_a_connector_and_pausing_does_not() -> None:
    state = machine()
    call = only(instructions.StartConnector, state.handle(start_connector(), 0.0))
    state.handle(events.ConnectorStarted("c", call.op_id, Failure("no such folder")), 0.2)
    assert state.handle(leader.set_target(1, CONNECTOR, TargetState.PAUSED), 0.3) == []
    assert state.handle(leader.set_target(1, CONNECTOR, TargetState.STARTED), 0.4) == []
    out = state.handle(leader.set_target(1, CONNECTOR, TargetState.STOPPED), 0.5)
    report = only(instructions.SendReport, out)
    assert (report.state, report.failure) == (RunState.STOPPED, None)
    assert only(instructions.WriteStatus, out).failure is None
    out = state.handle(leader.set_target(1, CONNECTOR, TargetState.STARTED), 0.6)
    assert only(instructions.StartConnector, out)


def test_a_connector_stopped_while_it_starts_is_stopped_also_when_the_start_fails() -> None:
    """Found by tests/sim/mesh: it was FAILED for good, without a visible cause."""
    state = machine()
    call = only(instructions.StartConnector, state.handle(start_connector(), 0.0))
    assert state.handle(leader.set_target(1, CONNECTOR, TargetState.STOPPED), 0.1) == []
    out = state.handle(events.ConnectorStarted("c", call.op_id, Failure("no such folder")), 0.2)
    report, status = only(instructions.SendReport, out), only(instructions.WriteStatus, out)
    assert (report.state, report.failure) == (RunState.STOPPED, None)
    assert (status.state, status.failure) == (RunState.STOPPED, None)
    out = state.handle(leader.set_target(1, CONNECTOR, TargetState.STARTED), 0.3)
    assert only(instructions.StartConnector, out)


@pytest.mark.parametrize("unit", [CONNECTOR, TASK], ids=["connector", "task"])
def test_the_leaders_conditions_are_in_every_status_of_the_assignment(unit: UnitId) -> None:
    """The restart history: no write of the worker loses it, whoever leads by then."""
    state = machine()
    account = (Condition("RESTARTS", "2 restarts under config 0a1b2c3d", 5),)
    spec = ConnectorSpec(CONFIG, 2) if unit is CONNECTOR else TaskSpec(CONFIG, {}, 1)
    start = leader.start_unit(1, unit, assignment(), TargetState.STARTED, spec, conditions=account)
    out = state.handle(start, 0.0)
    failure = Failure("it broke")
    if unit is CONNECTOR:
        call = only(instructions.StartConnector, out)
        written = state.handle(events.ConnectorStarted("c", call.op_id, failure), 0.2)
    else:
        run_id = only(instructions.SubmitRun, out).run_id
        written = state.handle(events.RunProgress(run_id, ProgressReport()), 0.1)
        state.handle(events.RunFailed(run_id, failure), 0.2)
        written = [*written, *state.handle(events.RunEnded(run_id), 0.3)]
    statuses = [one for one in written if isinstance(one, instructions.WriteStatus)]
    assert statuses[-1].state is RunState.FAILED
    assert all(one.conditions == account for one in statuses)
    again = leader.start_unit(1, unit, assignment(2), TargetState.PAUSED, spec)
    assert only(instructions.WriteStatus, state.handle(again, 1.0)).conditions == (), "of that assignment alone"


def test_a_failed_request_for_task_configs_does_not_fail_the_connector() -> None:
    state = machine()
    running_connector(state)
    ask = only(instructions.MakeTaskConfigs, state.handle(generate(), 1.0))
    out = state.handle(events.TaskConfigsMade("c", ask.op_id, failure=Failure("no")), 1.1)
    assert only(instructions.SendTaskConfigs, out).failure == Failure("no")
    assert state.held_units()[0].state is RunState.RUNNING


def test_a_task_config_request_for_a_connector_not_held_gets_a_failure() -> None:
    assert only(instructions.SendTaskConfigs, machine().handle(generate(), 1.0)).failure


def test_pausing_and_stopping_a_connector_stops_its_instance() -> None:
    state = machine()
    running_connector(state)
    stop = only(instructions.StopConnector, state.handle(leader.set_target(1, CONNECTOR, TargetState.PAUSED), 1.0))
    out = state.handle(events.ConnectorStopped("c", stop.op_id), 1.1)
    assert only(instructions.SendReport, out).state is RunState.PAUSED
    out = state.handle(leader.set_target(1, CONNECTOR, TargetState.STOPPED), 1.2)
    assert only(instructions.SendReport, out).state is RunState.STOPPED
    out = state.handle(leader.set_target(1, CONNECTOR, TargetState.STARTED), 1.3)
    assert only(instructions.StartConnector, out)


def test_a_resume_that_overtakes_the_stop_starts_again() -> None:
    state = machine()
    running_connector(state)
    stop = only(instructions.StopConnector, state.handle(leader.set_target(1, CONNECTOR, TargetState.PAUSED), 1.0))
    assert state.handle(leader.set_target(1, CONNECTOR, TargetState.STARTED), 1.1) == []
    assert only(instructions.StartConnector, state.handle(events.ConnectorStopped("c", stop.op_id), 1.2))


def test_a_connector_whose_code_never_returns_is_abandoned() -> None:
    state = machine()
    call = only(instructions.StartConnector, state.handle(start_connector(), 0.0))
    assert state.handle(leader.stop_unit(1, CONNECTOR, assignment(), "moved"), 1.0) == []
    assert state.next_deadline() == 6.0
    out = state.handle(events.Tick(), 6.0)
    assert only(instructions.AbandonConnector, out)
    assert only(instructions.SendReport, out).state is RunState.UNASSIGNED
    assert state.handle(events.ConnectorStarted("c", call.op_id), 7.0) == []


def test_a_newer_connector_waits_for_the_older_to_stop() -> None:
    state = machine()
    running_connector(state)
    stop = only(instructions.StopConnector, state.handle(start_connector(generation=2), 1.0))
    out = state.handle(events.ConnectorStopped("c", stop.op_id), 1.1)
    assert only(instructions.StartConnector, out)
    assert state.held_units()[0].assignment == assignment(2)


def test_a_command_is_answered_without_the_state_and_not_for_an_older_leader() -> None:
    state = machine()
    fence = worker_commands.FenceTasks("c", 3)
    assert state.handle(leader.ask(1, "7", fence), 1.0) == [instructions.ExecuteCommand("7", fence)]
    state.handle(leader.welcome(2, frozenset()), 1.1)
    assert state.handle(leader.ask(1, "8", fence), 1.2) == []


# --- freezes


def idle_task(state: WorkerState) -> int:
    """A held, RUNNING task without a run: its idle id."""
    run_id = running_task(state)
    state.handle(events.RunFinished(run_id, RunEnd.QUIET, ProgressReport(), 0), 1.0)
    return only(instructions.WatchTask, state.handle(events.RunEnded(run_id), 1.0)).idle_id


def has_work(idle_id: int) -> events.TaskHasWork:
    return events.TaskHasWork(TASK, idle_id, "new records")


def stood_still() -> tuple[WorkerState, int]:
    """A worker with an idle task, stopped by SIGSTOP for 11 s during a session."""
    state = machine()
    idle_id = idle_task(state)
    state.handle(events.HeartbeatDue(True), 1.25)
    return state, idle_id


def test_a_worker_that_was_frozen_begins_no_run_before_the_leader_confirms_its_tasks() -> None:
    """The leader gave the task away: a run would have taken its id back from the new owner."""
    state, idle_id = stood_still()
    assert not any(isinstance(one, instructions.SubmitRun) for one in state.handle(has_work(idle_id), 12))
    state.handle(events.HeartbeatDue(True), 12.1)
    state.handle(events.SessionClosed(), 12.2)
    out = state.handle(leader.welcome(1, frozenset()), 12.4)
    assert only(instructions.SendReport, out).state is RunState.UNASSIGNED
    assert not any(isinstance(one, instructions.SubmitRun) for one in out)


def test_a_worker_that_was_frozen_continues_with_the_tasks_it_still_owns() -> None:
    state, idle_id = stood_still()
    state.handle(has_work(idle_id), 12.0)
    assert only(instructions.SubmitRun, state.handle(leader.welcome(1, frozenset({TASK})), 12.4))


def test_a_worker_that_was_frozen_continues_after_a_delay_without_a_leaders_message() -> None:
    """Either nobody noticed, or nobody leads: data does not wait for the control plane."""
    state, idle_id = stood_still()
    state.handle(has_work(idle_id), 12.0)
    assert state.next_deadline() == 14.0
    assert only(instructions.SubmitRun, state.handle(events.Tick(), 14.0))


def test_a_worker_without_a_session_does_not_mistake_missing_heartbeats_for_a_freeze() -> None:
    state, idle_id = stood_still()
    state.handle(events.SessionClosed(), 1.3)
    assert only(instructions.SubmitRun, state.handle(has_work(idle_id), 60.0))


def test_task_configs_requested_by_a_connector_are_offered_to_the_leader() -> None:
    """`requestTaskReconfiguration`; requests of an earlier or a paused instance are ignored."""
    state = machine()
    call = only(instructions.StartConnector, state.handle(start_connector(), 0.0))
    assert state.handle(events.TasksOutdated("c", call.op_id), 0.0) == [], "it has not begun: it will be asked anyway"
    state.handle(events.ConnectorStarted("c", call.op_id), 0.1)
    assert state.handle(events.TasksOutdated("c", call.op_id - 1), 0.2) == []
    ask = only(instructions.MakeTaskConfigs, state.handle(events.TasksOutdated("c", call.op_id), 0.3))
    assert ask.tasks_max == 2
    assert state.handle(events.TasksOutdated("c", call.op_id), 0.4) == [], "one question at a time"
    out = state.handle(events.TaskConfigsMade("c", ask.op_id, [{"a": "b"}]), 0.5)
    assert only(instructions.SendTaskConfigs, out).tasks == [{"a": "b"}]
    again = only(instructions.MakeTaskConfigs, out)  # requested meanwhile
    state.handle(events.TaskConfigsMade("c", again.op_id, [{"a": "c"}]), 0.6)
    state.handle(leader.set_target(1, CONNECTOR, TargetState.PAUSED), 0.7)
    assert state.handle(events.TasksOutdated("c", call.op_id), 0.8) == []


@pytest.mark.parametrize("made_at", ["without a session", "in a session whose leader died"])
def test_task_configs_are_offered_again_to_each_session_that_adopts_the_connector(made_at: str) -> None:
    """An offer without a session is discarded, and offers are not acknowledged. A connector that never offered any
    makes none.
    """
    state = machine()
    call = only(instructions.StartConnector, state.handle(start_connector(), 0.0))
    state.handle(events.ConnectorStarted("c", call.op_id), 0.1)
    adopts = leader.welcome(2, frozenset({CONNECTOR}))
    assert state.handle(adopts, 0.2) == []
    if made_at == "without a session":
        state.handle(events.SessionClosed(), 0.3)
    ask = only(instructions.MakeTaskConfigs, state.handle(events.TasksOutdated("c", call.op_id), 0.4))
    state.handle(events.TaskConfigsMade("c", ask.op_id, [{"a": "new"}]), 0.5)
    if made_at != "without a session":
        state.handle(events.SessionClosed(), 0.6)
    ask = only(instructions.MakeTaskConfigs, state.handle(adopts, 0.7))
    out = state.handle(events.TaskConfigsMade("c", ask.op_id, [{"a": "new"}]), 0.8)
    assert only(instructions.SendTaskConfigs, out).tasks == [{"a": "new"}]
    out = state.handle(leader.welcome(3, frozenset()), 0.9)
    assert not any(isinstance(one, instructions.MakeTaskConfigs) for one in out), "it is another's now"


def test_task_configs_of_reloaded_values_are_offered_again_when_the_offer_is_lost() -> None:
    state = machine()
    call = only(instructions.StartConnector, state.handle(start_connector(), 0.0))
    unit, made_by = UnitId("c"), str(call.op_id)
    state.handle(events.ValuesResolved(unit, made_by, 1_000), 0.1)
    state.handle(events.ConnectorStarted("c", call.op_id), 0.1)
    stop = only(instructions.StopConnector, state.handle(events.ValuesChecked(unit, made_by, True, 1_000), 2.0))
    state.handle(events.SessionClosed(), 2.1)
    call = only(instructions.StartConnector, state.handle(events.ConnectorStopped("c", stop.op_id), 2.2))
    ask = only(instructions.MakeTaskConfigs, state.handle(events.ConnectorStarted("c", call.op_id), 2.3))
    state.handle(events.TaskConfigsMade("c", ask.op_id, [{}]), 2.4)
    assert only(instructions.MakeTaskConfigs, state.handle(leader.welcome(2, frozenset({CONNECTOR})), 2.5))
