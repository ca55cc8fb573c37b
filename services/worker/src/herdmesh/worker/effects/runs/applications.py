"""Choice of the Spark application that executes a run: the worker's, or one of its connector's own
(`herdmesh.isolation=application`).

Owns those applications: each is a process with a JVM beside it, started with the first run of the connector and ended
after it had no run for `_IDLE_S`. `processes` assigns runs to the processes of one application. Invariants: a run is
executed by the application that its order names. The failure of an application affects its own runs alone, as the loss
of their processes; the next run starts it anew.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, Protocol

import msgspec
import structlog

from herdmesh.connect.config import APPLICATION, isolation_of
from herdmesh.rpc.errors import Superseded
from herdmesh.worker.application_messages import (
    FROM_APPLICATION,
    LINE_BYTES_MAX,
    Begin,
    Begun,
    Cancel,
    Ended,
    Execute,
    line_of,
)
from herdmesh.worker.effects.runs.processes import JobRunner, Processes, RunLine, RunProcess
from herdmesh.worker.errors import RunLost
from herdmesh.worker.run import Launch, RunOrder

_IDLE_S: Final = 60.0
_STOP_S: Final = 8.0
_log: structlog.stdlib.BoundLogger = structlog.get_logger(__name__)

Conf = Callable[[str], Mapping[str, str]]
"""Spark's settings for the application of a connector."""


class ClosableJobs(JobRunner, Protocol):
    """Job runner of one application that can be closed."""

    async def close(self) -> None:
        """End the application and everything that runs in it."""
        ...


@dataclass(slots=True)
class _Own:
    """The application of a connector, and its processes."""

    jobs: ClosableJobs
    processes: Processes
    runs: int = 0
    idle: asyncio.TimerHandle | None = None


class Applications:
    """All processes of runs, in any application; the interface is that of `Processes`, which serves one."""

    def __init__(self, shared: Processes, make: Callable[[str], ClosableJobs]) -> None:
        """`make` creates the application of a connector, which starts with its first job."""
        self._shared = shared
        self._make = make
        self._owns: dict[str, _Own] = {}
        self._address = ""
        self._ending: set[asyncio.Task[None]] = set()

    def start(self, address: str) -> None:
        """Accept processes at `address`."""
        self._address = address
        self._shared.start(address)

    async def execute(self, line: RunLine, order: RunOrder) -> None:
        """Execute as `Processes.execute`."""
        if isolation_of(order.spec.connector_config) != APPLICATION:
            await self._shared.execute(line, order)
            return
        own = self._own_of(order.spec.connector)
        own.runs += 1
        if own.idle is not None:
            own.idle.cancel()
        try:
            await own.processes.execute(line, order)
        finally:
            own.runs -= 1
            if not own.runs:
                own.idle = asyncio.get_running_loop().call_later(_IDLE_S, self._end, order.spec.connector)

    def cancel(self, run_id: str) -> None:
        """Cancel as `Processes.cancel`."""
        for processes in self._all():
            processes.cancel(run_id)

    def open(self, process_id: str, token: str) -> RunProcess:
        """Open as `Processes.open`."""
        for processes in self._all():
            if processes.awaits(process_id):
                return processes.open(process_id, token)
        raise Superseded(f"this worker does not wait for process {process_id}")

    def left(self, process: RunProcess) -> None:
        """Remove as `Processes.left`."""
        for processes in self._all():
            processes.left(process)

    async def close(self, timeout_s: float) -> None:
        """Close as `Processes.close`, then end the applications."""
        await asyncio.gather(*(processes.close(timeout_s) for processes in self._all()))
        for connector in list(self._owns):
            self._end(connector)
        if self._ending:
            await asyncio.wait(self._ending)

    def _all(self) -> list[Processes]:
        return [self._shared, *(own.processes for own in self._owns.values())]

    def _own_of(self, connector: str) -> _Own:
        own = self._owns.get(connector)
        if own is None:
            jobs = self._make(connector)
            own = self._owns[connector] = _Own(jobs, Processes(jobs, standbys=0))
            own.processes.start(self._address)
        return own

    def _end(self, connector: str) -> None:
        own = self._owns.pop(connector)
        if own.idle is not None:
            own.idle.cancel()
        task = asyncio.create_task(self._close(own), name=f"end the application of {connector}")
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)

    async def _close(self, own: _Own) -> None:
        await own.processes.close(0)
        await own.jobs.close()


