"""Automatic restarts: their times and number, and what users and status watchers see, across leaders."""

from __future__ import annotations

from dataclasses import replace

import pytest

from herdmesh.connect.error_class import ErrorClass
from herdmesh.herder.state import Rules
from herdmesh.herder.state.model import RestartPolicy
from herdmesh.herder.state.model import events as ev
from herdmesh.herder.state.model.requests import (
    CreateConnector,
    RestartConnector,
    RestartTask,
    SetTarget,
    UpdateConnector,
)
from herdmesh.herder.state.model.restart_policy import OUTAGE_BACKOFF_MAX_MS, OUTAGE_OVER_MS
from herdmesh.herder.state.views.views import UnitView
from herdmesh.rpc.errors import RequestInvalid, Unreachable
from herdmesh.session.model import Failure, RunState, TargetState, UnitId
from services.herder.tests.world import BROKEN, FENCED, FLAKY, World, sink
from services.herder.tests.world_worker import Worker

UNIT = UnitId("a", 0)
CONNECTOR = UnitId("a")
RULES = Rules(herder_id="h1", restart=RestartPolicy(attempts_max=3, window_ms=60_000, backoff_ms=1_000, jitter=0.0))


@pytest.fixture
def world() -> World:
    """A leader, two workers, a connector with two tasks; three restarts within a minute, after 1, 2 and 4 s."""
    world = World(rules=RULES)
    world.lead()
    world.worker("w1")
    world.worker("w2")
    world.ask(CreateConnector("a", sink(2)))
    return world


def holder(world: World, unit: UnitId = UNIT) -> Worker:
    return next(worker for worker in world.workers.values() if worker.alive and unit in worker.held)


def seen(world: World, unit: UnitId = UNIT) -> UnitView:
    view = world.herder.connector(unit.connector)
    assert view is not None
    return view.status if unit.task is None else view.tasks[unit.task].status


def progress(world: World, unit: UnitId = UNIT) -> tuple[RunState, int, int | None]:
    """State, attempt, ms until the next one."""
    view = seen(world, unit)
    assert view.auto_restart is not None
    due_ms = view.auto_restart.next_ms
    return view.state, view.auto_restart.attempt, None if due_ms is None else due_ms - world.now


def starts(world: World, unit: UnitId = UNIT) -> int:
    return sum(1 for _, start in world.starts if start.unit == unit)


def fail(world: World, failure: Failure = FLAKY, unit: UnitId = UNIT) -> None:
    world.fail(holder(world, unit), unit, failure)


def test_a_failed_task_waits_longer_each_time_and_then_stays_failed(world: World) -> None:
    where = holder(world).id
    for attempt, wait_ms in enumerate((1_000, 2_000, 4_000), start=1):
        fail(world)
        assert progress(world) == (RunState.FAILED, attempt, wait_ms)
        assert seen(world).failure == FLAKY, "the last error stays visible while it waits"
        assert f"restart {attempt} of 3 follows" in seen(world).explanation
        world.advance(wait_ms - 200)
        assert starts(world) == attempt, "not before its time"
        world.advance(300)
        assert starts(world) == attempt + 1
        assert progress(world) == (RunState.RUNNING, attempt, None)
        assert seen(world).explanation == ""
    fail(world)
    world.advance(600_000)
    assert starts(world) == 4
    assert progress(world) == (RunState.FAILED, 4, None)
    assert "3 restarts within 1 min" in seen(world).explanation
    assert "`herd restart a --task 0`" in seen(world).explanation
    assert holder(world).id == where, "a restart keeps its worker"
    assert starts(world, UnitId("a", 1)) == starts(world, CONNECTOR) == 1, "nothing else is restarted"
    world.ask(SetTarget("a", TargetState.PAUSED))
    world.ask(SetTarget("a", TargetState.STARTED))
    world.advance(600_000)
    assert starts(world) == 4, "also long after the window: a human has to act"


