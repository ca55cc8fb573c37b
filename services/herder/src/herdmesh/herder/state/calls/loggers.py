"""Logger levels of workers: listed, set on one worker, set in the cluster.

Owns which workers are queried and which are sent a level. A cluster level is a record of the config topic
(`logger-cluster-<name>`, as Connect's): whoever wrote it, every connected worker is sent it when the config watch
brings it.

Departs from Connect in one thing: Connect never applies a level to a worker that starts later, so that a cluster's
workers differ by when they were started. Here a level for the cluster stays until another is set: a worker that dials
in reports the revision of the newest level it was sent, and is sent the later ones, in the order they were set. That
holds across leaders.

A call is answered once its leader has sent the level to the connected workers. Each worker remembers the loggers that
it changed for as long as its process lives: a retry, to whichever leader, is answered from that and reverts nothing.

Invariant: a worker carries out no cluster level that is not newer than the newest it was sent, and no request id twice:
a level that was set later stays in force.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from herdmesh.connect.error_class import ErrorClass
from herdmesh.herder.state.calls.handler import RequestHandler
from herdmesh.herder.state.memory import (
    Call,
    CallStage,
    CallTable,
    Command,
    Fleet,
    HerderMemory,
    HerderRole,
    Member,
    Op,
    OpKind,
    Step,
    StoreViews,
)
from herdmesh.herder.state.model import ClusterLevel
from herdmesh.herder.state.model.events import CommandReplied, LoggerRecorded
from herdmesh.herder.state.model.instructions import PutLogger
from herdmesh.herder.state.model.requests import Answer, GetLoggers, LoggersListed, LoggersSet, SetLoggers
from herdmesh.herder.state.workers import commands
from herdmesh.rpc.errors import (
    HerdmeshError,
    LoggerNotFound,
    NoLeader,
    NoWorker,
    RequestInvalid,
    WorkerNotFound,
)
from herdmesh.session.messages import SendCommand
from herdmesh.session.worker_commands import ListLoggers, SetLogger
from herdmesh.topicstore.contract import Revision

LEVELS: Final = ("OFF", "FATAL", "ERROR", "WARN", "INFO", "DEBUG", "TRACE", "ALL")
"""Java's names (docs/reference/connect/rest-api.md, section 6)."""


@dataclass(frozen=True)
class _LoggerHandler(RequestHandler):
    """Common steps of listing and setting levels: several workers reply."""

    request: GetLoggers | SetLoggers

    def on_reply(self, memory: HerderMemory, call: Call, command: Command, reply: CommandReplied) -> Answer | None:
        """A worker listed its loggers, or set a level. Raises RequestInvalid, NoWorker."""
        if reply.failure is not None and reply.failure.error_class is ErrorClass.BAD_CONFIG:
            raise RequestInvalid(reply.failure.message, "request_id")
        if reply.failure is not None:
            raise NoWorker(f"worker {command.worker_id} could not carry out the request: {reply.failure.message}")
        call.loggers.extend((command.worker_id, logger) for logger in reply.loggers)
        return self.outcome(memory, call)

    def on_worker_lost(self, memory: HerderMemory, call: Call, command: Command) -> Answer | None:
        """Answer with the replies of the other workers."""
        return self.outcome(memory, call)


@dataclass(frozen=True)
class GetLoggersHandler(_LoggerHandler):
    """Lists of the levels on every worker."""

    request: GetLoggers

    def begin(self, memory: HerderMemory, call: Call) -> Answer | None:
        """Query every connected worker. Raises NoWorker."""
        members = [member for member in memory.fleet.members.values() if member.session is not None]
        if not members:
            raise NoWorker("no worker is connected, so there are no loggers to list; start a worker and try again")
        call.stage = CallStage.LOGGERS
        for member in members:
            commands.send_command(
                memory.step, memory.fleet, memory.call_table, call, member, ListLoggers(self.request.logger.strip())
            )
        return None

    def outcome(self, memory: HerderMemory, call: Call) -> Answer | None:
        """The answer once every queried worker has replied or is gone. Raises LoggerNotFound."""
        if call.command_ids:
            return None
        if not call.loggers and self.request.logger.strip():
            raise LoggerNotFound(self.request.logger)
        return LoggersListed(tuple(sorted(call.loggers, key=lambda item: (item[1].logger, item[0]))))


