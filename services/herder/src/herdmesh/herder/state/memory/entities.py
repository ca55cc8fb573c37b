"""Entities: what a leading herder remembers of each worker, unit, connector and call, as mutable records.

Owns their shape and what can be read off one record alone. Does not own how they change (`herder_memory.py`) nor any
decision.

Invariant: a unit has at most one `placement`. Every other place that may still run it is one of its `superseded`, all
told to stop; a unit is started only when it has neither.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum, unique

from herdmesh.connect.spi import Wait
from herdmesh.herder.state.model import ConnectorEntry, LoggerLevel, Plugin, RefusedPlugin, TaskProgress, Validation
from herdmesh.herder.state.model.instructions import StatusChange
from herdmesh.herder.state.model.plugin_versions import meets
from herdmesh.herder.state.model.requests import OffsetsAnswer, Request, RestartItem, WriteOptions
from herdmesh.herder.state.model.restart_policy import RestartHistory
from herdmesh.rpc.errors import HerdmeshError
from herdmesh.session.model import Assignment, Failure, Properties, RunState, TargetState, UnitId
from herdmesh.session.worker_commands import WorkerCommand
from herdmesh.topicstore.contract import Revision


@dataclass(slots=True)
class Member:
    """One life of a worker process, from its hello until it leaves or is lost. `session` None = its stream broke."""

    worker_id: str
    incarnation: str
    address: str
    slots: int
    plugins: tuple[Plugin, ...]
    session: int | None
    connected_ms: int
    last_message_ms: int
    broken_ms: int | None = None
    draining: bool = False
    #: what this leader was asked last: to drain it, or not to. None = nothing.
    drain_requested: bool | None = None
    leaving: bool = False
    #: lives of the same id that this one replaced, the latest last; and who of them dialled in since, and when.
    replaced: tuple[str, ...] = ()
    duplicate: str = ""
    duplicate_ms: int = 0
    connectors: dict[str, Plugin] = field(default_factory=dict[str, Plugin])
    #: the versions of each connector, by class and alias.
    versions: dict[str, set[str]] = field(default_factory=dict[str, set[str]])
    #: likewise of each transformation, predicate and converter.
    step_versions: dict[str, set[str]] = field(default_factory=dict[str, set[str]])
    #: what it found and cannot use.
    refused: tuple[RefusedPlugin, ...] = ()
    #: it may find a plugin that it has not told of.
    has_plugin_folders: bool = False
    #: units held and strays, by unit: how many holds and strays of it this worker has.
    load: dict[UnitId, int] = field(default_factory=dict[UnitId, int])
    #: what it was told over this session of the rate limits of connectors: records and bytes per second for each task.
    rates: dict[str, tuple[float, float]] = field(default_factory=dict[str, tuple[float, float]])

    def __post_init__(self) -> None:
        self.set_plugins(self.plugins, self.refused)

    def set_plugins(self, plugins: tuple[Plugin, ...], refused: tuple[RefusedPlugin, ...]) -> None:
        """Note what it can load, and what of its plugin folders it cannot."""
        self.plugins, self.refused = plugins, refused
        self.connectors, self.versions, self.step_versions = {}, {}, {}
        for plugin in plugins:
            if plugin.is_connector:
                self.connectors.update(dict.fromkeys((plugin.class_name, *plugin.aliases), plugin))
            versions = self.versions if plugin.is_connector else self.step_versions
            for name in (plugin.class_name, *plugin.aliases):
                versions.setdefault(name, set()).add(plugin.version)

    @property
    def takes_work(self) -> bool:
        return self.session is not None and not self.draining

    def has_plugin(self, plugin: tuple[str, str]) -> bool:
        """True when it can load the class in the version asked for (`ConnectorEntry.plugin`)."""
        return has(self.versions, plugin)

    def has_same_plugins(self, other: Member) -> bool:
        """Whatever one of them can run, the other can."""
        return self.versions == other.versions and self.step_versions == other.step_versions


def has(versions: Mapping[str, set[str]], plugin: tuple[str, str]) -> bool:
    """True when a class is among these, in the version asked for."""
    class_name, wanted = plugin
    return any(meets(version, wanted) for version in versions.get(class_name, ()))


@dataclass(slots=True)
class Placement:
    """A unit in a worker's hands. `state` None = told to start, no report yet. `target` = what it was last told."""

    worker_id: str
    assignment: Assignment
    since_ms: int
    state: RunState | None = None
    failure: Failure | None = None
    target: TargetState | None = None
    stop_sent_ms: int = 0
    #: RUNNING since this time, also while paused; None = it has not been.
    ran_since_ms: int | None = None
    #: FAILED by our own judgement, of which its worker knows nothing.
    judged: bool = False
    #: False = it was taken over in this state, and `since_ms` is only when.
    since_known: bool = True
    #: why this worker has it, and since when (None = it had it before this leader).
    because: str = ""
    placed_ms: int | None = None
    #: it was another worker's before, which went.
    displaced: bool = False


