"""Texts of Debezium's semantic types, in the forms of PostgreSQL's own types.

Owns the text for each pair of a schema and a column type. A sink's other values: `texts`. A semantic type in a column
of another type (an `io.debezium.time.Date` in an integer column) is written as its plain value.

    Date, Timestamp, MicroTimestamp, NanoTimestamp          date, timestamp, timestamptz: any year, BC and infinity
    ZonedTimestamp                                          date, timestamp, timestamptz
    Time, MicroTime, NanoTime                               time, timetz
    MicroDuration, NanoDuration                             interval
    VariableScaleDecimal                                    numeric, money, real, double precision
    Bits, BOOLEAN                                           bit(n), whose length they have
    Point                                                   point
    Json, and any JSON object or map                        hstore

A value without a time zone is read as UTC in a column that has one.

`Bits` of a `bit varying` do not contain their number of bits, so they are written as bytes, which that type refuses.

Invariant: a text has exactly the value's meaning, or there is none.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from herdmesh.connect.java import DAY_MS
from herdmesh.connect.model import decimal_of
from herdmesh.connectors.postgres.sink.date_texts import date_text
from herdmesh.sdk import DataError, Schema, Struct

Write = Callable[[Any], str]

_BITS: Final = "io.debezium.data.Bits"
_DAY_US: Final = 86_400_000_000
#: Infinity, with the timestamp's unit in microseconds: the Java driver's milliseconds, or the same number as
#: microseconds.
_INFINITE_US = {9_223_372_036_825_200_000: "infinity", -9_223_372_036_832_400_000: "-infinity"}
_INFINITE_MS = {9_223_372_036_825_200: "infinity", -9_223_372_036_832_400: "-infinity"}
INFINITE_DAYS: Final = {(1 << 31) - 1: "infinity", -(1 << 31): "-infinity"}
"""Infinity in Connect's and Debezium's Date: PostgreSQL has no days there."""
_ZONED = re.compile(r"([+-]?\d{4,})(-\d\d-\d\dT.*)", re.DOTALL)
_TYPE = re.compile(r"(?:.*\.)?\"?([^\".(]+?)\"?(?:\((\d+)(?:,-?\d+)?\))?(?: with(?:out)? time zone)?(?:\[\])*$")


def writer(schema: Schema | None, type: str) -> Write | None:
    """Return the function that writes values of a schema for a column, or for an array's elements; `type`: name from
    `format_type`. None = they are written like any other value.
    """
    found = _TYPE.match(type)
    if found is None:
        return None
    name, length = found.groups()
    if name == "hstore":
        return _hstore
    if schema is None:
        return None
    if name == "bit" and schema.type == "BOOLEAN":
        return _boolean_bit
    if name == "bit" and schema.name == _BITS:
        said = (schema.parameters or {}).get("length")
        return _bits_of(int(said)) if said is not None and said == (length or "1") else None
    return _WRITERS.get(schema.name or "", {}).get(name)


def timestamp_text(us: int) -> str:
    """Format microseconds since 1970 as a timestamp in UTC. A column without a zone ignores the zone."""
    days, of_day_us = divmod(us, _DAY_US)
    day, space, era = date_text(days * DAY_MS).partition(" ")
    return f"{day} {time_text(of_day_us)}+00{space}{era}"


def time_text(us: int) -> str:
    """Format microseconds since midnight; 24:00 is valid."""
    seconds, us = divmod(us, 1_000_000)
    return f"{seconds // 3_600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}.{us:06}"


def _date(value: int) -> str:
    if value in INFINITE_DAYS:
        return INFINITE_DAYS[value]
    return date_text(value * DAY_MS)


def _midnight(value: int) -> str:
    day, space, era = _date(value).partition(" ")
    return day if value in INFINITE_DAYS else f"{day} 00:00:00+00{space}{era}"


def _timestamp(unit_ns: int, infinite: Mapping[int, str]) -> Write:
    def write(value: int) -> str:
        known = infinite.get(value)
        return timestamp_text(value * unit_ns // 1_000) if known is None else known

    return write


def _time(unit_ns: int) -> Write:
    return lambda value: f"{time_text(value * unit_ns // 1_000)}+00"


def _zoned(value: str) -> str:
    """Convert a zoned timestamp: `-0043-03-15T12:00:00Z` is
    44 BC to PostgreSQL; `+10000-...` has no sign there.
    """
    found = _ZONED.fullmatch(value)
    if found is None:
        return value
    year, rest = int(found[1]), found[2]
    return f"{year:04}{rest}" if year > 0 else f"{1 - year:04}{rest} BC"


def _duration(unit_ns: int) -> Write:
    return lambda value: f"{value * unit_ns // 1_000} microseconds"


def _decimal(value: Struct) -> str:
    scale, unscaled = value.values
    return format(decimal_of(int.from_bytes(unscaled, "big", signed=True), scale), "f")


def _boolean_bit(value: bool) -> str:
    return "1" if value else "0"


def _bits_of(length: int) -> Write:
    def write(value: bytes) -> str:
        text = f"{int.from_bytes(value, 'little'):0{length}b}"
        if len(text) != length:
            raise DataError(f"{len(text)} bits are too many for bit({length})")
        return text

    return write


def _point(value: Struct) -> str:
    return f"({value.values[0]!r},{value.values[1]!r})"


def _hstore(value: Any) -> str:
    """Format a map, a JSON object, or a text that is an hstore already.
    Raises DataError for members other than texts and nulls.
    """
    if isinstance(value, str):
        if not value.startswith("{"):
            return value
        try:
            value = json.loads(value)
        except ValueError:
            return value
    try:
        return ", ".join(f"{_quoted(key)}=>{'NULL' if one is None else _quoted(one)}" for key, one in value.items())
    except (AttributeError, TypeError) as error:
        raise DataError(f"an hstore is a JSON object of strings and nulls, not {str(value)[:80]!r}") from error


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _of(types: str, write: Write) -> dict[str, Write]:
    return dict.fromkeys(types.split(), write)


_TIME_PREFIX = "io.debezium.time."
_WRITERS: Mapping[str, Mapping[str, Write]] = {
    f"{_TIME_PREFIX}Date": {"date": _date, "timestamp": _midnight},
    f"{_TIME_PREFIX}Time": _of("time", _time(1_000_000)),
    f"{_TIME_PREFIX}MicroTime": _of("time", _time(1_000)),
    f"{_TIME_PREFIX}NanoTime": _of("time", _time(1)),
    f"{_TIME_PREFIX}Timestamp": _of("date timestamp", _timestamp(1_000_000, _INFINITE_MS)),
    f"{_TIME_PREFIX}MicroTimestamp": _of("date timestamp", _timestamp(1_000, _INFINITE_US)),
    f"{_TIME_PREFIX}NanoTimestamp": _of("date timestamp", _timestamp(1, {})),
    f"{_TIME_PREFIX}ZonedTimestamp": _of("date timestamp", _zoned),
    f"{_TIME_PREFIX}MicroDuration": _of("interval", _duration(1_000)),
    f"{_TIME_PREFIX}NanoDuration": _of("interval", _duration(1)),
    "io.debezium.data.VariableScaleDecimal": _of("numeric money real", _decimal) | {"double precision": _decimal},
    "io.debezium.data.geometry.Point": _of("point", _point),
}
