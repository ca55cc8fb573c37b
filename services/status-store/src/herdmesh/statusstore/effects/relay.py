"""The relay of the writer's leases to a replica.

Owns one channel to each of `peers`, and one watch, on the peer that reports itself as the writer. A writer repeats its
table every second, so silence reveals a writer that froze or was cut off, which no broken connection would; then all
peers are queried again. That finds the new writer within about two seconds of its take-over.

Invariant: the watch is open only while this replica does not write, and only on a peer whose write service is SERVING,
so that no replica relays a relayed table. Errors only delay it.
"""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from typing import Any, Final

import grpc.aio
import structlog
from grpc_health.v1 import health_pb2, health_pb2_grpc

from herdmesh.api.statusstore.v1 import status_read_service_pb2 as read_pb2
from herdmesh.api.statusstore.v1 import status_read_service_pb2_grpc as read_grpc
from herdmesh.rpc.client import connect
from herdmesh.rpc.errors import HerdmeshError
from herdmesh.statusstore.effects.leases import LeaseKeeper, ShownLease
from herdmesh.statusstore.state.leases import PULSE_MS, Relayed, StoppedWriting

WRITE_SERVICE: Final = "herdmesh.api.statusstore.v1.StatusWriteService"
_RETRY_S: Final = 0.25
_ASK_S: Final = 1.0
_SILENCE_S: Final = 3 * PULSE_MS / 1000
_SERVING: Final = health_pb2.HealthCheckResponse.SERVING
_log: structlog.stdlib.BoundLogger = structlog.get_logger(__name__)


class LeaseRelay:
    """The relay of one replica. Without peers nothing is relayed, and soon no lease counts while this replica does not
    write.
    """

    def __init__(self, peers: str, keeper: LeaseKeeper) -> None:
        self._peers = [peer for part in peers.split(",") if (peer := part.strip())]
        self._keeper = keeper
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to relay; a no-op while relaying."""
        self._keeper.handle(StoppedWriting())
        if self._peers and self._task is None:
            self._task = asyncio.create_task(self._run(), name="lease relay")

    async def stop(self) -> None:
        """Stop relaying."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _run(self) -> None:
        async with AsyncExitStack() as stack:
            channels = {peer: await stack.enter_async_context(connect(peer)) for peer in self._peers}
            while True:
                asked = await asyncio.gather(*(_writes(channel) for channel in channels.values()))
                for (peer, channel), writes in zip(channels.items(), asked, strict=True):
                    if writes:
                        _log.info("lease_relay_began", peer=peer)
                        why = await self._follow(channel)
                        _log.info("lease_relay_ended", peer=peer, reason=why)
                await asyncio.sleep(_RETRY_S)

    async def _follow(self, channel: grpc.aio.Channel) -> str:
        """Relay this peer's tables until it stops writing, falls silent or is gone; returns the reason."""
        tasks = [asyncio.ensure_future(self._listen(channel)), asyncio.ensure_future(_until_not_writing(channel))]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            return next(iter(done)).result()
        except HerdmeshError as error:
            return error.reason
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _listen(self, channel: grpc.aio.Channel) -> str:
        tables = aiter(read_grpc.StatusReadServiceStub(channel).WatchLeases(read_pb2.WatchLeasesRequest()))
        while True:
            try:
                async with asyncio.timeout(_SILENCE_S):
                    event = await anext(tables)
            except TimeoutError:
                return "it fell silent"
            except StopAsyncIteration:
                return "it ended the watch"
            shown = [
                ShownLease(lease.worker_id, lease.incarnation, lease.live, lease.expire_time.ToMilliseconds())
                for lease in event.leases.leases
            ]
            self._keeper.handle(Relayed(tuple(self._keeper.from_shown(lease) for lease in shown)))


async def _writes(channel: grpc.aio.Channel) -> bool:
    stub: Any = health_pb2_grpc.HealthStub(channel)  # the generated stub declares no methods
    try:
        answer = await stub.Check(health_pb2.HealthCheckRequest(service=WRITE_SERVICE), timeout=_ASK_S)
    except HerdmeshError:
        return False
    return answer.status == _SERVING


async def _until_not_writing(channel: grpc.aio.Channel) -> str:
    stub: Any = health_pb2_grpc.HealthStub(channel)
    async for answer in stub.Watch(health_pb2.HealthCheckRequest(service=WRITE_SERVICE)):
        if answer.status != _SERVING:
            break
    return "it stopped writing"
