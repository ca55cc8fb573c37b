"""Connector interfaces: connectors, tasks, and the batches they exchange with the record loop.

Owns the interfaces (docs/reference/connect/data-model.md, section 3). Does not run them: connectors live in a worker,
tasks in a run (`herdmesh.engine`). `herdmesh.sdk` re-exports the public names.

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
"""Connect's name of the stage in which a sink task writes a record."""
SINK_TASK_CLASS = "org.apache.kafka.connect.sink.SinkTask"
"""The class that reports show for that stage."""
TASK_CLASS = "task.class"
"""Key of the task's class in every stored task config, as in Connect. The worker adds it, not the author."""
OffsetMap = Mapping[str, Any]
"""A source partition, or an offset in a source partition."""


class ConnectorKind(StrEnum):
    """Direction in which a connector moves records."""

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
    """Report this error and end the connector as FAILED; its own threads cannot do so by raising. The worker calls
    `stop` of the connector, and its tasks continue. Returns at once. After the instance was stopped or failed, the
    error is only logged.
    """
    committed_offsets: Callable[[Sequence[OffsetMap | None]], list[OffsetMap | None]] = _no_offsets
    """The committed offset of each of these source partitions, None = no offset (Java: `offsetStorageReader`). Only for
    source connectors.

    One call reads all offsets of the connector and may take seconds. The result includes every offset committed before
    the call, but not the open transactions of the connector's tasks.

    Raises:
        TaskFailed: Kafka does not answer, or a stored value is no offset.
        ConnectError: the connector is a sink.
    """
    waits: Waits = field(default_factory=Waits)
    """Wait reasons for threads that the connector starts (`with context.waits.on("PostgreSQL db:5432"):`); in calls of
    the worker, `herdmesh.sdk.waits` has the same effect."""


class Connector(ABC):
    """Plugin that turns one config into task configs. Constructed without arguments, also when a config is only
    validated.
    """

    kind: ClassVar[ConnectorKind]
    class_name: ClassVar[str]
    """The canonical `connector.class`, in Java's spelling where one exists."""
    aliases: ClassVar[tuple[str, ...]] = ()
    """Further names that a config may use for this class, short ones first."""
    version: ClassVar[str]
    java_task_class: ClassVar[str] = ""
    """The Java class of its tasks, where one exists: a Java worker that takes over the topics loads it."""
    default_converters: ClassVar[Mapping[str, str]] = {}
    """Default `key.converter`, `value.converter` and `header.converter`, before the worker's own: for a connector whose
    records make sense only with these."""
    process_reuse: ClassVar[bool] = False
    """Whether the process of one of its runs may execute another run afterwards, which saves the start of a process
    (ADR 0021). Only for tasks that leave nothing behind in their process once `stop` has returned: no thread, no
    module-level state, no changed environment, no memory."""
    context: ConnectorContext | None = None
    """Set before `start` when a worker runs the connector; None = the instance only validates a config."""

    @classmethod
    @abstractmethod
    def config_def(cls) -> ConfigDef:
        """The connector's own keys; the caller adds the keys that all connectors share."""

    @classmethod
    def served_by(cls, config: Config) -> str | None:
        """The class name of the connector that serves this config in place of this class; None = this class serves it.

        For a Java class with several counterparts here, each for some configs. Not called for a class in a plugin
        folder.
        """
        return None

    def validate(self, config: Config) -> Sequence[ConfigError]:
        """Errors that the definition cannot express (two keys that contradict each other, a folder that is not
        writable); each names its field.
        """
        return ()

    def not_built(self, config: Config) -> Sequence[ConfigError]:
        """Errors for keys that request an unsupported feature, independent of other keys. Called in place of `validate`
        when a value of the config is malformed, so that all problems are reported at once.
        """
        return ()

    def warnings(self, config: Config) -> Sequence[FieldViolation]:
        """Warnings about settings of a valid config that have no effect."""
        return ()

    def start(self, config: Config) -> None:
        """Store the config. Raises ConfigError when the config cannot be used."""
        self.config = dict(config)

    @abstractmethod
    def task_class(self) -> str:
        """Import path `module:Class` of the task, so that the worker need not import modules that only a run needs."""

    @abstractmethod
    def task_configs(self, max_tasks: int) -> list[dict[str, str | None]]:
        """One config per task, at most `max_tasks`. Called after `start`."""

    def stop(self) -> None:
        """Release the resources that `start` acquired; called only after `start`."""
        return


