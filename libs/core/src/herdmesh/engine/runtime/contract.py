"""Contract between a worker and a run: the spec of the run, the link while it lasts, its outcome.

Owns the value types and the `RunLink` protocol. Owns no behaviour: the loop is `engine.run`, the wire is the worker's.

Invariant: everything here but the link is immutable and can be pickled, because a spec travels to a Spark executor and
an outcome travels back.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

from herdmesh.connect.spi import PluginImports
from herdmesh.connect.topics import CommitScope
from herdmesh.engine.runtime.measures import NOTHING, Measures

Properties = Mapping[str, str | None]


class TaskKind(StrEnum):
    """Which way a task moves records."""

    SINK = "sink"
    SOURCE = "source"


class RunEnd(StrEnum):
    """Why a run ended without an error; names equal the proto enum `RunEnd`."""

    QUIET = "QUIET"
    """Nothing to do for `linger_ms`, and not to stay warm."""
    STOPPED = "STOPPED"
    """The worker told it to stop."""
    YIELDED = "YIELDED"
    """Its share of the slot is used and other tasks wait."""


@dataclass(frozen=True, slots=True)
class TaskSetClaim:
    """Which task set a run believes to be part of, and from where in the config topic newer ones would be found. With
    an empty digest: that nothing is written of the connector from there on. With an empty incarnation: that there is no
    such connector."""

    config_topic: str
    offset: int
    """Where in the topic the set was still in force: what the leader had read when it started the task, or, later, the
    end at which an earlier run of it looked."""
    incarnation: str
    task_digest: str
    """`<task set generation>:<digest of the task's config>`, as the leader gave it."""


@dataclass(frozen=True, slots=True)
class RunSpec:
    """Everything a run needs to know; made by the worker, executed anywhere."""

    run_id: str
    """Names this run among all runs ever; part of the names of staged files."""
    connector: str
    task: int
    """Number of the task, from 0."""
    task_count: int
    """Tasks of the connector; decides with `task` which partitions a sink task owns."""
    kind: TaskKind
    task_class: str
    """Import path `module:Class` of the SinkTask or SourceTask."""
    connector_config: Properties
    """The connector's config: converters, transformations, topics, `consumer.override.*` and the like."""
    task_config: Properties
    """What the connector made for this task."""
    bootstrap_servers: str
    group_id: str
    """The Connect cluster's `group.id`."""
    offset_storage_topic: str
    """Connect's offsets topic, for sources."""
    transactional_id: str
    """The fence: `<group.id>-<connector>-<task>`."""
    worker_config: Properties = field(default_factory=dict[str, str | None])
    """Defaults of the worker: `key.converter`, `value.converter`, `offset.flush.interval.ms`, ..."""
    linger_ms: int = 5_000
    """A run ends, or turns warm, after so long without a record."""
    stays_warm: bool = False
    """True = a quiet run goes on, having committed all it read, until it is told to rest (ADR 0009)."""
    poll_interval_max_ms: int = 300_000
    """A run whose loop stands still for so long is killed (`max.poll.interval.ms`)."""
    memory_max_bytes: int = 0
    """A run whose process has more memory than that is killed (`herdmesh.memory.max`); 0 = no bound."""
    continuous: bool = False
    """True = a run is never quiet (`herdmesh.trigger=continuous`)."""
    commit_scope: CommitScope | None = None
    """What the task's last commit that is known of was for: offsets that are missing there are a loss (`positions`)."""
    source_offsets: Mapping[bytes, bytes] | None = None
    """The source connector's offsets, in the bytes of the offsets topic, where the worker keeps them in a file
    (standalone mode, ADR 0003); None = they are in the offsets topic."""
    claim: TaskSetClaim | None = None
    """To be verified after the take-over (`engine.fencing.task_set_check`); None = there is no config topic
    (standalone mode)."""
    secrets: tuple[str, ...] = ()
    """What the worker resolved references in the configs to: no text that leaves the run may contain one."""
    generation: int = 0
    """Of the assignment."""
    traceparent: str = ""
    """W3C trace context of the call that made the task start; empty = of none."""
    imports: PluginImports | None = None
    """Where the task is imported from, of a plugin with a virtual environment of its own; None = it is installed."""


@dataclass(frozen=True, slots=True)
class Stop:
    """Commit and end."""

    reason: str = ""


@dataclass(frozen=True, slots=True)
class Rate:
    """The most the task may take, of what the connector is limited to (`herdmesh.rate.*`); 0 = its equal part, as in
    the beginning. Without effect on what the connector does not limit."""

    records_per_second: float = 0.0
    bytes_per_second: float = 0.0


@dataclass(frozen=True, slots=True)
class Share:
    """Others wait for the slot: commit and end once all is read, at the latest when the run has lasted so long."""

    run_ms: int


@dataclass(frozen=True, slots=True)
class Rest:
    """Do not stay warm: end now if the run is, else when it next would be."""


Command = Stop | Rate | Share | Rest


