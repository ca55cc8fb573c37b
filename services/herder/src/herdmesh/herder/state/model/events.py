"""Events: everything that can happen to a herder, as data that can be logged and replayed; none carries code.

Owns the vocabulary between the outside (stores, workers, callers, clock) and the state, and no decision.
The loop gives each stream, write and call a number (`session`, `op`, `call`) by which events name it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from herdmesh.connect.spi import Wait
from herdmesh.connect.task_counts import TaskCounts
from herdmesh.herder.state.model.requests import OffsetsAnswer, OffsetsRecorded, Request, RestartItem, WriteOptions
from herdmesh.herder.state.model.values import (
    ClusterLevel,
    ConnectorEntry,
    Lease,
    LoggerLevel,
    Plugin,
    RefusedPlugin,
    SessionKey,
    StatusEntry,
    TaskProgress,
    Validation,
)
from herdmesh.rpc.errors import HerdmeshError
from herdmesh.session.model import Assignment, Failure, HeldUnit, Properties, RunState, SlotUse, UnitId
from herdmesh.topicstore.contract import Revision

# --- leadership


@dataclass(frozen=True, slots=True)
class LeadershipGranted:
    """This herder leads until `lease_until_ms` unless the lease is extended."""

    epoch: int
    generation_first: int
    generation_limit: int
    lease_until_ms: int
    leader_id: str = ""
    leader_address: str = ""


@dataclass(frozen=True, slots=True)
class GenerationsReserved:
    """The config store has reserved for `epoch` all generations below `generation_limit` that were not given out
    before.
    """

    epoch: int
    generation_limit: int


@dataclass(frozen=True, slots=True)
class LeaseExtended:
    """The config store answered a heartbeat: this herder leads until `until_ms`."""

    until_ms: int


@dataclass(frozen=True, slots=True)
class LeaseShortened:
    """The campaign's stream broke: unless the config store answers again, this herder leads until `until_ms` only."""

    until_ms: int


@dataclass(frozen=True, slots=True)
class LeadershipFollowing:
    """Another herder leads."""

    leader_id: str
    leader_address: str
    epoch: int


@dataclass(frozen=True, slots=True)
class LeadershipLost:
    """This herder's epoch is over."""

    reason: str


# --- contents of the stores


@dataclass(frozen=True, slots=True)
class ConfigSnapshot:
    """Everything in the config store at `revision`; replaces all that was known. `epoch` is the one granted last;
    `loggers` are levels for the whole cluster, in the order they were set."""

    entries: Sequence[ConnectorEntry]
    revision: Revision
    epoch: int = 0
    session_key: SessionKey | None = None
    loggers: Sequence[ClusterLevel] = ()


@dataclass(frozen=True, slots=True)
class ConfigChanged:
    """One connector changed; `entry` None = nothing is stored any more. `revision` None = more changes of the same
    record follow.
    """

    name: str
    entry: ConnectorEntry | None
    revision: Revision | None


@dataclass(frozen=True, slots=True)
class EpochRecorded:
    """The config store granted an epoch, to any herder; the events of all records before it have been sent."""

    epoch: int
    revision: Revision | None


@dataclass(frozen=True, slots=True)
class ConfigProgress:
    """Nothing else that the herder uses happened in the config store up to `revision`."""

    revision: Revision | None


@dataclass(frozen=True, slots=True)
class RestartRecorded:
    """A restart request was written into the config topic (by a Java tool or another client of the store)."""

    connector: str
    include_tasks: bool
    only_failed: bool
    revision: Revision | None


@dataclass(frozen=True, slots=True)
class SessionKeyRecorded:
    """A session key was written, maybe by this herder."""

    key: SessionKey
    revision: Revision | None


@dataclass(frozen=True, slots=True)
class LoggerRecorded:
    """A logger's level for the whole cluster was set, maybe by this herder."""

    level: ClusterLevel
    revision: Revision | None


@dataclass(frozen=True, slots=True)
class StatusSnapshot:
    """Everything in the status store except the leases; replaces all that was known."""

    statuses: Sequence[StatusEntry]


@dataclass(frozen=True, slots=True)
class StatusPut:
    """A status was written."""

    status: StatusEntry


@dataclass(frozen=True, slots=True)
class StatusDeleted:
    """A status was deleted."""

    unit: UnitId


@dataclass(frozen=True, slots=True)
class LeasesChanged:
    """The whole table of worker leases."""

    leases: Sequence[Lease]


# --- workers


