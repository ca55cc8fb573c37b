"""The three processes of `make test` (pytest-xdist, `-n auto --dist loadgroup`).

Owns which test runs in which of them, and when. The shared lane has everything that needs the session's broker or
Spark, kills things, or holds a limit of time. The own lane has all with PostgreSQL, S3 or HDFS, what takes `guarded`,
and of what needs but a broker as much as makes the lanes equally long, for which there is a second one. The alone lane
has what starts a broker itself (marker `own_broker`), but for end-to-end tests, which are of the shared lane. The
process that has run that runs the pure lane: the rest, which needs nothing but itself, and takes only the processor
time that the others leave.

In the shared lane come last the fault tests, then what holds a limit of time (marker `timed`), which waits until the
other lanes run nothing, and, as the very last, chaos: three minutes, mostly of waiting. Beside chaos, and stepping back
for it, the own lane runs the last of its tests (`_BESIDE_CHAOS`); it begins with them earlier, for as long as another
lane still has usual ones. What only computes (`_COMPUTES`) is what the pure lane has last, once the others have nothing
usual left, and nobody waits for it: it takes the time that what is timed leaves, and chaos. This order is the same in
one process, but for tests that run side by side (`waiting`) with the first of theirs.

Invariant: each session fixture is made in one process only, but for `kafka`, which the shared and the own lane each
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
#: What here needs a broker, and neither Spark nor quiet, only moves records in its own process, or waits. Not all that
#: could: the own lane would be the longest one.
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
#: What of the own lane runs beside chaos: it holds no limit of time, starts no JVM, and takes no longer than chaos.
_BESIDE_CHAOS = tuple(
    f"libs/connectors/tests/{one}"
    for one in ("common/", "datagen/", "file_stream/", "http/", "mirror/", "parquet/", "postgres/", "test_", "values/")
)
#: What of the pure lane keeps one process busy, talks to nobody, and holds no limit of time but that it ends.
_COMPUTES = ("tests/sim/",)
#: The lanes in which a session's broker, or database server, is made.
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
#: Places in the order of tests. From `_TIMED` on a test waits for other lanes.
_USUAL, _FAULT, _TIMED, _COMPANY, _LAST, _LEFT = range(6)
_STARTED_NICE = os.nice(0)
#: Not more: what talks over gRPC in the pure lane must still be answered in time beside a JVM that starts.
_NICE = 3
#: What is left talks to nobody, and runs beside what is timed, and chaos.
_NICE_LEFT = 19
_SESSION_WEIGHT = Path("/proc/self/autogroup")
#: Pure tests of the whole suite that are handed out at once: each time costs as much as they take. It is no more than a
#: lane has, which xdist hands out first for its length.
_HANDFUL = 20
#: Tests that a process has left when it has to know what comes after them.
_BEFORE_THE_LAST = 2
_RUNNING = pytest.StashKey[pytest.Item]()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """Three processes for the whole suite. A choice of tests is quicker in one, which collects once and starts at
    once; `-s` shows nothing from another process. `-n 3` says otherwise."""
    chosen = config.args_source is not pytest.Config.ArgsSource.TESTPATHS or config.getoption("keyword")
    return 0 if chosen or config.getoption("capture") == "no" else 3


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector: pytest.Collector) -> Generator[None, Any, Any]:
    """Import a file of tests in one process at a time: in a fresh clone the first rewrites and compiles it, and what it
    imports, and the others, some files behind, find that done."""
    if not isinstance(collector, pytest.Module) or "PYTEST_XDIST_WORKER" not in os.environ:
        return (yield)
    with collector.path.open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        return (yield)


def pytest_itemcollected(item: pytest.Item) -> None:
    """Mark what uses a broker or PostgreSQL, so that `-m "not kafka"` forgets no test."""
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
    """What the test is given by `parametrize`, or its fixtures by their own: a place of the kind "s3" asks for `s3`."""
    called: Any = getattr(item, "callspec", None)
    return () if called is None else called.params.values()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put last what minds company."""
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
    """The lane this test is of. A test that runs others with it (`side_by_side`) runs those of its own only."""
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
    """Begin what minds company when it has none. This is no time of the test's own: its time-out begins later."""
    told = item.config.pluginmanager.get_plugin(_Told.NAME)
    if isinstance(told, _Told):
        told.wait_before(_place(item))
    return (yield)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Step back for the other lanes. Only a process that runs no test of theirs after this one does: xdist hands those
    two out first, and whole."""
    item.session.stash[_RUNNING] = item
    place = _place(item)
    steps_back = lane_of(item) == _PURE or place == _COMPANY
    nice = _STARTED_NICE + (_NICE_LEFT if place == _LEFT else _NICE)
    if "PYTEST_XDIST_WORKER" in os.environ and steps_back and os.nice(0) < nice:
        os.nice(nice - os.nice(0))
        if place == _LEFT:
            _have_a_light_session()


def _have_a_light_session() -> None:
    """Linux may weigh sessions against each other first, and only within one of them its processes by niceness
    (`sched_autogroup_enabled`): brokers and services lead their own, and would be held up by ours."""
    with suppress(OSError):
        os.setsid()
        _SESSION_WEIGHT.write_text(str(_NICE_LEFT))


@contextmanager
def asked_by(item: pytest.Item) -> Generator[None]:
    """A fixture is asked for by this test, in whose place pytest runs another (`side_by_side`)."""
    stash = item.session.stash
    running, stash[_RUNNING] = stash[_RUNNING], item
    try:
        yield
    finally:
        stash[_RUNNING] = running


@pytest.hookimpl(tryfirst=True)
def pytest_fixture_setup(fixturedef: pytest.FixtureDef[Any], request: pytest.FixtureRequest) -> None:
    """Refuse a server to a test of another lane, which would make a second one there (a test may ask for a fixture
    that it does not name)."""
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
    """What a process that runs tests has told the one that hands them out, and each other: its lanes (xdist's own
    groups travel in a test's name, which pytest 9 does not let it change), and how far it is, by two files that it has
    locked: one until it runs nothing that what is timed would mind, one until chaos may have company. Who has ended,
    or died, has locked nothing."""

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
        """What is timed, chaos, and what is left wait until no other process runs a usual test. What runs beside chaos
        counts as usual while another process has a usual test; then it waits until no other has a timed one. Nobody
        waits for what is left: both processors are busy before it, and half idle with what is timed."""
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
        """Forget it. xdist keeps what has ended, and counts all of it after each test."""
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
        """What a process that died leaves of these lanes, no other takes: it has stepped back, and each session fixture
        is made in one process only."""
        for lane in self._lost:
            self.workqueue.pop(lane, None)
        if len(self.nodes) > 1 and self._runs_chaos(node):
            # A process begins its last test once it has one after it, or is told that there is none: what it was given
            # after chaos would wait for it, and the others have time for that.
            if not node.shutting_down and self._pending_of(self.assigned_work[node]) <= _BEFORE_THE_LAST:
                node.shutdown()
            return
        super()._reschedule(node)

    def _runs_chaos(self, node: WorkerController) -> bool:
        return any(one.startswith(_CHAOS) for one in self.assigned_work[node].get(_SHARED, ()))

    def _split_scope(self, nodeid: str) -> str:
        return self._lanes[nodeid]


class _Distribution:
    """What only the process has that hands out the tests."""

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
            config.option.maxworkerrestart = "0"  # a process that died says so at once, and no other takes its place
        for name in {"COLUMNS", "LINES"} - set(os.environ):
            os.unsetenv(name)  # readline, which pytest imports, puts a terminal's size behind Python's back
        if config.getoption("dist") == "loadgroup":
            folder = tempfile.TemporaryDirectory(prefix="lanes-")
            config.add_cleanup(folder.cleanup)
            config.pluginmanager.register(_Distribution(Path(folder.name)), "lanes")
