"""The faults that chaos draws from a seed: every process is killed, stopped and frozen before any of that comes
again.
"""

from __future__ import annotations

from itertools import chain, islice

import pytest

from tests.chaos.faults import TARGETS, Way, rounds

SERVICES = ("worker", "leader", "follower", "config-store", "status-store", "broker")
#: Parts of a worker that nobody stops by themselves.
PARTS = ("jvm", "daemon", "run")


@pytest.mark.parametrize("seed", [5, 21, 93])
def test_every_kind_of_process_meets_every_fault(seed: int) -> None:
    drawn = {(fault.way, fault.target) for fault in islice(chain.from_iterable(rounds(seed)), 45)}
    wanted = {(way, target) for way in Way for target in SERVICES}
    wanted |= {(way, target) for way in (Way.KILL, Way.FREEZE) for target in PARTS}
    assert wanted - drawn == set()
    assert rounds_of(seed) == rounds_of(seed), "a seed is one run"


def test_each_target_is_killed_before_any_has_a_second_turn() -> None:
    assert {*SERVICES, *PARTS} == TARGETS
    for seed in range(200):
        first = list(islice(chain.from_iterable(rounds(seed)), len(TARGETS)))
        assert {fault.target for fault in first if fault.way is Way.KILL} == TARGETS, seed


def rounds_of(seed: int) -> list[object]:
    return list(islice(rounds(seed), 20))