@dataclass(frozen=True, slots=True)
class WorkerHello:
    """A worker dialled in, with its identity, its plugins and the units it holds."""

    session: int
    worker_id: str
    incarnation: str
    address: str
    slots: int
    plugins: tuple[Plugin, ...] = ()
    held_units: tuple[HeldUnit, ...] = ()
    epoch_max: int = 0
    draining: bool = False
    #: of the newest cluster-wide level that it was sent.
    logger_revision: Revision | None = None
    #: it has begun to stop for good.
    leaving: bool = False
    #: plugins that it found and cannot use.
    refused: tuple[RefusedPlugin, ...] = ()
    #: it may find a plugin that it has not reported.
    has_plugin_folders: bool = False


@dataclass(frozen=True, slots=True)
class PluginsChanged:
    """The plugin folders of a worker have changed: all plugins that it can load now."""

    session: int
    plugins: tuple[Plugin, ...]
    refused: tuple[RefusedPlugin, ...]


@dataclass(frozen=True, slots=True)
class WorkerHeartbeat:
    """Heartbeat of a worker, with the progress of the tasks that moved."""

    session: int
    progress: tuple[TaskProgress, ...] = ()
    waits: tuple[tuple[UnitId, Wait | None], ...] = ()
    """Units whose wait began, changed or ended (None)."""
    #: None = unknown.
    slot_use: SlotUse | None = None


@dataclass(frozen=True, slots=True)
class UnitReported:
    """A worker reports the state of a unit; UNASSIGNED means stopped and released, with a task's last `counts`."""

    session: int
    unit: UnitId
    assignment: Assignment
    state: RunState
    failure: Failure | None = None
    counts: TaskCounts | None = None


@dataclass(frozen=True, slots=True)
class TaskConfigsMade:
    """A connector created task configs, requested or not, or failed to."""

    session: int
    connector: str
    assignment: Assignment
    tasks: tuple[Properties, ...] = ()
    failure: Failure | None = None


@dataclass(frozen=True, slots=True)
class CommandReplied:
    """A worker replied to a command: with `failure`, or with the requested result.

    `plugin_fields` are the wire's `ConfigField`s, `dead_letters` its answer about dead letters, `prepared` its
    `PreparedOffsets`, all unopened. With a failure, `outcome_unknown` means that the command may have taken effect.
    """

    session: int
    command_id: str
    failure: Failure | None = None
    validation: Validation | None = None
    plugin_fields: tuple[object, ...] = ()
    loggers: tuple[LoggerLevel, ...] = ()
    tasks: tuple[Properties, ...] = ()
    dead_letters: object = None
    offsets: OffsetsAnswer | None = None
    outcome_unknown: bool = False
    prepared: object = None


@dataclass(frozen=True, slots=True)
class WorkerLeft:
    """A worker wants to release all its units and then stop."""

    session: int


@dataclass(frozen=True, slots=True)
class StreamBroken:
    """The stream of a session ended, from whichever side."""

    session: int


# --- callers and effects


@dataclass(frozen=True, slots=True)
class RequestReceived:
    """A caller's request; answered by exactly one `Reply` with the same `call`, at the latest at `deadline_ms`."""

    call: int
    request: Request
    options: WriteOptions
    deadline_ms: int


@dataclass(frozen=True, slots=True)
class RequestCancelled:
    """The caller hung up; nobody waits for the reply. A write under way continues."""

    call: int


@dataclass(frozen=True, slots=True)
class WriteDone:
    """A write was acknowledged at `revision` (of the config store; None for a status write). `created` and `unchanged`
    belong to a config, `restarted` to a restart: the answer that its first caller got. `offsets` belongs to a recorded
    change of offsets.
    """

    op: int
    revision: Revision | None = None
    created: bool = False
    restarted: tuple[RestartItem, ...] = ()
    offsets: OffsetsRecorded | None = None
    unchanged: bool = False


@dataclass(frozen=True, slots=True)
class WriteFailed:
    """A write ended with an error of the store."""

    op: int
    error: HerdmeshError


@dataclass(frozen=True, slots=True)
class Tick:
    """Time passed; comes several times a second."""


@dataclass(frozen=True, slots=True)
class Continue:
    """No event; continue the work that earlier events left over (`Herder.has_more_to_do`)."""


WorkerEvent = (
    WorkerHello
    | WorkerHeartbeat
    | UnitReported
    | TaskConfigsMade
    | CommandReplied
    | WorkerLeft
    | PluginsChanged
    | StreamBroken
)

Event = (
    LeadershipGranted
    | GenerationsReserved
    | LeaseExtended
    | LeaseShortened
    | LeadershipFollowing
    | LeadershipLost
    | ConfigSnapshot
    | ConfigChanged
    | ConfigProgress
    | EpochRecorded
    | RestartRecorded
    | SessionKeyRecorded
    | LoggerRecorded
    | StatusSnapshot
    | StatusPut
    | StatusDeleted
    | LeasesChanged
    | WorkerEvent
    | RequestReceived
    | RequestCancelled
    | WriteDone
    | WriteFailed
    | Tick
    | Continue
)
