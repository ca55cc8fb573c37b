"""Every document, section, ADR, test and file that a text of this repository cites exists."""

from __future__ import annotations

import pytest

from tests.tidy.citations import index_of, problems
from tests.tidy.rules import Source
from tests.tidy.test_tree import tree_paths, tree_sources

TREE = index_of(
    [
        Source("docs/design/stores.md", "# Stores\n\n## 1. Reading\n\n## 4. Bytes\n\n### 4.2 Keys\n"),
        Source("docs/adr/0009-warm-runs.md", "# 9. Warm runs\n"),
        Source("services/herder/src/herdmesh/herder/state/machine.py", "x = 1\n"),
        Source("services/herder/tests/test_machine.py", "def test_it_moves() -> None: ...\n"),
    ]
)

FORMS = ["{}\n", '"""Owns x ({})."""\n', "x = 1\n# see {}\n"]
GOOD = [
    "docs/design/stores.md, section 4.2",
    "docs/design/stores.md, sections 1, 4.2 and 4",
    "docs/design/stores.md, sections 1 to 4",
    "docs/design/stores.md",
    "ADR 0009, `test_it_moves`, `test_machine`, `state/machine.py`, `test_*`",
    "a reference to a design with 4 parts; data-model 4",
]
BAD = {
    "docs/design/nothing.md": "cites docs/design/nothing.md, which does not exist",
    "docs/design/stores.md, section 4.3": "cites section 4.3 of docs/design/stores.md",
    "docs/design/stores.md, sections 1 and 7": "cites section 7 of",
    "(reference data-model 5.4)": "write docs/<path>.md, section <number>",
    "reference/herder.md 4": "write docs/<path>.md, section <number>",
    "(reference 4.4, step 1)": "write docs/<path>.md, section <number>",
    "design section 6": "write docs/<path>.md, section <number>",
    "ADR 0099": "cites the ADR 0099",
    "see `test_it_stands`": "cites the test test_it_stands",
    "see `service/machine.py`": "cites the file service/machine.py",
}


@pytest.mark.parametrize("form", FORMS, ids=["md", "docstring", "comment"])
@pytest.mark.parametrize("text", GOOD)
def test_good_citations_pass(text: str, form: str) -> None:
    path = "docs/a.md" if form == "{}\n" else "libs/core/src/herdmesh/a.py"
    assert not [*problems(Source(path, form.format(text)), TREE)]


@pytest.mark.parametrize("form", FORMS, ids=["md", "docstring", "comment"])
@pytest.mark.parametrize(("text", "finding"), BAD.items())
def test_bad_citations_are_found(text: str, finding: str, form: str) -> None:
    path = "docs/a.md" if form == "{}\n" else "libs/core/src/herdmesh/a.py"
    assert [found for found in problems(Source(path, form.format(text)), TREE) if finding in found]


def test_a_citation_may_continue_in_the_next_line() -> None:
    text = '# Keys are those of docs/design/stores.md, section\n# 4.3, as written.\nx = """docs/no.md"""\n'
    found = [*problems(Source("libs/a.py", text), TREE)]
    assert found == ["line 1: cites section 4.3 of docs/design/stores.md, which has no such heading"]


def test_every_cited_target_exists() -> None:
    sources = list(tree_sources())
    index = index_of(sources, tree_paths())
    assert len(index.tests) > 2_000
    found = [f"{source.path}: {problem}" for source in sources for problem in problems(source, index)]
    assert not found, "\n".join(found)
