"""Wait reasons of tasks and connectors: every wait of more than a few seconds has a reason that operators can see.

Owns the registry of current waits, and the text of the wait that is shown. Neither ends a wait nor retries: the waiting
code registers here and waits by itself. Three ways to register:

- `with waits.on("PostgreSQL db:5432", "COPY into orders"):` around a call that may not return, or a pause.
- `standing = waits.Standing()`, then `standing.goes_on(...)` while a state lasts over several calls (a table that is
  missing, a target that refuses batch after batch), and `standing.over()`.
- `raise RetriableError(why, waits_for="PostgreSQL db:5432")`: the engine retries, and registers the rest.

A wait that lasts longer than `SHOWN_AFTER_S` is shown: as condition WAITING of the status, by the worker's metrics and
by `herd`. A process executes one run at a time, so that the waits of a run belong to the process. The waits of a
connector belong to its context (`entered`), because a worker has many connectors: a thread that a connector starts
enters `ConnectorContext.waits` first.

Invariant: nothing here blocks or raises, whatever thread calls; a finished wait is never shown again; entering and
leaving one costs a few hundred nanoseconds, and happens once for a batch or a call, never for a record.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import count
from types import TracebackType
from typing import Final, cast

WAITING: Final = "WAITING"
"""Type of the condition."""
RUN_SLOT: Final = "a run slot"
"""Wait reason of a task that has work while all slots of its worker are taken."""
SHOWN_AFTER_S: Final = 5.0
"""Seconds after which a wait is shown."""
_TEXT_MAX: Final = 400
_NEXT_MAX_S: Final = 10 * 365 * 86_400.0
"""Longest delay, in seconds, until a next attempt that is shown; a later one has no time that can be formatted."""
_AFTER_FAILURE_S: Final = 0.5
"""Seconds after a failed call within which a new wait counts as the same wait."""
_keys = count(1)


@dataclass(frozen=True, slots=True)
class Wait:
    """One wait as operators see it. Times are epoch milliseconds, 0 = not known."""

    waits_for: str
    """The thing waited for: `PostgreSQL 127.0.0.1:5432`, `a run slot`."""
    message: str = ""
    """The current action, or the result of the last attempt; one line, may be empty."""
    since_ms: int = 0
    tries: int = 0
    """Failed attempts so far; 0 = the wait is no retry."""
    next_ms: int = 0
    """Time of the next attempt."""

    def text(self) -> str:
        """One line for an operator: "waits for PostgreSQL 127.0.0.1:5432: connection refused (7 tries, next at
        2026-11-28T03:00:05Z)".
        """
        said = f": {self.message}" if self.message else ""
        notes: list[str] = []
        if self.tries:
            notes.append(f"{self.tries} {'try' if self.tries == 1 else 'tries'}")
        if self.next_ms:
            notes.append(f"next at {_moment(self.next_ms)}")
        return f"waits for {self.waits_for}{said}" + (f" ({', '.join(notes)})" if notes else "")


class _Entry:
    """One current wait. The waiting thread writes the fields, the reporting thread reads them."""

    __slots__ = ("message", "next_ms", "since_ms", "since_s", "thread", "tries", "waits_for")

    def __init__(self, waits_for: str, message: str, since_s: float) -> None:
        self.waits_for, self.message, self.since_s = waits_for, message, since_s
        self.since_ms = _now_ms()
        self.tries, self.next_ms = 0, 0
        self.thread = threading.get_ident()


class Waits:
    """The waits of one run, or of one connector instance. Used from any thread."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._entries: dict[int, _Entry] = {}
        #: The last call that raised, and when it raised: a wait that follows counts from the start of that call.
        self._raised: tuple[_Entry, float] | None = None
        self._elsewhere: Wait | None = None

    def on(self, waits_for: str, message: str = "", *, next_try_s: float | None = None) -> On:
        """See `on` of this module."""
        return On(self, waits_for, message, next_try_s)

    def unless_named(self, waits_for: str, message: str) -> AbstractContextManager[None]:
        """See `unless_named` of this module."""
        here = threading.get_ident()
        is_named = any(one.thread == here for one in list(self._entries.values()))
        return nullcontext() if is_named else self.on(waits_for, message)

    def clear(self) -> None:
        """Remove all waits, because another run begins."""
        self._entries.clear()
        self._raised = None

    def shown(self) -> Wait | None:
        """The wait that has lasted longest, if it has lasted long enough to be shown.

        When the same thread has also waited long enough for something else within it (the call of the next attempt),
        the result has the inner wait's reason and the outer wait's start.
        """
        if self._elsewhere is not None:
            return self._elsewhere
        now_s = self._clock()
        found = [one for one in list(self._entries.values()) if now_s - one.since_s >= SHOWN_AFTER_S]
        if not found:
            return None
        outer = min(found, key=lambda one: one.since_s)
        inner = max((one for one in found if one.thread == outer.thread), key=lambda one: one.since_s)
        return Wait(
            one_line(inner.waits_for),
            one_line(inner.message),
            outer.since_ms,
            inner.tries or outer.tries,
            inner.next_ms,
        )

    def show_remote_wait(self, wait: Wait | None) -> None:
        """Show this wait of the other process that executes the code; None = that process waits for nothing."""
        self._elsewhere = wait

    def begin(self, waits_for: str, message: str, *, after_failure: bool = False) -> tuple[int, _Entry]:
        """Register a wait that begins now. With `after_failure`, when a call of the same thread has just raised, the
        wait begins with that call: an attempt of 5 s to get a lock counts from its first second.
        """
        now_s = self._clock()
        key, entry = next(_keys), _Entry(waits_for, message, now_s)
        if after_failure and self._raised is not None:
            failed, at_s = self._raised
            if failed.thread == entry.thread and now_s - at_s < _AFTER_FAILURE_S:
                entry.since_s, entry.since_ms = failed.since_s, failed.since_ms
        self._entries[key] = entry
        return key, entry

    def end(self, key: int, *, raised: bool = False) -> None:
        """End a wait; a second call has no effect. `raised`: the wait failed."""
        entry = self._entries.pop(key, None)
        if not raised or entry is None:
            self._raised = None
            return
        before, now_s = self._raised, self._clock()
        # When an inner and an outer call raise, the outer one began earlier.
        if before is None or before[0].since_s > entry.since_s or now_s - before[1] >= _AFTER_FAILURE_S:
            self._raised = entry, now_s


