"""A gRPC server as every service runs it: services, health, reflection, HTTP pages, error mapping.

Owns the server's life. Owns no service: a servicer raises `herdmesh.rpc.errors` (or `herdmesh.topicstore.errors`) and
knows nothing of status codes.

Invariant: a service is SERVING only after its owner called `set_serving`, and NOT_SERVING before the server
begins to stop. The server as a whole (health name "") is SERVING while any of its services is.
"""

from __future__ import annotations

import importlib
import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import grpc.aio
import structlog
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_health.v1.health import SERVICE_NAME as HEALTH_NAME
from grpc_health.v1.health import aio as health_aio
from grpc_reflection.v1alpha import reflection

from herdmesh.rpc._interceptor import StatusInterceptor
from herdmesh.rpc.client import MESSAGE_BYTES_MAX
from herdmesh.rpc.monitoring import tracing
from herdmesh.rpc.monitoring.http_pages import HttpPages, Readiness

METRICS_PORT_OFFSET: Final = 1000

_SERVING = health_pb2.HealthCheckResponse.SERVING
_NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING
_log: structlog.stdlib.BoundLogger = structlog.get_logger(__name__)

_OPTIONS: Final = (
    ("grpc.max_receive_message_length", MESSAGE_BYTES_MAX),
    ("grpc.max_send_message_length", MESSAGE_BYTES_MAX),
    # Two processes must never share a port by accident: a call would reach either of them.
    ("grpc.so_reuseport", 0),
    # Clients ping every 10 s even without calls; with the default the server would disconnect them for too many pings.
    ("grpc.http2.min_ping_interval_without_data_ms", 5_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 5_000),
)


@dataclass(frozen=True, slots=True)
class ServiceRegistration:
    """One service: the servicer, the generated `add_XServicer_to_server`, and the full proto name."""

    servicer: Any
    add_to_server: Callable[[Any, Any], None]
    full_name: str


ReadinessRule = Callable[[bool], tuple[bool, str]]
"""Whether the process can do its work now, and one line of reason. The argument: any of its gRPC services serves."""


def ready_while_serving(serving: bool) -> tuple[bool, str]:
    """Ready while any gRPC service serves."""
    return serving, "serving" if serving else "no service of this process serves yet, or it is stopping"


class CannotListen(OSError):
    """The address of a server is taken, or is not one of this machine. The message says what to do."""

    def __init__(self, address: str, reason: str) -> None:
        super().__init__(
            f"cannot listen on {address}: {reason}; end the process that listens there, or set another address with "
            "--listen HOST:PORT"
        )


class Server:
    """`listen` is host:port, port 0 = any free one. With `metrics`, /metrics, /healthz and /readyz are served on
    port + 1000; `ready` is the rule of /readyz.
    """

    def __init__(
        self,
        listen: str,
        services: Sequence[ServiceRegistration],
        metrics: bool = True,
        ready: ReadinessRule = ready_while_serving,
    ) -> None:
        self._host, _, port = listen.rpartition(":")
        self._wanted_port = int(port)
        self._services = tuple(services)
        self._metrics_wanted = metrics
        self._serving = {service.full_name: False for service in services}
        self._health = health_aio.HealthServicer()
        self._server: grpc.aio.Server | None = None
        self._ready = ready
        self._pages: HttpPages | None = None
        self.http_port: int | None = None
        """Port of /metrics, /healthz and /readyz; None before `start`, and without them."""

    async def start(self) -> int:
        """Bind and serve, every service NOT_SERVING. Returns the bound port. Raises `CannotListen`."""
        if tracing.wanted():
            tracing.start()
        # Ours is outermost: the tracing one iterates streams, ours writes them (and closes them when the caller
        # leaves).
        interceptors = [StatusInterceptor(), *tracing.server_interceptors()]
        server = grpc.aio.server(interceptors=interceptors, options=_OPTIONS)
        for service in self._services:
            service.add_to_server(service.servicer, server)
        health_pb2_grpc.add_HealthServicer_to_server(self._health, server)
        names = (*self._serving, HEALTH_NAME, reflection.SERVICE_NAME)
        for service in self._services:
            # The generated stubs load only the files of their messages; reflection also needs the service's own.
            importlib.import_module(service.add_to_server.__module__.removesuffix("_grpc"))
        reflection.enable_server_reflection(names, server)
        await self._publish_health()
        address = f"{self._host}:{self._wanted_port}"
        _check_bindable(address, self._host, self._wanted_port)
        try:
            port = server.add_insecure_port(address)
        except RuntimeError as error:  # gRPC raises this when bind failed
            raise CannotListen(address, str(error)) from error
        await server.start()
        self._server = server
        metrics_port = self.http_port = self._start_pages(port)
        _log.info("listening", address=f"{self._host}:{port}", metrics_port=metrics_port, services=list(self._serving))
        return port

    async def set_serving(self, full_name: str, serving: bool) -> None:
        """Set whether `full_name` may be called. Raises KeyError for a service this server does not have."""
        if self._serving[full_name] is serving:
            return
        self._serving[full_name] = serving
        _log.info("health", grpc_service=full_name, serving=serving)
        await self._publish_health()

    async def set_all_serving(self, serving: bool) -> None:
        """`set_serving` for every service."""
        for full_name in self._serving:
            await self.set_serving(full_name, serving)

    async def stop(self, grace_s: float) -> None:
        """Set NOT_SERVING, let running calls end within `grace_s`, then cancel them. Bounded; safe to call twice."""
        server, self._server = self._server, None
        if server is None:
            return
        await self._health.enter_graceful_shutdown()
        await server.stop(grace_s)
        if self._pages is not None:
            await self._pages.stop()
            self._pages = None

    def _start_pages(self, port: int) -> int | None:
        if not self._metrics_wanted:
            return None
        # For a port above 65535 - 1000 (possible for any free port) the metrics get any free port.
        wanted = port + METRICS_PORT_OFFSET if self._wanted_port and port + METRICS_PORT_OFFSET < 65536 else 0
        self._pages = HttpPages(self._host, wanted, self._readiness)
        return self._pages.start()

    def _readiness(self) -> Readiness:
        ready, reason = self._ready(any(self._serving.values()))
        return Readiness(
            ready, reason, {name: "SERVING" if one else "NOT_SERVING" for name, one in self._serving.items()}
        )

    async def _publish_health(self) -> None:
        for full_name, serving in self._serving.items():
            await self._health.set(full_name, _SERVING if serving else _NOT_SERVING)
        await self._health.set("", _SERVING if any(self._serving.values()) else _NOT_SERVING)


def _check_bindable(address: str, host: str, port: int) -> None:
    """Raise `CannotListen` when the address cannot be bound: gRPC would also print a line of its own for that. An
    unknown host is left to gRPC.
    """
    try:
        family, kind, _, _, resolved = socket.getaddrinfo(
            host.strip("[]") or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except OSError:
        return
    with socket.socket(family, kind) as probe:
        # As gRPC binds: connections of an earlier server in TIME_WAIT are no obstacle, a listener is.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(resolved)
        except OSError as error:
            raise CannotListen(address, error.strerror or str(error)) from error
