"""Date parsing by a pattern of Java's SimpleDateFormat (JDK 17, en_US, lenient).

Owns what each pattern letter accepts, and the instant for the parsed fields. Patterns, formatting and the fast paths:
`simple_date_format`.

Invariant: a text is accepted, up to the same position, where Java accepts it.
"""

from __future__ import annotations

import re
import unicodedata

from herdmesh.connect.java.gregorian import DAY_MS, EPOCH, day_of, week_day
from herdmesh.connect.java.time_zones import UTC, named_at, same_ignoring_case

MONTHS = ("January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November",
           "December")  # fmt: skip
WEEKDAYS = ("Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday")
_NOT_OBEYED = "GEazZX"
"""Letters before which a number may have more digits than its pattern count."""
_FIELDS = {"L": "M", "k": "H", "h": "K", "u": "E"}
"""Letters that set the field of another letter."""
_INT_MAX = 2**31 - 1

Token = tuple[str, int, str]
"""A pattern letter, its count, and "" in place of a literal: ("y", 4, ""); ("", 0, "text")."""
_Fields = dict[str, tuple[int, int]]


class ParsedDate:
    """Parser state for one text and the fields read from it."""

    def __init__(self, text: str, century: tuple[int, int]) -> None:
        self._text = text
        self._century = century
        self._set: _Fields = {}
        self.ambiguous = False
        self.zone = UTC

    def read(self, tokens: list[Token]) -> bool:
        """Parse the text; returns False where it does not fit. Text after the last token is ignored."""
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
        """Parse a field; returns the position behind it, None = the field is not there."""
        text, at = self._text, start
        while text[at : at + 1] in (" ", "\t") and at < len(text):
            at += 1
        if at == len(text):
            return None
        match letter:
            case "G":
                return self._name(letter, start, ("BC", "AD"), 0)
            case "M" | "L" if count > 2:
                return self._name("M", start, MONTHS, 0)
            case "E":
                return self._name(letter, start, WEEKDAYS, 1)
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
        """The field's value for a parsed number."""
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
        """Parse a name in full, or else by its first three letters."""
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
        """Parse `+hh[[:]mm]`; count 1: hours alone."""
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
        """The instant for the parsed fields; None = there is no such era."""
        fields = dict(self._set)
        for year in ("y", "Y"):
            if year in fields:
                fields[year] = fields[year][0], fields[year][1] + more_years
        rest = self._time_of_day(fields)
        more, rest = divmod(rest, DAY_MS)
        if "Y" in fields and fields["Y"][0] > fields.get("y", (0, 0))[0]:
            week = fields["w"][1] if "w" in fields else 1
            weekday = fields["E"][1] if "E" in fields else 1
            if not 1 <= weekday <= 7:
                more_weeks, weekday = divmod(weekday - 1, 7)
                week, weekday = week + more_weeks, (weekday + 1) % 7 + 1  # an ISO day for Java from here on
            fixed = more + week_day(fields["Y"][1], week, weekday)
            if "zone" in fields:  # Java's calendar is complete then, and keeps the offset to print this date
                self.zone = self.zone.at_offset(fields["zone"][1])
        else:
            fixed = day_of(fields, fields["G"][1] if "G" in fields else 1, more)
        wall = (fixed - EPOCH) * DAY_MS + rest
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
    """The int that DecimalFormat reads at that position (digits of any script, an exponent, NaN and infinity included),
    and its end.
    """
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
