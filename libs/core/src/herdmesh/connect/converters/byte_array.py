"""ByteArrayConverter: bytes are the value.

Owns nothing but the type check. Invariant: what it reads is what it writes, byte for byte.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from herdmesh.connect.converters import definitions
from herdmesh.connect.converters.base import Converter
from herdmesh.connect.data import OPTIONAL_BYTES, Schema
from herdmesh.connect.errors import DataError
from herdmesh.connect.javavalues import java_class


class ByteArrayConverter(Converter):
    """`org.apache.kafka.connect.converters.ByteArrayConverter` (reference transforms-converters 5)."""

    java_class = "org.apache.kafka.connect.converters.ByteArrayConverter"
    config_def = definitions.ONLY_TYPE
    read_schema = OPTIONAL_BYTES

    def _set_up(self, settings: dict[str, Any]) -> None:
        pass

    def to_connect(self, data: bytes | None, /) -> bytes | None:
        return data

    def from_connect(self, value: Any, /, schema: Schema | None = None) -> bytes | None:
        if schema is not None and schema.type != "BYTES":
            raise DataError(f"Invalid schema type for ByteArrayConverter: {schema.type}")
        if value is None or isinstance(value, bytes):
            return value
        if isinstance(value, bytearray | memoryview):
            return bytes(cast("bytearray", value))
        raise DataError(f"ByteArrayConverter is not compatible with objects of type class {java_class(value)}")

    def to_connect_many(self, data: Sequence[bytes | None], /) -> list[Any]:
        return list(data)
