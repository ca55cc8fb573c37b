"""The pages for newcomers, run as printed: files, commands, output, all in one cluster.

docs/tutorials/connector.md starts the cluster and stops it; once it runs come README.md, docs/quick-start.md,
docs/how-to/topics-and-records.md and docs/how-to/bad-records.md, without their own start and stop. A `sh` block is run
once. A `sh` block with a `text` block behind it is run until it prints that text, in which `...` stands for anything.
"""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from herdmesh.devstack.broker import QUICK_JVM
from herdmesh.devstack.layout import StackLayout
from herdmesh.devstack.ports import PortReservations
from herdmesh.devstack.supervisor import stop_detached

ROOT = Path(__file__).resolve().parents[2]
TUTORIAL = ROOT / "docs" / "tutorials" / "connector.md"
#: Pages whose commands need a running cluster.
IN_A_CLUSTER = (
    ROOT / "README.md",
    ROOT / "docs" / "quick-start.md",
    ROOT / "docs" / "how-to" / "topics-and-records.md",
    ROOT / "docs" / "how-to" / "bad-records.md",
)
WAIT_S = 60.0
CONNECTOR_LINES_MAX = 60
_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_FILE = re.compile(r"`([\w.]+\.(?:py|toml))`")


@dataclass(frozen=True)
class Block:
    language: str
    text: str
    file: str
    """Name of a file, from the text before the block."""


def blocks(path: Path = TUTORIAL) -> list[Block]:
    """All blocks of a page, in order."""
    page = path.read_text()
    found: list[Block] = []
    end = 0
    for block in _BLOCK.finditer(page):
        names = _FILE.findall(page[end : block.start()])
        found.append(Block(block[1], block[2], names[-1] if names else ""))
        end = block.end()
    return found


def in_a_cluster(path: Path) -> list[Block]:
    """The blocks of a page without the commands that start and stop the cluster."""
    found = [
        replace(one, text=re.sub(r"^herd (up|down).*\n", "", one.text, flags=re.MULTILINE)) for one in blocks(path)
    ]
    return [one for one in found if one.language in ("sh", "text") and one.text]


def its_tests(found: list[Block]) -> list[Block]:
    """The two in which the page runs the connector's tests."""
    (first,) = [at for at, block in enumerate(found) if block.text == "pytest -q\n"]
    return found[first : first + 2]


def write_files(folder: Path) -> dict[str, str]:
    files = {block.file: block.text for block in blocks() if block.language in ("python", "toml")}
    for name, text in files.items():
        (folder / name).write_text(text)
    return files


def environment(folder: Path) -> dict[str, str]:
    """As in an environment with Herdmesh: installed packages go to a folder of the test's."""
    site = folder.parent / "site"
    return {
        **os.environ,
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
        "PYTHONPATH": os.pathsep.join([str(site), *filter(None, sys.path)]),
        "PIP_TARGET": str(site),
        "PIP_NO_DEPS": "1",
        "PIP_NO_INDEX": "1",
        "PIP_NO_BUILD_ISOLATION": "0",  # pip reads this as: build isolation is off
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
        "PYTEST_ADDOPTS": "-p no:cacheprovider",
        "JDK_JAVA_OPTIONS": " ".join(QUICK_JVM),
    }


def shell(text: str, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["bash", "-euc", text], cwd=folder, env=environment(folder), capture_output=True, text=True, check=False
    )


def matches(printed: str, wanted: str) -> bool:
    pattern = ".*".join(map(re.escape, wanted.strip().split("...")))
    lines = "\n".join(line.rstrip() for line in printed.splitlines())
    return re.fullmatch(pattern, lines.strip(), re.DOTALL) is not None


def run_all(chosen: list[Block], folder: Path) -> None:
    for at, block in enumerate(chosen):
        if block.language != "sh":
            continue
        wanted = chosen[at + 1].text if at + 1 < len(chosen) and chosen[at + 1].language == "text" else None
        deadline_s = time.monotonic() + WAIT_S
        done = shell(block.text, folder)
        while wanted is not None and not matches(done.stdout, wanted):
            assert time.monotonic() < deadline_s, f"{block.text}printed\n{done.stdout}{done.stderr}"
            time.sleep(0.2)
            done = shell(block.text, folder)
        assert done.returncode == 0, f"{block.text}{done.stdout}{done.stderr}"


def test_the_connector_is_short_and_its_tests_pass_as_printed(tmp_path: Path) -> None:
    folder = tmp_path / "tutorial"
    folder.mkdir()
    files = write_files(folder)
    assert list(files) == ["folder_source.py", "test_folder_source.py", "pyproject.toml"]
    assert files["folder_source.py"].count("\n") < CONNECTOR_LINES_MAX
    run_all(its_tests(blocks()), folder)
    style = [sys.executable, "-m", "ruff", "check", "--select", "E,F,UP,B", "--line-length", "120", str(folder)]
    checked = subprocess.run(style, capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stdout


@pytest.mark.own_broker
@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.timeout(240)
def test_every_command_prints_the_output_of_the_pages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    folder = tmp_path / "tutorial"
    folder.mkdir()
    write_files(folder)
    # Not the usual ports: another mesh may take one between its choice and its use.
    services = ("config-store", "status-store", "herder", "worker-1")
    StackLayout(folder / ".herd").choose_ports(services, PortReservations(), usual=False)
    try:
        found, told_above = blocks(), its_tests(blocks())
        tutorial = [block for block in found if block not in told_above]
        (up,) = [at for at, block in enumerate(tutorial) if "herd up" in block.text]
        run_all(tutorial[: up + 1], folder)
        for page in IN_A_CLUSTER:  # each deletes its connectors, so that the lists of the next one have its own alone
            run_all(in_a_cluster(page), folder)
        run_all(tutorial[up + 1 :], folder)
    finally:
        asyncio.run(stop_detached(folder / ".herd"))  # nothing is left to stop when all went well
