"""What is measured at each size, and the law by which each figure grows.

Owns the order of the questions and the text of the table. A law is the line through all sizes by least squares: what a
figure is without any unit, and how much each unit adds.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence

#: tasks of the connectors in turn: 1,120 tasks, so 1,820 units, at 700 connectors.
TASKS = (1, 2, 1, 2, 2)


def units_of(connectors: int) -> int:
    """Connectors and their tasks."""
    return sum(1 + TASKS[number % len(TASKS)] for number in range(connectors))


def law(units: Sequence[int], values: Sequence[float]) -> str:
    """`0.4 + 2.1 a 1,000 units`: the line through the points; `-` for fewer than two sizes."""
    if len(set(units)) < 2:
        return "-"
    slope, intercept = statistics.linear_regression(units, values)
    return f"{intercept:.3g} {'+' if slope >= 0 else '-'} {abs(slope) * 1000:.3g} a 1,000 units"


def table(measured: Mapping[int, Mapping[str, float]]) -> str:
    """One column a size (by connectors), one row a figure, and its law, as a Markdown table."""
    sizes = sorted(measured)
    units = [units_of(size) for size in sizes]
    heads = [f"{size:,} connectors, {count:,} units" for size, count in zip(sizes, units, strict=True)]
    lines = [f"| figure | {' | '.join(heads)} | law |", f"|---|{'---:|' * len(sizes)}---|"]
    for figure in measured[sizes[0]]:
        values = [measured[size][figure] for size in sizes]
        lines.append(f"| {figure} | {' | '.join(f'{value:,.4g}' for value in values)} | {law(units, values)} |")
    return "\n".join(lines)
