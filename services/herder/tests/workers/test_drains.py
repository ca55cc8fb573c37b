"""Drain and undrain, versions of plugins, and explanations of where a unit or a worker is."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from herdmesh.herder.state import Rules
from herdmesh.herder.state.model import Plugin, PluginKind
from herdmesh.herder.state.model import events as ev
from herdmesh.herder.state.model import instructions as ins
from herdmesh.herder.state.model.plugin_versions import compare, meets
from herdmesh.herder.state.model.requests import (
    CreateConnector,
    Draining,
    DrainWorker,
    SetTarget,
    UndrainWorker,
    UpdateConnector,
    WriteOptions,
)
from herdmesh.herder.state.views.views import UnitView, WorkerState, WorkerView
from herdmesh.rpc.errors import NoWorker, RequestIdExpired, RequestInvalid, Unavailable, WorkerNotFound
from herdmesh.session.model import RunState, TargetState, UnitId
from services.herder.tests.world import World, sink
from services.herder.tests.world_store import Outcome
from services.herder.tests.world_worker import SINK, SOURCE


def mesh(workers: int = 3, rules: Rules | None = None) -> World:
    """A leader, workers, and one connector with six tasks."""
    world = World(rules=rules)
    world.lead()
    for number in range(workers):
        world.worker(f"w{number + 1}")
    world.ask(CreateConnector("a", sink(6)))
    world.share()
    return world


def worker(world: World, name: str) -> WorkerView:
    view = world.herder.worker(name)
    assert view is not None
    return view


def unit(world: World, task: int | None, name: str = "a") -> UnitView:
    view = world.herder.connector(name)
    assert view is not None
    return view.status if task is None else view.tasks[task].status


def test_a_drained_worker_holds_nothing_and_is_shown_as_drained() -> None:
    world = mesh()
    since = len(world.starts)
    had = set(world.workers["w1"].held)
    world.ask(DrainWorker("w1"))
    assert {start.unit for _, start in world.starts[since:]} == had, "each of its units moved once, and nobody else's"
    assert (worker(world, "w1").state, worker(world, "w1").reason) == (
        WorkerState.DRAINED,
        "drained: `herd undrain` gives it work again",
    )
    world.ask(UpdateConnector("a", sink(8)))
    assert world.workers["w1"].held == {}


def test_a_repeated_drain_changes_nothing() -> None:
    world = mesh()
    world.ask(DrainWorker("w1"))
    since = len(world.starts)
    world.ask(DrainWorker("w1"))
    assert len(world.starts) == since


def test_an_undrained_worker_gets_its_share() -> None:
    world = mesh()
    world.ask(DrainWorker("w1"))
    since = len(world.starts)
    world.ask(UndrainWorker("w1"))
    assert len(world.starts) == since, "nothing that runs moves at once"
    assert worker(world, "w1").state is WorkerState.CONNECTED
    world.share()
    assert {name for name, _ in world.starts[since:]} == {"w1"}
    assert world.placed() == {"w1": 2, "w2": 2, "w3": 2}
    assert (worker(world, "w1").state, worker(world, "w1").reason) == (WorkerState.CONNECTED, "")


@pytest.mark.parametrize("undrained", [False, True])
def test_a_drain_and_its_end_outlive_the_leader(undrained: bool) -> None:
    world = mesh()
    world.ask(DrainWorker("w1"))
    if undrained:
        world.ask(UndrainWorker("w1"))
        world.share()
    since = len(world.starts)
    world.kill_herder()
    world.lead()
    world.advance(10_000)
    assert worker(world, "w1").state is (WorkerState.CONNECTED if undrained else WorkerState.DRAINED)
    assert len(world.starts) == since


def test_a_drain_ends_with_the_incarnation_of_its_worker() -> None:
    world = mesh()
    world.ask(DrainWorker("w1"))
    world.kill("w1")
    world.revive("w1")
    world.share()
    assert worker(world, "w1").state is WorkerState.CONNECTED
    assert world.placed()["w1"] == 2


def test_a_unit_that_no_other_worker_can_run_stays_until_one_can() -> None:
    world = World()
    world.lead()
    world.worker("w1", (SINK,))
    world.worker("w2", (SOURCE,))
    world.ask(CreateConnector("a", sink(2)))
    world.ask(DrainWorker("w1"))
    world.advance(5_000)
    assert len(world.workers["w1"].held) == 3
    assert [line for line in world.workers["w1"].log if line.startswith("stop")] == []
    assert worker(world, "w1").state is WorkerState.DRAINING
    assert worker(world, "w1").reason == "it drains: 3 units to move, of which 3 can run on no other worker"
    assert unit(world, 0).state is RunState.RUNNING
    assert unit(world, 0).explanation == ("stays on w1, which drains, until another worker has the plugin TestSink")
    world.ask(CreateConnector("b", sink(1)))
    assert (
        unit(world, None, "b").explanation == "waits for a worker: every worker that has the plugin TestSink drains: w1"
    )
    world.worker("w3", (SINK,))
    assert len(world.workers["w3"].held) == 5
    assert worker(world, "w1").state is WorkerState.DRAINED


def test_units_of_the_last_drained_worker_run_on() -> None:
    world = mesh(workers=1)
    world.ask(DrainWorker("w1"))
    assert len(world.workers["w1"].held) == 7


def test_a_drain_retried_after_its_worker_left_gets_the_first_outcome() -> None:
    world = mesh()
    once = WriteOptions("drain-1")
    assert world.ask(DrainWorker("w1"), once) == Draining("w1")
    w1 = world.workers["w1"]
    assert w1.session is not None
    w1.say(ev.WorkerLeft(w1.session))
    world.run()
    assert w1.released
    assert world.ask(DrainWorker("w1"), once) == Draining("w1")
    assert (worker(world, "w1").state, worker(world, "w1").reason) == (WorkerState.DRAINED, "drained, and it left")
    assert [one.worker_id for one in world.herder.workers()] == ["w2", "w3"], "it is not listed any more"
    for options in (WriteOptions("drain-2"), WriteOptions()):
        world.advance(10_000)  # until its lease has ended
        with pytest.raises(WorkerNotFound):
            world.ask(DrainWorker("w1"), options)
    for other in (DrainWorker("w9"), UndrainWorker("w1")):
        with pytest.raises(RequestInvalid):
            world.ask(other, once)


def leader_changes(world: World) -> None:
    world.kill_herder()
    world.lead()


def leases_end(world: World) -> None:
    """Advance the time until the leases of gone workers have ended."""
    world.advance(10_000)
    world.post(ev.LeasesChanged(world.leases()))
    world.run()


@pytest.mark.parametrize("first", ["worker", "leader"])
def test_a_drain_retried_after_its_worker_left_and_the_leader_changed_gets_the_first_outcome(first: str) -> None:
    world = mesh()
    once = WriteOptions("drain-1")
    world.ask(DrainWorker("w1"), once)
    w1 = world.workers["w1"]
    if first == "leader":
        leader_changes(world)
        world.advance(1_000)
    assert w1.session is not None
    w1.say(ev.WorkerLeft(w1.session))
    world.run()
    assert w1.released
    if first == "worker":
        leader_changes(world)
    leases_end(world)
    applied = list(world.config.applied)
    assert world.ask(DrainWorker("w1"), once) == Draining("w1")
    assert worker(world, "w1").state is WorkerState.DRAINED
    assert [one.worker_id for one in world.herder.workers()] == ["w2", "w3"]
    assert world.config.applied == applied, "recorded once"
    for options in (WriteOptions("drain-2"), WriteOptions()):
        with pytest.raises(WorkerNotFound):
            world.ask(DrainWorker("w1"), options)


def test_a_new_leader_refuses_a_drain_as_retriable_while_its_worker_may_dial_in() -> None:
    world = mesh()
    once = WriteOptions("drain-1")
    world.ask(DrainWorker("w1"), once)
    world.workers["w1"].frozen = True
    leader_changes(world)
    with pytest.raises(NoWorker):
        world.ask(DrainWorker("w1"), once)
    world.workers["w1"].thaw()
    world.advance(1_000)
    assert world.ask(DrainWorker("w1"), once) == Draining("w1")
    assert worker(world, "w1").reason == "drained: `herd undrain` gives it work again"


def test_a_draining_worker_lost_with_units_is_not_shown_as_drained() -> None:
    world = mesh()
    world.workers["w1"].stop_silently = True
    world.ask(DrainWorker("w1"), WriteOptions("drain-1"))
    for name in ("w1", "w2", "w3"):
        world.kill(name)
    leader_changes(world)
    leases_end(world)  # no worker is there to take over its units
    assert world.ask(DrainWorker("w1"), WriteOptions("drain-1")) == Draining("w1")
    assert world.herder.worker("w1") is None


def test_a_drain_that_could_not_be_recorded_is_not_confirmed(monkeypatch: pytest.MonkeyPatch) -> None:
    world = mesh()
    once, write = WriteOptions("drain-1"), world.config.write

    def without_audit_topic(wanted: ins.Write) -> Outcome:
        if isinstance(wanted, ins.RecordDrain) and not wanted.options.retry_only:
            raise Unavailable("the audit topic cannot be written")
        return write(wanted)

    with monkeypatch.context() as patched:
        patched.setattr(world.config, "write", without_audit_topic)
        with pytest.raises(Unavailable):
            world.ask(DrainWorker("w1"), once)
    assert world.ask(DrainWorker("w1"), once) == Draining("w1")
    assert world.config.applied.count("drain-1") == 1


@pytest.mark.parametrize("leaders", [1, 2])
def test_a_retried_drain_drains_no_later_incarnation(leaders: int) -> None:
    world = mesh()
    once = WriteOptions("drain-1")
    world.ask(DrainWorker("w1"), once)
    world.kill("w1")
    world.revive("w1")
    if leaders == 2:
        leader_changes(world)
        world.advance(10_000)
    world.share()
    assert world.ask(DrainWorker("w1"), once) == Draining("w1")
    world.run()
    assert worker(world, "w1").state is WorkerState.CONNECTED
    assert world.placed()["w1"] == 2


@pytest.mark.parametrize("asked_again", [False, True])
def test_a_drain_recorded_after_its_incarnation_ended_drains_no_later_one(asked_again: bool) -> None:
    """The config store is unreachable while the worker, drained by then, is restarted."""
    world = mesh()
    once, asked_at = WriteOptions("drain-1"), len(world.starts)
    world.config_delay_ms = 5_000
    number = world.call(DrainWorker("w1"), once, timeout_ms=20_000)
    world.advance(5_000)
    assert (worker(world, "w1").state, number in world.answers) == (WorkerState.DRAINED, False)
    assert len(world.starts) > asked_at
    world.kill("w1")
    world.revive("w1")
    world.share()
    assert "drain-1" not in world.config.applied
    world.advance(5_000)
    assert world.answers[number] == Draining("w1")
    world.config_delay_ms = 0
    if asked_again:
        assert world.ask(DrainWorker("w1"), once) == Draining("w1")
    world.run()
    assert (worker(world, "w1").state, world.placed()["w1"]) == (WorkerState.CONNECTED, 2)
    assert world.config.applied.count("drain-1") == 1


@pytest.mark.parametrize("remembered", [True, False], ids=["recorded yesterday", "made by a clock far behind"])
def test_an_expired_request_id_drains_nothing(remembered: bool) -> None:
    """It is refused and not applied again: a worker that was undrained since, or never drained, keeps its units."""
    world = mesh()
    once = WriteOptions("drain-1")
    if remembered:
        world.ask(DrainWorker("w1"), once)
        world.ask(UndrainWorker("w1"))
        world.share()
    world.config.expired.add("drain-1")
    applied, since = list(world.config.applied), len(world.starts)
    with pytest.raises(RequestIdExpired):
        world.ask(DrainWorker("w1"), once)
    world.run()
    assert (worker(world, "w1").state, world.placed()["w1"]) == (WorkerState.CONNECTED, 2)
    assert (world.config.applied, len(world.starts)) == (applied, since)


def test_a_worker_lost_before_it_was_drained_is_not_shown_as_drained() -> None:
    world = mesh()
    world.workers["w1"].stop_silently = True
    world.ask(DrainWorker("w1"), WriteOptions("drain-1"))
    world.kill("w1")
    world.advance(5_000)
    assert world.herder.worker("w1") is None


def version(number: str) -> tuple[Plugin, ...]:
    return (Plugin("herdmesh.TestSink", ("TestSink",), PluginKind.SINK, number),)


def test_units_run_only_where_the_plugin_has_the_requested_version() -> None:
    world = World()
    world.lead()
    world.worker("w1", version("1.0"))
    world.worker("w2", version("2.0"))
    world.worker("w3", (*version("1.0"), *version("2.1")))
    for name, wanted in (("old", "1.0"), ("new", "[2.0,3.0)"), ("any", "")):
        more = {"connector.plugin.version": wanted} if wanted else {}
        world.ask(CreateConnector(name, sink(4, **more)))
    placed = {name: {unit.connector for unit in worker.held} for name, worker in world.workers.items()}
    assert "new" not in placed["w1"]
    assert "old" not in placed["w2"]
    assert world.placed() == {"w1": 4, "w2": 4, "w3": 4}
    world.ask(CreateConnector("none", sink(1, **{"connector.plugin.version": "9.9"})))
    assert unit(world, None, "none").explanation == (
        "waits for a worker: no connected worker has the plugin TestSink in version 9.9"
    )


@pytest.mark.parametrize(
    ("have", "wanted", "met"),
    [
        ("1.0", "", True),
        ("1.0", "latest", True),
        ("1.0", "1.0", True),
        ("1.0.0", "1", True),
        ("1.0", "1.1", False),
        ("1.5", "[1.0,2.0)", True),
        ("2.0", "[1.0,2.0)", False),
        ("2.0", "(1.0,2.0]", True),
        ("1.0", "(1.0,2.0]", False),
        ("0.9", "(,1.0]", True),
        ("3.0", "[2.0,)", True),
        ("1.0", "[1.0]", True),
        ("1.1", "[1.0]", False),
        ("3.1", "[1.0,2.0],[3.0,4.0]", True),
        ("2.5", "[1.0,2.0],[3.0,4.0]", False),
        ("1.0", "[1.0", False),
        ("2.0-rc1", "[2.0,)", False),
        ("2.0-SNAPSHOT", "(,2.0)", True),
    ],
)
def test_version_ranges_match_as_in_maven(have: str, wanted: str, met: bool) -> None:
    assert meets(have, wanted) is met


@given(*[st.from_regex(r"[0-9]{1,2}(\.[0-9]{1,2}){0,2}(-(rc1|alpha|SNAPSHOT))?", fullmatch=True)] * 3)
def test_versions_have_a_total_order(one: str, two: str, three: str) -> None:
    assert compare(one, two) == -compare(two, one)
    assert compare(one, one) == 0
    if compare(one, two) <= 0 and compare(two, three) <= 0:
        assert compare(one, three) <= 0


def test_a_unit_that_runs_as_wanted_has_no_explanation() -> None:
    world = mesh()
    assert [unit(world, task).explanation for task in (None, *range(6))] == [""] * 7
    world.ask(SetTarget("a", TargetState.PAUSED))
    assert {unit(world, task).explanation for task in (None, *range(6))} == {""}


def test_a_unit_that_waits_for_its_worker_explains_for_how_long() -> None:
    world = mesh(rules=Rules(rebalance_delay_ms=30_000, balance_delay_ms=500))
    lost = next(iter(unit.task for unit in world.workers["w2"].held if unit.task is not None))
    world.kill("w2")
    world.advance(1_000)
    assert unit(world, lost).explanation == "the stream of w2 broke; it goes elsewhere unless w2 is back within 1 s"
    assert worker(world, "w2").reason == (
        "its stream broke; its units go elsewhere unless it dials in again within 1 s"
    )
    world.advance(19_000)
    assert unit(world, lost).explanation == "waits up to 12 s for worker w2 to return"


def test_a_moving_unit_explains_its_source_and_target() -> None:
    world = mesh(workers=1)
    world.workers["w1"].stop_silently = True
    world.worker("w2")
    while not any(unit(world, task).explanation for task in range(6)):
        world.advance(100)
    moving = [unit(world, task).explanation for task in range(6) if unit(world, task).explanation]
    assert moving == ["stopping on w1 before it starts on w2 (w1 has 30 s to confirm it)"] * 3


def test_a_set_that_must_be_fenced_first_explains_it() -> None:
    world = mesh(workers=2)
    for name in ("w1", "w2"):
        world.workers[name].stop_silently = True
    world.ask(UpdateConnector("a", sink(2)))
    assert unit(world, None).explanation.startswith("stopping on ")
    assert unit(world, None).explanation.endswith("before it starts there again (w1 has 30 s to confirm it)")
    world.workers["w1"].stop_silently = False
    world.advance(31_000)  # the connector's own stop counts as lost, it starts anew and creates two tasks
    assert "its old set" in unit(world, 0).explanation or "before it starts" in unit(world, 0).explanation


def test_a_new_leader_names_the_workers_that_it_waits_for() -> None:
    world = mesh(workers=2)
    away = world.workers["w2"]
    lost = next(iter(held.task for held in away.held if held.task is not None))
    world.kill_herder()
    away.frozen = True
    world.lead()
    world.advance(2_000)
    assert unit(world, lost).state is RunState.RUNNING
    assert unit(world, lost).explanation == (
        "runs on w2, which has 4 s to dial in to this leader before it starts elsewhere"
    )


def test_a_unit_without_any_worker_explains_it() -> None:
    world = mesh(workers=1)
    world.kill("w1")
    world.advance(3_000)
    assert unit(world, None).explanation == "waits for a worker: no worker is connected"
    assert UnitId("a") not in world.running()


def test_no_unit_starts_when_all_workers_leave_within_a_moment() -> None:
    world = mesh()
    since = len(world.starts)
    for name in ("w1", "w2", "w3"):
        world.workers[name].leave()
        world.advance(150)
    world.advance(5_000)
    assert len(world.starts) == since
    assert all(one.released and not one.held for one in world.workers.values())


def test_units_of_a_leaving_worker_run_on_until_other_leavers_are_known() -> None:
    world = mesh()
    had = set(world.workers["w1"].held)
    world.workers["w1"].leave()
    world.advance(300)
    assert set(world.workers["w1"].held) == had, "no time is lost by the wait"
    world.advance(1_000)
    assert not world.workers["w1"].held
    assert world.workers["w1"].released


def test_workers_that_keep_leaving_delay_each_other_for_a_bounded_time() -> None:
    world = mesh(workers=12)
    first = world.workers["w1"]
    begun_ms = world.now
    for number in range(1, 12):
        if first.released:
            break
        world.workers[f"w{number}"].leave()
        world.advance(300)
    assert first.released
    assert world.now - begun_ms <= 2_500


def test_a_worker_that_left_and_dials_in_again_gets_no_unit() -> None:
    """Its process is about to end; an older build does not say so in its hello."""
    world = mesh(workers=2)
    leaver = world.workers["w1"]
    leaver.leave()
    world.advance(2_000)
    assert leaver.released
    since = len(world.starts)
    leaver.released = False
    leaver.dial()
    world.advance(100)
    assert leaver.released, "it is let go of again"
    world.ask(CreateConnector("new", sink(4)))
    assert {name for name, _ in world.starts[since:]} == {"w2"}


def test_a_leaving_worker_says_so_in_its_hello_to_the_next_leader() -> None:
    world = mesh(workers=2)
    leaver = world.workers["w1"]
    world.kill_herder()
    leaver.leaving = True
    since = len(world.starts)
    world.lead()
    world.advance(10_000)
    assert leaver.released
    assert {name for name, _ in world.starts[since:]} == {"w2"}


def test_the_next_incarnation_of_a_worker_that_left_takes_work() -> None:
    world = mesh(workers=1)
    world.workers["w1"].leave()
    world.advance(2_000)
    world.revive("w1")
    world.advance(2_000)
    assert world.placed() == {"w1": 6}
