"""ByteArrayConverter: the value is the bytes.

Owns the type check.

Invariant: a value that is read and written again has the same bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from herdmesh.connect.converters import definitions
from herdmesh.connect.converters.base import Converter, Schemas
from herdmesh.connect.errors import DataError
from herdmesh.connect.model import OPTIONAL_BYTES, PackedBytes, Schema, java_class

_BYTES_OR_NULL = frozenset((bytes, type(None)))


class ByteArrayConverter(Converter):
    """`org.apache.kafka.connect.converters.ByteArrayConverter` (docs/reference/connect/transforms-converters.md,
    section 5)."""

    java_class = "org.apache.kafka.connect.converters.ByteArrayConverter"
    config_def = definitions.ONLY_TYPE
    read_schema = OPTIONAL_BYTES

    def _set_up(self, settings: dict[str, Any]) -> None:
        pass

    def read(self, data: bytes | None, /) -> tuple[Schema | None, Any]:
        return OPTIONAL_BYTES, data

    def write(self, value: Any, schema: Schema | None, /) -> bytes | None:
        if schema is not None and schema.type != "BYTES":
            raise DataError(f"Invalid schema type for ByteArrayConverter: {schema.type}")
        if value is None or isinstance(value, bytes):
            return value
        if isinstance(value, bytearray | memoryview):
            return bytes(cast("bytearray", value))
        raise DataError(f"ByteArrayConverter is not compatible with objects of type class {java_class(value, schema)}")

    def write_many(self, values: Sequence[Any], schema: Schema | None, /) -> Sequence[bytes | None]:
        if isinstance(values, PackedBytes) and (schema is None or schema.type == "BYTES"):
            return values
        if (schema is None or schema.type == "BYTES") and _BYTES_OR_NULL.issuperset(map(type, values)):
            return list(values)
        return super().write_many(values, schema)

    def read_many(self, data: Sequence[bytes | None], /) -> tuple[Schemas, list[Any]]:
        return OPTIONAL_BYTES, list(data)
