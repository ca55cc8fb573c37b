"""Collector of a worker's metrics: observes its events and instructions.

Owns the set of tasks and connectors on the page. Reads events and instructions as they pass through the loop, and the
held units of the state; the state does not know of it, and nothing here decides anything.

A task that leaves the worker leaves the page at once, with all its series. Its totals are kept for `KEPT_S` in case it
returns, as it does when it is restarted. After that, or as the task of another connector of the same name, it begins at
0, which Prometheus takes for a counter reset.

Invariant: series exist only for held units, so the herder's assignments bound their number; the other memory is bounded
by `LEFT_MAX`.
"""

from __future__ import annotations

import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Sequence
from typing import Final, TypeVar, assert_never

from herdmesh.connect.errors import ConfigError
from herdmesh.connect.spi import PluginDescriptor
from herdmesh.rpc.monitoring import telemetry
from herdmesh.rpc.monitoring.telemetry import Buckets, Family, Labels
from herdmesh.session.messages import StartUnit
from herdmesh.session.model import RunState, UnitId
from herdmesh.worker.metrics.connectors import ConnectorMeter, Startups, StateCount, WorkerMeter
from herdmesh.worker.metrics.names import (
    CONNECTOR_METRICS,
    STATE_METRICS,
    TASK_METRICS,
    WORKER_METRICS,
    Definition,
    Labelled,
)
from herdmesh.worker.metrics.tasks import TaskMeter
from herdmesh.worker.state import WorkerState, events, instructions
from herdmesh.worker.state.connectors import Connector
from herdmesh.worker.state.model import Config
from herdmesh.worker.state.task import Task

#: Events without metrics of their own.
_NotMeasured = (
    events.RunHello
    | events.RunLiveness
    | events.RunFailed
    | events.TaskHasWork
    | events.ConnectorStarted
    | events.TasksOutdated
    | events.ConnectorRaised
    | events.ConnectorStopped
    | events.ConnectorWaits
    | events.TaskWaits
    | events.TaskConfigsMade
    | events.ValuesResolved
    | events.ValuesChecked
    | events.ValuesUnknown
    | events.SessionClosed
    | events.StatusStale
    | events.DrainRequested
    | events.LeaveRequested
    | events.SparkGone
    | events.Tick
)
KEPT_S: Final = 600.0
LEFT_MAX: Final = 10_000
T = TypeVar("T")


