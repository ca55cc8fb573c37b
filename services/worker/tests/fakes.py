"""Peers of a worker: a herder that a test scripts, and a status store that remembers.

Both implement the real servicers and are served by the real server; nothing of the worker is replaced.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

import grpc.aio

from herdmesh.api.common.v1 import connector_pb2
from herdmesh.api.herder.v1 import worker_session_service_pb2 as session_pb2
from herdmesh.api.herder.v1 import worker_session_service_pb2_grpc as session_pb2_grpc
from herdmesh.api.statusstore.v1 import status_pb2, status_write_service_pb2, status_write_service_pb2_grpc
from herdmesh.rpc import properties
from herdmesh.rpc.errors import NotBuilt, NotLeader, RequestInvalid, StoreReplaying
from herdmesh.rpc.server import Server, ServiceRegistration

Context = grpc.aio.ServicerContext[Any, Any]
WAIT_S = 30.0


def unit(connector: str, task: int | None = 0) -> session_pb2.Unit:
    return session_pb2.Unit(connector=connector, task=task)


def assignment(generation: int = 1, epoch: int = 1) -> session_pb2.Assignment:
    return session_pb2.Assignment(epoch=epoch, generation=generation, incarnation="i", task_digest="d")


def start_task(
    connector: str,
    connector_config: Mapping[str, str | None],
    task_config: Mapping[str, str | None],
    *,
    task: int = 0,
    task_count: int = 1,
    generation: int = 1,
    epoch: int = 1,
) -> session_pb2.SessionResponse:
    start = session_pb2.StartUnit(
        unit=unit(connector, task),
        assignment=assignment(generation, epoch),
        connector_config=properties.to_proto(dict(connector_config)),
        task_config=properties.to_proto(dict(task_config)),
        target_state=connector_pb2.TARGET_STATE_STARTED,
        task_count=task_count,
    )
    return session_pb2.SessionResponse(epoch=epoch, start=start)


class ScriptedHerder(session_pb2_grpc.WorkerSessionServiceServicer):
    """Herder that welcomes workers, adopts the units in `adopt`, sends a test's messages, and keeps the workers'
    messages.
    """

    def __init__(self) -> None:
        self.epoch = 1
        self.leader_address = ""
        """If set, answer NOT_LEADER with this address."""
        self.adopt: Callable[[session_pb2.WorkerHello], list[session_pb2.Unit]] = _everything
        self.hellos: list[session_pb2.WorkerHello] = []
        self.said: list[session_pb2.SessionRequest] = []
        self.heard_at: list[float] = []
        self.sessions = 0
        self._changed = asyncio.Condition()
        self._outbox: asyncio.Queue[session_pb2.SessionResponse | None] = asyncio.Queue()

    async def Session(
        self, request_iterator: AsyncIterator[session_pb2.SessionRequest], context: Context
    ) -> AsyncIterator[session_pb2.SessionResponse]:
        if self.leader_address:
            raise NotLeader(self.leader_address)
        requests = aiter(request_iterator)
        hello = (await anext(requests)).hello
        self._outbox = asyncio.Queue()
        welcome = session_pb2.SessionWelcome(leader_id="scripted", adopted=self.adopt(hello))
        welcome.session_timeout.FromSeconds(6)
        reader = asyncio.create_task(self._read(requests))
        try:
            yield session_pb2.SessionResponse(epoch=self.epoch, welcome=welcome)
            async with self._changed:
                self.hellos.append(hello)
                self.sessions += 1
                self._changed.notify_all()
            while (response := await self._next()) is not None:
                yield response
        finally:
            reader.cancel()
            async with self._changed:
                self.sessions -= 1
                self._changed.notify_all()

    def send(self, response: session_pb2.SessionResponse) -> None:
        self._outbox.put_nowait(response)

    def end_session(self) -> None:
        self._outbox.put_nowait(None)

    async def until(self, condition: Callable[[], Any], what: str, timeout_s: float = WAIT_S) -> Any:
        """Wait until the condition holds; returns its result."""
        try:
            async with asyncio.timeout(timeout_s), self._changed:
                return await self._changed.wait_for(condition)
        except TimeoutError:
            raise AssertionError(f"not {what} within {timeout_s:g} s; heard: {self.said[-5:]}") from None

    async def until_session(self, count: int = 1, timeout_s: float = WAIT_S) -> None:
        await self.until(lambda: self.sessions >= 1 and len(self.hellos) >= count, "a session", timeout_s)

    async def until_report(
        self,
        connector: str,
        state: connector_pb2.RunState.ValueType,
        *,
        task: int | None = 0,
        timeout_s: float = WAIT_S,
    ) -> session_pb2.UnitReport:
        """The first report of that state for that unit."""

        def found() -> session_pb2.UnitReport | None:
            wanted = unit(connector, task)
            return next((r for r in self.reports() if r.unit == wanted and r.state == state), None)

        name = connector_pb2.RunState.Name(state)
        return await self.until(found, f"{connector}-{task} {name}", timeout_s)

    def reports(self) -> list[session_pb2.UnitReport]:
        return [one.report for one in self.said if one.WhichOneof("message") == "report"]

    def progress(self, connector: str, task: int = 0) -> Any:
        """The last reported progress of the task, None = none."""
        beats = [one.heartbeat for one in self.said if one.WhichOneof("message") == "heartbeat"]
        found = [p for beat in beats for p in beat.progress if (p.task.connector, p.task.task) == (connector, task)]
        return found[-1] if found else None

    async def _read(self, requests: AsyncIterator[session_pb2.SessionRequest]) -> None:
        async for request in requests:
            async with self._changed:
                self.said.append(request)
                self.heard_at.append(time.monotonic())
                self._changed.notify_all()

    async def _next(self) -> session_pb2.SessionResponse | None:
        try:
            async with asyncio.timeout(1):
                return await self._outbox.get()
        except TimeoutError:
            return session_pb2.SessionResponse(epoch=self.epoch, heartbeat=session_pb2.HerderHeartbeat())


class RememberingStatusStore(status_write_service_pb2_grpc.StatusWriteServiceServicer):
    """Status store that keeps the puts; with `away` it refuses everything, for the connectors in `stale` it answers
    STALE_GENERATION, and it refuses every request with one in `invalid`.
    """

    def __init__(self) -> None:
        self.away = False
        self.refused = 0
        self.sequences: list[int] = []
        self.invalid: set[str] = set()
        self.stale: set[str] = set()
        self.puts: list[status_write_service_pb2.StatusPut] = []
        self.leases: list[status_write_service_pb2.HeartbeatRequest] = []

    async def PutStatuses(
        self, request: status_write_service_pb2.PutStatusesRequest, context: Context
    ) -> status_write_service_pb2.PutStatusesResponse:
        self.sequences.append(request.sequence)
        if self.away:
            self.refused += 1
            raise StoreReplaying("away")
        if self.invalid & {put.status.connector for put in request.puts}:
            raise RequestInvalid("a status that cannot be", "puts")
        response = status_write_service_pb2.PutStatusesResponse()
        for put in request.puts:
            stale = put.status.connector in self.stale
            self.puts.append(put)
            result = status_write_service_pb2.PUT_RESULT_APPLIED
            response.outcomes.add(
                result=status_write_service_pb2.PUT_RESULT_STALE_GENERATION if stale else result, stored=put.status
            )
        return response

    async def Heartbeat(
        self, request: status_write_service_pb2.HeartbeatRequest, context: Context
    ) -> status_write_service_pb2.HeartbeatResponse:
        self.leases.append(request)
        return status_write_service_pb2.HeartbeatResponse()

    async def PutTopics(
        self, request: status_write_service_pb2.PutTopicsRequest, context: Context
    ) -> status_write_service_pb2.PutTopicsResponse:
        raise NotBuilt("PutTopics")

    async def DeleteTopics(
        self, request: status_write_service_pb2.DeleteTopicsRequest, context: Context
    ) -> status_write_service_pb2.DeleteTopicsResponse:
        raise NotBuilt("DeleteTopics")

    async def DeleteConnectorStatuses(
        self, request: status_write_service_pb2.DeleteConnectorStatusesRequest, context: Context
    ) -> status_write_service_pb2.DeleteConnectorStatusesResponse:
        raise NotBuilt("DeleteConnectorStatuses")

    def of(self, connector: str, task: int = 0) -> list[status_pb2.Status]:
        """The statuses put for a task, in order."""
        return [p.status for p in self.puts if (p.status.connector, p.status.task) == (connector, task)]


def _everything(hello: session_pb2.WorkerHello) -> list[session_pb2.Unit]:
    return [holding.unit for holding in hello.holdings]


async def serve_herder(herder: ScriptedHerder, listen: str = "127.0.0.1:0") -> tuple[Server, str]:
    """Serve it; the server and its address."""
    add = session_pb2_grpc.add_WorkerSessionServiceServicer_to_server
    return await _serve(herder, add, "herdmesh.api.herder.v1.WorkerSessionService", listen)


async def serve_store(store: RememberingStatusStore) -> tuple[Server, str]:
    """Serve it; the server and its address."""
    add = status_write_service_pb2_grpc.add_StatusWriteServiceServicer_to_server
    return await _serve(store, add, "herdmesh.api.statusstore.v1.StatusWriteService", "127.0.0.1:0")


async def _serve(servicer: object, add: Callable[[Any, Any], None], name: str, listen: str) -> tuple[Server, str]:
    server = Server(listen, [ServiceRegistration(servicer, add, name)], metrics=False)
    port = await server.start()
    await server.set_all_serving(True)
    return server, f"127.0.0.1:{port}"
