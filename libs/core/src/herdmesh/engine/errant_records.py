"""The errant-record reporter a sink task finds in its context (reference data-model 5.5).

Owns finding the record as it was read, and that a task cannot swallow what ends its run. What is done about it is
`tolerance`'s.

Invariant: once errors are not tolerated, the run ends when `put` has returned, or before the commit that it was flushed
for, whatever the task did with the error.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable

from confluent_kafka import Message

from herdmesh.connect.connector import SinkBatch
from herdmesh.connect.errors import RecordError
from herdmesh.engine.tolerance import TASK_PUT, Failure, Tolerance

SINK_TASK_CLASS = "org.apache.kafka.connect.sink.SinkTask"


class ErrantRecords:
    """`ErrantRecordReporter` of one run. Used from the loop's thread only."""

    def __init__(self, tolerance: Tolerance, settle: Callable[[], None]) -> None:
        """`settle`: returns once all that was told is safe."""
        self.settle = settle
        self._tolerance = tolerance
        self._exceeded: RecordError | None = None

    def report(self, batch: SinkBatch, index: int, error: BaseException) -> None:
        """As `ErrantRecordReporter.report`."""
        try:
            self._tolerance.failed_outside(Failure(TASK_PUT, SINK_TASK_CLASS, error, _as_read(batch, index)))
        except RecordError as exceeded:
            self._exceeded = exceeded
            raise

    @property
    def is_ending(self) -> bool:
        """True once it raised what ends the run."""
        return self._exceeded is not None

    def raise_swallowed(self) -> None:
        """Raise the RecordError that the task caught, if it did."""
        if self._exceeded is not None:
            raise self._exceeded


def _as_read(batch: SinkBatch, index: int) -> Message:
    """The record as Kafka has it. Raises IndexError for a place there is not, ValueError for a batch of the task's own
    making."""
    offset = batch.offsets[index]
    originals = batch.originals
    place = bisect_left(originals, offset, key=_offset)
    if place == len(originals) or originals[place].offset() != offset:
        raise ValueError("only a batch that `put` was given can be reported")
    return originals[place]


def _offset(message: Message) -> int:
    return message.offset() or 0