@dataclass(slots=True)
class Unit:
    """A connector or task, where it is and where it goes."""

    id: UnitId
    placement: Placement | None = None
    superseded: list[Placement] = field(default_factory=lambda: [])
    #: the worker it goes to once its strays are gone.
    destination: str | None = None
    #: why its next start comes; empty = nobody has had it under this leader.
    because: str = ""
    #: not started before this time: it was just given up unasked, or fenced.
    not_before_ms: int = 0
    given_up_count: int = 0
    #: lost with this worker: kept for it until this time (`scheduled.rebalance.max.delay.ms`), and its again when it
    #: returns before anybody else took it.
    waits_for: str = ""
    waits_until_ms: int = 0
    restarting: bool = False
    #: the restart policy's account; None = what its status says of it was not read yet.
    account: RestartHistory | None = None
    #: its status is to say RESTARTING until the next start has been reported.
    says_restarting: bool = False
    #: the write of its status under way, the change written last, and when a failed one may be repeated.
    status_op: int | None = None
    status_change: StatusChange | None = None
    status_ms: int = 0
    start_count: int = 0
    #: of the newest assignment this leader gave or adopted: an older claim was replaced, also once the newer is over.
    newest_generation: int = 0
    idle_since_ms: int | None = None
    #: the worker that held it last under this leader; empty = none has.
    last_worker_id: str = ""
    #: it was stopped to go elsewhere for balance, and did not start since.
    balancing: bool = False
    progress: TaskProgress | None = None
    #: what its worker said that it waits for, over the session.
    wait: Wait | None = None

    def placements(self) -> Iterator[Placement]:
        """Every place that may run it."""
        if self.placement is not None:
            yield self.placement
        yield from self.superseded


@dataclass(slots=True)
class Balance:
    """What a balance would change, as it was counted last (`balance.py`)."""

    #: how many units would move.
    moves: int = 0
    #: since when there are any.
    since_ms: int = 0
    #: by worker: how many units it would have more than it has now.
    changes: dict[str, int] = field(default_factory=dict[str, int])
    #: moves have begun, and go on until none is left.
    under_way: bool = False
    #: loads may have changed since it was counted.
    outdated: bool = True
    looked_ms: int = 0

    def end_leadership(self) -> None:
        """Forget what was counted."""
        self.moves = self.since_ms = self.looked_ms = 0
        self.changes = {}
        self.under_way, self.outdated = False, True


@unique
class Generate(StrEnum):
    """Whether a connector is to make task configs. WANTED -> REQUESTED -> NO, and back to WANTED."""

    NO = "NO"
    WANTED = "WANTED"
    REQUESTED = "REQUESTED"


@dataclass(slots=True)
class Connector:
    """One connector of the config store, or one that was deleted and still winds down (`entry` None)."""

    name: str
    entry: ConnectorEntry | None = None
    units: dict[int | None, Unit] = field(default_factory=dict[int | None, Unit])
    generate: Generate = Generate.NO
    #: task configs made and not yet committed.
    made: tuple[Properties, ...] | None = None
    #: why the last task configs could not be made or stored.
    trouble: str = ""
    #: the one write, or fence command, under way for this connector.
    busy: bool = False
    #: a write was acknowledged at this revision and has not come through the watch yet.
    wait_revision: Revision | None = None
    #: failures in a row, and when to try again: of making task configs, and of our own writes and fences.
    generate_attempts: int = 0
    generate_ms: int = 0
    write_attempts: int = 0
    write_ms: int = 0
    #: how many stops of tasks are not acknowledged.
    superseded_tasks: int = 0
    cleaning: bool = False
    #: it has statuses of tasks that are not in its set, and a look at them comes.
    has_leftovers: bool = False
    cleaning_due: bool = False
    clean_ms: int = 0
    #: statuses of lower generations are of an earlier life of the name: what they say of commits does not count.
    commits_from: int = 0
    #: topics that its tasks have committed, by group, as their statuses say; None = not read yet.
    committed: dict[str, set[str]] | None = None
    #: task numbers that may still run on a worker we lost: a changed task set must fence them first. Also those that
    #: run elsewhere by now: the lost worker may take the id back from one that is idle.
    unfenced: set[int] = field(default_factory=set[int])
    #: those that the fence under way is for, and that were not lost anew since it was asked for.
    fencing: set[int] = field(default_factory=set[int])

    @property
    def stored(self) -> ConnectorEntry | None:
        """The entry if it has a config: without one there is no connector, whatever else is stored."""
        return self.entry if self.entry is not None and self.entry.has_config else None

    def tasks(self) -> Iterator[Unit]:
        """Every task known, sorted by number."""
        for number in sorted(task for task in self.units if task is not None):
            yield self.units[number]

    def unit(self, task: int | None) -> Unit:
        """The unit, made when missing."""
        found = self.units.get(task)
        if found is None:
            found = self.units[task] = Unit(UnitId(self.name, task))
        return found


