"""The chain of a task: converters and transformations compiled into one Python function per shape of records.

Owns compiling and running. What a step does it writes itself (`transforms.base.emit_map`); this module fuses the
pieces, so that a record costs a few dictionary operations and no call. Does not read or write Kafka, and decides
nothing about errors: a failing batch is run again record by record only to say which failed in which stage, and why.

    sink:   raw keys, values -> converters -> steps on key and value -> Connect values
    source: Connect values   -> steps on key and value -> converters -> raw keys, values

Invariant: running a batch gives what running its records one by one, step by step, gives; the batch given is not
changed, nor any value in it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from herdmesh.connect.converters import Converter
from herdmesh.connect.data import Batch, Schema
from herdmesh.connect.errors import RecordError
from herdmesh.connect.transforms import Code, Transformation

Columns = tuple[Sequence[Any], Sequence[Any]]
"""Keys and values."""
_Compiled = Callable[[str, int | None, Sequence[Any], Sequence[Any], Sequence[int], Sequence[int | None]], Columns]
_Many = Callable[[Sequence[Any]], list[Any]]


@dataclass(frozen=True, slots=True)
class Step:
    """One configured transformation under its alias in the connector's config."""

    alias: str
    transformation: Transformation

    def __str__(self) -> str:
        return f"transformation '{self.alias}' ({self.transformation.class_name})"


@dataclass(frozen=True, slots=True)
class _Stage:
    """One thing done to one column, runnable alone: what `_explain` uses to find the culprit."""

    name: str
    step: str
    on_key: bool
    run: Callable[[Batch, Sequence[Any], int], Sequence[Any]]


class SinkChain:
    """From Kafka's bytes to what a sink task takes.

    Args:
        keys: False leaves keys as raw bytes unless a step works on them; `read_keys` converts them when wanted.
    """

    def __init__(self, key: Converter, value: Converter, steps: Sequence[Step], *, keys: bool = True) -> None:
        self.read_keys: Callable[[Sequence[bytes | None]], list[Any]] = key.to_connect_many
        self._key, self._value = key, value
        keyed = keys or any(step.transformation.on_key for step in steps)
        self.key_schema: Schema | None = key.read_schema if keyed else None
        self.value_schema: Schema | None = value.read_schema
        stages: list[_Stage] = []
        if keyed:
            stages.append(_converter_stage("KEY_CONVERTER", key, True, key.to_connect_many))
        stages.append(_converter_stage("VALUE_CONVERTER", value, False, value.to_connect_many))
        shape = _Shape(steps, source=False, key_schema=key.read_schema, value_schema=value.read_schema)
        stages.extend(shape.stages())
        self._stages = stages
        self.source, self._compiled = shape.compile(
            before=(key.to_connect_many if keyed else None, value.to_connect_many), after=(None, None)
        )

    def run(self, batch: Batch) -> Batch:
        """Convert and transform a batch of raw records.

        Raises:
            RecordError: the first record that cannot be converted or transformed, with its coordinates.
        """
        keys, values = _run(self._compiled, self._stages, batch)
        return Batch(
            batch.topic, batch.partition, keys, values, batch.offsets, batch.timestamps_ms,
            self.key_schema, self.value_schema,
        )  # fmt: skip


class SourceChain:
    """From what a source task gives to Kafka's bytes. Compiled once per kind of schema that comes along."""

    def __init__(self, key: Converter, value: Converter, steps: Sequence[Step]) -> None:
        self._key, self._value, self._steps = key, value, tuple(steps)
        self._shapes: dict[tuple[Schema | None, Schema | None], tuple[str, _Compiled, list[_Stage]]] = {}

    @property
    def sources(self) -> list[str]:
        """The generated functions so far."""
        return [source for source, _, _ in self._shapes.values()]

    def run(self, batch: Batch) -> Batch:
        """Transform and convert a batch of Connect records; `None` as a value in the result is a tombstone.

        Raises:
            RecordError: the first record that cannot be transformed or converted.
        """
        schemas = (batch.key_schema, batch.value_schema)
        found = self._shapes.get(schemas)
        if found is None:
            found = self._shapes[schemas] = self._compile(*schemas)
        keys, values = _run(found[1], found[2], batch)
        return Batch(batch.topic, batch.partition, keys, values, batch.offsets, batch.timestamps_ms)

    def _compile(self, key_schema: Schema | None, value_schema: Schema | None) -> tuple[str, _Compiled, list[_Stage]]:
        shape = _Shape(self._steps, source=True, key_schema=key_schema, value_schema=value_schema)
        write_key, write_value = _writer(self._key, key_schema), _writer(self._value, value_schema)
        source, compiled = shape.compile(before=(None, None), after=(write_key, write_value))
        stages = [
            *shape.stages(),
            _converter_stage("KEY_CONVERTER", self._key, True, write_key),
            _converter_stage("VALUE_CONVERTER", self._value, False, write_value),
        ]
        return source, compiled, stages


def _writer(converter: Converter, schema: Schema | None) -> _Many:
    if schema is None:
        return converter.from_connect_many
    return lambda values: converter.from_connect_many(values, schema)


