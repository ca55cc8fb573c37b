"""Members that come and go, with real processes: whose units restart, and how long it takes.

    python -m bench.scale.members --units 100 300

Each size has a broker, two replicas of each store, two herders and two workers of its own, and half as many connectors
as units, each with one task that soon idles. Then, one after the other: a worker is killed and returns, the leading
herder is killed, a replica of each store is killed, a worker is stopped cleanly and returns, everything is stopped and
started again. A start is needless if its unit was not on a worker that went; a move for balance, which comes later
and a few at a time, is counted beside. Prints a Markdown table; exit code 1 when any start was needless.

Owns the story and its counts, from the logs of the herders.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from bench.usage import memory_mb
from herdmesh.api.common.v1 import connector_pb2 as common
from herdmesh.api.herder.v1 import admin_messages_pb2 as admin_pb
from herdmesh.api.herder.v1 import config_messages_pb2 as pb
from herdmesh.api.herder.v1.connector_service_pb2_grpc import ConnectorServiceStub
from herdmesh.devstack.stack import Stack, StackSettings
from herdmesh.rpc import properties
from herdmesh.rpc.client import connect
from herdmesh.rpc.errors import HerdmeshError

_TOPIC = "scale-members"
_CREATORS = 8
_WAIT_S = 900.0
_LOOK_S = 0.5
#: how long after a change nothing more may start.
_AFTERWARDS_S = 5.0

Unit = tuple[str, int | None]


@dataclass(frozen=True, slots=True)
class Row:
    """What came of one change."""

    what: str
    starts: int
    needless: int
    stops: int
    balance: int
    took_s: float


class Mesh:
    """A stack, and what its herders logged."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._settings = StackSettings(folder, workers=2, herders=2, store_replicas=2, usual_ports=False)
        self.stack = Stack(self._settings)
        self._read: dict[Path, int] = {}

    async def start(self) -> None:
        await self.stack.start(300)

    async def again(self) -> None:
        """A stack anew on the same data."""
        self.stack = Stack(self._settings)
        await self.stack.start(300)

    def news(self) -> list[dict[str, Any]]:
        """What herders told workers to start and to stop since the last look."""
        found: list[dict[str, Any]] = []
        for log in sorted((self._folder / "logs").glob("herder*.log")):
            text = log.read_bytes()
            end = text.rfind(b"\n") + 1
            lines = text[self._read.get(log, 0) : end].decode(errors="replace").splitlines()
            self._read[log] = end
            found += [json.loads(line) for line in lines if '"start_unit"' in line or '"stop_unit"' in line]
        return found

    async def shown(self) -> dict[Unit, tuple[int, str]]:
        """State and worker of every unit, as the leader tells them. Raises HerdmeshError while nobody leads."""
        for address in self.stack.addresses("herder"):
            channel = connect(address)
            try:
                request = pb.ListConnectorsRequest(view=pb.CONNECTOR_VIEW_STATUS)
                answer = await ConnectorServiceStub(channel).ListConnectors(request, timeout=30)
            except HerdmeshError:
                continue
            finally:
                await channel.close()
            found: dict[Unit, tuple[int, str]] = {}
            for one in answer.connectors:
                found[one.name, None] = (one.status.state, one.status.worker_id)
                for task in one.tasks:
                    found[one.name, task.id.task] = (task.status.state, task.status.worker_id)
            return found
        return {}

    async def leader(self) -> str:
        """The name of the process that leads."""
        addresses = self.stack.addresses("herder")
        for name, address in zip(("herder", "herder-2"), addresses, strict=True):
            channel = connect(address)
            try:
                cluster = await ConnectorServiceStub(channel).GetCluster(admin_pb.GetClusterRequest(), timeout=10)
                if cluster.epoch and cluster.leader_address == address:
                    return name
            except HerdmeshError:
                continue
            finally:
                await channel.close()
        raise RuntimeError("no herder leads")

    def kill(self, *names: str) -> None:
        """kill -9 of these processes, which their supervisor starts again."""
        for name in names:
            mark = self.stack.processes[name].mark
            if mark is not None:
                psutil.Process(mark.pid).kill()

    def usage(self) -> str:
        """Memory of every process with its children, and threads."""
        parts: list[str] = []
        for name, process in self.stack.processes.items():
            if process.mark is None:
                continue
            one = psutil.Process(process.mark.pid)
            tree = [one, *one.children(recursive=True)]
            threads = sum(each.num_threads() for each in tree)
            parts.append(f"{name} {memory_mb(tree):.0f} MB, {threads} threads")
        return "; ".join(parts)


