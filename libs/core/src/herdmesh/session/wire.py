"""The one translation of session values to and from `herder.v1.WorkerSessionService`, used by herder and worker.

Owns the enum tables and every conversion of values that both sides know. Values of one side are translated there: the
herder's `wire.session` converts a worker's messages to its events, the worker's `wire` converts runs and progress.

Invariants: `x_from` reads the output of `x_to` as an equal value; no text that leaves the process has a secret that the
process resolved; a value that only a newer release knows reads as the most careful known value, or as None
(`herdmesh.rpc.enums`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import fields
from typing import assert_never

from herdmesh.api.common.v1 import connector_pb2 as common
from herdmesh.api.herder.v1 import admin_messages_pb2 as admin_pb
from herdmesh.api.herder.v1 import offset_messages_pb2 as offset_pb
from herdmesh.api.herder.v1 import worker_session_service_pb2 as pb
from herdmesh.api.worker.v1 import task_pb2
from herdmesh.connect.config import redacted
from herdmesh.connect.error_class import ErrorClass
from herdmesh.connect.spi import Wait
from herdmesh.connect.task_counts import NO_COUNTS, NO_ERRORS, ErrorCounts, TaskCounts
from herdmesh.rpc import commit_scopes, properties, revisions
from herdmesh.rpc.enums import WireEnum
from herdmesh.rpc.errors import RequestInvalid
from herdmesh.session import worker_commands as qu
from herdmesh.session.messages import (
    Heartbeat,
    Message,
    Released,
    RequestTaskConfigs,
    SendCommand,
    SetRate,
    SetUnitTarget,
    StartUnit,
    StopUnit,
    Welcome,
)
from herdmesh.session.model import (
    Assignment,
    Condition,
    Failure,
    HeldUnit,
    OffsetEntry,
    Properties,
    RunState,
    TargetState,
    UnitId,
)

RUN_STATES = WireEnum(common.RunState, RunState)
TARGET_STATES = WireEnum(common.TargetState, TargetState)
ERROR_CLASSES = WireEnum(common.ErrorClass, ErrorClass)
_ERROR_COUNTS = tuple(one.name for one in fields(ErrorCounts))

Clock = Callable[[int], int]
"""Converts milliseconds of one clock to those of another."""


def _same(at_ms: int) -> int:
    return at_ms


# --- values


def unit_to(unit: UnitId) -> pb.Unit:
    """The message; its task is unset for a connector."""
    return pb.Unit(connector=unit.connector, task=unit.task)


def unit_from(message: pb.Unit) -> UnitId:
    """The unit of a message. Raises RequestInvalid without a connector's name."""
    if not message.connector:
        raise RequestInvalid("a unit without a connector's name", "unit.connector")
    return UnitId(message.connector, message.task if message.HasField("task") else None)


def assignment_to(assignment: Assignment) -> pb.Assignment:
    """The message; equal assignments give equal messages."""
    revision = assignment.config_revision
    return pb.Assignment(
        epoch=assignment.epoch,
        generation=assignment.generation,
        incarnation=assignment.incarnation,
        config_revision=None if revision is None else revisions.to_proto(revision),
        task_digest=assignment.task_digest,
    )


def assignment_from(message: pb.Assignment) -> Assignment:
    """The value of a message."""
    return Assignment(
        message.epoch,
        message.generation,
        message.incarnation,
        revisions.from_proto(message.config_revision),
        message.task_digest,
    )


def target_from(value: common.TargetState.ValueType) -> TargetState:
    """A target state; unspecified reads as STARTED, Connect's default.

    A state that only a newer release knows reads as PAUSED: no records move until a user requests it. Connect does
    the same with STOPPED for older workers (KIP-875).
    """
    return TARGET_STATES.enum_from(value, TargetState.PAUSED) if value else TargetState.STARTED


def failure_to(failure: Failure | None) -> common.Failure | None:
    """The message of a failure; None for None."""
    if failure is None:
        return None
    return common.Failure(
        message=redacted(failure.message),
        trace=redacted(failure.trace),
        error_class=ERROR_CLASSES.to_wire(failure.error_class),
    )


def failure_from(message: common.Failure) -> Failure:
    """The failure of a message. An unspecified error class, or one that only a newer release knows, reads as
    UNKNOWN."""
    error_class = ERROR_CLASSES.enum_from(message.error_class, ErrorClass.UNKNOWN)
    return Failure(message.message or "failed without a message", message.trace, error_class)


