"""Threads for blocking calls off the event loop, which cannot prevent the process from ending.

Owns nothing but the hand-over. `asyncio.to_thread` is not used: its threads are joined when the process ends, so an
author's code that never returns would prevent a worker from ever stopping.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import TypeVar

from herdmesh.engine.runtime import as_exceptions

T = TypeVar("T")


async def in_thread(name: str, call: Callable[[], T]) -> T:
    """Run `call` in a daemon thread of its own and await its result; its exceptions are raised here.

    Cancelling stops the waiting, not the call.
    """
    loop = asyncio.get_running_loop()
    done: asyncio.Future[T] = loop.create_future()

    def settle(result: T | None, error: Exception | None) -> None:
        if done.cancelled():
            return
        if error is not None:
            done.set_exception(error)
        else:
            done.set_result(result)  # pyright: ignore[reportArgumentType] - a result of None is a T here

    def body() -> None:
        result: T | None = None
        caught: Exception | None = None
        try:
            with as_exceptions():  # a SystemExit would end the event loop that awaits it
                result = call()
        except Exception as error:  # noqa: BLE001 - raised again in the awaiting task
            caught = error
        try:
            loop.call_soon_threadsafe(settle, result, caught)
        except RuntimeError:
            # The loop is closed: nobody waits any more.
            return

    threading.Thread(target=body, name=name, daemon=True).start()
    return await done
