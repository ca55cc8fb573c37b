"""A table without borders that fits the terminal it is printed on.

Owns the layout: the columns that fit, their widths, the cut and folded cells. Knows no command:
`herdmesh.cli.display.output` names the columns. One pass over the cells; rich measures, wraps and pads each cell by
itself, which takes seconds for the tasks of a connector of 500.

On a terminal, columns that do not fit are first cut or folded down to a floor, then left out, the least important
first.
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
_FLOOR: Final = 16
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
    """A column. `rank` is its importance: the lowest is left out first, None never."""

    name: str
    fit: Fit = Fit.FOLD
    is_number: bool = False
    rank: int | None = None


class ScreenTable:
    """A rich renderable. Cells are markup; `title` is markup or None.

    The console may have `whole`: True = nothing is cut, folded or left out; and `headers`: False = no line of column
    names.
    """

    def __init__(self, title: str | None, columns: Sequence[ScreenColumn], rows: Sequence[Sequence[str]]) -> None:
        self.title = title
        self.columns = tuple(columns)
        self.rows = rows
        self._layout: tuple[list[int], list[int]] | None = None
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
            self._layout = (every, natural) if whole else self._fitted(natural, options.max_width)
        shown, widths = self._layout
        for line in lines:
            yield from self._row(console, [line[at] for at in shown], shown, widths, whole=whole)

    def _fitted(self, natural: Sequence[int], width: int) -> tuple[list[int], list[int]]:
        """The columns that are shown, and their widths."""
        shown = list(range(len(natural)))
        while self._least_width(natural, shown) > width:
            ranked = [(rank, at) for at in shown[1:] if (rank := self.columns[at].rank) is not None]
            if not ranked:
                break
            shown.remove(min(ranked)[1])
        kept = sum(natural[at] for at in shown if self.columns[at].fit is Fit.KEEP)
        free = max(width - _GAP * (len(shown) - 1) - kept, 0)
        given = _shares({at: natural[at] for at in shown if self.columns[at].fit is not Fit.KEEP}, free)
        return shown, [given.get(at, natural[at]) for at in shown]

    def _least_width(self, natural: Sequence[int], shown: Sequence[int]) -> int:
        """The smallest width of these columns in which no cell is cut below the floor."""
        widths = (natural[at] if self.columns[at].fit is Fit.KEEP else min(natural[at], _FLOOR) for at in shown)
        return sum(widths) + _GAP * (len(shown) - 1)

    def _row(
        self, console: Console, row: Sequence[Text], shown: Sequence[int], widths: Sequence[int], *, whole: bool
    ) -> Iterator[Segment]:
        """The lines of one row: one, or more where a cell is folded."""
        cells = [[cell] for cell in row]
        if not whole:
            cells = [
                self._within(console, cell, self.columns[at].fit, width)
                for at, cell, width in zip(shown, row, widths, strict=True)
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


def _shares(natural: dict[int, int], free: int) -> dict[int, int]:
    """The free width among columns: the narrow ones have their natural width, the others equal shares of the rest."""
    given: dict[int, int] = {}
    for count, at in zip(range(len(natural), 0, -1), sorted(natural, key=natural.__getitem__), strict=True):
        given[at] = max(min(natural[at], free // count), 1)
        free -= given[at]
    return given


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
