"""Tests of the layout of tables on terminals of every width, and in pipes."""

from __future__ import annotations

import io
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console
from rich.markup import escape

from herdmesh.cli.display.tables import PIPE_WIDTH, Fit, ScreenColumn, ScreenTable

_COLUMNS = (
    ScreenColumn("NAME", Fit.MIDDLE),
    ScreenColumn("TYPE", Fit.KEEP, rank=1),
    ScreenColumn("STATE", Fit.KEEP),
    ScreenColumn("LAG", Fit.KEEP, is_number=True, rank=2),
    ScreenColumn("ATTENTION", Fit.CUT),
)
_CELLS = st.one_of(
    st.text(st.characters(exclude_categories=("Cs",)), max_size=30).map(escape),
    st.sampled_from(["", "a b  c", "日本", "e\u0301", "-", "[yellow]x[/]"]),
)
_STATES = st.sampled_from(["[green]RUNNING[/]", "[bold red]FAILED[/]", "UNASSIGNED"])
_ROWS = st.lists(
    st.tuples(_CELLS, st.sampled_from(["sink", "source"]), _STATES, st.integers(0, 10**9).map(str), _CELLS), max_size=5
)


def printed(table: ScreenTable, width: int, *, headers: bool = True, whole: bool = False) -> list[str]:
    console = Console(file=io.StringIO(), width=width, force_terminal=True, color_system=None, highlight=False)
    console.headers, console.whole = headers, whole  # pyright: ignore[reportAttributeAccessIssue]
    console.print(table, crop=False)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue().splitlines()


@given(_ROWS, st.integers(36, 200))
def test_no_line_is_wider_than_the_terminal_and_no_state_is_cut(rows: list[tuple[str, ...]], width: int) -> None:
    header, *lines = printed(ScreenTable(None, _COLUMNS, rows), width)
    assert header.split()[-1] == "ATTENTION"
    assert len(lines) == len(rows), "a line for each row"
    for line, row in zip(lines, rows, strict=True):
        assert cell_len(line) <= width
        assert any(state in line for state in ("RUNNING", "FAILED", "UNASSIGNED") if state in row[2])


@given(_ROWS)
def test_a_pipe_has_every_cell_whole_and_no_blank_at_an_end(rows: list[tuple[str, ...]]) -> None:
    lines = printed(ScreenTable(None, _COLUMNS, rows), PIPE_WIDTH)
    assert len(lines) == 1 + len(rows)
    for line, row in zip(lines[1:], rows, strict=True):
        assert row[1] in line
        assert row[3] in line
        assert line == line.rstrip(" ") or row[-1][-1:].isspace() or not row[-1].isprintable()


def test_a_long_cell_in_a_pipe_makes_no_other_line_longer() -> None:
    rows = [("a" * 300, "sink", "RUNNING", "1", "x" * 400), ("b", "sink", "RUNNING", "2", "")]
    lines = printed(ScreenTable(None, _COLUMNS, rows), PIPE_WIDTH)
    assert len(lines[1]) > 700
    assert lines[2] == "b     sink  RUNNING    2"


def test_the_least_important_column_is_left_out_first() -> None:
    rows = [("orders", "sink", "RUNNING", "1,234,567", "disk full " * 9)]
    headers = [printed(ScreenTable(None, _COLUMNS, rows), width)[0].split() for width in (80, 50, 45, 36)]
    assert headers == [
        ["NAME", "TYPE", "STATE", "LAG", "ATTENTION"],
        ["NAME", "TYPE", "STATE", "LAG", "ATTENTION"],
        ["NAME", "STATE", "LAG", "ATTENTION"],
        ["NAME", "STATE", "ATTENTION"],
    ]


def test_a_name_keeps_its_end() -> None:
    rows = [("orders-eu-central-1-to-warehouse/17", "sink", "RUNNING", "1", "")]
    assert printed(ScreenTable(None, _COLUMNS, rows), 36)[1].startswith("orders-e…ouse/17  RUNNING")