class SourceConnector(Connector):
    """Connector that brings records into Kafka."""

    kind = ConnectorKind.SOURCE

    def exactly_once_support(self, config: Config) -> bool | None:
        """True or False when the connector knows whether it supports exactly-once delivery, None when it does not know
        (KIP-618).
        """
        return None

    def can_define_transaction_boundaries(self, config: Config) -> bool | None:
        """True when the tasks can define their transactions (`transaction.boundary=connector`). None is treated as a
        mistake of the author (KIP-618).
        """
        return False

    def alter_offsets(
        self, config: Config, offsets: Sequence[tuple[Mapping[str, Any] | None, Mapping[str, Any] | None]]
    ) -> bool:
        """Validate the offsets that a user is about to write, by source partition; None = the offset is to be deleted
        (KIP-875).

        Called on an instance that is not started. Returns True when the offsets are known to be valid, False when the
        connector cannot decide. Raises ConfigError, or any other error, to refuse them.
        """
        return False

    def offsets_at(
        self, config: Config, time_ms: int, committed: Sequence[tuple[OffsetMap | None, OffsetMap]]
    ) -> Sequence[tuple[OffsetMap | None, OffsetMap | None]] | None:
        """The offsets from which a task reads again all records that are not older than `time_ms` (`herd offsets
        rewind`).

        Called on an instance that is not started. `alter_offsets` checks the result, which is then written like offsets
        from a user.

        Args:
            time_ms: milliseconds since 1970.
            committed: the stored offsets, by source partition.

        Returns the new offset of each source partition that is to be rewound, None = delete the offset and start from
        the beginning. A partition that is left out keeps its offset; leave out a partition whose offset lies before
        that time already. None for the whole result = the source does not know. Raises ConfigError, or any other error,
        to refuse the time; RetriableError while the source is unreachable.
        """
        return None

    def offsets_note(self, config: Config, committed: Sequence[tuple[OffsetMap | None, OffsetMap]]) -> str:
        """A remark for a reader of these offsets (`herd offsets get`), for example that no task continues from some of
        them because their object no longer exists. One line; "" = no remark.

        Called on an instance that is not started; an exception is shown in place of the remark.
        """
        return ""

    def sign(self, task_config: Config) -> str | None:
        """A change marker of the source, cheap to compute in the worker: a text that changes when there may be new
        data, None = only `poll` can find out.

        The worker wakes an idle task when the marker differs from the marker read *before* the task's last run began: a
        marker read after that could hide data that arrived while the run was ending. Raises RetriableError while the
        source is unreachable: the task stays idle.
        """
        return None


class SinkConnector(Connector):
    """Connector that brings records out of Kafka."""

    kind = ConnectorKind.SINK

    def alter_offsets(self, config: Config, offsets: Mapping[PartitionId, int | None]) -> bool:
        """As `SourceConnector.alter_offsets`, by Kafka partition. A connector that also keeps offsets outside Kafka
        changes those here.
        """
        return False


