"""A task under a rate limit, in simulated seconds: how exact and how even the rate is, and the reported use."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from herdmesh.engine.runtime.contract import Rate
from herdmesh.engine.runtime.limits import CREDIT_S, RateLimits


def records(per_second: float, task_count: int = 1) -> RateLimits:
    return RateLimits(per_second, 0, task_count, 0.0)


def taken(
    limits: RateLimits, until_s: float, *, late_s: float = 0.0, weight: int = 0, now_s: float = 0.0
) -> list[float]:
    """Time of each record, for a loop that always has more and wakes `late_s` too late each time."""
    times: list[float] = []
    while now_s < until_s:
        limits.roll(now_s)
        wait_s = limits.wait_s(now_s)
        if wait_s > 0:
            now_s += wait_s + late_s
            continue
        count = limits.batch_size(1_000)
        limits.took(count, count * weight, now_s)
        times += [now_s] * count
        now_s += 0.0001
    return times


@settings(max_examples=100, deadline=None)
@given(rate=st.integers(1, 100_000), late_s=st.floats(0.0, 0.1))
def test_ten_seconds_of_records_keep_the_limit_within_a_twentieth(rate: int, late_s: float) -> None:
    times = taken(records(rate), 10.0, late_s=late_s)
    # At one record a second, ten seconds hold ten or eleven: the position of the first is chance.
    assert abs(len(times) - 10 * rate) <= max(0.05 * 10 * rate, 1)


def test_a_low_rate_is_even() -> None:
    times = taken(records(5), 10.0, late_s=0.004)
    gaps = [later - earlier for earlier, later in pairwise(times)]
    assert max(gaps) < 0.3
    assert taken(records(2), 4.0) == pytest.approx([0.0, 0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 3.5], abs=0.21)


def test_lost_time_is_made_up_for_up_to_a_bounded_credit() -> None:
    limits = records(100)
    limits.took(20, 0, 0.0)
    assert limits.wait_s(0.0) == pytest.approx(0.2)
    limits.took(20, 0, 60.0)
    assert limits.wait_s(60.0) == pytest.approx(0.0), f"a minute of quiet is worth {CREDIT_S} s, and no more"
    limits.took(20, 0, 60.0)
    assert limits.wait_s(60.0) == pytest.approx(0.2)


def test_a_byte_limit_works_like_a_record_limit() -> None:
    limits = RateLimits(0, 10_000, 1, 0.0)
    assert limits.batch_size(1_000) == 1, "nothing is known of what a record weighs"
    times = taken(limits, 10.0, weight=100)
    assert len(times) * 100 == pytest.approx(100_000, rel=0.05)
    assert len(times[: len([one for one in times if one < 1.0])]) == pytest.approx(100, rel=0.25)


def test_one_record_heavier_than_a_second_is_paid_for_in_full() -> None:
    limits = RateLimits(0, 1_000, 1, 0.0)
    limits.took(1, 5_000, 0.0)
    assert limits.wait_s(0.0) == pytest.approx(5.0)


def test_without_a_limit_there_is_no_wait_and_no_report() -> None:
    limits = RateLimits(0, 0, 3, 0.0)
    limits.set_levels(Rate(5.0, 5.0))
    limits.took(1_000, 0, 0.0)
    assert (limits.batch_size(1_000), limits.wait_s(0.0), limits.roll(10.0)) == (1_000, 0.0, False)
    assert (limits.records.use(), limits.bytes.use(), limits.counts_bytes) == (None, None, False)


def test_one_task_of_several_begins_with_an_equal_share_and_grows_when_allowed() -> None:
    limits = records(90, task_count=3)
    assert limits.records.allowed == 30
    taken(limits, 4.0)
    assert limits.records.allowed == 30, "nobody said that the others need less"
    limits.set_levels(Rate(90.0))
    taken(limits, 4.5, now_s=4.0)
    assert limits.records.allowed == 90
    now_s = 4.5
    while now_s < 8.0:  # no records
        now_s += 0.1
        limits.roll(now_s)
    assert limits.records.allowed == 30, "the others may count on what it left them"
    taken(limits, 10.0, now_s=8.0)
    assert limits.records.allowed == 90
    limits.set_levels(Rate())
    assert limits.records.allowed == 30, "nobody tells any more"


def test_an_allowance_above_the_limit_is_cut_to_the_limit() -> None:
    limits = records(30, task_count=1)
    limits.set_levels(Rate(1_000.0))
    assert limits.records.allowed <= 30


def test_use_reports_whether_the_task_is_held_back() -> None:
    limits = records(100)
    taken(limits, 4.0)
    use = limits.records.use()
    assert use is not None
    assert use.wants_more
    assert use.limit_per_second == 100
    assert use.used_per_second == pytest.approx(100, rel=0.2)
    now_s, changes = 4.0, 0
    while now_s < 8.0:  # forty a second from here on
        now_s += 0.025
        limits.took(1, 0, now_s)
        changes += limits.roll(now_s)
    use = limits.records.use()
    assert use is not None
    assert not use.wants_more
    assert use.used_per_second == pytest.approx(40, rel=0.1)
    assert changes == 1, "what has changed is told at once, and only then"
