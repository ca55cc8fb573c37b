"""Task that the worker holds, with its reports to the status store and the leader.

Owns the record, the limits of tasks, and the creation of statuses and reports from the record alone. Owns no transition
between phases: `tasks` does.

Invariant: a status or report always has the record's content at that moment; only `change_state` changes the reported
state.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from herdmesh.connect.spi import WAITING, Wait
from herdmesh.connect.topics import CommitScope
from herdmesh.engine.runtime import ProgressReport
from herdmesh.session.messages import StartUnit
from herdmesh.session.model import Assignment, Condition, Failure, RunState, TargetState, UnitId
from herdmesh.worker.state import instructions
from herdmesh.worker.state.instructions import Instruction
from herdmesh.worker.state.model import Phase, PutMode, TaskSpec
from herdmesh.worker.state.progress import counts_of
from herdmesh.worker.state.run import Run


@dataclass(frozen=True, slots=True)
class TaskLimits:
    """Limits of tasks and runs. Times in ms."""

    slots: int = 8
    share_ms: int = 2_000
    """How long a run with work may continue once another task waits for its slot."""
    warm_runs_max: int = 4
    """Limit of warm runs, while no task waits for a slot."""
    stop_timeout_ms: int = 5_000
    """How long a run may take to commit and end before its process is killed."""
    stalled_ms: int = 30_000
    """Time without progress after which a run's task is STALLED; the run's config has the time after which it is ended.
    """
    lost_runs_max: int = 3
    """Number of runs in a row that may be lost without a last word before the task is FAILED."""
    lost_backoff_ms: int = 500
    """Wait before the second retry after a lost run; doubles. The first retry comes at once."""
    lost_forget_ms: int = 60_000
    """A run that lasted at least this long before it was lost begins a new row of lost runs. A run whose records kill
    it soon after its start is counted, although it moves some records each time.
    """


@dataclass(slots=True)
class Task:
    """One held task."""

    unit: UnitId
    assignment: Assignment
    spec: TaskSpec
    target: TargetState
    commit_scope: CommitScope | None
    """Scope of its last commit, None = it never committed."""
    conditions: tuple[Condition, ...] = ()
    traceparent: str = ""
    phase: Phase = Phase.NEW
    state: RunState = RunState.UNASSIGNED
    """The state as last reported to the leader and written to the status store."""
    failure: Failure | None = None
    progress: ProgressReport = field(default_factory=ProgressReport)
    ends: Mapping[tuple[str, int], int] = field(default_factory=dict[tuple[str, int], int])
    """Ends of its partitions, as the worker last learned them while the task had work."""
    run: Run | None = None
    moved: bool = False
    """True when its progress was not yet reported to the leader."""
    run_count: int = 0
    values_of: str = ""
    """The last run, for which its configs' references were resolved."""
    confirmed: bool = False
    """True once a run under this assignment took over and began: only then the task is RUNNING."""
    lost_runs: int = 0
    retry_at: float | None = None
    retry_reason: str = ""
    """Reason for the wait until `retry_at`."""
    idle_wait: Wait | None = None
    """The idle watch's wait on behalf of a task without a run."""
    wait: Wait | None = None
    """The wait as last written to its status and sent to its leader."""
    releasing: bool = False
    successor: StartUnit | None = None
    """Start command to execute once this task is released."""


def change_state(task: Task, state: RunState) -> list[Instruction]:
    """Change the task's state; return the status and the report with it."""
    task.state = state
    return [status(task), report(task)]


def status_if_running(task: Task) -> list[Instruction]:
    """The status again, only for a RUNNING task: in any other state a stalled run does not matter."""
    return [status(task)] if task.state is RunState.RUNNING and not task.releasing else []


def status(task: Task) -> Instruction:
    """The status for the status store."""
    safe = task.state in (RunState.FAILED, RunState.UNASSIGNED)
    return instructions.WriteStatus(
        task.unit,
        task.state,
        PutMode.PUT_SAFE if safe else PutMode.PUT,
        task.assignment.generation,
        task.spec.connector_config,
        task.failure,
        task.commit_scope,
        _conditions(task),
    )


def report(task: Task) -> Instruction:
    """The report for the leader."""
    counts = counts_of(task.progress) if task.state is RunState.UNASSIGNED else None
    return instructions.SendReport(task.unit, task.assignment, task.state, task.failure, counts)


def waiting(wait: Wait | None) -> tuple[Condition, ...]:
    """The condition of a wait, for a status."""
    return () if wait is None else (Condition(WAITING, wait.text(), wait.since_ms, wait),)


def _conditions(task: Task) -> tuple[Condition, ...]:
    if task.state is not RunState.RUNNING:
        return task.conditions
    silence = task.run.silence if task.run is not None else None
    stalled = () if silence is None or not silence.stalled else (silence.condition(task.unit, task.wait),)
    return (*task.conditions, *stalled, *waiting(task.wait))
