"""Many connectors on twenty workers over real gRPC: herders in processes of their own, stores and fake workers here.

1,000 connectors with four tasks each under `make soak`, 100 in `make test`. `-s` prints the figures: time until all
run, ListConnectors with status, memory and processor time of an idle herder, a lost worker, another leader.
"""

from __future__ import annotations

import asyncio
import json
import os
import statistics
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import grpc.aio
import pytest
import pytest_asyncio

from herdmesh.api.common.v1 import connector_pb2 as common
from herdmesh.api.herder.v1 import admin_messages_pb2 as admin_pb
from herdmesh.api.herder.v1 import config_messages_pb2 as pb
from herdmesh.api.herder.v1 import connector_pb2
from herdmesh.api.herder.v1.connector_service_pb2_grpc import ConnectorServiceStub
from herdmesh.configstore.__main__ import serve as serve_config_store
from herdmesh.configstore.settings import ConfigStoreSettings
from herdmesh.devstack.ports import HOST, free_port
from herdmesh.herder.loop import STEP_MS_MAX
from herdmesh.rpc import properties
from herdmesh.rpc.client import retrying
from herdmesh.rpc.errors import HerdmeshError
from herdmesh.statusstore.__main__ import make_store
from herdmesh.statusstore.__main__ import serve as serve_status_store
from herdmesh.statusstore.settings import StatusStoreSettings
from tests.support.fleet import SINK_CLASS, FleetWorker
from tests.support.sizes import SOAKING, soak_or
from tests.support.store_process import StoreProcess

if TYPE_CHECKING:
    from herdmesh.api.herder.v1.connector_service_pb2_grpc import ConnectorServiceAsyncStub

pytestmark = pytest.mark.timed

CONNECTORS = soak_or(100, 1_000)
TASKS = 4
WORKERS = 20
IDLE_S = soak_or(2, 20)
WAIT_S = soak_or(60, 300)
#: Promises at the full size: ListConnectors with status; placement of a lost worker's units, from when it counts as
#: lost until the last start command; one step of the herder's state.
LIST_MS_GOAL, PLACED_S_GOAL, STEP_MS_GOAL = 200, 1.0, STEP_MS_MAX
#: The soak holds it to that. Where tests run, other work may have the same cores: there a gate is three times as much.
GATE = 1 if SOAKING else 3
LIST_MS_MAX = GATE * LIST_MS_GOAL * CONNECTORS / 1_000
#: Until the last of them is RUNNING for a client that polls.
RUNNING_S_MAX = 3 * PLACED_S_GOAL
#: As by default: a short stall of the machine loses no worker.
STREAM_GRACE_MS = 2_000


class HerderProcess(StoreProcess):
    """A herder. It serves ("writes") while it leads."""

    module = "herdmesh.herder"
    read_service = write_service = "herdmesh.api.herder.v1.ConnectorService"

    def __init__(self, config_store: str, status_store: str, log_path: Path) -> None:
        grace = f"--stream-grace-ms={STREAM_GRACE_MS}"
        stores = [f"--config-store={config_store}", f"--status-store={status_store}"]
        super().__init__([*stores, grace, "--balance-delay-ms=1000"], log_path)

    def stub(self, channel: grpc.aio.Channel) -> None:
        self.client: ConnectorServiceAsyncStub = ConnectorServiceStub(channel)


class Fleet:
    """The whole fleet."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.herders: list[HerderProcess] = []
        self.workers: dict[str, FleetWorker] = {}
        self.addresses: list[str] = []
        self.config_store, self.status_store = f"{HOST}:{free_port()}", f"{HOST}:{free_port()}"
        self._stop = asyncio.Event()

    async def start(self) -> None:
        config = ConfigStoreSettings(listen=self.config_store, memory=True, metrics=False)
        status = StatusStoreSettings(listen=self.status_store, memory=True, metrics=False)
        self._serving = [
            asyncio.create_task(serve_config_store(config, self._stop)),
            asyncio.create_task(serve_status_store(self._stop, status, make_store(status))),
        ]
        await self.add_herder()
        await self.herders[0].until_writing()
        for number in range(WORKERS):
            name = f"w{number:02}"
            self.workers[name] = FleetWorker(name, self.addresses, self.status_store)

    async def add_herder(self) -> HerderProcess:
        log_path = self._folder / f"herder-{len(self.herders)}.log"
        herder = HerderProcess(self.config_store, self.status_store, log_path)
        await herder.start()
        self.herders.append(herder)
        self.addresses.append(herder.address)
        return herder

    async def end(self) -> None:
        for worker in self.workers.values():
            await worker.end()
        for process in self.herders:
            await process.kill()
        self._stop.set()
        await asyncio.gather(*self._serving)

    async def statuses(self, herder: HerderProcess) -> list[connector_pb2.Connector]:
        request = pb.ListConnectorsRequest(view=pb.CONNECTOR_VIEW_STATUS)
        return list((await herder.client.ListConnectors(request)).connectors)

    async def until_all_run(self, herder: HerderProcess) -> float:
        """Seconds until every connector and task is RUNNING on a live worker."""
        begun_s = time.monotonic()

        async def all_run() -> bool:
            shown = await self.statuses(herder)
            statuses = [status for one in shown for status in (one.status, *(task.status for task in one.tasks))]
            running = [status for status in statuses if status.state == common.RUN_STATE_RUNNING]
            wanted = CONNECTORS * (1 + TASKS)
            return len(running) == wanted and all(status.worker_id in self.workers for status in running)

        await until(all_run)
        return time.monotonic() - begun_s


async def until(reached: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(WAIT_S):
        while True:
            try:
                if await reached():
                    return
            except HerdmeshError:
                pass  # no herder leads at the moment
            await asyncio.sleep(0.25)


def cpu_s(pid: int) -> float:
    """Processor time of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text("utf-8").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def memory_mb(pid: int) -> float:
    lines = Path(f"/proc/{pid}/status").read_text("utf-8").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS")) / 1024


