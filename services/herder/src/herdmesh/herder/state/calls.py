"""Carrying out what callers ask: validate, write, read back, answer.

Owns the stages of a call and its deadline. Owns no rule of the config store: whether a name exists, whether the
expected revision is the stored one and whether the request id was seen before is decided by the store alone, in one
place and on the newest state; so a retried create is answered with its first outcome and not with CONNECTOR_EXISTS.

Order of checks as observable in Connect (reference/herder.md 4.1): leader, name, validation, existence, write. A write
is answered only when the watch has brought it back, so that a caller's next read sees it.

A write that is under way when this herder stops leading is seen through all the same: it needs no leader (only task
sets do), the store answers it and the watch brings it back to followers too.

Invariant: every call is answered exactly once, at the latest at its deadline, with the stage it was at.
"""

from __future__ import annotations

from dataclasses import replace

from herdmesh.herder.state import commands, drains, restarts
from herdmesh.herder.state.configs import checked_name, merged
from herdmesh.herder.state.events import CommandReplied, RequestReceived
from herdmesh.herder.state.instructions import (
    DeleteConfig,
    PutConfig,
    PutTarget,
    Reply,
)
from herdmesh.herder.state.mesh import Mesh, Role
from herdmesh.herder.state.model import CLASS_KEY, NAME_KEY, ErrorClass, Failure, Properties, Validation
from herdmesh.herder.state.questions import ValidateOnWorker
from herdmesh.herder.state.records import Call, Command, Op, OpKind, Stage
from herdmesh.herder.state.requests import (
    Answer,
    CreateConnector,
    DeleteConnector,
    Draining,
    DrainWorker,
    PatchConnector,
    RestartConnector,
    Restarting,
    RestartItem,
    RestartTask,
    SetTarget,
    UndrainWorker,
    UpdateConnector,
    ValidateConfig,
    Validated,
    Written,
)
from herdmesh.rpc.errors import (
    ConnectorNotFound,
    FieldViolation,
    HerdmeshError,
    InvalidConfig,
    NoLeader,
    NoWorker,
    QueueFull,
    RevisionMismatch,
    TaskNotFound,
    Timeout,
)
from herdmesh.topicstore.contract import Revision

CALLS_MAX = 1_000
PATCH_ATTEMPTS_MAX = 5
RESTART_MEMO_MAX = 1_000


def begin(mesh: Mesh, event: RequestReceived) -> None:
    """Start a call on the leader."""
    call = Call(event.call, event.request, event.options, event.deadline_ms)
    if len(mesh.calls) >= CALLS_MAX:
        _reply(mesh, call, QueueFull(f"{CALLS_MAX} calls are under way; try again a little later"))
        return
    mesh.calls[call.id] = call
    try:
        _begin(mesh, call)
    except HerdmeshError as error:
        _reply(mesh, call, error)


def _begin(mesh: Mesh, call: Call) -> None:
    match call.request:
        case CreateConnector(name=name, config=config):
            given = config.get(NAME_KEY)
            call.name = checked_name(name or (given if isinstance(given, str) else ""))
            _validate_first(mesh, call, {**config, NAME_KEY: _own_name(config, call.name)})
        case UpdateConnector(name=name, config=config):
            call.name = checked_name(name)
            _validate_first(mesh, call, {**config, NAME_KEY: _own_name(config, call.name)})
        case PatchConnector(name=name):
            call.name = checked_name(name)
            _merge(mesh, call)
        case ValidateConfig(config=config):
            _validate_first(mesh, call, config)
        case DeleteConnector(name=name) | SetTarget(name=name):
            call.name = checked_name(name)
            _write(mesh, call)
        case RestartConnector() | RestartTask():
            _restart(mesh, call, call.request)
        case DrainWorker(worker_id=worker_id) | UndrainWorker(worker_id=worker_id):
            drains.ask(mesh, worker_id, draining=isinstance(call.request, DrainWorker))
            _reply(mesh, call, Draining(worker_id))


def answered(mesh: Mesh, call_id: int, command: Command, reply: CommandReplied) -> None:
    """A worker answered what was asked for a call."""
    call = mesh.calls.get(call_id)
    if call is None:
        return
    match command.question:
        case ValidateOnWorker():
            _validated(mesh, call, reply.validation, reply.failure)
        case _:
            raise AssertionError(f"no call asks {command.question}")


def _validated(mesh: Mesh, call: Call, validation: Validation | None, failure: Failure | None) -> None:
    if validation is None:
        message = failure.message if failure is not None else "the worker gave no result"
        final = failure is not None and failure.error_class is not ErrorClass.RETRIABLE
        error = InvalidConfig([FieldViolation(CLASS_KEY, message)]) if final else NoWorker(message)
        _reply(mesh, call, error)
    elif isinstance(call.request, ValidateConfig):
        _reply(mesh, call, Validated(validation))
    elif validation.violations:
        _reply(mesh, call, InvalidConfig(validation.violations))
    else:
        _write(mesh, call)


def ask_again(mesh: Mesh, call_id: int, command: Command) -> None:
    """The worker that was asked is gone."""
    call = mesh.calls.get(call_id)
    if call is None:
        return
    try:
        match command.question:
            case ValidateOnWorker() as question:
                commands.ask_able(mesh, call, question)
            case _:
                raise AssertionError(f"no call asks {command.question}")
    except HerdmeshError as error:
        _reply(mesh, call, error)


def written(mesh: Mesh, call_id: int, revision: Revision | None, created: bool) -> None:
    """The store acknowledged the call's write."""
    call = mesh.calls.get(call_id)
    if call is None:
        return
    call.stage = Stage.READING_BACK
    call.revision, call.created = revision, created
    answer_applied(mesh)


