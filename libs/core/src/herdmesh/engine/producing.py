"""Queueing records for Kafka, many at once.

Owns the calls of the producer and what they refuse. Whether a refused record ends the run is the caller's.

Invariant: a record is queued once, or named as refused; a full queue is waited for.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Producer

from herdmesh.connect.data import Batch
from herdmesh.engine import pulse

_QUEUE_PAUSE_S = 0.05
#: What the client refuses of one record, others unharmed. All else is about the producer or the cluster.
_OF_THE_RECORD = frozenset((KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.INVALID_RECORD, KafkaError._UNKNOWN_PARTITION))

Refused = list[tuple[int, KafkaError]]
"""Places of records the client will never send, and why, ascending."""


def produce(producer: Producer, batch: Batch) -> Refused:
    """Queue the records of a converted batch. Raises KafkaException when the client takes nothing any more."""
    keys: Sequence[Any] = batch.keys or (None,) * len(batch.values)
    if any(batch.headers) or any(time_ms is not None for time_ms in batch.timestamps_ms):
        return _produce_each(producer, batch, keys)
    messages: list[dict[str, Any]]
    if batch.keys:
        messages = [{"value": value, "key": key} for value, key in zip(batch.values, keys, strict=True)]
    else:
        messages = [{"value": value} for value in batch.values]
    return _produce_all(producer, batch.topic, messages, batch.partition)


def produce_all(producer: Producer, topic: str, messages: list[dict[str, Any]]) -> None:
    """Queue messages none of which may be missing. Raises KafkaException."""
    refused = _produce_all(producer, topic, messages, None)
    if refused:
        raise KafkaException(refused[0][1])


def _produce_all(producer: Producer, topic: str, messages: list[dict[str, Any]], partition: int | None) -> Refused:
    to: Mapping[str, Any] = {} if partition is None else {"partition": partition}
    refused: Refused = []
    places: Sequence[int] = range(len(messages))
    while messages:
        queued = producer.produce_batch(topic, messages, **to)
        producer.poll(0)
        if queued == len(messages):
            break
        waiting = [(place, message) for place, message in zip(places, messages, strict=True) if "_error" in message]
        again: list[tuple[int, dict[str, Any]]] = []
        for place, message in waiting:
            error: KafkaError = message.pop("_error")
            if error.code() == KafkaError._QUEUE_FULL:
                again.append((place, message))
            elif error.code() in _OF_THE_RECORD:
                refused.append((place, error))
            else:
                raise KafkaException(error)
        if again:
            producer.poll(_QUEUE_PAUSE_S)
            pulse.moved()
        places, messages = [place for place, _ in again], [message for _, message in again]
    return sorted(refused, key=lambda one: one[0])


def _produce_each(producer: Producer, batch: Batch, keys: Sequence[Any]) -> Refused:
    """As `_produce_all`, for records with times or headers: `produce_batch` of confluent-kafka 2.16 knows neither."""
    to: Mapping[str, Any] = {} if batch.partition is None else {"partition": batch.partition}
    count = len(batch.values)
    times, headers = batch.timestamps_ms or (None,) * count, batch.headers or ((),) * count
    refused: Refused = []
    columns = zip(keys, batch.values, times, headers, strict=True)
    for place, (key, value, time_ms, header) in enumerate(columns):
        with_them: dict[str, Any] = {} if time_ms is None else {"timestamp": time_ms}
        if header:
            with_them["headers"] = header
        while True:
            try:
                producer.produce(batch.topic, value, key, **to, **with_them)
                break
            except BufferError:
                producer.poll(_QUEUE_PAUSE_S)
                pulse.moved()
            except KafkaException as error:
                if error.args[0].code() not in _OF_THE_RECORD:
                    raise
                refused.append((place, error.args[0]))
                break
    producer.poll(0)
    return refused
