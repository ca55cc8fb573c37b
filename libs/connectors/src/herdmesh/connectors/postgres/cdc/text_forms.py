"""Parser of PostgreSQL's text forms of dates, times, intervals, arrays and hstores.

Owns the forms that a session with `SESSION` prints: ISO
dates, UTC, ISO 8601 intervals. In an event: `types`.

Invariant: a text is read exactly, or it is a DataError that shows it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from datetime import date
from functools import lru_cache

from herdmesh.sdk import DataError

SESSION = {
    "datestyle": "ISO, MDY",
    "timezone": "UTC",
    "intervalstyle": "iso_8601",
    "bytea_output": "hex",
    "extra_float_digits": "1",
    "lc_monetary": "C",
}
"""Session settings for the texts that this module parses;
they override those of the user and the database.
"""
DAY_US = 86_400_000_000
INFINITY = {"infinity": 1, "-infinity": -1}

_EPOCH_ORDINAL = date(1970, 1, 1).toordinal()
_INTERVAL = re.compile(
    r"P(?:(-?\d+)Y)?(?:(-?\d+)M)?(?:(-?\d+)D)?(?:T(?:(-?\d+)H)?(?:(-?\d+)M)?(?:(-?)(\d+)(?:\.(\d{1,6}))?S)?)?"
)
_TIME_WITH_ZONE = re.compile(r"(\d\d:\d\d:\d\d(?:\.\d+)?)([+-])(\d\d)(?::(\d\d))?(?::(\d\d))?")
_PAIR = re.compile(r'"((?:[^"\\]|\\.)*)"=>(?:(NULL)|"((?:[^"\\]|\\.)*)")(?:, |$)', re.DOTALL)
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)


@lru_cache(maxsize=4_096)
def days(text: str) -> int:
    """Return days since 1970 of `2026-11-22`, of years beyond
    9999, and of `0044-03-15 BC`. Does not accept infinity.
    """
    try:
        return date.fromisoformat(text).toordinal() - _EPOCH_ORDINAL
    except ValueError:
        year, month, day = _date_parts(text)
    # Python's calendar ends before PostgreSQL's: use the same day some 400-year cycles later or earlier.
    cycles, year_in_cycle = divmod(year - 1, 400)
    return date(year_in_cycle + 1, month, day).toordinal() - _EPOCH_ORDINAL + cycles * 146_097


def _date_parts(text: str) -> tuple[int, int, int]:
    """Return the astronomical year (1 BC is 0), month, day."""
    plain = text.removesuffix(" BC")
    try:
        year, month, day = map(int, plain.split("-"))
    except ValueError:
        raise DataError(f"{text!r} is not a PostgreSQL date") from None
    return (1 - year if plain != text else year), month, day


def time_us(text: str) -> int:
    """Return microseconds since midnight of `12:34:56.789`; accepts 24:00:00."""
    try:
        whole, _, fraction = text.partition(".")
        seconds = int(whole[:2]) * 3_600 + int(whole[3:5]) * 60 + int(whole[6:])
        return seconds * 1_000_000 + (int(fraction.ljust(6, "0")) if fraction else 0)
    except ValueError:
        raise DataError(f"{text!r} is not a PostgreSQL time") from None


def timestamp_us(text: str) -> int:
    """Return microseconds since 1970 of `2026-11-22 12:34:56.789`,
    with or without `BC`. Does not accept infinity.
    """
    day, _, time = text.partition(" ")
    if time.endswith(" BC"):
        day, time = f"{day} BC", time[:-3]
    return days(day) * DAY_US + time_us(time)


def zoned_timestamp(text: str) -> str:
    """Convert `2026-11-22 12:34:56.789+00` to `2026-11-22T12:34:56.789Z`,
    the form of Java's ISO_OFFSET_DATE_TIME. Infinity is unchanged.
    """
    if text in INFINITY:
        return text
    plain = text.removesuffix(" BC")
    day, _, time = plain.partition(" ")
    if not time.endswith("+00"):
        raise DataError(f"{text!r} is not a timestamp of a session in UTC")
    if plain != text or len(day) != len("2026-11-22"):
        year, month, dom = _date_parts(f"{day} BC" if plain != text else day)
        day = f"{'+' if year > 9_999 else ''}{year:0{5 if year < 0 else 4}d}-{month:02}-{dom:02}"
    return f"{day}T{time[:-3]}Z"


def zoned_time(text: str) -> str:
    """Convert `12:34:56.5+02` to `10:34:56.5Z`."""
    found = _TIME_WITH_ZONE.fullmatch(text)
    if found is None:
        raise DataError(f"{text!r} is not a PostgreSQL time with time zone")
    time, sign, hours, minutes, seconds = found.groups()
    shift_us = (int(hours) * 3_600 + int(minutes or 0) * 60 + int(seconds or 0)) * 1_000_000
    us = (time_us(time) + (shift_us if sign == "-" else -shift_us)) % DAY_US
    second, fraction = divmod(us, 1_000_000)
    shown = f".{fraction:06}".rstrip("0") if fraction else ""
    return f"{second // 3_600:02}:{second // 60 % 60:02}:{second % 60:02}{shown}Z"


def interval_parts(text: str) -> tuple[int, int, int, int, int, int]:
    """Return years, months, days, hours, minutes and microseconds of `P1Y2M3DT4H5M6.789S`."""
    found = _INTERVAL.fullmatch(text)
    if found is None:
        raise DataError(f"{text!r} is not an interval in ISO 8601")
    years, months, dates, hours, minutes, sign, seconds, fraction = found.groups()
    us = int(seconds or 0) * 1_000_000 + int((fraction or "").ljust(6, "0"))
    return (
        int(years or 0), int(months or 0), int(dates or 0), int(hours or 0), int(minutes or 0), -us if sign else us,
    )  # fmt: skip


@lru_cache(maxsize=16)
def _item(delimiter: str) -> re.Pattern[str]:
    return re.compile(rf'"((?:[^"\\]|\\.)*)"|([^{re.escape(delimiter)}{{}}"]+)', re.DOTALL)


def array_items(text: str, delimiter: str = ",") -> list[str | None]:
    """Return the elements' texts of `{1,NULL,"a b"}`; a few types have another delimiter (`typdelim`: `box` has `;`).
    Raises DataError for an array of several dimensions, for which there is no schema.
    """
    if text.startswith("["):  # explicit bounds: [0:2]={...}
        text = text.partition("=")[2]
    if not (text.startswith("{") and text.endswith("}")):
        raise DataError(f"{text!r} is not a PostgreSQL array")
    inner = text[1:-1]
    if not inner:
        return []
    if '"' not in inner and "{" not in inner and "\\" not in inner:
        return [None if one == "NULL" else one for one in inner.split(delimiter)]
    items: list[str | None] = []
    item, at = _item(delimiter), 0
    while True:
        found = item.match(inner, at)
        if found is None:
            raise DataError(
                f"an array of several dimensions has no schema: {text[:80]!r}; leave the column out with "
                "column.exclude.list"
            )
        quoted, plain = found.groups()
        items.append(_unescaped(quoted) if plain is None else None if plain == "NULL" else _unescaped(plain))
        at = found.end()
        if at == len(inner):
            return items
        at += 1  # the delimiter


def hstore_json(text: str) -> str:
    """Convert an hstore to a JSON object of texts and nulls."""
    pairs: dict[str, str | None] = {}
    at = 0
    while at < len(text):
        found = _PAIR.match(text, at)
        if found is None:
            raise DataError(f"{text!r} is not an hstore")
        key, null, value = found.groups()
        pairs[_unescaped(key)] = None if null else _unescaped(value)
        at = found.end()
    return json.dumps(pairs, ensure_ascii=False, separators=(",", ":"))


def _unescaped(text: str) -> str:
    return _ESCAPED.sub(r"\1", text) if "\\" in text else text


def copy_row(line: bytes) -> list[bytes | None]:
    """Return the cells of a line of COPY's text format, without its line feed."""
    if b"\\" not in line:
        return list[bytes | None](line.split(b"\t"))
    return [None if cell == rb"\N" else _copy_cell(cell) for cell in line.split(b"\t")]


def _copy_cell(cell: bytes) -> bytes:
    return _COPY_ESCAPED.sub(_copy_character, cell) if b"\\" in cell else cell


_COPY_ESCAPED = re.compile(rb"\\(.)", re.DOTALL)
_COPY_CHARACTERS = {b"b": b"\b", b"f": b"\f", b"n": b"\n", b"r": b"\r", b"t": b"\t", b"v": b"\v"}


def _copy_character(found: re.Match[bytes]) -> bytes:
    return _COPY_CHARACTERS.get(found[1], found[1])


def money(texts: Sequence[str]) -> list[str]:
    """Convert `-$1,234.50` to plain numbers."""
    return [one.replace("$", "").replace(",", "") for one in texts]
