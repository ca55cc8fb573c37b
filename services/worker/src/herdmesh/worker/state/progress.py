"""Sums of the progress of a task's runs. Owns the arithmetic; counts never decrease while the task is held."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace

from herdmesh.connect.task_counts import TaskCounts
from herdmesh.connect.topics import lag
from herdmesh.engine.runtime import PRODUCED_MAX, Measures, ProgressReport


def counts_of(progress: ProgressReport) -> TaskCounts:
    """Its counts, which the task's next start continues."""
    return TaskCounts(progress.records_in, progress.records_out, progress.records_dropped, progress.errors)


def continued(counts: TaskCounts, config_offset: int | None) -> ProgressReport:
    """Progress of a task that starts with these counts; nothing else is known of it."""
    return ProgressReport(
        counts.records_in,
        counts.records_out,
        counts.records_dropped,
        errors=counts.errors,
        config_offset=config_offset,
    )


def added(base: ProgressReport, run: ProgressReport) -> ProgressReport:
    """Progress of the task: the counts of its earlier runs plus those of this one. All other values are the run's,
    except: known partitions remain until a run reports partitions again, only a run is warm, and measures are added up
    by the metrics, not here.
    """
    return replace(
        run,
        records_in=base.records_in + run.records_in,
        records_out=base.records_out + run.records_out,
        records_dropped=base.records_dropped + run.records_dropped,
        partitions=run.partitions or base.partitions,
        produced=_sum(base.produced, run.produced),
        commit_time_ms=run.commit_time_ms if run.commit_time_ms is not None else base.commit_time_ms,
        commit_scope=run.commit_scope if run.commit_scope is not None else base.commit_scope,
        config_offset=run.config_offset if run.config_offset is not None else base.config_offset,
        errors=base.errors + run.errors,
        warm=False,
        measures=Measures(),
    )


def _sum(base: tuple[tuple[str, int], ...], run: tuple[tuple[str, int], ...]) -> tuple[tuple[str, int], ...]:
    if not (base and run):
        return run or base
    return tuple(sorted((Counter(dict(run)) + Counter(dict(base))).items())[:PRODUCED_MAX])


def with_ends(progress: ProgressReport, ends: Mapping[tuple[str, int], int]) -> ProgressReport:
    """The progress with the ends that the worker learned, where they are beyond the run's: a stuck run reports nothing,
    and a run whose client's buffers are full does not fetch. Returns the same object when no end is beyond.
    """
    if not any(ends.get((one.topic, one.partition), -1) > one.end_offset for one in progress.partitions):
        return progress
    parts = tuple(
        replace(one, end_offset=max(one.end_offset, ends.get((one.topic, one.partition), -1)))
        for one in progress.partitions
    )
    return replace(progress, partitions=parts)


def fallen_back(progress: ProgressReport) -> ProgressReport:
    """The progress after a run that failed or was lost: the next one reads the records again that it has not committed,
    so they count as not read.
    """
    parts = tuple(
        replace(one, position=one.position - (lag.uncommitted(one) or 0), pending_records=0)
        for one in progress.partitions
    )
    return replace(progress, partitions=parts)


def caught_up(progress: ProgressReport) -> bool:
    """True for a sink that has read everything it knows of. False for a source, which does not know."""
    parts = progress.partitions
    return bool(parts) and all(0 <= one.end_offset <= one.position for one in parts)
