"""The chain of a task: converters and transformations, between Kafka's bytes and what a task takes or gives.

    sink:   raw keys, values, headers -> converters -> steps -> Connect values
    source: Connect values -> steps -> converters -> raw keys, values, headers

Owns the order of things and which of two ways a batch goes: all records through one compiled loop (`program.Loop`),
or, when that raises, one by one and stage by stage, so that every failure has its record, stage and step. What is done
about a failure (retry, skip, report, stop) is the caller's (`Attempts`). Does not read or write Kafka.

Invariant: both ways give the same; the batch given is not changed, nor any value in it; without `Attempts` a chain
gives all records that its steps let through, or raises for the first that fails.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import groupby
from typing import Any, Protocol, TypeVar, cast

from herdmesh.connect.converters.base import Converter, HeaderConverter
from herdmesh.connect.data import Batch, Header
from herdmesh.connect.errors import RecordError
from herdmesh.connect.lazy import LazyColumn
from herdmesh.connect.program import Cells, Diverged, Loop, Single, Step
from herdmesh.connect.schemas import Schema
from herdmesh.connect.transforms.base import Column, Shape

T = TypeVar("T")

KEY_CONVERTER, VALUE_CONVERTER, HEADER_CONVERTER = "KEY_CONVERTER", "VALUE_CONVERTER", "HEADER_CONVERTER"
TRANSFORMATION = "TRANSFORMATION"


class RecordSkipped(Exception):
    """A record failed, and the batch goes on without it."""


class Attempts(Protocol):
    """Runs what may fail for one record."""

    def attempt(self, call: Callable[[], T], stage: str, step: object, batch: Batch, at: int) -> T:
        """The call's result. Raises RecordSkipped to go on without the record, anything else to stop."""
        ...


class _Strict:
    """One try, and the first failure ends the batch."""

    def attempt(self, call: Callable[[], T], stage: str, step: object, batch: Batch, at: int) -> T:
        try:
            return call()
        except Exception as error:
            offset = batch.offsets[at] if batch.offsets else None
            raise RecordError(stage, str(step), batch.topic, batch.partition, offset, error) from error


STRICT: Attempts = _Strict()


class _Steps:
    """The steps of a chain, compiled for every shape of record that comes along."""

    def __init__(self, steps: Sequence[Step], *, owned: bool) -> None:
        self.steps = tuple(steps)
        self._owned = owned
        self._loops: dict[Shape, Loop | None] = {}
        self._singles: list[dict[Shape, Single]] = [{} for _ in steps]

    @property
    def loops(self) -> Mapping[Shape, Loop | None]:
        """What was compiled so far; None = records of that shape go one by one."""
        return self._loops

    def loop(self, shape: Shape) -> Loop:
        """All steps at once for this shape. Raises Diverged when there can be no such thing, or what compiling raises:
        one by one it is raised again, with its record."""
        try:
            found = self._loops[shape]
        except KeyError:
            try:
                found = Loop(self.steps, shape, owned=self._owned)
            except Diverged:
                found = None
            self._loops[shape] = found
        if found is None:
            raise Diverged
        return found

    def one(self, cells: Cells, shape: Shape, batch: Batch, at: int, attempts: Attempts) -> tuple[Cells, Shape] | None:
        """One record through all steps, one after the other; None = left out."""
        for step, singles in zip(self.steps, self._singles, strict=True):
            after = attempts.attempt(
                partial(_step_one, step, singles, cells, shape, batch, at), TRANSFORMATION, step, batch, at
            )
            if after is None:
                return None
            cells, shape = after
        return cells, shape

    def close(self) -> None:
        """Release the transformations."""
        for step in self.steps:
            step.transformation.close()


def _step_one(
    step: Step, singles: dict[Shape, Single], cells: Cells, shape: Shape, batch: Batch, at: int
) -> tuple[Cells, Shape] | None:
    if not step.applies(cells):
        return cells, shape
    single = singles.get(shape)
    if single is None:
        single = singles[shape] = Single(step, shape)
    return single.run(cells, batch, at)


