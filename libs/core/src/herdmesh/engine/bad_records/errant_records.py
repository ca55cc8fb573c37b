"""Errant record reporter that a sink task finds in its context (KIP-610; docs/reference/connect/data-model.md, sections
2.3 and 5.5).

Owns finding the record as it was read, making one of what the task made itself, and that a task cannot swallow what
ends its run. What is done about it is `tolerance`'s.

Invariant: once errors are not tolerated, the run ends when `put` has returned, or before the commit that it was flushed
for, whatever the task did with the error.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from concurrent.futures import Future

from confluent_kafka import TIMESTAMP_CREATE_TIME, TIMESTAMP_NOT_AVAILABLE, Message

from herdmesh.connect.chain import SinkChain
from herdmesh.connect.errors import RecordError
from herdmesh.connect.model import NO_TIMESTAMP_MS, ConnectRecord
from herdmesh.connect.spi import SINK_TASK_CLASS, TASK_PUT, SinkBatch
from herdmesh.engine.bad_records.tolerance import Failure, Tolerance


class ErrantRecords:
    """`ErrantRecordReporter` of one run. Used from the loop's thread only."""

    def __init__(self, tolerance: Tolerance, settle: Callable[[], None], chain: SinkChain) -> None:
        """`settle`: returns once all that was told is safe, having said so (`settled`). `chain`: the run's."""
        self.settle = settle
        self._tolerance = tolerance
        self._chain = chain
        self._exceeded: RecordError | None = None
        #: told since the last time that all was safe.
        self._told: list[Future[None]] = []

    def report(self, batch: SinkBatch, index: int, error: BaseException) -> Future[None]:
        """As `ErrantRecordReporter.report`."""
        message = _as_read(batch, index)
        if message is None:
            message = self._as_made(batch, index)
        try:
            self._tolerance.failed_outside(Failure(TASK_PUT, SINK_TASK_CLASS, error, message))
        except RecordError as exceeded:
            self._exceeded = exceeded
            raise
        told = _Told(self.settle)
        self._told.append(told)
        return told

    def settled(self) -> None:
        """All that was told so far is safe."""
        told, self._told = self._told, []
        for one in told:
            if not one.done():  # its task may have cancelled it
                one.set_result(None)

    @property
    def is_ending(self) -> bool:
        """True once it raised what ends the run."""
        return self._exceeded is not None

    def raise_swallowed(self) -> None:
        """Raise the RecordError that the task caught, if it did."""
        if self._exceeded is not None:
            raise self._exceeded

    def _as_made(self, batch: SinkBatch, index: int) -> Message:
        """The record as Kafka would have it, of a batch of the task's own making."""
        record = _record(batch, index)
        if not record.topic:
            raise ValueError("a record that the task made needs a topic to be reported: converters write for one")
        key, value, headers = self._chain.written(record)
        time_ms = record.timestamp_ms
        stamp = (TIMESTAMP_NOT_AVAILABLE, NO_TIMESTAMP_MS) if time_ms is None else (TIMESTAMP_CREATE_TIME, time_ms)
        return Message(
            topic=record.topic, partition=record.partition, offset=record.offset, key=key, value=value,
            headers=[*headers], timestamp=stamp,
        )  # fmt: skip


class _Told(Future[None]):
    """A letter that may still be on its way. Nothing but the loop's own calls moves it, so to wait is to make them."""

    def __init__(self, settle: Callable[[], None]) -> None:
        super().__init__()
        self._settle = settle

    def result(self, timeout: float | None = None) -> None:
        """Return once it is safe. Raises as `ErrantRecordReporter.settle`."""
        if not self.done():
            self._settle()
        return super().result(timeout)


def _as_read(batch: SinkBatch, index: int) -> Message | None:
    """The record as Kafka has it, None for one that the task made. Raises IndexError for a place there is not."""
    offset = batch.offsets[index]
    originals = batch.originals
    place = bisect_left(originals, offset, key=_offset)
    if place == len(originals) or originals[place].offset() != offset:
        return None
    return originals[place]


def _record(batch: SinkBatch, index: int) -> ConnectRecord:
    return ConnectRecord(
        batch.topic,
        batch.partition,
        batch.keys[index] if len(batch.keys) else None,
        batch.values[index],
        batch.timestamps_ms[index] if len(batch.timestamps_ms) else None,
        batch.headers[index] if len(batch.headers) else [],
        batch.key_schema,
        batch.value_schema,
        batch.offsets[index],
    )


def _offset(message: Message) -> int:
    return message.offset() or 0
