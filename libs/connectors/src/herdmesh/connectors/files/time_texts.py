"""Times, dates and time zones of folder names, for any year.

Owns reading zones and dates, and their texts. Dates are proleptic Gregorian, as in ISO 8601.

Invariant: a zone is one of the time zone database, or a fixed offset of whole minutes.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from typing import Final
from zoneinfo import ZoneInfo

import numpy as np

from herdmesh.connect.model import DATE, TIME

YEAR_1_MS: Final = -62_135_596_800_000
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_CYCLE_MS: Final = 146_097 * 86_400_000
"""400 years: the period after which the calendar and the summer time rules of a zone repeat."""
_DATETIME_MS: Final = range(YEAR_1_MS + 2 * 86_400_000, 253_402_300_800_000 - 2 * 86_400_000)
_OFFSET: Final = re.compile(r"(?:UTC|GMT)?([+-])(\d{1,2})(?::?([0-5]\d))?")
_MILLISECONDS: Final = re.compile(r"-?[0-9]{13}")
_ISO_8601: Final = re.compile(r"[0-9]{4}-?(?:[0-9]{2}-?[0-9]{2}|W[0-9]{2}(?:-?[0-9])?)(?:[T ].*)?")
"""Pattern of a date. Python alone also accepts a digit between day and hour, and so reads milliseconds as a date of
1701.
"""


def zone_of(text: str) -> tzinfo:
    """Return a zone by its name (`Europe/Berlin`) or its offset (`+02:00`, `GMT+2`). Raises ValueError."""
    if text in ("UTC", "Z"):
        return UTC
    found = _OFFSET.fullmatch(text)
    if found is not None and int(found[2]) < 24:
        offset = timedelta(hours=int(found[2]), minutes=int(found[3] or 0))
        return timezone(-offset if found[1] == "-" else offset)
    try:
        return ZoneInfo(text)
    except (KeyError, OSError) as error:  # ZoneInfoNotFoundError is a KeyError
        raise ValueError(f"no time zone: {text}") from error


def offset_ms(zone: tzinfo, time_ms: int) -> int:
    """Return the offset east of UTC, at a time of any year."""
    if zone is UTC:
        return 0
    if time_ms not in _DATETIME_MS:
        time_ms = time_ms % _CYCLE_MS + (0 if time_ms < 0 else 15 * _CYCLE_MS)
    at = _EPOCH + timedelta(milliseconds=time_ms)
    return int((at.astimezone(zone).utcoffset() or timedelta()).total_seconds()) * 1000


def milliseconds_of(text: str) -> int | None:
    """Parse an ISO 8601 date and time to milliseconds since the epoch (UTC without a zone), or a number of milliseconds
    with 13 digits (as Confluent's RecordField does); None = neither.
    """
    if _MILLISECONDS.fullmatch(text):
        return int(text)
    if not _ISO_8601.fullmatch(text):
        return None
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        return None
    since = (at if at.tzinfo else at.replace(tzinfo=UTC)) - _EPOCH
    return (since.days * 86_400 + since.seconds) * 1000 + since.microseconds // 1000


def date_text(time_ms: int, logical_name: str | None) -> str:
    """Format a value of a logical type: `2026-11-22`, `13:00:00`, `2026-11-22 13:00:00`, with milliseconds unless they
    are 0. Without a logical name the value is a point in time.
    """
    text = str(np.datetime64(int(time_ms), "ms"))
    date, _, of_day = text.partition("T")
    if logical_name == DATE:
        return date
    of_day = of_day.removesuffix(".000")
    return of_day if logical_name == TIME else f"{date} {of_day}"
