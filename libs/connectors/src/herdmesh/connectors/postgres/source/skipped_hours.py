"""Hours in which the local times of a time zone are not in the order of their instants.

Owns finding them. When a clock is set forward, from 2:00 to 3:00, the local times between do not exist, and the server
reads them with the earlier offset: 2:30 is the instant of 3:30, and sorts before 3:00. So instants of a column of local
times, read in its order, go back there, and a place among them would leave out later rows.

Invariant: rows whose timestamps are not in such an hour are in the order of their instants, and so are such hours.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

from herdmesh.connectors.postgres.types import EPOCH_US

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_DAY = timedelta(days=1)
"""Maximum time that a clock was ever set forward."""


class SkippedHours:
    """The skipped hours of one time zone."""

    def __init__(self, zone: str) -> None:
        """`zone`: name for the server and IANA. A zone that is unknown here, or has one offset, skips nothing."""
        try:
            self._zone = None if zone == "UTC" else ZoneInfo(zone)
        except (OSError, ValueError, LookupError):
            self._zone = None

    def have_both(self, one_us: int | None, other_us: int | None) -> bool:
        """Return whether two moments, in microseconds since 2000, are in one skipped hour."""
        if self._zone is None or one_us is None or other_us is None:
            return False
        width = self._width(one_us)
        return width is not None and width == self._width(other_us) and abs(one_us - other_us) < width

    def _width(self, moment_us: int) -> int | None:
        """Return how far the clock was set forward, in microseconds,
        if that was shortly before the moment; else None.
        """
        assert self._zone is not None
        try:
            moment = _EPOCH + timedelta(microseconds=moment_us + EPOCH_US)
            now, before = self._offset(moment), self._offset(moment - _DAY)
            if now <= before or self._offset(moment - (now - before)) != before:
                return None
        except OverflowError:  # dates this far have no known time zone rules
            return None
        return (now - before) // timedelta(microseconds=1)

    def _offset(self, moment: datetime) -> timedelta:
        return moment.astimezone(self._zone).utcoffset() or timedelta()
