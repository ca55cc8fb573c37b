"""Second implementation of reading PostgreSQL's values, from their
text form, with which the tests compare the binary reading.

Owns the parsing of text output: numbers, bytes, dates and times (ISO style, the server's default), and arrays.

Invariant: a text gives the raw value that a binary cursor with
`types.read_raw` gives for `TypeReading.sql` of the same column.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable
from decimal import Decimal
from typing import Any, Final

from herdmesh.connectors.postgres.types import (
    EPOCH_DAYS,
    INFINITY_US,
    MINUS_INFINITY_US,
    PgType,
    TypeOptions,
    reading_of,
)
from herdmesh.sdk import DataError

_DAY_US: Final = 86_400_000_000
_DATE = r"(\d+)-(\d\d)-(\d\d)"
_TIME = r"(\d\d):(\d\d):(\d\d)(?:\.(\d{1,6}))?"
_ZONE = r"([+-])(\d\d)(?::(\d\d))?(?::(\d\d))?"
_DATES = re.compile(rf"{_DATE}( BC)?", re.ASCII)
_TIMES = re.compile(rf"{_TIME}(?:{_ZONE})?", re.ASCII)
_TIMESTAMPS = re.compile(rf"{_DATE} {_TIME}(?:{_ZONE})?( BC)?", re.ASCII)
_INFINITE_US = {"infinity": INFINITY_US, "-infinity": MINUS_INFINITY_US}
_INFINITE_DAYS = {"infinity": (1 << 31) - 1, "-infinity": -(1 << 31)}

TextReader = Callable[[str], Any]


def text_reader(type: PgType, options: TypeOptions) -> TextReader:
    """Return a parser of the text of a value that is not
    null. The parser raises DataError for an invalid text.

    It ignores `options.zone`: a timestamp without a time zone is read as UTC.
    """
    reading = reading_of(type, options)
    if type.element is not None:
        return _array_reader(type.element, options)
    if reading.cast == "text":
        return str
    if reading.schema.type == "BOOLEAN":
        return _bool
    if reading.cast:  # a numeric that is read as another number
        return float if reading.cast == "float8" else int
    return _READERS[type.name]


def _array_reader(element: PgType, options: TypeOptions) -> TextReader:
    inner = reading_of(element, options)
    # as in `types`: elements that need more than a cast are read as text
    read = str if inner.expression or element.element is not None else text_reader(element, options)
    return lambda text: elements(text, read)


def elements(text: str, read: TextReader) -> list[Any]:
    """Return the elements of an array's text, each parsed by `read`; a
    nested array is a nested list. Raises DataError for another text.
    """
    body = text[text.index("=") + 1 :] if text.startswith("[") and "=" in text else text  # bounds: [2:3]={1,2}
    found: list[Any] = []
    open_lists: list[list[Any]] = []
    end = 0
    for match in _TOKENS.finditer(body):
        if match.start() != end:
            break
        end = match.end()
        opened, closed, in_quotes, plain = match.groups()
        if opened:
            inner: list[Any] = []
            if open_lists:
                open_lists[-1].append(inner)
            open_lists.append(inner)
        elif closed and open_lists:
            found = open_lists.pop()
            if not open_lists:
                break
        elif open_lists and in_quotes is not None:
            open_lists[-1].append(read(_ESCAPED.sub(r"\1", in_quotes)))
        elif open_lists and plain:
            open_lists[-1].append(None if plain.upper() == "NULL" else read(plain))
    if open_lists or end != len(body) or not body.startswith("{"):
        raise DataError(f"not the text of an array: {text[:100]!r}")
    return found


_TOKENS = re.compile(r'(\{)|(\}),?|"((?:[^"\\]|\\.)*)",?|((?:[^{}",\\]|\\.)+),?', re.DOTALL)
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)


def _bool(text: str) -> bool:
    if text not in _BOOLS:
        raise DataError(f"not a boolean: {text!r}")
    return _BOOLS[text]


_BOOLS = {"t": True, "f": False, "1": True, "0": False}


def _bytes(text: str) -> bytes:
    if not text.startswith("\\x"):
        raise DataError("bytea_output must be hex, the server's default, for this to be read")
    return bytes.fromhex(text[2:])


def _date(text: str) -> int:
    """Return days since 2000-01-01."""
    match = _DATES.fullmatch(text)
    if match is None:
        return _infinite(text, _INFINITE_DAYS, "date")
    return _days(match[1], match[2], match[3], before_christ=bool(match[4])) - EPOCH_DAYS


def _time(text: str) -> int:
    """Return microseconds since midnight; for a time with a zone since midnight in UTC."""
    match = _TIMES.fullmatch(text)
    if match is None:
        raise DataError(f"not a time: {text!r}")
    time_us = _time_us(match, 1)
    return time_us if match[5] is None else (time_us - _zone_us(match, 5)) % _DAY_US


def _timestamp(text: str) -> int:
    """Return microseconds since 2000-01-01, in UTC."""
    match = _TIMESTAMPS.fullmatch(text)
    if match is None:
        return _infinite(text, _INFINITE_US, "timestamp")
    days = _days(match[1], match[2], match[3], before_christ=bool(match[12])) - EPOCH_DAYS
    zone_us = 0 if match[8] is None else _zone_us(match, 8)
    return days * _DAY_US + _time_us(match, 4) - zone_us


def _infinite(text: str, known: dict[str, int], what: str) -> int:
    if text not in known:
        raise DataError(f"not a {what}, in ISO style, which datestyle must be: {text!r}")
    return known[text]


def _time_us(match: re.Match[str], at: int) -> int:
    hours, minutes, seconds, fraction = match.group(at, at + 1, at + 2, at + 3)
    return ((int(hours) * 60 + int(minutes)) * 60 + int(seconds)) * 1_000_000 + int((fraction or "").ljust(6, "0"))


def _zone_us(match: re.Match[str], at: int) -> int:
    sign, hours, minutes, seconds = match.group(at, at + 1, at + 2, at + 3)
    shift_s = (int(hours) * 60 + int(minutes or 0)) * 60 + int(seconds or 0)
    return (-shift_s if sign == "-" else shift_s) * 1_000_000


def _days(year_text: str, month_text: str, day_text: str, *, before_christ: bool) -> int:
    """Return days since 1970-01-01, in the Gregorian calendar, which PostgreSQL uses for all times (datetime ends at
    year 9999 and begins at 1). The year before 1 is 1 BC.
    """
    year, month, day = int(year_text), int(month_text), int(day_text)
    if before_christ:
        year = 1 - year
    # Years begin in March, so that a leap day is the last: eras of 400 years, after Howard Hinnant's algorithm.
    year -= month <= 2
    era, year_of_era = divmod(year, 400)
    day_of_year = (153 * ((month + 9) % 12) + 2) // 5 + day - 1
    return era * 146_097 + year_of_era * 365 + year_of_era // 4 - year_of_era // 100 + day_of_year - 719_468


def _float4(text: str) -> float:
    """Return the double of the four-byte float."""
    return struct.unpack("f", struct.pack("f", float(text)))[0]


_READERS: dict[str, TextReader] = {
    "int2": int,
    "int4": int,
    "int8": int,
    "oid": int,
    "float4": _float4,
    "float8": float,
    "numeric": Decimal,
    "text": str,
    "varchar": str,
    "bpchar": str,
    "bytea": _bytes,
    "date": _date,
    "time": _time,
    "timetz": _time,
    "timestamp": _timestamp,
    "timestamptz": _timestamp,
}
