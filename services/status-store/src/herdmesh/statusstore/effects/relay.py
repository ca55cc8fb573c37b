"""The writer's leases, brought to a replica.

Owns one watch on the writer among `peers`, found by its write service's health. Invariant: the watch is open only while
this replica does not write; errors only delay it.
"""

from __future__ import annotations

import asyncio
from typing import Final

import structlog

from herdmesh.api.statusstore.v1 import status_read_service_pb2 as read_pb2
from herdmesh.api.statusstore.v1 import status_read_service_pb2_grpc as read_grpc
from herdmesh.rpc.client import connect
from herdmesh.rpc.errors import HerdmeshError
from herdmesh.statusstore.effects.leases import LeaseKeeper, ShownLease
from herdmesh.statusstore.state.leases import Relayed

WRITE_SERVICE: Final = "herdmesh.api.statusstore.v1.StatusWriteService"
_RETRY_S: Final = 0.5
_log: structlog.stdlib.BoundLogger = structlog.get_logger(__name__)


class LeaseRelay:
    """Does nothing when there are no peers."""

    def __init__(self, peers: str, keeper: LeaseKeeper) -> None:
        self._peers = peers
        self._keeper = keeper
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Relay from now on; a no-op while relaying."""
        if self._peers and self._task is None:
            self._task = asyncio.create_task(self._run(), name="lease relay")

    async def stop(self) -> None:
        """Relay no more."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _run(self) -> None:
        async with connect(self._peers, health_service=WRITE_SERVICE) as channel:
            stub = read_grpc.StatusReadServiceStub(channel)
            while True:
                try:
                    async for event in stub.WatchLeases(read_pb2.WatchLeasesRequest(), wait_for_ready=True):
                        shown = [
                            ShownLease(
                                lease.worker_id, lease.incarnation, lease.live, lease.expire_time.ToMilliseconds()
                            )
                            for lease in event.leases.leases
                        ]
                        self._keeper.handle(Relayed(tuple(self._keeper.from_shown(lease) for lease in shown)))
                except HerdmeshError as error:
                    _log.info("lease_relay_interrupted", reason=error.reason, message=error.message)
                await asyncio.sleep(_RETRY_S)
