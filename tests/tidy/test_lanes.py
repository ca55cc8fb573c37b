"""The three processes of `make test`, tried on small tests: which process runs which test, the order, and the
output.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

_ROOT = Path(__file__).parents[2]
_INI = """[pytest]
addopts = --import-mode=importlib
testpaths = tests parts services libs
markers =
    kafka: as here
    own_broker: as here
    postgres: as here
    spark: as here
    timed: as here
"""
_CONFTEST = 'pytest_plugins = ["tests.support.lanes"]\n'
_TEST = """import fcntl
import os
import pathlib
import time
import pytest

@pytest.fixture(scope="session")
def kafka():
    pass

@pytest.fixture(scope="session")
def guarded():
    pass

@pytest.fixture(scope="session")
def postgres():
    pass

@pytest.fixture
def asked(request):
    request.getfixturevalue("kafka")

def runs(path):
    with path.open() as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False

def tables():
    return os.path.exists("log") and "tables" in open("log").read()

{mark}
def test_{name}({fixture}):
    if "{name}" == "long":
        began_s = time.monotonic()
        while time.monotonic() < began_s + 1:  # so that what waits for it would come first if it did not wait
            pass
        while "PYTEST_XDIST_WORKER" in os.environ and not tables() and time.monotonic() < began_s + 20:
            time.sleep(0.01)
    if "{name}" == "moves" and "PYTEST_XDIST_WORKER" in os.environ:
        told = pathlib.Path(request.config.workerinput["lanes_folder"], "usual")
        others = [path for path in told.iterdir() if path.name != os.environ["PYTEST_XDIST_WORKER"]]
        began_s = time.monotonic()
        while any(map(runs, others)) and time.monotonic() < began_s + 20:
            time.sleep(0.01)
    if "{name}" == "chaos" and "PYTEST_XDIST_WORKER" in os.environ:
        began_s = time.monotonic()
        while "writes" not in open("log").read() and time.monotonic() < began_s + 20:  # what it has for company
            time.sleep(0.01)
    if "{name}" == "limit" and "PYTEST_XDIST_WORKER" in os.environ:
        began_s = time.monotonic()
        while "stories" not in open("log").read() and time.monotonic() < began_s + 20:  # which does not wait for it
            time.sleep(0.01)
    with open("log", "a") as log:
        print("{name}", os.environ.get("PYTEST_XDIST_WORKER", "alone"), os.nice(0), file=log)
    print("said before it failed")
    assert "{name}" != "chaos"
"""
_FILES = {
    "tests/faults/test_chaos.py": ("chaos", "", ""),
    "tests/faults/test_kills.py": ("kills", "", ""),
    "tests/test_limit.py": ("limit", "@pytest.mark.timed", ""),
    "parts/test_jobs.py": ("jobs", "@pytest.mark.spark", ""),
    "parts/test_the_postgres_source_page_runs_as_printed.py": ("tables", "", "postgres"),
    "parts/test_topics.py": ("topics", "", "kafka"),
    "parts/test_hung.py": ("hung", "@pytest.mark.own_broker", ""),
    "parts/test_login.py": ("login", "", "guarded"),
    "libs/connectors/tests/postgres/test_sink.py": ("moves", "", "kafka, request"),
    "libs/connectors/tests/postgres/test_table.py": ("reads", "", "kafka"),
    "libs/connectors/tests/postgres/test_write.py": ("writes", "", "kafka"),
    "parts/test_long.py": ("long", "", ""),
    "parts/test_pure.py": ("pure", "", ""),
    "parts/test_state.py": ("state", "", ""),
    "tests/sim/test_stories.py": ("stories", "", ""),
}
_SHARED = ["jobs", "topics", "kills", "limit", "chaos"]
_OWN = ["login", "tables"]
_ALONE = "hung"
_EARLY, _COMPANY = "moves", ["reads", "writes"]
_PURE = ["long", "pure", "state", "stories"]
_PASSED = len(_FILES) - 1


@pytest.fixture
def sample(tmp_path: Path) -> Path:
    (tmp_path / "pytest.ini").write_text(_INI)
    (tmp_path / "conftest.py").write_text(_CONFTEST)
    for path, (name, mark, fixture) in _FILES.items():
        file = tmp_path / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(_TEST.format(name=name, mark=mark, fixture=fixture))
    return tmp_path


def _pytest(folder: Path, *arguments: str, xdist: bool = True) -> subprocess.CompletedProcess[str]:
    """Run pytest. Up to four processes at once, so each loads only the plugin under test: the others take twice as long
    to import as all else together.
    """
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *arguments]
    command += ["-p", "xdist.plugin"] if xdist else []
    environment = {name: text for name, text in os.environ.items() if not name.startswith("PYTEST_")}
    environment |= {"PYTHONPATH": str(_ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=99, check=False)


def _run(folder: Path, *arguments: str) -> tuple[str, list[list[str]]]:
    """Pytest's output, and a line per test in the order they ran: name, process, niceness."""
    done = _pytest(folder, "-n", "auto", "--dist", "loadgroup", *arguments)
    assert done.returncode == 1, done.stdout + done.stderr
    return done.stdout, [line.split() for line in (folder / "log").read_text().splitlines()]


