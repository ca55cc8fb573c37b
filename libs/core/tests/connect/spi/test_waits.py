"""Waits in progress as shown to an operator: which wait, since when, and its end."""

from __future__ import annotations

from typing import Any

import pytest

from herdmesh.connect.errors import RetriableError
from herdmesh.connect.spi import waits
from herdmesh.connect.spi.waits import Standing, Wait, Waits, entered


class Clock:
    now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def test_a_wait_is_shown_after_five_seconds_and_not_after_its_end() -> None:
    clock = Clock()
    found = Waits(clock)
    with found.on("PostgreSQL db:5432", "COPY into orders"):
        clock.now_s += 4.9
        assert found.shown() is None
        clock.now_s += 0.2
        shown = found.shown()
        assert shown is not None
        assert (shown.waits_for, shown.message, shown.tries) == ("PostgreSQL db:5432", "COPY into orders", 0)
        assert found.shown() == shown, "the same each time, or every look would be a change"
    assert found.shown() is None


def test_a_retry_counts_its_tries_and_names_the_call_within_it() -> None:
    clock = Clock()
    found = Waits(clock)
    standing = Standing(found)
    for _ in range(3):
        standing.goes_on("PostgreSQL db:5432", "connection refused", tried=True, next_try_s=2.0)
        clock.now_s += 2.0
    shown = found.shown()
    assert shown is not None
    assert (shown.tries, shown.message) == (3, "connection refused")
    assert shown.next_ms > 0
    with found.on("PostgreSQL db:5432", "connecting"):
        clock.now_s += 5.0
        within = found.shown()
        assert within is not None
        assert (within.message, within.tries, within.since_ms) == ("connecting", 3, shown.since_ms)
    standing.over()
    standing.over()
    assert found.shown() is None


def test_a_retry_counts_from_the_start_of_the_failed_call() -> None:
    clock = Clock()
    found = Waits(clock)
    standing = Standing(found)

    def lock() -> None:
        with found.on("PostgreSQL db:5432", "rows"):
            clock.now_s += 1.0
            with found.on("PostgreSQL db:5432", "a lock"):
                clock.now_s += 3.0
                raise RetriableError("lock timeout")

    with pytest.raises(RetriableError):
        lock()
    standing.goes_on("PostgreSQL db:5432", "lock timeout", tried=True, next_try_s=2.0)
    clock.now_s += 1.1
    shown = found.shown()
    assert shown is not None
    assert (shown.message, shown.tries) == ("lock timeout", 1)
    standing.over()
    standing.goes_on("a target", "no room")
    assert found.shown() is None, "what went well in between is another wait"
    clock.now_s += 4.0
    assert found.shown() is None


def test_each_context_has_its_own_waits() -> None:
    mine = Waits()
    with entered(mine):
        assert waits.current() is mine
    assert waits.current() is not mine


def test_the_text_of_a_wait_is_one_line_with_tries_and_next_try() -> None:
    wait = Wait("PostgreSQL db:5432", "connection refused", 1_790_000_000_000, 7, 1_790_000_005_000)
    assert wait.text() == "waits for PostgreSQL db:5432: connection refused (7 tries, next at 2026-09-21T14:13:25Z)"
    assert Wait("a run slot").text() == "waits for a run slot"
    assert waits.one_line("a\nb\udcff" + "x" * 1000).startswith("a b\\udcffx")
    assert len(waits.one_line("x" * 1000)) == 400


def test_a_retriable_error_names_its_wait() -> None:
    error = RetriableError("no room", waits_for="PostgreSQL db:5432", next_try_s=1.0, tried=False)
    assert (str(error), error.waits_for, error.next_try_s, error.tried) == ("no room", "PostgreSQL db:5432", 1.0, False)


@pytest.mark.parametrize("odd", [5, None, b"bytes", {"a": 1}, "\ud83d\0\n", "x" * 10_000_000], ids=range(6))
@pytest.mark.parametrize("next_try_s", ["soon", -1.0, float("inf"), float("nan"), 1e300, None])
def test_an_invalid_text_or_time_of_an_author_is_shown_and_never_raises(odd: Any, next_try_s: Any) -> None:
    """An author supplies it; the thread that shows it would not be started again after an error."""
    clock = Clock()
    found = Waits(clock)
    standing = Standing(found)
    standing.goes_on(odd, odd, tried=odd, next_try_s=next_try_s)
    clock.now_s += 6.0
    shown = found.shown()
    assert shown is not None
    assert (type(shown.waits_for), type(shown.message)) == (str, str)
    assert len(shown.text().encode()) < 2_000
    assert shown.next_ms == 0
    with found.on(odd, odd, next_try_s=next_try_s):
        pass
