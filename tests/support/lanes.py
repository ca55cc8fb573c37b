"""Scheduler of the three processes of `make test` (pytest-xdist, `-n auto --dist loadgroup`).

Owns the assignment of tests to processes, and their order. The shared lane has everything that needs the session's
broker or Spark, kills processes, or checks a time limit. The own lane has all tests with PostgreSQL, S3 or HDFS, users
of `guarded`, and as many of those that need only a broker as make the lanes equally long, for which there is a second
one. The alone lane has tests that start a broker themselves (marker `own_broker`), except end-to-end tests, which are
in the shared lane. The process that has run that lane runs the pure lane: the rest, which needs no server, and uses
only the processor time that the others leave.

Last in the shared lane come the fault tests, then tests that check a time limit (marker `timed`), which wait until the
other lanes run nothing, and, as the very last, chaos: three minutes, mostly of waiting. Beside chaos, and with lower
priority, the own lane runs the last of its tests (`_BESIDE_CHAOS`); it begins with them earlier, for as long as another
lane still has usual ones. CPU-only tests (`_COMPUTES`) are the last of the pure lane, once the others have nothing
usual left, and no process waits for them: they use the time that timed tests and chaos leave. This order is the same in
one process, except that tests that run side by side (`waiting`) run with the first of their group.

Invariant: each session fixture is created in one process only, except `kafka`, which the shared and the own lane each
have.
"""

from __future__ import annotations

import fcntl
import json
import os
import tempfile
from collections import Counter
from collections.abc import Generator, Iterable
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

import pytest
from xdist.remote import Producer  # pyright: ignore[reportMissingTypeStubs]
from xdist.scheduler.loadscope import LoadScopeScheduling  # pyright: ignore[reportMissingTypeStubs]
from xdist.workermanage import WorkerController  # pyright: ignore[reportMissingTypeStubs]

_SHARED, _OWN, _ALONE, _PURE = "shared", "own", "alone", "pure"
_FOLDER = "lanes_folder"
_LANES_TOLD = ".json"
_SHARED_MARKERS = {"kafka", "postgres", "spark", "timed"}
#: These need a broker, and neither Spark nor an idle machine: they only move records in their own process, or wait. Not
#: all that could be listed are: the own lane would be the longest one.
_MOVERS = (
    "libs/core/tests/engine/",
    "libs/core/tests/topicstore/test_kafka_forgotten.py",
    "libs/sdk/tests/",
    "libs/connectors/tests/",
    "services/worker/tests/test_dead_letters.py",
    "services/worker/tests/test_offsets.py",
    "tests/integration/test_java_",
    "tests/replay/test_fuzz.py",
)
#: Tests of the own lane that run beside chaos: they check no time limit, start no JVM, and take no longer than chaos.
_BESIDE_CHAOS = tuple(
    f"libs/connectors/tests/{one}"
    for one in ("common/", "datagen/", "file_stream/", "http/", "mirror/", "parquet/", "postgres/", "test_", "values/")
)
#: Tests of the pure lane that keep one process busy, talk to no other, and have no time limit except that they end.
_COMPUTES = ("tests/sim/",)
#: The lanes in which a session's broker, or database server, is created.
_LANES_OF_SERVER = {
    "kafka": {_SHARED, _OWN},
    "guarded": {_OWN},
    "postgres": {_SHARED, _OWN},
    "s3": {_OWN},
    "hdfs": {_OWN},
}
_END_TO_END = "tests/e2e/"
_FAULTS = "tests/faults/"
_CHAOS = "tests/faults/test_chaos.py"
#: Positions in the order of tests. From `_TIMED` on a test waits for other lanes.
_USUAL, _FAULT, _TIMED, _COMPANY, _LAST, _LEFT = range(6)
_STARTED_NICE = os.nice(0)
#: Not more: gRPC calls of the pure lane must still be answered in time beside a JVM that starts.
_NICE = 3
#: The remaining tests talk to no other process, and run beside timed tests, and chaos.
_NICE_LEFT = 19
_SESSION_WEIGHT = Path("/proc/self/autogroup")
#: Pure tests of the whole suite that are handed out at once: each hand-out costs as much as they take. It is no more
#: than a lane has, which xdist hands out first for its length.
_HANDFUL = 20
#: Number of remaining tests at which a process must know its next ones.
_BEFORE_THE_LAST = 2
_RUNNING = pytest.StashKey[pytest.Item]()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """Three processes for the whole suite. A selection of tests is faster in one, which collects once and starts at
    once; `-s` shows no output of another process. `-n 3` overrides this.
    """
    chosen = config.args_source is not pytest.Config.ArgsSource.TESTPATHS or config.getoption("keyword")
    return 0 if chosen or config.getoption("capture") == "no" else 3


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector: pytest.Collector) -> Generator[None, Any, Any]:
    """Import a file of tests in one process at a time: in a fresh clone the first rewrites and compiles it with its
    imports, and the others, some files behind, find that done.
    """
    if not isinstance(collector, pytest.Module) or "PYTEST_XDIST_WORKER" not in os.environ:
        return (yield)
    with collector.path.open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        return (yield)


