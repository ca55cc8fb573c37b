"""Record chain of a task: converters and transformations between Kafka's bytes and Connect values.

    sink:   raw keys, values, headers -> converters -> steps -> Connect values
    source: Connect values -> steps -> converters -> raw keys, values, headers

Owns the order of the stages, and the choice between two paths for a batch. The first path sends all records through one
compiled loop (`compiled_loop`). When that raises, the second path isolates the bad records: good records together as
before, a bad record alone and stage by stage, so that every failure has its record, stage and step. The caller decides
about a failure (retry, skip, report, stop) by its `Attempts`, which gets failures in the order of the records. Does not
read or write Kafka.

Invariant: both paths give equal results; the given batch and its values are not changed; without `Attempts` a chain
returns all records that its steps do not filter, or raises for the first that fails.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, cast

from herdmesh.connect.chain import bisect_conversion
from herdmesh.connect.chain.batch_assembly import Collected, by_topic, checked_times, part_of, runs
from herdmesh.connect.chain.bisect_conversion import Care, Converted, stretches
from herdmesh.connect.chain.compiled_loop import Loop, Step
from herdmesh.connect.chain.record_failure_policy import (
    HEADER_CONVERTER,
    KEY_CONVERTER,
    STRICT,
    TRANSFORMATION,
    VALUE_CONVERTER,
    Attempts,
    RecordSkipped,
)
from herdmesh.connect.chain.step_compiler import Steps, wanted_columns
from herdmesh.connect.converters import Converter, HeaderConverter, Schemas
from herdmesh.connect.model import Batch, ConnectRecord, Header
from herdmesh.connect.transforms import Cells, Shape


class SinkChain:
    """Chain from Kafka's bytes to the values of a sink task.

    Args:
        keys: False leaves keys as raw bytes unless a step reads them.
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
        self._steps = Steps(steps, owned=True)
        self._care = Care()
        wanted = wanted_columns(steps)
        self._keyed = keys or "key" in wanted
        self._headed = headers or "headers" in wanted
        # No step reads the values, and all have one schema: they are decoded if and when the task reads them. Where
        # each record has its own schema, as JSON with schemas does, the task needs the schema first, which requires
        # decoding.
        self._lazy = "value" not in wanted and value.is_static

    @property
    def loops(self) -> Mapping[Shape, Loop | None]:
        """The compiled loops by shape; None = records of that shape are processed one by one."""
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
            except Exception:  # noqa: BLE001 - any error occurs again below, with its record, or it was transient
                pass
        return self._run_around(batch, attempts)

    def write_record(self, record: ConnectRecord) -> tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]]]:
        """Convert a record that the task itself made to its form in a topic: key, value and headers by the converters,
        without the steps. Raises the converters' errors for values that they cannot write, mostly DataError.
        """
        topic = record.topic or ""
        key = self._key.for_topic(topic).write(record.key, record.key_schema)
        value = self._value.for_topic(topic).write(record.value, record.value_schema)
        header = self._header.for_topic(topic)
        return key, value, [(one.key, header.write_header(one)) for one in record.headers]

    def close(self) -> None:
        """Release all resources; called once when the task ends."""
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
            value_schemas, values = self._value.read_schema, self._value.unread(batch.values, decoded)
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
        """Decode the values when a task reads them. Raises RecordError for the first unreadable value."""
        try:
            values = self._value.read_many(raw)[1]
            return values if isinstance(values, list) else list(values)
        except Exception as error:  # noqa: BLE001 - it occurs again below, with its record
            failed = error
        # Outside of `except`: in a trace the error of the record would follow the same error of the batch.
        for at, data in enumerate(raw):
            attempts.attempt(partial(self._value.read, data), VALUE_CONVERTER, self._value, batch, at)
        raise failed

    def _run_around(self, batch: Batch, attempts: Attempts) -> list[Batch]:
        """Process the good records together and each bad record alone."""
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
            keys = bisect_conversion.read(self._key.for_topic(batch.topic), batch.keys)
        if self._headed and batch.headers:
            read_header = self._header.for_topic(batch.topic).read_header
            headers = bisect_conversion.each(batch.headers, lambda one: [read_header(name, raw) for name, raw in one])
        return keys, bisect_conversion.read(self._value.for_topic(batch.topic), batch.values), headers

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
        time_ms = batch.timestamps_ms[at] if batch.timestamps_ms else None
        return (key, value, batch.topic, headers, batch.partition, time_ms), Shape(key_schema, value_schema)


