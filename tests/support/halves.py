"""The two processes of `make test` (pytest-xdist, `-n auto --dist loadgroup`).

Owns which test runs in which of them. One, the shared half, has everything that needs the session's broker or Spark,
kills things, or holds a limit of time; the other has the rest, which needs nothing but itself, and takes only the
processor time that the first leaves. In the shared half come last what holds a limit of time (marker `timed`), the
fault tests and, as the very last, chaos: by then the other half is done. This order is the same in one process.
Invariant: every session fixture (broker, mesh, SparkSession) is made in one process only.
"""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path

import pytest
from xdist.remote import Producer  # pyright: ignore[reportMissingTypeStubs]
from xdist.scheduler.loadscope import LoadScopeScheduling  # pyright: ignore[reportMissingTypeStubs]
from xdist.workermanage import WorkerController  # pyright: ignore[reportMissingTypeStubs]

_SHARED = "shared"
_FOLDER = "shared_half_folder"
_SHARED_FIXTURES = {"kafka", "guarded"}
_SHARED_MARKERS = {"kafka", "spark", "timed"}
_FAULTS = "tests/faults/"
_CHAOS = "tests/faults/test_chaos.py"
_STARTED_NICE = os.nice(0)
#: Not more: what talks over gRPC in the other half must still be answered in time beside a JVM that starts.
_NICE = 5


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """Two processes for the whole suite. A choice of tests is quicker in one, which collects once and starts at once;
    `-s` shows nothing from another process. `-n 2` says otherwise."""
    chosen = config.args_source is not pytest.Config.ArgsSource.TESTPATHS or config.getoption("keyword")
    return 0 if chosen or config.getoption("capture") == "no" else 2


def pytest_itemcollected(item: pytest.Item) -> None:
    """Mark what uses a shared broker, so that `-m "not kafka"` forgets no test."""
    if _SHARED_FIXTURES & set(getattr(item, "fixturenames", ())):
        item.add_marker(pytest.mark.kafka)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put last what minds company."""
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
    if "PYTEST_XDIST_WORKER" in os.environ and not _is_shared(item) and os.nice(0) < _STARTED_NICE + _NICE:
        os.nice(_NICE)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_finish(session: pytest.Session) -> None:
    """A process that runs tests tells the one that hands them out which are of the shared half: that one collects
    nothing. xdist's own groups travel in a test's name, which pytest 9 does not let it change."""
    told: dict[str, str] = getattr(session.config, "workerinput", {})
    if told:
        shared = [item.nodeid for item in session.items if _is_shared(item)]
        Path(told[_FOLDER], told["workerid"]).write_text(json.dumps(shared))


class _Halves(LoadScopeScheduling):
    """Hands out the shared half whole, and all other tests one by one."""

    def __init__(self, config: pytest.Config, log: Producer, folder: Path) -> None:
        super().__init__(config, log)
        self._folder = folder
        self._shared: set[str] = set()
        self._is_lost = False

    def schedule(self) -> None:
        for file in self._folder.iterdir():
            self._shared.update(json.loads(file.read_text()))
        super().schedule()

    def remove_node(self, node: WorkerController) -> str | None:
        self._is_lost = self._is_lost or _SHARED in self.assigned_work[node]
        return super().remove_node(node)

    def _reschedule(self, node: WorkerController) -> None:
        """What a process that died leaves of the shared half, no other takes: it has stepped back, and each session
        fixture is made in one process only."""
        if self._is_lost:
            self.workqueue.pop(_SHARED, None)
        super()._reschedule(node)

    def _split_scope(self, nodeid: str) -> str:
        return _SHARED if nodeid in self._shared else nodeid


class _Distribution:
    """What only the process has that hands out the tests."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: WorkerController) -> None:
        node.workerinput.update({_FOLDER: str(self._folder)})  # pyright: ignore[reportUnknownMemberType]

    @pytest.hookimpl(tryfirst=True, optionalhook=True)
    def pytest_xdist_make_scheduler(self, config: pytest.Config, log: Producer) -> _Halves | None:
        return _Halves(config, log, self._folder) if config.getoption("dist") == "loadgroup" else None


def pytest_configure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput") and config.getoption("tx", None):
        if config.option.maxworkerrestart is None:
            config.option.maxworkerrestart = "0"  # a process that died says so at once, and no other takes its place
        for name in {"COLUMNS", "LINES"} - set(os.environ):
            os.unsetenv(name)  # readline, which pytest imports, puts a terminal's size behind Python's back
        folder = tempfile.TemporaryDirectory(prefix="halves-")
        config.add_cleanup(folder.cleanup)
        config.pluginmanager.register(_Distribution(Path(folder.name)), "two halves")
