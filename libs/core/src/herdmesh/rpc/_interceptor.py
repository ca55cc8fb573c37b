"""The one server interceptor: every exception that leaves a handler becomes a status of the one table.

Owns the mapping at the boundary, the correlation id of bugs, and the counts and durations of calls. The table itself is
`status`.

Invariant: a caller never sees UNKNOWN or the text of an exception that is not meant for callers; a bug is logged once
with its trace, and the caller gets only its correlation id.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing, asynccontextmanager, nullcontext
from typing import Any, Final, TypeAlias, cast

import grpc
import grpc.aio
import structlog

from herdmesh.rpc import encoded, errors, status
from herdmesh.rpc.monitoring import telemetry, tracing

DURATION: Final = (
    "herdmesh_rpc_server_duration_seconds",
    telemetry.DURATION_BOUNDS_S,
    "Time from the arrival of a gRPC call to its status, by method and outcome (OK or the error's reason).",
)
"""Name, bounds and description of the one metric of every server."""
_log: structlog.stdlib.BoundLogger = structlog.get_logger(__name__)

# These classes are generic only in the stubs, so the annotations stay text at run time.
_Context: TypeAlias = "grpc.aio.ServicerContext[Any, Any]"
_Handler: TypeAlias = "grpc.RpcMethodHandler[Any, Any]"


class StatusInterceptor(grpc.aio.ServerInterceptor):
    """Interceptor that maps exceptions to statuses. Install it once per server, outermost."""

    def __init__(self) -> None:
        self._durations_s = telemetry.histogram(telemetry.meter("herdmesh.rpc"), *DURATION)

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[_Handler | None]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> _Handler | None:
        handler = await continuation(handler_call_details)
        if handler is None:
            return None  # no service has this method: gRPC itself answers UNIMPLEMENTED
        method: str = handler_call_details.method
        match handler.request_streaming, handler.response_streaming:
            case True, True:
                make, behaviour = grpc.stream_stream_rpc_method_handler, self._stream(handler.stream_stream, method)
            case True, False:
                make, behaviour = grpc.stream_unary_rpc_method_handler, self._unary(handler.stream_unary, method)
            case False, True:
                make, behaviour = grpc.unary_stream_rpc_method_handler, self._stream(handler.unary_stream, method)
            case _:
                make, behaviour = grpc.unary_unary_rpc_method_handler, self._unary(handler.unary_unary, method)
        return make(
            behaviour,
            request_deserializer=handler.request_deserializer,
            response_serializer=encoded.serializer(cast(Any, handler.response_serializer)),
        )

    def _unary(self, behaviour: Any, method: str) -> Callable[..., Any]:
        async def call(request: Any, context: _Context) -> Any:
            async with self._mapped(context, method):
                return await behaviour(request, context)

        return call

    def _stream(self, behaviour: Any, method: str) -> Callable[..., Any]:
        async def call(request: Any, context: _Context) -> Any:
            async with self._mapped(context, method):
                replies = behaviour(request, context)
                if isinstance(replies, Awaitable):
                    # A handler that uses context.write() itself is a coroutine, as are the generated base methods.
                    await replies
                else:
                    # Close the generator here, not by the garbage collector: a watch occupies a place in its store
                    # until then.
                    async with aclosing(cast("AsyncGenerator[Any]", replies)) as open_replies:
                        async for reply in open_replies:
                            await context.write(reply)

        return call

    @asynccontextmanager
    async def _mapped(self, context: _Context, method: str) -> AsyncGenerator[None]:
        started = time.perf_counter()
        outcome = "OK"
        # With tracing, log lines get the id of the current span; without it, that of the caller.
        trace_id = tracing.trace_id_of(tracing.current(context.invocation_metadata()))
        try:
            # Binding nothing would still read all context variables: 9 % of a busy herder's time.
            with structlog.contextvars.bound_contextvars(trace_id=trace_id) if trace_id else nullcontext():
                yield
        except asyncio.CancelledError:
            outcome = "CANCELLED"
            raise
        except grpc.aio.AbortError:
            outcome = "ABORTED_BY_HANDLER"
            raise
        except Exception as error:  # noqa: BLE001 - this is the boundary: no exception may leave unmapped
            planned = self._planned(error, context, method)
            outcome = planned.reason
            code, message, details = status.pack(planned)
            await context.abort(code, message, ((status.DETAILS_KEY, details),))
        finally:
            self._durations_s.record(time.perf_counter() - started, {"method": method.lstrip("/"), "outcome": outcome})

    def _planned(self, error: Exception, context: _Context, method: str) -> errors.HerdmeshError:
        if isinstance(error, NotImplementedError) and context.code() is grpc.StatusCode.UNIMPLEMENTED:
            # Raised by a generated base method: the contract has this RPC, this release does not implement it.
            return errors.NotBuilt(method.lstrip("/"))
        planned = status.as_herdmesh_error(error)
        if planned is not None:
            return planned
        correlation_id = uuid.uuid4().hex[:12]
        _log.error("rpc_failed_unexpectedly", method=method, correlation_id=correlation_id, exc_info=error)
        return errors.Internal(correlation_id)
