"""Conversion of column values to event values: Debezium's
schemas, and readers of columns of the server's texts.

Owns the one table of types. The texts' forms: `text_forms`. The columns of a table: `catalog`.

A column is read whole: one call for all its values in a batch. Semantic types carry Debezium's names
(`io.debezium.time.Date`, ...), so that consumers written for it continue to work.

Invariant: a value is read exactly, or refused with a DataError that gives the reason; only columns that the config
reads as doubles lose digits.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any

from herdmesh.connect.java import DAY_MS
from herdmesh.connect.model import DECIMAL, FLOAT64, INT32, OPTIONAL_BYTES, OPTIONAL_INT32, big_endian, parts_of
from herdmesh.connectors.postgres.cdc import text_forms
from herdmesh.connectors.postgres.cdc.settings import DECIMALS, INTERVALS, TIMES, Modes
from herdmesh.connectors.postgres.types import PgType, numeric_shape
from herdmesh.connectors.postgres.unchanged_placeholder import JSON, POINT, VARIABLE_SCALE_DECIMAL, Placeholder, point
from herdmesh.sdk import DataError, JavaDate, Schema, Struct, date_schema, time_schema, timestamp_schema

Labels = Mapping[int, Sequence[str]]
"""The values of each enum, by its type's oid."""
Read = Callable[[Sequence[bytes]], list[Any]]
"""Function from a column of texts without nulls to values."""

_INFINITE = {1: 9_223_372_036_825_200_000, -1: -9_223_372_036_832_400_000}
"""The Java driver's values for infinite timestamps, in
milliseconds; Debezium's microseconds have the same numbers.
"""
_INFINITE_DAYS = {1: (1 << 31) - 1, -1: -(1 << 31)}
_MONTH_US = 2_629_800_000_000
"""A twelfth of 365.25 days, as in Debezium."""
_INT64 = -(1 << 63), (1 << 63) - 1
_MONEY_SCALE = 2
_BITS_MAX = (1 << 31) - 1


@dataclass(frozen=True, slots=True)
class EventReading:
    """Conversion of a column's values to event values."""

    schema: Schema
    read: Read
    empty: Any
    """Replaces the missing value of a required column: in the
    row before a change, of which only the key is known.
    """
    unchanged: Any = None
    """Replaces a large value that was not sent because it did not change; None = the server always sends it."""

    def values(self, cells: Sequence[bytes | None]) -> list[Any]:
        """Convert a column, which may have nulls."""
        if None not in cells:
            return self.read(cells)  # pyright: ignore[reportArgumentType]
        present = iter(self.read([cell for cell in cells if cell is not None]))
        return [None if cell is None else next(present) for cell in cells]


def reading_of(type: PgType, modes: Modes, labels: Labels, *, optional: bool = False) -> EventReading:
    """Return the conversion for a type. A type without its own conversion becomes text."""
    found = _reading(type, modes, labels, optional=optional)
    schema = found.schema.replace(optional=True) if optional else found.schema
    # One rule for all types: a placeholder that the conversion does not define follows from its schema.
    unchanged = Placeholder(modes.placeholder).of(schema) if found.unchanged is None else found.unchanged
    return replace(found, schema=schema, unchanged=unchanged)


def _reading(type: PgType, modes: Modes, labels: Labels, *, optional: bool) -> EventReading:
    """`optional` matters for structs, which carry their schema: it must be the field's."""
    if type.element is not None and type.name not in _VECTORS:
        return _array(reading_of(type.element, modes, labels, optional=True), type.delimiter)
    if type.is_enum:
        allowed = ",".join(labels.get(type.oid, ()))
        return _text(Schema("STRING", False, "io.debezium.data.Enum", 1, parameters={"allowed": allowed}))
    match type.name:
        case "numeric":
            return _numeric(type.typmod, modes, optional=optional)
        case "point":
            return _point(optional=optional)
        case "money":
            return _money(modes)
        case "date" | "time" | "timestamp":
            return _temporal(type, modes)
        case "interval":
            return _interval(modes)
        case "bytea":
            return _binary(modes)
        case "hstore":
            read = _each(text_forms.hstore_json)
            return EventReading(Schema("STRING", False, JSON, 1), read, "{}", Placeholder(modes.placeholder).hstore)
        case "bit" | "varbit":
            return _bits(type.typmod)
        case name:
            fixed = _FIXED.get(name)
            return _text(_NAMED.get(name, _STRING)) if fixed is None else fixed


def _texts(cells: Sequence[bytes]) -> list[Any]:
    return [cell.decode() for cell in cells]


def _each(read: Callable[[str], Any]) -> Read:
    return lambda cells: [read(cell.decode()) for cell in cells]


def _text(schema: Schema) -> EventReading:
    return EventReading(schema, _texts, "")


def _binary(modes: Modes) -> EventReading:
    placeholder = Placeholder(modes.placeholder).raw
    encode = _ENCODERS[modes.binary]
    schema = Schema("BYTES") if modes.binary == "bytes" else _STRING
    # The text begins with \x.
    return EventReading(schema, lambda cells: [encode(binascii.unhexlify(cell[2:])) for cell in cells], encode(b""),
                   encode(placeholder))  # fmt: skip


