"""A leader's messages with an epoch, as the worker's state gets them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from herdmesh.connect.task_counts import NO_COUNTS, TaskCounts
from herdmesh.connect.topics.commit_scope import CommitScope
from herdmesh.engine.runtime.contract import Rate
from herdmesh.session.messages import (
    Released,
    RequestTaskConfigs,
    SendCommand,
    SetRate,
    SetUnitTarget,
    StartUnit,
    StopUnit,
    Welcome,
)
from herdmesh.session.model import Assignment, Condition, TargetState, UnitId
from herdmesh.session.worker_commands import SetDraining, WorkerCommand
from herdmesh.topicstore.contract import Revision
from herdmesh.worker.state.events import Command
from herdmesh.worker.state.model import ConnectorSpec, TaskSpec


def welcome(epoch: int, adopted: Iterable[UnitId] = ()) -> Command:
    return Command(epoch, Welcome(tuple(adopted)))


def start_unit(
    epoch: int,
    unit: UnitId,
    assignment: Assignment,
    target: TargetState,
    spec: TaskSpec | ConnectorSpec,
    commit_scope: CommitScope | None = None,
    conditions: tuple[Condition, ...] = (),
    config_offset: int | None = None,
    counts: TaskCounts = NO_COUNTS,
) -> Command:
    revision = None if config_offset is None else Revision("store", (config_offset,))
    if isinstance(spec, TaskSpec):
        parts = (spec.connector_config, spec.task_config, target, spec.task_count, 0)
    else:
        parts = (spec.config, None, target, 0, spec.tasks_max)
    return Command(epoch, StartUnit(unit, assignment, *parts, commit_scope, revision, conditions, counts=counts))


def stop_unit(epoch: int, unit: UnitId, assignment: Assignment, reason: str) -> Command:
    return Command(epoch, StopUnit(unit, assignment, reason))


def set_target(epoch: int, unit: UnitId, target: TargetState) -> Command:
    return Command(epoch, SetUnitTarget(unit, target))


def generate(epoch: int, connector: str, assignment: Assignment, tasks_max: int) -> Command:
    return Command(epoch, RequestTaskConfigs(connector, assignment, tasks_max))


def set_rate(epoch: int, connector: str, rate: Rate) -> Command:
    return Command(epoch, SetRate(connector, rate.records_per_second, rate.bytes_per_second))


def ask(epoch: int, command_id: str, question: WorkerCommand) -> Command:
    return Command(epoch, SendCommand(command_id, question))


def drain(epoch: int, draining: bool, command_id: str = "") -> Command:
    return ask(epoch, command_id, SetDraining(draining))


def released(epoch: int) -> Command:
    return Command(epoch, Released())


def changed(command: Command, **changes: Any) -> Command:
    """The command with other values in its message."""
    return replace(command, message=replace(command.message, **changes))
