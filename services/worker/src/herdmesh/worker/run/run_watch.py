"""Watchdog of this process's record loop, in a thread of its own: logs the stacks of a stuck loop.

Owns the measurement of time without progress, and faulthandler's one timer. Decides nothing: the worker does
(`state.watchdog`).

Invariants: time in which this whole process was suspended does not count, because the loop cannot have moved in it. The
stacks are written also when the loop hangs while it holds the interpreter's lock, because faulthandler's thread does
not need the lock. A run with a stop command keeps the timer of that command.
"""

from __future__ import annotations

import faulthandler
import threading
from typing import Final, Protocol

import structlog

from herdmesh.engine.runtime import progress_ticks

#: Time after a stop command at which the run's stacks are logged; a second before the worker kills it
#: (`stop_timeout_ms`).
STUCK_S: Final = 4.0
_LOOK_S_MIN: Final = 0.25
_LOOK_S_MAX: Final = 2.0
#: Time before the end of a stalled run at which its stacks are logged again.
_BEFORE_END_S: Final = 1.0
_log: structlog.stdlib.BoundLogger = structlog.get_logger(__name__)


class Stacks(Protocol):
    """Writer of all threads' stacks to the log, such as `faulthandler`."""

    def dump_traceback_later(self, timeout: float) -> None:
        """Write the stacks after so many seconds; replaces an earlier timer."""
        ...

    def cancel_dump_traceback_later(self) -> None:
        """Cancel the timer."""
        ...


class RunWatch:
    """Watchdog of one run, from its order on. `look` is called from one thread, the other methods from any."""

    def __init__(self, stalled_ms: int, end_ms: int, now_s: float, stacks: Stacks | None = None) -> None:
        """`stalled_ms`: time without progress after which the worker shows the run as stalled; `end_ms`: after which it
        ends the run.
        """
        self._stalled_s = stalled_ms / 1000
        self._end_s = end_ms / 1000
        self.interval_s = min(_LOOK_S_MAX, max(_LOOK_S_MIN, min(self._stalled_s, self._end_s) / 4))
        self._stacks: Stacks = stacks or faulthandler
        self._lock = threading.Lock()
        self._silent_s = 0.0
        self._shown = False
        self._stopping = False
        self._moves = progress_ticks.moves()
        self._checked_s = now_s
        self._later(min(self._stalled_s, self._end_s) - self.interval_s / 2)

    def wait_s(self, now_s: float) -> float:
        """Time until the next check."""
        return max(0.0, self._checked_s + self.interval_s - now_s)

    def look(self, now_s: float) -> int:
        """Time without progress of the loop in ms; 0 = it has moved since the last check."""
        moves = progress_ticks.moves()
        if moves != self._moves:
            self._moves, self._silent_s, self._shown = moves, 0.0, False
            self._later(min(self._stalled_s, self._end_s) - self.interval_s / 2)
        else:
            self._silent_s += min(now_s - self._checked_s, 2 * self.interval_s)
            if self._silent_s >= self._stalled_s and not self._shown:
                self._shown = True
                _log.warning("run_stalled", silent_ms=int(self._silent_s * 1000))
                if self._end_s - _BEFORE_END_S > self._silent_s:
                    self._later(self._end_s - _BEFORE_END_S - self._silent_s)
        self._checked_s = now_s
        return int(self._silent_s * 1000)

    def on_stop_command(self) -> None:
        """Start the timer for a stop command: the stacks of a run that does not react are logged before the worker
        kills it.
        """
        with self._lock:
            self._stopping = True
            self._stacks.dump_traceback_later(STUCK_S)

    def over(self) -> None:
        """Cancel the timer: the loop has ended."""
        with self._lock:
            self._stopping = True
            self._stacks.cancel_dump_traceback_later()

    def _later(self, timeout_s: float) -> None:
        with self._lock:
            if not self._stopping:
                self._stacks.dump_traceback_later(timeout_s)
