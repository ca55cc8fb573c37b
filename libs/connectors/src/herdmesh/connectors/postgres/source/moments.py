"""The moments of places as SQL constants of PostgreSQL.

Owns their text. Places and offsets: `table_source.offsets`; the rows between two places: `plan`.
"""

from __future__ import annotations

from typing import Final

_DAY_US: Final = 86_400_000_000
MINUS_INFINITY_US: Final = -9_223_372_036_832_400_000_000
"""The moment of a place after rows with timestamp -infinity:
the Java driver's value for it, before all others.
"""


def moment_sql(moment_us: int) -> str:
    """Return a moment, in microseconds since 1970, as a `timestamptz`
    constant; it is exact, which a sum with an interval would not be.
    """
    if moment_us <= MINUS_INFINITY_US:
        return "(TIMESTAMPTZ '-infinity')"
    days, rest_us = divmod(moment_us, _DAY_US)
    seconds, fraction_us = divmod(rest_us, 1_000_000)
    time = f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}.{fraction_us:06}"
    return f"((DATE '1970-01-01' + ({days}) + TIME '{time}') AT TIME ZONE 'UTC')"
