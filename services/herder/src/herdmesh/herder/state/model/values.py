"""Values of the herder's state: stored entries, statuses, workers' reports. Plain and immutable.

Owns no behaviour beyond comparing and naming. The values that herder and worker share (units, assignments, states) are
in `herdmesh.session.model`; `herdmesh.herder.wire` translates the rest.

Invariant: every value here is immutable, so events, instructions, views and state may share it. A few fields named
`wire` carry a message of the wire unopened: the state never reads it, it only passes it on.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum, unique

from herdmesh.connect.task_counts import NO_COUNTS, TaskCounts
from herdmesh.connect.topics import NOT_KNOWN, CommitScope, Lag
from herdmesh.rpc.errors import FieldViolation
from herdmesh.rpc.properties import PropertyValue
from herdmesh.session.model import Condition, Failure, Properties, RunState, TargetState, UnitId
from herdmesh.topicstore.contract import Revision

CLASS_KEY = "connector.class"
PLUGIN_VERSION_KEY = "connector.plugin.version"
NAME_KEY = "name"
TASKS_MAX_KEY = "tasks.max"
TASKS_MAX_ENFORCE_KEY = "tasks.max.enforce"


#: states in which a worker holds the unit.
HELD_STATES = frozenset({RunState.RUNNING, RunState.PAUSED, RunState.FAILED, RunState.RESTARTING, RunState.STOPPED})


@unique
class ConnectorType(StrEnum):
    """Direction of the records; UNKNOWN when neither a worker nor a name shows it (`plugin_catalog.type_of`)."""

    UNKNOWN = "UNSPECIFIED"
    SOURCE = "SOURCE"
    SINK = "SINK"


@unique
class PluginKind(StrEnum):
    """Kind of a plugin; names are those of the proto's `PluginKind`."""

    SOURCE = "SOURCE"
    SINK = "SINK"
    CONVERTER = "CONVERTER"
    HEADER_CONVERTER = "HEADER_CONVERTER"
    TRANSFORMATION = "TRANSFORMATION"
    PREDICATE = "PREDICATE"


@dataclass(frozen=True, slots=True)
class Plugin:
    """A class that a worker can load, under its canonical name and its aliases."""

    class_name: str
    aliases: tuple[str, ...]
    kind: PluginKind
    version: str = ""

    @property
    def is_connector(self) -> bool:
        return self.kind in (PluginKind.SOURCE, PluginKind.SINK)


@dataclass(frozen=True, slots=True)
class RefusedPlugin:
    """A plugin that a worker found and cannot use. `plugin` empty = nothing in the folder can be used."""

    folder: str
    plugin: str
    why: str
    fix: str


@dataclass(frozen=True, slots=True)
class ConnectorEntry:
    """Everything the config store keeps about one connector (`configstore.v1.ConnectorEntry`)."""

    name: str
    has_config: bool = True
    config: Properties = field(default_factory=dict[str, PropertyValue])
    config_revision: Revision | None = None
    target: TargetState | None = None
    target_revision: Revision | None = None
    tasks: tuple[Properties, ...] = ()
    task_digests: tuple[str, ...] = ()
    task_count: int = 0
    inconsistent: bool = False
    applied_config: Properties | None = None
    incarnation: str = ""
    task_set_version: int = 0
    task_count_record: int | None = None
    pending_fencing: bool = False
    foreign: bool = False
    #: by task (None = the connector itself), a requested restart covers every lower generation.
    restarts: Mapping[int | None, int] = field(default_factory=dict[int | None, int])

    @property
    def wanted_state(self) -> TargetState:
        """The target state; nothing stored means STARTED, as in Connect."""
        return self.target or TargetState.STARTED

    @property
    def class_name(self) -> str:
        value = self.config.get(CLASS_KEY)
        return value if isinstance(value, str) else ""

    @property
    def plugin(self) -> tuple[str, str]:
        """The class and its requested version; empty = any version."""
        version = self.config.get(PLUGIN_VERSION_KEY)
        return self.class_name, version if isinstance(version, str) else ""

    @property
    def tasks_max(self) -> int:
        """`tasks.max`; 1 where a foreign writer stored a value that is not a number."""
        value = self.config.get(TASKS_MAX_KEY)
        return int(value) if isinstance(value, str) and value.strip().isdigit() else 1

    @property
    def adopted(self) -> bool:
        """True once our manifest is the last record: before, Java's rules hold and no set of ours was committed."""
        return bool(self.incarnation) and not self.foreign

    @property
    def set_is_current(self) -> bool:
        """True when the committed task set is complete, ours, not empty and created from the current config."""
        return self.adopted and not self.inconsistent and bool(self.tasks) and self.applied_config == self.config

    def digest_of(self, task: int) -> str:
        """The `Assignment.task_digest` of a task of the committed set."""
        return f"{self.task_set_version}:{self.task_digests[task]}"


