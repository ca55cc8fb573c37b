"""Tests of the count of needless starts."""

from __future__ import annotations

from bench.scale.members import counted

START_A = {"event": "start_unit", "unit": "[a|task-0]"}
START_B = {"event": "start_unit", "unit": "[b|worker]"}


def test_a_unit_of_a_worker_that_went_needs_one_start() -> None:
    assert counted([START_A], {("a", 0)}) == (1, 0, 0)
    assert counted([START_A, START_A], {("a", 0)}) == (2, 1, 0)


def test_a_start_of_a_unit_of_another_worker_is_needless() -> None:
    assert counted([START_A, START_B], {("a", 0)}) == (2, 1, 0)


def test_a_move_for_balance_is_counted_separately() -> None:
    stop = {"event": "stop_unit", "unit": "[b|worker]", "reason": "moves to w1 for balance"}
    assert counted([stop, START_B], set()) == (1, 0, 1)
    assert counted([stop, START_B, START_B], set()) == (2, 1, 1), "a second start is needless all the same"
