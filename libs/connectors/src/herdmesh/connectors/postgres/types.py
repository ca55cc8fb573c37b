"""Mapping between PostgreSQL's types and Connect's: the
schema of a column, its values, the column for a schema.

Owns the one table of types, in both directions. The columns of a table: `source.catalog`. The text form of values, as
logical replication sends it: `cdc.text_forms`.

A value is read in two steps, so that the work is done per column, not per row. The SQL expression (`TypeReading.sql`)
makes the server convert it to a form that psycopg's C code reads (`read_raw`): integers for dates and times, text for
types that Connect does not have. Then `TypeReading.column` converts a column of raw values to Connect's.

Invariant: a value is read exactly, or refused with a DataError. There are two exceptions: columns that the config
reads as doubles lose digits, and microseconds of a Timestamp or Time with milliseconds are cut off, as in Java.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

import psycopg
from psycopg.types.numeric import Int4BinaryLoader, Int8BinaryLoader

from herdmesh.connect.java import DAY_MS
from herdmesh.connect.model import DATE, DECIMAL, TIME, TIMESTAMP, scale_of
from herdmesh.sdk import DataError, JavaDate, Schema

EPOCH_DAYS: Final = 10_957
"""From 1970-01-01 to 2000-01-01, the origin of PostgreSQL's days and microseconds."""
EPOCH_US: Final = EPOCH_DAYS * DAY_MS * 1_000
_EPOCH_MS: Final = EPOCH_DAYS * DAY_MS
INFINITY_US: Final = (1 << 63) - 1
MINUS_INFINITY_US: Final = -(1 << 63)
_INFINITY_DAYS: Final = ((1 << 31) - 1, -(1 << 31))
#: The Java driver's values for infinite timestamps, in milliseconds.
_JAVA_INFINITY_MS = {INFINITY_US: 9_223_372_036_825_200_000, MINUS_INFINITY_US: -9_223_372_036_832_400_000}


@dataclass(frozen=True, slots=True)
class PgType:
    """The type of a column; a domain is resolved to its base type."""

    oid: int
    name: str
    """Name as in `pg_type`: `int4`, `numeric`, `mood`; for an
    array the name of its elements' type followed by `[]`.
    """
    typmod: int = -1
    """PostgreSQL's modifier: precision and scale, length; -1 = none."""
    element: PgType | None = None
    """Type of an array's elements."""
    is_enum: bool = False
    delimiter: str = ","
    """For an array: the separator of elements in the server's text."""


def plain_name(name: str, kind: str) -> str:
    """Return a type's name for `PgType`. `kind`: `pg_type.typtype`. A user's composite or range may have the name of a
    built-in type, `money` or `point`, and must not be treated as that type.
    """
    return name if kind in ("b", "e") else f"{name} ({kind})"


@dataclass(frozen=True, slots=True)
class SourceColumn:
    """A column of a table or a query."""

    name: str
    type: PgType
    nullable: bool
    key: int = 0
    """Place in the primary key, from 1; 0 = not in it."""


class NumericMapping(StrEnum):
    """Mapping of `numeric` (Confluent's `numeric.mapping`)."""

    NONE = "none"
    """Always Decimal."""
    PRECISION_ONLY = "precision_only"
    """Integers of up to 18 digits are Connect's integers."""
    BEST_FIT = "best_fit"
    """In addition, numbers with a fraction and up to 18 digits are FLOAT64."""
    BEST_FIT_EAGER_DOUBLE = "best_fit_eager_double"
    """All numbers with a fraction are FLOAT64."""


class Granularity(StrEnum):
    """Mapping of timestamps (Confluent's `timestamp.granularity`)."""

    CONNECT_LOGICAL = "connect_logical"
    """Timestamp, in milliseconds."""
    MICROS_LONG = "micros_long"
    MICROS_STRING = "micros_string"
    NANOS_LONG = "nanos_long"
    NANOS_STRING = "nanos_string"


@dataclass(frozen=True, slots=True)
class TypeOptions:
    """Settings about types."""

    numeric: NumericMapping = NumericMapping.NONE
    granularity: Granularity = Granularity.CONNECT_LOGICAL
    zone: str = "UTC"
    """Time zone of `timestamp` values without a zone."""


ColumnReader = Callable[[Sequence[Any]], Sequence[Any]]
"""Function from a column of raw values, with None among them, to Connect's values."""


@dataclass(frozen=True, slots=True)
class TypeReading:
    """Conversion of the values of a type to Connect's."""

    schema: Schema
    """Not optional; `schema_of` makes it optional."""
    cast: str = ""
    """SQL type to which the server casts the column first; "" = none."""
    expression: str = ""
    """SQL expression around the column, `{}`, if a cast is not enough; "" = none."""
    column: ColumnReader | None = None
    """None = raw values are Connect's."""

    def sql(self, column: str) -> str:
        """Return the SQL expression to select, from the column's SQL name."""
        if self.expression:
            return self.expression.format(column)
        return f"{column}::{self.cast}" if self.cast else column

    def values(self, raw: Sequence[Any]) -> Sequence[Any]:
        """Convert a column of raw values to Connect's. Raises
        DataError for a value that Connect cannot represent.
        """
        return raw if self.column is None else self.column(raw)


