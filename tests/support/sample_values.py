"""Sample values of every Connect type, with a schema and without: one table that all tests of sinks share.

Owns the values and their schemas, not their form in a format: that belongs to the test of the format. Each sample is
one value of a record's field; `in_struct` makes a record of it.

Invariant: names are unique, and a value fits its schema unless `is_unfit` marks that it must be refused.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from herdmesh.connect.model.data import BigInteger, Float32, Int8, Int16, Int32, JavaDate, Struct
from herdmesh.connect.model.schemas import (
    BOOLEAN,
    BYTES,
    FLOAT32,
    FLOAT64,
    INT8,
    INT16,
    INT32,
    INT64,
    OPTIONAL_INT32,
    OPTIONAL_STRING,
    STRING,
    Schema,
    date_schema,
    decimal_schema,
    time_schema,
    timestamp_schema,
)

DAY_MS = 86_400_000
NAN, INFINITY = float("nan"), float("inf")
FIELD = "f"
"""The name of the one field that `in_struct` has beside `id`."""


@dataclass(frozen=True)
class Sample:
    """One value under one schema."""

    name: str
    value: Any
    schema: Schema | None = None
    """None = schemaless."""
    is_unfit: bool = False
    """The value does not fit the schema: each sink has to refuse this record, and this record alone."""

    def __str__(self) -> str:
        return self.name


def float32(number: float) -> float:
    """The nearest number that a FLOAT32 can hold, as converters return it under a schema."""
    import struct

    return struct.unpack("f", struct.pack("f", number))[0]


def array_of(element: Schema, *, optional: bool = False) -> Schema:
    """An array schema."""
    return Schema("ARRAY", optional, value_schema=element)


def map_of(key: Schema, value: Schema) -> Schema:
    """A map schema."""
    return Schema("MAP", key_schema=key, value_schema=value)


def optional(schema: Schema, default: Any = None) -> Schema:
    """The same schema with null for a value, and a default if there is one."""
    return schema.replace(optional=True, default=default)


POINT = Schema("STRUCT", name="Point", fields=[("x", INT32), ("label", OPTIONAL_STRING)])
LINE = Schema("STRUCT", name="Line", fields=[("from", POINT), ("points", array_of(POINT))])
MONEY = decimal_schema(2)
DATE, TIME, TIMESTAMP = date_schema(), time_schema(), timestamp_schema()
#: Days and milliseconds of the proleptic Gregorian calendar, as java.time and PostgreSQL count.
BC_4713_DAYS, YEAR_1_DAYS, YEAR_9999_DAYS, YEAR_12345_DAYS = -2_440_550, -719_162, 2_932_896, 3_789_391

_NUMBERS = [
    Sample("INT8 smallest", -128, INT8),
    Sample("INT16 largest", 32_767, INT16),
    Sample("INT32 smallest", -(2**31), INT32),
    Sample("INT64 largest", 2**63 - 1, INT64),
    Sample("INT64 beyond a double", 2**53 + 1, INT64),
    Sample("FLOAT32", float32(0.1), FLOAT32),
    Sample("FLOAT32 NaN", NAN, FLOAT32),
    Sample("FLOAT64", 0.1, FLOAT64),
    Sample("FLOAT64 large", 1e300, FLOAT64),
    Sample("FLOAT64 NaN", NAN, FLOAT64),
    Sample("FLOAT64 Infinity", INFINITY, FLOAT64),
    Sample("FLOAT64 -Infinity", -INFINITY, FLOAT64),
]
_PLAIN = [
    Sample("BOOLEAN", True, BOOLEAN),
    Sample("STRING", 'say "é" 😀, twice\n\\', STRING),
    Sample("STRING empty", "", STRING),
    Sample("STRING null", None, OPTIONAL_STRING),
    Sample("BYTES", b"\x00\xffab", BYTES),
    Sample("BYTES empty", b"", BYTES),
]
_DECIMALS = [
    Sample("Decimal", Decimal("1.50"), MONEY),
    Sample("Decimal of 20 digits", Decimal("123456789012345678.90"), MONEY),
    Sample("Decimal of 38 digits", Decimal("-" + "9" * 36 + ".99"), MONEY),
    Sample("Decimal of 60 digits", Decimal("1" * 58 + ".25"), MONEY),
    Sample("Decimal of 90 digits", Decimal("7" * 88 + ".25"), MONEY),
    Sample("Decimal of scale 0", Decimal(10**20), decimal_schema(0)),
    Sample("Decimal of scale 30", Decimal("0." + "0" * 29 + "1"), decimal_schema(30)),
    Sample("Decimal of scale -3", Decimal("12E+3"), decimal_schema(-3)),
    Sample("Decimal null", None, decimal_schema(2, optional=True)),
]
_TIMES = [
    Sample("Date", JavaDate(19_675 * DAY_MS), DATE),
    Sample("Date before 1970", JavaDate(-1 * DAY_MS), DATE),
    Sample("Date BC", JavaDate(BC_4713_DAYS * DAY_MS), DATE),
    Sample("Date of year 1", JavaDate(YEAR_1_DAYS * DAY_MS), DATE),
    Sample("Date of year 12345", JavaDate(YEAR_12345_DAYS * DAY_MS), DATE),
    Sample("Time", JavaDate(45_296_789), TIME),
    Sample("Time midnight", JavaDate(0), TIME),
    Sample("Timestamp", JavaDate(1_700_000_000_123), TIMESTAMP),
    Sample("Timestamp before 1970", JavaDate(-1), TIMESTAMP),
    Sample("Timestamp BC", JavaDate(BC_4713_DAYS * DAY_MS + 1), TIMESTAMP),
    Sample("Timestamp end of year 9999", JavaDate((YEAR_9999_DAYS + 1) * DAY_MS - 1), TIMESTAMP),
    Sample("Timestamp of year 12345", JavaDate(YEAR_12345_DAYS * DAY_MS + 1), TIMESTAMP),
    Sample("Timestamp null", None, timestamp_schema(optional=True)),
]
_NESTED = [
    Sample("ARRAY", [1, None, 3], array_of(OPTIONAL_INT32)),
    Sample("ARRAY empty", [], array_of(STRING)),
    Sample("ARRAY of arrays", [["a"], []], array_of(array_of(STRING))),
    Sample("ARRAY of Decimal", [Decimal("1.50"), Decimal("123456789012345678.90")], array_of(MONEY)),
    Sample("ARRAY of FLOAT64", [0.1, NAN], array_of(FLOAT64)),
    Sample("ARRAY of BYTES", [b"\xff"], array_of(BYTES)),
    Sample("ARRAY of Date", [JavaDate(19_675 * DAY_MS)], array_of(DATE)),
    Sample("ARRAY null", None, array_of(INT32, optional=True)),
    Sample("MAP", {"a": 1, "b": 2}, map_of(STRING, INT64)),
    Sample("MAP of INT32 keys", {1: "x"}, map_of(INT32, STRING)),
    Sample("MAP of Decimal", {"a": Decimal("1.50")}, map_of(STRING, MONEY)),
    Sample("STRUCT", Struct(POINT, [1, None]), POINT),
    Sample("STRUCT in STRUCT", Struct(LINE, [Struct(POINT, [1, "a"]), [Struct(POINT, [2, None])]]), LINE),
    Sample("STRUCT null", None, optional(POINT)),
]
_DEFAULTS = [
    Sample("null with a default STRING", None, optional(STRING, "UNKNOWN")),
    Sample("null with a default INT32", None, optional(INT32, 7)),
    Sample("null with a default Decimal", None, optional(MONEY, Decimal("9.99"))),
    Sample("null with a default Date", None, optional(DATE, JavaDate(DAY_MS))),
    Sample("null with a default ARRAY", None, optional(array_of(INT32), [1, 2])),
    Sample("null with a default, required", None, STRING.replace(default="UNKNOWN")),
    Sample("null within an ARRAY with a default", ["a", None], array_of(optional(STRING, "UNKNOWN"))),
    Sample("null within a MAP with a default", {"a": None}, map_of(STRING, optional(INT32, 7))),
]
_UNFIT = [
    Sample("null for a required INT32", None, INT32, is_unfit=True),
    Sample("text for an INT64", "x", INT64, is_unfit=True),
    Sample("number for a STRING", 5, STRING, is_unfit=True),
    Sample("300 for an INT8", 300, INT8, is_unfit=True),
    Sample("Date with a time of day", JavaDate(DAY_MS + 1), DATE, is_unfit=True),
    Sample("Time of two days", JavaDate(2 * DAY_MS), TIME, is_unfit=True),
    Sample("null within an ARRAY of required", [1, None], array_of(INT32), is_unfit=True),
]
WITH_SCHEMA: list[Sample] = [*_NUMBERS, *_PLAIN, *_DECIMALS, *_TIMES, *_NESTED, *_DEFAULTS]
"""Values that fit their schemas."""
UNFIT: list[Sample] = _UNFIT
"""Values that do not."""
SCHEMALESS: list[Sample] = [
    Sample("null", None),
    Sample("boolean", False),
    Sample("integer", 2**53 + 1),
    Sample("double", 0.1),
    Sample("double NaN", NAN),
    Sample("double Infinity", INFINITY),
    Sample("byte", Int8(-128)),
    Sample("short", Int16(32_767)),
    Sample("int", Int32(7)),
    Sample("float", Float32(float32(0.1))),
    Sample("BigInteger", BigInteger(2**70)),
    Sample("string", 'say "é" 😀, twice\n\\'),
    Sample("empty string", ""),
    Sample("bytes", b"\x00\xffab"),
    Sample("BigDecimal", Decimal("123456789012345678.90")),
    Sample("java.util.Date", JavaDate(1_700_000_000_123)),
    Sample("java.util.Date BC", JavaDate(BC_4713_DAYS * DAY_MS)),
    Sample("list", [1, "a", None]),
    Sample("empty list", []),
    Sample("map", {"a": 1, "b": {"c": [True]}}),
    Sample("map of dates and decimals", {"at": JavaDate(DAY_MS), "price": Decimal("1.50")}),
    Sample("map with a key that is no text", {1: "x"}),
    Sample("Struct in a list", [Struct(POINT, [1, None])]),
]
"""Values without a schema: those of schemaless converters, and of transformations behind them."""
ALL: list[Sample] = [*WITH_SCHEMA, *UNFIT, *SCHEMALESS]


def in_struct(sample: Sample, number: int = 1) -> tuple[Any, Schema | None]:
    """A record with the fields `id` and `f`, the sample's value: a struct under a schema, a map without."""
    if sample.schema is None:
        return {"id": number, FIELD: sample.value}, None
    schema = Schema("STRUCT", name="Sampled", fields=[("id", INT32), (FIELD, sample.schema)])
    return Struct(schema, [number, sample.value]), schema


def records(samples: list[Sample]) -> Iterator[tuple[Sample, Any, Schema | None]]:
    """Each sample with the record made of it."""
    for number, sample in enumerate(samples):
        value, schema = in_struct(sample, number)
        yield sample, value, schema
