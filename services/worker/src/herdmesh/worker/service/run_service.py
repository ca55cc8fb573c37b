"""`worker.v1.RunService`: the server that the processes of runs connect to. Owns one stream per process, for as long as
it lasts.

Invariants: a process whose id or token this worker did not issue gets STALE_GENERATION and does nothing; offsets are
stored for a run only while it is the task's current one, and in the order in which the run sends them.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Final

import grpc.aio

from herdmesh.api.worker.v1 import run_service_pb2, run_service_pb2_grpc
from herdmesh.rpc.errors import RequestInvalid
from herdmesh.worker import wire
from herdmesh.worker.effects.offsets import OffsetFile
from herdmesh.worker.effects.runs import Applications, LastWord, MemoryWatch, RunLine, Runs
from herdmesh.worker.log_lines import RecentLines
from herdmesh.worker.state import events

_LAST_WORDS: Final[dict[type[events.Event], LastWord]] = {
    events.RunFinished: LastWord.FINISHED,
    events.RunFailed: LastWord.FAILED,
}


class RunServicer(run_service_pb2_grpc.RunServiceServicer):
    """Serves `RunService`."""

    def __init__(
        self,
        processes: Applications,
        runs: Runs,
        emit: Callable[[events.Event], Awaitable[None]],
        offsets: OffsetFile | None = None,
        recent: RecentLines | None = None,
    ) -> None:
        """`offsets` stores the offsets of sources in a file; None = no offsets file. `recent` keeps the runs' log
        lines; None = in a memory of its own.
        """
        self._processes = processes
        self._runs = runs
        self._emit = emit
        self._offsets = offsets
        self._recent = recent or RecentLines()
        self._memory = MemoryWatch()

    async def Run(
        self, request_iterator: AsyncIterator[run_service_pb2.RunRequest], context: grpc.aio.ServicerContext[Any, Any]
    ) -> AsyncIterator[run_service_pb2.RunResponse]:
        """Hello, the order once there is one, then progress up and commands down until the run half-closes."""
        requests = aiter(request_iterator)
        first = await anext(requests, None)
        if first is None or first.WhichOneof("message") != "hello":
            raise RequestInvalid("the first message of a process must be hello", "hello")
        process = self._processes.open(first.hello.process_id, first.hello.token)
        try:
            # Shielded: a broken stream ends only this wait, and another process gets the order.
            given = await asyncio.shield(process.given)
        finally:
            self._processes.left(process)
        if given is None:
            return
        line = given.line
        line.opened = True
        reader = asyncio.create_task(self._read(requests, line), name=f"run {line.run_id} reader")
        try:
            end_ms = given.order.spec.poll_interval_max_ms
            await self._emit(events.RunHello(line.run_id, first.hello.pid, end_ms))
            with self._memory.bounding(line, first.hello.pid, given.order.spec.memory_max_bytes):
                yield given.order.to_wire()
                while (command := await line.next()) is not None:
                    yield command
        finally:
            reader.cancel()
            line.closed.set()

    async def _read(self, requests: AsyncIterator[run_service_pb2.RunRequest], line: RunLine) -> None:
        try:
            async for request in requests:
                if request.WhichOneof("message") == "store_offsets":
                    await self._store(request.store_offsets, line)
                    continue
                if request.WhichOneof("message") == "log":
                    self._keep(request.log, line)
                    continue
                event = wire.run_event_from(line.run_id, request)
                if event is not None:
                    await self._emit(event)
                    line.last_word = _LAST_WORDS.get(type(event))
        except grpc.aio.AioRpcError:
            # The process is gone; the end of its Spark job gives the cause.
            return
        finally:
            line.end()

    def _keep(self, log: run_service_pb2.RunLog, line: RunLine) -> None:
        unit = self._runs.unit_of(line.run_id)
        if unit is not None:
            lines = [(one.time.ToMilliseconds(), one.text) for one in log.lines]
            self._recent.add_run(unit, lines, log.omitted)

    async def _store(self, wanted: run_service_pb2.StoreOffsets, line: RunLine) -> None:
        offsets = {one.key: one.value if one.HasField("value") else None for one in wanted.offsets}
        error = ""
        if self._offsets is None:
            error = "this worker keeps offsets in the offsets topic"
        elif not self._runs.is_current(line):
            error = "the task was started again"
        else:
            try:
                await self._offsets.store(offsets)
            except OSError as failed:
                error = str(failed) or type(failed).__name__
        stored = run_service_pb2.OffsetsStored(number=wanted.number, error=error)
        line.send_command(run_service_pb2.RunResponse(offsets_stored=stored))
