"""The chain of a task: converters and transformations, between Kafka's bytes and what a task takes or gives.

    sink:   raw keys, values, headers -> converters -> steps -> Connect values
    source: Connect values -> steps -> converters -> raw keys, values, headers

Owns the order of things and which of two ways a batch goes: all records through one compiled loop (`program.Loop`),
or, when that raises, around the bad records: the good ones together as before, a bad one alone and stage by stage, so
that every failure has its record, stage and step. What is done about a failure (retry, skip, report, stop) is the
caller's (`Attempts`), who is told of failures in the order of the records. Does not read or write Kafka.

Invariant: both ways give the same; the batch given is not changed, nor any value in it; without `Attempts` a chain
gives all records that its steps let through, or raises for the first that fails.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Protocol, TypeVar, cast

from herdmesh.connect import pieces
from herdmesh.connect.collected import Collected, by_topic, part_of, runs
from herdmesh.connect.converters.base import Converter, HeaderConverter, Schemas
from herdmesh.connect.data import Batch, Header
from herdmesh.connect.errors import RecordError
from herdmesh.connect.lazy import LazyColumn
from herdmesh.connect.pieces import SHORT_RECORDS, Care, Converted, stretches
from herdmesh.connect.program import Cells, Diverged, Halted, Loop, Single, Step
from herdmesh.connect.transforms.base import Column, Shape

T = TypeVar("T")

KEY_CONVERTER, VALUE_CONVERTER, HEADER_CONVERTER = "KEY_CONVERTER", "VALUE_CONVERTER", "HEADER_CONVERTER"
TRANSFORMATION = "TRANSFORMATION"


class RecordSkipped(Exception):
    """A record failed, and the batch goes on without it."""


class Attempts(Protocol):
    """Runs what may fail for one record."""

    @property
    def eager(self) -> bool:
        """Every failure is to be known before a batch is given on. False lets values be decoded when a task looks at
        them, for who ends at the first failure anyway and tells nobody of it."""
        ...

    def attempt(self, call: Callable[[], T], stage: str, step: object, batch: Batch, at: int) -> T:
        """The call's result. Raises RecordSkipped to go on without the record, anything else to stop."""
        ...


class _Strict:
    """One try, and the first failure ends the batch."""

    eager = False

    def attempt(self, call: Callable[[], T], stage: str, step: object, batch: Batch, at: int) -> T:
        try:
            return call()
        except Exception as error:
            raise record_error(stage, step, batch, at, error) from error


STRICT: Attempts = _Strict()