def _converter_stage(name: str, converter: Converter, on_key: bool, convert: _Many) -> _Stage:
    return _Stage(name, f"converter {converter.java_class}", on_key, lambda _batch, column, _at: convert(column))


def _run(compiled: _Compiled, stages: Sequence[_Stage], batch: Batch) -> Columns:
    count = len(batch.values)
    offsets = batch.offsets or (0,) * count
    timestamps = batch.timestamps_ms or (None,) * count
    try:
        return compiled(batch.topic, batch.partition, batch.keys, batch.values, offsets, timestamps)
    except Exception as error:
        _explain(stages, batch)
        raise RecordError("", "the whole batch", batch.topic, batch.partition, None, error) from error


def _explain(stages: Sequence[_Stage], batch: Batch) -> None:
    """Run the records one by one, stage by stage, and raise RecordError for the first that fails."""
    keys = batch.keys or (None,) * len(batch.values)
    for at, (key, value) in enumerate(zip(keys, batch.values, strict=True)):
        columns: list[Sequence[Any]] = [[key], [value]]
        for stage in stages:
            column = 0 if stage.on_key else 1
            try:
                columns[column] = stage.run(batch, columns[column], at)
            except Exception as error:
                offset = batch.offsets[at] if batch.offsets else None
                raise RecordError(stage.name, stage.step, batch.topic, batch.partition, offset, error) from error


@dataclass(frozen=True, slots=True)
class _Shape:
    """What a chain is compiled for: its steps and what kind of values they meet."""

    steps: Sequence[Step]
    source: bool
    key_schema: Schema | None
    value_schema: Schema | None

    def stages(self) -> list[_Stage]:
        """Each step as a function of its own."""
        return [self._stage(step) for step in self.steps]

    def _stage(self, step: Step) -> _Stage:
        on_key = step.transformation.on_key
        alone = _Shape([step], self.source, self.key_schema, self.value_schema)
        _, compiled = alone.compile(before=(None, None), after=(None, None))

        def run(batch: Batch, column: Sequence[Any], at: int) -> Sequence[Any]:
            offsets = batch.offsets[at : at + 1] or (0,)
            timestamps = batch.timestamps_ms[at : at + 1] or (None,)
            keys, values = (column, [None]) if on_key else ([None], column)
            return compiled(batch.topic, batch.partition, keys, values, offsets, timestamps)[0 if on_key else 1]

        return _Stage("TRANSFORMATION", str(step), on_key, run)

    def compile(
        self, *, before: tuple[_Many | None, _Many | None], after: tuple[_Many | None, _Many | None]
    ) -> tuple[str, _Compiled]:
        """The generated source and its function. `before` and `after` convert the key and value columns."""
        code = Code(source=self.source)
        code.line("def chain(topic, partition, keys, values, offsets, timestamps):")
        code.indent = 1
        _emit_conversions(code, before)
        for on_key, column, schema in ((True, "keys", self.key_schema), (False, "values", self.value_schema)):
            steps = [step.transformation for step in self.steps if step.transformation.on_key is on_key]
            if steps:
                # A column fresh from a converter is ours to change; any other belongs to whoever gave it.
                self._emit_loop(code, column, steps, schema, owned=before[0 if on_key else 1] is not None)
        _emit_conversions(code, after)
        code.line("return keys, values")
        source = "\n".join(code.lines) + "\n"
        namespace: dict[str, Any] = dict(code.constants)
        exec(compile(source, "<chain>", "exec"), namespace)  # the text is ours: settings only enter through repr
        return source, namespace["chain"]

    def _emit_loop(
        self, code: Code, column: str, steps: Sequence[Transformation], schema: Schema | None, *, owned: bool
    ) -> None:
        """One loop over a column that applies all its steps in place to each map."""
        schemaless = schema is None
        other = code.bind(_others(steps, schemaless=schemaless))
        if column == "keys":
            code.line("if not keys:")
            code.line("    keys = [None] * len(values)")
        body = Code(source=code.source)
        body.constants = code.constants
        for step in steps:
            step.emit_map(body, "x")
        if not schemaless:
            code.line(f"for x in {column}:")
            code.line(f"    {other}(x)")
            return
        used = sorted(body.uses)
        if not owned:
            code.line(f"{column} = [dict(x) if type(x) is dict else x for x in {column}]")
        sources = ", ".join([column, *(f"{name}s" for name in used)])
        code.line(f"for {', '.join(['x', *used])} in {f'zip({sources})' if used else column}:")
        code.line("    if type(x) is dict:")
        for line in body.lines or ["pass"]:
            code.line(f"        {line}")
        code.line("    else:")
        code.line(f"        {other}(x)")


def _emit_conversions(code: Code, converters: tuple[_Many | None, _Many | None]) -> None:
    for column, convert in zip(("keys", "values"), converters, strict=True):
        if convert is not None:
            code.line(f"{column} = {code.bind(convert)}({column})")


def _others(steps: Sequence[Transformation], *, schemaless: bool) -> Callable[[Any], None]:
    """What a column's steps do, in order, with a value that is no map."""
    if len(steps) == 1:
        only = steps[0]
        return lambda value: only.other(value, schemaless=schemaless)

    def other(value: Any) -> None:
        for step in steps:
            step.other(value, schemaless=schemaless)

    return other