def _base64(raw: bytes) -> str:
    return base64.b64encode(raw).decode()


def _base64_url_safe(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).decode()


_ENCODERS: Mapping[str, Callable[[bytes], Any]] = {
    "bytes": bytes,
    "base64": _base64,
    "base64-url-safe": _base64_url_safe,
    "hex": bytes.hex,
}


def _decimals(texts: Sequence[str]) -> list[Decimal]:
    found = list(map(Decimal, texts))
    if not all(map(Decimal.is_finite, found)):
        wrong = next(text for text, value in zip(texts, found, strict=True) if not value.is_finite())
        raise DataError(f"a numeric that is {wrong} cannot be a Decimal: set {DECIMALS}=double or string")
    return found


def _numeric(typmod: int, modes: Modes, *, optional: bool) -> EventReading:
    if modes.decimals == "double":
        return _DOUBLE
    if modes.decimals == "string":
        return EventReading(_STRING, _texts, "0")
    shape = numeric_shape(typmod)
    if shape is None:
        schema = Schema("STRUCT", optional, VARIABLE_SCALE_DECIMAL, 1, "Variable scaled decimal",
                        fields=(("scale", INT32), ("value", Schema("BYTES"))))  # fmt: skip

        def scaled(cells: Sequence[bytes]) -> list[Any]:
            parts = map(parts_of, _decimals(_texts(cells)))
            return [Struct(schema, [scale, big_endian(unscaled)]) for unscaled, scale in parts]

        return EventReading(schema, scaled, Struct(schema, [0, b"\0"]))
    precision, scale = shape
    return _decimal(max(scale, 0), {"connect.decimal.precision": str(precision)}, _texts)


def _decimal(scale: int, more: Mapping[str, str], texts: Callable[[Sequence[bytes]], list[str]]) -> EventReading:
    schema = Schema("BYTES", False, DECIMAL, 1, parameters={"scale": str(scale), **more})
    return EventReading(schema, lambda cells: _decimals(texts(cells)), Decimal((0, (0,), -scale)))


def _money(modes: Modes) -> EventReading:
    def texts(cells: Sequence[bytes]) -> list[str]:
        return text_forms.money(_texts(cells))

    match modes.decimals:
        case "double":
            return EventReading(FLOAT64, lambda cells: list(map(float, texts(cells))), 0.0)
        case "string":
            return EventReading(_STRING, texts, "0")
        case _:
            return _decimal(_MONEY_SCALE, {}, texts)


def _days(text: str) -> int:
    infinite = text_forms.INFINITY.get(text)
    return text_forms.days(text) if infinite is None else _INFINITE_DAYS[infinite]


def _timestamp_us(text: str) -> int:
    infinite = text_forms.INFINITY.get(text)
    return text_forms.timestamp_us(text) if infinite is None else _INFINITE[infinite]


