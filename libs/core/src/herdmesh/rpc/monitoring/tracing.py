"""Tracing through OpenTelemetry, off unless the environment names an OTLP endpoint (`OTEL_EXPORTER_OTLP_ENDPOINT` or
`..._TRACES_ENDPOINT`) and `OTEL_TRACES_EXPORTER` is not `none`. The SDK reads all other settings:
`OTEL_TRACES_SAMPLER`, `OTEL_BSP_*`, `OTEL_RESOURCE_ATTRIBUTES` and so on.

Owns the switch and the destination of spans, and the trace context as a text (W3C's `traceparent`). The text carries
the context where gRPC's own headers do not reach: from a call to the herder's later actions for it, and into a run. A
process without tracing passes such a text on unchanged.

Invariant: while tracing is off nothing of OpenTelemetry is loaded here, so that a client (the command line, a run's
process) starts fast.
"""

from __future__ import annotations

import importlib
import os
import re
import secrets
import threading
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any, Final

from herdmesh.rpc.monitoring.resource import resource

TRACING_ENV: Final = "OTEL_EXPORTER_OTLP_ENDPOINT"
TRACEPARENT_ENV: Final = "TRACEPARENT"
TRACEPARENT_KEY: Final = "traceparent"
"""Key in gRPC's metadata, as in HTTP's headers."""
_TRACES_ENV: Final = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"
_TRACEPARENT: Final = re.compile(r"00-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}")
_started: list[Any] = []
"""The provider of the process, once it is started."""


def wanted() -> bool:
    """True when the environment names an OTLP endpoint for traces."""
    named = os.environ.get(TRACING_ENV) or os.environ.get(_TRACES_ENV)
    return bool(named) and os.environ.get("OTEL_TRACES_EXPORTER", "otlp") != "none"


def start() -> None:
    """Export spans in the background to the endpoint of the environment. Only the first call in a process has an
    effect.
    """
    if _started:
        return
    from opentelemetry import trace
    from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    provider = TracerProvider(resource=resource())
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    trace.set_tracer_provider(provider)
    _started.append(provider)


def finish(timeout_ms: int) -> None:
    """Export the waiting spans of a process that ends; waits at most `timeout_ms`."""
    for provider in _started:
        # The SDK accepts a timeout here and ignores it.
        flush = threading.Thread(target=provider.force_flush, name="last spans", daemon=True)
        flush.start()
        flush.join(timeout_ms / 1000)


def server_interceptors() -> list[Any]:
    """Interceptors for a server; none while tracing is off."""
    return [_instrumentation().aio_server_interceptor()] if wanted() else []


def client_interceptors() -> list[Any]:
    """Interceptors for a channel; none while tracing is off."""
    return list(_instrumentation().aio_client_interceptors()) if wanted() else []


def is_traceparent(text: str) -> bool:
    """True for a trace context of W3C's version 00."""
    return _TRACEPARENT.fullmatch(text) is not None


def trace_id_of(traceparent: str) -> str:
    """The trace id, 32 hexadecimal digits, of a trace context; empty for a text that is none."""
    return traceparent[3:35] if is_traceparent(traceparent) else ""


def current_trace_id() -> str:
    """The trace id of the current span; empty while tracing has not started, or outside of a span."""
    if not _started:
        return ""
    context = importlib.import_module("opentelemetry.trace").get_current_span().get_span_context()
    return f"{context.trace_id:032x}" if context.is_valid else ""


def new_traceparent() -> str:
    """A trace context with a new trace id, sampled."""
    return f"00-{secrets.token_hex(16)}-{secrets.token_hex(8)}-01"


def current(metadata: Any = None) -> str:
    """The context of the current span; without tracing the caller's context from the call's `metadata`. Empty without
    either.
    """
    if wanted():
        carrier: dict[str, str] = {}
        importlib.import_module("opentelemetry.propagate").inject(carrier)
        return carrier.get(TRACEPARENT_KEY, "")
    for key, value in metadata or ():
        if key == TRACEPARENT_KEY and isinstance(value, str) and is_traceparent(value):
            return value
    return ""


@contextmanager
def within(traceparent: str) -> Generator[None]:
    """Attach calls inside the block to that trace. Without a text, or while tracing is off, this does nothing."""
    if not (traceparent and wanted()):
        yield
        return
    context = importlib.import_module("opentelemetry.context")
    token = context.attach(importlib.import_module("opentelemetry.propagate").extract({TRACEPARENT_KEY: traceparent}))
    try:
        yield
    finally:
        context.detach(token)


def _instrumentation() -> Any:
    return importlib.import_module("opentelemetry.instrumentation.grpc")
