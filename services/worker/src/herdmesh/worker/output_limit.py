"""Output limit for an author's code: a rate, and a line with the amount left out.

Owns the counting, not the stream. Used where the output of plugins goes into the worker's: that of their processes
(`effects.plugins.plugin_processes`) and of runs (`spark.entry`).

Invariant: over any time, no more passes than the burst and the rate for that time, except the lines about omissions;
nothing is left out without such a line.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Any, Final

BURST_BYTES: Final = 256 * 1024
BYTES_PER_SECOND: Final = 32 * 1024
_OWN: Final = "herdmesh"


class OutputLimit:
    """Output limit of one process."""

    def __init__(self, whose: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._whose = whose
        self._clock = clock
        self._left = float(BURST_BYTES)
        self._at_s = clock()
        self._dropped_bytes = self._dropped_lines = 0

    def passed(self, text: str) -> str:
        """The text to write: all of it, after a line about earlier omissions, or nothing."""
        now_s = self._clock()
        self._left = min(BURST_BYTES, self._left + (now_s - self._at_s) * BYTES_PER_SECOND)
        self._at_s = now_s
        needs = len(text) if not self._dropped_bytes else max(len(text), BYTES_PER_SECOND)
        if needs > self._left:
            self._dropped_bytes += len(text)
            self._dropped_lines += text.count("\n")
            return ""
        self._left -= len(text)
        return self.rest() + text

    def rest(self) -> str:
        """The line about omissions, if there are any."""
        if not self._dropped_bytes:
            return ""
        told = (
            f"[herdmesh] {self._dropped_lines} lines ({self._dropped_bytes} characters) that {self._whose} printed "
            f"were discarded: the limit is {BYTES_PER_SECOND // 1024} KiB per second\n"
        )
        self._dropped_bytes = self._dropped_lines = 0
        return told


class LimitedLoggers(logging.Handler):
    """A handler that limits all loggers but Herdmesh's own."""

    def __init__(self, handler: Any, limit: OutputLimit) -> None:
        """`handler` writes to a stream, as `logging.StreamHandler` does."""
        super().__init__()
        self._handler = handler
        self._limit = limit

    def emit(self, record: logging.LogRecord) -> None:
        """Emit through the handler."""
        if record.name.partition(".")[0] == _OWN:
            self._handler.emit(record)
            return
        try:
            if passed := self._limit.passed(self._handler.format(record) + self._handler.terminator):
                self._handler.stream.write(passed)
                self._handler.flush()
        except Exception:  # noqa: BLE001 - as every handler does: an author's record may be unformattable
            self._handler.handleError(record)


class LimitedStream:
    """A text stream with an output limit."""

    def __init__(self, stream: Any, limit: OutputLimit) -> None:
        self._stream = stream
        self._limit = limit

    def write(self, text: str) -> int:
        """Write to the stream."""
        if passed := self._limit.passed(text):
            self._stream.write(passed)
        return len(text)

    def writelines(self, lines: Any) -> None:
        """Write to the stream."""
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)