class SinkChain:
    """From Kafka's bytes to what a sink task takes.

    Args:
        keys: False leaves keys as raw bytes unless a step looks at them.
        headers: the same for headers.
    """

    def __init__(
        self,
        key: Converter,
        value: Converter,
        header: HeaderConverter,
        steps: Sequence[Step],
        *,
        keys: bool = True,
        headers: bool = True,
    ) -> None:
        self._key, self._value, self._header = key, value, header
        self._steps = _Steps(steps, owned=True)
        wanted = _wanted(steps)
        self._keyed = keys or "key" in wanted
        self._headed = headers or "headers" in wanted
        # Nobody looks at values of one schema on their way: they are decoded when, and if, the task does.
        self._lazy = "value" not in wanted and value.is_static

    @property
    def loops(self) -> Mapping[Shape, Loop | None]:
        """What was compiled so far, by shape; None = records of that shape go one by one."""
        return self._steps.loops

    def run(self, batch: Batch, attempts: Attempts = STRICT) -> list[Batch]:
        """Convert and transform a batch of raw records: batches of one shape and topic each, in order.

        Raises:
            RecordError: the first record that cannot be converted or transformed, with its coordinates.
        """
        if not batch.values:
            return []
        try:
            return self._run_many(batch, attempts)
        except Exception:  # noqa: BLE001 - whatever it was: one by one it is found again, with its record, or is gone
            return self._run_each(batch, attempts)

    def close(self) -> None:
        """Release everything; called once when the task ends."""
        self._steps.close()

    def _run_many(self, batch: Batch, attempts: Attempts) -> list[Batch]:
        key_schemas, keys = (
            self._key.for_topic(batch.topic).read_many(batch.keys) if self._keyed and batch.keys else (None, batch.keys)
        )
        value_schemas: Schema | list[Schema | None] | None
        values: Sequence[Any]
        if self._lazy and attempts is STRICT:  # who goes on without a record must know of it now
            value_schemas, values = self._value.read_schema, LazyColumn(batch.values, partial(self._decoded, batch))
        else:
            value_schemas, values = self._value.for_topic(batch.topic).read_many(batch.values)
        headers: Sequence[list[Any]] = batch.headers
        if self._headed and headers:
            header = self._header.for_topic(batch.topic)
            headers = [[header.read_header(name, raw) for name, raw in one] for one in headers]
        made: list[Batch] = []
        for start, stop, key_schema, value_schema in _runs(len(batch.values), key_schemas, value_schemas):
            whole = stop - start == len(batch.values)
            loop = self._steps.loop(Shape(key_schema, value_schema))
            part = replace(batch, keys=keys, values=values, headers=headers)
            made += _by_topic(loop.run(part if whole else _slice(part, start, stop)))
        return made

    def _decoded(self, batch: Batch, raw: Sequence[bytes | None]) -> list[Any]:
        """The values, when a task looks at them. Raises RecordError for the first that cannot be read."""
        try:
            return self._value.read_many(raw)[1]
        except Exception:
            for at, data in enumerate(raw):
                STRICT.attempt(partial(self._value.read, data), VALUE_CONVERTER, self._value, batch, at)
            raise

    def _run_each(self, batch: Batch, attempts: Attempts) -> list[Batch]:
        made = _Collected(batch)
        for at in range(len(batch.values)):
            try:
                read = self._read_one(batch, at, attempts)
                after = self._steps.one(*read, batch, at, attempts)
            except RecordSkipped:
                continue
            if after is not None:
                made.add(at, *after)
        return made.batches()

    def _read_one(self, batch: Batch, at: int, attempts: Attempts) -> tuple[Cells, Shape]:
        key_schema, key = None, batch.keys[at] if batch.keys else None
        if self._keyed and batch.keys:
            raw_key = key
            key_schema, key = attempts.attempt(
                lambda: self._key.for_topic(batch.topic).read(raw_key), KEY_CONVERTER, self._key, batch, at
            )
        value_schema, value = attempts.attempt(
            lambda: self._value.for_topic(batch.topic).read(batch.values[at]), VALUE_CONVERTER, self._value, batch, at
        )
        headers: list[Any] = batch.headers[at] if batch.headers else []
        if self._headed:
            raw = headers
            headers = attempts.attempt(
                lambda: [self._header.for_topic(batch.topic).read_header(name, data) for name, data in raw],
                HEADER_CONVERTER, self._header, batch, at,
            )  # fmt: skip
        return (key, value, batch.topic, headers), Shape(key_schema, value_schema)


