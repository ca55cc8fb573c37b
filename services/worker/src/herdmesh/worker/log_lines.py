"""Log lines of a worker and its runs, kept for `herd logs`.

Owns the copying of a stream's text into lines, the queue of a run's lines until its stream takes them, and the worker's
memory of the latest lines of each unit. The logs themselves are written as before: these are copies, and the worker's
own log has what is no longer kept.

Invariants: every bound below holds whatever a plugin prints; a chatty unit displaces only its own lines, except that
the units that have been silent for longest are forgotten when all together exceed `TOTAL_BYTES_MAX`; copying blocks
nobody for longer than appending to a list takes.
"""

from __future__ import annotations

import contextlib
import json
import logging
import re
import sys
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Generator, Iterable
from dataclasses import dataclass, field
from heapq import merge
from itertools import takewhile
from typing import Any, Final, NamedTuple, cast

from herdmesh.session.model import UnitId

LINE_CHARS_MAX: Final = 8_192
UNIT_BYTES_MAX: Final = 256 * 1024
OWN_BYTES_MAX: Final = 1024 * 1024
TOTAL_BYTES_MAX: Final = 16 * 1024 * 1024
QUEUED_LINES_MAX: Final = 500
LINE_OVERHEAD_BYTES: Final = 160
"""Memory of a kept line beside its text: the tuple, its two numbers, its place in the queue."""
_UNIT: Final = re.compile(r"\[(?P<connector>.*)\|(?:worker|task-(?P<task>\d+))(?:\|offsets)?\]")


class KeptLine(NamedTuple):
    """One line: its number in the worker, its time, its unit (None = the worker itself), and its text."""

    number: int
    time_ms: int
    unit: UnitId | None
    text: str


