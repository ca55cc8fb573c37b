"""Translation between the wire's messages and the state's values, both ways.

Owns every conversion of a worker, so that servicers and clients hold none. Decides nothing: a message that says less
than it must raises `RequestInvalid`.

Invariant: no text that leaves the worker shows a secret that it resolved; configs have references instead.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import fields, replace

from herdmesh.api.common.v1 import connector_pb2, revision_pb2
from herdmesh.api.herder.v1 import worker_session_service_pb2 as session_pb2
from herdmesh.api.worker.v1 import run_service_pb2, task_pb2
from herdmesh.connect.error_class import ErrorClass
from herdmesh.connect.redaction import redacted
from herdmesh.connect.waits import Wait
from herdmesh.engine.runtime import Progress, RunEnd, contract
from herdmesh.rpc import commit_scopes, properties, revisions
from herdmesh.rpc.enums import WireEnum
from herdmesh.rpc.errors import RequestInvalid
from herdmesh.worker.measures_wire import measures_from, measures_to
from herdmesh.worker.state import events, questions
from herdmesh.worker.state.held import Task
from herdmesh.worker.state.model import (
    Assignment,
    Condition,
    Config,
    ConnectorSpec,
    Failure,
    Holding,
    Phase,
    RunState,
    TargetState,
    TaskSpec,
    UnitId,
)

RUN_STATES = WireEnum(connector_pb2.RunState, RunState)
TARGET_STATES = WireEnum(connector_pb2.TargetState, TargetState)
ERROR_CLASSES = WireEnum(connector_pb2.ErrorClass, ErrorClass)
RUN_ENDS = WireEnum(run_service_pb2.RunEnd, RunEnd)
_ERROR_COUNTS = tuple(one.name for one in fields(contract.ErrorCounts))
_ACTIVITIES = {
    Phase.NEW: task_pb2.TASK_ACTIVITY_STARTING,
    Phase.QUEUED: task_pb2.TASK_ACTIVITY_STARTING,
    Phase.STARTING: task_pb2.TASK_ACTIVITY_STARTING,
    Phase.WAITING: task_pb2.TASK_ACTIVITY_STARTING,
    Phase.RUNNING: task_pb2.TASK_ACTIVITY_RUNNING,
    Phase.STOPPING: task_pb2.TASK_ACTIVITY_STOPPING,
    Phase.IDLE: task_pb2.TASK_ACTIVITY_IDLE,
    Phase.PAUSED: task_pb2.TASK_ACTIVITY_PAUSED,
    Phase.FAILED: task_pb2.TASK_ACTIVITY_FAILED,
}

# --- common


def config_from(message: connector_pb2.Properties) -> dict[str, str | None]:
    """A config as authors get it: a foreign writer's other JSON values become their JSON text."""
    found = properties.from_proto(message)
    return {name: value.text if isinstance(value, properties.JsonValue) else value for name, value in found.items()}


def failure_from(message: connector_pb2.Failure) -> Failure:
    """A failure; a class that is unspecified or that only a newer release knows reads as UNKNOWN."""
    error_class = ERROR_CLASSES.enum_from(message.error_class, ErrorClass.UNKNOWN)
    return Failure(message.message or "failed without a message", message.trace, error_class)


def failure_to(failure: Failure | None) -> connector_pb2.Failure | None:
    """The message, None for None."""
    if failure is None:
        return None
    message, trace = redacted(failure.message), redacted(failure.trace)
    return connector_pb2.Failure(message=message, trace=trace, error_class=ERROR_CLASSES.to_wire(failure.error_class))


def trace_to(failure: Failure | None) -> str | None:
    """What a status says of a failure: its trace, or its message where there is none."""
    return None if failure is None else redacted(failure.trace or failure.message)


def condition_to(condition: Condition) -> connector_pb2.Condition:
    """The message. The leader made the text, of what it was told: maybe by a worker that knew less to hide."""
    message = connector_pb2.Condition(type=condition.type, message=redacted(condition.message))
    if condition.since_ms:
        message.since.FromMilliseconds(condition.since_ms)
    if condition.wait is not None:
        message.wait.CopyFrom(wait_to(condition.wait))
    return message


def wait_to(wait: Wait) -> connector_pb2.Wait:
    """The message, without secrets."""
    message = connector_pb2.Wait(waits_for=redacted(wait.waits_for), message=redacted(wait.message), tries=wait.tries)
    if wait.since_ms:
        message.since.FromMilliseconds(wait.since_ms)
    if wait.next_ms:
        message.next_time.FromMilliseconds(wait.next_ms)
    return message


