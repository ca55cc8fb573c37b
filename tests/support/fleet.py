"""Many fake workers in one process, without Spark: each holds its units and reports them, in batches, like real ones.

Owns the worker's side of its session and of the status store. Invariant: like a real worker it keeps its held units
when its stream breaks, dials in again with all of them, and releases those that the leader does not adopt.
"""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

from herdmesh.api.common.v1 import connector_pb2 as common
from herdmesh.api.common.v1 import identity_pb2
from herdmesh.api.herder.v1 import worker_session_service_pb2 as pb
from herdmesh.api.herder.v1.worker_session_service_pb2_grpc import WorkerSessionServiceStub
from herdmesh.api.statusstore.v1 import status_pb2
from herdmesh.api.statusstore.v1 import status_write_service_pb2 as status_write_pb
from herdmesh.api.statusstore.v1.status_write_service_pb2_grpc import StatusWriteServiceStub
from herdmesh.api.worker.v1 import task_pb2, worker_service_pb2
from herdmesh.rpc import properties
from herdmesh.rpc.client import connect
from herdmesh.rpc.errors import HerdmeshError, NotLeader

if TYPE_CHECKING:
    from herdmesh.api.statusstore.v1.status_write_service_pb2_grpc import StatusWriteServiceAsyncStub

SINK_CLASS = "herdmesh.test.Sink"
HEARTBEAT_S = 1.0
BATCH_S = 0.05
BATCH_MAX = 500

Key = tuple[str, int | None]


