"""Watch of the ends of partitions whose tasks have work, so that lag stays correct while a run makes no progress.

A run computes its lag from the ends of its client's last fetch. It reports nothing while a put does not return, its
client fetches nothing while its buffers are full, and a task that waits for a slot has no run. Owns only this check;
`idle_watch` does idle tasks. Invariants: one batched query at a time for all tasks, and none while no sink has work. At
most `_SHARE` of the time is spent on it. Only displayed values depend on it, so a failed query is simply repeated
later.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Final

import structlog
from confluent_kafka import KafkaException

from herdmesh.worker.state.events import EndsLearned
from herdmesh.worker.threads import in_thread

PartitionId = tuple[str, int]

_INTERVAL_S: Final = 2.0
_SHARE: Final = 0.02
_log: structlog.stdlib.BoundLogger = structlog.get_logger(__name__)


class EndWatch:
    """Checks ends from `start` to `close`."""

    def __init__(
        self,
        wanted: Callable[[], set[PartitionId]],
        ask: Callable[[Iterable[PartitionId]], dict[PartitionId, int]],
        emit: Callable[[EndsLearned], Awaitable[None]],
        interval_s: float = _INTERVAL_S,
    ) -> None:
        """`wanted` is called in the event loop, `ask` in a thread: it blocks, and leaves out missing partitions."""
        self._wanted = wanted
        self._query = ask
        self._emit = emit
        self._interval_s = interval_s
        self._task: asyncio.Task[None] | None = None

    def start(self) -> list[asyncio.Task[None]]:
        """Start checking. Returns the tasks that must not end before `close`."""
        self._task = asyncio.create_task(self._look(), name="end watch")
        return [self._task]

    async def close(self) -> None:
        """Stop."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _look(self) -> None:
        clock = asyncio.get_running_loop().time
        pause_s = self._interval_s
        while True:
            await asyncio.sleep(pause_s)
            begun_s = clock()
            if wanted := self._wanted():
                try:
                    ends = await in_thread("ends of tasks with work", lambda wanted=wanted: self._query(wanted))
                    await self._emit(EndsLearned(ends))
                except (KafkaException, TimeoutError) as error:
                    _log.debug("end_offsets_query_failed", error=str(error) or "no answer")
            pause_s = max(self._interval_s, (clock() - begun_s) / _SHARE)
