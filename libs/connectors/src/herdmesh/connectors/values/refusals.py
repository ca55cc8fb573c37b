"""Isolation of bad records: one record that cannot be written
is refused, and the others of its batch are written.

Owns finding it. The reaction: `errors.tolerance` (`TaskContext.skip_record`).

Invariant: every record of a batch is in one of the results, or was refused; the order is kept.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from herdmesh.connect.json_text import like
from herdmesh.sdk import ConfigError, ConnectError, RecordError, RetriableError, SinkBatch

T = TypeVar("T")
Refuse = Callable[[SinkBatch, int, BaseException], None]
"""`TaskContext.skip_record`: reports a failed record by batch,
place and error. Raises if the error must end the run.
"""
_OF_NO_RECORD = (ConfigError, RetriableError, RecordError)


def convert_batch(batch: SinkBatch, convert: Callable[[SinkBatch], T], refuse: Refuse) -> list[tuple[SinkBatch, T]]:
    """Return the result of `convert` for the batch. If it raises for a record, bisect the batch: return the results of
    the parts between bad records, and refuse the bad records, in order.

    A bad record costs a few conversions of parts of the batch; a good batch costs no extra conversion.
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
        for made in convert_batch(part_of(batch, begin, end), convert, refuse)
    ]


def part_of(batch: SinkBatch, begin: int, end: int) -> SinkBatch:
    """Return the records of a batch from place `begin` to `end`, at least
    one. Read offsets without a record belong to the first or last part.
    """
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
    """Return some records of a batch, at least one, in the order of their places: their values, and the data to find
    them again. Keys, times and headers are included only if the batch has no originals.
    """

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
