"""The read barrier: a wait until this replica has applied every write committed before the call.

Owns the sharing of end-offset fetches: a caller that comes while a fetch is under way joins the next one, because the
fetch under way may have begun before the call. So a thousand concurrent callers cost two fetches. Invariant: a caller
is released only by a fetch that began after its call.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from herdmesh.topicstore.applied import fail_future
from herdmesh.topicstore.log import LogUnavailable, Positions

_logger = logging.getLogger(__name__)
_RETRY_S = 0.1


class Barrier:
    """The read barrier of one store, shared by its reads, refusals and no-ops."""

    def __init__(
        self,
        fetch_end: Callable[[], Awaitable[Positions]],
        wait: Callable[[Positions], asyncio.Future[None]],
    ) -> None:
        self._fetch_end = fetch_end
        self._wait = wait
        self._asked = asyncio.Event()
        self._joined: asyncio.Future[None] | None = None
        self._open: set[asyncio.Future[None]] = set()

    async def pass_through(self) -> None:
        """Return when every write committed before the call is applied. Waits for as long as the log is unreachable."""
        if self._joined is None:
            self._joined = asyncio.get_running_loop().create_future()
            self._open.add(self._joined)
            self._joined.add_done_callback(self._open.discard)
            self._asked.set()
        await asyncio.shield(self._joined)

    async def run(self) -> None:
        """Serve callers until cancelled."""
        while True:
            await self._asked.wait()
            self._asked.clear()
            joined, self._joined = self._joined, None
            assert joined is not None
            end = await self.end()
            self._wait(end).add_done_callback(lambda waited, joined=joined: _pass_on(waited, joined))

    async def end(self) -> Positions:
        """Fetch the end of the log; retry until it succeeds."""
        level = logging.WARNING
        while True:
            try:
                return await self._fetch_end()
            except LogUnavailable as unavailable:
                _logger.log(level, "cannot fetch the end of the topic, trying again: %s", unavailable)
                level = logging.DEBUG  # an outage is logged once; the store's health shows it too
                await asyncio.sleep(_RETRY_S)

    def fail(self, error: Exception) -> None:
        """Fail all waiting callers with `error`."""
        for future in list(self._open):
            fail_future(future, error)


def _pass_on(waited: asyncio.Future[None], joined: asyncio.Future[None]) -> None:
    if waited.cancelled() or joined.done():
        return
    error = waited.exception()
    if error is None:
        joined.set_result(None)
    else:
        joined.set_exception(error)
        joined.exception()
