"""Time zone names as Java's date formats print and parse them (JDK 17, en_US).

Owns the names and the source of each zone's rules: `zone_names.jsonl` has id, long and short name, long and short
summer name, summer time saved and offset from UTC in minutes, in the order Java searches them. No calendar arithmetic.

Invariant: an ambiguous name means the zone that comes first in Java's own order.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from datetime import datetime, timedelta, tzinfo
from functools import cache
from importlib.resources import files
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from herdmesh.connect.java.gregorian import DAY_MS

_FIXED = "fixed"
_CYCLE_DAYS = 146_097
_EPOCH_ORDINAL = 719_163
_RULES_BEGIN = -2_208_988_800_000
"""The year 1900: before it Java uses today's offset everywhere."""


@dataclass(frozen=True, slots=True)
class Zone:
    """A time zone. Offsets are minutes east of UTC."""

    id: str
    names: tuple[str, str, str, str]
    """Four names: long, short, long in summer, short in summer."""
    saved: int
    raw: int

    def at_offset(self, offset_ms: int) -> Zone:
        """The same names at a fixed offset."""
        return replace(self, id=_FIXED, raw=offset_ms // 60_000)

    def offset_ms(self, milliseconds: int) -> tuple[int, int]:
        """Offset from UTC without summer time, and summer time, at an instant: both in milliseconds."""
        rules = _rules(self.id)
        if rules is None or milliseconds < _RULES_BEGIN:
            return self.raw * 60_000, 0
        at = _near(milliseconds).replace(tzinfo=ZoneInfo("UTC")).astimezone(rules)
        return _split(at)

    def wall_offset_ms(self, milliseconds: int) -> tuple[int, int]:
        """The same at the time of a wall clock: in a skipped hour the offset before it still applies; an hour that
        occurs twice has standard time.
        """
        rules = _rules(self.id)
        if rules is None or milliseconds < _RULES_BEGIN:
            return self.raw * 60_000, 0
        at = _near(milliseconds).replace(tzinfo=rules)
        return min(_split(at), _split(at.replace(fold=1)), key=sum)


UTC = Zone("UTC", ("Coordinated Universal Time", "UTC", "Coordinated Universal Time", "UTC"), 0, 0)


def named_at(text: str, start: int) -> tuple[Zone, int] | None:
    """The zone whose name is at that position, ignoring case, and the index of that name (0 to 3); None = no zone's
    name.
    """
    for zone in (UTC, *_zones()):
        for place, name in enumerate(zone.names):
            if same_ignoring_case(text[start : start + len(name)], name):
                return zone, place
    return None


def same_ignoring_case(text: str, name: str) -> bool:
    """`String.equalsIgnoreCase`."""
    return text == name or (
        len(text) == len(name) and (text.upper() == name.upper() or text.upper().lower() == name.upper().lower())
    )


@cache
def _zones() -> tuple[Zone, ...]:
    lines = (files("herdmesh.connect.java") / "zone_names.jsonl").read_text(encoding="utf-8").splitlines()
    return tuple(Zone(zone, tuple(names), saved, raw) for zone, *names, saved, raw in map(json.loads, lines))


@cache
def _rules(zone: str) -> tzinfo | None:
    """The zone's rules. None for old names that only Java has, and without a time zone database: today's offset then
    applies.
    """
    try:
        return ZoneInfo(zone)
    except ZoneInfoNotFoundError:
        return None


def _near(milliseconds: int) -> datetime:
    """The time as a datetime; a time outside Python's range is moved by cycles of 400 years."""
    days, rest = divmod(milliseconds, DAY_MS)
    ordinal = days + _EPOCH_ORDINAL
    if not _CYCLE_DAYS < ordinal < 24 * _CYCLE_DAYS:
        ordinal = ordinal % _CYCLE_DAYS + (23 if ordinal > 0 else 1) * _CYCLE_DAYS
    return datetime.fromordinal(ordinal) + timedelta(milliseconds=rest)


def _split(at: datetime) -> tuple[int, int]:
    whole, summer = at.utcoffset() or timedelta(), at.dst() or timedelta()
    return int((whole - summer).total_seconds() * 1000), int(summer.total_seconds() * 1000)