def read_raw(connection: psycopg.Connection[Any]) -> None:
    """Make this connection's binary cursors return dates and times as
    they are sent: days and microseconds, since 2000 or since midnight.
    """
    for name in ("timestamp", "timestamptz", "time"):
        connection.adapters.register_loader(name, Int8BinaryLoader)
    connection.adapters.register_loader("date", Int4BinaryLoader)


def schema_of(column: SourceColumn, options: TypeOptions) -> Schema:
    """Return the schema of a column; optional if the column may be null."""
    schema = reading_of(column.type, options).schema
    return schema.replace(optional=True) if column.nullable else schema


def reading_of(type: PgType, options: TypeOptions) -> TypeReading:
    """Return the conversion for a type. Types without a counterpart
    in Connect are read as the text that the server prints.
    """
    if type.element is not None:
        return _array(type.element, options)
    if type.is_enum:
        return _TEXT
    if type.name == "numeric":
        return _numeric(type.typmod, options.numeric)
    if type.name in ("timestamp", "timestamptz"):
        return _timestamp(options, local=type.name == "timestamp")
    if type.name == "bit" and type.typmod == 1:
        return TypeReading(Schema("BOOLEAN"), expression="({} = B'1')")
    return _FIXED.get(type.name, _TEXT)


def numeric_shape(typmod: int) -> tuple[int, int] | None:
    """Return precision and scale of a `numeric`; None = any."""
    if typmod < 4:
        return None
    bits = typmod - 4
    return bits >> 16 & 0xFFFF, ((bits & 0x7FF) ^ 1024) - 1024


def _numeric(typmod: int, mapping: NumericMapping) -> TypeReading:
    shape = numeric_shape(typmod)
    if shape is None:
        # Without a scale it cannot be Connect's Decimal, and as another numeric type it would lose digits.
        return _DOUBLE if mapping is NumericMapping.BEST_FIT_EAGER_DOUBLE else _TEXT
    precision, scale = shape
    digits = precision - min(scale, 0)
    if scale <= 0 and digits < 19 and mapping is not NumericMapping.NONE:
        bits, kind = next(fit for most, fit in _FITTING if digits <= most)
        return TypeReading(Schema(bits), cast=kind)
    eager = mapping is NumericMapping.BEST_FIT_EAGER_DOUBLE
    if scale > 0 and (eager or (mapping is NumericMapping.BEST_FIT and precision < 19)):
        return _DOUBLE
    schema = Schema("BYTES", False, DECIMAL, 1, parameters={"scale": str(max(scale, 0))})
    return TypeReading(schema, column=_decimals)


#: Maximum digits, Connect's integer type, and PostgreSQL's type that is read into it.
_FITTING = ((2, ("INT8", "int2")), (4, ("INT16", "int2")), (9, ("INT32", "int4")), (18, ("INT64", "int8")))


def _timestamp(options: TypeOptions, *, local: bool) -> TypeReading:
    expression = ""
    if local and options.zone != "UTC":
        expression = "({} AT TIME ZONE " + "'" + options.zone.replace("'", "''") + "')"
    granularity = options.granularity
    if granularity is Granularity.CONNECT_LOGICAL:
        return TypeReading(Schema("INT64", False, TIMESTAMP, 1), expression=expression, column=_milliseconds)
    schema = Schema("STRING" if granularity.value.endswith("_string") else "INT64")
    return TypeReading(schema, expression=expression, column=_COUNTED[granularity])


def _array(element: PgType, options: TypeOptions) -> TypeReading:
    """Return the conversion of one-dimensional arrays with nullable
    elements. Elements that need more than a cast are read as texts.
    """
    inner = reading_of(element, options)
    if inner.expression or element.element is not None:
        inner = _TEXT
    schema = Schema("ARRAY", value_schema=inner.schema.replace(optional=True))
    # psycopg does not know the array type of a domain.
    return TypeReading(schema, cast=f"{inner.cast or element.name}[]", column=_lists(inner.column))


def _lists(column: ColumnReader | None) -> ColumnReader:
    def read(raw: Sequence[Any]) -> list[Any]:
        return [one if one is None else _elements(one, column) for one in raw]

    return read


def _elements(raw: list[Any], column: ColumnReader | None) -> list[Any]:
    if any(type(one) is list for one in raw):
        raise DataError("an array of more than one dimension has no schema in Connect; read it by a query, as text")
    return raw if column is None else list(column(raw))


