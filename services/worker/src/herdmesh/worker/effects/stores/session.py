"""Session with the leading herder: connecting, hello, heartbeats, reports, commands.

Owns the connection and nothing that must survive it: queued messages are discarded when the stream breaks, because the
next hello has every held unit with its state, and the state offers task configs again to each session. Losing the
herder stops no unit.

Invariants: hello is created in the same step of the event loop as the queue behind it, so a later report is sent later.
Once a leaving worker was released, no session is opened any more: the leader has forgotten it by then, and would take
it for a new worker.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Final, TypeAlias

import structlog

from herdmesh.api.herder.v1 import worker_session_service_pb2 as session_pb2
from herdmesh.api.herder.v1 import worker_session_service_pb2_grpc as session_pb2_grpc
from herdmesh.rpc.client import connect
from herdmesh.rpc.errors import HerdmeshError, NotLeader
from herdmesh.rpc.leader import LeaderSearch
from herdmesh.session import wire as session_wire
from herdmesh.session.messages import Heartbeat, Released
from herdmesh.worker.state import events

_QUEUE_MAX: Final = 10_000
_WELCOME_TIMEOUT_S: Final = 5.0
_CLOSE_TIMEOUT_S: Final = 1.0
_MOVED_INTERVAL_S: Final = 0.25
_HEARTBEAT_EVERY: Final = 4
_log: structlog.stdlib.BoundLogger = structlog.get_logger(__name__)


_Outbox: TypeAlias = "asyncio.Queue[session_pb2.SessionRequest | None]"
"""Messages that a stream still has to send; None ends it."""


class HerderSession:
    """Connects to herders until closed; at most one stream at a time."""

    def __init__(
        self,
        addresses: str,
        hello: Callable[[], session_pb2.WorkerHello],
        emit: Callable[[events.Event], Awaitable[None]],
    ) -> None:
        self._search = LeaderSearch(addresses)
        self._hello = hello
        self._emit = emit
        self._outbox: _Outbox | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._stream: asyncio.Task[None] | None = None
        self._closing = False
        self._leaving = False
        self._released = False

    def start(self) -> list[asyncio.Task[None]]:
        """Start connecting. Returns the tasks that must not end before `close`."""
        self._tasks = [
            asyncio.create_task(self._dial_for_ever(), name="herder session"),
            asyncio.create_task(self._heartbeats(), name="heartbeats"),
        ]
        return self._tasks

    def send(self, request: session_pb2.SessionRequest) -> None:
        """Send in order. Without a stream the message is discarded; a stream whose queue is full is closed."""
        if self._outbox is None:
            return
        self._leaving = self._leaving or request.WhichOneof("message") == "leaving"
        try:
            self._outbox.put_nowait(request)
        except asyncio.QueueFull:
            self.drop("it takes no messages")

    def drop(self, reason: str) -> None:
        """Close the stream and connect again."""
        _log.warning("session_dropped", reason=reason)
        if self._stream is not None:
            self._stream.cancel()

    async def close(self) -> None:
        """Send the queued messages, let the herder read them (up to a second), and end."""
        self._closing = True
        if self._outbox is not None and self._stream is not None:
            with contextlib.suppress(asyncio.QueueFull):
                self._outbox.put_nowait(None)  # the herder ends the stream once it has read everything before this
            await asyncio.wait({self._stream}, timeout=_CLOSE_TIMEOUT_S)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _heartbeats(self) -> None:
        count = 0
        while True:
            await asyncio.sleep(_MOVED_INTERVAL_S)
            count += 1
            is_full = count % _HEARTBEAT_EVERY == 0
            if self._outbox is not None or is_full:  # without a session, waits are still reported to the status store
                now_ms = time.time_ns() // 1_000_000
                await self._emit(events.HeartbeatDue(only_if_moved=not is_full, now_ms=now_ms))

    async def _dial_for_ever(self) -> None:
        quiet = False
        while True:
            address = self._search.address
            self._stream = asyncio.create_task(self._one(address), name=f"session with {address}")
            try:
                await self._stream
                wait_s = self._search.again()
            except NotLeader as error:
                wait_s = self._search.follows(error.leader_address)
            except (HerdmeshError, TimeoutError) as error:
                # Also a herder that sent its welcome and then fell silent: another one may lead now.
                wait_s = self._search.unanswered()
                _log.log(20 if quiet else 30, "no_session", herder=address, error=str(error) or "no answer")
                quiet = True
            except asyncio.CancelledError:
                current = asyncio.current_task()
                if current is not None and current.cancelling():
                    self._stream.cancel()
                    raise
                wait_s = self._search.again()
            else:
                quiet = False
            if self._closing:
                return
            if self._released:
                await asyncio.Event().wait()  # until `close`
            await asyncio.sleep(wait_s)

    async def _one(self, address: str) -> None:
        """Run one stream from hello to its end."""
        channel = connect(address)
        opened = False
        outbox: _Outbox = asyncio.Queue(_QUEUE_MAX)
        try:
            hello = self._hello()
            self._leaving = hello.leaving
            outbox.put_nowait(session_pb2.SessionRequest(hello=hello))
            self._outbox = outbox
            stub = session_pb2_grpc.WorkerSessionServiceStub(channel)
            responses = aiter(stub.Session(_requests(outbox)))
            silence_s = _WELCOME_TIMEOUT_S
            while True:
                try:
                    async with asyncio.timeout(silence_s):
                        response = await anext(responses)
                except StopAsyncIteration:
                    return
                if response.WhichOneof("message") == "welcome":
                    timeout = response.welcome.session_timeout
                    silence_s = timeout.ToTimedelta().total_seconds() or silence_s
                    opened = True
                    self._search.reached()
                    _log.info("session_open", herder=address, leader=response.welcome.leader_id, epoch=response.epoch)
                message = session_wire.message_from(response)
                if isinstance(message, Released) and self._leaving:
                    self._released = True
                if message is not None and not isinstance(message, Heartbeat):
                    await self._emit(events.Command(response.epoch, message))
        finally:
            self._outbox = None
            _end(outbox)
            await channel.close()
            if opened:
                _log.info("session_closed", herder=address)
                await self._emit(events.SessionClosed())


async def _requests(outbox: _Outbox) -> AsyncIterator[session_pb2.SessionRequest]:
    while (request := await outbox.get()) is not None:
        yield request


def _end(outbox: _Outbox) -> None:
    """End the request side of a stream. When the call itself has failed, gRPC leaves it waiting for ever."""
    while not outbox.empty():
        outbox.get_nowait()
    outbox.put_nowait(None)
