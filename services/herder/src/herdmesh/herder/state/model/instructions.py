"""Instructions: every effect that the state requests, as data.

Owns the vocabulary only. Invariant: carrying out an instruction never blocks the loop; a write is answered by exactly
one `WriteDone` or `WriteFailed` with its `op`, other instructions are not answered.
"""

from __future__ import annotations

from dataclasses import dataclass

from herdmesh.herder.state.model.requests import Answer, ChangeOffsets, OffsetsAnswer, RestartItem, WriteOptions
from herdmesh.herder.state.model.values import RestartNote, StatusEntry
from herdmesh.rpc.errors import HerdmeshError
from herdmesh.session.messages import Message
from herdmesh.session.model import Properties, RunState, TargetState
from herdmesh.topicstore.contract import Revision

# --- messages to workers


@dataclass(frozen=True, slots=True)
class Send:
    """Send `message` over a session, under the leader's epoch."""

    session: int
    epoch: int
    message: Message
    note: RestartNote | None = None
    """With a StartUnit: the unit's restart history. The wire adds it to the conditions, as text with wall-clock times,
    which the state does not know.
    """


@dataclass(frozen=True, slots=True)
class CloseSession:
    """End a session's stream; with an error, or cleanly when None."""

    session: int
    error: HerdmeshError | None


# --- writes


@dataclass(frozen=True, slots=True)
class PutConfig:
    """`ConfigWriteService.PutConnectorConfig`; `patch` is the patch that was merged into the config: retries are
    recognised by it. `initial_offsets` are the wire's `PreparedOffsets`, as a worker created them. `only_if_changed`:
    the store writes nothing when its config is equal.
    """

    op: int
    connector: str
    config: Properties
    options: WriteOptions
    must_exist: bool = False
    must_not_exist: bool = False
    initial_target: TargetState | None = None
    patch: Properties | None = None
    initial_offsets: object = None
    only_if_changed: bool = False


@dataclass(frozen=True, slots=True)
class DeleteConfig:
    """`ConfigWriteService.DeleteConnector`."""

    op: int
    connector: str
    options: WriteOptions


@dataclass(frozen=True, slots=True)
class PutTarget:
    """`ConfigWriteService.SetTargetState`."""

    op: int
    connector: str
    target: TargetState
    options: WriteOptions


@dataclass(frozen=True, slots=True)
class RequestRestart:
    """`ConfigWriteService.RequestRestart` under `epoch`: the restarted items are to run under `generation` or later.

    `task` None = as the flags say.
    """

    op: int
    connector: str
    options: WriteOptions
    items: tuple[RestartItem, ...]
    generation: int
    epoch: int
    include_tasks: bool = False
    only_failed: bool = False
    task: int | None = None


@dataclass(frozen=True, slots=True)
class CommitTasks:
    """`ConfigWriteService.CommitTaskConfigs` under `epoch`; refused if the config moved on from `config_revision`. With
    `fenced_generation` the set is counted in the same write, and refused if another set than that is in force."""

    op: int
    connector: str
    tasks: tuple[Properties, ...]
    config_revision: Revision | None
    epoch: int
    fenced_generation: int | None = None


@dataclass(frozen=True, slots=True)
class PutTaskCount:
    """`ConfigWriteService.PutTaskCount` under `epoch`."""

    op: int
    connector: str
    task_count: int
    epoch: int


@dataclass(frozen=True, slots=True)
class RotateSessionKey:
    """`ConfigWriteService.PutSessionKey` under `epoch`, of a key that is created when the write begins."""

    op: int
    algorithm: str
    size_bytes: int
    epoch: int


@dataclass(frozen=True, slots=True)
class PutLogger:
    """`ConfigWriteService.PutLoggerLevel`: a level for the whole cluster."""

    op: int
    logger: str
    level: str
    options: WriteOptions


@dataclass(frozen=True, slots=True)
class RecordDrain:
    """`ConfigWriteService.RecordDrain`: a worker has confirmed a drain, or its end."""

    op: int
    worker_id: str
    draining: bool
    options: WriteOptions


@dataclass(frozen=True, slots=True)
class RecordOffsets:
    """`ConfigWriteService.RecordOffsets`: a change of offsets begins, under `epoch` (`response` has the offsets that a
    reset will delete), or it has ended and its caller gets `response` next.
    """

    op: int
    connector: str
    change: ChangeOffsets
    ended: bool
    response: OffsetsAnswer
    options: WriteOptions
    epoch: int


@dataclass(frozen=True, slots=True)
class DeleteStatuses:
    """`StatusWriteService.DeleteConnectorStatuses`; `tasks_from` None = the connector, its tasks and its topics.

    Units started after this decision, from `generation_below` on, keep their statuses however late the deletion is.
    """

    op: int
    connector: str
    tasks_from: int | None
    generation_below: int


@dataclass(frozen=True, slots=True)
class StatusChange:
    """Write `state`, `trace` and `note` over exactly the record `over`, and keep the rest of it.

    If another record was written meanwhile, above all by a worker, that one stays and this change is discarded.
    """

    over: StatusEntry
    state: RunState
    trace: str | None
    note: RestartNote | None


@dataclass(frozen=True, slots=True)
class PutStatus:
    """`StatusWriteService.PutStatuses`: the leader's changes to statuses of one connector."""

    op: int
    connector: str
    changes: tuple[StatusChange, ...]


Write = (
    PutStatus
    | PutConfig
    | DeleteConfig
    | PutTarget
    | RequestRestart
    | CommitTasks
    | PutTaskCount
    | RotateSessionKey
    | PutLogger
    | RecordDrain
    | RecordOffsets
    | DeleteStatuses
)


# --- the rest


@dataclass(frozen=True, slots=True)
class ReserveGenerations:
    """Request generations from `above` on, in every heartbeat until some are granted: answered by GenerationsReserved,
    by a new grant, or not at all.
    """

    epoch: int
    above: int


@dataclass(frozen=True, slots=True)
class RenewEpoch:
    """Campaign again, on a new stream.

    `abandon`: all generations of `epoch` are given out and the store reserves no more, so request another epoch.
    Otherwise the lease ended by our own clock while the store may still count this herder as the leader: keep the
    epoch, it may be granted again.
    """

    epoch: int
    abandon: bool


@dataclass(frozen=True, slots=True)
class Reply:
    """Answer a call."""

    call: int
    answer: Answer | HerdmeshError


@dataclass(frozen=True, slots=True)
class RoleChanged:
    """From now on this herder serves as leader (`error` None), or refuses every request with `error`."""

    error: HerdmeshError | None


@dataclass(frozen=True, slots=True)
class ViewsChanged:
    """The views of these connectors and workers may have changed; watchers compare them."""

    connectors: frozenset[str]
    workers: frozenset[str]


Campaigning = RenewEpoch | ReserveGenerations
"""Instructions for the campaign."""

Instruction = Send | CloseSession | Write | Campaigning | Reply | RoleChanged | ViewsChanged
