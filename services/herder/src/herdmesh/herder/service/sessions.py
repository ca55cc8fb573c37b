"""`WorkerSessionService`: one stream per worker.

Owns the stream's two directions. Does not own the meaning of its messages. Invariant: however a stream ends, the state
gets one event about it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any, Final, TypeAlias

import grpc.aio
import structlog

from herdmesh.api.herder.v1 import worker_session_service_pb2 as pb
from herdmesh.api.herder.v1 import worker_session_service_pb2_grpc as pb_grpc
from herdmesh.herder.effects.topic_tracking import TopicTracking
from herdmesh.herder.loop import HerderLoop, Outbox
from herdmesh.herder.wire import session as wire
from herdmesh.rpc.errors import HerdmeshError, RequestInvalid

SESSION_SERVICE: Final = "herdmesh.api.herder.v1.WorkerSessionService"

_Context: TypeAlias = "grpc.aio.ServicerContext[Any, Any]"
_log: structlog.stdlib.BoundLogger = structlog.get_logger(__name__)


class WorkerSessionServicer(pb_grpc.WorkerSessionServiceServicer):
    """Sessions of workers."""

    def __init__(self, loop: HerderLoop, tracking: TopicTracking) -> None:
        self._loop = loop
        self._tracking = tracking

    async def Session(
        self, request_iterator: AsyncIterator[pb.SessionRequest], context: _Context
    ) -> AsyncIterator[pb.SessionResponse]:
        refusal = self._loop.herder.refusal
        if refusal is not None:
            raise refusal
        with self._loop.session() as (number, outbox):
            reading = asyncio.create_task(self._read(number, outbox, request_iterator))
            try:
                async for message in outbox.messages():
                    yield wire.response(message)
            finally:
                reading.cancel()

    async def _read(self, number: int, outbox: Outbox, requests: AsyncIterator[pb.SessionRequest]) -> None:
        """Post the worker's messages until it ends its side, and then end this side."""
        greeted = False
        try:
            async for request in requests:
                if greeted is (request.WhichOneof("message") == "hello"):
                    raise RequestInvalid("a session opens with hello, and only once", "message")
                if not greeted:
                    worker = request.hello.worker
                    _log.info(
                        "hello",
                        session=number,
                        worker_id=worker.worker_id,
                        incarnation=worker.incarnation,
                        holdings=len(request.hello.holdings),
                    )
                greeted = True
                if request.WhichOneof("message") == "heartbeat":
                    self._tracking.seen(request.heartbeat.progress)
                event = wire.event(number, request)
                if event is not None:
                    await self._loop.post(event)
        except HerdmeshError as error:
            outbox.end(error)
        except grpc.aio.AioRpcError as error:
            _log.info("stream_broke", session=number, code=str(error.code()))
            outbox.end(None)
        else:
            outbox.end(None)
