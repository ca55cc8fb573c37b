"""Every connector that is shipped passes the standard suite: no entry point is without its tests, none of which is
switched off in every world.

Suites of connectors are in files named `test_*_suite.py` below this folder. What is skipped says why (`pytest.skip`).
"""

from __future__ import annotations

import importlib
import tomllib
from collections.abc import Iterable
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest

from herdmesh.connect.connector import Connector, SinkConnector, SourceConnector
from herdmesh.connect.plugins import ENTRY_POINT_GROUP
from herdmesh.sdk.testing import SinkRunSuite, SinkSuite, SourceRunSuite, SourceSuite
from herdmesh.worker.connectors.datagen import Datagen
from herdmesh.worker.connectors.parquet import ParquetSink

ROOT = Path(__file__).parents[4]
_NEEDED = {
    SourceConnector: (SourceSuite, SourceRunSuite),
    SinkConnector: (SinkSuite, SinkRunSuite),
}
"""Of each kind: the suite that drives tasks in this process, and the one that kills real runs."""


def shipped() -> list[type[Connector]]:
    """The connectors that our distributions register. Not what is installed: that may be of an earlier day."""
    found: list[type[Connector]] = []
    for project in ROOT.glob("*/*/pyproject.toml"):
        groups = tomllib.loads(project.read_text())["project"].get("entry-points", {})
        for name, value in groups.get(ENTRY_POINT_GROUP, {}).items():
            found.append(EntryPoint(name, value, ENTRY_POINT_GROUP).load())
    return found


def suites() -> list[type[Any]]:
    """Every test class in a file of suites."""
    files = sorted(Path(__file__).parent.rglob("test_*_suite.py"))
    modules = [importlib.import_module(".".join(path.relative_to(ROOT).with_suffix("").parts)) for path in files]
    return [one for module in modules for name, one in vars(module).items() if name.startswith("Test")]


def missing(connectors: Iterable[type[Connector]], there: Iterable[type[Any]]) -> list[str]:
    """What is not tested, in words."""
    known = list(there)
    found: list[str] = []
    for connector in connectors:
        for suite in next(needed for kind, needed in _NEEDED.items() if issubclass(connector, kind)):
            ours = [one for one in known if issubclass(one, suite) and one.connector is connector]
            if not ours:
                found.append(f"{connector.__name__} has no {suite.__name__}")
            tests = [name for name in dir(suite) if name.startswith("test_")]
            off = [[f"{one.__name__} leaves out {name}" for name in tests if _is_off(one, name)] for one in ours]
            if off:
                found += min(off, key=len)  # one of its worlds is asked everything
    return found


def _is_off(suite: type[Any], test: str) -> bool:
    """A test of the suite's that does not run as it is written there: it was replaced, or is skipped by a mark."""
    given: pytest.MarkDecorator | list[pytest.MarkDecorator] = getattr(suite, "pytestmark", [])
    marks = {mark.name for mark in (given if isinstance(given, list) else [given])}
    standard = next(base for base in suite.__mro__ if base.__module__.startswith("herdmesh.sdk.testing"))
    return getattr(suite, test) is not getattr(standard, test) or bool(marks & {"skip", "skipif", "xfail"})


def test_every_connector_that_is_shipped_has_its_suites() -> None:
    connectors = shipped()
    assert len(connectors) >= 11, "the entry points are not where they were"
    assert missing(connectors, suites()) == []


def test_a_connector_without_a_suite_is_named() -> None:
    """And one whose tests are switched off."""
    here = {"connector": ParquetSink}
    whole = [type("TestWhole", (SinkSuite,), here), type("TestWholeRuns", (SinkRunSuite,), here)]
    assert missing([ParquetSink], whole) == []
    assert missing([ParquetSink], whole[:1]) == ["ParquetSink has no SinkRunSuite"]
    assert missing([Datagen], whole) == ["Datagen has no SourceSuite", "Datagen has no SourceRunSuite"]
    quieter = type("TestQuieter", (SinkSuite,), {**here, "test_tombstones": None})
    skipped = pytest.mark.skip(type("TestSkipped", (SinkRunSuite,), here))
    assert missing([ParquetSink], [quieter, skipped]) == [
        "TestQuieter leaves out test_tombstones", "TestSkipped leaves out test_runs_that_are_killed",
    ]  # fmt: skip
