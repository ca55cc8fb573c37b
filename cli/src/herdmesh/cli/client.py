"""The CLI's way to the herders.

Owns following the leader and waiting a bounded time for one. Owns no meaning of any RPC. Invariant: whatever fails
leaves here as `CommandError`, with the service's own reason.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import grpc

from herdmesh.api.herder.v1 import connector_service_pb2_grpc as service
from herdmesh.cli.errors import CommandError, from_reason, unreachable
from herdmesh.devstack.layout import StackLayout
from herdmesh.rpc import errors as rpc_errors
from herdmesh.rpc.client import connect

if TYPE_CHECKING:
    from herdmesh.api.herder.v1.connector_service_pb2_grpc import ConnectorServiceAsyncStub

DEFAULT_HERDER = "127.0.0.1:7203"
DEFAULT_CONFIG_STORE = "127.0.0.1:7201"
DEFAULT_STATUS_STORE = "127.0.0.1:7202"
DEFAULT_DATA_DIR = Path(".herd")
#: A fail-over of the leader takes under 5 s; waiting longer hides a real outage.
PATIENCE_S = 10.0
_RETRY_S = 0.25
#: Nothing was applied under these: the same call may be sent again.
_RETRIED = frozenset(
    {"NO_LEADER", "STORE_REPLAYING", "NOT_WRITER", "WRITER_FENCED", "SHUTTING_DOWN", "TOPIC_RECREATED", "NO_WORKER"}
)


def find_herder(option: str | None) -> str:
    """The address to dial: the flag, HERDMESH_HERDER, the stack in ./.herd, else the usual port."""
    if option:
        return option
    if address := os.environ.get("HERDMESH_HERDER"):
        return address
    state = StackLayout(DEFAULT_DATA_DIR).read_state()
    return state.herder if state is not None and state.herder else DEFAULT_HERDER


def find_config_stores(option: str | None) -> list[str]:
    """Addresses of the replicas: the flag, HERDMESH_CONFIG_STORE, the stack in ./.herd, else the usual port."""
    state = StackLayout(DEFAULT_DATA_DIR).read_state()
    running = state.config_store if state is not None else ""
    return _split(option or os.environ.get("HERDMESH_CONFIG_STORE") or running or DEFAULT_CONFIG_STORE)


def find_status_stores(option: str | None) -> list[str]:
    """As `find_config_stores`, with HERDMESH_STATUS_STORE."""
    state = StackLayout(DEFAULT_DATA_DIR).read_state()
    running = state.status_store if state is not None else ""
    return _split(option or os.environ.get("HERDMESH_STATUS_STORE") or running or DEFAULT_STATUS_STORE)


def _split(addresses: str) -> list[str]:
    return [address.strip() for address in addresses.split(",") if address.strip()]


class HerderClient:
    """One connection to whoever leads. `async with HerderClient(address) as client`."""

    def __init__(self, address: str, patience_s: float = PATIENCE_S) -> None:
        self.address = address
        self._configured = address
        self._patience_s = patience_s
        # one channel per herder ever followed: closing one would cancel other calls still on it
        self._channels: dict[str, grpc.aio.Channel] = {}
        self._stub: ConnectorServiceAsyncStub | None = None

    async def __aenter__(self) -> Self:
        self._dial(self.address)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for channel in self._channels.values():
            await channel.close()

    async def call(
        self, pick: Callable[[ConnectorServiceAsyncStub], Callable[..., Any]], request: Any, timeout_s: float = 60.0
    ) -> Any:
        """Call one method on the leader; waits up to the patience while there is none.

        Raises `CommandError` with the service's reason, or `UNREACHABLE`.
        """
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + self._patience_s
        while True:
            assert self._stub is not None
            try:
                return await pick(self._stub)(request, timeout=timeout_s)
            except rpc_errors.NotLeader as error:
                await self._follow(error.metadata.get("leader_address", ""))
                if loop.time() > deadline_s:
                    raise from_reason("NO_LEADER", str(error)) from None
            except rpc_errors.Unreachable as error:
                # every mutation of the CLI has a request id, so that repeating one of unknown outcome is safe
                if loop.time() > deadline_s:
                    raise unreachable(self.address, error.message) from None
                if self.address != self._configured:
                    await self._follow(self._configured)
                await asyncio.sleep(_RETRY_S)
            except rpc_errors.HerdmeshError as error:
                if error.reason not in _RETRIED or loop.time() > deadline_s:
                    raise _command_error(error) from None
                await asyncio.sleep(_RETRY_S)

    async def stream(
        self, pick: Callable[[ConnectorServiceAsyncStub], Callable[..., Any]], request: Any
    ) -> AsyncIterator[Any]:
        """A stream from the leader. Ends with `CommandError` when it breaks; the caller decides about another."""
        assert self._stub is not None
        try:
            async for message in pick(self._stub)(request):
                yield message
        except rpc_errors.NotLeader as error:
            await self._follow(error.metadata.get("leader_address", ""))
            raise from_reason("NO_LEADER", str(error)) from None
        except rpc_errors.Unreachable as error:
            raise unreachable(self.address, error.message) from None
        except rpc_errors.HerdmeshError as error:
            raise _command_error(error) from None

    async def _follow(self, leader_address: str) -> None:
        if not leader_address:
            await asyncio.sleep(_RETRY_S)
        self._dial(leader_address or self._configured)

    def _dial(self, address: str) -> None:
        self.address = address
        channel = self._channels.get(address)
        if channel is None:
            channel = self._channels[address] = connect(address)
        self._stub = service.ConnectorServiceStub(channel)


def _command_error(error: rpc_errors.HerdmeshError) -> CommandError:
    if isinstance(error, rpc_errors.InvalidConfig):
        fields = tuple((one.field, one.message) for one in error.violations)
        return from_reason(error.reason, "the config was refused", fields)
    return from_reason(error.reason, error.message)
