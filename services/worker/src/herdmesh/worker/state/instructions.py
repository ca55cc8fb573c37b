"""Instructions of the state. Each is data; `herdmesh.worker.loop` passes it to the effect that executes it.

Owns only the vocabulary. Invariant: executing an instruction never blocks the loop, and its result, if any, is an
event.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from herdmesh.connect.spi import Wait
from herdmesh.connect.task_counts import TaskCounts
from herdmesh.connect.topics import CommitScope
from herdmesh.engine.runtime import ProgressReport, Rate
from herdmesh.session.model import Assignment, Condition, Failure, RunState, SlotUse, UnitId
from herdmesh.session.worker_commands import WorkerCommand
from herdmesh.worker.state.model import Config, PutMode, TaskSpec

# --- runs


@dataclass(frozen=True, slots=True)
class SubmitRun:
    """Run the task as a Spark job; always ends with RunEnded."""

    run_id: str
    unit: UnitId
    spec: TaskSpec
    commit_scope: CommitScope | None
    assignment: Assignment
    config_offset: int | None
    """Offset in the config topic up to which the assignment's task set is known to be in force; None = unknown."""
    traceparent: str = ""
    """Trace context of the call that started the task, for its first run."""


@dataclass(frozen=True, slots=True)
class StopRun:
    """Command the run to commit and end."""

    run_id: str
    reason: str


@dataclass(frozen=True, slots=True)
class ShareRun:
    """Command the run to end when it has lasted `run_ms`, because other tasks wait."""

    run_id: str
    run_ms: int


@dataclass(frozen=True, slots=True)
class EndWarmRun:
    """Command a warm run to end: a task waits for its slot, or there are more warm runs than the limit."""

    run_id: str


@dataclass(frozen=True, slots=True)
class RateRun:
    """Set the run's share of the connector's rate limit."""

    run_id: str
    rate: Rate


@dataclass(frozen=True, slots=True)
class CancelRun:
    """Kill the run's process: it did not end in time after its stop command."""

    run_id: str
    reason: str


@dataclass(frozen=True, slots=True)
class WatchTask:
    """Watch an idle task and emit TaskHasWork(idle_id). `wake_after_ms` is a source's own request, 0 = none.

    Records behind the positions of `progress` are work, in every partition that the task owns.
    """

    unit: UnitId
    idle_id: int
    spec: TaskSpec
    progress: ProgressReport | None
    wake_after_ms: int


@dataclass(frozen=True, slots=True)
class UnwatchTask:
    """Stop watching. `forget` also discards the memory of earlier idle periods: the unit is released."""

    unit: UnitId
    forget: bool = False


# --- connectors


@dataclass(frozen=True, slots=True)
class StartConnector:
    """Create an instance of the author's class and start it."""

    connector: str
    op_id: int
    config: Config


@dataclass(frozen=True, slots=True)
class StopConnector:
    """Stop and remove the instance."""

    connector: str
    op_id: int


@dataclass(frozen=True, slots=True)
class MakeTaskConfigs:
    """Request task configs from the instance; when none is started (PAUSED), from a temporary one."""

    connector: str
    op_id: int
    config: Config
    tasks_max: int


@dataclass(frozen=True, slots=True)
class AbandonConnector:
    """The author's code did not return in time: forget the instance, ignore its further messages."""

    connector: str


# --- resolved values of config references


@dataclass(frozen=True, slots=True)
class CheckValues:
    """Look up the references of the unit's configs again; the result is ValuesChecked or ValuesUnknown.

    `made_by` is the run or, for a connector, the start that got the values.
    """

    unit: UnitId
    made_by: str


# --- to the leader; discarded without a session, because hello has everything


@dataclass(frozen=True, slots=True)
class SendReport:
    """Report the state of a unit."""

    unit: UnitId
    assignment: Assignment
    state: RunState
    failure: Failure | None = None
    counts: TaskCounts | None = None
    """Counts of a task that was released: its next start continues them."""


@dataclass(frozen=True, slots=True)
class SendTaskConfigs:
    """Reply with task configs, or offer them."""

    connector: str
    assignment: Assignment
    tasks: Sequence[Config] = ()
    failure: Failure | None = None


@dataclass(frozen=True, slots=True)
class SendHeartbeat:
    """Keep the session alive; `moved` are the tasks whose progress changed, `waits` the units whose wait did."""

    moved: Sequence[UnitId]
    waits: Sequence[tuple[UnitId, Wait | None]]
    slot_use: SlotUse


@dataclass(frozen=True, slots=True)
class SendLeaving:
    """Request that the leader moves all units away."""


@dataclass(frozen=True, slots=True)
class DropSession:
    """The herder of this session no longer leads: connect again."""

    reason: str


# --- others


@dataclass(frozen=True, slots=True)
class WriteStatus:
    """Write a status; of two for one unit only the later one must be written."""

    unit: UnitId
    state: RunState
    mode: PutMode
    generation: int
    config: Config  # of the connector: its class gives the version
    failure: Failure | None = None
    commit_scope: CommitScope | None = None
    conditions: tuple[Condition, ...] = ()


@dataclass(frozen=True, slots=True)
class ExecuteCommand:
    """Execute a command of the session and send its reply."""

    command_id: str
    command: WorkerCommand


@dataclass(frozen=True, slots=True)
class SendReply:
    """Report to the leader that a command was executed."""

    command_id: str


@dataclass(frozen=True, slots=True)
class Drained:
    """A drain is complete: no unit is held."""


@dataclass(frozen=True, slots=True)
class Exit:
    """All units are released; end the process."""

    code: int


#: Messages to the leading herder or to the status store.
Message = (
    SendReport | SendTaskConfigs | SendHeartbeat | SendLeaving | DropSession | WriteStatus | ExecuteCommand | SendReply
)
Instruction = (
    SubmitRun
    | StopRun
    | ShareRun
    | EndWarmRun
    | RateRun
    | CancelRun
    | WatchTask
    | UnwatchTask
    | StartConnector
    | StopConnector
    | MakeTaskConfigs
    | AbandonConnector
    | CheckValues
    | Message
    | Drained
    | Exit
)