def pytest_itemcollected(item: pytest.Item) -> None:
    """Mark tests that use a broker or PostgreSQL, so that `-m "not kafka"` misses none."""
    fixtures: list[str] = getattr(item, "fixturenames", [])
    if "guarded" in fixtures:
        item.add_marker(pytest.mark.own_broker)
    if "kafka" in fixtures or item.get_closest_marker("own_broker"):
        item.add_marker(pytest.mark.kafka)
    for server in ("s3", "hdfs"):
        if server in fixtures or any(isinstance(one, str) and one == server for one in _params(item)):
            item.add_marker(server)
    if "postgres" in fixtures:
        item.add_marker(pytest.mark.postgres)


def _params(item: pytest.Item) -> Iterable[Any]:
    """Parameters of the test from `parametrize`, or from its fixtures: a place of the kind "s3" requests `s3`."""
    called: Any = getattr(item, "callspec", None)
    return () if called is None else called.params.values()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Sort tests that need a quiet machine to the end."""
    if wrong := [f"{item.nodeid}: {why}" for item in items if (why := _contradiction(item))]:
        raise pytest.UsageError("\n".join(wrong))
    items.sort(key=_place)


def _contradiction(item: pytest.Item) -> str:
    if not item.get_closest_marker("own_broker"):
        return ""
    for server in ("kafka", "postgres"):
        if server in getattr(item, "fixturenames", ()):
            return _both(server)
    if _place(item) in (_USUAL, _FAULT, _COMPANY):
        return ""
    return "what is timed (or chaos) waits for the own and the alone lane, and own_broker (or `guarded`) is of these"


def _both(server: str) -> str:
    return f"marked own_broker (or takes `guarded`), and takes `{server}`: choose one"


def lane_of(item: pytest.Item) -> str:
    """The lane of this test. A test that runs others with it (`side_by_side`) runs those of its own lane only."""
    markers = {mark.name for mark in item.iter_markers()}
    if "own_broker" in markers:
        if "guarded" in getattr(item, "fixturenames", ()):
            return _OWN
        return _SHARED if item.nodeid.startswith(_END_TO_END) else _ALONE
    moves = bool(markers & {"postgres", "s3", "hdfs"}) or ("kafka" in markers and item.nodeid.startswith(_MOVERS))
    if moves and not markers & {"spark", "timed"} and not item.nodeid.startswith(_FAULTS):
        return _OWN
    return _SHARED if item.nodeid.startswith(_FAULTS) or markers & _SHARED_MARKERS else _PURE


def _place(item: pytest.Item) -> int:
    if item.nodeid.startswith(_CHAOS):
        return _LAST
    if item.get_closest_marker("timed"):
        return _TIMED
    if item.nodeid.startswith(_BESIDE_CHAOS) and lane_of(item) == _OWN:
        return _COMPANY
    if item.nodeid.startswith(_COMPUTES) and lane_of(item) == _PURE:
        return _LEFT
    return _FAULT if item.nodeid.startswith(_FAULTS) else _USUAL


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, Any, Any]:
    """Start a test that needs a quiet machine when no other runs. The wait is not part of the test's own time: its
    time-out begins later.
    """
    told = item.config.pluginmanager.get_plugin(_Told.NAME)
    if isinstance(told, _Told):
        told.wait_before(_place(item))
    return (yield)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Lower this process's priority for the other lanes. Only a process that runs no test of theirs after this one
    does: xdist hands those two out first, and whole.
    """
    item.session.stash[_RUNNING] = item
    place = _place(item)
    steps_back = lane_of(item) == _PURE or place == _COMPANY
    nice = _STARTED_NICE + (_NICE_LEFT if place == _LEFT else _NICE)
    if "PYTEST_XDIST_WORKER" in os.environ and steps_back and os.nice(0) < nice:
        os.nice(nice - os.nice(0))
        if place == _LEFT:
            _have_a_light_session()


