"""Metrics of a herder, read from the registry of the Prometheus page."""

from __future__ import annotations

import asyncio

from prometheus_client import REGISTRY

from herdmesh.herder.metrics import HerderMetrics
from herdmesh.herder.state import Herder, Rules
from herdmesh.herder.state.model import events as ev
from herdmesh.herder.state.model import instructions as ins
from herdmesh.herder.state.model.requests import CreateConnector, DeleteConnector, WriteOptions
from herdmesh.rpc.errors import ConnectorNotFound, NotLeader
from herdmesh.session import messages
from herdmesh.session.model import Assignment, RunState, TargetState, UnitId
from services.herder.tests.world import BROKEN, World, sink

TASK = UnitId("c", 0)
ASSIGNMENT = Assignment(1, 7)


def value(name: str, **labels: str) -> float:
    """The sum of a metric's samples with these labels; 0 when there is none."""
    return sum(
        sample.value
        for metric in REGISTRY.collect()
        for sample in metric.samples
        if sample.name == name and all(sample.labels.get(key) == wanted for key, wanted in labels.items())
    )


def start(session: int) -> ins.Send:
    return ins.Send(session, 1, messages.StartUnit(TASK, ASSIGNMENT, {}, {}, TargetState.STARTED, 1, 0, None, None))


async def test_requests_moves_epochs_and_rebalances_are_counted() -> None:
    metrics = HerderMetrics()
    metrics.show(Herder(Rules("h")))
    try:
        _count_one_of_each(metrics)
    finally:
        metrics.hide()
    assert value("herdmesh_herder_leader") == 0
    assert not [one for one in REGISTRY.collect() if one.name == "herdmesh_herder_leader"], "it left the page"


def _count_one_of_each(metrics: HerderMetrics) -> None:
    rebalance = "kafka_connect_connect_worker_rebalance_metrics_"
    metrics.passed(ev.LeadershipGranted(3, 1, 1000, 9, "h", "h:1"), [], 1.0)
    assert value("herdmesh_herder_epochs_total") == 1
    assert value(f"{rebalance}epoch", leader_name="h:1") == 3

    metrics.passed(ev.WorkerHello(1, "w1", "i1", "w1:1", 8), [start(1)], 1.0)
    assert value(f"{rebalance}rebalancing") == 1
    metrics.passed(ev.UnitReported(1, TASK, ASSIGNMENT, RunState.RUNNING), [], 1.0)
    assert (value(f"{rebalance}rebalancing"), value(f"{rebalance}completed_rebalances_total")) == (0, 1)
    assert value("herdmesh_herder_phase_duration_seconds_count", phase="start task") == 1

    metrics.passed(
        ev.WorkerHello(2, "w2", "i2", "w2:1", 8), [ins.Send(1, 1, messages.StopUnit(TASK, ASSIGNMENT, "m"))], 1.0
    )
    metrics.passed(ev.UnitReported(1, TASK, ASSIGNMENT, RunState.UNASSIGNED), [start(2)], 1.0)
    assert value("herdmesh_herder_starts_total", kind="task", moved="true") == 1
    assert value("herdmesh_herder_starts_total", kind="task", moved="false") == 1
    assert value("herdmesh_herder_stops_total", kind="task") == 1
    metrics.passed(ev.StreamBroken(2), [], 1.0)
    assert value(f"{rebalance}rebalancing") == 0, "a worker that is gone answers nothing"

    metrics.passed(ev.RequestReceived(5, DeleteConnector("x"), WriteOptions(), 99), [], 1.0)
    metrics.passed(ev.Tick(), [ins.Reply(5, ConnectorNotFound("x"))], 1.0)
    assert value("herdmesh_herder_requests_total", request="DeleteConnector", outcome="CONNECTOR_NOT_FOUND") == 1

    metrics.passed(ev.LeadershipLost("silence"), [], 1.0)
    assert value(f"{rebalance}epoch") == 0
    metrics.passed(ev.LeadershipFollowing("h2", "h2:1", 4), [ins.RoleChanged(NotLeader("h2:1"))], 1.0)
    assert [
        sample.labels["leader_name"]
        for metric in REGISTRY.collect()
        for sample in metric.samples
        if sample.name == f"{rebalance}epoch"
    ] == ["h2:1"], "as in Connect, everybody says who leads"


async def test_a_leader_shows_its_mesh_and_a_unit_that_is_wanted_and_not_running() -> None:
    world, metrics = World(), HerderMetrics()
    world.lead()
    world.worker("w1")
    world.ask(CreateConnector("orders", sink(2)))
    world.kill("w1")
    world.advance(10_000)
    metrics.show(world.herder)
    try:
        assert value("herdmesh_herder_leader") == 1
        assert value("herdmesh_herder_workers", state="connected") == 0
        where = {"connector": "orders", "kind": "task", "state": "unassigned"}
        assert value("herdmesh_herder_units_not_running", **where) == 2
        assert value("herdmesh_herder_connectors", state="unassigned", target_state="started") == 1
        world.revive("w1")
        world.advance(5_000)
        assert value("herdmesh_herder_units_not_running") == 0
        assert value("herdmesh_herder_tasks", state="running", target_state="started") == 2
        assert value("herdmesh_herder_tasks") == 2, "and no other combination counts"
        assert value("herdmesh_herder_workers", state="connected") == 1
        unit = UnitId("orders", 1)
        world.fail(world.workers["w1"], unit, BROKEN)
        assert value("herdmesh_herder_units_not_running", kind="task", state="failed") == 1
        world.kill_herder()
        assert value("herdmesh_herder_leader") == 1, "the metrics are those of the herder that was shown"
    finally:
        metrics.hide()


async def test_the_counts_are_read_on_the_loop_that_owns_the_state() -> None:
    world, metrics = World(), HerderMetrics()
    world.lead()
    world.run()
    metrics.show(world.herder)
    try:
        assert await asyncio.to_thread(value, "herdmesh_herder_leader") == 1
    finally:
        metrics.hide()
