"""The site's source: all pages in one folder, with links that lead from page to page.

Owns the list of pages from outside docs/, and the translation of links: a link to a page leads to that page, a link to
another file of the repository (code, a test) becomes its text, because the site has no page for it. Builds nothing.

Invariant: a link to a file that does not exist is an error, whatever kind of file it is.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path, PurePosixPath

#: Pages outside docs/: path in the repository -> path in the site.
OUTSIDE = {
    "ARCHITECTURE.md": "internals/architecture.md",
    "CONTRIBUTING.md": "internals/contributing.md",
    "CHANGELOG.md": "changelog.md",
    "SECURITY.md": "security.md",
    "README.md": "index.md",
    "bench/README.md": "benchmarks/index.md",
    "cli/README.md": "internals/parts/command-line.md",
    "libs/core/README.md": "internals/parts/core.md",
    "libs/connectors/README.md": "internals/parts/connectors.md",
    "libs/sdk/README.md": "reference/sdk.md",
    "services/config-store/README.md": "internals/parts/config-store.md",
    "services/herder/README.md": "internals/parts/herder.md",
    "services/status-store/README.md": "internals/parts/status-store.md",
    "services/worker/README.md": "internals/parts/worker.md",
    "tests/golden/connect/README.md": "internals/golden-vectors.md",
}
#: For these only links are translated: docs/index.md is the site's own first page, to which links to README lead.
NOT_COPIED = {"README.md"}
ASSETS = {".css", ".js", ".png", ".svg"}
_CODE = re.compile(
    r"^(?P<fence>```+|~~~+).*?^(?P=fence)[ \t]*$"  # a block
    r"|(?P<ticks>`+)(?!`)(?:(?!\n\n).)+?(?<!`)(?P=ticks)(?!`)",  # within a line
    re.MULTILINE | re.DOTALL,
)
_LINK = re.compile(r"(?P<image>!?)\[(?P<text>(?:[^\[\]]|\[[^\[\]]*\])*)\]\((?P<target>[^()\s]+)\)")
_EMPTY_GROUP = re.compile(r'^\s*\{ "[^"]+" = \[\n\s*\] \},\n', re.MULTILINE)
_DEFINITION = re.compile(r"^(?P<head>\[[^\]]+\]: +)(?P<target>\S+)", re.MULTILINE)


@dataclass
class Staging:
    """One copy of all pages in `target`; `problems` are links that lead nowhere."""

    root: Path
    target: Path
    problems: list[str] = field(default_factory=list[str])

    def copy(self) -> list[str]:
        """Copy every page and asset; returns the pages' paths in the site."""
        places = dict(self._places())
        pages: list[str] = []
        for source, place in places.items():
            if source in NOT_COPIED:
                continue
            goal = self.target / place
            goal.parent.mkdir(parents=True, exist_ok=True)
            if source.endswith(".md"):
                goal.write_text(self._translated(source, places))
                pages.append(place)
            else:
                shutil.copyfile(self.root / source, goal)
        return sorted(pages)

    def _places(self) -> Iterator[tuple[str, str]]:
        """Path in the repository and path in the site of each page and asset."""
        docs = self.root / "docs"
        for path in sorted(docs.rglob("*")):
            if path.suffix in {".md", *ASSETS}:
                yield path.relative_to(self.root).as_posix(), path.relative_to(docs).as_posix()
        for source, place in OUTSIDE.items():
            if (self.root / source).is_file():
                yield source, place

    def _translated(self, source: str, places: dict[str, str]) -> str:
        text = (self.root / source).read_text()
        spans = [(found.start(), found.end()) for found in _CODE.finditer(text)]

        def in_code(at: int) -> bool:
            return any(start <= at < end and text[start] == "`" for start, end in spans)

        def link(found: re.Match[str]) -> str:
            if in_code(found.start()):
                return found[0]
            place = self._place_of(source, found["target"], places)
            if place is None:
                return found["text"]
            return f"{found['image']}[{found['text']}]({place})"

        def definition(found: re.Match[str]) -> str:
            place = self._place_of(source, found["target"], places)
            return found["head"] + (place or found["target"])

        return _DEFINITION.sub(definition, _LINK.sub(link, text))

    def _place_of(self, source: str, link: str, places: dict[str, str]) -> str | None:
        """The target of a link in the site; None = a file that is not in the site."""
        if "://" in link or link.startswith(("#", "mailto:")):
            return link
        path, hash_mark, anchor = link.partition("#")
        named = os.path.normpath(PurePosixPath(source).parent / path)
        for page in (named, f"{named}/README.md", f"{named}/index.md"):
            if page in places:
                here = PurePosixPath(places[source]).parent
                return os.path.relpath(places[page], here) + hash_mark + anchor
        if not (self.root / named).exists():
            self.problems.append(f"{source}: {link} leads to no file")
        return None


def contents(lines: str, pages: list[str]) -> str:
    """The table of contents with each `"folder/*",` line replaced by the pages of the folder that no other entry names.

    Raises ValueError with the pages that the table of contents lacks, and the entries without a page.
    """
    named = set(re.findall(r'"([^"]+\.md)"', lines))
    found: dict[str, list[str]] = {folder: [] for folder in re.findall(r'"([\w/.-]+)/\*",$', lines, re.MULTILINE)}
    missing: list[str] = []
    for page in sorted(set(pages) - named):
        found.get(str(PurePosixPath(page).parent), missing).append(page)
    unknown = sorted(named - set(pages))
    if missing or unknown:
        raise ValueError(
            f"website/zensical.toml: nav lacks {', '.join(missing) or 'no page'}, "
            f"and names {', '.join(unknown) or 'no page'} without a file"
        )
    for folder, its in found.items():
        lines = re.compile(rf'^(\s*)"{re.escape(folder)}/\*",\n', re.MULTILINE).sub(partial(_page_lines, its), lines)
    return _EMPTY_GROUP.sub("", lines)


def _page_lines(pages: list[str], line: re.Match[str]) -> str:
    return "".join(f'{line[1]}"{page}",\n' for page in pages)