class SparkApplication:
    """The jobs of one connector, each a process under a JVM of the connector's own."""

    def __init__(self, connector: str, conf: Conf) -> None:
        self._connector = connector
        self._conf = conf
        self._line: _Line | None = None
        self._starting = asyncio.Lock()

    async def run_job(self, launch: Launch) -> None:
        """Run as `JobRunner.run_job`; starts Spark when it is not running."""
        async with self._starting:
            if self._line is None or self._line.over:
                self._line = await _begin(self._connector, self._conf(self._connector))
            line = self._line
        await line.execute(launch)

    def cancel(self, process_id: str) -> None:
        """Cancel as `JobRunner.cancel`."""
        if self._line is not None:
            self._line.send(Cancel(process_id))

    async def close(self) -> None:
        """End the application; kill it if that takes long."""
        async with self._starting:
            if self._line is not None:
                await self._line.close()


class _Line:
    """Connection to one process with its JVM, from `Begun` to its end."""

    def __init__(
        self,
        connector: str,
        process: asyncio.subprocess.Process,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        self._connector = connector
        self._process = process
        self._reader = reader
        self._writer = writer
        self._jobs: dict[str, asyncio.Future[Ended]] = {}
        self._reading: asyncio.Task[None] | None = None
        self.over = False

    async def begun(self, conf: Mapping[str, str]) -> None:
        """Wait until Spark is started. Raises RunLost."""
        self.send(Begin(dict(conf)))
        said = await self._reader.readline()
        begun = FROM_APPLICATION.decode(said) if said else Begun(error="its process ended")
        assert isinstance(begun, Begun)
        if begun.error:
            await self.close()
            raise RunLost(f"the connector's own Spark application did not start: {begun.error}")
        _log.info("application_started", connector=self._connector, pid=self._process.pid, jvm_pid=begun.jvm_pid)
        self._reading = asyncio.create_task(self._read(), name=f"application of {self._connector}")

    async def execute(self, launch: Launch) -> None:
        """Launch a process; return when it is over. Raises RunLost."""
        if self.over:
            raise self._lost()
        job = self._jobs[launch.process_id] = asyncio.get_running_loop().create_future()
        self.send(Execute(launch))
        try:
            ended = await job
        finally:
            self._jobs.pop(launch.process_id, None)
        if ended.error is not None:
            raise RunLost(ended.error, own_doing=ended.own_doing, trace=ended.trace)

    def send(self, message: msgspec.Struct) -> None:
        """Send a message; it is discarded when the other end is gone."""
        if not self._writer.is_closing():
            self._writer.write(line_of(message))

    async def close(self) -> None:
        """End the process; pending jobs raise RunLost."""
        self._writer.close()
        try:
            async with asyncio.timeout(_STOP_S):
                await self._process.wait()
        except TimeoutError:
            self._process.kill()
            await self._process.wait()
        if self._reading is not None:
            await self._reading

    async def _read(self) -> None:
        with contextlib.suppress(OSError):
            while said := await self._reader.readline():
                message = FROM_APPLICATION.decode(said)
                job = self._jobs.get(message.process_id) if isinstance(message, Ended) else None
                if job is not None and not job.done() and isinstance(message, Ended):
                    job.set_result(message)
        self.over = True
        if not self._writer.is_closing():
            _log.warning("application_lost", connector=self._connector, pid=self._process.pid)
        for job in self._jobs.values():
            if not job.done():
                job.set_exception(self._lost())

    def _lost(self) -> RunLost:
        return RunLost("the connector's own Spark application ended")


async def _begin(connector: str, conf: Mapping[str, str]) -> _Line:
    """Start an application. Raises RunLost."""
    ours, theirs = socket.socketpair()
    with theirs:
        try:
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-P", "-m", "herdmesh.worker.spark.application", str(theirs.fileno()),
                stdin=asyncio.subprocess.DEVNULL, pass_fds=(theirs.fileno(),),
            )  # fmt: skip
        except OSError as error:
            ours.close()
            raise RunLost(f"the connector's own Spark application did not start: {error}") from error
    reader, writer = await asyncio.open_connection(sock=ours, limit=LINE_BYTES_MAX)
    line = _Line(connector, process, reader, writer)
    await line.begun(conf)
    return line
