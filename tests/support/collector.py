"""An OpenTelemetry collector for tests: receives exports of services by OTLP over gRPC, and keeps them.

Owns a server on any free port, with threads of its own, so that it serves while a test blocks. Invariant: everything
exported before `until` returned is in `spans`, `metrics` and `texts`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Iterator
from concurrent import futures
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import grpc
from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2, metrics_service_pb2_grpc
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2, trace_service_pb2_grpc

WAIT_S = 30.0


@dataclass(frozen=True)
class Span:
    """The parts of a span that tests check. Ids are hexadecimal; a root's `parent` is empty."""

    service: str
    name: str
    trace: str
    id: str
    parent: str
    attributes: dict[str, Any]
    error: str
    """Message of its status."""


class Collector(trace_service_pb2_grpc.TraceServiceServicer, metrics_service_pb2_grpc.MetricsServiceServicer):
    """Both services. `endpoint` is for OTEL_EXPORTER_OTLP_ENDPOINT."""

    def __init__(self) -> None:
        self.endpoint = ""
        self.spans: list[Span] = []
        self.metrics: set[str] = set()
        self.exports_of_metrics = 0
        self._requests: list[Any] = []
        self._new = threading.Condition()

    def Export(self, request: Any, context: Any) -> Any:
        with self._new:
            self._requests.append(request)
            if isinstance(request, metrics_service_pb2.ExportMetricsServiceRequest):
                self.exports_of_metrics += 1
                self.metrics |= {
                    metric.name
                    for of in request.resource_metrics
                    for scope in of.scope_metrics
                    for metric in scope.metrics
                }
                response: Any = metrics_service_pb2.ExportMetricsServiceResponse()
            else:
                self.spans += [
                    _span(of.resource, span)
                    for of in request.resource_spans
                    for scope in of.scope_spans
                    for span in scope.spans
                ]
                response = trace_service_pb2.ExportTraceServiceResponse()
            self._new.notify_all()
        return response

    def until(self, what: str, holds: Callable[[], bool]) -> None:
        """Wait until the exports satisfy the condition."""
        with self._new:
            assert self._new.wait_for(holds, WAIT_S), f"not {what}; exported: {[one.name for one in self.spans]}"

    def texts(self) -> Iterator[str]:
        """All received requests as text: names, attributes, events, statuses."""
        return map(str, list(self._requests))

    def of_trace(self, trace: str) -> dict[str, Span]:
        """The first span of each name in a trace."""
        found: dict[str, Span] = {}
        for span in self.spans:
            if span.trace == trace:
                found.setdefault(span.name, span)
        return found


def _span(resource: Any, span: Any) -> Span:
    service = next((one.value.string_value for one in resource.attributes if one.key == "service.name"), "")
    attributes = {one.key: one.value.string_value or one.value.int_value for one in span.attributes}
    ids = span.trace_id.hex(), span.span_id.hex(), span.parent_span_id.hex()
    return Span(service, span.name, *ids, attributes, span.status.message)


@contextmanager
def collector() -> Generator[Collector]:
    """A collector that serves inside the block."""
    found = Collector()
    server = grpc.server(futures.ThreadPoolExecutor(2))
    generated: tuple[Any, Any] = trace_service_pb2_grpc, metrics_service_pb2_grpc  # not typed
    generated[0].add_TraceServiceServicer_to_server(found, server)
    generated[1].add_MetricsServiceServicer_to_server(found, server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    found.endpoint = f"http://127.0.0.1:{port}"
    try:
        yield found
    finally:
        server.stop(0).wait()
