"""The house rules, applied to every file of the tree."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.tidy.rules import RULES, Rule, Source

if TYPE_CHECKING:
    from tests.tidy.conftest import Scan

ROOT = Path(__file__).resolve().parents[2]
#: Generated files.
SKIPPED_FOLDERS = {
    *(".git", ".venv", ".herd", "__pycache__", "build", "node_modules", "spark-warehouse"),
    *(".pytest_cache", ".ruff_cache", ".hypothesis", ".import_linter_cache"),
}
GENERATED = "libs/core/src/herdmesh/api/"
TEXT_SUFFIXES = {"", ".cfg", ".json", ".md", ".proto", ".py", ".pyi", ".sh", ".toml", ".txt", ".xml", ".yaml", ".yml"}


def _files() -> Iterator[Path]:
    for folder, folders, names in os.walk(ROOT):
        folders[:] = [name for name in folders if name not in SKIPPED_FOLDERS and not name.endswith(".egg-info")]
        for name in names:
            yield Path(folder, name)


def _texts() -> Iterator[Path]:
    for path in _files():
        if path.suffix in TEXT_SUFFIXES and not path.relative_to(ROOT).as_posix().startswith(GENERATED):
            yield path


def tree_paths() -> Iterator[str]:
    """The path of every file of the tree, relative to its root."""
    return (path.relative_to(ROOT).as_posix() for path in _files())


def tree_sources() -> Iterator[Source]:
    """Every text file of the tree that people write."""
    for path in _texts():
        yield Source(path.relative_to(ROOT).as_posix(), path.read_text("utf-8", errors="replace"))


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_whole_tree_follows_the_rule(rule: Rule, scan: Scan) -> None:
    assert not scan.findings[rule], f"{rule.__doc__}\n" + "\n".join(scan.findings[rule])


def test_rules_see_the_tree() -> None:
    sources = list(tree_sources())
    assert {"Makefile", "deploy/jars/ivy.xml", "conftest.py"} <= {source.path for source in sources}
    assert sum(source.is_shipped for source in sources) > 30


def test_every_package_is_typed() -> None:
    areas = [path for path in ROOT.glob("*/src/herdmesh/*") if path.is_dir()]
    areas += [path for path in ROOT.glob("*/*/src/herdmesh/*") if path.is_dir()]
    untyped = [path for path in areas if path.name != "__pycache__" and not (path / "py.typed").is_file()]
    assert len(areas) > 10
    assert not untyped, "no py.typed in these"


def test_namespace_has_no_init() -> None:
    """`herdmesh` is one namespace over eight distributions: an __init__.py in it would hide the others."""
    assert not [*ROOT.glob("*/src/herdmesh/__init__.py"), *ROOT.glob("*/*/src/herdmesh/__init__.py")]


def test_every_promise_names_tests_that_exist() -> None:
    """docs/reference/guarantees.md lists no promise without a test: a renamed test must be renamed there."""
    tests = [path for path in _texts() if path.name.startswith("test_")]
    defined = {name for path in tests for name in re.findall(r"def (test_\w+)", path.read_text("utf-8"))}
    page = (ROOT / "docs/reference/guarantees.md").read_text("utf-8")
    promised = set(re.findall(r"`[^`]*?\b(test_\w+)(?:\.py)?`", page))
    assert len(promised) > 100
    assert not promised - defined - {path.stem for path in tests}


def test_commands_are_executable() -> None:
    for command in (".ci/run", "deploy/setup.sh", "deploy/check-tools.sh"):
        assert os.access(ROOT / command, os.X_OK), command
