"""docs/how-to/run-services.md, run as printed: the four services against a real broker, each by its one command.

The addresses of the page stand for free ports, and its broker for the session's.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from herdmesh.devstack.broker import QUICK_JVM, Broker
from herdmesh.devstack.ports import free_ports
from herdmesh.devstack.stack import topics_of
from tests.docs.blocks import Block, blocks
from tests.e2e.test_tutorial import matches

PAGE = "docs/how-to/run-services.md"
WAIT_S = 90.0
pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(240)]


@pytest.fixture
def started() -> Iterator[list[subprocess.Popen[bytes]]]:
    """Services of the test, ended with it."""
    processes: list[subprocess.Popen[bytes]] = []
    yield processes
    for process in reversed(processes):
        process.terminate()
    for process in processes:
        assert process.wait(60) == 0, process.args


def test_each_service_starts_with_one_command(
    kafka: Broker, tmp_path: Path, started: list[subprocess.Popen[bytes]]
) -> None:
    names = {"127.0.0.1:9092": kafka.bootstrap}
    names |= dict(zip((f"127.0.0.1:{port}" for port in range(7201, 7205)), map(_address, free_ports(4)), strict=True))
    shown = [one for one in blocks(PAGE) if one.language in ("sh", "text")]
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith("HERDMESH_")},
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
        "JDK_JAVA_OPTIONS": " ".join(QUICK_JVM),
        # topics that no other test has
        "HERDMESH_GROUP_ID": "services-page",
        **topics_of("services-page"),
    }
    listens = iter(list(names.values())[1:])
    for at, block in enumerate(shown):
        if block.language == "text":
            continue
        command = _renamed(block.text.strip(), names)
        if command.startswith("herdmesh-"):
            with (tmp_path / f"{at}.log").open("wb") as log:
                env = {**environment, "HERDMESH_LISTEN": next(listens)}
                started.append(subprocess.Popen(shlex.split(command), cwd=tmp_path, env=env, stderr=log))
        else:
            _until_printed(command, _wanted(shown[at + 1], names), tmp_path, environment)
    assert len(started) == 4


def _until_printed(command: str, wanted: str, folder: Path, environment: dict[str, str]) -> None:
    deadline_s = time.monotonic() + WAIT_S
    while True:
        done = subprocess.run(
            ["bash", "-c", command], cwd=folder, env=environment, capture_output=True, text=True, check=False
        )
        if matches(done.stdout, wanted):
            return
        logs = "".join(path.read_text()[-2000:] for path in sorted(folder.glob("*.log")))
        assert time.monotonic() < deadline_s, f"{command} printed\n{done.stdout}{done.stderr}\n{logs}"


def _wanted(block: Block, names: dict[str, str]) -> str:
    assert block.language == "text"
    return _renamed(block.text, names)


def _renamed(text: str, names: dict[str, str]) -> str:
    return re.sub(r"127\.0\.0\.1:\d+", lambda found: names[found[0]], text)


def _address(port: int) -> str:
    return f"127.0.0.1:{port}"
