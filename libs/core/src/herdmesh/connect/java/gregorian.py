"""Java's GregorianCalendar: Julian before 15 October 1582, lenient, weeks from Sunday (en_US).

Owns the arithmetic between days and calendar fields, and the choice among fields when several were set. Days are
counted as Java's "fixed dates": 1 is 1 January of year 1, Gregorian. `simple_date_format` parses and formats text.

Invariant: `day_of` of the fields of a `Day` is that day.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

EPOCH = 719_163
"""Fixed date of 1 January 1970."""
DAY_MS = 86_400_000
CUTOVER = 577_736
"""Fixed date of the first Gregorian day, 15 October 1582."""
_CUTOVER_YEAR = 1582
_BEFORE_MONTH = (0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334, 365)


@dataclass(frozen=True, slots=True)
class Day:
    """The calendar fields of a day."""

    fixed: int
    year: int
    """0 is 1 BC, -1 is 2 BC."""
    month: int
    """Month from 1."""
    day: int

    @property
    def day_of_year(self) -> int:
        """Day of the year, from 1."""
        return self.fixed - first_of_year(self.year) + 1

    @property
    def weekday(self) -> int:
        """Day of the week, 1 is Sunday."""
        return self.fixed % 7 + 1

    @property
    def week_of_month(self) -> int:
        """Week of the month, from 1; a week begins on Sunday."""
        return _week(self.fixed - self._day_in_month() + 1, self.fixed)

    @property
    def weekday_in_month(self) -> int:
        """Number of this weekday's occurrence in its month, from 1."""
        return (self._day_in_month() - 1) // 7 + 1

    @property
    def week(self) -> tuple[int, int]:
        """Week year and week number: the first week is the one with 1 January."""
        following = first_of_year(self.year + 1)
        if self.fixed >= _on_or_before(following, 1):
            return self.year + 1, 1
        return self.year, _week(first_of_year(self.year), self.fixed)

    def _day_in_month(self) -> int:
        # October 1582 lacks ten days.
        return self.day - 10 if self.fixed >= CUTOVER and (self.year, self.month) == (1582, 10) else self.day


def day_at(fixed: int) -> Day:
    """The calendar fields of a fixed date."""
    julian = fixed < CUTOVER
    # Counted from March, a year has its leap day at its end.
    days = fixed + 306 - (1 if not julian else -1)
    if julian:
        cycle, rest = divmod(days, 1461)
        of_cycle = min(rest // 365, 3)
        year, rest = cycle * 4 + of_cycle, rest - of_cycle * 365
    else:
        era, rest = divmod(days, 146_097)
        of_era = (rest - rest // 1460 + rest // 36_524 - rest // 146_096) // 365
        year, rest = era * 400 + of_era, rest - (365 * of_era + of_era // 4 - of_era // 100)
    place = (5 * rest + 2) // 153
    month = place + 3 if place < 10 else place - 9
    return Day(fixed, year + (month <= 2), month, rest - (153 * place + 2) // 5 + 1)


def first_of_month(year: int, month: int, *, julian: bool) -> int:
    """Fixed date of a month's first day in one calendar."""
    before = year - 1
    days = 365 * before + before // 4 + _BEFORE_MONTH[month - 1] + 1
    if julian:
        leap = year % 4 == 0
        days -= 2
    else:
        leap = year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
        days += before // 400 - before // 100
    return days + (leap and month > 2)


def first_of_year(year: int) -> int:
    """Fixed date of 1 January, in the calendar of that year."""
    return first_of_month(year, 1, julian=year <= _CUTOVER_YEAR)


def week_day(week_year: int, week: int, weekday: int) -> int:
    """Fixed date of a weekday in a week of a week year; weekday 1 is Sunday."""
    return _on_or_before(first_of_year(week_year), 1) + (weekday - 1) + 7 * (week - 1)


Fields = Mapping[str, tuple[int, int]]
"""Pattern letter of a field (`y` year, `M` month from 0, `d`, `D`, `E` weekday, `F`, `w`, `W`) -> the number of the
assignment that set it, from 1, and its value.
"""


def day_of(fields: Fields, era: int, more: int) -> int:
    """Fixed date for the fields, plus `more` days. Where the fields define the day in two ways, the field set last
    decides.
    """
    chosen = _chosen(fields)
    year = fields["y"][1] if "y" in fields else 1970
    year = 1 - year if era == 0 else year
    if year > _CUTOVER_YEAR:
        gregorian = more + _first_guess(fields, chosen, year, julian=False)
        if gregorian >= CUTOVER:
            return gregorian
        julian = more + _first_guess(fields, chosen, year, julian=True)
    else:
        julian = more + _first_guess(fields, chosen, year, julian=True)
        if year < _CUTOVER_YEAR and julian < CUTOVER:
            return julian
        gregorian = julian if year < _CUTOVER_YEAR else more + _first_guess(fields, chosen, year, julian=False)
    if "D" in chosen or "w" in chosen:
        return julian
    return gregorian if gregorian >= CUTOVER and julian >= CUTOVER else julian


def _chosen(fields: Fields) -> str:
    """The letters of the fields that decide."""

    def when(letter: str) -> int:
        return fields[letter][0] if letter in fields else 0

    def both(letter: str) -> int:
        return max(when(letter), when("E")) if letter in fields and "E" in fields else 0

    of_month, in_month, of_year, week = both("W"), both("F"), when("D"), both("w")
    best = max(when("d"), of_month, in_month, of_year, week)
    day = when("d")
    if not best:
        of_month, in_month, week = when("W"), max(when("F"), when("E")), when("w")
        best = max(of_month, in_month, week)
        if not best:
            best = day = when("M")
    if best == day:
        return "Md"
    weekday = "E" if "E" in fields else ""
    if (best == of_month and when("W") >= when("w")) or (best == in_month and when("F") >= when("w")):
        if of_month == in_month:
            return weekday + ("MW" if when("W") >= when("F") else "MF")
        if best == of_month:
            return weekday + "MW"
        return weekday + ("MF" if "F" in fields else "M")
    return "D" if best == of_year else weekday + "w"


def _first_guess(fields: Fields, chosen: str, year: int, *, julian: bool) -> int:
    month = 0
    if "M" in chosen:
        more, month = divmod(fields["M"][1] if "M" in fields else 0, 12)
        year += more
    fixed = first_of_month(year, month + 1, julian=julian)
    weekday = fields["E"][1] if "E" in chosen else 1
    if "M" not in chosen:
        if "D" in chosen:
            return fixed + fields["D"][1] - 1
        return _in_week(fixed, weekday, fields["w"][1])
    if "d" in chosen:
        return fixed + (fields["d"][1] - 1 if "d" in fields else 0)
    if "W" in chosen:
        return _in_week(fixed, weekday, fields["W"][1])
    nth = fields["F"][1] if "F" in chosen else 1
    if nth >= 0:
        return _on_or_before(fixed + 7 * nth - 1, weekday)
    length = first_of_month(year + month // 11, (month + 1) % 12 + 1, julian=julian) - fixed
    return _on_or_before(fixed + length + 7 * (nth + 1) - 1, weekday)


def _in_week(first: int, weekday: int, week: int) -> int:
    sunday = _on_or_before(first, 1)
    return _on_or_before(sunday + 6, weekday) + 7 * (week - 1)


def _week(first: int, fixed: int) -> int:
    return (fixed - _on_or_before(first, 1)) // 7 + 1


def _on_or_before(fixed: int, weekday: int) -> int:
    return fixed - (fixed - (weekday - 1)) % 7
