"""Tests of matching an earlier relation's columns to today's catalog:
renamed, altered, dropped and added ones, and ambiguous cases.
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from herdmesh.connectors.postgres.cdc.earlier_columns import Attribute, Found, found_again
from herdmesh.connectors.postgres.cdc.pgoutput import RelationColumn

INT, TEXT, BIG = 23, 25, 20
LENGTHS = {INT: 4, TEXT: -1, BIG: 8}


def columns(*described: str) -> list[RelationColumn]:
    """Return columns for texts like `id int`."""
    named = (one.split() for one in described)
    return [RelationColumn(name, {"int": INT, "text": TEXT, "big": BIG}[kind], -1, True) for name, kind in named]


def today(*described: str) -> list[Attribute]:
    """Return attributes for texts like `id int`, and `- int` for a dropped one."""
    found: list[Attribute] = []
    for number, (one, column) in enumerate(zip(described, columns(*described), strict=True), 1):
        kind = 0 if one.startswith("-") else column.type_oid
        found.append(Attribute(number, column.name, kind, -1, LENGTHS[column.type_oid]))
    return found


@pytest.mark.parametrize(
    ("then", "now", "key", "found"),
    [
        (["id int", "v text"], ["id int", "v text"], 1, "id"),
        (["id int", "v text"], ["key int", "v text"], 1, "id"),  # renamed
        (["id int", "v text"], ["key big", "v text"], 1, "id"),  # and altered
        (["id int", "v text"], ["id int", "v text", "w text"], 1, "id"),  # another added
        (["id int", "v text"], ["- int", "v text", "key int"], 3, None),  # dropped, and the key is a newer one
        (["id int", "a int", "v text"], ["key int", "- int", "v text"], 1, "id"),  # renamed, another dropped
        (["id int", "v text"], ["- text", "id int", "v text"], 2, "id"),  # one dropped earlier
        (["a int", "b int"], ["b int", "a int"], 1, "a"),  # the names were swapped
        (["id int", "x int"], ["k int", "id int", "x int"], 1, "id"),  # renamed, and a newer one has its name
    ],
)
def test_a_column_is_found_by_its_place(then: list[str], now: list[str], key: int, found: str | None) -> None:
    again = found_again(columns(*then), today(*now), [key], LENGTHS, may_leave_out=False)
    assert again == Found({key: found} if found else {}, () if found else (key,), ())


def test_a_column_with_two_explanations_is_unclear() -> None:
    """The column was dropped and another added, or one was dropped before and it was renamed."""
    again = found_again(columns("a int"), today("- int", "b int"), [2], LENGTHS, may_leave_out=False)
    assert again == Found({}, (), (2,))


def test_a_publication_may_leave_columns_out() -> None:
    again = found_again(columns("a int", "c int"), today("a int", "b int", "c int"), [1, 2, 3], LENGTHS,
                        may_leave_out=True)  # fmt: skip
    assert again == Found({1: "a", 3: "c"}, (2,), ())


@given(st.data())
def test_every_match_without_ambiguity_is_right(data: st.DataObject) -> None:
    """A table is altered step by step; no matched column is matched wrongly."""
    kinds = st.sampled_from(["int", "text", "big"])
    table: list[tuple[str, str, bool]] = [
        (f"c{at}", data.draw(kinds), False) for at in range(data.draw(st.integers(1, 5)))
    ]
    for _ in range(data.draw(st.integers(0, 2))):
        _drop(data, table)
    then = [(at, f"{name} {kind}") for at, (name, kind, gone) in enumerate(table) if not gone]
    renamed = data.draw(st.integers(0, 2))
    for step in range(renamed):
        at = data.draw(st.integers(0, len(table) - 1))
        name, kind, gone = table[at]
        table[at] = (name if gone else f"renamed{step}", kind, gone)
    table.extend((f"added{step}", data.draw(kinds), False) for step in range(data.draw(st.integers(0, 2))))
    again = found_again(
        columns(*(text for _, text in then)), today(*(f"{'-' if gone else name} {kind}" for name, kind, gone in table)),
        [at + 1 for at, (_, _, gone) in enumerate(table) if not gone], LENGTHS, may_leave_out=False,
    )  # fmt: skip
    names = {at + 1: text.split()[0] for at, text in then}
    assert all(names.get(number) == name for number, name in again.names.items())
    assert not set(again.added) & names.keys()


def _drop(data: st.DataObject, table: list[tuple[str, str, bool]]) -> None:
    at = data.draw(st.integers(0, len(table) - 1))
    if sum(not gone for _, _, gone in table) > 1:
        table[at] = (*table[at][:2], True)
