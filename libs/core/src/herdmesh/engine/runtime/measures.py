"""Measures of a run besides its counts: sizes, times and ages, as values that add up.

Owns the values a run reports and a worker sums. Does not measure (`meter`), and names no metric (the worker's
`metrics`).

Invariant: for any measures a and b of one run, `a + b` covers both, in any order; so a report that had to wait for the
next one is never lost.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

LATENCY_BOUNDS_MS: Final = (10, 50, 100, 500, 1_000, 5_000, 30_000, 300_000, 3_600_000, 86_400_000)
"""Upper bounds of the latency buckets in ms, each inclusive; the last bucket has none. From the milliseconds of a sink
that keeps up to the day of one that reads a backlog; few, because every task has a series for each.
"""


@dataclass(frozen=True, slots=True)
class MeasureSpread:
    """Several measurements of one kind."""

    count: int = 0
    total: float = 0.0
    smallest: float = 0.0
    largest: float = 0.0

    def __add__(self, other: MeasureSpread) -> MeasureSpread:
        if not (self.count and other.count):
            return self if self.count else other
        return MeasureSpread(
            self.count + other.count,
            self.total + other.total,
            min(self.smallest, other.smallest),
            max(self.largest, other.largest),
        )


@dataclass(frozen=True, slots=True)
class Latency:
    """A histogram of ages in ms over LATENCY_BOUNDS_MS: how many records fell into each bucket, and their sum."""

    buckets: tuple[int, ...] = ()
    """One more than there are bounds; empty = no record."""
    total_ms: float = 0.0

    def __add__(self, other: Latency) -> Latency:
        if not (self.buckets and other.buckets):
            return self if self.buckets else other
        both = zip(self.buckets, other.buckets, strict=True)
        return Latency(tuple(mine + its for mine, its in both), self.total_ms + other.total_ms)


@dataclass(frozen=True, slots=True)
class Measures:
    """Measurements since the run's previous report."""

    batch_records: MeasureSpread = MeasureSpread()
    """Records of one call of the task's `poll`, or of one partition in a batch."""
    call_ms: MeasureSpread = MeasureSpread()
    """Duration of the task's `put`, or of a `poll` with records."""
    commit_ms: MeasureSpread = MeasureSpread()
    """Duration of offset commits that succeeded, from the task's flush on."""
    commit_failures: int = 0
    transaction_records: MeasureSpread = MeasureSpread()
    """Records of one committed transaction; of sources only."""
    active_records: MeasureSpread = MeasureSpread()
    """Records taken and not committed yet, counted after each batch."""
    active_records_now: int = 0
    latency_ms: Latency = Latency()
    """From a record's timestamp until `put` returned, or from the end of `poll` until the commit was acknowledged."""

    def __add__(self, later: Measures) -> Measures:
        """The sum. For a value measured at one moment the `later` one counts."""
        return Measures(
            self.batch_records + later.batch_records,
            self.call_ms + later.call_ms,
            self.commit_ms + later.commit_ms,
            self.commit_failures + later.commit_failures,
            self.transaction_records + later.transaction_records,
            self.active_records + later.active_records,
            later.active_records_now,
            self.latency_ms + later.latency_ms,
        )


NOTHING: Final = Measures()
"""No measurement."""
