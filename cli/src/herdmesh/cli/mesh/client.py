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
from contextvars import ContextVar
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import grpc

from herdmesh.api.herder.v1 import admin_messages_pb2 as admin
from herdmesh.api.herder.v1 import connector_service_pb2_grpc as service
from herdmesh.cli.errors import EXIT_USAGE, CommandError, from_reason, shown_violations, unreachable
from herdmesh.cli.mesh.addresses import check_addresses, check_resolvable, speaks_http, wrong_service
from herdmesh.cli.mesh.contexts import find_target
from herdmesh.rpc import errors as rpc_errors
from herdmesh.rpc.client import connect
from herdmesh.rpc.leader import LeaderSearch
from herdmesh.rpc.monitoring import tracing

if TYPE_CHECKING:
    from herdmesh.api.herder.v1.connector_service_pb2_grpc import ConnectorServiceAsyncStub

#: A fail-over of the leader takes under 5 s; waiting longer hides a real outage.
PATIENCE_S = 10.0
#: Seconds to wait for a leading herder, in place of `PATIENCE_S`; `--timeout` sets it for one command.
TIMEOUT_ENV = "HERDMESH_TIMEOUT"
#: A command that still has no connection after this time says what it waits for.
_NOTICE_S = 0.8
#: After this time without a message the client checks whether the herder is alive, and waits as long for the response.
_SILENCE_S = 2.0
_SILENCE_S_MIN = 0.25
#: Reasons after which the same call may be sent again.
RETRIED = frozenset(
    {
        *("NOT_LEADER", "NO_LEADER", "SHUTTING_DOWN", "NO_WORKER", "QUEUE_FULL"),
        *("STORE_REPLAYING", "NOT_WRITER", "WRITER_FENCED", "TOPIC_RECREATED"),
        # every mutation of the CLI has a request id, so a retry after an unknown outcome is safe
        *("UNREACHABLE", "WRITE_OUTCOME_UNKNOWN"),
    }
)
_ANOTHER_MAY_LEAD = frozenset({"NO_LEADER", "SHUTTING_DOWN", "UNREACHABLE", "WRITE_OUTCOME_UNKNOWN"})


def find_herder(option: str | None) -> str:
    """Addresses of herders, comma separated, as `herdmesh.cli.mesh.contexts` finds them."""
    return find_target(option).address


_chosen_s: ContextVar[float | None] = ContextVar("chosen patience", default=None)


def choose_patience_s(seconds: float | None) -> None:
    """Set the time to wait for a leading herder for this command (`herd --timeout`); None = as the environment says."""
    _chosen_s.set(seconds)


