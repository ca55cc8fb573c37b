"""Schedule of a sink run's partition refresh: when the run next asks Kafka for new and deleted partitions.

Owns one point of time. `SinkAssignment` refreshes and sets it; `SinkCommits` brings it forward when a commit failed
because a topic was deleted.

Invariant: a request to refresh soon is not postponed by anything but a refresh.
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
        """A refresh was made or tried; the next one is due at this time."""
        self._at_s = next_s
