"""Carrying out what callers ask: validate, write, read back, answer.

Owns the stages of a call and its deadline. Owns no rule of the config store: whether a name exists, whether the
expected revision is the stored one and whether the request id was seen before is decided by the store alone, in one
place and on the newest state; so a retried create is answered with its first outcome and not with CONNECTOR_EXISTS.

Order of checks as observable in Connect (reference/herder.md 4.1): leader, name, validation, existence, write; for a
patch leader, existence, validation of what it makes, write; for a restart leader, existence, status, write. Connect
validates before it looks whether it leads; here only a leader has workers to validate on. A write is answered only when
the watch has brought it back, so that a caller's next read sees it.

What this herder itself would refuse a call with a request id for (the config is bad by now, the connector is gone, no
worker is there) is not its answer yet: it may be the retry of one that was applied, by a leader before us. So the store
is asked first, by the same write with `retry_only`.

A write that is under way when this herder stops leading is seen through all the same: the store answers it and the
watch brings it back to followers too; a restart that came too late for its epoch was not applied, and is told so. A
logger level is not: it is in effect when a leader has told the workers.

Invariant: every call is answered exactly once, at the latest at its deadline, with the stage it was at. What it is
answered is true whoever leads by then, or says to ask again.
"""

from __future__ import annotations

from dataclasses import replace
from typing import assert_never

from herdmesh.herder.state.calls import (
    drain_requests,
    hedged_commands,
    initial_offsets,
    loggers,
    offset_changes,
    offset_records,
    queries,
    restart_requests,
)
from herdmesh.herder.state.calls.connector_names import checked_name, given_name, merged, own_name, trimmed
from herdmesh.herder.state.leadership import leadership_queries
from herdmesh.herder.state.memory import Call, Command, Mesh, Op, OpKind, Stage
from herdmesh.herder.state.model import NAME_KEY, Properties, Validation
from herdmesh.herder.state.model.events import CommandReplied, RequestReceived, WriteDone
from herdmesh.herder.state.model.instructions import DeleteConfig, PutConfig, PutTarget, Reply, RequestRestart
from herdmesh.herder.state.model.questions import ValidateOnWorker
from herdmesh.herder.state.model.requests import (
    Answer,
    ChangeOffsets,
    CreateConnector,
    DeleteConnector,
    DrainWorker,
    GetLoggers,
    GetOffsets,
    GetPlugin,
    ListDeadLetters,
    PatchConnector,
    PlanConfig,
    ReplayDeadLetters,
    RestartConnector,
    Restarting,
    RestartTask,
    SetLoggers,
    SetTarget,
    UndrainWorker,
    UpdateConnector,
    ValidateConfig,
    Validated,
    WriteOptions,
    Written,
)
from herdmesh.herder.state.workers import commands
from herdmesh.rpc.errors import (
    ConnectorNotFound,
    HerdmeshError,
    InvalidConfig,
    NoLeader,
    NoWorker,
    QueueFull,
    RequestIdUnknown,
    RequestInvalid,
    RevisionMismatch,
    StaleEpoch,
    Timeout,
)

#: Each keeps its request until it is answered; more are told to slow down.
CALLS_MAX = 4_000
PATCH_ATTEMPTS_MAX = 5

#: What the config store carries out, and knows again by its request id.
_MUTATIONS = (
    CreateConnector | UpdateConnector | PatchConnector | DeleteConnector | SetTarget | RestartConnector | RestartTask
)


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
        _refuse(mesh, call, error)


