"""The two processes of `make test` (pytest-xdist, `-n auto --dist loadgroup`).

Owns which test runs in which of them. One, the shared half, has everything that needs the session's broker or Spark,
kills things, or holds a limit of time; the other has the rest, which needs nothing but itself, and takes only the
processor time that the first leaves. In the shared half come last what holds a limit of time (marker `timed`), the
fault tests and, as the very last, chaos: by then the other half is done. This order is the same in one process.
Invariant: every session fixture (broker, mesh, SparkSession) is made in one process only.
"""

from __future__ import annotations

import os

import pytest

_SHARED = "shared"
_SHARED_FIXTURES = {"kafka", "guarded"}
_SHARED_MARKERS = {"kafka", "spark", "timed"}
_FAULTS = "tests/faults/"
_CHAOS = "tests/faults/test_chaos.py"
_NICE = 10


def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """Two processes for the whole suite. A choice of tests is quicker in one, which collects once and starts at once;
    `-s` shows nothing from another process. `-n 2` says otherwise."""
    chosen = config.args_source is not pytest.Config.ArgsSource.TESTPATHS or config.getoption("keyword")
    return 0 if chosen or config.getoption("capture") == "no" else 2


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what uses a shared broker (so that `-m "not kafka"` forgets no test) and what is of the shared half, and
    put what minds company last. First of its kind, because xdist reads the groups in the same hook."""
    for item in items:
        if _SHARED_FIXTURES & set(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.kafka)
        if _is_shared(item):
            item.add_marker(pytest.mark.xdist_group(_SHARED))
    items.sort(key=_place)


def _is_shared(item: pytest.Item) -> bool:
    return item.nodeid.startswith(_FAULTS) or any(mark.name in _SHARED_MARKERS for mark in item.iter_markers())


def _place(item: pytest.Item) -> int:
    if item.nodeid.startswith(_CHAOS):
        return 3
    if item.nodeid.startswith(_FAULTS):
        return 2
    return 1 if item.get_closest_marker("timed") else 0


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Step back for the shared half. Only a process that runs no shared test after this one does: xdist hands out the
    shared half first and whole."""
    if "PYTEST_XDIST_WORKER" in os.environ and not item.get_closest_marker("xdist_group") and os.nice(0) < _NICE:
        os.nice(_NICE)


class _Names:
    """In the process that reports: tests are called what they are called in one process, without xdist's `@shared`, so
    that a line of the summary can be pasted and `--lf` finds it."""

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        report.nodeid = report.nodeid.removesuffix(f"@{_SHARED}")


def pytest_configure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(_Names(), "names without groups")