def record_error(stage: str, step: object, batch: Batch, at: int, error: Exception) -> RecordError:
    """What is raised for a record that ends a batch."""
    offset = batch.offsets[at] if batch.offsets else None
    return RecordError(stage, str(step), batch.topic, batch.partition, offset, error)


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

    def around(
        self,
        columns: Batch,
        start: int,
        stop: int,
        shape: Shape,
        take: Callable[[Batch], None],
        alone: Callable[[int], None],
    ) -> bool:
        """Records `start` to `stop`, all of one shape, in order: `take` gets what several became together, `alone` the
        place of one that is to go by itself. Returns whether there was one."""
        halted = False
        while start < stop:
            try:
                loop = self.loop(shape)
            except Exception:  # noqa: BLE001 - alone each of them says what is wrong with its shape
                place, start = start, stop
            else:
                try:
                    take(loop.until(part_of(columns, start, stop)))
                    break
                except Halted as halt:
                    take(halt.made)
                    place = start + halt.place
                    # Many bad ones in a row are not worth a new beginning each.
                    start = place + 1 if halt.place >= SHORT_RECORDS else min(stop, place + SHORT_RECORDS)
            halted = True
            for at in range(place, start):
                alone(at)
        return halted

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
        self._care = Care()
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
        if not self._care.needed:
            try:
                return self._run_many(batch, attempts)
            except Exception:  # noqa: BLE001 - whatever it was: it is found again below, with its record, or is gone
                pass
        return self._run_around(batch, attempts)

    def close(self) -> None:
        """Release everything; called once when the task ends."""
        self._steps.close()
        for converter in (self._key, self._value, self._header):
            converter.close()

    def _run_many(self, batch: Batch, attempts: Attempts) -> list[Batch]:
        key_schemas, keys = (
            self._key.for_topic(batch.topic).read_many(batch.keys) if self._keyed and batch.keys else (None, batch.keys)
        )
        value_schemas: Schemas
        values: Sequence[Any]
        if self._lazy and not attempts.eager:
            decoded = partial(self._decoded, batch, attempts)
            value_schemas, values = self._value.read_schema, LazyColumn(batch.values, decoded)
        else:
            value_schemas, values = self._value.for_topic(batch.topic).read_many(batch.values)
        headers: Sequence[list[Any]] = batch.headers
        if self._headed and headers:
            header = self._header.for_topic(batch.topic)
            headers = [[header.read_header(name, raw) for name, raw in one] for one in headers]
        made: list[Batch] = []
        columns = replace(batch, keys=keys, values=values, headers=headers)
        for start, stop, key_schema, value_schema in runs(0, len(batch.values), key_schemas, value_schemas):
            loop = self._steps.loop(Shape(key_schema, value_schema))
            made += by_topic(loop.run(part_of(columns, start, stop)))
        return made

    def _decoded(self, batch: Batch, attempts: Attempts, raw: Sequence[bytes | None]) -> list[Any]:
        """The values, when a task looks at them. Raises RecordError for the first that cannot be read."""
        try:
            return self._value.read_many(raw)[1]
        except Exception:
            for at, data in enumerate(raw):
                attempts.attempt(partial(self._value.read, data), VALUE_CONVERTER, self._value, batch, at)
            raise

    def _run_around(self, batch: Batch, attempts: Attempts) -> list[Batch]:
        """The good records together and the bad ones each alone."""
        keys, values, headers = self._columns(batch)
        columns = replace(batch, keys=keys.values, values=values.values, headers=headers.values)
        made = Collected(batch)

        def alone(at: int) -> None:
            try:
                after = self._steps.one(*self._read_one(batch, at, attempts), batch, at, attempts)
            except RecordSkipped:
                return
            if after is not None:
                made.add(at, *after)

        bad = False
        for start, stop, good in stretches(len(batch.values), keys.failed, values.failed, headers.failed):
            if not good:
                bad = True
                for at in range(start, stop):
                    alone(at)
                continue
            for begin, end, key_schema, value_schema in runs(start, stop, keys.schemas, values.schemas):
                bad |= self._steps.around(columns, begin, end, Shape(key_schema, value_schema), made.take, alone)
        self._care.note(bad=bad)
        return made.batches()

    def _columns(self, batch: Batch) -> tuple[Converted, Converted, Converted]:
        keys, headers = Converted(batch.keys), Converted(batch.headers)
        if self._keyed and batch.keys:
            keys = pieces.read(self._key.for_topic(batch.topic), batch.keys)
        if self._headed and batch.headers:
            read_header = self._header.for_topic(batch.topic).read_header
            headers = pieces.each(batch.headers, lambda one: [read_header(name, raw) for name, raw in one])
        return keys, pieces.read(self._value.for_topic(batch.topic), batch.values), headers

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
        self._care = Care()
        self._headed = "headers" in _wanted(steps)

    @property
    def loops(self) -> Mapping[Shape, Loop | None]:
        """What was compiled so far, by shape; None = records of that shape go one by one."""
        return self._steps.loops

    def run(self, batch: Batch, attempts: Attempts = STRICT) -> list[Batch]:
        """Transform and convert a batch of Connect records: raw batches of one topic each, in order; `None` as a value
        is a tombstone. Each has the `places` its records had in the batch given.

        Raises:
            RecordError: the first record that cannot be transformed or converted.
        """
        if not batch.values:
            return []
        if not self._care.needed:
            try:
                return self._run_many(self._placed(batch))
            except Exception:  # noqa: BLE001 - whatever it was: it is found again below, with its record, or is gone
                pass
        return self._run_around(batch, attempts)

    def close(self) -> None:
        """Release everything; called once when the task ends."""
        self._steps.close()
        for converter in (self._key, self._value, self._header):
            converter.close()

    def _placed(self, batch: Batch) -> Batch:
        """With places, and with headers that steps may change."""
        headers = [list(one) for one in batch.headers] if self._headed else batch.headers
        return replace(batch, places=range(len(batch.values)), headers=headers)

    def _run_many(self, batch: Batch) -> list[Batch]:
        loop = self._steps.loop(Shape(batch.key_schema, batch.value_schema, source=True))
        return [self._written(done) for done in by_topic(loop.run(batch))]

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

    def _run_around(self, batch: Batch, attempts: Attempts) -> list[Batch]:
        """The good records together and the bad ones each alone."""
        columns = self._placed(batch)
        shape = Shape(batch.key_schema, batch.value_schema, source=True)
        made = Collected(columns)
        bad = False

        def alone(at: int) -> None:
            try:
                after = self._steps.one(_cells(batch, at), shape, batch, at, attempts)
                if after is not None:
                    made.add(at, self._write_one(*after, batch, at, attempts), Shape(source=True))
            except RecordSkipped:
                return

        def take(done: Batch) -> None:
            nonlocal bad
            for part in by_topic(done):
                written, *failed = self._written_around(part)
                for start, stop, good in stretches(len(part.values), *failed):
                    if good:
                        made.take(part_of(written, start, stop))
                        continue
                    bad = True
                    for place in part.places[start:stop]:
                        alone(place)

        halted = self._steps.around(columns, 0, len(batch.values), shape, take, alone)
        self._care.note(bad=bad or halted)
        return made.batches()

    def _written_around(self, batch: Batch) -> tuple[Batch, Sequence[int], Sequence[int], Sequence[int]]:
        """The batch as it is written, and the places that could not be, by column."""
        write_header = self._header.for_topic(batch.topic).write_header
        headers = pieces.each(batch.headers, lambda one: [(header.key, write_header(header)) for header in one])
        keys = pieces.write(self._key.for_topic(batch.topic), batch.keys, batch.key_schema)
        values = pieces.write(self._value.for_topic(batch.topic), batch.values, batch.value_schema)
        written = replace(
            batch, keys=keys.values, values=values.values, headers=headers.values, key_schema=None, value_schema=None
        )
        return written, headers.failed, keys.failed, values.failed

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


def _cells(batch: Batch, at: int) -> Cells:
    headers = list(batch.headers[at]) if batch.headers else []
    return batch.keys[at] if batch.keys else None, batch.values[at], batch.topic, headers


def _wanted(steps: Sequence[Step]) -> frozenset[Column]:
    """The columns that steps look at or change, whatever the shape."""
    return frozenset[Column]().union(*(step.touches for step in steps))