class SourceChain:
    """Chain from the records of a source task to Kafka's bytes."""

    def __init__(self, key: Converter, value: Converter, header: HeaderConverter, steps: Sequence[Step]) -> None:
        self._key, self._value, self._header = key, value, header
        self._steps = Steps(steps, owned=False)
        self._care = Care()
        wanted = wanted_columns(steps)
        self._headed = "headers" in wanted
        self._timed = any(step.transformation.makes_times for step in steps)

    @property
    def loops(self) -> Mapping[Shape, Loop | None]:
        """The compiled loops by shape; None = records of that shape are processed one by one."""
        return self._steps.loops

    def run(self, batch: Batch, attempts: Attempts = STRICT) -> list[Batch]:
        """Transform and convert a batch of Connect records: raw batches of one topic each, in order; `None` as a value
        is a tombstone. Each has as `places` the indexes of its records in the given batch.

        Raises:
            RecordError: the first record that cannot be transformed or converted.
        """
        if not batch.values:
            return []
        if not self._care.needed:
            try:
                return self._run_many(self._placed(batch))
            except Exception:  # noqa: BLE001 - any error occurs again below, with its record, or it was transient
                pass
        return self._run_around(batch, attempts)

    def close(self) -> None:
        """Release all resources; called once when the task ends."""
        self._steps.close()
        for converter in (self._key, self._value, self._header):
            converter.close()

    def _placed(self, batch: Batch) -> Batch:
        """The batch with `places`, and with headers that steps may change."""
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
            timestamps_ms=self._times(batch.timestamps_ms),
            keys=key.write_many(batch.keys, batch.key_schema) if batch.keys else (),
            values=value.write_many(batch.values, batch.value_schema),
            headers=headers,
            key_schema=None,
            value_schema=None,
        )

    def _run_around(self, batch: Batch, attempts: Attempts) -> list[Batch]:
        """Process the good records together and each bad record alone."""
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

    def _times(self, times_ms: Sequence[int | None]) -> Sequence[int | None]:
        """The timestamps in Kafka's form. Those of the batch are valid: only a step can produce invalid ones."""
        return checked_times(times_ms) if self._timed else times_ms

    def _written_around(self, batch: Batch) -> tuple[Batch, *tuple[Sequence[int], ...]]:
        """The batch as written, and the indexes of the failures, by column."""
        write_header = self._header.for_topic(batch.topic).write_header
        headers = bisect_conversion.each(
            batch.headers, lambda one: [(header.key, write_header(header)) for header in one]
        )
        keys = bisect_conversion.write(self._key.for_topic(batch.topic), batch.keys, batch.key_schema)
        values = bisect_conversion.write(self._value.for_topic(batch.topic), batch.values, batch.value_schema)
        times = bisect_conversion.each(batch.timestamps_ms, lambda one: self._times([one])[0]) if self._timed else None
        written = replace(
            batch, keys=keys.values, values=values.values, headers=headers.values, key_schema=None, value_schema=None,
            timestamps_ms=batch.timestamps_ms if times is None else times.values,
        )  # fmt: skip
        return written, headers.failed, keys.failed, values.failed, () if times is None else times.failed

    def _write_one(self, cells: Cells, shape: Shape, batch: Batch, at: int, attempts: Attempts) -> Cells:
        key, value, topic, headers, partition, time_ms = cells
        to = topic or ""
        if self._timed:
            times = [time_ms]
            time_ms = attempts.attempt(lambda: self._times(times)[0], TRANSFORMATION, self._steps.steps[-1], batch, at)
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
        return raw_key, raw_value, topic, cast("list[Header]", raw_headers), partition, time_ms


def _cells(batch: Batch, at: int) -> Cells:
    headers = list(batch.headers[at]) if batch.headers else []
    time_ms = batch.timestamps_ms[at] if batch.timestamps_ms else None
    return batch.keys[at] if batch.keys else None, batch.values[at], batch.topic, headers, batch.partition, time_ms
