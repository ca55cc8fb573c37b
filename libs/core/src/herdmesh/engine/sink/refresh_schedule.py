"""Schedule of a sink run's partition refresh: the time of the next query for new and deleted partitions.

Owns one point of time. `SinkAssignment` refreshes and sets it; `SinkCommits` brings it forward when a commit failed
because a topic was deleted.

Invariant: only a refresh postpones a request to refresh soon.
"""

from __future__ import annotations

import math
import time


class RefreshSchedule:
    """Time of one run's next refresh, in seconds of the monotonic clock."""

    def __init__(self) -> None:
        self._at_s = time.monotonic()

    def is_due(self, now_s: float) -> bool:
        """True when it is time to refresh."""
        return now_s >= self._at_s

    def soon(self) -> None:
        """Refresh as soon as possible."""
        self._at_s = -math.inf

    def no_later_than(self, at_s: float) -> None:
        """Refresh at this time, or earlier if that was set."""
        self._at_s = min(self._at_s, at_s)

    def refreshed(self, next_s: float) -> None:
        """Set the time of the next refresh, after a refresh or a failed attempt."""
        self._at_s = next_s
