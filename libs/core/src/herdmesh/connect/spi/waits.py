"""Wait reasons of tasks and connectors: every wait of more than a few seconds shows what it is for.

Owns the registry of current waits, and the text of the one that is shown. Owns no clock that ends a wait and no retry:
the waiting code registers here and waits as it does anyway. Three ways to register:

- `with waits.on("PostgreSQL db:5432", "COPY into orders"):` around a call that may not return, or a pause.
- `standing = waits.Standing()`, then `standing.goes_on(...)` while a state lasts over several calls (a table that is
  missing, a target that refuses batch after batch), and `standing.over()`.
- `raise RetriableError(why, waits_for="PostgreSQL db:5432")`: the engine retries, and registers the rest.

A wait that lasts longer than `SHOWN_AFTER_S` is shown: as condition WAITING of the status, by the worker's metrics and
by `herd`. A process executes one run at a time, so its waits are the process's; a connector's are those of its context
(`entered`), because a worker has many connectors: a thread of a connector's own enters `ConnectorContext.waits` first.

Invariant: nothing here blocks or raises, whatever thread calls; a finished wait is never shown again; entering and
leaving one costs a few hundred nanoseconds, and is done for a batch or a call, never for a record.
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
"""The type of the condition."""
SHOWN_AFTER_S: Final = 5.0
"""A wait is shown once it has lasted so long."""
_TEXT_MAX: Final = 400
_NEXT_MAX_S: Final = 10 * 365 * 86_400.0
"""A next try that is later is no time to show."""
_AFTER_FAILURE_S: Final = 0.5
"""A wait that begins within so long of a call that raised is taken to be for the same thing."""
_keys = count(1)


@dataclass(frozen=True, slots=True)
class Wait:
    """One wait as it is shown. Times are epoch milliseconds, 0 = not known."""

    waits_for: str
    """The thing waited for: `PostgreSQL 127.0.0.1:5432`, `a run slot`."""
    message: str = ""
    """The current action, or the result of the last attempt; one line, may be empty."""
    since_ms: int = 0
    tries: int = 0
    """Tries that failed so far; 0 = it is no retry."""
    next_ms: int = 0
    """When it is tried again."""

    def text(self) -> str:
        """In one line for an operator: "waits for PostgreSQL 127.0.0.1:5432: connection refused (7 tries, next at
        2026-11-28T03:00:05Z)"."""
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
        #: the call that raised last, and when: what is then waited for began with it.
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
        """Forget all: another run begins."""
        self._entries.clear()
        self._raised = None

    def shown(self) -> Wait | None:
        """The wait that has lasted longest, if that is long enough to be shown.

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

    def told_elsewhere(self, wait: Wait | None) -> None:
        """Show this wait of another process, in which the code runs; None = it has none."""
        self._elsewhere = wait

    def begin(self, waits_for: str, message: str, *, after_failure: bool = False) -> tuple[int, _Entry]:
        """A wait is under way from now on, or `after_failure` of a call of the same thread that has just raised, since
        that call began: a lock that is tried for 5 s is waited for from the first of them."""
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
        # The outer of two calls, of which the inner one raised, began earlier.
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
    """Something that stays as it is over several calls, until it is over. Used from one thread at a time."""

    def __init__(self, waits: Waits | None = None) -> None:
        """`waits`: where to register; None = with the current run or connector."""
        self._of = waits
        self._waits: Waits | None = None
        self._key = 0
        self._entry: _Entry | None = None

    def goes_on(
        self, waits_for: str, message: str = "", *, tried: bool = False, next_try_s: float | None = None
    ) -> None:
        """It is so, since the first call of this after `over`. `tried`: one more try failed."""
        if self._waits is None or self._entry is None:
            self._waits = self._of or current()
            self._key, self._entry = self._waits.begin(waits_for, message, after_failure=True)
        entry = self._entry
        entry.waits_for, entry.message, entry.thread = waits_for, message, threading.get_ident()
        entry.tries += bool(tried)
        entry.next_ms = _at_ms(next_try_s)

    def over(self) -> None:
        """It is so no more; nothing where it was not."""
        if self._waits is not None:
            self._waits.end(self._key)
            self._waits = self._entry = None

    @property
    def begun(self) -> bool:
        """True from `goes_on` to `over`."""
        return self._entry is not None

    @property
    def tries(self) -> int:
        """That failed, since it began."""
        return 0 if self._entry is None else self._entry.tries

    def __enter__(self) -> Standing:
        return self

    def __exit__(
        self, _type: type[BaseException] | None, _error: BaseException | None, _: TracebackType | None
    ) -> None:
        self.over()


class Absent(str):
    """A source's sign while its object is missing: the task stays idle, and its status says what it waits for."""

    __slots__ = ("why",)

    def __new__(cls, waits_for: str, why: str) -> Absent:
        """Equal to every other that waits for the same."""
        made = super().__new__(cls, waits_for)
        made.why = why
        return made

    why: str


_of_process: Final = Waits()
_current: ContextVar[Waits] = ContextVar("herdmesh_waits", default=_of_process)


def current() -> Waits:
    """The waits of this process's run, or of the connector whose context this is."""
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
    """As `on`, unless the caller has registered a wait: a function with many callers knows less than they do."""
    return _current.get().unless_named(waits_for, message)


@contextmanager
def entered(waits: Waits) -> Generator[None]:
    """Within the block, and in calls with copies of its context, waits are registered in `waits`."""
    token = _current.set(waits)
    try:
        yield
    finally:
        _current.reset(token)


def one_line(text: object) -> str:
    """A line of bounded length that can be encoded, from any value, because an author may pass one that is no text."""
    said = text[: 4 * _TEXT_MAX] if isinstance(text, str) else repr(text)
    line = " ".join(said.split()).encode("utf-8", "backslashreplace").decode()
    return line if len(line) <= _TEXT_MAX else f"{line[: _TEXT_MAX - 3]}..."


def _at_ms(next_try_s: object) -> int:
    """The time that many seconds from now; 0 for None, and for an author's value that is no duration."""
    is_time = isinstance(next_try_s, int | float) and 0 <= next_try_s <= _NEXT_MAX_S
    return _now_ms() + int(cast("float", next_try_s) * 1000) if is_time else 0


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _moment(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms // 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
