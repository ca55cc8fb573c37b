"""Records as text: every format of `-o` for the records of `herd consume` and `herd transform`.

Owns the document of a record, which is the JSON line that `herd produce` reads, and the lossless form of
`herdmesh.connect.json_text.record_json` (`-o typed`).

Invariant: a record is printed when it comes. It is one line (in YAML one document) except a raw value with line ends of
its own, and no control character of a record reaches the terminal except in `-o value`, which writes the value's own
bytes.
"""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any, Final, cast

from herdmesh.cli.display import documents
from herdmesh.cli.display.output import Format
from herdmesh.connect.json_text import record_json
from herdmesh.connect.model import ConnectRecord, JavaDate, Schema, Struct, java_text

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_NULL: Final = "null"
_KEY_WIDTH_MAX: Final = 40
_CSV_COLUMNS: Final = ("topic", "partition", "offset", "timestamp", "key", "value", "headers")
_TABLE_COLUMNS: Final = ("TIME", "RECORD", "KEY", "VALUE")


class RecordPrinter:
    """The lines of one command's records."""

    def __init__(self, output: Format, *, several_topics: bool = False, aligned: bool = False, headers: bool) -> None:
        """`several_topics`: a table names each record's topic. `aligned`: its columns are padded, for a terminal.
        `headers`: tables and CSV begin with the column names.
        """
        self._output, self._aligned = output, aligned
        self._names_topic = several_topics or output.is_wide
        self._widths = [0, 0, 0]
        self._needs_header = headers

    def lines(self, records: Sequence[ConnectRecord]) -> Iterator[bytes]:
        """The lines of a batch, each with its line end."""
        match self._output.name:
            case "json":
                yield from (_json(document_of(record)) + b"\n" for record in records)
            case "typed":
                yield from (typed_line(record) for record in records)
            case "value":
                yield from (_value(record) + b"\n" for record in records)
            case "table" | "wide":
                yield from self._table(records)
            case "csv":
                yield self._csv(records).encode("utf-8", "replace")
            case _:
                yield from (self._text(document_of(record)).encode("utf-8", "replace") for record in records)

    def _text(self, document: dict[str, Any]) -> str:
        if self._output == Format.YAML:
            return f"---\n{documents.yaml_text(document)}"
        if self._output == Format.NAME:
            return f"record/{_place(document)}\n"
        return documents.jsonpath_text(document, self._output.template).removesuffix("\n") + "\n"

    def _csv(self, records: Sequence[ConnectRecord]) -> str:
        found = [document_of(record) for record in records]
        rows = [[documents.cell_text(one.get(name)) for name in _CSV_COLUMNS] for one in found]
        return documents.csv_rows(_CSV_COLUMNS, rows, headers=self._header_now())

    def _header_now(self) -> bool:
        needed, self._needs_header = self._needs_header, False
        return needed

    def _table(self, records: Sequence[ConnectRecord]) -> Iterator[bytes]:
        rows = [self._cells(record) for record in records]
        if self._header_now():
            rows.insert(0, _TABLE_COLUMNS)
        if self._aligned:
            for at in range(3):
                longest = max((len(row[at]) for row in rows if len(row[at]) <= _KEY_WIDTH_MAX), default=0)
                self._widths[at] = max(self._widths[at], longest)
        for row in rows:
            padded = [cell.ljust(width) for cell, width in zip(row, [*self._widths, 0], strict=True)]
            yield "  ".join(padded).rstrip().encode("utf-8", "replace") + b"\n"

    def _cells(self, record: ConnectRecord) -> tuple[str, str, str, str]:
        value = shown(record.value, record.value_schema)
        if record.headers:
            pairs = ", ".join(f"{one.key}={shown(one.value, one.schema)}" for one in record.headers)
            value = f"{value}  [{pairs}]"
        place: dict[str, Any] = {"partition": record.partition, "offset": record.offset}
        if self._names_topic:
            place["topic"] = record.topic
        return (_time(record.timestamp_ms), _place(place) or "-", shown(record.key, record.key_schema), value)


def document_of(record: ConnectRecord) -> dict[str, Any]:
    """The record as plain values: topic, key and value always, the rest where it has it."""
    members = {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": record.timestamp_ms,
        "key": plain(record.key, record.key_schema),
        "value": plain(record.value, record.value_schema),
        "headers": [{"key": header.key, "value": plain(header.value, header.schema)} for header in record.headers],
    }
    always = ("topic", "key", "value")
    return {name: item for name, item in members.items() if name in always or item not in (None, [])}


def typed_line(record: ConnectRecord) -> bytes:
    """The lossless line of a record: JSON with schemas."""
    return json.dumps(record_json.record_to(record)).encode() + b"\n"


def _place(document: dict[str, Any]) -> str:
    """`orders-0:17`; without what is not known."""
    number, offset = document.get("partition"), document.get("offset")
    parts = [str(one) for one in (document.get("topic"), number) if one is not None]
    return "-".join(parts) + ("" if offset is None else f":{offset}")


def _value(record: ConnectRecord) -> bytes:
    value = record.value
    if isinstance(value, bytes):
        return value
    return value.encode("utf-8", "replace") if isinstance(value, str) else _json(plain(value, record.value_schema))


def _json(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False).encode("utf-8", "replace")


def plain(value: Any, schema: Schema | None = None) -> Any:
    """Connect data under that schema (None = schemaless) in JSON's types: bytes as text where they are UTF-8, else
    {"base64": ...}; dates as ISO 8601; a FLOAT32 with its own digits; numbers that JSON does not have (by Java's names)
    and decimals as text.
    """
    if isinstance(value, Struct):
        pairs = zip(value.schema.fields, value.values, strict=True)
        return {field.name: plain(item, field.schema) for field, item in pairs}
    of_key, of_value = Schema.inner(schema)
    if isinstance(value, dict):
        members = cast("dict[Any, Any]", value)
        return {
            key if isinstance(key, str) else str(plain(key, of_key)): plain(item, of_value)
            for key, item in members.items()
        }
    if isinstance(value, list | tuple):
        return [plain(item, of_value) for item in cast("list[Any]", value)]
    if isinstance(value, bytes | bytearray | memoryview):
        return _text_or_base64(bytes(cast("bytes", value)))
    if isinstance(value, JavaDate):
        return _iso(int(value))
    if isinstance(value, bool) or value is None or isinstance(value, str):
        return value
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        text = java_text(value, schema)
        return float(text) if math.isfinite(value) else text
    return f"{value:f}" if isinstance(value, Decimal) else str(value)


def _text_or_base64(data: bytes) -> Any:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode()}


def _iso(milliseconds: int) -> Any:
    try:
        return (_EPOCH + timedelta(milliseconds=milliseconds)).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    except OverflowError:
        return milliseconds  # beyond year 9999


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