class ErrantRecordReporter(Protocol):
    """Receiver of errant records: records that a sink task was given and cannot write (Java: `ErrantRecordReporter`,
    KIP-610).
    """

    def report(self, batch: SinkBatch, index: int, error: BaseException) -> Future[None]:
        """Report one errant record and skip it: count it, log it and write it to the dead letter queue, as the
        connector is configured (`errors.*`). The loop commits the record's offset only after the dead letter is stored,
        so only a task that commits its own progress elsewhere needs to wait for the result.

        Call it from within `put`, `flush` or `stage`. For a batch that `put` was given, or that `dataclasses.replace`
        made from such a batch, the dead letter has the record as it was read. For a batch that the task made itself,
        without `originals`, the connector's converters write the dead letter, with the topic, partition and offset that
        the task gave (-1 = none).

        Args:
            batch: as `put` was given it, or made by the task.
            index: index of the record in the batch's columns.
            error: the reason; its class and message are added to the dead letter.

        Returns: a future that is done once the dead letter is stored, at the latest with the next commit. `result()`
            calls `flush_dead_letters`, which stores this dead letter and all before it, and raises its errors. The
            `timeout` of `result()` is ignored.

        Raises:
            RecordError: with `errors.tolerance=none`, after all of the above. The run then ends, even if the task
                catches it.
            IndexError: the batch has no such index.
            ValueError: a record made by the task has no topic.
            DataError: the converters cannot write a record made by the task; nothing is counted.
        """
        ...

    def flush_dead_letters(self) -> None:
        """Return once every record reported so far is stored in the dead letter queue, if there is one.

        Called before a commit by a task that commits its own progress in the target (`LedgerSinkTask`); for all other
        tasks the loop waits.

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
    """Unique across all runs of all tasks."""
    reporter: ErrantRecordReporter | None = None
    """Reporter for sink tasks of a connector with a dead letter queue or an error log; None = raise the error instead.
    """
    reading: SinkReading = NO_READING
    """Seeks, pauses and resumes partitions, and requests a commit; in `start` the task does not own any partition yet.
    """
    errant: ErrantRecordReporter | None = None
    """As `reporter`, but set in every run, with or without a dead letter queue: `skip_record` uses it."""
    tolerates_errors: bool = False
    """True with `errors.tolerance=all`: a record passed to `skip_record` is skipped, and the run continues."""
    key_defaults: bool = True
    """For sink tasks: a null in a key stands for its schema's default (`key.converter.replace.null.with.default`)."""
    value_defaults: bool = True
    """The same for values (`value.converter.replace.null.with.default`)."""

    def skip_record(self, batch: SinkBatch, index: int, error: BaseException) -> None:
        """Skip one record that a sink task cannot write, as `errors.tolerance` allows: count it, log it and write it to
        the dead letter queue where the connector has them. Takes the same arguments as `ErrantRecordReporter.report`.

        Returns when the task is to continue without the record.

        Raises:
            RecordError: errors are not tolerated. It has topic, partition and offset, and ends the run.
        """
        reporter = self.errant or self.reporter
        if reporter is not None:
            reporter.report(batch, index, error)
            return
        topic = batch.original_topic or batch.topic
        raise RecordError(TASK_PUT, SINK_TASK_CLASS, topic, batch.partition, batch.offsets[index], error) from error


@dataclass(slots=True)
class SinkBatch:
    """Records of one partition and one shape, in order. The columns have equal length; `headers` may be empty.

    Transformations may have filtered records, so that the range of offsets is longer than the columns, and may have
    changed the records' `topic`.

    All columns may be lazy sequences: a column that is not read costs nothing.
    """

    topic: str
    partition: int
    first_offset: int
    """Offset of the first record read, including records that a transformation filtered."""
    last_offset: int
    """Offset of the last record read, including records that a transformation filtered."""
    values: Sequence[Any]
    keys: Sequence[Any]
    offsets: Sequence[int]
    timestamps_ms: Sequence[int | None]
    headers: Sequence[list[Header]] = ()
    key_schema: Schema | None = None
    value_schema: Schema | None = None
    original_topic: str = ""
    """The topic that the records were read from; `partition` and the offsets refer to it."""
    originals: Sequence[Any] = field(default=(), repr=False)
    """The records as they were read, for `ErrantRecordReporter`; empty when the task has no reporter."""

    def __len__(self) -> int:
        return len(self.values)

    def records(self) -> Iterator[ConnectRecord]:
        """The records as objects, for code that needs more than columns."""
        # No step of this expression runs in Python: it takes half the time of a loop.
        return map(
            ConnectRecord, repeat(self.topic), repeat(self.partition), self.keys, self.values, self.timestamps_ms,
            map(list, self.headers or repeat(())), repeat(self.key_schema), repeat(self.value_schema),
            self.offsets, repeat(None), repeat(None), repeat(self.original_topic or self.topic),
        )  # fmt: skip


