"""The spans of a run: which are created, their trace, and their attributes."""

from __future__ import annotations

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from herdmesh.engine.runtime.contract import RunSpec, TaskKind
from herdmesh.rpc.monitoring import tracing
from herdmesh.worker.run import run_spans
from herdmesh.worker.run.run_spans import RunSpans

TRACEPARENT = tracing.new_traceparent()
SPEC = RunSpec("r1", "c", 3, 4, TaskKind.SINK, "", {}, {}, "", "", "", "", generation=7, traceparent=TRACEPARENT)
SECOND_NS = 1_000_000_000


@pytest.fixture
def spans_of(monkeypatch: pytest.MonkeyPatch) -> InMemorySpanExporter:
    found = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(found))
    monkeypatch.setattr(tracing, "_started", [provider])
    monkeypatch.setattr(trace, "get_tracer", provider.get_tracer)
    return found


def test_the_first_batch_and_then_one_a_second_are_spans_in_the_calls_trace(
    spans_of: InMemorySpanExporter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_spans.time, "time_ns", lambda: 0)
    with RunSpans(SPEC) as spans:
        for tenth in range(25):
            spans.batch(tenth * SECOND_NS // 10, 10, "t-0 0..9")
        spans.commit(5, 10)
    found = spans_of.get_finished_spans()
    assert [one.name for one in found] == ["batch", "batch", "batch", "commit", "run"]
    assert {f"{one.context.trace_id:032x}" for one in found if one.context} == {TRACEPARENT.split("-")[1]}
    run = found[-1]
    assert run.parent is not None
    assert f"{run.parent.span_id:016x}" == TRACEPARENT.split("-")[2]
    assert all(one.parent == run.context for one in found[:-1])
    assert dict(found[0].attributes or {}) == {
        "herdmesh.connector": "c",
        "herdmesh.task": 3,
        "herdmesh.generation": 7,
        "herdmesh.run_id": "r1",
        "herdmesh.records": 10,
        "herdmesh.place": "t-0 0..9",
    }


def test_after_a_minute_a_sample_is_a_trace_of_its_own_with_a_link(
    spans_of: InMemorySpanExporter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_spans.time, "time_ns", lambda: 0)
    with RunSpans(SPEC) as spans:
        spans.batch(61 * SECOND_NS, 10, "t-0 0..9")
        spans.failed("it broke")
    batch, run = spans_of.get_finished_spans()
    assert batch.context is not None
    assert run.context is not None
    assert batch.parent is None
    assert batch.context.trace_id != run.context.trace_id
    assert batch.links[0].context.span_id == run.context.span_id
    assert run.status.description == "it broke"
