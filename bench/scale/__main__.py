"""The control plane at several sizes: creates, lists, 200 watchers, memory and threads of every process.

    make bench-scale
    make bench-scale ARGS="--connectors 100 700 --watchers 50"

Each size has a broker, two stores, a herder and workers that only speak the protocol, all of their own.
Prints a Markdown table of all sizes with the law by which each figure grows. Run it alone.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from bench.scale.figures import TASKS, missed, table, units_of
from bench.scale.stack import Stack
from herdmesh.api.common.v1 import connector_pb2 as common
from herdmesh.api.herder.v1 import admin_messages_pb2 as admin_pb
from herdmesh.api.herder.v1 import config_messages_pb2 as pb
from herdmesh.api.herder.v1.connector_service_pb2_grpc import ConnectorServiceStub
from herdmesh.rpc import properties
from herdmesh.rpc.client import connect
from herdmesh.rpc.errors import HerdmeshError
from herdmesh.rpc.request_ids import new_request_id

_WORKERS = 2
_CREATORS = 8
_CALLERS = 64
_LIST_S = 5.0
_WAIT_S = 300.0
_PAUSE_S = 0.2
_BIG_TASKS = 500
_CHURN = 300
#: issue 25 sets its goals for this many connectors.
_GOALS_UP_TO = 700


class _Client:
    """A user of the public service."""

    def __init__(self, herder: str) -> None:
        self._channel = connect(herder)
        self._stub = ConnectorServiceStub(self._channel)

    async def close(self) -> None:
        await self._channel.close()

    async def until_workers(self, count: int) -> None:
        """Wait for workers to be there."""
        async with asyncio.timeout(_WAIT_S):
            while True:
                try:
                    found = await self._stub.ListWorkers(admin_pb.ListWorkersRequest())
                    if len(found.workers) == count:
                        return
                except HerdmeshError:
                    pass  # no herder leads yet
                await asyncio.sleep(_PAUSE_S)

    async def create(self, name: str, tasks: int) -> None:
        """Create a connector."""
        config = properties.to_proto(_config(name, tasks))
        request = pb.CreateConnectorRequest(request_id=new_request_id(), name=name, config=config)
        await self._stub.CreateConnector(request, timeout=60)

    async def reconfigure(self, name: str, tasks: int) -> None:
        """Change a connector's config, and so that of all its tasks."""
        config = properties.to_proto({**_config(name, tasks), "note": "new"})
        request = pb.UpdateConnectorRequest(request_id=new_request_id(), name=name, config=config)
        await self._stub.UpdateConnector(request, timeout=60)

    async def delete(self, name: str) -> None:
        """Delete a connector."""
        await self._stub.DeleteConnector(pb.DeleteConnectorRequest(request_id=new_request_id(), name=name), timeout=60)

    async def describe(self, name: str) -> pb.GetConnectorResponse:
        """Send the requests of `herd describe`."""
        return await self._stub.GetConnector(pb.GetConnectorRequest(name=name), timeout=60)

    async def until_running(self, units: int, of: str = "", started: int = 0) -> None:
        """Wait until `units` units run, and those of the connector `of` were started `started` times."""
        async with asyncio.timeout(_WAIT_S):
            while await self._running() < units or (of and await self._starts(of) < started):  # noqa: ASYNC110 - as a user
                await asyncio.sleep(_PAUSE_S)

    async def until_gone(self, name: str) -> None:
        """Wait until no worker holds a unit of a connector."""
        async with asyncio.timeout(_WAIT_S):
            while True:
                workers = (await self._stub.ListWorkers(admin_pb.ListWorkersRequest())).workers
                held = [unit.connector for one in workers for unit in one.tasks] + [
                    c for w in workers for c in w.connectors
                ]
                if name not in held:
                    return
                await asyncio.sleep(_PAUSE_S)

    async def _starts(self, name: str) -> int:
        found = (await self.describe(name)).connector
        return min(status.start_count for status in (found.status, *(task.status for task in found.tasks)))

    async def _running(self) -> int:
        running, token = 0, ""
        while True:
            request = pb.ListConnectorsRequest(view=pb.CONNECTOR_VIEW_STATUS, page_token=token)
            page = await self._stub.ListConnectors(request, timeout=60)
            for one in page.connectors:
                states = [one.status.state, *(task.status.state for task in one.tasks)]
                running += states.count(common.RUN_STATE_RUNNING)
            token = page.next_page_token
            if not token:
                return running


def _config(name: str, tasks: int) -> dict[str, str]:
    return {"name": name, "connector.class": "TestSink", "tasks.max": str(tasks), "topics": "t"}


