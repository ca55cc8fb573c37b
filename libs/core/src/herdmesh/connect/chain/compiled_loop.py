"""Code generator for steps: all steps fused into one Python loop over a batch, or one step for one record.

Owns the generated text. Each step writes its own statements (`transforms.base`); converting and errors: `record_chain`.

Invariant: the loop gives the same results as the steps one by one, or halts at the record that it cannot process, with
the results of the records before it. A record that leaves the shape the loop was compiled for (a null that keeps its
old schema, while the others get a new one) halts it too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from operator import length_hint
from typing import Any

from herdmesh.connect.chain.column_steps import FieldLoop, NotByColumns
from herdmesh.connect.json_text import jackson
from herdmesh.connect.model import Batch, Header, LazyColumn
from herdmesh.connect.transforms import Cells, Code, Column, Compiled, Diverged, Predicate, Shape, Transformation

_COLUMNS: tuple[Column, ...] = ("key", "value", "offset", "timestamp", "headers")
_WRITTEN: tuple[Column, ...] = ("key", "value", "topic", "headers", "partition", "timestamp")
_OF_BATCH: tuple[Column, ...] = ("topic", "partition")
"""Variables with one value for all records of an input batch."""
_OneByOne = Callable[[Any, Any, str | None, int | None, int | None, int | None, list[Header]], Cells | None]


class Halted(Exception):
    """Raised at a record that the loop cannot process.

    Args:
        place: index of the record in the loop's batch.
        made: the results of the records before it.
        error: the reason; Diverged when the record leaves the shape.
    """

    def __init__(self, place: int, made: Batch, error: BaseException) -> None:
        super().__init__(f"record {place} cannot be taken: {error}")
        self.place = place
        self.made = made
        self.error = error


class _Stop(Exception):
    """Raised by a loop's generated code when it halts: error, index, kept indexes and output columns."""


@dataclass(frozen=True, slots=True)
class Step:
    """One configured transformation under its alias in the connector's config."""

    alias: str
    transformation: Transformation
    predicate: Predicate | None = None
    negate: bool = False

    def __str__(self) -> str:
        return f"transformation '{self.alias}' ({self.transformation.class_name})"

    @property
    def touches(self) -> frozenset[Column]:
        """The columns that the step reads or changes, for every shape."""
        own = self.transformation.touches
        return own if self.predicate is None else own | self.predicate.touches

    def applies(self, cells: Cells, shape: Shape, batch: Batch, at: int) -> bool:
        """True when the transformation applies to the record at index `at` of the batch."""
        return self.predicate is None or self.predicate.alone(cells, shape, batch, at) is not self.negate

    def close(self) -> None:
        """Release all resources."""
        self.transformation.close()
        if self.predicate is not None:
            self.predicate.close()

    def condition(self, code: Code) -> str | None:
        """Expression that is true when the transformation applies to the record. None = it applies to all records."""
        if self.predicate is None:
            return None
        holds = self.predicate.emit(code)
        return f"not ({holds})" if self.negate else holds


class Single:
    """One step for records of one shape, one at a time."""

    def __init__(self, step: Step, shape: Shape) -> None:
        self._before = shape
        self._compiled = step.transformation.compile(shape)
        self._null_passes = self._compiled.null_passes
        code = Code(drop="return None")
        with code.block("def step(key, value, topic, partition, offset, timestamp, headers)"):
            self._compiled.emit(code)
            code.line("return key, value, topic, headers, partition, timestamp")
        self.source, self._run = code.compiled("step")

    def run(self, cells: Cells, batch: Batch, at: int) -> tuple[Cells, Shape] | None:
        """The record after the step, and its shape; None = the record is filtered."""
        key, value, topic, headers, partition, timestamp = cells
        if self._null_passes is not None and (key if self._null_passes == "key" else value) is None:
            return cells, self._before
        offset = batch.offsets[at] if batch.offsets else None
        after = self._run(key, value, topic, partition, offset, timestamp, headers)
        return None if after is None else (after, self._compiled.shape)


