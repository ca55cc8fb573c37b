"""Balance: a worker that joins or leaves moves only its own units, and balance comes later, a few units at a time."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from herdmesh.herder.state import Rules
from herdmesh.herder.state.model import instructions as ins
from herdmesh.herder.state.model.requests import (
    CreateConnector,
    DeleteConnector,
    DrainWorker,
    UndrainWorker,
    UpdateConnector,
)
from herdmesh.session import messages
from herdmesh.session.model import UnitId
from services.herder.tests.world import World, sink
from services.herder.tests.world_worker import SINK, SOURCE

DELAY_MS = 60_000
MOVES_MAX = 10
RULES = Rules(herder_id="h1", balance_delay_ms=DELAY_MS, balance_moves_max=MOVES_MAX)


def mesh(workers: int = 2, connectors: int = 6, tasks: int = 4, rules: Rules = RULES) -> World:
    """A leader with workers w1.. that have an equal share of these connectors."""
    world = World(rules=rules)
    world.lead()
    for number in range(workers):
        world.worker(f"w{number + 1}")
    for number in range(connectors):
        world.ask(CreateConnector(f"c{number:03}", sink(tasks)))
    world.advance(1_000)
    return world


class Starts:
    """Starts since its creation."""

    def __init__(self, world: World) -> None:
        self._world, self._before = world, len(world.starts)

    def units(self) -> Counter[UnitId]:
        return Counter(start.unit for _, start in self._world.starts[self._before :])


def on(world: World, name: str) -> set[UnitId]:
    return set(world.workers[name].held)


def reason(world: World, name: str) -> str:
    view = world.herder.worker(name)
    assert view is not None
    return view.reason


def test_a_killed_worker_of_1820_units_restarts_only_its_own_units() -> None:
    """910 move once. The replacement dials in 7 s later, and gets its share when the mesh has been calm for a minute,
    at most ten at a time."""
    world = _large()
    had = on(world, "w2")
    assert len(had) == 910
    starts = Starts(world)
    world.kill("w2")
    world.advance(7_000)
    world.revive("w2")
    world.advance(DELAY_MS - 5_000)
    assert starts.units() == Counter(had), "each of its units starts once, and nothing else does"
    assert on(world, "w2") == set()
    assert "910 units fewer than its share; balanced, at most 10 at a time, once no worker" in reason(world, "w2")
    balanced = Starts(world)
    moving_max = 0
    while len(on(world, "w2")) < 910:
        world.advance(500)
        moved = balanced.units()
        assert set(moved.values()) <= {1}, "nothing moves twice"
        moving_max = max(moving_max, _stopping(world))
    assert moving_max <= MOVES_MAX
    assert len(balanced.units()) == 910
    world.advance(2 * DELAY_MS)
    assert len(balanced.units()) == 910, "and then it rests"
    assert reason(world, "w2") == ""


def _large() -> World:
    """364 connectors of four tasks: 1,820 units on two workers."""
    world = World(rules=Rules(herder_id="h1"))
    world.generations_per_block = 100_000
    world.check = lambda: None  # quadratic, and covered by other tests
    world.lead()
    world.worker("w1")
    world.worker("w2")
    for number in range(364):
        world.call(CreateConnector(f"c{number:03}", sink(4)), timeout_ms=60_000)
    world.advance(5_000)
    return world


def _stopping(world: World) -> int:
    views = [world.herder.connector(name) for name in world.herder.connector_names()[:50]]
    return sum(
        any(condition.type == "STOPPING" for condition in task.status.conditions)
        for view in views
        if view is not None
        for task in view.tasks
    )


def test_a_rolling_restart_of_workers_moves_only_their_own_units() -> None:
    world = mesh(workers=3, connectors=12)
    for name in ("w1", "w2", "w3"):
        had, starts = on(world, name), Starts(world)
        leaver = world.workers[name]
        leaver.leave()
        world.advance(3_000)
        assert leaver.released
        world.revive(name)
        world.advance(10_000)
        assert starts.units() == Counter(had), name


def test_an_undrained_worker_gets_its_share_after_the_delay() -> None:
    world = mesh(workers=2)
    had, starts = on(world, "w1"), Starts(world)
    world.ask(DrainWorker("w1"))
    world.advance(1_000)
    world.ask(UndrainWorker("w1"))
    world.advance(DELAY_MS - 2_000)
    assert starts.units() == Counter(had)
    assert "than its share" in reason(world, "w1")
    world.advance(20_000)
    assert world.placed() == {"w1": 12, "w2": 12}
    assert len(starts.units() - Counter(had)) == 15, "three connectors and twelve tasks for balance"


def test_a_worker_that_comes_and_goes_delays_balance() -> None:
    world = mesh(workers=2)
    world.worker("w3")
    starts = Starts(world)
    for _ in range(4):
        world.advance(DELAY_MS // 2)
        world.kill("w3")
        world.advance(3_000)
        world.revive("w3")
    assert starts.units() == Counter()
    world.advance(DELAY_MS + 20_000)
    assert world.placed() == {"w1": 8, "w2": 8, "w3": 8}


def test_a_broken_stream_begins_the_balance_delay_anew() -> None:
    world = mesh(workers=2)
    world.worker("w3")
    starts = Starts(world)
    world.advance(DELAY_MS - 2_000)
    world.hang_up(world.workers["w1"])
    world.advance(DELAY_MS - 5_000)
    assert starts.units() == Counter()
    assert reason(world, "w3").endswith(" s more")


def test_balance_waits_for_starts_under_way_and_explains_it() -> None:
    world = mesh(workers=2)
    world.workers["w1"].start_silently = True
    world.ask(CreateConnector("slow", sink(2)))
    world.worker("w3")
    world.advance(DELAY_MS + 30_000)
    starts = Starts(world)
    assert "once no start or stop is under way" in reason(world, "w3")
    world.advance(20_000)
    assert starts.units() == Counter()
    world.advance(300_000)  # it never comes up, and delays balance only for a bounded time
    assert starts.units()


def test_a_new_leader_begins_the_balance_delay_anew() -> None:
    world = mesh(workers=2)
    world.worker("w3")
    starts = Starts(world)
    world.advance(DELAY_MS - 2_000)
    world.kill_herder()
    world.lead()
    world.advance(DELAY_MS - 2_000)
    assert starts.units() == Counter()
    world.advance(20_000)
    assert world.placed() == {"w1": 8, "w2": 8, "w3": 8}


@pytest.mark.parametrize(("threshold", "moves"), [(5, False), (1, True)])
def test_a_gain_below_the_threshold_moves_nothing(threshold: int, *, moves: bool) -> None:
    """With 44 tasks and 42 one would move, which is 2.3 % of its worker's tasks."""
    world = mesh(workers=2, connectors=42, tasks=2, rules=replace(RULES, balance_threshold_percent=threshold))
    for number in range(4):
        world.ask(CreateConnector(f"one-{number}", sink(1)))
    of_w2 = [number for number in range(4) if UnitId(f"one-{number}", 0) in on(world, "w2")]
    for number in of_w2:
        world.ask(DeleteConnector(f"one-{number}"))
    assert sorted(world.placed().values()) == [42, 44]
    starts = Starts(world)
    world.advance(3 * DELAY_MS)
    assert bool(starts.units()) is moves


