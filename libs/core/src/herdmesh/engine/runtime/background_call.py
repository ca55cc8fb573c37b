"""Background call to Kafka: a thread sends a request while the caller does something else.

Owns the thread and the result. Invariants: an error is raised only where the result is read; leaving the block waits
for the call to end, because a client must not be closed during a call.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, wait
from contextvars import copy_context
from threading import Thread
from typing import Generic, TypeVar

T = TypeVar("T")


class BackgroundCall(Generic[T]):
    """Starts the call when the block is entered."""

    def __init__(self, ask: Callable[[], T]) -> None:
        self._ask = ask
        self._answer: Future[T] = Future()

    def __enter__(self) -> BackgroundCall[T]:
        Thread(
            target=copy_context().run, args=(self._body,), name="ahead", daemon=True
        ).start()  # logs with the caller's context
        return self

    def __exit__(self, *_: object) -> None:
        wait([self._answer])  # waits: the call itself reports its wait

    def result(self) -> T:
        """Wait for the result. Raises the call's exception."""
        return self._answer.result()

    def _body(self) -> None:
        try:
            self._answer.set_result(self._ask())
        except BaseException as error:  # noqa: BLE001 - raised again by `result`
            self._answer.set_exception(error)