def test_the_status_shows_a_failed_task_with_its_trace_and_the_next_restart(world: World) -> None:
    """1. FAILED, waiting; 2. RESTARTING; 3. RUNNING, with the history; 4. budget spent: FAILED, none scheduled."""
    fail(world)
    stored = world.statuses[UNIT]
    assert (stored.state, stored.trace) == (RunState.FAILED, "Traceback")
    assert stored.note is not None
    assert (stored.note.attempt, stored.note.attempts_max, stored.note.next_ms) == (1, 3, world.now + 1_000)
    world.advance(1_100)
    assert [state for unit, state, _ in world.told if unit == UNIT] == [RunState.FAILED, RunState.RESTARTING]
    stored = world.statuses[UNIT]
    assert (stored.state, stored.trace) == (RunState.RUNNING, None)
    assert stored.note is not None, "the worker's own write carries the history on"
    assert len(stored.note.attempts_ms) == 1
    for wait_ms in (2_100, 4_100):
        fail(world)
        world.advance(wait_ms)
    fail(world)
    stored = world.statuses[UNIT]
    assert stored.note is not None
    assert (stored.state, stored.note.next_ms, len(stored.note.attempts_ms)) == (RunState.FAILED, None, 3)
    told = len(world.told)
    world.advance(120_000)
    assert len(world.told) == told, "said once"


@pytest.mark.parametrize("error_class", [ErrorClass.FATAL, ErrorClass.BAD_CONFIG, ErrorClass.DATA_LOSS])
def test_a_failure_that_no_restart_helps_stays_failed(world: World, error_class: ErrorClass) -> None:
    fail(world, replace(FLAKY, error_class=error_class))
    world.advance(600_000)
    assert starts(world) == 1
    assert progress(world) == (RunState.FAILED, 1, None)
    assert error_class.value in seen(world).explanation
    assert world.told == [], "the worker's own record says it all"


AWAY = Failure("taking over did not succeed: no broker answered", "Traceback", ErrorClass.UNREACHABLE)


def test_a_long_outage_of_the_cluster_spends_no_budget(world: World) -> None:
    """1. Hours without a broker; 2. it is back and every restart is still available; 3. with none left an outage still
    does not end the restarts.
    """
    waits: list[int] = []
    for _ in range(30):
        fail(world, AWAY)
        state, _, wait_ms = progress(world)
        assert (state, wait_ms is None) == (RunState.FAILED, False)
        assert "restarts go on until then" in seen(world).explanation
        assert wait_ms is not None
        waits.append(wait_ms)
        world.advance(wait_ms + 200)
        assert seen(world).state is RunState.RUNNING
    assert waits[:4] == [1_000, 2_000, 4_000, 8_000]
    assert set(waits[10:]) == {OUTAGE_BACKOFF_MAX_MS}
    world.advance(RULES.restart.backoff_max_ms)
    spend(world)
    assert "3 restarts within 1 min" in seen(world).explanation
    world.ask(RestartTask("a", 0))
    for _ in range(3):
        fail(world)
        world.advance(5_000)
    fail(world, AWAY)
    world.advance(10_000)
    assert seen(world).state is RunState.RUNNING


def test_each_outage_of_the_cluster_has_its_own_backoff(world: World) -> None:
    """Seen in `make chaos`: the third outage within minutes had a task wait for 8 s although the broker served."""
    for _ in range(6):
        fail(world, AWAY)
        assert progress(world)[2] == 1_000
        world.advance(1_100 + OUTAGE_OVER_MS)
        assert seen(world).state is RunState.RUNNING
    fail(world)
    assert progress(world)[1:] == (1, 1_000), "nor is it one of what the budget counts"
    world.advance(1_100)
    fail(world)
    assert progress(world)[1:] == (2, 2_000)
    world.advance(2_100)
    fail(world, AWAY)
    assert progress(world)[2] == 1_000, "an outage waits for no other failure"


