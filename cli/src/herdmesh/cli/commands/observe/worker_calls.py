"""Calls of workers at their own addresses, for what no herder knows: log lines, processor time, memory.

Owns the channels, for one command. Invariant: a worker that does not answer is reported in `silent` with the reason and
never ends the command.
"""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Any, Final, Self

from herdmesh.api.herder.v1 import admin_messages_pb2 as admin
from herdmesh.api.worker.v1 import worker_service_pb2_grpc as worker_grpc
from herdmesh.cli.display import views
from herdmesh.cli.mesh.client import HerderClient
from herdmesh.rpc.client import connect
from herdmesh.rpc.errors import HerdmeshError

_TIMEOUT_S: Final = 5.0


async def list_workers(client: HerderClient) -> list[views.Json]:
    """The workers that the leading herder knows."""
    reply = await client.call(lambda stub: stub.ListWorkers, admin.ListWorkersRequest())
    return [views.worker(one) for one in reply.workers]


class WorkerCalls:
    """The workers of the mesh. Use as an asynchronous context manager."""

    def __init__(self) -> None:
        self._channels: dict[str, Any] = {}
        self.silent: dict[str, str] = {}
        """Worker id -> why its latest call was not answered."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for channel in self._channels.values():
            await channel.close()

    async def call(self, worker: views.Json, method: str, request: Any) -> Any:
        """The worker's reply; None when it does not answer."""
        address = worker["address"]
        if address not in self._channels:
            self._channels[address] = connect(address)
        stub = worker_grpc.WorkerServiceStub(self._channels[address])
        try:
            reply = await getattr(stub, method)(request, timeout=_TIMEOUT_S)
        except HerdmeshError as error:
            old = error.reason == "NOT_BUILT"
            self.silent[worker["worker_id"]] = "it is of an earlier release" if old else error.message
            return None
        self.silent.pop(worker["worker_id"], None)
        return reply

    async def call_all(self, workers: list[views.Json], method: str, request: Any) -> list[tuple[views.Json, Any]]:
        """The replies of all workers that have an address and answer, each with its worker."""
        asked = [one for one in workers if one["address"] and one["state"] != "LOST"]
        replies = await asyncio.gather(*(self.call(one, method, request) for one in asked))
        return [(one, reply) for one, reply in zip(asked, replies, strict=True) if reply is not None]
