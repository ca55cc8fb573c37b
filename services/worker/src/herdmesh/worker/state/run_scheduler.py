"""Scheduler of the worker's runs, and of the tasks that wait for a slot.

Owns the assignment of runs to tasks, from SubmitRun to RunEnded, the queue, whether runs may begin at all, and their
rate limits. Does not own the rule that selects the next task (`slots`), nor the consequences of a run's end (`tasks`).

Invariant: there are never more runs than slots; a run id is used once in the life of all workers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from herdmesh.engine.runtime import Rate
from herdmesh.session.model import SlotUse, UnitId
from herdmesh.worker.state import instructions
from herdmesh.worker.state.instructions import Instruction
from herdmesh.worker.state.model import Phase
from herdmesh.worker.state.run import Run
from herdmesh.worker.state.slots import Queue, left_waiting, runs_to_share, warm_runs_to_end
from herdmesh.worker.state.task import Task, TaskLimits


class Running:
    """All runs of one worker, and the queue of waiting tasks."""

    def __init__(self, run_prefix: str, limits: TaskLimits) -> None:
        """`run_prefix` is new for each life of the process."""
        self._prefix = run_prefix
        self._slots = limits.slots
        self._share_ms = limits.share_ms
        self._warm_max = limits.warm_runs_max
        self._by_run: dict[str, Task] = {}
        self._waiting: dict[UnitId, Task] = {}
        self._queue = Queue()
        self._runs_made = 0
        self._rates: dict[str, Rate] = {}
        self.paused_until: float | None = None
        """No run begins before this time; None = runs may begin."""

    def __iter__(self) -> Iterator[tuple[Task, Run]]:
        """Each run with its task; runs may begin and end during the iteration."""
        return iter([(task, task.run) for task in self._by_run.values() if task.run is not None])

    def get(self, run_id: str) -> tuple[Task, Run] | None:
        """The run and its task, None when it is over."""
        task = self._by_run.get(run_id)
        return None if task is None or task.run is None else (task, task.run)

    @property
    def slots(self) -> int:
        """The number of slots."""
        return self._slots

    def has_waiting(self) -> bool:
        """True while a task waits for a slot."""
        return bool(self._queue)

    @property
    def slot_use(self) -> SlotUse:
        """The slots that are used, and the tasks that wait for one."""
        return SlotUse(len(self._by_run), len(self._queue))

    def enqueue(self, task: Task, now: float) -> list[Instruction]:
        """Put the task into the queue; it gets a free slot if there is one."""
        task.phase = Phase.QUEUED
        self._waiting[task.unit] = task
        self._queue.append(task.unit)
        return self.fill(now)

    def leave_queue(self, task: Task) -> None:
        """Remove the task from the queue, if it is there."""
        if task.phase is Phase.QUEUED:
            self._queue.remove(task.unit)
            del self._waiting[task.unit]

    def end(self, run_id: str) -> tuple[Task, Run] | None:
        """Remove the run, which is over; its slot stays free until `fill`."""
        found = self.get(run_id)
        self._by_run.pop(run_id, None)
        if found is not None:
            found[0].run = None
            found[0].moved = True
        return found

    def pause_until(self, until: float) -> None:
        """Begin no run before `until` or `resume`."""
        self.paused_until = max(until, self.paused_until or until)

    def resume(self, now: float) -> list[Instruction]:
        """Let runs begin again."""
        self.paused_until = None
        return self.fill(now)

    def close(self) -> None:
        """Never begin a run again."""
        self._slots = 0

    def fill(self, now: float) -> list[Instruction]:
        """Begin runs while there are slots and waiting tasks; make room when there are too few slots."""
        out: list[Instruction] = []
        while self._queue and len(self._by_run) < self._slots and self.paused_until is None:
            running = Counter(task.unit.connector for task in self._by_run.values())
            out.append(self._submit(self._waiting.pop(self._queue.pop(running)), now))
        return [*out, *self.make_room(now)]

    def make_room(self, now: float) -> list[Instruction]:
        """End one warm run per waiting task, and those above the limit; then command as many runs to share as tasks
        could run in their place.
        """
        out: list[Instruction] = []
        for run in warm_runs_to_end([run for _, run in self], len(self._queue), self._warm_max):
            run.end_requested = True
            out.append(instructions.EndWarmRun(run.run_id))
        if not self._queue:
            return out
        runs: dict[str, list[Run]] = {}
        ending = 0
        for task, run in self:
            if run.end_requested:
                ending += 1
            else:
                runs.setdefault(task.unit.connector, []).append(run)
        waiting = left_waiting(self._queue.counts(), runs, ending)
        for run, run_ms in runs_to_share(runs, waiting, self._share_ms, now):
            run.share_by = run.since + run_ms / 1000
            out.append(instructions.ShareRun(run.run_id, run_ms))
        return out

    def set_rate(self, connector: str, rate: Rate) -> list[Instruction]:
        """Set the rate limit of the connector's runs; later runs get it when they begin.

        Remembered until the session ends, also without a task: the leader does not repeat it.
        """
        self._rates[connector] = rate
        return [
            instructions.RateRun(run.run_id, rate)
            for task, run in self
            if task.unit.connector == connector and run.took_over
        ]

    def forget_rates(self) -> list[Instruction]:
        """Reset all rates: the load of other workers' tasks is unknown, so each run returns to its equal share."""
        out: list[Instruction] = []
        for connector in list(self._rates):
            out += self.set_rate(connector, Rate())
        self._rates.clear()
        return out

    def tell_rate(self, task: Task, run: Run) -> list[Instruction]:
        """Send the connector's rate to a run that has begun."""
        rate = self._rates.get(task.unit.connector)
        return [] if rate is None else [instructions.RateRun(run.run_id, rate)]

    def _submit(self, task: Task, now: float) -> Instruction:
        self._runs_made += 1
        task.run_count += 1
        run_id = f"{self._prefix}-{self._runs_made}"
        task.run = Run(run_id, now, task.progress)
        task.values_of = run_id
        task.phase = Phase.STARTING
        task.moved = True
        self._by_run[run_id] = task
        traceparent, task.traceparent = task.traceparent, ""
        return instructions.SubmitRun(
            run_id, task.unit, task.spec, task.commit_scope, task.assignment, task.progress.config_offset, traceparent
        )
