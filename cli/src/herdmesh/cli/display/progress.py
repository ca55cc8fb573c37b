"""Progress of work on many connectors: one line on standard error that is written over, where that is a terminal.

Owns the line. In a pipe and for programs there is none: the results, printed one by one, are the progress. Invariant: a
caller clears the line before anything else is printed, so that no text is mixed with it.
"""

from __future__ import annotations

import time

from herdmesh.cli.display.output import OutputConsole, err

_WIDTH = 24
_PAUSE_S = 0.05
_CLEAR = "\r\x1b[K"


class ProgressLine:
    """Bar of one piece of work. `total` items; nothing is shown for fewer than two."""

    def __init__(self, total: int, console: OutputConsole = err, *, is_shown: bool = True) -> None:
        self._total = total
        self._console = console
        self._shows = console.is_terminal and total > 1 and is_shown
        self._next_s = 0.0
        self._is_drawn = False

    def show(self, verb: str, done: int) -> None:
        """Draw `done` of all items, for example `applied 12 of 50`; at most twenty times a second."""
        now_s = time.monotonic()
        if not self._shows or now_s < self._next_s:
            return
        self._next_s = now_s + _PAUSE_S
        filled = _WIDTH * done // self._total
        bar = "#" * filled + "-" * (_WIDTH - filled)
        self._write(f"{_CLEAR}[{bar}] {verb} {done} of {self._total}")
        self._is_drawn = True

    def clear(self) -> None:
        """Remove the line, before other text."""
        if self._is_drawn:
            self._write(_CLEAR)
            self._is_drawn = False
            self._next_s = 0.0

    def _write(self, text: str) -> None:
        self._console.file.write(text)
        self._console.file.flush()
