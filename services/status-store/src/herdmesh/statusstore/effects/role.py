"""The consequences of this replica's role: health of the write service, the source of the lease table, the relay, and
the time since which it knows the outcome of every request.

Owns the one loop over `role_changes`. Invariant: the write service is SERVING exactly while the role is WRITER and the
lease table belongs to this writer; the read service is SERVING from the end of the first replay until close.
"""

from __future__ import annotations

import time
from typing import Final

import structlog

from herdmesh.rpc.server import Server
from herdmesh.statusstore.effects.leases import LeaseKeeper
from herdmesh.statusstore.effects.relay import WRITE_SERVICE, LeaseRelay
from herdmesh.statusstore.effects.requests import Requests
from herdmesh.statusstore.effects.store import Store
from herdmesh.statusstore.errors import StoreGone
from herdmesh.statusstore.state.leases import BecameWriter, StoppedWriting, running_workers
from herdmesh.topicstore.contract import StoreRole

READ_SERVICE: Final = "herdmesh.api.statusstore.v1.StatusReadService"
_log: structlog.stdlib.BoundLogger = structlog.get_logger(__name__)


async def follow_role(
    store: Store, server: Server, keeper: LeaseKeeper, relay: LeaseRelay, requests: Requests, lease_ms: int
) -> None:
    """Run until cancelled. Raises `StoreGone` when the store closes."""
    writing = False
    async for role in store.role_changes():
        _log.info("role", role=role.value)
        if role is StoreRole.CLOSED:
            raise StoreGone(store.health)
        if writing and role is not StoreRole.WRITER:
            writing = False
            requests.end_writing()
            await server.set_serving(WRITE_SERVICE, False)
            keeper.handle(StoppedWriting())
        await server.set_serving(READ_SERVICE, role is not StoreRole.REPLAYING)
        if role is StoreRole.WRITER:
            writing = True
            await relay.stop()
            requests.begin_writing(time.time_ns() // 1_000_000)
            keeper.handle(BecameWriter(running_workers(store.state), lease_ms))
            await server.set_serving(WRITE_SERVICE, True)
        elif role is StoreRole.REPLICA:
            relay.start()
