"""State machine of the worker: the leader's epoch, the held units, and leaving.

Owns the epoch, the session's life and the order of leaving; passes everything about tasks to `tasks` and about
connectors to `connectors`. Pure: `handle(event, now) -> [Instruction]` is the only mutator, `now` is seconds of a
monotonic clock.

Invariants: a command below the highest epoch seen changes nothing. Without a session no held unit stops. `Exit` comes
once, when no unit is held or the time to leave is over.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import assert_never

from herdmesh.engine.runtime.contract import Rate
from herdmesh.session.messages import (
    Heartbeat,
    Released,
    RequestTaskConfigs,
    SendCommand,
    SetRate,
    SetUnitTarget,
    StartUnit,
    StopUnit,
    Welcome,
)
from herdmesh.session.model import HeldUnit, RunState, UnitId
from herdmesh.session.worker_commands import SetDraining
from herdmesh.worker.state import events, instructions
from herdmesh.worker.state.connectors import Connectors
from herdmesh.worker.state.instructions import Instruction
from herdmesh.worker.state.reloads import Reloads
from herdmesh.worker.state.task import TaskLimits
from herdmesh.worker.state.tasks import Tasks
from herdmesh.worker.state.waiting import Waiting


@dataclass(frozen=True, slots=True)
class WorkerLimits:
    """Limits of the state machine. Times in ms."""

    tasks: TaskLimits = field(default_factory=TaskLimits)
    connector_stop_timeout_ms: int = 5_000
    leave_timeout_ms: int = 10_000
    """How long the leader may take to move all units away; then the worker stops them itself."""
    leave_timeout_broken_ms: int = 2_000
    """The same timeout when Spark is dead and there is nothing to finish."""
    stall_ms: int = 3_000
    """A heartbeat that is this late means that this process was frozen, and may count as lost by now."""
    stall_pause_ms: int = 2_000
    """After a freeze, the time to wait for messages of a leader that reassigned our tasks, before a run takes over an
    id.
    """


class WorkerState:
    """State machine of one worker."""

    def __init__(self, run_prefix: str, limits: WorkerLimits | None = None) -> None:
        """`run_prefix` is new for each life of the process."""
        self._limits = limits or WorkerLimits()
        self.tasks = Tasks(run_prefix, self._limits.tasks)
        self.connectors = Connectors(self._limits.connector_stop_timeout_ms)
        self.reloads = Reloads()
        self.waiting = Waiting()
        self.epoch_max = 0
        self.session_open = False
        self._beat_at: float | None = None
        self.draining = False
        self._exit_code: int | None = None
        self._leave_by: float | None = None
        self._exit_by: float | None = None
        self._drain_waits = False
        self._over = False

    # --- queries

    @property
    def leaving(self) -> bool:
        """True once the worker has begun to stop for good: it accepts no more work."""
        return self._exit_code is not None

    def held_units(self) -> list[HeldUnit]:
        """The held units for hello, including those being released: their end will be reported."""
        held = [*self.connectors, *self.tasks]
        return [HeldUnit(one.unit, one.assignment, one.state, one.failure, one.releasing) for one in held]

    def next_deadline(self) -> float | None:
        """Time of the next Tick, None = never."""
        parts = (self.tasks.next_deadline(), self.connectors.next_deadline(), self.reloads.next_deadline())
        return min([time for time in (*parts, self._leave_by, self._exit_by) if time is not None], default=None)

    # --- the only mutator

    def handle(self, event: events.Event, now: float) -> list[Instruction]:
        """Handle one event and return the instructions, in order."""
        self._notice_stall(event, now)
        out = self._command(event, now) if isinstance(event, events.Command) else self._other(event, now)
        return [*out, *self._after(now)]

    def _notice_stall(self, event: events.Event, now: float) -> None:
        """After a long freeze during a session, begin no run until the leader confirms which units are still ours.

        A run takes over its task's id. If the leader counted us as lost meanwhile, another worker has the task, maybe
        as part of another task set, past a fence: a run of ours would take the id back from it, or run beside a set
        that divides the partitions differently. Runs that were in progress are fenced already. This makes that rare,
        but guarantees nothing: a worker that is only cut off from its leader cannot know.
        """
        opened = isinstance(event, events.Command) and isinstance(event.message, Welcome)
        if opened or isinstance(event, events.SessionClosed):
            self._beat_at = None
        elif self._beat_at is not None and now - self._beat_at >= self._limits.stall_ms / 1000:
            self.tasks.pause_runs(now + self._limits.stall_pause_ms / 1000)
            self._beat_at = now
        if isinstance(event, events.HeartbeatDue):
            self._beat_at = now if self.session_open else None

    def _command(self, command: events.Command, now: float) -> list[Instruction]:
        epoch, message = command.epoch, command.message
        if epoch < self.epoch_max:
            if isinstance(message, Welcome):
                return [instructions.DropSession(f"its epoch {epoch} is below {self.epoch_max}")]
            return []
        self.epoch_max = epoch
        match message:
            case Welcome():
                return self._welcome(message, now)
            case StartUnit():
                return self._start(message, now)
            case StopUnit():
                return self._stop(message, now)
            case SetUnitTarget(unit=unit, target=target):
                if unit.task is None:
                    return self.connectors.set_target(unit.connector, target, now)
                return self.tasks.set_target(unit, target, now)
            case RequestTaskConfigs():
                return self.connectors.generate(message, now)
            case SetRate(connector=connector, records_per_second=records, bytes_per_second=bytes_):
                return self.tasks.set_rate(connector, Rate(records, bytes_))
            case SendCommand(command_id=command_id, command=SetDraining(draining=draining)):
                self.draining = draining
                return [instructions.SendReply(command_id)] if command_id else []
            case SendCommand(command_id=command_id, command=question):
                return [instructions.ExecuteCommand(command_id, question)]
            case Heartbeat():
                return []
            case Released():
                return self._stop_all("released", now) if self._exit_code is not None else []
            case _:
                assert_never(message)

    def _other(self, event: events.Observation, now: float) -> list[Instruction]:
        if isinstance(event, events.AboutWorker):
            return self._about_worker(event, now)
        match event:
            case events.RunHello(run_id=run_id, pid=pid, silence_end_ms=end_ms):
                return self.tasks.run_hello(run_id, pid, end_ms, now)
            case events.RunLiveness(run_id=run_id, silent_ms=silent_ms, moved_ms=moved_ms, wait=wait):
                return self.tasks.run_liveness(run_id, silent_ms, moved_ms, now, wait)
            case events.RunProgress(run_id=run_id, progress=progress):
                return self.tasks.run_progress(run_id, progress, now)
            case events.RunFailed(run_id=run_id, failure=failure):
                return self.tasks.run_said_end(run_id, failure)
            case events.RunFinished(run_id=run_id):
                return self.tasks.run_said_end(run_id, event)
            case events.RunEnded(run_id=run_id, error=error):
                return self.tasks.run_ended(run_id, error, now)
            case events.TaskHasWork(unit=unit, idle_id=idle_id):
                return self.tasks.has_work(unit, idle_id, now)
            case events.EndsLearned(ends=ends):
                return self.tasks.ends_learned(ends)
            case events.ConnectorStarted(connector=name, op_id=op_id, failure=failure):
                return self.connectors.started(name, op_id, failure, now)
            case events.TasksOutdated(connector=name, op_id=op_id):
                return self.connectors.outdated(name, op_id, now)
            case events.ConnectorRaised(connector=name, op_id=op_id, failure=failure):
                return self.connectors.raised(name, op_id, failure, now)
            case events.ConnectorStopped(connector=name, op_id=op_id):
                return self.connectors.stopped(name, op_id, now)
            case events.ConnectorWaits(connector=name, op_id=op_id, wait=wait):
                return self.connectors.waits(name, op_id, wait)
            case events.TaskWaits(unit=unit, wait=wait):
                return self.tasks.idle_waits(unit, wait)
            case events.TaskConfigsMade(connector=name, op_id=op_id, tasks=tasks, failure=failure):
                return self.connectors.task_configs_made(name, op_id, tasks, failure, now)
            case events.ValuesResolved() | events.ValuesChecked() | events.ValuesUnknown():
                return self._values(event, now)
            case _:
                assert_never(event)

    def _about_worker(self, event: events.AboutWorker, now: float) -> list[Instruction]:
        match event:
            case events.SessionClosed():
                self.session_open = False
                out = self.tasks.forget_rates()
                left = (
                    self._stop_all("stopping without a session to the herder", now)
                    if self._exit_code is not None
                    else []
                )
                return [*out, *left]
            case events.StatusStale(unit=unit, generation=generation):
                return self._stale(unit, generation, now)
            case events.HeartbeatDue(only_if_moved=only_if_moved, now_ms=now_ms):
                looked = [] if only_if_moved else self.waiting.look(self.tasks, self.connectors, now, now_ms)
                moved = self.tasks.take_moved() if self.session_open else []
                waits = self.waiting.take_changed() if self.session_open else []
                if only_if_moved and not (moved or waits):
                    return looked
                return [*looked, instructions.SendHeartbeat(moved, waits, self.tasks.running.slot_use)]
            case events.DrainRequested():
                self.draining = self._drain_waits = True
                return self._stop_all("draining", now)
            case events.LeaveRequested():
                return self._leave(0, self._limits.leave_timeout_ms, now)
            case events.SparkGone(error=error):
                out = self.tasks.all_runs_gone(error, now)
                return [*out, *self._leave(1, self._limits.leave_timeout_broken_ms, now)]
            case events.Tick():
                return self._tick(now)
            case _:
                assert_never(event)

    def _values(
        self, event: events.ValuesResolved | events.ValuesChecked | events.ValuesUnknown, now: float
    ) -> list[Instruction]:
        unit, made_by = event.unit, event.made_by
        match event:
            case events.ValuesResolved(ttl_ms=ttl_ms):
                self.reloads.resolved(unit, made_by, ttl_ms, now)
            case events.ValuesUnknown():
                self.reloads.unknown(unit, made_by, now)
            case events.ValuesChecked(changed=changed, ttl_ms=ttl_ms):
                self.reloads.checked(unit, made_by, ttl_ms, now)
                if changed and unit.task is None:
                    return self.connectors.reload(unit.connector, made_by, now)
                if changed:
                    return self.tasks.reload(unit, made_by, now)
            case _:
                assert_never(event)
        return []

    def _in_use(self, unit: UnitId, made_by: str) -> bool:
        if unit.task is None:
            return self.connectors.is_started_by(unit.connector, made_by)
        return self.tasks.has_values_of(unit, made_by)

    # --- session

    def _welcome(self, message: Welcome, now: float) -> list[Instruction]:
        self.session_open = True
        self.tasks.tell_all()
        self.waiting.tell_all()
        out: list[Instruction] = []
        for holding in self.held_units():
            if holding.unit not in message.adopted:
                out += self._release(holding.unit, "the herder did not adopt it", now)
        out += self.connectors.session_opened(now)
        out += self.tasks.resume_runs(now)
        if self._exit_code is not None:
            out.append(instructions.SendLeaving())
        return out

    def _start(self, start: StartUnit, now: float) -> list[Instruction]:
        if self.draining or self._exit_code is not None:
            return [instructions.SendReport(start.unit, start.assignment, RunState.UNASSIGNED)]
        if start.unit.task is None:
            return self.connectors.start(start, now)
        return self.tasks.start(start, now)

    def _stop(self, stop: StopUnit, now: float) -> list[Instruction]:
        held = self.connectors.get(stop.unit.connector) if stop.unit.task is None else self.tasks.get(stop.unit)
        if held is None or held.assignment.order > stop.assignment.order:
            # Already released, or held under a newer assignment than that of the stop command.
            return [instructions.SendReport(stop.unit, stop.assignment, RunState.UNASSIGNED)]
        return self._release(stop.unit, stop.reason, now)

    def _stale(self, unit: UnitId, generation: int, now: float) -> list[Instruction]:
        held = self.connectors.get(unit.connector) if unit.task is None else self.tasks.get(unit)
        if held is None or held.assignment.generation != generation:
            return []
        return self._release(unit, "another worker owns it under a newer generation", now)

    def _release(self, unit: UnitId, reason: str, now: float) -> list[Instruction]:
        if unit.task is None:
            return self.connectors.stop(unit.connector, now)
        return self.tasks.stop(unit, reason, now)

    # --- leaving

    def _leave(self, code: int, timeout_ms: int, now: float) -> list[Instruction]:
        if self._exit_code is not None:
            self._exit_code = max(code, self._exit_code)
            return []
        self._exit_code = code
        self._leave_by = now + timeout_ms / 1000
        if self.session_open:
            return [instructions.SendLeaving()]
        return self._stop_all("stopping without a session to the herder", now)

    def _stop_all(self, reason: str, now: float) -> list[Instruction]:
        if self._exit_code is not None:
            self._leave_by = None
            if self._exit_by is None:
                # Runs that do not stop are cancelled at their own deadline; leave them a moment after it.
                wait_ms = max(self._limits.tasks.stop_timeout_ms, self._limits.connector_stop_timeout_ms) + 1_000
                self._exit_by = now + wait_ms / 1000
        out: list[Instruction] = []
        for holding in self.held_units():
            out += self._release(holding.unit, reason, now)
        return out

    def _tick(self, now: float) -> list[Instruction]:
        out = [*self.tasks.tick(now), *self.connectors.tick(now), *self.reloads.tick(now, self._in_use)]
        if self._leave_by is not None and self._leave_by <= now:
            out += self._stop_all("stopping; the herder did not move it in time", now)
        return out

    def _after(self, now: float) -> list[Instruction]:
        empty = not len(self.tasks) and not len(self.connectors)
        out: list[Instruction] = []
        if self._drain_waits and empty:
            self._drain_waits = False
            out.append(instructions.Drained())
        # When leaving with a session, wait for Released even if no unit is held: a start command may be on its way.
        time_is_up = self._exit_by is not None and (empty or self._exit_by <= now)
        if self._exit_code is not None and time_is_up and not self._over:
            self._over = True
            self._exit_by = self._leave_by = None
            out.append(instructions.Exit(self._exit_code))
        return out