@unique
class CallStage(StrEnum):
    """Where a call is, as a timeout tells it."""

    VALIDATING = "validating the config on a worker"
    PLANNING = "making task configs on a worker"
    DESCRIBING = "reading a plugin's config definition from a worker"
    LOGGERS = "reading the loggers of the workers"
    OTHER_CREATE = "waiting for another create of that name to end"
    WINDING_DOWN = "waiting for the tasks of an earlier connector of that name to stop"
    FENCING = "fencing the tasks of an earlier connector of that name on a worker"
    OFFSETS = "having a worker prepare the initial offsets"
    OTHER_OFFSETS = "waiting for another change of the connector, or of its offsets, to end"
    STOPPING = "waiting for the connector's tasks to stop"
    FENCING_STOPPED = "fencing the connector's earlier tasks on a worker"
    BEGINNING = "recording with the config store that a change of offsets begins"
    BEGUN = "waiting to read back from the config store that a change of offsets has begun"
    READING_OFFSETS = "having a worker read the offsets"
    CHANGING_OFFSETS = "having a worker change the offsets"
    FORGETTING = "removing the record of the tasks' commits from the status store"
    DEAD_LETTERS = "having a worker read or replay dead letters"
    DRAINING = "waiting for the worker to acknowledge it"
    WRITING = "writing to the config store"
    LOOKING_BACK = "checking with the config store whether an earlier request of this id was applied"
    READING_BACK = "waiting to read the write back from the config store"


@dataclass(slots=True)
class Call:
    """A request under way."""

    id: int
    request: Request
    options: WriteOptions
    deadline_ms: int
    stage: CallStage = CallStage.VALIDATING
    name: str = ""
    config: Properties | None = None
    revision: Revision | None = None
    created: bool = False
    restarted: tuple[RestartItem, ...] = ()
    attempts: int = 0
    #: what it is refused with unless an earlier request of its id was applied.
    refusal: HerdmeshError | None = None
    #: ids of the questions to workers under way for it.
    command_ids: set[str] = field(default_factory=set[str])
    #: a worker has prepared the initial offsets: the wire's `PreparedOffsets`, None = it has written them to its file.
    offsets_ready: bool = False
    prepared_offsets: object = None
    #: the offsets that a reset is to forget, as a worker read them before anybody began to.
    offsets_before: OffsetsAnswer | None = None
    #: what a worker said of the offsets it changed.
    offsets_after: OffsetsAnswer | None = None
    #: the config store knows that this call began to change offsets.
    begun: bool = False
    #: who may have changed the offsets, as a sentence: a worker that went away, or an earlier request of this id.
    may_have: str = ""
    #: what workers said so far, where one question is not all.
    validation: Validation | None = None
    loggers: list[tuple[str, LoggerLevel]] = field(default_factory=list[tuple[str, LoggerLevel]])
    #: it changes the connector's offsets, and no other call may change the connector meanwhile.
    changes_offsets: bool = False
    #: its write may create the connector.
    may_create: bool = False
    #: the logger and the level that it sets in the whole cluster.
    cluster_level: tuple[str, str] | None = None
    #: the workers were told the logger level it sets.
    level_sent: bool = False


@unique
class OpKind(StrEnum):
    """What a write under way is for."""

    CALL = "CALL"
    COMMIT = "COMMIT"
    COUNT = "COUNT"
    CLEAN = "CLEAN"
    SESSION_KEY = "SESSION_KEY"
    STATUS = "STATUS"


@dataclass(frozen=True, slots=True)
class Op:
    """A write under way: of a call, of a connector's own affairs, or of a session key."""

    kind: OpKind
    connector: str = ""
    call: int = 0
    #: of a write of statuses: whose.
    tasks: tuple[int | None, ...] = ()


@dataclass(frozen=True, slots=True)
class Command:
    """A question on its way to a worker: asked for a call, or (`call` None) for a connector's own affairs."""

    id: str
    session: int
    worker_id: str
    question: WorkerCommand
    sent_ms: int
    call: int | None = None
    connector: str = ""