def wait_from(message: connector_pb2.Wait) -> Wait:
    """Back from it."""
    next_ms = message.next_time.ToMilliseconds() if message.HasField("next_time") else 0
    return Wait(message.waits_for, message.message, message.since.ToMilliseconds(), message.tries, next_ms)


def run_state_to(state: RunState) -> connector_pb2.RunState.ValueType:
    """The enum value of the same name."""
    return RUN_STATES.to_wire(state)


# --- session, herder to worker


def unit_from(message: session_pb2.Unit) -> UnitId:
    """A unit; raises RequestInvalid without a connector's name."""
    if not message.connector:
        raise RequestInvalid("a unit without a connector's name", "unit.connector")
    return UnitId(message.connector, message.task if message.HasField("task") else None)


def assignment_from(message: session_pb2.Assignment) -> Assignment:
    """An assignment."""
    revision = message.config_revision
    return Assignment(
        message.epoch,
        message.generation,
        message.incarnation,
        (revision.store_id, tuple(revision.next_offsets)),
        message.task_digest,
    )


def target_from(value: connector_pb2.TargetState.ValueType) -> TargetState:
    """A target state; unspecified reads as STARTED, Connect's default.

    A state that only a newer release knows reads as PAUSED: no records move until somebody asks for it. Connect does
    the same with STOPPED for older workers (KIP-875).
    """
    return TARGET_STATES.enum_from(value, TargetState.PAUSED) if value else TargetState.STARTED


def command_from(response: session_pb2.SessionResponse) -> events.Command | None:
    """The event of a herder's message; None for a heartbeat, or for something newer than this worker knows."""
    epoch = response.epoch
    match response.WhichOneof("message"):
        case "welcome":
            return events.SessionOpened(epoch, frozenset(unit_from(unit) for unit in response.welcome.adopted))
        case "start":
            return _start_from(epoch, response.start)
        case "stop":
            stop = response.stop
            return events.StopUnit(epoch, unit_from(stop.unit), assignment_from(stop.assignment), stop.reason)
        case "set_target_state":
            change = response.set_target_state
            return events.SetUnitTargetState(epoch, unit_from(change.unit), target_from(change.target_state))
        case "generate_task_configs":
            ask = response.generate_task_configs
            return events.GenerateTaskConfigs(epoch, ask.connector, assignment_from(ask.assignment), ask.tasks_max)
        case "set_rate":
            told = response.set_rate
            rate = contract.Rate(told.records_per_second, told.bytes_per_second)
            return events.SetRate(epoch, told.connector, rate)
        case "set_draining":
            return _drain_from(epoch, response.set_draining)
        case "released":
            return events.Released(epoch)
        case _:
            return _asked_from(epoch, response)


def _drain_from(epoch: int, message: session_pb2.SetDraining) -> events.SetDraining:
    return events.SetDraining(epoch, message.draining, message.command_id)


def _asked_from(epoch: int, response: session_pb2.SessionResponse) -> events.Asked | None:
    match response.WhichOneof("message"):
        case "fence":
            fence = response.fence
            return events.Asked(epoch, fence.command_id, questions.FenceIds(fence.connector, fence.task_count))
        case "validate":
            question = questions.ValidateConfig(config_from(response.validate.config))
            return events.Asked(epoch, response.validate.command_id, question)
        case "describe_plugin":
            describe = response.describe_plugin
            return events.Asked(epoch, describe.command_id, questions.DescribePlugin(describe.class_name))
        case "list_loggers":
            ask = response.list_loggers
            return events.Asked(epoch, ask.command_id, questions.ListLoggers(ask.logger))
        case "set_logger":
            change = response.set_logger
            revision = revisions.from_proto(change.revision)
            wanted_level = questions.SetLogger(change.logger, change.level, revision, change.request_id)
            return events.Asked(epoch, change.command_id, wanted_level)
        case "read_offsets":
            read = response.read_offsets
            return events.Asked(epoch, read.command_id, questions.ReadOffsets(read.connector, config_from(read.config)))
        case "alter_offsets":
            return events.Asked(epoch, response.alter_offsets.command_id, _alter_from(response.alter_offsets))
        case "plan_task_configs":
            plan = response.plan_task_configs
            wanted_plan = questions.PlanTaskConfigs(config_from(plan.config), plan.tasks_max)
            return events.Asked(epoch, plan.command_id, wanted_plan)
        case "list_dead_letters":
            listed = response.list_dead_letters
            letters = questions.ListDeadLetters(config_from(listed.config), listed.request)
            return events.Asked(epoch, listed.command_id, letters)
        case "replay_dead_letters":
            replay = response.replay_dead_letters
            wanted_replay = questions.ReplayDeadLetters(config_from(replay.config), replay.request)
            return events.Asked(epoch, replay.command_id, wanted_replay)
        case _:
            return None


