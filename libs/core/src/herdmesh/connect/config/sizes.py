"""Sizes in bytes with units: `512MB`, `2g`, `1.5 GiB`, `1073741824`.

Owns parsing and formatting. Units are powers of 1024, whether written `MB`, `MiB` or `m`: as the JVM, Spark and
container engines count memory.
"""

from __future__ import annotations

import re
from typing import Final

_UNITS: Final = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}
_SIZE: Final = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*([kmgt]?)(?:i?b)?", re.IGNORECASE)


def bytes_of(text: str) -> int | None:
    """The size in bytes; None when the text is no size."""
    found = _SIZE.fullmatch(text.strip())
    return None if found is None else int(float(found[1]) * _UNITS[found[2].lower()])


def text_of_bytes(size_bytes: int) -> str:
    """The size with a unit: exact where it is a whole number of a unit, else in MB."""
    for unit, factor in reversed(_UNITS.items()):
        if unit and size_bytes >= factor and size_bytes % factor == 0:
            return f"{size_bytes // factor}{unit.upper()}B"
    return f"{size_bytes / _UNITS['m']:.0f}MB"
