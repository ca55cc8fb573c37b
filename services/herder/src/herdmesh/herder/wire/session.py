"""Messages of a worker session, both ways.

Owns the mapping of `WorkerSessionService.Session`. Invariant: every message of a worker becomes exactly one event, or
none where only a newer release knows its meaning.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import zip_longest
from typing import assert_never

from google.protobuf.duration_pb2 import Duration

from herdmesh.api.common.v1 import connector_pb2 as common
from herdmesh.api.herder.v1 import admin_messages_pb2 as admin_pb
from herdmesh.api.herder.v1 import worker_session_service_pb2 as pb
from herdmesh.api.worker.v1 import task_pb2, worker_service_pb2
from herdmesh.connect.lag import NOT_KNOWN, lag_of
from herdmesh.connect.waits import Wait
from herdmesh.herder.state.model import (
    Holding,
    LoggerLevel,
    Plugin,
    Properties,
    RateUse,
    RefusedPlugin,
    RunState,
    TaskProgress,
    UnitId,
    Validation,
)
from herdmesh.herder.state.model import events as ev
from herdmesh.herder.state.model import instructions as ins
from herdmesh.herder.state.model import questions as qu
from herdmesh.herder.state.model.requests import OffsetsAnswer
from herdmesh.herder.wire import restart_notes, values
from herdmesh.rpc import commit_scopes, properties, revisions
from herdmesh.rpc.errors import FieldViolation, RequestInvalid


def event(session: int, message: pb.SessionRequest) -> ev.Event | None:
    """The event of a worker's message; None for a kind of message or a unit's state that only a newer release knows.

    Raises RequestInvalid for a message without content.
    """
    match message.WhichOneof("message"):
        case "hello":
            return _hello(session, message.hello)
        case "heartbeat":
            beat = message.heartbeat
            return ev.WorkerHeartbeat(session, tuple(map(progress, beat.progress)), tuple(map(_wait, beat.waits)))
        case "report":
            return _report(session, message.report)
        case "task_configs":
            made = message.task_configs
            return ev.TaskConfigsMade(
                session,
                made.connector,
                values.assignment(made.assignment),
                tuple(properties.from_proto(task) for task in made.tasks),
                values.failure(made.failure) if made.HasField("failure") else None,
            )
        case "reply":
            reply = message.reply
            return ev.CommandReplied(
                session,
                reply.command_id,
                values.failure(reply.failure) if reply.HasField("failure") else None,
                validation(reply.validation) if reply.HasField("validation") else None,
                tuple(reply.plugin_fields),
                tuple(_logger(logger) for logger in reply.loggers),
                tuple(properties.from_proto(task) for task in reply.tasks),
                _dead_letters(reply),
                _offsets(reply.offsets) if reply.HasField("offsets") else None,
                reply.offsets.uncertain,
                reply.offsets.prepared if reply.offsets.HasField("prepared") else None,
            )
        case "leaving":
            return ev.WorkerLeft(session)
        case "plugins":
            told = message.plugins
            return ev.PluginsChanged(session, *_plugins(told.plugins, told.refused))
        case None if message.ByteSize() == 0:
            raise RequestInvalid("a session message must say something", "message")
        case None:
            return None


def _report(session: int, report: pb.UnitReport) -> ev.UnitReported | None:
    """None for a state that only a newer release knows: the unit counts as in its last known state. To read it as
    UNASSIGNED would end the worker's claim and start the unit elsewhere."""
    state = values.RUN_STATES.enum_from(report.state, None)
    if state is None and report.state != common.RUN_STATE_UNSPECIFIED:
        return None
    return ev.UnitReported(
        session,
        values.unit(report.unit),
        values.assignment(report.assignment),
        state or RunState.UNASSIGNED,
        values.failure(report.failure) if report.HasField("failure") else None,
    )


def progress(message: task_pb2.TaskProgress) -> TaskProgress:
    """Lag is not known of a task that failed before it knew what it owns."""
    knows_nothing = message.activity == task_pb2.TASK_ACTIVITY_FAILED and not message.partitions
    lag = NOT_KNOWN if knows_nothing else lag_of(message.partitions)
    return TaskProgress(
        UnitId(message.task.connector, message.task.task),
        lag,
        wire=message,
        records_rate=_rate_use(message.records_rate) if message.HasField("records_rate") else None,
        bytes_rate=_rate_use(message.bytes_rate) if message.HasField("bytes_rate") else None,
    )


