"""Values that several messages of the herder share: wall-clock times, states, plugins.

Owns the herder's clock as wall-clock time; `herdmesh.session.wire` has the values shared with workers. Invariant: an
enum value that only a newer release knows reads as the most careful known one, and such a value in a caller's request
is refused by name (`herdmesh.rpc.enums`).
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from google.protobuf.timestamp_pb2 import Timestamp

from herdmesh.api.common.v1 import connector_pb2 as common
from herdmesh.herder.state.model import ConnectorType, Plugin, PluginKind, RefusedPlugin
from herdmesh.rpc.enums import WireEnum
from herdmesh.rpc.errors import RequestInvalid
from herdmesh.session.model import Condition, RunState, TargetState
from herdmesh.session.wire import RUN_STATES, TARGET_STATES, condition_to

CONNECTOR_TYPES = WireEnum(common.ConnectorType, ConnectorType)
PLUGIN_KINDS = WireEnum(common.PluginKind, PluginKind)


def monotonic_ms() -> int:
    """The herder's clock, which gives the state its `now`."""
    return time.monotonic_ns() // 1_000_000


def wall_clock_ms() -> int:
    """Epoch milliseconds, for the ages of records that others wrote."""
    return time.time_ns() // 1_000_000


# Read once, so that one moment always has the same wall-clock time.
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
    """None when unspecified. A state that only a newer release knows reads as PAUSED: no records move until a caller
    requests it. Connect does the same with STOPPED for older workers (KIP-875).
    """
    return TARGET_STATES.enum_from(value, TargetState.PAUSED) if value else None


def requested_target_state(value: common.TargetState.ValueType, field: str) -> TargetState | None:
    """A target state in a caller's request, None when unspecified. Raises RequestInvalid for one that only a newer
    release knows: any other state would not be the requested one.
    """
    wanted = TARGET_STATES.enum_from(value, None)
    if value and wanted is None:
        raise RequestInvalid(f"this release knows no target state {value}; use STARTED, PAUSED or STOPPED", field)
    return wanted


def condition(value: Condition) -> common.Condition:
    """A condition whose time is by the herder's clock."""
    return condition_to(value, wall_ms)


def plugin(message: common.Plugin) -> Plugin | None:
    """A plugin; None for a kind that this release does not know."""
    kind = PLUGIN_KINDS.enum_from(message.kind, None)
    if kind is None:
        return None
    return Plugin(message.class_name, tuple(message.aliases), kind, message.version)


def refused_plugin(message: common.RefusedPlugin) -> RefusedPlugin:
    """A refused plugin of one worker."""
    return RefusedPlugin(message.folder, message.plugin, message.why, message.fix)


def refused_plugin_to_proto(value: RefusedPlugin, worker_ids: Sequence[str]) -> common.RefusedPlugin:
    """A refused plugin with the workers that reported it."""
    return common.RefusedPlugin(
        folder=value.folder, plugin=value.plugin, why=value.why, fix=value.fix, worker_ids=worker_ids
    )


def plugin_to_proto(value: Plugin) -> common.Plugin:
    return common.Plugin(
        class_name=value.class_name, aliases=value.aliases, kind=PLUGIN_KINDS.to_wire(value.kind), version=value.version
    )
