"""Java's SimpleDateFormat (JDK 17, en_US, UTC, lenient): patterns compiled once into reading and writing dates.

Owns the pattern letters, what they print and what they accept. Calendar arithmetic: `gregorian`; zones: `timezones`.
One thing differs on purpose: where Java's object keeps the zone a text named and prints all later dates in it, here a
text's zone is given back to the caller and holds for that text alone.

Invariant: `DateFormat(p).parse(s)` and `.format(ms)` are what `new SimpleDateFormat(p)` gives; the short cuts for
plain dates give what the long way gives.
"""

from __future__ import annotations

import re
import time
import unicodedata
from collections.abc import Callable
from functools import cached_property
from itertools import groupby

from herdmesh.connect.errors import IllegalArgumentError
from herdmesh.connect.gregorian import EPOCH, Day, day_at, day_of, first_of_month, week_day
from herdmesh.connect.timezones import UTC, Zone, named_at, same_ignoring_case

_LETTERS = "GyMdkHmsSEDFwWahKzZYuXL"
_DAY_MS = 86_400_000
_MONTHS = ("January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November",
           "December")  # fmt: skip
_WEEKDAYS = ("Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday")
_NOT_OBEYED = "GEazZX"
"""Letters that do not make the number before them stop at its count."""
_FIELDS = {"L": "M", "k": "H", "h": "K", "u": "E"}
"""Letters that set the field of another."""
_SHORT_CUT = {"y": (4, 4), "M": (1, 2), "d": (1, 2), "H": (1, 2), "m": (1, 2), "s": (1, 2), "S": (1, 3)}
"""How many digits the short cut of reading takes."""
_INT_MAX = 2**31 - 1

Token = tuple[str, int, str]
"""A letter, how often it stands there, and "" for a literal: ("y", 4, ""); ("", 0, "text")."""
_Fields = dict[str, tuple[int, int]]


def tokens_of(pattern: str) -> list[Token]:
    """The parts of a pattern. Raises IllegalArgumentError with Java's text."""
    parts: list[str] = []  # a letter each, or ' and a literal character
    quoted = False
    at = 0
    while at < len(pattern):
        char = pattern[at]
        if char == "'" and pattern[at + 1 : at + 2] == "'":
            parts.append("''")
            at += 1
        elif char == "'":
            quoted = not quoted
            parts.append("'")  # a letter after it begins anew
        elif quoted or not ("a" <= char <= "z" or "A" <= char <= "Z"):
            parts.append(f"'{char}")
        elif char not in _LETTERS:
            raise IllegalArgumentError(f"Illegal pattern character '{char}'")
        else:
            parts.append(char)
        at += 1
    found: list[Token] = []
    for part, group in groupby(parts, key=lambda part: part[0]):
        same = list(group)
        if part == "'":
            found.append(("", 0, "".join(one[1:] for one in same)))
        elif part == "X" and len(same) > 3:
            raise IllegalArgumentError(f"invalid ISO 8601 format: length={len(same)}")
        else:
            found.append((part, len(same), ""))
    if quoted:
        raise IllegalArgumentError("Unterminated quote")
    return found


