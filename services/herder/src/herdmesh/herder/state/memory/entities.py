"""Entities: a leading herder's records of each worker, unit, connector and call, mutable.

Owns their fields and queries about one record alone. Does not own how they change (`herder_memory.py`) nor any
decision.

Invariant: a unit has at most one `placement`. Every other placement that may still run it is one of its `superseded`,
all with a stop command sent; a unit is started only when it has neither.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum, unique

from herdmesh.connect.spi import Wait
from herdmesh.connect.task_counts import TaskCounts
from herdmesh.herder.state.model import ConnectorEntry, LoggerLevel, Plugin, RefusedPlugin, TaskProgress, Validation
from herdmesh.herder.state.model.instructions import StatusChange
from herdmesh.herder.state.model.plugin_versions import meets
from herdmesh.herder.state.model.requests import OffsetsAnswer, Request, RestartItem, WriteOptions
from herdmesh.herder.state.model.restart_policy import RestartHistory
from herdmesh.rpc.errors import HerdmeshError
from herdmesh.session.model import Assignment, Failure, Properties, RunState, SlotUse, TargetState, UnitId
from herdmesh.session.worker_commands import WorkerCommand
from herdmesh.topicstore.contract import Revision


@dataclass(slots=True)
class Member:
    """One incarnation of a worker, from its hello until it leaves or is lost. `session` None = its stream broke."""

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
    #: the last request to this leader: True to drain it, False to undrain it. None = no request.
    drain_requested: bool | None = None
    leaving: bool = False
    #: incarnations of the same id that this one replaced, the latest last; and which of them dialled in since, and
    #: when.
    replaced: tuple[str, ...] = ()
    duplicate: str = ""
    duplicate_ms: int = 0
    connectors: dict[str, Plugin] = field(default_factory=dict[str, Plugin])
    #: the versions of each connector, by class and alias.
    versions: dict[str, set[str]] = field(default_factory=dict[str, set[str]])
    #: the versions of each transformation, predicate and converter, by class and alias.
    step_versions: dict[str, set[str]] = field(default_factory=dict[str, set[str]])
    #: plugins that it found and cannot use.
    refused: tuple[RefusedPlugin, ...] = ()
    #: it may find a plugin that it has not reported.
    has_plugin_folders: bool = False
    #: by its last heartbeat; None = unknown.
    slot_use: SlotUse | None = None
    #: by unit, the number of its placements on this worker, superseded ones included.
    load: dict[UnitId, int] = field(default_factory=dict[UnitId, int])
    #: rate limits of connectors sent over this session: records and bytes per second for each task.
    rates: dict[str, tuple[float, float]] = field(default_factory=dict[str, tuple[float, float]])

    def __post_init__(self) -> None:
        self.set_plugins(self.plugins, self.refused)

    def set_plugins(self, plugins: tuple[Plugin, ...], refused: tuple[RefusedPlugin, ...]) -> None:
        """Store the plugins that the worker can load, and those of its plugin folders that it cannot."""
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
        """True when it can load the class in the requested version (`ConnectorEntry.plugin`)."""
        return has(self.versions, plugin)

    def has_same_plugins(self, other: Member) -> bool:
        """True when each of the two workers can run everything that the other can."""
        return self.versions == other.versions and self.step_versions == other.step_versions


def has(versions: Mapping[str, set[str]], plugin: tuple[str, str]) -> bool:
    """True when a class is among these, in the requested version."""
    class_name, wanted = plugin
    return any(meets(version, wanted) for version in versions.get(class_name, ()))


@dataclass(slots=True)
class Placement:
    """A unit on a worker. `state` None = start sent, no report yet. `target` = the last target sent to the worker."""

    worker_id: str
    assignment: Assignment
    since_ms: int
    state: RunState | None = None
    failure: Failure | None = None
    target: TargetState | None = None
    stop_sent_ms: int = 0
    #: RUNNING since this time, also while paused; None = never yet.
    ran_since_ms: int | None = None
    #: the leader judged it FAILED; its worker does not know.
    judged: bool = False
    #: False = adopted in this state, and `since_ms` is only the time of the adoption.
    since_known: bool = True
    #: why this worker has it, and since when (None = since before this leader).
    because: str = ""
    placed_ms: int | None = None
    #: it was on another worker before, which left or was lost.
    displaced: bool = False


@dataclass(slots=True)
class Unit:
    """A connector or task with its placements and its destination."""

    id: UnitId
    placement: Placement | None = None
    superseded: list[Placement] = field(default_factory=lambda: [])
    #: the worker that gets it once its superseded placements have ended.
    destination: str | None = None
    #: the reason of its next start; empty = no worker has had it under this leader.
    because: str = ""
    #: not started before this time: its worker released it unasked, or it was fenced.
    not_before_ms: int = 0
    release_count: int = 0
    #: lost with this worker. Until this time (`scheduled.rebalance.max.delay.ms`) it is kept for that worker, which
    #: gets it back if it returns before another worker took the unit.
    waits_for: str = ""
    waits_until_ms: int = 0
    restarting: bool = False
    #: its restart history; None = the history in its status was not read yet.
    history: RestartHistory | None = None
    #: its status must show RESTARTING until the next start was reported.
    shows_restarting: bool = False
    #: the write of its status under way, the change written last, and when a failed one may be repeated.
    status_op: int | None = None
    status_change: StatusChange | None = None
    status_ms: int = 0
    start_count: int = 0
    #: of the newest assignment this leader gave or adopted: older claims are superseded, also after the newer one has
    #: ended.
    newest_generation: int = 0
    idle_since_ms: int | None = None
    #: the worker that held it last under this leader; empty = none.
    last_worker_id: str = ""
    #: it was stopped to move for balance, and has not started since.
    balancing: bool = False
    progress: TaskProgress | None = None
    #: the wait that its worker reported over the session.
    wait: Wait | None = None

    def placements(self) -> Iterator[Placement]:
        """Every placement that may run it."""
        if self.placement is not None:
            yield self.placement
        yield from self.superseded


@dataclass(slots=True)
class Balance:
    """Moves that a balance would make, by the latest count (`balance.py`)."""

    #: the number of units that would move.
    moves: int = 0
    #: the time since which units would move.
    since_ms: int = 0
    #: by worker: how many more units it would have than now.
    changes: dict[str, int] = field(default_factory=dict[str, int])
    #: moves have begun, and continue until none is left.
    under_way: bool = False
    #: loads may have changed since the count.
    outdated: bool = True
    checked_ms: int = 0

    def end_leadership(self) -> None:
        """Forget the count."""
        self.moves = self.since_ms = self.checked_ms = 0
        self.changes = {}
        self.under_way, self.outdated = False, True


@unique
class Generate(StrEnum):
    """State of a task-config request to a connector. WANTED -> REQUESTED -> NO, and back to WANTED."""

    NO = "NO"
    WANTED = "WANTED"
    REQUESTED = "REQUESTED"


@dataclass(slots=True)
class Connector:
    """One connector of the config store, or a deleted one that is still winding down (`entry` None)."""

    name: str
    entry: ConnectorEntry | None = None
    #: classes and versions that a config names, found once for each config (`plugin_eligibility.needs_of`).
    needs: tuple[tuple[str, str], ...] = ()
    needs_config: Properties | None = None
    units: dict[int | None, Unit] = field(default_factory=dict[int | None, Unit])
    generate: Generate = Generate.NO
    #: task configs that the connector returned and that are not committed.
    made: tuple[Properties, ...] | None = None
    #: why the last task configs could not be created or stored.
    trouble: str = ""
    #: a write or a fence command for this connector is under way; at most one is.
    busy: bool = False
    #: a write was acknowledged at this revision, and the watch has not brought it yet.
    wait_revision: Revision | None = None
    #: failures in a row and the time of the next attempt, for task-config requests and for our own writes and fences.
    generate_attempts: int = 0
    generate_ms: int = 0
    write_attempts: int = 0
    write_ms: int = 0
    #: the number of stops of tasks without an acknowledgement.
    superseded_tasks: int = 0
    cleaning: bool = False
    #: it has statuses of tasks that are not in its set, and they are to be checked.
    has_leftovers: bool = False
    cleaning_due: bool = False
    clean_ms: int = 0
    #: statuses of lower generations are of an earlier incarnation of the name: their commits do not count.
    commits_from: int = 0
    #: topics that its tasks have committed, by group, from their statuses; None = not read yet.
    committed: dict[str, set[str]] | None = None
    #: the latest known counts of its tasks by number, removed tasks included, of the incarnation `counts_of`.
    counts: dict[int, TaskCounts] = field(default_factory=dict[int, TaskCounts])
    counts_of: str = ""
    #: task numbers that may still run on a lost worker: a changed task set must fence them first. They include numbers
    #: that run elsewhere by now: the lost worker may take the id over again from an idle task.
    unfenced: set[int] = field(default_factory=set[int])
    #: the numbers that the fence under way covers and that were not lost again since its command.
    fencing: set[int] = field(default_factory=set[int])

    @property
    def stored(self) -> ConnectorEntry | None:
        """The entry if it has a config: without one the connector does not exist, whatever else is stored."""
        return self.entry if self.entry is not None and self.entry.has_config else None

    def tasks(self) -> Iterator[Unit]:
        """Every known task, sorted by number."""
        for number in sorted(task for task in self.units if task is not None):
            yield self.units[number]

    def unit(self, task: int | None) -> Unit:
        """The unit, created when missing."""
        found = self.units.get(task)
        if found is None:
            found = self.units[task] = Unit(UnitId(self.name, task))
        return found


@unique
class CallStage(StrEnum):
    """Step of a call, as the timeout error names it."""

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
    unchanged: bool = False
    restarted: tuple[RestartItem, ...] = ()
    attempts: int = 0
    #: the error to refuse it with unless an earlier request of its id was applied.
    refusal: HerdmeshError | None = None
    #: ids of its commands under way to workers.
    command_ids: set[str] = field(default_factory=set[str])
    #: a worker has prepared the initial offsets: the wire's `PreparedOffsets`, None = it has written them to its file.
    offsets_ready: bool = False
    prepared_offsets: object = None
    #: the offsets that a reset is to delete, as a worker read them before any worker began to delete.
    offsets_before: OffsetsAnswer | None = None
    #: the offsets as changed, from the worker's reply.
    offsets_after: OffsetsAnswer | None = None
    #: the config store has recorded that this call began to change offsets.
    begun: bool = False
    #: who may have changed the offsets, as a sentence: a lost worker, or an earlier request of this id.
    may_have: str = ""
    #: replies of workers so far, where one reply is not enough.
    validation: Validation | None = None
    loggers: list[tuple[str, LoggerLevel]] = field(default_factory=list[tuple[str, LoggerLevel]])
    #: it changes the connector's offsets, and no other call may change the connector meanwhile.
    changes_offsets: bool = False
    #: its write may create the connector.
    may_create: bool = False
    #: the logger and the level that it sets in the whole cluster.
    cluster_level: tuple[str, str] | None = None
    #: the logger level was sent to the workers.
    level_sent: bool = False


@unique
class OpKind(StrEnum):
    """Purpose of a write under way."""

    CALL = "CALL"
    COMMIT = "COMMIT"
    COUNT = "COUNT"
    CLEAN = "CLEAN"
    SESSION_KEY = "SESSION_KEY"
    STATUS = "STATUS"


@dataclass(frozen=True, slots=True)
class Op:
    """A write under way: for a call, for a connector's own work, or of a session key."""

    kind: OpKind
    connector: str = ""
    call: int = 0
    #: for a write of statuses: the units.
    tasks: tuple[int | None, ...] = ()


@dataclass(frozen=True, slots=True)
class Command:
    """A command on its way to a worker: for a call, or (`call` None) for a connector's own work."""

    id: str
    session: int
    worker_id: str
    body: WorkerCommand
    sent_ms: int
    call: int | None = None
    connector: str = ""
