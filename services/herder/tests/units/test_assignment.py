"""Promises of `assign`, as properties."""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence

from hypothesis import given, settings
from hypothesis import strategies as st

from herdmesh.herder.state.units.assignment import Move, assign
from herdmesh.session.model import UnitId

WORKERS = [f"w{number}" for number in range(7)]


def units_of(count: int) -> list[UnitId]:
    return [UnitId(f"c{number % 5}", number // 5) for number in range(count)]


@st.composite
def placements(draw: st.DrawFn) -> tuple[list[str], list[UnitId], dict[UnitId, str]]:
    workers = WORKERS[: draw(st.integers(1, 6))]
    units = units_of(draw(st.integers(0, 30)))
    places = st.sampled_from([*workers, "gone1", "gone2", None])
    previous = {unit: place for unit in units if (place := draw(places)) is not None}
    return workers, units, previous


def apply(units: list[UnitId], previous: dict[UnitId, str], moves: list[Move]) -> dict[UnitId, str]:
    places = dict(previous)
    for move in moves:
        assert places.get(move.unit) == move.source
        if move.target is None:
            places.pop(move.unit, None)
        else:
            places[move.unit] = move.target
    return places


def loads(workers: list[str], places: dict[UnitId, str]) -> list[int]:
    return [sum(1 for place in places.values() if place == worker) for worker in workers]


def _without_a_taker(
    case: tuple[list[str], list[UnitId], dict[UnitId, str]],
) -> tuple[list[str], list[UnitId], dict[UnitId, str]]:
    return [], case[1], case[2]


@given(placements())
def test_loads_differ_by_at_most_one_and_every_unit_is_placed(
    case: tuple[list[str], list[UnitId], dict[UnitId, str]],
) -> None:
    workers, units, previous = case
    places = apply(units, previous, assign(workers, dict.fromkeys(units, workers), previous))
    assert set(places) == set(units)
    counts = loads(workers, places)
    assert max(counts) - min(counts) <= 1


@given(placements())
def test_an_assignment_has_the_fewest_moves(case: tuple[list[str], list[UnitId], dict[UnitId, str]]) -> None:
    workers, units, previous = case
    moves = assign(workers, dict.fromkeys(units, workers), previous)
    moved = sum(1 for move in moves if move.source in workers)
    # A balanced placement gives every worker floor or floor + 1 units; most stay when the fullest get the extra ones.
    floor, extra = divmod(len(units), len(workers))
    kept = sorted(loads(workers, previous), reverse=True)
    quotas = [floor + 1] * extra + [floor] * (len(workers) - extra)
    assert moved == sum(max(0, have - quota) for have, quota in zip(kept, quotas, strict=True))


@given(st.one_of(placements(), placements().map(_without_a_taker)), st.integers(1, 5))
def test_bounded_calls_need_no_more_moves_and_end_balanced(
    case: tuple[list[str], list[UnitId], dict[UnitId, str]], moves_max: int
) -> None:
    workers, units, previous = case
    able = dict.fromkeys(units, workers)
    at_once = assign(workers, able, previous)
    places, found = previous, list[Move]()
    while moves := assign(workers, able, places, moves_max=moves_max):
        assert sum(move.target is not None for move in moves) <= moves_max
        places = apply(units, places, moves)
        found += moves
    assert len(found) == len(at_once)
    assert sorted(loads(workers, places)) == sorted(loads(workers, apply(units, previous, at_once)))


@given(placements(), st.randoms(use_true_random=False))
def test_an_assignment_is_deterministic_in_any_order_of_input(
    case: tuple[list[str], list[UnitId], dict[UnitId, str]], rng: random.Random
) -> None:
    workers, units, previous = case
    expected = assign(workers, dict.fromkeys(units, workers), previous)
    shuffled_workers, shuffled_units, items = list(workers), list(units), list(previous.items())
    for sequence in (shuffled_workers, shuffled_units, items):
        rng.shuffle(sequence)
    assert assign(shuffled_workers, dict.fromkeys(shuffled_units, shuffled_workers), dict(items)) == expected


@given(placements())
def test_a_balanced_placement_has_no_more_moves(case: tuple[list[str], list[UnitId], dict[UnitId, str]]) -> None:
    workers, units, previous = case
    places = apply(units, previous, assign(workers, dict.fromkeys(units, workers), previous))
    assert assign(workers, dict.fromkeys(units, workers), places) == []


@given(placements())
def test_a_joining_worker_moves_only_its_share(case: tuple[list[str], list[UnitId], dict[UnitId, str]]) -> None:
    workers, units, previous = case
    places = apply(units, previous, assign(workers, dict.fromkeys(units, workers), previous))
    joined = [*workers, "new"]
    moves = assign(joined, dict.fromkeys(units, joined), places)
    assert all(move.target == "new" for move in moves)
    assert len(moves) == len(units) // len(joined)


@given(placements())
def test_a_lost_worker_moves_only_its_units(case: tuple[list[str], list[UnitId], dict[UnitId, str]]) -> None:
    workers, units, previous = case
    places = apply(units, previous, assign(workers, dict.fromkeys(units, workers), previous))
    lost, left = workers[0], workers[1:]
    moves = assign(left, dict.fromkeys(units, left), places)
    assert {move.unit for move in moves} == {unit for unit in units if places[unit] == lost}


@given(placements())
def test_without_rebalance_only_units_without_a_worker_move(
    case: tuple[list[str], list[UnitId], dict[UnitId, str]],
) -> None:
    workers, units, previous = case
    moves = assign(workers, dict.fromkeys(units, workers), previous, rebalance=False)
    assert all(move.source not in workers for move in moves)
    assert len(moves) == sum(1 for unit in units if previous.get(unit) not in workers)


@given(st.data())
def test_plugins_limit_which_worker_runs_which_unit(data: st.DataObject) -> None:
    workers = WORKERS[: data.draw(st.integers(1, 5))]
    units = units_of(data.draw(st.integers(0, 20)))
    some, place_or_none = st.sets(st.sampled_from(workers)), st.sampled_from([*workers, None])
    allowed = {unit: data.draw(some) for unit in units}
    previous = {unit: place for unit in units if (place := data.draw(place_or_none)) is not None}
    places = apply(units, previous, assign(workers, allowed, previous))
    for unit in units:
        assert (unit in places) == bool(allowed[unit])
        assert not allowed[unit] or places[unit] in allowed[unit]
    counts = dict(zip(workers, loads(workers, places), strict=True))
    for unit, place in places.items():
        assert all(counts[other] >= counts[place] - 1 for other in allowed[unit]), "one move would balance better"


@st.composite
def small_cases(draw: st.DrawFn) -> tuple[list[str], dict[UnitId, list[str]], dict[UnitId, str]]:
    """Up to three workers and six units; some units only some workers can run, some are held by gone workers."""
    workers = WORKERS[: draw(st.integers(1, 3))]
    units = units_of(draw(st.integers(0, 6)))
    kinds = draw(st.lists(st.sets(st.sampled_from(workers), min_size=1), min_size=1, max_size=3))
    kind, places = st.sampled_from(kinds), st.sampled_from([*workers, "gone", None])
    able = {unit: sorted(draw(kind)) for unit in units}
    previous = {unit: place for unit in units if (place := draw(places)) is not None}
    return workers, able, previous


@settings(max_examples=200)
@given(small_cases())
def test_no_placement_is_more_even_nor_as_even_with_fewer_moves(
    case: tuple[list[str], dict[UnitId, list[str]], dict[UnitId, str]],
) -> None:
    """Against every possible placement: the squares of the loads first, then the number of units that leave their
    worker.
    """
    workers, able, previous = case

    #: in the order of `able`; None = no worker loses it by a move.
    stays = [place if (place := previous.get(unit)) in takers else None for unit, takers in able.items()]

    def cost(places: Sequence[str]) -> tuple[int, int]:
        moved = sum(1 for place, stay in zip(places, stays, strict=True) if stay is not None and stay != place)
        return sum([places.count(worker) ** 2 for worker in workers]), moved

    found = apply(list(able), previous, assign(workers, able, previous))
    assert cost([found[unit] for unit in able]) == min(map(cost, itertools.product(*able.values())))


@given(placements(), st.sets(st.sampled_from(WORKERS)))
def test_units_stay_and_go_only_on_workers_that_take_work(
    case: tuple[list[str], list[UnitId], dict[UnitId, str]], draining: set[str]
) -> None:
    workers, units, previous = case
    takers = [worker for worker in workers if worker not in draining]
    places = apply(units, previous, assign(takers, dict.fromkeys(units, workers), previous))
    assert set(places.values()) <= set(takers)
    assert set(places) == (set(units) if takers else set())


def test_a_unit_that_no_worker_can_run_has_no_target() -> None:
    unit = UnitId("c", 0)
    assert assign(["w0"], {unit: []}, {}) == []
    assert assign([], {unit: ["w0"]}, {unit: "w0"}) == [Move(unit, "w0", None)]


def test_a_chain_of_moves_frees_the_only_able_worker() -> None:
    # a can run on w0 only; b can run anywhere and is on w0 with it: b must make room though w1 holds c.
    units = {
        UnitId("a", 0): ["w0"],
        UnitId("a", 1): ["w0"],
        UnitId("b", 0): ["w0", "w1"],
        UnitId("c", 0): ["w1", "w2"],
    }
    previous = {UnitId("a", 0): "w0", UnitId("a", 1): "w0", UnitId("b", 0): "w0", UnitId("c", 0): "w1"}
    moves = assign(["w0", "w1", "w2"], units, previous)
    places = apply(list(units), previous, moves)
    assert places[UnitId("b", 0)] == "w1"
    assert places[UnitId("c", 0)] == "w2"
