"""A table without borders that fits the terminal it is printed on.

Owns the layout: the columns that fit, their widths, the cut and folded cells. Knows no command:
`herdmesh.cli.display.output` names the columns. One pass over the cells; rich measures, wraps and pads each cell by
itself, which takes seconds for the tasks of a connector of 500.

On a terminal, columns that do not fit are first cut or folded down to a floor, then left out, the least important
first. One column of a table may be its story, such as the reason for a state: where it has no room beside the columns
that matter, it is printed below its row, and an empty story takes no room.
In a pipe all columns and whole cells are printed, and a long cell moves only its own line.

Invariant: a cell of a `KEEP` column is printed whole or not at all; the first column is never left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderResult
from rich.segment import Segment
from rich.style import Style
from rich.text import Text

_GAP: Final = 2
#: In a pipe a cell that is longer than this makes no other line longer.
_ALIGNED_MAX: Final = 40
#: A column that may be cut or folded keeps this width while a less important column can be left out instead.
FLOOR: Final = 16
#: A name gets this width before a story gets more than its floor.
_NAME_WIDTH: Final = 40
#: A story beside its row has this width at least, and this part of the terminal.
_STORY_FLOOR: Final = 32
_STORY_PART: Final = 3
_STORY_INDENT: Final = 2
_HEADER_STYLE: Final = Style.parse("bold dim")
#: The width of an output that is not a terminal: whole lines, so that a search in it finds whole texts.
PIPE_WIDTH: Final = 100_000


class Fit(Enum):
    """What may happen to a cell that is wider than its column."""

    KEEP = auto()
    """Nothing: states and numbers, which mean something else when they are cut."""
    CUT = auto()
    """The cell stays on its line and ends with an ellipsis."""
    MIDDLE = auto()
    """The cell stays on its line with an ellipsis in its middle: many names begin alike and end in a number."""
    FOLD = auto()
    """The cell continues on the next line."""


@dataclass(frozen=True, slots=True)
class ScreenColumn:
    """A column. `rank` is its importance: the lowest is left out first, None never; a minor one is left out before the
    story moves below its row. `floor` is the width down to which it is cut or folded.
    """

    name: str
    fit: Fit = Fit.FOLD
    is_number: bool = False
    rank: int | None = None
    is_minor: bool = False
    is_story: bool = False
    floor: int = FLOOR


@dataclass(frozen=True, slots=True)
class _Layout:
    """The columns beside each other with their widths, and the column that is printed below its row."""

    shown: list[int]
    widths: list[int]
    below: int | None = None


class ScreenTable:
    """A rich renderable. Cells are markup; `title` is markup or None.

    The console may have `whole`: True = nothing is cut, folded or left out; and `headers`: False = no line of column
    names.
    """

    def __init__(self, title: str | None, columns: Sequence[ScreenColumn], rows: Sequence[Sequence[str]]) -> None:
        self.title = title
        self.columns = tuple(columns)
        self.rows = rows
        self._layout: _Layout | None = None
        self.is_followed = False
        """True = later tables continue it, so its story gets the room of a long one, however short it is now."""
        self._has_header = True

    def continue_after(self, earlier: ScreenTable) -> None:
        """Print only rows, in the columns and widths of a table that was printed before."""
        self._layout = earlier._layout
        self._has_header = False

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        cells = [[_text(cell) for cell in row] for row in self.rows]
        headers = [Text(column.name, style=_HEADER_STYLE, end="") for column in self.columns]
        lines = [headers, *cells] if self._has_header and getattr(console, "headers", True) else cells
        if self.title:
            title = Text.from_markup(self.title, style="table.title", emoji=False, end="")
            yield from title.render(console)
            yield Segment.line()
        whole = getattr(console, "whole", False) or options.max_width >= PIPE_WIDTH
        if self._layout is None:
            limit = _ALIGNED_MAX if whole else None
            natural = [_width_of((line[at] for line in (headers, *cells)), limit) for at in range(len(self.columns))]
            every = list(range(len(natural)))
            self._layout = _Layout(every, natural) if whole else self._fitted(natural, options.max_width)
        for number, line in enumerate(lines):
            is_header = number == 0 and line is headers
            yield from self._row(console, line, self._layout, whole=whole)
            if self._layout.below is not None and not is_header:
                yield from self._story(console, line[self._layout.below], self._layout.below, options.max_width)

    def _fitted(self, natural: Sequence[int], width: int) -> _Layout:
        """The columns that are shown, and their widths."""
        every = list(range(len(natural)))
        story = next((at for at in every[1:] if self.columns[at].is_story), None)
        if story is not None and self.is_followed:
            natural = [width if at == story else wide for at, wide in enumerate(natural)]
        floors = [self._floor(at, natural[at], width) for at in every]
        shown = self._left_in(every, floors, width, minor_only=story is not None)
        if story is not None and _total(floors, shown) > width:
            shown = self._left_in([at for at in every if at != story], floors, width, minor_only=False)
        else:
            story = None
        return _Layout(shown, self._widths(natural, floors, shown, width), story)

    def _floor(self, at: int, natural: int, width: int) -> int:
        column = self.columns[at]
        if column.fit is Fit.KEEP:
            return natural
        return min(natural, max(_STORY_FLOOR, width // _STORY_PART) if column.is_story else column.floor)

    def _left_in(self, columns: Sequence[int], floors: Sequence[int], width: int, *, minor_only: bool) -> list[int]:
        """The columns without the least important ones, until their floors fit."""
        shown = list(columns)
        while _total(floors, shown) > width:
            ranked = [
                (rank, at)
                for at in shown[1:]
                if (rank := self.columns[at].rank) is not None and (self.columns[at].is_minor or not minor_only)
            ]
            if not ranked:
                break
            shown.remove(min(ranked)[1])
        return shown

    def _widths(self, natural: Sequence[int], floors: Sequence[int], shown: Sequence[int], width: int) -> list[int]:
        """The widths of the shown columns: floors, then names, then equal shares of the rest."""
        flexible = [at for at in shown if self.columns[at].fit is not Fit.KEEP]
        free = width - _total(floors, shown)
        if free < 0:  # narrower than all floors: what is left after the states, in equal parts
            kept = sum(floors[at] for at in shown) - sum(floors[at] for at in flexible)
            given = _shares(
                {at: floors[at] for at in flexible},
                max(width - kept - _GAP * (len(shown) - 1), 0),
                dict.fromkeys(flexible, 0),
            )
            return [max(given.get(at, natural[at]), 1) for at in shown]
        given = {at: min(floors[at], _STORY_FLOOR) if self.columns[at].is_story else floors[at] for at in flexible}
        free += sum(floors[at] for at in flexible) - sum(given.values())
        names = {at: min(natural[at], _NAME_WIDTH) for at in flexible if self.columns[at].fit is Fit.MIDDLE}
        for wanted in (names, {at: natural[at] for at in flexible}):
            before = sum(given.values())
            given |= _shares(wanted, free, given)
            free -= sum(given.values()) - before
        return [given.get(at, natural[at]) for at in shown]

    def _story(self, console: Console, cell: Text, at: int, width: int) -> Iterator[Segment]:
        """The story of a row, below it."""
        if not cell.plain:
            return
        for line in self._within(console, cell, self.columns[at].fit, max(width - _STORY_INDENT, 1)):
            yield Segment(" " * _STORY_INDENT)
            yield from line.render(console)
            yield Segment.line()

    def _row(self, console: Console, row: Sequence[Text], layout: _Layout, *, whole: bool) -> Iterator[Segment]:
        """The lines of one row: one, or more where a cell is folded."""
        shown, widths = layout.shown, layout.widths
        cells = [[row[at]] for at in shown]
        if not whole:
            cells = [
                self._within(console, row[at], self.columns[at].fit, width)
                for at, width in zip(shown, widths, strict=True)
            ]
        for number in range(max(map(len, cells), default=0)):
            before = 0
            for at, lines, width in zip(shown, cells, widths, strict=True):
                cell = lines[number] if number < len(lines) else None
                blank = width - (cell.cell_len if cell is not None else 0)
                if cell is not None and cell.plain:
                    lead = before + (max(blank, 0) if self.columns[at].is_number else 0)
                    if lead:
                        yield Segment(" " * lead)
                    yield from cell.render(console)
                    before = _GAP + (0 if self.columns[at].is_number else max(blank, 0))
                else:  # blanks are printed only before the next cell: no line ends with them
                    before += width + _GAP
            yield Segment.line()

    @staticmethod
    def _within(console: Console, cell: Text, fit: Fit, width: int) -> list[Text]:
        if cell.cell_len <= width or fit is Fit.KEEP:
            return [cell]
        if fit is Fit.CUT:
            cell = cell.copy()
            cell.truncate(width, overflow="ellipsis")
            return [cell]
        if fit is Fit.MIDDLE:
            return [_without_middle(cell, width)]
        folded = list(cell.wrap(console, max(width, 1), overflow="fold"))
        for line in folded:
            line.rstrip()
            line.end = ""
        return folded


def _without_middle(cell: Text, width: int) -> Text:
    head, tail = 0, len(cell)
    left = width - 1
    while left > 0:
        at = head if head <= len(cell) - tail else tail - 1
        left -= cell_len(cell.plain[at])
        if left < 0:
            break
        head, tail = (head + 1, tail) if at == head else (head, tail - 1)
    return Text.assemble(cell[:head], "…", cell[tail:], end="")


def _total(widths: Sequence[int], shown: Sequence[int]) -> int:
    """The width of a line of these columns."""
    return sum(widths[at] for at in shown) + _GAP * (len(shown) - 1)


def _shares(wanted: dict[int, int], free: int, given: dict[int, int]) -> dict[int, int]:
    """Widths of columns that have `given` and want `wanted`: the free width in equal parts, the modest ones first."""
    more = {at: max(width - given[at], 0) for at, width in wanted.items()}
    found: dict[int, int] = {}
    for count, at in zip(range(len(more), 0, -1), sorted(more, key=more.__getitem__), strict=True):
        part = min(more[at], free // count)
        found[at] = given[at] + part
        free -= part
    return found


def _width_of(cells: Iterator[Text], limit: int | None) -> int:
    """The widest cell; with a limit the widest of those within it."""
    widths = [cell.cell_len for cell in cells]
    return max((width for width in widths if limit is None or width <= limit), default=0)


def _text(cell: str) -> Text:
    """A cell of one line: blanks for line ends and other control characters."""
    text = Text.from_markup(cell, emoji=False, end="") if "[" in cell else Text(cell, end="")
    if not text.plain.isprintable():
        text.plain = "".join(one if one.isprintable() else " " for one in text.plain)
    return text