def test_the_whole_suite_runs_in_three_processes(sample: Path) -> None:
    printed, ran = _run(sample, "--junitxml=found.xml")
    order = [name for name, _, _ in ran]
    where = {name: process for name, process, _ in ran}
    assert [name for name in order if name in _SHARED] == _SHARED, "what minds company is last"
    last = order[order.index("limit") :]
    # a lane of so few tests gets one of the pure lane before it has ended
    assert [name for name in last if name not in _PURE] == ["limit", *_COMPANY, "chaos"], "and has none, but for chaos"
    assert [name for name in last if name != "stories"][1] == _COMPANY[0], "what is timed has none"
    assert order.index("stories") == order.index("limit") - 1, "but for what only computes"
    assert [name for name in order if name in [*_OWN, _EARLY]] == [*_OWN, _EARLY]
    assert order.index(_EARLY) < order.index("limit"), "another lane still ran usual tests"
    own = [*_OWN, _EARLY, *_COMPANY]
    assert all(len({where[name] for name in lane}) == 1 for lane in (_SHARED, own)), "one broker each"
    assert where["chaos"] not in {where[name] for name in _PURE}, "nothing waits for chaos"
    assert len({where[name] for name in ("chaos", "tables", _ALONE)}) == 3
    assert order.index(_ALONE) < order.index("long")
    nice = {name: int(niceness) for name, _, niceness in ran}
    assert {nice[name] for name in [*_SHARED, *_OWN, _ALONE]} == {os.nice(0)}
    assert min(nice[name] for name in _PURE + _COMPANY) > os.nice(0), "the pure lane steps back, and chaos' company"
    assert "said before it failed" in printed
    assert "\nFAILED tests/faults/test_chaos.py::test_chaos - " in printed
    assert printed.splitlines()[-1].startswith("=")
    assert f"1 failed, {_PASSED} passed" in printed.splitlines()[-1]
    names = {case.get("name") for case in ElementTree.parse(sample / "found.xml").iter("testcase")}
    assert names == {f"test_{name}" for name, _, _ in _FILES.values()}


@pytest.mark.parametrize("chosen", [["-k", "chaos or pure"], ["tests/faults/test_chaos.py", "parts/test_pure.py"]])
def test_a_selection_of_tests_runs_in_one_process(sample: Path, chosen: list[str]) -> None:
    _, ran = _run(sample, *chosen)
    assert [(name, process) for name, process, _ in ran] == [("pure", "alone"), ("chaos", "alone")]


def test_no_process_takes_over_from_a_shared_lane_that_died(sample: Path) -> None:
    dying = sample / "parts/test_topics.py"
    dying.write_text(dying.read_text() + "    os._exit(1)\n")
    printed, ran = _run(sample)
    assert [name for name, _, _ in ran if name in _SHARED] == ["jobs", "topics"]
    assert "crashed while running 'parts/test_topics.py::test_topics'" in printed
    assert "worker restarting disabled" in printed


def test_without_xdist_one_process_runs_all_tests(sample: Path) -> None:
    done = _pytest(sample, xdist=False)
    assert done.returncode == 1, done.stdout + done.stderr
    assert f"1 failed, {_PASSED} passed" in done.stdout


_WRONG = {
    "both": ("@pytest.mark.own_broker", "kafka", ": marked own_broker (or takes `guarded`), and takes `kafka`"),
    "three": ("", "guarded, postgres", ": marked own_broker (or takes `guarded`), and takes `postgres`"),
    "two": ("", "guarded, kafka", ": marked own_broker (or takes `guarded`), and takes `kafka`"),
    "timed": (
        "@pytest.mark.own_broker\n@pytest.mark.timed",
        "",
        ": what is timed (or chaos) waits for the own and the alone lane",
    ),
}
_WRONG_LATER = {
    "own": ("@pytest.mark.own_broker", "asked", ": marked own_broker (or takes `guarded`), and takes `kafka`"),
    "pure": ("", "asked", " is of the pure lane, `kafka` of the shared and the own lane: mark it"),
}


@pytest.mark.parametrize("wrong", [_WRONG, _WRONG_LATER], ids=["said", "asked"])
def test_a_test_cannot_use_a_broker_of_another_lane(sample: Path, wrong: dict[str, tuple[str, str, str]]) -> None:
    for name, (mark, fixture, _) in wrong.items():
        (sample / f"parts/test_{name}.py").write_text(_TEST.format(name=name, mark=mark, fixture=fixture))
    done = _pytest(sample, *(f"parts/test_{name}.py" for name in wrong))
    assert done.returncode != 0
    printed = done.stdout + done.stderr
    for name, (*_, said) in wrong.items():
        assert f"parts/test_{name}.py::test_{name}{said}" in printed


def test_chaos_cannot_have_a_broker_of_its_own(sample: Path) -> None:
    """It would wait for its own lane to end."""
    mark = "@pytest.mark.own_broker"
    (sample / "tests/faults/test_chaos.py").write_text(_TEST.format(name="chaos", mark=mark, fixture=""))
    done = _pytest(sample, "tests/faults/test_chaos.py")
    assert done.returncode != 0
    assert (
        "test_chaos.py::test_chaos: what is timed (or chaos) waits for the own and the alone lane"
        in done.stdout + done.stderr
    )