def _timestamp_of_connect(text: str) -> JavaDate:
    """Return milliseconds; infinity has the value that
    `PostgresSource` writes and `PostgresSink` reads as infinity.
    """
    infinite = text_forms.INFINITY.get(text)
    return JavaDate(text_forms.timestamp_us(text) // 1_000 if infinite is None else _INFINITE[infinite])


def _temporal(type: PgType, modes: Modes) -> EventReading:
    """Return the conversion of a temporal type. Its modifier
    is the number of second digits; without one it has six.
    """
    in_ms = 0 <= type.typmod <= 3
    connect = modes.times == "connect"
    match type.name:
        case "date" if connect:
            return EventReading(date_schema(), _each(lambda text: JavaDate(_days(text) * DAY_MS)), JavaDate(0))
        case "date":
            return EventReading(Schema("INT32", False, "io.debezium.time.Date", 1), _each(_days), 0)
        case "time" if connect:
            return EventReading(
                time_schema(), _each(lambda text: JavaDate(text_forms.time_us(text) // 1_000)), JavaDate(0)
            )
        case "time" if in_ms and modes.times == "adaptive":
            ms = _each(lambda text: text_forms.time_us(text) // 1_000)
            return EventReading(Schema("INT32", False, "io.debezium.time.Time", 1), ms, 0)
        case "time":
            return EventReading(Schema("INT64", False, "io.debezium.time.MicroTime", 1), _each(text_forms.time_us), 0)
        case _ if connect:
            return EventReading(timestamp_schema(), _each(_timestamp_of_connect), JavaDate(0))
        case _ if in_ms:
            ms = _each(lambda text: _timestamp_us(text) // 1_000)
            return EventReading(Schema("INT64", False, "io.debezium.time.Timestamp", 1), ms, 0)
        case _:
            read = _of_64_bits(_each(_timestamp_us), f"{TIMES}=connect")
            return EventReading(Schema("INT64", False, "io.debezium.time.MicroTimestamp", 1), read, 0)


def _interval(modes: Modes) -> EventReading:
    if modes.intervals == "string":
        return EventReading(
            Schema("STRING", False, "io.debezium.time.Interval", 1), _each(_interval_text), "P0Y0M0DT0H0M0S"
        )
    read = _of_64_bits(_each(_interval_us), f"{INTERVALS}=string")
    return EventReading(Schema("INT64", False, "io.debezium.time.MicroDuration", 1), read, 0)


def _of_64_bits(read: Read, instead: str) -> Read:
    """Refuse values whose microseconds exceed 64 bits; `instead`: the mode that can represent them."""

    def checked(cells: Sequence[bytes]) -> list[Any]:
        found = read(cells)
        if found and not (_INT64[0] <= min(found) and max(found) <= _INT64[1]):
            wrong = next(
                cell.decode() for cell, us in zip(cells, found, strict=True) if not _INT64[0] <= us <= _INT64[1]
            )
            raise DataError(f"{wrong} has more microseconds than 64 bits: write {instead}")
        return found

    return checked


def _interval_us(text: str) -> int:
    years, months, days, hours, minutes, us = text_forms.interval_parts(text)
    return (years * 12 + months) * _MONTH_US + days * text_forms.DAY_US + (hours * 60 + minutes) * 60_000_000 + us


def _interval_text(text: str) -> str:
    years, months, days, hours, minutes, us = text_forms.interval_parts(text)
    seconds, fraction = divmod(abs(us), 1_000_000)
    shown = f"{'-' if us < 0 else ''}{seconds}" + (f".{fraction:06}".rstrip("0") if fraction else "")
    return f"P{years}Y{months}M{days}DT{hours}H{minutes}M{shown}S"


def _bits(typmod: int) -> EventReading:
    if typmod == 1:
        return _BOOLEAN_BIT
    length = _BITS_MAX if typmod < 0 else typmod
    schema = Schema("BYTES", False, "io.debezium.data.Bits", 1, parameters={"length": str(length)})
    return EventReading(schema, _each(_little_endian), b"")


def _little_endian(bits: str) -> bytes:
    return int(bits or "0", 2).to_bytes((len(bits) + 7) // 8, "little")


def _point(*, optional: bool) -> EventReading:
    schema = Schema(
        "STRUCT", optional, POINT, 1, "Geometry (POINT)",
        fields=(("x", FLOAT64), ("y", FLOAT64), ("wkb", OPTIONAL_BYTES), ("srid", OPTIONAL_INT32)),
    )  # fmt: skip

    def read(cells: Sequence[bytes]) -> list[Any]:
        return [point(schema, *map(float, cell[1:-1].split(b","))) for cell in cells]

    return EventReading(schema, read, point(schema, 0.0, 0.0))


def _array(element: EventReading, delimiter: str) -> EventReading:
    """Convert all elements of all arrays of a batch in one call."""

    def read(cells: Sequence[bytes]) -> list[Any]:
        arrays = [text_forms.array_items(cell.decode(), delimiter) for cell in cells]
        values = iter(element.values([None if one is None else one.encode() for items in arrays for one in items]))
        return [[next(values) for _ in items] for items in arrays]

    # Elements that a mode converts to text (bytea, hstore) have their own placeholder, not their schema's.
    unchanged = [element.unchanged] if element.schema.type in ("STRING", "BYTES") else None
    return EventReading(Schema("ARRAY", value_schema=element.schema), read, [], unchanged)


_STRING = Schema("STRING")
_DOUBLE = EventReading(FLOAT64, lambda cells: list(map(float, cells)), 0.0)
_BOOLEAN_BIT = EventReading(Schema("BOOLEAN"), lambda cells: [cell == b"1" for cell in cells], False)
_VECTORS = ("int2vector", "oidvector")
"""Types that have elements, and whose text has no braces."""


def _integers(kind: str) -> EventReading:
    return EventReading(Schema(kind), lambda cells: list(map(int, cells)), 0)


_FIXED: Mapping[str, EventReading] = {
    "bool": EventReading(Schema("BOOLEAN"), lambda cells: [cell == b"t" for cell in cells], False),
    "int2": _integers("INT16"),
    "int4": _integers("INT32"),
    "int8": _integers("INT64"),
    "oid": _integers("INT64"),
    "float4": EventReading(Schema("FLOAT32"), lambda cells: list(map(float, cells)), 0.0),
    "float8": _DOUBLE,
    "timestamptz": EventReading(
        Schema("STRING", False, "io.debezium.time.ZonedTimestamp", 1), _each(text_forms.zoned_timestamp),
        "1970-01-01T00:00:00Z",
    ),
    "timetz": EventReading(Schema("STRING", False, "io.debezium.time.ZonedTime", 1), _each(text_forms.zoned_time),
                      "00:00:00Z"),
}  # fmt: skip
_NAMED: Mapping[str, Schema] = {
    name: Schema("STRING", False, f"io.debezium.data.{schema}", 1)
    for name, schema in (
        ("uuid", "Uuid"), ("json", "Json"), ("jsonb", "Json"), ("xml", "Xml"), ("ltree", "Ltree"),
        ("tsvector", "TsVector"),
    )
}  # fmt: skip