def _alter_from(message: session_pb2.AlterOffsetsCommand) -> questions.AlterOffsets:
    applied = message.revision.next_offsets
    return questions.AlterOffsets(
        message.connector,
        config_from(message.config),
        tuple(
            (one.partition_json, one.offset_json if one.HasField("offset_json") else None) for one in message.offsets
        ),
        applied[0] if applied else None,
        message.incarnation,
        message.reset,
        message.rewind_to.ToMilliseconds() if message.HasField("rewind_to") else None,
        message.dry_run,
        message.allow_forward,
        message.prepare,
        timeout_ms=message.timeout_ms,
    )


def _start_from(epoch: int, message: session_pb2.StartUnit) -> events.StartUnit:
    unit = unit_from(message.unit)
    config = config_from(message.connector_config)
    spec: TaskSpec | ConnectorSpec
    if unit.task is None:
        spec = ConnectorSpec(config, message.tasks_max)
    else:
        spec = TaskSpec(config, config_from(message.task_config), max(1, message.task_count))
    assignment = assignment_from(message.assignment)
    target = target_from(message.target_state)
    conditions = tuple(
        Condition(one.type, one.message, one.since.ToMilliseconds() if one.HasField("since") else 0)
        for one in message.conditions
    )
    applied = message.revision.next_offsets
    return events.StartUnit(
        epoch,
        unit,
        assignment,
        target,
        spec,
        commit_scopes.from_proto(message.commit_scope) if message.HasField("commit_scope") else None,
        conditions,
        applied[0] if applied else None,
        message.traceparent,
    )


# --- session, worker to herder


def unit_to(unit: UnitId) -> session_pb2.Unit:
    """The message; task unset for a connector."""
    return session_pb2.Unit(connector=unit.connector, task=unit.task)


def assignment_to(assignment: Assignment) -> session_pb2.Assignment:
    """The message, equal to the one it was made from."""
    store_id, next_offsets = assignment.config_revision
    return session_pb2.Assignment(
        epoch=assignment.epoch,
        generation=assignment.generation,
        incarnation=assignment.incarnation,
        config_revision=revision_pb2.Revision(store_id=store_id, next_offsets=next_offsets) if store_id else None,
        task_digest=assignment.task_digest,
    )


def holding_to(holding: Holding) -> session_pb2.Holding:
    """One line of hello."""
    return session_pb2.Holding(
        unit=unit_to(holding.unit),
        assignment=assignment_to(holding.assignment),
        state=run_state_to(holding.state),
        failure=failure_to(holding.failure),
        stopping=holding.stopping,
    )


def waits_to(waits: Sequence[tuple[UnitId, Wait | None]]) -> list[session_pb2.UnitWait]:
    """What units wait for, or no more."""
    return [
        session_pb2.UnitWait(unit=unit_to(unit), wait=None if wait is None else wait_to(wait)) for unit, wait in waits
    ]


def report_to(
    unit: UnitId, assignment: Assignment, state: RunState, failure: Failure | None
) -> session_pb2.SessionRequest:
    """A report of one unit."""
    report = session_pb2.UnitReport(
        unit=unit_to(unit),
        assignment=assignment_to(assignment),
        state=run_state_to(state),
        failure=failure_to(failure),
    )
    return session_pb2.SessionRequest(report=report)


def task_configs_to(
    connector: str, assignment: Assignment, tasks: Sequence[Config], failure: Failure | None
) -> session_pb2.SessionRequest:
    """Task configs, or why there are none."""
    report = session_pb2.TaskConfigsReport(
        connector=connector,
        assignment=assignment_to(assignment),
        tasks=[properties.to_proto(task) for task in tasks],
        failure=failure_to(failure),
    )
    return session_pb2.SessionRequest(task_configs=report)


# --- tasks and runs


def task_id_to(unit: UnitId) -> connector_pb2.TaskId:
    """The message of a task."""
    return connector_pb2.TaskId(connector=unit.connector, task=unit.task or 0)


def task_progress_to(task: Task) -> task_pb2.TaskProgress:
    """Progress of a held task, with its activity."""
    message = progress_to(replace(task.progress, commit_scope=task.commit_scope))
    message.task.CopyFrom(task_id_to(task.unit))
    message.activity = _ACTIVITIES[task.phase]
    message.run_count = task.run_count
    message.pid = task.run.pid if task.run is not None else 0
    if task.run is None:
        message.records_per_second = 0.0
        message.ClearField("records_rate")
        message.ClearField("bytes_rate")
    return message


