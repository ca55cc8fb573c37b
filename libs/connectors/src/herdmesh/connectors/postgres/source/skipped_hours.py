"""Hours in which the local times of a time zone are not in the order of their instants.

Owns finding them. Where a clock is set forward, from 2:00 to 3:00, the local times between do not exist, and the server
reads them by the offset before: 2:30 is as 3:30, and before 3:00. So a column of local times that is read in its order
has instants that go back there, and a place among them would leave out rows behind it.

Invariant: rows whose timestamps are not in such an hour are in the order of their instants, and so are such hours.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

from herdmesh.connectors.postgres.types import EPOCH_US

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_DAY = timedelta(days=1)
"""The most that a clock was ever set forward."""


class SkippedHours:
    """Of one time zone."""

    def __init__(self, zone: str) -> None:
        """`zone`: as the server and IANA name it. One that is unknown here, or has one offset, skips nothing."""
        try:
            self._zone = None if zone == "UTC" else ZoneInfo(zone)
        except (OSError, ValueError, LookupError):
            self._zone = None

    def have_both(self, one_us: int | None, other_us: int | None) -> bool:
        """Whether two moments, in microseconds since 2000, are those of one skipped hour."""
        if self._zone is None or one_us is None or other_us is None:
            return False
        width = self._width(one_us)
        return width is not None and width == self._width(other_us) and abs(one_us - other_us) < width

    def _width(self, moment_us: int) -> int | None:
        """How far the clock was set forward, in microseconds, where it was so shortly before that; else None."""
        assert self._zone is not None
        try:
            moment = _EPOCH + timedelta(microseconds=moment_us + EPOCH_US)
            now, before = self._offset(moment), self._offset(moment - _DAY)
            if now <= before or self._offset(moment - (now - before)) != before:
                return None
        except OverflowError:  # so far away no clock's future is known
            return None
        return (now - before) // timedelta(microseconds=1)

    def _offset(self, moment: datetime) -> timedelta:
        return moment.astimezone(self._zone).utcoffset() or timedelta()
