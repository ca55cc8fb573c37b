"""The start of a store with retries, so that nobody has to restart its process by hand.

Owns the pauses between attempts. Between them the store's `health` has the reason of the failure, and the log gets one
line per change. Invariant: only a store that can be started again is retried.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

from herdmesh.topicstore.contract import StoreRole, TopicStore
from herdmesh.topicstore.errors import BrokerUnreachable, StartError

BACKOFF_S_FIRST: Final = 1.0
BACKOFF_S_MAX: Final = 10.0


async def start_when_possible(store: TopicStore[Any, Any]) -> None:
    """Call `store.start()` until it succeeds: again after 1 s, doubling to 10 s (1 s while no broker is reachable), as
    long as it raises `StartError` and the store is not closed.

    Raises any other error of `start`.
    """
    backoff_s = BACKOFF_S_FIRST
    while True:
        try:
            await store.start()
        except StartError as error:
            if store.role is StoreRole.CLOSED:
                raise
            if isinstance(error, BrokerUnreachable):
                backoff_s = (
                    BACKOFF_S_FIRST  # `start` has looked for a broker for seconds; once there is one, find it soon
                )
        else:
            return
        await asyncio.sleep(backoff_s)
        backoff_s = min(backoff_s * 2, BACKOFF_S_MAX)