class SourceChain:
    """From what a source task gives to Kafka's bytes."""

    def __init__(self, key: Converter, value: Converter, header: HeaderConverter, steps: Sequence[Step]) -> None:
        self._key, self._value, self._header = key, value, header
        self._steps = _Steps(steps, owned=False)
        self._headed = "headers" in _wanted(steps)

    @property
    def loops(self) -> Mapping[Shape, Loop | None]:
        """What was compiled so far, by shape; None = records of that shape go one by one."""
        return self._steps.loops

    def run(self, batch: Batch, attempts: Attempts = STRICT) -> list[Batch]:
        """Transform and convert a batch of Connect records: raw batches of one topic each, in order; `None` as a value
        is a tombstone.

        Raises:
            RecordError: the first record that cannot be transformed or converted.
        """
        if not batch.values:
            return []
        try:
            return self._run_many(batch)
        except Exception:  # noqa: BLE001 - whatever it was: one by one it is found again, with its record, or is gone
            return self._run_each(batch, attempts)

    def close(self) -> None:
        """Release everything; called once when the task ends."""
        self._steps.close()

    def _run_many(self, batch: Batch) -> list[Batch]:
        loop = self._steps.loop(Shape(batch.key_schema, batch.value_schema, source=True))
        if self._headed and batch.headers:
            batch = replace(batch, headers=[list(one) for one in batch.headers])
        return [self._written(done) for done in _by_topic(loop.run(batch))]

    def _written(self, batch: Batch) -> Batch:
        key, value = self._key.for_topic(batch.topic), self._value.for_topic(batch.topic)
        header = self._header.for_topic(batch.topic)
        headers = [[(one.key, header.write_header(one)) for one in headers] for headers in batch.headers]
        return replace(
            batch,
            keys=key.write_many(batch.keys, batch.key_schema) if batch.keys else (),
            values=value.write_many(batch.values, batch.value_schema),
            headers=headers,
            key_schema=None,
            value_schema=None,
        )

    def _run_each(self, batch: Batch, attempts: Attempts) -> list[Batch]:
        made = _Collected(batch)
        for at in range(len(batch.values)):
            headers = list(batch.headers[at]) if batch.headers else []
            cells: Cells = (batch.keys[at] if batch.keys else None, batch.values[at], batch.topic, headers)
            try:
                after = self._steps.one(
                    cells, Shape(batch.key_schema, batch.value_schema, source=True), batch, at, attempts
                )
                if after is not None:
                    made.add(at, self._write_one(*after, batch, at, attempts), Shape(source=True))
            except RecordSkipped:
                continue
        return made.batches()

    def _write_one(self, cells: Cells, shape: Shape, batch: Batch, at: int, attempts: Attempts) -> Cells:
        key, value, topic, headers = cells
        to = topic or ""
        raw_headers = attempts.attempt(
            lambda: [(one.key, self._header.for_topic(to).write_header(one)) for one in headers],
            HEADER_CONVERTER, self._header, batch, at,
        )  # fmt: skip
        raw_key = None
        if batch.keys or key is not None or shape.key is not None:
            raw_key = attempts.attempt(
                lambda: self._key.for_topic(to).write(key, shape.key), KEY_CONVERTER, self._key, batch, at
            )
        raw_value = attempts.attempt(
            lambda: self._value.for_topic(to).write(value, shape.value), VALUE_CONVERTER, self._value, batch, at
        )
        return raw_key, raw_value, topic, cast("list[Header]", raw_headers)


class _Collected:
    """Records gathered one by one into batches of one topic and shape."""

    def __init__(self, given: Batch) -> None:
        self._given = given
        self._made: list[tuple[str | None, Shape, list[int], list[Cells]]] = []

    def add(self, at: int, cells: Cells, shape: Shape) -> None:
        if not self._made or (self._made[-1][0], self._made[-1][1]) != (cells[2], shape):
            self._made.append((cells[2], shape, [], []))
        self._made[-1][2].append(at)
        self._made[-1][3].append(cells)

    def batches(self) -> list[Batch]:
        return [self._batch(*one) for one in self._made]

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
        )  # fmt: skip


def _wanted(steps: Sequence[Step]) -> frozenset[Column]:
    """The columns that steps look at or change, whatever the shape."""
    return frozenset[Column]().union(*(step.touches for step in steps))


def _runs(
    count: int, keys: Schema | list[Schema | None] | None, values: Schema | list[Schema | None] | None
) -> Iterator[tuple[int, int, Schema | None, Schema | None]]:
    """Stretches of records with the same pair of schemas: start, stop, schema of key and value."""
    if not isinstance(keys, list) and not isinstance(values, list):
        yield 0, count, keys, values
        return
    each_key = keys if isinstance(keys, list) else [keys] * count
    each_value = values if isinstance(values, list) else [values] * count
    start = 0
    for pair, group in groupby(zip(each_key, each_value, strict=True)):
        stop = start + sum(1 for _ in group)
        yield start, stop, *pair
        start = stop


def _slice(batch: Batch, start: int, stop: int) -> Batch:
    return replace(
        batch,
        keys=batch.keys[start:stop],
        values=batch.values[start:stop],
        offsets=batch.offsets[start:stop],
        timestamps_ms=batch.timestamps_ms[start:stop],
        headers=batch.headers[start:stop],
    )


def _by_topic(batch: Batch) -> Iterator[Batch]:
    """The batch split where its topic changes."""
    if not batch.values:
        return
    if not batch.topics:
        yield batch
        return
    start = 0
    for topic, group in groupby(batch.topics):
        stop = start + sum(1 for _ in group)
        part = batch if stop - start == len(batch.values) else _slice(batch, start, stop)
        yield replace(part, topic=topic, topics=())
        start = stop
