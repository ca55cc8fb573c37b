"""Workers and leaders that come and go: adoption, loss, double claims, drains. Only units that must move do."""

from __future__ import annotations

from dataclasses import replace

import pytest

from herdmesh.herder.state import Rules
from herdmesh.herder.state.model import events as ev
from herdmesh.herder.state.model import instructions as ins
from herdmesh.herder.state.model.requests import CreateConnector, DrainWorker, SetTarget, UpdateConnector
from herdmesh.herder.state.views.views import WorkerState
from herdmesh.rpc.errors import NoLeader, NotLeader, WorkerNotFound
from herdmesh.session import messages
from herdmesh.session.model import HeldUnit, RunState, TargetState, UnitId
from services.herder.tests.world import BROKEN, World, sink
from services.herder.tests.world_store import revision
from services.herder.tests.world_worker import SINK, SOURCE, Held, Worker


@pytest.fixture
def world() -> World:
    """A leader, two workers, and two connectors with four and three tasks."""
    world = World()
    world.lead()
    world.worker("w1")
    world.worker("w2")
    world.ask(CreateConnector("a", sink(4)))
    world.ask(CreateConnector("b", sink(3)))
    return world


def cluster(world: World) -> tuple[int, int]:
    view = world.herder.cluster()
    return view.start_count, view.adopted_count


def test_a_restarted_herder_adopts_everything_and_starts_nothing(world: World) -> None:
    assert cluster(world) == (9, 0)
    where, starts = world.running(), len(world.starts)
    world.kill_herder()
    world.advance(3_000)
    world.lead()
    world.advance(20_000)
    assert cluster(world) == (0, 9)
    assert world.running() == where
    assert len(world.starts) == starts
    view = world.herder.connector("a")
    assert view is not None
    assert [task.status.state for task in view.tasks] == [RunState.RUNNING] * 4


def test_a_failed_task_is_adopted_as_failed(world: World) -> None:
    unit = UnitId("a", 2)
    worker = next(worker for worker in world.workers.values() if unit in worker.held)
    world.fail(worker, unit, BROKEN)
    world.kill_herder()
    world.lead()
    world.advance(10_000)
    view = world.herder.connector("a")
    assert view is not None
    assert view.tasks[2].status.failure == BROKEN
    assert cluster(world) == (0, 9)


def test_a_new_leader_waits_for_a_live_worker_and_adopts_its_units(world: World) -> None:
    starts = len(world.starts)
    world.kill_herder()
    slow = world.workers["w2"]
    slow.frozen = True
    world.lead()
    world.advance(2_000)
    view = world.herder.connector("a")
    assert view is not None
    # Its lease is live: units that it last reported RUNNING are given to no other worker, and shown as reported.
    assert len(world.starts) == starts
    assert [task.status.state for task in view.tasks] == [RunState.RUNNING] * 4
    slow.thaw()
    world.advance(2_000)
    assert cluster(world) == (0, 9)


def test_a_new_leader_stops_waiting_after_the_session_timeout(world: World) -> None:
    world.kill_herder()
    lost = world.workers["w2"]
    had = set(lost.held)
    lost.frozen = True
    world.lead()
    world.advance(6_500)
    assert cluster(world) == (len(had), 9 - len(had))
    assert set(world.workers["w1"].held) >= had


def test_a_new_leader_does_not_wait_for_a_dead_lease(world: World) -> None:
    had = set(world.workers["w2"].held)
    world.kill_herder()
    world.kill("w2")
    world.advance(7_000)
    world.lead()
    world.advance(500)
    assert set(world.workers["w1"].held) >= had


def test_a_new_leader_ignores_leases_that_call_a_connected_worker_dead(world: World) -> None:
    starts = len(world.starts)
    world.kill_herder()
    world.status_store_away = True
    late = world.workers["w2"]
    late.frozen = True
    world.advance(7_000)  # the leases end: nobody writes them
    world.lead()
    world.advance(1_500)
    assert len(world.starts) == starts
    late.thaw()
    world.advance(2_000)
    assert cluster(world) == (0, 9)


