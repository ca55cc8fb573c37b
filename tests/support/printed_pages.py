"""Pages that show commands with their real output: reading a page, comparing it with a run, and rewriting it.

Owns the blocks of a page, and the parts of an output that differ from run to run. The test owns the actions between
the blocks. A page has `sh` blocks of one `herd` command, or one piped into `grep`, each followed by a `text` block.

Invariant: the comparison covers all of an output except times, counts of tries, generations, process ids, the number of
the worker, and white space.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

_BLOCK = re.compile(r"^```sh\n(?P<command>[^\n]*)\n```\n\n```text\n(?P<output>.*?)^```$", re.DOTALL | re.MULTILINE)
_SECTION = re.compile(r"^## (.+)$", re.MULTILINE)
_VARIES = (
    (re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?Z"), "TIME"),
    (re.compile(r"\b127\.0\.0\.1:720[45]\b"), "WORKER"),
    (re.compile(r"\b\d+ (?:try|tries)\b"), "N tries"),
    (re.compile(r"\bfor \d+[smh]\b"), "for AGE"),
    (re.compile(r"\bgeneration \d+\b"), "generation N"),
    (re.compile(r"\bprocess \d+\b"), "process N"),
    (re.compile(r'"pg_tblspc/[^"]*"'), '"FILE"'),
    (re.compile(r"\bline \d+\b"), "line N"),
    (re.compile(r"[ \t]+"), " "),
    (re.compile(r" ?\n"), "\n"),
)


@dataclass(frozen=True)
class Shown:
    """One command of a page, and its printed output."""

    section: str
    command: str
    output: str
    at: int
    """Position of its output in the page."""


def shown_in(page: Path) -> list[Shown]:
    """All commands of a page, in order."""
    return list(_shown(page.read_text()))


def _shown(text: str) -> Iterator[Shown]:
    sections = [(found.start(), found[1]) for found in _SECTION.finditer(text)]
    for block in _BLOCK.finditer(text):
        section = [name for at, name in sections if at < block.start()]
        yield Shown(section[-1] if section else "", block["command"], block["output"], block.start("output"))


def without_what_varies(output: str) -> str:
    """The output in a form that is equal for two runs."""
    for pattern, replacement in _VARIES:
        output = pattern.sub(replacement, output)
    return output.strip()


def renamed(output: str, names: Mapping[str, str]) -> str:
    """The output with the page's names for parts that differ from run to run: ports, folders. Cells of tables stay in
    line.
    """
    for here, there in sorted(names.items(), key=lambda one: -len(one[0])):
        wide = max(0, len(here) - len(there))
        output = re.sub(rf"{re.escape(here)}(?!\d)(?=  )", there + " " * wide, output)
        output = re.sub(rf"{re.escape(here)}(?!\d)", there, output)
    return output


def piped(output: str, command: str) -> str:
    """The output after the command's pipe, if it has one."""
    _, pipe, rest = command.partition(" | ")
    if not pipe:
        return output
    return subprocess.run(["bash", "-c", rest], input=output, capture_output=True, text=True, check=False).stdout


def rewrite(page: Path, outputs: Mapping[int, str]) -> None:
    """Replace outputs of the page by these, by their positions."""
    text = page.read_text()
    for one in sorted(_shown(text), key=lambda one: -one.at):
        if one.at in outputs:
            lines = "\n".join(line.rstrip() for line in outputs[one.at].strip("\n").splitlines())
            text = f"{text[: one.at]}{lines}\n{text[one.at + len(one.output) :]}"
    page.write_text(text)
