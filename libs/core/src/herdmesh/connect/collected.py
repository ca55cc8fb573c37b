"""Cutting batches into parts of one shape and topic, and joining records that went alone with them again.

Owns the order of what a chain gives. Converts and transforms nothing.

Invariant: records keep their order, and no batch is empty.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import groupby

from herdmesh.connect.converters.base import Schemas
from herdmesh.connect.data import Batch
from herdmesh.connect.schemas import Schema
from herdmesh.connect.transforms.base import Cells, Shape


class Collected:
    """What a chain makes of a batch, in order: parts of it, and single records, gathered by topic and shape."""

    def __init__(self, given: Batch) -> None:
        """`given` has the columns that go along with a single record."""
        self._given = given
        self._made: list[Batch] = []
        self._singles: list[tuple[str | None, Shape, list[int], list[Cells]]] = []

    def add(self, at: int, cells: Cells, shape: Shape) -> None:
        """What the record at that place of the given batch became."""
        if not self._singles or (self._singles[-1][0], self._singles[-1][1]) != (cells[2], shape):
            self._singles.append((cells[2], shape, [], []))
        self._singles[-1][2].append(at)
        self._singles[-1][3].append(cells)

    def take(self, part: Batch) -> None:
        """What the next records became."""
        self._join()
        self._made += by_topic(part)

    def batches(self) -> list[Batch]:
        """All that was made."""
        self._join()
        return self._made

    def _join(self) -> None:
        self._made += [self._batch(*one) for one in self._singles]
        self._singles.clear()

    def _batch(self, topic: str | None, shape: Shape, places: list[int], cells: list[Cells]) -> Batch:
        given = self._given
        keys = [one[0] for one in cells]
        headers = [one[3] for one in cells]
        return Batch(
            topic or "", given.partition,
            keys if given.keys or any(key is not None for key in keys) else (),
            [one[1] for one in cells],
            [given.offsets[at] for at in places] if given.offsets else (),
            [given.timestamps_ms[at] for at in places] if given.timestamps_ms else (),
            shape.key, shape.value,
            headers if any(headers) else (),
            places=[given.places[at] for at in places] if given.places else (),
        )  # fmt: skip


def runs(
    start: int, stop: int, keys: Schemas, values: Schemas
) -> Iterator[tuple[int, int, Schema | None, Schema | None]]:
    """Stretches of records from `start` to `stop` with the same pair of schemas: start, stop, and the two schemas."""
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
    )


def by_topic(batch: Batch) -> Iterator[Batch]:
    """The batch split where its topic changes."""
    if not batch.values:
        return
    if not batch.topics:
        yield batch
        return
    start = 0
    for topic, group in groupby(batch.topics):
        stop = start + sum(1 for _ in group)
        yield replace(part_of(batch, start, stop), topic=topic, topics=())
        start = stop
