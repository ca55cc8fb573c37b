"""Counting records and holding a run to its limits.

Owns the counters, the rate over the last seconds, and the limit the worker may set. Time is passed in (seconds of a
monotonic clock), so it is tested without waiting.

Invariant: counts never go down; the rate covers at most the last `WINDOW_S` seconds.
"""

from __future__ import annotations

from collections import deque

WINDOW_S = 5.0
REPORT_INTERVAL_S = 0.2
IDLE_REPORT_INTERVAL_S = 2.0


class Meter:
    """Counts of one run."""

    def __init__(self, now_s: float) -> None:
        self.records_in = 0
        self.records_out = 0
        self.records_dropped = 0
        self._samples: deque[tuple[float, int]] = deque([(now_s, 0)])
        self._reported_s = now_s
        self._reported_records = 0

    def count(self, taken: int, given: int, now_s: float) -> None:
        """So many records came in, so many went on; the difference was dropped."""
        self.records_in += taken
        self.records_out += given
        self.records_dropped += taken - given
        if now_s - self._samples[-1][0] < REPORT_INTERVAL_S and len(self._samples) > 1:
            self._samples[-1] = (self._samples[-1][0], self.records_in)
        else:
            self._samples.append((now_s, self.records_in))

    def rate(self, now_s: float) -> float:
        """Records in per second over the last seconds."""
        while len(self._samples) > 1 and self._samples[1][0] <= now_s - WINDOW_S:
            self._samples.popleft()
        since_s, count = self._samples[0]
        elapsed_s = now_s - max(since_s, now_s - WINDOW_S)
        return (self.records_in - count) / elapsed_s if elapsed_s > 0 else 0.0

    def report_due(self, now_s: float) -> bool:
        """True every 200 ms while records move, every 2 s while they do not; saying True counts as reporting."""
        interval_s = IDLE_REPORT_INTERVAL_S if self.records_in == self._reported_records else REPORT_INTERVAL_S
        if now_s - self._reported_s < interval_s:
            return False
        self._reported_s = now_s
        self._reported_records = self.records_in
        return True


class Limit:
    """Records per second the worker allows; 0 = unlimited."""

    def __init__(self) -> None:
        self.records_per_second = 0.0
        self._free_at_s = 0.0

    def batch_size(self, wanted: int) -> int:
        """How many records to take at once so that the limit is felt evenly: a fifth of a second's worth."""
        if self.records_per_second <= 0:
            return wanted
        return max(1, min(wanted, int(self.records_per_second / 5)))

    def took(self, records: int, now_s: float) -> None:
        """So many records were taken."""
        if self.records_per_second > 0:
            self._free_at_s = max(self._free_at_s, now_s) + records / self.records_per_second

    def wait_s(self, now_s: float) -> float:
        """How long to take nothing."""
        return max(0.0, self._free_at_s - now_s) if self.records_per_second > 0 else 0.0
