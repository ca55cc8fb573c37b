"""Messages of a worker session, both ways: a worker's as events, the herder's instructions as responses.

Owns the herder's part of `WorkerSessionService.Session`; `herdmesh.session.wire` has the part that both sides share.
Invariant: every message of a worker becomes exactly one event, or none if only a newer release knows its meaning.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from itertools import zip_longest

from herdmesh.api.common.v1 import connector_pb2 as common
from herdmesh.api.herder.v1 import admin_messages_pb2 as admin_pb
from herdmesh.api.herder.v1 import worker_session_service_pb2 as pb
from herdmesh.api.worker.v1 import task_pb2, worker_service_pb2
from herdmesh.connect.topics import NOT_KNOWN, lag_of
from herdmesh.herder.state.model import LoggerLevel, Plugin, RateUse, RefusedPlugin, TaskProgress, Validation
from herdmesh.herder.state.model import events as ev
from herdmesh.herder.state.model import instructions as ins
from herdmesh.herder.state.model.requests import OffsetsAnswer
from herdmesh.herder.wire import restart_notes, values
from herdmesh.rpc import properties, revisions
from herdmesh.rpc.errors import FieldViolation, RequestInvalid
from herdmesh.session import wire as session_wire
from herdmesh.session.messages import StartUnit
from herdmesh.session.model import RunState, SlotUse, UnitId


def event(session: int, message: pb.SessionRequest) -> ev.Event | None:
    """The event of a worker's message; None for a kind of message or a unit's state that only a newer release knows.

    Raises RequestInvalid for a message without content.
    """
    match message.WhichOneof("message"):
        case "hello":
            return _hello(session, message.hello)
        case "heartbeat":
            beat = message.heartbeat
            use = SlotUse(beat.slot_use.used, beat.slot_use.waiting) if beat.HasField("slot_use") else None
            moved = tuple(map(progress, beat.progress))
            return ev.WorkerHeartbeat(session, moved, session_wire.waits_from(beat.waits), use)
        case "report":
            return _report(session, message.report)
        case "task_configs":
            return ev.TaskConfigsMade(session, *session_wire.task_configs_from(message.task_configs))
        case "reply":
            reply = message.reply
            return ev.CommandReplied(
                session,
                reply.command_id,
                session_wire.failure_from(reply.failure) if reply.HasField("failure") else None,
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
            raise RequestInvalid("a session message must not be empty", "message")
        case None:
            return None


def _report(session: int, message: pb.UnitReport) -> ev.UnitReported | None:
    report = session_wire.report_from(message)
    return None if report is None else ev.UnitReported(session, *report)


def progress(message: task_pb2.TaskProgress) -> TaskProgress:
    """The progress of a task. Its lag is unknown if the task failed before it knew its partitions."""
    knows_nothing = message.activity == task_pb2.TASK_ACTIVITY_FAILED and not message.partitions
    lag = NOT_KNOWN if knows_nothing else lag_of(message.partitions)
    return TaskProgress(
        UnitId(message.task.connector, message.task.task),
        lag,
        wire=message,
        records_rate=_rate_use(message.records_rate) if message.HasField("records_rate") else None,
        bytes_rate=_rate_use(message.bytes_rate) if message.HasField("bytes_rate") else None,
        counts=session_wire.progress_counts_from(message),
    )


def _rate_use(message: task_pb2.RateUse) -> RateUse:
    return RateUse(message.limit_per_second, message.used_per_second, message.wants_more)


def validation(message: worker_service_pb2.ConfigValidation) -> Validation:
    """The verdict: every error of every field is a violation of that field, with its fix."""
    violations = tuple(
        FieldViolation(field.name, f"{error} ({fix})" if fix else error)
        for field in message.fields
        for error, fix in zip_longest(field.errors, field.fixes, fillvalue="")
    )
    return Validation(violations, wire=message)


def response(sent: ins.Send) -> pb.SessionResponse:
    """The message of an instruction, under the herder's epoch."""
    message = sent.message
    if isinstance(message, StartUnit):
        message = replace(message, conditions=restart_notes.conditions(sent.note, RunState.RUNNING))
    return session_wire.message_to(sent.epoch, message, values.wall_ms)


def _dead_letters(reply: pb.CommandReply) -> object:
    if reply.HasField("dead_letters"):
        return reply.dead_letters
    return reply.dead_letters_replayed if reply.HasField("dead_letters_replayed") else None


def _offsets(message: pb.OffsetsReply) -> OffsetsAnswer:
    return OffsetsAnswer(tuple(session_wire.offset_from(one) for one in message.offsets), message.message)


def _logger(message: admin_pb.LoggerEntry) -> LoggerLevel:
    modified_ms = message.modify_time.ToMilliseconds() if message.HasField("modify_time") else None
    return LoggerLevel(message.logger, message.level, modified_ms)


def _hello(session: int, message: pb.WorkerHello) -> ev.WorkerHello:
    if not message.worker.worker_id or not message.worker.incarnation:
        raise RequestInvalid("hello must have worker_id and incarnation", "hello.worker")
    plugins, refused = _plugins(message.plugins, message.refused_plugins)
    return ev.WorkerHello(
        session=session,
        worker_id=message.worker.worker_id,
        incarnation=message.worker.incarnation,
        address=message.address,
        slots=message.slots,
        plugins=plugins,
        held_units=tuple(map(session_wire.held_unit_from, message.holdings)),
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
