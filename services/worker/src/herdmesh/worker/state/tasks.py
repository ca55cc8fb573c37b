"""Tasks from the herder's start command to the run, idleness, pause, failure and release.

Owns every task that the worker holds, and the transitions between phases. Owns no session (`machine`), no connector, no
slot (`run_scheduler`), and not the content of statuses (`task`).

Invariant: a task has at most one run, from SubmitRun to RunEnded. A task is released (reported UNASSIGNED) only without
a run, so a new owner that starts after the report finds no writer: at most a process that finished its run and is about
to end. A run that does not end is cancelled after a deadline.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import assert_never

from herdmesh.connect.error_class import ErrorClass
from herdmesh.connect.spi import Wait
from herdmesh.engine.runtime import ProgressReport, Rate, RunEnd
from herdmesh.session.messages import StartUnit
from herdmesh.session.model import Failure, RunState, TargetState, UnitId
from herdmesh.worker.state import events, instructions
from herdmesh.worker.state.instructions import Instruction
from herdmesh.worker.state.model import Phase, TaskSpec
from herdmesh.worker.state.progress import added, caught_up, continued, counts_of, fallen_back, with_ends
from herdmesh.worker.state.run import Run
from herdmesh.worker.state.run_scheduler import Running
from herdmesh.worker.state.task import Task, TaskLimits, change_state, report, status, status_if_running
from herdmesh.worker.state.watchdog import Silence, Verdict

_START_COUNTS_MAX = 10_000
_HAS_WORK = frozenset((Phase.QUEUED, Phase.STARTING, Phase.RUNNING, Phase.STOPPING, Phase.WAITING))
"""Phases in which the ends of partitions are queried here: the idle watch queries those of idle tasks."""


class Tasks:
    """State machine of all tasks. Each method takes the facts of one event and returns the instructions."""

    def __init__(self, run_prefix: str, limits: TaskLimits) -> None:
        """`run_prefix` is new for each life of the process: run ids are unique among all runs ever."""
        self._limits = limits
        self._tasks: dict[UnitId, Task] = {}
        self._running = Running(run_prefix, limits)
        self._start_counts: dict[UnitId, int] = {}

    # --- queries

    def __iter__(self) -> Iterator[Task]:
        return iter(self._tasks.values())

    def __len__(self) -> int:
        return len(self._tasks)

    def get(self, unit: UnitId) -> Task | None:
        """The task, None when it is not held."""
        return self._tasks.get(unit)

    def has_values_of(self, unit: UnitId, run_id: str) -> bool:
        """True while the task runs or is idle with the values of that run, or FAILED with them for a reason that other
        values may mend.
        """
        task = self._tasks.get(unit)
        if task is None or task.values_of != run_id:
            return False
        if task.failure is not None and task.failure.error_class in (ErrorClass.FATAL, ErrorClass.DATA_LOSS):
            return False
        return task.run is not None or task.phase in (Phase.IDLE, Phase.FAILED)

    def start_count(self, unit: UnitId) -> int:
        """The number of start commands for the task, also before its last release."""
        return self._start_counts.get(unit, 0)

    @property
    def running(self) -> Running:
        """The scheduler of its runs."""
        return self._running

    def next_deadline(self) -> float | None:
        """Time of the next work for `tick`."""
        times = [task.retry_at for task in self._tasks.values() if task.retry_at is not None]
        stalled_s = self._limits.stalled_ms / 1000
        for _, run in self._running:
            if run.stop_by is not None and not run.cancelled:
                times.append(run.stop_by)
            if run.silence is not None and run.is_watched:
                times.append(run.silence.deadline(stalled_s))
        if self._running.paused_until is not None:
            times.append(self._running.paused_until)
        return min(times, default=None)

    def partitions_with_work(self) -> set[tuple[str, int]]:
        """The partitions of all sinks that run or wait for a run, as far as their runs reported them."""
        having = (task for task in self._tasks.values() if task.phase in _HAS_WORK)
        return {(one.topic, one.partition) for task in having for one in task.progress.partitions}

    def take_moved(self) -> list[UnitId]:
        """The tasks whose progress changed since the last call."""
        moved = [task for task in self._tasks.values() if task.moved]
        for task in moved:
            task.moved = False
        return [task.unit for task in moved]

    def tell_all(self) -> None:
        """Mark every task as moved: a new leader knows the progress of none."""
        for task in self._tasks.values():
            task.moved = True

    # --- the herder's commands

    def start(self, event: StartUnit, now: float) -> list[Instruction]:
        """Hold the task; run it unless its target is PAUSED."""
        held = self._tasks.get(event.unit)
        if held is not None and not (held.releasing and held.successor is None):
            current = held.successor.assignment if held.successor is not None else held.assignment
            if event.assignment == current and held.successor is None:
                # A repeated command: the herder may have missed our report.
                return [report(held), *self.set_target(event.unit, event.target, now)]
            if event.assignment.order <= current.order:
                return []
        if held is not None:
            held.successor = event
            return self._release(held, "replaced by a newer assignment", now)
        self._start_counts[event.unit] = self._start_counts.pop(event.unit, 0) + 1
        if len(self._start_counts) > _START_COUNTS_MAX:
            del self._start_counts[next(iter(self._start_counts))]
        task = Task(
            event.unit, event.assignment, TaskSpec.of(event), event.target, event.commit_scope, event.conditions
        )
        task.progress = continued(event.counts, event.config_offset)
        task.traceparent = event.traceparent
        self._tasks[event.unit] = task
        if event.target is not TargetState.STARTED:
            return self._to_paused(task)
        return self._to_queued(task, now)

    def stop(self, unit: UnitId, reason: str, now: float) -> list[Instruction]:
        """Stop and release the task, without a successor."""
        task = self._tasks.get(unit)
        if task is None:
            return []
        task.successor = None
        return self._release(task, reason, now)

    def set_target(self, unit: UnitId, target: TargetState, now: float) -> list[Instruction]:
        """Pause or resume in place. A FAILED task stays FAILED, as in Connect."""
        task = self._tasks.get(unit)
        if task is None or task.releasing:
            return []
        wanted = TargetState.STARTED if target is TargetState.STARTED else TargetState.PAUSED
        if task.target is wanted:
            return []
        task.target = wanted
        if wanted is TargetState.PAUSED:
            if task.run is not None:
                return self._stop_run(task, "paused", now)
            if task.phase in (Phase.QUEUED, Phase.IDLE, Phase.WAITING):
                return self._to_paused(task)
            return []
        # A run with a stop command for the pause ends first; its end uses the new target.
        return self._paused_to_queued(task, now) if task.phase is Phase.PAUSED else []

    def set_rate(self, connector: str, rate: Rate) -> list[Instruction]:
        """Set the rate limit of each of the connector's tasks, also of later ones."""
        return self._running.set_rate(connector, rate)

    def forget_rates(self) -> list[Instruction]:
        """Reset all rates: the load of other workers' tasks is unknown, so each run returns to its equal share."""
        return self._running.forget_rates()

    # --- runs

    def run_hello(self, run_id: str, pid: int, silence_end_ms: int, now: float) -> list[Instruction]:
        """Handle the connection of the run's process."""
        found = self._running.get(run_id)
        if found is not None:
            task, run = found
            run.pid = pid
            run.silence = Silence(now, silence_end_ms)
            task.moved = True
            if task.phase is Phase.STARTING:
                task.phase = Phase.RUNNING
        return []

    def run_progress(self, run_id: str, progress: ProgressReport, now: float) -> list[Instruction]:
        """Handle a progress report: records moved, or the task took over."""
        found = self._running.get(run_id)
        if found is None:
            return []
        task, run = found
        if task.phase is Phase.STARTING:
            task.phase = Phase.RUNNING
        rated = [] if run.took_over else self._running.tell_rate(task, run)
        run.took_over = True
        run.on_progress(progress, now)
        moved = self.run_liveness(run_id, 0, 0, now, has_wait=False)
        return [*self._progressed(task, run, progress), *moved, *rated, *self._running.make_room(now)]

    def ends_learned(self, ends: Mapping[tuple[str, int], int]) -> list[Instruction]:
        """Handle the ends of partitions. They keep a task's lag correct while its run reports nothing."""
        for task in self._tasks.values():
            if task.phase not in _HAS_WORK:
                continue
            own = ((one.topic, one.partition) for one in task.progress.partitions)
            task.ends = {partition: ends[partition] for partition in own if partition in ends}
            progress = with_ends(task.progress, task.ends)
            task.moved = task.moved or progress is not task.progress
            task.progress = progress
        return []

    def run_liveness(
        self, run_id: str, silent_ms: int, moved_ms: int, now: float, wait: Wait | None = None, *, has_wait: bool = True
    ) -> list[Instruction]:
        """Handle a report about the run's loop: time since its last move, 0 = it moves, and its wait. `has_wait`: False
        for a progress report, which has no wait.
        """
        found = self._running.get(run_id)
        if found is None:
            return []
        task, run = found
        run.wait = wait if has_wait else run.wait
        silence = run.silence
        if silence is None:
            return []
        verdict = silence.on_report(silent_ms, moved_ms, self._limits.stalled_ms / 1000, now)
        return self._judged(task, run, silence, verdict) if run.is_watched else []

    def run_said_end(self, run_id: str, outcome: events.RunFinished | Failure) -> list[Instruction]:
        """Handle a run's last word; the consequences follow when the run is over (`run_ended`)."""
        found = self._running.get(run_id)
        if found is None:
            return []
        task, run = found
        run.outcome = outcome
        return [] if isinstance(outcome, Failure) else self._progressed(task, run, outcome.progress)

    def run_ended(self, run_id: str, error: str | None, now: float) -> list[Instruction]:
        """Handle the end of a run: nothing of it writes any more, and its slot is free; its process may still have to
        exit.
        """
        found = self._running.end(run_id)
        if found is None:
            return []
        task, run = found
        out = self._after_run(task, run, error, now)
        if run.silence is not None and run.silence.stalled and self._tasks.get(task.unit) is task:
            out = [*out, *status_if_running(task)]
        return [*out, *self._running.fill(now)]

    def has_work(self, unit: UnitId, idle_id: int, now: float) -> list[Instruction]:
        """Handle work that the idle watch found for a task."""
        task = self._tasks.get(unit)
        if task is None or task.phase is not Phase.IDLE or task.run_count != idle_id:
            return []
        return [instructions.UnwatchTask(unit), *self._to_queued(task, now)]

    def idle_waits(self, unit: UnitId, wait: Wait | None) -> list[Instruction]:
        """Record the idle watch's wait on behalf of a task; None = none."""
        task = self._tasks.get(unit)
        if task is not None:
            task.idle_wait = wait
        return []

    def reload(self, unit: UnitId, run_id: str, now: float) -> list[Instruction]:
        """Handle changed values of the run, or values that the run did not get: the task continues in a run that gets
        them.

        A FAILED task is released, so that the leader starts it anew: the leader counts failures by assignment.
        """
        if not self.has_values_of(unit, run_id):
            return []
        task = self._tasks[unit]
        if task.phase is Phase.FAILED:
            started = task.target is TargetState.STARTED
            return self._release(task, "values that its config refers to have changed", now) if started else []
        if task.run is None:
            return [instructions.UnwatchTask(unit), *self._to_queued(task, now)]
        if task.run.outcome is not None:
            return []  # it ends by itself; if the task is idle then, the values are checked again
        return self._stop_run(task, "values that its config refers to have changed", now)

    def pause_runs(self, until: float) -> None:
        """Begin no run before `until` or `resume_runs`: it is unknown now whether the tasks are still ours."""
        self._running.pause_until(until)

    def resume_runs(self, now: float) -> list[Instruction]:
        """Let runs begin again: the held units are ours."""
        return self._running.resume(now)

    def all_runs_gone(self, error: str, now: float) -> list[Instruction]:
        """Handle the death of Spark, and of every run with it; no run can begin any more."""
        self._running.close()
        out: list[Instruction] = []
        for _, run in self._running:
            out += self.run_ended(run.run_id, error, now)
        return out

    def tick(self, now: float) -> list[Instruction]:
        """Cancel runs that do not stop; detect stalled runs; retry lost ones."""
        out: list[Instruction] = []
        for task, run in self._running:
            if run.stop_by is not None and run.stop_by <= now and not run.cancelled:
                run.cancelled = True
                out.append(instructions.CancelRun(run.run_id, "it did not stop in time"))
            if run.is_watched and run.silence is not None:
                verdict = run.silence.look(self._limits.stalled_ms / 1000, now)
                out += self._judged(task, run, run.silence, verdict)
        for task in list(self._tasks.values()):
            if task.retry_at is not None and task.retry_at <= now:
                out += self._to_queued(task, now)
        if self._running.paused_until is not None and self._running.paused_until <= now:
            out += self.resume_runs(now)
        return out

    # --- transitions

    def _to_queued(self, task: Task, now: float) -> list[Instruction]:
        task.retry_at = None
        return self._running.enqueue(task, now)

    def _paused_to_queued(self, task: Task, now: float) -> list[Instruction]:
        out = change_state(task, RunState.RUNNING) if task.confirmed else []
        return [*out, *self._to_queued(task, now)]

    def _to_waiting(self, task: Task, until: float, reason: str) -> list[Instruction]:
        task.phase = Phase.WAITING
        task.retry_at, task.retry_reason = until, reason
        return []

    def _to_paused(self, task: Task) -> list[Instruction]:
        out: list[Instruction] = [instructions.UnwatchTask(task.unit)] if task.phase is Phase.IDLE else []
        self._running.leave_queue(task)
        task.phase = Phase.PAUSED
        task.retry_at = None
        return [*out, *change_state(task, RunState.PAUSED)]

    def _to_failed(self, task: Task, failure: Failure) -> list[Instruction]:
        task.phase = Phase.FAILED
        task.failure = failure
        return change_state(task, RunState.FAILED)

    def _to_idle(self, task: Task, finished: events.RunFinished) -> list[Instruction]:
        task.phase = Phase.IDLE
        task.idle_wait = None
        return [
            instructions.WatchTask(
                task.unit,
                task.run_count,
                task.spec,
                finished.progress,
                finished.wake_after_ms,
            )
        ]

    def _release(self, task: Task, reason: str, now: float) -> list[Instruction]:
        task.releasing = True
        if task.run is not None:
            return self._stop_run(task, reason, now)
        self._running.leave_queue(task)
        return self._released(task, now)

    def _released(self, task: Task, now: float) -> list[Instruction]:
        del self._tasks[task.unit]
        out: list[Instruction] = [instructions.UnwatchTask(task.unit, forget=True)]
        successor = task.successor
        if successor is None:
            # A failure stays readable after its task is released, as in Connect.
            keep = task.state is RunState.FAILED
            task.state, task.failure = RunState.UNASSIGNED, None
            return [*out, *([] if keep else [status(task)]), report(task)]
        if successor.assignment.incarnation == task.assignment.incarnation:
            # The herder sent its start before it could know the last counts here.
            known = max(successor.counts, counts_of(task.progress), key=lambda counts: counts.records_in)
            successor = replace(successor, counts=known)
        return [*out, *self.start(successor, now)]

    def _stop_run(self, task: Task, reason: str, now: float) -> list[Instruction]:
        run = task.run
        assert run is not None
        task.phase = Phase.STOPPING
        task.moved = True
        if run.stop_by is not None:
            return []
        run.stop_by = now + self._limits.stop_timeout_ms / 1000
        return [instructions.StopRun(run.run_id, reason)]

    def _judged(self, task: Task, run: Run, silence: Silence, verdict: Verdict) -> list[Instruction]:
        match verdict:
            case Verdict.SAME:
                return []
            case Verdict.MOVES | Verdict.STALLED:
                return status_if_running(task)
            case Verdict.OVER:
                run.cancelled = True
                run.outcome = run.outcome or silence.failure(run.wait)
                task.phase = Phase.STOPPING
                task.moved = True
                return [instructions.CancelRun(run.run_id, silence.end_reason())]
            case _:
                assert_never(verdict)

    def _after_run(self, task: Task, run: Run, error: str | None, now: float) -> list[Instruction]:
        """The transition after a run's end. A failure of a run of a task that is being released counts as its stop, as
        in Connect.
        """
        if task.releasing:
            return self._released(task, now)
        outcome = run.outcome
        if outcome is None or isinstance(outcome, Failure):
            task.progress, task.moved = fallen_back(task.progress), True
        if isinstance(outcome, Failure):
            if outcome.error_class is ErrorClass.FENCED:
                # Another owner took over: our assignment is void, and its RUNNING must not be overwritten with FAILED.
                return self._released(task, now)
            return self._to_failed(task, outcome)
        if outcome is not None:
            task.lost_runs = 0
            out = self._confirm(task)
            if task.target is TargetState.PAUSED:
                return [*out, *self._to_paused(task)]
            if outcome.reason is RunEnd.YIELDED and outcome.wake_after_ms > 0:
                return [*out, *self._to_waiting(task, now + outcome.wake_after_ms / 1000, "its rate limit")]
            if outcome.reason is RunEnd.QUIET or (outcome.reason is RunEnd.YIELDED and self._may_idle(outcome)):
                return [*out, *self._to_idle(task, outcome)]
            return [*out, *self._to_queued(task, now)]
        if task.target is TargetState.PAUSED:
            return self._to_paused(task)
        if run.stop_by is not None:
            # Stopped for a pause that was reverted, and cancelled or lost meanwhile: not the task's fault.
            return self._to_queued(task, now)
        return self._lost(task, run, error or "its process ended without reporting a result", now)

    def _may_idle(self, outcome: events.RunFinished) -> bool:
        return self._running.has_waiting() and caught_up(outcome.progress)

    def _lost(self, task: Task, run: Run, error: str, now: float) -> list[Instruction]:
        if now - run.since >= self._limits.lost_forget_ms / 1000:
            task.lost_runs = 0
        task.lost_runs += 1
        if task.lost_runs > self._limits.lost_runs_max:
            times = task.lost_runs
            message = f"the process of the task died {times} times in a row: {error.strip().splitlines()[0]}"
            return self._to_failed(task, Failure(message, error, ErrorClass.RETRIABLE))
        if task.lost_runs == 1:
            return self._to_queued(task, now)
        until = now + self._limits.lost_backoff_ms * 2 ** (task.lost_runs - 2) / 1000
        return self._to_waiting(task, until, f"its next run, after {error.strip().splitlines()[0]}")

    # --- statuses

    def _progressed(self, task: Task, run: Run, progress: ProgressReport) -> list[Instruction]:
        task.progress = with_ends(added(run.base, progress), task.ends)
        task.moved = True
        scope = progress.commit_scope or task.commit_scope
        is_other_scope = scope != task.commit_scope
        task.commit_scope = scope
        out = self._confirm(task)
        if is_other_scope and not out and task.state is RunState.RUNNING:
            out = [status(task)]
        return out

    def _confirm(self, task: Task) -> list[Instruction]:
        if task.confirmed:
            return []
        task.confirmed = True
        if task.releasing or task.target is TargetState.PAUSED:
            return []
        return change_state(task, RunState.RUNNING)
