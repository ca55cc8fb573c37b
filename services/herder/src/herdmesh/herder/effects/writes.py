"""Store writes: the state's requests to the two stores, their retries, and their outcome as events.

Owns the stubs of the two write services, the retries and their bound. Each write runs as an asyncio task of its own, so
none waits for another; the state keeps the order where order matters.

Invariant: every write ends in exactly one WriteDone or WriteFailed. It carries a request id (the caller's, else one
created here), so a retry after a lost response cannot apply it twice.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Final, assert_never

import structlog

from herdmesh.api.configstore.v1.config_write_service_pb2_grpc import ConfigWriteServiceStub
from herdmesh.api.statusstore.v1 import status_write_service_pb2 as status_pb
from herdmesh.api.statusstore.v1.status_write_service_pb2_grpc import StatusWriteServiceStub
from herdmesh.herder.state.model import events as ev
from herdmesh.herder.state.model import instructions as ins
from herdmesh.herder.wire import stores as wire
from herdmesh.herder.wire.values import wall_clock_ms
from herdmesh.rpc import revisions
from herdmesh.rpc.client import RETRIABLE, connect, retrying
from herdmesh.rpc.errors import HerdmeshError, WriteOutcomeUnknown
from herdmesh.rpc.monitoring import tracing
from herdmesh.rpc.request_ids import new_request_id
from herdmesh.session.model import UnitId

if TYPE_CHECKING:
    import grpc.aio

    from herdmesh.api.configstore.v1.config_write_service_pb2_grpc import ConfigWriteServiceAsyncStub
    from herdmesh.api.statusstore.v1.status_write_service_pb2_grpc import StatusWriteServiceAsyncStub

CONFIG_WRITE_SERVICE: Final = "herdmesh.api.configstore.v1.ConfigWriteService"
STATUS_WRITE_SERVICE: Final = "herdmesh.api.statusstore.v1.StatusWriteService"
#: longer than a fail-over of a store; the state enforces the caller's own deadline.
WRITE_S_MAX: Final = 20.0
DRAIN_S: Final = 1.0

#: Writes under the request id of a caller.
_OfCallers = (
    ins.PutConfig
    | ins.DeleteConfig
    | ins.PutTarget
    | ins.RequestRestart
    | ins.PutLogger
    | ins.RecordDrain
    | ins.RecordOffsets
)
#: Writes whose instruction has the whole content.
_WholeWrite = (
    ins.PutConfig
    | ins.DeleteConfig
    | ins.PutTarget
    | ins.RequestRestart
    | ins.CommitTasks
    | ins.PutTaskCount
    | ins.PutLogger
    | ins.RecordDrain
    | ins.RecordOffsets
    | ins.DeleteStatuses
    | ins.PutStatus
)
_log: structlog.stdlib.BoundLogger = structlog.get_logger(__name__)


class StoreWrites:
    """Writes of one herder. `post` hands outcomes to the loop; `campaign` gets the instructions for the campaign."""

    def __init__(
        self,
        config_store: str,
        status_store: str,
        leader_id: str,
        post: Callable[[Any], Awaitable[None]],
        campaign: Callable[[ins.Campaigning], None],
    ) -> None:
        self._config_channel: grpc.aio.Channel = connect(
            config_store, CONFIG_WRITE_SERVICE if "," in config_store else ""
        )
        self._status_channel: grpc.aio.Channel = connect(
            status_store, STATUS_WRITE_SERVICE if "," in status_store else ""
        )
        self._config: ConfigWriteServiceAsyncStub = ConfigWriteServiceStub(self._config_channel)
        self._status: StatusWriteServiceAsyncStub = StatusWriteServiceStub(self._status_channel)
        self._leader_id = leader_id
        self._post = post
        self._campaign = campaign
        # The state bounds this set: one write per call, and calls are bounded; one write of each kind per connector.
        self._running: set[asyncio.Task[None]] = set()

    def write(self, wanted: ins.Write) -> None:
        """Start a write."""
        task = asyncio.create_task(self._write(wanted))
        self._running.add(task)
        task.add_done_callback(self._running.discard)

    def campaign(self, wanted: ins.Campaigning) -> None:
        """Pass an instruction to the campaign."""
        self._campaign(wanted)

    async def close(self) -> None:
        """Wait for running writes for `DRAIN_S`, then cancel them (their ids make retries safe)."""
        if self._running:
            await asyncio.wait(self._running, timeout=DRAIN_S)
        for task in self._running:
            task.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)
        await self._config_channel.close()
        await self._status_channel.close()

    async def _write(self, wanted: ins.Write) -> None:
        request_id = ""
        if isinstance(wanted, _OfCallers):
            request_id = wanted.options.request_id
        send = self._sender(wanted, request_id or new_request_id())
        outcome: ev.WriteDone | ev.WriteFailed
        try:
            with tracing.within(wanted.options.traceparent if isinstance(wanted, _OfCallers) else ""):
                response = await retrying(send, WRITE_S_MAX, retry_on=(*RETRIABLE, WriteOutcomeUnknown))
        except HerdmeshError as error:
            of_nobody = isinstance(wanted, ins.RotateSessionKey | ins.PutLogger | ins.RecordDrain)
            unit = "" if of_nobody else UnitId(wanted.connector).log_context
            looked_back = isinstance(wanted, _OfCallers) and wanted.options.retry_only
            what = "no_earlier_request" if looked_back else "write_failed"
            _log.info(what, write=type(wanted).__name__, unit=unit, error=str(error))
            outcome = ev.WriteFailed(wanted.op, error)
        else:
            outcome = done(wanted, response)
        await self._post(outcome)

    def _sender(self, wanted: ins.Write, request_id: str) -> Callable[[], Awaitable[Any]]:
        """A function that sends the same request each time it is called."""
        if not isinstance(wanted, ins.RotateSessionKey):
            return lambda: self._send(wanted, request_id)
        key = secrets.token_bytes(wanted.size_bytes)
        request = wire.put_session_key(wanted, request_id, self._leader_id, key, wall_clock_ms())
        return lambda: self._config.PutSessionKey(request)

    def _send(self, wanted: _WholeWrite, request_id: str) -> Awaitable[Any]:
        match wanted:
            case ins.PutConfig():
                return self._config.PutConnectorConfig(wire.put_config(wanted, request_id))
            case ins.DeleteConfig():
                return self._config.DeleteConnector(wire.delete_config(wanted, request_id))
            case ins.PutTarget():
                return self._config.SetTargetState(wire.put_target(wanted, request_id))
            case ins.RequestRestart():
                return self._config.RequestRestart(wire.request_restart(wanted, request_id, self._leader_id))
            case ins.CommitTasks():
                return self._config.CommitTaskConfigs(wire.commit_tasks(wanted, request_id, self._leader_id))
            case ins.PutTaskCount():
                return self._config.PutTaskCount(wire.put_task_count(wanted, request_id, self._leader_id))
            case ins.PutLogger():
                return self._config.PutLoggerLevel(wire.put_logger(wanted, request_id))
            case ins.RecordDrain():
                return self._config.RecordDrain(wire.record_drain(wanted, request_id))
            case ins.RecordOffsets():
                return self._config.RecordOffsets(wire.record_offsets(wanted, request_id, self._leader_id))
            case ins.PutStatus():
                return self._status.PutStatuses(wire.put_status(wanted, request_id))
            case ins.DeleteStatuses():
                request = status_pb.DeleteConnectorStatusesRequest(
                    request_id=request_id,
                    connector=wanted.connector,
                    tasks_from=wanted.tasks_from,
                    include_topics=wanted.tasks_from is None,
                    generation_below=wanted.generation_below,
                )
                return self._status.DeleteConnectorStatuses(request)
            case _:
                assert_never(wanted)


def done(wanted: ins.Write, response: Any) -> ev.WriteDone:
    """The event for a store's response to a write."""
    revision = None
    if not isinstance(wanted, ins.DeleteStatuses | ins.PutStatus):
        revision = revisions.from_proto(response.meta.revision)
    created = isinstance(wanted, ins.PutConfig) and response.created
    unchanged = isinstance(wanted, ins.PutConfig) and response.unchanged
    restarted = wire.restarted(response) if isinstance(wanted, ins.RequestRestart) else ()
    offsets = wire.offsets_recorded(response) if isinstance(wanted, ins.RecordOffsets) else None
    return ev.WriteDone(wanted.op, revision, created, restarted, offsets, unchanged)
