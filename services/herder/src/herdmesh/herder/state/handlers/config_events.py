"""Config watch events: connectors' entries, epochs, restarts, session keys and logger levels that the config store has.

Owns how each changes what this herder has stored of the config topic, and what is looked at again because of it: the
connector itself, calls and commits that wait to read their write back, and whether this herder leads.

Invariant: an entry is accepted as a foreign writer's only after it stayed foreign for `FOREIGN_SETTLE_MS`; until then
the entry before it is in force.
"""

from __future__ import annotations

from typing import assert_never

from herdmesh.herder.state.calls import calls, loggers, restart_requests
from herdmesh.herder.state.handlers import leadership_changes
from herdmesh.herder.state.leadership import session_keys
from herdmesh.herder.state.memory import Mesh, Role
from herdmesh.herder.state.model import ConnectorEntry, TargetState
from herdmesh.herder.state.model import events as ev
from herdmesh.herder.state.workers import plugin_eligibility

#: One change of ours is several records, the manifest last; in between the watch shows the connector as foreign. An
#: entry is believed to be a foreign writer's only after it stayed so for this time: a transaction is read in far less.
FOREIGN_SETTLE_MS = 1_000


ConfigEvent = (
    ev.ConfigSnapshot
    | ev.ConfigChanged
    | ev.ConfigProgress
    | ev.EpochRecorded
    | ev.RestartRecorded
    | ev.SessionKeyRecorded
    | ev.LoggerRecorded
)


def handle(mesh: Mesh, event: ConfigEvent) -> None:
    """Apply what the config watch brought, then do what waited for it."""
    match event:
        case ev.ConfigSnapshot():
            mesh.epoch_seen = event.epoch
            session_keys.read(mesh, event.session_key)
            loggers.read(mesh, event.loggers)
            fresh = {entry.name: entry for entry in event.entries}
            for name in [*mesh.entries, *fresh]:
                _take(mesh, name, fresh.get(name))
        case ev.ConfigChanged():
            _take(mesh, event.name, event.entry)
        case ev.EpochRecorded():
            mesh.epoch_seen = event.epoch
        case ev.RestartRecorded():
            restart_requests.recorded(mesh, event)
        case ev.SessionKeyRecorded():
            session_keys.read(mesh, event.key)
        case ev.LoggerRecorded():
            loggers.recorded(mesh, event)
        case ev.ConfigProgress():
            pass
        case _:
            assert_never(event)
    mesh.config_revision = event.revision or mesh.config_revision
    leadership_changes.yield_to_newer(mesh)
    leadership_changes.lead_when_caught_up(mesh)
    calls.answer_applied(mesh)
    for name in [name for name in mesh.waiting if _has_arrived(mesh, name)]:
        mesh.waiting.discard(name)
        mesh.touch(name)


def _take(mesh: Mesh, name: str, entry: ConnectorEntry | None) -> None:
    if entry is not None and entry.foreign:
        mesh.parked[name] = (entry, mesh.now)
    else:
        mesh.parked.pop(name, None)
        _store(mesh, name, entry)


def unpark(mesh: Mesh) -> None:
    """Accept entries that stayed foreign for `FOREIGN_SETTLE_MS`."""
    for name, (entry, since_ms) in list(mesh.parked.items()):
        if mesh.now - since_ms >= FOREIGN_SETTLE_MS:
            del mesh.parked[name]
            _store(mesh, name, entry)
    leadership_changes.lead_when_caught_up(mesh)


def _store(mesh: Mesh, name: str, entry: ConnectorEntry | None) -> None:
    if entry is None:
        mesh.entries.pop(name, None)
    else:
        mesh.entries[name] = entry
    if mesh.accounts_before and (entry is None or entry.wanted_state is TargetState.STOPPED):
        mesh.forget_accounts(name)  # what is made anew, or resumed, begins anew
    if mesh.role is Role.LEADING:
        connector = mesh.connector(name)
        before, connector.entry = connector.entry, entry
        restart_requests.taken_in(mesh, connector, before.restarts if before is not None else {})
        if (
            before is not None
            and entry is not None
            and plugin_eligibility.needs(before) != plugin_eligibility.needs(entry)
        ):
            mesh.place_again = True  # other workers may take its units now
        mesh.touch(name)


def _has_arrived(mesh: Mesh, name: str) -> bool:
    connector = mesh.connectors.get(name)
    return connector is None or mesh.applied(connector.wait_revision)
