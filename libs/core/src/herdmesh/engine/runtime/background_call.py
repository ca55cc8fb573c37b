"""Background call to Kafka: a thread asks while the caller does something else.

Owns the thread and the answer. Invariants: an error is raised where the answer is wanted, and nowhere else; leaving the
block waits for the question to end, because a client must not be closed under it.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, wait
from contextvars import copy_context
from threading import Thread
from typing import Generic, TypeVar

T = TypeVar("T")


class BackgroundCall(Generic[T]):
    """Begins to ask when the block is entered."""

    def __init__(self, ask: Callable[[], T]) -> None:
        self._ask = ask
        self._answer: Future[T] = Future()

    def __enter__(self) -> BackgroundCall[T]:
        Thread(target=copy_context().run, args=(self._body,), name="ahead", daemon=True).start()  # logs as the caller
        return self

    def __exit__(self, *_: object) -> None:
        wait([self._answer])  # waits: the question says what for, where it is asked

    def result(self) -> T:
        """The answer, waited for. Raises what the question raised."""
        return self._answer.result()

    def _body(self) -> None:
        try:
            self._answer.set_result(self._ask())
        except BaseException as error:  # noqa: BLE001 - raised again by `result`
            self._answer.set_exception(error)
