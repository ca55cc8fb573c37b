"""Producer calls that queue many records at once.

Owns the calls of the producer and what they refuse. Whether a refused record ends the run is the caller's.

Invariant: a record is queued once, or named as refused; a full queue is waited for.
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
"""Fewer are queued one by one: each is reported, and a batch costs some microseconds itself."""
#: What the client refuses of one record, others unharmed. All else is about the producer or the cluster.
_OF_THE_RECORD = frozenset((KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.INVALID_RECORD, KafkaError._UNKNOWN_PARTITION))

_NO_ROOM = "the record is larger than producer.buffer.memory"

Refused = list[tuple[int, KafkaError]]
"""Places of records the client will never send, and why, ascending."""
_Step = Callable[[int], tuple[int, Refused, bool]]
"""Queues from a place on: the place of the next one to queue, what was refused before it, whether there is no room."""


def produce(
    producer: Producer,
    batch: Batch,
    reports: Sequence[Any] = (),
    between: Callable[[], None] = nothing,
    columns: ColumnQueue | None = None,
) -> Refused:
    """Queue the records of a converted batch. Raises KafkaException when the client takes nothing any more.

    Args:
        reports: a callback for each record, called with the error, if any, and the message; empty = none.
        between: called at each turn of waiting for room; what it raises leaves the records queued so far.
        columns: the producer's, for who can do without a report of every record that Kafka did not take: the last of
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
        # By place, as the client reads them: half the time of names.
        [batch.topic] * count,
        batch.values,
        batch.keys or [None] * count,
        [_number(partition)] * count,
        reports or [None] * count,  # callback
        [None] * count,  # on_delivery, which does not count beside the other, not even beside None
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
    """Queue records, by key, none of which may be missing. Raises KafkaException. `between`: as of `produce`."""
    count = len(records)
    rows = [topic] * count, list(records.values()), list(records)
    refused = _until_queued(producer, between, count, partial(_one_by_one, producer, rows))
    if refused:
        raise KafkaException(refused[0][1])


def _until_queued(producer: Producer, between: Callable[[], None], count: int, queue: _Step) -> Refused:
    """Call `queue` until all are queued or refused."""
    refused: Refused = []
    place, alone = 0, -1
    while place < count:
        place, found, is_full = queue(place)
        refused += found
        if not is_full:
            continue
        if place == alone:  # nothing was queued before it: it is larger than all the room there is
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
    """A `_Step`: call `producer.produce` with each row of these columns, of which the second are the values.

    No step of the loop is Python's: 0.57 microseconds a record, with one that is 0.70, and 0.66 for `produce_batch`
    (confluent-kafka 2.16), which takes a dict for each record and knows neither times nor headers.
    """
    count = len(rows[1])
    topics, values, *others = (column[place:] if place else column for column in rows)
    left = iter(list(values))  # which knows how many are left
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
    """A `_Step`: all but the last by one call, and the last with a report, which says what there is to say of them when
    Kafka does not take them."""
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
    if batch.partition is None:  # then the partition is not the record's, but what was known of a topic that is another
        for _, error in refused:
            if error.code() == KafkaError._UNKNOWN_PARTITION:
                raise KafkaException(error)
    return last + at, refused, is_full


def _number(partition: int | None) -> int:
    return ANY_PARTITION if partition is None else partition


def _raise_unless_of_the_record(error: KafkaError) -> None:
    if error.code() not in _OF_THE_RECORD:
        raise KafkaException(error)