def _decimals(raw: Sequence[Any]) -> Sequence[Any]:
    if not all(one is None or one.is_finite() for one in raw):
        raise DataError("a numeric that is NaN or infinite cannot be a Connect Decimal; read it by a query, as text")
    return raw


def _milliseconds(raw: Sequence[Any]) -> list[JavaDate | None]:
    if INFINITY_US in raw or MINUS_INFINITY_US in raw:
        return [None if one is None else JavaDate(_finite_ms(one)) for one in raw]
    return [None if one is None else JavaDate(one // 1_000 + _EPOCH_MS) for one in raw]


def _finite_ms(raw_us: int) -> int:
    found = _JAVA_INFINITY_MS.get(raw_us)
    return raw_us // 1_000 + _EPOCH_MS if found is None else found


def _counted(scale: int, make: Callable[[int], Any]) -> ColumnReader:
    """Convert timestamps to integers since 1970, by a factor relative to microseconds."""

    def read(raw: Sequence[Any]) -> list[Any]:
        found = [None if one is None else (one + EPOCH_US) * scale for one in raw]
        for one, count in zip(raw, found, strict=True):
            if count is not None and (one in _JAVA_INFINITY_MS or not -(1 << 63) <= count < 1 << 63):
                raise DataError("a timestamp is too far from 1970 for timestamp.granularity; use connect_logical")
        return [None if one is None else make(one) for one in found]

    return read


_COUNTED = {
    Granularity.MICROS_LONG: _counted(1, int),
    Granularity.MICROS_STRING: _counted(1, str),
    Granularity.NANOS_LONG: _counted(1_000, int),
    Granularity.NANOS_STRING: _counted(1_000, str),
}


def _dates(raw: Sequence[Any]) -> list[JavaDate | None]:
    """Convert dates. An infinite date is the last, or the first,
    day of Connect's Date: PostgreSQL has no dates there.
    """
    if any(one in raw for one in _INFINITY_DAYS):
        return [None if one is None else JavaDate(_finite_day(one) * DAY_MS) for one in raw]
    return [None if one is None else JavaDate((one + EPOCH_DAYS) * DAY_MS) for one in raw]


def _finite_day(raw_days: int) -> int:
    return raw_days if raw_days in _INFINITY_DAYS else raw_days + EPOCH_DAYS


def _times(raw: Sequence[Any]) -> list[JavaDate | None]:
    return [None if one is None else JavaDate(one // 1_000) for one in raw]


_TEXT = TypeReading(Schema("STRING"), cast="text")
_DOUBLE = TypeReading(Schema("FLOAT64"), cast="float8")
_FIXED: dict[str, TypeReading] = {
    "bool": TypeReading(Schema("BOOLEAN")),
    "int2": TypeReading(Schema("INT16")),
    "int4": TypeReading(Schema("INT32")),
    "int8": TypeReading(Schema("INT64")),
    "oid": TypeReading(Schema("INT64")),
    "float4": TypeReading(Schema("FLOAT32")),
    "float8": TypeReading(Schema("FLOAT64")),
    "text": TypeReading(Schema("STRING")),
    "varchar": TypeReading(Schema("STRING")),
    "bpchar": TypeReading(Schema("STRING")),
    "bytea": TypeReading(Schema("BYTES")),
    "date": TypeReading(Schema("INT32", False, DATE, 1), column=_dates),
    "time": TypeReading(Schema("INT32", False, TIME, 1), column=_times),
    "timetz": TypeReading(Schema("INT32", False, TIME, 1), expression="({} AT TIME ZONE 'UTC')::time", column=_times),
}

_PRECISION_MAX = 1000
_COLUMNS = {
    "INT8": "smallint", "INT16": "smallint", "INT32": "integer", "INT64": "bigint", "FLOAT32": "real",
    "FLOAT64": "double precision", "BOOLEAN": "boolean", "STRING": "text", "BYTES": "bytea",
}  # fmt: skip
_LOGICAL_COLUMNS = {DATE: "date", TIME: "time", TIMESTAMP: "timestamp"}


def sql_type(schema: Schema) -> str:
    """Return the column type for values of a schema, as Confluent's sink chooses it,
    except that a Decimal's column has the scale, so that it is read back as a Decimal.
    Raises DataError for schemas without one: maps, structs, arrays of arrays.
    """
    if schema.name == DECIMAL:
        scale = scale_of(schema)
        return f"numeric({_PRECISION_MAX},{scale})" if 0 <= scale <= _PRECISION_MAX else "numeric"
    if schema.name in _LOGICAL_COLUMNS:
        return _LOGICAL_COLUMNS[schema.name]
    if schema.type in _COLUMNS:
        return _COLUMNS[schema.type]
    if schema.type == "ARRAY":
        element = schema.value_schema
        if element is not None and element.type != "ARRAY":
            return f"{sql_type(element)}[]"
    raise DataError(f"{schema} (type {schema.type}) has no column type in PostgreSQL; flatten it, or leave it out")
