"""Connector interfaces: connectors, tasks, and the batches they exchange with the record loop.

Owns the interfaces (docs/reference/connect/data-model.md, section 3). Does not run them: connectors live in a worker,
tasks in a run (`herdmesh.engine`). `herdmesh.sdk` re-exports what is public here.

Invariant: a task sees records in order per partition, and no record counts as done before the loop has committed it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import repeat
from typing import Any, ClassVar, Protocol

from herdmesh.connect.config import ConfigDef, FieldViolation
from herdmesh.connect.errors import ConfigError, RecordError
from herdmesh.connect.model import ConnectRecord, Header, Schema
from herdmesh.connect.spi.sink_requests import NO_READING, PartitionId, SinkReading
from herdmesh.connect.spi.source_transactions import RecordMetadata, TransactionContext
from herdmesh.connect.spi.waits import Waits

Config = Mapping[str, str | None]
TASK_PUT = "TASK_PUT"
"""Connect's name of the stage in which a sink's task has a record."""
SINK_TASK_CLASS = "org.apache.kafka.connect.sink.SinkTask"
"""The class that works in that stage, for reports."""
TASK_CLASS = "task.class"
"""In every stored task config, as Connect has it; added by the worker, not by the author."""
OffsetMap = Mapping[str, Any]
"""A source partition, or an offset in one."""


class ConnectorKind(StrEnum):
    """Which way a connector moves records."""

    SOURCE = "source"
    SINK = "sink"


def _no_error(error: Exception) -> None:
    raise RuntimeError("raise_error is not available where this connector runs") from error


def _no_offsets(_partitions: Sequence[OffsetMap | None]) -> list[OffsetMap | None]:
    raise RuntimeError("committed_offsets are not available where this connector runs")


@dataclass(frozen=True, slots=True)
class ConnectorContext:
    """Services of the worker for a connector; thread-safe."""

    request_task_reconfiguration: Callable[[], None]
    """Request new task configs, because the source has changed since `task_configs` was last called. Returns at once.
    """
    raise_error: Callable[[Exception], None] = _no_error
    """End the connector as FAILED with this error, which its own threads cannot do by raising. Its `stop` is called,
    its tasks continue. Returns at once. After the instance was stopped or failed, the error is only logged."""
    committed_offsets: Callable[[Sequence[OffsetMap | None]], list[OffsetMap | None]] = _no_offsets
    """The committed offset of each of these source partitions, None = none (Java: `offsetStorageReader`); for source
    connectors.

    One call reads all offsets of the connector, and may take seconds; it includes everything committed by then, but not
    the open transactions of its tasks.

    Raises:
        TaskFailed: Kafka does not answer, or a stored value is no offset.
        ConnectError: the connector is a sink.
    """
    waits: Waits = field(default_factory=Waits)
    """Wait reasons for threads that the connector starts (`with context.waits.on("PostgreSQL db:5432"):`); in calls of
    the worker, `herdmesh.sdk.waits` has the same effect."""


class Connector(ABC):
    """Turns one config into task configs. Constructed without arguments, also only to be validated."""

    kind: ClassVar[ConnectorKind]
    class_name: ClassVar[str]
    """The canonical `connector.class`, in Java's spelling where one exists."""
    aliases: ClassVar[tuple[str, ...]] = ()
    """The other names it answers to, short ones first."""
    version: ClassVar[str]
    java_task_class: ClassVar[str] = ""
    """The Java class of its tasks, where one exists: a Java worker that takes over the topics loads it."""
    default_converters: ClassVar[Mapping[str, str]] = {}
    """Default `key.converter`, `value.converter` and `header.converter`, before the worker's own: for a connector whose
    records make sense only with these."""
    context: ConnectorContext | None = None
    """Set before `start` when a worker runs the connector; None = the instance is only used for validation."""

    @classmethod
    @abstractmethod
    def config_def(cls) -> ConfigDef:
        """The connector's own keys; the keys all connectors share are added by the caller."""

    @classmethod
    def served_by(cls, config: Config) -> str | None:
        """The class name of the connector that serves this config instead; None = this one does. For a Java class with
        several counterparts here, each for some configs. Not called for a class in a plugin folder."""
        return None

    def validate(self, config: Config) -> Sequence[ConfigError]:
        """What the definition cannot see (two keys that clash, a folder not writable), each naming its field."""
        return ()

    def not_built(self, config: Config) -> Sequence[ConfigError]:
        """Keys that request an unsupported feature, whatever the other keys are. Called in place of `validate` when a
        value of the config is malformed, so that all problems are reported at once."""
        return ()

    def warnings(self, config: Config) -> Sequence[FieldViolation]:
        """Warnings about settings of a valid config that have no effect."""
        return ()

    def start(self, config: Config) -> None:
        """Take the config. Raises ConfigError when it cannot be used."""
        self.config = dict(config)

    @abstractmethod
    def task_class(self) -> str:
        """Import path `module:Class` of the task, so that the worker need not import what only a run needs."""

    @abstractmethod
    def task_configs(self, max_tasks: int) -> list[dict[str, str | None]]:
        """One config per task, at most `max_tasks`. Called after `start`."""

    def stop(self) -> None:
        """Release what `start` took; called only after it."""
        return


