"""What a run leaves in cycles goes, also what lived on for a while."""

from __future__ import annotations

import gc
from collections.abc import Generator

import pytest

from herdmesh.engine.runtime.gc_schedule import FULL_EVERY, GcSchedule


class Cycle:
    """Something that only a collection ends."""

    alive = 0

    def __init__(self) -> None:
        self.itself = self
        Cycle.alive += 1

    def __del__(self) -> None:
        Cycle.alive -= 1


@pytest.fixture(autouse=True)
def no_collector() -> Generator[None]:
    """Python's collector does nothing by itself."""
    gc.disable()
    yield
    gc.enable()


def test_what_lived_on_until_the_next_report_does_not_pile_up() -> None:
    garbage, most = GcSchedule(), 0
    for _ in range(5 * FULL_EVERY):
        held = Cycle()
        garbage.collect()
        most = max(most, Cycle.alive)
        del held
    assert FULL_EVERY // 2 < most <= FULL_EVERY + 1


def test_what_a_batch_left_goes_with_the_report_after_it() -> None:
    garbage, before = GcSchedule(), Cycle.alive
    Cycle()
    garbage.collect()
    assert Cycle.alive <= before