async def measure(connectors: int, watchers: int) -> dict[str, float]:
    """Every figure at one size."""
    figures: dict[str, float] = {}
    with tempfile.TemporaryDirectory(prefix="herdmesh-bench-scale-") as name:
        stack = Stack(Path(name))
        await stack.start()
        client = _Client(stack.herder)
        workers = await stack.load("workers", stack.herder, stack.status_store, str(_WORKERS))
        try:
            await workers.said()
            await client.until_workers(_WORKERS)
            await _creates(client, connectors, figures)
            for process, usage in stack.usage().items():
                figures[f"{process}: memory, MB"] = usage.memory_mb
                figures[f"{process}: threads"] = usage.threads
            await _lists(stack, figures)
            await _watches(stack, watchers, figures)
            await _big(client, units_of(connectors), figures)
            await _churn(stack, client, figures)
            slow = [one["took_ms"] for one in stack.logged("herder", "slow_step")]
            figures["slowest step of the herder's loop over 50 ms, ms (0 = none)"] = max(slow, default=0)
            roles = stack.logged("herder", "role")
            figures["times that the leader lost its leadership"] = sum(not one["leading"] for one in roles)
        finally:
            await client.close()
            await workers.stop()
            await stack.stop()
    return figures


async def _creates(client: _Client, connectors: int, figures: dict[str, float]) -> None:
    names = iter(range(connectors))

    async def creator() -> None:
        for number in names:
            await client.create(f"c{number:04}", TASKS[number % len(TASKS)])

    begun_s = time.monotonic()
    await asyncio.gather(*(creator() for _ in range(_CREATORS)))
    figures["creates by 8 callers, a second"] = connectors / (time.monotonic() - begun_s)
    await client.until_running(units_of(connectors))
    figures["first create until all run, s"] = time.monotonic() - begun_s


async def _lists(stack: Stack, figures: dict[str, float]) -> None:
    load = await stack.load("list", stack.herder, str(_CALLERS), str(_LIST_S))
    said = await load.said()
    await load.stop()
    figures[f"lists with status by {_CALLERS} callers, a second"] = said["per_s"]
    figures["lists: median, ms"] = said["p50_s"] * 1000
    figures["lists: 99th percentile, ms"] = said["p99_s"] * 1000


async def _watches(stack: Stack, watchers: int, figures: dict[str, float]) -> None:
    before = stack.cpu_s("herder")
    load = await stack.load("watch", stack.herder, str(watchers))
    said = await load.said()
    if said["broken"]:
        raise RuntimeError(f"a watch broke: {said['broken']}")
    figures[f"{watchers} watchers: last snapshot complete, s"] = said["took_s"][-1]
    figures[f"{watchers} watchers: processor time of the leader, s"] = stack.cpu_s("herder") - before
    figures[f"{watchers} watchers: memory of the leader, MB"] = stack.usage()["herder"].memory_mb
    await load.stop()


async def _big(client: _Client, units: int, figures: dict[str, float]) -> None:
    begun_s = time.monotonic()
    await client.create("big", _BIG_TASKS)
    await client.until_running(units + _BIG_TASKS + 1)
    figures[f"one more connector of {_BIG_TASKS} tasks: until all run, s"] = time.monotonic() - begun_s
    begun_s = time.monotonic()
    await client.describe("big")
    figures[f"a connector of {_BIG_TASKS} tasks: described in, ms"] = (time.monotonic() - begun_s) * 1000
    begun_s = time.monotonic()
    await client.reconfigure("big", _BIG_TASKS)
    await client.until_running(units + _BIG_TASKS + 1, "big", started=2)
    figures[f"a connector of {_BIG_TASKS} tasks: all run with a new config after, s"] = time.monotonic() - begun_s
    begun_s = time.monotonic()
    await client.delete("big")
    await client.until_gone("big")
    figures[f"a connector of {_BIG_TASKS} tasks: deleted and stopped after, s"] = time.monotonic() - begun_s


async def _churn(stack: Stack, client: _Client, figures: dict[str, float]) -> None:
    before = stack.usage()
    for _ in range(2):  # the first rounds leave the garbage that any mesh has after a while
        before = stack.usage()
        for _ in range(_CHURN):
            await client.create("again", 1)
            await client.delete("again")
    for process, usage in stack.usage().items():
        grown_mb = usage.memory_mb - before[process].memory_mb
        figures[f"{process}: grown by {_CHURN} creates and deletes, MB"] = grown_mb


async def main(sizes: Sequence[int], watchers: int) -> int:
    """Measure every size and print the table. Returns the number of missed goals."""
    measured: dict[int, dict[str, float]] = {}
    below: list[str] = []
    for size in sizes:
        print(f"{size} connectors", flush=True)
        measured[size] = await measure(size, watchers)
        for figure, value in measured[size].items():
            print(f"  {figure}: {value:.4g}", flush=True)
        if size <= _GOALS_UP_TO:
            below += [f"{size} connectors: {goal}" for goal in missed(measured[size])]
    print(table(measured), flush=True)
    print("\n".join(below) or "every goal is met", flush=True)
    return len(below)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m bench.scale", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--connectors", type=int, nargs="+", default=[100, 300, 700, 1_500], help="the sizes")
    parser.add_argument("--watchers", type=int, default=200, help="streams of WatchConnectors")
    options = parser.parse_args()
    sys.exit(1 if asyncio.run(main(options.connectors, options.watchers)) else 0)
