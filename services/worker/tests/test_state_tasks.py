"""State machine of tasks, in milliseconds: events in, instructions out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TypeVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from herdmesh.connect.error_class import ErrorClass
from herdmesh.connect.task_counts import ErrorCounts, TaskCounts
from herdmesh.connect.topics.commit_scope import CommitScope
from herdmesh.connect.topics.lag import Lag, lag_of
from herdmesh.engine.runtime.contract import PartitionProgress, ProgressReport, RunEnd
from herdmesh.session.model import Assignment, Failure, RunState, SlotUse, TargetState, UnitId
from herdmesh.topicstore.contract import Revision
from herdmesh.worker.state import TaskLimits, WorkerLimits, WorkerState, events, instructions
from herdmesh.worker.state.model import Phase, PutMode, TaskSpec
from services.worker.tests import leader

InstructionT = TypeVar("InstructionT")
TASK = UnitId("c", 0)
SPEC = TaskSpec({"connector.class": "FileStreamSink", "topics": "t"}, {"file": "f"}, 2)
SCOPE = CommitScope("connect-c", ("t",))
MOVED = ProgressReport(
    records_in=5, records_out=5, partitions=(PartitionProgress("t", 0, 5, 5, 5),), commit_scope=SCOPE
)


def only(kind: type[InstructionT], out: Sequence[instructions.Instruction]) -> InstructionT:
    found = [one for one in out if isinstance(one, kind)]
    assert len(found) == 1, out
    return found[0]


def none_of(kind: type, out: Sequence[instructions.Instruction]) -> bool:
    return not any(isinstance(one, kind) for one in out)


def assignment(generation: int = 1, epoch: int = 1) -> Assignment:
    return Assignment(epoch, generation, "incarnation", Revision("store", (7,)), "digest")


def start(
    unit: UnitId = TASK, generation: int = 1, target: TargetState = TargetState.STARTED, epoch: int = 1
) -> events.Command:
    return leader.start_unit(epoch, unit, assignment(generation, epoch), target, SPEC)


def machine(slots: int = 8) -> WorkerState:
    state = WorkerState("life", WorkerLimits(TaskLimits(slots=slots, stop_timeout_ms=10_000)))
    state.handle(leader.welcome(1, frozenset()), 0.0)
    return state


def running(state: WorkerState, unit: UnitId = TASK, generation: int = 1, now: float = 0.0) -> str:
    """Start the unit and bring it to RUNNING; its run id."""
    run_id = only(instructions.SubmitRun, state.handle(start(unit, generation), now)).run_id
    state.handle(events.RunHello(run_id, 42), now)
    state.handle(events.RunProgress(run_id, MOVED), now)
    return run_id


def idle(state: WorkerState, unit: UnitId = TASK) -> int:
    """Start the unit and bring it to idleness; its idle id."""
    run_id = running(state, unit)
    state.handle(events.RunFinished(run_id, RunEnd.QUIET, MOVED, 0), 1.0)
    return only(instructions.WatchTask, state.handle(events.RunEnded(run_id), 1.0)).idle_id


def test_a_started_task_is_running_after_its_runs_first_report() -> None:
    state = machine()
    out = state.handle(start(), 0.0)
    run_id = only(instructions.SubmitRun, out).run_id
    assert none_of(instructions.SendReport, out), "not RUNNING before the run took over"
    assert none_of(instructions.SendReport, state.handle(events.RunHello(run_id, 42), 0.1))
    out = state.handle(events.RunProgress(run_id, MOVED), 0.2)
    assert only(instructions.SendReport, out).state is RunState.RUNNING
    status = only(instructions.WriteStatus, out)
    assert (status.state, status.mode, status.commit_scope) == (RunState.RUNNING, PutMode.PUT, SCOPE)
    assert state.handle(events.RunProgress(run_id, MOVED), 0.3) == [], "said once"


def test_the_first_commit_is_written_once() -> None:
    state = machine()
    run_id = only(instructions.SubmitRun, state.handle(start(), 0.0)).run_id
    said = only(instructions.WriteStatus, state.handle(events.RunProgress(run_id, ProgressReport()), 0.1))
    assert said.commit_scope is None
    assert only(instructions.WriteStatus, state.handle(events.RunProgress(run_id, MOVED), 0.2)).commit_scope == SCOPE
    assert state.handle(events.RunProgress(run_id, MOVED), 0.3) == []


def test_the_commit_scope_is_written_when_it_changes_and_passed_to_each_run() -> None:
    """A task that the leader knows to have committed elsewhere, and a topic that appeared while it ran."""
    old, grown = CommitScope("before", ("t",)), CommitScope("connect-c", ("t", "u"))
    state = machine()
    submitted = only(instructions.SubmitRun, state.handle(leader.changed(start(), commit_scope=old), 0.0))
    assert submitted.commit_scope == old
    first = state.handle(events.RunProgress(submitted.run_id, ProgressReport(commit_scope=old)), 0.1)
    assert only(instructions.WriteStatus, first).commit_scope == old
    assert (
        only(instructions.WriteStatus, state.handle(events.RunProgress(submitted.run_id, MOVED), 0.2)).commit_scope
        == SCOPE
    )
    wider = replace(MOVED, commit_scope=grown)
    assert (
        only(instructions.WriteStatus, state.handle(events.RunProgress(submitted.run_id, wider), 0.3)).commit_scope
        == grown
    )
    assert state.handle(events.RunProgress(submitted.run_id, wider), 0.4) == []
    again = only(instructions.SubmitRun, state.handle(events.RunEnded(submitted.run_id, "exit code 137"), 0.5))
    assert again.commit_scope == grown


def test_each_run_checks_for_newer_task_sets_from_the_previous_runs_config_offset() -> None:
    state = machine()
    first = only(instructions.SubmitRun, state.handle(leader.changed(start(), revision=Revision("store", (40,))), 0.0))
    assert first.config_offset == 40, "where the leader had read"
    state.handle(events.RunProgress(first.run_id, replace(MOVED, config_offset=55)), 0.1)
    out = state.handle(events.RunEnded(first.run_id, "exit code 137"), 0.2)
    second = only(instructions.SubmitRun, out)
    assert second.config_offset == 55
    out = state.handle(events.RunEnded(second.run_id, "exit code 137"), 0.3)
    assert not out, "this one is tried again later"
    again = only(instructions.SubmitRun, state.handle(events.Tick(), 5.0))
    assert again.config_offset == 55, "it ended before it looked"
    state.handle(leader.changed(start(generation=2), revision=Revision("store", (61,))), 6.0)
    out = state.handle(events.RunEnded(again.run_id, None), 6.1)
    assert only(instructions.SubmitRun, out).config_offset == 61


def test_an_idle_task_stays_running_and_is_woken() -> None:
    state = machine()
    idle_id = idle(state)
    assert state.held_units()[0].state is RunState.RUNNING
    assert state.handle(events.TaskHasWork(TASK, idle_id + 1, "of another idleness"), 2.0) == []
    out = state.handle(events.TaskHasWork(TASK, idle_id, "grew"), 2.0)
    assert only(instructions.SubmitRun, out).commit_scope == SCOPE
    assert none_of(instructions.SendReport, out)


def test_progress_counts_continue_over_runs() -> None:
    state = machine()
    idle_id = idle(state)
    run_id = only(instructions.SubmitRun, state.handle(events.TaskHasWork(TASK, idle_id, ""), 2.0)).run_id
    state.handle(events.RunProgress(run_id, ProgressReport(records_in=3, records_out=2)), 2.1)
    task = state.tasks.get(TASK)
    assert task is not None
    assert (task.progress.records_in, task.progress.records_out, task.run_count) == (8, 7, 2)
    assert task.progress.partitions == MOVED.partitions


def test_counts_continue_those_of_earlier_starts_and_go_with_the_last_report() -> None:
    state = machine()
    earlier = TaskCounts(100, 90, 10, ErrorCounts(failures=2, last_error_ms=5))
    out = state.handle(leader.start_unit(1, TASK, assignment(), TargetState.STARTED, SPEC, counts=earlier), 0.0)
    run_id = only(instructions.SubmitRun, out).run_id
    state.handle(events.RunProgress(run_id, MOVED), 0.1)
    task = state.tasks.get(TASK)
    assert task is not None
    assert (task.progress.records_in, task.progress.records_out, task.progress.records_dropped) == (105, 95, 10)
    state.handle(leader.stop_unit(1, TASK, assignment(), "restart"), 0.2)
    last = only(instructions.SendReport, state.handle(events.RunEnded(run_id), 0.3))
    assert (last.state, last.counts) == (RunState.UNASSIGNED, earlier + TaskCounts(5, 5))


def test_a_newer_assignment_continues_the_counts_of_the_task_that_it_replaces() -> None:
    """The herder sent it before it could know them."""
    state = machine()
    run_id = running(state)
    state.handle(events.RunProgress(run_id, MOVED), 0.5)
    state.handle(start(generation=2), 1.0)
    state.handle(events.RunEnded(run_id), 1.2)
    task = state.tasks.get(TASK)
    assert task is not None
    assert task.progress.records_in == MOVED.records_in


def test_a_stopped_task_is_released_only_after_its_run() -> None:
    state = machine()
    run_id = running(state)
    out = state.handle(leader.stop_unit(1, TASK, assignment(), "moved"), 1.0)
    assert out == [instructions.StopRun(run_id, "moved")]
    out = state.handle(events.RunFinished(run_id, RunEnd.STOPPED, MOVED, 0), 1.1)
    assert none_of(instructions.SendReport, out)
    out = state.handle(events.RunEnded(run_id), 1.2)
    assert only(instructions.SendReport, out).state is RunState.UNASSIGNED
    assert only(instructions.WriteStatus, out).mode is PutMode.PUT_SAFE
    assert not state.held_units()


def test_a_failure_while_stopping_counts_as_its_stop() -> None:
    state = machine()
    run_id = running(state)
    state.handle(leader.stop_unit(1, TASK, assignment(), "moved"), 1.0)
    state.handle(events.RunFailed(run_id, Failure("broken pipe")), 1.1)
    out = state.handle(events.RunEnded(run_id), 1.2)
    assert only(instructions.SendReport, out).state is RunState.UNASSIGNED


def test_a_run_that_does_not_stop_is_cancelled_once() -> None:
    state = machine()
    run_id = running(state)
    state.handle(leader.stop_unit(1, TASK, assignment(), "moved"), 1.0)
    assert state.next_deadline() == 11.0
    assert state.handle(events.Tick(), 11.0) == [instructions.CancelRun(run_id, "it did not stop in time")]
    assert state.next_deadline() is None
    out = state.handle(events.RunEnded(run_id, "killed"), 11.5)
    assert only(instructions.SendReport, out).state is RunState.UNASSIGNED


def test_a_failed_task_is_kept_with_its_failure_until_stopped() -> None:
    state = machine()
    run_id = running(state)
    failure = Failure("bad record at t-0@7", "trace", ErrorClass.FATAL)
    state.handle(events.RunFailed(run_id, failure), 1.0)
    out = state.handle(events.RunEnded(run_id), 1.1)
    report, status = only(instructions.SendReport, out), only(instructions.WriteStatus, out)
    assert (report.state, report.failure) == (RunState.FAILED, failure)
    assert (status.mode, status.failure) == (PutMode.PUT_SAFE, failure)
    assert state.held_units()[0].failure == failure
    out = state.handle(leader.stop_unit(1, TASK, assignment(), "restart"), 2.0)
    assert only(instructions.SendReport, out).state is RunState.UNASSIGNED
    assert none_of(instructions.WriteStatus, out), "the trace stays readable"


def test_a_failed_task_is_behind_by_what_its_run_read_and_did_not_commit() -> None:
    """A sink with a queue of its own had read all, and delivered nothing."""
    state = machine()
    run_id = running(state)
    read = ProgressReport(20, 20, partitions=(PartitionProgress("t", 0, -1, 620, 622, 20),), commit_scope=SCOPE)
    state.handle(events.RunProgress(run_id, read), 0.5)
    state.handle(events.RunFailed(run_id, Failure("tried 11 times", error_class=ErrorClass.UNREACHABLE)), 1.0)
    state.handle(events.RunEnded(run_id), 1.1)
    task = state.tasks.get(TASK)
    assert task is not None
    assert lag_of(task.progress.partitions) == Lag(22, 0)
    assert only(instructions.SendHeartbeat, state.handle(events.HeartbeatDue(True), 1.2)).moved == [TASK]


def test_a_fenced_task_is_released_and_not_failed() -> None:
    state = machine()
    run_id = running(state)
    state.handle(events.RunFailed(run_id, Failure("fenced", error_class=ErrorClass.FENCED)), 1.0)
    out = state.handle(events.RunEnded(run_id), 1.1)
    assert only(instructions.SendReport, out).state is RunState.UNASSIGNED
    assert only(instructions.WriteStatus, out).mode is PutMode.PUT_SAFE


def test_pause_and_resume_in_place() -> None:
    state = machine()
    run_id = running(state)
    out = state.handle(leader.set_target(1, TASK, TargetState.PAUSED), 1.0)
    assert out == [instructions.StopRun(run_id, "paused")]
    state.handle(events.RunFinished(run_id, RunEnd.STOPPED, MOVED, 0), 1.1)
    out = state.handle(events.RunEnded(run_id), 1.2)
    assert only(instructions.SendReport, out).state is RunState.PAUSED
    assert only(instructions.WriteStatus, out).mode is PutMode.PUT
    out = state.handle(leader.set_target(1, TASK, TargetState.STARTED), 2.0)
    assert only(instructions.SendReport, out).state is RunState.RUNNING
    assert only(instructions.SubmitRun, out)


def test_an_idle_task_is_paused_at_once() -> None:
    state = machine()
    idle(state)
    out = state.handle(leader.set_target(1, TASK, TargetState.PAUSED), 2.0)
    assert only(instructions.UnwatchTask, out).unit == TASK
    assert only(instructions.SendReport, out).state is RunState.PAUSED


def test_a_task_resumed_before_its_run_ended_runs_again() -> None:
    state = machine()
    run_id = running(state)
    state.handle(leader.set_target(1, TASK, TargetState.PAUSED), 1.0)
    state.handle(leader.set_target(1, TASK, TargetState.STARTED), 1.1)
    state.handle(events.RunFinished(run_id, RunEnd.STOPPED, MOVED, 0), 1.2)
    out = state.handle(events.RunEnded(run_id), 1.3)
    assert only(instructions.SubmitRun, out)


def test_a_task_started_paused_waits_and_is_running_only_after_its_first_run() -> None:
    state = machine()
    out = state.handle(start(target=TargetState.PAUSED), 0.0)
    assert only(instructions.SendReport, out).state is RunState.PAUSED
    assert none_of(instructions.SubmitRun, out)
    out = state.handle(leader.set_target(1, TASK, TargetState.STARTED), 1.0)
    assert none_of(instructions.SendReport, out)
    run_id = only(instructions.SubmitRun, out).run_id
    out = state.handle(events.RunProgress(run_id, MOVED), 1.1)
    assert only(instructions.SendReport, out).state is RunState.RUNNING


def test_a_lost_run_is_retried_at_once_then_with_backoff_then_the_task_fails() -> None:
    state = machine()
    run_id = running(state)
    now = 1.0
    run_id = only(instructions.SubmitRun, state.handle(events.RunEnded(run_id, "killed"), now)).run_id
    for wait_s in (0.5, 1.0):
        assert none_of(instructions.SubmitRun, state.handle(events.RunEnded(run_id, "killed"), now))
        assert state.next_deadline() == now + wait_s
        now += wait_s
        run_id = only(instructions.SubmitRun, state.handle(events.Tick(), now)).run_id
    out = state.handle(events.RunEnded(run_id, "killed\nlong trace"), now)
    report = only(instructions.SendReport, out)
    assert report.state is RunState.FAILED
    assert report.failure is not None
    assert report.failure.error_class is ErrorClass.RETRIABLE
    assert "4 times in a row: killed" in report.failure.message


def test_retries_are_exhausted_although_each_lost_run_moved_some_records() -> None:
    state = machine()
    run_id, now = running(state), 0.0
    for _ in range(3):
        now += 1.0
        out = state.handle(events.RunEnded(run_id, "killed"), now)
        now = state.next_deadline() or now
        run_id = only(instructions.SubmitRun, [*out, *state.handle(events.Tick(), now)]).run_id
        state.handle(events.RunProgress(run_id, MOVED), now)
    out = state.handle(events.RunEnded(run_id, "killed"), now + 1.0)
    assert only(instructions.SendReport, out).state is RunState.FAILED


def test_a_lost_run_that_lasted_resets_the_count_of_lost_runs() -> None:
    state = machine()
    run_id, now = running(state), 0.0
    for _ in range(10):
        now += 60.0
        run_id = only(instructions.SubmitRun, state.handle(events.RunEnded(run_id, "killed"), now)).run_id


def test_a_repeated_start_command_only_repeats_the_report() -> None:
    state = machine()
    running(state)
    out = state.handle(start(), 1.0)
    assert only(instructions.SendReport, out).state is RunState.RUNNING
    assert none_of(instructions.SubmitRun, out)
    assert state.tasks.start_count(TASK) == 1


def test_a_newer_assignment_replaces_the_task_after_its_run() -> None:
    state = machine()
    run_id = running(state)
    assert state.handle(start(generation=2), 1.0) == [instructions.StopRun(run_id, "replaced by a newer assignment")]
    assert state.handle(start(generation=1), 1.1) == [], "the older claim is void"
    out = state.handle(events.RunEnded(run_id), 1.2)
    assert only(instructions.SubmitRun, out)
    assert none_of(instructions.WriteStatus, out), "it never was UNASSIGNED"
    assert state.held_units()[0].assignment == assignment(2)
    assert state.tasks.start_count(TASK) == 2


def test_a_stop_of_an_older_assignment_does_not_stop_the_newer() -> None:
    state = machine()
    running(state, generation=2)
    out = state.handle(leader.stop_unit(1, TASK, assignment(1), "late"), 1.0)
    assert out == [instructions.SendReport(TASK, assignment(1), RunState.UNASSIGNED)]
    assert state.held_units()


def test_a_stop_of_a_task_not_held_is_acknowledged() -> None:
    out = machine().handle(leader.stop_unit(1, TASK, assignment(), "gone"), 1.0)
    assert out == [instructions.SendReport(TASK, assignment(), RunState.UNASSIGNED)]


def test_waiting_tasks_take_turns() -> None:
    state = machine(slots=1)
    first = only(instructions.SubmitRun, state.handle(start(UnitId("c", 0)), 0.0)).run_id
    behind = ProgressReport(records_in=5, records_per_second=9.0, partitions=_behind())
    assert state.handle(start(UnitId("c", 1)), 0.1) == [], "not before it took over"
    assert instructions.ShareRun(first, 1_000 + 2_000) in state.handle(events.RunProgress(first, behind), 1.0)
    assert state.handle(start(UnitId("c", 2)), 1.6) == [], "the only run was asked already"
    state.handle(events.RunFinished(first, RunEnd.YIELDED, behind, 0), 3.5)
    out = state.handle(events.RunEnded(first), 3.5)
    assert only(instructions.SubmitRun, out).unit == UnitId("c", 1)
    assert [task.phase for task in state.tasks] == [Phase.QUEUED, Phase.STARTING, Phase.QUEUED]


def test_the_oldest_run_shares_first_and_its_task_is_idle_when_it_has_read_all() -> None:
    state = machine(slots=2)
    older = running(state, UnitId("c", 0))
    running(state, UnitId("c", 1))
    assert state.handle(start(UnitId("c", 2)), 1.0) == [instructions.ShareRun(older, 1_000 + 2_000)]
    state.handle(events.RunFinished(older, RunEnd.YIELDED, MOVED, 0), 1.1)
    out = state.handle(events.RunEnded(older), 1.1)
    assert only(instructions.WatchTask, out).unit == UnitId("c", 0)
    assert only(instructions.SubmitRun, out).unit == UnitId("c", 2)


def test_moved_tasks_are_reported_once() -> None:
    state = machine()
    running(state)
    assert only(instructions.SendHeartbeat, state.handle(events.HeartbeatDue(True), 1.0)).moved == [TASK]
    assert state.handle(events.HeartbeatDue(True), 1.2) == []
    assert only(instructions.SendHeartbeat, state.handle(events.HeartbeatDue(False), 1.4)).moved == []


def test_a_heartbeat_has_the_use_of_the_slots() -> None:
    state = machine(slots=1)
    running(state)
    state.handle(start(UnitId("c", 1)), 0.5)
    state.handle(start(UnitId("c", 2)), 0.5)
    assert only(instructions.SendHeartbeat, state.handle(events.HeartbeatDue(False), 1.0)).slot_use == SlotUse(1, 2)


def _behind() -> tuple[PartitionProgress, ...]:
    return (PartitionProgress("t", 0, 5, 5, 900),)


# --- property: whatever happens, a task has one run, and every end is reported


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_any_history_keeps_one_run_per_task_and_ends_clean(data: st.DataObject) -> None:
    state = machine(slots=2)
    units = [UnitId("c", number) for number in range(4)]
    live: dict[str, UnitId] = {}
    generation = 1
    now = 0.0

    def carry_out(out: Sequence[instructions.Instruction]) -> None:
        for one in out:
            if isinstance(one, instructions.SubmitRun):
                assert one.unit not in live.values(), "two runs of one task"
                live[one.run_id] = one.unit
                assert len(live) <= 2, "more runs than slots"
            if isinstance(one, instructions.SendReport) and one.state is RunState.UNASSIGNED:
                assert one.unit not in live.values() or one.assignment.generation < generation

    def end(run_id: str) -> None:
        del live[run_id]
        carry_out(state.handle(events.RunEnded(run_id, data.draw(st.sampled_from([None, "killed"]))), now))

    for _ in range(data.draw(st.integers(1, 40))):
        now += 0.3
        unit = data.draw(st.sampled_from(units))
        match data.draw(st.integers(0, 9)):
            case 0 | 1:
                generation += 1
                carry_out(state.handle(start(unit, generation), now))
            case 2:
                task = state.tasks.get(unit)
                held = task.assignment if task is not None else assignment(generation)
                carry_out(state.handle(leader.stop_unit(1, unit, held, "x"), now))
            case 3:
                target = data.draw(st.sampled_from([TargetState.STARTED, TargetState.PAUSED]))
                carry_out(state.handle(leader.set_target(1, unit, target), now))
            case 4:
                task = state.tasks.get(unit)
                if task is not None:
                    carry_out(state.handle(events.TaskHasWork(unit, task.run_count, "grew"), now))
            case 5:
                carry_out(state.handle(events.Tick(), now))
            case _ if live:
                run_id = data.draw(st.sampled_from(sorted(live)))
                said = data.draw(st.sampled_from(["progress", "quiet", "yielded", "failed", "fenced", "nothing"]))
                if said == "progress":
                    carry_out(state.handle(events.RunProgress(run_id, MOVED), now))
                    continue
                if said in ("quiet", "yielded"):
                    carry_out(state.handle(events.RunFinished(run_id, RunEnd[said.upper()], MOVED, 0), now))
                elif said != "nothing":
                    kind = ErrorClass.FENCED if said == "fenced" else ErrorClass.FATAL
                    carry_out(state.handle(events.RunFailed(run_id, Failure("x", error_class=kind)), now))
                end(run_id)
            case _:
                pass
    # From any state, leaving ends it: every run stops, every unit is released, Exit comes once.
    out = list(state.handle(events.SessionClosed(), now))
    carry_out(out)
    seen = list(state.handle(events.LeaveRequested(), now))
    carry_out(seen)
    while live:
        run_id = next(iter(live))
        del live[run_id]
        more = state.handle(events.RunEnded(run_id), now)
        carry_out(more)
        seen += more
    assert not state.held_units()
    assert [one.code for one in seen if isinstance(one, instructions.Exit)] == [0]


@pytest.mark.parametrize("epoch", [0])
def test_a_command_of_an_older_epoch_changes_nothing(epoch: int) -> None:
    state = machine()
    running(state)
    assert state.handle(leader.stop_unit(epoch, TASK, assignment(), "old leader"), 1.0) == []
    assert state.handle(start(UnitId("c", 9), epoch=epoch), 1.0) == []
    out = state.handle(leader.welcome(epoch, frozenset()), 1.0)
    assert only(instructions.DropSession, out)
    assert state.held_units()
