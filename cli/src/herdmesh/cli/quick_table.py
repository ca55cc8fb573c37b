"""A rich table that is laid out in one pass where every cell fits on its line.

rich measures, wraps and pads each cell one by one, which takes seconds for the tasks of a connector of 500. Owns the
layout of tables without borders; rich lays out the others. Invariant: the output equals that of rich.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.segment import Segment
from rich.style import Style
from rich.table import Table
from rich.text import Text


class QuickTable(Table):
    """A table without borders and without padding at its edges."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        cells = [[column.header, *column.cells] for column in self.columns]
        columns = [[_text(console, cell) for cell in column] for column in cells]
        widths = [max((text.cell_len for text in column), default=0) for column in columns]
        table_width = sum(widths) + 2 * (len(widths) - 1)
        whole = all(text.plain.isprintable() for column in columns for text in column)
        if not whole or not all(widths) or not 0 < table_width <= options.max_width:
            yield from super().__rich_console__(console, options)
            return
        if self.title:
            title = console.render_str(str(self.title), style="table.title", highlight=False)
            yield from console.render(title, options.update(width=table_width, justify="left"))
        header, *rows = zip(*columns, strict=True)
        yield from self._line(console, header, widths, console.get_style(self.header_style))
        for row in rows:
            yield from self._line(console, row, widths, Style.null())

    def _line(self, console: Console, row: Sequence[Text], widths: Sequence[int], style: Style) -> Iterator[Segment]:
        last = len(row) - 1
        for at, (text, width) in enumerate(zip(row, widths, strict=True)):
            blank = width - text.cell_len
            right = self.columns[at].justify == "right"
            before = (at > 0) + (blank if right else 0)
            after = (at < last) + (0 if right else blank)
            if before:
                yield Segment(" " * before, style)
            yield from Segment.apply_style(text.render(console), style)
            if after:
                yield Segment(" " * after, style)
        yield Segment.line()


def _text(console: Console, cell: RenderableType) -> Text:
    if isinstance(cell, Text):
        text = cell.copy()
        text.end = ""
        return text
    text = console.render_str(str(cell), highlight=False)
    text.end = ""
    return text
