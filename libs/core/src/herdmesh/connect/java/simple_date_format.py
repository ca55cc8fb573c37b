"""Java's SimpleDateFormat (JDK 17, en_US, UTC, lenient): patterns compiled once into parsing and formatting of dates.

Owns the pattern letters, formatting, and the fast paths for plain dates. Parsing: `date_reading`; calendar arithmetic:
`gregorian`; zones: `time_zones`.

One difference is intended: Java's object keeps the zone that a parsed text named and formats all later dates in it.
Here the zone is returned to the caller and applies to that text alone.

Invariant: `DateFormat(p).parse(s)` and `.format(ms)` equal `new SimpleDateFormat(p)`; the fast paths equal the general
path.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from functools import cached_property
from itertools import groupby

from herdmesh.connect.errors import IllegalArgumentError
from herdmesh.connect.java.date_reading import MONTHS, WEEKDAYS, ParsedDate, Token
from herdmesh.connect.java.gregorian import DAY_MS, EPOCH, Day, day_at, first_of_month
from herdmesh.connect.java.time_zones import UTC, Zone

_LETTERS = "GyMdkHmsSEDFwWahKzZYuXL"
_SHORT_CUT = {"y": (4, 4), "M": (1, 2), "d": (1, 2), "H": (1, 2), "m": (1, 2), "s": (1, 2), "S": (1, 3)}
"""Number of digits that the fast path of parsing reads."""


def tokens_of(pattern: str) -> list[Token]:
    """The parts of a pattern. Raises IllegalArgumentError with Java's text."""
    parts: list[str] = []  # one letter each, or ' and a literal character
    quoted = False
    at = 0
    while at < len(pattern):
        char = pattern[at]
        if char == "'" and pattern[at + 1 : at + 2] == "'":
            parts.append("''")
            at += 1
        elif char == "'":
            quoted = not quoted
            parts.append("'")  # a letter after it begins a new part
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
    """Compiled pattern. Dates are milliseconds since the epoch.

    Args:
        pattern: in the syntax of SimpleDateFormat.
        now_ms: reference time for two-digit years, which lie from 80 years before it to 20 years after; None = now.

    Raises:
        IllegalArgumentError: the pattern is invalid, with Java's text.
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
        """The date at the beginning of the text, and the zone that the text names (UTC if it names none, or only an
        offset); None = the text does not begin with a date.
        """
        if self._plain_parse is not None:
            found = self._plain_parse(text)
            if found is not None:
                return found, UTC
        return self.parse_slowly(text)

    def format_slowly(self, milliseconds: int, zone: Zone = UTC) -> str:
        """`format` for any pattern and date."""
        standard, summer = (0, 0) if zone is UTC else zone.offset_ms(milliseconds)
        days, rest = divmod(milliseconds + standard + summer, DAY_MS)
        day = day_at(days + EPOCH)
        return "".join(
            literal or _written(letter, count, day, rest, zone, standard, summer)
            for letter, count, literal in self._tokens
        )

    def parse_slowly(self, text: str) -> tuple[int, Zone] | None:
        """`parse` for any pattern and text."""
        reading = ParsedDate(text, self._century_start)
        if not reading.read(self._tokens):
            return None
        found = reading.milliseconds(0)
        if found is not None and reading.ambiguous and found < self._century_start[1]:
            found = reading.milliseconds(100)
        return None if found is None else (found, reading.zone)

    @cached_property
    def _century_start(self) -> tuple[int, int]:
        """80 years before the reference time: the year, and the instant."""
        now = int(time.time() * 1000) if self._now_ms is None else self._now_ms
        days, rest = divmod(now, DAY_MS)
        day = day_at(days + EPOCH)
        year = day.year - 80
        last = first_of_month(year + day.month // 12, day.month % 12 + 1, julian=False) - 1
        start = min(first_of_month(year, day.month, julian=False) + day.day - 1, last)
        return year, (start - EPOCH) * DAY_MS + rest


def _padded(value: int, count: int) -> str:
    return f"{value:0{count}d}" if value >= 0 else f"-{-value:0{count}d}"


def _written(letter: str, count: int, day: Day, rest: int, zone: Zone, standard: int, summer: int) -> str:
    """Text of one part of a date. `rest` is the time of day in milliseconds."""
    hour = rest // 3_600_000
    match letter:
        case "G":
            return "AD" if day.year > 0 else "BC"
        case "y" | "Y":
            year = day.week[0] if letter == "Y" else day.year if day.year > 0 else 1 - day.year
            return _padded(abs(year) % 100 * (1 if year >= 0 else -1), 2) if count == 2 else _padded(year, count)
        case "M" | "L" if count >= 3:
            return MONTHS[day.month - 1][: None if count > 3 else 3]
        case "E":
            return WEEKDAYS[day.weekday - 1][: None if count > 3 else 3]
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
            return (day.weekday + 5) % 7 + 1  # letter u


def _offset_text(letter: str, count: int, offset_ms: int) -> str:
    if letter == "X" and offset_ms == 0:
        return "Z"
    sign = "-" if offset_ms < 0 else "+"
    hours, minutes = divmod(abs(offset_ms) // 60_000, 60)
    if letter == "X" and count == 1:
        return f"{sign}{hours:02d}"
    return f"{sign}{hours:02d}{':' if letter == 'X' and count == 3 else ''}{minutes:02d}"


def _plain_format(tokens: list[Token]) -> Callable[[time.struct_time, int], str] | None:
    """A formatter for Gregorian dates up to the year 9999 in UTC, for a pattern of numbers and literal texts; None =
    the pattern has other parts.
    """
    places = {"y": "t[0]", "M": "t[1]", "d": "t[2]", "H": "t[3]", "m": "t[4]", "s": "t[5]", "S": "ms"}
    text, values = "", ""
    for letter, count, literal in tokens:
        if not letter or letter == "X":
            text += literal.replace("%", "%%") if literal else "Z"
        elif letter in places and not (letter == "M" and count > 2):
            short_year = letter == "y" and count == 2
            text += f"%0{count}d"
            values += f"{places[letter]}{' % 100' if short_year else ''}, "
        else:
            return None
    # The text is generated here: a pattern's own text only enters through repr.
    return eval(f"lambda t, ms: {text!r} % ({values})")


def _plain_parse(tokens: list[Token]) -> Callable[[str], int | None] | None:
    """A parser for valid Gregorian dates in plain digits, for a pattern with nothing else; other texts take the general
    path. None = the pattern has other parts."""
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
        pattern += f"([0-9]{{{count if adjacent else f'{low},{high}'}}})"
    find = re.compile(pattern + "(?![^ -/:-DF-~])" if tokens[-1][0] else pattern).match

    # An absent field reads one of the two numbers after the parsed ones: 1 for month and day, else 0.
    places = [letters.index(one) if one in letters else -2 if one in "Md" else -1 for one in "yMdHmsS"]

    def parse(text: str) -> int | None:
        found = find(text)
        if found is None:
            return None
        part = (*map(int, found.groups()), 1, 0)
        year, month, day, hour = part[places[0]], part[places[1]], part[places[2]], part[places[3]]
        minute, second = part[places[4]], part[places[5]]
        if not (year > 1582 and 0 < month < 13 and 0 < day < 29 and hour < 24 and minute < 60 and second < 60):
            return None
        days = first_of_month(year, month, julian=False) + day - 1 - EPOCH
        return ((days * 24 + hour) * 60 + minute) * 60_000 + second * 1000 + part[places[6]]

    return parse