def test_an_outage_outlives_the_leader(world: World) -> None:
    for _ in range(5):
        fail(world, AWAY)
        world.advance(300_000)
    fail(world, AWAY)
    world.kill_herder()
    world.lead()
    world.advance(RULES.restart.backoff_max_ms + 10_000)
    assert seen(world).state is RunState.RUNNING
    fail(world)
    assert progress(world)[1] <= 2, "one of three at most was counted"


def test_an_outage_that_ended_before_the_leader_began_causes_no_wait(world: World) -> None:
    """Seen in `make chaos`: a second on top of the seven that stores and herder took to come back with the broker."""
    worker = holder(world)
    world.kill_herder()
    world.fail_unheard(worker, UNIT, AWAY)
    world.advance(5_000)
    world.lead()
    world.advance(500)
    assert seen(world).state is RunState.RUNNING
    fail(world, AWAY)
    assert progress(world)[2] == 2_000, "in a row with it, should it not be over after all"


def test_a_failure_of_another_class_while_nobody_led_causes_a_wait(world: World) -> None:
    worker = holder(world)
    world.kill_herder()
    world.fail_unheard(worker, UNIT, FLAKY)
    world.lead()
    world.advance(600)
    state, attempt, wait_ms = progress(world)
    assert (state, attempt) == (RunState.FAILED, 1)
    assert wait_ms is not None
    assert wait_ms <= 1_000


def test_restarts_can_be_switched_off_for_one_connector(world: World) -> None:
    world.ask(UpdateConnector("a", sink(2, **{"herdmesh.restart.enabled": "false"})))
    fail(world)
    world.advance(600_000)
    assert starts(world) == 2
    assert "herdmesh.restart.enabled" in seen(world).explanation


def test_a_connectors_own_budget(world: World) -> None:
    own = {"herdmesh.restart.attempts.max": "1", "herdmesh.restart.backoff.ms": "5000"}
    world.ask(UpdateConnector("a", sink(2, **own)))
    fail(world)
    assert progress(world) == (RunState.FAILED, 1, 5_000)
    world.advance(5_100)
    fail(world)
    world.advance(600_000)
    assert progress(world) == (RunState.FAILED, 2, None)


def test_a_failed_connector_is_restarted_too(world: World) -> None:
    fail(world, unit=CONNECTOR)
    assert progress(world, CONNECTOR) == (RunState.FAILED, 1, 1_000)
    world.advance(1_100)
    assert progress(world, CONNECTOR) == (RunState.RUNNING, 1, None)
    assert starts(world) == 1, "its tasks run on"


def test_a_task_that_stayed_up_waits_briefly_again_and_the_window_slides(world: World) -> None:
    world = World(rules=replace(RULES, restart=replace(RULES.restart, backoff_max_ms=20_000)))
    world.lead()
    world.worker("w1")
    world.ask(CreateConnector("a", sink(1)))
    for _ in range(3):
        fail(world)
        assert progress(world)[1:] == (1, 1_000) or starts(world) > 1
        world.advance(21_000)
        assert progress(world)[0] is RunState.RUNNING
    # Three restarts so far, one every 21 s: the first has left the window of a minute.
    fail(world)
    assert progress(world) == (RunState.FAILED, 3, 1_000)


def test_a_fenced_owner_is_restarted_once_a_minute_within_the_same_history(world: World) -> None:
    world.rules = Rules(herder_id="h1", restart=RestartPolicy(jitter=0.0))
    world.lead()
    world.advance(1_000)
    fail(world, FENCED)
    assert progress(world) == (RunState.FAILED, 1, 1_000)
    world.advance(1_500)
    assert seen(world).state is RunState.RUNNING
    fail(world, FENCED)
    world.advance(30_000)
    assert progress(world)[:2] == (RunState.FAILED, 2)
    world.advance(31_000)
    assert progress(world) == (RunState.RUNNING, 2, None)


