"""docs/internals/source-offsets.md and docs/internals/sink-offsets.md: each rule names an existing test, or a reason
why there is none.
"""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[4]
PAGES = {"docs/internals/source-offsets.md": 50, "docs/internals/sink-offsets.md": 30}
"""Each page, with its minimum number of rules."""
HEAD = ["| Rule of Connect | Here | Test, or why none |", "|---|---|---|"]
TEST = re.compile(r"`([\w/.-]+\.py)::(test_\w+)`")


@cache
def functions_of(path: Path) -> frozenset[str]:
    tree = ast.parse(path.read_text("utf-8"))
    return frozenset(node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))


def tables(page: str) -> dict[str, list[list[str]]]:
    """The cells of each row, by section. Fails on a line that is no row of three cells."""
    found: dict[str, list[list[str]]] = {}
    for section in (ROOT / page).read_text("utf-8").split("\n## ")[1:]:
        heading, *lines = [line for line in section.splitlines() if line]
        assert lines[:2] == HEAD, f"{heading}: no table"
        rows = [line.removeprefix("| ").removesuffix(" |").split(" | ") for line in lines[2:]]
        assert [row for row in rows if len(row) != 3] == [], heading
        found[heading] = rows
    return found


@pytest.mark.parametrize("page", PAGES)
def test_each_rule_is_listed_once(page: str) -> None:
    rules = [rule for rows in tables(page).values() for rule, _, _ in rows]
    assert len(rules) == len(set(rules)) >= PAGES[page]


@pytest.mark.parametrize("page", PAGES)
def test_each_row_names_tests_that_exist_or_a_reason(page: str) -> None:
    for heading, rows in tables(page).items():
        for rule, _, shown in rows:
            tests = TEST.findall(shown)
            assert tests or re.match(r"none: \S", shown), f"{heading}: {rule} has neither a test nor a reason"
            assert TEST.sub("", shown).strip(", ") == "" or not tests, f"{rule}: {shown}"
            missing = [name for path, name in tests if name not in functions_of(ROOT / path)]
            assert missing == [], f"{rule}: there is no such test"
