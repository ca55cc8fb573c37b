"""One of the two stores in a process of its own, for tests that kill or stop one, or read beside it.

Owns the process and its log. Waits on the process's output (its log, its health), never on time.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import grpc.aio
from grpc_health.v1 import health_pb2, health_pb2_grpc

from herdmesh.rpc.client import connect
from herdmesh.rpc.errors import Unreachable

_START_S = 40.0
_SERVE_S = 60.0

#: For a store whose take-over time a test does not measure; the session's broker allows it.
SHORT_SESSION = ("--election-session-timeout-ms=2000",)


StoreT = TypeVar("StoreT", bound="StoreProcess")


async def first_writer(stores: Sequence[StoreT]) -> StoreT:
    """The first of them that reports being the writer."""
    waiting = {asyncio.ensure_future(store.until_writing()): store for store in stores}
    try:
        done, _ = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        first = next(iter(done))
        first.result()
        return waiting[first]
    finally:
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)


class StoreProcess:
    """`python -m MODULE` on a free port. Subclasses name the module, its two services and the stubs to it."""

    module: str
    read_service: str
    write_service: str

    def __init__(self, arguments: Sequence[str], log_path: Path, environment: Mapping[str, str] | None = None) -> None:
        """`environment` goes on top of this process' own."""
        self.log_path = log_path
        self._environment = {**os.environ, **(environment or {})}
        self._arguments = ["--metrics=false", *arguments]
        self._process: asyncio.subprocess.Process | None = None

    def stub(self, channel: grpc.aio.Channel) -> None:
        """Create the stubs; called with the channel of every new process."""
        raise AssertionError(f"{type(self).__name__} names no stubs")

    async def start(self, listen: str = "127.0.0.1:0") -> None:
        """Spawn it and wait until it listens: on any port, or for its clients' sake on its earlier `address`."""
        command = [sys.executable, "-m", self.module, f"--listen={listen}", *self._arguments]
        self._process = await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            env=self._environment,
        )
        address: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._reading = asyncio.create_task(self._read_log(address))
        async with asyncio.timeout(_START_S):
            self.address = await address
        self.channel = connect(self.address)
        self.stub(self.channel)
        self._health: Any = health_pb2_grpc.HealthStub(self.channel)  # its generated stub declares no methods

    async def until_reading(self) -> None:
        """Wait until it has replayed its topic."""
        await self._until(self.read_service, serving=True)

    async def until_writing(self) -> None:
        """Wait until it is the writer."""
        await self._until(self.write_service, serving=True)

    async def until_not_writing(self) -> None:
        """Wait until it reports that it is not the writer."""
        await self._until(self.write_service, serving=False)

    async def is_writing(self) -> bool:
        """True when it reports that it is the writer."""
        answer = await self._health.Check(health_pb2.HealthCheckRequest(service=self.write_service))
        return answer.status == health_pb2.HealthCheckResponse.SERVING

    @property
    def pid(self) -> int:
        """The process id, once it was started."""
        assert self._process is not None
        return self._process.pid

    def signal(self, number: signal.Signals) -> None:
        """Send a signal."""
        assert self._process is not None
        os.kill(self._process.pid, number)

    async def ended(self) -> int:
        """Wait until it ended by itself; its exit code."""
        assert self._process is not None
        code = await self._process.wait()
        await self.kill()
        return code

    async def end(self) -> None:
        """SIGKILL, and wait until it has ended; calls over its channel fail as they do for any client. Safe to call
        again.
        """
        assert self._process is not None
        if self._process.returncode is None:
            self._process.kill()
        await self._process.wait()
        await self._reading

    async def kill(self) -> None:
        """`end`, and close its channel. Safe to call again."""
        await self.end()
        await self.channel.close()

    async def stop(self) -> int:
        """SIGTERM; returns the exit code."""
        assert self._process is not None
        self._process.terminate()
        code = await self._process.wait()
        await self.kill()
        return code

    async def _until(self, service: str, *, serving: bool) -> None:
        wanted = health_pb2.HealthCheckResponse.SERVING if serving else health_pb2.HealthCheckResponse.NOT_SERVING
        async with asyncio.timeout(_SERVE_S):
            while True:
                try:
                    async for answer in self._health.Watch(health_pb2.HealthCheckRequest(service=service)):
                        if answer.status == wanted:
                            return
                except Unreachable:
                    await asyncio.sleep(0.05)

    async def _read_log(self, address: asyncio.Future[str]) -> None:
        assert self._process is not None
        assert self._process.stdout is not None
        with self.log_path.open("ab", buffering=0) as log:  # tests read it meanwhile
            while line := await self._process.stdout.readline():
                log.write(line)
                if b'"listening"' in line and not address.done():
                    address.set_result(json.loads(line)["address"])
        if not address.done():
            address.set_exception(RuntimeError(f"it ended; see {self.log_path}"))