def _begin(mesh: Mesh, call: Call) -> None:
    match call.request:
        case CreateConnector(name=name, config=config):
            given = config.get(NAME_KEY)
            call.name = checked_name(trimmed(name) or (trimmed(given) if isinstance(given, str) else ""))
            _validate_first(mesh, call, {**config, NAME_KEY: own_name(config, call.name)})
        case UpdateConnector(name=name, config=config):
            call.name = checked_name(given_name(mesh, name))
            _validate_first(mesh, call, {**config, NAME_KEY: own_name(config, call.name)})
        case PatchConnector(name=name):
            call.name = given_name(mesh, name)
            _merge(mesh, call)
        case ValidateConfig(config=config):
            _validate_first(mesh, call, config)
        case DeleteConnector(name=name) | SetTarget(name=name) | RestartConnector(name=name) | RestartTask(name=name):
            call.name = given_name(mesh, name)
            _write_when_free(mesh, call)
        case DrainWorker() | UndrainWorker():
            drain_requests.begin(mesh, call, call.request)
        case (
            PlanConfig()
            | GetPlugin()
            | GetLoggers()
            | SetLoggers()
            | ListDeadLetters()
            | ReplayDeadLetters()
            | GetOffsets()
            | ChangeOffsets()
        ):
            _reply_if_known(mesh, call, queries.begin(mesh, call))
        case _:
            assert_never(call.request)


def answered(mesh: Mesh, call_id: int, command: Command, reply: CommandReplied) -> None:
    """A worker answered what was asked for a call."""
    call = mesh.calls.get(call_id)
    if call is None:
        return
    call.asked.discard(command.id)
    if isinstance(command.question, hedged_commands.ASKED_TWICE):
        commands.forget(mesh, call)
    try:
        if isinstance(call.request, queries.QUERIES):
            _reply_if_known(mesh, call, queries.answered(mesh, call, command, reply))
        elif isinstance(call.request, DrainWorker | UndrainWorker):
            _reply_if_known(mesh, call, drain_requests.confirmed(mesh, call, call.request))
        elif not isinstance(command.question, ValidateOnWorker):
            if initial_offsets.answered(mesh, call, command, reply):
                _write(mesh, call)
        else:
            _validated(mesh, call, commands.verdict(reply))
    except HerdmeshError as error:
        _refuse(mesh, call, error)


def _validated(mesh: Mesh, call: Call, validation: Validation) -> None:
    if isinstance(call.request, ValidateConfig):
        _reply(mesh, call, Validated(validation))
    elif validation.violations:
        raise InvalidConfig(validation.violations)
    else:
        call.validation = validation
        _write_when_free(mesh, call)


def ask_again(mesh: Mesh, call_id: int, command: Command) -> None:
    """The worker that was asked is gone."""
    call = mesh.calls.get(call_id)
    if call is None:
        return
    call.asked.discard(command.id)
    if call.asked and isinstance(command.question, hedged_commands.ASKED_TWICE):
        return  # another was asked the same meanwhile
    try:
        if isinstance(call.request, queries.QUERIES):
            _reply_if_known(mesh, call, queries.lost(mesh, call, command))
        elif isinstance(call.request, DrainWorker | UndrainWorker):
            raise NoWorker(f"worker {command.worker_id} went away before it took note; try again")
        elif isinstance(command.question, ValidateOnWorker):
            commands.ask_able(mesh, call, command.question)
        else:
            _write_when_free(mesh, call)
    except HerdmeshError as error:
        _refuse(mesh, call, error)


def written(mesh: Mesh, call_id: int, event: WriteDone) -> None:
    """The store acknowledged the call's write, or knew it from before."""
    call = mesh.calls.get(call_id)
    if call is None:
        return
    if isinstance(call.request, DrainWorker | UndrainWorker):
        try:
            _reply(mesh, call, drain_requests.recorded(mesh, call.request))
        except HerdmeshError as error:
            _reply(mesh, call, error)
        return
    if isinstance(call.request, ChangeOffsets):
        try:
            _reply_if_known(mesh, call, offset_changes.written(mesh, call, call.request, event))
        except HerdmeshError as error:
            _refuse(mesh, call, error)
        return
    call.stage = Stage.READING_BACK
    call.revision, call.created, call.restarted = event.revision, event.created, event.restarted
    mesh.reading_back.add(call.id)
    answer_applied(mesh)


