"""SIGTERM to a busy worker: all its units run elsewhere before its process ends, and their statuses show it.

The other roles' clean stops: herder in `test_leadership.py`, stores in `test_replicas.py`.
"""

from __future__ import annotations

import asyncio
import json
import signal
import time
from collections import Counter
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest

from herdmesh.api.common.v1 import connector_pb2 as common
from herdmesh.api.statusstore.v1 import status_pb2, status_read_service_pb2, status_read_service_pb2_grpc
from herdmesh.rpc.client import connect
from tests.support.mesh import Loader, Mesh, assert_exact, parquet_sink

pytestmark = [
    *(pytest.mark.kafka, pytest.mark.spark),
    *(pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(240)),
]

#: The worker's own bounds (leave 10 s, stop 11 s, closing) end before this; usually it takes 2 s.
STOP_S_MAX = 20.0


@pytest.mark.timed
async def test_a_stopped_worker_hands_its_units_over_before_it_leaves(
    mesh: Mesh, tmp_path: Path, tmp_topic: Callable[..., str], record_property: Callable[[str, object], None]
) -> None:
    topic = mesh.create_topic(tmp_topic())
    name = f"sink-{topic}"
    await mesh.apply(name, parquet_sink(topic, tmp_path / "out"))
    before = await mesh.until_running(name, 2)
    # the one beside the connector's instance, which moves with it
    instance = before["connector"]["worker_id"]
    moving, staying = sorted(before["tasks"], key=lambda task: task["worker_id"] != instance)
    assert moving["worker_id"] == instance, "the instance is on neither task's worker"
    assert moving["worker_id"] != staying["worker_id"], "both tasks are on one worker"
    victim = mesh.service_at(instance)
    process = mesh.stack.processes[victim]
    async with _statuses(mesh, name) as told:
        with Loader(mesh, topic) as loader:
            await mesh.until_committed_at_least(name, topic, 2_000)
            stopped_s = time.monotonic()
            mesh.kill(victim, signal.SIGTERM)
            while process.exit_code is None:
                assert time.monotonic() < stopped_s + STOP_S_MAX, f"{victim} has not ended"
                await asyncio.sleep(0.02)
            took_s = time.monotonic() - stopped_s
            code = process.exit_code
            listed, stored = await asyncio.gather(mesh.get(name), _stored(mesh, name))
            workers = (await mesh.cluster())["workers"]
            after = await mesh.until_running(name, 2)
            reached = loader.count
            await mesh.until_committed_at_least(name, topic, reached)
            loaded = await asyncio.to_thread(loader.finish)
        await mesh.until_committed(name, topic)
    record_property("stop_s", round(took_s, 2))
    print(f"the worker ended {took_s:.2f} s after SIGTERM")
    assert code == 0
    # gone at once, without its grace or its lease; the supervisor's next one has not sent its hello yet, or is another
    # life
    assert moving["worker_id"] not in [one["worker_id"] for one in workers if one["tasks"]]
    owners = {one["worker_id"] for one in (listed["connector"], *listed["tasks"])}
    assert owners == {staying["worker_id"]}, "what it had was not on another worker yet when it had left"
    kept = [one for one in stored if one.worker_id == instance and one.state != common.RUN_STATE_UNASSIGNED]
    assert not kept, "it left what it had as if it still ran"
    assert {one["worker_id"] for one in (after["connector"], *after["tasks"])} == {staying["worker_id"]}
    stayed = after["tasks"][staying["id"]]
    assert stayed["generation"] == staying["generation"], "a task of the other worker was touched"
    for unit in (None, moving["id"]):
        story = [(one.worker_id, one.state) for one in told if _task_of(one) == unit]
        released = story.index((instance, common.RUN_STATE_UNASSIGNED))
        assert (staying["worker_id"], common.RUN_STATE_RUNNING) in story[released:], story
    # the last committed files are published right after the commit
    await mesh.until_published(tmp_path / "out", loaded)
    assert_exact(tmp_path / "out", loaded)


