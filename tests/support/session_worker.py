"""A fake worker without Spark: speaks the session protocol of `WorkerSessionService` and executes commands at once.

Owns its side of one session and its held units. Invariant: like a real worker it keeps its held units when the stream
breaks, dials in again, and releases those that the leader does not adopt.
"""

from __future__ import annotations

import asyncio
import uuid
from collections import Counter
from collections.abc import AsyncIterator
from types import TracebackType
from typing import TYPE_CHECKING, Self

from herdmesh.api.common.v1 import connector_pb2 as common
from herdmesh.api.common.v1 import identity_pb2, revision_pb2
from herdmesh.api.herder.v1 import admin_messages_pb2 as admin_pb
from herdmesh.api.herder.v1 import worker_session_service_pb2 as pb
from herdmesh.api.herder.v1.worker_session_service_pb2_grpc import WorkerSessionServiceStub
from herdmesh.api.statusstore.v1 import status_pb2
from herdmesh.api.statusstore.v1 import status_write_service_pb2 as status_write_pb
from herdmesh.api.statusstore.v1.status_write_service_pb2_grpc import StatusWriteServiceStub
from herdmesh.api.worker.v1 import worker_service_pb2
from herdmesh.rpc import properties
from herdmesh.rpc.client import connect
from herdmesh.rpc.errors import HerdmeshError, NotLeader
from herdmesh.rpc.leader import LeaderSearch

if TYPE_CHECKING:
    from herdmesh.api.herder.v1.worker_session_service_pb2_grpc import WorkerSessionServiceAsyncStub
    from herdmesh.api.statusstore.v1.status_write_service_pb2_grpc import StatusWriteServiceAsyncStub

SINK_CLASS = "herdmesh.test.Sink"
_STATES = {
    common.TARGET_STATE_STARTED: common.RUN_STATE_RUNNING,
    common.TARGET_STATE_PAUSED: common.RUN_STATE_PAUSED,
    common.TARGET_STATE_STOPPED: common.RUN_STATE_STOPPED,
}

Key = tuple[str, int | None]
#: As a real worker: a herder sends a heartbeat a second.
SILENCE_S = 6.0


