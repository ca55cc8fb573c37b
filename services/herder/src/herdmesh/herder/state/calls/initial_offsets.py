"""Initial offsets: a create that brings its own offsets, which exist exactly when the connector does.

Owns the conditions under which they may be written: the name is free, no other call is about to create it, and no task
of an earlier connector of that name runs any more or could still commit. Does not own the write itself: a worker
prepares the offsets (`AlterOffsets`, prepared) and takes over the transactional id under which they are committed; the
config store writes them in the connector's transaction (ADR 0015). Offsets of an earlier connector that the request
does not name stay as they are.

Order, each step done before the next: wait until earlier tasks are stopped and other creates of the name have ended;
fence the ids of tasks that may run on an unreachable worker; have the offsets prepared; write both. A failure before
the last step leaves nothing, and so does a refusal of the last. In standalone mode, where stores are in the worker's
memory and offsets in its file, the worker writes the offsets in the prepare step: no other process could create the
name.

Invariant: from the first of these steps to the end of the call no other call of this leader creates the name. While the
offsets of an existing connector are changed (`offset_changes.py`) no other call of this leader changes it.
"""

from __future__ import annotations

from herdmesh.connect.error_class import ErrorClass
from herdmesh.connect.topics import ConnectorRecord, config_topic
from herdmesh.herder.state.memory import (
    Call,
    CallStage,
    CallTable,
    Command,
    HerderMemory,
)
from herdmesh.herder.state.model.events import CommandReplied
from herdmesh.herder.state.model.requests import CreateConnector
from herdmesh.herder.state.workers import commands
from herdmesh.rpc.errors import ConnectorExists, FieldViolation, InvalidConfig, NoWorker, OffsetsRefused
from herdmesh.session.worker_commands import AlterOffsets, FenceTasks

WAITING = (CallStage.OTHER_CREATE, CallStage.WINDING_DOWN, CallStage.OTHER_OFFSETS)
"""Stages in which every tick continues a call."""
_WRITING = (CallStage.WRITING, CallStage.READING_BACK)
_RETRIABLE = (ErrorClass.RETRIABLE, ErrorClass.UNREACHABLE, ErrorClass.FENCED)


def must_wait(call_table: CallTable, call: Call) -> bool:
    """True when another call holds the connector, so that this one must wait with its write in a stage of `WAITING`."""
    holder = call_table.offsets_holder(call)
    if holder is None:
        return False
    if holder.changes_offsets:
        call.stage = CallStage.OTHER_OFFSETS  # whatever this call does; above all a resume
        return True
    if call.may_create:
        call.stage = CallStage.OTHER_CREATE
        return True
    return False


def prepare(memory: HerderMemory, call: Call, request: CreateConnector) -> bool:
    """Take the next step towards a create with offsets. True when the connector may be written now; otherwise a command
    was sent, or the call waits in a stage of `WAITING`.

    Raises ConnectorExists for a create whose offsets were not prepared: if the name is free by then, the store would
    mistake it for a create without offsets.
    """
    if not request.initial_offsets or call.offsets_ready:
        return True  # the store decides whether the name is free
    entry = memory.stores.entries.get(call.name)
    if entry is not None and entry.has_config:
        raise ConnectorExists(call.name)
    if any(other.stage in _WRITING and other.may_create for other in memory.call_table.others_of(call)):
        call.stage = CallStage.OTHER_CREATE
        return False
    memory.call_table.reserve_offsets(call)
    connector = memory.inventory.connectors.get(call.name)
    if connector is not None and any(next(unit.placements(), None) is not None for unit in connector.units.values()):
        call.stage = CallStage.WINDING_DOWN
        return False
    if connector is not None and connector.unfenced:
        call.stage = CallStage.FENCING
        members = [member for member in memory.fleet.members.values() if member.session is not None]
        if not members:
            raise NoWorker("no worker is connected that could fence the tasks of an earlier connector; try again")
        member = commands.preferred(memory.step, members)
        commands.send_command(
            memory.step,
            memory.fleet,
            memory.call_table,
            call,
            member,
            FenceTasks(call.name, max(connector.unfenced) + 1),
        )
    else:
        _request_preparation(memory, call, request)
    return False


def on_reply(
    memory: HerderMemory, call: Call, request: CreateConnector, command: Command, reply: CommandReplied
) -> bool:
    """A worker fenced or prepared: True when the connector may be written now. Raises NoWorker, OffsetsRefused."""
    failure = reply.failure
    if failure is not None and (isinstance(command.body, FenceTasks) or failure.error_class in _RETRIABLE):
        raise NoWorker(f"worker {command.worker_id} could not carry out the request: {failure.message}; try again")
    if failure is not None:
        raise OffsetsRefused(call.name, failure.message)
    if isinstance(command.body, FenceTasks):
        _request_preparation(memory, call, request)
        return False
    call.offsets_ready, call.prepared_offsets = True, reply.prepared
    return True


def _request_preparation(memory: HerderMemory, call: Call, request: CreateConnector) -> None:
    _refuse_too_large(call)
    call.stage = CallStage.OFFSETS
    left_ms = commands.time_left_ms(memory.step, call)
    body = AlterOffsets(
        call.name,
        call.config or {},
        request.initial_offsets,
        memory.stores.config_revision,
        prepare=True,
        timeout_ms=left_ms,
    )
    commands.send_to_able_worker(memory, call, body)


def _refuse_too_large(call: Call) -> None:
    """Refuse a record that the store would refuse after the worker's file has the offsets. Raises InvalidConfig."""
    key, value = config_topic.encode(ConnectorRecord(call.name, call.config or {}))
    size_bytes = len(key) + len(value or b"")
    if size_bytes > config_topic.RECORD_BYTES_MAX:
        text = f"takes {size_bytes} bytes as a record, at most {config_topic.RECORD_BYTES_MAX} fit"
        raise InvalidConfig([FieldViolation("config", text)])
