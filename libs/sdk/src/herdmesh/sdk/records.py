"""Tasks that handle records one by one, for authors who prefer that to speed.

Owns `SourceRecord` and `SourceOffset`, the two task classes, and the creation of batches from records. The loop knows
only batches.

Invariant: records leave in the order they were given, each batch with the offset of its own last record; records given
before an error leave before the error is raised.
"""

from __future__ import annotations

import logging
from abc import abstractmethod
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import replace
from itertools import islice
from operator import length_hint
from typing import Any, ClassVar, cast, final

import msgspec

from herdmesh.connect.model import ConnectRecord, Header, Schema
from herdmesh.connect.spi import (
    Config,
    RecordMetadata,
    SinkBatch,
    SinkTask,
    SourceBatch,
    SourceTask,
    SourceTaskContext,
    TaskContext,
)
from herdmesh.sdk.record_checks import check_records, iterated
from herdmesh.sdk.record_transactions import RecordTransactions

_log = logging.getLogger(__name__)

OffsetMap = Mapping[str, Any]
_UNKNOWN = -1
"""Connect's value for a partition or an offset that a record does not have."""


class SourceRecord(msgspec.Struct, gc=False):
    """One record for Kafka, and the source's offset after it (docs/reference/connect/data-model.md, sections 2.1 and
    2.2).

    A msgspec struct, which is created in a fifth of the time of a dataclass; `msgspec.structs.replace` creates a
    changed copy. No value in it may refer to the record itself: Python's garbage collector would not find that cycle,
    and never free it.
    """

    topic: str
    value: Any
    source_partition: OffsetMap | None
    source_offset: OffsetMap | None
    key: Any = None
    key_schema: Schema | None = None
    value_schema: Schema | None = None
    headers: Sequence[Header] = ()
    timestamp_ms: int | None = None
    """None or -1 = the time of sending; also 0, which Kafka's client treats alike. Any other negative value fails the
    task.
    """
    partition: int | None = None
    """Kafka partition, None = the producer chooses by key."""


class SourceOffset(msgspec.Struct, gc=False):
    """An offset without a record: the source was read up to it, and there was nothing to send. It is returned in the
    place of a record, and committed in order: never before the records given before it, never later than those after
    it.

    Of several in a row only the last is written; one that does not advance the offset is not written.
    """

    source_partition: OffsetMap | None
    source_offset: OffsetMap | None
    # Fields that it lacks, so that it equals no record, and comparing code need not check the type.
    topic: ClassVar[None] = None
    partition: ClassVar[None] = None
    key: ClassVar[None] = None
    key_schema: ClassVar[None] = None
    value_schema: ClassVar[None] = None
    headers: ClassVar[tuple[()]] = ()
    timestamp_ms: ClassVar[None] = None


Given = SourceRecord | SourceOffset
"""Items that a source task returns, in order."""
_KINDS = (SourceRecord, SourceOffset)
_Stretch = tuple[Sequence[SourceRecord], list[Any] | None]
"""Records that share a batch; with their values if none has a key, a timestamp or headers."""


