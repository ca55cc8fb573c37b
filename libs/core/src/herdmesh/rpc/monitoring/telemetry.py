"""Metrics of one process, through the OpenTelemetry SDK.

Owns the process' meter provider and the destinations of its metrics: the Prometheus page's text, and OTLP if the
environment names an endpoint (`OTEL_EXPORTER_OTLP_ENDPOINT` or `..._METRICS_ENDPOINT`, unless `OTEL_METRICS_EXPORTER`
is `none`). Names no metric of a service: those come from `meter(...)`, and from producers. A name has its unit and, for
a counter, `_total`; no unit is passed to the SDK, because exporters would append it to the name. Tracing is `tracing`.

A producer is OpenTelemetry's bridge for metrics that are kept elsewhere (its specification's MetricProducer, which
Python's SDK lacks): each collection calls it for all its series. An instrument of the SDK keeps every label set that it
once measured forever; a producer's series ends when the producer stops returning it, as needed for tasks.

Invariant: one meter provider per process, however many servers run in it (tests run several); every reader sees the
same series.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import functools
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, TypeVar, cast

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
from prometheus_client import CONTENT_TYPE_LATEST, REGISTRY, generate_latest

from herdmesh.rpc.monitoring.resource import resource

_ENDPOINTS: Final = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT")

DURATION_BOUNDS_S: Final = (0.005, 0.025, 0.1, 0.5, 2.5, 10.0)
"""Upper bounds for durations of requests: few, because each of dozens of label sets has a line for each bound."""

Labels = Mapping[str, str]
T = TypeVar("T")


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


#: Name and description of the metric that every page has.
PRODUCERS: Final = ("herdmesh_metrics_producers", "Parts of this process that add series of their own to the page.")


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
        PRODUCERS[0],
        lambda: (_producers.count(), {}),
        PRODUCERS[1],
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


def histogram(of: metrics.Meter, name: str, bounds: Sequence[float], description: str) -> metrics.Histogram:
    """A histogram with these upper bounds: each label set of it has a line for each bound on the page."""
    return of.create_histogram(name, description=description, explicit_bucket_boundaries_advisory=bounds)


def read_on_loop(loop: asyncio.AbstractEventLoop, read: Callable[[], T], timeout_s: float = 2.0) -> T | None:
    """Call `read` on the event loop that owns its data, and return the result. For the page's thread; on the loop's own
    thread `read` is called directly. None when the loop is closed, or does not call it within `timeout_s`.
    """
    try:
        on_its_thread = asyncio.get_running_loop() is loop
    except RuntimeError:  # this thread has no loop
        on_its_thread = False
    if on_its_thread:
        return read()
    result: concurrent.futures.Future[T] = concurrent.futures.Future()

    def call() -> None:
        if result.set_running_or_notify_cancel():
            try:
                result.set_result(read())
            except Exception as error:  # noqa: BLE001 - raised in the reading thread
                result.set_exception(error)

    try:
        loop.call_soon_threadsafe(call)
    except RuntimeError:  # the loop is closed
        return None
    try:
        return result.result(timeout_s)
    except TimeoutError:
        result.cancel()
        return None


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


def page_text() -> tuple[bytes, str]:
    """The Prometheus page and its content type: all series at this moment."""
    _meter_provider()
    return generate_latest(REGISTRY), CONTENT_TYPE_LATEST


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
