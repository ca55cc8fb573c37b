"""Queueing records for Kafka, many at once.

Owns the calls of the producer and what they refuse. Whether a refused record ends the run is the caller's.

Invariant: a record is queued once, or named as refused; a full queue is waited for.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from itertools import starmap
from operator import length_hint
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Producer

from herdmesh.connect.data import Batch
from herdmesh.engine import pulse
from herdmesh.engine.clients import nothing

_QUEUE_PAUSE_S = 0.05
_ANY_PARTITION, _NOW = -1, 0
"""What the client takes for a record without a partition, or without a time."""
#: What the client refuses of one record, others unharmed. All else is about the producer or the cluster.
_OF_THE_RECORD = frozenset((KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.INVALID_RECORD, KafkaError._UNKNOWN_PARTITION))

_NO_ROOM = "the record is larger than producer.buffer.memory"

Refused = list[tuple[int, KafkaError]]
"""Places of records the client will never send, and why, ascending."""


def produce(
    producer: Producer, batch: Batch, reports: Sequence[Any] = (), between: Callable[[], None] = nothing
) -> Refused:
    """Queue the records of a converted batch. Raises KafkaException when the client takes nothing any more.

    Args:
        reports: a callback for each record, called with the error, if any, and the message; empty = none.
        between: called at each turn of waiting for room; what it raises leaves the records queued so far.
    """
    count = len(batch.values)
    partition = _ANY_PARTITION if batch.partition is None else batch.partition
    return _produce(
        producer,
        between,
        # By place, as the client reads them: half the time of names.
        [batch.topic] * count,
        batch.values,
        batch.keys or [None] * count,
        [partition] * count,
        reports or [None] * count,  # callback
        [None] * count,  # on_delivery, which does not count beside the other, not even beside None
        [_NOW if time_ms is None else time_ms for time_ms in batch.timestamps_ms] or [_NOW] * count,
        [header or None for header in batch.headers] or [None] * count,
    )


def produce_all(
    producer: Producer,
    topic: str,
    records: Mapping[bytes, bytes | None],
    between: Callable[[], None] = nothing,
) -> None:
    """Queue records, by key, none of which may be missing. Raises KafkaException. `between`: as of `produce`."""
    refused = _produce(producer, between, [topic] * len(records), list(records.values()), list(records))
    if refused:
        raise KafkaException(refused[0][1])


def _produce(producer: Producer, between: Callable[[], None], *columns: Sequence[Any]) -> Refused:
    """Call `producer.produce` with each row of the columns, of which the second are the values.

    No step of the loop is Python's: 0.57 microseconds a record, with one that is 0.70, and 0.66 for `produce_batch`
    (confluent-kafka 2.16), which takes a dict for each record and knows neither times nor headers.
    """
    refused: Refused = []
    place, count, alone = 0, len(columns[1]), -1
    while place < count:
        topics, values, *others = (column[place:] if place else column for column in columns)
        left = iter(list(values))  # which knows how many are left
        try:
            deque(starmap(producer.produce, zip(topics, left, *others, strict=True)), maxlen=0)
            break
        except BufferError:
            place = count - length_hint(left) - 1  # once more
            if place == alone:  # nothing was queued before it: it is larger than all the room there is
                refused.append((place, KafkaError(KafkaError.MSG_SIZE_TOO_LARGE, _NO_ROOM)))
                place += 1
                continue
            alone = place if len(producer) == 0 else -1
            producer.poll(_QUEUE_PAUSE_S)
            pulse.moved()
            between()
        except KafkaException as error:
            if error.args[0].code() not in _OF_THE_RECORD:
                raise
            place = count - length_hint(left) - 1
            refused.append((place, error.args[0]))
            place += 1
    producer.poll(0)
    return refused
