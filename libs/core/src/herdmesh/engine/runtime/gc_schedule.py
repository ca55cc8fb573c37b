"""Schedule of full garbage collections in a run, where Python's own collector seldom runs (the worker's
`spark.daemon`).

Owns the schedule. Invariant: no unreachable cycle stays for longer than `FULL_EVERY` calls.
"""

from __future__ import annotations

import gc

FULL_EVERY = 100
"""Number of calls, one with each report: twenty seconds of a busy run, a few minutes of a warm one."""
_YOUNG, _ALL = 1, 2


class GcSchedule:
    """Garbage collections of one run."""

    def __init__(self) -> None:
        self._calls = 0

    def collect(self) -> None:
        """Collect the garbage of batches at once, since it can be large. Objects that survive until the next call get
        into an older generation, which Python itself would hardly ever collect; objects imported before the fork are
        not scanned.
        """
        self._calls += 1
        gc.collect(_ALL if self._calls % FULL_EVERY == 0 else _YOUNG)