@dataclass(frozen=True)
class SetLoggersHandler(_LoggerHandler):
    """Changes of a level, on one worker or in the cluster."""

    request: SetLoggers

    def begin(self, memory: HerderMemory, call: Call) -> Answer | None:
        """Send the level to the worker, or write the record. Raises RequestInvalid for a bad level, WorkerNotFound."""
        logger, level = self.request.logger.strip(), self.request.level.strip().upper()
        if not logger:
            raise RequestInvalid("name the logger; `root` is the root logger", "logger")
        if level not in LEVELS:
            text = f"invalid log level {self.request.level!r}: use one of {', '.join(LEVELS)}"
            raise RequestInvalid(text, "level")
        if not self.request.worker_id:
            call.stage = CallStage.WRITING
            call.cluster_level = (logger, level)
            memory.step.emit(
                PutLogger(memory.call_table.op(Op(OpKind.CALL, call=call.id)), logger, level, call.options)
            )
            return None
        member = memory.fleet.members.get(self.request.worker_id)
        if member is None or member.session is None:
            raise WorkerNotFound(self.request.worker_id)
        call.stage = CallStage.LOGGERS
        commands.send_command(
            memory.step,
            memory.fleet,
            memory.call_table,
            call,
            member,
            SetLogger(logger, level, request_id=call.options.request_id),
        )
        return None

    def on_worker_lost(self, memory: HerderMemory, call: Call, command: Command) -> Answer | None:
        """Continue with the others. Raises NoWorker when the lost worker was the only one."""
        if self.request.worker_id:
            raise NoWorker(f"worker {command.worker_id} disconnected before it answered; it may have set the level")
        return self.outcome(memory, call)

    def outcome(self, memory: HerderMemory, call: Call) -> Answer | None:
        """The answer once every worker has replied or is gone, and the record was read back."""
        if call.command_ids:
            return None
        if call.cluster_level is not None:
            if call.stage is not CallStage.READING_BACK or not memory.stores.applied(call.revision):
                return None
            if not call.level_sent:
                _repeat(memory, call, *call.cluster_level)
        return None if call.command_ids else LoggersSet(tuple(sorted({logger.logger for _, logger in call.loggers})))

    def deposed(self, call: Call, why: str) -> HerdmeshError | None:
        """A level takes effect only when a leader has sent it to the workers, so the call ends in every stage."""
        return NoLeader(f"this herder stopped leading: {why}")


def read(memory: HerderMemory, levels: Sequence[ClusterLevel]) -> None:
    """The config store's levels were read anew: send connected workers the levels that this herder did not know."""
    for level in levels:
        if not _is_known(memory.stores, level.revision):
            _take(memory, level)


def recorded(memory: HerderMemory, event: LoggerRecorded) -> None:
    """The config store has a level: send it to every connected worker; the call that set it collects the changed
    loggers.
    """
    _take(memory, event.level)


def _take(memory: HerderMemory, level: ClusterLevel) -> None:
    memory.stores.set_logger_level(level)
    if memory.leadership.role is not HerderRole.LEADING:
        return
    call = next((call for call in memory.call_table.calls.values() if _waits_for(call, level)), None)
    _send_level(memory.step, memory.fleet, memory.call_table, call, _set_logger(level, call))


def _is_known(stores: StoreViews, revision: Revision) -> bool:
    """True when the levels known here are from `revision` or later."""
    newest = stores.newest_logger_level
    return newest is not None and newest.revision.includes(revision)


def _send_level(step: Step, fleet: Fleet, call_table: CallTable, call: Call | None, body: SetLogger) -> None:
    """Send a level to every connected worker; `call` collects the changed loggers."""
    if call is not None:
        call.level_sent = True
    for member in fleet.members.values():
        if member.session is None:
            continue
        if call is not None:
            commands.send_command(step, fleet, call_table, call, member, body)
        else:
            fleet.send(member.session, SendCommand("", body))


def catch_up(stores: StoreViews, fleet: Fleet, member: Member, told: Revision | None) -> None:
    """A worker dialled in: send it the levels that are newer than `told`, the revision of the last it was sent."""
    assert member.session is not None
    for level in stores.logger_levels.values():
        if told is None or not told.includes(level.revision):
            fleet.send(member.session, SendCommand("", _set_logger(level)))


def _repeat(memory: HerderMemory, call: Call, logger: str, level: str) -> None:
    """The store had the level before this call, so every connected worker was sent it, or a later one. Nothing is left
    to do; the workers report which loggers it changed.
    """
    call.level_sent = True
    known = memory.stores.logger_levels.get(logger)
    if known is None or known.level != level:
        known = memory.stores.newest_logger_level
    if known is not None:
        _send_level(
            memory.step,
            memory.fleet,
            memory.call_table,
            call,
            SetLogger(logger, level, known.revision, call.options.request_id),
        )


def _waits_for(call: Call, level: ClusterLevel) -> bool:
    return call.cluster_level == (level.logger, level.level) and not call.level_sent


def _set_logger(level: ClusterLevel, call: Call | None = None) -> SetLogger:
    request_id = "" if call is None else call.options.request_id
    return SetLogger(level.logger, level.level, level.revision, request_id)