def write_failed(mesh: Mesh, call_id: int, error: HerdmeshError) -> None:
    """The store refused the call's write. A patch that lost a race it did not ask to lose is merged anew."""
    call = mesh.calls.get(call_id)
    if call is None:
        return
    raced = isinstance(call.request, PatchConnector) and isinstance(error, RevisionMismatch)
    raced = raced and mesh.role is Role.LEADING
    if raced and call.options.expected_revision is None and call.attempts < PATCH_ATTEMPTS_MAX:
        call.attempts += 1
        call.stage = Stage.VALIDATING
        call.config = None
        _merge_when_newer(mesh, call)
        return
    _reply(mesh, call, error)


def answer_applied(mesh: Mesh) -> None:
    """The config watch moved on: answer the calls whose write it has brought, merge patches that lost a race."""
    for call in list(mesh.calls.values()):
        if call.stage is Stage.READING_BACK and mesh.applied(call.revision):
            _reply(mesh, call, Written(call.name, call.revision, call.created))
        elif isinstance(call.request, PatchConnector) and call.config is None:
            _merge_when_newer(mesh, call)


def expire(mesh: Mesh) -> None:
    """Answer the calls whose deadline has passed."""
    for call in list(mesh.calls.values()):
        if mesh.now >= call.deadline_ms:
            _reply(mesh, call, Timeout(call.stage.value))


def cancel(mesh: Mesh, call_id: int) -> None:
    """Nobody waits for the answer any more."""
    call = mesh.calls.pop(call_id, None)
    if call is not None:
        commands.forget(mesh, call)


def fail_unwritten(mesh: Mesh, why: str) -> None:
    """This herder stops leading, and no worker will validate for it any more: nothing was written, so try elsewhere."""
    for call in list(mesh.calls.values()):
        if call.stage is Stage.VALIDATING:
            _reply(mesh, call, NoLeader(f"this herder stopped leading: {why}"))


# --- stages


def _own_name(config: Properties, name: str) -> str:
    given = config.get(NAME_KEY)
    if given is not None and given != name:
        text = f"Connector name configuration ({given}) doesn't match connector name in the request ({name})"
        raise InvalidConfig([FieldViolation(NAME_KEY, text)])
    return name


def _validate_first(mesh: Mesh, call: Call, config: Properties) -> None:
    call.config = config
    call.stage = Stage.VALIDATING
    commands.ask_able(mesh, call, ValidateOnWorker(config))


def _merge(mesh: Mesh, call: Call) -> None:
    assert isinstance(call.request, PatchConnector)
    entry = mesh.entries.get(call.name)
    if entry is None or not entry.has_config:
        raise ConnectorNotFound(call.name)
    call.revision = entry.config_revision
    _validate_first(mesh, call, merged(entry.config, call.request.patch))


def _merge_when_newer(mesh: Mesh, call: Call) -> None:
    """Merge a patch that lost a race once the watch has brought the config that won."""
    entry = mesh.entries.get(call.name)
    if entry is not None and entry.has_config and entry.config_revision == call.revision:
        return
    try:
        _merge(mesh, call)
    except HerdmeshError as error:
        _reply(mesh, call, error)


def _write(mesh: Mesh, call: Call) -> None:
    call.stage = Stage.WRITING
    op = mesh.op(Op(OpKind.CALL, call=call.id))
    options, config = call.options, call.config or {}
    match call.request:
        case CreateConnector(initial_target=target):
            mesh.out.append(PutConfig(op, call.name, config, options, must_not_exist=True, initial_target=target))
        case UpdateConnector(allow_missing=allow_missing):
            mesh.out.append(PutConfig(op, call.name, config, options, must_exist=not allow_missing))
        case PatchConnector(patch=patch):
            # What was merged is only right on top of what it was merged with.
            options = replace(options, expected_revision=options.expected_revision or call.revision)
            mesh.out.append(PutConfig(op, call.name, config, options, must_exist=True, patch=patch))
        case DeleteConnector():
            mesh.out.append(DeleteConfig(op, call.name, options))
        case SetTarget(target=target):
            mesh.out.append(PutTarget(op, call.name, target, options))
        case _:
            raise AssertionError(f"{call.request} writes nothing")


def _restart(mesh: Mesh, call: Call, request: RestartConnector | RestartTask) -> None:
    request_id = call.options.request_id
    if request_id in mesh.restart_memo:
        _reply(mesh, call, Restarting(mesh.restart_memo[request_id]))
        return
    call.name = checked_name(request.name)
    connector = mesh.connectors.get(call.name)
    entry = connector.stored if connector is not None else None
    if connector is None or entry is None:
        raise ConnectorNotFound(call.name)
    items: tuple[RestartItem, ...] = ()
    if isinstance(request, RestartConnector):
        items = restarts.restart_connector(mesh, connector, request.include_tasks, request.only_failed)
    else:
        unit = connector.units.get(request.task)
        if unit is None or not 0 <= request.task < len(entry.tasks):
            raise TaskNotFound(call.name, request.task)
        restarts.restart_unit(mesh, connector, unit)
    if request_id:
        mesh.restart_memo[request_id] = items
        while len(mesh.restart_memo) > RESTART_MEMO_MAX:
            del mesh.restart_memo[next(iter(mesh.restart_memo))]
    _reply(mesh, call, Restarting(items))


def _reply(mesh: Mesh, call: Call, answer: Answer | HerdmeshError) -> None:
    mesh.calls.pop(call.id, None)
    commands.forget(mesh, call)
    mesh.out.append(Reply(call.id, answer))
