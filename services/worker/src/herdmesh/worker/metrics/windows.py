"""Time window of a measurement: the last 30 to 60 seconds, as in Connect's metrics.

Owns the two samples of 30 s over which Connect takes maxima, means and rates (its defaults of `metrics.num.samples` and
`metrics.sample.window.ms`). Time is passed in.

Invariant: the data is one immutable pair, replaced as a whole, so another thread may read at any moment.
"""

from __future__ import annotations

from typing import Final

from herdmesh.engine.runtime import MeasureSpread

SAMPLE_S: Final = 30.0
_NOTHING: Final = MeasureSpread()


class Window:
    """Two samples: the current one, and the one before."""

    __slots__ = ("_samples",)

    def __init__(self, now_s: float) -> None:
        self._samples: tuple[tuple[float, MeasureSpread], tuple[float, MeasureSpread]] = (
            (now_s, _NOTHING),
            (now_s, _NOTHING),
        )

    def add(self, spread: MeasureSpread, now_s: float) -> None:
        """Add measured values."""
        (begun_s, current), before = self._samples
        if now_s - begun_s >= SAMPLE_S:
            before, begun_s, current = (begun_s, current), now_s, _NOTHING
        self._samples = (begun_s, current + spread), before

    def count(self, number: float, now_s: float) -> None:
        """Add a number of occurrences, which `rate` divides by time."""
        if number:
            self.add(MeasureSpread(1, number, number, number), now_s)

    def spread(self, now_s: float) -> MeasureSpread:
        """Values measured in samples that began less than a minute ago."""
        (begun_s, current), (before_s, before) = self._samples
        if now_s - before_s >= 2 * SAMPLE_S:
            before = _NOTHING
        return current + before if now_s - begun_s < 2 * SAMPLE_S else _NOTHING

    def rate(self, now_s: float) -> float:
        """Occurrences per second over the present samples, at least one full one: as in Connect, whose metrics
        therefore show no burst in the first second of a task.
        """
        (begun_s, current), (before_s, before) = self._samples
        total, since_s = current.total, begun_s
        if now_s - before_s < 2 * SAMPLE_S:
            total, since_s = total + before.total, before_s
        if now_s - begun_s >= 2 * SAMPLE_S:
            return 0.0
        return total / max(now_s - since_s, SAMPLE_S)

    def mean(self, now_s: float) -> float | None:
        """The mean; None when nothing was measured."""
        found = self.spread(now_s)
        return found.total / found.count if found.count else None

    def largest(self, now_s: float) -> float | None:
        """The maximum; None when nothing was measured."""
        found = self.spread(now_s)
        return found.largest if found.count else None

    def smallest(self, now_s: float) -> float | None:
        """The minimum; None when nothing was measured."""
        found = self.spread(now_s)
        return found.smallest if found.count else None
