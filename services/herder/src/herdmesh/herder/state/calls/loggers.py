"""Logger levels of workers: listed, set on one worker, set in the cluster.

Owns who is asked and who is told. A cluster level is a record of the config topic (`logger-cluster-<name>`, as
Connect's): whoever wrote it, every connected worker is told when the config watch brings it.

Departs from Connect in one thing: Connect never applies a level to a worker that starts later, so that a cluster's
workers differ by when they were started. Here a level for the cluster stays until another is set: a worker that dials
in says the revision of the newest it was told, and is told those after it, in the order they were set, whoever leads by
then and whoever led before.

A call is answered by a leader that had the connected workers told. What each of them changed, it remembers itself, as
long as its process lives: a retry, of whichever leader it is asked, is answered from that and takes nothing back.

Invariant: a worker carries out no level for the cluster that is not newer than the newest it was told, and no request
id twice: a level that was set later stands.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from herdmesh.connect.error_class import ErrorClass
from herdmesh.herder.state.memory import Call, Command, Member, Mesh, Op, OpKind, Role, Stage
from herdmesh.herder.state.model import ClusterLevel
from herdmesh.herder.state.model.events import CommandReplied, LoggerRecorded
from herdmesh.herder.state.model.instructions import Ask, PutLogger
from herdmesh.herder.state.model.questions import ListLoggers, SetLogger
from herdmesh.herder.state.model.requests import Answer, GetLoggers, LoggersListed, LoggersSet, SetLoggers
from herdmesh.herder.state.workers import commands
from herdmesh.rpc.errors import (
    LoggerNotFound,
    NoWorker,
    RequestInvalid,
    WorkerNotFound,
)
from herdmesh.topicstore.contract import Revision

LEVELS: Final = ("OFF", "FATAL", "ERROR", "WARN", "INFO", "DEBUG", "TRACE", "ALL")
"""Java's names (reference/rest-api.md 6)."""
REMEMBERED_MAX: Final = 1_000


def list_levels(mesh: Mesh, call: Call, request: GetLoggers) -> None:
    """Ask every connected worker. Raises NoWorker."""
    members = [member for member in mesh.members.values() if member.session is not None]
    if not members:
        raise NoWorker("no worker is connected, so there are no loggers to list; start a worker and try again")
    call.stage = Stage.LOGGERS
    for member in members:
        commands.ask(mesh, call, member, ListLoggers(request.logger.strip()))


def set_level(mesh: Mesh, call: Call, request: SetLoggers) -> None:
    """Ask the worker, or write the record. Raises RequestInvalid for a bad level, WorkerNotFound."""
    logger, level = _wanted(request)
    if not logger:
        raise RequestInvalid("name the logger; `root` is the root logger", "logger")
    if level not in LEVELS:
        text = f"invalid log level {request.level!r}: use one of {', '.join(LEVELS)}"
        raise RequestInvalid(text, "level")
    if not request.worker_id:
        call.stage = Stage.WRITING
        mesh.out.append(PutLogger(mesh.op(Op(OpKind.CALL, call=call.id)), logger, level, call.options))
        return
    member = mesh.members.get(request.worker_id)
    if member is None or member.session is None:
        raise WorkerNotFound(request.worker_id)
    call.stage = Stage.LOGGERS
    commands.ask(mesh, call, member, SetLogger(logger, level, request_id=call.options.request_id))


def read(mesh: Mesh, levels: Sequence[ClusterLevel]) -> None:
    """The config store's levels, read anew: connected workers are told those that this herder did not know."""
    for level in levels:
        if not _is_known(mesh, level.revision):
            _take(mesh, level)


def recorded(mesh: Mesh, event: LoggerRecorded) -> None:
    """The config store has a level: tell every connected worker; one call that set it hears what changed."""
    _take(mesh, event.level)


