"""Producer calls that queue many records at once.

Owns the calls of the producer and their refusals. The caller decides whether a refused record ends the run.

Invariant: a record is queued once, or returned as refused; a full queue is waited for (backpressure).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import starmap
from operator import length_hint
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Producer

from herdmesh.connect.model import Batch
from herdmesh.engine.librdkafka import ANY_PARTITION, NOW_MS, ColumnQueue, nothing
from herdmesh.engine.runtime import progress_ticks

_QUEUE_PAUSE_S = 0.05
_COLUMNS_MIN = 64
"""Smaller batches are queued one by one: each record is reported then, and a batch call itself costs some microseconds.
"""
#: The client's errors about one record, which do not affect others. All other errors concern the producer or the
#: cluster.
_OF_THE_RECORD = frozenset((KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.INVALID_RECORD, KafkaError._UNKNOWN_PARTITION))

_NO_ROOM = "the record is larger than producer.buffer.memory"

Refused = list[tuple[int, KafkaError]]
"""Indexes of records that the client will never send, with the error, ascending."""
_Step = Callable[[int], tuple[int, Refused, bool]]
"""Queues from an index on. Returns the next index to queue, the refusals before it, and whether the queue is full."""


def produce(
    producer: Producer,
    batch: Batch,
    reports: Sequence[Any] = (),
    between: Callable[[], None] = nothing,
    columns: ColumnQueue | None = None,
) -> Refused:
    """Queue the records of a converted batch. Raises KafkaException when the client accepts nothing any more.

    Args:
        reports: a callback for each record, called with the error, if any, and the message; empty = none.
        between: called at each turn of the wait for room; if it raises, the records queued so far stay queued.
        columns: the producer's batch queue, for callers that need no report of every rejected record: only the last of
            each batch has one. None = every record has one.
    """
    count = len(batch.values)
    if len(batch.keys) not in (0, count):
        raise ValueError(f"{len(batch.keys)} keys for {count} values")
    headers = batch.headers if any(batch.headers) else ()
    partition = batch.partition
    if (
        columns is not None
        and count >= _COLUMNS_MIN
        and not (reports or headers)
        and (columns.takes_times or not any(batch.timestamps_ms))
    ):
        if partition is None and batch.keys.count(None) == len(batch.keys):
            partition = columns.spread.partition(batch.topic)
        return _until_queued(producer, between, count, partial(_columns, producer, columns, batch, _number(partition)))
    rows = (
        # By position, as the client reads them: half the time of names.
        [batch.topic] * count,
        batch.values,
        batch.keys or [None] * count,
        [_number(partition)] * count,
        reports or [None] * count,  # callback
        [None] * count,  # on_delivery, which is ignored beside the other, even beside None
        [NOW_MS if time_ms is None else time_ms for time_ms in batch.timestamps_ms] or [NOW_MS] * count,
        [header or None for header in headers] or [None] * count,
    )
    return _until_queued(producer, between, count, partial(_one_by_one, producer, rows))


def produce_all(
    producer: Producer,
    topic: str,
    records: Mapping[bytes, bytes | None],
    between: Callable[[], None] = nothing,
) -> None:
    """Queue records, by key, all of which are required. Raises KafkaException. `between`: as in `produce`."""
    count = len(records)
    rows = [topic] * count, list(records.values()), list(records)
    refused = _until_queued(producer, between, count, partial(_one_by_one, producer, rows))
    if refused:
        raise KafkaException(refused[0][1])


def _until_queued(producer: Producer, between: Callable[[], None], count: int, queue: _Step) -> Refused:
    """Call `queue` until all records are queued or refused."""
    refused: Refused = []
    place, alone = 0, -1
    while place < count:
        place, found, is_full = queue(place)
        refused += found
        if not is_full:
            continue
        if place == alone:  # the queue was empty before it: the record is larger than the whole buffer
            refused.append((place, KafkaError(KafkaError.MSG_SIZE_TOO_LARGE, _NO_ROOM)))
            place += 1
            continue
        alone = place if len(producer) == 0 else -1
        producer.poll(_QUEUE_PAUSE_S)
        progress_ticks.moved()
        between()
    producer.poll(0)
    return refused


def _one_by_one(producer: Producer, rows: Sequence[Sequence[Any]], place: int) -> tuple[int, Refused, bool]:
    """A `_Step`: call `producer.produce` with each row of these columns, of which the second has the values.

    No step of the loop runs in Python: 0.57 microseconds a record, with one Python step 0.70, and 0.66 for
    `produce_batch` (confluent-kafka 2.16), which takes a dict for each record and supports neither times nor headers.
    """
    count = len(rows[1])
    topics, values, *others = (column[place:] if place else column for column in rows)
    left = iter(list(values))  # an iterator with a length hint, which shows how many are left
    try:
        deque(starmap(producer.produce, zip(topics, left, *others, strict=True)), maxlen=0)
    except BufferError:
        return count - length_hint(left) - 1, [], True
    except KafkaException as error:
        _raise_unless_of_the_record(error.args[0])
        place = count - length_hint(left) - 1
        return place + 1, [(place, error.args[0])], False
    return count, [], False


def _columns(
    producer: Producer, columns: ColumnQueue, batch: Batch, partition: int, place: int
) -> tuple[int, Refused, bool]:
    """A `_Step`: queue all but the last by one call, and the last with a report, which explains the failure when Kafka
    rejects the batch.
    """
    last = len(batch.values) - 1
    times_ms = batch.timestamps_ms if any(batch.timestamps_ms) else ()
    refused: Refused = []
    if place < last:
        given = batch.values[place:last], batch.keys[place:last], times_ms[place:last]
        for at, error in columns.put(batch.topic, partition, *given):
            if error.code() == KafkaError._QUEUE_FULL:
                return place + at, refused, True
            _raise_unless_of_the_record(error)
            refused.append((place + at, error))
    time_ms = NOW_MS if not times_ms or times_ms[last] is None else times_ms[last]
    nobody = [None]
    row = [batch.topic], batch.values[last:], batch.keys[last:] or [None], [partition], nobody, nobody, [time_ms]
    at, found, is_full = _one_by_one(producer, row, 0)
    refused += [(last, error) for _, error in found]
    if (
        batch.partition is None
    ):  # then the partition is not the record's, but an outdated one of a topic that was recreated
        for _, error in refused:
            if error.code() == KafkaError._UNKNOWN_PARTITION:
                raise KafkaException(error)
    return last + at, refused, is_full


def _number(partition: int | None) -> int:
    return ANY_PARTITION if partition is None else partition


def _raise_unless_of_the_record(error: KafkaError) -> None:
    if error.code() not in _OF_THE_RECORD:
        raise KafkaException(error)
