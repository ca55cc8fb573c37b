"""Measures of a run: batches in, values out that add up."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from herdmesh.engine.runtime.measures import LATENCY_BOUNDS_MS, Latency, Measures, MeasureSpread
from herdmesh.engine.runtime.meter import Meter

NUMBERS = st.lists(st.integers(0, 1_000), max_size=6)


def _measured(meter: Meter, batches: list[int]) -> Measures:
    for records in batches:
        meter.count(records, records, 1.0)
        meter.called(records / 1000)
        meter.aged(records, records * 2.0, float(records))
        meter.committed(0.5, records)
    return meter.take_measures()


@given(NUMBERS, NUMBERS)
def test_two_reports_add_up_to_one_of_both(first: list[int], second: list[int]) -> None:
    parted = Meter(0.0)
    whole = _measured(Meter(0.0), [*first, *second])
    total = _measured(parted, first) + _measured(parted, second)
    assert total.batch_records == whole.batch_records
    assert total.latency_ms.buckets == whole.latency_ms.buckets
    assert (total.commit_ms, total.transaction_records) == (whole.commit_ms, whole.transaction_records)
    assert total.active_records == whole.active_records


def test_half_of_a_batch_has_the_age_of_its_first_record_and_half_that_of_its_last() -> None:
    meter = Meter(0.0)
    meter.aged(5, 60.0, 20.0)
    meter.aged(1, -4.0, -4.0)
    found = meter.take_measures().latency_ms
    by_bound = dict(zip((*LATENCY_BOUNDS_MS, None), found.buckets, strict=True))
    assert {bound: count for bound, count in by_bound.items() if count} == {100: 3, 50: 2, 10: 1}
    assert found.total_ms == 3 * 60.0 + 2 * 20.0, "a clock that is ahead makes no record young"
    assert meter.take_measures() == Measures()


def test_ages_above_all_bounds_fall_into_the_last_bucket() -> None:
    meter = Meter(0.0)
    meter.aged(2, 1e12, 1e12)
    assert meter.take_measures().latency_ms == Latency((*(0 for _ in LATENCY_BOUNDS_MS), 2), 2e12)


def test_uncommitted_records_are_active_until_a_commit() -> None:
    meter = Meter(0.0)
    meter.count(3, 3, 0.0)
    meter.count(4, 2, 0.0)
    found = meter.take_measures()
    assert (found.active_records_now, found.active_records) == (7, MeasureSpread(2, 10.0, 3.0, 7.0))
    meter.commit_failed()
    assert meter.take_measures() == Measures(commit_failures=1, active_records_now=7)
    meter.committed(0.25)
    assert meter.take_measures() == Measures(commit_ms=MeasureSpread(1, 250.0, 250.0, 250.0))
