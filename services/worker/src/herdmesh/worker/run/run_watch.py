"""Watchdog of this process's record loop, in a thread of its own: logs the stacks of a stuck loop.

Owns the measuring of silence and faulthandler's one timer. Decides nothing: the worker does (`state.watchdog`).

Invariants: time in which this whole process stood still does not count, because the loop cannot have moved in it; the
stacks are written also when the loop hangs with the interpreter's lock, for faulthandler's thread needs none; a run
that was told to stop keeps the timer it was given for that.
"""

from __future__ import annotations

import faulthandler
import threading
from typing import Final, Protocol

import structlog

from herdmesh.engine.runtime import progress_ticks

#: A run that was told to stop so long ago shows its stacks; a second before the worker gives it up (`stop_timeout_ms`).
STUCK_S: Final = 4.0
_LOOK_S_MIN: Final = 0.25
_LOOK_S_MAX: Final = 2.0
#: So long before the worker ends the run its stacks are shown again.
_BEFORE_END_S: Final = 1.0
_log: structlog.stdlib.BoundLogger = structlog.get_logger(__name__)


class Stacks(Protocol):
    """Who writes all threads' stacks to the log; `faulthandler` is one."""

    def dump_traceback_later(self, timeout: float) -> None:
        """Write them after so many seconds, instead of when it was asked to before."""
        ...

    def cancel_dump_traceback_later(self) -> None:
        """Write none."""
        ...


class RunWatch:
    """Of one run, from its order on. `look` is called from one thread, the others from any."""

    def __init__(self, stalled_ms: int, end_ms: int, now_s: float, stacks: Stacks | None = None) -> None:
        """`stalled_ms`: of silence after which the worker shows it; `end_ms`: after which it ends the run."""
        self._stalled_s = stalled_ms / 1000
        self._end_s = end_ms / 1000
        self.interval_s = min(_LOOK_S_MAX, max(_LOOK_S_MIN, min(self._stalled_s, self._end_s) / 4))
        self._stacks: Stacks = stacks or faulthandler
        self._lock = threading.Lock()
        self._silent_s = 0.0
        self._shown = False
        self._told_to_stop = False
        self._moves = progress_ticks.moves()
        self._looked_s = now_s
        self._later(min(self._stalled_s, self._end_s) - self.interval_s / 2)

    def wait_s(self, now_s: float) -> float:
        """Until the next look is due."""
        return max(0.0, self._looked_s + self.interval_s - now_s)

    def look(self, now_s: float) -> int:
        """How long the loop has been silent, in ms; 0 = it has moved since the last look."""
        moves = progress_ticks.moves()
        if moves != self._moves:
            self._moves, self._silent_s, self._shown = moves, 0.0, False
            self._later(min(self._stalled_s, self._end_s) - self.interval_s / 2)
        else:
            self._silent_s += min(now_s - self._looked_s, 2 * self.interval_s)
            if self._silent_s >= self._stalled_s and not self._shown:
                self._shown = True
                _log.warning("run_stalled", silent_ms=int(self._silent_s * 1000))
                if self._end_s - _BEFORE_END_S > self._silent_s:
                    self._later(self._end_s - _BEFORE_END_S - self._silent_s)
        self._looked_s = now_s
        return int(self._silent_s * 1000)

    def told_to_stop(self) -> None:
        """Where a run stands that does not hear it is told to the worker's log before the worker kills it."""
        with self._lock:
            self._told_to_stop = True
            self._stacks.dump_traceback_later(STUCK_S)

    def over(self) -> None:
        """The loop has ended: nothing to show any more."""
        with self._lock:
            self._told_to_stop = True
            self._stacks.cancel_dump_traceback_later()

    def _later(self, timeout_s: float) -> None:
        with self._lock:
            if not self._told_to_stop:
                self._stacks.dump_traceback_later(timeout_s)
