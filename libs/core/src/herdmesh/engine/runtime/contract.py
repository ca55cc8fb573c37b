"""Contract between a worker and a run: the spec of the run, the link while it lasts, its outcome.

Owns the value types and the `RunLink` protocol. Owns no behaviour: the loop is `engine.run`, the wire is the worker's.

Invariant: everything here but the link is immutable and can be pickled, because a spec travels to a Spark executor and
an outcome travels back.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

from herdmesh.connect.spi import PluginImports
from herdmesh.connect.task_counts import NO_ERRORS, ErrorCounts
from herdmesh.connect.topics import CommitScope
from herdmesh.engine.runtime.measures import NOTHING, Measures

Properties = Mapping[str, str | None]


class TaskKind(StrEnum):
    """The direction in which a task moves records."""

    SINK = "sink"
    SOURCE = "source"


class RunEnd(StrEnum):
    """The reason why a run ended without an error; names equal the proto enum `RunEnd`."""

    QUIET = "QUIET"
    """Nothing to do for `linger_ms`, and the run does not stay warm."""
    STOPPED = "STOPPED"
    """The worker sent a Stop."""
    YIELDED = "YIELDED"
    """Its share of the slot is used and other tasks wait."""


@dataclass(frozen=True, slots=True)
class TaskSetClaim:
    """The task set that a run belongs to in its own view, and the offset of the config topic after which newer ones
    would be. An empty digest claims that the connector has no records from there on. An empty incarnation claims that
    the connector does not exist.
    """

    config_topic: str
    offset: int
    """Offset in the topic at which the set was in force: the leader's position when it started the task, or, later, the
    end that an earlier run of the task read.
    """
    incarnation: str
    task_digest: str
    """`<task set version>:<digest of the task's config>`, from the leader."""


@dataclass(frozen=True, slots=True)
class RunSpec:
    """All inputs of a run; created by the worker, executed anywhere."""

    run_id: str
    """Unique among all runs ever; part of the names of staged files."""
    connector: str
    task: int
    """Number of the task, from 0."""
    task_count: int
    """Number of the connector's tasks; with `task` it determines which partitions a sink task owns."""
    kind: TaskKind
    task_class: str
    """Import path `module:Class` of the SinkTask or SourceTask."""
    connector_config: Properties
    """The connector's config: converters, transformations, topics, `consumer.override.*` and the like."""
    task_config: Properties
    """The task config that the connector returned."""
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
    """A run ends, or becomes warm, after this time without a record."""
    stays_warm: bool = False
    """True = an idle run continues, with everything committed, until it is commanded to end (ADR 0009)."""
    poll_interval_max_ms: int = 300_000
    """A run whose loop makes no progress for this time is killed (`max.poll.interval.ms`)."""
    memory_max_bytes: int = 0
    """A run whose process uses more memory is killed (`herdmesh.memory.max`); 0 = no limit."""
    process_reuse: bool = False
    """True = the process may execute another run after this one (`Connector.process_reuse`)."""
    continuous: bool = False
    """True = a run never counts as idle (`herdmesh.trigger=continuous`)."""
    commit_scope: CommitScope | None = None
    """The scope of the task's last known commit: offsets that are missing there are a loss (`positions`)."""
    source_offsets: Mapping[bytes, bytes] | None = None
    """The source connector's offsets, in the bytes of the offsets topic, if the worker keeps them in a file
    (standalone mode, ADR 0003); None = they are in the offsets topic.
    """
    claim: TaskSetClaim | None = None
    """Verified after the take-over (`engine.fencing.task_set_check`); None = there is no config topic (standalone
    mode).
    """
    secrets: tuple[str, ...] = ()
    """Values to which the worker resolved references in the configs: no text that leaves the run may contain one."""
    generation: int = 0
    """Generation of the assignment."""
    traceparent: str = ""
    """W3C trace context of the call that caused the task's start; empty = none."""
    imports: PluginImports | None = None
    """Import location of a plugin with a virtual environment of its own; None = the task is installed."""


@dataclass(frozen=True, slots=True)
class Stop:
    """Commit and end."""

    reason: str = ""


@dataclass(frozen=True, slots=True)
class Rate:
    """The task's rate within the connector's limits (`herdmesh.rate.*`); 0 = its equal share, as at the beginning. No
    effect on a rate that the connector does not limit.
    """

    records_per_second: float = 0.0
    bytes_per_second: float = 0.0


