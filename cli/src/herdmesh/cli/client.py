"""The CLI's client of the herders.

Owns the search for the leader, with a bounded wait for one. Knows no meaning of any RPC. Invariant: every failure
leaves here as `CommandError`, with the service's own reason.
"""

from __future__ import annotations

import asyncio
import getpass
import os
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import grpc

from herdmesh.api.herder.v1 import admin_messages_pb2 as admin
from herdmesh.api.herder.v1 import connector_service_pb2_grpc as service
from herdmesh.cli.contexts import find_target
from herdmesh.cli.errors import CommandError, from_reason, shown_violations, unreachable
from herdmesh.rpc import errors as rpc_errors
from herdmesh.rpc import tracing
from herdmesh.rpc.client import connect
from herdmesh.rpc.leader import LeaderSearch

if TYPE_CHECKING:
    from herdmesh.api.herder.v1.connector_service_pb2_grpc import ConnectorServiceAsyncStub

#: A fail-over of the leader takes under 5 s; waiting longer hides a real outage.
PATIENCE_S = 10.0
#: After this time without a message the client checks whether the herder is alive, and waits as long for the response.
_SILENCE_S = 2.0
#: Reasons after which the same call may be sent again.
_RETRIED = frozenset(
    {
        *("NOT_LEADER", "NO_LEADER", "SHUTTING_DOWN", "NO_WORKER", "QUEUE_FULL"),
        *("STORE_REPLAYING", "NOT_WRITER", "WRITER_FENCED", "TOPIC_RECREATED"),
        # every mutation of the CLI has a request id, so a retry after an unknown outcome is safe
        *("UNREACHABLE", "WRITE_OUTCOME_UNKNOWN"),
    }
)
_ANOTHER_MAY_LEAD = frozenset({"NO_LEADER", "SHUTTING_DOWN", "UNREACHABLE", "WRITE_OUTCOME_UNKNOWN"})


def find_herder(option: str | None) -> str:
    """Addresses of herders, comma separated, as `herdmesh.cli.contexts` finds them."""
    return find_target(option).address


def find_config_stores(option: str | None) -> list[str]:
    """Addresses of the replicas, found as those of herders are."""
    return _split(find_target(option, "config_store").address)


def find_status_stores(option: str | None) -> list[str]:
    """As `find_config_stores`."""
    return _split(find_target(option, "status_store").address)


def _split(addresses: str) -> list[str]:
    return [address.strip() for address in addresses.split(",") if address.strip()]


