"""Events of a worker. Every event is data that can be logged and replayed; none carries code.

Owns the vocabulary between the outside (session, runs, Spark, watcher, clock) and the state, and no decision.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from herdmesh.connect.spi import Wait
from herdmesh.engine.runtime import ProgressReport, RunEnd
from herdmesh.session.messages import Message
from herdmesh.session.model import Failure, UnitId
from herdmesh.worker.state.model import Config

# --- commands of the leading herder; the session checks nothing, the state compares epochs


@dataclass(frozen=True, slots=True)
class Command:
    """A message of a leading herder, under its epoch."""

    epoch: int
    message: Message


@dataclass(frozen=True, slots=True)
class SessionClosed:
    """The stream to the leader is gone. Tasks go on."""


# --- runs


@dataclass(frozen=True, slots=True)
class RunHello:
    """The run's process dialled in."""

    run_id: str
    pid: int
    silence_end_ms: int = 300_000
    """A run that stands still for so long is ended (`max.poll.interval.ms`)."""


@dataclass(frozen=True, slots=True)
class RunPulse:
    """How long the run's loop has not moved, 0 = it moves; `moved_ms` is the epoch time at which it last did."""

    run_id: str
    silent_ms: int
    moved_ms: int
    wait: Wait | None = None
    """What the run has waited for longer than 5 s."""


@dataclass(frozen=True, slots=True)
class RunProgress:
    """How far the run has come; the first one also says that the task took over and runs."""

    run_id: str
    progress: ProgressReport


@dataclass(frozen=True, slots=True)
class RunFailed:
    """The run will end with an error."""

    run_id: str
    failure: Failure


@dataclass(frozen=True, slots=True)
class RunFinished:
    """The run will end without an error."""

    run_id: str
    reason: RunEnd
    progress: ProgressReport
    wake_after_ms: int


@dataclass(frozen=True, slots=True)
class RunEnded:
    """The run's Spark job is over and its slot is free. `error` is Spark's word when the job failed."""

    run_id: str
    error: str | None = None


@dataclass(frozen=True, slots=True)
class TaskHasWork:
    """The watcher of idle tasks saw work. `idle_id` names the idle period it watched."""

    unit: UnitId
    idle_id: int
    reason: str


@dataclass(frozen=True, slots=True)
class EndsLearned:
    """Where partitions of tasks that have work end, as a read_committed consumer sees it."""

    ends: Mapping[tuple[str, int], int]


# --- connectors: each answers one instruction by its op_id


@dataclass(frozen=True, slots=True)
class ConnectorStarted:
    """`start` of the author's class returned, or failed."""

    connector: str
    op_id: int
    failure: Failure | None = None


@dataclass(frozen=True, slots=True)
class TasksOutdated:
    """The connector that was started under `op_id` wants to be asked for task configs again."""

    connector: str
    op_id: int


@dataclass(frozen=True, slots=True)
class ConnectorRaised:
    """The connector that was started under `op_id` says that it cannot go on."""

    connector: str
    op_id: int
    failure: Failure


@dataclass(frozen=True, slots=True)
class ConnectorStopped:
    """`stop` of the author's class returned; errors of it are only logged."""

    connector: str
    op_id: int


@dataclass(frozen=True, slots=True)
class ConnectorWaits:
    """What the instance of the author's class waits for, longer than 5 s; None = nothing any more."""

    connector: str
    op_id: int
    """Of its start."""
    wait: Wait | None


@dataclass(frozen=True, slots=True)
class TaskWaits:
    """What the watch of idle tasks waits for in a task's place; None = nothing any more."""

    unit: UnitId
    wait: Wait | None


@dataclass(frozen=True, slots=True)
class TaskConfigsMade:
    """`task_configs` of the author's class returned, or failed."""

    connector: str
    op_id: int
    tasks: Sequence[Config] = ()
    failure: Failure | None = None


# --- values that references in configs were resolved to


@dataclass(frozen=True, slots=True)
class ValuesResolved:
    """A run, or a start of a connector, was given values that are good for `ttl_ms`; `made_by`: its run_id or op_id."""

    unit: UnitId
    made_by: str
    ttl_ms: int


@dataclass(frozen=True, slots=True)
class ValuesChecked:
    """They were looked up again. `ttl_ms` None = good for ever."""

    unit: UnitId
    made_by: str
    changed: bool
    ttl_ms: int | None


@dataclass(frozen=True, slots=True)
class ValuesUnknown:
    """They could not be looked up: what was given stays in use."""

    unit: UnitId
    made_by: str


# --- the rest


@dataclass(frozen=True, slots=True)
class StatusStale:
    """The status store says that another worker incarnation owns the unit under a newer generation."""

    unit: UnitId
    generation: int


@dataclass(frozen=True, slots=True)
class HeartbeatDue:
    """Time to tell the leader which tasks moved. `only_if_moved` skips an empty heartbeat, and the look at waits."""

    only_if_moved: bool
    now_ms: int = 0
    """Epoch time."""


@dataclass(frozen=True, slots=True)
class DrainRequested:
    """Stop all tasks in order and refuse new ones; the process stays."""


@dataclass(frozen=True, slots=True)
class LeaveRequested:
    """The process was told to stop."""


@dataclass(frozen=True, slots=True)
class SparkGone:
    """The JVM is dead, and every run with it."""

    error: str


@dataclass(frozen=True, slots=True)
class Tick:
    """A deadline of the state has come."""


#: About the worker as a whole, not one run or unit.
AboutWorker = SessionClosed | StatusStale | HeartbeatDue | DrainRequested | LeaveRequested | SparkGone | Tick
#: Whatever no herder said: runs, connectors, Spark, the stores, the clock.
Observation = (
    AboutWorker
    | RunHello
    | RunPulse
    | RunProgress
    | RunFailed
    | RunFinished
    | RunEnded
    | TaskHasWork
    | EndsLearned
    | ConnectorStarted
    | TasksOutdated
    | ConnectorRaised
    | ConnectorStopped
    | ConnectorWaits
    | TaskWaits
    | TaskConfigsMade
    | ValuesResolved
    | ValuesChecked
    | ValuesUnknown
)
Event = Command | Observation
