"""Tests of the line breaks of sentences."""

from __future__ import annotations

import io

from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console
from rich.markup import escape

from herdmesh.cli.display.sentences import Sentence


def printed(text: str, width: int, *, terminal: bool = True, hang: int = 2, brief: str | None = None) -> list[str]:
    console = Console(file=io.StringIO(), width=width, force_terminal=terminal, color_system=None, highlight=False)
    console.print(Sentence(text, hang, brief), crop=False)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue().splitlines()


_WORDS = st.lists(st.text(st.characters(categories=("L", "N")), min_size=1, max_size=12), min_size=1, max_size=30)


@given(_WORDS, st.integers(30, 120))
def test_no_word_is_lost_or_broken_and_no_line_is_too_wide(words: list[str], width: int) -> None:
    lines = printed(escape(" ".join(words)), width)
    assert " ".join(line.strip() for line in lines).split() == " ".join(words).split()
    for line in lines:
        assert cell_len(line) <= width
    assert all(line.startswith("  ") for line in lines[1:])


def test_a_command_in_backticks_stays_in_one_piece() -> None:
    lines = printed("remove the cause, then `herd restart orders --include-tasks --only-failed`.", 30)
    assert lines == ["remove the cause, then", "  `herd restart orders --include-tasks --only-failed`."]


def test_lines_of_a_text_stay_lines_and_an_indent_stays() -> None:
    assert printed("  [bold]a b[/]\nc", 80) == ["  a b", "c"]
    assert printed("  " + "word " * 8, 24, hang=4) == ["  word word word word", "    word word word word"]


def test_a_pipe_has_one_line_and_the_whole_text() -> None:
    whole = "word " * 40 + "end"
    assert printed(whole, 30, terminal=False, brief="short") == [whole]
    assert printed(whole, 30, brief="short") == ["short"]
