"""Warm runs: their limit, and which of them end for waiting tasks (ADR 0009)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from herdmesh.connect.topics.commit_scope import CommitScope
from herdmesh.engine.runtime.contract import PartitionProgress, ProgressReport, RunEnd
from herdmesh.session.model import Assignment, TargetState, UnitId
from herdmesh.worker.state import TaskLimits, WorkerLimits, WorkerState, events, instructions
from herdmesh.worker.state.model import Phase, TaskSpec
from services.worker.tests import leader
from tests.support.sizes import soak_or

SCOPE = CommitScope("connect-c", ("t",))
READ = ProgressReport(records_in=5, partitions=(PartitionProgress("t", 0, 5, 5, 5),), commit_scope=SCOPE)
WARM = replace(READ, warm=True)
BEHIND = ProgressReport(records_in=5, partitions=(PartitionProgress("t", 0, 5, 5, 900),), commit_scope=SCOPE)


class Worker:
    """A worker's state, and its commands to runs."""

    def __init__(self, slots: int = 4, warm_runs_max: int = 4) -> None:
        self.state = WorkerState("life", WorkerLimits(TaskLimits(slots=slots, warm_runs_max=warm_runs_max)))
        self.now = 0.0
        self.runs: dict[str, UnitId] = {}
        self._started = 0
        self.handle(leader.welcome(1, frozenset()))

    def handle(self, event: events.Event) -> Sequence[instructions.Instruction]:
        self.now += 1.0
        out = self.state.handle(event, self.now)
        self.runs |= {one.run_id: one.unit for one in out if isinstance(one, instructions.SubmitRun)}
        return out

    def start(self, connector: str, number: int = 0) -> Sequence[instructions.Instruction]:
        self._started += 1
        spec = TaskSpec({"connector.class": "FileStreamSink", "topics": "t"}, {}, number + 1)
        assignment = Assignment(1, self._started)
        return self.handle(leader.start_unit(1, UnitId(connector, number), assignment, TargetState.STARTED, spec))

    def run(self, connector: str, said: ProgressReport, number: int = 0) -> str:
        """Start a task whose run took over and sent this progress; the run's id."""
        self.start(connector, number)
        run_id = next(reversed(self.runs))
        self.handle(events.RunProgress(run_id, said))
        return run_id

    def end(self, run_id: str, reason: RunEnd = RunEnd.QUIET) -> Sequence[instructions.Instruction]:
        self.handle(events.RunFinished(run_id, reason, WARM, 0))
        return self.handle(events.RunEnded(run_id))


def rested(out: Sequence[instructions.Instruction]) -> list[str]:
    return [one.run_id for one in out if isinstance(one, instructions.EndWarmRun)]


def shared(out: Sequence[instructions.Instruction]) -> list[str]:
    return [one.run_id for one in out if isinstance(one, instructions.ShareRun)]


def test_a_waiting_task_ends_the_run_that_has_been_warm_longest() -> None:
    worker = Worker(slots=3)
    first, second = worker.run("a", WARM), worker.run("b", WARM)
    busy = worker.run("c", BEHIND)
    worker.handle(events.RunProgress(first, READ))
    worker.handle(events.RunProgress(first, WARM))
    out = worker.start("d")
    assert (rested(out), shared(out)) == ([second], []), "the first moved records since"
    assert rested(worker.handle(events.RunProgress(busy, BEHIND))) == [], "one for one that waits"
    out = worker.end(second)
    assert any(isinstance(one, instructions.WatchTask) and one.unit == UnitId("b", 0) for one in out)
    assert worker.runs[next(reversed(worker.runs))] == UnitId("d", 0)


def test_no_busy_run_must_share_while_a_warm_run_of_any_connector_can_end() -> None:
    worker = Worker(slots=2)
    worker.run("a", BEHIND)
    other = worker.run("b", WARM)
    out = worker.start("a", 1)
    assert (rested(out), shared(out)) == ([other], []), "by numbers alone the connector's own run would take turns"
    out = worker.start("c")
    assert rested(out) == []
    assert len(shared(out)) == 1, "for the second that waits"


