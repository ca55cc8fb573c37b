"""Values under a schema as JSON, as JsonConverter writes a payload.

Owns which values need that, and how they are written: decimals as numbers, defaults for nulls. Schemaless values are
JSON by themselves. Invariant: one text for each value, `null` for none.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeGuard, cast

from herdmesh.connect import jackson
from herdmesh.connect.converters.json import JsonConverter
from herdmesh.connect.schemas import Schema

_writer = JsonConverter()
_writer.configure({"schemas.enable": "false", "decimal.format": "NUMERIC"}, "value")


def needs_writing(schema: Schema | None) -> TypeGuard[Schema]:
    """Whether values under this schema are more than plain Python: structs, containers of them, dates, decimals."""
    return schema is not None and (schema.type in ("STRUCT", "ARRAY", "MAP") or schema.name is not None)


def texts_of(values: Sequence[Any], schema: Schema | None) -> list[bytes]:
    """The JSON text of each value. Raises DataError for one that does not fit the schema."""
    texts = _writer.write_many(values, schema)
    return [b"null" if text is None else text for text in texts] if None in texts else cast("list[bytes]", texts)


def lines_of(values: Sequence[Any], schema: Schema) -> bytes:
    """The JSON text of each value, on a line each. Raises as `texts_of`."""
    return _writer.lines(values, schema)


def plain_of(values: Sequence[Any], schema: Schema | None) -> list[Any]:
    """Each value as plain Python: a struct is a dict."""
    return jackson.loads_many(texts_of(values, schema))
