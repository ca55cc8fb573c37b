"""Plugin version requests: one version, or a range in Maven's notation (KIP-891).

Owns the notation, the order of versions and the error texts.

Invariant: a text is parsed as Maven parses it, or refused with Maven's error text.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from herdmesh.connect.errors import ConfigError

LATEST = "latest"
_PART = re.compile(r"\d+|[a-zA-Z]+")


@dataclass(frozen=True, slots=True)
class _Interval:
    low: str | None
    high: str | None
    with_low: bool
    with_high: bool

    def __str__(self) -> str:
        bounds = f"{self.low or ''},{self.high or ''}"
        return f"{'[' if self.with_low else '('}{bounds}{']' if self.with_high else ')'}"

    def contains(self, version: str) -> bool:
        if self.low is not None:
            order = _compare(version, self.low)
            if order < 0 or (order == 0 and not self.with_low):
                return False
        if self.high is not None:
            order = _compare(version, self.high)
            if order > 0 or (order == 0 and not self.with_high):
                return False
        return True


@dataclass(frozen=True, slots=True)
class VersionRange:
    """The requested versions; prints as Connect prints it (`[1.0,1.0]` for a single one)."""

    intervals: tuple[_Interval, ...]

    def __str__(self) -> str:
        return ",".join(map(str, self.intervals))

    def contains(self, version: str) -> bool:
        """True when the version is in the requested range."""
        return any(interval.contains(version) for interval in self.intervals)


def version_range(text: str | None) -> VersionRange | None:
    """The request in a `*.plugin.version`; None = any version, for an empty value and for `latest`. Raises ConfigError
    with Maven's text when the value is no range.
    """
    if text is None or text == LATEST:
        return None
    spec = text.strip()
    found = _parse(spec)
    return VersionRange(found or (_interval(f"[{spec}]"),))


def _parse(spec: str) -> tuple[_Interval, ...]:
    rest, found = spec, list[_Interval]()
    while rest.startswith(("[", "(")):
        ends = [at for at in (rest.find(")"), rest.find("]")) if at >= 0]
        if not ends:
            raise ConfigError(f"Unbounded range: {spec}")
        end = min(ends) + 1
        interval = _interval(rest[:end])
        if found:
            before = found[-1].high
            if before is None or interval.low is None or _compare(interval.low, before) < 0:
                raise ConfigError(f"Ranges overlap: {spec}")
        found.append(interval)
        rest = rest[end:].strip().removeprefix(",").strip()
    if rest and found:
        raise ConfigError(f"Only fully-qualified sets allowed in multiple set scenario: {spec}")
    return tuple(found)


def _interval(spec: str) -> _Interval:
    with_low, with_high = spec.startswith("["), spec.endswith("]")
    inner = spec[1:-1].strip()
    if "," not in inner:
        if not (with_low and with_high):
            raise ConfigError(f"Single version must be surrounded by []: {spec}")
        return _Interval(inner, inner, with_low, with_high)
    low, _, high = inner.partition(",")
    bounds = low.strip() or None, high.strip() or None
    if bounds[0] is not None and bounds[1] is not None:
        order = _compare(bounds[1], bounds[0])
        if order < 0 or (order == 0 and not (with_low and with_high)):
            raise ConfigError(f"Range defies version ordering: {spec}")
    return _Interval(*bounds, with_low, with_high)


def _compare(one: str, other: str) -> int:
    first, second = rank(one), rank(other)
    return (first > second) - (first < second)


def rank(version: str) -> list[tuple[int, int, str]]:
    """The sort key of versions, oldest first. Numbers sort by value; words, which mark pre-releases, sort below
    numbers; trailing zeros are ignored.
    """
    parts = [(1, int(part), "") if part.isdigit() else (-1, 0, part.lower()) for part in _PART.findall(version)]
    while parts and parts[-1] == (1, 0, ""):
        parts.pop()
    return [*parts, (0, 0, "")]


def not_there(class_name: str, wanted: VersionRange | None, there: Iterable[str]) -> str:
    """Connect's error text for a version that does not exist."""
    return (
        f"Plugin {class_name} not found that matches the version range {wanted}, available versions: "
        f"[{', '.join(there)}]"
    )
