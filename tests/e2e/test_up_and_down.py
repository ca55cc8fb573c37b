"""`herd up --detach`, a supervisor that is killed, `herd up` again, a worker that is killed, `herd down`: the data
folder keeps everything, and the system's temporary folder nothing."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from typer.testing import CliRunner

from herdmesh.cli.app import app
from herdmesh.devstack.broker import QUICK_JVM
from herdmesh.devstack.layout import StackLayout
from tests.support.mesh import parquet_sink

pytestmark = [pytest.mark.own_broker, pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(240)]
UP = ("up", "--detach", "--herders", "2", "--store-replicas", "2")


async def _process(folder: Path, *arguments: str) -> tuple[int, Any]:
    """A command in a process of its own, which leaves the supervisor behind when it ends."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "herdmesh.cli", *arguments, "-o", "json"),
        cwd=folder,
        env={**os.environ, "JDK_JAVA_OPTIONS": " ".join([*QUICK_JVM, f"-Djava.io.tmpdir={os.environ['TMPDIR']}"])},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    stdout, stderr = await process.communicate()
    assert process.returncode is not None
    assert stdout, stderr.decode()
    return process.returncode, json.loads(stdout)


async def _herd(*arguments: str) -> tuple[int, Any]:
    """A command in this process and its folder."""
    # in a thread: the command runs an event loop of its own
    done = await asyncio.to_thread(CliRunner().invoke, app, [*arguments, "-o", "json"], catch_exceptions=False)
    assert done.stdout, done.stderr
    return done.exit_code, json.loads(done.stdout)


def _until(holds: Callable[[], object]) -> None:
    deadline_s = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < deadline_s
        time.sleep(0.05)


@pytest.fixture
def temporary(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty temporary folder for all started processes; its name is short enough for sockets in it."""
    with tempfile.TemporaryDirectory(prefix="u-") as folder:
        monkeypatch.setenv("TMPDIR", folder)
        monkeypatch.setattr("tempfile.tempdir", None)
        yield Path(folder)


async def test_a_second_up_continues_after_a_killed_supervisor(
    tmp_path: Path, temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first supervisor dies by kill -9 and leaves its services behind; the second ends them and continues, with all
    replicas. Commands in the folder find the current leader and writers. A killed worker is started again. At the end
    no process and no temporary file is left.
    """
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    config = tmp_path / "sink.json"
    config.write_text(json.dumps({"name": "kept", "config": parquet_sink("nowhere-yet", tmp_path / "out", tasks=1)}))
    try:
        code, first = await _process(tmp_path, *UP)
        assert (code, first["ready"]) == (0, True)
        names = ["config-store", "config-store-2", "herder", "herder-2", "status-store", "status-store-2", "worker-1"]
        assert sorted(one["name"] for one in first["services"] if one["name"] != "broker") == names
        assert [len(first[part].split(",")) for part in ("herder", "config_store", "status_store")] == [2, 2, 2]
        code, refused = await _process(tmp_path, *UP)
        assert code == 1
        assert str(first["supervisor"]["pid"]) in refused["error"]["message"]
        code, _ = await _herd("apply", "-f", str(config))
        assert code == 0

        os.kill(first["supervisor"]["pid"], signal.SIGKILL)
        code, second = await _process(tmp_path, *UP)
        assert (code, second["ready"]) == (0, True)
        before = {one["name"]: one for one in first["services"]}
        for one in second["services"]:
            kept = one["mark"] == before[one["name"]]["mark"]
            assert kept == (one["name"] == "broker"), f"{one['name']}: the broker is adopted, the rest is started anew"
        code, found = await _herd("get", "connectors", "kept")
        assert (code, found["name"], found["target_state"]) == (0, "kept", "STARTED")
        (worker,) = [one for one in second["services"] if one["name"] == "worker-1"]
        left = set(os.listdir(temporary))
        os.kill(worker["mark"]["pid"], signal.SIGKILL)
        await asyncio.to_thread(_until, lambda: set(os.listdir(temporary)) - left)  # the next worker has its folder
        assert not left & set(os.listdir(temporary)), "the next worker removes what the killed one left"
    finally:
        code, stopped = await _process(tmp_path, "down")
    assert (code, stopped["result"], stopped["context"]) == (0, "stopped", second["context"])
    state = StackLayout(tmp_path / ".herd").read_state()
    assert state is not None
    running = [process for one in state.services if one.mark is not None and (process := one.mark.alive()) is not None]
    _, alive = await asyncio.to_thread(psutil.wait_procs, running, 30)
    assert not alive
    assert not os.listdir(temporary)
