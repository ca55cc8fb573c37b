"""A call in a background thread: its result, its error, and the wait at the end of its block."""

from __future__ import annotations

import threading

import pytest
from structlog.contextvars import bound_contextvars, get_contextvars

from herdmesh.engine.runtime.background_call import BackgroundCall


def test_the_call_runs_while_the_caller_does_something_else() -> None:
    asked, go_on = threading.Event(), threading.Event()

    def ask() -> int:
        asked.set()
        assert go_on.wait(10)
        return 7

    with BackgroundCall(ask) as answer:
        assert asked.wait(10), "it is asked in a thread of its own"
        go_on.set()
        assert answer.result() == 7


def test_the_call_logs_with_the_context_of_its_caller() -> None:
    with bound_contextvars(unit="[c|task-0|offsets]"), BackgroundCall(get_contextvars) as answer:
        assert answer.result() == {"unit": "[c|task-0|offsets]"}


def test_an_error_is_raised_only_when_the_result_is_read() -> None:
    def ask() -> int:
        raise OSError("away")

    with BackgroundCall(ask) as answer, pytest.raises(OSError, match="away"):
        answer.result()
    with BackgroundCall(ask):
        pass


def test_leaving_the_block_waits_for_the_call() -> None:
    """A client is closed after the block, not under a call that still uses it."""
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
