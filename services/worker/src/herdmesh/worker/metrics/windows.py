"""Time window of a measurement: its last half minute to minute, as Connect's metrics have it.

Owns the two samples of 30 s over which Connect takes maxima, means and rates (its defaults of `metrics.num.samples` and
`metrics.sample.window.ms`). Time is passed in.

Invariant: what is read is one immutable pair, replaced as a whole, so another thread may read at any moment.
"""

from __future__ import annotations

from typing import Final

from herdmesh.engine.runtime import MeasureSpread

SAMPLE_S: Final = 30.0
_NOTHING: Final = MeasureSpread()


class Window:
    """Two samples: the one under way, and the one before."""

    __slots__ = ("_samples",)

    def __init__(self, now_s: float) -> None:
        self._samples: tuple[tuple[float, MeasureSpread], tuple[float, MeasureSpread]] = (
            (now_s, _NOTHING),
            (now_s, _NOTHING),
        )

    def add(self, spread: MeasureSpread, now_s: float) -> None:
        """Something was measured."""
        (begun_s, current), before = self._samples
        if now_s - begun_s >= SAMPLE_S:
            before, begun_s, current = (begun_s, current), now_s, _NOTHING
        self._samples = (begun_s, current + spread), before

    def count(self, number: float, now_s: float) -> None:
        """So many of something happened: what `rate` divides by time."""
        if number:
            self.add(MeasureSpread(1, number, number, number), now_s)

    def spread(self, now_s: float) -> MeasureSpread:
        """What was measured in samples that began less than a minute ago."""
        (begun_s, current), (before_s, before) = self._samples
        if now_s - before_s >= 2 * SAMPLE_S:
            before = _NOTHING
        return current + before if now_s - begun_s < 2 * SAMPLE_S else _NOTHING

    def rate(self, now_s: float) -> float:
        """Per second, over the samples there are, at least one full one: as Connect, which so shows no burst in the
        first second of a task."""
        (begun_s, current), (before_s, before) = self._samples
        total, since_s = current.total, begun_s
        if now_s - before_s < 2 * SAMPLE_S:
            total, since_s = total + before.total, before_s
        if now_s - begun_s >= 2 * SAMPLE_S:
            return 0.0
        return total / max(now_s - since_s, SAMPLE_S)

    def mean(self, now_s: float) -> float | None:
        """None when nothing was measured."""
        found = self.spread(now_s)
        return found.total / found.count if found.count else None

    def largest(self, now_s: float) -> float | None:
        """None when nothing was measured."""
        found = self.spread(now_s)
        return found.largest if found.count else None

    def smallest(self, now_s: float) -> float | None:
        """None when nothing was measured."""
        found = self.spread(now_s)
        return found.smallest if found.count else None
