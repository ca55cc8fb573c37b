"""Sums of the progress of a task's runs. Owns the arithmetic; counts never go back while the task is held."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace

from herdmesh.engine.runtime import PRODUCED_MAX, Measures, ProgressReport


def added(base: ProgressReport, run: ProgressReport) -> ProgressReport:
    """Progress of the task: what its earlier runs counted, plus what this one has. All else is the run's word, except
    that partitions once known stay known until a run names them again, that only a run is warm, and that measures are
    not the task's but the metrics' to add up."""
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
    """With the ends of partitions that the worker learned, where those are beyond what the run knows: a run that stands
    still says nothing, and one whose client holds all it may does not ask. The same object where none is."""
    if not any(ends.get((one.topic, one.partition), -1) > one.end_offset for one in progress.partitions):
        return progress
    parts = tuple(
        replace(one, end_offset=max(one.end_offset, ends.get((one.topic, one.partition), -1)))
        for one in progress.partitions
    )
    return replace(progress, partitions=parts)


def caught_up(progress: ProgressReport) -> bool:
    """True for a sink that has read all it knows of. A source never knows: False."""
    parts = progress.partitions
    return bool(parts) and all(0 <= one.end_offset <= one.position for one in parts)