class On:
    """A wait that lasts as long as a `with` block. Used once."""

    __slots__ = ("_key", "_message", "_next_try_s", "_waits", "_waits_for")

    def __init__(self, waits: Waits, waits_for: str, message: str, next_try_s: float | None) -> None:
        self._waits, self._waits_for, self._message, self._next_try_s = waits, waits_for, message, next_try_s
        self._key = 0

    def __enter__(self) -> None:
        self._key, entry = self._waits.begin(self._waits_for, self._message)
        if self._next_try_s is not None:
            entry.next_ms = _at_ms(self._next_try_s)

    def __exit__(
        self, _type: type[BaseException] | None, _error: BaseException | None, _: TracebackType | None
    ) -> None:
        self._waits.end(self._key, raised=_type is not None)


class Standing:
    """Wait for a state that lasts over several calls. Used from one thread at a time."""

    def __init__(self, waits: Waits | None = None) -> None:
        """`waits`: the registry to use; None = that of the current run or connector."""
        self._of = waits
        self._waits: Waits | None = None
        self._key = 0
        self._entry: _Entry | None = None

    def goes_on(
        self, waits_for: str, message: str = "", *, tried: bool = False, next_try_s: float | None = None
    ) -> None:
        """Register or update the wait, which began with the first call after `over`. `tried`: one more attempt
        failed."""
        if self._waits is None or self._entry is None:
            self._waits = self._of or current()
            self._key, self._entry = self._waits.begin(waits_for, message, after_failure=True)
        entry = self._entry
        entry.waits_for, entry.message, entry.thread = waits_for, message, threading.get_ident()
        entry.tries += bool(tried)
        entry.next_ms = _at_ms(next_try_s)

    def over(self) -> None:
        """End the wait; no effect when none is registered."""
        if self._waits is not None:
            self._waits.end(self._key)
            self._waits = self._entry = None

    @property
    def begun(self) -> bool:
        """True from `goes_on` to `over`."""
        return self._entry is not None

    @property
    def tries(self) -> int:
        """Number of failed attempts since the wait began."""
        return 0 if self._entry is None else self._entry.tries

    def __enter__(self) -> Standing:
        return self

    def __exit__(
        self, _type: type[BaseException] | None, _error: BaseException | None, _: TracebackType | None
    ) -> None:
        self.over()


class Absent(str):
    """Change marker of a source whose object is missing: the task stays idle, and its status shows what it waits
    for."""

    __slots__ = ("why",)

    def __new__(cls, waits_for: str, why: str) -> Absent:
        """Create a marker that equals every other marker with the same `waits_for`."""
        made = super().__new__(cls, waits_for)
        made.why = why
        return made

    why: str


_of_process: Final = Waits()
_current: ContextVar[Waits] = ContextVar("herdmesh_waits", default=_of_process)


def current() -> Waits:
    """The waits of the run in this process, or of the connector whose context is entered."""
    return _current.get()


def on(waits_for: str, message: str = "", *, next_try_s: float | None = None) -> On:
    """Register a wait for the duration of a `with` block.

    Args:
        waits_for: the thing waited for, by the name that an operator knows: `PostgreSQL db:5432`.
        message: the current action; one line.
        next_try_s: the block is a pause before the next attempt, which comes after that many seconds.
    """
    return _current.get().on(waits_for, message, next_try_s=next_try_s)


def unless_named(waits_for: str, message: str) -> AbstractContextManager[None]:
    """Register a wait as `on` does, unless the caller has registered one: a function with many callers knows less about
    the reason than they do.
    """
    return _current.get().unless_named(waits_for, message)


@contextmanager
def entered(waits: Waits) -> Generator[None]:
    """Register waits in `waits` within the block, and in calls that run in copies of its context."""
    token = _current.set(waits)
    try:
        yield
    finally:
        _current.reset(token)


def one_line(text: object) -> str:
    """One line of bounded length that can be encoded, from a value of any type, because an author may pass one that is
    no text.
    """
    said = text[: 4 * _TEXT_MAX] if isinstance(text, str) else repr(text)
    line = " ".join(said.split()).encode("utf-8", "backslashreplace").decode()
    return line if len(line) <= _TEXT_MAX else f"{line[: _TEXT_MAX - 3]}..."


def _at_ms(next_try_s: object) -> int:
    """Epoch milliseconds of the moment `next_try_s` from now; 0 for None, and for an author's value that is no
    duration.
    """
    is_time = isinstance(next_try_s, int | float) and 0 <= next_try_s <= _NEXT_MAX_S
    return _now_ms() + int(cast("float", next_try_s) * 1000) if is_time else 0


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _moment(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms // 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