class SessionWorker:
    """`async with SessionWorker("w1:1", herders, status_store)`; leaves cleanly, or dies by `kill`."""

    def __init__(self, worker_id: str, herder: str, status_store: str) -> None:
        self.identity = identity_pb2.WorkerIdentity(worker_id=worker_id, incarnation=uuid.uuid4().hex)
        self.held: dict[Key, pb.Holding] = {}
        self.changed = asyncio.Event()
        self.starts: Counter[Key] = Counter()
        self.commit_scopes: dict[Key, common.CommitScope] = {}
        self.fences: list[tuple[str, int]] = []
        self.loggers = {"root": admin_pb.LoggerEntry(logger="root", level="INFO")}
        self.altered: list[pb.AlterOffsetsCommand] = []
        self.epoch_max = 0
        self.logger_revision = revision_pb2.Revision()
        self.released = asyncio.Event()
        #: names in the configs that it was to validate; `may_validate` is set unless a test holds the replies back.
        self.validated: list[str] = []
        self.may_validate = asyncio.Event()
        self.may_validate.set()
        self._search = LeaderSearch(herder)
        self._status_channel = connect(status_store)
        self._statuses: StatusWriteServiceAsyncStub = StatusWriteServiceStub(self._status_channel)
        self.draining = False
        self._outbox: asyncio.Queue[pb.SessionRequest] = asyncio.Queue()
        self._background: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Self:
        self._background = [asyncio.create_task(self._dial()), asyncio.create_task(self._beat())]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.kill()
        await self._status_channel.close()

    async def kill(self) -> None:
        """End at once: no more messages, no more heartbeats."""
        for task in self._background:
            task.cancel()
        await asyncio.gather(*self._background, return_exceptions=True)

    def follow(self, herder: str) -> None:
        """Dial this herder from the next time on."""
        self._search = LeaderSearch(herder)

    async def leave(self) -> None:
        """Request to be drained, and wait until the leader confirms it."""
        self._outbox.put_nowait(pb.SessionRequest(leaving=pb.WorkerLeaving()))
        await self.released.wait()

    async def end_lease(self) -> None:
        """Send the last heartbeat of a clean stop."""
        await self.kill()
        await self._statuses.Heartbeat(status_write_pb.HeartbeatRequest(worker=self.identity, leaving=True))

    async def _dial(self) -> None:
        while not self.released.is_set():
            search = self._search
            channel = connect(search.address)
            try:
                await self._session(WorkerSessionServiceStub(channel))
            except NotLeader as error:
                search.follows(error.leader_address)
            except (HerdmeshError, TimeoutError):
                search.unanswered()
            finally:
                await channel.close()
            await asyncio.sleep(0.05)

    async def _session(self, stub: WorkerSessionServiceAsyncStub) -> None:
        self._outbox = asyncio.Queue()
        plugin = common.Plugin(class_name=SINK_CLASS, aliases=["TestSink"], kind=common.PLUGIN_KIND_SINK, version="1")
        hello = pb.WorkerHello(
            worker=self.identity,
            address=self.identity.worker_id,
            slots=8,
            plugins=[plugin],
            holdings=self.held.values(),
            epoch_max=self.epoch_max,
            draining=self.draining,
            logger_revision=self.logger_revision,
        )
        self._outbox.put_nowait(pb.SessionRequest(hello=hello))
        responses = aiter(stub.Session(self._requests()))
        while True:
            async with asyncio.timeout(SILENCE_S):
                response = await anext(responses, None)
            if response is None:
                return
            self._search.reached()
            if response.epoch >= self.epoch_max:
                self.epoch_max = response.epoch
                await self._hear(response)

    async def _requests(self) -> AsyncIterator[pb.SessionRequest]:
        outbox = self._outbox
        while True:
            yield await outbox.get()

    async def _beat(self) -> None:
        while True:
            self._outbox.put_nowait(pb.SessionRequest(heartbeat=pb.WorkerHeartbeat()))
            request = status_write_pb.HeartbeatRequest(worker=self.identity)
            try:
                await self._statuses.Heartbeat(request)
            except HerdmeshError:
                pass  # the store is unreachable; the next heartbeat goes through
            await asyncio.sleep(0.25)

    async def _hear(self, response: pb.SessionResponse) -> None:
        match response.WhichOneof("message"):
            case "welcome":
                adopted = {_key(unit) for unit in response.welcome.adopted}
                for key in [key for key in self.held if key not in adopted]:
                    await self._release(key, self.held[key].assignment)
            case "start":
                key = _key(response.start.unit)
                self.starts[key] += 1
                self.commit_scopes[key] = response.start.commit_scope
                state = _STATES[response.start.target_state]
                self.held[key] = pb.Holding(unit=response.start.unit, assignment=response.start.assignment, state=state)
                await self._report(key)
            case "stop":
                await self._release(_key(response.stop.unit), response.stop.assignment)
            case "set_target_state":
                key = _key(response.set_target_state.unit)
                if key in self.held:
                    self.held[key].state = _STATES[response.set_target_state.target_state]
                    await self._report(key)
            case "generate_task_configs":
                generate = response.generate_task_configs
                tasks = [properties.to_proto({"part": str(task)}) for task in range(generate.tasks_max)]
                made = pb.TaskConfigsReport(connector=generate.connector, assignment=generate.assignment, tasks=tasks)
                self._outbox.put_nowait(pb.SessionRequest(task_configs=made))
            case "fence":
                self.fences.append((response.fence.connector, response.fence.task_count))
                reply = pb.CommandReply(command_id=response.fence.command_id)
                self._outbox.put_nowait(pb.SessionRequest(reply=reply))
            case "validate":
                self.validated.append(response.validate.config.entries["name"].text)
                await self.may_validate.wait()
                reply = pb.CommandReply(command_id=response.validate.command_id)
                reply.validation.CopyFrom(_validation(response.validate.config))
                self._outbox.put_nowait(pb.SessionRequest(reply=reply))
            case "set_draining":
                self.draining = response.set_draining.draining
                reply = pb.CommandReply(command_id=response.set_draining.command_id)
                self._outbox.put_nowait(pb.SessionRequest(reply=reply))
            case "released":
                self.released.set()
            case _:
                self._answer(response)

    def _answer(self, response: pb.SessionResponse) -> None:
        match response.WhichOneof("message"):
            case "describe_plugin":
                fields = [worker_service_pb2.ConfigField(name="of", value=response.describe_plugin.class_name)]
                reply = pb.CommandReply(command_id=response.describe_plugin.command_id, plugin_fields=fields)
            case "list_loggers":
                found = [entry for name, entry in self.loggers.items() if name.startswith(response.list_loggers.logger)]
                reply = pb.CommandReply(command_id=response.list_loggers.command_id, loggers=found)
            case "set_logger":
                change = response.set_logger
                entry = self.loggers[change.logger] = admin_pb.LoggerEntry(logger=change.logger, level=change.level)
                entry.modify_time.GetCurrentTime()
                if change.HasField("revision"):
                    self.logger_revision = change.revision
                reply = pb.CommandReply(command_id=change.command_id, loggers=[entry])
            case "alter_offsets":
                self.altered.append(response.alter_offsets)
                reply = pb.CommandReply(command_id=response.alter_offsets.command_id)
            case "plan_task_configs":
                plan = response.plan_task_configs
                tasks = [properties.to_proto({"part": str(task)}) for task in range(plan.tasks_max)]
                reply = pb.CommandReply(command_id=plan.command_id, tasks=tasks)
            case _:
                return
        if reply.command_id:
            self._outbox.put_nowait(pb.SessionRequest(reply=reply))
        self.changed.set()

    async def _release(self, key: Key, assignment: pb.Assignment) -> None:
        held = self.held.get(key)
        if held is not None and held.assignment == assignment:
            del self.held[key]
            await self._status(key, common.RUN_STATE_UNASSIGNED, assignment.generation)
        report = pb.UnitReport(unit=_unit(key), assignment=assignment, state=common.RUN_STATE_UNASSIGNED)
        self._outbox.put_nowait(pb.SessionRequest(report=report))

    async def _report(self, key: Key) -> None:
        held = self.held[key]
        self.changed.set()
        await self._status(key, held.state, held.assignment.generation)
        report = pb.UnitReport(unit=held.unit, assignment=held.assignment, state=held.state)
        self._outbox.put_nowait(pb.SessionRequest(report=report))

    async def _status(self, key: Key, state: common.RunState.ValueType, generation: int) -> None:
        status = status_pb2.Status(
            connector=key[0],
            task=key[1],
            state=state,
            worker_id=self.identity.worker_id,
            worker_incarnation=self.identity.incarnation,
            generation=generation,
            commit_scope=None if key[1] is None else common.CommitScope(group=f"connect-{key[0]}", topics=["t"]),
        )
        put = status_write_pb.StatusPut(status=status, mode=status_write_pb.PUT_MODE_PUT)
        await self._statuses.PutStatuses(
            status_write_pb.PutStatusesRequest(request_id=uuid.uuid4().hex, writer=self.identity, puts=[put])
        )


def _key(unit: pb.Unit) -> Key:
    return (unit.connector, unit.task if unit.HasField("task") else None)


def _unit(key: Key) -> pb.Unit:
    return pb.Unit(connector=key[0], task=key[1])


def _validation(config: common.Properties) -> worker_service_pb2.ConfigValidation:
    """Refuse a config with the property `wrong`."""
    result = worker_service_pb2.ConfigValidation(
        class_name=config.entries["connector.class"].text, connector_type=common.CONNECTOR_TYPE_SINK
    )
    if "wrong" in config.entries:
        result.error_count = 1
        result.fields.add(name="wrong", errors=["must not be set"])
    return result
