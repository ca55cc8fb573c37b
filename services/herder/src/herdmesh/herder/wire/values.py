"""Values that several messages share: states, units, assignments, failures, plugins.

Owns the enum tables. Invariant: an enum value that only a newer release knows reads as the most careful known one, and
one that a caller asks for is refused by name (`herdmesh.rpc.enums`).
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from google.protobuf.timestamp_pb2 import Timestamp

from herdmesh.api.common.v1 import connector_pb2 as common
from herdmesh.api.herder.v1 import offset_messages_pb2 as offset_pb
from herdmesh.api.herder.v1 import worker_session_service_pb2 as session_pb
from herdmesh.connect.error_class import ErrorClass
from herdmesh.connect.waits import Wait
from herdmesh.herder.state.model import (
    Assignment,
    Condition,
    ConnectorType,
    Failure,
    OffsetEntry,
    Plugin,
    PluginKind,
    RefusedPlugin,
    RunState,
    TargetState,
    UnitId,
)
from herdmesh.rpc import revisions
from herdmesh.rpc.enums import WireEnum
from herdmesh.rpc.errors import RequestInvalid

RUN_STATES = WireEnum(common.RunState, RunState)
TARGET_STATES = WireEnum(common.TargetState, TargetState)
ERROR_CLASSES = WireEnum(common.ErrorClass, ErrorClass)
CONNECTOR_TYPES = WireEnum(common.ConnectorType, ConnectorType)
PLUGIN_KINDS = WireEnum(common.PluginKind, PluginKind)


def monotonic_ms() -> int:
    """The herder's clock: what the state's `now` is."""
    return time.monotonic_ns() // 1_000_000


def wall_clock_ms() -> int:
    """Epoch milliseconds: what the ages of others' records are told by."""
    return time.time_ns() // 1_000_000


# Taken once, so that one moment is always told as the same time.
_WALL_AHEAD_MS = wall_clock_ms() - monotonic_ms()


def wall_ms(at_ms: int) -> int:
    """A moment of the herder's clock in epoch milliseconds."""
    return _WALL_AHEAD_MS + at_ms


def wall_time(at_ms: int | None) -> Timestamp | None:
    """A moment of the herder's clock as wall-clock time."""
    if at_ms is None:
        return None
    moment = Timestamp()
    moment.FromMilliseconds(wall_ms(at_ms))
    return moment


def wall_moment_ms(at_ms: int) -> int:
    """A moment of the herder's clock as epoch milliseconds."""
    return _WALL_AHEAD_MS + at_ms


def clock_ms(epoch_ms: int) -> int:
    """Epoch milliseconds as a moment of the herder's clock; below 0 when this machine was not up yet."""
    return epoch_ms - _WALL_AHEAD_MS


def run_state(value: common.RunState.ValueType) -> RunState:
    """UNASSIGNED when the state is unspecified, or one that only a newer release knows."""
    return RUN_STATES.enum_from(value, RunState.UNASSIGNED)


def target_state(value: common.TargetState.ValueType) -> TargetState | None:
    """None when unspecified. A state that only a newer release knows reads as PAUSED: no records move until somebody
    asks for it. Connect does the same with STOPPED for older workers (KIP-875)."""
    return TARGET_STATES.enum_from(value, TargetState.PAUSED) if value else None


def target_asked(value: common.TargetState.ValueType, field: str) -> TargetState | None:
    """A target state that a caller asks for, None when unspecified. Raises RequestInvalid for one that only a newer
    release knows: any other state would not be what the caller asked for."""
    wanted = TARGET_STATES.enum_from(value, None)
    if value and wanted is None:
        raise RequestInvalid(f"this release knows no target state {value}; use STARTED, PAUSED or STOPPED", field)
    return wanted


def unit(message: session_pb.Unit) -> UnitId:
    return UnitId(message.connector, message.task if message.HasField("task") else None)


def unit_to_proto(value: UnitId) -> session_pb.Unit:
    return session_pb.Unit(connector=value.connector, task=value.task)


def assignment(message: session_pb.Assignment) -> Assignment:
    return Assignment(
        message.epoch,
        message.generation,
        message.incarnation,
        revisions.from_proto(message.config_revision),
        message.task_digest,
    )


def assignment_to_proto(value: Assignment) -> session_pb.Assignment:
    return session_pb.Assignment(
        epoch=value.epoch,
        generation=value.generation,
        incarnation=value.incarnation,
        config_revision=revisions.to_proto(value.config_revision),
        task_digest=value.task_digest,
    )


def failure(message: common.Failure) -> Failure:
    error_class = ERROR_CLASSES.enum_from(message.error_class, ErrorClass.UNKNOWN)
    return Failure(message.message or "failed without a message", message.trace, error_class)


def failure_to_proto(value: Failure | None) -> common.Failure | None:
    if value is None:
        return None
    return common.Failure(
        message=value.message, trace=value.trace, error_class=ERROR_CLASSES.to_wire(value.error_class)
    )


def offset(message: offset_pb.OffsetEntry) -> OffsetEntry:
    return OffsetEntry(message.partition_json, message.offset_json if message.HasField("offset_json") else None)


def offset_to_proto(value: OffsetEntry) -> offset_pb.OffsetEntry:
    return offset_pb.OffsetEntry(partition_json=value.partition_json, offset_json=value.offset_json)


def condition(value: Condition) -> common.Condition:
    message = common.Condition(type=value.type, message=value.message, since=wall_time(value.since_ms))
    if (told := value.wait) is not None:
        message.wait.waits_for, message.wait.message, message.wait.tries = told.waits_for, told.message, told.tries
        if told.since_ms:
            message.wait.since.FromMilliseconds(told.since_ms)
        if told.next_ms:
            message.wait.next_time.FromMilliseconds(told.next_ms)
    return message


def wait(message: common.Wait) -> Wait:
    """With epoch times, as it is told on."""
    next_ms = message.next_time.ToMilliseconds() if message.HasField("next_time") else 0
    return Wait(message.waits_for, message.message, message.since.ToMilliseconds(), message.tries, next_ms)


def plugin(message: common.Plugin) -> Plugin | None:
    """None for a kind that this release does not know."""
    kind = PLUGIN_KINDS.enum_from(message.kind, None)
    if kind is None:
        return None
    return Plugin(message.class_name, tuple(message.aliases), kind, message.version)


def refused_plugin(message: common.RefusedPlugin) -> RefusedPlugin:
    """Of one worker."""
    return RefusedPlugin(message.folder, message.plugin, message.why, message.fix)


def refused_plugin_to_proto(value: RefusedPlugin, worker_ids: Sequence[str]) -> common.RefusedPlugin:
    """Of the workers that said so."""
    return common.RefusedPlugin(
        folder=value.folder, plugin=value.plugin, why=value.why, fix=value.fix, worker_ids=worker_ids
    )


def plugin_to_proto(value: Plugin) -> common.Plugin:
    return common.Plugin(
        class_name=value.class_name, aliases=value.aliases, kind=PLUGIN_KINDS.to_wire(value.kind), version=value.version
    )
