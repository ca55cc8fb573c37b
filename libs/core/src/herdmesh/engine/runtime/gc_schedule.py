"""Schedule of full garbage collections in a run, where Python's own collector seldom runs (the worker's
`spark.daemon`).

Owns when. Invariant: no cycle stays for longer than `FULL_EVERY` calls once nothing holds it.
"""

from __future__ import annotations

import gc

FULL_EVERY = 100
"""Calls, one with each report: twenty seconds of a busy run, a few minutes of a warm one."""
_YOUNG, _ALL = 1, 2


class GcSchedule:
    """What one run leaves."""

    def __init__(self) -> None:
        self._calls = 0

    def collect(self) -> None:
        """What batches leave goes at once, since it can be large. What lived on until the next call is older to Python
        then, which by itself would hardly ever look at it again; what was imported before the fork is not looked at."""
        self._calls += 1
        gc.collect(_ALL if self._calls % FULL_EVERY == 0 else _YOUNG)
