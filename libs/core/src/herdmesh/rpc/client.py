"""Channels to Herdmesh services, and retries.

Owns keepalive, reconnect backoff, load balancing by health, and the conversion of a status back into the error class
that the server raised. Owns no stub: `SomeServiceStub(connect(...))`.

Invariant: a call over a channel of `connect` fails only with `HerdmeshError` (or `asyncio.CancelledError`), never with
`grpc.aio.AioRpcError`.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any, Final, TypeVar

import grpc.aio

from herdmesh.rpc import errors, status
from herdmesh.rpc.monitoring import tracing

ResultT = TypeVar("ResultT")

#: Largest message in bytes that clients and servers accept and send.
MESSAGE_BYTES_MAX: Final = 64 * 1024 * 1024
RECONNECT_BACKOFF_MS_MAX: Final = 500
#: Default errors for `retrying`: nothing was applied, or the call may be repeated.
RETRIABLE: Final[tuple[type[errors.HerdmeshError], ...]] = (errors.Unavailable, errors.QueueFull)

_BACKOFF_MS_FIRST: Final = 25
_BACKOFF_MS_MAX: Final = 500


def connect(addresses: str | Sequence[str], health_service: str = "") -> grpc.aio.Channel:
    """A channel to a service at one or several addresses (`host:port`, or several as one comma separated text).

    One address: every call goes there. Several: numeric addresses only; calls go to the first that connects, or, with
    `health_service` (a full service name), in turn to those whose health is SERVING for it, which is how calls find
    the writer among replicas. Connects lazily, reconnects after at most 500 ms. Raises ValueError for no address.
    """
    split = addresses.split(",") if isinstance(addresses, str) else addresses
    targets = [item.strip() for item in split if item.strip()]
    if not targets:
        raise ValueError("no address to connect to")
    interceptors = [*_error_interceptors(), *tracing.client_interceptors()]
    return grpc.aio.insecure_channel(_target(targets), options=_options(health_service), interceptors=interceptors)


async def retrying(
    call: Callable[[], Awaitable[ResultT]],
    deadline_s: float,
    retry_on: tuple[type[errors.HerdmeshError], ...] = RETRIABLE,
    on_retry: Callable[[errors.HerdmeshError], None] | None = None,
) -> ResultT:
    """Repeat `await call()` until it raises none of `retry_on`, with jittered backoff of 25 to 500 ms.

    After `deadline_s` in total raises the last error, or `Timeout` when no attempt ended. The caller ensures that the
    call may be repeated safely (a read, or a mutation with `request_id`).
    """
    loop = asyncio.get_running_loop()
    deadline = loop.time() + deadline_s
    backoff_ms = _BACKOFF_MS_FIRST
    last: errors.HerdmeshError | None = None
    while True:
        try:
            async with asyncio.timeout_at(deadline):
                return await call()
        except retry_on as error:
            last = error
        except TimeoutError:
            raise last or errors.Timeout("waiting for the first answer") from None
        wait_s = random.uniform(backoff_ms / 2, backoff_ms) / 1000
        if loop.time() + wait_s >= deadline:
            raise last
        if on_retry is not None:
            on_retry(last)
        await asyncio.sleep(wait_s)
        backoff_ms = min(backoff_ms * 2, _BACKOFF_MS_MAX)


def _target(targets: Sequence[str]) -> str:
    if len(targets) == 1:
        return targets[0]
    numeric = [item.replace("localhost:", "127.0.0.1:") for item in targets]
    for item in numeric:
        if not item.rpartition(":")[0].replace(".", "").isdigit():
            raise ValueError(f"of several addresses each must be numeric, {item!r} is not; give one DNS name instead")
    return "ipv4:" + ",".join(numeric)


def _options(health_service: str) -> list[tuple[str, Any]]:
    options: list[tuple[str, Any]] = [
        ("grpc.max_receive_message_length", MESSAGE_BYTES_MAX),
        ("grpc.max_send_message_length", MESSAGE_BYTES_MAX),
        ("grpc.initial_reconnect_backoff_ms", 100),
        ("grpc.min_reconnect_backoff_ms", 100),
        ("grpc.max_reconnect_backoff_ms", RECONNECT_BACKOFF_MS_MAX),
        ("grpc.keepalive_time_ms", 10_000),
        ("grpc.keepalive_timeout_ms", 5_000),
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.http2.max_pings_without_data", 0),
        # A connection of its own: channels with a shared one would share its backoff, whatever their lifetimes.
        ("grpc.use_local_subchannel_pool", 1),
        ("grpc.enable_http_proxy", 0),
    ]
    if health_service:
        config: dict[str, Any] = {
            "loadBalancingConfig": [{"round_robin": {}}],
            "healthCheckConfig": {"serviceName": health_service},
        }
        options.append(("grpc.service_config", json.dumps(config)))
    return options


def _restored(error: grpc.aio.AioRpcError) -> errors.HerdmeshError:
    return status.unpack(error.code(), error.details() or "", error.trailing_metadata())


async def _await_reply(continuation: Any, details: Any, request: Any) -> Any:
    call = await continuation(details, request)
    try:
        await call
    except grpc.aio.AioRpcError as error:
        raise _restored(error) from None
    return call


async def _replies(call: Any) -> AsyncIterator[Any]:
    try:
        async for reply in call:
            yield reply
    except grpc.aio.AioRpcError as error:
        raise _restored(error) from None


class _UnaryUnary(grpc.aio.UnaryUnaryClientInterceptor):
    async def intercept_unary_unary(self, continuation: Any, client_call_details: Any, request: Any) -> Any:
        return await _await_reply(continuation, client_call_details, request)


class _StreamUnary(grpc.aio.StreamUnaryClientInterceptor):
    async def intercept_stream_unary(self, continuation: Any, client_call_details: Any, request_iterator: Any) -> Any:
        return await _await_reply(continuation, client_call_details, request_iterator)


class _UnaryStream(grpc.aio.UnaryStreamClientInterceptor):
    async def intercept_unary_stream(self, continuation: Any, client_call_details: Any, request: Any) -> Any:
        return _replies(await continuation(client_call_details, request))


class _StreamStream(grpc.aio.StreamStreamClientInterceptor):
    async def intercept_stream_stream(self, continuation: Any, client_call_details: Any, request_iterator: Any) -> Any:
        return _replies(await continuation(client_call_details, request_iterator))


def _error_interceptors() -> list[Any]:
    # gRPC sorts interceptors by kind, so there is one class for each; none keeps state.
    return [_UnaryUnary(), _StreamUnary(), _UnaryStream(), _StreamStream()]
