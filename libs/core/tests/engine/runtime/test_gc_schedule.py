"""Garbage collection schedule of a run: reference cycles are collected, also those that survived for a while."""

from __future__ import annotations

import gc
from collections.abc import Generator

import pytest

from herdmesh.engine.runtime.gc_schedule import FULL_EVERY, GcSchedule


class Cycle:
    """An object that only a collection frees."""

    alive = 0

    def __init__(self) -> None:
        self.itself = self
        Cycle.alive += 1

    def __del__(self) -> None:
        Cycle.alive -= 1


@pytest.fixture(autouse=True)
def no_collector() -> Generator[None]:
    """Switch Python's automatic collection off."""
    gc.disable()
    yield
    gc.enable()


def test_cycles_that_survived_a_report_do_not_pile_up() -> None:
    garbage, most = GcSchedule(), 0
    for _ in range(5 * FULL_EVERY):
        held = Cycle()
        garbage.collect()
        most = max(most, Cycle.alive)
        del held
    assert FULL_EVERY // 2 < most <= FULL_EVERY + 1


def test_cycles_of_a_batch_are_collected_with_the_next_report() -> None:
    garbage, before = GcSchedule(), Cycle.alive
    Cycle()
    garbage.collect()
    assert Cycle.alive <= before
