"""Logger levels of workers: listed, set on one worker, set in the cluster.

Owns who is asked and who is told. A cluster level is a record of the config topic (`logger-cluster-<name>`, as
Connect's): whoever wrote it, every connected worker is told when the config watch brings it.

Departs from Connect in one thing: Connect never applies a level to a worker that starts later, so that a cluster's
workers differ by when they were started. Here a level for the cluster stays until another is set: a worker that starts,
or was away at the moment, is told all of them, in the order they were set, whoever leads by then.

A call for the cluster is answered by a leader that had every connected worker told: one that stops leading before has
it tried again, and the next one tells everybody again, as nobody knows whom the last one told.

Invariant: but for such a call, a worker that has heard a level is not told it again, so a later level of its own
stands.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from herdmesh.herder.state import commands
from herdmesh.herder.state.events import CommandReplied, LoggerRecorded
from herdmesh.herder.state.instructions import Ask, PutLogger
from herdmesh.herder.state.mesh import Mesh, Role
from herdmesh.herder.state.questions import ListLoggers, SetLogger
from herdmesh.herder.state.records import Call, Command, Member, Op, OpKind, Stage
from herdmesh.herder.state.requests import Answer, GetLoggers, LoggersListed, LoggersSet, SetLoggers
from herdmesh.rpc.errors import (
    LoggerNotFound,
    NoWorker,
    RequestInvalid,
    WorkerNotFound,
)

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


def set_level(mesh: Mesh, call: Call, request: SetLoggers) -> LoggersSet | None:
    """Ask the worker, or write the record; a retry is answered as the first time, by the same leader. Raises
    RequestInvalid for a bad level, WorkerNotFound."""
    if call.options.request_id in mesh.loggers_set:
        return mesh.loggers_set[call.options.request_id]
    logger, level = request.logger.strip(), request.level.strip().upper()
    if not logger:
        raise RequestInvalid("name the logger; `root` is the root logger", "logger")
    if level not in LEVELS:
        text = f"invalid log level {request.level!r}: use one of {', '.join(LEVELS)}"
        raise RequestInvalid(text, "level")
    if not request.worker_id:
        call.stage = Stage.WRITING
        mesh.out.append(PutLogger(mesh.op(Op(OpKind.CALL, call=call.id)), logger, level, call.options))
        return None
    member = mesh.members.get(request.worker_id)
    if member is None or member.session is None:
        raise WorkerNotFound(request.worker_id)
    call.stage = Stage.LOGGERS
    commands.ask(mesh, call, member, SetLogger(logger, level))
    return None


def read(mesh: Mesh, levels: Sequence[tuple[str, str]]) -> None:
    """The config store's levels, read anew: the workers here know those that this herder knew, and, before it knew any,
    those that they heard from the leader before it."""
    first = mesh.config_revision is None
    for logger, level in levels:
        known = mesh.logger_levels.get(logger)
        if first:
            mesh.logger_levels[logger] = (level, 0)
        elif known is None or known[0] != level:
            recorded(mesh, LoggerRecorded(logger, level, None))


def recorded(mesh: Mesh, event: LoggerRecorded) -> None:
    """The config store has a level: tell every connected worker; one call that set it hears what changed."""
    mesh.logger_levels.pop(event.logger, None)
    mesh.logger_levels[event.logger] = (event.level, mesh.now)
    while len(mesh.logger_levels) > REMEMBERED_MAX:
        del mesh.logger_levels[next(iter(mesh.logger_levels))]
    if mesh.role is not Role.LEADING:
        return
    question = SetLogger(event.logger, event.level)
    _tell(mesh, next((call for call in mesh.calls.values() if _waits_for(call, question)), None), question)


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


def catch_up(mesh: Mesh, member: Member, before: Member | None, epoch_max: int) -> None:
    """A worker dialled in: tell it the levels it cannot have heard. `epoch_max` 0 = it never had a leader."""
    since_ms = 0
    if before is not None and before.incarnation == member.incarnation:
        since_ms = before.heard_ms
    elif epoch_max:
        since_ms = mesh.adopting_until_ms - mesh.rules.session_timeout_ms  # the beginning of this reign
    for logger, (level, recorded_ms) in mesh.logger_levels.items():
        if recorded_ms >= since_ms and member.session is not None:
            mesh.send(member.session, Ask("", SetLogger(logger, level)))


def answered(mesh: Mesh, call: Call, command: Command, reply: CommandReplied) -> Answer | None:
    """A worker listed its loggers, or set a level."""
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
            _tell_again(mesh, call, call.request)
            return settled(mesh, call)
        answer = LoggersSet(tuple(sorted({logger.logger for _, logger in call.loggers})))
        if call.options.request_id:
            mesh.loggers_set[call.options.request_id] = answer
            while len(mesh.loggers_set) > REMEMBERED_MAX:
                del mesh.loggers_set[next(iter(mesh.loggers_set))]
        return answer
    assert isinstance(call.request, GetLoggers)
    if not call.loggers and call.request.logger.strip():
        raise LoggerNotFound(call.request.logger)
    return LoggersListed(tuple(sorted(call.loggers, key=lambda item: (item[1].logger, item[0]))))


def _tell_again(mesh: Mesh, call: Call, request: SetLoggers) -> None:
    """The store had the level before this call: it is told to all, and what was set after it again after it. One that
    another took the place of, or that is forgotten, is told to nobody."""
    call.told = True
    question = _question(request)
    level, _ = mesh.logger_levels.get(question.logger, ("", 0))
    if level != question.level:
        return
    names = list(mesh.logger_levels)
    for name in names[names.index(question.logger) :]:
        mesh.logger_levels[name] = (mesh.logger_levels[name][0], mesh.now)  # for those that dial in later
        asks = call if name == question.logger else None
        _tell(mesh, asks, SetLogger(name, mesh.logger_levels[name][0]))


def _waits_for(call: Call, question: SetLogger) -> bool:
    request = call.request
    return (
        isinstance(request, SetLoggers) and not request.worker_id and not call.told and _question(request) == question
    )


def _question(request: SetLoggers) -> SetLogger:
    return SetLogger(request.logger.strip(), request.level.strip().upper())
