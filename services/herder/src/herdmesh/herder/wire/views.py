"""Views as messages of the public service.

Owns the mapping of connectors, tasks, workers and the cluster to `herder.v1`.
"""

from __future__ import annotations

from typing import cast

from herdmesh.api.common.v1 import connector_pb2 as common
from herdmesh.api.herder.v1 import admin_messages_pb2 as admin_pb
from herdmesh.api.herder.v1 import config_messages_pb2 as config_pb
from herdmesh.api.herder.v1 import connector_pb2 as pb
from herdmesh.api.herder.v1 import lifecycle_messages_pb2 as lifecycle_pb
from herdmesh.api.worker.v1 import task_pb2
from herdmesh.connect.topics import Lag
from herdmesh.herder.state.model import AutoRestart, LoggerLevel
from herdmesh.herder.state.model.requests import PlanAction, PlanStep, Restarting
from herdmesh.herder.state.views.views import (
    ClusterView,
    ConnectorView,
    TaskView,
    UnitView,
    WorkerState,
    WorkerView,
)
from herdmesh.herder.wire import restart_notes, values
from herdmesh.rpc import properties, revisions
from herdmesh.rpc.enums import WireEnum
from herdmesh.session import wire as session_wire
from herdmesh.session.model import RunState, UnitId
from herdmesh.topicstore.contract import Revision

_WORKER_STATES = WireEnum(pb.WorkerState, WorkerState)
_PLAN_ACTIONS = WireEnum(config_pb.PlanAction, PlanAction)


def connector_status(view: ConnectorView) -> pb.Connector:
    """The short form for long lists (CONNECTOR_VIEW_STATUS): no configs, no traces, no progress."""
    message = pb.Connector(
        name=view.name,
        type=values.CONNECTOR_TYPES.to_wire(view.type),
        target_state=session_wire.TARGET_STATES.to_wire(view.entry.wanted_state),
        incarnation=view.entry.incarnation,
    )
    _fill_lag(message, view.lag)
    _fill_status(message.status, view.status)
    for task in view.tasks:
        shown = message.tasks.add()
        shown.id.connector, shown.id.task = view.name, task.id.task or 0
        _fill_status(shown.status, task.status)
    return message


def connector(view: ConnectorView) -> pb.Connector:
    message = pb.Connector(
        name=view.name,
        type=values.CONNECTOR_TYPES.to_wire(view.type),
        config=properties.to_proto(view.entry.config),
        target_state=session_wire.TARGET_STATES.to_wire(view.entry.wanted_state),
        status=_status(view.status),
        tasks=[_task(task) for task in view.tasks],
        incarnation=view.entry.incarnation,
        counts=session_wire.counts_to(view.counts),
    )
    _fill_lag(message, view.lag)
    if view.entry.config_revision is not None:
        message.config_revision.CopyFrom(revisions.to_proto(view.entry.config_revision))
    if view.entry.target_revision is not None:
        message.target_state_revision.CopyFrom(revisions.to_proto(view.entry.target_revision))
    return message


def _fill_lag(message: pb.Connector, lag: Lag) -> None:
    message.lag_records = -1 if lag.total is None else lag.total
    if lag.behind is not None:
        message.behind_records = lag.behind
    if lag.uncommitted is not None:
        message.uncommitted_records = lag.uncommitted


def gone_connector(name: str) -> pb.Connector:
    """The answer to a change of a connector that was deleted since."""
    return pb.Connector(
        name=name, status=pb.UnitStatus(state=session_wire.RUN_STATES.to_wire(RunState.DESTROYED)), lag_records=-1
    )


def worker(view: WorkerView) -> pb.Worker:
    return pb.Worker(
        worker_id=view.worker_id,
        incarnation=view.incarnation,
        address=view.address,
        state=_WORKER_STATES.to_wire(view.state),
        slots=view.slots,
        connectors=view.connectors,
        tasks=[_task_id(task) for task in view.tasks],
        connect_time=values.wall_time(view.connected_ms),
        reason=view.reason,
        conditions=[values.condition(condition) for condition in view.conditions],
        slots_used=None if view.slot_use is None else view.slot_use.used,
        tasks_waiting_for_slot=None if view.slot_use is None else view.slot_use.waiting,
    )


