"""Requests of callers to the leading herder, and their answers, as data.

Owns the vocabulary of the public service's mutations and of the calls that need a worker. Does not own reads that need
neither (Get, List, Watch): they are answered from views. Does not own how requests are carried out (`calls`).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum, unique

from herdmesh.herder.state.model.values import LoggerLevel, Plugin, Validation
from herdmesh.session.model import OffsetEntry, Properties, RunState, TargetState
from herdmesh.topicstore.contract import Revision


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """Options for the config store: the request id that makes a retry safe, the expected revision, and the caller."""

    request_id: str = ""
    expected_revision: Revision | None = None
    caller: str = ""
    #: write nothing, only return the outcome of an earlier request of this id.
    retry_only: bool = False
    #: W3C trace context of the call; empty = it is not traced.
    traceparent: str = ""


@dataclass(frozen=True, slots=True)
class CreateConnector:
    """`name` may be empty when the config has it. `initial_target` None = not set (STARTED).

    `initial_offsets` are written with the connector, in one transaction; other offsets of an earlier connector of the
    name stay. `verdict`: a worker has just accepted this config; None = a worker validates it first.
    """

    name: str
    config: Properties
    initial_target: TargetState | None = None
    initial_offsets: tuple[OffsetEntry, ...] = ()
    verdict: Validation | None = None


@dataclass(frozen=True, slots=True)
class UpdateConnector:
    """Replace a config; `allow_missing` creates. `verdict` as in CreateConnector."""

    name: str
    config: Properties
    allow_missing: bool = False
    verdict: Validation | None = None


@dataclass(frozen=True, slots=True)
class PatchConnector:
    """Merge `patch` into the config; null removes its key (KIP-477)."""

    name: str
    patch: Properties


@dataclass(frozen=True, slots=True)
class DeleteConnector:
    """Remove config and target state; its offsets stay."""

    name: str


@dataclass(frozen=True, slots=True)
class SetTarget:
    """Pause, resume or stop."""

    name: str
    target: TargetState


@dataclass(frozen=True, slots=True)
class RestartConnector:
    """KIP-745."""

    name: str
    include_tasks: bool = False
    only_failed: bool = False


@dataclass(frozen=True, slots=True)
class RestartTask:
    """Restart one task, whatever its state."""

    name: str
    task: int


@dataclass(frozen=True, slots=True)
class ValidateConfig:
    """Validate on a worker that has the plugin. `name`: that of the create or update that is to follow, whose rules
    about names count too, and of which only the verdict is wanted; None = the config alone, with all its fields.
    """

    config: Properties
    name: str | None = None


@dataclass(frozen=True, slots=True)
class PlanConfig:
    """Compute the effect of a create or an update with this config. `name` may be empty when the config has it; else it
    is exact, as in an update, and a note says when a create would read it as another name.
    """

    name: str
    config: Properties


@dataclass(frozen=True, slots=True)
class GetPlugin:
    """The config definition of a plugin, by class name or alias."""

    class_name: str


@dataclass(frozen=True, slots=True)
class GetLoggers:
    """Levels on every connected worker: of a logger and its children, or (empty) of all that have their own."""

    logger: str


@dataclass(frozen=True, slots=True)
class SetLoggers:
    """Change the level of a logger and its children on one worker, or (`worker_id` empty) in the whole cluster."""

    logger: str
    level: str
    worker_id: str = ""


@dataclass(frozen=True, slots=True)
class DrainWorker:
    """Move all units off a worker and give it no more."""

    worker_id: str


@dataclass(frozen=True, slots=True)
class UndrainWorker:
    """Let a draining or drained worker take work again."""

    worker_id: str


@dataclass(frozen=True, slots=True)
class ListDeadLetters:
    """A page of a connector's dead letters; `wire` is the caller's request, unopened."""

    name: str
    wire: object


@dataclass(frozen=True, slots=True)
class ReplayDeadLetters:
    """Replay dead letters of a connector; `wire` is the caller's request, unopened."""

    name: str
    wire: object


@dataclass(frozen=True, slots=True)
class GetOffsets:
    """All offsets of a connector, in any state."""

    name: str


