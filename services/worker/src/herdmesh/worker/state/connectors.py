"""Connector instances: objects of authors' classes that create task configs.

Owns every connector that the worker holds, and its one call of author's code in progress. Owns no instance: calls are
instructions, executed in threads, because an author's code may take long or never return.

Invariant: at most one call per connector is in progress. Its result is matched by op_id, so the result of an abandoned
call changes nothing. Only `_drive` decides the next call, from the target and the present state.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum, unique

from herdmesh.connect.error_class import ErrorClass
from herdmesh.connect.spi import Wait
from herdmesh.session.messages import RequestTaskConfigs, StartUnit
from herdmesh.session.model import Assignment, Condition, Failure, RunState, TargetState, UnitId
from herdmesh.worker.state import instructions
from herdmesh.worker.state.instructions import Instruction
from herdmesh.worker.state.model import Config, ConnectorSpec, PutMode
from herdmesh.worker.state.reconfigurations import Reconfigurations
from herdmesh.worker.state.task import waiting

_RESTING = {TargetState.PAUSED: RunState.PAUSED, TargetState.STOPPED: RunState.STOPPED}


@unique
class Call(StrEnum):
    """The call of author's code in progress."""

    NONE = "NONE"
    START = "START"
    STOP = "STOP"
    TASK_CONFIGS = "TASK_CONFIGS"


@dataclass(slots=True)
class Connector:
    """One held connector."""

    unit: UnitId
    assignment: Assignment
    spec: ConnectorSpec
    target: TargetState
    conditions: tuple[Condition, ...] = ()
    state: RunState = RunState.UNASSIGNED
    """The state as last reported to the leader and written to the status store."""
    failure: Failure | None = None
    started: bool = False
    """True while the instance runs."""
    started_by: int = 0
    """The op_id of its start."""
    stale: bool = False
    """True when values of the instance's start have changed: it must be restarted."""
    call: Call = Call.NONE
    op_id: int = 0
    abandon_at: float | None = None
    configs_wanted: int | None = None
    """tasks_max of a pending request for task configs, the herder's or our own."""
    offers: bool = False
    """True after task configs were requested without a request of the herder. An offer is not acknowledged, and is lost
    with its session, or with a leader that had not written it: the connector offers them again to each session.
    """
    requests: Reconfigurations = field(default_factory=Reconfigurations)
    """Rate limit of its requests for new task configs."""
    reported_wait: Wait | None = None
    """The wait that the instance reported."""
    wait: Wait | None = None
    """The wait as last written to its status and sent to its leader."""
    releasing: bool = False
    successor: StartUnit | None = None