class SinkTask(ABC):
    """Task that writes records outside Kafka, at least once: `flush` makes all records of earlier `put` calls durable
    before the loop commits offsets.
    """

    uses_keys: ClassVar[bool] = True
    """False = the task does not read keys: they are not converted, and the keys of a batch are raw bytes."""

    @abstractmethod
    def start(self, config: Config, context: TaskContext) -> None:
        """Store the config. Raises ConfigError. The loop calls this before it takes over the fence: until `open`,
        earlier owners of the task may still write, stage and commit.
        """

    def open(self, partitions: Sequence[PartitionId]) -> None:
        """Accept partitions that the task owns from now on, in addition to earlier ones."""
        return

    @abstractmethod
    def put(self, batch: SinkBatch) -> None:
        """Accept a batch. The task may write it later.

        Raises RetriableError when the task can accept nothing of the batch now. The loop then calls `put` with the same
        batch again, without limit, after a pause of at most `errors.retry.delay.max.ms`.
        """

    @abstractmethod
    def flush(self) -> None:
        """Return when the records of all earlier `put` calls are durable outside. The loop commits offsets next."""

    def pre_commit(self, offsets: Mapping[PartitionId, int]) -> Mapping[PartitionId, int]:
        """Return the offsets up to which the loop may commit now (Java: `preCommit`). Only this method calls `flush`.

        A run whose task holds back some records does not end as idle: the loop calls this method again at each flush
        interval, or when the task requests it (`context.reading.request_commit`). Records that are still held back when
        the run ends or dies are read again by the next run.

        Args:
            offsets: for each partition the offset of the next record to read; everything before it was put or left out.

        Returns: for each partition the first offset that is not durable outside, at most the given offset. For a
            partition that is missing or has a higher offset, the earlier committed offset stays.
        """
        self.flush()
        return offsets

    def close(self, partitions: Sequence[PartitionId]) -> None:
        """Release partitions that the task no longer owns: all of them at the end of a run, after its last commit (or
        without a commit, after an error), and those of a deleted topic.
        """
        return

    def stop(self) -> None:
        """Release all resources; called once, also after an error."""
        return


class StagingSinkTask(SinkTask):
    """Task that writes records outside exactly once by stage, commit, publish (docs/design/worker.md, section 5).

    The loop calls `recover` once after taking over, then `put` and, when `commit_due` returns True or the flush
    interval is over, `stage`. It then makes a fenced commit that carries the manifests as offset metadata, and calls
    `publish`. A manifest is a text that the task chooses, at most `MANIFEST_BYTES_MAX` bytes for each partition. The
    loop does not call `flush`.
    """

    MANIFEST_BYTES_MAX: ClassVar[int] = 3_900
    """A little under the broker's `offset.metadata.max.bytes` (4096): the loop wraps the text."""

    @abstractmethod
    def recover(self, manifests: Mapping[PartitionId, str]) -> None:
        """Publish what an earlier owner committed, and remove what it staged and did not commit.

        Called whenever partitions are added, after `open` and before `put`, with all added partitions. Must change
        nothing for a manifest that is already published.

        Args:
            manifests: the committed manifest for each partition; "" = nothing to publish.

        Raises:
            OffsetsLost: data that a manifest names is neither staged nor published; raised after all other work is
                done.
        """

    @abstractmethod
    def commit_due(self) -> bool:
        """True when the records put so far are worth a commit. Called after every batch and while the loop waits."""

    @abstractmethod
    def stage(self) -> Mapping[PartitionId, str]:
        """Make the records of all `put` calls since the last `stage` durable but invisible. Returns a manifest for each
        partition that has something to publish; a manifest must name all that another process needs to publish it.
        """

    @abstractmethod
    def publish(self, manifests: Mapping[PartitionId, str]) -> None:
        """Make the data that the manifests name visible; called only with committed manifests. Must be idempotent: the
        next owner may already have published them.
        """

    def flush(self) -> None:
        """Not used: the loop calls `stage` instead."""
        return


