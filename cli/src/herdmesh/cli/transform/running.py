"""Records through a chain, batch by batch, and the result of each.

Owns the grouping into batches of one topic, partition and shape, and the list of failures. The chain is that of
`herdmesh.connect.chain.record_chain`, which tasks run too.

Invariant: every given record came out, failed (its line, stage, step, class and message are known), or was filtered by
a step; `run` raises for none of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any, TypeVar, cast

from herdmesh.cli.errors import EXIT_CODES, CommandError
from herdmesh.cli.transform.chain_file import Config
from herdmesh.cli.transform.options import Direction
from herdmesh.cli.transform.reading import Given
from herdmesh.connect.chain import RecordSkipped, SinkChain, SourceChain, Step, converters, transformations, violations
from herdmesh.connect.config import ConfigDef, RawConfig, redacted
from herdmesh.connect.converters import Converter, HeaderConverter
from herdmesh.connect.errors import class_name_of
from herdmesh.connect.model import Batch, ConnectRecord, Header, Schema

T = TypeVar("T")
CONVERTERS = ("key.converter", "value.converter", "header.converter")
#: The converters of a chain without a worker's file: text.
DEFAULTS: dict[str, str | None] = {
    "key.converter": "org.apache.kafka.connect.storage.StringConverter",
    "value.converter": "org.apache.kafka.connect.storage.StringConverter",
}


@dataclass(frozen=True, slots=True)
class Failure:
    """A record that failed, with Connect's error."""

    line: int
    stage: str
    step: str
    java_class: str
    message: str
    cause: str
    """The parser's own error, which the message does not have; "" = none."""

    def __str__(self) -> str:
        text = f"line {self.line}: {self.stage}, {self.step}: {self.java_class}: {self.message}"
        return f"{text.rstrip()} (cause: {self.cause})" if self.cause else text


@dataclass(slots=True)
class Ran:
    """The results of some records; a record in neither list was filtered by a step."""

    records: list[ConnectRecord] = field(default_factory=list[ConnectRecord])
    failures: list[Failure] = field(default_factory=list[Failure])


@dataclass(frozen=True, slots=True)
class Work:
    """A batch with the chain it goes through. `lines` has the line number of each record."""

    chain: SinkChain | SourceChain
    batch: Batch
    lines: Sequence[int]


class _Carried(Converter):
    """Placeholder for a converter when records are Connect values on both sides: a pair of schema and value."""

    java_class = "none"
    config_def = ConfigDef()
    is_static = False

    def _set_up(self, settings: dict[str, Any]) -> None:
        return

    def read(self, data: Any, /) -> tuple[Schema | None, Any]:
        return data

    def write(self, value: Any, schema: Schema | None, /) -> Any:
        return schema, value

    def read_header(self, name: str, data: Any) -> Header:
        return data

    def write_header(self, header: Header) -> Any:
        return header


class Noting:
    """Error policy that continues without a failed record and keeps its error (`attempts.Attempts`)."""

    eager = True

    def __init__(self, lines: Sequence[int]) -> None:
        self._lines = lines
        self.failures: list[tuple[int, Failure]] = []
        """Each failure with its index in the batch."""

    def attempt(self, call: Callable[[], T], stage: str, step: object, batch: Batch, at: int) -> T:
        try:
            return call()
        except Exception as error:
            cause = str(error.__cause__ or "")
            failure = Failure(self._lines[at], stage, str(step), class_name_of(error), str(error), cause)
            self.failures.append((at, failure))
            raise RecordSkipped from error