@dataclass(frozen=True, slots=True)
class Share:
    """Other tasks wait for the slot: commit and end once everything is read, at the latest after the run has lasted
    `run_ms`.
    """

    run_ms: int


@dataclass(frozen=True, slots=True)
class EndWarmRun:
    """Do not stay warm: end now if the run is warm, else when it would become warm."""


Command = Stop | Rate | Share | EndWarmRun


@dataclass(frozen=True, slots=True)
class PartitionProgress:
    """One partition of a sink task; offsets are Kafka's, -1 = not known or none."""

    topic: str
    partition: int
    committed_offset: int
    position: int
    end_offset: int
    pending_records: int = 0
    """Records before the position that the next run would read again, without an offset committed by this run, too."""


@dataclass(frozen=True, slots=True)
class RateUse:
    """A task's use of a rate limit, of records or of bytes."""

    limit_per_second: float
    """The connector's limit, for all its tasks together."""
    used_per_second: float
    """The rate of this task, over the last second or two."""
    wants_more: bool
    """The limit holds the task back: it uses its whole share."""


PRODUCED_MAX = 1_000
"""Maximum number of a source's topics in its progress, which is sent several times a second."""


@dataclass(frozen=True, slots=True)
class ProgressReport:
    """The progress of a run. Counts are of this run; the worker adds up the runs of a task."""

    records_in: int = 0
    """Records read from Kafka (sink) or polled (source)."""
    records_out: int = 0
    """Records put into the sink's task, or acknowledged by Kafka."""
    records_dropped: int = 0
    """Records that a transformation filtered, or that failed and were skipped."""
    partitions: tuple[PartitionProgress, ...] = ()
    """The partitions a sink task owns, sorted; empty for a source."""
    records_per_second: float = 0.0
    """Records in, over the last seconds."""
    commit_time_ms: int | None = None
    """Epoch time of the last offset commit, None = none yet."""
    commit_scope: CommitScope | None = None
    """Scope of the task's last commit, None = it never committed (starts with the spec's)."""
    produced: tuple[tuple[str, int], ...] = ()
    """The topics a source wrote to and how many committed records to each, sorted, at most PRODUCED_MAX; empty for a
    sink."""
    config_offset: int | None = None
    """Offset of the config topic up to which no record contradicts the task set; None = not checked."""
    errors: ErrorCounts = NO_ERRORS
    """Records that failed."""
    records_rate: RateUse | None = None
    """Use of the limit of records; None = there is no limit."""
    bytes_rate: RateUse | None = None
    """Use of the limit of bytes; None = there is no limit."""
    warm: bool = False
    """True for a run that continues although it had nothing to do for `linger_ms`: it has committed everything."""
    measures: Measures = NOTHING
    """Sizes and times since the run's previous report; NOTHING in the worker's sums."""


@dataclass(frozen=True, slots=True)
class RunOutcome:
    """How a run ended without an error."""

    reason: RunEnd
    progress: ProgressReport
    wake_after_ms: int = 0
    """When a source wants to be polled again; 0 = the offset watcher decides (sinks). For a run that yielded: when a
    rate limit lets the task continue.
    """


class RunSpans(Protocol):
    """Creator of spans for a run's batches and commits; it also limits their number. Called from the loop's thread
    only, once for each; a run without tracing has none.
    """

    def batch(self, begun_ns: int, records: int, place: str) -> None:
        """Report a batch. `begun_ns` is of `time.time_ns`; `place` is the source of its records: `topic-0 12..40`."""
        ...

    def commit(self, begun_ns: int, records: int) -> None:
        """Report a commit of offsets; `records` is the number of records since the run began."""
        ...


class RunLink(Protocol):
    """The run's connection to its worker, called from the loop's thread only.

    No method but `store_offsets` may block, or raise because the connection is broken.
    """

    def progress(self, progress: ProgressReport) -> None:
        """Send a progress report: about every 200 ms while records move, and after every commit."""
        ...

    def commands(self) -> Sequence[Command]:
        """Return the worker's commands since the last call, oldest first."""
        ...

    def wake_with(self, wake: Callable[[], None]) -> None:
        """Set the function to call, from another thread, after each new command: it ends a wait of the loop."""
        ...

    def store_offsets(self, offsets: Mapping[bytes, bytes | None]) -> None:
        """Store source offsets in the worker's file; None deletes one. Called only if the spec has `source_offsets`.
        Returns when they survive a kill of every process.

        Raises:
            TaskFailed: RETRIABLE, when they could not be stored, or no confirmation came in time.
        """
        ...
