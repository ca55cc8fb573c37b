"""Restarts that were begun while no status could be written: the next leader counts all that any source reports.

Restarts that statuses report in time are in `test_restarts.py`. The histories alone are in `test_restart_policy.py`.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from herdmesh.herder.state import Rules
from herdmesh.herder.state.model import RestartPolicy, StatusEntry
from herdmesh.herder.state.model import events as ev
from herdmesh.herder.state.model.requests import CreateConnector
from herdmesh.herder.state.views.views import UnitView
from herdmesh.rpc.errors import Unreachable
from herdmesh.session.model import RunState, TargetState, UnitId
from services.herder.tests.world import FLAKY, World, sink
from services.herder.tests.world_store import revision
from services.herder.tests.world_worker import Worker

TASK, CONNECTOR = UnitId("a", 0), UnitId("a")
RULES = Rules(herder_id="h1", restart=RestartPolicy(attempts_max=3, window_ms=60_000, backoff_ms=1_000, jitter=0.0))


@pytest.fixture
def world() -> World:
    """A leader, a worker, a connector with one task; three restarts within a minute, after 1, 2 and 4 s; and no status
    is written."""
    world = World(rules=RULES)
    world.lead()
    world.worker("w1")
    world.ask(CreateConnector("a", sink(1)))
    _write_nothing(world, is_away=True)
    return world


def _write_nothing(world: World, *, is_away: bool) -> None:
    world.status_store_error = Unreachable("the status store is away") if is_away else None
    world.statuses_lost = is_away


def _holder(world: World) -> Worker:
    return next(worker for worker in world.workers.values() if worker.alive and CONNECTOR in worker.held)


def _fail(world: World, *waits_ms: int, unit: UnitId = TASK) -> None:
    """Fail the unit once for each wait, and then wait that long."""
    for wait_ms in waits_ms:
        world.fail(_holder(world), unit, FLAKY)
        world.advance(wait_ms)


def _seen(world: World, unit: UnitId = TASK) -> UnitView:
    view = world.herder.connector(unit.connector)
    assert view is not None
    return view.status if unit.task is None else view.tasks[unit.task].status


def _starts(world: World, unit: UnitId = TASK) -> int:
    return sum(1 for _, start in world.starts if start.unit == unit)


def _step_down(world: World) -> None:
    world.post(ev.LeadershipLost("the config store was away"))
    world.run()


def _another_leads(world: World) -> None:
    world.kill_herder()
    world.advance(100)
    world.lead()
    world.advance(600)


def _assert_spent(world: World) -> None:
    world.advance(120_000)
    assert _starts(world) == 4
    assert _seen(world).state is RunState.FAILED
    assert "3 restarts within 1 min" in _seen(world).explanation


def test_a_herder_that_leads_again_knows_its_own_restarts(world: World) -> None:
    _fail(world, 1_100, 2_100)
    _step_down(world)
    world.regain()
    world.advance(600)
    _fail(world, 4_100, 100)
    _assert_spent(world)


def test_a_herder_that_leads_again_knows_its_own_restarts_of_a_lost_worker(world: World) -> None:
    _fail(world, 1_100, 2_100, 4_100)
    _step_down(world)
    world.kill("w1")
    world.worker("w2")
    world.regain()
    world.advance(20_000)
    assert _starts(world) == 5
    _fail(world, 100)
    world.advance(600_000)
    assert _starts(world) == 5


def test_a_restart_that_no_worker_received_counts_once_when_its_leader_leads_again(world: World) -> None:
    _fail(world, 500)
    worker = _holder(world)
    worker.frozen = True
    world.advance(600)
    _step_down(world)
    worker.backlog.clear()
    worker.frozen = False
    world.regain()
    worker.dial()
    world.advance(2_000)
    assert (_seen(world).state, _starts(world)) == (RunState.RUNNING, 2)
    _fail(world, 2_100, 4_100, 100)
    _assert_spent(world)


def test_attempts_reported_late_by_a_worker_count(world: World) -> None:
    """Another leader has read the statuses before."""
    _fail(world, 1_100, 2_100)
    _another_leads(world)
    _write_nothing(world, is_away=False)
    world.tell_late(_holder(world), TASK)
    _fail(world, 4_100, 100)
    _assert_spent(world)


def test_attempts_reported_after_the_next_restart_was_decided_cancel_it(world: World) -> None:
    _fail(world, 1_100, 2_100, 4_100)
    _another_leads(world)
    _fail(world, 100)
    assert "restart 1 of 3 follows" in _seen(world).explanation
    _write_nothing(world, is_away=False)
    world.tell_late(_holder(world), TASK)
    _assert_spent(world)


def test_attempts_reported_late_stay_in_the_record_that_the_leader_writes(world: World) -> None:
    """1. h1 restarts without a status; 2. h2 restarts again; 3. the status of 1 arrives; 4. h2 writes a status of 2; 5.
    another leads.
    """
    _fail(world, 1_100)
    _another_leads(world)
    worker = _holder(world)
    _fail(world, 500)
    _write_nothing(world, is_away=False)
    world.tell_late(worker, TASK)
    world.advance(600)
    _another_leads(world)
    stored = world.statuses[TASK]
    assert stored.note is not None
    assert len(stored.note.attempts_ms) == 2
    _fail(world, 4_100, 100)
    _assert_spent(world)


def test_a_restart_reported_late_by_an_earlier_leader_is_done_and_counted_once(world: World) -> None:
    """It was begun by a leader that did not know that its epoch had ended, and no worker received it."""
    _fail(world, 1_100, 2_100)
    _another_leads(world)
    held = _holder(world).held[TASK]
    assert held.note is not None
    note = replace(held.note, attempts_ms=(*held.note.attempts_ms, 5_000))
    late = StatusEntry(
        TASK, RunState.RESTARTING, "w1", generation=held.assignment.generation, revision=revision(99), note=note
    )
    world.post(ev.StatusPut(late))
    world.run()
    world.fail(_holder(world), TASK, FLAKY)
    world.advance(300)
    assert (_seen(world).state, _starts(world)) == (RunState.RUNNING, 4), "at once"
    _fail(world, 100)
    _assert_spent(world)


def test_a_connector_stopped_under_another_leader_has_a_new_history(world: World) -> None:
    _fail(world, 1_100, 2_100, 4_100, unit=CONNECTOR)
    _step_down(world)
    started = world.config.entries["a"]
    for entry in (replace(started, target=TargetState.STOPPED), started):
        world.post(ev.ConfigChanged("a", entry, world.config.next()))
    world.regain()
    world.advance(600)
    _fail(world, 100, unit=CONNECTOR)
    assert "restart 1 of 3 follows" in _seen(world, CONNECTOR).explanation


def test_attempts_from_before_a_stop_that_are_reported_late_do_not_count(world: World) -> None:
    _fail(world, 1_100, 2_100, 4_100, unit=CONNECTOR)
    before = _holder(world).held[CONNECTOR]
    started = world.config.entries["a"]
    for entry in (replace(started, target=TargetState.STOPPED), started):
        world.config.entries["a"] = entry
        world.post(ev.ConfigChanged("a", entry, world.config.next()))
        world.advance(600)
    _write_nothing(world, is_away=False)
    late = replace(world.statuses[CONNECTOR], generation=before.assignment.generation, note=before.note)
    world.post(ev.StatusPut(late))
    world.run()
    _fail(world, 100, unit=CONNECTOR)
    assert "restart 1 of 3 follows" in _seen(world, CONNECTOR).explanation