@dataclass(frozen=True, slots=True)
class PartitionProgress:
    """One partition of a sink task; offsets are Kafka's, -1 = not known or none."""

    topic: str
    partition: int
    committed_offset: int
    position: int
    end_offset: int


@dataclass(frozen=True, slots=True)
class RateUse:
    """What a task does with a rate limit, of records or of bytes."""

    limit_per_second: float
    """Of the connector, for all its tasks together."""
    used_per_second: float
    """By this task, over the last second or two."""
    wants_more: bool
    """It is held back: it takes all that it may."""


@dataclass(frozen=True, slots=True)
class ErrorCounts:
    """Records that failed (docs/reference/connect/data-model.md, section 6.6)."""

    failures: int = 0
    """Attempts that failed, those that were tried again among them."""
    errors: int = 0
    """Operations that ended failed."""
    skipped: int = 0
    """Records given up."""
    retries: int = 0
    logged: int = 0
    """Failures written to the log."""
    dead_letters: int = 0
    """Records put on their way to the dead letter queue."""
    dead_letters_failed: int = 0
    """Of these, those Kafka did not take."""
    last_error_ms: int = 0
    """Epoch time of the last failure, 0 = none."""
    dead_letters_cut: int = 0
    """Of `dead_letters`, those that were too large for the queue's topic: they say where their record is."""

    def __add__(self, other: ErrorCounts) -> ErrorCounts:
        return ErrorCounts(
            self.failures + other.failures,
            self.errors + other.errors,
            self.skipped + other.skipped,
            self.retries + other.retries,
            self.logged + other.logged,
            self.dead_letters + other.dead_letters,
            self.dead_letters_failed + other.dead_letters_failed,
            max(self.last_error_ms, other.last_error_ms),
            self.dead_letters_cut + other.dead_letters_cut,
        )


PRODUCED_MAX = 1_000
"""Topics of a source that its progress names at most: it is sent several times a second."""


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a run has come. Counts are of this run; the worker adds up the runs of a task."""

    records_in: int = 0
    """Records read from Kafka (sink) or polled (source)."""
    records_out: int = 0
    """Records given to the sink's task, or acknowledged by Kafka."""
    records_dropped: int = 0
    """Records a transformation dropped, or that failed and were given up."""
    partitions: tuple[PartitionProgress, ...] = ()
    """The partitions a sink task owns, sorted; empty for a source."""
    records_per_second: float = 0.0
    """Records in, over the last seconds."""
    commit_time_ms: int | None = None
    """Epoch time of the last offset commit, None = none yet."""
    commit_scope: CommitScope | None = None
    """What the task's last commit was for, None = it never committed (starts as the spec says)."""
    produced: tuple[tuple[str, int], ...] = ()
    """The topics a source wrote to and how many committed records to each, sorted, at most PRODUCED_MAX; empty for a
    sink."""
    config_offset: int | None = None
    """Up to there the config topic says nothing against the task set; None = nobody looked."""
    errors: ErrorCounts = ErrorCounts()
    """Records that failed."""
    records_rate: RateUse | None = None
    """What it does with the limit of records; None = there is none."""
    bytes_rate: RateUse | None = None
    """Likewise of bytes."""
    warm: bool = False
    """Of a run that goes on though it had nothing to do for `linger_ms`: it has committed all it read."""
    measures: Measures = NOTHING
    """Sizes and times since the run's report before; nothing in what the worker adds up."""


@dataclass(frozen=True, slots=True)
class RunOutcome:
    """How a run ended without an error."""

    reason: RunEnd
    progress: Progress
    wake_after_ms: int = 0
    """When a source wants to be polled again; 0 = the offset watcher decides (sinks). Of a run that yielded: when a
    rate limit lets the task go on."""


class RunSpans(Protocol):
    """Who makes spans of a run's batches and commits, and how many of them. Called from the loop's thread only, once
    for each; a run that is not traced has none."""

    def batch(self, begun_ns: int, records: int, place: str) -> None:
        """Records were moved. `begun_ns` is of `time.time_ns`; `place` says where they are from: `topic-0 12..40`."""
        ...

    def commit(self, begun_ns: int, records: int) -> None:
        """Offsets were committed; so many records were moved since the run began."""
        ...


class RunLink(Protocol):
    """The run's line to its worker, called from the loop's thread only.

    No method but `store_offsets` may block, or raise because the line is broken.
    """

    def progress(self, progress: Progress) -> None:
        """Tell how far the run is: about every 200 ms while records move, and after every commit."""
        ...

    def commands(self) -> Sequence[Command]:
        """Return what the worker said since the last call, oldest first."""
        ...

    def store_offsets(self, offsets: Mapping[bytes, bytes | None]) -> None:
        """Have the worker keep source offsets in its file; None forgets one. Called only where the spec has
        `source_offsets`. Returns when they survive a kill of everything.

        Raises:
            TaskFailed: RETRIABLE, when they could not be stored, or nobody says so in time.
        """
        ...