class CopiedStream:
    """A text stream whose complete lines are copied."""

    def __init__(self, stream: Any, copy: Callable[[str], None]) -> None:
        self._stream = stream
        self._copy = copy
        self._begun = ""

    def write(self, text: str) -> int:
        """Write to the stream, and copy the lines that are complete now."""
        self._stream.write(text)
        *lines, rest = (self._begun + text).split("\n")
        self._begun = rest[:LINE_CHARS_MAX]
        for line in lines:
            if line.strip():
                self._copy(cut(line))
        return len(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


@contextlib.contextmanager
def copied_handlers(handlers: Iterable[Any], copy: Callable[[str], None]) -> Generator[None]:
    """Copy the lines that these handlers of loggers write, inside this context; handlers without a stream are left."""
    streams: list[tuple[Any, Any]] = [(one, one.stream) for one in handlers if hasattr(one, "stream")]
    for one, stream in streams:
        one.stream = CopiedStream(stream, copy)
    try:
        yield
    finally:
        for one, stream in streams:
            one.stream = stream


def cut(line: str) -> str:
    """The line, not longer than `LINE_CHARS_MAX` and a note."""
    if len(line) <= LINE_CHARS_MAX:
        return line
    return f"{line[:LINE_CHARS_MAX]} ... ({len(line) - LINE_CHARS_MAX} characters left out)"


class LineQueue:
    """Lines of a run that its stream has not taken yet; of too many the earliest are left out and counted."""

    def __init__(self, changed: Callable[[], None]) -> None:
        """`changed` is called, in the writing thread, when the queue was empty and is not any more."""
        self._lines: deque[tuple[int, str]] = deque()
        self._omitted = 0
        self._lock = threading.Lock()
        self._changed = changed

    def add(self, text: str) -> None:
        """Append a line."""
        with self._lock:
            self._lines.append((time.time_ns() // 1_000_000, text))
            if len(self._lines) > QUEUED_LINES_MAX:
                self._lines.popleft()
                self._omitted += 1
            is_first = len(self._lines) == 1
        if is_first:
            self._changed()

    def take(self) -> tuple[list[tuple[int, str]], int]:
        """All lines as (time in ms, text), and the number of those left out before them; empties the queue."""
        with self._lock:
            lines, omitted = list(self._lines), self._omitted
            self._lines.clear()
            self._omitted = 0
        return lines, omitted

    def __bool__(self) -> bool:
        return bool(self._lines)


def memory_of(line: KeptLine) -> int:
    """Bytes of memory that a line takes: short lines and letters beyond Latin-1 take several times their characters."""
    return sys.getsizeof(line.text) + LINE_OVERHEAD_BYTES


@dataclass(slots=True)
class _Kept:
    """The latest lines of one unit."""

    bytes_max: int
    lines: deque[KeptLine] = field(default_factory=deque[KeptLine])
    size: int = 0
    cut: bool = False

    def add(self, line: KeptLine) -> int:
        """Append, and drop the oldest lines; returns by how much the size changed."""
        before = self.size
        self.lines.append(line)
        self.size += memory_of(line)
        while self.size > self.bytes_max and len(self.lines) > 1:
            self.size -= memory_of(self.lines.popleft())
            self.cut = True
        return self.size - before

    def after(self, number: int) -> list[KeptLine]:
        """The lines after a number, in order. Costs what it returns: `herd logs -f` requests it every second."""
        found = list(takewhile(lambda one: one.number > number, reversed(self.lines)))
        found.reverse()
        return found


class LinePage(NamedTuple):
    """Lines in order; whether more follow; whether earlier lines of the selection are left out; the number after which
    the next page begins.
    """

    lines: list[KeptLine]
    more: bool
    cut: bool
    last_number: int


class RecentLines:
    """The latest lines of a worker and its runs. Lines are added and read from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: OrderedDict[UnitId | None, _Kept] = OrderedDict()
        self._size = 0
        self.last_number = 0

    def add_own(self, text: str) -> None:
        """Add a line of the worker's own log; a line about a unit belongs to that unit."""
        self._add([(time.time_ns() // 1_000_000, text)], _unit_of(text))

    def add_run(self, unit: UnitId, lines: Iterable[tuple[int, str]], omitted: int = 0) -> None:
        """Add lines of a run, as (time in ms, text)."""
        found = [(time_ms, cut(text)) for time_ms, text in lines]
        if omitted and found:
            found.insert(0, (found[0][0], f"[herdmesh] {omitted} lines were left out here: too many at once"))
        self._add(found, unit)

    def _add(self, lines: Iterable[tuple[int, str]], unit: UnitId | None) -> None:
        with self._lock:
            kept = self._kept.get(unit)
            if kept is None:
                kept = self._kept[unit] = _Kept(OWN_BYTES_MAX if unit is None else UNIT_BYTES_MAX)
            self._kept.move_to_end(unit)
            for time_ms, text in lines:
                self.last_number += 1
                self._size += kept.add(KeptLine(self.last_number, time_ms, unit, text))
            while self._size > TOTAL_BYTES_MAX and len(self._kept) > 1:
                self._size -= self._kept.popitem(last=False)[1].size

    def page(
        self, connector: str, task: int | None, *, since_ms: int = 0, after_number: int = 0, size: int = 200
    ) -> LinePage:
        """A page of the lines of a connector (empty = all lines) or of one task: after a number the earliest, else the
        latest.
        """
        with self._lock:
            chosen = [kept for unit, kept in self._kept.items() if _selects(unit, connector, task)]
            found = [one for one in merge(*(kept.after(after_number) for kept in chosen)) if one.time_ms >= since_ms]
            cut_off, last = any(kept.cut for kept in chosen), max(self.last_number, after_number)
        if after_number and len(found) > size:
            return LinePage(found[:size], more=True, cut=cut_off, last_number=found[size - 1].number)
        return LinePage(found[-size:], more=False, cut=cut_off or len(found) > size, last_number=last)

    @contextlib.contextmanager
    def copying_log(self) -> Generator[None]:
        """Copy everything that this process' root loggers write, inside this context."""
        with copied_handlers(logging.getLogger().handlers, self.add_own):
            yield


def _selects(unit: UnitId | None, connector: str, task: int | None) -> bool:
    if not connector:
        return True
    return unit is not None and unit.connector == connector and (task is None or unit.task == task)


def _unit_of(text: str) -> UnitId | None:
    """The unit that a JSON log line names, in the form of `UnitId.log_context`."""
    if '"unit"' not in text:
        return None
    try:
        line: Any = json.loads(text)
    except ValueError:
        return None
    fields = cast("dict[str, Any]", line) if isinstance(line, dict) else {}
    named = _UNIT.fullmatch(str(fields.get("unit", "")))
    if named is None:
        return None
    return UnitId(named["connector"], int(named["task"]) if named["task"] else None)