def test_a_warm_run_that_got_work_before_its_end_command_frees_no_slot_so_another_ends() -> None:
    worker = Worker(slots=2)
    first, second = worker.run("a", WARM), worker.run("b", WARM)
    assert rested(worker.start("c")) == [first]
    assert rested(worker.handle(events.RunProgress(first, BEHIND))) == [second]


def test_a_run_with_a_last_word_frees_its_slot_and_no_other_ends_for_the_same_task() -> None:
    worker = Worker(slots=2)
    first, second = worker.run("a", WARM), worker.run("b", WARM)
    assert rested(worker.start("c")) == [first]
    worker.handle(events.RunFinished(first, RunEnd.QUIET, WARM, 0))
    assert rested(worker.handle(events.RunProgress(second, WARM))) == []


def test_warm_runs_over_the_limit_end() -> None:
    worker = Worker(slots=8, warm_runs_max=2)
    first = worker.run("a", WARM)
    worker.run("b", WARM)
    worker.start("c")
    third = next(reversed(worker.runs))
    assert rested(worker.handle(events.RunProgress(third, WARM))) == [first]
    assert rested(worker.handle(events.RunProgress(third, WARM))) == [], "told once"


def test_a_task_whose_warm_run_ended_is_idle_and_shown_as_not_warm() -> None:
    worker = Worker(slots=1)
    run_id = worker.run("a", WARM)
    worker.start("b")
    worker.end(run_id)
    task = worker.state.tasks.get(UnitId("a", 0))
    assert task is not None
    assert (task.phase, task.progress.warm, task.failure) == (Phase.IDLE, False, None)


def test_a_warm_run_with_a_stop_command_gets_no_end_command() -> None:
    worker = Worker(slots=1)
    run_id = worker.run("a", WARM)
    out = worker.handle(leader.set_target(1, UnitId("a", 0), TargetState.PAUSED))
    assert any(isinstance(one, instructions.StopRun) and one.run_id == run_id for one in out)
    assert rested(worker.start("b")) == []


@settings(max_examples=soak_or(40, 1_000), deadline=None)
@given(
    st.integers(1, 3),
    st.integers(0, 3),
    st.lists(st.tuples(st.integers(0, 5), st.sampled_from(("start", "warm", "busy", "end"))), min_size=12, max_size=60),
)
def test_while_tasks_wait_every_warm_run_has_an_end_command_and_the_limit_always_holds(
    slots: int, bound: int, steps: list[tuple[int, str]]
) -> None:
    worker = Worker(slots, bound)
    told: set[str] = set()
    over: set[str] = set()
    said: dict[str, bool] = {}
    for number, step in steps:
        alive = [run_id for run_id in worker.runs if run_id not in over]
        run_id = alive[number % len(alive)] if alive else ""
        if step == "start":
            unit = UnitId(f"c{number}", 0)
            held = worker.state.tasks.get(unit)
            woken = None if held is None else events.TaskHasWork(unit, held.run_count, "its end moved")
            out = worker.start(f"c{number}") if woken is None else worker.handle(woken)
        elif not alive:
            continue
        elif step == "end":
            worker.handle(events.RunFinished(run_id, RunEnd.QUIET, WARM, 0))
            over.add(run_id)
            out = worker.handle(events.RunEnded(run_id))
        else:
            said[run_id] = step == "warm"
            out = worker.handle(events.RunProgress(run_id, WARM if said[run_id] else BEHIND))
            if not said[run_id]:
                told.discard(run_id)
        for one in rested(out):
            assert said.get(one), "only a run that is warm is told"
            assert one not in told, "once"
            told.add(one)
        warm = [run_id for run_id in worker.runs if run_id not in over and said.get(run_id)]
        waiting = sum(task.phase is Phase.QUEUED for task in worker.state.tasks)
        staying = [run_id for run_id in warm if run_id not in told]
        assert len(staying) <= bound
        assert not staying or waiting <= len(told - over), "a slot is kept for nothing while a task waits"
