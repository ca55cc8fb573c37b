"""Spelling suggestions: the known name that a misspelt one most likely means.

Owns the measure of similarity. Has no list of names and imports nothing of Herdmesh: the stores load it with their
clients' logins and must not load plugins and transformations for that.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable

_ALIKE = 0.75
"""Cutoff for `difflib`: one or two letters of ten may differ."""


def closest(name: str, known: Iterable[str]) -> str:
    """The most similar known name; "" = no name is similar enough."""
    lowered = {one.lower(): one for one in sorted(known)}
    found = difflib.get_close_matches(name.lower(), lowered, n=1, cutoff=_ALIKE)
    return lowered[found[0]] if found else ""