def _wait(message: pb.UnitWait) -> tuple[UnitId, Wait | None]:
    return values.unit(message.unit), values.wait(message.wait) if message.HasField("wait") else None


def _rate_use(message: task_pb2.RateUse) -> RateUse:
    return RateUse(message.limit_per_second, message.used_per_second, message.wants_more)


def validation(message: worker_service_pb2.ConfigValidation) -> Validation:
    """Every error of every field is a violation of that field, with its fix."""
    violations = tuple(
        FieldViolation(field.name, f"{error} ({fix})" if fix else error)
        for field in message.fields
        for error, fix in zip_longest(field.errors, field.fixes, fillvalue="")
    )
    return Validation(violations, wire=message)


def response(sent: ins.Send) -> pb.SessionResponse:
    """What the herder says, under its epoch."""
    message = sent.message
    result = pb.SessionResponse(epoch=sent.epoch)
    match message:
        case ins.Welcome():
            timeout = Duration()
            timeout.FromMilliseconds(message.session_timeout_ms)
            adopted = [values.unit_to_proto(unit) for unit in message.adopted]
            result.welcome.CopyFrom(
                pb.SessionWelcome(session_timeout=timeout, leader_id=message.leader_id, adopted=adopted)
            )
        case ins.StartUnit():
            result.start.CopyFrom(_start(message))
        case ins.StopUnit():
            stop = pb.StopUnit(
                unit=values.unit_to_proto(message.unit),
                assignment=values.assignment_to_proto(message.assignment),
                reason=message.reason,
            )
            result.stop.CopyFrom(stop)
        case ins.SetUnitTarget():
            target = values.TARGET_STATES.to_wire(message.target)
            change = pb.SetUnitTargetState(unit=values.unit_to_proto(message.unit), target_state=target)
            result.set_target_state.CopyFrom(change)
        case ins.GenerateTaskConfigs():
            generate = pb.GenerateTaskConfigs(
                connector=message.connector,
                assignment=values.assignment_to_proto(message.assignment),
                tasks_max=message.tasks_max,
            )
            result.generate_task_configs.CopyFrom(generate)
        case ins.Ask(command_id=command_id, question=question):
            _ask(result, command_id, question)
        case ins.SetRate():
            rate = pb.SetRate(
                connector=message.connector,
                records_per_second=message.records_per_second,
                bytes_per_second=message.bytes_per_second,
            )
            result.set_rate.CopyFrom(rate)
        case ins.Heartbeat():
            result.heartbeat.SetInParent()
        case ins.Released():
            result.released.SetInParent()
        case _:
            assert_never(message)
    return result


def _ask(result: pb.SessionResponse, command_id: str, question: qu.Question) -> None:
    match question:
        case qu.FenceTasks(connector=name, task_count=task_count):
            result.fence.CopyFrom(pb.FenceCommand(command_id=command_id, connector=name, task_count=task_count))
        case qu.ValidateOnWorker(config=config):
            result.validate.CopyFrom(pb.ValidateCommand(command_id=command_id, config=_properties(config)))
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
        case qu.AlterOffsets(connector=name, config=config):
            alter = pb.AlterOffsetsCommand(
                command_id=command_id,
                connector=name,
                config=_properties(config),
                offsets=[values.offset_to_proto(offset) for offset in question.offsets],
                incarnation=question.incarnation,
                reset=question.reset,
                dry_run=question.dry_run,
                allow_forward=question.allow_forward,
                timeout_ms=question.timeout_ms,
                prepare=question.prepare,
            )
            if question.revision is not None:
                alter.revision.CopyFrom(revisions.to_proto(question.revision))
            if question.rewind_to_ms is not None:
                alter.rewind_to.FromMilliseconds(question.rewind_to_ms)
            result.alter_offsets.CopyFrom(alter)
        case qu.ReadOffsets(connector=name, config=config):
            read = pb.ReadOffsetsCommand(command_id=command_id, connector=name, config=_properties(config))
            result.read_offsets.CopyFrom(read)
        case qu.SetDraining(draining=draining):
            result.set_draining.CopyFrom(pb.SetDraining(draining=draining, command_id=command_id))
        case qu.AskDeadLetters() | qu.AskReplay():
            _ask_dead_letters(result, command_id, question)
        case qu.PlanTaskConfigs(config=config, tasks_max=tasks_max):
            plan = pb.PlanTaskConfigsCommand(command_id=command_id, config=_properties(config), tasks_max=tasks_max)
            result.plan_task_configs.CopyFrom(plan)
        case _:
            assert_never(question)