@dataclass(frozen=True, slots=True)
class ChangeOffsets:
    """Change the offsets of a stopped connector: to `offsets`, delete all, or (a sink) rewind to a time."""

    name: str
    offsets: tuple[OffsetEntry, ...] = ()
    reset: bool = False
    #: epoch milliseconds; None = no rewind.
    rewind_to_ms: int | None = None
    dry_run: bool = False
    #: whether a rewind may move a partition forward.
    allow_forward: bool = False


Request = (
    CreateConnector
    | UpdateConnector
    | PatchConnector
    | DeleteConnector
    | SetTarget
    | RestartConnector
    | RestartTask
    | ValidateConfig
    | PlanConfig
    | GetPlugin
    | GetLoggers
    | SetLoggers
    | DrainWorker
    | UndrainWorker
    | ListDeadLetters
    | ReplayDeadLetters
    | GetOffsets
    | ChangeOffsets
)


@dataclass(frozen=True, slots=True)
class Written:
    """The answer to a change of a connector; its view has the rest. `revision` is the revision of the write."""

    name: str
    revision: Revision | None
    created: bool = False
    validation: Validation | None = None
    """The worker's verdict on the config; None where none was requested."""
    unchanged: bool = False
    """The config equals the stored one: nothing was written."""


@dataclass(frozen=True, slots=True)
class Restarting:
    """The answer to a restart: every unit considered, the connector (task None) first, with its previous state."""

    items: tuple[RestartItem, ...]


@dataclass(frozen=True, slots=True)
class RestartItem:
    """Unit of a restart plan; `state` is RESTARTING when it is restarted. `worker_id` holds it, or is stopping it."""

    task: int | None
    state: RunState
    restarted: bool
    worker_id: str = ""


@dataclass(frozen=True, slots=True)
class Validated:
    """The answer to ValidateConfig."""

    validation: Validation


@dataclass(frozen=True, slots=True)
class Draining:
    """The answer to DrainWorker and UndrainWorker."""

    worker_id: str


@unique
class PlanAction(StrEnum):
    """Planned change of a unit; names are those of the proto's `PlanAction`."""

    START = "START"
    STOP = "STOP"
    RESTART = "RESTART"
    KEEP = "KEEP"


@dataclass(frozen=True, slots=True)
class PlanStep:
    """Planned change of the connector (task None) or a task. `worker_id` is its worker afterwards, "" = none."""

    task: int | None
    action: PlanAction
    reason: str
    worker_id: str = ""


@dataclass(frozen=True, slots=True)
class Planned:
    """The answer to PlanConfig: the connector first, then its tasks; no steps when the config is refused."""

    validation: Validation
    steps: tuple[PlanStep, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class PluginDescribed:
    """The answer to GetPlugin; `fields` are the wire's `ConfigField`s, unopened."""

    plugin: Plugin
    fields: tuple[object, ...]


@dataclass(frozen=True, slots=True)
class LoggersListed:
    """The answer to GetLoggers: pairs of worker and logger, sorted by logger, then worker."""

    loggers: tuple[tuple[str, LoggerLevel], ...]


@dataclass(frozen=True, slots=True)
class LoggersSet:
    """The answer to SetLoggers: the names whose level changed, on any worker, sorted."""

    affected: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class DeadLettersAnswer:
    """The answer to ListDeadLetters and ReplayDeadLetters: `wire` is the worker's, unopened."""

    wire: object


@dataclass(frozen=True, slots=True)
class OffsetsAnswer:
    """The answer to GetOffsets and ChangeOffsets: the current offsets; after a reset, the deleted ones. `message` is
    Connect's for a change, and a remark for the reader of listed offsets.
    """

    offsets: tuple[OffsetEntry, ...]
    message: str = ""

    @property
    def byte_count(self) -> int:
        """Size of the offsets' JSON in bytes."""
        return sum(len(text.encode()) for one in self.offsets for text in (one.partition_json, one.offset_json or ""))


@dataclass(frozen=True, slots=True)
class OffsetsRecorded:
    """Progress of a change of offsets by the config store's records. `repeated` = an earlier request of its id had come
    so far; `overtaken` = that one began and did not end, and the connector was changed in another way since.
    """

    ended: bool
    response: OffsetsAnswer
    repeated: bool = False
    overtaken: bool = False


Answer = (
    Written
    | Restarting
    | Validated
    | Planned
    | PluginDescribed
    | LoggersListed
    | LoggersSet
    | Draining
    | DeadLettersAnswer
    | OffsetsAnswer
)