class Runner:
    """One configured chain."""

    def __init__(
        self, config: RawConfig, worker: RawConfig, direction: Direction, *, steps: Sequence[Step] | None = None
    ) -> None:
        """`steps`: used instead of the configured ones. Raises ConfigError with the full key."""
        self.direction = direction
        self.steps = tuple(transformations(config) if steps is None else steps)
        carried = _Carried()
        self.converters: tuple[Converter, Converter, HeaderConverter] = (
            (carried, carried, carried) if direction is Direction.VALUES else converters(config, worker=worker)
        )
        self.sink = SinkChain(*self.converters, self.steps)
        self.source = SourceChain(*self.converters, self.steps)

    def run(self, given: Sequence[Given], *, fail_fast: bool = False) -> Ran:
        """Run the records through the chain. `fail_fast`: no record after the first failure is run."""
        ran = Ran()
        for work in self.works(given):
            noted = Noting(work.lines)
            made = work.chain.run(work.batch, noted)
            if fail_fast and noted.failures:
                place, failure = noted.failures[0]
                ran.records += self.run(given[: _place(given, work.lines[place])]).records[len(ran.records) :]
                ran.failures.append(failure)
                return ran
            ran.failures += [failure for _, failure in noted.failures]
            for batch in made:
                ran.records += self._records(batch, source=work.chain is self.source)
        return ran

    def works(self, given: Sequence[Given]) -> Iterator[Work]:
        """The records as batches, in order."""
        for (source, topic, partition, key, value), group in groupby(given, _shape):
            members = list(group)
            records = [one.record for one in members]
            keyed = not source or key is not None or any(one.key is not None for one in records)
            batch = Batch(
                cast("str", topic), partition,
                [one.key for one in records] if keyed else (),
                [one.value for one in records],
                () if source else [cast("int", one.offset) for one in records],
                [one.timestamp_ms for one in records], key, value,
                [one.headers for one in records] if any(one.headers for one in records) else (),
            )  # fmt: skip
            if not source:
                self._as_read(batch)
            yield Work(self.source if source else self.sink, batch, [one.line for one in members])

    def _as_read(self, batch: Batch) -> None:
        """Give a batch the columns that a sink's converters take."""
        batch.headers = [
            [(one.key, one if self.direction is Direction.VALUES else one.value) for one in headers]
            for headers in batch.headers
        ]
        if self.direction is Direction.VALUES:
            batch.keys = [(batch.key_schema, key) for key in batch.keys]
            batch.values = [(batch.value_schema, value) for value in batch.values]
        batch.key_schema = batch.value_schema = None

    def _records(self, batch: Batch, *, source: bool) -> Iterator[ConnectRecord]:
        pairs = source and self.direction is Direction.VALUES
        for at, value in enumerate(batch.values):
            record = ConnectRecord(
                batch.topics[at] if batch.topics else batch.topic,
                batch.partitions[at] if batch.partitions else batch.partition,
                batch.keys[at] if batch.keys else None, value,
                batch.timestamps_ms[at] if batch.timestamps_ms else None,
                list(batch.headers[at]) if batch.headers else [],
                batch.key_schema, batch.value_schema, batch.offsets[at] if batch.offsets else None,
            )  # fmt: skip
            if source:
                record.headers = _written_headers(record.headers)
            if pairs:
                record.key_schema, record.key = record.key or (None, None)
                record.value_schema, record.value = record.value
            yield record


def open_runner(source: str, settings: Config, defaults: Config, direction: Direction) -> Runner:
    """The configured chain. Raises CommandError with all errors of its configuration."""
    found = [
        one
        for one in violations(settings, worker=defaults)
        if direction is not Direction.VALUES or not one.field.startswith(CONVERTERS)
    ]
    if found:
        fields = tuple((one.field, redacted(f"{one.message} ({one.fix})" if one.fix else one.message)) for one in found)
        message, fix = f"{source}: its chain cannot be created", "Correct the keys named above."
        raise CommandError("CONFIG_INVALID", message, fix, EXIT_CODES["CONFIG_INVALID"], fields)
    return Runner(settings, defaults, direction)


def _shape(given: Given) -> tuple[bool, str | None, int | None, Schema | None, Schema | None]:
    record = given.record
    return given.source, record.topic, record.partition, record.key_schema, record.value_schema


def _place(given: Sequence[Given], line: int) -> int:
    return next(at for at, one in enumerate(given) if one.line == line)


def _written_headers(headers: Sequence[Any]) -> list[Header]:
    """Headers from pairs of a name and the output of a header converter."""
    return [data if isinstance(data, Header) else Header(name, data) for name, data in headers]