class SourceConnector(Connector):
    """Brings records into Kafka."""

    kind = ConnectorKind.SOURCE

    def exactly_once_support(self, config: Config) -> bool | None:
        """True or False when the connector knows, None when it does not (KIP-618)."""
        return None

    def can_define_transaction_boundaries(self, config: Config) -> bool | None:
        """True when the tasks can define their transactions (`transaction.boundary=connector`); None is treated as a
        mistake of the author (KIP-618)."""
        return False

    def alter_offsets(
        self, config: Config, offsets: Sequence[tuple[Mapping[str, Any] | None, Mapping[str, Any] | None]]
    ) -> bool:
        """Validate offsets, by source partition, that a user is about to write; None = to be deleted (KIP-875).

        Called on an instance that is not started. Returns True when they are known to be right, False when the
        connector cannot tell. Raises ConfigError, or any error, to refuse them.
        """
        return False

    def offsets_at(
        self, config: Config, time_ms: int, committed: Sequence[tuple[OffsetMap | None, OffsetMap]]
    ) -> Sequence[tuple[OffsetMap | None, OffsetMap | None]] | None:
        """The offsets from which all records not older than a time are read again (`herd offsets rewind`).

        Called on an instance that is not started; the result is checked by `alter_offsets`, and written as a user's
        offsets would be.

        Args:
            time_ms: milliseconds since 1970.
            committed: the stored offsets, by source partition.

        Returns the new offset of each source partition that is to go back, None = deleted, to start anew; a partition
        that is left out keeps its offset, as it must when it had not got that far at that time. None = the source does
        not know. Raises ConfigError, or any error, to refuse the time; RetriableError while the source is away.
        """
        return None

    def offsets_note(self, config: Config, committed: Sequence[tuple[OffsetMap | None, OffsetMap]]) -> str:
        """A remark for a reader of these offsets (`herd offsets get`): for example that some are not continued from,
        because their object no longer exists. One line; "" = none.

        Called on an instance that is not started; an exception is shown in place of the remark.
        """
        return ""

    def sign(self, task_config: Config) -> str | None:
        """A change indicator of the source, cheap to compute in the worker: a text that changes when there may be new
        data, None = only `poll` can tell.

        An idle task is woken when the sign differs from the one taken *before* its last run began: a sign taken after
        it could hide data that arrived while the run was ending. Raises RetriableError while the source is away: the
        task stays idle.
        """
        return None


class SinkConnector(Connector):
    """Brings records out of Kafka."""

    kind = ConnectorKind.SINK

    def alter_offsets(self, config: Config, offsets: Mapping[PartitionId, int | None]) -> bool:
        """As `SourceConnector.alter_offsets`, by Kafka partition. A connector that keeps offsets outside of Kafka too
        changes those here."""
        return False


