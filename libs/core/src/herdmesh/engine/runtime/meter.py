"""Meter of a run: counts of records, and measures of their handling.

Owns the counters, the rate over the last seconds, and the measures for the worker's metrics. Time is passed in (seconds
of a monotonic clock), so it is tested without waiting.

Invariant: counts never go down; the rate covers at most the last `WINDOW_S` seconds; nothing here is called per record:
a batch costs the same, however many records it has.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque

from herdmesh.engine.runtime.measures import LATENCY_BOUNDS_MS, Latency, Measures, MeasureSpread

WINDOW_S = 5.0
REPORT_INTERVAL_S = 0.2
IDLE_REPORT_INTERVAL_S = 2.0


class _Spread:
    """A mutable Spread."""

    __slots__ = ("count", "largest", "smallest", "total")

    def __init__(self) -> None:
        self.count = 0
        self.total = self.smallest = self.largest = 0.0

    def add(self, value: float) -> None:
        # Comparisons instead of min and max: this is called several times a batch, which may be of one record.
        if not self.count:
            self.smallest = self.largest = value
        elif value < self.smallest:
            self.smallest = value
        elif value > self.largest:
            self.largest = value
        self.count += 1
        self.total += value

    def value(self) -> MeasureSpread:
        return MeasureSpread(self.count, self.total, self.smallest, self.largest) if self.count else _NOTHING


_NOTHING = MeasureSpread()
_NO_AGES = Latency()
_BUCKETS = len(LATENCY_BOUNDS_MS) + 1


class Meter:
    """Counts of one run."""

    def __init__(self, now_s: float) -> None:
        self.records_in = 0
        self.records_out = 0
        self.records_dropped = 0
        self._samples: deque[tuple[float, int]] = deque([(now_s, 0)])
        self._reported_s = now_s
        self._reported_records = 0
        self._active = 0
        self._begin_measures()

    def count(self, taken: int, given: int, now_s: float) -> None:
        """Count records: `taken` came in, `given` were passed on; the difference was filtered or skipped."""
        self.records_in += taken
        self.records_out += given
        self.records_dropped += taken - given
        self._batches.add(taken)
        self._active += taken
        self._actives.add(self._active)
        if now_s - self._samples[-1][0] < REPORT_INTERVAL_S and len(self._samples) > 1:
            self._samples[-1] = (self._samples[-1][0], self.records_in)
        else:
            self._samples.append((now_s, self.records_in))

    def called(self, took_s: float) -> None:
        """Note the duration of the task's `put`, or of a `poll` with records."""
        self._calls_ms.add(took_s * 1000)

    def aged(self, records: int, first_ms: float, last_ms: float) -> None:
        """Note the ages of `records`: `first_ms` of the first, `last_ms` of the last. Half of them count as the one and
        half as the other: a separate age for each would cost more than moving the record.
        """
        older = (records + 1) // 2
        # Never below 0: the clocks may be those of two machines.
        first_ms = max(0.0, first_ms)
        last_ms = max(0.0, last_ms)
        self._ages[bisect_left(LATENCY_BOUNDS_MS, first_ms)] += older
        self._ages[bisect_left(LATENCY_BOUNDS_MS, last_ms)] += records - older
        self._ages_ms += older * first_ms + (records - older) * last_ms
        self._aged = True

    def committed(self, took_s: float, transaction_records: int = 0) -> None:
        """Note an offset commit that succeeded; `transaction_records` for a source's."""
        self._commits_ms.add(took_s * 1000)
        if transaction_records:
            self._transactions.add(transaction_records)
        self._active = 0

    def commit_failed(self) -> None:
        """Count an offset commit that failed."""
        self._commit_failures += 1

    def rate(self, now_s: float) -> float:
        """Records in per second over the last seconds."""
        while len(self._samples) > 1 and self._samples[1][0] <= now_s - WINDOW_S:
            self._samples.popleft()
        since_s, count = self._samples[0]
        elapsed_s = now_s - max(since_s, now_s - WINDOW_S)
        return (self.records_in - count) / elapsed_s if elapsed_s > 0 else 0.0

    def report_due(self, now_s: float) -> bool:
        """True every 200 ms while records move, every 2 s while they do not; a True counts as a report."""
        interval_s = IDLE_REPORT_INTERVAL_S if self.records_in == self._reported_records else REPORT_INTERVAL_S
        if now_s - self._reported_s < interval_s:
            return False
        self._reported_s = now_s
        self._reported_records = self.records_in
        return True

    def take_measures(self) -> Measures:
        """The measures since the last call."""
        measures = Measures(
            batch_records=self._batches.value(),
            call_ms=self._calls_ms.value(),
            commit_ms=self._commits_ms.value(),
            commit_failures=self._commit_failures,
            transaction_records=self._transactions.value(),
            active_records=self._actives.value(),
            active_records_now=self._active,
            latency_ms=Latency(tuple(self._ages), self._ages_ms) if self._aged else _NO_AGES,
        )
        self._begin_measures()
        return measures

    def _begin_measures(self) -> None:
        self._batches = _Spread()
        self._calls_ms = _Spread()
        self._commits_ms = _Spread()
        self._transactions = _Spread()
        self._actives = _Spread()
        self._commit_failures = 0
        self._ages = [0] * _BUCKETS
        self._ages_ms = 0.0
        self._aged = False
