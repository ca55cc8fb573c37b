"""Columns of the records of one partition as they were read, and a single record where one is needed.

Owns the mapping from a message to columns. Does not convert: the chain does.

Invariant: the records are in the order of their offsets, and every column has one item for each, or none at all.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, cast, overload

import numpy as np
from confluent_kafka import TIMESTAMP_NOT_AVAILABLE, Message

from herdmesh.connect.model import NO_TIMESTAMP_MS, LazyColumn, Numbers, PackedBytes
from herdmesh.connect.spi import PartitionId
from herdmesh.engine.librdkafka.native import Rows

Headers = Sequence[list[tuple[str, bytes | None]]]


@dataclass(frozen=True, slots=True)
class RecordColumns(Sequence[Message]):
    """Columns of records. As a sequence it has messages: those of the client, or ones created on access."""

    partition: PartitionId
    values: Sequence[bytes | None]
    """None for a tombstone."""
    keys: Sequence[bytes | None]
    """None for a record without a key."""
    headers: Headers
    """Empty when no record has headers."""
    offsets: Sequence[int]
    times_ms: Sequence[int | None]
    """Epoch milliseconds, None for a record without a timestamp."""
    first_offset: int
    last_offset: int
    first_and_last_ms: tuple[int, int] | None
    """The timestamps of the first and the last record; None if the first has none."""
    message: Callable[[int], Message]
    """The record at an index, from 0."""

    def __len__(self) -> int:
        return len(self.values)

    @overload
    def __getitem__(self, index: int) -> Message: ...
    @overload
    def __getitem__(self, index: slice) -> list[Message]: ...
    def __getitem__(self, index: int | slice) -> Message | list[Message]:
        places = range(len(self))[index]
        return self.message(places) if isinstance(places, int) else [self.message(place) for place in places]

    @property
    def byte_count(self) -> int:
        """The size of keys and values in bytes."""
        return _weight(self.values) + _weight(self.keys)

    @property
    def has_keys(self) -> bool:
        """True when some record has a key."""
        return isinstance(self.keys, PackedBytes) or self.keys.count(None) < len(self.keys)


def of_messages(partition: PartitionId, messages: list[Message]) -> RecordColumns:
    """Columns of messages that the client created."""
    first, last = messages[0].offset(), messages[-1].offset()
    assert first is not None
    assert last is not None
    headers = list(map(Message.headers, messages))
    return RecordColumns(
        partition,
        list(map(Message.value, messages)),
        LazyColumn(messages, lambda of: list(map(Message.key, of))),
        [list(cast("list[Any]", one or ())) for one in headers] if any(headers) else (),
        LazyColumn(messages, lambda of: cast("list[int]", list(map(Message.offset, of)))),
        LazyColumn(messages, _times),
        first,
        last,
        None if messages[0].timestamp()[0] == TIMESTAMP_NOT_AVAILABLE else _first_and_last(messages),
        messages.__getitem__,
    )


def of_rows(
    partition: PartitionId,
    rows: Rows,
    values: Sequence[bytes | None],
    keys: Sequence[bytes | None],
    headers: Headers,
) -> RecordColumns:
    """Columns of rows (`native.ROW`), which provide offsets and times."""

    def message(place: int) -> Message:
        row = rows[place]
        time = int(row["time_kind"]), int(row["time_ms"])
        topic, number = partition
        return Message(
            topic=topic, partition=number, offset=int(row["offset"]), key=keys[place], value=values[place],
            headers=[*headers[place]] if headers and headers[place] else None, timestamp=time,
        )  # fmt: skip

    offsets, times = rows["offset"], rows["time_ms"]
    places = range(len(rows))
    has_time = rows["time_kind"][0] != TIMESTAMP_NOT_AVAILABLE
    return RecordColumns(
        partition, values, keys, headers, LazyColumn(places, lambda _: offsets.tolist()),
        LazyColumn(places, lambda _: _times_of_rows(rows)), int(offsets[0]), int(offsets[-1]),
        (int(times[0]), int(times[-1])) if has_time else None, message,
    )  # fmt: skip


def column(data: bytes, starts: Numbers, lengths: Numbers, *, has_all: bool) -> Sequence[bytes | None]:
    """A column of places in `data`; unless `has_all`, a length of -1 (as an unsigned number) is null."""
    if has_all:
        return PackedBytes(data, starts, lengths)
    found = zip(starts.tolist(), lengths.view(np.int64).tolist(), strict=True)
    return [None if length < 0 else data[start : start + length] for start, length in found]


def _first_and_last(messages: Sequence[Message]) -> tuple[int, int]:
    return messages[0].timestamp()[1], messages[-1].timestamp()[1]


def _times(messages: Sequence[Message]) -> list[int | None]:
    stamps = map(Message.timestamp, messages)
    none = TIMESTAMP_NOT_AVAILABLE
    return [None if kind == none or time_ms == NO_TIMESTAMP_MS else time_ms for kind, time_ms in stamps]


def _times_of_rows(rows: Rows) -> list[int | None]:
    times_ms: list[int | None] = rows["time_ms"].tolist()
    without = (rows["time_kind"] == TIMESTAMP_NOT_AVAILABLE) | (rows["time_ms"] == NO_TIMESTAMP_MS)
    for place in np.flatnonzero(without):
        times_ms[place] = None
    return times_ms


def _weight(column: Sequence[bytes | None]) -> int:
    if isinstance(column, PackedBytes):
        return int(column.lengths.sum())
    return sum(len(one) for one in column if one is not None)
