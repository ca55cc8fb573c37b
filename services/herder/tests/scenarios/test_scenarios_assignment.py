"""Scenarios of Connect's `IncrementalCooperativeAssignorTest`, restated for minimal moves.

docs/internals/connect-scenarios.md says which test stands for which. The difference everywhere: a move is one stop and
one start of one unit, decided at once and independently of others. There are no rounds, so nothing is revoked in one
and placed in the next, and no back-off between them.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from herdmesh.herder.state import Rules
from herdmesh.herder.state.model.requests import CreateConnector, DeleteConnector
from herdmesh.herder.state.units.assignment import assign
from herdmesh.session.model import RunState, TargetState, UnitId
from services.herder.tests.world import World, sink
from services.herder.tests.world_worker import Held

DELAY_MS = 60_000


def mesh(workers: int, connectors: int = 2, delay_ms: int = 0, generations: int = 1_000) -> World:
    """A leader, workers w1.., and connectors connector1.. with four tasks each."""
    world = World(rules=Rules(herder_id="h1", rebalance_delay_ms=delay_ms, balance_delay_ms=500))
    world.generations_per_block = generations
    world.lead()
    for number in range(workers):
        world.worker(f"w{number + 1}")
    for number in range(connectors):
        world.ask(CreateConnector(f"connector{number + 1}", sink(4)))
    world.share()
    return world


def loads(world: World) -> tuple[list[int], list[int]]:
    """Connectors and tasks of each worker, sorted."""
    return sorted(world.placed("connectors").values()), sorted(world.placed().values())


class Starts:
    """Starts since its creation."""

    def __init__(self, world: World) -> None:
        self._world, self._before = world, len(world.starts)

    def units(self) -> Counter[UnitId]:
        return Counter(start.unit for _, start in self._world.starts[self._before :])

    def workers(self) -> set[str]:
        return {worker for worker, _ in self._world.starts[self._before :]}

    def counts(self) -> tuple[int, int]:
        """Connectors and tasks started."""
        units = self.units()
        tasks = sum(count for unit, count in units.items() if unit.task is not None)
        return units.total() - tasks, tasks


def lose(world: World, name: str) -> set[UnitId]:
    """Kill a worker and wait until it counts as lost; returns its units."""
    had = set(world.workers[name].held)
    world.kill(name)
    world.advance(2_100)
    return had


def test_a_joining_worker_gets_its_share_in_one_round() -> None:
    world = mesh(workers=1)
    assert loads(world) == ([2], [8])
    starts = Starts(world)
    world.worker("w2")
    assert starts.counts() == (0, 0), "another may join in a moment"
    world.share()
    assert loads(world) == ([1, 1], [4, 4])
    assert (starts.counts(), starts.workers()) == ((1, 4), {"w2"})
    world.advance(10_000)
    assert starts.counts() == (1, 4), "nothing moves once it is balanced"


def test_workers_that_join_one_after_the_other_each_get_their_share_in_one_round() -> None:
    world = mesh(workers=1, connectors=3)
    expected = {
        2: ([1, 2], [6, 6], (1, 6)),
        3: ([1, 1, 1], [4, 4, 4], (1, 4)),
        4: ([0, 1, 1, 1], [3, 3, 3, 3], (0, 3)),
        5: ([0, 0, 1, 1, 1], [2, 2, 2, 3, 3], (0, 2)),
        6: ([0, 0, 0, 1, 1, 1], [2] * 6, (0, 2)),
    }
    for number, (connectors, tasks, moved) in expected.items():
        starts = Starts(world)
        world.worker(f"w{number}")
        world.share()
        assert loads(world) == (connectors, tasks)
        assert (starts.counts(), starts.workers()) == (moved, {f"w{number}"})


def test_joins_are_balanced_together_without_a_delay_setting() -> None:
    world = mesh(workers=1, connectors=3, delay_ms=0)
    starts = Starts(world)
    world.worker("w2")
    world.advance(300)
    world.worker("w3")
    world.share()
    assert loads(world) == ([1, 1, 1], [4, 4, 4])
    assert set(starts.units().values()) == {1}


def test_a_cluster_that_starts_moves_each_unit_at_most_once() -> None:
    world = mesh(workers=1, connectors=10)
    starts = Starts(world)
    for number in range(2, 11):
        world.worker(f"w{number}")
        world.advance(200)
    world.share()
    assert loads(world) == ([1] * 10, [4] * 10)
    assert set(starts.units().values()) == {1}
    assert starts.counts() == (9, 36)


def test_nothing_moves_for_balance_while_workers_join() -> None:
    world = mesh(workers=1, connectors=3)
    starts = Starts(world)
    for number in range(2, 12):
        world.worker(f"w{number}")
        world.advance(400)
    assert starts.units() == Counter()
    world.share()
    assert loads(world)[1] == [1] * 10 + [2]


def test_units_without_a_worker_do_not_wait_for_joins() -> None:
    world = mesh(workers=2, connectors=1)
    world.worker("w3")
    starts = Starts(world)
    world.ask(CreateConnector("new", sink(2)))
    assert starts.counts() == (1, 2), "new work"
    lost = set(world.workers["w1"].held)
    starts = Starts(world)
    world.kill("w1")
    for number in range(4, 9):
        world.worker(f"w{number}")
        world.advance(430)
    assert set(starts.units()) == lost, "lost work"


def test_two_joins_in_a_row_have_no_back_off() -> None:
    world = mesh(workers=1, connectors=3, delay_ms=1)
    starts = Starts(world)
    world.worker("w2")
    world.worker("w3")
    world.share()
    assert loads(world) == ([1, 1, 1], [4, 4, 4])
    assert max(starts.units().values()) <= 1


def test_a_worker_that_joins_while_another_is_waited_for_gets_nothing_yet() -> None:
    world = mesh(workers=2, connectors=2, delay_ms=DELAY_MS)
    lost = lose(world, "w2")
    starts = Starts(world)
    world.worker("w3")
    world.advance(DELAY_MS // 2)
    assert starts.units() == Counter(), "what moves for balance now would move back when w2 returns"
    world.advance(DELAY_MS)
    assert set(starts.units()) == lost
    assert starts.workers() == {"w3"}
    assert loads(world) == ([1, 1], [4, 4])


def test_units_of_a_worker_that_never_returns_wait_for_the_delay_and_move() -> None:
    world = mesh(workers=2, delay_ms=DELAY_MS)
    starts = Starts(world)
    lost = lose(world, "w2")
    world.advance(DELAY_MS // 2)
    assert starts.units() == Counter()
    world.advance(DELAY_MS // 2)
    assert set(starts.units()) == lost
    assert loads(world) == ([2], [8])


def test_a_worker_that_returns_within_the_delay_gets_its_units_back_at_once() -> None:
    world = mesh(workers=2, delay_ms=DELAY_MS)
    starts = Starts(world)
    lost = lose(world, "w2")
    world.advance(DELAY_MS * 3 // 4)
    world.revive("w2")
    world.run()
    assert set(world.workers["w2"].held) == lost
    world.advance(2 * DELAY_MS)
    assert starts.units() == Counter(lost)


def test_a_worker_restarted_without_a_delay_setting_gets_back_its_unclaimed_units() -> None:
    """The stream breaks and a new process of the same worker dials in before the grace is over."""
    world = mesh(workers=3)
    had = set(world.workers["w2"].held)
    starts = Starts(world)
    world.kill("w2")
    world.worker("w4")
    world.revive("w2")
    world.run()
    assert set(world.workers["w2"].held) <= had, "w4 may have its share; nobody else takes one"
    assert set(starts.units()) <= had | set(world.workers["w4"].held)
    assert [sum(counts) for counts in loads(world)] == [2, 8], "and everything runs"


def test_a_new_leader_places_the_units_of_a_worker_that_died_with_the_old_one() -> None:
    world = mesh(workers=3)
    had = set(world.workers["w1"].held)
    kept = {name: dict(world.workers[name].held) for name in ("w2", "w3")}
    starts = Starts(world)
    world.kill_herder()
    world.kill("w1")
    world.lead()
    world.advance(7_000)
    assert loads(world) == ([1, 1], [4, 4])
    assert set(starts.units()) == had
    for name, held in kept.items():
        assert held.items() <= world.workers[name].held.items()


def test_a_worker_that_returns_after_its_units_moved_gets_its_share() -> None:
    world = mesh(workers=3)
    world.kill_herder()
    world.kill("w1")
    world.lead()
    world.advance(7_000)
    starts = Starts(world)
    world.revive("w1")
    world.share()
    assert loads(world) == ([0, 1, 1], [2, 3, 3])
    assert (starts.counts(), starts.workers()) == ((0, 2), {"w1"})


def test_a_lost_first_assignment_is_sent_again_at_once() -> None:
    world = mesh(workers=2, connectors=0, delay_ms=DELAY_MS)
    world.delay_ms = lambda: 5
    world.call(CreateConnector("connector1", sink(4)))
    world.call(CreateConnector("connector2", sink(4)))
    lost_one = False
    while not lost_one:
        world.advance(1)
        # The herder has sent w2 a start, and the message is still on its way.
        view = world.herder.worker("w2")
        lost_one = view is not None and len(view.tasks) + len(view.connectors) > len(world.workers["w2"].held)
    world.hang_up(world.workers["w2"])
    world.advance(2_000)
    assert loads(world) == ([1, 1], [4, 4])


def test_a_lost_stop_of_a_move_is_sent_again_after_the_redial() -> None:
    world = mesh(workers=2)
    world.delay_ms = lambda: 5
    starts = Starts(world)
    world.worker("w3")
    while not any(hold_is_stopping(world, name) for name in ("w1", "w2")):
        world.advance(1)
    for name in ("w1", "w2"):
        world.hang_up(world.workers[name])
    world.advance(3_000)
    assert loads(world) == ([0, 1, 1], [2, 3, 3])
    assert starts.counts() == (0, 2)


def test_a_move_whose_stop_was_lost_is_finished_by_the_next_leader() -> None:
    world = mesh(workers=2)
    world.delay_ms = lambda: 5
    starts = Starts(world)
    world.worker("w3")
    while not any(hold_is_stopping(world, name) for name in ("w1", "w2")):
        world.advance(1)
    world.lead()
    world.advance(10_000)
    assert loads(world) == ([0, 1, 1], [2, 3, 3])
    assert starts.counts() == (0, 2)


def hold_is_stopping(world: World, name: str) -> bool:
    """True when the herder counts a unit of this worker as stopping, and the worker still holds it."""
    for number in (1, 2):
        view = world.herder.connector(f"connector{number}")
        for task in view.tasks if view is not None else ():
            stopping = any(condition.type == "STOPPING" for condition in task.status.conditions)
            if stopping and task.status.worker_id == name and task.id in world.workers[name].held:
                return True
    return False


def test_deleting_a_connector_moves_nothing_when_the_rest_is_balanced() -> None:
    world = mesh(workers=2, connectors=3)
    assert loads(world) == ([1, 2], [6, 6])
    starts = Starts(world)
    world.ask(DeleteConnector("connector3"))
    world.advance(5_000)
    assert loads(world) == ([1, 1], [4, 4])
    assert starts.counts()[1] == 0


@pytest.mark.parametrize("task", [None, 0])
def test_new_units_are_spread_over_balanced_workers(task: int | None) -> None:
    workers = ["w0", "w1", "w2"]
    previous = {UnitId(f"c{number}", task): f"w{number % 3}" for number in range(6)}
    created = [UnitId(f"c{number}", task) for number in range(6, 11)]
    moves = assign(workers, dict.fromkeys([*previous, *created], workers), previous)
    assert sorted(move.unit.connector for move in moves) == sorted(unit.connector for unit in created)
    assert sorted(Counter(move.target for move in moves).values()) == [1, 2, 2], "which worker has one is all the same"
    assert all(move.source is None for move in moves)


def test_new_units_fill_unbalanced_workers_and_move_no_other() -> None:
    loads_before = {"w0": 2, "w1": 3, "w2": 4, "w3": 0}
    places = [worker for worker, load in loads_before.items() for _ in range(load)]
    previous = {UnitId(f"c{number:02}"): worker for number, worker in enumerate(places)}
    created = [UnitId(f"n{number:02}") for number in range(15)]
    moves = assign(loads_before, dict.fromkeys([*previous, *created], loads_before), previous)
    after = Counter({**previous, **{move.unit: move.target for move in moves}}.values())
    assert after == Counter(dict.fromkeys(loads_before, 6))
    assert all(move.source is None for move in moves)


def test_lost_units_go_back_to_a_worker_that_returns_within_the_delay() -> None:
    world = mesh(workers=3, delay_ms=DELAY_MS)
    starts = Starts(world)
    lost = lose(world, "w3")
    world.advance(DELAY_MS // 2)
    world.revive("w3")
    world.run()
    assert set(starts.units()) == lost
    assert starts.workers() == {"w3"}


def test_lost_units_are_placed_as_new_at_the_end_of_the_delay() -> None:
    world = mesh(workers=3, delay_ms=DELAY_MS)
    starts = Starts(world)
    lost = lose(world, "w3")
    world.advance(DELAY_MS)
    assert set(starts.units()) == lost
    assert loads(world) == ([1, 1], [4, 4])


def test_lost_units_are_spread_over_workers_that_joined_meanwhile() -> None:
    world = mesh(workers=2, connectors=4, delay_ms=DELAY_MS)
    starts = Starts(world)
    lost = lose(world, "w2")
    world.worker("w3")
    world.worker("w4")
    world.advance(DELAY_MS)
    assert {"w3", "w4"} <= starts.workers()
    assert set(starts.units()) == lost, "at first only what was lost moves"
    assert loads(world) == ([1, 1, 2], [4, 4, 8])
    world.share()
    assert loads(world) == ([1, 1, 2], [5, 5, 6])
    assert starts.counts() == (2, 8 + 2), "the eight lost tasks, and two of w1 for balance"


def test_a_second_loss_of_a_worker_begins_the_delay_anew() -> None:
    world = mesh(workers=2, delay_ms=DELAY_MS)
    lose(world, "w2")
    world.advance(DELAY_MS // 2)
    world.revive("w2")
    world.run()
    starts = Starts(world)
    lost = lose(world, "w2")
    world.advance(DELAY_MS * 3 // 4)
    assert starts.units() == Counter(), "the delay runs from the second loss"
    world.advance(DELAY_MS // 2)
    assert set(starts.units()) == lost
    assert loads(world) == ([2], [8])


def test_without_a_delay_lost_units_are_placed_at_once() -> None:
    world = mesh(workers=2, delay_ms=0)
    starts = Starts(world)
    lost = lose(world, "w2")
    world.advance(100)
    assert set(starts.units()) == lost
    assert loads(world) == ([2], [8])


def test_the_last_worker_gets_all_lost_units_at_once() -> None:
    world = mesh(workers=3, delay_ms=0)
    lose(world, "w2")
    lose(world, "w3")
    assert loads(world) == ([2], [8])


def test_units_claimed_twice_stay_with_the_newer_claim() -> None:
    """Connect revokes duplicates from every worker; here the order of assignments decides."""
    world = mesh(workers=1)
    owner = world.workers["w1"]
    claimed = {unit: held for unit, held in owner.held.items() if unit.connector == "connector1"}
    assert len(claimed) == 5
    thief = world.worker("w2")
    world.share()
    for unit, held in claimed.items():
        older = replace(held.assignment, generation=held.assignment.generation - 1)
        if unit not in thief.held:
            thief.held[unit] = Held(older, RunState.RUNNING, TargetState.STARTED, 4)
    starts = Starts(world)
    world.hang_up(thief)
    world.advance(2_000)
    assert loads(world) == ([1, 1], [4, 4])
    assert starts.units() == Counter(), "nobody who was right was stopped"
    assert all(len(workers) == 1 for workers in world.running().values())


def test_units_of_a_deleted_connector_that_two_workers_claim_are_stopped_on_both() -> None:
    world = mesh(workers=1)
    owner = world.workers["w1"]
    claimed = {unit: held for unit, held in owner.held.items() if unit.connector == "connector1"}
    world.ask(DeleteConnector("connector1"))
    thief = world.worker("w2")
    world.share()
    for unit, held in claimed.items():
        thief.held[unit] = Held(held.assignment, RunState.RUNNING, TargetState.STARTED, 4)
    world.hang_up(thief)
    world.advance(2_000)
    assert {unit.connector for unit in world.running()} == {"connector2"}
    assert loads(world) == ([0, 1], [2, 2])


def test_the_leaders_placements_always_equal_the_workers_units() -> None:
    world = mesh(workers=2)
    world.worker("w3")
    lose(world, "w1")
    world.advance(1_000)
    for view in world.herder.workers():
        told = {*(UnitId(name) for name in view.connectors), *view.tasks}
        assert told == set(world.workers[view.worker_id].held)


STEPS = st.one_of(
    st.tuples(st.just("create"), st.integers(1, 5)),
    st.tuples(st.just("delete"), st.integers(0, 9)),
    st.tuples(st.just("join"), st.just(0)),
    st.tuples(st.just("lose"), st.integers(0, 9)),
)


@settings(max_examples=40)
@given(st.lists(STEPS, max_size=14))
def test_loads_differ_by_at_most_one_after_any_changes(steps: list[tuple[str, int]]) -> None:
    """Also when one connector is placed without checking the others."""
    world = mesh(workers=2, connectors=1)
    names = ["connector1"]
    for number, (step, argument) in enumerate(steps):
        alive = [name for name, worker in world.workers.items() if worker.alive]
        if step == "create":
            names.append(f"c{number}")
            world.ask(CreateConnector(names[-1], sink(argument)))
        elif step == "delete" and names:
            world.ask(DeleteConnector(names.pop(argument % len(names))))
        elif step == "join" and len(alive) < 5:
            world.worker(f"n{number}")
        elif step == "lose" and len(alive) > 1:
            lose(world, alive[argument % len(alive)])
        since = len(world.starts)
        world.advance(100)
        assert len(world.starts) == since, f"{step} is followed by moves at once"
        world.share()
        for found in loads(world):
            assert found[-1] - found[0] <= 1, f"after {step}: {loads(world)}"
        assert {unit.connector for unit in world.running()} == set(names)
