"""Citations: the documents, sections, ADRs, tests and files that texts of this repository name.

Owns the form of a citation and its possible targets. Owns no list of documents: an `Index` is made from the tree.

Texts are whole Markdown files, and the docstrings and comments of Python files. A document is cited by its path from
the root (`docs/design/stores.md`), a section after it: `, section 4.2`, `, sections 2, 4.1 and 7`, or `, sections 8.1
to 8.3`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import PurePosixPath

from tests.tidy.rules import Source

_GAP = r"(?:\s+(?:#:?\s+)?)"  # between two words; a comment may continue in the next line
_NUMBER = r"\d+(?:\.\d+)*"
_DOCUMENT = re.compile(
    rf"\b(?P<path>docs/[\w./-]*?\w\.md)"
    rf"(?:,{_GAP}sections?(?P<numbers>(?:(?:,|{_GAP}and|{_GAP}to|,{_GAP}and)?{_GAP}{_NUMBER})+))?"
)
_OLD_FORM = re.compile(
    rf"(?<![\w/-])(?:[Rr]eference(?:{_GAP}|/)(?:config-topic|configs|data-model|herder|offsets-topic|rest-api|"
    rf"status-topic|transforms-converters)\b|reference{_GAP}\d+\.\d|design{_GAP}(?:section{_GAP})?\d)"
)
_ADR = re.compile(rf"\bADRs?{_GAP}(\d{{4}})\b")
_TEST = re.compile(r"(?<![\w./*-])(test_[a-z]\w+)(?![\w*{-]|\.\.\.)")
_FILE = re.compile(r"(?<![\w/.{}*<>$~-])((?:[\w-]+/)+[\w-]+\.(?:py|c|proto|md|jsonl|sh))\b")
#: Docstrings, other strings (which are skipped, with anything in them that looks like a comment), comments.
_LEXEMES = re.compile(
    r'''(?P<docstring>^[ \t]*[rR]?"""[\s\S]*?""")|"""[\s\S]*?"""'''
    r"""|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'|#[^\n]*""",
    re.MULTILINE,
)
#: Files of other projects, one that the tutorial has its reader write, and an example of a path.
_FOREIGN = {"confluent/meta.proto", "confluent/type/decimal.proto", "test_folder_source", "docs/a/page.md"}
_HEADING = re.compile(rf"^#+ ({_NUMBER})\.? ", re.MULTILINE)


@dataclass
class Index:
    """Possible targets of a citation: documents with their section numbers, ADR numbers, tests, paths."""

    sections: dict[str, set[str]] = field(default_factory=dict[str, set[str]])
    adrs: set[str] = field(default_factory=set[str])
    tests: set[str] = field(default_factory=set[str])
    #: every path, and every ending of a path that begins at a folder: `state/writes.py`.
    endings: set[str] = field(default_factory=set[str])

    def add_path(self, path: str) -> None:
        """Add an existing file."""
        parts = PurePosixPath(path).parts
        self.endings.update("/".join(parts[start:]) for start in range(len(parts)))

    def add(self, source: Source) -> None:
        """Add a file with a text: a document, or tests."""
        self.add_path(source.path)
        if source.path.endswith(".md"):
            self.sections[source.path] = set(_HEADING.findall(source.text))
            if adr := re.fullmatch(r"docs/(?:\w+/)*adr/(\d{4})-.*\.md", source.path):
                self.adrs.add(adr[1])
        elif source.is_python:  # not only below `tests`: the SDK's standard suites are shipped
            if (stem := PurePosixPath(source.path).stem).startswith("test_"):
                self.tests.add(stem)
            self.tests.update(re.findall(r"def (test_\w+)", source.text))


def index_of(sources: Iterable[Source], paths: Iterable[str] = ()) -> Index:
    """The index of a tree; `paths` are those of its other files."""
    index = Index()
    for path in paths:
        index.add_path(path)
    for source in sources:
        index.add(source)
    return index


def problems(source: Source, index: Index) -> Iterator[str]:
    """Citations of this file whose target does not exist, and citations in a form that cannot be checked."""
    for line, text in _texts(source):
        for match in _DOCUMENT.finditer(text):
            where = line + text.count("\n", 0, match.start())
            path = match["path"]
            if path in _FOREIGN:
                continue
            if path not in index.sections:
                yield f"line {where}: cites {path}, which does not exist"
                continue
            for number in re.findall(_NUMBER, match["numbers"] or ""):
                if number not in index.sections[path]:
                    yield f"line {where}: cites section {number} of {path}, which has no such heading"
        for match in _OLD_FORM.finditer(text):
            where = line + text.count("\n", 0, match.start())
            yield f"line {where}: cites {' '.join(match[0].split())!r}; write docs/<path>.md, section <number>"
        for pattern, known, kind in (
            (_ADR, index.adrs, "ADR"),
            (_TEST, index.tests, "test"),
            (_FILE, index.endings, "file"),
        ):
            for match in pattern.finditer(text):
                if match[1] not in known and match[1] not in _FOREIGN:
                    where = line + text.count("\n", 0, match.start())
                    yield f"line {where}: cites the {kind} {match[1]}, which does not exist"


def _texts(source: Source) -> Iterator[tuple[int, str]]:
    """Line and text of everything people read in a file: all of a Markdown file, docstrings and comments of a Python
    file.
    """
    if source.path.endswith(".md"):
        yield 1, source.text
    elif source.is_python:
        yield from _python_texts(source.text)


@cache
def _python_texts(text: str) -> tuple[tuple[int, str], ...]:
    """Docstrings (triple-quoted strings that begin a line) and blocks of comments. By one pattern, because tokenizing
    the whole tree takes seconds.
    """
    found: list[tuple[int, str]] = []
    line, at = 1, 0
    block_end = -1
    for match in _LEXEMES.finditer(text):
        line, at = line + text.count("\n", at, match.start()), match.start()
        lexeme = match[0]
        if lexeme.startswith("#"):
            if block_end == line - 1 and found:
                found[-1] = (found[-1][0], f"{found[-1][1]}\n{lexeme}")
            else:
                found.append((line, lexeme))
            block_end = line
        elif match["docstring"] is not None:
            found.append((line + lexeme.count("\n", 0, lexeme.index('"""')), lexeme))
            block_end = -1
    return tuple(found)
