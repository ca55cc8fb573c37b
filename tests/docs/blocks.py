"""The fenced blocks of the documentation's pages. Owns the reading of a page; checks nothing.

A block's language says what it is: `sh` commands that a test runs, `bash` commands that another test runs, `text` and
`console` the output of commands, `json` a config or records, `mermaid` a diagram.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
_BLOCK: Final = re.compile(r"^```(?P<language>[\w-]*)[^\n]*\n(?P<text>.*?)^```$", re.DOTALL | re.MULTILINE)


@dataclass(frozen=True)
class Block:
    """One block: its page below the repository, its line there, its language ("" = none), its text."""

    page: str
    line: int
    language: str
    text: str

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


def pages() -> list[str]:
    """README and every page below docs/, except decisions and designs, which are records of their time."""
    docs = ROOT / "docs"
    found = [path.relative_to(ROOT).as_posix() for path in docs.rglob("*.md")]
    return ["README.md", *sorted(one for one in found if not one.startswith(("docs/adr/", "docs/design/")))]


def blocks(page: str) -> Iterator[Block]:
    """All blocks of a page, in order."""
    text = (ROOT / page).read_text(encoding="utf-8")
    for found in _BLOCK.finditer(text):
        line = text.count("\n", 0, found.start()) + 1
        yield Block(page, line, found["language"], found["text"])
