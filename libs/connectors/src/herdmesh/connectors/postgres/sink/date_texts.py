"""Dates and timestamps in the text that PostgreSQL reads, for any year.

Owns the texts. PostgreSQL has dates from 4713 BC to 5874897 and timestamps to 294276, always in the Gregorian calendar;
Python's own dates end at the years 1 and 9999. A date outside of these is written by the same day in another cycle of
400 years, and the server refuses dates beyond its type.

Invariant: the server reads exactly the given day or timestamp.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta, tzinfo
from typing import Any, Final

import numpy as np

from herdmesh.connect.java import DAY_MS

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_FIRST_MS: Final = -62_135_596_800_000
_LAST_MS: Final = 253_402_300_799_999
"""First and last millisecond of the years 1 to 9999, since 1970."""
_EPOCH_ORDINAL: Final = _EPOCH.toordinal()
_CYCLE_DAYS: Final = 146_097
_CYCLE_YEARS: Final = 400
_LAST_CYCLE: Final = 24
"""The last complete cycle of 400 years in Python's dates, counted from 0."""


def date_texts(milliseconds: Sequence[int]) -> list[str] | None:
    """Return `date_text` of each, computed by column; None if one is not a whole day of the years 1 to 9999."""
    found = _within_years(milliseconds)
    if found is None or (found % DAY_MS).any():
        return None
    return np.datetime_as_string(found.astype("datetime64[ms]").astype("datetime64[D]")).tolist()


def moment_texts(milliseconds: Sequence[int]) -> list[str] | None:
    """Return `moment_text` of each in UTC, computed by column; None if one is outside of the years 1 to 9999."""
    found = _within_years(milliseconds)
    if found is None:
        return None
    written: list[str] = np.datetime_as_string(found.astype("datetime64[ms]")).tolist()
    return [
        f"{text[:10]} {text[11:19]}+00:00" if text[20:] == "000" else f"{text[:10]} {text[11:]}000+00:00"
        for text in written
    ]


def _within_years(milliseconds: Sequence[int]) -> np.ndarray[Any, np.dtype[np.int64]] | None:
    try:
        found = np.fromiter(milliseconds, np.int64, len(milliseconds))
    except OverflowError:
        return None
    return found if len(found) and found.min() >= _FIRST_MS and found.max() <= _LAST_MS else None


def date_text(milliseconds: int) -> str:
    """Return the day, in UTC, from milliseconds since 1970: `2024-02-29`, `10000-01-01`, `0044-03-15 BC`."""
    day, era = _day(milliseconds // DAY_MS)
    return day + era


def moment_text(milliseconds: int, zone: tzinfo) -> str:
    """Return the moment by the zone's clock, with its offset: `2024-02-29 13:00:00.123000+00:00`."""
    try:
        return (_EPOCH + timedelta(milliseconds=milliseconds)).astimezone(zone).isoformat(" ")
    except (OverflowError, ValueError):
        offset = _offset(milliseconds, zone)
        days, of_day_ms = divmod(milliseconds + offset // timedelta(milliseconds=1), DAY_MS)
        day, era = _day(days)
        return f"{day} {time_text(of_day_ms)}{_offset_text(offset)}{era}"


def time_text(of_day_ms: int) -> str:
    """Return `13:00:00.123`, and `24:00:00.000`."""
    seconds, milliseconds = divmod(of_day_ms, 1000)
    minutes, second = divmod(seconds, 60)
    hour, minute = divmod(minutes, 60)
    return f"{hour:02d}:{minute:02d}:{second:02d}.{milliseconds:03d}"


def _day(days: int) -> tuple[str, str]:
    """Return the text of a day, counted from 1970, and of its era."""
    ordinal = days + _EPOCH_ORDINAL
    if 0 < ordinal <= _LAST_CYCLE * _CYCLE_DAYS:
        return date.fromordinal(ordinal).isoformat(), ""
    cycle, rest = divmod(ordinal - 1, _CYCLE_DAYS)
    like = date.fromordinal(rest + 1)
    year = like.year + cycle * _CYCLE_YEARS
    year, era = (year, "") if year > 0 else (1 - year, " BC")
    return f"{year:04d}-{like.month:02d}-{like.day:02d}", era


def _offset(milliseconds: int, zone: tzinfo) -> timedelta:
    """Return the zone's offset, by its rules at the same time in a cycle within Python's dates."""
    days, of_day_ms = divmod(milliseconds, DAY_MS)
    ordinal = days + _EPOCH_ORDINAL
    cycle, rest = divmod(ordinal, _CYCLE_DAYS)
    near = datetime.fromordinal(rest + _CYCLE_DAYS * (_LAST_CYCLE - 1 if cycle > 0 else 1))
    moment = near.replace(tzinfo=UTC) + timedelta(milliseconds=of_day_ms)
    return moment.astimezone(zone).utcoffset() or timedelta()


def _offset_text(offset: timedelta) -> str:
    sign, seconds = ("-", -offset) if offset < timedelta() else ("+", offset)
    minutes, second = divmod(int(seconds.total_seconds()), 60)
    hour, minute = divmod(minutes, 60)
    return f"{sign}{hour:02d}:{minute:02d}" + (f":{second:02d}" if second else "")
