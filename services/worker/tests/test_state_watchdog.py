"""Stalled runs, in milliseconds: their status, their end, and what never counts as stalled."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from herdmesh.connect.error_class import ErrorClass
from herdmesh.engine.runtime.contract import RunEnd
from herdmesh.session.model import Condition, RunState, TargetState
from herdmesh.worker.state import TaskLimits, WorkerLimits, WorkerState, events, instructions
from herdmesh.worker.state.model import Phase
from herdmesh.worker.state.watchdog import CONFIRM_S
from services.worker.tests import leader
from services.worker.tests.test_state_tasks import MOVED, TASK, assignment, none_of, only, start

MOVED_MS = 1_790_000_000_000
STALLED_S, END_S = 30.0, 100.0


def running(conditions: tuple[Condition, ...] = (), end_s: float = END_S) -> tuple[WorkerState, str]:
    """A task that is RUNNING, with its last message at 0.0; its run."""
    state = WorkerState("life", WorkerLimits(TaskLimits(stalled_ms=int(STALLED_S * 1000))))
    state.handle(leader.welcome(1, frozenset()), 0.0)
    run_id = only(instructions.SubmitRun, state.handle(leader.changed(start(), conditions=conditions), 0.0)).run_id
    state.handle(events.RunHello(run_id, 42, int(end_s * 1000)), 0.0)
    state.handle(events.RunProgress(run_id, MOVED), 0.0)
    return state, run_id


def pulse(state: WorkerState, run_id: str, silent_s: float, now: float) -> Sequence[instructions.Instruction]:
    return state.handle(events.RunLiveness(run_id, int(silent_s * 1000), MOVED_MS), now)


def conditions(out: Sequence[instructions.Instruction]) -> list[str]:
    return [one.type for one in only(instructions.WriteStatus, out).conditions]


def test_a_stalled_run_has_a_condition_until_it_moves() -> None:
    state, run_id = running((Condition("RESTARTS", "1 restart"),))
    assert pulse(state, run_id, 0, 2.0) == []
    assert pulse(state, run_id, 29.9, 31.9) == []
    out = pulse(state, run_id, 30, 32.0)
    status = only(instructions.WriteStatus, out)
    assert len(out) == 1, "it is RUNNING all the time: no report"
    assert (status.state, conditions(out)) == (RunState.RUNNING, ["RESTARTS", "STALLED"])
    said = status.conditions[1]
    assert said.since_ms == MOVED_MS
    for wanted in (
        "2026-09-21T14:13:20Z",
        "100 s",
        "consumer.override.max.poll.interval.ms",
        "herd restart c --task 0",
    ):
        assert wanted in said.message
    assert pulse(state, run_id, 32, 34.0) == [], "said once"
    assert conditions(pulse(state, run_id, 0, 36.0)) == ["RESTARTS"]
    assert pulse(state, run_id, 0, 38.0) == []


def test_a_progress_report_counts_as_movement() -> None:
    state, run_id = running()
    pulse(state, run_id, 30, 32.0)
    assert conditions(state.handle(events.RunProgress(run_id, MOVED), 33.0)) == []


def test_a_run_that_never_moves_again_is_ended_and_its_task_fails_and_is_restarted() -> None:
    state, run_id = running()
    pulse(state, run_id, 30, 32.0)
    assert pulse(state, run_id, 99.9, 101.9) == []
    (cancel,) = pulse(state, run_id, 100, 102.0)
    assert cancel == instructions.CancelRun(run_id, "it did nothing for 100 s (max.poll.interval.ms)")
    assert pulse(state, run_id, 102, 104.0) == [], "ended once"
    task = state.tasks.get(TASK)
    assert task is not None
    assert task.phase is Phase.STOPPING
    assert state.next_deadline() is None
    out = state.handle(events.RunEnded(run_id, "killed"), 105.0)
    failure = only(instructions.SendReport, out).failure
    assert failure is not None
    assert failure.error_class is ErrorClass.RETRIABLE
    assert "100 s (max.poll.interval.ms)" in failure.message
    assert "2026-09-21T14:13:20Z" in failure.message
    status = only(instructions.WriteStatus, out)
    assert (status.state, status.conditions) == (RunState.FAILED, ())


def test_a_process_without_reports_counts_as_stalled() -> None:
    """A loop that hangs while it holds the interpreter's lock blocks every thread."""
    state, run_id = running()
    pulse(state, run_id, 0, 2.0)
    assert state.next_deadline() == 2.0 + STALLED_S
    assert state.handle(events.Tick(), 32.0) == [], "the first look"
    assert state.next_deadline() == 32.0 + CONFIRM_S
    assert conditions(state.handle(events.Tick(), 32.0 + CONFIRM_S)) == ["STALLED"]
    assert state.next_deadline() == 2.0 + END_S
    assert state.handle(events.Tick(), 102.0) == []
    (cancel,) = state.handle(events.Tick(), 102.0 + CONFIRM_S)
    assert isinstance(cancel, instructions.CancelRun)


