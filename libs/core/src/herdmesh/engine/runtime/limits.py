"""Rate limiter of a task: its share of the connector's limit (`herdmesh.rate.*`).

Owns how much a run may take now, and the report of its use of the limit. The share is not decided here: it begins as an
equal one, and the leading herder sends another level as soon as some tasks need less than theirs
(`state/units/rate_limits.py` of the herder). Time is passed in (seconds of a monotonic clock), so it is tested without
waiting.

Invariants: without a message from the herder, all tasks of a connector together stay within its limit; a task that was
idle takes no more than its equal share until the others know its use.
"""

from __future__ import annotations

from herdmesh.engine.runtime.contract import Rate, RateUse

SLICE_S = 0.2
"""A limited task takes at once the amount for this time: a fifth of a second's worth, at least one record."""
CREDIT_S = 0.2
"""Maximum time lost by waking late that the limiter makes up for, so that the rate is exact."""
WINDOW_S = 0.25
"""Window over which the limiter determines whether a task would take more without the limit."""
KNOWN_S = 1.5
"""This long after an idle time, all tasks that share the limit know its use: a window, a heartbeat, two calls, and
a margin.
"""
_IDLE_PART = 0.1
"""A task that had nothing to take for more than this part of the window does not want more."""


class Bucket:
    """One limit of one task: of records or of bytes, per second."""

    def __init__(self, whole: float, task_count: int, now_s: float) -> None:
        """`whole` is the connector's limit; 0 = no limit."""
        self._whole = whole
        self._equal = whole / max(1, task_count)
        self._level = self._equal
        self._allowed = self._equal
        self._free_at_s = now_s
        self._seen_s = now_s
        self._window_s = now_s
        self._quiet_s = now_s
        self._taken = 0.0
        self._idle_s = 0.0
        self._used = 0.0
        self._wants_more = True

    @property
    def allowed(self) -> float:
        """The task's current rate per second; 0 = no limit."""
        return self._allowed

    def set_level(self, level: float) -> None:
        """Set the level from the herder; 0 = the herder sets none any more."""
        self._level = min(level, self._whole) if level > 0 else self._equal
        self._allowed = min(self._allowed, self._level) if level > 0 else self._equal

    def took(self, amount: float, now_s: float) -> None:
        """Count an amount that the task took."""
        if self._whole <= 0:
            return
        self._see(now_s)
        self._taken += amount
        self._free_at_s = max(self._free_at_s, now_s - CREDIT_S) + amount / self._allowed

    def wait_s(self, now_s: float) -> float:
        """Seconds during which the task must take nothing."""
        return max(0.0, self._free_at_s - now_s) if self._whole > 0 else 0.0

    def roll(self, now_s: float) -> bool:
        """Evaluate the window once it is over; True when the answer whether the task wants more has changed."""
        length_s = now_s - self._window_s
        if self._whole <= 0 or length_s < WINDOW_S:
            return False
        self._see(now_s)
        before, self._wants_more = self._wants_more, self._idle_s <= _IDLE_PART * length_s
        self._used += (self._taken / length_s - self._used) / 3
        if not self._wants_more and self._taken < self._equal * length_s:
            self._quiet_s = now_s
        self._allowed = self._allowed_at(now_s)
        self._window_s, self._taken, self._idle_s = now_s, 0.0, 0.0
        return before is not self._wants_more

    def use(self) -> RateUse | None:
        """The use to report; None without a limit."""
        return RateUse(self._whole, self._used, self._wants_more) if self._whole > 0 else None

    def _see(self, now_s: float) -> None:
        """Count the time in which the limit allowed an amount and the task took none."""
        self._idle_s += max(0.0, now_s - max(self._free_at_s, self._seen_s))
        self._seen_s = now_s

    def _allowed_at(self, now_s: float) -> float:
        return self._level if now_s - self._quiet_s >= KNOWN_S else min(self._level, self._equal)


class RateLimits:
    """Both limits of one task."""

    def __init__(self, records_per_second: float, bytes_per_second: float, task_count: int, now_s: float) -> None:
        """The connector's limits; 0 = no limit."""
        self.records = Bucket(records_per_second, task_count, now_s)
        self.bytes = Bucket(bytes_per_second, task_count, now_s)
        self._is_limited = records_per_second > 0 or bytes_per_second > 0
        self.counts_bytes = bytes_per_second > 0
        """Whether `took` needs bytes: counting them costs time."""
        self._record_bytes = 0.0

    def set_levels(self, rate: Rate) -> None:
        """Set the levels from the worker's command."""
        self.records.set_level(rate.records_per_second)
        self.bytes.set_level(rate.bytes_per_second)

    def batch_size(self, wanted: int) -> int:
        """The number of records to take at once, so that the limit acts evenly. For bytes it is derived from the
        average record so far; the first record is taken alone.
        """
        if not self._is_limited:
            return wanted
        room = float(wanted)
        if self.records.allowed > 0:
            room = min(room, self.records.allowed * SLICE_S)
        if self.counts_bytes:
            room = min(room, self.bytes.allowed * SLICE_S / self._record_bytes if self._record_bytes else 1.0)
        return max(1, int(room))

    def took(self, records: int, byte_count: int, now_s: float) -> None:
        """Count records and bytes that the task took."""
        if not self._is_limited:
            return
        self.records.took(records, now_s)
        if self.counts_bytes and records:
            weight = byte_count / records
            self._record_bytes = (self._record_bytes + weight) / 2 if self._record_bytes else weight
            self.bytes.took(byte_count, now_s)

    def wait_s(self, now_s: float) -> float:
        """Seconds during which the task must take nothing."""
        return max(self.records.wait_s(now_s), self.bytes.wait_s(now_s)) if self._is_limited else 0.0

    def roll(self, now_s: float) -> bool:
        """Evaluate the windows; True when there is a change to report."""
        if not self._is_limited:
            return False
        changed = [bucket.roll(now_s) for bucket in (self.records, self.bytes)]
        return any(changed)
