"""Records for `herd produce`, from files, standard input or options.

Owns the options that complete a record: key, key separator, key field, headers, partition, tombstone. The forms of a
line are those of `herd transform` (`herdmesh.cli.transform.reading`).

Invariant: every line gives one record or one error with its number; a record that gives a part itself keeps it.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Final, cast

from herdmesh.cli.errors import EXIT_USAGE, CommandError
from herdmesh.cli.transform.options import Direction, RecordForm
from herdmesh.cli.transform.reading import BadLine, Given, RecordReader, line_batches
from herdmesh.connect.errors import ConnectError
from herdmesh.connect.model import ConnectRecord, Header

if TYPE_CHECKING:
    from herdmesh.cli.kafka.conversion import SchemaReader
    from herdmesh.cli.transform.running import Runner

_BATCH_RECORDS: Final = 1_000
#: A file that is one record; a broker's default limit is 1 MiB.
_FILE_BYTES_MAX: Final = 1 << 30


@dataclass(frozen=True, slots=True)
class RecordOptions:
    """Parts that records get when their line does not have them."""

    form: RecordForm = RecordForm.AUTO
    whole_files: bool = False
    key: str | None = None
    key_separator: str | None = None
    key_field: str | None = None
    headers: Sequence[str] = ()
    partition: int | None = None
    null_marker: str | None = None
    tombstone: bool = False
    key_schema: Path | None = None
    value_schema: Path | None = None

    def check(self, files: Sequence[str]) -> None:
        """Raise CommandError for options that contradict each other."""
        if self.tombstone and (self.key is None or files):
            raise _usage("--tombstone needs --key and no FILE: it is one record with that key and no value")
        if sum(one is not None for one in (self.key, self.key_separator, self.key_field)) > 1:
            raise _usage("--key, --key-separator and --key-field exclude one another")
        if self.whole_files and (not files or self.form is not RecordForm.AUTO):
            raise _usage("--whole-files needs FILEs and excludes --input: each file is the value of one record")
        if self.key_separator == "":
            raise _usage("--key-separator is empty")


@dataclass(frozen=True, slots=True)
class Outgoing:
    """A record as bytes, and where it came from."""

    source: str
    """`line 3`, or `orders.json: line 3`."""
    topic: str
    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes | None]] = ()
    partition: int | None = None
    timestamp_ms: int | None = None


@dataclass(slots=True)
class GivenRecords:
    """The records of one command, in batches. `refused` has the lines that gave none, each with its reason."""

    topic: str
    options: RecordOptions
    converters: Runner | None
    refused: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    form: RecordForm = RecordForm.AUTO
    """The form that the lines were read in."""
    _schemas: tuple[SchemaReader | None, SchemaReader | None] = (None, None)
    _headers: Sequence[tuple[str, str]] = ()

    def __post_init__(self) -> None:
        options = self.options
        if (options.key_schema or options.value_schema) and self.converters is None:
            raise _usage("--key-schema and --value-schema are for converters: add --value-converter CLASS")
        if self.converters is not None:
            from herdmesh.cli.kafka.conversion import SchemaReader

            self._schemas = (
                SchemaReader("--key-schema", options.key_schema) if options.key_schema else None,
                SchemaReader("--value-schema", options.value_schema) if options.value_schema else None,
            )
        self._headers = [_header(one) for one in options.headers]

    def batches(self, files: Sequence[str]) -> Iterator[list[Outgoing]]:
        """All records of the files, or of standard input, as soon as their lines are there."""
        if self.options.tombstone:
            record = ConnectRecord(self.topic, value=None)
            yield self._finished("", [(1, record)])
            return
        for name in files or ("-",):
            where = "" if name == "-" else f"{name}: "
            if self.options.whole_files:
                data = _whole(name)
                value: Any = data if self.converters is None else data.decode("utf-8", "replace")
                yield self._finished(where, [(1, ConnectRecord(self.topic, value=value))])
                continue
            with _opened(name) as stream:
                raw = self.converters is None
                reader = RecordReader(Direction.SOURCE, self.options.form, self.topic, raw=raw)
                for lines in line_batches(stream, _BATCH_RECORDS):
                    yield self._finished(where, self._read(where, reader, lines))
                self.form = reader.form

    def _read(
        self, where: str, reader: RecordReader, lines: Sequence[tuple[int, bytes]]
    ) -> Iterator[tuple[int, ConnectRecord]]:
        separator = (self.options.key_separator or "").encode()
        for number, line in lines:
            try:
                key: bytes | None = None
                content = line
                if separator:
                    key, found, content = content.partition(separator)
                    if not found:
                        raise BadLine(f"no key: {self.options.key_separator!r} is not in it")
                given = reader.read(number, content)
                if given is None:
                    continue
                record = given.record
                self._complete(reader, record, key, content)
            except BadLine as error:
                self.refused.append((f"{where}line {number}", str(error)))
                continue
            yield number, record

    def _complete(self, reader: RecordReader, record: ConnectRecord, key: bytes | None, content: bytes) -> None:
        options = self.options
        lines = reader.form in (RecordForm.LINES, RecordForm.AUTO)
        if lines and options.null_marker is not None and content == options.null_marker.encode():
            record.value = None
        if key is not None:
            record.key = key if self.converters is None else _json_or_text(key)
        if options.key_field is not None and record.key is None and record.value is not None:
            record.key = self._field(record.value, options.key_field)
        if record.timestamp_ms is not None and record.timestamp_ms <= 0:
            raise BadLine(f"timestamp {record.timestamp_ms}: Kafka's client writes no time before 1, in ms since 1970")
        record.topic = self.topic  # also for records of another topic, as `herd consume -o json` prints them

    def _field(self, value: Any, name: str) -> Any:
        document = value
        if isinstance(value, bytes):
            try:
                document = json.loads(value)
            except ValueError as error:
                raise BadLine(f"no key: its value is not JSON: {error}") from error
        if not isinstance(document, dict) or name not in document:
            raise BadLine(f"no key: its value has no field {name}")
        found: Any = cast("dict[str, Any]", document)[name]
        if self.converters is not None or found is None:
            return found
        return (found if isinstance(found, str) else json.dumps(found, ensure_ascii=False)).encode()

    def _finished(self, where: str, numbered: Iterable[tuple[int, ConnectRecord]]) -> list[Outgoing]:
        options, given = self.options, list[Given]()
        for number, record in numbered:
            if record.key is None and options.key is not None:
                record.key = options.key if self.converters is not None else options.key.encode()
            for name, text in self._headers:
                record.headers.append(Header(name, text if self.converters is not None else text.encode()))
            given.append(Given(number, True, record))
        if self.converters is not None:
            return self._converted(where, given)
        return [self._outgoing(where, one.line, one.record) for one in given]

    def _converted(self, where: str, given: Sequence[Given]) -> list[Outgoing]:
        assert self.converters is not None
        fitting: list[Given] = []
        key_schema, value_schema = self._schemas
        for one in given:
            record = one.record
            try:
                if key_schema is not None and record.key_schema is None:
                    record.key_schema, record.key = key_schema.read(record.key)
                if value_schema is not None and record.value_schema is None:
                    record.value_schema, record.value = value_schema.read(record.value)
            except ConnectError as error:
                self.refused.append((f"{where}line {one.line}", f"{error}"))
                continue
            fitting.append(one)
        ran = self.converters.run(fitting)
        self.refused += [(f"{where}line {one.line}", f"{one.stage}: {one.message}") for one in ran.failures]
        failed = {one.line for one in ran.failures}
        left = [one.line for one in fitting if one.line not in failed]
        return [self._outgoing(where, line, record) for line, record in zip(left, ran.records, strict=True)]

    def _outgoing(self, where: str, line: int, record: ConnectRecord) -> Outgoing:
        partition = self.options.partition if record.partition is None else record.partition
        headers = [(one.key, one.value) for one in record.headers]
        return Outgoing(
            f"{where}line {line}", record.topic or self.topic, record.key, record.value, headers, partition,
            record.timestamp_ms,
        )  # fmt: skip


def _header(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise _usage(f"--header {text}: write NAME=VALUE")
    return name, value


def _json_or_text(data: bytes) -> Any:
    try:
        return json.loads(data)
    except ValueError:
        return data.decode("utf-8", "replace")


def _whole(name: str) -> bytes:
    with _opened(name) as stream:
        return stream.read(_FILE_BYTES_MAX)


@contextmanager
def _opened(name: str) -> Generator[BinaryIO]:
    if name == "-":
        yield sys.stdin.buffer
        return
    try:
        with Path(name).open("rb") as stream:
            yield stream
    except OSError as error:
        raise _usage(f"{name}: cannot be read: {error.strerror}") from None


def _usage(text: str) -> CommandError:
    return CommandError("USAGE", text, "`herd produce --help` shows the options.", EXIT_USAGE)
