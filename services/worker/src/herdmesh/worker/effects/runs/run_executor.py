"""Executor of runs, as the worker sees them: submitted, commanded, ended.

Owns the line of each run and the content of its order. Does not own the processes (`processes`). Invariant: every
SubmitRun gives exactly one RunEnded. It comes when the run has reported that it finished and closed its line, or when
its process is over and its line is closed (or had 5 s to close). RunEnded is therefore emitted after all messages of
the run and after its last write.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from typing import Final

import structlog

from herdmesh.api.worker.v1 import run_service_pb2
from herdmesh.connect.error_class import ErrorClass
from herdmesh.connect.errors import ConnectError
from herdmesh.connect.spi import Wait, Waits, entered
from herdmesh.engine.runtime import Rate, RunSpec, classify
from herdmesh.session.model import Failure, UnitId
from herdmesh.worker.effects.runs.applications import Applications
from herdmesh.worker.effects.runs.processes import RunLine
from herdmesh.worker.effects.runs.specs import RunSpecs
from herdmesh.worker.errors import RunLost
from herdmesh.worker.run import RunOrder
from herdmesh.worker.state import events, instructions
from herdmesh.worker.state.model import TaskSpec
from herdmesh.worker.threads import in_thread

LOOK_S: Final = 1.0
"""Interval between checks of the waits during the preparation of a run."""
_LINE_CLOSE_TIMEOUT_S: Final = 5.0
_log: structlog.stdlib.BoundLogger = structlog.get_logger(__name__)


class Runs:
    """All runs. `before_run` is called in a thread before each."""

    def __init__(
        self,
        processes: Applications,
        specs: RunSpecs,
        before_run: Callable[[UnitId, TaskSpec], None],
        log_levels: Callable[[], Mapping[str, int]],
        emit: Callable[[events.Event], Awaitable[None]],
    ) -> None:
        self._before_run = before_run
        self._log_levels = log_levels
        self._processes = processes
        self._specs = specs
        self._emit = emit
        self._lines: dict[str, RunLine] = {}
        self._units: dict[str, UnitId] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def submit(self, instruction: instructions.SubmitRun) -> None:
        """Start the run; all its messages come as events."""
        line = RunLine(instruction.run_id)
        self._units[instruction.run_id] = instruction.unit
        self._lines[instruction.run_id] = line
        task = asyncio.create_task(self._run(instruction, line), name=f"run {instruction.run_id}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def stop(self, run_id: str, reason: str) -> None:
        """Command the run to commit and end."""
        self._send(run_id, run_service_pb2.RunResponse(stop=run_service_pb2.RunStop(reason=reason)))

    def share(self, run_id: str, run_ms: int) -> None:
        """Inform the run that other tasks wait, with its time slice."""
        self._send(run_id, run_service_pb2.RunResponse(share=run_service_pb2.RunShare(run_ms=run_ms)))

    def end_warm(self, run_id: str) -> None:
        """Command the run to end if it is warm."""
        self._send(run_id, run_service_pb2.RunResponse(rest=run_service_pb2.RunRest()))

    def rate(self, run_id: str, rate: Rate) -> None:
        """Set the run's rate limit."""
        message = run_service_pb2.RunRate(
            records_per_second=rate.records_per_second, bytes_per_second=rate.bytes_per_second
        )
        self._send(run_id, run_service_pb2.RunResponse(rate=message))

    def cancel(self, run_id: str, reason: str) -> None:
        """Kill the run's process."""
        unit = self.unit_of(run_id)
        _log.warning("run_cancelled", unit=unit.log_context if unit else "", run_id=run_id, reason=reason)
        self._processes.cancel(run_id)

    def unit_of(self, run_id: str) -> UnitId | None:
        """The unit of a run; None once the run has ended."""
        return self._units.get(run_id)

    def is_current(self, line: RunLine) -> bool:
        """False once the worker has ended the run: further messages of its process are ignored."""
        return self._lines.get(line.run_id) is line

    async def close(self, timeout_s: float) -> None:
        """Wait for runs that are about to end and dismiss standby processes, then cancel the rest."""
        await self._processes.close(timeout_s)
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=timeout_s)
        for task in list(self._tasks):
            task.cancel()

    def _send(self, run_id: str, response: run_service_pb2.RunResponse) -> None:
        line = self._lines.get(run_id)
        if line is not None:
            line.send_command(response)

    def _prepare(self, instruction: instructions.SubmitRun) -> RunSpec:
        unit, spec = instruction.unit, instruction.spec
        made = self._specs.run_spec(unit, spec, instruction.run_id, instruction.commit_scope)
        self._before_run(unit, spec)  # with the same values as the run
        return replace(
            made,
            claim=self._specs.claim(instruction.assignment, instruction.config_offset),
            generation=instruction.assignment.generation,
            traceparent=instruction.traceparent,
        )

    async def _prepared(self, instruction: instructions.SubmitRun) -> RunSpec:
        """The result of `_prepare`, called in a thread. Waits during it, such as for an unreachable secret store, are
        emitted.
        """
        run_id, found, told = instruction.run_id, Waits(), list[Wait]()

        def prepare() -> RunSpec:
            with entered(found):
                return self._prepare(instruction)

        looking = asyncio.create_task(self._emit_waits(run_id, found, told), name=f"waits of {run_id}")
        try:
            return await in_thread(f"spec of {run_id}", prepare)
        finally:
            looking.cancel()
            if told:
                await self._emit(events.RunLiveness(run_id, 0, 0))

    async def _emit_waits(self, run_id: str, waits: Waits, told: list[Wait]) -> None:
        while True:
            await asyncio.sleep(LOOK_S)
            wait = waits.shown()
            if wait is not None and told[-1:] != [wait]:
                told.append(wait)
                await self._emit(events.RunLiveness(run_id, 0, 0, wait))

    async def _run(self, instruction: instructions.SubmitRun, line: RunLine) -> None:
        run_id, unit = instruction.run_id, instruction.unit
        error: str | None = None
        try:
            try:
                spec = await self._prepared(instruction)
            finally:  # after a failed lookup, too, so that it is repeated
                values = self._specs.values(unit)
                if values is not None and values.ttl_ms is not None:
                    await self._emit(events.ValuesResolved(unit, run_id, values.ttl_ms))
            await self._processes.execute(line, RunOrder(spec, self._log_levels(), self._specs.stalled_ms))
        except RunLost as lost:
            error = str(lost)
            failure = line.ended_for or _own_doing(lost)
            if failure is not None:
                await self._emit(events.RunFailed(run_id, failure))
        except Exception as raised:  # noqa: BLE001 - an author's task_class may raise anything
            await self._emit(events.RunFailed(run_id, _failure(raised)))
        if line.opened:
            try:
                async with asyncio.timeout(_LINE_CLOSE_TIMEOUT_S):
                    await line.closed.wait()
            except TimeoutError:
                _log.warning("run_line_open", unit=unit.log_context, run_id=run_id)
        del self._lines[run_id]
        del self._units[run_id]
        line.end()
        if error is not None:
            _log.warning("run_lost", unit=unit.log_context, run_id=run_id, error=error)
        await self._emit(events.RunEnded(run_id, error))


def _own_doing(lost: RunLost) -> Failure | None:
    """The failure of a task whose process crashed. It would crash again, so the task is FAILED: its restarts are
    counted and delayed.
    """
    return Failure(str(lost), lost.trace, ErrorClass.RETRIABLE) if lost.own_doing else None


def _failure(raised: Exception) -> Failure:
    message, trace, error_class = classify(raised)
    # A class that cannot be found or created is an error of the config, whatever Python's exception type.
    bad = isinstance(raised, ConnectError | ImportError | AttributeError)
    return Failure(message, trace, ErrorClass.BAD_CONFIG if bad else error_class)
