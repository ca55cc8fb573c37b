"""Check that every shipped connector passes the standard suite: every entry point has its tests, none of which is
switched off in every world, except those that `ONLY_IN_THE_SOAK` names.

Suites of connectors are in files named `test_*_suite.py` below
this folder. A skipped test has its reason (`pytest.skip`).
"""

from __future__ import annotations

import importlib
import sys
import tomllib
from collections.abc import Iterable, Iterator
from importlib.metadata import EntryPoint
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from herdmesh.connect.plugins.plugin_registry import ENTRY_POINT_GROUP
from herdmesh.connect.spi.connector import Connector, SinkConnector, SourceConnector
from herdmesh.connectors.datagen.connector import Datagen
from herdmesh.connectors.parquet.connector import ParquetSink
from herdmesh.connectors.spark.stream_source.connector import SparkStreamSource
from herdmesh.sdk.testing import SinkRunSuite, SinkSuite, SourceRunSuite, SourceSuite

ROOT = Path(__file__).parents[3]
_NEEDED = {
    SourceConnector: (SourceSuite, SourceRunSuite),
    SinkConnector: (SinkSuite, SinkRunSuite),
}
"""For each kind: the suite that drives tasks in this process, and the one that kills real runs."""
ONLY_IN_THE_SOAK: dict[type[Connector], str] = {
    SparkStreamSource: "of the formats it reads, kafka and iceberg have no jars for Spark 4.3 yet, and Spark 4.1 is "
    "490 MB; rate-micro-batch, which comes with Spark, has no end, and a world of the suite has one (of that format, "
    "`spark/test_stream_source.py` ends runs after each poll)",
}
"""Connectors whose suites are skipped in `make test`, each with the reason."""


def shipped() -> list[type[Connector]]:
    """Return the connectors that our distributions register
    in the source; installed metadata may be outdated.
    """
    found: list[type[Connector]] = []
    for project in ROOT.glob("*/*/pyproject.toml"):
        groups = tomllib.loads(project.read_text())["project"].get("entry-points", {})
        for name, value in groups.get(ENTRY_POINT_GROUP, {}).items():
            found.append(EntryPoint(name, value, ENTRY_POINT_GROUP).load())
    return found


def suites() -> list[type[Any]]:
    """Return every test class in a file of suites."""
    files = sorted(Path(__file__).parent.rglob("test_*_suite.py"))
    modules = [importlib.import_module(".".join(path.relative_to(ROOT).with_suffix("").parts)) for path in files]
    return [one for module in modules for name, one in vars(module).items() if name.startswith("Test")]


def missing(
    connectors: Iterable[type[Connector]], there: Iterable[type[Any]], excused: Iterable[type[Connector]] = ()
) -> list[str]:
    """Return messages about missing tests. `excused`: connectors
    whose tests may be switched off, but must exist.
    """
    known = list(there)
    found: list[str] = []
    for connector in connectors:
        for suite in next(needed for kind, needed in _NEEDED.items() if issubclass(connector, kind)):
            ours = [one for one in known if issubclass(one, suite) and one.connector is connector]
            if not ours:
                found.append(f"{connector.__name__} has no {suite.__name__}")
            tests = [name for name in dir(suite) if name.startswith("test_")]
            off = [[f"{one.__name__} leaves out {name}" for name in tests if _is_off(one, name)] for one in ours]
            if off and connector not in excused:
                found += min(off, key=len)  # one of its worlds must run all tests
    return found


def _is_off(suite: type[Any], test: str) -> bool:
    """Return whether a test of the suite does not run as written: it was replaced, or is skipped by a mark."""
    places = [sys.modules[suite.__module__], *suite.__mro__]
    marks = {mark.name for place in places for mark in _marks(place)}
    standard = next(base for base in suite.__mro__ if base.__module__.startswith("herdmesh.sdk.testing"))
    return getattr(suite, test) is not getattr(standard, test) or bool(marks & {"skip", "skipif", "xfail"})


def _marks(place: ModuleType | type[Any]) -> Iterator[pytest.MarkDecorator]:
    """Return the marks that a module or a class itself has, for all tests in it."""
    given: pytest.MarkDecorator | list[pytest.MarkDecorator] = vars(place).get("pytestmark", [])
    yield from given if isinstance(given, list) else [given]


def test_every_shipped_connector_has_its_suites() -> None:
    connectors = shipped()
    assert len(connectors) >= 11, "the entry points are not where they were"
    assert missing(connectors, suites(), ONLY_IN_THE_SOAK) == []


@pytest.mark.parametrize("connector", ONLY_IN_THE_SOAK)
def test_no_excuse_is_unnecessary(connector: type[Connector]) -> None:
    assert missing([connector], suites()), f"{connector.__name__} has a world that is not skipped: excuse it no longer"


def test_a_connector_without_a_suite_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also a connector with tests switched off: a single one,
    those of a class or of its base, those of a module.
    """
    here = {"connector": ParquetSink}
    whole = [type("TestWhole", (SinkSuite,), here), type("TestWholeRuns", (SinkRunSuite,), here)]
    assert missing([ParquetSink], whole) == []
    assert missing([ParquetSink], whole[:1]) == ["ParquetSink has no SinkRunSuite"]
    assert missing([Datagen], whole) == ["Datagen has no SourceSuite", "Datagen has no SourceRunSuite"]
    quieter = type("TestQuieter", (SinkSuite,), {**here, "test_tombstones": None})
    skipped = type("TestSkipped", (pytest.mark.skip(type("Base", (SinkRunSuite,), here)),), {"pytestmark": []})
    off = ["TestQuieter leaves out test_tombstones", "TestSkipped leaves out test_killed_runs_lose_no_record"]
    assert missing([ParquetSink], [quieter, skipped]) == off
    assert missing([ParquetSink], [quieter, skipped], [ParquetSink]) == []
    assert missing([ParquetSink], [], [ParquetSink]) == [
        "ParquetSink has no SinkSuite",
        "ParquetSink has no SinkRunSuite",
    ]
    assert missing([ParquetSink], whole) == []
    monkeypatch.setattr(
        sys.modules[__name__], "pytestmark", pytest.mark.skipif(True, reason="a module's"), raising=False
    )
    assert (
        missing([ParquetSink], [*whole[1:], quieter])[-1] == "TestWholeRuns leaves out test_killed_runs_lose_no_record"
    )
