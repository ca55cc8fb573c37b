"""Two releases in one mesh, as in every rolling upgrade: nothing raises, and no task restarts.

The newer release is this tree with additional contract members, and with services that use them (`tests.support.
newer_release`). Both tasks of a connector run all the time, one on a worker of each release; the herder is of the older
release, then of the newer one, then of the older one again, which is a downgrade.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from herdmesh.cli.display import views
from tests.support.mesh import Loader, Mesh, assert_exact, parquet_sink
from tests.support.newer_release import NewerRelease, make_newer_release

pytestmark = [
    *(pytest.mark.kafka, pytest.mark.spark, pytest.mark.slow),
    *(pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(240)),
]
OLDER, NEWER = "worker-1", "worker-2"


@pytest_asyncio.fixture(loop_scope="session")
async def newer(mesh: Mesh, tmp_path: Path) -> AsyncIterator[NewerRelease]:
    """The newer release. Afterwards the shared mesh is of this tree again."""
    release = await asyncio.to_thread(make_newer_release, tmp_path / "newer")
    before = {name: dict(mesh.stack.processes[name].environment) for name in (NEWER, "herder")}
    yield release
    for name, environment in before.items():
        if mesh.stack.processes[name].environment != environment:
            await mesh.restart_as(name, environment)
    await mesh.until_workers()


async def test_no_task_restarts_while_releases_are_mixed(
    mesh: Mesh, newer: NewerRelease, tmp_path: Path, tmp_topic: Callable[..., str]
) -> None:
    topic, folder = mesh.create_topic(tmp_topic()), tmp_path / "out"
    name = f"sink-{topic}"
    today = dict(mesh.stack.processes["herder"].environment)
    await mesh.restart_as(NEWER, {**mesh.stack.processes[NEWER].environment, **newer.environment})
    await mesh.until_workers()
    with Loader(mesh, topic, chunk=200) as load:
        # A newer worker, and the older herder.
        await mesh.apply(name, parquet_sink(topic, folder))
        lives = _lives(await mesh.until(name, _both_run, "RUNNING with both tasks in a process"))
        assert {worker for worker, *_ in lives} == set(mesh.stack.addresses("worker"))
        await _until_sent(newer, "plugin", "state", "message-of-worker")
        assert _lives(await mesh.get(name)) == lives
        plugins = await _herd(mesh, {}, "get", "plugins")
        assert "com.example.Tomorrow" not in {one["class"] for one in plugins}

        # The newer herder, and an older worker and command line.
        await mesh.restart_as("herder", {**today, **newer.environment})
        await _adopted(mesh, name, lives)
        await _until_sent(newer, "message-of-herder", "Connector.target_state", "Worker.state")
        shown = await _herd(mesh, {}, "get", "connectors", name)
        assert (shown["target_state"], shown["type"]) == ("UNKNOWN_90", "unknown_90")
        assert {one["state"] for one in await _herd(mesh, {}, "get", "workers")} == {"UNKNOWN_90"}
        await mesh.lifecycle("PauseConnector", name)
        await mesh.until(name, lambda one: _states(one) == {"PAUSED"}, "PAUSED, by a target state of the newer release")
        assert "target" in newer.sent()
        before = await mesh.get(name)
        await mesh.lifecycle("ResumeConnector", name)
        again = await mesh.until(name, lambda one: _both_run(one) and _ran_since(one, before), "RUNNING in new runs")
        lives = _lives(again)

        # The older herder again, and a newer command line.
        await mesh.restart_as("herder", today)
        await _adopted(mesh, name, lives)
        shown = await _herd(mesh, newer.environment, "get", "connectors", name)
        assert shown["target_state"] == "STARTED"
        count = load.finish()
    await mesh.until_committed(name, topic)
    assert _lives(await mesh.get(name)) == lives
    assert_exact(folder, count)


async def _adopted(mesh: Mesh, name: str, lives: set[tuple[Any, ...]]) -> None:
    """Check that the new leader starts nothing, and that every task continues in its process."""
    async with asyncio.timeout(30):
        while True:
            shown = await mesh.get(name)
            if (await mesh.cluster())["adopted_count"] == 3 and _both_run(shown):
                break
            await asyncio.sleep(0.1)
    assert (await mesh.cluster())["start_count"] == 0
    assert _lives(shown) == lives


async def _until_sent(newer: NewerRelease, *wanted: str) -> None:
    deadline_s = time.monotonic() + 30
    while missing := set(wanted) - newer.sent():
        assert time.monotonic() < deadline_s, f"the newer release never sent {missing}"
        await asyncio.sleep(0.1)


async def _herd(mesh: Mesh, environment: dict[str, str], *arguments: str) -> Any:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "herdmesh.cli", *arguments, "-o", "json", "--herder", mesh.stack.state.herder),
        env={**os.environ, **environment},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    stdout, stderr = await process.communicate()
    assert process.returncode == 0, stderr.decode()
    return json.loads(stdout)


def _states(connector: views.Json) -> set[str]:
    return {one["state"] for one in (connector["connector"], *connector["tasks"])}


def _both_run(connector: views.Json) -> bool:
    tasks = connector["tasks"]
    return _states(connector) == {"RUNNING"} and len(tasks) == 2 and all(_pid(task) for task in tasks)


def _ran_since(connector: views.Json, before: views.Json) -> bool:
    """Whether the displayed progress is that of later runs."""
    earlier = {task["id"]: task["progress"]["run_count"] for task in before["tasks"]}
    return all(task["progress"]["run_count"] > earlier[task["id"]] for task in connector["tasks"])


def _pid(task: views.Json) -> int | None:
    return task.get("progress", {}).get("pid")


def _lives(connector: views.Json) -> set[tuple[Any, ...]]:
    """Worker, task, generation, run and process of each task."""
    return {
        (task["worker_id"], task["id"], task["generation"], task["progress"]["run_count"], _pid(task))
        for task in connector["tasks"]
    }
