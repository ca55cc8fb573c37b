"""Commands of the worker to a run, for the loop.

Owns the reading of commands and the decision to end. Time is passed in.

Invariant: a Stop wins over all else, and neither it nor a Share or an EndWarmRun is forgotten.

A run that must share its slot ends as soon as it has read everything and no record came for `QUIET_S`. It decides that
itself, because a request to the worker would occupy the slot for longer than most runs have anything to do.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import assert_never

from herdmesh.engine.runtime.contract import EndWarmRun, Rate, RunEnd, RunLink, Share, Stop
from herdmesh.engine.runtime.limits import RateLimits

QUIET_S = 0.05
_LOOK_S = 0.1


class RunCommands:
    """The worker's commands for one run."""

    def __init__(self, link: RunLink, limits: RateLimits, started_s: float, *, stays_warm: bool = False) -> None:
        self.stays_warm = stays_warm
        """Whether the run may continue with nothing to do; False for good after an EndWarmRun."""
        self._link = link
        self._limits = limits
        self._started_s = started_s
        self._stopped = False
        self._share_s: float | None = None

    def wish(self, now_s: float, quiet_s: float | None = None) -> RunEnd | None:
        """Read new commands. Returns the reason to end now, None = continue.

        `quiet_s`: how long everything was read and no record came; None = unknown, or the run never counts as idle.
        """
        for command in self._link.commands():
            match command:
                case Stop():
                    self._stopped = True
                case Rate():
                    self._limits.set_levels(command)
                case Share(run_ms=run_ms):
                    self._share_s = run_ms / 1000
                case EndWarmRun():
                    self.stays_warm = False
                case _:
                    assert_never(command)
        if self._stopped:
            return RunEnd.STOPPED
        if self._share_s is not None and (now_s - self._started_s >= self._share_s or (quiet_s or 0.0) >= QUIET_S):
            return RunEnd.YIELDED
        return None

    def pause(self, seconds: float, meanwhile: Callable[[float], None], *, yields: bool) -> RunEnd | None:
        """Wait, and read commands. Returns the reason to end, None = the time is over.

        Args:
            meanwhile: called with the current time, about ten times a second.
            yields: False if only a Stop may end the wait, because another run would start the wait again.
        """
        end_s = time.monotonic() + seconds
        while True:
            now_s = time.monotonic()
            end = self.wish(now_s)
            if end is RunEnd.STOPPED or (yields and end is not None):
                return end
            meanwhile(now_s)
            if now_s >= end_s:
                return None
            time.sleep(min(end_s - now_s, _LOOK_S))  # waits: the caller of `pause` reports the wait