class ErrantRecordReporter(Protocol):
    """Takes records that a sink task was given and cannot write (Java: `ErrantRecordReporter`, KIP-610)."""

    def report(self, batch: SinkBatch, index: int, error: BaseException) -> Future[None]:
        """Give one record up: it is counted, logged and put into the dead letter queue, as the connector is configured
        (`errors.*`). The offset is not committed before the dead letter is safe, so there is nothing to wait for, but
        for a task that commits elsewhere.

        Called from within `put`, `flush` or `stage`. A dead letter has the record as it was read, from a batch that
        `put` was given or one that `dataclasses.replace` made of it. Of records that the task made itself, in a batch
        without `originals`, it has what the connector's converters make of them, under the topic, partition and offset
        that the task gave (-1 = none).

        Args:
            batch: as `put` was given it, or of the task's own making.
            index: place of the record in its columns.
            error: why; its class and message go along.

        Returns: done once the dead letter is safe, at the latest with the next commit; `result()` has it so, and all
            letters before it (`settle`, whose errors it raises; its `timeout` is not heeded).

        Raises:
            RecordError: with `errors.tolerance=none`, after all that. The run ends then, also when the task catches it.
            IndexError: there is no such place.
            ValueError: a record of the task's own without a topic.
            DataError: one that the converters cannot write; nothing is counted.
        """
        ...

    def settle(self) -> None:
        """Return once every record reported so far is stored in the dead letter queue, if there is one.

        For a task that commits its own progress in the target (`LedgerSinkTask`), before it commits; for all others the
        loop waits.

        Raises:
            TaskFailed: RETRIABLE, when Kafka does not confirm within a minute.
        """
        ...


@dataclass(frozen=True, slots=True)
class TaskContext:
    """Identity and services of a task."""

    connector: str
    task: int
    task_count: int
    group: str
    """The consumer group that keeps the connector's offsets and manifests; shared by its tasks."""
    run_id: str
    """Unique among all runs ever."""
    reporter: ErrantRecordReporter | None = None
    """For sink tasks of a connector with a dead letter queue or error log; None = raise the error."""
    reading: SinkReading = NO_READING
    """Seeks, pauses and resumes partitions, and requests a commit; at `start` no partition is owned yet."""
    errant: ErrantRecordReporter | None = None
    """As `reporter`, and there in each run, with a dead letter queue or without: for `give_up`."""
    tolerates_errors: bool = False
    """`errors.tolerance=all`: a record passed to `give_up` is dropped, and the run continues."""
    key_defaults: bool = True
    """Of sink tasks: a null in a key stands for its schema's default (`key.converter.replace.null.with.default`)."""
    value_defaults: bool = True
    """The same of values (`value.converter.replace.null.with.default`)."""

    def give_up(self, batch: SinkBatch, index: int, error: BaseException) -> None:
        """Drop one record that a sink task cannot write, as `errors.tolerance` says: it is counted, logged and put into
        the dead letter queue where the connector has them.

        Returns when the task is to continue without it. Called as `ErrantRecordReporter.report`, with the same
        arguments.

        Raises:
            RecordError: errors are not tolerated; it has topic, partition and offset, and ends the run.
        """
        reporter = self.errant or self.reporter
        if reporter is not None:
            reporter.report(batch, index, error)
            return
        topic = batch.original_topic or batch.topic
        raise RecordError(TASK_PUT, SINK_TASK_CLASS, topic, batch.partition, batch.offsets[index], error) from error


@dataclass(slots=True)
class SinkBatch:
    """Records of one partition and shape, in order. Columns are of equal length, `headers` may be empty;
    transformations may have dropped records, so the range of offsets can be longer than the columns, and changed their
    `topic`.

    All columns may be lazy sequences: reading them costs, not reading them is free.
    """

    topic: str
    partition: int
    first_offset: int
    """Of the first record read, dropped or not."""
    last_offset: int
    """Of the last record read, dropped or not."""
    values: Sequence[Any]
    keys: Sequence[Any]
    offsets: Sequence[int]
    timestamps_ms: Sequence[int | None]
    headers: Sequence[list[Header]] = ()
    key_schema: Schema | None = None
    value_schema: Schema | None = None
    original_topic: str = ""
    """The topic the records were read from, which `partition` and the offsets belong to."""
    originals: Sequence[Any] = field(default=(), repr=False)
    """The records as they were read, for `ErrantRecordReporter`; empty when there is none."""

    def __len__(self) -> int:
        return len(self.values)

    def records(self) -> Iterator[ConnectRecord]:
        """The records as objects, for code that needs more than columns."""
        # No step of it is Python's: half the time of a loop.
        return map(
            ConnectRecord, repeat(self.topic), repeat(self.partition), self.keys, self.values, self.timestamps_ms,
            map(list, self.headers or repeat(())), repeat(self.key_schema), repeat(self.value_schema),
            self.offsets, repeat(None), repeat(None), repeat(self.original_topic or self.topic),
        )  # fmt: skip


