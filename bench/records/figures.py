"""The rows of the table for the measurements.

Owns the goals and their direction: records per second are better when higher, all other figures when lower. A ratio is
that of one round, both sides measured one after the other; the table has the median of the rounds, with the minimum and
the maximum.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence

from bench.records.idle import Idle
from bench.records.jobs import Job, Sink
from bench.records.latency import Latencies, at
from bench.records.moving import Moved
from bench.table import Row

Rounds = Sequence[tuple[Moved, Moved]]
"""Our result and Java's, for each round."""


def moved_rows(job: Job, tasks: int, rounds: Rounds) -> list[Row]:
    """Rows of one job with that number of tasks."""
    # a source's first transaction becomes visible as a whole
    return rate_rows(of_tasks(job.figure, tasks), job.goal, rounds, steady=isinstance(job, Sink))


def of_tasks(figure: str, tasks: int) -> str:
    """The figure's name with the number of tasks."""
    return f"{figure}, {tasks} task{'s' if tasks > 1 else ''}"


def rate_rows(figure: str, goal: float, rounds: Rounds, *, steady: bool) -> list[Row]:
    """Rows of records per second and processor time. `goal` 0 = for comparison only; `steady`: also from the first
    record on.
    """
    rows = [_rates(f"{figure}: total", rounds, lambda one: one.total, goal)]
    if steady:
        rows.append(_rates(f"{figure}: from the first record on", rounds, lambda one: one.steady, 0.0))
    ours, java = [one.cpu_per_million_s for one, _ in rounds], [one.cpu_per_million_s for _, one in rounds]
    ratios = [mine / theirs for mine, theirs in zip(ours, java, strict=True)]
    ratio = statistics.median(ratios)
    cells = f"{statistics.median(ours):.2f} s", f"{statistics.median(java):.2f} s"
    spread = min(ratios), max(ratios)
    wanted = ("< 1x", ratio < 1) if goal else ("", None)
    rows.append(Row(f"{figure}: processor time a million", *cells, ratio, *wanted, spread))
    return rows


def _rates(figure: str, rounds: Rounds, rate: Callable[[Moved], float], goal: float) -> Row:
    ours, java = [rate(one) for one, _ in rounds], [rate(one) for _, one in rounds]
    ratios = [mine / theirs for mine, theirs in zip(ours, java, strict=True)]
    ratio = statistics.median(ratios)
    cells = f"{statistics.median(ours):,.0f}/s", f"{statistics.median(java):,.0f}/s"
    wanted = (f">= {goal:g}x", ratio >= goal) if goal else ("", None)
    return Row(figure, *cells, ratio, *wanted, (min(ratios), max(ratios)))


def latency_rows(rounds: Sequence[tuple[Latencies, Latencies]]) -> list[Row]:
    """Rows of the latency of records at 1,000 a second."""
    found: list[Row] = []
    pieces: tuple[tuple[str, Callable[[Latencies], Sequence[float]]], ...] = (
        ("1,000 records/s, steady", lambda one: one.steady_ms),
        ("first record after a pause", lambda one: one.first_ms),
        ("the seconds after it", lambda one: one.burst_ms),
    )
    for figure, times in pieces:
        for label, point in (("p50", 0.5), ("p99", 0.99)):
            ours = [at(times(one), point) for one, _ in rounds]
            java = [at(times(one), point) for _, one in rounds]
            ratios = [mine / theirs for mine, theirs in zip(ours, java, strict=True)]
            ratio = statistics.median(ratios)
            cells = f"{statistics.median(ours):,.1f} ms", f"{statistics.median(java):,.1f} ms"
            found.append(Row(f"{figure}: {label}", *cells, ratio, "< 1x", ratio < 1, (min(ratios), max(ratios))))
    return found


def idle_rows(ours: Mapping[int, Idle], java: Mapping[int, Idle]) -> list[Row]:
    """Rows of tasks without records: all of a side's processes, without the broker's."""
    found: list[Row] = []
    for count, mine in ours.items():
        theirs = java[count]
        found.append(_lower(f"{count:,} idle tasks: processor", mine.cores, theirs.cores, "cores", 3))
        found.append(_lower(f"{count:,} idle tasks: memory", mine.memory_mb, theirs.memory_mb, "MB", 0))
    return found


def _lower(figure: str, ours: float, java: float, unit: str, digits: int) -> Row:
    ratio = ours / java if java else float("inf")
    return Row(figure, f"{ours:,.{digits}f} {unit}", f"{java:,.{digits}f} {unit}", ratio, "< 1x", ratio < 1)
