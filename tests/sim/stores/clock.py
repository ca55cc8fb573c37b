"""An event loop in virtual time: nothing ever sleeps, and two runs of one story are the same.

Owns the loop and the clock. When nothing is ready to run, the clock jumps to the next timer. Futures and tasks are
numbered, so that sets of them iterate in the order of their creation and not by address.

Invariant: a loop with no timer and nothing ready is a deadlock of the story, and raises.
"""

from __future__ import annotations

import asyncio
import itertools
import selectors
from collections.abc import Callable, Coroutine
from contextvars import Context
from typing import Any, Self, TypeVar

ResultT = TypeVar("ResultT")
_T = TypeVar("_T")


class Deadlock(Exception):
    """Nothing is ready and no timer is set."""


class _JumpingSelector(selectors.DefaultSelector):
    """Moves the clock instead of waiting."""

    now_s = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            raise Deadlock
        if timeout > 0:
            self.now_s += timeout
        return []  # no socket takes part in a story


class _Future(asyncio.Future[_T]):
    number: int

    def __new__(cls, *, loop: asyncio.AbstractEventLoop | None = None) -> Self:
        assert isinstance(loop, VirtualLoop)
        future = super().__new__(cls)
        future.number = loop.next_number()
        return future

    def __hash__(self) -> int:
        return self.number


class _Task(asyncio.Task[_T]):
    number: int

    def __new__(
        cls,
        coro: Any,
        *,
        loop: asyncio.AbstractEventLoop | None = None,
        name: str | None = None,
        context: Context | None = None,
    ) -> Self:
        assert isinstance(loop, VirtualLoop)
        task = super().__new__(cls)
        task.number = loop.next_number()
        return task

    def __hash__(self) -> int:
        return self.number


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop whose `time()` is the story's."""

    def __init__(self) -> None:
        self._jumping = _JumpingSelector()
        super().__init__(self._jumping)
        self._numbers = itertools.count(1)

    def time(self) -> float:
        return self._jumping.now_s

    def next_number(self) -> int:
        return next(self._numbers)

    def create_future(self) -> asyncio.Future[Any]:
        return _Future[Any](loop=self)

    def create_task(self, coro: Any, *, name: object = None, context: Context | None = None) -> asyncio.Task[Any]:
        return _Task[Any](coro, loop=self, name=None if name is None else str(name), context=context)


async def pause(seconds: float) -> None:
    """Let time pass in the story; outside it, none does."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop), "this time is a story's"
    passed = loop.create_future()
    timer = loop.call_later(seconds, _let_go, passed)
    try:
        await passed
    finally:
        timer.cancel()


def _let_go(passed: asyncio.Future[None]) -> None:
    if not passed.done():
        passed.set_result(None)


def run(main: Callable[[], Coroutine[Any, Any, ResultT]]) -> ResultT:
    """`asyncio.run` in virtual time."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(main())