def held_tasks(tasks: Iterable[Task]) -> list[Task]:
    """Sorted as ListTasks promises."""
    return sorted(tasks, key=lambda task: (task.unit.connector, task.unit.task or 0))


def progress_to(progress: Progress) -> task_pb2.TaskProgress:
    """What a run or a task counts; without the task's name and activity."""
    message = task_pb2.TaskProgress(
        records_in=progress.records_in,
        records_out=progress.records_out,
        records_dropped=progress.records_dropped,
        records_per_second=progress.records_per_second,
        commit_scope=commit_scopes.to_proto(progress.commit_scope),
        partitions=[
            task_pb2.PartitionProgress(
                topic=one.topic,
                partition=one.partition,
                committed_offset=one.committed_offset,
                position=one.position,
                end_offset=one.end_offset,
            )
            for one in progress.partitions
        ],
        produced=[task_pb2.TopicProgress(topic=topic, records_out=count) for topic, count in progress.produced],
        config_offset=progress.config_offset,
        records_rate=_rate_use_to(progress.records_rate),
        bytes_rate=_rate_use_to(progress.bytes_rate),
        errors=_errors_to(progress.errors),
        measures=measures_to(progress.measures),
        warm=progress.warm,
    )
    if progress.commit_time_ms is not None:
        message.commit_time.FromMilliseconds(progress.commit_time_ms)
    return message


def progress_from(message: task_pb2.TaskProgress) -> Progress:
    """The inverse of `progress_to`."""
    return Progress(
        records_in=message.records_in,
        records_out=message.records_out,
        records_dropped=message.records_dropped,
        partitions=tuple(
            contract.PartitionProgress(one.topic, one.partition, one.committed_offset, one.position, one.end_offset)
            for one in message.partitions
        ),
        records_per_second=message.records_per_second,
        commit_time_ms=message.commit_time.ToMilliseconds() if message.HasField("commit_time") else None,
        commit_scope=commit_scopes.from_proto(message.commit_scope) if message.HasField("commit_scope") else None,
        produced=tuple((one.topic, one.records_out) for one in message.produced),
        config_offset=message.config_offset if message.HasField("config_offset") else None,
        records_rate=_rate_use_from(message.records_rate) if message.HasField("records_rate") else None,
        bytes_rate=_rate_use_from(message.bytes_rate) if message.HasField("bytes_rate") else None,
        errors=_errors_from(message.errors),
        measures=measures_from(message.measures),
        warm=message.warm,
    )


def _rate_use_to(use: contract.RateUse | None) -> task_pb2.RateUse | None:
    if use is None:
        return None
    return task_pb2.RateUse(
        limit_per_second=use.limit_per_second, used_per_second=use.used_per_second, wants_more=use.wants_more
    )


def _rate_use_from(message: task_pb2.RateUse) -> contract.RateUse:
    return contract.RateUse(message.limit_per_second, message.used_per_second, message.wants_more)


def _errors_to(errors: contract.ErrorCounts) -> task_pb2.TaskErrors:
    return task_pb2.TaskErrors(**{name: getattr(errors, name) for name in _ERROR_COUNTS})


def _errors_from(message: task_pb2.TaskErrors) -> contract.ErrorCounts:
    return contract.ErrorCounts(**{name: getattr(message, name) for name in _ERROR_COUNTS})


def run_event_from(run_id: str, request: run_service_pb2.RunRequest) -> events.Event | None:
    """The event of a run's message after hello; None for something newer than this worker knows."""
    match request.WhichOneof("message"):
        case "progress":
            return events.RunProgress(run_id, progress_from(request.progress))
        case "pulse":
            moved_ms = request.pulse.moved_time.ToMilliseconds()
            wait = wait_from(request.pulse.wait) if request.pulse.HasField("wait") else None
            return events.RunPulse(run_id, request.pulse.silent_ms, moved_ms, wait)
        case "failed":
            return events.RunFailed(run_id, failure_from(request.failed.failure))
        case "finished":
            finished = request.finished
            # The careful guess is YIELDED: the task runs again, and that run says if there is nothing to do.
            reason = RUN_ENDS.enum_from(finished.reason, RunEnd.YIELDED)
            return events.RunFinished(run_id, reason, progress_from(finished.progress), finished.wake_after_ms)
        case _:
            return None


def run_finished_to(outcome: contract.RunOutcome) -> run_service_pb2.RunRequest:
    """A run's last word without an error."""
    finished = run_service_pb2.RunFinished(
        reason=RUN_ENDS.to_wire(outcome.reason),
        progress=progress_to(outcome.progress),
        wake_after_ms=outcome.wake_after_ms,
    )
    return run_service_pb2.RunRequest(finished=finished)