def test_a_config_changed_while_nobody_led_restarts_only_its_own_units(world: World) -> None:
    world.kill_herder()
    entry = world.config.entries["a"]
    changed = {**entry.config, "file": "other"}
    world.config.entries["a"] = replace(entry, config=changed, config_revision=world.config.next())
    starts = len(world.starts)
    world.lead()
    world.advance(10_000)
    assert sorted(str(start.unit) for _, start in world.starts[starts:]) == ["a", "a-0", "a-1", "a-2", "a-3"]


def test_a_killed_workers_units_move_after_the_grace_and_no_others(world: World) -> None:
    had, starts = set(world.workers["w2"].held), len(world.starts)
    kept = {unit: held.assignment for unit, held in world.workers["w1"].held.items()}
    world.kill("w2")
    world.advance(1_900)
    view = world.herder.connector("a")
    assert view is not None
    assert RunState.UNASSIGNED in {task.status.state for task in view.tasks}, "shown RUNNING on a dead worker"
    assert len(world.starts) == starts
    world.advance(300)
    assert {start.unit for _, start in world.starts[starts:]} == had
    assert kept.items() <= {unit: held.assignment for unit, held in world.workers["w1"].held.items()}.items()


def test_a_stream_that_returns_within_the_grace_moves_nothing(world: World) -> None:
    where, counts = world.running(), cluster(world)
    world.hang_up(world.workers["w2"])
    world.advance(10_000)
    assert world.running() == where
    assert cluster(world) == counts


def test_a_restarted_worker_frees_its_earlier_incarnation_at_once(world: World) -> None:
    had, starts = set(world.workers["w2"].held), len(world.starts)
    world.kill("w2")
    world.revive("w2")
    world.advance(200)
    assert {start.unit for _, start in world.starts[starts:]} == had


def test_the_replaced_of_two_living_workers_of_one_id_is_refused_and_shown(world: World) -> None:
    """They evicted each other 25 times a second, each time with all their units."""
    had, starts = set(world.workers["w2"].held), len(world.starts)
    first = world.workers["w2"]
    other = Worker("w2", world, first.plugins, life=first.life + 1)
    world.workers["w2"] = other  # it starts under the same id on another host
    other.dial()
    world.advance(200)
    for _ in range(50):  # the first one dials again and again
        first.session = None
        first.dial()
        world.advance(40)
        assert first.session is None
    assert {start.unit for _, start in world.starts[starts:]} == had
    assert len(world.starts) == starts + len(had)
    [shown] = [worker for worker in world.herder.workers() if worker.worker_id == "w2"]
    assert shown.incarnation == other.incarnation
    [condition] = shown.conditions
    assert condition.type == "DUPLICATE_WORKER_ID"
    assert "set worker_id or advertised_address" in condition.message
    world.advance(61_000)
    [shown] = [worker for worker in world.herder.workers() if worker.worker_id == "w2"]
    assert shown.conditions == ()


def test_units_of_a_silent_worker_move_after_the_session_timeout(world: World) -> None:
    had = set(world.workers["w2"].held)
    world.workers["w2"].frozen = True
    world.advance(5_500)
    assert not had & set(world.workers["w1"].held)
    world.advance(1_000)
    assert had <= set(world.workers["w1"].held)
    # It thaws, dials in with units that have moved, and releases those with a newer assignment elsewhere.
    world.workers["w2"].thaw()
    world.advance(2_000)
    assert sum(world.placed().values()) == 7
    assert max(world.placed().values()) - min(world.placed().values()) <= 1


def test_task_numbers_lost_while_stopping_are_fenced_before_a_new_set(world: World) -> None:
    world.workers["w2"].frozen = True
    world.ask(SetTarget("a", TargetState.STOPPED))
    world.advance(7_000)
    world.ask(UpdateConnector("a", sink(1)))
    world.ask(SetTarget("a", TargetState.STARTED))
    fences = world.workers["w1"].fences
    assert fences == [("a", 4)]
    assert world.config.counts[-1] == ("a", 1)
    world.ask(UpdateConnector("a", sink(3)))
    assert fences == [("a", 4)], "nothing is lost any more, so nothing needs a fence"