def errors_to(errors: ErrorCounts) -> task_pb2.TaskErrors:
    """The message of the counts of failed records."""
    return task_pb2.TaskErrors(**{name: getattr(errors, name) for name in _ERROR_COUNTS})


def errors_from(message: task_pb2.TaskErrors) -> ErrorCounts:
    """The value of a message."""
    return ErrorCounts(**{name: getattr(message, name) for name in _ERROR_COUNTS})


def counts_to(counts: TaskCounts) -> task_pb2.TaskCounts | None:
    """The message of a task's counts; None when all are 0."""
    if counts == NO_COUNTS:
        return None
    return task_pb2.TaskCounts(
        records_in=counts.records_in,
        records_out=counts.records_out,
        records_dropped=counts.records_dropped,
        errors=errors_to(counts.errors) if counts.errors != NO_ERRORS else None,
    )


def counts_from(message: task_pb2.TaskCounts) -> TaskCounts:
    """The counts of a message; all 0 for an empty one."""
    errors = errors_from(message.errors) if message.HasField("errors") else NO_ERRORS
    return TaskCounts(message.records_in, message.records_out, message.records_dropped, errors)


def progress_counts_from(message: task_pb2.TaskProgress) -> TaskCounts:
    """The counts in a task's progress."""
    errors = errors_from(message.errors) if message.HasField("errors") else NO_ERRORS
    return TaskCounts(message.records_in, message.records_out, message.records_dropped, errors)


def wait_to(wait: Wait) -> common.Wait:
    """The message of a wait, with epoch times like the `Wait` itself."""
    message = common.Wait(waits_for=redacted(wait.waits_for), message=redacted(wait.message), tries=wait.tries)
    if wait.since_ms:
        message.since.FromMilliseconds(wait.since_ms)
    if wait.next_ms:
        message.next_time.FromMilliseconds(wait.next_ms)
    return message


def wait_from(message: common.Wait) -> Wait:
    """The value of a message."""
    next_ms = message.next_time.ToMilliseconds() if message.HasField("next_time") else 0
    return Wait(message.waits_for, message.message, message.since.ToMilliseconds(), message.tries, next_ms)


def condition_to(condition: Condition, epoch_ms: Clock = _same) -> common.Condition:
    """The message of a condition. `epoch_ms` converts `since_ms`. Secrets in its text are removed again, because the
    text may come from a peer that knew fewer secrets.
    """
    message = common.Condition(type=condition.type, message=redacted(condition.message))
    if condition.since_ms is not None:
        message.since.FromMilliseconds(epoch_ms(condition.since_ms))
    if condition.wait is not None:
        message.wait.CopyFrom(wait_to(condition.wait))
    return message


def condition_from(message: common.Condition, clock_ms: Clock = _same) -> Condition:
    """The condition of a message. `clock_ms` converts epoch milliseconds to the caller's clock."""
    return Condition(
        message.type,
        message.message,
        clock_ms(message.since.ToMilliseconds()) if message.HasField("since") else None,
        wait_from(message.wait) if message.HasField("wait") else None,
    )


def offset_to(offset: OffsetEntry) -> offset_pb.OffsetEntry:
    """The message of an offset; the offset is unset for one to delete."""
    return offset_pb.OffsetEntry(partition_json=offset.partition_json, offset_json=offset.offset_json)


def offset_from(message: offset_pb.OffsetEntry) -> OffsetEntry:
    """The value of a message."""
    return OffsetEntry(message.partition_json, message.offset_json if message.HasField("offset_json") else None)


# --- worker to herder


def held_unit_to(holding: HeldUnit) -> pb.Holding:
    """The message of one held unit of a hello."""
    return pb.Holding(
        unit=unit_to(holding.unit),
        assignment=assignment_to(holding.assignment),
        state=RUN_STATES.to_wire(holding.state),
        failure=failure_to(holding.failure),
        stopping=holding.stopping,
    )


def held_unit_from(message: pb.Holding) -> HeldUnit:
    """The held unit of a message. A state that only a newer release knows reads as UNASSIGNED: accepted, state not
    reported yet.
    """
    return HeldUnit(
        unit_from(message.unit),
        assignment_from(message.assignment),
        RUN_STATES.enum_from(message.state, RunState.UNASSIGNED),
        failure_from(message.failure) if message.HasField("failure") else None,
        message.stopping,
    )


