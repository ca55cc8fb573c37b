"""Traces: a call's trace belongs to the starts that it causes, and to no others."""

from __future__ import annotations

from herdmesh.herder.state.memory.traces import TRACE_MS, TRACES_MAX, Traces
from herdmesh.herder.state.model.requests import CreateConnector, WriteOptions
from services.herder.tests.world import World, sink

ONE, OTHER = f"00-{'1' * 32}-{'2' * 16}-01", f"00-{'3' * 32}-{'4' * 16}-01"


def test_a_start_has_the_trace_of_the_last_call_for_a_minute() -> None:
    traces = Traces()
    traces.begin("a", ONE, 1_000)
    assert traces.of("a", 1_000 + TRACE_MS) == ONE
    assert traces.of("a", 1_001 + TRACE_MS) == ""
    assert traces.of("b", 1_000) == ""
    traces.begin("a", OTHER, 2_000)
    assert traces.of("a", 3_000) == OTHER
    traces.begin("a", "", 3_000)
    assert traces.of("a", 3_000) == "", "a call that is not traced causes what comes now"


def test_traces_are_bounded_by_number_and_time() -> None:
    traces = Traces()
    for number in range(TRACES_MAX + 5):
        traces.begin(f"c{number}", ONE, 0)
    assert len(traces.names()) == TRACES_MAX
    traces.begin("late", ONE, TRACE_MS + 1)
    assert traces.names() == ["late"]


def test_every_first_start_of_a_created_connector_carries_its_calls_trace() -> None:
    world = World()
    world.lead()
    world.worker("w1")
    world.ask(CreateConnector("a", sink()), WriteOptions(traceparent=ONE))
    world.advance(2_000)
    world.ask(CreateConnector("b", sink()))
    world.advance(2_000)
    carried = {(start.unit, start.traceparent) for _, start in world.starts}
    units = {start.unit for _, start in world.starts if start.unit.connector == "a"}
    assert len(units) > 1, "the connector and its tasks"
    assert {unit for unit, traceparent in carried if traceparent == ONE} == units
    assert {traceparent for unit, traceparent in carried if unit.connector == "b"} == {""}