def _have_a_light_session() -> None:
    """Give this process's session a low weight: Linux may weigh sessions against each other first, and only within one
    of them its processes by niceness (`sched_autogroup_enabled`); brokers and services lead their own sessions, and
    ours would slow them down.
    """
    with suppress(OSError):
        os.setsid()
        _SESSION_WEIGHT.write_text(str(_NICE_LEFT))


@contextmanager
def asked_by(item: pytest.Item) -> Generator[None]:
    """Attribute fixture requests to this test, in whose place pytest runs another (`side_by_side`)."""
    stash = item.session.stash
    running, stash[_RUNNING] = stash[_RUNNING], item
    try:
        yield
    finally:
        stash[_RUNNING] = running


@pytest.hookimpl(tryfirst=True)
def pytest_fixture_setup(fixturedef: pytest.FixtureDef[Any], request: pytest.FixtureRequest) -> None:
    """Refuse a server to a test of another lane, which would start a second one there (a test may request a fixture
    that it does not name).
    """
    server = fixturedef.argname
    lanes = _LANES_OF_SERVER.get(server)
    if lanes is None:
        return
    item = request.session.stash[_RUNNING]
    if server != "guarded" and item.get_closest_marker("own_broker"):
        pytest.fail(f"{item.nodeid}: {_both(server)}")
    if lane_of(item) not in lanes:
        where = " and the ".join(sorted(lanes, reverse=True))
        pytest.fail(f"{item.nodeid} is of the {lane_of(item)} lane, `{server}` of the {where} lane: mark it")


class _Told:
    """Messages from a process that runs tests to the scheduler and to the other processes: its lanes (xdist's own
    groups travel in a test's name, which pytest 9 does not let it change), and its progress, by two locked files: one
    locked until it runs no test that would disturb timed ones, one until chaos may have company. A process that ended
    or died holds no lock.
    """

    NAME = "lanes-told"

    def __init__(self, folder: Path, name: str, lanes: dict[str, str]) -> None:
        self._folders = [folder / "usual", folder / "timed"]
        self._locked: list[IO[str]] = []
        for at in self._folders:
            at.mkdir(exist_ok=True)
            self._locked.append((at / name).open("w"))
            fcntl.flock(self._locked[-1], fcntl.LOCK_EX)
        self._name = name
        (folder / f"{name}{_LANES_TOLD}").write_text(json.dumps(lanes))

    def close(self) -> None:
        for file in self._locked:
            file.close()

    def wait_before(self, place: int) -> None:
        """Timed tests, chaos, and the remaining CPU-only tests wait until no other process runs a usual test. Tests
        beside chaos count as usual while another process has a usual test; then they wait until no other has a timed
        one. No process waits for the remaining CPU-only tests: both processors are busy before them, and half idle with
        the timed ones.
        """
        if place == _TIMED:
            self._locked[0].close()
            self._wait_for_others(self._folders[0])
        elif place == _COMPANY:
            if self._locked[0].closed or not self._others_run(self._folders[0]):
                self.close()
                self._wait_for_others(self._folders[1])
        elif place in (_LAST, _LEFT):
            self.close()
            self._wait_for_others(self._folders[0])

    def _wait_for_others(self, stage: Path) -> None:
        for path in self._others(stage):
            with path.open() as other:
                fcntl.flock(other, fcntl.LOCK_SH)

    def _others_run(self, stage: Path) -> bool:
        for path in self._others(stage):
            with path.open() as other:
                try:
                    fcntl.flock(other, fcntl.LOCK_SH | fcntl.LOCK_NB)
                except BlockingIOError:
                    return True
        return False

    def _others(self, stage: Path) -> list[Path]:
        return [path for path in stage.iterdir() if path.name != self._name]


