"""Ctrl-C, SIGTERM and a closed terminal, of commands that stop processes in order: the first signal requests the stop,
a second one ends it at once.

Owns the signal handlers of the process. What ends at once is the command's.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable
from typing import Any, Final

#: Wrappers such as timeout and make send a signal twice; within this time both count as one.
_DOUBLED_S: Final = 0.5


def stop_on_signals(on_second: Callable[[], None]) -> asyncio.Event:
    """An event that the first SIGINT, SIGTERM or SIGHUP sets; a later one calls `on_second` on the event loop. Under
    `nohup`, SIGHUP stays ignored.
    """
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    first_s = 0.0

    def on_signal() -> None:
        nonlocal first_s
        if not stop.is_set():
            first_s = loop.time()
            stop.set()
        elif loop.time() - first_s > _DOUBLED_S:
            on_second()

    ignored = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    for number in (signal.SIGINT, signal.SIGTERM, *(() if ignored else (signal.SIGHUP,))):
        loop.add_signal_handler(number, on_signal)
    return stop


async def end_or_signal(task: asyncio.Task[Any], signal_came: asyncio.Event) -> bool:
    """Wait until the task is done or the event is set; True when the task is done."""
    on_event = asyncio.create_task(signal_came.wait())
    try:
        await asyncio.wait({task, on_event}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        on_event.cancel()
    return task.done()