def test_lost_task_numbers_that_run_elsewhere_are_fenced_before_a_new_set(world: World) -> None:
    """The lost worker may be cut off from us and not from Kafka: it takes an id back while its new owner is idle."""
    world.workers["w2"].frozen = True
    world.advance(7_000)
    assert all(unit in world.workers["w1"].held for unit in (UnitId("a", task) for task in range(4)))
    world.ask(UpdateConnector("a", sink(2)))
    assert world.workers["w1"].fences == [("a", 4)]
    world.ask(UpdateConnector("a", sink(3)))
    assert world.workers["w1"].fences == [("a", 4)], "once"
    assert {unit for unit in world.workers["w1"].held if unit.connector == "a"} == {
        UnitId("a"),
        UnitId("a", 0),
        UnitId("a", 1),
        UnitId("a", 2),
    }


def test_a_leader_that_dies_before_the_count_leaves_the_fence_to_the_next(world: World) -> None:
    """1. A smaller set is committed; 2. the leader dies; 3. a worker with old tasks is cut off; 4. another leads."""
    world.workers["w2"].frozen = True
    world.kill_herder()
    entry = world.config.entries["a"]
    world.config.entries["a"] = replace(
        entry,
        tasks=entry.tasks[:1],
        task_digests=entry.task_digests[:1],
        task_set_version=entry.task_set_version + 1,
        pending_fencing=True,
    )
    world.advance(7_000)
    world.lead()
    world.advance(7_000)
    assert world.workers["w1"].fences == [("a", 4)]
    assert UnitId("a", 0) in world.workers["w1"].held


def test_the_highest_order_wins_a_double_claim(world: World) -> None:
    unit = UnitId("a", 0)
    owner = next(worker for worker in world.workers.values() if unit in worker.held)
    mine = owner.held[unit].assignment
    newer = replace(mine, generation=mine.generation + 500)
    session = world.new_session(owner)
    hello = ev.WorkerHello(session, "w3", "w3-life", "w3:1", 8, (SINK,), (HeldUnit(unit, newer, RunState.RUNNING),), 1)
    world.post(hello)
    world.run()
    assert unit not in owner.held
    view = world.herder.connector("a")
    assert view is not None
    assert view.tasks[0].status.worker_id == "w3"


def test_an_older_claim_loses(world: World) -> None:
    unit = UnitId("a", 0)
    owner = next(worker for worker in world.workers.values() if unit in worker.held)
    mine = owner.held[unit].assignment
    older = replace(mine, generation=mine.generation - 1)
    thief = world.worker("w3")
    world.advance(1_000)
    thief.held[unit] = Held(older, RunState.RUNNING, TargetState.STARTED, 4)
    world.hang_up(thief)
    world.advance(1_000)
    assert unit not in thief.held
    assert owner.held[unit].assignment == mine


def test_an_older_claim_loses_after_the_newer_one_ended_without_a_status(world: World) -> None:
    unit = UnitId("a", 0)
    owner = next(worker for worker in world.workers.values() if unit in worker.held)
    mine = owner.held[unit].assignment
    world.release(owner, unit)
    world.run()
    world.herder.handle(ev.StatusDeleted(unit), world.now)
    thief = ev.WorkerHello(
        world.new_session(owner), "w3", "w3-life", "w3:1", 8, (SINK,),
        (HeldUnit(unit, replace(mine, generation=mine.generation - 1), RunState.RUNNING),), 1,
    )  # fmt: skip
    told = [one.message for one in world.herder.handle(thief, world.now) if isinstance(one, ins.Send)]
    assert [one.unit for one in told if isinstance(one, messages.StopUnit)] == [unit]


@pytest.mark.parametrize(("ahead", "restarts"), [(1, 1), (1_000_000, 0)])
def test_an_adopted_unit_restarts_above_a_late_status_of_a_newer_owner(world: World, ahead: int, restarts: int) -> None:
    """1. The previous leader started a-0 elsewhere, and it was released there; 2. its first owner, cut off until now,
    keeps it; 3. the newer owner's status arrives, and would hide all that the first owner writes. A generation above
    all that were ever given out belongs to another history: no start of ours would reach it.
    """
    unit = UnitId("a", 0)
    owner = next(worker for worker in world.workers.values() if unit in worker.held)
    other = next(worker for worker in world.workers.values() if worker is not owner)
    said = replace(
        world.statuses[unit],
        state=RunState.UNASSIGNED,
        worker_id=other.id,
        worker_incarnation=other.incarnation,
        generation=owner.held[unit].assignment.generation + ahead,
    )
    starts = len(world.starts)
    world.statuses[unit] = said
    world.post(ev.StatusPut(said))
    world.advance(5_000)
    assert [(name, start.unit) for name, start in world.starts[starts:]] == [(owner.id, unit)] * restarts
    assert (owner.held[unit].assignment.generation > said.generation) == bool(restarts)
    assert (world.statuses[unit].state is RunState.RUNNING) == bool(restarts)


