"""Retries of a task that cannot poll, with pauses, and the next try in its status."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from typing import Any

import pytest

from herdmesh.connect.errors import RetriableError
from herdmesh.connect.spi import waits
from herdmesh.connect.spi.connector import SourceTask
from herdmesh.engine.source.source_poller import FIRST_PAUSE_S, PAUSE_MAX_S, SourcePoller


@dataclass
class Clock:
    now_s: float = 100.0

    def __call__(self) -> float:
        return self.now_s


@dataclass
class Away(SourceTask):
    """A task whose system is unreachable until the test ends the outage."""

    clock: Clock
    error: RetriableError | None
    asked_s: list[float] = field(default_factory=list[float])

    def start(self, config: Any, context: Any) -> None:
        """Do nothing: only polls are tested."""

    def poll(self) -> None:
        self.asked_s.append(round(self.clock.now_s - 100.0, 3))
        if self.error is not None:
            raise self.error

    def stop(self) -> None:
        """Do nothing: only polls are tested."""


@pytest.fixture(autouse=True)
def of_the_test(monkeypatch: pytest.MonkeyPatch) -> waits.Waits:
    """Waits of these tests alone, not those of the whole process."""
    found = waits.Waits(Clock())
    monkeypatch.setattr(waits, "current", lambda: found)
    return found


def asked(error: RetriableError, seconds: float) -> list[float]:
    """Times at which the task was polled within `seconds`, by a loop that polls every 10 ms."""
    clock = Clock()
    task = Away(clock, error)
    polls = SourcePoller(task, "c", clock)

    for _ in range(round(seconds * 100)):
        assert polls.poll() is None
        assert not polls.found_nothing
        clock.now_s += 0.01
    return task.asked_s


class Own(RetriableError):
    """An error as an author may write it: without its base's `__init__`, and with a `str` that raises."""

    def __init__(self) -> None:
        pass

    def __str__(self) -> str:
        raise SystemExit(2)


@pytest.mark.parametrize("error", [RetriableError("away"), Own()], ids=["plain", "own"])
def test_pauses_double_up_to_a_second(error: RetriableError) -> None:
    times = asked(error, 5.0)
    pauses = [later - earlier for earlier, later in itertools.pairwise(times)]
    assert pauses == pytest.approx([FIRST_PAUSE_S, 0.2, 0.4, 0.8, PAUSE_MAX_S, PAUSE_MAX_S, PAUSE_MAX_S], abs=0.02)


def test_a_task_that_names_its_next_try_is_polled_without_pauses() -> None:
    """It pauses by itself, and only it knows what ends its pause."""
    assert len(asked(RetriableError("away", next_try_s=30.0), 1.0)) == 100


def test_after_a_recovery_the_task_is_polled_without_a_pause() -> None:
    clock = Clock()
    task = Away(clock, RetriableError("away"))
    polls = SourcePoller(task, "c", clock)
    for _ in range(300):
        polls.poll()
        clock.now_s += 0.01
    task.error = None
    while not polls.found_nothing:
        polls.poll()
        clock.now_s += 0.01
    begun = len(task.asked_s)
    for _ in range(5):
        polls.poll()
    assert len(task.asked_s) == begun + 5


def test_the_next_try_is_shown_in_the_wait(of_the_test: waits.Waits, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    monkeypatch.setattr(of_the_test, "_clock", clock)
    polls = SourcePoller(Away(clock, RetriableError("away", waits_for="PostgreSQL db:5432/shop")), "c", clock)
    polls.poll()
    clock.now_s += waits.SHOWN_AFTER_S + 0.01
    polls.poll()
    shown = of_the_test.shown()
    assert shown is not None
    assert (shown.waits_for, shown.message, shown.tries) == ("PostgreSQL db:5432/shop", "away", 2)
    assert shown.next_ms > shown.since_ms