def _task_of(status: status_pb2.Status) -> int | None:
    """None for the connector's instance."""
    return status.task if status.HasField("task") else None


async def _stored(mesh: Mesh, name: str) -> list[status_pb2.Status]:
    """Current statuses of a connector in the status store."""
    async with connect(mesh.stack.state.status_store) as channel:
        stub = status_read_service_pb2_grpc.StatusReadServiceStub(channel)
        request = status_read_service_pb2.ListStatusesRequest(linearizable=True, connectors=[name])
        return [one for one in (await stub.ListStatuses(request, timeout=20)).statuses if one.connector == name]


async def test_workers_that_stop_together_start_nothing_and_do_not_dial_again(
    mesh: Mesh, tmp_path: Path, tmp_topic: Callable[..., str], workers_temporary: Path
) -> None:
    """As `herd down` and a rolling SIGTERM stop them. Once, the units of one went to the other, which was stopping,
    too; and a worker that had left dialled again, and got units.
    """
    topic = mesh.create_topic(tmp_topic(), 1)
    names = [f"stop-{number}-{topic}" for number in range(6)]
    config = {"connector.class": "FileStreamSink", "tasks.max": "1", "topics": topic}
    for name in names:
        await mesh.apply(name, {**config, "file": str(tmp_path / name)})
    for name in names:
        await mesh.until_running(name, 1)
    before = _told(mesh)
    sessions = {said["session"] for said in before if said["event"] == "welcome"}
    workers = [name for name in mesh.stack.processes if name.startswith("worker")]
    processes = [psutil.Process(mesh.pid(name)) for name in workers]
    for name in workers:
        mesh.kill(name, signal.SIGTERM)
    _, alive = await asyncio.to_thread(psutil.wait_procs, processes, STOP_S_MAX)
    assert not alive, "they have not ended"
    await mesh.until_workers()
    for name in names:
        await mesh.until_running(name, 1)
    told = _told(mesh)[len(before) :]
    starts = [said for said in told if said["event"] == "start_unit"]
    late = [said["unit"] for said in starts if said["session"] in sessions]
    assert not late, f"started on workers that stopped: {late}"
    assert len([said for said in told if said["event"] == "welcome"]) == len(workers), "each new life dialled once"
    mine = Counter(said["unit"] for said in starts if topic in said["unit"])
    assert set(mine.values()) == {1}, mine
    assert len(mine) == 2 * len(names)
    for name in names:
        await mesh.delete(name)
    await mesh.assert_temporary(workers_temporary)


def _told(mesh: Mesh) -> list[dict[str, Any]]:
    """The herder's commands to workers, oldest first."""
    wanted = ("start_unit", "welcome")
    lines = (mesh.stack.layout.logs_dir / "herder.log").read_text(errors="replace").splitlines()
    found = [json.loads(line) for line in lines if line.startswith("{") and any(f'"{one}"' in line for one in wanted)]
    return [said for said in found if said["event"] in wanted]


@asynccontextmanager
async def _statuses(mesh: Mesh, name: str) -> AsyncGenerator[list[status_pb2.Status]]:
    """Every status of a connector that the status store sends, in order."""
    told: list[status_pb2.Status] = []
    listening = asyncio.Event()

    async def listen(stub: status_read_service_pb2_grpc.StatusReadServiceAsyncStub) -> None:
        async for event in stub.WatchStatuses(status_read_service_pb2.WatchStatusesRequest(connectors=[name])):
            if event.HasField("status_put"):
                told.append(event.status_put)
            listening.set()

    async with connect(mesh.stack.state.status_store) as channel:
        task = asyncio.create_task(listen(status_read_service_pb2_grpc.StatusReadServiceStub(channel)))
        try:
            await asyncio.wait_for(listening.wait(), 20)
            yield told
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
