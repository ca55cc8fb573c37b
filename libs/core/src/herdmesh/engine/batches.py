"""From a list of Kafka messages to columns per partition.

Owns grouping and what a column takes from a message. Does not convert: the chain does.

Invariant: within a group messages keep their order.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import compress
from typing import Any, cast

from confluent_kafka import KafkaError, Message

from herdmesh.connect.connector import PartitionId
from herdmesh.connect.data import Batch
from herdmesh.connect.errors import InvalidRecordError

_TIMESTAMP_NOT_AVAILABLE = 0
_NO_TIME_MS = -1
"""A record's time when it has none, as Kafka writes it (reference data-model 2.1)."""


def values_of(messages: Sequence[Message]) -> list[Any]:
    """The raw values, None for a tombstone."""
    return list(map(Message.value, messages))


def keys_of(messages: Sequence[Message]) -> list[Any]:
    """The raw keys, None for a record without one."""
    return list(map(Message.key, messages))


def offsets_of(messages: Sequence[Message]) -> list[Any]:
    """The offsets."""
    return list(map(Message.offset, messages))


def headers_of(messages: Sequence[Message]) -> list[list[Any]]:
    """The raw headers, pairs of name and bytes; empty when no message has any."""
    headers = list(map(Message.headers, messages))
    return [list(cast("list[Any]", one or ())) for one in headers] if any(headers) else []


def byte_count(messages: Sequence[Message]) -> int:
    """What keys and values weigh, as they were read."""
    return sum(map(len, messages)) + sum(len(key) for key in keys_of(messages) if key is not None)


def timestamps_of(messages: Sequence[Message]) -> list[int | None]:
    """Epoch milliseconds, None for a record without a time."""
    stamps = map(Message.timestamp, messages)
    none = _TIMESTAMP_NOT_AVAILABLE
    return [None if kind == none or time_ms == _NO_TIME_MS else time_ms for kind, time_ms in stamps]


def checked_times(times_ms: Sequence[int | None]) -> Sequence[int | None]:
    """The times of a source's records, None for -1 too. Raises InvalidRecordError for another below 0."""
    earliest_ms = min(filter(None, times_ms), default=0)
    if earliest_ms >= 0:
        return times_ms
    if earliest_ms < _NO_TIME_MS:
        raise InvalidRecordError(f"Invalid record timestamp {earliest_ms}")
    return [None if time_ms == _NO_TIME_MS else time_ms for time_ms in times_ms]


def without_errors(messages: list[Message]) -> tuple[list[Message], list[Message]]:
    """Records, and events that are no records (ends of partitions, errors)."""
    errors: list[KafkaError | None] = list(map(Message.error, messages))
    if not any(errors):
        return messages, []
    events = list(compress(messages, errors))
    return [message for message, error in zip(messages, errors, strict=True) if error is None], events


def by_partition(messages: list[Message], topics: Iterable[str]) -> list[tuple[PartitionId, list[Message]]]:
    """Messages grouped by partition, in order of first appearance.

    Args:
        topics: the topics that are consumed; with only one, topics need not be compared message by message.
    """
    if not messages:
        return []
    numbers: list[Any] = list(map(Message.partition, messages))
    consumed = list(topics)
    names: Sequence[Any] = consumed * len(messages) if len(consumed) == 1 else list(map(Message.topic, messages))
    first = names[0], numbers[0]
    if numbers.count(first[1]) == len(numbers) and (len(consumed) == 1 or names.count(first[0]) == len(names)):
        return [(first, messages)]
    groups: dict[PartitionId, list[Message]] = {}
    for name, number, message in zip(names, numbers, messages, strict=True):
        group = groups.get((name, number))
        if group is None:
            group = groups[name, number] = []
        group.append(message)
    return list(groups.items())


def ranges(made: Sequence[Batch], first: int, last: int) -> Iterator[tuple[Batch, int, int]]:
    """What a chain made of records `first` to `last`, each batch with the offsets it stands for, those of records that
    were left out with the batch before them."""
    begins = [first, *(batch.offsets[0] for batch in made[1:])]
    ends = [*(begin - 1 for begin in begins[1:]), last]
    yield from zip(made, begins, ends, strict=True) if made else ()