@dataclass(frozen=True, slots=True)
class RestartNote:
    """A unit's restart history as its status carries it, so that the next leader continues it.

    `tag` names the config it is about (`restart_policy.tag_of`); `attempts_ms` are the times of the restarts within the
    window, oldest first; `attempt` of `attempts_max` is due, under way or was last; `next_ms` is when it is due, None =
    it is not; `since_ms` is when the unit failed.
    """

    tag: str
    attempts_ms: tuple[int, ...] = ()
    attempt: int = 0
    attempts_max: int = 0
    next_ms: int | None = None
    since_ms: int | None = None


@dataclass(frozen=True, slots=True)
class StatusEntry:
    """A status as the status store has it (`statusstore.v1.Status`). `conditions` are those that are not in `note`;
    `revision` is that of its own record.
    """

    unit: UnitId
    state: RunState
    worker_id: str
    worker_incarnation: str = ""
    generation: int = 0
    trace: str | None = None
    commit_scope: CommitScope | None = None
    version: str | None = None
    conditions: tuple[Condition, ...] = ()
    note: RestartNote | None = None
    revision: Revision | None = None


@dataclass(frozen=True, slots=True)
class Lease:
    """Lease of one incarnation of a worker, from the status store."""

    worker_id: str
    incarnation: str
    live: bool


@dataclass(frozen=True, slots=True)
class RateUse:
    """A task's use of a rate limit of its connector, in records or in bytes."""

    limit_per_second: float
    used_per_second: float
    wants_more: bool


@dataclass(frozen=True, slots=True)
class TaskProgress:
    """Progress of a task. `wire` is the whole message, unopened."""

    unit: UnitId
    lag: Lag = NOT_KNOWN
    wire: object = None
    records_rate: RateUse | None = None
    bytes_rate: RateUse | None = None
    counts: TaskCounts = NO_COUNTS

    @property
    def is_limited(self) -> bool:
        """True while the task runs under a rate limit."""
        return self.records_rate is not None or self.bytes_rate is not None


@dataclass(frozen=True, slots=True)
class Validation:
    """A worker's verdict on a config. `wire` is the whole result, unopened."""

    violations: tuple[FieldViolation, ...] = ()
    wire: object = None


@dataclass(frozen=True, slots=True)
class ClusterLevel:
    """The level of a logger on every worker. `revision` is that of its record in the config topic: a level that was set
    later has a later one.
    """

    logger: str
    level: str
    revision: Revision


@dataclass(frozen=True, slots=True)
class LoggerLevel:
    """A logger of a worker. `modified_ms` by the worker's wall clock, None = its level was never changed."""

    logger: str
    level: str
    modified_ms: int | None = None


@dataclass(frozen=True, slots=True)
class SessionKey:
    """Age and kind of the key that signs Connect's internal requests, without any of its bytes. `age_ms` is by wall
    clocks at the moment of the event; below 0 when the clock of the key's creator is ahead.
    """

    algorithm: str
    size_bytes: int
    age_ms: int


@dataclass(frozen=True, slots=True)
class AutoRestart:
    """Automatic restarts of a unit, as users see them.

    `attempt` is under way or comes next, from 1; attempts_max + 1 when the budget is spent. `next_ms` None = no
    automatic restart is scheduled. `under_way` = the unit is being restarted now.
    """

    attempt: int
    attempts_max: int
    next_ms: int | None = None
    failure: Failure | None = None
    under_way: bool = False


@dataclass(frozen=True, slots=True)
class RestartPolicy:
    """Numbers of the restart policy (`restart_policy.py`): from the herder's settings, or of one connector."""

    enabled: bool = True
    attempts_max: int = 10
    window_ms: int = 3_600_000
    backoff_ms: int = 1_000
    backoff_max_ms: int = 300_000
    #: the largest share of a backoff that chance may subtract, 0 to 0.5.
    jitter: float = 0.2

    def within(self, times_ms: Iterable[int], now: int) -> list[int]:
        """The times that still count for the budget."""
        return [at_ms for at_ms in times_ms if at_ms > now - self.window_ms]


@dataclass(frozen=True, slots=True)
class Rules:
    """Numbers that the state works by; `settings.py` explains them to an operator."""

    herder_id: str = "herder"
    session_timeout_ms: int = 6_000
    stream_grace_ms: int = 2_000
    rebalance_delay_ms: int = 0
    stop_timeout_ms: int = 30_000
    #: nothing starts on the very first worker until no other joined for this time, or for three times this: it would
    #: get all units, and the next workers none.
    initial_delay_ms: int = 0
    #: how long the units of a leaving worker run on there: when all workers are stopped, no unit should start on one
    #: that announces its own stop a moment later. More workers that leave meanwhile lengthen it, up to three times
    #: this.
    leave_gather_ms: int = 500
    heartbeat_ms: int = 1_000
    #: when units that could stay move for balance, and how many at once: see `balance.py`.
    balance_enabled: bool = True
    balance_delay_ms: int = 60_000
    balance_moves_max: int = 10
    balance_threshold_percent: int = 5
    session_key_algorithm: str = "HmacSHA256"
    session_key_bytes: int = 32
    #: 0 = a key never expires.
    session_key_ttl_ms: int = 3_600_000
    restart: RestartPolicy = field(default_factory=RestartPolicy)
    #: seed of the restarts' jitter, together with the unit and the attempt.
    seed: int = 0
