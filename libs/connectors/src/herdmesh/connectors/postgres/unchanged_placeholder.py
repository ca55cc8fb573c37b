"""Placeholder of an unchanged out-of-line (TOAST) value, for every schema that a column can have.

Owns one function from a schema to the value that replaces a value that the server did not send, so that source and sink
agree. Which values are unchanged: `cdc.pgoutput`; how a sink handles them: `sink.unchanged_values`.

`unavailable.value.placeholder` is a text. Its forms are Debezium's where Debezium has one (text, bytes, hstore, arrays
of texts and of whole numbers), and follow the same rule for all others:

    STRING              the text; of an hstore the JSON object {"<text>":"<text>"}
    BYTES               the text's UTF-8 bytes
    Decimal             the number whose unscaled bytes are these bytes
    VariableScaleDecimal  the same, with scale 0
    FLOAT64             that number (decimal.handling.mode=double)
    ARRAY of numbers, dates, times, booleans, points    an element for each byte
    ARRAY of others     one element, the placeholder of its schema

Other scalars are never out of line: PostgreSQL keeps them within the row.

Invariant: every schema of a column that can be out of line has
a placeholder, which is a value of that schema and not null.
"""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

from herdmesh.connect.java import DAY_MS
from herdmesh.connect.model import DATE, DECIMAL, TEMPORAL, decimal_of, scale_of
from herdmesh.sdk import ConfigError, JavaDate, Schema, Struct, Validator

DEFAULT: Final = "__debezium_unavailable_value"
VARIABLE_SCALE_DECIMAL: Final = "io.debezium.data.VariableScaleDecimal"
POINT: Final = "io.debezium.data.geometry.Point"
JSON: Final = "io.debezium.data.Json"
_HEX: Final = "hex:"
#: Maximum bytes of a number that a double can hold.
_DOUBLE_BYTES_MAX: Final = 120
_WHOLE = ("INT8", "INT16", "INT32", "INT64")
_wkb_point = struct.Struct("<BIdd")


@dataclass(frozen=True)
class Placeholder:
    """The value of `unavailable.value.placeholder`."""

    configured: str = DEFAULT
    """`hex:` and digits = bytes, as in Debezium."""

    @cached_property
    def raw(self) -> bytes:
        """The placeholder as bytes. Raises ConfigError for invalid digits."""
        if not self.configured.startswith(_HEX):
            return self.configured.encode("utf-8", "surrogatepass")
        try:
            return bytes.fromhex(self.configured[len(_HEX) :])
        except ValueError as error:
            raise ConfigError(f"{self.configured!r} has no hexadecimal digits after {_HEX}") from error

    @cached_property
    def text(self) -> str:
        """The placeholder as a text."""
        return self.raw.decode("utf-8", "replace")

    @cached_property
    def hstore(self) -> str:
        """The placeholder as an hstore, which is a JSON object."""
        return json.dumps({self.text: self.text}, ensure_ascii=False, separators=(",", ":"))

    @cached_property
    def number(self) -> int:
        """The number whose bytes, in the form of Connect's Decimal, are the placeholder."""
        return int.from_bytes(self.raw, "big", signed=True)

    def of(self, schema: Schema) -> Any:
        """Return the placeholder in a column of this schema; None = such a column is never out of line."""
        match schema.type:
            case "STRING":
                return self.text
            case "BYTES":
                return decimal_of(self.number, scale_of(schema)) if schema.name == DECIMAL else self.raw
            case "FLOAT64":
                return float(int.from_bytes(self.raw[:_DOUBLE_BYTES_MAX], "big", signed=True))
            case "ARRAY":
                assert schema.value_schema is not None
                return self._elements(schema.value_schema)
            case "STRUCT" if schema.name == VARIABLE_SCALE_DECIMAL:
                return Struct(schema, [0, self.raw])
            case _:
                return None

    @staticmethod
    def point_bytes(x: float, y: float) -> bytes:
        """Return a point in well-known binary."""
        return _wkb_point.pack(1, 1, x, y)

    def _elements(self, element: Schema) -> list[Any]:
        match element.type:
            case _ if element.name in TEMPORAL:
                return [JavaDate(one * DAY_MS if element.name == DATE else one) for one in self.raw]
            case kind if kind in _WHOLE:
                # Signed, like Java's bytes.
                return [one - 256 if one > 127 else one for one in self.raw]
            case "FLOAT32" | "FLOAT64":
                return [float(one) for one in self.raw]
            case "BOOLEAN":
                return [bool(one & 1) for one in self.raw]
            case "STRUCT" if element.name == POINT:
                return [point(element, float(one), float(one)) for one in self.raw]
            case _:
                return [self.of(element)]


def placeholder_validator(*, may_be_empty: bool = False) -> Validator:
    """Validator of a placeholder: not empty, unless `may_be_empty`, and with digits after `hex:`."""

    def check(name: str, value: str) -> None:
        try:
            is_nothing = not Placeholder(value).raw
        except ConfigError as error:
            raise ConfigError.for_value(
                name, value, "no hexadecimal digits after hex:", fix="write hex:00ff"
            ) from error
        if is_nothing and not (may_be_empty and not value):
            raise ConfigError.for_value(name, value, "the placeholder must not be empty", fix=f"write {DEFAULT}")

    return Validator("a string, or hex: and digits", check)


def point(schema: Schema, x: float, y: float) -> Struct:
    """Return a point as Debezium's struct."""
    return Struct(schema, [x, y, Placeholder.point_bytes(x, y), None])