class SinkTask(ABC):
    """Writes records outside, at least once: `flush` makes everything put durable before offsets are committed."""

    uses_keys: ClassVar[bool] = True
    """False = the task does not read keys: they are not converted, and a batch's keys are raw bytes."""

    @abstractmethod
    def start(self, config: Config, context: TaskContext) -> None:
        """Take the config. Raises ConfigError. Comes before the fence is taken: until `open` earlier owners may still
        write, stage and commit."""

    def open(self, partitions: Sequence[PartitionId]) -> None:
        """Partitions the task now owns in addition to earlier ones."""
        return

    @abstractmethod
    def put(self, batch: SinkBatch) -> None:
        """Take a batch; it need not be written when the call returns.

        Raises RetriableError when it can take nothing of it now: it is given the same batch again, without end, after a
        pause as `errors.retry.delay.max.ms` bounds it.
        """

    @abstractmethod
    def flush(self) -> None:
        """Return when everything put is durable outside. Offsets are committed next."""

    def pre_commit(self, offsets: Mapping[PartitionId, int]) -> Mapping[PartitionId, int]:
        """Say how far offsets may be committed now (Java: `preCommit`); `flush` is called from here only.

        A run whose task holds something back does not rest: it asks again at each flush interval, or when the task
        wants it (`context.reading.request_commit`). What is held back when it ends, or dies, is given to the next run.

        Args:
            offsets: of each partition the next one to read: everything before was put, or left out.

        Returns: of each partition the first offset that is not safe outside; at most what was given. A partition that
        is missing, or has more, keeps what was committed before.
        """
        self.flush()
        return offsets

    def close(self, partitions: Sequence[PartitionId]) -> None:
        """These partitions are the task's no more: all of them at the end of a run, after its last commit (or without
        one, after an error), and those of a topic that was deleted."""
        return

    def stop(self) -> None:
        """Release everything; called once, also after an error."""
        return


class StagingSinkTask(SinkTask):
    """Writes records outside exactly once by stage, commit, publish (docs/design/worker.md, section 5).

    The loop calls `recover` once after taking over, then `put` and, when `commit_due` or its own time has come,
    `stage`, a fenced commit that carries the manifests as offset metadata, and `publish`. A manifest is the task's own
    text, at most `MANIFEST_BYTES_MAX` bytes for each partition. `flush` is not used.
    """

    MANIFEST_BYTES_MAX: ClassVar[int] = 3_900
    """A little under the broker's `offset.metadata.max.bytes` (4096): the loop wraps the text."""

    @abstractmethod
    def recover(self, manifests: Mapping[PartitionId, str]) -> None:
        """Finish what an earlier owner committed, and remove what it staged and did not commit.

        Called before `put` whenever partitions are added, with all partitions added, after `open`. Must change nothing
        for a manifest that is already published.

        Args:
            manifests: the committed manifest per partition; "" = nothing to publish.

        Raises:
            OffsetsLost: what a manifest names exists neither staged nor published; raised after all else is done.
        """

    @abstractmethod
    def commit_due(self) -> bool:
        """True when the records put so far make a good unit to commit. Called after every batch and while waiting."""

    @abstractmethod
    def stage(self) -> Mapping[PartitionId, str]:
        """Make everything put since the last call durable but invisible. Returns a manifest for each partition that has
        something to publish; must name all that is needed to publish it from another process."""

    @abstractmethod
    def publish(self, manifests: Mapping[PartitionId, str]) -> None:
        """Make visible what the manifests name; called only with manifests that are committed. Must be idempotent: the
        next owner may have published the same."""

    def flush(self) -> None:
        """Not used: `stage` takes its place."""
        return


