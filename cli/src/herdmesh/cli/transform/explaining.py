"""The description of a chain, and the measurement of its speed.

Owns the text of `--explain` and the measurement of `--bench`. Invariant: the description is of the loop that was
compiled for the given records.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from herdmesh.cli.transform.options import Direction
from herdmesh.cli.transform.reading import Given
from herdmesh.cli.transform.running import Noting, Runner
from herdmesh.connect.chain import AuthoredPredicate, AuthoredTransformation, Loop, Step
from herdmesh.connect.config import RawConfig
from herdmesh.connect.converters import Converter
from herdmesh.connect.json_text import record_json
from herdmesh.connect.model import Schema
from herdmesh.connect.transforms import Shape

_WAYS = {
    Direction.SINK: "sink: Kafka's bytes -> converters -> transformations -> what a task takes",
    Direction.SOURCE: "source: what a task gives -> transformations -> converters -> Kafka's bytes",
    Direction.VALUES: "values: Connect values -> transformations -> Connect values; no converter",
}


def explained(runner: Runner, config: RawConfig) -> Iterator[str]:
    """The lines that describe the chain, and the parts compiled so far."""
    yield f"direction  {_WAYS[runner.direction]}"
    if runner.direction is not Direction.VALUES:
        for column, converter in zip(("key", "value", "headers"), runner.converters, strict=True):
            yield f"{column:<10} {converter.java_class}: {_decoding(runner, column, converter)}"
    yield ""
    yield f"{len(runner.steps)} transformations"
    for number, step in enumerate(runner.steps, 1):
        yield f"  {number}. {_step(step, config)}"
    for way, loops in (("sink", runner.sink.loops), ("source", runner.source.loops)):
        for shape, loop in loops.items():
            yield ""
            yield f"records of a {way}, {_shape(shape)}"
            yield from _compiled(loop, runner.steps)


def _decoding(runner: Runner, column: str, converter: object) -> str:
    """Whether a column is decoded, and which steps need it."""
    users = [step.alias for step in runner.steps if column in step.touches]
    if runner.direction is Direction.SOURCE:
        return f"encoded; read or changed by {', '.join(users)}" if users else "encoded as the task gave it"
    if users:
        return f"decoded; read or changed by {', '.join(users)}"
    if column == "value" and isinstance(converter, Converter) and converter.is_static:
        return "passed on as bytes; decoded only if the task reads it"
    return "decoded for the task; no transformation reads it"


def _step(step: Step, config: RawConfig) -> str:
    text = f"{step.alias}: {step.transformation.class_name}"
    if step.predicate is not None:
        alias = str(config.get(f"transforms.{step.alias}.predicate", "")).strip()
        text += f", {'unless' if step.negate else 'if'} {alias} ({step.predicate.java_class})"
    touched = ", ".join(sorted(step.touches))
    return f"{text}; touches {touched}" if touched else text


def _shape(shape: Shape) -> str:
    return f"key {_schema(shape.key)}, value {_schema(shape.value)}"


def _schema(schema: Schema | None) -> str:
    return "without schema" if schema is None else f"of schema {json.dumps(record_json.schema_to(schema))}"


def _compiled(loop: Loop | None, steps: Sequence[Step]) -> Iterator[str]:
    own = [step.alias for step in steps if _is_authored(step)]
    if loop is None and own:
        yield f"  record by record: custom steps are not compiled ({', '.join(own)})"
        return
    if loop is None:
        yield "  record by record: a predicate gives some of these records another schema than the rest"
        return
    if loop.idle:
        yield "  nothing to do for these"
        return
    yield "  one compiled loop:"
    for line in loop.source.rstrip("\n").split("\n"):
        yield f"    {line}"


def _is_authored(step: Step) -> bool:
    return isinstance(step.transformation, AuthoredTransformation) or isinstance(step.predicate, AuthoredPredicate)


@dataclass(frozen=True, slots=True)
class Speed:
    """The result of a benchmark, on this machine only."""

    records: int
    seconds: float
    converters_s: float
    """The same records without transformations."""
    failed: int

    def lines(self) -> Iterator[str]:
        """The result as lines for people."""
        whole_us = self.seconds / self.records * 1e6
        converters_us = min(self.converters_s / self.records * 1e6, whole_us)
        yield f"{self.records:,} records in {self.seconds:.2f} s: {self.records / self.seconds:,.0f} records/s"
        steps_us = whole_us - converters_us
        yield f"{whole_us:.2f} us per record: converters {converters_us:.2f}, transformations {steps_us:.2f}"
        if self.failed:
            yield f"{self.failed:,} of them failed, which takes longer than passing"


def measured(runner: Runner, bare: Runner, given: Sequence[Given], seconds: float) -> Speed:
    """Run the records again and again for `seconds`; `bare` is the same chain without transformations. `given` is not
    empty.
    """
    _round(runner, given)  # this round compiles
    _round(bare, given)
    rounds = failed = 0
    spent_s = bare_s = 0.0
    while spent_s + bare_s < seconds or not rounds:
        took_s, failed_now = _round(runner, given)
        spent_s, failed, rounds = spent_s + took_s, failed + failed_now, rounds + 1
        bare_s += _round(bare, given)[0]
    return Speed(rounds * len(given), spent_s, bare_s, failed)


def _round(runner: Runner, given: Sequence[Given]) -> tuple[float, int]:
    """Run all records once; returns seconds in the chain, and the number of failed records."""
    spent_s, failed = 0.0, 0
    for work in runner.works(given):
        noted = Noting(work.lines)
        begun_s = time.perf_counter()
        for batch in work.chain.run(work.batch, noted):
            list(batch.keys)
            list(batch.values)
        spent_s += time.perf_counter() - begun_s
        failed += len(noted.failures)
    return spent_s, failed
