"""Dates and times in header text: `2019-08-23`, `14:34:54.346Z`, `2019-08-23T14:34:54.346Z`.

Owns the three forms, both ways, in UTC. Other formats: TimestampConverter's.

Invariant: reading is as lenient as Java's SimpleDateFormat: a 99th month rolls over, what follows is not looked at.
"""

from __future__ import annotations

import re

from herdmesh.connect.data import JavaDate
from herdmesh.connect.logical import DAY_MS
from herdmesh.connect.schemas import Schema, date_schema, time_schema, timestamp_schema

_DATE = r"[ \t]*(-?\d+)-[ \t]*(-?\d+)-[ \t]*(-?\d+)"
_TIME = r"[ \t]*(-?\d+):[ \t]*(-?\d+):[ \t]*(-?\d+)\.[ \t]*(-?\d+)Z"
_FORMS: dict[int, tuple[re.Pattern[str], Schema]] = {
    10: (re.compile(_DATE), date_schema()),
    13: (re.compile(_TIME), time_schema()),
    24: (re.compile(f"{_DATE}T{_TIME}"), timestamp_schema()),
}
"""By the length of the text."""
_GREGORIAN_FROM = -141_427  # the day 1582-10-15; before it Java counts in the Julian calendar


def read_temporal(text: str) -> tuple[Schema, JavaDate] | None:
    """The date, time or timestamp a text is, and its schema; None = none of them. Colons may be escaped."""
    text = text.replace("\\:", ":")
    form = _FORMS.get(len(text))
    if form is None:
        return None
    found = form[0].match(text)
    if found is None:
        return None
    numbers = [int(number) for number in found.groups()]
    milliseconds = 0
    if len(text) != 13:
        milliseconds = _day(*numbers[:3]) * DAY_MS
        del numbers[:3]
    if numbers:
        hours, minutes, seconds, rest = numbers
        milliseconds += ((hours * 60 + minutes) * 60 + seconds) * 1000 + rest
    return form[1], JavaDate(milliseconds)


def temporal_text(value: JavaDate) -> str:
    """The text of a date: a time when it is before 1970-01-02, a day when it is midnight, else a timestamp."""
    days, rest = divmod(int(value), DAY_MS)
    clock = f"{rest // 3_600_000:02d}:{rest // 60_000 % 60:02d}:{rest // 1000 % 60:02d}.{rest % 1000:03d}Z"
    if value < DAY_MS:
        return clock
    year, month, day = _date(days)
    date = f"{year:04d}-{month:02d}-{day:02d}"
    return date if rest == 0 else f"{date}T{clock}"


def _day(year: int, month: int, day: int) -> int:
    """Days since the epoch; month and day may be any number."""
    year, month = year + (month - 1) // 12, (month - 1) % 12 + 1
    if month <= 2:  # years that begin in March have the leap day last
        year, month = year - 1, month + 12
    julian = 365 * year + year // 4 + (153 * (month - 3) + 2) // 5 + day - 1
    gregorian = julian - year // 100 + year // 400 - 719_468
    return gregorian if gregorian >= _GREGORIAN_FROM else julian - 719_470


def _date(days: int) -> tuple[int, int, int]:
    """Year, month and day of a day since the epoch that is not before it."""
    era, day = divmod(days + 719_468, 146_097)
    year = (day - day // 1460 + day // 36_524 - day // 146_096) // 365
    day -= 365 * year + year // 4 - year // 100
    month = (5 * day + 2) // 153
    day -= (153 * month + 2) // 5
    year += era * 400 + (month >= 10)
    return year, month + 3 if month < 10 else month - 9, day + 1
