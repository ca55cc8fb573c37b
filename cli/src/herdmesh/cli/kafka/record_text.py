"""Records of `herd consume` as text, line by line, as they come.

Owns the line for people. The JSON line is that of `herd transform`, which `herd produce` reads back.

Invariant: a record is one line, and no control character of a record reaches the terminal, except in `-o value`, which
writes the value's own bytes.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, assert_never

from herdmesh.cli.kafka.options import ConsumeOutput
from herdmesh.cli.transform.options import Output
from herdmesh.cli.transform.reading import Given
from herdmesh.cli.transform.writing import line_of, plain
from herdmesh.connect.model import ConnectRecord, Schema

if TYPE_CHECKING:
    from herdmesh.cli.transform.running import Runner

Undecodable = Callable[[ConnectRecord, str], None]
_NULL: Final = "null"
_KEY_WIDTH_MAX: Final = 40


def decoded(runner: Runner, batch: Sequence[ConnectRecord], report: Undecodable) -> Iterator[ConnectRecord]:
    """The batch with its keys, values and headers decoded, in order. A record that the converters refuse is reported
    and stays bytes.
    """
    ran = runner.run([Given(at, False, record) for at, record in enumerate(batch)])
    failed = {one.line: one for one in ran.failures}
    made = iter(ran.records)
    for at, record in enumerate(batch):
        if at in failed:
            report(record, f"{failed[at].stage}: {failed[at].message}")
            yield record
        else:
            yield next(made)


class RecordPrinter:
    """The lines of one command's records."""

    def __init__(self, output: ConsumeOutput, *, several_topics: bool, aligned: bool) -> None:
        """`aligned`: columns are padded, for a terminal."""
        self._output, self._several, self._aligned = output, several_topics, aligned
        self._widths = [0, 0, 0]
        self._has_header = False

    def lines(self, records: Sequence[ConnectRecord]) -> Iterator[bytes]:
        """The lines of a batch, each with its line end."""
        match self._output:
            case ConsumeOutput.JSON:
                yield from (line_of(record, Output.JSON, typed=False) for record in records)
            case ConsumeOutput.TYPED:
                yield from (line_of(record, Output.JSON, typed=True) for record in records)
            case ConsumeOutput.VALUE:
                yield from (line_of(record, Output.VALUE, typed=False) for record in records)
            case ConsumeOutput.TABLE:
                yield from self._table(records)
            case _:
                assert_never(self._output)

    def _table(self, records: Sequence[ConnectRecord]) -> Iterator[bytes]:
        rows = [self._cells(record) for record in records]
        if not self._has_header:
            rows.insert(0, ("TIME", "RECORD", "KEY", "VALUE"))
            self._has_header = True
        if self._aligned:
            for at in range(3):
                longest = max((len(row[at]) for row in rows if len(row[at]) <= _KEY_WIDTH_MAX), default=0)
                self._widths[at] = max(self._widths[at], longest)
        for row in rows:
            padded = [cell.ljust(width) for cell, width in zip(row, [*self._widths, 0], strict=True)]
            yield "  ".join(padded).rstrip().encode("utf-8", "replace") + b"\n"

    def _cells(self, record: ConnectRecord) -> tuple[str, str, str, str]:
        where = f"{record.partition}:{record.offset}"
        value = shown(record.value, record.value_schema)
        if record.headers:
            pairs = ", ".join(f"{one.key}={shown(one.value, one.schema)}" for one in record.headers)
            value = f"{value}  [{pairs}]"
        return (
            _time(record.timestamp_ms),
            f"{record.topic}-{where}" if self._several else where,
            shown(record.key, record.key_schema),
            value,
        )


def shown(data: Any, schema: Schema | None = None) -> str:
    """Bytes or Connect data on one line. Bytes that are no text, and control characters, are escaped as in Python."""
    if data is None:
        return _NULL
    if isinstance(data, bytes):
        text = data.decode("utf-8", "backslashreplace")
    elif isinstance(data, str):
        text = data
    else:
        text = json.dumps(plain(data, schema), ensure_ascii=False)
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() else one.encode("unicode_escape").decode() for one in text)


def _time(timestamp_ms: int | None) -> str:
    if timestamp_ms is None:
        return "-"
    try:
        found = datetime.fromtimestamp(timestamp_ms / 1_000, UTC)
    except (OverflowError, ValueError, OSError):
        return str(timestamp_ms)
    return found.isoformat(timespec="milliseconds").replace("+00:00", "Z")
