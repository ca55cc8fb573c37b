"""A run, or a run and its worker's Python, frozen at each dangerous moment and thawed again: each id once.

Four connectors are armed at once, one per failpoint, so that one take-over tests them all. The run stops itself
(SIGSTOP) exactly at its failpoint; the test then decides its fate.
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from herdmesh.engine.runtime.failpoints import NAMES
from tests.support.mesh import Mesh, assert_exact, parquet_sink

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(180)]

RECORDS_BEFORE = 3_000
RECORDS_AFTER = 3_000


@dataclass(frozen=True)
class Armed:
    """One connector whose run is stopped at one failpoint."""

    name: str
    topic: str
    folder: Path
    failpoint: str
    pid: int
    worker_id: str


async def _freeze_all(mesh: Mesh, tmp_path: Path, tmp_topic: Callable[..., str]) -> list[Armed]:
    """Start a sink per failpoint, give each work, and wait until all are stopped."""
    plans = [(f"sink-{tmp_topic(point)}", tmp_topic(point), tmp_path / point, point) for point in NAMES]
    for _, topic, _, _ in plans:
        mesh.create_topic(topic, partitions=2)
    mesh.arm({name: point for name, _, _, point in plans})
    for name, topic, folder, _ in plans:
        await mesh.apply(name, parquet_sink(topic, folder, tasks=1))
    for name, *_ in plans:
        await mesh.until_running(name, 1)
    for _, topic, _, _ in plans:
        mesh.produce(topic, range(RECORDS_BEFORE))
    pids = await mesh.until_frozen([name for name, *_ in plans])
    armed: list[Armed] = []
    for name, topic, folder, point in plans:
        worker_id = (await mesh.get(name))["tasks"][0]["worker_id"]
        armed.append(Armed(name, topic, folder, point, pids[name], worker_id))
    return armed


async def _check(mesh: Mesh, armed: list[Armed]) -> None:
    for one in armed:
        await mesh.until_committed(one.name, one.topic, timeout_s=90)
    for one in armed:
        # the last committed files are published right after the commit
        await mesh.until_published(one.folder, RECORDS_BEFORE + RECORDS_AFTER)
        assert_exact(one.folder, RECORDS_BEFORE + RECORDS_AFTER)


async def test_a_run_frozen_and_thawed_writes_each_record_once(
    mesh: Mesh, tmp_path: Path, tmp_topic: Callable[..., str]
) -> None:
    """The worker lives: the thawed run continues as if nothing had happened."""
    armed = await _freeze_all(mesh, tmp_path, tmp_topic)
    for one in armed:
        mesh.produce(one.topic, range(RECORDS_BEFORE, RECORDS_BEFORE + RECORDS_AFTER))
    for one in armed:
        os.kill(one.pid, signal.SIGCONT)
    await _check(mesh, armed)


async def test_a_run_frozen_until_its_take_over_publishes_nothing_when_thawed(
    mesh: Mesh, tmp_path: Path, tmp_topic: Callable[..., str]
) -> None:
    """The worker's Python freezes too: other workers take over; thawed, the old owner must publish nothing of its
    own.
    """
    armed = await _freeze_all(mesh, tmp_path, tmp_topic)
    frozen_worker = armed[0].worker_id
    victims = [one for one in armed if one.worker_id == frozen_worker]
    for one in armed:
        if one.worker_id != frozen_worker:
            os.kill(one.pid, signal.SIGCONT)
    service = mesh.service_at(frozen_worker)
    mesh.kill(service, signal.SIGSTOP)
    frozen_s = time.monotonic()
    try:
        for one in armed:
            mesh.produce(one.topic, range(RECORDS_BEFORE, RECORDS_BEFORE + RECORDS_AFTER))
        for one in victims:
            await mesh.until(
                one.name,
                lambda shown: (
                    shown["tasks"][0]["state"] == "RUNNING" and shown["tasks"][0]["worker_id"] != frozen_worker
                ),
                "taken over",
            )
        print(f"take-over from a frozen worker: {time.monotonic() - frozen_s:.2f} s")
        for one in victims:
            await mesh.until_committed(one.name, one.topic, timeout_s=90)
        zombies = [psutil.Process(one.pid) for one in victims]
    finally:
        mesh.kill(service, signal.SIGCONT)
        for one in victims:
            os.kill(one.pid, signal.SIGCONT)
    # each old owner meets the fence and ends its run; Spark may reuse its process, so the test does not wait for its
    # end
    await mesh.until_serving([service])
    await asyncio.to_thread(psutil.wait_procs, zombies, 5)
    await _check(mesh, armed)