# --- new histories, and restarts that are not counted


def spend(world: World) -> None:
    for wait_ms in (1_100, 2_100, 4_100):
        fail(world)
        world.advance(wait_ms)
    fail(world)
    assert progress(world) == (RunState.FAILED, 4, None)


def test_a_requested_restart_begins_a_new_history(world: World) -> None:
    spend(world)
    world.ask(RestartTask("a", 0))
    assert seen(world).state is RunState.RUNNING
    assert seen(world).auto_restart is None
    assert (UNIT, RunState.RESTARTING, None) in world.told, "status watchers see it, as in Connect"
    fail(world)
    assert progress(world) == (RunState.FAILED, 1, 1_000)
    world.advance(1_100)
    fail(world)
    world.ask(RestartConnector("a", include_tasks=True, only_failed=True))
    fail(world)
    assert progress(world) == (RunState.FAILED, 1, 1_000)


def test_a_restart_requested_while_one_waits_is_one_restart(world: World) -> None:
    fail(world)
    world.ask(RestartTask("a", 0))
    world.advance(60_000)
    assert starts(world) == 2


def test_a_changed_config_begins_a_new_history(world: World) -> None:
    spend(world)
    world.ask(UpdateConnector("a", sink(2, file="other")))
    assert seen(world).state is RunState.RUNNING
    fail(world)
    assert progress(world) == (RunState.FAILED, 1, 1_000)


def test_stop_and_resume_begin_a_new_history(world: World) -> None:
    spend(world)
    world.ask(SetTarget("a", TargetState.STOPPED))
    world.ask(SetTarget("a", TargetState.STARTED))
    assert seen(world).state is RunState.RUNNING
    fail(world)
    assert progress(world) == (RunState.FAILED, 1, 1_000)


def test_stop_and_resume_start_a_failed_connector_again(world: World) -> None:
    fail(world, BROKEN, CONNECTOR)
    world.ask(SetTarget("a", TargetState.PAUSED))
    assert seen(world, CONNECTOR).state is RunState.FAILED
    world.ask(SetTarget("a", TargetState.STOPPED))
    assert seen(world, CONNECTOR).state is RunState.STOPPED
    world.ask(SetTarget("a", TargetState.STARTED))
    assert seen(world, CONNECTOR).state is RunState.RUNNING
    assert seen(world).state is RunState.RUNNING


def test_a_paused_connector_delays_its_restart(world: World) -> None:
    fail(world)
    world.ask(SetTarget("a", TargetState.PAUSED))
    world.advance(30_000)
    assert seen(world).state is RunState.FAILED
    assert "waits until it is resumed" in seen(world).explanation
    world.ask(SetTarget("a", TargetState.STARTED))
    world.advance(100)
    assert progress(world) == (RunState.RUNNING, 1, None)


def test_a_worker_that_dies_costs_no_budget(world: World) -> None:
    fail(world)
    world.advance(1_100)
    before = progress(world)
    for _ in range(5):
        name = holder(world).id
        world.kill(name)
        world.advance(3_000)
        world.revive(name)
        world.advance(1_000)
        assert seen(world).state is RunState.RUNNING
    assert progress(world) == before


def test_a_task_that_moves_while_it_waits_is_not_restarted_again(world: World) -> None:
    fail(world)
    world.kill(holder(world).id)
    world.advance(2_100)
    assert starts(world) == 2
    world.advance(60_000)
    assert starts(world) == 2
    assert seen(world).state is RunState.RUNNING


def test_an_unheld_unit_has_no_restart_scheduled(world: World) -> None:
    fail(world)
    world.advance(1_100)
    fail(world)
    assert progress(world) == (RunState.FAILED, 2, 2_000)
    for worker in list(world.workers):
        world.kill(worker)
    world.advance(1_000)
    world.advance(1_500)
    assert progress(world) == (RunState.UNASSIGNED, 1, None)


# --- across leaders


