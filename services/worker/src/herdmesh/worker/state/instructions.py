"""Instructions of the state. Each is data; `herdmesh.worker.loop` hands it to the effect that can do it.

Owns the vocabulary only. Invariant: carrying out an instruction never blocks the loop and answers, if at all, by an
event.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from herdmesh.connect.spi import Wait
from herdmesh.connect.topics import CommitScope
from herdmesh.engine.runtime import ProgressReport, Rate
from herdmesh.session.model import Assignment, Condition, Failure, RunState, UnitId
from herdmesh.session.worker_commands import WorkerCommand
from herdmesh.worker.state.model import Config, PutMode, TaskSpec

# --- runs


@dataclass(frozen=True, slots=True)
class SubmitRun:
    """Run the task as a Spark job; ends with RunEnded whatever happens."""

    run_id: str
    unit: UnitId
    spec: TaskSpec
    commit_scope: CommitScope | None
    assignment: Assignment
    config_offset: int | None
    """Where in the config topic the assignment's task set was still in force; None = nobody said."""
    traceparent: str = ""
    """Of the call that made the task start, for its first run."""


@dataclass(frozen=True, slots=True)
class StopRun:
    """Tell the run to commit and end."""

    run_id: str
    reason: str


@dataclass(frozen=True, slots=True)
class ShareRun:
    """Tell the run to end when it has lasted `run_ms`, because other tasks wait."""

    run_id: str
    run_ms: int


@dataclass(frozen=True, slots=True)
class RestRun:
    """Tell the run, which is warm, to end: a task waits for its slot, or more runs are warm than may be."""

    run_id: str


@dataclass(frozen=True, slots=True)
class RateRun:
    """Tell the run how much of the connector's limits it may take."""

    run_id: str
    rate: Rate


@dataclass(frozen=True, slots=True)
class CancelRun:
    """Kill the run's process: it did not end in time when told to stop."""

    run_id: str
    reason: str


@dataclass(frozen=True, slots=True)
class WatchTask:
    """Watch an idle task and say TaskHasWork(idle_id). `wake_after_ms` is a source's own wish, 0 = none.

    What lies behind the positions of `progress` is work, of every partition the task owns.
    """

    unit: UnitId
    idle_id: int
    spec: TaskSpec
    progress: ProgressReport | None
    wake_after_ms: int


@dataclass(frozen=True, slots=True)
class UnwatchTask:
    """Stop watching. `forget` drops what was remembered about earlier idle periods too: the unit is given up."""

    unit: UnitId
    forget: bool = False


# --- connectors


@dataclass(frozen=True, slots=True)
class StartConnector:
    """Make an instance of the author's class and start it."""

    connector: str
    op_id: int
    config: Config


@dataclass(frozen=True, slots=True)
class StopConnector:
    """Stop the instance and drop it."""

    connector: str
    op_id: int


@dataclass(frozen=True, slots=True)
class MakeTaskConfigs:
    """Ask the instance; when none is started (PAUSED), one is started for the question and stopped again."""

    connector: str
    op_id: int
    config: Config
    tasks_max: int


@dataclass(frozen=True, slots=True)
class AbandonConnector:
    """The author's code did not return in time: forget the instance, ignore what it still says."""

    connector: str


# --- values of references


@dataclass(frozen=True, slots=True)
class CheckValues:
    """Look up again what the configs of the unit refer to; answered by ValuesChecked or ValuesUnknown.

    `made_by` is the run or, of a connector, the start that was given the values.
    """

    unit: UnitId
    made_by: str


# --- to the leader; dropped without a session, because hello carries everything


@dataclass(frozen=True, slots=True)
class SendReport:
    """Tell the state of a unit."""

    unit: UnitId
    assignment: Assignment
    state: RunState
    failure: Failure | None = None


@dataclass(frozen=True, slots=True)
class SendTaskConfigs:
    """Answer or offer task configs."""

    connector: str
    assignment: Assignment
    tasks: Sequence[Config] = ()
    failure: Failure | None = None


@dataclass(frozen=True, slots=True)
class SendHeartbeat:
    """Keep the session; `moved` are the tasks whose progress changed, `waits` the units whose wait did."""

    moved: Sequence[UnitId]
    waits: Sequence[tuple[UnitId, Wait | None]] = ()


@dataclass(frozen=True, slots=True)
class SendLeaving:
    """Ask to be relieved of everything."""


@dataclass(frozen=True, slots=True)
class DropSession:
    """The herder behind this session leads no more: dial anew."""

    reason: str


# --- the rest


@dataclass(frozen=True, slots=True)
class WriteStatus:
    """Write a status; of two for one unit only the later needs to arrive."""

    unit: UnitId
    state: RunState
    mode: PutMode
    generation: int
    config: Config  # of the connector: its class gives the version
    failure: Failure | None = None
    commit_scope: CommitScope | None = None
    conditions: tuple[Condition, ...] = ()


@dataclass(frozen=True, slots=True)
class Answer:
    """Find the answer to a question and send it over the session."""

    command_id: str
    question: WorkerCommand


@dataclass(frozen=True, slots=True)
class SendReply:
    """Tell the leader that a command was carried out."""

    command_id: str


@dataclass(frozen=True, slots=True)
class Drained:
    """A drain is complete: nothing is held."""


@dataclass(frozen=True, slots=True)
class Exit:
    """Everything is given up; end the process."""

    code: int


#: To the leading herder or to the status store.
Message = SendReport | SendTaskConfigs | SendHeartbeat | SendLeaving | DropSession | WriteStatus | Answer | SendReply
Instruction = (
    SubmitRun
    | StopRun
    | ShareRun
    | RestRun
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