@dataclass(slots=True)
class SourceBatch:
    """Records for one topic, with the source's offset after the last of them. The columns have equal length. Empty
    `keys` mean that no record has a key, empty `timestamps_ms` that no record has a timestamp (-1 means the same for
    one record), and empty `headers` that no record has headers.

    A batch without records only moves the offset; its topic is ignored.
    """

    topic: str
    values: Sequence[Any]
    source_partition: Mapping[str, Any] | None
    source_offset: Mapping[str, Any] | None
    keys: Sequence[Any] = ()
    timestamps_ms: Sequence[int | None] = ()
    key_schema: Schema | None = None
    value_schema: Schema | None = None
    partition: int | None = None
    """Kafka partition; None = the producer chooses one by key."""
    headers: Sequence[list[Header]] = ()

    def __len__(self) -> int:
        return len(self.values)


def _no_topic(name: str, _partitions: int, _replicas: int, _config: Mapping[str, str]) -> None:
    raise RuntimeError(f"topic {name} is not created: this context has no Kafka cluster")


@dataclass(frozen=True, slots=True)
class SourceTaskContext:
    """Identity, services and committed offsets of a source task."""

    connector: str
    task: int
    task_count: int
    run_id: str
    committed_offset: Callable[[Mapping[str, Any] | None], Mapping[str, Any] | None]
    """The committed offset of a source partition; None = no offset."""
    poll_records_max: Callable[[], int] = lambda: 10_000
    """Recommended maximum number of records that the next `poll` returns. It makes a rate limit smooth: the loop sends
    all records of a `poll` at once, however many, and then pauses to compensate.
    """
    make_topic: Callable[[str, int, int, Mapping[str, str]], None] = _no_topic
    """Arguments: name, partitions, replication factor (-1 = the broker's default), settings. After the call the topic
    exists, with at least that many partitions. For a task that knows the settings of its topics better than
    `topic.creation.*`.
    """
    transactions: TransactionContext | None = None
    """Defines the ends of transactions, with `transaction.boundary=connector`; None = the task does not define them."""


class SourceTask(ABC):
    """Task that reads records from outside Kafka."""

    @abstractmethod
    def start(self, config: Config, context: SourceTaskContext) -> None:
        """Store the config and find the position to continue from. Raises ConfigError."""

    @abstractmethod
    def poll(self) -> SourceBatch | None:
        """Return the records available now, at most a few thousand; None when there are none. Must not wait. Raises
        RetriableError when it cannot read now: the loop calls it again, without limit.
        """

    def has_rest(self) -> bool:
        """True when the next `poll` continues the result of the last one, for example with records of another topic
        that were found at the same time. With `transaction.boundary=poll` all of them form one transaction. Called only
        with that setting, after each batch.
        """
        return False

    def commit_batch(self, batch: SourceBatch, metadata: Sequence[RecordMetadata | None]) -> None:
        """Acknowledge a batch: its records are in Kafka and its offset is committed (Java: `commitRecord`).

        Called for each batch before `commit`, in the order of `poll`; for a batch within which a transaction ended,
        called for each part. For a task that overrides this method the loop collects the metadata of each record, which
        costs some time; other tasks do not pay for it. An exception is logged and ignored.

        Args:
            metadata: topic, partition and offset of each record; None = the record is not in Kafka, because a
                transformation filtered it, it failed and was skipped, or its transaction was aborted.
        """
        return

    def wants_metadata(self) -> bool:
        """True = the loop calls `commit_batch`. Read before `start`."""
        return type(self).commit_batch is not SourceTask.commit_batch

    def may_commit(self) -> bool:
        """Check, before a commit of records and their offsets, that the polled records still belong to those offsets.

        Returns False when they do not, which shows only afterwards (a topic that the task reads was deleted and created
        again): the loop then discards the records, and a new run begins at the last committed offset. Must take at most
        a few milliseconds; called about once a second.
        """
        return True

    def commit(self) -> None:
        """Called when the records of all polls so far are in Kafka and their offsets are committed. An exception is
        logged and ignored.
        """
        return

    def wake_after_ms(self) -> int:
        """Milliseconds until the worker is to start the next run, after a `poll` that returned None ended this run as
        idle.
        """
        return 1_000

    def may_yield(self) -> bool:
        """True when the run may end now to yield its slot to waiting tasks. False in the middle of work that the next
        run would start again from its beginning (a snapshot, or a query without a position to continue from): it would
        never finish. Called between two polls; a stop ends the run whatever this method returns.
        """
        return True

    def stop(self) -> None:
        """Release all resources; called once, also after an error."""
        return
