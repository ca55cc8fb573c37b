"""Which offsets a chain's batches stand for, and what times a source's records may have.

Owns these two rules. What is read from a message is `taken`'s; converting is the chain's.

Invariant: each record read is in exactly one of the ranges, if there is any.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from herdmesh.connect.data import Batch
from herdmesh.connect.errors import InvalidRecordError

_NO_TIME_MS = -1
"""A record's time when it has none, as Kafka writes it (reference data-model 2.1)."""


def checked_times(times_ms: Sequence[int | None]) -> Sequence[int | None]:
    """The times of a source's records, None for -1 too. Raises InvalidRecordError for another below 0."""
    earliest_ms = min(filter(None, times_ms), default=0)
    if earliest_ms >= 0:
        return times_ms
    if earliest_ms < _NO_TIME_MS:
        raise InvalidRecordError(f"Invalid record timestamp {earliest_ms}")
    return [None if time_ms == _NO_TIME_MS else time_ms for time_ms in times_ms]


def ranges(made: Sequence[Batch], first: int, last: int) -> Iterator[tuple[Batch, int, int]]:
    """What a chain made of records `first` to `last`, each batch with the offsets it stands for, those of records that
    were left out with the batch before them."""
    begins = [first, *(batch.offsets[0] for batch in made[1:])]
    ends = [*(begin - 1 for begin in begins[1:]), last]
    yield from zip(made, begins, ends, strict=True) if made else ()
