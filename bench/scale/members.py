"""Members that come and go, with real processes: restarts of units, times, memory and threads.

    make bench-scale-members
    make bench-scale-members ARGS="--units 700 1500 --results members.json"

Each size has a mesh of its own, and half as many connectors as units, each with one task that soon idles. Then, one
after the other: a worker is killed and returns, the leading herder is killed, the writing replica of each store is
killed, a worker is drained and undrained, each worker is stopped cleanly and returns (a rolling restart), everything is
stopped and started again, and a worker is added. A start is needless if its unit was not on a worker that went; a move
for balance, which comes later and a few at a time, is counted separately. After the full restart the herders balance
after 5 s, not after the default of five minutes, so that the units moved to the added worker can be counted. Prints a
Markdown table of all sizes with the law by which each figure grows; `--results` keeps the figures in a file, and sizes
that were measured before are in the table, too. Exit code 1 when any start was needless, or a goal was missed.

Owns the sequence of changes and its counts, from the logs of the herders.
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
from pathlib import Path
from typing import Any

from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from bench.scale.figures import missed, table
from bench.scale.real_mesh import RealMesh, Unit
from herdmesh.api.common.v1 import connector_pb2 as common
from herdmesh.api.herder.v1 import config_messages_pb2 as pb
from herdmesh.api.herder.v1.connector_service_pb2_grpc import ConnectorServiceStub
from herdmesh.rpc import properties
from herdmesh.rpc.client import connect

_TOPIC = "scale-members"
_CREATORS = 8
_WAIT_S = 600.0
_LOOK_S = 0.5
#: time after a change in which nothing more may start.
_AFTERWARDS_S = 5.0
#: balance delay of the herders after the full restart.
_BALANCE_DELAY_MS = 5_000


class Story:
    """The sequence of changes at one size. `figures` has the measurements so far."""

    def __init__(self, mesh: RealMesh, units: int, afterwards_s: float = _AFTERWARDS_S) -> None:
        self._mesh = mesh
        self._afterwards_s = afterwards_s
        self._units = units
        self.figures: dict[str, float] = {}

    async def tell(self) -> None:
        """Carry out all changes, in order."""
        mesh = self._mesh
        begun_s = time.monotonic()
        await self.create()
        places = await self._until_running()
        took_s = time.monotonic() - begun_s
        starts = [said for said in mesh.news() if said["event"] == "start_unit"]
        self._note("created: starts more than units", len(starts) - self._units)
        self._note("created: all run after, s", took_s)
        self._usage("all run")
        names = {mesh.worker_name(worker_id): worker_id for worker_id in {worker for _, worker in places.values()}}
        first, second = min(names), max(names)
        await self._after("a worker is killed, and returns", names[first], lambda: self._kill(first))
        await self._after("the leader is killed", "", self._kill_leader)
        for store in ("config-store", "status-store"):
            await self._after(
                f"the writer of the {store.replace('-', ' ')} is killed",
                "",
                lambda store=store: self._kill_writer(store),
            )
        await self._after("a worker is drained", names[second], lambda: mesh.drain(names[second]))
        await self._after("the drained worker is let back", "", lambda: mesh.undrain(names[second]))
        for number, name in enumerate((first, second), start=1):
            await self._after(
                f"rolling restart, worker {number} is stopped, and returns",
                names[name],
                lambda name=name: self._terminate(name),
            )
        await self._full_restart()
        await self._scale_out()
        self._usage("in the end")

    def _note(self, figure: str, value: float) -> None:
        self.figures[figure] = value
        print(f"  {figure}: {value:.4g}", flush=True)

    def _usage(self, when: str) -> None:
        for figure, value in self._mesh.usage().items():
            self._note(f"{when}: {figure}", value)

    async def create(self) -> None:
        """Create half as many connectors as units, each with one task."""
        await asyncio.to_thread(_make_topic, self._mesh.stack.broker.bootstrap)
        names = iter(range(self._units // 2))
        channel = connect(await self._mesh.leader_address())
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
        self._count(what, its)
        self._note(f"{what}: all run after, s", took_s)

    async def _until_changed(self, gone: str) -> None:
        """Wait until the leader has noticed that a worker went: no unit is shown RUNNING there."""
        end_s = time.monotonic() + 60
        while gone and time.monotonic() < end_s:
            shown = await self._mesh.shown()
            if shown and not any(
                worker == gone and state == common.RUN_STATE_RUNNING for state, worker in shown.values()
            ):
                return
            await asyncio.sleep(0.1)

    def _count(self, what: str, its: set[Unit]) -> int:
        """Count the starts since the last call; `its` are the units of the workers that went. Returns the moves for
        balance.
        """
        total, needless, balanced = counted(self._mesh.news(), its)
        self._note(f"{what}: starts", total)
        self._note(f"{what}: needless starts", needless)
        self._note(f"{what}: moves for balance", balanced)
        return balanced

    async def _kill(self, name: str) -> None:
        self._mesh.kill(name)

    async def _kill_leader(self) -> None:
        self._mesh.kill(await self._mesh.leader())

    async def _kill_writer(self, store: str) -> None:
        """Kill the writing replica, and wait until another process writes."""
        end_s = time.monotonic() + 60
        killed = 0
        while True:
            writer = await self._mesh.writer(store)
            pid = self._mesh.pid(writer) if writer else 0
            if pid and not killed:
                self._mesh.kill(writer)
                killed = pid
            elif pid and pid != killed:
                return
            if time.monotonic() > end_s:
                raise TimeoutError(f"no replica of the {store} writes 60 s after process {killed} was killed")
            await asyncio.sleep(0.05)

    async def _terminate(self, name: str) -> None:
        self._mesh.terminate(name)

    async def _full_restart(self) -> None:
        mesh = self._mesh
        before = await self._until_running()
        mesh.news()
        begun_s = time.monotonic()
        await mesh.stack.stop()
        took_s = time.monotonic() - begun_s
        self._count("everything is stopped", set())
        self._note("everything is stopped: ended after, s", took_s)
        begun_s = time.monotonic()
        await mesh.again({"HERDMESH_BALANCE_DELAY_MS": str(_BALANCE_DELAY_MS)})
        await self._until_running()
        took_s = time.monotonic() - begun_s
        await asyncio.sleep(self._afterwards_s)
        self._count("everything is started again", set(before))
        self._note("everything is started again: all run after, s", took_s)

    async def _scale_out(self) -> None:
        """Add a worker, and wait until each has its share."""
        mesh = self._mesh
        before = Counter(worker for _, worker in (await self._until_even()).values())
        mesh.news()
        what = "a worker is added"
        begun_s = time.monotonic()
        await mesh.stack.add_worker()
        await self._until_even()
        took_s = time.monotonic() - begun_s
        await asyncio.sleep(self._afterwards_s)
        share = self._units // (len(before) + 1)
        balanced = self._count(what, set())
        self._note(f"{what}: moves more than needed", max(0, balanced - share - 2))
        self._note(f"{what}: each has its share after, s", took_s)

    async def _until_even(self) -> dict[Unit, tuple[int, str]]:
        """Wait until everything runs and workers are even: connectors and tasks are each spread to within one."""
        end_s = time.monotonic() + _WAIT_S
        while True:
            shown = await self._until_running()
            loads = Counter(worker for _, worker in shown.values())
            counts = [loads[address] for address in self._mesh.stack.addresses("worker")]
            if max(counts) - min(counts) <= 2:
                return shown
            if time.monotonic() > end_s:
                raise TimeoutError(f"the workers have {counts} units after {_WAIT_S:g} s")
            await asyncio.sleep(_LOOK_S)


def counted(said: Sequence[dict[str, Any]], its: set[Unit]) -> tuple[int, int, int]:
    """From the herders' commands to workers: starts, needless starts, units that moved for balance. `its` are the units
    of the workers that went: each of them needs one start.
    """
    starts, balanced = Counter[Unit](), set[Unit]()
    for one in said:
        unit = _unit(one["unit"])
        if one["event"] == "start_unit":
            starts[unit] += 1
        elif one["reason"].endswith("for balance"):
            balanced.add(unit)
    needless = sum(max(0, count - (unit in its) - (unit in balanced)) for unit, count in starts.items())
    return starts.total(), needless, len(balanced)


def _unit(label: str) -> Unit:
    """The unit of `[flights|task-0]` or `[flights|worker]`."""
    connector, _, which = label[1:-1].rpartition("|")
    return connector, None if which == "worker" else int(which.removeprefix("task-"))


def _make_topic(bootstrap: str) -> None:
    admin: Any = AdminClient({"bootstrap.servers": bootstrap})
    for future in admin.create_topics([NewTopic(_TOPIC, 1, 1)]).values():
        future.result()


async def measure(units: int) -> dict[str, float]:
    """Every figure at one size; if the sequence fails, the figures until then."""
    with tempfile.TemporaryDirectory(prefix="herdmesh-bench-members-") as folder:
        mesh = RealMesh(Path(folder))
        await mesh.start()
        story = Story(mesh, units)
        try:
            await story.tell()
        except (TimeoutError, RuntimeError) as error:
            story.figures["broke off (1 = yes)"] = 1
            print(f"{units} units: broke off: {error}", file=sys.stderr, flush=True)
        finally:
            await mesh.stack.stop()
        return story.figures


def main(sizes: Sequence[int], results: Path | None) -> int:
    """Measure all sizes; returns the number of needless starts, failed sequences, and missed goals."""
    measured: dict[int, dict[str, float]] = {}
    if results is not None and results.exists():
        measured = {int(units): figures for units, figures in json.loads(results.read_text()).items()}
    for units in sizes:
        print(f"{units} units", flush=True)
        measured[units] = asyncio.run(measure(units))
        if results is not None:
            results.write_text(json.dumps(measured, indent=1))
    print(table(measured, units=int), flush=True)
    below = [f"{size} units: {goal}" for size in sizes for goal in missed(measured[size])]
    print("\n".join(below), flush=True)
    bad = ("needless starts", "starts more than units", "moves more than needed", "broke off (1 = yes)")
    needless = sum(value for size in sizes for figure, value in measured[size].items() if figure.endswith(bad))
    return int(needless) + len(below)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m bench.scale.members", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--units", type=int, nargs="+", default=[100, 300, 700, 1_500], help="units of each size")
    parser.add_argument("--results", type=Path, help="a file of figures to read and to add to")
    options = parser.parse_args()
    sys.exit(1 if main(options.units, options.results) else 0)