def test_a_joining_worker_gets_its_share_and_nothing_else_moves(world: World) -> None:
    starts = len(world.starts)
    world.worker("w3")
    world.share()
    moved = world.starts[starts:]
    assert {name for name, _ in moved} == {"w3"}
    assert world.placed() == {"w1": 3, "w2": 2, "w3": 2} or world.placed() == {"w1": 2, "w2": 3, "w3": 2}
    assert len([start for _, start in moved if start.unit.task is not None]) == 2
    assert max(world.placed("connectors").values()) <= 1


def test_a_leaving_worker_is_released_when_it_holds_nothing(world: World) -> None:
    leaver = world.workers["w2"]
    assert leaver.session is not None
    leaver.say(ev.WorkerLeft(leaver.session))
    world.advance(1_000)
    assert leaver.released
    assert leaver.held == {}
    assert len(world.workers["w1"].held) == 9
    assert [view.worker_id for view in world.herder.workers()] == ["w1"]


def test_the_last_leaving_workers_stop_all_units(world: World) -> None:
    for worker in world.workers.values():
        assert worker.session is not None
        worker.say(ev.WorkerLeft(worker.session))
    world.run()
    assert all(worker.released for worker in world.workers.values())
    assert world.running() == {}
    view = world.herder.connector("a")
    assert view is not None
    assert view.status.conditions[0].type == "NO_WORKER"


def test_a_drain_moves_all_tasks_and_an_unknown_worker_is_refused(world: World) -> None:
    world.ask(DrainWorker("w1"))
    assert world.placed() == {"w1": 0, "w2": 7}
    view = world.herder.worker("w1")
    assert view is not None
    assert view.state is WorkerState.DRAINED
    with pytest.raises(WorkerNotFound):
        world.ask(DrainWorker("nobody"))


def test_units_run_only_where_their_plugin_is() -> None:
    world = World()
    world.lead()
    world.worker("w1", (SINK,))
    world.worker("w2", (SOURCE,))
    world.ask(CreateConnector("a", sink(4)))
    assert world.placed() == {"w1": 4, "w2": 0}
    world.worker("w3", (SINK,))
    world.share()
    assert world.placed() == {"w1": 2, "w2": 0, "w3": 2}


def test_java_names_and_aliases_name_the_same_plugin() -> None:
    world = World()
    world.lead()
    world.worker("w1", (SINK,))
    world.ask(CreateConnector("a", {"connector.class": "herdmesh.TestSink"}))
    assert len(world.workers["w1"].held) == 2


def test_a_pause_reaches_a_worker_that_was_unreachable(world: World) -> None:
    away = world.workers["w2"]
    world.hang_up(away)
    world.ask(SetTarget("a", TargetState.PAUSED))
    world.advance(1_000)
    assert {held.state for unit, held in away.held.items() if unit.connector == "a"} == {RunState.PAUSED}


def test_a_pause_reaches_a_unit_that_was_starting_while_nobody_led(world: World) -> None:
    """1. a-0 starts; 2. the leader dies; 3. a is paused; 4. a-0 is adopted while it still starts, and then runs."""
    unit = UnitId("a", 0)
    worker = next(worker for worker in world.workers.values() if unit in worker.held)
    worker.held[unit].state = RunState.UNASSIGNED
    world.kill_herder()
    entry = world.config.entries["a"]
    world.config.entries["a"] = replace(entry, target=TargetState.PAUSED, target_revision=world.config.next())
    world.lead()
    world.advance(1_000)
    assert worker.held[unit].target is TargetState.PAUSED


