"""Times that a user writes: an age such as `15m`, or a moment such as `2026-11-22T08:00:00Z`.

Owns the forms, which every option with a time has.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Final

import typer

from herdmesh.cli.errors import EXIT_USAGE, CommandError

_DURATION: Final = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|)")
_SECONDS: Final = {"ms": 0.001, "s": 1.0, "": 1.0, "m": 60.0, "h": 3600.0}
_AGES: Final = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}


def moment(text: str, now: datetime, option: str = "--since") -> datetime:
    """`15m` before `now`, or an ISO time, UTC where it has no zone. Raises CommandError."""
    number, unit = text[:-1], text[-1:]
    try:
        if number.isdecimal() and unit in _AGES:
            return now - timedelta(seconds=int(number) * _AGES[unit])
        found = datetime.fromisoformat(text)
    except (ValueError, OverflowError):
        text = f"{option} {text}: write an age such as 15m, 2h or 7d, or a time such as 2026-11-22T08:00:00Z"
        raise CommandError("USAGE", text, exit_code=EXIT_USAGE) from None
    return found if found.tzinfo is not None else found.replace(tzinfo=UTC)


def seconds(text: str) -> float:
    """`90`, `90s`, `5m`, `1h` or `500ms` in seconds. Raises CommandError."""
    found = _DURATION.fullmatch(text.strip().lower())
    if found is None or not float(found[1]):
        raise CommandError("USAGE", f"{text} is no time: write 30s, 5m or 1h", exit_code=EXIT_USAGE)
    return float(found[1]) * _SECONDS[found[2]]


def duration(text: str | float) -> float:
    """As `seconds`, for an option of the command line: an error is one of wrong usage. A number is in seconds."""
    try:
        return seconds(str(text))
    except CommandError as error:
        raise typer.BadParameter(error.message) from None