def test_disabled_balance_moves_nothing_and_explains_it() -> None:
    world = mesh(workers=2, rules=replace(RULES, balance_enabled=False))
    starts = Starts(world)
    world.worker("w3")
    world.advance(5 * DELAY_MS)
    assert starts.units() == Counter()
    assert reason(world, "w3").endswith("balance is disabled (balance_enabled)")


def test_new_units_fill_an_uneven_mesh_at_once() -> None:
    world = mesh(workers=2)
    world.worker("w3")
    world.ask(CreateConnector("new", sink(8)))
    assert world.placed() == {"w1": 12, "w2": 12, "w3": 8}
    world.advance(3 * DELAY_MS)
    assert sorted(world.placed().values()) == [10, 11, 11]


def test_a_worker_with_other_plugins_is_no_reason_to_balance() -> None:
    world = World(rules=Rules(herder_id="h1", balance_delay_ms=500))
    world.lead()
    world.worker("w1", (SINK, SOURCE))
    world.ask(CreateConnector("a", sink(4)))
    world.worker("w2", (SOURCE,))
    world.advance(20_000)
    assert world.placed() == {"w1": 4, "w2": 0}
    assert reason(world, "w1") == reason(world, "w2") == ""


@pytest.mark.parametrize("delay_ms", [0, 30_000])
def test_scheduled_rebalance_max_delay_is_honoured(delay_ms: int) -> None:
    world = mesh(workers=2, rules=replace(RULES, rebalance_delay_ms=delay_ms))
    had, starts = on(world, "w2"), Starts(world)
    world.kill("w2")
    world.advance(5_000)
    assert starts.units() == (Counter() if delay_ms else Counter(had))
    world.revive("w2")
    world.advance(5_000)
    assert starts.units() == Counter(had)
    assert on(world, "w2") == (had if delay_ms else set())