def waits_to(waits: Sequence[tuple[UnitId, Wait | None]]) -> list[pb.UnitWait]:
    """The waits of units; None = the unit no longer waits."""
    return [pb.UnitWait(unit=unit_to(unit), wait=None if wait is None else wait_to(wait)) for unit, wait in waits]


def waits_from(messages: Iterable[pb.UnitWait]) -> tuple[tuple[UnitId, Wait | None], ...]:
    """The values of messages."""
    return tuple((unit_from(one.unit), wait_from(one.wait) if one.HasField("wait") else None) for one in messages)


def report_to(
    unit: UnitId, assignment: Assignment, state: RunState, failure: Failure | None, counts: TaskCounts | None = None
) -> pb.SessionRequest:
    """A report of one unit; `counts` of a task that was released."""
    report = pb.UnitReport(
        unit=unit_to(unit),
        assignment=assignment_to(assignment),
        state=RUN_STATES.to_wire(state),
        failure=failure_to(failure),
        counts=None if counts is None else counts_to(counts),
    )
    return pb.SessionRequest(report=report)


def report_from(
    message: pb.UnitReport,
) -> tuple[UnitId, Assignment, RunState, Failure | None, TaskCounts | None] | None:
    """The report of a message; None for a state that only a newer release knows, so that the unit keeps its last known
    state. If it were read as UNASSIGNED, the worker's assignment would end and the unit would start elsewhere.
    """
    state = RUN_STATES.enum_from(message.state, None)
    if state is None and message.state != common.RUN_STATE_UNSPECIFIED:
        return None
    failure = failure_from(message.failure) if message.HasField("failure") else None
    counts = counts_from(message.counts) if message.HasField("counts") else None
    return unit_from(message.unit), assignment_from(message.assignment), state or RunState.UNASSIGNED, failure, counts


def task_configs_to(
    connector: str, assignment: Assignment, tasks: Sequence[Properties], failure: Failure | None
) -> pb.SessionRequest:
    """A report of task configs, or of the failure that prevented them."""
    report = pb.TaskConfigsReport(
        connector=connector,
        assignment=assignment_to(assignment),
        tasks=[properties.to_proto(task) for task in tasks],
        failure=failure_to(failure),
    )
    return pb.SessionRequest(task_configs=report)


def task_configs_from(
    message: pb.TaskConfigsReport,
) -> tuple[str, Assignment, tuple[Properties, ...], Failure | None]:
    """The arguments of `task_configs_to`, from a message."""
    failure = failure_from(message.failure) if message.HasField("failure") else None
    tasks = tuple(properties.from_proto(task) for task in message.tasks)
    return message.connector, assignment_from(message.assignment), tasks, failure


# --- herder to worker


def message_to(epoch: int, message: Message, epoch_ms: Clock = _same) -> pb.SessionResponse:
    """The response for a message under the leader's epoch. `epoch_ms` converts the times of conditions."""
    result = pb.SessionResponse(epoch=epoch)
    match message:
        case Welcome():
            result.welcome.adopted.extend(map(unit_to, message.adopted))
            result.welcome.leader_id = message.leader_id
            result.welcome.session_timeout.FromMilliseconds(message.session_timeout_ms)
        case StartUnit():
            result.start.CopyFrom(_start_to(message, epoch_ms))
        case StopUnit(unit=unit, assignment=assignment, reason=reason):
            stop = pb.StopUnit(unit=unit_to(unit), assignment=assignment_to(assignment), reason=reason)
            result.stop.CopyFrom(stop)
        case SetUnitTarget(unit=unit, target=target):
            change = pb.SetUnitTargetState(unit=unit_to(unit), target_state=TARGET_STATES.to_wire(target))
            result.set_target_state.CopyFrom(change)
        case RequestTaskConfigs(connector=name, assignment=assignment, tasks_max=tasks_max):
            generate = pb.GenerateTaskConfigs(connector=name, assignment=assignment_to(assignment), tasks_max=tasks_max)
            result.generate_task_configs.CopyFrom(generate)
        case SendCommand(command_id=command_id, command=question):
            _question_to(result, command_id, question)
        case SetRate(connector=name, records_per_second=records, bytes_per_second=bytes_):
            rate = pb.SetRate(connector=name, records_per_second=records, bytes_per_second=bytes_)
            result.set_rate.CopyFrom(rate)
        case Heartbeat():
            result.heartbeat.SetInParent()
        case Released():
            result.released.SetInParent()
        case _:
            assert_never(message)
    return result