def test_a_text_that_may_fold_continues_under_its_column() -> None:
    columns = (ScreenColumn("KEY"), ScreenColumn("VALUE"))
    lines = printed(ScreenTable("config", columns, [("path", "a" * 50)]), 40)
    assert lines[0] == "config"
    assert lines[2].startswith("path  aaa")
    assert lines[3].startswith("      aaa")
    assert sum(line.count("a") for line in lines[2:]) == 51
    assert all(len(line) <= 40 for line in lines)


def test_a_whole_table_is_neither_cut_nor_folded() -> None:
    rows = [("a" * 60, "sink", "RUNNING", "1", "x" * 60)]
    assert len(printed(ScreenTable(None, _COLUMNS, rows), 40, whole=True)[1]) > 120


def test_a_table_without_headers_has_its_rows_alone() -> None:
    assert printed(ScreenTable(None, _COLUMNS, [("a", "sink", "RUNNING", "1", "")]), 80, headers=False) == [
        "a     sink  RUNNING    1"
    ]


def test_rows_after_a_table_have_its_columns() -> None:
    first = ScreenTable(None, _COLUMNS, [("orders-of-today", "sink", "RUNNING", "1", "")])
    header, line = printed(first, 60)
    later = ScreenTable(None, _COLUMNS, [("o", "sink", "FAILED", "2", "disk full")])
    later.continue_after(first)
    assert printed(later, 60) == ["o                sink  FAILED     2  disk full"]
    assert header.index("STATE") == line.index("RUNNING") == 23


def test_a_story_of_a_followed_table_has_the_room_of_a_long_one() -> None:
    columns = (*_COLUMNS[:-1], ScreenColumn("ATTENTION", Fit.CUT, is_story=True))
    for width, lines in ((50, ["o     sink  FAILED     2", "  disk full /var/lib/x"]), (90, None)):
        first = ScreenTable(None, columns, [("name", "sink", "RUNNING", "1", "")])
        first.is_followed = True
        printed(first, width)
        later = ScreenTable(None, columns, [("o", "sink", "FAILED", "2", "disk full /var/lib/x")])
        later.continue_after(first)
        assert printed(later, width) == (lines or ["o     sink  FAILED     2  disk full /var/lib/x"])


@pytest.mark.parametrize("width", range(20, 130, 10))
def test_a_story_is_whole_below_its_row_or_has_a_third_of_the_terminal_beside_it(width: int) -> None:
    columns = (*_COLUMNS[:-1], ScreenColumn("WHY", Fit.FOLD, is_story=True))
    rows = [
        ("orders-eu-central-1", "sink", "RUNNING", "1,234,567", "the disk is full " * 6),
        ("b", "sink", "PAUSED", "1", ""),
    ]
    header, *lines = printed(ScreenTable(None, columns, rows), width)
    text = " ".join(" ".join(lines).split())
    assert text.count("full") == 6, "folded, never cut"
    if "WHY" in header:
        assert width - header.index("WHY") >= min(32, width // 3)
    else:
        assert lines[1].startswith("  the disk")
    assert all(cell_len(line) <= width for line in (header, *lines))


def test_markup_and_emoji_codes_in_texts_stay_as_they_are() -> None:
    rows = [(escape("[conn|0] :smile:"), "sink", "RUNNING", "1", escape("line\nnext\x1b[31m"))]
    assert printed(ScreenTable(None, _COLUMNS, rows), 80)[1].split("  ")[0] == "[conn|0] :smile:"
    assert "\x1b" not in printed(ScreenTable(None, _COLUMNS, rows), 80)[1]


def test_a_thousand_rows_are_laid_out_in_a_fraction_of_a_second() -> None:
    rows = [(f"sink-{number}", "sink", "[green]RUNNING[/]", str(number), "") for number in range(1_000)]
    began_s = time.process_time()
    assert len(printed(ScreenTable(None, _COLUMNS, rows), 120)) == 1_001
    assert time.process_time() - began_s < 1.0, "rich takes seconds"


@pytest.mark.parametrize("width", [1, 5, 12])
def test_a_terminal_that_is_too_narrow_for_a_state_shows_it_anyway(width: int) -> None:
    lines = printed(ScreenTable(None, _COLUMNS, [("orders", "sink", "RUNNING", "1", "disk full")]), width)
    assert "RUNNING" in lines[1]
