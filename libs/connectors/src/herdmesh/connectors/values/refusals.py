"""Isolation of bad records: one record that cannot be written is refused, and the others of its batch are written.

Owns finding it. The reaction: `errors.tolerance` (`TaskContext.give_up`).

Invariant: every record of a batch is in one of the results, or was refused; their order stays.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from herdmesh.connect.json_text import like
from herdmesh.sdk import ConfigError, ConnectError, RecordError, RetriableError, SinkBatch

T = TypeVar("T")
Refuse = Callable[[SinkBatch, int, BaseException], None]
"""`TaskContext.give_up`: told of a batch, a place in it and why. Raises where the run is to end for it."""
_OF_NO_RECORD = (ConfigError, RetriableError, RecordError)


def taken(batch: SinkBatch, convert: Callable[[SinkBatch], T], refuse: Refuse) -> list[tuple[SinkBatch, T]]:
    """What `convert` makes of the batch. Where it raises, for one of the records, what it makes of the parts of the
    batch between those that it raises for; these are refused, in their order.

    A bad record costs a few conversions of a part of the batch, a good batch none beside its own.
    """
    try:
        return [(batch, convert(batch))]
    except _OF_NO_RECORD:
        raise
    except ConnectError as error:
        if len(batch) < 2:
            if len(batch):
                refuse(batch, 0, error)
            return []
    middle = len(batch) // 2
    return [
        made
        for begin, end in ((0, middle), (middle, len(batch)))
        for made in taken(part_of(batch, begin, end), convert, refuse)
    ]


def part_of(batch: SinkBatch, begin: int, end: int) -> SinkBatch:
    """The records of a batch from one place to another, not empty. Offsets that were read and have no record go with
    the records at the batch's own ends."""
    return replace(
        batch,
        first_offset=batch.first_offset if begin == 0 else batch.offsets[begin],
        last_offset=batch.last_offset if end == len(batch) else batch.offsets[end - 1],
        values=like(batch.values, batch.values[begin:end]),
        keys=batch.keys[begin:end],
        offsets=batch.offsets[begin:end],
        timestamps_ms=batch.timestamps_ms[begin:end],
        headers=batch.headers[begin:end],
    )


def chosen_of(batch: SinkBatch, places: Sequence[int]) -> SinkBatch:
    """Some records of a batch, at least one, in the order of their places: their values, and what finds them again.
    Keys, times and headers are there only where nothing else does."""

    def chosen(column: Sequence[Any]) -> list[Any]:
        return [column[place] for place in places] if len(column) else []

    offsets, is_made = chosen(batch.offsets), not len(batch.originals)
    return replace(
        batch,
        first_offset=offsets[0],
        last_offset=offsets[-1],
        values=like(batch.values, chosen(batch.values)),
        keys=chosen(batch.keys) if is_made else (),
        offsets=offsets,
        timestamps_ms=chosen(batch.timestamps_ms) if is_made else (),
        headers=chosen(batch.headers) if is_made else (),
    )