def test_an_unacknowledged_stop_counts_as_lost(world: World) -> None:
    for worker in world.workers.values():
        worker.stop_silently = True
    world.ask(UpdateConnector("a", sink(2)))
    world.advance(65_000)  # the connector's own stop first, then those of its tasks
    assert ("a", 4) in world.workers["w1"].fences + world.workers["w2"].fences
    assert world.config.counts[-1] == ("a", 2)


def test_lost_units_wait_for_their_worker_with_a_rebalance_delay() -> None:
    world = World(rules=Rules(rebalance_delay_ms=30_000, balance_delay_ms=500))
    world.lead()
    world.worker("w1")
    world.worker("w2")
    world.ask(CreateConnector("a", sink(4)))
    had, starts = set(world.workers["w2"].held), len(world.starts)
    world.kill("w2")
    world.advance(20_000)
    assert len(world.starts) == starts
    world.revive("w2")
    world.advance(500)
    assert set(world.workers["w2"].held) == had


def test_a_frozen_herder_does_not_count_its_own_freeze_as_silence(world: World) -> None:
    starts = len(world.starts)
    world.now += 30_000
    world.advance(3_000)
    assert len(world.starts) == starts


def test_a_follower_names_the_leader_and_a_lease_ends_by_itself() -> None:
    world = World()
    assert isinstance(world.herder.refusal, NoLeader)
    world.post(ev.LeadershipFollowing("h2", "there:1", 3))
    world.run()
    refusal = world.herder.refusal
    assert isinstance(refusal, NotLeader)
    assert refusal.leader_address == "there:1"
    world.lead()
    world.run()
    assert world.herder.refusal is None
    world.worker("w1")
    short = ev.LeadershipGranted(9, 9_000, 10_000, world.now + 3_700, "h1", "here:1")
    world.post(ev.LeadershipLost("its lease ended"))
    world.post(ev.EpochRecorded(9, world.config.next()))
    world.post(short)
    world.advance(3_600)
    assert world.herder.refusal is None
    world.advance(200)
    assert isinstance(world.herder.refusal, NoLeader)
    assert world.herder.workers() == ()


def test_nothing_is_decided_from_configs_older_than_the_epoch() -> None:
    world = World()
    world.post(ev.ConfigSnapshot([], revision(5), epoch=2))
    world.post(ev.LeadershipGranted(3, 0, 1_000, 10**12))
    world.run()
    assert isinstance(world.herder.refusal, NoLeader)
    world.post(ev.EpochRecorded(3, revision(6)))
    world.run()
    assert world.herder.refusal is None


def test_a_worker_that_has_seen_a_newer_leader_gets_no_commands(world: World) -> None:
    ahead = world.workers["w1"]
    ahead.epoch_max = 50
    world.hang_up(ahead)
    world.advance(1_000)
    assert ahead.session is None
    assert [view.worker_id for view in world.herder.workers() if view.state is WorkerState.CONNECTED] == ["w2"]


@pytest.mark.parametrize("same_leader", [False, True])
@pytest.mark.parametrize("task", [None, 0])
def test_a_stopping_unit_is_not_adopted_and_starts_after_its_stop(
    world: World, same_leader: bool, task: int | None
) -> None:
    unit = UnitId("a", task)
    holder = next(worker for worker in world.workers.values() if unit in worker.held)
    holder.stopping, holder.stop_silently, holder.keeps_all = {unit}, True, True
    if same_leader:
        assert holder.session is not None
        world.hang_up(holder)
    else:
        world.kill_herder()
        world.lead()
    world.advance(3_000)
    assert holder.welcomed == holder.session
    view = world.herder.connector("a")
    assert view is not None
    shown = view.status if task is None else view.tasks[task].status
    assert shown.state is not RunState.RUNNING
    assert "before it starts" in shown.explanation
    others = [worker for worker in world.workers.values() if worker is not holder]
    assert not any(unit in worker.held for worker in others), "not beside the one that stops"
    since = len(world.starts)
    holder.stopping, holder.stop_silently, holder.keeps_all = set(), False, False
    world.release(holder, unit)
    world.run()
    assert [start.unit for _, start in world.starts[since:]].count(unit) == 1
    assert unit in world.running()