class WorkerMetrics:
    """One per worker, from `start` to `close`. `passed` is called after every step of the state."""

    def __init__(self, plugin: Callable[[Config], PluginDescriptor], slots: int, version: str) -> None:
        """`plugin` finds a connector's plugin, or raises ConfigError."""
        self._plugin = plugin
        self._worker = WorkerMeter(version, time.time_ns() // 1_000_000, slots)
        self._tasks: dict[UnitId, TaskMeter] = {}
        self._connectors: dict[UnitId, ConnectorMeter] = {}
        #: units that left lately, oldest first, with the time.
        self.left: OrderedDict[UnitId, tuple[float, TaskMeter]] = OrderedDict()
        self._runs: dict[str, TaskMeter] = {}
        #: units under an assignment that was neither RUNNING nor FAILED yet.
        self._starting: set[UnitId] = set()
        self._remove: Callable[[], None] | None = None

    def start(self) -> None:
        """Register with the page."""
        self._remove = telemetry.add_producer("herdmesh.worker", self.families)

    def close(self) -> None:
        """Unregister from the page."""
        if self._remove is not None:
            self._remove()
            self._remove = None

    def passed(
        self, event: events.Event, out: Sequence[instructions.Instruction], state: WorkerState, now_s: float
    ) -> None:
        """Record one step: the event, its instructions, and the state after it."""
        touched: dict[UnitId, None] = {}
        self._happened(event, touched, state, now_s)
        for one in out:
            if isinstance(
                one,
                instructions.SubmitRun | instructions.UnwatchTask | instructions.SendReport | instructions.WriteStatus,
            ):
                touched[one.unit] = None
        for unit in touched:
            self._look(unit, state, now_s)
        for one in out:
            if isinstance(one, instructions.SubmitRun) and (task := self._tasks.get(one.unit)) is not None:
                self._runs[one.run_id] = task
                task.begun(one.run_id)
        self._worker.connectors, self._worker.tasks = len(state.connectors), len(state.tasks)
        self._worker.runs = len(self._runs)
        self._worker.tasks_waiting_for_slot = state.tasks.running.slot_use.waiting

    def _happened(self, event: events.Event, touched: dict[UnitId, None], state: WorkerState, now_s: float) -> None:
        """Record the event's own metrics. Adds the units to update to `touched`."""
        if isinstance(event, _NotMeasured):
            return
        match event:
            case events.EndsLearned():
                for task in self._tasks.values():
                    self._learn(task, state)
            case events.RunProgress(run_id=run_id, progress=progress):
                if (task := self._runs.get(run_id)) is not None:
                    task.measured(run_id, progress, now_s)
                    self._learn(task, state)
            case events.RunFinished(run_id=run_id, progress=progress):
                if (task := self._runs.get(run_id)) is not None:
                    task.measured(run_id, progress, now_s)
            case events.RunEnded(run_id=run_id):
                if (task := self._runs.pop(run_id, None)) is not None:
                    task.ended()
                    self._learn(task, state)
            case events.Command(message=message):
                if isinstance(message, StartUnit):
                    touched[message.unit] = None
            case events.HeartbeatDue(only_if_moved=only_if_moved):
                if not only_if_moved:
                    self._look_at_waits(state)
            case _:
                assert_never(event)

    def families(self) -> Iterable[Family]:
        """All metrics at this moment; called by the page's thread."""
        now_s = time.monotonic()
        tasks = list(self._tasks.values())
        connectors = list(self._connectors.values())
        yield from _read(TASK_METRICS, [(task.labels, task) for task in tasks], now_s)
        yield from _read(CONNECTOR_METRICS, [({"connector": one.name}, one) for one in connectors], now_s)
        yield from _read(STATE_METRICS, [({"connector": one.connector}, one) for one in _by_state(tasks)], now_s)
        yield from _read(WORKER_METRICS, [({}, self._worker)], now_s)

    # --- held units

    @staticmethod
    def _learn(task: TaskMeter, state: WorkerState) -> None:
        """Copy the task's partitions, with ends that its run may not know."""
        held = state.tasks.get(task.unit)
        if held is not None and held.progress.partitions:
            task.progress = held.progress

    def _look(self, unit: UnitId, state: WorkerState, now_s: float) -> None:
        if unit.task is None:
            self._look_at_connector(unit, state.connectors.get(unit.connector))
        else:
            self._look_at_task(unit, state.tasks.get(unit), now_s)

    def _look_at_connector(self, unit: UnitId, held: Connector | None) -> None:
        if held is None:
            self._starting.discard(unit)
            self._connectors.pop(unit, None)
            return
        one = self._connectors.get(unit)
        if one is None or one.generation != held.assignment.generation:
            self._begun(unit, self._worker.connector_startups)
            one = self._connectors[unit] = self._connector(unit, held.spec.config)
            one.generation = held.assignment.generation
        one.state = held.state
        self._note_start(unit, held.state, self._worker.connector_startups)

    def _look_at_task(self, unit: UnitId, held: Task | None, now_s: float) -> None:
        task = self._tasks.get(unit)
        if held is None:
            self._starting.discard(unit)
            if task is not None:
                del self._tasks[unit]
                self._keep(task, now_s)
            return
        if task is None or task.incarnation != held.assignment.incarnation:
            task = self._task(unit, held.assignment.incarnation, held.spec.connector_config, now_s)
            self._tasks[unit] = task
        if task.generation != held.assignment.generation:
            self._begun(unit, self._worker.task_startups)
            task.generation = held.assignment.generation
        task.changed(held.state, now_s)
        self._note_start(unit, held.state, self._worker.task_startups)

    def _look_at_waits(self, state: WorkerState) -> None:
        for unit, task in self._tasks.items():
            held = state.tasks.get(unit)
            task.wait = None if held is None else held.wait
        for unit, one in self._connectors.items():
            connector = state.connectors.get(unit.connector)
            one.wait = None if connector is None else connector.wait

    def _task(self, unit: UnitId, incarnation: str, config: Config, now_s: float) -> TaskMeter:
        """The meter of a task; the old one if the task left lately."""
        left_s, task = self.left.pop(unit, (0.0, None))
        if task is not None and task.incarnation == incarnation and now_s - left_s < KEPT_S:
            return task
        plugin = self._found(config)
        return TaskMeter(unit, incarnation, None if plugin is None else plugin.kind, now_s)

    def _keep(self, task: TaskMeter, now_s: float) -> None:
        task.changed(RunState.UNASSIGNED, now_s)
        self.left[task.unit] = now_s, task
        while len(self.left) > LEFT_MAX or now_s - next(iter(self.left.values()))[0] >= KEPT_S:
            self.left.popitem(last=False)

    def _connector(self, unit: UnitId, config: Config) -> ConnectorMeter:
        plugin = self._found(config)
        if plugin is None:
            return ConnectorMeter(unit.connector, config.get("connector.class") or "unknown")
        return ConnectorMeter(unit.connector, plugin.class_name, plugin.kind.value, plugin.version or "unknown")

    def _found(self, config: Config) -> PluginDescriptor | None:
        try:
            return self._plugin(config)
        except ConfigError:
            return None

    def _begun(self, unit: UnitId, startups: Startups) -> None:
        startups.attempts += 1
        self._starting.add(unit)

    def _note_start(self, unit: UnitId, state: RunState, startups: Startups) -> None:
        if unit not in self._starting or state not in (RunState.RUNNING, RunState.FAILED):
            return
        self._starting.discard(unit)
        if state is RunState.RUNNING:
            startups.successes += 1
        else:
            startups.failures += 1


def _by_state(tasks: Iterable[TaskMeter]) -> list[StateCount]:
    found: dict[str, Counter[str]] = {}
    for task in tasks:
        found.setdefault(task.unit.connector, Counter())[task.state.value.lower()] += 1
    return [StateCount(connector, counts) for connector, counts in found.items()]


def _read(definitions: Iterable[Definition[T]], of: Sequence[tuple[Labels, T]], now_s: float) -> Iterable[Family]:
    for definition in definitions:
        points: list[tuple[Labels, float | Buckets]] = []
        for labels, one in of:
            if definition.of is not None and isinstance(one, TaskMeter) and one.kind is not definition.of:
                continue
            value = definition.read(one, now_s)
            if isinstance(value, str):
                points.append(({**labels, definition.text_label: value}, 1.0))
            elif isinstance(value, Labelled):
                points.append(({**labels, **value.labels}, value.value))
            elif value is not None:
                points.append((labels, value))
        yield Family(definition.name, definition.kind, definition.description, points)