class RecordQueue:
    """Records on their way to the loop: received and not passed on, or passed on and not reported as committed."""

    def __init__(
        self, *, remembers: bool, places: bool = False, transactions: RecordTransactions | None = None
    ) -> None:
        """`remembers`: the task wants to know which records were committed; `places`: and the place of each record in
        Kafka. `transactions`: the task's transaction boundaries, None = it sets none.
        """
        self._remembers = remembers
        self._places = places
        self._transactions = transactions
        self._unplaced: deque[SourceRecord] = deque()
        self._ready: deque[_Stretch | SourceOffset] = deque()
        self._handed: list[SourceRecord] = []

    def __bool__(self) -> bool:
        """True = records or offsets remain."""
        return bool(self._ready)

    def add(self, records: Sequence[Given]) -> None:
        """Append records and offsets, in order. Raises DataError for other objects."""
        if not records:
            return
        try:
            self._add(records)
        except (AttributeError, TypeError):
            check_records(records, _KINDS)
            raise

    def _add(self, records: Sequence[Given]) -> None:
        values = _plain(records)
        if values is not None:
            self._ready.append((cast("Sequence[SourceRecord]", records), values))
        else:
            # If a transaction may end after an offset, pass each offset on separately.
            self._ready.extend(_stretches(records, each_offset=self._transactions is not None))

    def next(self) -> SourceBatch | None:
        """The next batch, None = nothing remains."""
        if not self._ready:
            return None
        ready = self._ready.popleft()
        if isinstance(ready, SourceOffset):
            if self._transactions is not None:
                self._transactions.handed_offset(ready)
            return SourceBatch("", (), ready.source_partition, ready.source_offset)
        records, values = ready
        if self._transactions is None:
            self._pass_over(records[-1])
        if self._remembers:
            self._handed += records
        if self._places:
            self._unplaced.extend(records)
        if self._transactions is not None:
            self._transactions.handed(records)
        try:
            return _batch(records, values)
        except (AttributeError, TypeError):
            check_records(records, _KINDS)
            raise

    def _pass_over(self, last: SourceRecord) -> None:
        """Skip an offset equal to that of the record before it, which advances nothing. Passed on, it would look like
        the end of the data, where the loop pauses.
        """
        if not self._ready or not isinstance(one := self._ready[0], SourceOffset):
            return
        if _same(one.source_partition, last.source_partition) and _same(one.source_offset, last.source_offset):
            self._ready.popleft()

    def committed(self) -> list[SourceRecord]:
        """The records passed on since the last call."""
        handed, self._handed = self._handed, []
        return handed

    def placed(self, count: int) -> list[SourceRecord]:
        """The next `count` records whose place in Kafka was not reported yet."""
        return [self._unplaced.popleft() for _ in range(count)]


class RecordSourceTask(SourceTask):
    """Base class of source tasks that return single records.

    `start` keeps the context: extend it with `super().start(config, context)`.
    """

    RECORDS_MAX: ClassVar[int] = 4_000
    """Maximum number of records taken at once."""
    context: SourceTaskContext
    transactions: RecordTransactions | None = None
    """The task's transaction boundaries, with `transaction.boundary=connector`; None = the task sets none. Use it in
    the place of `context.transactions`, which counts positions in batches that this task does not see.
    """

    def start(self, config: Config, context: SourceTaskContext) -> None:
        """Read the config and find the position to continue from. Raises ConfigError."""
        self.context = replace(context, transactions=None)
        self.transactions = None if context.transactions is None else RecordTransactions(context.transactions)
        remembers = type(self).commit_records is not RecordSourceTask.commit_records
        self._queue = RecordQueue(remembers=remembers, places=self.wants_metadata(), transactions=self.transactions)
        self._records: Iterator[Given] | None = None
        self._error: Exception | None = None

    @abstractmethod
    def poll_records(self) -> Iterable[SourceRecord | SourceOffset] | None:
        """Return the records that are available now; None, or no items, when there are none. Must not wait. A
        `SourceOffset` among the records advances the offset without a record.

        A generator may be endless: records are taken from it as needed, and `poll_records` is called again when it has
        ended. Raises RetriableError when the source cannot be read now: the call is repeated, without a limit.
        """

    def commit_records(self, records: Sequence[SourceRecord]) -> None:
        """Called when these records are in Kafka, and their offsets are committed, as are all earlier ones."""
        return

    def commit_record(self, record: SourceRecord, metadata: RecordMetadata | None) -> None:
        """Called when this record is in Kafka, at the place in `metadata`, and its offset is committed. None = it was
        not written, as in `SourceTask.commit_batch`. Called for each record, before `commit_records`. For a task that
        overrides this method each record is reported, which costs some time. An exception is logged and has no other
        effect.
        """
        return

    @final
    def wants_metadata(self) -> bool:
        """True for a task that overrides `commit_record`."""
        return type(self).commit_record is not RecordSourceTask.commit_record

    @final
    def commit_batch(self, batch: SourceBatch, metadata: Sequence[RecordMetadata | None]) -> None:
        """Call `commit_record` for each record."""
        for record, place in zip(self._queue.placed(len(metadata)), metadata, strict=True):
            try:
                self.commit_record(record, place)
            except Exception:  # noqa: BLE001 - an author's code may raise anything, and the commit is done
                _log.exception("the task failed in commit_record; the record is committed all the same")

    @final
    def poll(self) -> SourceBatch | None:
        """The next batch of the records from `poll_records`."""
        if not hasattr(self, "_queue"):
            raise RuntimeError(f"{type(self).__name__}.start has to call super().start(config, context)")
        batch = self._queue.next()
        if batch is not None:
            return batch
        if self._error is not None:
            error, self._error = self._error, None
            raise error
        was_open = self._records is not None
        taken = self._some()
        if not taken and was_open and self._error is None and not self._ends_now:
            taken = self._some()  # the previous iterator had just ended
        self._queue.add(taken)
        return self._queue.next()

    @final
    def has_rest(self) -> bool:
        """True while records of a call of `poll_records` remain; for a generator, while records taken from it
        remain."""
        return bool(self._queue) or (self._records is not None and length_hint(self._records) > 0)

    def _some(self) -> list[Given]:
        """Take as many records as are wanted. Records before an error are kept, because the author's iterator has moved
        past them.
        """
        self._ends_now = False
        if self._records is None:
            found = self.poll_records()
            if found is None:
                self._come_to_its_end([])
                return []
            self._records = iterated(found)
        wanted = max(1, min(self.RECORDS_MAX, self.context.poll_records_max()))
        taken: list[Given] = []
        try:
            taken.extend(islice(self._records, wanted))  # records before an error are in the list by then
        except Exception as error:
            self._records = None
            if not taken:
                raise
            self._error = error
        else:
            if len(taken) < wanted:
                self._records = None
                self._come_to_its_end(taken)
        return taken

    def _come_to_its_end(self, taken: Sequence[Given]) -> None:
        if self.transactions is not None:
            self._ends_now = self.transactions.given(taken[-1] if taken else None)

    @final
    def commit(self) -> None:
        """Call `commit_records` with the records passed on since the last call, if the task overrides it."""
        if records := self._queue.committed():
            self.commit_records(records)


