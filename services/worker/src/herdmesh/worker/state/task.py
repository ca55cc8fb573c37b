"""Task that the worker holds, and what is reported of it to the status store and the leader.

Owns the record, the numbers tasks are worked with, and the words: a status and a report, made of the record alone. Owns
no edge from one phase to another: that is up to `tasks`.

Invariant: what is said is what the record says at that moment; only `say` changes what it says of the state.
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
from herdmesh.worker.state.run import Run


@dataclass(frozen=True, slots=True)
class TaskLimits:
    """Numbers the task machine works with. Times in ms."""

    slots: int = 8
    share_ms: int = 2_000
    """How long a run that has work may go on once another task waits for its slot."""
    warm_runs_max: int = 4
    """So many runs may go on that have nothing to do, while nobody waits for a slot."""
    stop_timeout_ms: int = 5_000
    """How long a run may take to commit and end before its process is killed."""
    stalled_ms: int = 30_000
    """How long a run may stand still before its task is STALLED; how long before it is ended the run's config says."""
    lost_runs_max: int = 3
    """So many runs in a row may be lost without a word before the task is FAILED."""
    lost_backoff_ms: int = 500
    """Wait before the second try after a lost run; doubles. The first try comes at once."""
    lost_forget_ms: int = 60_000
    """A run that lasted so long before it was lost is the first of its row, whatever those before it came to: one that
    dies of its records soon after it began counts, though it moves some each time."""


@dataclass(slots=True)
class Task:
    """One task held."""

    unit: UnitId
    assignment: Assignment
    spec: TaskSpec
    target: TargetState
    commit_scope: CommitScope | None
    """Of its last commit, None = it never committed."""
    conditions: tuple[Condition, ...] = ()
    traceparent: str = ""
    phase: Phase = Phase.NEW
    state: RunState = RunState.UNASSIGNED
    """As reported and written."""
    failure: Failure | None = None
    progress: ProgressReport = field(default_factory=ProgressReport)
    ends: Mapping[tuple[str, int], int] = field(default_factory=dict[tuple[str, int], int])
    """Of its partitions, as the worker learned them last while the task has work."""
    run: Run | None = None
    moved: bool = False
    """The leader was not told yet how far it is."""
    run_count: int = 0
    values_of: str = ""
    """The last run: what its configs refer to was resolved for that one."""
    confirmed: bool = False
    """A run under this assignment took over and began: only then it is RUNNING."""
    lost_runs: int = 0
    retry_at: float | None = None
    retry_reason: str = ""
    """Why it waits until `retry_at`."""
    idle_wait: Wait | None = None
    """Of a task without a run: what the watch of idle tasks waits for."""
    wait: Wait | None = None
    """As its status and its leader were told."""
    giving_up: bool = False
    successor: StartUnit | None = None
    """Starts once this one is given up."""


def say(task: Task, state: RunState) -> list[Instruction]:
    """The task is in this state from now on: the status and the report that say so."""
    task.state = state
    return [status(task), report(task)]


def say_condition(task: Task) -> list[Instruction]:
    """Only of a task that is RUNNING: what else it is, it is whether a run of it stands still or not."""
    return [status(task)] if task.state is RunState.RUNNING and not task.giving_up else []


def status(task: Task) -> Instruction:
    """What the status store is to keep of it."""
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
    """What the leader is told of it."""
    return instructions.SendReport(task.unit, task.assignment, task.state, task.failure)


def waiting(wait: Wait | None) -> tuple[Condition, ...]:
    """What a status says of a wait."""
    return () if wait is None else (Condition(WAITING, wait.text(), wait.since_ms, wait),)


def _conditions(task: Task) -> tuple[Condition, ...]:
    if task.state is not RunState.RUNNING:
        return task.conditions
    silence = task.run.silence if task.run is not None else None
    stalled = () if silence is None or not silence.stalled else (silence.condition(task.unit, task.wait),)
    return (*task.conditions, *stalled, *waiting(task.wait))
