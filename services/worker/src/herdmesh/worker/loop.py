"""Event loop of a worker's state: takes events in order, hands the state's instructions to the effects.

Owns the event queue and the clock; decides nothing. Invariants: only the task in `run` touches the state; executing an
instruction never waits; the queue is bounded, and a sender waits while it is full.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, assert_never

import structlog

from herdmesh.api.herder.v1 import worker_session_service_pb2 as session_pb2
from herdmesh.api.worker.v1 import task_pb2
from herdmesh.session import wire as session_wire
from herdmesh.session.model import HeldUnit, UnitId
from herdmesh.worker import wire
from herdmesh.worker.effects.plugins import ConnectorHost
from herdmesh.worker.effects.runs import EndWatch, IdleWatch, Reloads, Runs
from herdmesh.worker.effects.stores import Commands, HerderSession, StatusClient
from herdmesh.worker.metrics.collector import WorkerMetrics
from herdmesh.worker.state import WorkerState, events, instructions
from herdmesh.worker.state.reconfigurations import LIMITED
from herdmesh.worker.state.task import Task

_QUEUE_MAX: Final = 10_000
_UNTIMED_MAX: Final = 100
"""Events in a row that are handled before a look at what is due."""
_log: structlog.stdlib.BoundLogger = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Effects:
    """All effects that execute the loop's instructions."""

    runs: Runs
    connectors: ConnectorHost
    reloads: Reloads
    watch: IdleWatch
    ends: EndWatch
    statuses: StatusClient
    session: HerderSession
    commands: Commands