def test_a_new_leader_continues_the_restart_history(world: World) -> None:
    """Leaders change before, during and after every restart; the budget and the backoff are those of one leader."""
    for wait_ms in (1_000, 2_000, 4_000):
        fail(world)
        world.lead()
        world.advance(600)
        assert progress(world)[:2] == (RunState.FAILED, starts(world))
        world.kill_herder()
        world.advance(100)
        world.lead()
        world.advance(wait_ms)
        assert seen(world).state is RunState.RUNNING
        world.lead()
        world.advance(600)
    assert starts(world) == 4
    fail(world)
    world.lead()
    world.advance(120_000)
    assert starts(world) == 4
    assert progress(world) == (RunState.FAILED, 4, None)


def test_a_task_that_fails_while_nobody_leads(world: World) -> None:
    for wait_ms in (1_100, 2_100, 4_100):
        fail(world)
        world.advance(wait_ms)
    worker = holder(world)
    world.kill_herder()
    world.fail_unheard(worker, UNIT, FLAKY)
    world.advance(5_000)
    world.lead()
    world.advance(120_000)
    assert progress(world) == (RunState.FAILED, 4, None), "the worker's own record had the history"


def test_a_restart_begun_by_a_dead_leader_is_done_and_counted_once(world: World) -> None:
    """1. RESTARTING is written; 2. the leader dies before its stop arrives; 3. another leads."""
    fail(world)
    worker = holder(world)
    worker.frozen = True
    world.advance(1_100)
    assert world.statuses[UNIT].state is RunState.RESTARTING
    world.kill_herder()
    worker.frozen = False
    worker.backlog.clear()
    world.lead()
    world.advance(600)
    assert starts(world) == 2
    assert progress(world) == (RunState.RUNNING, 1, None)
    world.advance(60_000)
    assert starts(world) == 2


def test_a_config_changed_while_nobody_led_begins_a_new_history(world: World) -> None:
    spend(world)
    world.kill_herder()
    entry = world.config.entries["a"]
    changed = {**entry.config, "file": "other"}
    world.config.entries["a"] = replace(entry, config=changed, config_revision=world.config.next())
    world.lead()
    world.advance(10_000)
    assert seen(world).state is RunState.RUNNING
    fail(world)
    assert progress(world) == (RunState.FAILED, 1, 1_000)


def test_no_failure_is_decided_before_the_statuses_are_known() -> None:
    """A leader that decided earlier would not know the restarts of the previous one."""
    world = World(rules=RULES)
    world.lead()
    worker = world.worker("w1")
    world.ask(CreateConnector("a", sink(1)))
    fail(world)
    world.advance(1_100)
    fail(world)
    statuses, world.statuses = dict(world.statuses), {}
    world.lead_blind()
    worker.dial()
    world.advance(5_000)
    assert starts(world) == 2
    world.statuses = statuses
    world.post(ev.StatusSnapshot(list(statuses.values())))
    world.post(ev.LeasesChanged(world.leases()))
    world.advance(100)
    assert starts(world) == 3, "it was due long ago"
    assert progress(world) == (RunState.RUNNING, 2, None)


# --- races with the worker's own writes


def test_a_workers_newer_status_is_never_overwritten(world: World) -> None:
    """The leader's write travels slowly: the worker's RUNNING is in the store when it arrives."""
    fail(world)
    world.status_delay_ms = 3_000
    world.advance(1_100)
    assert world.statuses[UNIT].state is RunState.RUNNING
    world.advance(10_000)
    assert world.statuses[UNIT].state is RunState.RUNNING
    assert (UNIT, RunState.RESTARTING) not in [(unit, state) for unit, state, _ in world.told]