def gone_worker(worker_id: str) -> pb.Worker:
    """A watch's message that a worker is gone."""
    return pb.Worker(worker_id=worker_id, state=pb.WORKER_STATE_LOST)


def cluster(view: ClusterView, version: str, cluster_id: str, revision: Revision | None) -> admin_pb.GetClusterResponse:
    found = admin_pb.GetClusterResponse(
        meta=revisions.meta(revision),
        cluster_id=cluster_id,
        version=version,
        leader_id=view.leader_id,
        leader_address=view.leader_address,
        epoch=view.epoch,
        workers=[worker(item) for item in view.workers],
        start_count=view.start_count,
        adopted_count=view.adopted_count,
    )
    found.report_time.GetCurrentTime()
    return found


def restart_items(answer: Restarting) -> list[lifecycle_pb.RestartPlanItem]:
    return [
        lifecycle_pb.RestartPlanItem(
            task=item.task,
            state=session_wire.RUN_STATES.to_wire(item.state),
            restarted=item.restarted,
            worker_id=item.worker_id,
        )
        for item in answer.items
    ]


def plan_step(step: PlanStep) -> config_pb.PlanStep:
    return config_pb.PlanStep(action=_PLAN_ACTIONS.to_wire(step.action), task=step.task, reason=step.reason)


def logger(worker_id: str, level: LoggerLevel) -> admin_pb.LoggerEntry:
    message = admin_pb.LoggerEntry(worker_id=worker_id, logger=level.logger, level=level.level)
    if level.modified_ms is not None:
        message.modify_time.FromMilliseconds(level.modified_ms)
    return message


def _task(view: TaskView) -> pb.Task:
    message = pb.Task(id=_task_id(view.id), config=properties.to_proto(view.config), status=_status(view.status))
    if view.progress is not None:
        message.progress.CopyFrom(cast("task_pb2.TaskProgress", view.progress.wire))
    return message


def _status(view: UnitView) -> pb.UnitStatus:
    return pb.UnitStatus(
        state=session_wire.RUN_STATES.to_wire(view.state),
        worker_id=view.worker_id,
        failure=session_wire.failure_to(view.failure),
        conditions=[*map(values.condition, view.conditions), *restart_notes.shown(view.auto_restart)],
        generation=view.generation,
        start_count=view.start_count,
        since=values.wall_time(view.since_ms),
        auto_restart=_auto_restart(view.auto_restart),
        explanation=_explanation(view),
        placed_because=view.placed_because,
        placed_time=values.wall_time(view.placed_ms),
    )


def _fill_status(message: pb.UnitStatus, view: UnitView) -> None:
    """Fill in a status without traces, in place: there are thousands."""
    if view.failure is not None or view.conditions or view.auto_restart is not None:
        message.CopyFrom(_status(view))
        message.failure.trace = ""
        message.auto_restart.last_failure.trace = ""
        message.ClearField("placed_because")
        message.ClearField("placed_time")
        if view.failure is None:
            message.ClearField("failure")
        if view.auto_restart is None:
            message.ClearField("auto_restart")
        return
    message.state = session_wire.RUN_STATES.to_wire(view.state)
    message.worker_id = view.worker_id
    message.generation = view.generation
    message.start_count = view.start_count
    message.explanation = view.explanation
    if view.since_ms is not None:
        message.since.FromMilliseconds(values.wall_ms(view.since_ms))


def _explanation(view: UnitView) -> str:
    """The state's explanation, with the time that the state cannot write."""
    next_ms = view.auto_restart.next_ms if view.auto_restart is not None else None
    if next_ms is None or not view.explanation.endswith("follows"):
        return view.explanation
    return f"{view.explanation} at {restart_notes.second(next_ms)}"


def _auto_restart(value: AutoRestart | None) -> pb.AutoRestart | None:
    if value is None:
        return None
    return pb.AutoRestart(
        attempt=value.attempt,
        attempts_max=value.attempts_max,
        next_time=values.wall_time(value.next_ms),
        last_failure=session_wire.failure_to(value.failure),
    )


def _task_id(unit: UnitId) -> common.TaskId:
    return common.TaskId(connector=unit.connector, task=unit.task or 0)
