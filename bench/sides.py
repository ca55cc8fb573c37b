"""The two clusters that are compared: ours as a stack of processes, Java Connect as its workers.

Owns the start, the requests, the observation and the kills of each, so that a bench treats both alike. Both sides run
on one broker, with the session timeout of `SESSION_MS` and no delay before a lost worker's units move.

Invariant: RUNNING means the same on both sides: the cluster's own API shows RUNNING for the connector and all its
tasks, on a live worker. Our side is observed by the watch; Java has none, so its status is polled without a pause.
"""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import sys
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, Protocol

import psutil

from herdmesh.api.herder.v1 import config_messages_pb2 as messages
from herdmesh.cli.batch.connector_files import to_properties
from herdmesh.cli.display import views
from herdmesh.cli.display.board import Board
from herdmesh.cli.mesh.client import HerderClient
from herdmesh.devstack.broker import Broker
from herdmesh.devstack.stack import Stack, StackSettings
from herdmesh.rpc.request_ids import new_request_id
from tests.support.java_connect import CONNECT_JARS, JavaConnect, RestError

SESSION_MS = 6_000
#: The JVM options of an operator.
JAVA_JVM = ("-Xms256M", "-Xmx2G", "-XX:+UseG1GC")
_WAIT_S = 900.0
_COMPILE = """
import compileall, site, herdmesh
for folder in [*herdmesh.__path__, *site.getsitepackages()]:
    compileall.compile_dir(folder, quiet=2)
"""


class Side(Protocol):
    """One of the two clusters."""

    name: str

    async def start(self) -> None: ...

    async def stop(self) -> None: ...

    async def put(self, name: str, config: Mapping[str, str]) -> None:
        """Create or replace a connector; returns when the cluster acknowledges it as stored."""
        ...

    async def delete(self, name: str) -> None: ...

    async def until_running(self, names: Collection[str], tasks: int = 1) -> None:
        """Wait until each of these connectors and all its tasks are RUNNING on a live worker."""
        ...

    async def until_gone(self, name: str) -> None:
        """Wait until neither the connector nor a status of it is shown."""
        ...

    async def list_with_status(self) -> int:
        """Number of connectors in one list, with the state of each task."""
        ...

    async def kill_a_worker(self) -> int:
        """Kill one worker with kill -9; returns the number of connectors and tasks it held."""
        ...

    def control_plane(self) -> list[psutil.Process]:
        """The processes of the control plane."""
        ...

    def everything(self) -> list[psutil.Process]:
        """All processes without the broker."""
        ...


class OurSide:
    """Two stores, a herder and workers with Spark. `environment`: additional environment of all of them. `python`: the
    interpreter of another tree's environment, whose services run in place of this tree's; `group` distinguishes the
    two.
    """

    name = "herdmesh"

    def __init__(
        self,
        broker: Broker,
        folder: Path,
        workers: int,
        environment: Mapping[str, str] | None = None,
        *,
        python: str = sys.executable,
        group: str = "bench",
    ) -> None:
        env = {
            "HERDMESH_SESSION_TIMEOUT_MS": str(SESSION_MS),
            "HERDMESH_GROUP_ID": group,
            **{f"HERDMESH_{kind}_STORAGE_TOPIC": f"{group}-{kind.lower()}" for kind in ("CONFIG", "STATUS", "OFFSET")},
            **(environment or {}),
        }
        self._stack = Stack(
            StackSettings(
                folder,
                workers=workers,
                usual_ports=False,
                restart=False,
                service_env=env,
                broker=broker,
                python=python,
            )
        )
        self._python = python
        self._board = Board()
        self._changed = asyncio.Event()
        self._dead: set[str] = set()
        self._exits = contextlib.AsyncExitStack()

    async def start(self) -> None:
        await asyncio.to_thread(_compile, self._python)
        await self._stack.start(timeout_s=150)
        self._client = await self._exits.enter_async_context(HerderClient(self.address))
        self._following = asyncio.create_task(self._board.follow(self.address, self._note))

    @property
    def address(self) -> str:
        """The herder's address."""
        return self._stack.state.herder

    async def stop(self) -> None:
        self._following.cancel()
        await self._exits.aclose()
        await self._stack.stop()

    async def put(self, name: str, config: Mapping[str, str]) -> None:
        request = messages.UpdateConnectorRequest(
            request_id=new_request_id(), name=name, config=to_properties(dict(config)), allow_missing=True
        )
        await self._client.call(lambda stub: stub.UpdateConnector, request)

    async def delete(self, name: str) -> None:
        request = messages.DeleteConnectorRequest(request_id=new_request_id(), name=name)
        await self._client.call(lambda stub: stub.DeleteConnector, request)

    async def until_running(
        self, names: Collection[str], tasks: int = 1, above: Mapping[str, int] | None = None
    ) -> None:
        """As in `Side`; with generations in `above`, each connector's tasks under a higher one."""
        left = set(names)
        async with asyncio.timeout(_WAIT_S):
            while True:
                self._changed.clear()
                left = {name for name in left if not self._runs(name, tasks, (above or {}).get(name, -1))}
                if not left:
                    return
                await self._changed.wait()

    def task_generations(self) -> dict[str, int]:
        """The highest generation of each connector's tasks: a restart raises it."""
        return {
            name: max((task["generation"] for task in one["tasks"]), default=-1)
            for name, one in self._board.connectors.items()
        }

    async def until_gone(self, name: str) -> None:
        async with asyncio.timeout(_WAIT_S):
            while True:
                self._changed.clear()
                if name not in self._board.connectors:
                    return
                await self._changed.wait()

    async def list_with_status(self) -> int:
        request = messages.ListConnectorsRequest(view=messages.CONNECTOR_VIEW_STATUS)
        return len((await self._client.call(lambda stub: stub.ListConnectors, request)).connectors)

    async def kill_a_worker(self) -> int:
        victim = self._stack.processes["worker-1"]
        assert victim.mark is not None
        address = next(one.address for one in self._stack.state.services if one.name == "worker-1")
        held = sum(
            (one["connector"]["worker_id"] == address) + sum(task["worker_id"] == address for task in one["tasks"])
            for one in self._board.connectors.values()
        )
        self._dead.add(address)
        doomed = psutil.Process(victim.mark.pid)
        for one in [doomed, *doomed.children(recursive=True)]:
            one.kill()
        return held

    def control_plane(self) -> list[psutil.Process]:
        return [one for name, one in self.processes() if not name.startswith("worker")]

    def everything(self) -> list[psutil.Process]:
        found: list[psutil.Process] = []
        for _name, process in self.processes():
            found += [process, *process.children(recursive=True)]
        return found

    def processes(self) -> list[tuple[str, psutil.Process]]:
        """The services by name."""
        marks = [(name, process.mark) for name, process in self._stack.processes.items()]
        return [(name, psutil.Process(mark.pid)) for name, mark in marks if mark is not None]

    def _runs(self, name: str, tasks: int, above: int) -> bool:
        shown = self._board.connectors.get(name)
        if shown is None or len(shown["tasks"]) != tasks or any(one["generation"] <= above for one in shown["tasks"]):
            return False
        units = [shown["connector"], *shown["tasks"]]
        return all(unit["state"] == "RUNNING" and unit["worker_id"] not in self._dead for unit in units)

    def _note(self, _name: str, _connector: views.Json | None) -> None:
        self._changed.set()


