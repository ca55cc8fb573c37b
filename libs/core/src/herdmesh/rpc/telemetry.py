"""Metrics and tracing of one process, both through the OpenTelemetry SDK.

Owns the process' meter provider, the Prometheus page, and tracing, which is off unless OTEL_EXPORTER_OTLP_ENDPOINT is
set. Names no metric of a service: those come from `meter(...)`.

Invariant: one meter provider per process, however many servers run in it (tests run several).
"""

from __future__ import annotations

import asyncio
import functools
import importlib
import os
from typing import Any, Final
from wsgiref.simple_server import WSGIServer

import structlog
from opentelemetry import metrics, trace
from opentelemetry.exporter.prometheus import PrometheusMetricReader
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.resources import Resource
from prometheus_client import start_http_server

TRACING_ENV: Final = "OTEL_EXPORTER_OTLP_ENDPOINT"
_log: structlog.stdlib.BoundLogger = structlog.get_logger(__name__)


@functools.cache
def _meter_provider() -> MeterProvider:
    provider = MeterProvider(metric_readers=[PrometheusMetricReader()])
    metrics.set_meter_provider(provider)
    return provider


def meter(name: str) -> metrics.Meter:
    """A meter whose instruments appear on /metrics; `name` is the module that owns them."""
    return _meter_provider().get_meter(name)


def tracing_wanted() -> bool:
    """True when the environment names an OTLP endpoint."""
    return bool(os.environ.get(TRACING_ENV))


@functools.cache
def start_tracing(service_name: str) -> None:
    """Export spans in the background to the endpoint of the environment; once per process."""
    # Imported here: the exporter is heavy and almost nobody turns it on.
    from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    provider = TracerProvider(resource=Resource.create({"service.name": service_name}))
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    trace.set_tracer_provider(provider)


class MetricsPage:
    """/metrics over HTTP on a thread of its own."""

    def __init__(self, host: str, port: int) -> None:
        self._host = host
        self._wanted_port = port
        self._server: WSGIServer | None = None

    def start(self) -> int:
        """Serve on the port, or on any free one when it is taken (0 = any). Returns the port."""
        _meter_provider()
        try:
            self._server, _ = start_http_server(self._wanted_port, self._host)
        except OSError as error:
            _log.warning("metrics_port_taken", port=self._wanted_port, error=str(error))
            self._server, _ = start_http_server(0, self._host)
        return self._server.server_port

    async def stop(self) -> None:
        """Close the page; returns when its thread has left its loop (at most 0.5 s)."""
        if self._server is not None:
            server, self._server = self._server, None
            await asyncio.to_thread(server.shutdown)
            server.server_close()


def server_interceptors() -> list[Any]:
    """Tracing interceptors for a server; none while tracing is off."""
    if not tracing_wanted():
        return []
    instrumentation: Any = importlib.import_module("opentelemetry.instrumentation.grpc")
    return [instrumentation.aio_server_interceptor()]


def client_interceptors() -> list[Any]:
    """Tracing interceptors for a channel; none while tracing is off."""
    if not tracing_wanted():
        return []
    instrumentation: Any = importlib.import_module("opentelemetry.instrumentation.grpc")
    return list(instrumentation.aio_client_interceptors())
