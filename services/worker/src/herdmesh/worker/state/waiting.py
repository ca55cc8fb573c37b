"""Waits of the worker's units: computed once a second, reported to the status store and the leader.

Owns the worker's own waits (a slot, a process, a backoff), and the times at which changes are reported. Runs and
connectors report their own waits (`herdmesh.connect.spi.waits`).

Invariants: a wait over `SHOWN_AFTER_S` is reported within a second or two after it is known here, and so is its end. A
status that only counts one more try is written at most every `REWRITE_S`, because each write is a transaction. The
leader gets every change, because that costs nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, assert_never

from herdmesh.connect.spi import RUN_SLOT, SHOWN_AFTER_S, Wait
from herdmesh.session.model import UnitId
from herdmesh.worker.state.connectors import Call, Connector, Connectors
from herdmesh.worker.state.instructions import Instruction
from herdmesh.worker.state.model import Phase
from herdmesh.worker.state.task import Task, status_if_running
from herdmesh.worker.state.tasks import Tasks

REWRITE_S: Final = 10.0


@dataclass(slots=True)
class _Seen:
    """Present state of a unit, and the time since which it is the same."""

    state: object
    since_ms: int
    next_ms: int = 0


class Waiting:
    """All waits of one worker."""

    def __init__(self) -> None:
        self._waits: dict[UnitId, Wait] = {}
        self._seen: dict[UnitId, _Seen] = {}
        self._written: dict[UnitId, tuple[Wait, float]] = {}
        self._changed: dict[UnitId, None] = {}

    def look(self, tasks: Tasks, connectors: Connectors, now: float, now_ms: int) -> list[Instruction]:
        """Compare each unit's wait with the last reported one. `now`: seconds of the worker's clock; `now_ms`: epoch
        milliseconds.
        """
        out: list[Instruction] = []
        before, self._seen = self._seen, {}
        found: dict[UnitId, Wait] = {}
        for task in tasks:
            wait = _wait_of(task, tasks, self._see(before, task.unit, task.phase, now_ms), now, now_ms)
            if wait is not None:
                found[task.unit] = wait
            if wait != task.wait:
                task.wait = wait
                if self._is_to_be_written(task.unit, wait, now):
                    out += status_if_running(task)
        for connector in connectors:
            doing = connector.op_id if connector.call is not Call.NONE else connector.requests.due_at
            wait = _wait_of_connector(connector, self._see(before, connector.unit, doing, now_ms), now, now_ms)
            if wait is not None:
                found[connector.unit] = wait
            if wait != connector.wait:
                connector.wait = wait
                if self._is_to_be_written(connector.unit, wait, now):
                    out += connectors.status_if_running(connector)
        for unit in found.keys() | self._waits.keys():
            if found.get(unit) != self._waits.get(unit):
                self._changed[unit] = None
        for unit in self._written.keys() - found.keys():
            del self._written[unit]
        self._waits = found
        return out

    def take_changed(self) -> list[tuple[UnitId, Wait | None]]:
        """Waits that were not yet sent to the leader; None = the wait is over."""
        changed = [(unit, self._waits.get(unit)) for unit in self._changed]
        self._changed.clear()
        return changed

    def tell_all(self) -> None:
        """Mark all waits as changed, for a new leader."""
        self._changed.update(dict.fromkeys(self._waits))

    def _see(self, before: dict[UnitId, _Seen], unit: UnitId, state: object, now_ms: int) -> _Seen:
        seen = before.get(unit)
        if seen is None or seen.state != state:
            seen = _Seen(state, now_ms)
        self._seen[unit] = seen
        return seen

    def _is_to_be_written(self, unit: UnitId, wait: Wait | None, now: float) -> bool:
        before = self._written.get(unit)
        if wait is None:
            return before is not None
        if before is not None and before[0].waits_for == wait.waits_for and now - before[1] < REWRITE_S:
            return False
        self._written[unit] = wait, now
        return True


def _wait_of(task: Task, tasks: Tasks, seen: _Seen, now: float, now_ms: int) -> Wait | None:
    run = task.run
    if task.phase is Phase.RUNNING and run is not None:
        return run.wait
    if task.phase is Phase.IDLE:
        return task.idle_wait
    since_ms = seen.since_ms
    if now_ms - since_ms < SHOWN_AFTER_S * 1000:
        return None
    match task.phase:
        case Phase.QUEUED if tasks.running.paused_until is not None:
            why = "this worker was frozen, and begins no run before it knows which units it still owns"
            return Wait("confirmation by its leader", why, since_ms)
        case Phase.QUEUED:
            return Wait(RUN_SLOT, f"all {tasks.running.slots} slots of this worker are taken", since_ms)
        case Phase.STARTING if run is not None:
            why = "its process is being started and its config resolved"
            return run.wait or Wait("the start of its run", why, since_ms)
        case Phase.STOPPING if run is not None:
            return run.wait or Wait("the end of its run", "the run was requested to commit and end", since_ms)
        case Phase.WAITING if task.retry_at is not None:
            seen.next_ms = seen.next_ms or now_ms + int((task.retry_at - now) * 1000)
            return Wait(task.retry_reason, "", since_ms, task.lost_runs, seen.next_ms)
        case Phase.STARTING | Phase.STOPPING | Phase.WAITING | Phase.NEW | Phase.RUNNING | Phase.PAUSED | Phase.FAILED:
            return None
        case _:
            assert_never(task.phase)


def _wait_of_connector(connector: Connector, seen: _Seen, now: float, now_ms: int) -> Wait | None:
    if connector.reported_wait is not None:
        return connector.reported_wait
    if now_ms - seen.since_ms < SHOWN_AFTER_S * 1000:
        return None
    requests = connector.requests
    if connector.call is not Call.NONE:
        message = f"its {connector.call.lower().replace('_', ' ')} has not returned"
        return Wait("the connector's code", message, seen.since_ms)
    if requests.due_at is not None:
        seen.next_ms = seen.next_ms or now_ms + int((requests.due_at - now) * 1000)
        message = f"the connector requested new task configs {requests.carried_out + 1} times in a row"
        return Wait("the limit of reconfigurations", message, seen.since_ms, 0, seen.next_ms)
    return None