class RecordSinkTask(SinkTask):
    """Base class of sink tasks that get single records; delivery at least once.

    `start` keeps the context: extend it with `super().start(config, context)`.
    """

    context: TaskContext

    def start(self, config: Config, context: TaskContext) -> None:
        """Read the config. Raises ConfigError."""
        self.context = context

    @abstractmethod
    def put_records(self, records: Sequence[ConnectRecord]) -> None:
        """Take records of one partition, in order; they need not be written when the call returns.

        Raises RetriableError when the task can take none of them now: it gets the same records again, without a limit.
        """

    @final
    def put(self, batch: SinkBatch) -> None:
        """Call `put_records`."""
        if len(batch):
            self.put_records(records_of(batch, self.context))

    def report(self, record: ConnectRecord, error: BaseException) -> Future[None]:
        """Report one record as failed (`ErrantRecordReporter.report`, also for the result). Call it from within
        `put_records` or `flush`.

        A record that the task received, now or earlier, goes to the dead letter queue as it was read, even if
        `msgspec.structs.replace` changed it. A record that the task created is written by the connector's converters.

        Raises:
            RecordError: with `errors.tolerance=none`.
            BaseException: the error itself, when the connector neither logs its errors nor has a dead letter queue.
            ValueError: a record of the task's own without a topic.
            DataError: a record that the converters cannot write.
        """
        return report(self.context, record, error)


def records_of(batch: SinkBatch, context: TaskContext) -> list[ConnectRecord]:
    """The records of a batch, with the link by which `report` finds each record as it was read."""
    given = list(batch.records())
    if context.reporter is not None:
        for place, record in enumerate(given):
            record.origin = batch, place
    return given


def report(context: TaskContext, record: ConnectRecord, error: BaseException) -> Future[None]:
    """Like `RecordSinkTask.report`."""
    reporter = context.reporter
    if reporter is None:
        raise error
    batch, place = record.origin or (_made(record), 0)
    return reporter.report(batch, place, error)


