"""Errant record reporter in a sink task's context (KIP-610; docs/reference/connect/data-model.md, sections
2.3 and 5.5).

Owns finding the record as it was read, converting one that the task created, and the rule that a task cannot swallow
the error that ends its run. `tolerance` decides on the record.

Invariant: once errors are not tolerated, the run ends when `put` has returned, or before the commit of the flush,
whatever the task did with the error.
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
from herdmesh.engine.bad_records.tolerance import FailedRecords, Failure


class ErrantRecords:
    """`ErrantRecordReporter` of one run. Used from the loop's thread only."""

    def __init__(self, failed: FailedRecords, flush_dead_letters: Callable[[], None], chain: SinkChain) -> None:
        """`flush_dead_letters`: returns once all dead letters are stored, after a call of `complete_reports`. `chain`:
        the run's.
        """
        self.flush_dead_letters = flush_dead_letters
        self._failed = failed
        self._chain = chain
        self._exceeded: RecordError | None = None
        #: reports since the last `complete_reports`.
        self._told: list[Future[None]] = []

    def report(self, batch: SinkBatch, index: int, error: BaseException) -> Future[None]:
        """See `ErrantRecordReporter.report`."""
        message = _as_read(batch, index)
        if message is None:
            message = self._as_made(batch, index)
        try:
            self._failed.add_outside(Failure(TASK_PUT, SINK_TASK_CLASS, error, message))
        except RecordError as exceeded:
            self._exceeded = exceeded
            raise
        told = _Told(self.flush_dead_letters)
        self._told.append(told)
        return told

    def complete_reports(self) -> None:
        """Complete the futures of all reports so far: they are safe."""
        told, self._told = self._told, []
        for one in told:
            if not one.done():  # the task may have cancelled it
                one.set_result(None)

    @property
    def is_ending(self) -> bool:
        """True once it raised the error that ends the run."""
        return self._exceeded is not None

    def raise_swallowed(self) -> None:
        """Raise the RecordError that the task caught, if it did."""
        if self._exceeded is not None:
            raise self._exceeded

    def _as_made(self, batch: SinkBatch, index: int) -> Message:
        """The record in Kafka's form, from a batch that the task created."""
        record = _record(batch, index)
        if not record.topic:
            raise ValueError("a record that the task created needs a topic to be reported, because converters need one")
        key, value, headers = self._chain.write_record(record)
        time_ms = record.timestamp_ms
        stamp = (TIMESTAMP_NOT_AVAILABLE, NO_TIMESTAMP_MS) if time_ms is None else (TIMESTAMP_CREATE_TIME, time_ms)
        return Message(
            topic=record.topic, partition=record.partition, offset=record.offset, key=key, value=value,
            headers=[*headers], timestamp=stamp,
        )  # fmt: skip


class _Told(Future[None]):
    """Future of a dead letter that may still be in flight. Only the loop's own calls complete it, so waiting makes
    these calls.
    """

    def __init__(self, settle: Callable[[], None]) -> None:
        super().__init__()
        self._settle = settle

    def result(self, timeout: float | None = None) -> None:
        """Wait until it is safe. Raises as `ErrantRecordReporter.flush_dead_letters`."""
        if not self.done():
            self._settle()
        return super().result(timeout)


def _as_read(batch: SinkBatch, index: int) -> Message | None:
    """The record as it was read from Kafka, None for one that the task created. Raises IndexError for an invalid
    index."""
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
