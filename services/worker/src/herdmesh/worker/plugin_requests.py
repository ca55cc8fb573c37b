"""Pacing of the requests that a started connector sends through its plugin's process.

Owns the pace. An author's code may call in a loop, and each call would be a message to the worker, which would be busy
with one plugin whatever its own limits (`state.reconfigurations`) do with the requests. Invariant: a request is sent at
the latest `PAUSE_S` after it was made; one waiting request stands for all that follow meanwhile.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Final

from herdmesh.connect.spi import checked_error

PAUSE_S: Final = 0.1


def _in_a_moment(wait_s: float, call: Callable[[], None]) -> None:
    timer = threading.Timer(wait_s, call)
    timer.daemon = True
    timer.start()


class PacedRequests:
    """The requests of one instance for new task configs. Thread-safe."""

    def __init__(
        self,
        send: Callable[[], None],
        clock_s: Callable[[], float] = time.monotonic,
        later: Callable[[float, Callable[[], None]], None] = _in_a_moment,
    ) -> None:
        self._send = send
        self._clock_s = clock_s
        self._later = later
        self._lock = threading.Lock()
        self._sent_s: float | None = None
        self._waits = False

    def request(self) -> None:
        """Send the request, now or when the pause since the last one is over. Returns at once."""
        with self._lock:
            if self._waits:
                return
            now_s = self._clock_s()
            wait_s = 0.0 if self._sent_s is None else self._sent_s + PAUSE_S - now_s
            if wait_s > 0:
                self._waits = True
            else:
                self._sent_s = now_s
        if wait_s > 0:
            self._later(wait_s, self._due)
        else:
            self._send()

    def _due(self) -> None:
        with self._lock:
            self._waits, self._sent_s = False, self._clock_s()
        self._send()


class FirstError:
    """The errors of one instance, which fails once: those after the first are discarded."""

    def __init__(self, send: Callable[[Exception], None]) -> None:
        self._send = send
        self._first = threading.Lock()

    def raised(self, error: Exception) -> None:
        """Send the error if it is the first."""
        if self._first.acquire(blocking=False):
            self._send(checked_error(error))
