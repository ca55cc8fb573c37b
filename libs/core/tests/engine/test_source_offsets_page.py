"""docs/source-offsets.md answers each rule with a test that exists, or says why there is none."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[4]
PAGE = ROOT / "docs/source-offsets.md"
HEAD = ["| Rule of Connect | Here | Test, or why none |", "|---|---|---|"]
TEST = re.compile(r"`([\w/.-]+\.py)::(test_\w+)`")


@cache
def functions_of(path: Path) -> frozenset[str]:
    tree = ast.parse(path.read_text("utf-8"))
    return frozenset(node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))


def tables() -> dict[str, list[list[str]]]:
    """The cells of each row, by section. Fails on a line that is no row of three cells."""
    found: dict[str, list[list[str]]] = {}
    for section in PAGE.read_text("utf-8").split("\n## ")[1:]:
        heading, *lines = [line for line in section.splitlines() if line]
        assert lines[:2] == HEAD, f"{heading}: no table"
        rows = [line.removeprefix("| ").removesuffix(" |").split(" | ") for line in lines[2:]]
        assert [row for row in rows if len(row) != 3] == [], heading
        found[heading] = rows
    return found


def test_each_rule_is_told_once() -> None:
    rules = [rule for rows in tables().values() for rule, _, _ in rows]
    assert len(rules) == len(set(rules)) > 50


def test_each_row_names_tests_that_exist_or_a_reason() -> None:
    for heading, rows in tables().items():
        for rule, _, shown in rows:
            tests = TEST.findall(shown)
            assert tests or re.match(r"none: \S", shown), f"{heading}: {rule} has neither a test nor a reason"
            assert TEST.sub("", shown).strip(", ") == "" or not tests, f"{rule}: {shown}"
            missing = [name for path, name in tests if name not in functions_of(ROOT / path)]
            assert missing == [], f"{rule}: there is no such test"