@dataclass(slots=True)
class SourceBatch:
    """Records for one topic, with the source's offset after the last of them. Columns are of equal length; empty `keys`
    means no record has a key, empty `timestamps_ms` that none has a time (as -1 does of one), empty `headers` that none
    has any.

    Without records it moves the offset alone, whatever its topic is."""

    topic: str
    values: Sequence[Any]
    source_partition: Mapping[str, Any] | None
    source_offset: Mapping[str, Any] | None
    keys: Sequence[Any] = ()
    timestamps_ms: Sequence[int | None] = ()
    key_schema: Schema | None = None
    value_schema: Schema | None = None
    partition: int | None = None
    """Kafka partition, None = the producer chooses by key."""
    headers: Sequence[list[Header]] = ()

    def __len__(self) -> int:
        return len(self.values)


def _no_topic(name: str, _partitions: int, _replicas: int, _config: Mapping[str, str]) -> None:
    raise RuntimeError(f"topic {name} is not made: this context has no cluster to make topics in")


@dataclass(frozen=True, slots=True)
class SourceTaskContext:
    """Identity, services and committed offsets of a source task."""

    connector: str
    task: int
    task_count: int
    run_id: str
    committed_offset: Callable[[Mapping[str, Any] | None], Mapping[str, Any] | None]
    """The committed offset of a source partition, None = none."""
    poll_records_max: Callable[[], int] = lambda: 10_000
    """How many records the next `poll` had better return at most. A rate limit is felt evenly when it does: what `poll`
    returns is sent at once, however much it is, and made up for by a pause."""
    make_topic: Callable[[str, int, int, Mapping[str, str]], None] = _no_topic
    """Name, partitions, replication factor (-1 = the broker's), settings: from the call on the topic exists, with at
    least so many partitions. For a task that knows better than `topic.creation.*` what its topics are like."""
    transactions: TransactionContext | None = None
    """Defines the ends of transactions, with `transaction.boundary=connector`; None = the task does not define them."""


class SourceTask(ABC):
    """Reads records outside."""

    @abstractmethod
    def start(self, config: Config, context: SourceTaskContext) -> None:
        """Take the config and find the place to go on from. Raises ConfigError."""

    @abstractmethod
    def poll(self) -> SourceBatch | None:
        """The records available now, at most a few thousand; None when there are none. Must not wait. Raises
        RetriableError when it cannot read now: it is called again, without limit."""

    def has_rest(self) -> bool:
        """True when the next `poll` continues the result of the last one, such as records of several topics that were
        found at once: with `transaction.boundary=poll` all of it is one transaction. Called only with that setting,
        after each batch."""
        return False

    def commit_batch(self, batch: SourceBatch, metadata: Sequence[RecordMetadata | None]) -> None:
        """The records of this batch are in Kafka and its offset is committed (Java: `commitRecord`). Called for each
        batch before `commit`, in the order of `poll`; for a batch within which a transaction ended, for each part.

        A task that has this method has each of its records reported, which costs some time; one that has not, does not.
        What it raises is logged, and changes nothing.

        Args:
            metadata: where each record is; None = nowhere: it was dropped by a transformation, given up for an error,
                or its transaction was aborted.
        """
        return

    def wants_metadata(self) -> bool:
        """True = `commit_batch` is called. Read before `start`."""
        return type(self).commit_batch is not SourceTask.commit_batch

    def may_commit(self) -> bool:
        """Asked before records and the offsets behind them are committed. False when what was polled is not what its
        offsets say, which shows only afterwards (a topic that is read was deleted and made again): it is given up, and
        a new run begins where the last commit was. At most a few milliseconds; about once a second."""
        return True

    def commit(self) -> None:
        """Called when everything polled so far is in Kafka and its offset is committed. An exception is logged and
        ignored."""
        return

    def wake_after_ms(self) -> int:
        """When to look again after `poll` returned None."""
        return 1_000

    def may_yield(self) -> bool:
        """Whether a run may end here for tasks that wait for its slot. False in the middle of what the next run would
        begin anew (a snapshot, a query that leaves no place to go on from): it would never be done. Asked between two
        polls; a stop ends the run whatever the answer is."""
        return True

    def stop(self) -> None:
        """Release everything; called once, also after an error."""
        return
