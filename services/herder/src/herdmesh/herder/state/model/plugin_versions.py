"""Plugin versions that connectors request (`connector.plugin.version`, KIP-891).

Owns parsing the request and comparing versions. Rules of Connect: none or `latest` accepts any version of a worker; a
bare version is that version and no other; `[1.0,2.0)` and the like are Maven ranges, several separated by commas.

Invariant: a request that cannot be parsed matches no version: the error shows at once, instead of a wrong guess.
"""

from __future__ import annotations

import re
from itertools import zip_longest

_RANGE = re.compile(r"([\[(])\s*([^,\[\]()]*?)\s*(?:(,)\s*([^,\[\]()]*?)\s*)?([\])])\s*(?:,\s*(?=[\[(])|$)")
_PARTS = re.compile(r"\d+|[a-z]+")
#: qualifiers before a release, in order; others sort after it, by name (Maven's ComparableVersion).
_BEFORE = {"alpha": -5, "a": -5, "beta": -4, "b": -4, "milestone": -3, "m": -3, "rc": -2, "cr": -2, "snapshot": -1}

_Part = tuple[int, int, str]


def meets(version: str, wanted: str) -> bool:
    """True when a plugin of `version` satisfies the request `wanted`."""
    wanted = wanted.strip()
    if not wanted or wanted == "latest":
        return True
    if wanted[0] not in "[(":
        return compare(version, wanted) == 0
    position = 0
    met = False
    while position < len(wanted):
        found = _RANGE.match(wanted, position)
        if found is None:
            return False
        met = met or _within(version, found)
        position = found.end()
    return met


def compare(one: str, other: str) -> int:
    """Below 0, 0 or above 0, as `one` is older than, equal to or newer than `other`: 1.0 equals 1, 1.0-rc1 is older."""
    for mine, theirs in zip_longest(_parts(one), _parts(other), fillvalue=(1, 0, "")):
        if mine != theirs:
            return -1 if mine < theirs else 1
    return 0


def _within(version: str, found: re.Match[str]) -> bool:
    opening, low, comma, high, closing = found.groups()
    if comma is None:
        return opening == "[" and closing == "]" and low != "" and compare(version, low) == 0
    above = not low or compare(version, low) > 0 or (opening == "[" and compare(version, low) == 0)
    below = not high or compare(version, high) < 0 or (closing == "]" and compare(version, high) == 0)
    return above and below


def _parts(version: str) -> list[_Part]:
    """Numbers and words in order. A missing part counts as the number 0; a pre-release word is less than that."""
    parts: list[_Part] = []
    for text in _PARTS.findall(version.lower()):
        if text.isdigit():
            parts.append((1, int(text), ""))
        elif text in _BEFORE:
            parts.append((0, _BEFORE[text], ""))
        elif text not in ("ga", "final", "release"):
            parts.append((1, 0, text))
    return parts