def find_patience_s() -> float:
    """Seconds to wait for a leading herder. Raises CommandError for a `HERDMESH_TIMEOUT` that is no positive number."""
    if (chosen := _chosen_s.get()) is not None:
        return chosen
    text = os.environ.get(TIMEOUT_ENV, "")
    if not text:
        return PATIENCE_S
    try:
        found = float(text)
    except ValueError:
        found = 0.0
    if not 0 < found < float("inf"):
        raise CommandError("USAGE", f"{TIMEOUT_ENV} is {text}; write a number of seconds above 0", exit_code=EXIT_USAGE)
    return found


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
        self,
        addresses: str,
        patience_s: float | None = None,
        check: Callable[[Any], None] | None = None,
        on_wait: Callable[[str], None] | None = None,
    ) -> None:
        """`patience_s` None = `find_patience_s`. `check` is called with every request before it is sent. `on_wait` is
        called once, with a line for the user, when there is no connection after `_NOTICE_S`. Raises CommandError for an
        address that cannot be used.
        """
        self._check = check
        addresses = check_addresses(addresses)
        self._search = LeaderSearch(addresses)
        self._configured = addresses
        self._patience_s = find_patience_s() if patience_s is None else patience_s
        self._on_wait = on_wait
        self._resolvable = False
        self._last_error = ""
        self._traceparent = _traceparent()
        trace = ((tracing.TRACEPARENT_KEY, self._traceparent),) if self._traceparent else ()
        self._caller = (("herdmesh-caller", _who()), *trace)
        # one channel per herder ever used: closing one would cancel other calls on it
        self._channels: dict[str, grpc.aio.Channel] = {}

    @property
    def patience_s(self) -> float:
        """Seconds to wait for a leading herder."""
        return self._patience_s

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

    def check(self, request: Any) -> None:
        """Raise CommandError for a change that may not be sent. `call` does it; a stream's caller does it itself."""
        if self._check is not None:
            self._check(request)

    async def call(
        self, pick: Callable[[ConnectorServiceAsyncStub], Callable[..., Any]], request: Any, timeout_s: float = 60.0
    ) -> Any:
        """Call one method on the leader; waits up to `patience_s` while there is none.

        Raises `CommandError` with the service's reason, or `UNREACHABLE`.
        """
        self.check(request)
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + self._patience_s
        notice = loop.call_later(_NOTICE_S, self._announce)
        try:
            return await self._call(pick, request, timeout_s, deadline_s)
        finally:
            notice.cancel()

    async def _call(
        self,
        pick: Callable[[ConnectorServiceAsyncStub], Callable[..., Any]],
        request: Any,
        timeout_s: float,
        deadline_s: float,
    ) -> Any:
        await self._resolve()
        while True:
            address = self._search.address
            stub = self._stub(address)
            try:
                with tracing.within(self._traceparent):
                    answer = pick(stub)(request, timeout=timeout_s, metadata=self._caller)
                reply = await self._while_alive(stub, answer, deadline_s)
                if isinstance(reply, admin.GetClusterResponse):
                    _must_be_the_leaders(reply)
            except rpc_errors.HerdmeshError as error:
                await self._pause(error, address, deadline_s)
            else:
                self._reached()
                return reply

    async def stream(
        self, pick: Callable[[ConnectorServiceAsyncStub], Callable[..., Any]], request: Any
    ) -> AsyncIterator[Any]:
        """A stream from the leader, which is found as in `call`. Once begun, it ends with `CommandError` when it breaks
        or its herder falls silent: the caller decides whether to open another. `request` may be a function that makes
        the iterator of requests of a stream; it is called for each attempt.
        """
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + self._patience_s
        notice = loop.call_later(_NOTICE_S, self._announce)
        begun = False
        try:
            await self._resolve()
            while True:
                address = self._search.address
                stub = self._stub(address)
                sent = request() if callable(request) else request
                with tracing.within(self._traceparent):
                    messages = aiter(pick(stub)(sent, metadata=self._caller))
                try:
                    while (message := await self._while_alive(stub, anext(messages, None))) is not None:
                        begun = True
                        notice.cancel()
                        self._reached()
                        yield message
                except rpc_errors.HerdmeshError as error:
                    if begun:
                        raise self._given_up(error) from None
                    await self._pause(error, address, deadline_s)
                else:
                    return
        finally:
            notice.cancel()

    async def _resolve(self) -> None:
        """Check once that the configured names can be resolved. Raises CommandError."""
        if not self._resolvable:
            await check_resolvable(self._configured)
            self._resolvable = True

    async def _pause(self, error: rpc_errors.HerdmeshError, address: str, deadline_s: float) -> None:
        """Wait before the next attempt after an error. Raises CommandError when there is none."""
        self._last_error = error.message
        if (refusal := speaks_http(error, address)) is not None:
            raise refusal
        if error.reason == "NOT_BUILT":
            refusal = await wrong_service(self._channels[address], address)
            if refusal is not None:
                raise refusal
        wait_s = self._after(error, address)
        if wait_s is None or asyncio.get_running_loop().time() + wait_s > deadline_s:
            raise self._given_up(error) from None
        await asyncio.sleep(wait_s)

    def _reached(self) -> None:
        self._search.reached()
        self._on_wait = None  # a later call of this command that waits is part of its work

    def _announce(self) -> None:
        """Tell the user what the command waits for, unless a herder is connected and works on the call."""
        tell = self._on_wait
        if tell is None or (self._is_connected() and not self._last_error):
            return
        self._on_wait = None
        detail = f" ({self._last_error})" if self._last_error else ""
        tell(f"waiting for a leading herder at {self._configured}, at most {self._patience_s:g} s{detail}")

    async def _while_alive(
        self, stub: ConnectorServiceAsyncStub, answer: Awaitable[Any], deadline_s: float = float("inf")
    ) -> Any:
        """Await the response. The connection to a frozen or cut-off herder stays open for long; so while the herder is
        silent, the client checks whether it is alive. Raises `Unreachable` when it is not. Without a connection the
        checks end at `deadline_s`.
        """
        waiting = asyncio.ensure_future(answer)
        try:
            while True:
                await asyncio.wait({waiting}, timeout=self._silence_s(deadline_s))
                if waiting.done():
                    return waiting.result()
                try:
                    await stub.GetCluster(admin.GetClusterRequest(), timeout=self._silence_s(deadline_s))
                except (rpc_errors.Unreachable, rpc_errors.Timeout) as error:
                    if not waiting.done():
                        raise rpc_errors.Unreachable(f"the herder stopped answering: {error.message}") from None
        finally:
            if not waiting.done():
                waiting.cancel()
                await asyncio.gather(waiting, return_exceptions=True)

    def _silence_s(self, deadline_s: float) -> float:
        """Time for an answer: the whole time over a connection, without one at most until the deadline."""
        if self._is_connected():
            return _SILENCE_S
        return min(_SILENCE_S, max(deadline_s - asyncio.get_running_loop().time(), _SILENCE_S_MIN))

    def _is_connected(self) -> bool:
        channel = self._channels.get(self._search.address)
        return channel is not None and channel.get_state() is grpc.ChannelConnectivity.READY

    def _after(self, error: rpc_errors.HerdmeshError, address: str) -> float | None:
        """Seconds to wait before the next attempt, None when there is none. Calls run side by side: only an error of
        the current address moves the search to the next one.
        """
        if error.reason not in RETRIED:
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
        return command_error(error)

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


def command_error(error: rpc_errors.HerdmeshError) -> CommandError:
    """The error of a command for a service's error."""
    if isinstance(error, rpc_errors.InvalidConfig):
        fields = shown_violations((one.field, one.message) for one in error.violations)
        return from_reason(error.reason, "the config was refused", fields)
    return from_reason(error.reason, error.message)