def _take(mesh: Mesh, level: ClusterLevel) -> None:
    mesh.logger_levels.pop(level.logger, None)
    mesh.logger_levels[level.logger] = level
    while len(mesh.logger_levels) > REMEMBERED_MAX:
        del mesh.logger_levels[next(iter(mesh.logger_levels))]
    if mesh.role is not Role.LEADING:
        return
    call = next((call for call in mesh.calls.values() if _waits_for(call, level)), None)
    _tell(mesh, call, _question(level, call))


def _is_known(mesh: Mesh, revision: Revision) -> bool:
    """True when the levels known here are from `revision` or later."""
    newest = next(reversed(mesh.logger_levels.values()), None)
    return newest is not None and newest.revision.includes(revision)


def _tell(mesh: Mesh, call: Call | None, question: SetLogger) -> None:
    """Tell every connected worker; `call` hears what changed."""
    if call is not None:
        call.told = True
    for member in mesh.members.values():
        if member.session is None:
            continue
        if call is not None:
            commands.ask(mesh, call, member, question)
        else:
            mesh.send(member.session, Ask("", question))


def catch_up(mesh: Mesh, member: Member, told: Revision | None) -> None:
    """A worker dialled in: tell it the levels that are newer than what it was told."""
    assert member.session is not None
    for level in mesh.logger_levels.values():
        if told is None or not told.includes(level.revision):
            mesh.send(member.session, Ask("", _question(level)))


def answered(mesh: Mesh, call: Call, command: Command, reply: CommandReplied) -> Answer | None:
    """A worker listed its loggers, or set a level."""
    if reply.failure is not None and reply.failure.error_class is ErrorClass.BAD_CONFIG:
        raise RequestInvalid(reply.failure.message, "request_id")
    if reply.failure is not None:
        raise NoWorker(f"worker {command.worker_id} could not do it: {reply.failure.message}")
    call.loggers.extend((command.worker_id, logger) for logger in reply.loggers)
    return settled(mesh, call)


def lost(mesh: Mesh, call: Call, command: Command) -> Answer | None:
    """A worker went without answering."""
    if isinstance(call.request, SetLoggers) and call.request.worker_id:
        raise NoWorker(f"worker {command.worker_id} went away before it answered; it may have set the level")
    return settled(mesh, call)


def settled(mesh: Mesh, call: Call) -> Answer | None:
    """The answer once everybody asked has said, or gone, and what was written has been read back."""
    if call.asked:
        return None
    if isinstance(call.request, SetLoggers):
        if not call.request.worker_id and not (call.stage is Stage.READING_BACK and mesh.applied(call.revision)):
            return None
        if not call.request.worker_id and not call.told:
            _ask_again(mesh, call, call.request)
            return settled(mesh, call)
        return LoggersSet(tuple(sorted({logger.logger for _, logger in call.loggers})))
    assert isinstance(call.request, GetLoggers)
    if not call.loggers and call.request.logger.strip():
        raise LoggerNotFound(call.request.logger)
    return LoggersListed(tuple(sorted(call.loggers, key=lambda item: (item[1].logger, item[0]))))


def _ask_again(mesh: Mesh, call: Call, request: SetLoggers) -> None:
    """The store had the level before this call, so every connected worker was told it, or others set since: nothing is
    left to do, and they say what it changed."""
    call.told = True
    logger, level = _wanted(request)
    known = mesh.logger_levels.get(logger)
    if known is None or known.level != level:
        known = next(reversed(mesh.logger_levels.values()), None)
    if known is not None:
        _tell(mesh, call, SetLogger(logger, level, known.revision, call.options.request_id))


def _waits_for(call: Call, level: ClusterLevel) -> bool:
    request = call.request
    return (
        isinstance(request, SetLoggers)
        and not request.worker_id
        and not call.told
        and _wanted(request) == (level.logger, level.level)
    )


def _question(level: ClusterLevel, call: Call | None = None) -> SetLogger:
    request_id = "" if call is None else call.options.request_id
    return SetLogger(level.logger, level.level, level.revision, request_id)


def _wanted(request: SetLoggers) -> tuple[str, str]:
    return request.logger.strip(), request.level.strip().upper()
