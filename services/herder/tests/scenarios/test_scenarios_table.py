"""Table of Connect's scenarios: each has an answer, and every named test exists."""

from __future__ import annotations

import ast
import re
from collections import Counter
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[4]
PAGE = ROOT / "docs/internals/connect-scenarios.md"
NAMES = Path(__file__).with_name("connect_scenarios.txt")
ROW = re.compile(r"^\| `(\w+)` \| (.+) \|$")
TEST = re.compile(r"`([\w/.-]+\.py)::(test_\w+)`")


def sections(text: str, mark: str) -> dict[str, list[str]]:
    """The lines under each heading."""
    found: dict[str, list[str]] = {}
    heading = ""
    for line in text.splitlines():
        if line.startswith(mark):
            heading = line.removeprefix(mark)
            found[heading] = []
        elif heading and line:
            found[heading].append(line)
    return found


def rows() -> dict[str, list[tuple[str, str]]]:
    """Scenario and answer of each row, by section. Fails on a line that is no row."""
    found: dict[str, list[tuple[str, str]]] = {}
    for heading, lines in sections(PAGE.read_text("utf-8"), "## ").items():
        assert lines[:2] == ["| Scenario | Test here, or why none |", "|---|---|"], f"{heading}: no table"
        matches = [(line, ROW.match(line)) for line in lines[2:]]
        assert [line for line, match in matches if match is None] == []
        found[heading] = [(match[1], match[2]) for _, match in matches if match is not None]
    return found


@cache
def functions_of(path: Path) -> frozenset[str]:
    tree = ast.parse(path.read_text("utf-8"))
    return frozenset(node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))


def test_every_scenario_is_answered_once_in_its_section() -> None:
    names = sections(NAMES.read_text("utf-8"), "# ")
    answered = rows()
    assert list(answered) == list(names)
    for heading, expected in names.items():
        assert Counter(name for name, _ in answered[heading]) == Counter(expected), heading


def test_every_answer_names_tests_that_exist_or_a_reason() -> None:
    for heading, found in rows().items():
        for name, answer in found:
            tests = TEST.findall(answer)
            assert tests or re.match(r"none: \w", answer), f"{heading}: {name} has neither a test nor a reason"
            missing = [test for path, test in tests if test not in functions_of(ROOT / path)]
            assert missing == [], f"{name}: there is no such test"