def test_a_move_for_balance_has_that_reason() -> None:
    world = mesh(workers=1, rules=replace(RULES, balance_delay_ms=500))
    stops: list[str] = []
    handle = world.herder.handle

    def note(event: object, now: int) -> list[ins.Instruction]:
        out = handle(event, now)  # pyright: ignore[reportArgumentType]
        stops.extend(
            one.message.reason
            for one in out
            if isinstance(one, ins.Send) and isinstance(one.message, messages.StopUnit)
        )
        return out

    world.herder.handle = note  # pyright: ignore[reportAttributeAccessIssue]
    world.worker("w2")
    world.share()
    assert set(stops) == {"moves to w2 for balance"}


def test_workers_that_start_together_share_units_from_the_beginning() -> None:
    world = World(rules=replace(RULES, initial_delay_ms=1_000))
    world.lead()
    for number in range(3):
        world.worker(f"w{number + 1}")
        if number == 0:
            for connector in range(6):
                world.ask(CreateConnector(f"c{connector}", sink(4)))
        world.advance(600)
    assert not world.starts
    view = world.herder.connector("c0")
    assert view is not None
    assert (
        view.status.explanation == "waits up to 1 s for more workers: the first has just joined, and nothing runs yet"
    )
    world.advance(600)
    assert world.placed("connectors") == {"w1": 2, "w2": 2, "w3": 2}
    assert world.placed() == {"w1": 8, "w2": 8, "w3": 8}
    assert set(Counter(start.unit for _, start in world.starts).values()) == {1}


def test_the_first_worker_waits_for_others_for_a_bounded_time() -> None:
    world = World(rules=replace(RULES, initial_delay_ms=1_000))
    world.lead()
    for number in range(5):
        world.worker(f"w{number + 1}")
        if number == 0:
            world.ask(CreateConnector("a", sink(4)))
        world.advance(700)
    assert world.starts


def test_a_worker_that_joins_a_running_mesh_waits_for_no_other() -> None:
    world = mesh(workers=1, rules=replace(RULES, initial_delay_ms=1_000))
    world.advance(3_000)
    since = len(world.starts)
    world.worker("w2")
    world.ask(CreateConnector("new", sink(4)))
    assert len(world.starts) - since == 5


def test_recently_placed_units_move_after_the_delay() -> None:
    """Uneven for the delay, but every unit that could move was restarted in place a moment ago."""
    world = mesh(workers=1)
    world.worker("w2")
    world.advance(DELAY_MS - 5_000)
    for name in world.herder.connector_names():
        world.ask(UpdateConnector(name, {**sink(4), "note": "changed"}))
    starts = Starts(world)
    world.advance(DELAY_MS - 5_000)
    assert starts.units() == Counter()
    assert "than its share" in reason(world, "w2")
    world.advance(30_000)
    assert world.placed() == {"w1": 12, "w2": 12}
