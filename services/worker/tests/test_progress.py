"""The progress of a task: the sum of its runs' counts, also on the wire."""

from __future__ import annotations

from herdmesh.connect.task_counts import ErrorCounts
from herdmesh.connect.topics.lag import Lag, lag_of
from herdmesh.engine.runtime.contract import PRODUCED_MAX, PartitionProgress, ProgressReport
from herdmesh.worker.state.progress import added, fallen_back, with_ends
from herdmesh.worker.wire import progress_from, progress_to


def test_a_sources_produced_counts_are_summed_over_its_runs() -> None:
    first, second = ProgressReport(produced=(("a", 2), ("b", 1))), ProgressReport(produced=(("b", 3), ("c", 4)))
    total = added(first, second)
    assert total.produced == (("a", 2), ("b", 4), ("c", 4))
    assert added(total, ProgressReport()).produced == total.produced
    assert progress_from(progress_to(total)) == total


def test_the_topics_in_a_sources_produced_counts_are_bounded() -> None:
    half = tuple((f"a{number:04}", 1) for number in range(PRODUCED_MAX))
    other = tuple((f"b{number:04}", 1) for number in range(PRODUCED_MAX))
    assert added(ProgressReport(produced=half), ProgressReport(produced=other)).produced == half


def test_failed_records_are_summed_over_runs() -> None:
    first, second = ErrorCounts(1, 2, 3, 4, 5, 6, 7, 80), ErrorCounts(failures=1, last_error_ms=70)
    total = added(ProgressReport(errors=first), ProgressReport(errors=second))
    assert total.errors == ErrorCounts(2, 2, 3, 4, 5, 6, 7, 80)
    assert progress_from(progress_to(total)) == total


def test_a_run_that_failed_is_behind_by_the_records_that_the_next_one_reads_again() -> None:
    """Whether the run committed an offset in the partition or not."""
    parts = PartitionProgress("t", 0, 90, 100, 100), PartitionProgress("t", 1, -1, 110, 115, pending_records=10)
    failed = ProgressReport(20, 20, partitions=parts)
    assert lag_of(failed.partitions) == Lag(5, 20)
    assert lag_of(fallen_back(failed).partitions) == Lag(25, 0)
    assert fallen_back(failed).records_in == 20
    assert progress_from(progress_to(failed)) == failed


def test_ends_learned_by_the_worker_win_over_older_ones_of_a_run() -> None:
    known = ProgressReport(partitions=(PartitionProgress("t", 0, 5, 5, 5), PartitionProgress("t", 1, 2, 3, 9)))
    assert with_ends(known, {}) is known
    assert with_ends(known, {("t", 1): 9, ("u", 0): 7}) is known
    found = with_ends(known, {("t", 0): 55, ("t", 1): 4})
    assert [one.end_offset for one in found.partitions] == [55, 9]
    assert [(one.committed_offset, one.position) for one in found.partitions] == [(5, 5), (2, 3)]
