"""The output of a comparison: rows of a figure, ours, Java's, their ratio and whether the goal is met.

Owns the shape and the text of the table, and no figure.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table. `java` None = Java has no such figure; `ours` is then divided by `against`. `goal` "" =
    for comparison only. `spread`: the minimum and the maximum ratio of several rounds.
    """

    figure: str
    ours: str
    java: str
    ratio: float | None
    goal: str = ""
    met: bool | None = None
    spread: tuple[float, float] | None = None


def table(rows: Sequence[Row]) -> str:
    """The table as text."""
    cells = [("figure", "ours", "Java", "ratio", "goal", "")]
    for row in rows:
        met = "" if row.met is None else "met" if row.met else "NOT MET"
        cells.append((row.figure, row.ours, row.java, _ratio(row), row.goal, met))
    widths = [max(len(line[column]) for line in cells) for column in range(6)]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in cells]
    return "\n".join([lines[0], "-" * len(lines[0]), *lines[1:]])


def _ratio(row: Row) -> str:
    if row.ratio is None:
        return "-"
    text = f"{row.ratio:.2f}"
    return text if row.spread is None else f"{text} ({row.spread[0]:.2f} to {row.spread[1]:.2f})"