class Loop:
    """All steps in one loop over the records of a batch, all of one shape."""

    def __init__(self, steps: Sequence[Step], shape: Shape, *, owned: bool) -> None:
        """`owned`: maps in the batch belong to the chain and may be changed.

        Raises Diverged when the steps give different shapes to records of one shape.
        """
        code = Code(drop="continue")
        if owned:
            code.owned |= {"key", "value"}
        body = Code(drop="continue", indent=3)
        body.constants, body.owned = code.constants, code.owned
        self.shape = shape
        for step in steps:
            self.shape = _emit_step(body, step, self.shape)
        self.reads = frozenset(body.reads)
        self.drops = body.drops
        touching = [step.transformation for step in steps if "value" in step.transformation.touches]
        self._keeps_json = self.shape.value is None and all(one.keeps_json for one in touching)
        self._headed = "headers" in body.reads or "headers" in body.writes
        self.idle = not body.lines
        self._out: list[Column] = [c for c in _WRITTEN if c in body.writes]
        self._emit_loop(code, body)
        try:
            self._by_fields = FieldLoop(steps, shape)
        except NotByColumns:
            self._by_fields = None
        self.source, self._run = code.compiled("chain")

    def run(self, batch: Batch) -> Batch:
        """The batch after the steps. Raises a step's error for one of the records, or Diverged."""
        try:
            return self.until(batch)
        except Halted as halted:
            raise halted.error from halted.error.__cause__

    def until(self, batch: Batch) -> Batch:
        """The batch after the steps. Raises Halted at the first record that cannot be processed."""
        if self.idle:
            return replace(batch, key_schema=self.shape.key, value_schema=self.shape.value)
        if self._by_fields is not None and (made := self._by_fields.run(batch)) is not None:
            return made
        count = len(batch.values)
        keys = batch.keys or (None,) * count
        offsets = batch.offsets or (None,) * count
        timestamps = batch.timestamps_ms or (None,) * count
        headers: Sequence[list[Header]] = batch.headers
        if not headers and self._headed:
            headers = [[] for _ in range(count)]
        try:
            kept, *columns = self._run(batch.topic, batch.partition, keys, batch.values, offsets, timestamps, headers)
        except _Stop as stop:
            error, place, kept, *columns = stop.args
            raise Halted(place, self._made(batch, place, kept, columns), error) from error
        return self._made(batch, count, kept, columns)

    def _made(self, batch: Batch, count: int, kept: list[int] | None, columns: Sequence[Any]) -> Batch:
        """The batch of the results for the first `count` records."""
        made: dict[Column | None, Any] = dict(zip(self._out, columns, strict=True))
        values = batch.values
        if not self._keeps_json and type(values) is jackson.JsonValues:
            values = list(values)  # the steps may have changed maps in it in place

        def column(name: Column | None, given: Sequence[Any]) -> Sequence[Any]:
            if name in made:
                return jackson.like(given, made[name]) if name == "value" and self._keeps_json else made[name]
            if kept is not None and given and len(kept) != len(given):
                # Lazy, so that a column which nobody reads is not filtered.
                return LazyColumn(kept, lambda places: jackson.like(given, [given[at] for at in places]))
            return given if count == len(given) else given[:count]

        return Batch(
            batch.topic, batch.partition,
            column("key", batch.keys), column("value", values), column("offset", batch.offsets),
            column("timestamp", batch.timestamps_ms), self.shape.key, self.shape.value,
            column("headers", batch.headers), column("topic", ()), column(None, batch.places), column("partition", ()),
        )  # fmt: skip

    def _emit_loop(self, code: Code, body: Code) -> None:
        columns = ["kept" if self.drops else "None", *(f"o_{name}" for name in self._out)]
        with code.block("def chain(topic0, partition0, keys, values, offsets, timestamps, headers_column)"):
            for name in self._out:
                code.line(f"o_{name} = []")
            if self.drops:
                code.line("kept = []")
            for name in _OF_BATCH:
                if name not in body.writes:
                    code.line(f"{name} = {name}0")
            with code.block("try"):
                self._emit_records(code, body)
            with code.block("except Exception as error"):
                place = f"len(values) - {code.bind(length_hint)}(rest) - 1"
                code.line(f"raise {code.bind(_Stop)}(error, {place}, {', '.join(columns)}) from error")
            code.line(f"return {', '.join(columns)},")

    def _emit_records(self, code: Code, body: Code) -> None:
        sources = {"key": "keys", "value": "values", "offset": "offsets", "timestamp": "timestamps",
                   "headers": "headers_column"}  # fmt: skip
        used = [c for c in _COLUMNS if c in body.reads or c in body.writes]
        names, columns = [*used], [sources[c] for c in used]
        if self.drops or not used:  # iterating over the values instead would decode them
            names.append("at")
            columns.append("range(len(values))")
        # The length hint of the first column's iterator gives the current record's index at no cost.
        code.line(f"rest = iter({code.bind(_counted)}({columns[0]}))")
        over = "rest" if len(columns) == 1 else f"zip({', '.join(['rest', *columns[1:]])})"
        with code.block(f"for {', '.join(names)} in {over}"):
            for name in _OF_BATCH:
                if name in body.writes:
                    code.line(f"{name} = {name}0")
            code.lines.extend(body.lines)
            for name in self._out:
                code.line(f"o_{name}.append({name})")
            if self.drops:
                code.line("kept.append(at)")


def _counted(column: Sequence[Any]) -> Sequence[Any]:
    """The column as a sequence whose iterators have a length hint; a source's column may be of any type."""
    return column if isinstance(column, list | tuple | range | LazyColumn) else list(column)


def _emit_step(code: Code, step: Step, shape: Shape) -> Shape:
    compiled = step.transformation.compile(shape)
    condition = step.condition(code)
    if condition is None:
        _emit_compiled(code, compiled, shape)
        return compiled.shape
    if compiled.shape != shape:
        raise Diverged
    with code.block(f"if {condition}"):
        _emit_compiled(code, compiled, shape)
    return shape


def _emit_compiled(code: Code, compiled: Compiled, before: Shape) -> None:
    part = compiled.null_passes
    if part is None or part in code.made or part in code.maps:  # a value that was just created or changed is not null
        compiled.emit(code)
    elif compiled.shape == before:
        with code.block(f"if {code.read(part)} is not None"):
            compiled.emit(code)
    else:
        code.line(f"if {code.read(part)} is None: raise {code.bind(Diverged)}")
        compiled.emit(code)