class DateFormat:
    """A pattern, ready to use. Dates are milliseconds since the epoch.

    Args:
        pattern: as SimpleDateFormat takes it.
        now_ms: what two-digit years are near to: from 80 years before to 20 years after; None = now.

    Raises:
        IllegalArgumentError: not a pattern, with Java's text.
    """

    def __init__(self, pattern: str, *, now_ms: int | None = None) -> None:
        self.pattern = pattern
        self._tokens = tokens_of(pattern)
        self._now_ms = now_ms
        self._plain_format = _plain_format(self._tokens)
        self._plain_parse = _plain_parse(self._tokens)

    def format(self, milliseconds: int, zone: Zone = UTC) -> str:
        """The date as text, in that zone."""
        if zone is UTC and self._plain_format is not None and -12_219_292_800_000 <= milliseconds < 253_402_300_800_000:
            return self._plain_format(time.gmtime(milliseconds // 1000), milliseconds % 1000)
        return self.format_slowly(milliseconds, zone)

    def parse(self, text: str) -> tuple[int, Zone] | None:
        """The date the text begins with, and the zone it names (UTC if none, or only an offset); None = it is none."""
        if self._plain_parse is not None:
            found = self._plain_parse(text)
            if found is not None:
                return found, UTC
        return self.parse_slowly(text)

    def format_slowly(self, milliseconds: int, zone: Zone = UTC) -> str:
        """`format` for any pattern and date."""
        standard, summer = (0, 0) if zone is UTC else zone.offset_ms(milliseconds)
        days, rest = divmod(milliseconds + standard + summer, _DAY_MS)
        day = day_at(days + EPOCH)
        return "".join(
            literal or _written(letter, count, day, rest, zone, standard, summer)
            for letter, count, literal in self._tokens
        )

    def parse_slowly(self, text: str) -> tuple[int, Zone] | None:
        """`parse` for any pattern and text."""
        reading = _Reading(text, self._century_start)
        if not reading.read(self._tokens):
            return None
        found = reading.milliseconds(0)
        if found is not None and reading.ambiguous and found < self._century_start[1]:
            found = reading.milliseconds(100)
        return None if found is None else (found, reading.zone)

    @cached_property
    def _century_start(self) -> tuple[int, int]:
        """80 years before now: the year, and the instant."""
        now = int(time.time() * 1000) if self._now_ms is None else self._now_ms
        days, rest = divmod(now, _DAY_MS)
        day = day_at(days + EPOCH)
        year = day.year - 80
        last = first_of_month(year + day.month // 12, day.month % 12 + 1, julian=False) - 1
        start = min(first_of_month(year, day.month, julian=False) + day.day - 1, last)
        return year, (start - EPOCH) * _DAY_MS + rest


def _padded(value: int, count: int) -> str:
    return f"{value:0{count}d}" if value >= 0 else f"-{-value:0{count}d}"


def _written(letter: str, count: int, day: Day, rest: int, zone: Zone, standard: int, summer: int) -> str:
    """One part of a date. `rest` is the time of day in milliseconds."""
    hour = rest // 3_600_000
    match letter:
        case "G":
            return "AD" if day.year > 0 else "BC"
        case "y" | "Y":
            year = day.week[0] if letter == "Y" else day.year if day.year > 0 else 1 - day.year
            return _padded(abs(year) % 100 * (1 if year >= 0 else -1), 2) if count == 2 else _padded(year, count)
        case "M" | "L" if count >= 3:
            return _MONTHS[day.month - 1][: None if count > 3 else 3]
        case "E":
            return _WEEKDAYS[day.weekday - 1][: None if count > 3 else 3]
        case "a":
            return "AM" if hour < 12 else "PM"
        case "z":
            return zone.names[(2 if summer else 0) + (count < 4)]
        case "Z" | "X":
            return _offset_text(letter, count, standard + summer)
        case _:
            return _padded(_number_of(letter, day, rest), count)


def _number_of(letter: str, day: Day, rest: int) -> int:
    hour = rest // 3_600_000
    match letter:
        case "M" | "L":
            return day.month
        case "d":
            return day.day
        case "H":
            return hour
        case "k":
            return hour or 24
        case "K":
            return hour % 12
        case "h":
            return hour % 12 or 12
        case "m":
            return rest // 60_000 % 60
        case "s":
            return rest // 1000 % 60
        case "S":
            return rest % 1000
        case "D":
            return day.day_of_year
        case "F":
            return day.weekday_in_month
        case "w":
            return day.week[1]
        case "W":
            return day.week_of_month
        case _:
            return (day.weekday + 5) % 7 + 1  # u


def _offset_text(letter: str, count: int, offset_ms: int) -> str:
    if letter == "X" and offset_ms == 0:
        return "Z"
    sign = "-" if offset_ms < 0 else "+"
    hours, minutes = divmod(abs(offset_ms) // 60_000, 60)
    if letter == "X" and count == 1:
        return f"{sign}{hours:02d}"
    return f"{sign}{hours:02d}{':' if letter == 'X' and count == 3 else ''}{minutes:02d}"


class _Reading:
    """One text on its way through a pattern."""

    def __init__(self, text: str, century: tuple[int, int]) -> None:
        self._text = text
        self._century = century
        self._set: _Fields = {}
        self.ambiguous = False
        self.zone = UTC

    def read(self, tokens: list[Token]) -> bool:
        """Whether the text fits, which may go on after it."""
        text, at = self._text, 0
        for place, (letter, count, literal) in enumerate(tokens):
            if not letter:
                if not text.startswith(literal, at):
                    return False
                at += len(literal)
                continue
            following, length = tokens[place + 1][:2] if place + 1 < len(tokens) else ("", 0)
            obey = bool(following) and following not in _NOT_OBEYED and not (following in "ML" and length > 2)
            found = self._field(letter, count, at, obey=obey)
            if found is None:
                return False
            at = found
        return True

    def _field(self, letter: str, count: int, start: int, *, obey: bool) -> int | None:
        """Where the text goes on after the field; None = it is not there."""
        text, at = self._text, start
        while text[at : at + 1] in (" ", "\t") and at < len(text):
            at += 1
        if at == len(text):
            return None
        match letter:
            case "G":
                return self._name(letter, start, ("BC", "AD"), 0)
            case "M" | "L" if count > 2:
                return self._name("M", start, _MONTHS, 0)
            case "E":
                return self._name(letter, start, _WEEKDAYS, 1)
            case "a":
                return self._name(letter, start, ("AM", "PM"), 0)
            case "z" | "Z":
                return self._zone(start, at)
            case "X":
                return self._iso_zone(count, at)
            case _:
                if obey and start + count > len(text):
                    return None
                found = read_integer(text[: start + count] if obey else text, at)
                if found is None:
                    return None
                self._put(_FIELDS.get(letter, letter), self._meant(letter, count, at, *found))
                return found[1]

    def _meant(self, letter: str, count: int, start: int, value: int, end: int) -> int:
        """The value of a field that such a number stands for."""
        match letter:
            case "y" | "Y":
                if count > 2 or end - start != 2 or not self._text[start:end].isdigit():
                    return value
                century = self._century[0] % 100
                self.ambiguous = value == century
                return value + self._century[0] // 100 * 100 + (100 if value < century else 0)
            case "M" | "L":
                return value - 1
            case "k":
                return 0 if value == 24 else value
            case "h":
                return 0 if value == 12 else value
            case "u":
                return value % 7 + 1 if 1 <= value <= 7 else value
            case _:
                return value

    def _put(self, field: str, value: int) -> None:
        self._set.pop(field, None)
        self._set[field] = (max((when for when, _ in self._set.values()), default=0) + 1, value)

    def _name(self, field: str, start: int, names: tuple[str, ...], first: int) -> int | None:
        """In full, or else its first three letters."""
        for short in (None, 3):
            for place, name in enumerate(names):
                wanted = name[:short]
                if same_ignoring_case(self._text[start : start + len(wanted)], wanted):
                    self._put(field, place + first)
                    return start + len(wanted)
        return None

    def _zone(self, start: int, at: int) -> int | None:
        text = self._text
        if text[at] in "+-":
            return self._offset(at, 0, colon=False)
        if text[at] in "Gg" and same_ignoring_case(text[start : start + 3], "GMT"):
            end = start + 3
            if text[end : end + 1] in ("+", "-"):
                return self._offset(end, 0, colon=True)
            self._put("zone", 0)
            self._put("summer", 0)
            return end
        found = named_at(text, at)
        if found is None:
            return None
        self.zone, place = found
        names = self.zone.names
        saved = self.zone.saved if place >= 2 else 0
        told_apart = place >= 2 or not same_ignoring_case(names[place], names[place + 2])
        if told_apart and (place < 2 or saved):
            self._set.pop("zone", None)
            self._put("summer", saved * 60_000)
        return at + len(names[place])

    def _iso_zone(self, count: int, at: int) -> int | None:
        if self._text[at] == "Z":
            self._put("zone", 0)
            self._put("summer", 0)
            return at + 1
        return self._offset(at, count, colon=count == 3) if self._text[at] in "+-" else None

    def _offset(self, at: int, count: int, *, colon: bool) -> int | None:
        """`+hh[[:]mm]`; count 1: hours alone."""
        hours = "[0-9]{1,2}" if colon and not count else "[0-9]{2}"
        minutes = "" if count == 1 else ":([0-9]{2})" if colon else "([0-9]{2})"
        found = re.compile(f"([+-])({hours}){minutes}").match(self._text, at)
        if found is None or int(found[2]) > 23 or (minutes and int(found[3]) > 59):
            return None
        offset = (int(found[2]) * 60 + (int(found[3]) if minutes else 0)) * 60_000
        self._put("zone", -offset if found[1] == "-" else offset)
        self._put("summer", 0)
        return found.end()

    def milliseconds(self, more_years: int) -> int | None:
        """The instant the fields say; None = there is no such era."""
        fields = dict(self._set)
        for year in ("y", "Y"):
            if year in fields:
                fields[year] = fields[year][0], fields[year][1] + more_years
        rest = self._time_of_day(fields)
        more, rest = divmod(rest, _DAY_MS)
        if "Y" in fields and fields["Y"][0] > fields.get("y", (0, 0))[0]:
            week = fields["w"][1] if "w" in fields else 1
            weekday = fields["E"][1] if "E" in fields else 1
            if not 1 <= weekday <= 7:
                more_weeks, weekday = divmod(weekday - 1, 7)
                week, weekday = week + more_weeks, (weekday + 1) % 7 + 1  # Java takes it for an ISO day from here on
            fixed = more + week_day(fields["Y"][1], week, weekday)
            if "zone" in fields:  # Java's calendar is complete then, and keeps the offset for printing this date
                self.zone = self.zone.at_offset(fields["zone"][1])
        else:
            fixed = day_of(fields, fields["G"][1] if "G" in fields else 1, more)
        wall = (fixed - EPOCH) * _DAY_MS + rest
        standard, summer = (0, 0) if self.zone is UTC else self.zone.wall_offset_ms(wall)
        standard = fields["zone"][1] if "zone" in fields else standard
        summer = fields["summer"][1] if "summer" in fields else summer
        return (wall - standard - summer + 2**63) % 2**64 - 2**63

    @staticmethod
    def _time_of_day(fields: _Fields) -> int:
        def value(letter: str) -> int:
            return fields[letter][1] if letter in fields else 0

        def when(letter: str) -> int:
            return fields[letter][0] if letter in fields else 0

        of_half = max(when("K"), when("a")) if "K" in fields and "a" in fields else 0
        best = max(of_half, when("H")) or max(when("K"), when("a"))
        hour = value("H") if best == when("H") else value("K") + 12 * value("a")
        return ((hour * 60 + value("m")) * 60 + value("s")) * 1000 + value("S")


_INTEGER = re.compile(r"(-?)(\d+)(?:E(-?)(\d+))?")


def read_integer(text: str, start: int) -> tuple[int, int] | None:
    """The int that DecimalFormat reads there (digits of any script, an exponent, NaN and infinity included), and where
    it ends."""
    if text.startswith("NaN", start):
        return 0, start + 3
    if text.startswith(("∞", "-∞"), start):
        return (-(2**31), start + 2) if text[start] == "-" else (_INT_MAX, start + 1)
    found = _INTEGER.match(text, start)
    if found is None:
        return None
    digits = int("".join(str(unicodedata.decimal(digit)) for digit in found[2]))
    exponent = int(found[4] or 0) * (-1 if found[3] else 1)
    if exponent > 0:
        digits *= 10 ** min(exponent, 400) if digits else 1
    elif exponent < 0:
        digits = digits // 10 ** min(-exponent, 400)
    value = -digits if found[1] else digits
    if -(2**63) <= value < 2**63:
        return (value + 2**31) % 2**32 - 2**31, found.end()
    return (-(2**31) if found[1] else _INT_MAX), found.end()


def _plain_format(tokens: list[Token]) -> Callable[[time.struct_time, int], str] | None:
    """Writes a Gregorian date up to the year 9999 in UTC when there are only numbers and texts; None = there are
    others."""
    names = {"y": "t.tm_year", "M": "t.tm_mon", "d": "t.tm_mday", "H": "t.tm_hour", "m": "t.tm_min", "s": "t.tm_sec",
             "S": "ms"}  # fmt: skip
    parts: list[str] = []
    for letter, count, literal in tokens:
        if not letter:
            parts.append(repr(literal))
        elif letter == "X":
            parts.append("'Z'")
        elif letter == "y" and count == 2:
            parts.append("f'{t.tm_year % 100:02d}'")
        elif letter in names and not (letter == "M" and count > 2):
            parts.append(f"f'{{{names[letter]}:0{count}d}}'")
        else:
            return None
    # The text is ours: a pattern's own text only enters through repr.
    return eval(f"lambda t, ms: {' '.join(parts or [repr('')])}")


def _plain_parse(tokens: list[Token]) -> Callable[[str], int | None] | None:
    """Reads valid Gregorian dates in plain digits when a pattern has nothing else; what it does not take goes the long
    way. None = the pattern has other things."""
    letters = [letter for letter, _, _ in tokens if letter]
    if len(set(letters)) < len(letters) or not set(letters) <= _SHORT_CUT.keys() or "y" not in letters:
        return None
    pattern = ""
    for place, (letter, count, literal) in enumerate(tokens):
        if not letter:
            if place and (not literal or literal[0].isdigit() or literal[0] == "E"):
                return None
            pattern += re.escape(literal)
            continue
        low, high = _SHORT_CUT[letter]
        adjacent = place + 1 < len(tokens) and bool(tokens[place + 1][0])
        if (letter == "y" and count < 3) or (adjacent and not low <= count <= high):
            return None
        pattern += f"(?P<{letter}>[0-9]{{{count if adjacent else f'{low},{high}'}}})"
    find = re.compile(pattern + "(?![^ -/:-DF-~])" if tokens[-1][0] else pattern).match

    def parse(text: str) -> int | None:
        found = find(text)
        if found is None:
            return None
        part = {letter: int(digits) for letter, digits in found.groupdict().items()}
        year, month, day = part["y"], part.get("M", 1), part.get("d", 1)
        hour, minute, second = part.get("H", 0), part.get("m", 0), part.get("s", 0)
        if not (year > 1582 and 0 < month < 13 and 0 < day < 29 and hour < 24 and minute < 60 and second < 60):
            return None
        days = first_of_month(year, month, julian=False) + day - 1 - EPOCH
        return ((days * 24 + hour) * 60 + minute) * 60_000 + second * 1000 + part.get("S", 0)

    return parse
