"""BooleanConverter and the number converters: one value in Kafka's fixed-width big-endian bytes.

Owns the six classes, which differ in width and in the values that they refuse.

Invariant: only the Java class that the converter is named after is written, whatever the schema is (only
BooleanConverter checks the schema).
"""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from typing import Any, ClassVar

from herdmesh.connect.converters import definitions
from herdmesh.connect.converters.base import Converter, Schemas
from herdmesh.connect.errors import DataError
from herdmesh.connect.model import (
    FLOAT32,
    FLOAT64,
    INT16,
    INT32,
    INT64,
    OPTIONAL_BOOLEAN,
    OPTIONAL_FLOAT32,
    OPTIONAL_FLOAT64,
    OPTIONAL_INT16,
    OPTIONAL_INT32,
    OPTIONAL_INT64,
    Schema,
    fits,
    java_class,
)

_PACKAGE = "org.apache.kafka.connect.converters."
_BOOLEANS = {b"\x00": False, b"\x01": True}


class BooleanConverter(Converter):
    """`org.apache.kafka.connect.converters.BooleanConverter` (docs/reference/connect/transforms-converters.md, section
    5)."""

    java_class = _PACKAGE + "BooleanConverter"
    config_def = definitions.ONLY_TYPE
    read_schema = OPTIONAL_BOOLEAN

    def _set_up(self, settings: dict[str, Any]) -> None:
        return

    def read(self, data: bytes | None, /) -> tuple[Schema | None, Any]:
        if data is None:
            return OPTIONAL_BOOLEAN, None
        value = _BOOLEANS.get(data)
        if value is None:
            raise DataError("Failed to deserialize boolean: ")
        return OPTIONAL_BOOLEAN, value

    def write(self, value: Any, schema: Schema | None, /) -> bytes | None:
        if schema is not None and schema.type != "BOOLEAN":
            raise DataError(f"Invalid schema type for BooleanConverter: {schema.type}")
        if value is None:
            return None
        if type(value) is not bool:
            found = java_class(value, schema)
            raise DataError(f"BooleanConverter is not compatible with objects of type class {found}")
        return b"\x01" if value else b"\x00"


class NumberConverter(Converter):
    """Base of the five number converters (docs/reference/connect/transforms-converters.md, section 5)."""

    config_def = definitions.ONLY_TYPE
    own: ClassVar[Schema]
    """A schema of the Java class that the converter writes."""
    form: ClassVar[str]
    """Format for `struct`."""
    word: ClassVar[str]
    """Name of the number in error messages."""

    def _set_up(self, settings: dict[str, Any]) -> None:
        codec = struct.Struct(self.form)
        self._pack, self._unpack = codec.pack, codec.unpack

    def read(self, data: bytes | None, /) -> tuple[Schema | None, Any]:
        return self.read_schema, None if data is None else self._number(data)

    def read_many(self, data: Sequence[bytes | None], /) -> tuple[Schemas, list[Any]]:
        number = self._number
        return self.read_schema, [None if one is None else number(one) for one in data]

    def _number(self, data: bytes) -> Any:
        try:
            return self._unpack(data)[0]
        except struct.error as error:
            raise DataError(f"Failed to deserialize {self.word}: ") from error

    def write(self, value: Any, schema: Schema | None, /) -> bytes | None:
        if value is None:
            return None
        # A plain number is of the class that its schema names, a Long or a Double where the schema names no number.
        found = java_class(value, schema)
        if found != _BOXES[self.own.type]:
            raise DataError(f"Failed to serialize to {self.word} (was class {found}): ")
        if not fits(self.own, type(self)._plain(value)):
            raise DataError(f"Failed to serialize to {self.word} (was class {java_class(value)}): ")
        try:
            return self._pack(value)
        except OverflowError:  # a plain float beyond a Float's range is infinite in Java
            return self._pack(math.copysign(math.inf, value))

    @staticmethod
    def _plain(value: Any) -> Any:
        """The number without its marker."""
        return float(value) if isinstance(value, float) else int(value)


_BOXES = {
    "INT16": "java.lang.Short",
    "INT32": "java.lang.Integer",
    "INT64": "java.lang.Long",
    "FLOAT32": "java.lang.Float",
    "FLOAT64": "java.lang.Double",
}


class ShortConverter(NumberConverter):
    """`org.apache.kafka.connect.converters.ShortConverter`."""

    java_class = _PACKAGE + "ShortConverter"
    read_schema, own, form, word = OPTIONAL_INT16, INT16, ">h", "short"


class IntegerConverter(NumberConverter):
    """`org.apache.kafka.connect.converters.IntegerConverter`."""

    java_class = _PACKAGE + "IntegerConverter"
    read_schema, own, form, word = OPTIONAL_INT32, INT32, ">i", "integer"


class LongConverter(NumberConverter):
    """`org.apache.kafka.connect.converters.LongConverter`."""

    java_class = _PACKAGE + "LongConverter"
    read_schema, own, form, word = OPTIONAL_INT64, INT64, ">q", "long"


class FloatConverter(NumberConverter):
    """`org.apache.kafka.connect.converters.FloatConverter`."""

    java_class = _PACKAGE + "FloatConverter"
    read_schema, own, form, word = OPTIONAL_FLOAT32, FLOAT32, ">f", "float"


class DoubleConverter(NumberConverter):
    """`org.apache.kafka.connect.converters.DoubleConverter`."""

    java_class = _PACKAGE + "DoubleConverter"
    read_schema, own, form, word = OPTIONAL_FLOAT64, FLOAT64, ">d", "double"
