"""The two figures of a sink's lag: records behind, and records uncommitted."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from herdmesh.api.worker.v1 import task_pb2
from herdmesh.connect.topics.lag import NOT_KNOWN, Lag, lag_of, sum_of
from herdmesh.engine.runtime.contract import PartitionProgress

OFFSETS = st.integers(0, 1_000_000)


def test_a_task_that_keeps_up_is_not_behind_however_much_is_uncommitted() -> None:
    found = lag_of([PartitionProgress("t", 0, committed_offset=70_000, position=100_000, end_offset=100_000)])
    assert found == Lag(behind=0, uncommitted=30_000)
    assert found.total == 30_000


def test_a_figure_unknown_for_one_partition_is_unknown_for_the_task() -> None:
    known = PartitionProgress("t", 0, 1, 3, 7)
    assert lag_of([known, PartitionProgress("t", 1, -1, -1, 7, 5)]) == NOT_KNOWN
    assert lag_of([known, PartitionProgress("t", 1, 1, 3, -1)]) == Lag(None, 4)
    assert lag_of([known, PartitionProgress("t", 1, 1, -1, 7)]) == NOT_KNOWN
    assert sum_of([Lag(1, 2), Lag(None, 3)]) == Lag(None, 5)
    assert lag_of([]) == sum_of([]) == Lag(0, 0)


def test_a_run_without_a_commit_has_put_what_is_uncommitted() -> None:
    known = PartitionProgress("t", 0, 1, 3, 7)
    assert lag_of([known, PartitionProgress("t", 1, -1, 30, 70, pending_records=20)]) == Lag(44, 22)


@given(st.lists(st.tuples(OFFSETS, OFFSETS, OFFSETS).map(sorted), max_size=5))
def test_both_figures_add_up_to_the_records_after_the_committed_offset(parts: list[list[int]]) -> None:
    found = lag_of(
        task_pb2.PartitionProgress(committed_offset=committed, position=position, end_offset=end)
        for committed, position, end in parts
    )
    assert found.total == sum(end - committed for committed, _, end in parts)


def test_a_task_that_went_back_has_nothing_uncommitted_and_is_behind_by_the_records_it_reads_again() -> None:
    assert lag_of([PartitionProgress("t", 0, committed_offset=9, position=4, end_offset=10)]) == Lag(6, 0)