def said(herder: HerderProcess, event: str) -> list[dict[str, Any]]:
    """Log lines of this event."""
    lines = herder.log_path.read_text("utf-8").splitlines(keepends=True)
    found = [json.loads(line) for line in lines if line.endswith("\n") and f'"{event}"' in line]
    return [line for line in found if line["event"] == event]


@pytest_asyncio.fixture
async def fleet(tmp_path: Path) -> AsyncIterator[Fleet]:
    made = Fleet(tmp_path)
    await made.start()
    yield made
    await made.end()


async def create_all(herder: HerderProcess) -> None:
    names = iter(range(CONNECTORS))

    async def some() -> None:
        for number in names:
            name = f"connector-{number:04}"
            config = {"connector.class": SINK_CLASS, "tasks.max": str(TASKS), "topics": name}
            request = pb.CreateConnectorRequest(
                name=name, config=properties.to_proto(config), request_id=f"create-{name}"
            )
            await retrying(lambda request=request: herder.client.CreateConnector(request), WAIT_S)

    await asyncio.gather(*(some() for _ in range(8)))


@pytest.mark.asyncio
async def test_many_connectors_over_grpc(fleet: Fleet) -> None:
    """One story, because a mesh of this size takes a while to build."""
    herder = fleet.herders[0]
    begun_s = time.monotonic()
    await create_all(herder)
    created_s = time.monotonic() - begun_s
    await fleet.until_all_run(herder)
    run_s = time.monotonic() - begun_s
    print(f"\n{CONNECTORS} connectors x {TASKS} created in {created_s:.1f} s, all run after {run_s:.1f} s")

    async def balanced() -> bool:
        loads = sorted(len(worker.held) for worker in fleet.workers.values())
        return sum(loads) == CONNECTORS * (1 + TASKS) and loads[-1] - loads[0] <= 2  # within one of either kind

    await until(balanced)

    shown = await fleet.statuses(herder)
    took_ms: list[float] = []
    while len(took_ms) < 10:
        begun_s = time.monotonic()
        shown = await fleet.statuses(herder)
        took_ms.append(1_000 * (time.monotonic() - begun_s))
        assert len(shown) == CONNECTORS
    print(f"ListConnectors with status: median {statistics.median(took_ms):.0f} ms, most {max(took_ms):.0f} ms")
    assert not shown[0].config.entries
    assert not shown[0].tasks[0].config.entries
    assert statistics.median(took_ms) < LIST_MS_MAX

    before_s = cpu_s(herder.pid)
    begun_s = time.monotonic()
    memory = memory_mb(herder.pid)
    while time.monotonic() - begun_s < IDLE_S:
        await asyncio.sleep(0.25)
        memory = max(memory, memory_mb(herder.pid))
    idle = (cpu_s(herder.pid) - before_s) / (time.monotonic() - begun_s)
    print(f"an idle herder: {memory:.0f} MB, {100 * idle:.1f} % of a core")

    lost = fleet.workers.pop("w07")
    starts = sum(worker.start_count for worker in fleet.workers.values())
    lost_at = datetime.now(UTC)
    await lost.end()
    again_s = await fleet.until_all_run(herder)
    moved = sum(worker.start_count for worker in fleet.workers.values()) - starts
    print(
        f"a worker with {len(lost.held)} units is lost: all run after {again_s:.1f} s, {STREAM_GRACE_MS} ms of it grace"
    )
    assert moved == len(lost.held)
    assert again_s - STREAM_GRACE_MS / 1_000 < RUNNING_S_MAX
    last_start = datetime.fromisoformat(said(herder, "start_unit")[-1]["timestamp"])
    placed_s = (last_start - lost_at).total_seconds() - STREAM_GRACE_MS / 1_000
    print(f"from when it was given up until the last unit was told to start elsewhere: {placed_s:.2f} s")
    assert placed_s < GATE * PLACED_S_GOAL

    following = await fleet.add_herder()
    starts += moved
    await herder.end()
    begun_s = time.monotonic()
    await following.until_writing()
    await fleet.until_all_run(following)

    async def all_adopted() -> bool:
        cluster = await following.client.GetCluster(admin_pb.GetClusterRequest())
        return cluster.adopted_count == CONNECTORS * (1 + TASKS)

    await until(all_adopted)
    print(f"the leader is killed: another has adopted everything after {time.monotonic() - begun_s:.1f} s")
    assert sum(worker.start_count for worker in fleet.workers.values()) == starts, "0 tasks restarted"
    for process in fleet.herders:
        slow = said(process, "slow_step")
        print(f"{len(slow)} slow steps", *slow[:5], sep="\n  ")
        assert not [step for step in slow if step["took_ms"] > GATE * STEP_MS_GOAL]
