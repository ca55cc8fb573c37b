"""The site's build: its pages and links, and its refusals."""

from __future__ import annotations

from pathlib import Path

import pytest

from website.staging import OUTSIDE, Staging, contents

NAV = """[project]
nav = [
  { "Home" = "index.md" },
  { "Decisions" = [
    "adr/*",
  ] },
  { "None" = [
    "none/*",
  ] },
]
"""


def staged(folder: Path, page: str, *others: str) -> tuple[str, list[str], list[str]]:
    """The site's version of a page docs/a/page.md, the existing pages, and the errors."""
    root = folder / "repository"
    for name in ("docs/a/page.md", *others):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(page if name == "docs/a/page.md" else f"# {name}\n")
    staging = Staging(root, folder / "site")
    pages = staging.copy()
    return (folder / "site" / "a" / "page.md").read_text(), pages, staging.problems


@pytest.mark.parametrize(
    ("link", "place"),
    [
        ("[b](../b.md)", "[b](../b.md)"),
        ("[b](../b.md#part)", "[b](../b.md#part)"),
        ("[map](../../ARCHITECTURE.md#map)", f"[map](../{OUTSIDE['ARCHITECTURE.md']}#map)"),
        ("[`engine`](../../libs/core/src/x.py)", "`engine`"),
        ("[here](#here), [out](http://example.com)", "[here](#here), [out](http://example.com)"),
        ("`[code](no.md)`\n\n```\n[code](no.md)\n```", "`[code](no.md)`\n\n```\n[code](no.md)\n```"),
    ],
)
def test_links_lead_from_page_to_page(tmp_path: Path, link: str, place: str) -> None:
    text, pages, problems = staged(tmp_path, link, "docs/b.md", "ARCHITECTURE.md", "libs/core/src/x.py")
    assert (text, problems) == (place, [])
    assert pages == ["a/page.md", "b.md", OUTSIDE["ARCHITECTURE.md"]]


def test_a_link_to_a_missing_file_is_named(tmp_path: Path) -> None:
    assert staged(tmp_path, "[b](../b.md), [c](../../c.py)")[2] == [
        "docs/a/page.md: ../b.md leads to no file",
        "docs/a/page.md: ../../c.py leads to no file",
    ]


def test_a_folder_in_the_contents_expands_to_its_pages_and_an_empty_group_is_left_out() -> None:
    made = contents(NAV, ["index.md", "adr/0002-b.md", "adr/0001-a.md"])
    assert '    "adr/0001-a.md",\n    "adr/0002-b.md",\n' in made
    assert "None" not in made


@pytest.mark.parametrize("page", ["lost.md", "adr/deeper/lost.md"])
def test_a_page_missing_from_the_contents_is_refused(page: str) -> None:
    with pytest.raises(ValueError, match=page):
        contents(NAV, ["index.md", page])


def test_an_entry_of_the_contents_without_a_page_is_refused() -> None:
    with pytest.raises(ValueError, match=r"index\.md"):
        contents(NAV, ["adr/0001-a.md"])