class Connectors:
    """State machine of all connectors. Each method takes the facts of one event and returns the instructions."""

    def __init__(self, stop_timeout_ms: int = 5_000) -> None:
        """`stop_timeout_ms`: how long an author's code may delay the release of the connector."""
        self._stop_timeout_ms = stop_timeout_ms
        self._connectors: dict[str, Connector] = {}
        self._ops = 0

    # --- queries

    def __iter__(self) -> Iterator[Connector]:
        return iter(self._connectors.values())

    def __len__(self) -> int:
        return len(self._connectors)

    def get(self, name: str) -> Connector | None:
        """The connector, None when it is not held."""
        return self._connectors.get(name)

    def is_started_by(self, name: str, made_by: str) -> bool:
        """True while the instance of that start runs and is wanted."""
        connector = self._connectors.get(name)
        return (
            connector is not None
            and connector.started
            and str(connector.started_by) == made_by
            and connector.target is TargetState.STARTED
            and connector.failure is None
            and not connector.releasing
        )

    def next_deadline(self) -> float | None:
        """Time of the next work for `tick`."""
        connectors = self._connectors.values()
        times = [time for one in connectors for time in (one.abandon_at, one.requests.deadline()) if time is not None]
        return min(times, default=None)

    # --- the herder's commands

    def start(self, event: StartUnit, now: float) -> list[Instruction]:
        """Hold the connector, and start its instance unless its target is PAUSED or STOPPED."""
        name = event.unit.connector
        held = self._connectors.get(name)
        if held is not None and not (held.releasing and held.successor is None):
            current = held.successor.assignment if held.successor is not None else held.assignment
            if event.assignment == current and held.successor is None:
                return [self._report(held), *self.set_target(name, event.target, now)]
            if event.assignment.order <= current.order:
                return []
        if held is not None:
            held.successor = event
            return self._release(held, now)
        connector = Connector(event.unit, event.assignment, ConnectorSpec.of(event), event.target, event.conditions)
        self._connectors[name] = connector
        if event.target is not TargetState.STARTED:
            return self._change_state(connector, _RESTING[event.target])
        return self._drive(connector, now)

    def stop(self, name: str, now: float) -> list[Instruction]:
        """Stop and release the connector, without a successor."""
        connector = self._connectors.get(name)
        if connector is None:
            return []
        connector.successor = None
        return self._release(connector, now)

    def set_target(self, name: str, target: TargetState, now: float) -> list[Instruction]:
        """Pause, stop or resume in place. A FAILED connector stays FAILED, unless it is stopped
        (docs/reference/connect/herder.md, section 7).
        """
        connector = self._connectors.get(name)
        if connector is None or connector.releasing or connector.target is target:
            return []
        connector.target = target
        if target is TargetState.STOPPED and connector.call is Call.NONE:
            connector.failure = None
        out = self._drive(connector, now)
        resting = _RESTING.get(target)
        at_rest = connector.call is Call.NONE and not connector.started and connector.failure is None
        if resting is not None and at_rest and connector.state is not resting:
            out += self._change_state(connector, resting)
        return out

    def generate(self, event: RequestTaskConfigs, now: float) -> list[Instruction]:
        """Request task configs; also replies when the connector is not held, so that the leader need not wait."""
        connector = self._connectors.get(event.connector)
        if connector is None or connector.releasing or connector.assignment != event.assignment:
            failure = Failure("this worker does not hold the connector", error_class=ErrorClass.RETRIABLE)
            return [instructions.SendTaskConfigs(event.connector, event.assignment, failure=failure)]
        if connector.failure is not None:
            return [instructions.SendTaskConfigs(event.connector, event.assignment, failure=connector.failure)]
        connector.configs_wanted = event.tasks_max
        return self._drive(connector, now)

    def reload(self, name: str, made_by: str, now: float) -> list[Instruction]:
        """Handle changed values of the instance's start: stop it, start it with the new ones, request task configs, and
        offer them to the leader.
        """
        if not self.is_started_by(name, made_by):
            return []
        self._connectors[name].stale = True
        return self._drive(self._connectors[name], now)

    def session_opened(self, now: float) -> list[Instruction]:
        """Offer the task configs of adopted connectors again, if they were offered before."""
        out: list[Instruction] = []
        for connector in self:
            if connector.offers and self.is_started_by(connector.unit.connector, str(connector.started_by)):
                out += self._offer(connector, now)
        return out

    def outdated(self, name: str, started_by: int, now: float) -> list[Instruction]:
        """Handle a connector's request (Java: `requestTaskReconfiguration`): its new task configs are offered to the
        leader, at a bounded rate.
        """
        if not self.is_started_by(name, str(started_by)):
            return []
        connector = self._connectors[name]
        return self._offer(connector, now) if connector.requests.requested(now) else self._limited(connector, now)

    def raised(self, name: str, started_by: int, failure: Failure, now: float) -> list[Instruction]:
        """Handle a connector's own error (Java: `raiseError`): it is FAILED, and its instance is stopped. Its tasks are
        not affected.
        """
        if not self.is_started_by(name, str(started_by)):
            return []
        connector = self._connectors[name]
        return [*self._failed(connector, failure), *self._drive(connector, now)]

    # --- results of the author's code

    def started(self, name: str, op_id: int, failure: Failure | None, now: float) -> list[Instruction]:
        """Handle the return of `start`."""
        connector = self._on_returned(name, op_id)
        if connector is None:
            return []
        if failure is not None:
            return [*self._failed(connector, failure), *self._drive(connector, now)]
        connector.started = True
        connector.started_by = op_id
        wanted = connector.target is TargetState.STARTED and not connector.releasing
        out = self._change_state(connector, RunState.RUNNING) if wanted else []
        if connector.stale:
            connector.stale = False
            return [*out, *self._offer(connector, now)]
        return [*out, *self._drive(connector, now)]

    def stopped(self, name: str, op_id: int, now: float) -> list[Instruction]:
        """Handle the return of `stop`."""
        connector = self._on_returned(name, op_id)
        if connector is None:
            return []
        connector.started = False
        if connector.target is TargetState.STOPPED:
            connector.failure = None
        resting = None if connector.failure is not None else _RESTING.get(connector.target)
        out = self._change_state(connector, resting) if resting is not None and not connector.releasing else []
        return [*out, *self._drive(connector, now)]

    def task_configs_made(
        self, name: str, op_id: int, tasks: Sequence[Config], failure: Failure | None, now: float
    ) -> list[Instruction]:
        """Handle the return of `task_configs`. An error fails the request, not the connector, as in Connect."""
        connector = self._on_returned(name, op_id)
        if connector is None:
            return []
        out: list[Instruction] = []
        if not connector.releasing:
            out.append(instructions.SendTaskConfigs(name, connector.assignment, tasks, failure))
        return [*out, *self._drive(connector, now)]

    def waits(self, name: str, started_by: int, wait: Wait | None) -> list[Instruction]:
        """Record the wait of the instance of that start; None = no long wait."""
        connector = self._connectors.get(name)
        if connector is not None and started_by in (connector.started_by, connector.op_id):
            connector.reported_wait = wait
        return []

    def status_if_running(self, connector: Connector) -> list[Instruction]:
        """Write its status again, if it is RUNNING."""
        return [self._status(connector)] if connector.state is RunState.RUNNING and not connector.releasing else []

    def tick(self, now: float) -> list[Instruction]:
        """Execute due requests for task configs, and release connectors whose code does not return."""
        out: list[Instruction] = []
        for connector in list(self._connectors.values()):
            if connector.requests.tick(now) and self.is_started_by(connector.unit.connector, str(connector.started_by)):
                out += self._offer(connector, now)
            out += self._limited(connector, now)
            if connector.abandon_at is not None and connector.abandon_at <= now:
                out += [instructions.AbandonConnector(connector.unit.connector), *self._released(connector, now)]
        return out

    # --- transitions

    def _offer(self, connector: Connector, now: float) -> list[Instruction]:
        connector.offers = True
        connector.configs_wanted = connector.configs_wanted or connector.spec.tasks_max
        return self._drive(connector, now)

    def _limited(self, connector: Connector, now: float) -> list[Instruction]:
        """Write its status if the rate limit of its requests begins or ends."""
        limited = connector.requests.is_limited(now)
        if limited is connector.requests.limited:
            return []
        connector.requests.limited = limited
        return [] if connector.releasing else [self._status(connector)]

    def _drive(self, connector: Connector, now: float) -> list[Instruction]:
        if connector.call is not Call.NONE:
            return []
        name = connector.unit.connector
        if connector.releasing:
            if connector.started:
                return [instructions.StopConnector(name, self._call(connector, Call.STOP))]
            return self._released(connector, now)
        if connector.target is TargetState.STARTED and not connector.started and connector.failure is None:
            return [instructions.StartConnector(name, self._call(connector, Call.START), connector.spec.config)]
        is_over = connector.failure is not None or connector.target is not TargetState.STARTED
        if connector.started and (connector.stale or is_over):
            return [instructions.StopConnector(name, self._call(connector, Call.STOP))]
        if connector.configs_wanted is not None:
            tasks_max, connector.configs_wanted = connector.configs_wanted, None
            op_id = self._call(connector, Call.TASK_CONFIGS)
            return [instructions.MakeTaskConfigs(name, op_id, connector.spec.config, tasks_max)]
        return []

    def _call(self, connector: Connector, call: Call) -> int:
        self._ops += 1
        connector.call = call
        connector.op_id = self._ops
        return self._ops

    def _on_returned(self, name: str, op_id: int) -> Connector | None:
        connector = self._connectors.get(name)
        if connector is None or connector.op_id != op_id or connector.call is Call.NONE:
            return None
        connector.call = Call.NONE
        return connector

    def _failed(self, connector: Connector, failure: Failure) -> list[Instruction]:
        if connector.releasing:
            return []
        if connector.target is TargetState.STOPPED:
            # Stopped while it started: stopping ends the FAILED state, also when the failure comes after the stop.
            out = self._change_state(connector, RunState.STOPPED)
        else:
            connector.failure = failure
            out = self._change_state(connector, RunState.FAILED)
        if connector.configs_wanted is not None:
            connector.configs_wanted = None
            name = connector.unit.connector
            out.append(instructions.SendTaskConfigs(name, connector.assignment, failure=failure))
        return out

    def _release(self, connector: Connector, now: float) -> list[Instruction]:
        if not connector.releasing:
            connector.releasing = True
            connector.abandon_at = now + self._stop_timeout_ms / 1000
        return self._drive(connector, now)

    def _released(self, connector: Connector, now: float) -> list[Instruction]:
        del self._connectors[connector.unit.connector]
        successor = connector.successor
        if successor is not None:
            return self.start(successor, now)
        keep = connector.state is RunState.FAILED
        connector.state, connector.failure = RunState.UNASSIGNED, None
        return [*([] if keep else [self._status(connector)]), self._report(connector)]

    # --- statuses and reports

    def _change_state(self, connector: Connector, state: RunState) -> list[Instruction]:
        connector.state = state
        return [self._status(connector), self._report(connector)]

    def _status(self, connector: Connector) -> Instruction:
        safe = connector.state in (RunState.FAILED, RunState.UNASSIGNED)
        return instructions.WriteStatus(
            connector.unit,
            connector.state,
            PutMode.PUT_SAFE if safe else PutMode.PUT,
            connector.assignment.generation,
            connector.spec.config,
            connector.failure,
            conditions=_conditions(connector),
        )

    def _report(self, connector: Connector) -> Instruction:
        return instructions.SendReport(connector.unit, connector.assignment, connector.state, connector.failure)


def _conditions(connector: Connector) -> tuple[Condition, ...]:
    limited = (connector.requests.condition(),) if connector.requests.limited else ()
    said = () if connector.state is not RunState.RUNNING else waiting(connector.wait)
    return (*connector.conditions, *limited, *said)