def _made(record: ConnectRecord) -> SinkBatch:
    """A record that a sink task created, as a batch of its own."""
    partition, offset = (_UNKNOWN if one is None else one for one in (record.partition, record.offset))
    return SinkBatch(
        record.topic or "", partition, offset, offset, [record.value], [record.key], [offset], [record.timestamp_ms],
        [record.headers], record.key_schema, record.value_schema,
    )  # fmt: skip


def _plain(records: Sequence[Given]) -> list[Any] | None:
    """The values of records that all share a batch, and of which none has a key, a timestamp or headers: most lists are
    of that kind, and one comprehension detects it. None = not known: `_stretches` checks each record.
    """
    first, last = records[0], records[-1]
    topic, partition, source = first.topic, first.partition, first.source_partition
    value_schema = first.value_schema
    # Compare the first and the last record first: if they differ, or are not plain, the comprehension would be wasted.
    if topic is None or last.topic is not topic or last.source_partition is not source:
        return None
    if last.partition is not partition or last.value_schema is not value_schema:
        return None
    if first.key is not None or first.timestamp_ms is not None or first.headers:
        return None
    if last.key is not None or last.timestamp_ms is not None or last.headers:
        return None
    values = [
        record.value
        for record in cast("Sequence[SourceRecord]", records)
        if record.topic is topic
        and record.source_partition is source
        and record.value_schema is value_schema
        and record.partition is partition
        and record.key is None
        and record.key_schema is None
        and record.timestamp_ms is None
        and not record.headers
    ]
    return values if len(values) == len(records) else None


def _stretches(records: Sequence[Given], *, each_offset: bool) -> Iterator[_Stretch | SourceOffset]:
    """Neighbours that can share a batch. Of several offsets in a row the last, or, with `each_offset`, each."""
    begin, count = 0, len(records)
    while begin < count:
        end, is_plain = _alike_until(records, begin)
        part = records[begin:end] if begin or end < count else records
        if isinstance(part[-1], SourceOffset):
            yield from cast("Sequence[SourceOffset]", part if each_offset else part[-1:])
        else:
            alike = cast("Sequence[SourceRecord]", part)
            yield alike, [record.value for record in alike] if is_plain else None
        begin = end


def _alike_until(records: Sequence[Given], begin: int) -> tuple[int, bool]:
    """The index of the first record that cannot share a batch with the one at `begin`, and whether all before it are
    plain. Inlined, because it runs for each record: a call for each would double the cost.
    """
    first = records[begin]
    topic, partition, source = first.topic, first.partition, first.source_partition
    key_schema, value_schema = first.key_schema, first.value_schema
    is_plain = key_schema is None
    for place in range(begin, len(records)):
        record = records[place]
        if record.value_schema is not value_schema or record.key_schema is not key_schema:
            return place, is_plain
        if record.topic != topic or record.partition != partition:
            return place, is_plain
        if record.source_partition is not source and not _same(record.source_partition, source):
            return place, is_plain
        if is_plain and (record.key is not None or record.timestamp_ms is not None or record.headers):
            is_plain = False
    return len(records), is_plain


def _same(one: OffsetMap | None, other: OffsetMap | None) -> bool:
    """True when both have the same bytes in the offsets topic: there 1 is not 1.0, and order counts."""
    return one is other or (one == other and repr(one) == repr(other))


def _batch(records: Sequence[SourceRecord], values: list[Any] | None) -> SourceBatch:
    last = records[-1]
    batch = SourceBatch(
        last.topic,
        [record.value for record in records] if values is None else values,
        last.source_partition,
        last.source_offset,
        key_schema=last.key_schema,
        value_schema=last.value_schema,
        partition=last.partition,
    )
    if values is not None:
        return batch
    headed = any(record.headers for record in records)
    timed = any(record.timestamp_ms is not None for record in records)
    keyed = last.key_schema is not None or any(record.key is not None for record in records)
    return replace(
        batch,
        keys=[record.key for record in records] if keyed else (),
        timestamps_ms=[record.timestamp_ms for record in records] if timed else (),
        headers=[list(record.headers) for record in records] if headed else (),
    )
