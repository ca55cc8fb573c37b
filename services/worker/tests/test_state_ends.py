"""Lag of a task while its run reports nothing: the worker learns the ends of its partitions."""

from __future__ import annotations

from herdmesh.connect.topics.lag import Lag, lag_of
from herdmesh.engine.runtime.contract import PartitionProgress, ProgressReport
from herdmesh.worker.state import WorkerState, events, instructions
from services.worker.tests.test_state_tasks import MOVED, TASK, idle, machine, only, running


def _lag(state: WorkerState) -> Lag:
    task = state.tasks.get(TASK)
    assert task is not None
    return lag_of(task.progress.partitions)


def test_the_lag_of_a_task_whose_put_hangs_includes_new_records() -> None:
    state = machine()
    running(state)
    state.tasks.take_moved()
    assert (_lag(state), state.tasks.partitions_with_work()) == (Lag(0, 0), {("t", 0)})
    state.handle(events.EndsLearned({("t", 0): 55}), 1.0)
    assert _lag(state) == Lag(50, 0)
    beat = only(instructions.SendHeartbeat, state.handle(events.HeartbeatDue(only_if_moved=True, now_ms=0), 1.0))
    assert list(beat.moved) == [TASK], "its leader is told"
    state.handle(events.EndsLearned({("t", 0): 55}), 3.0)
    assert state.tasks.take_moved() == [], "nothing new"


def test_an_older_end_in_a_runs_report_does_not_reduce_the_lag() -> None:
    state = machine()
    run_id = running(state)
    state.handle(events.EndsLearned({("t", 0): 55}), 1.0)
    state.handle(events.RunProgress(run_id, MOVED), 1.1)
    assert _lag(state) == Lag(50, 0)
    done = ProgressReport(records_in=55, partitions=(PartitionProgress("t", 0, 5, 55, 55),))
    state.handle(events.RunProgress(run_id, done), 1.2)
    assert _lag(state) == Lag(0, 50)


def test_the_lag_of_a_task_that_waits_for_a_slot_includes_new_records() -> None:
    state = machine(slots=1)
    idle_id = idle(state)
    assert state.tasks.partitions_with_work() == set(), "it is woken when more comes"
    state.handle(events.EndsLearned({("t", 0): 6}), 1.5)
    assert _lag(state) == Lag(0, 0), "control records of somebody's transaction are no records"
    other = type(TASK)("other", 0)
    running(state, other)
    state.handle(events.TaskHasWork(TASK, idle_id, "more"), 2.0)
    state.handle(events.EndsLearned({("t", 0): 55}), 3.0)
    assert _lag(state) == Lag(50, 0)