class HerderClient:
    """Client of the leading herder. `async with HerderClient(addresses) as client`.

    `addresses`: any herders of the mesh, comma separated; a follower is enough to find the leader. `check` is called
    with each request of `call` before it is sent, and may raise.
    """

    def __init__(
        self, addresses: str, patience_s: float = PATIENCE_S, check: Callable[[Any], None] | None = None
    ) -> None:
        self._check = check
        self._search = LeaderSearch(addresses)
        self._configured = addresses
        self._patience_s = patience_s
        self._traceparent = _traceparent()
        trace = ((tracing.TRACEPARENT_KEY, self._traceparent),) if self._traceparent else ()
        self._caller = (("herdmesh-caller", _who()), *trace)
        # one channel per herder ever used: closing one would cancel other calls on it
        self._channels: dict[str, grpc.aio.Channel] = {}

    @property
    def address(self) -> str:
        """The herder of the last call, or of the next one."""
        return self._search.address

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for channel in self._channels.values():
            await channel.close()

    async def call(
        self, pick: Callable[[ConnectorServiceAsyncStub], Callable[..., Any]], request: Any, timeout_s: float = 60.0
    ) -> Any:
        """Call one method on the leader; waits up to `PATIENCE_S` while there is none.

        Raises `CommandError` with the service's reason, or `UNREACHABLE`.
        """
        if self._check is not None:
            self._check(request)
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + self._patience_s
        while True:
            address = self._search.address
            stub = self._stub(address)
            try:
                with tracing.within(self._traceparent):
                    answer = pick(stub)(request, timeout=timeout_s, metadata=self._caller)
                reply = await self._while_alive(stub, answer)
                if isinstance(reply, admin.GetClusterResponse):
                    _must_be_the_leaders(reply)
            except rpc_errors.HerdmeshError as error:
                wait_s = self._after(error, address)
                if wait_s is None or loop.time() + wait_s > deadline_s:
                    raise self._given_up(error) from None
                await asyncio.sleep(wait_s)
            else:
                self._search.reached()
                return reply

    async def stream(
        self, pick: Callable[[ConnectorServiceAsyncStub], Callable[..., Any]], request: Any
    ) -> AsyncIterator[Any]:
        """A stream from the leader, which is found as in `call`. Once begun, it ends with `CommandError` when it breaks
        or its herder falls silent: the caller decides whether to open another.
        """
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + self._patience_s
        begun = False
        while True:
            address = self._search.address
            stub = self._stub(address)
            messages = aiter(pick(stub)(request))
            try:
                while (message := await self._while_alive(stub, anext(messages, None))) is not None:
                    begun = True
                    self._search.reached()
                    yield message
            except rpc_errors.HerdmeshError as error:
                wait_s = self._after(error, address)
                if begun or wait_s is None or loop.time() + wait_s > deadline_s:
                    raise self._given_up(error) from None
                await asyncio.sleep(wait_s)
            else:
                return

    async def _while_alive(self, stub: ConnectorServiceAsyncStub, answer: Awaitable[Any]) -> Any:
        """Await the response. The connection to a frozen or cut-off herder stays open for long; so while the herder is
        silent, the client checks whether it is alive. Raises `Unreachable` when it is not.
        """
        waiting = asyncio.ensure_future(answer)
        try:
            while True:
                await asyncio.wait({waiting}, timeout=_SILENCE_S)
                if waiting.done():
                    return waiting.result()
                try:
                    await stub.GetCluster(admin.GetClusterRequest(), timeout=_SILENCE_S)
                except (rpc_errors.Unreachable, rpc_errors.Timeout) as error:
                    if not waiting.done():
                        raise rpc_errors.Unreachable(f"the herder stopped answering: {error.message}") from None
        finally:
            if not waiting.done():
                waiting.cancel()
                await asyncio.gather(waiting, return_exceptions=True)

    def _after(self, error: rpc_errors.HerdmeshError, address: str) -> float | None:
        """Seconds to wait before the next attempt, None when there is none. Calls run side by side: only an error of
        the current address moves the search to the next one.
        """
        if error.reason not in _RETRIED:
            return None
        if address != self._search.address:
            return 0.0
        if isinstance(error, rpc_errors.NotLeader):
            return self._search.follows(error.metadata.get("leader_address", ""))
        if error.reason in _ANOTHER_MAY_LEAD:
            return self._search.unanswered()
        return self._search.again()

    def _given_up(self, error: rpc_errors.HerdmeshError) -> CommandError:
        if isinstance(error, rpc_errors.Unreachable):
            return unreachable(self._configured, error.message)
        if isinstance(error, rpc_errors.NotLeader):
            return from_reason("NO_LEADER", str(error))
        return _command_error(error)

    def _stub(self, address: str) -> ConnectorServiceAsyncStub:
        channel = self._channels.get(address)
        if channel is None:
            channel = self._channels[address] = connect(address)
        return service.ConnectorServiceStub(channel)


def _who() -> str:
    """The caller's name for the history of changes: `alice@host`, in ASCII as a header must be."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        user = str(os.getuid())
    return f"{user}@{socket.gethostname()}".encode("ascii", "replace").decode()


def _traceparent() -> str:
    """The trace that the environment names (`herd --trace` begins one), for the herder to continue."""
    named = os.environ.get(tracing.TRACEPARENT_ENV, "")
    return named if tracing.is_traceparent(named) else ""


def _must_be_the_leaders(reply: admin.GetClusterResponse) -> None:
    """Raise unless the leader sent this reply: a follower answers this call too, without the leader's counts, and only
    a leader has an epoch.
    """
    if reply.epoch:
        return
    if reply.leader_address:
        raise rpc_errors.NotLeader(reply.leader_address)
    raise rpc_errors.NoLeader("no herder leads at the moment; try again")


def _command_error(error: rpc_errors.HerdmeshError) -> CommandError:
    if isinstance(error, rpc_errors.InvalidConfig):
        fields = shown_violations((one.field, one.message) for one in error.violations)
        return from_reason(error.reason, "the config was refused", fields)
    return from_reason(error.reason, error.message)