def message_from(response: pb.SessionResponse) -> Message | None:
    """A leader's message, sent under `response.epoch`; None for a kind that only a newer release knows."""
    match response.WhichOneof("message"):
        case "welcome":
            welcome = response.welcome
            timeout_ms = welcome.session_timeout.ToMilliseconds()
            return Welcome(tuple(map(unit_from, welcome.adopted)), timeout_ms, welcome.leader_id)
        case "start":
            return _start_from(response.start)
        case "stop":
            stop = response.stop
            return StopUnit(unit_from(stop.unit), assignment_from(stop.assignment), stop.reason)
        case "set_target_state":
            change = response.set_target_state
            return SetUnitTarget(unit_from(change.unit), target_from(change.target_state))
        case "generate_task_configs":
            generate = response.generate_task_configs
            return RequestTaskConfigs(generate.connector, assignment_from(generate.assignment), generate.tasks_max)
        case "set_rate":
            rate = response.set_rate
            return SetRate(rate.connector, rate.records_per_second, rate.bytes_per_second)
        case "heartbeat":
            return Heartbeat()
        case "released":
            return Released()
        case _:
            return _question_from(response)


def _start_to(start: StartUnit, epoch_ms: Clock) -> pb.StartUnit:
    message = pb.StartUnit(
        unit=unit_to(start.unit),
        assignment=assignment_to(start.assignment),
        connector_config=properties.to_proto(start.connector_config),
        target_state=TARGET_STATES.to_wire(start.target),
        task_count=start.task_count,
        tasks_max=start.tasks_max,
        commit_scope=commit_scopes.to_proto(start.commit_scope),
        conditions=[condition_to(one, epoch_ms) for one in start.conditions],
        traceparent=start.traceparent,
        counts=counts_to(start.counts),
    )
    if start.task_config is not None:
        message.task_config.CopyFrom(properties.to_proto(start.task_config))
    if start.revision is not None:
        message.revision.CopyFrom(revisions.to_proto(start.revision))
    return message


def _start_from(message: pb.StartUnit) -> StartUnit:
    return StartUnit(
        unit_from(message.unit),
        assignment_from(message.assignment),
        properties.from_proto(message.connector_config),
        properties.from_proto(message.task_config) if message.HasField("task_config") else None,
        target_from(message.target_state),
        message.task_count,
        message.tasks_max,
        commit_scopes.from_proto(message.commit_scope) if message.HasField("commit_scope") else None,
        revisions.from_proto(message.revision),
        tuple(map(condition_from, message.conditions)),
        message.traceparent,
        counts_from(message.counts),
    )


def _question_to(result: pb.SessionResponse, command_id: str, question: qu.WorkerCommand) -> None:
    match question:
        case qu.FenceTasks(connector=name, task_count=task_count):
            result.fence.CopyFrom(pb.FenceCommand(command_id=command_id, connector=name, task_count=task_count))
        case qu.ValidateOnWorker(config=config, verdict_only=verdict_only):
            sent = properties.to_proto(config)
            validate = pb.ValidateCommand(command_id=command_id, config=sent, verdict_only=verdict_only)
            result.validate.CopyFrom(validate)
        case qu.DescribePlugin(class_name=class_name):
            describe = pb.DescribePluginCommand(command_id=command_id, class_name=class_name)
            result.describe_plugin.CopyFrom(describe)
        case qu.ListLoggers(logger=logger):
            result.list_loggers.CopyFrom(pb.ListLoggersCommand(command_id=command_id, logger=logger))
        case qu.SetLogger(logger=logger, level=level, revision=revision, request_id=request_id):
            set_logger = pb.SetLoggerCommand(command_id=command_id, logger=logger, level=level, request_id=request_id)
            if revision is not None:
                set_logger.revision.CopyFrom(revisions.to_proto(revision))
            result.set_logger.CopyFrom(set_logger)
        case qu.AlterOffsets():
            result.alter_offsets.CopyFrom(_alter_to(command_id, question))
        case qu.ReadOffsets(connector=name, config=config):
            read = pb.ReadOffsetsCommand(command_id=command_id, connector=name, config=properties.to_proto(config))
            result.read_offsets.CopyFrom(read)
        case qu.PlanTaskConfigs(config=config, tasks_max=tasks_max):
            given = properties.to_proto(config)
            plan = pb.PlanTaskConfigsCommand(command_id=command_id, config=given, tasks_max=tasks_max)
            result.plan_task_configs.CopyFrom(plan)
        case qu.SetDraining(draining=draining):
            result.set_draining.CopyFrom(pb.SetDraining(draining=draining, command_id=command_id))
        case qu.ListDeadLettersOnWorker(config=config, wire=request):
            assert isinstance(request, admin_pb.ListDeadLettersRequest)
            given = properties.to_proto(config)
            listed = pb.ListDeadLettersCommand(command_id=command_id, config=given, request=request)
            result.list_dead_letters.CopyFrom(listed)
        case qu.ReplayOnWorker(config=config, wire=request):
            assert isinstance(request, admin_pb.ReplayDeadLettersRequest)
            given = properties.to_proto(config)
            replay = pb.ReplayDeadLettersCommand(command_id=command_id, config=given, request=request)
            result.replay_dead_letters.CopyFrom(replay)
        case _:
            assert_never(question)


