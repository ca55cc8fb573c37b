"""Metrics of one process, through the OpenTelemetry SDK.

Owns the process' meter provider and the destinations of its metrics: the Prometheus page, and OTLP if the environment
names an endpoint (`OTEL_EXPORTER_OTLP_ENDPOINT` or `..._METRICS_ENDPOINT`, unless `OTEL_METRICS_EXPORTER` is `none`).
Names no metric of a service: those come from `meter(...)`, and from producers. Tracing is `tracing`.

A producer is OpenTelemetry's bridge for metrics that are kept elsewhere (its specification's MetricProducer, which
Python's SDK lacks): each collection calls it for all its series. An instrument of the SDK keeps every label set that it
once measured forever; a producer's series ends when the producer stops returning it, as needed for tasks.

Invariant: one meter provider per process, however many servers run in it (tests run several); every reader sees the
same series.
"""

from __future__ import annotations

import asyncio
import functools
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, cast
from wsgiref.simple_server import WSGIServer

import structlog
from opentelemetry import metrics
from opentelemetry.exporter.prometheus import PrometheusMetricReader
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    Gauge,
    Histogram,
    HistogramDataPoint,
    Metric,
    MetricReader,
    MetricsData,
    NumberDataPoint,
    PeriodicExportingMetricReader,
    ResourceMetrics,
    ScopeMetrics,
    Sum,
)
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from prometheus_client import start_http_server

from herdmesh.rpc.resource import resource

_ENDPOINTS: Final = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT")
_log: structlog.stdlib.BoundLogger = structlog.get_logger(__name__)

Labels = Mapping[str, str]


class Kind(StrEnum):
    """The kind of a series."""

    GAUGE = "gauge"
    """A current value."""
    COUNTER = "counter"
    """A counter that only grows; its name ends in `_total`."""
    HISTOGRAM = "histogram"
    """Counts per bucket."""


@dataclass(frozen=True, slots=True)
class Buckets:
    """The value of a histogram: one count more than there are bounds, and the sum of the observed values."""

    counts: Sequence[int]
    bounds: Sequence[float]
    total: float


@dataclass(frozen=True, slots=True)
class Family:
    """All series of one name at one moment, each with a number or with Buckets."""

    name: str
    kind: Kind
    description: str
    points: Sequence[tuple[Labels, float | Buckets]]


Producer = Callable[[], Iterable[Family]]
"""Called at each collection, in the reader's thread: it may not iterate over a collection that another thread resizes.
"""


class _Producers:
    """The producers of the process, each with its scope and start time."""

    def __init__(self) -> None:
        self._known: dict[Producer, tuple[str, int]] = {}

    def add(self, scope: str, producer: Producer) -> None:
        self._known[producer] = scope, time.time_ns()

    def remove(self, producer: Producer) -> None:
        self._known.pop(producer, None)

    def count(self) -> int:
        return len(self._known)

    def scopes(self) -> Iterator[ScopeMetrics]:
        now_ns = time.time_ns()
        for producer, (scope, since_ns) in list(self._known.items()):
            found = [_metric(family, since_ns, now_ns) for family in producer() if family.points]
            yield ScopeMetrics(InstrumentationScope(scope), found, "")


_producers = _Producers()


class _Page(PrometheusMetricReader):
    """Reader for the Prometheus page; includes the producers."""

    def _receive_metrics(self, metrics_data: MetricsData, timeout_millis: float = 10_000, **kwargs: Any) -> None:
        untyped = cast(Any, super())  # its **kwargs have no type
        untyped._receive_metrics(_with_produced(metrics_data), timeout_millis, **kwargs)


class _Pushed(PeriodicExportingMetricReader):
    """Reader that exports every OTEL_METRIC_EXPORT_INTERVAL ms; includes the producers."""

    def _receive_metrics(self, metrics_data: MetricsData, timeout_millis: float = 10_000, **kwargs: Any) -> None:
        untyped = cast(Any, super())  # its **kwargs have no type
        untyped._receive_metrics(_with_produced(metrics_data), timeout_millis, **kwargs)


@functools.cache
def _meter_provider() -> MeterProvider:
    readers: list[MetricReader] = [_Page(scope_info_enabled=False)]
    if any(map(os.environ.get, _ENDPOINTS)) and os.environ.get("OTEL_METRICS_EXPORTER", "otlp") != "none":
        from opentelemetry.exporter.otlp.proto.grpc.metric_exporter import OTLPMetricExporter

        readers.append(_Pushed(OTLPMetricExporter()))
    provider = MeterProvider(metric_readers=readers, resource=resource())
    metrics.set_meter_provider(provider)
    # Without one instrument that has a value, a reader does not call the producers.
    gauge(
        provider.get_meter("herdmesh.rpc"),
        "herdmesh_metrics_producers",
        lambda: (_producers.count(), {}),
        "Parts of this process that keep metrics of their own.",
    )
    return provider


def meter(name: str) -> metrics.Meter:
    """A meter whose instruments appear on /metrics; `name` is the module that owns them."""
    return _meter_provider().get_meter(name)


def add_producer(scope: str, producer: Producer) -> Callable[[], None]:
    """Add the producer's series to /metrics; `scope` is the module that owns them. Returns a function that removes
    them.
    """
    _meter_provider()
    _producers.add(scope, producer)
    return functools.partial(_producers.remove, producer)


def gauge(
    of: metrics.Meter, name: str, read: Callable[[], tuple[float | None, dict[str, str]]], description: str
) -> None:
    """Register a value with labels that is read at each request of the page; None = no value yet.

    `read` is called by the page's own thread: it may only read single values, never a collection that another thread
    resizes.
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


def _with_produced(collected: MetricsData) -> MetricsData:
    first, *others = collected.resource_metrics
    more = [*first.scope_metrics, *_producers.scopes()]
    return MetricsData([ResourceMetrics(first.resource, more, first.schema_url), *others])


def _metric(family: Family, since_ns: int, now_ns: int) -> Metric:
    # No unit: the names have it already, and Prometheus would append it again.
    return Metric(family.name, family.description, "", _data(family, since_ns, now_ns))


def _data(family: Family, since_ns: int, now_ns: int) -> Sum | Gauge | Histogram:
    if family.kind is Kind.HISTOGRAM:
        ages = [
            _histogram(labels, value, since_ns, now_ns) for labels, value in family.points if isinstance(value, Buckets)
        ]
        return Histogram(ages, AggregationTemporality.CUMULATIVE)
    points = [
        NumberDataPoint(dict(labels), since_ns, now_ns, value)
        for labels, value in family.points
        if not isinstance(value, Buckets)
    ]
    if family.kind is Kind.COUNTER:
        return Sum(points, AggregationTemporality.CUMULATIVE, is_monotonic=True)
    return Gauge(points)


def _histogram(labels: Labels, value: Buckets, since_ns: int, now_ns: int) -> HistogramDataPoint:
    filled = [number for number, count in enumerate(value.counts) if count]
    bounds = (0.0, *value.bounds, value.bounds[-1])
    low, high = (bounds[filled[0]], bounds[filled[-1] + 1]) if filled else (0.0, 0.0)
    return HistogramDataPoint(
        dict(labels), since_ns, now_ns, sum(value.counts), value.total, value.counts, value.bounds, low, high
    )
