"""Waits for a state of a connector in a herder's watch.

Owns the wait. Invariant: it ends on a change event, or fails after its bound with the last state seen.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable

from herdmesh.cli.display import views
from herdmesh.cli.display.board import Board


class Watching:
    """A board that follows a watch, and the waiters for its contents."""

    def __init__(self) -> None:
        self.board = Board()
        self._changed = asyncio.Event()

    async def follow(self, address: str) -> None:
        """Update the board from the herder there, until cancelled."""
        await self.board.follow(address, self._note)

    async def until(
        self, name: str, condition: Callable[[views.Json], bool], what: str, timeout_s: float
    ) -> views.Json:
        """The connector, once the watch shows it in that state."""
        deadline_s = time.monotonic() + timeout_s
        while True:
            self._changed.clear()
            shown = self.board.connectors.get(name)
            if shown is not None and condition(shown):
                return shown
            left_s = deadline_s - time.monotonic()
            assert left_s > 0, f"{name}: not {what} within {timeout_s:g} s; last seen: {brief(shown)}"
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._changed.wait(), left_s)

    def _note(self, _name: str, _connector: views.Json | None) -> None:
        self._changed.set()


def brief(shown: views.Json | None) -> object:
    """The parts of a connector that explain why its state is not the expected one."""
    if shown is None:
        return None
    tasks = [
        (task["id"], task["state"], task["worker_id"], task.get("progress", {}).get("activity"), task.get("error"))
        for task in shown["tasks"]
    ]
    return {"connector": shown["connector"]["state"], "error": shown["connector"].get("error"), "tasks": tasks}
