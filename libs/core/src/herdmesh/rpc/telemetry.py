"""Metrics of one process, through the OpenTelemetry SDK.

Owns the process' meter provider and the Prometheus page. Names no metric of a service: those come from `meter(...)`.
Tracing is `tracing`.

Invariant: one meter provider per process, however many servers run in it (tests run several).
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Iterable
from wsgiref.simple_server import WSGIServer

import structlog
from opentelemetry import metrics
from opentelemetry.exporter.prometheus import PrometheusMetricReader
from opentelemetry.sdk.metrics import MeterProvider
from prometheus_client import start_http_server

_log: structlog.stdlib.BoundLogger = structlog.get_logger(__name__)


@functools.cache
def _meter_provider() -> MeterProvider:
    provider = MeterProvider(metric_readers=[PrometheusMetricReader()])
    metrics.set_meter_provider(provider)
    return provider


def meter(name: str) -> metrics.Meter:
    """A meter whose instruments appear on /metrics; `name` is the module that owns them."""
    return _meter_provider().get_meter(name)


def gauge(
    of: metrics.Meter, name: str, read: Callable[[], tuple[float | None, dict[str, str]]], description: str
) -> None:
    """A value that is read, with its labels, whenever the page is asked for; None = there is none yet.

    `read` is called by the page's own thread: it may only look at single values, never at what changes its size.
    """

    def observe(_options: metrics.CallbackOptions) -> Iterable[metrics.Observation]:
        value, labels = read()
        if value is not None:
            yield metrics.Observation(value, labels)

    of.create_observable_gauge(name, [observe], description=description)


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