def _question_from(response: pb.SessionResponse) -> SendCommand | None:
    match response.WhichOneof("message"):
        case "fence":
            fence = response.fence
            return SendCommand(fence.command_id, qu.FenceTasks(fence.connector, fence.task_count))
        case "validate":
            validate = response.validate
            config = properties.from_proto(validate.config)
            return SendCommand(validate.command_id, qu.ValidateOnWorker(config, validate.verdict_only))
        case "describe_plugin":
            describe = response.describe_plugin
            return SendCommand(describe.command_id, qu.DescribePlugin(describe.class_name))
        case "list_loggers":
            loggers = response.list_loggers
            return SendCommand(loggers.command_id, qu.ListLoggers(loggers.logger))
        case "set_logger":
            change = response.set_logger
            revision = revisions.from_proto(change.revision)
            return SendCommand(
                change.command_id, qu.SetLogger(change.logger, change.level, revision, change.request_id)
            )
        case "alter_offsets":
            return SendCommand(response.alter_offsets.command_id, _alter_from(response.alter_offsets))
        case "read_offsets":
            read = response.read_offsets
            return SendCommand(read.command_id, qu.ReadOffsets(read.connector, properties.from_proto(read.config)))
        case "plan_task_configs":
            plan = response.plan_task_configs
            return SendCommand(plan.command_id, qu.PlanTaskConfigs(properties.from_proto(plan.config), plan.tasks_max))
        case "set_draining":
            drain = response.set_draining
            return SendCommand(drain.command_id, qu.SetDraining(drain.draining))
        case "list_dead_letters":
            listed = response.list_dead_letters
            return SendCommand(
                listed.command_id, qu.ListDeadLettersOnWorker(properties.from_proto(listed.config), listed.request)
            )
        case "replay_dead_letters":
            replay = response.replay_dead_letters
            return SendCommand(
                replay.command_id, qu.ReplayOnWorker(properties.from_proto(replay.config), replay.request)
            )
        case _:
            return None


def _alter_to(command_id: str, question: qu.AlterOffsets) -> pb.AlterOffsetsCommand:
    message = pb.AlterOffsetsCommand(
        command_id=command_id,
        connector=question.connector,
        config=properties.to_proto(question.config),
        offsets=map(offset_to, question.offsets),
        incarnation=question.incarnation,
        reset=question.reset,
        dry_run=question.dry_run,
        allow_forward=question.allow_forward,
        timeout_ms=question.timeout_ms,
        prepare=question.prepare,
    )
    if question.revision is not None:
        message.revision.CopyFrom(revisions.to_proto(question.revision))
    if question.rewind_to_ms is not None:
        message.rewind_to.FromMilliseconds(question.rewind_to_ms)
    return message


def _alter_from(message: pb.AlterOffsetsCommand) -> qu.AlterOffsets:
    return qu.AlterOffsets(
        message.connector,
        properties.from_proto(message.config),
        tuple(map(offset_from, message.offsets)),
        revisions.from_proto(message.revision),
        message.incarnation,
        message.reset,
        message.rewind_to.ToMilliseconds() if message.HasField("rewind_to") else None,
        message.dry_run,
        message.allow_forward,
        message.prepare,
        timeout_ms=message.timeout_ms,
    )
