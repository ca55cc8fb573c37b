"""Answers kept for retries: a `request_id` seen again gets the first outcome.

Owns a bounded memory of this process. A retry that meets another writer is decided anew, which the put rules make
harmless: what is already stored as asked is APPLIED.

Invariant: while a request is being worked on, a retry waits for it and does not start it again; a request that failed
is forgotten, since its retry must be tried.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeVar

#: Answers can hold traces; a retry comes within seconds.
REMEMBERED_MAX: Final = 2_000

ResultT = TypeVar("ResultT")


class Requests:
    """One per service."""

    def __init__(self, remembered_max: int = REMEMBERED_MAX) -> None:
        self._answers: dict[tuple[str, str], asyncio.Task[Any]] = {}
        self._remembered_max = remembered_max

    async def once(self, method: str, request_id: str, work: Callable[[], Awaitable[ResultT]]) -> ResultT:
        """`await work()`, or what it gave the first time. An empty `request_id` is never remembered."""
        if not request_id:
            return await work()
        key = (method, request_id)
        task = self._answers.get(key)
        if task is None:
            # A task of its own: the caller may leave, its retry must find the outcome all the same.
            task = asyncio.ensure_future(_awaited(work))
            self._answers[key] = task
            task.add_done_callback(lambda done: self._settled(key, done))
            while len(self._answers) > self._remembered_max:
                del self._answers[next(iter(self._answers))]
        return await asyncio.shield(task)

    def _settled(self, key: tuple[str, str], task: asyncio.Task[Any]) -> None:
        if task.cancelled() or task.exception() is not None:
            self._answers.pop(key, None)


async def _awaited(work: Callable[[], Awaitable[ResultT]]) -> ResultT:
    return await work()
