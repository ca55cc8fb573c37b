"""Tests that a quick table prints the same as rich, without rich's passes over every cell."""

from __future__ import annotations

import io
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from herdmesh.cli.quick_table import QuickTable

_CELLS = st.one_of(
    st.text(st.characters(exclude_categories=("Cs",)), max_size=12).map(escape),
    st.sampled_from(["[green]RUNNING[/]", "[bold red]FAILED[/] 3", "", "a b  c", "日本", "e\u0301", "-"]),
)


def _printed(kind: type[Table], title: str | None, rows: list[list[str]], width: int) -> str:
    to = io.StringIO()
    table = kind(title=title, title_justify="left", box=None, pad_edge=False, header_style="bold dim")
    for at in range(len(rows[0])):
        justify = "right" if at % 2 else "left"
        table.add_column(f"COLUMN {at}", justify=justify, overflow="fold")
    for row in rows:
        table.add_row(*row)
    Console(file=to, width=width, force_terminal=True, color_system="truecolor", highlight=False).print(table)
    return to.getvalue()


@given(
    st.integers(1, 4).flatmap(lambda count: st.lists(st.lists(_CELLS, min_size=count, max_size=count), min_size=1)),
    st.sampled_from([None, "title", "\ntitle"]),
    st.sampled_from([20, 80, 1_000]),
)
def test_the_output_equals_that_of_rich(rows: list[list[str]], title: str | None, width: int) -> None:
    assert _printed(QuickTable, title, rows, width) == _printed(Table, title, rows, width)


@pytest.mark.parametrize("count", [1, 500])
def test_cells_that_fit_skip_richs_layout(count: int) -> None:
    rows = [[str(number), "[green]RUNNING[/]", "127.0.0.1:7204"] for number in range(count)]
    with mock.patch.object(Table, "_render", side_effect=AssertionError("laid out by rich")):
        printed = _printed(QuickTable, "\ntasks", rows, 200)
    assert printed.count("127.0.0.1:7204") == count
