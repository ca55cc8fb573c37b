"""Commands of the worker to a run, as the loop sees them.

Owns the reading of commands and the decision to end. Time is passed in.

Invariant: a Stop wins over all else, and neither it nor a Share or a Rest is forgotten.

A run that is to share ends as soon as it has read all there is and nothing came for `QUIET_S`: it decides that itself,
because asking back would cost others the slot for longer than most runs have anything to do.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import assert_never

from herdmesh.engine.runtime.contract import Rate, Rest, RunEnd, RunLink, Share, Stop
from herdmesh.engine.runtime.limits import Limits

QUIET_S = 0.05
_LOOK_S = 0.1


class RunCommands:
    """The worker's wishes for one run."""

    def __init__(self, link: RunLink, limits: Limits, started_s: float, *, stays_warm: bool = False) -> None:
        self.stays_warm = stays_warm
        """Whether the run may go on with nothing to do; False for good once it was told to rest."""
        self._link = link
        self._limits = limits
        self._started_s = started_s
        self._stopped = False
        self._share_s: float | None = None

    def wish(self, now_s: float, quiet_s: float | None = None) -> RunEnd | None:
        """Read new commands; why to end now, None = go on.

        `quiet_s`: how long all was read and nothing came; None where the run cannot know, or is never to rest.
        """
        for command in self._link.commands():
            match command:
                case Stop():
                    self._stopped = True
                case Rate():
                    self._limits.tell(command)
                case Share(run_ms=run_ms):
                    self._share_s = run_ms / 1000
                case Rest():
                    self.stays_warm = False
                case _:
                    assert_never(command)
        if self._stopped:
            return RunEnd.STOPPED
        if self._share_s is not None and (now_s - self._started_s >= self._share_s or (quiet_s or 0.0) >= QUIET_S):
            return RunEnd.YIELDED
        return None

    def pause(self, seconds: float, meanwhile: Callable[[float], None], *, yields: bool) -> RunEnd | None:
        """Wait so long, and hear commands; why to end, None = it waited.

        Args:
            meanwhile: called with the time now, about ten times a second.
            yields: False where only a Stop ends the wait, because another run would begin it anew.
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
            time.sleep(min(end_s - now_s, _LOOK_S))  # waits: who asks for the pause has said it
