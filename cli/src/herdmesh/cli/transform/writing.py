"""Records as lines of text.

Owns the two printed forms: plain JSON for people and programs, and the lossless form of
`herdmesh.connect.json_text.record_json`. Invariant: a record is one line, except a value that is printed raw and has
line ends itself.
"""

from __future__ import annotations

import base64
import json
import math
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any, cast

from herdmesh.cli.transform.options import Output
from herdmesh.connect.json_text import record_json
from herdmesh.connect.model import ConnectRecord, JavaDate, Schema, Struct, java_text

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def line_of(record: ConnectRecord, output: Output, *, typed: bool) -> bytes:
    """The line of a record, with its line end."""
    if output is Output.VALUE:
        return _value_line(record, typed=typed) + b"\n"
    if typed:
        return json.dumps(record_json.record_to(record)).encode() + b"\n"
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
    return _json({name: item for name, item in members.items() if name in always or item not in (None, [])}) + b"\n"


def _value_line(record: ConnectRecord, *, typed: bool) -> bytes:
    value = record.value
    if typed:
        return json.dumps(record_json.value_to(value, record.value_schema)).encode()
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