class JavaSide:
    """Java Connect workers, each with store, herder and tasks in one, on the class path of that group of jars. `more`:
    additional settings.
    """

    name = "Java Connect"

    def __init__(
        self,
        broker: Broker,
        folder: Path,
        workers: int,
        jars: str = CONNECT_JARS,
        more: Mapping[str, str] | None = None,
    ) -> None:
        settings = {
            "session.timeout.ms": str(SESSION_MS),
            "heartbeat.interval.ms": "1000",
            # the default is five minutes of idle tasks
            "scheduled.rebalance.max.delay.ms": "0",
            **(more or {}),
        }
        self._workers = [
            JavaConnect(broker.bootstrap, folder / f"java-{number}", settings=settings, jvm=JAVA_JVM, jars=jars)
            for number in range(1, workers + 1)
        ]
        self._asked = self._workers[-1]

    async def start(self) -> None:
        for worker in self._workers:
            await asyncio.to_thread(worker.start)

    async def stop(self) -> None:
        for worker in self._workers:
            await asyncio.to_thread(worker.stop)

    async def put(self, name: str, config: Mapping[str, str]) -> None:
        await asyncio.to_thread(self._asked.put_config, name, config)

    async def delete(self, name: str) -> None:
        await asyncio.to_thread(self._asked.delete, name)

    async def until_running(self, names: Collection[str], tasks: int = 1, pause_s: float = 0.0) -> None:
        """As in `Side`; with a pause between two looks."""
        async with asyncio.timeout(_WAIT_S):
            while not await asyncio.to_thread(self._all_run, names, tasks):  # noqa: ASYNC110  # Java has no watch
                await asyncio.sleep(pause_s)

    async def until_all_gone(self, pause_s: float) -> None:
        """Wait until no connector is listed."""
        async with asyncio.timeout(_WAIT_S):
            while await asyncio.to_thread(self._asked.names):  # noqa: ASYNC110  # Java has no watch
                await asyncio.sleep(pause_s)

    async def until_gone(self, name: str) -> None:
        async with asyncio.timeout(_WAIT_S):
            while await asyncio.to_thread(self._asked.status, name) is not None:
                pass

    async def list_with_status(self) -> int:
        return len(await asyncio.to_thread(self._asked.connectors))

    async def kill_a_worker(self) -> int:
        victim = self._workers[0]
        shown = await asyncio.to_thread(self._asked.connectors)
        units = [unit for one in shown.values() for unit in _units(one["status"])]
        await asyncio.to_thread(victim.kill)
        return sum(unit["worker_id"] == victim.worker_id for unit in units)

    def control_plane(self) -> list[psutil.Process]:
        return self.everything()

    def everything(self) -> list[psutil.Process]:
        return [psutil.Process(worker.pid) for worker in self._workers if worker.pid is not None]

    def _all_run(self, names: Collection[str], tasks: int) -> bool:
        alive = {worker.worker_id for worker in self._workers if worker.pid is not None}
        try:
            if len(names) == 1:
                statuses = [self._asked.status(name) for name in names]
            else:
                shown = self._asked.connectors()
                statuses = [shown[name]["status"] if name in shown else None for name in names]
        except RestError as error:
            if error.status not in (404, 409, 500):
                raise
            return False  # during a rebalance
        return all(status is not None and _runs(status, alive, tasks) for status in statuses)


def _compile(python: str) -> None:
    """Write the bytecode of a tree, as an installation has it. A changed checkout has none where
    PYTHONDONTWRITEBYTECODE is set, and each run then compiles its modules: 0.07 s of processor time.
    """
    subprocess.run([python, "-c", _COMPILE], check=False)


def _units(status: dict[str, Any]) -> list[dict[str, Any]]:
    return [status["connector"], *status["tasks"]]


def _runs(status: dict[str, Any], alive: Collection[str], tasks: int) -> bool:
    units = _units(status)
    return len(units) == tasks + 1 and all(unit["state"] == "RUNNING" and unit["worker_id"] in alive for unit in units)