@pytest.hookimpl(tryfirst=True)
def pytest_collection_finish(session: pytest.Session) -> None:
    told: dict[str, str] = getattr(session.config, "workerinput", {})
    if _FOLDER in told:
        lanes = {item.nodeid: lane for item in session.items if (lane := lane_of(item)) != _PURE}
        telling = _Told(Path(told[_FOLDER]), told["workerid"], lanes)
        session.config.add_cleanup(telling.close)
        session.config.pluginmanager.register(telling, _Told.NAME)


class _Lanes(LoadScopeScheduling):
    """Hands out the shared, the own and the alone lane whole, and all other tests a few at a time."""

    def __init__(self, config: pytest.Config, log: Producer, folder: Path) -> None:
        super().__init__(config, log)
        self._folder = folder
        self._lanes: dict[str, str] = {}
        self._lost: set[str] = set()

    def schedule(self) -> None:
        for file in self._folder.glob(f"*{_LANES_TOLD}"):
            self._lanes.update(json.loads(file.read_text()))
        pure = [one for one in next(iter(self.registered_collections.values())) if one not in self._lanes]
        handful = max(1, min(_HANDFUL, len(pure) // 100, *Counter(self._lanes.values()).values()))
        self._lanes.update({one: f"{_PURE} {place // handful}" for place, one in enumerate(pure)})
        super().schedule()

    def mark_test_complete(self, node: WorkerController, item_index: int, duration: float = 0) -> None:
        """Forget the test. xdist keeps ended tests, and counts all of them after each test."""
        nodeid = self.registered_collections[node][item_index]
        lane = self._lanes[nodeid]
        left = self.assigned_work[node][lane]
        del left[nodeid]
        if not left:
            del self.assigned_work[node][lane]
        self._reschedule(node)

    def remove_node(self, node: WorkerController) -> str | None:
        self._lost |= {_SHARED, _OWN, _ALONE} & set(self.assigned_work[node])
        return super().remove_node(node)

    def _reschedule(self, node: WorkerController) -> None:
        """No other process takes the rest of these lanes from a process that died: its priority is lowered, and each
        session fixture is created in one process only.
        """
        for lane in self._lost:
            self.workqueue.pop(lane, None)
        if len(self.nodes) > 1 and self._runs_chaos(node):
            # A process begins its last test once it has one after it, or learns that there is none: a test handed out
            # after chaos would wait for it, and the other processes have time for it.
            if not node.shutting_down and self._pending_of(self.assigned_work[node]) <= _BEFORE_THE_LAST:
                node.shutdown()
            return
        super()._reschedule(node)

    def _runs_chaos(self, node: WorkerController) -> bool:
        return any(one.startswith(_CHAOS) for one in self.assigned_work[node].get(_SHARED, ()))

    def _split_scope(self, nodeid: str) -> str:
        return self._lanes[nodeid]


class _Distribution:
    """Hooks of only the process that hands out the tests."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: WorkerController) -> None:
        node.workerinput.update({_FOLDER: str(self._folder)})  # pyright: ignore[reportUnknownMemberType]

    @pytest.hookimpl(tryfirst=True, optionalhook=True)
    def pytest_xdist_make_scheduler(self, config: pytest.Config, log: Producer) -> _Lanes:
        return _Lanes(config, log, self._folder)


def pytest_configure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput") and config.getoption("tx", None):
        if config.option.maxworkerrestart is None:
            config.option.maxworkerrestart = (
                "0"  # a process that died is reported at once, and no other takes its place
            )
        for name in {"COLUMNS", "LINES"} - set(os.environ):
            os.unsetenv(name)  # readline, which pytest imports, sets a terminal's size without Python's knowledge
        if config.getoption("dist") == "loadgroup":
            folder = tempfile.TemporaryDirectory(prefix="lanes-")
            config.add_cleanup(folder.cleanup)
            config.pluginmanager.register(_Distribution(Path(folder.name)), "lanes")
