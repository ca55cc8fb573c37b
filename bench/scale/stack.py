"""A control plane of real processes on a real broker, and the load on it; their memory and threads.

Owns the processes. Invariant: every process that was started is ended by `stop`, by its own id.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from bench.usage import memory_mb
from herdmesh.devstack.broker import Broker
from herdmesh.devstack.ports import free_port

_HOST = "127.0.0.1"
_LOAD_S = 300.0


@dataclass(frozen=True, slots=True)
class Usage:
    """The memory and threads of one process."""

    memory_mb: float
    threads: int


class Load:
    """One process of `bench.scale.load`."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    @classmethod
    async def start(cls, log: Path, *arguments: str) -> Load:
        """Start the load; `said` returns its measurement. Its errors go to `log`."""
        pipe = asyncio.subprocess.PIPE
        command = (sys.executable, "-m", "bench.scale.load", *arguments)
        with log.open("ab") as errors:
            return cls(
                await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe, stderr=errors, limit=1 << 24)
            )

    async def said(self) -> dict[str, Any]:
        """The load's JSON line. Raises RuntimeError when it ended without one, TimeoutError."""
        assert self._process.stdout is not None
        line = await asyncio.wait_for(self._process.stdout.readline(), _LOAD_S)
        if not line:
            raise RuntimeError("the load ended before it had measured anything; its log says why")
        return json.loads(line)

    async def stop(self) -> None:
        """Close the connections of the load."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            await asyncio.wait_for(self._process.wait(), 20)
        except TimeoutError:
            self._process.kill()
            await self._process.wait()


class Stack:
    """Broker, both stores and one herder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._broker = Broker(folder / "kafka", port=0)
        self.config_store, self.status_store, self.herder = (f"{_HOST}:{free_port()}" for _ in range(3))
        self._processes: dict[str, asyncio.subprocess.Process] = {}

    async def start(self) -> None:
        """Start everything; the log of each is in the folder."""
        await self._broker.start()
        common = {
            "HERDMESH_BOOTSTRAP_SERVERS": self._broker.bootstrap,
            "HERDMESH_CONFIG_STORE": self.config_store,
            "HERDMESH_STATUS_STORE": self.status_store,
            "HERDMESH_METRICS": "false",
        }
        replication = {"HERDMESH_CONFIG_STORAGE_REPLICATION_FACTOR": "1"}
        status_replication = {"HERDMESH_STATUS_STORAGE_REPLICATION_FACTOR": "1"}
        await self._run("config store", "configstore", self.config_store, {**common, **replication})
        await self._run("status store", "statusstore", self.status_store, {**common, **status_replication})
        await self._run("herder", "herder", self.herder, common)

    async def stop(self) -> None:
        """End the started processes."""
        for process in reversed(self._processes.values()):
            if process.returncode is None:
                process.terminate()
        for process in self._processes.values():
            try:
                await asyncio.wait_for(process.wait(), 30)
            except TimeoutError:
                process.kill()
                await process.wait()
        await self._broker.stop()

    async def load(self, *arguments: str) -> Load:
        """Start a load on the stack."""
        return await Load.start(self._folder / f"{arguments[0]}.log", *arguments)

    def usage(self) -> dict[str, Usage]:
        """Memory and threads by process."""
        found: dict[str, Usage] = {}
        for name, process in self._processes.items():
            one = psutil.Process(process.pid)
            found[name] = Usage(memory_mb([one]), one.num_threads())
        return found

    def cpu_s(self, name: str) -> float:
        """Processor time that a process has used so far."""
        times = psutil.Process(self._processes[name].pid).cpu_times()
        return times.user + times.system

    def logged(self, name: str, event: str) -> Sequence[dict[str, Any]]:
        """The entries of a process's log with that event, oldest first."""
        lines = (self._folder / f"{name}.log").read_text().splitlines()
        parsed = [json.loads(line) for line in lines if f'"{event}"' in line and line.startswith("{")]
        return [line for line in parsed if line.get("event") == event]

    async def _run(self, name: str, module: str, listen: str, environment: dict[str, str]) -> None:
        with (self._folder / f"{name}.log").open("wb") as log:
            self._processes[name] = await asyncio.create_subprocess_exec(
                sys.executable, "-m", f"herdmesh.{module}",
                env={**os.environ, **environment, "HERDMESH_LISTEN": listen}, stdout=log, stderr=log,
            )  # fmt: skip
