"""Pacing of a connector in a process of its own that requests new task configs in a loop."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from herdmesh.worker.plugin_requests import PAUSE_S, FirstError, PacedRequests


class Clock:
    """Time, and the due timers."""

    def __init__(self) -> None:
        self.now_s = 100.0
        self._due: list[tuple[float, Callable[[], None]]] = []

    def later(self, wait_s: float, call: Callable[[], None]) -> None:
        self._due.append((self.now_s + wait_s, call))

    def advance(self, seconds: float) -> None:
        self.now_s += seconds
        due, self._due = self._due, []
        for at_s, call in due:
            if at_s <= self.now_s:
                call()
            else:
                self._due.append((at_s, call))


@given(st.lists(st.sampled_from([0.0, 0.0, 0.0, 0.001, 0.05, 0.1, 1.0]), max_size=300))
def test_requests_in_a_loop_are_few_and_the_last_is_never_lost(pauses_s: list[float]) -> None:
    clock = Clock()
    sent_s: list[float] = []
    requests = PacedRequests(lambda: sent_s.append(clock.now_s), lambda: clock.now_s, clock.later)
    begun_s = asked_s = clock.now_s
    for pause_s in pauses_s:
        clock.advance(pause_s)
        asked_s = clock.now_s
        requests.request()
    clock.advance(PAUSE_S)
    if pauses_s:
        assert asked_s <= sent_s[-1], "what was asked for last is looked at after it"
    assert len(sent_s) <= len(pauses_s)
    assert len(sent_s) <= 2 + (clock.now_s - begun_s) / PAUSE_S
    assert clock.now_s - begun_s >= (len(sent_s) - 2) * PAUSE_S


def test_a_single_request_is_sent_at_once() -> None:
    clock = Clock()
    sent_s: list[float] = []
    requests = PacedRequests(lambda: sent_s.append(clock.now_s), lambda: clock.now_s, clock.later)
    requests.request()
    clock.advance(60)
    requests.request()
    assert sent_s == [100.0, 160.0]


def test_only_the_first_error_of_an_instance_is_sent() -> None:
    told: list[str] = []
    errors = FirstError(lambda error: told.append(str(error)))
    for number in range(1_000):
        errors.raised(ValueError(f"{number}"))
    assert told == ["0"]


@pytest.mark.parametrize(("raised", "says"), [
    (None, "raise_error was given None (NoneType): give it an exception"),
    ("gone", "raise_error was given 'gone' (str): give it an exception"),
    (SystemExit(3), "SystemExit: 3"),
    (ValueError("gone"), "gone"),
])  # fmt: skip
def test_raise_error_with_a_non_exception_still_fails_the_instance(raised: Any, says: str) -> None:
    sent: list[Exception] = []
    FirstError(sent.append).raised(raised)
    assert [str(one) for one in sent] == [says]
