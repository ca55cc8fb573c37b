"""How much each task may take of its connector's rate limit, and who is told."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from herdmesh.herder.state.model import RateUse
from herdmesh.herder.state.rates import level

LIMIT = 90.0


def use(used: float, *, wants_more: bool = False) -> RateUse:
    return RateUse(LIMIT, used, wants_more)


def hungry(used: float = 0.0) -> RateUse:
    return use(used, wants_more=True)


@pytest.mark.parametrize(
    ("uses", "expected"),
    [
        ([], 0.0),
        ([hungry()], 90.0),
        ([hungry(), hungry(), hungry()], 30.0),
        ([hungry(), hungry(), use(10.0)], 40.0),
        ([hungry(), use(0.0), use(0.0)], 90.0),
        ([hungry(), use(80.0)], 45.0),
        ([use(20.0), use(10.0)], 80.0),
        ([use(0.0), use(0.0), use(0.0)], 90.0),
    ],
)
def test_what_some_do_not_need_the_others_have(uses: list[RateUse], expected: float) -> None:
    assert level(uses) == pytest.approx(expected)


def test_after_a_change_the_smaller_limit_counts() -> None:
    assert level([RateUse(90.0, 0.0, True), RateUse(50.0, 0.0, True)]) == 25.0


USES = st.lists(st.builds(use, st.floats(0.0, 2 * LIMIT), wants_more=st.booleans()), min_size=1, max_size=20)


@settings(max_examples=300, deadline=None)
@given(USES)
def test_together_they_take_the_limit_and_nobody_is_shut_out(uses: list[RateUse]) -> None:
    found = level(uses)
    assert found >= LIMIT / len(uses) - 1e-6, "never below an equal part"
    assert found <= LIMIT + 1e-6
    if any(one.wants_more for one in uses):
        total = sum(found if one.wants_more else min(found, one.used_per_second) for one in uses)
        assert total == pytest.approx(LIMIT), "all of it, and no more"
