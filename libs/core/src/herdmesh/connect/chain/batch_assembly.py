"""Batch assembly: cuts batches into parts of one shape and topic, and joins records that were processed alone with
them.

Owns the order of a chain's results, and the check of timestamps of records for Kafka. Converts and transforms nothing.

Invariant: records keep their order, and no batch is empty.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import groupby, repeat

from herdmesh.connect.converters import Schemas
from herdmesh.connect.errors import InvalidRecordError
from herdmesh.connect.model import NO_TIMESTAMP_MS, Batch, Schema
from herdmesh.connect.transforms import Cells, Shape

_Alike = tuple[str | None, int | None, Shape]
"""Topic, partition and shape, which the records of a batch have in common."""


class Collected:
    """Results of a chain for a batch, in order: parts of the batch and single records, joined where they have the same
    topic, partition and shape.
    """

    def __init__(self, given: Batch) -> None:
        """`given` has the columns that a single record needs in addition to its cells."""
        self._given = given
        self._made: list[Batch] = []
        self._singles: list[tuple[_Alike, list[int], list[Cells]]] = []

    def add(self, at: int, cells: Cells, shape: Shape) -> None:
        """Add the result for the record at index `at` of the given batch."""
        alike = cells[2], cells[4], shape
        if not self._singles or self._singles[-1][0] != alike:
            self._singles.append((alike, [], []))
        self._singles[-1][1].append(at)
        self._singles[-1][2].append(cells)

    def take(self, part: Batch) -> None:
        """Add the result for the next several records."""
        self._join()
        self._made += by_topic(part)

    def batches(self) -> list[Batch]:
        """All results."""
        self._join()
        return self._made

    def _join(self) -> None:
        self._made += [self._batch(*one) for one in self._singles]
        self._singles.clear()

    def _batch(self, alike: _Alike, places: list[int], cells: list[Cells]) -> Batch:
        given = self._given
        topic, partition, shape = alike
        times_ms = [one[5] for one in cells]
        keys = [one[0] for one in cells]
        headers = [one[3] for one in cells]
        return Batch(
            topic or "", partition,
            keys if given.keys or any(key is not None for key in keys) else (),
            [one[1] for one in cells],
            [given.offsets[at] for at in places] if given.offsets else (),
            times_ms if given.timestamps_ms or any(time_ms is not None for time_ms in times_ms) else (),
            shape.key, shape.value,
            headers if any(headers) else (),
            places=[given.places[at] for at in places] if given.places else (),
        )  # fmt: skip


def runs(
    start: int, stop: int, keys: Schemas, values: Schemas
) -> Iterator[tuple[int, int, Schema | None, Schema | None]]:
    """Runs of records from `start` to `stop` with the same pair of schemas: start, stop, and the two schemas."""
    if not isinstance(keys, list) and not isinstance(values, list):
        yield start, stop, keys, values
        return
    each_key = keys[start:stop] if isinstance(keys, list) else [keys] * (stop - start)
    each_value = values[start:stop] if isinstance(values, list) else [values] * (stop - start)
    for pair, group in groupby(zip(each_key, each_value, strict=True)):
        end = start + sum(1 for _ in group)
        yield start, end, *pair
        start = end


def part_of(batch: Batch, start: int, stop: int) -> Batch:
    """The records from `start` to `stop`."""
    if start == 0 and stop == len(batch.values):
        return batch
    return replace(
        batch,
        keys=batch.keys[start:stop],
        values=batch.values[start:stop],
        offsets=batch.offsets[start:stop],
        timestamps_ms=batch.timestamps_ms[start:stop],
        headers=batch.headers[start:stop],
        topics=batch.topics[start:stop],
        places=batch.places[start:stop],
        partitions=batch.partitions[start:stop],
    )


def by_topic(batch: Batch) -> Iterator[Batch]:
    """The batch split where its topic or partition changes."""
    if not batch.values:
        return
    if not batch.topics and not batch.partitions:
        yield batch
        return
    start = 0
    if not batch.partitions:
        for topic, group in groupby(batch.topics):
            stop = start + sum(1 for _ in group)
            yield replace(part_of(batch, start, stop), topic=topic, topics=())
            start = stop
        return
    targets = zip(batch.topics or repeat(batch.topic), batch.partitions or repeat(batch.partition), strict=False)
    for (topic, partition), group in groupby(targets):
        stop = start + sum(1 for _ in group)
        yield replace(part_of(batch, start, stop), topic=topic, topics=(), partition=partition, partitions=())
        start = stop


def checked_times(times_ms: Sequence[int | None]) -> Sequence[int | None]:
    """The timestamps of records for Kafka, with None in place of -1. Raises InvalidRecordError for any other negative
    one.
    """
    earliest_ms = min(filter(None, times_ms), default=0)
    if earliest_ms >= 0:
        return times_ms
    if earliest_ms < NO_TIMESTAMP_MS:
        raise InvalidRecordError(f"Invalid record timestamp {earliest_ms}")
    return [None if time_ms == NO_TIMESTAMP_MS else time_ms for time_ms in times_ms]
