"""A sentence for people that fits the terminal: lines end between words, and later lines are indented.

Owns the line breaks. A command in backticks is never broken, so that it can be copied from the screen; a word that is
longer than the terminal is left to the terminal, which breaks it without adding anything. In a pipe a sentence is one
line, so that a search finds it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderResult
from rich.segment import Segment
from rich.text import Text

#: A command in backticks with what is written close to it, or a word.
_WORD: Final = re.compile(r"[^\s`]*`[^`\n]+`\S*|\S+")
#: On a terminal narrower than this many columns beside the indent, later lines are not indented.
_LEAST_WIDTH: Final = 16


class Sentence:
    """A rich renderable. `text` is markup; later lines are indented by `hang` columns. `brief` is the markup that a
    terminal shows instead, where the whole text is only for a pipe.
    """

    def __init__(self, text: str, hang: int = 2, brief: str | None = None) -> None:
        self.text = text
        self.hang = hang
        self.brief = brief

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        brief = self.brief if self.brief is not None and options.is_terminal else self.text
        for line in Text.from_markup(brief, emoji=False).split("\n", allow_blank=True):
            for part in self._wrapped(line, options.max_width) if options.is_terminal else (line,):
                part.end = ""
                yield from part.render(console)
                yield Segment.line()

    def _wrapped(self, text: Text, width: int) -> Iterator[Text]:
        hang = self.hang if width - self.hang >= _LEAST_WIDTH else 0
        line, at, used = Text(), 0, 0
        for word in _WORD.finditer(text.plain):
            gap, length = text[at : word.start()], cell_len(word[0])
            if used and used + gap.cell_len + length > width and line.plain.strip():
                yield line
                gap = Text(" " * hang)
                line, used = Text(), 0
            line += gap
            line += text[word.start() : word.end()]
            used, at = used + gap.cell_len + length, word.end()
            while used > width:  # the terminal broke the word
                used -= width
        yield line
