"""Counts of the mesh for metrics: equal to what the views show, at every moment of a mesh to which much happens."""

from __future__ import annotations

from collections import Counter

from herdmesh.connect.spi import RUN_SLOT, Wait
from herdmesh.herder.state.model import events as ev
from herdmesh.herder.state.model.requests import CreateConnector, DeleteConnector, DrainWorker, SetTarget
from herdmesh.herder.state.views.views import WorkerState
from herdmesh.herder.wire import views as wire_views
from herdmesh.session.model import RunState, SlotUse, TargetState, UnitId
from services.herder.tests.world import BROKEN, World, sink


def from_views(world: World) -> tuple[Counter[object], Counter[object], Counter[object], Counter[object]]:
    """Connectors, tasks, units that do not run, and workers, counted from whole views."""
    connectors, tasks, not_running = Counter[object](), Counter[object](), Counter[object]()
    for name in world.herder.connector_names():
        view = world.herder.connector(name)
        assert view is not None
        target = view.entry.wanted_state
        for is_task, state in ((False, view.status.state), *((True, one.status.state) for one in view.tasks)):
            (tasks if is_task else connectors)[state, target] += 1
            if target is TargetState.STARTED and state is not RunState.RUNNING:
                not_running[name, is_task, state] += 1
    return connectors, tasks, not_running, Counter(one.state for one in world.herder.workers())


def check(world: World, ms: int = 0) -> None:
    """Let time pass, and compare the counts every 100 ms."""
    for _ in range(max(1, ms // 100)):
        world.advance(min(ms, 100))
        found = world.herder.counts()
        assert found is not None
        assert (found.connectors, found.tasks, found.not_running, found.workers) == from_views(world)


def test_counts_are_those_of_the_views_through_starts_failures_losses_and_drains() -> None:
    world = World(lambda: 40)
    assert world.herder.counts() is None, "it does not lead"
    world.lead()
    world.advance(200)
    check(world)
    world.worker("w1")
    world.call(CreateConnector("a", sink(4)))
    check(world, 2_000)
    world.kill("w1")
    check(world, 10_000)
    found = world.herder.counts()
    assert found is not None
    assert found.not_running[("a", False, RunState.UNASSIGNED)] == 1, "it is wanted, and no worker is there"
    assert found.not_running[("a", True, RunState.UNASSIGNED)] == 4
    world.revive("w1")
    check(world, 3_000)
    world.worker("w2")
    check(world, 5_000)
    world.call(CreateConnector("b", sink(3)))
    world.call(SetTarget("b", TargetState.PAUSED))
    check(world, 2_000)
    unit = next(unit for unit in world.workers["w1"].held if unit.task is not None and unit.connector == "a")
    world.fail(world.workers["w1"], unit, BROKEN)
    check(world, 1_000)
    world.kill("w2")
    check(world, 20_000)
    world.revive("w2")
    check(world, 5_000)
    world.call(DrainWorker("w1"))
    check(world, 10_000)
    world.call(SetTarget("a", TargetState.STOPPED))
    check(world, 2_000)
    world.call(DeleteConnector("b"))
    check(world, 3_000)


def test_a_new_leader_counts_units_that_run_on_workers_which_have_not_dialled_in() -> None:
    world = World()
    world.lead()
    world.worker("w1")
    world.ask(CreateConnector("a", sink(2)))
    world.advance(1_000)
    world.workers["w1"].alive = False
    world.lead()
    check(world, 200)
    check(world, 15_000)


def test_a_mesh_that_runs_has_nothing_to_tell_and_counts_its_slots() -> None:
    world = World()
    world.lead()
    world.worker("w1")
    world.ask(CreateConnector("a", sink(2)))
    world.advance(1_000)
    found = world.herder.counts()
    assert found is not None
    assert not found.not_running
    assert found.tasks == {(RunState.RUNNING, TargetState.STARTED): 2}
    assert found.workers == {WorkerState.CONNECTED: 1}
    assert found.slots == world.herder.workers()[0].slots > 0
    assert found.waiting_for_slot == 0


def test_a_task_that_waits_for_a_slot_is_counted_although_its_state_is_running() -> None:
    world = World()
    world.lead()
    worker = world.worker("w1")
    world.ask(CreateConnector("a", sink(2)))
    world.advance(1_000)
    assert worker.session is not None
    wait = Wait(RUN_SLOT, "all 8 slots of this worker are taken", world.now)
    world.post(ev.WorkerHeartbeat(worker.session, waits=((UnitId("a", 1), wait),)))
    world.run()
    found = world.herder.counts()
    assert found is not None
    assert found.waiting_for_slot == 1


def test_the_slots_that_runs_have_are_counted_and_shown_of_each_worker() -> None:
    """Unknown until the first heartbeat, and of a worker whose stream broke."""
    world = World()
    world.lead()
    busy = world.worker("w1")
    world.worker("w2")
    assert busy.session is not None
    world.post(ev.WorkerHeartbeat(busy.session, slot_use=SlotUse(8, 3)))
    world.run()
    found = world.herder.counts()
    assert found is not None
    assert (found.slots, found.slots_used) == (16, 8)
    assert [one.slot_use for one in world.herder.workers()] == [SlotUse(8, 3), None]
    shown = [wire_views.worker(one) for one in world.herder.workers()]
    assert [(one.slots_used, one.tasks_waiting_for_slot, one.HasField("slots_used")) for one in shown] == [
        (8, 3, True),
        (0, 0, False),
    ]
    world.hang_up(busy)
    world.run()
    found = world.herder.counts()
    assert found is not None
    assert (found.slots, found.slots_used) == (8, 0)
