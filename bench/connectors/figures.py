"""The rows of the table for the runs of one row.

Owns the comparison: the goal holds against each of Java's ways; the fastest, by the median of its rounds, comes first.
An older tree of ours (`BEFORE`) is compared too, with a goal of its own. Ratios are of one round each, as in
`bench.records`.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence

from bench.connectors.postgres import Loaded
from bench.records.figures import Rounds, rate_rows
from bench.records.moving import Moved
from bench.table import Row

BEFORE = "herdmesh, before"
NOT_SLOWER = 0.97
"""The goal against an older tree: two rounds of one tree differ by as much."""


def rows_of(
    figure: str, goal: float, ours: Sequence[Moved], javas: Mapping[str, Sequence[Moved]], *, steady: bool
) -> list[Row]:
    """Rows of ours against each of Java's ways, by its label, the fastest first; all have equally many rounds, in
    order.
    """
    if not javas:
        return []
    order = sorted(javas, key=lambda label: statistics.median(one.total for one in javas[label]), reverse=True)
    found: list[Row] = []
    for label in order:
        against = figure if order == [label] and label != BEFORE else f"{figure}, against {label}"
        rounds = list(zip(ours, javas[label], strict=True))
        found += rate_rows(against, NOT_SLOWER if label == BEFORE else goal, rounds, steady=steady)
        found += _server_rows(against, rounds)
    return found


def _server_rows(figure: str, rounds: Rounds) -> list[Row]:
    """Rows of the database server's processor time, where there is a server."""
    pairs = [(mine, theirs) for mine, theirs in rounds if isinstance(mine, Loaded) and isinstance(theirs, Loaded)]
    if not pairs:
        return []
    ours, java = ([one[side].server_per_million_s for one in pairs] for side in (0, 1))
    ratios = [mine / theirs for mine, theirs in zip(ours, java, strict=True)]
    cells = f"{statistics.median(ours):.2f} s", f"{statistics.median(java):.2f} s"
    spread = min(ratios), max(ratios)
    return [Row(f"{figure}: the server's of it a million", *cells, statistics.median(ratios), spread=spread)]