def test_a_status_newer_than_the_workers_report_is_not_overwritten(world: World) -> None:
    """The worker's RUNNING is in the store before the leader has the report: there is nothing left to write."""
    fail(world)
    world.report_delay_ms = 400
    world.advance(1_600)
    assert world.statuses[UNIT].state is RunState.RUNNING
    assert seen(world).state is RunState.RESTARTING
    world.advance(2_000)
    assert world.statuses[UNIT].state is seen(world).state is RunState.RUNNING
    assert [state for unit, state, _ in world.told if unit == UNIT].count(RunState.RESTARTING) == 1


def test_restarts_do_not_wait_for_the_status_store(world: World) -> None:
    world.status_store_error = Unreachable("the status store is away")
    fail(world)
    world.advance(1_100)
    assert seen(world).state is RunState.RUNNING
    fail(world)
    world.advance(1_000)
    world.status_store_error = None
    world.advance(900)
    stored = world.statuses[UNIT]
    assert stored.note is not None
    assert (stored.note.attempt, stored.state) == (2, RunState.FAILED), "told as soon as it can be"


def test_a_write_that_the_status_store_refuses_for_good_is_not_repeated(world: World) -> None:
    world.status_store_error = RequestInvalid("a trace too large", "puts[0].status")
    fail(world)
    before = world.puts_count
    world.advance(900)
    assert (before, world.puts_count) == (1, 1)
    world.advance(300)
    assert seen(world).state is RunState.RUNNING, "restarts do not depend on it"


def test_a_failure_in_a_status_of_java_does_not_count(world: World) -> None:
    """No worker holds the unit: Java's status is no failure of it."""
    world.ask(SetTarget("a", TargetState.STOPPED))
    stored = world.statuses[UNIT]
    world.statuses[UNIT] = replace(stored, state=RunState.FAILED, worker_id="java:8083", worker_incarnation="")
    world.lead()
    world.advance(10_000)
    world.ask(SetTarget("a", TargetState.STARTED))
    assert seen(world).state is RunState.RUNNING
    assert seen(world).auto_restart is None


def test_a_unit_failed_for_good_is_adopted_as_failed(world: World) -> None:
    fail(world, BROKEN)
    world.lead()
    world.advance(60_000)
    assert starts(world) == 1
    assert seen(world).failure == BROKEN


def _alone() -> tuple[World, Worker]:
    """A leader and one worker, so that a lost unit cannot move."""
    world = World(rules=RULES)
    world.lead()
    world.worker("w1")
    world.ask(CreateConnector("a", sink(2)))
    return world, holder(world)


def _back_as_it_was(world: World, worker: Worker) -> None:
    """Reconnect the worker; messages sent to it meanwhile were lost with the stream."""
    worker.backlog.clear()
    worker.frozen = False
    worker.dial()
    world.advance(1_000)


@pytest.mark.parametrize("paused", [False, True])
def test_a_restart_whose_stop_was_lost_with_the_session_is_done_and_counted_once(paused: bool) -> None:
    """1. The restart begins; 2. its worker freezes and its stream breaks; 3. it dials in, and still holds the unit."""
    world, worker = _alone()
    fail(world)
    worker.frozen = True
    world.advance(1_100)
    assert seen(world).state is RunState.RESTARTING
    world.hang_up(worker)
    if paused:
        world.ask(SetTarget("a", TargetState.PAUSED))
    world.advance(10_000)
    _back_as_it_was(world, worker)
    if paused:
        assert progress(world)[:2] == (RunState.FAILED, 1)
        assert "restart 1 of 3 waits until it is resumed" in seen(world).explanation
        world.ask(SetTarget("a", TargetState.STARTED))
        world.advance(1_000)
    assert progress(world) == (RunState.RUNNING, 1, None)
    assert starts(world) == 2


def test_a_restart_due_while_its_worker_was_unreachable_is_done_when_it_returns() -> None:
    world, worker = _alone()
    fail(world)
    worker.frozen = True
    world.hang_up(worker)
    world.advance(10_000)
    _back_as_it_was(world, worker)
    assert progress(world) == (RunState.RUNNING, 1, None)
    assert starts(world) == 2
