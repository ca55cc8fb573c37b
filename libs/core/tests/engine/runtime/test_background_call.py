"""A question asked ahead: its answer, its error, and who waits for whom."""

from __future__ import annotations

import threading

import pytest
from structlog.contextvars import bound_contextvars, get_contextvars

from herdmesh.engine.runtime.background_call import BackgroundCall


def test_the_answer_comes_while_the_caller_does_something_else() -> None:
    asked, go_on = threading.Event(), threading.Event()

    def ask() -> int:
        asked.set()
        assert go_on.wait(10)
        return 7

    with BackgroundCall(ask) as answer:
        assert asked.wait(10), "it is asked in a thread of its own"
        go_on.set()
        assert answer.result() == 7


def test_it_logs_as_its_caller() -> None:
    with bound_contextvars(unit="[c|task-0|offsets]"), BackgroundCall(get_contextvars) as answer:
        assert answer.result() == {"unit": "[c|task-0|offsets]"}


def test_an_error_is_raised_where_the_answer_is_wanted_and_nowhere_else() -> None:
    def ask() -> int:
        raise OSError("away")

    with BackgroundCall(ask) as answer, pytest.raises(OSError, match="away"):
        answer.result()
    with BackgroundCall(ask):
        pass


def test_the_block_is_left_when_the_question_is_over() -> None:
    """A client is closed after it: not under a call that still uses it."""
    go_on, over = threading.Event(), threading.Event()

    def ask() -> None:
        assert go_on.wait(10)
        over.set()

    def fail_meanwhile() -> None:
        with BackgroundCall(ask):
            go_on.set()
            raise KeyError

    with pytest.raises(KeyError):
        fail_meanwhile()
    assert over.is_set()
