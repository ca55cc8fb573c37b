"""The figures at each size, the law by which each grows, and the goals.

Owns the text of the table, the fit of a law and the goals of issue 25. The law is the first of constant, linear, n log
n and quadratic for which no later one has less than half its error.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping, Sequence

#: tasks of the connectors in turn: 1,120 tasks, so 1,820 units, at 700 connectors.
TASKS = (1, 2, 1, 2, 2)
#: a figure is constant if it varies by at most this share of its mean; a law with a larger root mean square error is
#: doubtful.
_ERROR_MAX = 0.10
#: differences too small for these measurements, by the end of the figure's name.
_NOISE = {", MB": 3.0, ", ms": 15.0, ", s": 0.5, "threads": 3.0, "a second": 0.0}
#: n is in thousands of units, so that the numbers are readable.
_GROWTH: Mapping[str, tuple[Callable[[float], float], str]] = {
    "linear": (lambda n: n, "n"),
    "n log n": (lambda n: n * math.log2(1_000 * n), "n log2 n"),
    "quadratic": (lambda n: n * n, "n^2"),
}


def units_of(connectors: int) -> int:
    """Number of connectors and their tasks."""
    return sum(1 + TASKS[number % len(TASKS)] for number in range(connectors))


def law(figure: str, units: Sequence[int], values: Sequence[float]) -> str:
    """`linear: 0.4 + 2.1 n`, n in thousands of units; `-` for fewer than two sizes. If no law fits, the text has its
    error.
    """
    if len(set(units)) < 2:
        return "-"
    mean = statistics.fmean(values)
    noise = next((noise for ending, noise in _NOISE.items() if figure.endswith(ending)), 0.0)
    scale = abs(mean) or 1.0
    spread = statistics.pstdev(values)
    if spread <= _ERROR_MAX * scale or max(values) - min(values) <= noise:
        return f"constant: {mean:.3g}"
    found = f"constant: {mean:.3g}"
    least = spread / scale
    for name, (grows, symbol) in _GROWTH.items():
        if name != "linear" and len(set(units)) < 3:
            continue
        points = [grows(unit / 1_000) for unit in units]
        slope, start = statistics.linear_regression(points, values)
        if slope < 0 and name != "linear":
            continue
        squares = [(value - start - slope * point) ** 2 for point, value in zip(points, values, strict=True)]
        error = math.sqrt(statistics.fmean(squares)) / scale
        if error < least / 2:
            least = error
            found = f"{name}: {start:.3g} {'-' if slope < 0 else '+'} {abs(slope):.3g} {symbol}"
    return found if least <= _ERROR_MAX else f"{found} (error {least:.0%})"


def table(measured: Mapping[int, Mapping[str, float]], units: Callable[[int], int] = units_of) -> str:
    """A Markdown table with one column per size, one row per figure, and its law. `units` maps a size to its units:
    identity where sizes are units.
    """
    sizes = sorted(measured)
    counts = [units(size) for size in sizes]
    heads = [
        f"{count:,} units" if count == size else f"{size:,} connectors, {count:,} units"
        for size, count in zip(sizes, counts, strict=True)
    ]
    lines = [f"| figure | {' | '.join(heads)} | law, n in 1,000 units |", f"|---|{'---:|' * len(sizes)}---|"]
    for figure in dict.fromkeys(figure for size in sizes for figure in measured[size]):
        found = [measured[size].get(figure) for size in sizes]
        known = [(count, value) for count, value in zip(counts, found, strict=True) if value is not None]
        shown = " | ".join("-" if value is None else f"{value:,.4g}" for value in found)
        lines.append(f"| {figure} | {shown} | {law(figure, *zip(*known, strict=True))} |")
    return "\n".join(lines)


#: of issue 25, up to 700 connectors: the beginning of a figure's name, and its minimum or maximum.
AT_LEAST = {"lists with status": 200.0}
AT_MOST = {
    "200 watchers: last snapshot": 5.0,
    "200 watchers: memory": 150.0,
    "a connector of 500 tasks: described": 1_000.0,
    "slowest step": 50.0,
    "times that the leader lost": 0.0,
    # Spark's two pools of 100, and the threads of its slots: `bench/README.md`, "Threads of a worker's JVM".
    "all run: worker's JVM: threads": 340.0,
    "in the end: worker's JVM: threads": 340.0,
}


def missed(figures: Mapping[str, float]) -> list[str]:
    """The goals that these figures miss, each as a sentence."""
    found: list[str] = []
    for figure, value in figures.items():
        least = next((goal for start, goal in AT_LEAST.items() if figure.startswith(start)), None)
        most = next((goal for start, goal in AT_MOST.items() if figure.startswith(start)), None)
        if least is not None and value < least:
            found.append(f"{figure}: {value:.4g}, at least {least:g} wanted")
        if most is not None and value > most:
            found.append(f"{figure}: {value:.4g}, at most {most:g} wanted")
    return found
