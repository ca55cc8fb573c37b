"""The pages of the examples: their list, their steps, and the comparison of an output with the page.

Invariant: every `sh` block is one step, in order. The steps of the section "Clean up" run after every run, and each of
their lines is one command.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.resources import files
from typing import Final

from herdmesh.cli.errors import EXIT_CODES, CommandError

_BLOCK: Final = re.compile(r"^```(sh|text)\n(.*?)^```\n?", re.DOTALL | re.MULTILINE)
_CLEAN_UP: Final = "## Clean up"
#: Text in commands -> the part of the surroundings that it needs.
NEEDS: Final = {"$PGPORT": "PostgreSQL", "$RECEIVER_URL": "an HTTP receiver"}


@dataclass(frozen=True, slots=True)
class ExampleStep:
    """Commands for one shell, the text before them, and the output that they print in the end; None = any."""

    text: str
    command: str
    output: str | None
    cleans_up: bool = False


@dataclass(frozen=True, slots=True)
class Example:
    """One page."""

    name: str
    page: str
    """Its Markdown."""

    @property
    def title(self) -> str:
        return self.page.partition("\n")[0].removeprefix("# ")

    @property
    def summary(self) -> str:
        """The first paragraph, on one line, as plain text."""
        return " ".join(self.page.split("\n\n")[1].split()).replace("`", "")

    @property
    def needs(self) -> list[str]:
        """Besides a cluster."""
        return [part for text, part in NEEDS.items() if text in self.page]

    def steps(self) -> Iterator[ExampleStep]:
        """All steps, in order."""
        blocks = list(_BLOCK.finditer(self.page))
        clean_up = self.page.find(_CLEAN_UP)
        end = self.page.find("\n\n", self.page.find("\n\n") + 2)  # after title and summary
        for at, block in enumerate(blocks):
            if block[1] == "sh":
                after = blocks[at + 1] if at + 1 < len(blocks) and blocks[at + 1][1] == "text" else None
                text = self.page[end : block.start()].strip().removeprefix("## ")
                yield ExampleStep(text, block[2], None if after is None else after[2], 0 <= clean_up < block.start())
            end = block.end()


def examples() -> list[Example]:
    """All examples by name."""
    pages = [one for one in files(__package__ or "").iterdir() if one.name.endswith(".md")]
    return sorted(
        (Example(one.name.removesuffix(".md"), one.read_text("utf-8")) for one in pages), key=lambda one: one.name
    )


def find(name: str) -> Example:
    """One example. Raises CommandError that lists all."""
    known = {one.name: one for one in examples()}
    if name in known:
        return known[name]
    near = difflib.get_close_matches(name, known, 1, 0.4)
    hint = f"did you mean {near[0]}?" if near else f"there are: {', '.join(known)}"
    code = EXIT_CODES["PLUGIN_NOT_FOUND"]
    raise CommandError("EXAMPLE_NOT_FOUND", f"no example {name}; {hint}", "`herd example list` lists them.", code)


def matches(printed: str, wanted: str) -> bool:
    """True when the output is the page's: `...` stands for any text, and blanks at the ends of lines do not count."""
    pattern = ".*".join(map(re.escape, _trimmed(wanted).split("...")))
    return re.fullmatch(pattern, _trimmed(printed), re.DOTALL) is not None


def _trimmed(text: str) -> str:
    return "\n".join(line.rstrip() for line in text.splitlines()).strip()
