"""Conversions of logical types: Decimal, Date, Time and Timestamp to and from their bytes and integers.

Owns both directions with Connect's checks and texts (docs/reference/connect/data-model.md, section 1.4). Names of the
types: `schemas`.

Invariant: `from_internal(schema, to_internal(schema, value))` is the value, for a Date in the years that an int of days
covers.
"""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Final

from herdmesh.connect.errors import DataError, NullPointerError
from herdmesh.connect.java import DAY_MS, wrap_int32
from herdmesh.connect.model.data import JavaDate
from herdmesh.connect.model.schemas import DATE, SCALE, TIME, TIMESTAMP, Schema

TEMPORAL: Final = frozenset((DATE, TIME, TIMESTAMP))
_INT32_TEXT = re.compile(r"[+-]?\d+")
_INT32 = range(-(1 << 31), 1 << 31)
_SCALE_CHARS_MAX = 64


def scale_of(schema: Schema) -> int:
    """The scale of a Decimal schema. Raises Java's errors when the schema has none."""
    if schema.parameters is None:
        raise NullPointerError("the Decimal schema has no parameters")
    text = schema.parameters.get(SCALE)
    if text is None:
        raise DataError("Invalid Decimal schema: scale parameter not found.")
    if not _INT32_TEXT.fullmatch(text) or len(text) > _SCALE_CHARS_MAX or int(text) not in _INT32:
        raise DataError("Invalid scale parameter found in Decimal schema: ")
    return int(text)


def decimal_of(unscaled: int, scale: int) -> Decimal:
    """`new BigDecimal(unscaled, scale)`."""
    return Decimal((int(unscaled < 0), tuple(Decimal(unscaled).as_tuple().digits), -scale))


def parts_of(value: Decimal) -> tuple[int, int]:
    """The unscaled number and the scale of a decimal."""
    sign, digits, exponent = value.as_tuple()
    if not isinstance(exponent, int):
        raise DataError(f"BigDecimal has no {value}")
    return int(Decimal((sign, digits, 0))), -exponent


def big_endian(value: int) -> bytes:
    """`BigInteger.toByteArray`: two's complement, in the smallest number of bytes."""
    return value.to_bytes((value + (value < 0)).bit_length() // 8 + 1, "big", signed=True)


def decimal_to_bytes(schema: Schema, value: Decimal) -> bytes:
    """`Decimal.fromLogical`. Raises DataError when the scale is not the schema's."""
    wanted = scale_of(schema)
    unscaled, scale = parts_of(value)
    if scale != wanted:
        raise DataError(
            "Decimal value has mismatching scale for given Decimal schema. "
            f"Schema has scale {wanted}, value has scale {scale}."
        )
    return big_endian(unscaled)


def decimal_from_bytes(schema: Schema, value: bytes) -> Decimal:
    """`Decimal.toLogical`."""
    return decimal_of(int.from_bytes(value, "big", signed=True), scale_of(schema))


def days_of(value: int) -> int:
    """`Date.fromLogical`: milliseconds as an int of days. Raises DataError for a value with a time of day."""
    days, rest = divmod(int(value), DAY_MS)
    if rest:
        raise DataError("Kafka Connect Date type should not have any time fields set to non-zero values.")
    return wrap_int32(days)


def time_of(value: int) -> int:
    """`Time.fromLogical`: the milliseconds of the day. Raises DataError for a value with a date."""
    if not 0 <= value <= DAY_MS:
        raise DataError("Kafka Connect Time type should not have any date fields set to non-zero values.")
    return int(value)


def to_internal(schema: Schema, value: JavaDate) -> int:
    """`Date.fromLogical`, `Time.fromLogical`, `Timestamp.fromLogical`, by the schema's name: days, milliseconds of
    the day or milliseconds. Raises DataError for a value with a part that the type does not have.
    """
    if schema.name == DATE:
        return days_of(value)
    return time_of(value) if schema.name == TIME else int(value)


def from_internal(schema: Schema, value: int) -> JavaDate:
    """`Date.toLogical`, `Time.toLogical`, `Timestamp.toLogical`, by the schema's name. Raises DataError for a Time
    beyond a day."""
    if schema.name == DATE:
        return JavaDate(value * DAY_MS)
    if schema.name == TIME and not 0 <= value <= DAY_MS:
        raise DataError("Time values must use number of milliseconds greater than 0 and less than 86400000")
    return JavaDate(value)