def write_failed(mesh: Mesh, call_id: int, error: HerdmeshError) -> None:
    """The store refused the call's write, or never told its outcome."""
    call = mesh.calls.get(call_id)
    if call is None:
        return
    if isinstance(call.request, ChangeOffsets):
        error = offset_changes.not_written(call, error)
    elif call.refusal is not None:
        # Asked for an earlier request of this id: there is none, or one that asked for something else.
        _reply(mesh, call, call.refusal if isinstance(error, RequestIdUnknown | RequestInvalid) else error)
        return
    if isinstance(error, StaleEpoch):
        _reply(
            mesh, call, leadership_queries.refusal(mesh) or NoLeader("another herder was elected meanwhile; try again")
        )
        return
    if isinstance(call.request, DrainWorker | UndrainWorker):
        _not_recorded(mesh, call, call.request, error)
        return
    raced = isinstance(call.request, PatchConnector) and isinstance(error, RevisionMismatch)
    if raced and call.options.expected_revision is None:
        _merge_anew(mesh, call, error)
        return
    _reply(mesh, call, error)


def _not_recorded(mesh: Mesh, call: Call, request: DrainWorker | UndrainWorker, error: HerdmeshError) -> None:
    """A drain was not recorded: told, or, when an earlier request of its id was looked for and never made, carried
    out. Of an id that is too old to tell, nothing is done: what it drained may have been undrained since."""
    try:
        if call.stage is not Stage.LOOKING_BACK or not isinstance(error, RequestIdUnknown):
            raise error
        refused = leadership_queries.refusal(mesh)
        if refused is not None:
            raise refused
        drain_requests.tell(mesh, call, request)
    except HerdmeshError as refusal:
        _reply(mesh, call, refusal)


def answer_applied(mesh: Mesh) -> None:
    """The config watch moved on: answer the calls whose write it has brought, merge patches that lost a race."""
    for call in [mesh.calls[number] for number in sorted(mesh.reading_back)]:
        if isinstance(call.request, ChangeOffsets):
            _look_again(mesh, call)
        elif call.stage is not Stage.READING_BACK:
            _merge_when_newer(mesh, call)
        elif not mesh.applied(call.revision):
            continue
        elif isinstance(call.request, SetLoggers):
            _reply_if_known(mesh, call, loggers.settled(mesh, call))
        elif isinstance(call.request, RestartConnector | RestartTask):
            _reply(mesh, call, Restarting(call.restarted))
        else:
            _reply(mesh, call, Written(call.name, call.revision, call.created, call.validation))


def expire(mesh: Mesh) -> None:
    """Answer the calls whose deadline has passed."""
    for call in list(mesh.calls.values()):
        if mesh.now >= call.deadline_ms:
            late = isinstance(call.request, ChangeOffsets)
            _reply(mesh, call, offset_changes.too_late(call) if late else Timeout(call.stage.value))
        elif isinstance(call.request, ChangeOffsets) or call.stage in initial_offsets.WAITING:
            _look_again(mesh, call)


def cancel(mesh: Mesh, call_id: int) -> None:
    """Nobody waits for the answer any more."""
    call = mesh.calls.pop(call_id, None)
    if call is not None:
        _forget(mesh, call)


def fail_unwritten(mesh: Mesh, why: str) -> None:
    """This herder stops leading, and no worker answers it any more: what was not written, or is for workers to carry
    out, is to be tried elsewhere."""
    for call in list(mesh.calls.values()):
        seen_through = call.stage in (Stage.WRITING, Stage.LOOKING_BACK, Stage.READING_BACK)
        if not seen_through or isinstance(call.request, SetLoggers):
            changes = isinstance(call.request, ChangeOffsets)
            left = offset_changes.deposed(call, why) if changes else NoLeader(f"this herder stopped leading: {why}")
            _reply(mesh, call, left)
        call.asked.clear()
    answer_applied(mesh)


# --- stages


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
    config = merged(entry.config, call.request.patch)
    if NAME_KEY in config:
        config = {**config, NAME_KEY: own_name(config, call.name)}
    _validate_first(mesh, call, config)