class FleetWorker:
    """One worker. It dials the `herders` in turn until one leads."""

    def __init__(self, worker_id: str, herders: list[str], status_store: str) -> None:
        self.identity = identity_pb2.WorkerIdentity(worker_id=worker_id, incarnation=uuid.uuid4().hex)
        self.held: dict[Key, pb.Holding] = {}
        self.start_count = 0
        self._herders = herders
        self._epoch_max = 0
        self._outbox: asyncio.Queue[pb.SessionRequest] = asyncio.Queue()
        self._ended = asyncio.Event()
        self._statuses: dict[Key, status_pb2.Status] = {}
        self._status_channel = connect(status_store)
        self._status_stub: StatusWriteServiceAsyncStub = StatusWriteServiceStub(self._status_channel)
        self._background = [
            asyncio.create_task(part) for part in (self._dial(), self._beat(), self._write_statuses(), self._lease())
        ]

    async def end(self) -> None:
        """End at once, as after kill -9."""
        self._ended.set()
        for task in self._background:
            task.cancel()
        await asyncio.gather(*self._background, return_exceptions=True)
        await self._status_channel.close()

    async def _dial(self) -> None:
        turn = 0
        while True:
            channel = connect(self._herders[turn % len(self._herders)])
            turn += 1
            try:
                self._outbox = asyncio.Queue()
                self._outbox.put_nowait(pb.SessionRequest(hello=self._hello()))
                async for response in WorkerSessionServiceStub(channel).Session(self._requests(self._outbox)):
                    if response.epoch >= self._epoch_max:
                        self._epoch_max = response.epoch
                        self._hear(response)
            except (HerdmeshError, NotLeader):
                pass  # the next in turn may lead
            finally:
                await channel.close()
            await asyncio.sleep(0.1)

    def _hello(self) -> pb.WorkerHello:
        return pb.WorkerHello(
            worker=self.identity,
            address=self.identity.worker_id,
            slots=8,
            plugins=[common.Plugin(class_name=SINK_CLASS, kind=common.PLUGIN_KIND_SINK, version="1")],
            holdings=self.held.values(),
            epoch_max=self._epoch_max,
        )

    async def _requests(self, outbox: asyncio.Queue[pb.SessionRequest]) -> AsyncIterator[pb.SessionRequest]:
        while True:
            yield await outbox.get()

    async def _beat(self) -> None:
        """Send heartbeats as often as a real worker, with progress of a tenth of its tasks."""
        while True:
            tasks = [key for key in self.held if key[1] is not None]
            progress = [
                task_pb2.TaskProgress(task=common.TaskId(connector=name, task=task or 0))
                for name, task in tasks[: len(tasks) // 10]
            ]
            self._outbox.put_nowait(pb.SessionRequest(heartbeat=pb.WorkerHeartbeat(progress=progress)))
            await self._wait(HEARTBEAT_S)

    async def _lease(self) -> None:
        while True:
            with contextlib.suppress(HerdmeshError):
                await self._status_stub.Heartbeat(status_write_pb.HeartbeatRequest(worker=self.identity))
            await self._wait(HEARTBEAT_S)

    async def _write_statuses(self) -> None:
        while True:
            await self._wait(BATCH_S)
            keys = list(self._statuses)[:BATCH_MAX]
            if not keys:
                continue
            puts = [
                status_write_pb.StatusPut(status=self._statuses.pop(key), mode=status_write_pb.PUT_MODE_PUT)
                for key in keys
            ]
            request = status_write_pb.PutStatusesRequest(request_id=uuid.uuid4().hex, writer=self.identity, puts=puts)
            with contextlib.suppress(HerdmeshError):
                await self._status_stub.PutStatuses(request)

    async def _wait(self, at_most_s: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(at_most_s):
                await self._ended.wait()

    def _hear(self, response: pb.SessionResponse) -> None:
        match response.WhichOneof("message"):
            case "welcome":
                adopted = {_key(unit) for unit in response.welcome.adopted}
                for key in [key for key in self.held if key not in adopted]:
                    self._release(key, self.held[key].assignment)
            case "start":
                start = response.start
                self.start_count += 1
                holding = pb.Holding(unit=start.unit, assignment=start.assignment, state=common.RUN_STATE_RUNNING)
                self.held[_key(start.unit)] = holding
                self._report(_key(start.unit), start.assignment, common.RUN_STATE_RUNNING)
            case "stop":
                self._release(_key(response.stop.unit), response.stop.assignment)
            case "generate_task_configs":
                ask = response.generate_task_configs
                tasks = [properties.to_proto({"part": str(task)}) for task in range(ask.tasks_max)]
                made = pb.TaskConfigsReport(connector=ask.connector, assignment=ask.assignment, tasks=tasks)
                self._outbox.put_nowait(pb.SessionRequest(task_configs=made))
            case "fence":
                reply = pb.CommandReply(command_id=response.fence.command_id)
                self._outbox.put_nowait(pb.SessionRequest(reply=reply))
            case "validate":
                validation = worker_service_pb2.ConfigValidation(connector_type=common.CONNECTOR_TYPE_SINK)
                reply = pb.CommandReply(command_id=response.validate.command_id, validation=validation)
                self._outbox.put_nowait(pb.SessionRequest(reply=reply))
            case _:
                pass

    def _release(self, key: Key, assignment: pb.Assignment) -> None:
        held = self.held.get(key)
        if held is not None and held.assignment == assignment:
            del self.held[key]
        self._report(key, assignment, common.RUN_STATE_UNASSIGNED)

    def _report(self, key: Key, assignment: pb.Assignment, state: common.RunState.ValueType) -> None:
        unit = pb.Unit(connector=key[0], task=key[1])
        report = pb.UnitReport(unit=unit, assignment=assignment, state=state)
        self._outbox.put_nowait(pb.SessionRequest(report=report))
        self._statuses[key] = status_pb2.Status(
            connector=key[0],
            task=key[1],
            state=state,
            worker_id=self.identity.worker_id,
            worker_incarnation=self.identity.incarnation,
            generation=assignment.generation,
            commit_scope=None if key[1] is None else common.CommitScope(group=f"connect-{key[0]}", topics=["t"]),
        )


def _key(unit: pb.Unit) -> Key:
    return (unit.connector, unit.task if unit.HasField("task") else None)