class WorkerLoop:
    """Runs the state machine. Others send events with `emit`, and read with the methods that return copies."""

    def __init__(self, state: WorkerState, metrics: WorkerMetrics | None = None) -> None:
        self._state = state
        self._metrics = metrics
        self._queue: asyncio.Queue[events.Event] = asyncio.Queue(_QUEUE_MAX)
        self._untimed = 0
        self._drained = asyncio.Event()

    async def emit(self, event: events.Event) -> None:
        """Send an event; waits while the queue is full."""
        await self._queue.put(event)

    async def run(self, effects: Effects) -> int:
        """Handle events until the state emits Exit; returns the exit code."""
        clock = asyncio.get_running_loop().time
        while True:
            event = await self._next()
            out = self._state.handle(event, clock())
            if self._metrics is not None:
                self._metrics.passed(event, out, self._state, clock())
            for instruction in out:
                if isinstance(instruction, instructions.Exit):
                    return instruction.code
                self._carry_out(instruction, effects)

    async def _next(self) -> events.Event:
        """The next event: a Tick when something is due. Deadlines are looked for only where the queue is empty, and
        after `_UNTIMED_MAX` events: finding them takes a look at every task.
        """
        if not self._queue.empty() and self._untimed < _UNTIMED_MAX:
            self._untimed += 1
            return self._queue.get_nowait()
        self._untimed = 0
        try:
            async with asyncio.timeout_at(self._state.next_deadline()):
                await asyncio.sleep(0)  # others of the event loop get their turn
                return await self._queue.get()
        except TimeoutError:
            return events.Tick()

    # --- queries; the event loop is single-threaded, so they never run in the middle of an event

    def epoch_max(self) -> int:
        """The highest leader epoch seen."""
        return self._state.epoch_max

    def draining(self) -> bool:
        """True when the worker accepts no work."""
        return self._state.draining

    def has_session(self) -> bool:
        """True while the worker has a session with the leading herder."""
        return self._state.session_open

    def leaving(self) -> bool:
        """True once the worker has begun to stop for good."""
        return self._state.leaving

    def held_units(self) -> list[HeldUnit]:
        """Held units, for hello."""
        return self._state.held_units()

    def tasks(self) -> list[Task]:
        """The held tasks, sorted; read them at once, do not keep them."""
        return wire.held_tasks(self._state.tasks)

    def start_count(self, unit: UnitId) -> int:
        """The number of start commands for the task."""
        return self._state.tasks.start_count(unit)

    def connectors(self) -> list[str]:
        """Names of the held connectors, sorted."""
        return sorted(one.unit.connector for one in self._state.connectors)

    def partitions_with_work(self) -> set[tuple[str, int]]:
        """Partitions of the sinks that run or wait for a run."""
        return self._state.tasks.partitions_with_work()

    async def drain(self) -> None:
        """Stop all tasks in order and refuse new ones; returns when no unit is held."""
        self._drained.clear()
        await self.emit(events.DrainRequested())
        await self._drained.wait()

    # --- execution of instructions

    def _carry_out(self, instruction: instructions.Instruction, effects: Effects) -> None:
        if isinstance(instruction, instructions.Message):
            self._send(instruction, effects)
            return
        match instruction:
            case instructions.SubmitRun(run_id=run_id, unit=unit):
                _log.info("run_submitted", unit=unit.log_context, run_id=run_id)
                effects.runs.submit(instruction)
            case instructions.StopRun(run_id=run_id, reason=reason):
                unit = effects.runs.unit_of(run_id)
                _log.info("run_stop_requested", unit=unit.log_context if unit else "", run_id=run_id, reason=reason)
                effects.runs.stop(run_id, reason)
            case instructions.ShareRun(run_id=run_id, run_ms=run_ms):
                effects.runs.share(run_id, run_ms)
            case instructions.EndWarmRun(run_id=run_id):
                effects.runs.end_warm(run_id)
            case instructions.RateRun(run_id=run_id, rate=rate):
                effects.runs.rate(run_id, rate)
            case instructions.CancelRun(run_id=run_id, reason=reason):
                effects.runs.cancel(run_id, reason)
            case instructions.WatchTask(unit=unit):
                _log.info("task_idle", unit=unit.log_context)
                effects.watch.watch(instruction)
            case instructions.UnwatchTask(unit=unit, forget=forget):
                effects.watch.unwatch(unit, forget=forget)
            case instructions.StartConnector():
                effects.connectors.start(instruction)
            case instructions.StopConnector():
                effects.connectors.stop(instruction)
            case instructions.MakeTaskConfigs():
                effects.connectors.make_task_configs(instruction)
            case instructions.AbandonConnector(connector=connector):
                effects.connectors.abandon(connector)
            case instructions.CheckValues():
                effects.reloads.check(instruction)
            case instructions.Drained():
                self._drained.set()
            case instructions.Exit():
                raise AssertionError("run() ends at Exit")
            case _:
                assert_never(instruction)

    def _send(self, instruction: instructions.Message, effects: Effects) -> None:
        session = effects.session
        match instruction:
            case instructions.WriteStatus(unit=unit, state=state, failure=failure):
                message = failure.message if failure is not None else None
                said = [one.type for one in instruction.conditions]
                _log.info(
                    "state", unit=unit.log_context, state=state, generation=instruction.generation, failure=message
                )
                if LIMITED in said:
                    _log.warning(
                        "reconfiguration_limited", unit=unit.log_context, why=instruction.conditions[-1].message
                    )
                effects.statuses.write(instruction)
            case instructions.SendReport(unit=unit, assignment=assignment, state=state, failure=failure):
                session.send(session_wire.report_to(unit, assignment, state, failure, instruction.counts))
            case instructions.SendTaskConfigs(connector=name, assignment=assignment, tasks=tasks, failure=failure):
                session.send(session_wire.task_configs_to(name, assignment, tasks, failure))
            case instructions.SendHeartbeat(moved=moved, waits=waits, slot_use=use):
                heartbeat = session_pb2.WorkerHeartbeat(
                    progress=self._progress(moved),
                    waits=session_wire.waits_to(waits),
                    slot_use=session_pb2.SlotUse(used=use.used, waiting=use.waiting),
                )
                session.send(session_pb2.SessionRequest(heartbeat=heartbeat))
            case instructions.SendLeaving():
                session.send(session_pb2.SessionRequest(leaving=session_pb2.WorkerLeaving()))
            case instructions.DropSession(reason=reason):
                session.drop(reason)
            case instructions.ExecuteCommand(command_id=command_id, command=command):
                effects.commands.execute(command_id, command, session.send)
            case instructions.SendReply(command_id=command_id):
                session.send(session_pb2.SessionRequest(reply=session_pb2.CommandReply(command_id=command_id)))
            case _:
                assert_never(instruction)

    def _progress(self, moved: Sequence[UnitId]) -> list[task_pb2.TaskProgress]:
        found = [self._state.tasks.get(unit) for unit in moved]
        return [wire.task_progress_to(task) for task in found if task is not None]