def _ask_dead_letters(result: pb.SessionResponse, command_id: str, question: qu.AskDeadLetters | qu.AskReplay) -> None:
    config, request = _properties(question.config), question.wire
    if isinstance(request, admin_pb.ListDeadLettersRequest):
        asked = pb.ListDeadLettersCommand(command_id=command_id, config=config, request=request)
        result.list_dead_letters.CopyFrom(asked)
    else:
        assert isinstance(request, admin_pb.ReplayDeadLettersRequest)
        replay = pb.ReplayDeadLettersCommand(command_id=command_id, config=config, request=request)
        result.replay_dead_letters.CopyFrom(replay)


def _dead_letters(reply: pb.CommandReply) -> object:
    if reply.HasField("dead_letters"):
        return reply.dead_letters
    return reply.dead_letters_replayed if reply.HasField("dead_letters_replayed") else None


def _offsets(message: pb.OffsetsReply) -> OffsetsAnswer:
    return OffsetsAnswer(tuple(values.offset(one) for one in message.offsets), message.message)


def _logger(message: admin_pb.LoggerEntry) -> LoggerLevel:
    modified_ms = message.modify_time.ToMilliseconds() if message.HasField("modify_time") else None
    return LoggerLevel(message.logger, message.level, modified_ms)


def _hello(session: int, message: pb.WorkerHello) -> ev.WorkerHello:
    if not message.worker.worker_id or not message.worker.incarnation:
        raise RequestInvalid("a worker must say who it is: worker_id and incarnation", "hello.worker")
    plugins, refused = _plugins(message.plugins, message.refused_plugins)
    return ev.WorkerHello(
        session=session,
        worker_id=message.worker.worker_id,
        incarnation=message.worker.incarnation,
        address=message.address,
        slots=message.slots,
        plugins=plugins,
        holdings=tuple(_holding(holding) for holding in message.holdings),
        epoch_max=message.epoch_max,
        draining=message.draining,
        logger_revision=revisions.from_proto(message.logger_revision),
        leaving=message.leaving,
        refused=refused,
        has_plugin_folders=message.has_plugin_folders,
    )


def _plugins(
    plugins: Iterable[common.Plugin], refused: Iterable[common.RefusedPlugin]
) -> tuple[tuple[Plugin, ...], tuple[RefusedPlugin, ...]]:
    known = (values.plugin(plugin) for plugin in plugins)
    return tuple(plugin for plugin in known if plugin is not None), tuple(map(values.refused_plugin, refused))


def _holding(message: pb.Holding) -> Holding:
    return Holding(
        values.unit(message.unit),
        values.assignment(message.assignment),
        values.run_state(message.state),
        values.failure(message.failure) if message.HasField("failure") else None,
        message.stopping,
    )


def _start(message: ins.StartUnit) -> pb.StartUnit:
    start = pb.StartUnit(
        unit=values.unit_to_proto(message.unit),
        assignment=values.assignment_to_proto(message.assignment),
        connector_config=_properties(message.connector_config),
        target_state=values.TARGET_STATES.to_wire(message.target),
        task_count=message.task_count,
        tasks_max=message.tasks_max,
        commit_scope=commit_scopes.to_proto(message.commit_scope),
        conditions=restart_notes.conditions(message.note, RunState.RUNNING),
        traceparent=message.traceparent,
    )
    if message.task_config is not None:
        start.task_config.CopyFrom(_properties(message.task_config))
    if message.revision is not None:
        start.revision.CopyFrom(revisions.to_proto(message.revision))
    return start


def _properties(config: Properties) -> common.Properties:
    return properties.to_proto(config)