def test_a_worker_that_was_frozen_reads_reports_first_and_ends_no_run() -> None:
    state, run_id = running()
    pulse(state, run_id, 0, 2.0)
    assert state.handle(events.Tick(), 900.0) == []
    assert pulse(state, run_id, 0, 900.1) == []
    assert state.handle(events.Tick(), 900.0 + CONFIRM_S) == []


def test_a_run_with_late_reports_is_shown_as_stalled_before_it_is_ended() -> None:
    state, run_id = running()
    assert conditions(pulse(state, run_id, 100, 102.0)) == ["STALLED"]
    assert only(instructions.CancelRun, pulse(state, run_id, 102, 104.0))


def test_a_run_without_reports_is_shown_as_stalled_before_it_is_ended() -> None:
    """The run's time is already over at the worker's first check."""
    state, _ = running()
    assert state.handle(events.Tick(), 500.0) == []
    assert conditions(state.handle(events.Tick(), 500.0 + CONFIRM_S)) == ["STALLED"]
    assert state.handle(events.Tick(), 500.0 + CONFIRM_S) == [], "looked at anew"
    assert state.next_deadline() == 500.0 + 2 * CONFIRM_S
    assert only(instructions.CancelRun, state.handle(events.Tick(), 500.0 + 2 * CONFIRM_S))


@pytest.mark.parametrize("end_s", [STALLED_S, STALLED_S - 1])
def test_a_run_whose_limit_is_below_that_of_stalled_is_ended_at_once(end_s: float) -> None:
    state, run_id = running(end_s=end_s)
    assert only(instructions.CancelRun, pulse(state, run_id, end_s, end_s))


def test_a_stop_commands_deadline_overrides_the_watchdog() -> None:
    state, run_id = running()
    pulse(state, run_id, 30, 32.0)
    assert state.handle(leader.set_target(1, TASK, TargetState.PAUSED), 40.0) == [
        instructions.StopRun(run_id, "paused")
    ]
    assert pulse(state, run_id, 38, 40.0) == []
    (cancel,) = state.handle(events.Tick(), 45.0)
    assert isinstance(cancel, instructions.CancelRun)
    out = state.handle(events.RunEnded(run_id, "killed"), 45.5)
    assert only(instructions.SendReport, out).state is RunState.PAUSED
    assert conditions(out) == []


@pytest.mark.parametrize("error", [None, "killed"])
def test_the_stalled_condition_ends_with_the_run(error: str | None) -> None:
    state, run_id = running()
    pulse(state, run_id, 30, 32.0)
    if error is None:
        state.handle(events.RunFinished(run_id, RunEnd.QUIET, MOVED, 0), 33.0)
    out = state.handle(events.RunEnded(run_id, error), 33.0)
    assert conditions(out) == [], "the task is RUNNING on, idle or in another run"


def test_a_run_whose_task_never_became_running_is_ended_without_a_condition() -> None:
    state = WorkerState("life", WorkerLimits(TaskLimits(stalled_ms=int(STALLED_S * 1000))))
    state.handle(leader.welcome(1, frozenset()), 0.0)
    run_id = only(instructions.SubmitRun, state.handle(start(), 0.0)).run_id
    assert state.next_deadline() is None, "a run that waits for its process is not watched"
    assert state.handle(events.RunLiveness(run_id, 50_000, MOVED_MS), 1.0) == []
    state.handle(events.RunHello(run_id, 42, int(END_S * 1000)), 1.0)
    assert none_of(instructions.WriteStatus, pulse(state, run_id, 50, 51.0))
    assert only(instructions.CancelRun, pulse(state, run_id, 100, 101.0))
    out = state.handle(events.RunEnded(run_id, "killed"), 102.0)
    assert only(instructions.SendReport, out).state is RunState.FAILED


def test_a_task_being_released_while_its_run_is_stalled_is_released() -> None:
    state, run_id = running()
    pulse(state, run_id, 30, 32.0)
    pulse(state, run_id, 100, 102.0)
    state.handle(leader.stop_unit(1, TASK, assignment(), "moved"), 103.0)
    assert none_of(instructions.CancelRun, state.handle(events.Tick(), 110.0)), "it is being killed"
    out = state.handle(events.RunEnded(run_id, "killed"), 111.0)
    assert only(instructions.SendReport, out).state is RunState.UNASSIGNED


@given(
    st.lists(
        st.tuples(st.integers(0, 240), st.booleans(), st.sampled_from(("moves", "silent", "nothing"))), max_size=40
    )
)
def test_runs_that_moved_within_the_limit_are_left_alone_and_none_is_ended_unshown(
    steps: list[tuple[int, bool, str]],
) -> None:
    state, run_id = running()
    now = moved = 0.0
    shown = False
    for quarters, ticks, heard in steps:
        now += quarters / 4
        for comes in ("tick", heard):
            if comes == "tick":
                out = state.handle(events.Tick(), now) if ticks else []
            elif comes == "nothing":
                continue
            else:
                moved = now if comes == "moves" else moved
                out = pulse(state, run_id, now - moved, now)
            for one in out:
                if isinstance(one, instructions.CancelRun):
                    assert now - moved >= END_S
                    assert shown
                    return
                if isinstance(one, instructions.WriteStatus):
                    shown = bool(one.conditions)
                    assert not shown or now - moved >= STALLED_S
