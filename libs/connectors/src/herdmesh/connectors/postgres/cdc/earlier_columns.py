"""Matching of an earlier relation's columns to today's catalog.

Owns the comparison. pgoutput describes a relation at the time when a row was written: names, types and order of its
columns. Today's catalog has the same columns by number; since then some may have been renamed, altered, dropped or
added. Numbers increase and are never reused, and a dropped column keeps its number with neither name nor type. So the
relation's columns are an ordered selection of today's, and the cheapest selection is assumed: an unchanged column costs
nothing, a renamed or altered one more.

Invariant: a column is matched only if no other explanation is as cheap.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from herdmesh.connectors.postgres.cdc.pgoutput import RelationColumn

_IMPOSSIBLE: Final = 1_000_000
_ALTERED, _RENAMED, _BOTH, _DROPPED = 1, 3, 5, 3
#: Cost of a column that existed then and is not in the relation: a publication leaves it out, or it was generated then.
_LEFT_OUT, _GENERATED_THEN = 1, 1_000


class Attribute(NamedTuple):
    """A column of today's catalog (`pg_attribute`), which may be dropped."""

    number: int
    name: str
    type_oid: int
    """0 = dropped."""
    type_modifier: int
    length: int
    """`attlen`, which a dropped column keeps."""


class Found(NamedTuple):
    """The result for the requested columns."""

    names: Mapping[int, str]
    """Column names in the relation, by number."""
    added: tuple[int, ...]
    """Numbers of columns that are newer than the relation."""
    unclear: tuple[int, ...]
    """Numbers of columns with several explanations."""


def found_again(
    columns: Sequence[RelationColumn],
    today: Sequence[Attribute],
    asked: Sequence[int],
    lengths: Mapping[int, int],
    *,
    may_leave_out: bool,
) -> Found:
    """Find the relation's columns for the requested column numbers.

    Args:
        columns: of the relation, in its order.
        today: in the order of their numbers, without generated columns.
        asked: the requested numbers.
        lengths: `typlen` by type, for types that still exist.
        may_leave_out: a publication has a list of this table's columns.
    """
    live = [(one.name, one.type_oid, one.type_modifier) for one in today if one.type_oid]
    if live == [(one.name, one.type_oid, one.type_modifier) for one in columns]:
        return Found({one.number: one.name for one in today if one.type_oid and one.number in asked}, (), ())
    costs = [[_cost(column, one, lengths) for one in today] for column in columns]
    skips = [0 if not one.type_oid else _LEFT_OUT if may_leave_out else _GENERATED_THEN for one in today]
    before = _best(costs, skips, ends_free=False)
    after = _mirrored(_best([row[::-1] for row in costs[::-1]], skips[::-1], ends_free=True))
    best = after[0][0]
    names: dict[int, str] = {}
    added: list[int] = []
    unclear: list[int] = []
    for place, one in enumerate(today):
        if one.number not in asked:
            continue
        matches = [
            column.name for at, column in enumerate(columns)
            if before[at][place] + costs[at][place] + after[at + 1][place + 1] == best < _IMPOSSIBLE
        ]  # fmt: skip
        # After the relation's last column it is newer; before that it was left out.
        is_newer = best in before[len(columns)][: place + 1]
        is_absent = is_newer or any(
            before[at][place] + skips[place] + after[at][place + 1] == best for at in range(len(columns))
        )
        if best >= _IMPOSSIBLE or len(matches) + is_absent != 1:
            unclear.append(one.number)
        elif matches:
            names[one.number] = matches[0]
        else:
            added.append(one.number)
    return Found(names, tuple(added), tuple(unclear))


def _cost(column: RelationColumn, today: Attribute, lengths: Mapping[int, int]) -> int:
    is_same_type = (column.type_oid, column.type_modifier) == (today.type_oid, today.type_modifier)
    if not today.type_oid:
        same_length = lengths.get(column.type_oid, today.length) == today.length
        return _DROPPED if same_length and column.type_modifier == today.type_modifier else _IMPOSSIBLE
    if column.name == today.name:
        return 0 if is_same_type else _ALTERED
    return _RENAMED if is_same_type else _BOTH


def _best(costs: Sequence[Sequence[int]], skips: Sequence[int], *, ends_free: bool) -> list[list[int]]:
    """Return the minimum cost of matching the first n columns of the relation with the first m of today's columns.
    `ends_free`: columns before the first match cost nothing, because they are newer (the costs are reversed).
    """
    best = [[_IMPOSSIBLE] * (len(skips) + 1) for _ in range(len(costs) + 1)]
    best[0][0] = 0
    for place, skip in enumerate(skips):
        best[0][place + 1] = 0 if ends_free else best[0][place] + skip
    for at, row in enumerate(costs):
        for place, cost in enumerate(row):
            best[at + 1][place + 1] = min(best[at][place] + cost, best[at + 1][place] + skips[place])
    return best


def _mirrored(best: list[list[int]]) -> list[list[int]]:
    return [row[::-1] for row in best[::-1]]
