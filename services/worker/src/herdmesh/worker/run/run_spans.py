"""Spans of a run: one of the run itself, and in it a sample of its batches and commits.

Owns the sampling: the first batch and the first commit after a start, then at most one of each a second. In the first
minute they belong to the run's trace, which is the trace of the call that started the task. Later ones are traces of
their own with a link to it, because a run may last for months and a trace must not. Used from the loop's thread.

Invariant: without tracing there is no RunSpans, and OpenTelemetry is not loaded; with it, a batch that is not sampled
costs two comparisons.
"""

from __future__ import annotations

import time
from typing import Any, Final, Self

from herdmesh.engine.runtime import RunSpec
from herdmesh.rpc.monitoring import tracing

_INTERVAL_NS: Final = 1_000_000_000
_OWN_TRACE_NS: Final = 60_000_000_000
_FINISH_MS: Final = 2_000


class RunSpans:
    """`engine.runtime.contract.RunSpans` over OpenTelemetry, as a context manager: leaving it ends the run's span."""

    def __init__(self, spec: RunSpec) -> None:
        from opentelemetry import propagate, trace

        tracing.start()
        self._api = trace
        self._tracer = trace.get_tracer("herdmesh.engine")
        self._attributes: dict[str, str | int] = {
            "herdmesh.connector": spec.connector,
            "herdmesh.task": spec.task,
            "herdmesh.generation": spec.generation,
            "herdmesh.run_id": spec.run_id,
        }
        parent = propagate.extract({tracing.TRACEPARENT_KEY: spec.traceparent})
        self._run = self._tracer.start_span("run", context=parent, attributes=self._attributes)
        self._context = trace.set_span_in_context(self._run)
        self._begun_ns = time.time_ns()
        self._due_ns: dict[str, int] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: object) -> None:
        self._run.end()
        tracing.finish(_FINISH_MS)

    def failed(self, message: str) -> None:
        """Mark the run's span with this error."""
        self._run.set_status(self._api.Status(self._api.StatusCode.ERROR, message))

    def batch(self, begun_ns: int, records: int, place: str) -> None:
        """Sample a batch."""
        self._sample("batch", begun_ns, {"herdmesh.records": records, "herdmesh.place": place})

    def commit(self, begun_ns: int, records: int) -> None:
        """Sample a commit."""
        self._sample("commit", begun_ns, {"herdmesh.run_records": records})

    def _sample(self, name: str, begun_ns: int, more: dict[str, Any]) -> None:
        if begun_ns < self._due_ns.get(name, 0):
            return
        self._due_ns[name] = begun_ns + _INTERVAL_NS
        attributes = {**self._attributes, **more}
        if begun_ns - self._begun_ns < _OWN_TRACE_NS:
            span = self._tracer.start_span(name, self._context, attributes=attributes, start_time=begun_ns)
        else:
            links = [self._api.Link(self._run.get_span_context())]
            root = self._api.set_span_in_context(self._api.INVALID_SPAN)
            span = self._tracer.start_span(name, root, attributes=attributes, links=links, start_time=begun_ns)
        span.end()
