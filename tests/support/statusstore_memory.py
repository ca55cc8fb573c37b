"""The status store's service over the memory engine, called through real gRPC, for tests of any part of it.

Owns a replica's start and stop in this process, and short names for the tests' writes. Invariant: a replica that
`running` started is stopped in order when it ends.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import grpc.aio
from grpc_health.v1 import health_pb2, health_pb2_grpc

from herdmesh.api.common.v1 import connector_pb2, identity_pb2
from herdmesh.api.statusstore.v1 import status_pb2
from herdmesh.api.statusstore.v1 import status_read_service_pb2 as read_pb2
from herdmesh.api.statusstore.v1 import status_read_service_pb2_grpc as read_grpc
from herdmesh.api.statusstore.v1 import status_write_service_pb2 as write_pb2
from herdmesh.api.statusstore.v1 import status_write_service_pb2_grpc as write_grpc
from herdmesh.rpc.client import connect
from herdmesh.statusstore.__main__ import serve
from herdmesh.statusstore.effects.relay import WRITE_SERVICE
from herdmesh.statusstore.effects.store import Store, make_store
from herdmesh.statusstore.settings import StatusStoreSettings
from herdmesh.topicstore.memory.memory_broker import MemoryBroker

RUNNING = connector_pb2.RUN_STATE_RUNNING
UNASSIGNED = connector_pb2.RUN_STATE_UNASSIGNED
PUT = write_pb2.PUT_MODE_PUT
PUT_SAFE = write_pb2.PUT_MODE_PUT_SAFE
APPLIED = write_pb2.PUT_RESULT_APPLIED
W1 = identity_pb2.WorkerIdentity(worker_id="127.0.0.1:7204", incarnation="a")
W2 = identity_pb2.WorkerIdentity(worker_id="127.0.0.1:7205", incarnation="b")


class Client:
    """Both stubs over one channel, with short names for the tests' writes."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self.channel = channel
        self.read = read_grpc.StatusReadServiceStub(channel)
        self.write = write_grpc.StatusWriteServiceStub(channel)

    async def put(
        self, *puts: write_pb2.StatusPut, writer: identity_pb2.WorkerIdentity | None = W1, request_id: str = ""
    ) -> write_pb2.PutStatusesResponse:
        return await self.write.PutStatuses(
            write_pb2.PutStatusesRequest(request_id=request_id, writer=writer, puts=puts), timeout=10
        )

    async def get(self, connector: str) -> read_pb2.GetStatusResponse:
        return await self.read.GetStatus(read_pb2.GetStatusRequest(connector=connector), timeout=10)

    async def beat(self, worker: identity_pb2.WorkerIdentity, lease_ms: int = 0, leaving: bool = False) -> Any:
        request = write_pb2.HeartbeatRequest(worker=worker, leaving=leaving)
        if lease_ms:
            request.lease.FromMilliseconds(lease_ms)
        return await self.write.Heartbeat(request, timeout=10)

    async def serving(self, service: str) -> None:
        """Wait until health says SERVING."""
        stub: Any = health_pb2_grpc.HealthStub(self.channel)
        async for reply in stub.Watch(health_pb2.HealthCheckRequest(service=service), timeout=60, wait_for_ready=True):
            if reply.status == health_pb2.HealthCheckResponse.SERVING:
                return

    async def health(self, service: str) -> bool:
        stub: Any = health_pb2_grpc.HealthStub(self.channel)
        reply = await stub.Check(health_pb2.HealthCheckRequest(service=service), timeout=10)
        return reply.status == health_pb2.HealthCheckResponse.SERVING


@asynccontextmanager
async def running(
    broker: MemoryBroker, peers: str = "", wait_for: str = WRITE_SERVICE
) -> AsyncGenerator[tuple[Client, Store, int]]:
    """A replica with its own server; stops it in order at the end."""
    settings = StatusStoreSettings(listen="127.0.0.1:0", metrics=False, memory=True, peers=peers)
    store = make_store(settings, broker)
    stop = asyncio.Event()
    port: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    serving = asyncio.create_task(serve(stop, settings, store, port.set_result))
    async with connect(f"127.0.0.1:{await port}") as channel:
        client = Client(channel)
        await client.serving(wait_for)
        yield client, store, port.result()
    stop.set()
    await asyncio.wait_for(serving, 60)


def put(
    connector: str,
    task: int | None = None,
    state: connector_pb2.RunState.ValueType = RUNNING,
    generation: int = 1,
    mode: write_pb2.PutMode.ValueType = PUT,
    expected: Any = None,
    **more: Any,
) -> write_pb2.StatusPut:
    status = status_pb2.Status(connector=connector, task=task, state=state, generation=generation, **more)
    return write_pb2.StatusPut(status=status, mode=mode, expected_revision=expected)


class Watch:
    """A watch read event by event."""

    def __init__(self, client: Client, **request: Any) -> None:
        self.call = client.read.WatchStatuses(read_pb2.WatchStatusesRequest(**request), timeout=60)
        self._events = aiter(self.call)
        self.revision: Any = None

    async def next(self) -> read_pb2.WatchStatusesResponse:
        event = await anext(self._events)
        if event.meta.HasField("revision"):
            self.revision = event.meta.revision
        return event

    async def change(self) -> read_pb2.WatchStatusesResponse:
        """The next event about a status or a topic. Whether progress or a lease comes beside it depends on how records
        fall into batches.
        """
        while (event := await self.next()).WhichOneof("event") in ("progress", "leases"):
            pass
        return event

    async def until(self, kind: str) -> list[read_pb2.WatchStatusesResponse]:
        """Events up to and with the first of this kind."""
        seen = [await self.next()]
        while seen[-1].WhichOneof("event") != kind:
            seen.append(await self.next())
        return seen


def kinds(events: list[read_pb2.WatchStatusesResponse]) -> list[str | None]:
    """Kind of each event."""
    return [event.WhichOneof("event") for event in events]
