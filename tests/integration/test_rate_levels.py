"""Tasks under one connector's rate limit and the herder that shares it out, together in simulated seconds: the engine's
buckets, the herder's arithmetic, and the delay of messages between them.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from herdmesh.engine.runtime.contract import Rate
from herdmesh.engine.runtime.limits import RateLimits
from herdmesh.herder.state.model import RateUse
from herdmesh.herder.state.units.rate_limits import level

STEP_S = 0.01
TOLD_AFTER_S = 0.2
"""From a worker's heartbeat (every 0.25 s) over the herder to the loops of the other tasks (every 0.1 s)."""


class Tasks:
    """All tasks of a connector with a limit, which learn of each other every quarter of a second, `TOLD_AFTER_S`
    late.
    """

    def __init__(self, limit: float, demand: list[Callable[[float], float]]) -> None:
        """`demand`: the rate each task would like to have, by time."""
        self.now = 0.0
        self.taken: list[tuple[float, int]] = []
        self._demand = demand
        self._limits = [RateLimits(limit, 0, len(demand), 0.0) for _ in demand]
        self._waiting = [0.0] * len(demand)
        self._on_the_way: list[tuple[float, float]] = []

    def run_until(self, until_s: float) -> None:
        beat_s = self.now
        while self.now < until_s:
            self.now += STEP_S
            for number, limits in enumerate(self._limits):
                self._waiting[number] = min(self._waiting[number] + self._demand[number](self.now) * STEP_S, 1e6)
                self._take(number, limits)
            if self.now >= beat_s:
                beat_s += 0.25
                uses = [limits.records.use() for limits in self._limits]
                told = level(
                    [RateUse(u.limit_per_second, u.used_per_second, u.wants_more) for u in uses if u is not None]
                )
                self._on_the_way.append((self.now + TOLD_AFTER_S, told))
            while self._on_the_way and self._on_the_way[0][0] <= self.now:
                _, told = self._on_the_way.pop(0)
                for limits in self._limits:
                    limits.set_levels(Rate(told))

    def _take(self, number: int, limits: RateLimits) -> None:
        limits.roll(self.now)
        while limits.wait_s(self.now) == 0 and self._waiting[number] >= 1:
            count = min(limits.batch_size(1_000), int(self._waiting[number]))
            self._waiting[number] -= count
            limits.took(count, 0, self.now)
            self.taken.append((self.now, count))

    def count(self, since_s: float, length_s: float = 10.0) -> int:
        return sum(count for at_s, count in self.taken if since_s <= at_s < since_s + length_s)


def always(per_second: float) -> Callable[[float], float]:
    return lambda _: per_second


def after(begin_s: float, per_second: float) -> Callable[[float], float]:
    return lambda now_s: per_second if now_s >= begin_s else 0.0


@pytest.mark.parametrize(
    "demand",
    [
        [always(1e5)] * 3,
        [always(1e5), always(0.0), always(0.0)],
        [always(1e5), always(30.0), always(10.0)],
        [always(1e5), always(1e5), always(150.0)],
        [always(1e5)] * 8,
    ],
)
def test_tasks_together_use_the_limit_whichever_of_them_has_records(demand: list[Callable[[float], float]]) -> None:
    tasks = Tasks(300.0, demand)
    tasks.run_until(30.0)
    for since_s in (5.0, 12.0, 19.0):
        assert tasks.count(since_s) == pytest.approx(3_000, rel=0.05), since_s


@settings(max_examples=15, deadline=None)
@given(
    st.lists(st.one_of(st.just(1e5), st.floats(0.0, 400.0)), min_size=1, max_size=5).filter(
        lambda all_: sum(all_) >= 330
    )
)
def test_any_mixture_of_demands_uses_the_limit(demands: list[float]) -> None:
    tasks = Tasks(300.0, [always(one) for one in demands])
    tasks.run_until(25.0)
    assert tasks.count(14.0) == pytest.approx(3_000, rel=0.05), demands


@pytest.mark.parametrize("joining", [1, 3, 7])
def test_joining_tasks_exceed_the_limit_only_a_little_and_briefly(joining: int) -> None:
    tasks = Tasks(300.0, [always(1e5), *[after(20.0, 1e5)] * joining])
    tasks.run_until(40.0)
    assert tasks.count(9.0) == pytest.approx(3_000, rel=0.05)
    assert tasks.count(20.0) <= 3_000 * 1.1, "while it becomes known that they want to have some, too"
    assert tasks.count(23.0) == pytest.approx(3_000, rel=0.05)


def test_a_task_without_records_leaves_its_share_to_the_others() -> None:
    tasks = Tasks(300.0, [always(1e5), lambda now_s: 500.0 if now_s < 2.0 else 0.0])
    tasks.run_until(30.0)
    assert tasks.count(10.0) == pytest.approx(3_000, rel=0.05)