class Story:
    """One size."""

    def __init__(self, mesh: Mesh, units: int, afterwards_s: float = _AFTERWARDS_S) -> None:
        self._mesh = mesh
        self._afterwards_s = afterwards_s
        self._units = units
        self.rows: list[Row] = []

    async def tell(self) -> None:
        """Everything, in order."""
        mesh = self._mesh
        begun_s = time.monotonic()
        await self.create()
        places = await self._until_running()
        starts = [said for said in mesh.news() if said["event"] == "start_unit"]
        repeated = len(starts) - self._units
        self.rows.append(Row("created", len(starts), repeated, 0, 0, time.monotonic() - begun_s))
        print(f"{self._units} units: {mesh.usage()}", flush=True)
        names = {self._worker_name(worker_id): worker_id for worker_id in {worker for _, worker in places.values()}}
        first = min(names)
        await self._after("a worker is killed, and returns", names[first], lambda: self._kill(first))
        await self._after("the leader is killed", "", self._kill_leader)
        await self._after("a replica of the config store is killed", "", lambda: self._kill("config-store"))
        await self._after("a replica of the status store is killed", "", lambda: self._kill("status-store"))
        second = max(names)
        await self._after("a worker is stopped, and returns", names[second], lambda: self._terminate(second))
        await self._full_restart()
        print(f"{self._units} units, in the end: {mesh.usage()}", flush=True)

    def _worker_name(self, worker_id: str) -> str:
        """The process of a worker id, which is its address."""
        addresses = list(self._mesh.stack.addresses("worker"))
        return f"worker-{addresses.index(worker_id) + 1}"

    async def create(self) -> None:
        """Half as many connectors as units, each with one task."""
        await asyncio.to_thread(_make_topic, self._mesh.stack.broker.bootstrap)
        names = iter(range(self._units // 2))
        leader = await self._mesh.leader()
        address = self._mesh.stack.addresses("herder")[("herder", "herder-2").index(leader)]
        channel = connect(address)
        stub = ConnectorServiceStub(channel)

        async def some() -> None:
            for number in names:
                name = f"scale-{number:04}"
                config = {"connector.class": "FileStreamSink", "topics": _TOPIC, "file": "/dev/null", "tasks.max": "1"}
                request = pb.CreateConnectorRequest(name=name, config=properties.to_proto(config), request_id=name)
                await stub.CreateConnector(request, timeout=_WAIT_S)

        await asyncio.gather(*(some() for _ in range(_CREATORS)))
        await channel.close()

    async def _until_running(self) -> dict[Unit, tuple[int, str]]:
        end_s = time.monotonic() + _WAIT_S
        while True:
            shown = await self._mesh.shown()
            running = sum(state == common.RUN_STATE_RUNNING for state, _ in shown.values())
            if running == self._units:
                return shown
            if time.monotonic() > end_s:
                raise TimeoutError(f"{running} of {self._units} units run after {_WAIT_S:g} s")
            await asyncio.sleep(_LOOK_S)

    async def _after(self, what: str, gone: str, change: Callable[[], Awaitable[None]]) -> None:
        """Carry out a change and wait until everything runs; `gone` is the id of the worker that goes."""
        before = await self._until_running()
        self._mesh.news()
        begun_s = time.monotonic()
        await change()
        await self._until_changed(gone)
        await self._until_running()
        took_s = time.monotonic() - begun_s
        await asyncio.sleep(self._afterwards_s)
        its = {unit for unit, (_, worker) in before.items() if worker == gone}
        self.rows.append(self._row(what, its, took_s))

    async def _until_changed(self, gone: str) -> None:
        """Until the leader has noticed that a worker went: no unit is shown RUNNING there."""
        end_s = time.monotonic() + 60
        while gone and time.monotonic() < end_s:
            shown = await self._mesh.shown()
            if shown and not any(
                worker == gone and state == common.RUN_STATE_RUNNING for state, worker in shown.values()
            ):
                return
            await asyncio.sleep(0.1)

    def _row(self, what: str, its: set[Unit], took_s: float) -> Row:
        starts, stops, balanced = Counter[Unit](), 0, set[Unit]()
        for said in self._mesh.news():
            unit = _unit(said["unit"])
            if said["event"] == "start_unit":
                starts[unit] += 1
            else:
                stops += 1
                if said["reason"].endswith("for balance"):
                    balanced.add(unit)
        needless = sum(count - (unit in its) for unit, count in starts.items() if unit not in balanced)
        return Row(what, starts.total(), max(0, needless), stops, len(balanced), took_s)

    async def _kill(self, name: str) -> None:
        self._mesh.kill(name)

    async def _kill_leader(self) -> None:
        self._mesh.kill(await self._mesh.leader())

    async def _terminate(self, name: str) -> None:
        mark = self._mesh.stack.processes[name].mark
        assert mark is not None
        psutil.Process(mark.pid).terminate()

    async def _full_restart(self) -> None:
        mesh = self._mesh
        before = await self._until_running()
        mesh.news()
        begun_s = time.monotonic()
        await mesh.stack.stop()
        row = self._row("everything is stopped", set(), time.monotonic() - begun_s)
        self.rows.append(row)
        begun_s = time.monotonic()
        await mesh.again()
        await self._until_running()
        took_s = time.monotonic() - begun_s
        await asyncio.sleep(self._afterwards_s)
        self.rows.append(self._row("everything is started again", set(before), took_s))


def _unit(label: str) -> Unit:
    """Of `[flights|task-0]` or `[flights|worker]`."""
    connector, _, which = label[1:-1].rpartition("|")
    return connector, None if which == "worker" else int(which.removeprefix("task-"))


def _make_topic(bootstrap: str) -> None:
    admin: Any = AdminClient({"bootstrap.servers": bootstrap})
    for future in admin.create_topics([NewTopic(_TOPIC, 1, 1)]).values():
        future.result()


def table(units: int, rows: Sequence[Row]) -> str:
    """Markdown."""
    lines = [f"**{units} units**", "", "| Change | starts | needless | stops | for balance | all run after |"]
    lines.append("|---|---|---|---|---|---|")
    lines += [
        f"| {row.what} | {row.starts} | {row.needless} | {row.stops} | {row.balance} | {row.took_s:.1f} s |"
        for row in rows
    ]
    return "\n".join(lines)


async def main(sizes: Sequence[int]) -> int:
    """All sizes; how many starts were needless."""
    needless = 0
    for units in sizes:
        with tempfile.TemporaryDirectory(prefix="herdmesh-bench-members-") as folder:
            mesh = Mesh(Path(folder))
            await mesh.start()
            try:
                story = Story(mesh, units)
                try:
                    await story.tell()
                finally:
                    print(table(units, story.rows), flush=True)
            finally:
                await mesh.stack.stop()
            needless += sum(row.needless for row in story.rows)
    return needless


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m bench.scale.members", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--units", type=int, nargs="+", default=[100, 300, 700, 1_500], help="units of each size")
    sys.exit(1 if asyncio.run(main(parser.parse_args().units)) else 0)
