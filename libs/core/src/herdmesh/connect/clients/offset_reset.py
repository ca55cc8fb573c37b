"""Offset reset policy (`auto.offset.reset`): the position at which a consumer starts in a partition without a committed
offset.

Owns the values and their parsing: Java's `earliest`, `latest`, `none` and `by_duration:<ISO 8601 duration>` (KIP-1106,
`AutoOffsetResetStrategy`), and librdkafka's other names for the first two. Pure: the clock is passed in.

Invariant: a value that Java's consumer accepts has the same meaning here; any other is a ConfigError with a fix.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum
from typing import Final, assert_never

from herdmesh.connect.errors import ConfigError

AUTO_OFFSET_RESET: Final = "auto.offset.reset"
_BY_DURATION: Final = "by_duration"
_VALID: Final = "must be earliest, latest, none, or by_duration: with a duration such as PT1H or P2DT12H"
#: `java.time.Duration.parse`, which accepts upper and lower case letters.
_DURATION: Final = re.compile(
    r"(?P<sign>[-+]?)P(?:(?P<days>[-+]?[0-9]+)D)?"
    r"(?P<time>T(?:(?P<hours>[-+]?[0-9]+)H)?(?:(?P<minutes>[-+]?[0-9]+)M)?"
    r"(?:(?P<seconds>[-+]?[0-9]+)(?:[.,](?P<fraction>[0-9]{0,9}))?S)?)?",
    re.IGNORECASE | re.ASCII,
)
_SECONDS_MAX: Final = 2**63 - 1
"""Maximum seconds of a Java `Duration`."""


class Start(Enum):
    """The starting point of a reset."""

    EARLIEST = "earliest"
    LATEST = "latest"
    NONE = "none"
    """No starting point: the task fails."""
    BY_DURATION = _BY_DURATION


@dataclass(frozen=True, slots=True)
class OffsetReset:
    """One value of the setting, parsed by `read_offset_reset`."""

    start: Start = Start.EARLIEST
    back_ms: int = 0
    """For BY_DURATION: age of the oldest records to read."""
    text: str = "earliest"
    """The value as it was written, for messages."""

    @property
    def depends_on_time(self) -> bool:
        """True when the offset depends on the moment of the reset, so that the first one has to be committed at
        once."""
        return self.start in (Start.LATEST, Start.BY_DURATION)

    def begins_ms(self, now_ms: int) -> int | None:
        """Timestamp of the first records to read, in ms since 1970, never negative; None = the policy does not depend
        on timestamps.
        """
        return max(0, now_ms - self.back_ms) if self.start is Start.BY_DURATION else None

    def words(self) -> str:
        """Name of the starting point for sentences: `the beginning`."""
        match self.start:
            case Start.EARLIEST:
                return "the beginning"
            case Start.LATEST:
                return "the end"
            case Start.NONE:
                return "nowhere (auto.offset.reset=none: the task fails)"
            case Start.BY_DURATION:
                return f"the first record not older than {self.text.partition(':')[2]}"
            case _:
                assert_never(self.start)


_WORDS: Final = {
    "earliest": Start.EARLIEST, "beginning": Start.EARLIEST, "smallest": Start.EARLIEST,
    "latest": Start.LATEST, "end": Start.LATEST, "largest": Start.LATEST,
    "none": Start.NONE,
}  # fmt: skip


def read_offset_reset(text: str, field: str = f"consumer.override.{AUTO_OFFSET_RESET}") -> OffsetReset:
    """Parse the setting's value. Raises ConfigError at `field`."""
    word, colon, duration = text.partition(":")
    lower = word.strip().lower()
    if not colon and lower in _WORDS:
        return OffsetReset(_WORDS[lower], text=text)
    if lower != _BY_DURATION:
        raise ConfigError.for_value(field, text, _VALID, fix="write earliest")
    back_ms = _milliseconds(duration.strip())
    if back_ms is None:
        why = f"by_duration needs an ISO 8601 duration after a colon, and {duration!r} is not one"
        raise ConfigError.for_value(field, text, why, fix="write by_duration:PT1H for the last hour")
    if back_ms < 0:
        why = "a negative duration would begin in the future"
        raise ConfigError.for_value(field, text, why, fix="write it without the minus sign")
    return OffsetReset(Start.BY_DURATION, back_ms, text)


def _milliseconds(text: str) -> int | None:
    """Parse a duration as Java does, rounded up so that no record is missed; None = the text is no duration."""
    found = _DURATION.fullmatch(text)
    if found is None or (found["time"] or "").upper() == "T" or not (found["days"] or found["time"]):
        return None
    whole = (
        int(found["days"] or 0) * 86_400
        + int(found["hours"] or 0) * 3_600
        + int(found["minutes"] or 0) * 60
        + int(found["seconds"] or 0)
    )
    if abs(whole) > _SECONDS_MAX:
        return None
    nanos = int((found["fraction"] or "").ljust(9, "0"))
    if (found["seconds"] or "").startswith("-"):
        nanos = -nanos
    total = whole * 1_000_000_000 + nanos
    if found["sign"] == "-":
        total = -total
    return -(-total // 1_000_000)
