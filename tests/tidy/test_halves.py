"""The two processes of `make test`, tried on seven small tests: who runs what, in which order, and what is printed."""

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
testpaths = tests parts
markers =
    kafka: as here
    spark: as here
    timed: as here
"""
_CONFTEST = 'pytest_plugins = ["tests.support.halves"]\n'
_TEST = """import os
import pytest

@pytest.fixture
def kafka():
    pass

{mark}
def test_{name}({fixture}):
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
    "parts/test_topics.py": ("topics", "", "kafka"),
    "parts/test_pure.py": ("pure", "", ""),
    "parts/test_state.py": ("state", "", ""),
}
_SHARED = ["jobs", "topics", "limit", "kills", "chaos"]


@pytest.fixture
def sample(tmp_path: Path) -> Path:
    (tmp_path / "pytest.ini").write_text(_INI)
    (tmp_path / "conftest.py").write_text(_CONFTEST)
    for path, (name, mark, fixture) in _FILES.items():
        file = tmp_path / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(_TEST.format(name=name, mark=mark, fixture=fixture))
    return tmp_path


def _pytest(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *arguments]
    environment = {name: text for name, text in os.environ.items() if not name.startswith("PYTEST_")}
    environment["PYTHONPATH"] = str(_ROOT)
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=60, check=False)


def _run(folder: Path, *arguments: str) -> tuple[str, list[list[str]]]:
    """What pytest printed, and a line per test in the order they ran: name, process, niceness."""
    done = _pytest(folder, "-n", "auto", "--dist", "loadgroup", *arguments)
    assert done.returncode == 1, done.stdout + done.stderr
    return done.stdout, [line.split() for line in (folder / "log").read_text().splitlines()]


def test_the_whole_suite_takes_two_processes(sample: Path) -> None:
    printed, ran = _run(sample, "--junitxml=found.xml")
    where = {name: process for name, process, _ in ran}
    assert [name for name, _, _ in ran if name in _SHARED] == _SHARED, "what minds company is last"
    assert len({where[name] for name in _SHARED}) == 1, "one broker is enough"
    assert where["pure"] == where["state"] != where["chaos"]
    nice = {name: int(niceness) for name, _, niceness in ran}
    assert nice["pure"] == nice["state"] > nice["chaos"] == os.nice(0), "the pure half steps back"
    assert "said before it failed" in printed
    assert "\nFAILED tests/faults/test_chaos.py::test_chaos - " in printed
    assert printed.splitlines()[-1].startswith("=")
    assert "1 failed, 6 passed" in printed.splitlines()[-1]
    names = {case.get("name") for case in ElementTree.parse(sample / "found.xml").iter("testcase")}
    assert names == {f"test_{name}" for name, _, _ in _FILES.values()}


@pytest.mark.parametrize("chosen", [["-k", "chaos or pure"], ["tests/faults/test_chaos.py", "parts/test_pure.py"]])
def test_a_choice_takes_one(sample: Path, chosen: list[str]) -> None:
    _, ran = _run(sample, *chosen)
    assert [(name, process) for name, process, _ in ran] == [("pure", "alone"), ("chaos", "alone")]


def test_nobody_takes_over_from_a_shared_half_that_died(sample: Path) -> None:
    dying = sample / "parts/test_topics.py"
    dying.write_text(dying.read_text() + "    os._exit(1)\n")
    printed, ran = _run(sample)
    assert [name for name, _, _ in ran if name in _SHARED] == ["jobs", "topics"]
    assert "crashed while running 'parts/test_topics.py::test_topics'" in printed
    assert "worker restarting disabled" in printed


def test_without_xdist_one_process_runs_all(sample: Path) -> None:
    done = _pytest(sample, "-p", "no:xdist")
    assert done.returncode == 1, done.stdout + done.stderr
    assert "1 failed, 6 passed" in done.stdout
