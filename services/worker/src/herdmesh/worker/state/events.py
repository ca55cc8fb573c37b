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
    """A message of a leading herder, with its epoch."""

    epoch: int
    message: Message


@dataclass(frozen=True, slots=True)
class SessionClosed:
    """The stream to the leader is gone. Tasks keep running."""


# --- runs


@dataclass(frozen=True, slots=True)
class RunHello:
    """The run's process has connected."""

    run_id: str
    pid: int
    silence_end_ms: int = 300_000
    """Time without progress after which the run is ended (`max.poll.interval.ms`)."""


@dataclass(frozen=True, slots=True)
class RunLiveness:
    """Time since the run's loop last moved, 0 = it moves; `moved_ms` is the epoch time of its last move."""

    run_id: str
    silent_ms: int
    moved_ms: int
    wait: Wait | None = None
    """A wait of the run that is longer than 5 s."""


@dataclass(frozen=True, slots=True)
class RunProgress:
    """Progress of the run; the first report also means that the task took over and runs."""

    run_id: str
    progress: ProgressReport


@dataclass(frozen=True, slots=True)
class RunFailed:
    """The run is about to end with an error."""

    run_id: str
    failure: Failure


@dataclass(frozen=True, slots=True)
class RunFinished:
    """The run is about to end without an error."""

    run_id: str
    reason: RunEnd
    progress: ProgressReport
    wake_after_ms: int


@dataclass(frozen=True, slots=True)
class RunEnded:
    """The run's Spark job is over and its slot is free. `error` is Spark's message when the job failed."""

    run_id: str
    error: str | None = None


@dataclass(frozen=True, slots=True)
class TaskHasWork:
    """The idle watch found work. `idle_id` names the idle period it watched."""

    unit: UnitId
    idle_id: int
    reason: str


@dataclass(frozen=True, slots=True)
class EndsLearned:
    """Ends of partitions of tasks that have work, as a read_committed consumer sees them."""

    ends: Mapping[tuple[str, int], int]


# --- connectors: each is the result of one instruction, named by its op_id


@dataclass(frozen=True, slots=True)
class ConnectorStarted:
    """`start` of the author's class returned, or failed."""

    connector: str
    op_id: int
    failure: Failure | None = None


@dataclass(frozen=True, slots=True)
class TasksOutdated:
    """The connector that was started under `op_id` requests that its task configs are requested again."""

    connector: str
    op_id: int


@dataclass(frozen=True, slots=True)
class ConnectorRaised:
    """The connector that was started under `op_id` reports that it cannot continue."""

    connector: str
    op_id: int
    failure: Failure


@dataclass(frozen=True, slots=True)
class ConnectorStopped:
    """`stop` of the author's class returned; its errors are only logged."""

    connector: str
    op_id: int


@dataclass(frozen=True, slots=True)
class ConnectorWaits:
    """A wait of the author's instance that is longer than 5 s; None = it is over."""

    connector: str
    op_id: int
    """The op_id of the instance's start."""
    wait: Wait | None


@dataclass(frozen=True, slots=True)
class TaskWaits:
    """A wait of the idle watch on behalf of a task; None = it is over."""

    unit: UnitId
    wait: Wait | None


@dataclass(frozen=True, slots=True)
class TaskConfigsMade:
    """`task_configs` of the author's class returned, or failed."""

    connector: str
    op_id: int
    tasks: Sequence[Config] = ()
    failure: Failure | None = None


# --- resolved values of config references


@dataclass(frozen=True, slots=True)
class ValuesResolved:
    """A run, or a start of a connector, got values with a time to live of `ttl_ms`; `made_by`: its run_id or op_id."""

    unit: UnitId
    made_by: str
    ttl_ms: int


@dataclass(frozen=True, slots=True)
class ValuesChecked:
    """The values were looked up again. `ttl_ms` None = they do not expire."""

    unit: UnitId
    made_by: str
    changed: bool
    ttl_ms: int | None


@dataclass(frozen=True, slots=True)
class ValuesUnknown:
    """The lookup failed: the present values stay in use."""

    unit: UnitId
    made_by: str


# --- others


@dataclass(frozen=True, slots=True)
class StatusStale:
    """The status store reports that another worker incarnation owns the unit under a newer generation."""

    unit: UnitId
    generation: int


@dataclass(frozen=True, slots=True)
class HeartbeatDue:
    """Time to report to the leader which tasks moved. `only_if_moved` skips an empty heartbeat, and the check of
    waits."""

    only_if_moved: bool
    now_ms: int = 0
    """Epoch time."""


@dataclass(frozen=True, slots=True)
class DrainRequested:
    """Stop all tasks in order and refuse new ones; the process stays."""


@dataclass(frozen=True, slots=True)
class LeaveRequested:
    """The process has to stop."""


@dataclass(frozen=True, slots=True)
class SparkGone:
    """The JVM is dead, and every run with it."""

    error: str


@dataclass(frozen=True, slots=True)
class Tick:
    """A deadline of the state has come."""


#: Events about the worker as a whole, not one run or unit.
AboutWorker = SessionClosed | StatusStale | HeartbeatDue | DrainRequested | LeaveRequested | SparkGone | Tick
#: All events but a herder's commands: of runs, connectors, Spark, the stores and the clock.
Observation = (
    AboutWorker
    | RunHello
    | RunLiveness
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
