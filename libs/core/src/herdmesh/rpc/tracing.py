"""Tracing through OpenTelemetry, off unless OTEL_EXPORTER_OTLP_ENDPOINT is set.

Owns whether spans are made and where they go. Invariant: while tracing is off nothing of OpenTelemetry is loaded here,
so that a client (the command line, a run's process) starts fast.
"""

from __future__ import annotations

import functools
import importlib
import os
from typing import Any, Final

TRACING_ENV: Final = "OTEL_EXPORTER_OTLP_ENDPOINT"


def wanted() -> bool:
    """True when the environment names an OTLP endpoint."""
    return bool(os.environ.get(TRACING_ENV))


@functools.cache
def start(service_name: str) -> None:
    """Export spans in the background to the endpoint of the environment; once per process."""
    from opentelemetry import trace
    from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    provider = TracerProvider(resource=Resource.create({"service.name": service_name}))
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    trace.set_tracer_provider(provider)


def server_interceptors() -> list[Any]:
    """Interceptors for a server; none while tracing is off."""
    return [_instrumentation().aio_server_interceptor()] if wanted() else []


def client_interceptors() -> list[Any]:
    """Interceptors for a channel; none while tracing is off."""
    return list(_instrumentation().aio_client_interceptors()) if wanted() else []


def _instrumentation() -> Any:
    return importlib.import_module("opentelemetry.instrumentation.grpc")
