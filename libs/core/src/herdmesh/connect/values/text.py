"""Text form of a value, as SimpleHeaderConverter writes it (docs/reference/connect/transforms-converters.md, section
6.4).

Owns the form. Numbers: `java.number_text`.

Invariant: a text at top level stays as it is; inside any other value it is quoted, and its backslashes and quotes are
escaped.
"""

from __future__ import annotations

import base64
from decimal import Decimal
from typing import Any, cast

from herdmesh.connect.errors import DataError
from herdmesh.connect.model import JavaDate, Schema, Struct, java_class, java_text
from herdmesh.connect.values.temporals import temporal_text


def text_of(value: Any, schema: Schema | None = None) -> str:
    """The text of a value under that schema (None = without schema). Raises DataError for a value without a text
    form."""
    return value if type(value) is str else _text(value, schema, embedded=False)


def bytes_text(value: bytes | bytearray | memoryview) -> str:
    """Base64 with padding."""
    return base64.b64encode(value).decode("ascii")


def _text(value: Any, schema: Schema | None, *, embedded: bool) -> str:
    if isinstance(value, str):
        if not embedded:
            return value
        escaped = value.replace("\\", "\\\\").replace('"', '\\"')
        return f'"{escaped}"'
    if isinstance(value, JavaDate):
        return temporal_text(value)
    if value is None or isinstance(value, int | float | Decimal):
        return java_text(value, schema)
    if isinstance(value, bytes | bytearray | memoryview):
        text = bytes_text(cast("bytes", value))
        return f'"{text}"' if embedded else text
    if isinstance(value, list | tuple):
        _, of_item = Schema.inner(schema)
        return f"[{','.join(_text(item, of_item, embedded=True) for item in cast('list[Any]', value))}]"
    if isinstance(value, dict):
        members = cast("dict[Any, Any]", value).items()
        of_key, of_item = Schema.inner(schema)
        pairs = (
            f"{_text(key, of_key, embedded=True)}:{_text(item, of_item, embedded=True)}" for key, item in members
        )  # fmt: skip
        return f"{{{','.join(pairs)}}}"
    if isinstance(value, Struct):
        fields = zip(value.schema.fields, value.values, strict=True)
        pairs = (
            f"{_text(field.name, None, embedded=True)}:"
            f"{_text(field.schema.default if item is None else item, field.schema, embedded=True)}"
            for field, item in fields
        )
        return f"{{{','.join(pairs)}}}"
    raise DataError(f"Failed to serialize unexpected value type {_class(value)}: {java_text(value, schema)}")


def _class(value: Any) -> str:
    return getattr(value, "java_class", None) or java_class(value)