def _merge_anew(mesh: Mesh, call: Call, error: HerdmeshError) -> None:
    """A patch lost a race that it did not ask to lose: nothing was written."""
    refused = leadership_queries.refusal(mesh)
    if refused is not None or call.attempts >= PATCH_ATTEMPTS_MAX:
        _reply(mesh, call, refused or error)
        return
    call.attempts += 1
    call.stage = Stage.VALIDATING
    call.config = None
    mesh.reading_back.add(call.id)
    _merge_when_newer(mesh, call)


def _merge_when_newer(mesh: Mesh, call: Call) -> None:
    """Merge a patch that lost a race once the watch has brought the config that won."""
    entry = mesh.entries.get(call.name)
    if entry is not None and entry.has_config and entry.config_revision == call.revision:
        return
    mesh.reading_back.discard(call.id)
    try:
        _merge(mesh, call)
    except HerdmeshError as error:
        _refuse(mesh, call, error)


def _look_again(mesh: Mesh, call: Call) -> None:
    """Time has passed, or the watch moved on: look at what a call waits for that nobody tells it of."""
    try:
        if isinstance(call.request, ChangeOffsets):
            _reply_if_known(mesh, call, offset_changes.go_on(mesh, call, call.request))
        else:
            _write_when_free(mesh, call)
    except HerdmeshError as error:
        _refuse(mesh, call, error)


def _write_when_free(mesh: Mesh, call: Call) -> None:
    if not initial_offsets.hold(mesh, call):
        _write(mesh, call)


def _write(mesh: Mesh, call: Call) -> None:
    if isinstance(call.request, RestartConnector | RestartTask):
        _write_restart(mesh, call, call.request)
        return
    if isinstance(call.request, ChangeOffsets):
        offset_records.look_back(mesh, call, call.request)
        return
    options, config = _begin_write(mesh, call), call.config or {}
    op = mesh.op(Op(OpKind.CALL, call=call.id))
    match call.request:
        case CreateConnector(initial_target=target):
            created = PutConfig(op, call.name, config, options, must_not_exist=True, initial_target=target)
            mesh.out.append(replace(created, initial_offsets=call.prepared_offsets))
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


def _write_restart(mesh: Mesh, call: Call, request: RestartConnector | RestartTask) -> None:
    items = restart_requests.wanted(mesh, call.name, request) if call.refusal is None else ()
    op, options = mesh.op(Op(OpKind.CALL, call=call.id)), _begin_write(mesh, call)
    asked = RequestRestart(op, call.name, options, items, mesh.next_generation, mesh.epoch)
    if isinstance(request, RestartTask):
        mesh.out.append(replace(asked, task=request.task))
    else:
        flags = {"include_tasks": request.include_tasks, "only_failed": request.only_failed}
        mesh.out.append(replace(asked, **flags))


def _begin_write(mesh: Mesh, call: Call) -> WriteOptions:
    if call.refusal is None:
        mesh.traces.begin(call.name, call.options.traceparent, mesh.now)
    call.stage = Stage.WRITING if call.refusal is None else Stage.LOOKING_BACK
    return replace(call.options, retry_only=call.refusal is not None)


def _refuse(mesh: Mesh, call: Call, error: HerdmeshError) -> None:
    """Refuse a call, unless it is the retry of one that was applied."""
    recorded = isinstance(call.request, _MUTATIONS) or offset_records.may_be_recorded(call)
    if recorded and call.options.request_id and call.name and call.refusal is None:
        call.refusal = error
        mesh.reading_back.discard(call.id)
        _write(mesh, call)
    else:
        _reply(mesh, call, error)


def _reply_if_known(mesh: Mesh, call: Call, answer: Answer | None) -> None:
    if answer is not None:
        _reply(mesh, call, answer)


def _reply(mesh: Mesh, call: Call, answer: Answer | HerdmeshError) -> None:
    mesh.calls.pop(call.id, None)
    _forget(mesh, call)
    mesh.out.append(Reply(call.id, answer))


def _forget(mesh: Mesh, call: Call) -> None:
    mesh.reading_back.discard(call.id)
    initial_offsets.forget(mesh, call)
    commands.forget(mesh, call)
