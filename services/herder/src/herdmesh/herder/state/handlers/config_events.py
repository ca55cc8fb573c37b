"""Config watch events: connectors' entries, epochs, restarts, session keys and logger levels of the config store.

Owns how each event changes this herder's copy of the config topic, and what is checked again because of it: the
connector itself, calls and commits that wait to read their write back, and whether this herder leads.

Invariant: an entry is accepted as a foreign writer's only after it stayed foreign for `FOREIGN_SETTLE_MS`; until then
the previous entry is in force.
"""

from __future__ import annotations

from typing import assert_never

from herdmesh.herder.state.calls import calls, loggers, restart_requests
from herdmesh.herder.state.handlers import leadership_changes
from herdmesh.herder.state.leadership import session_keys
from herdmesh.herder.state.memory import (
    HerderMemory,
    HerderRole,
    Inventory,
    StoreViews,
)
from herdmesh.herder.state.model import ConnectorEntry
from herdmesh.herder.state.model import events as ev
from herdmesh.herder.state.workers import plugin_eligibility
from herdmesh.session.model import TargetState

#: One change by Herdmesh is several records, the manifest last; in between, the watch shows the connector as foreign.
#: An entry is taken for a foreign writer's only after it stayed foreign for this time: reading a transaction takes far
#: less.
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


def handle(memory: HerderMemory, event: ConfigEvent) -> None:
    """Apply an event of the config watch, then continue everything that waited for it."""
    match event:
        case ev.ConfigSnapshot():
            memory.stores.set_epoch(event.epoch)
            session_keys.read(memory.step, memory.session_key, event.session_key)
            loggers.read(memory, event.loggers)
            fresh = {entry.name: entry for entry in event.entries}
            for name in [*memory.stores.entries, *fresh]:
                _take(memory, name, fresh.get(name))
        case ev.ConfigChanged():
            _take(memory, event.name, event.entry)
        case ev.EpochRecorded():
            memory.stores.set_epoch(event.epoch)
        case ev.RestartRecorded():
            restart_requests.recorded(memory, event)
        case ev.SessionKeyRecorded():
            session_keys.read(memory.step, memory.session_key, event.key)
        case ev.LoggerRecorded():
            loggers.recorded(memory, event)
        case ev.ConfigProgress():
            pass
        case _:
            assert_never(event)
    if event.revision is not None:
        memory.stores.set_revision(event.revision)
    leadership_changes.yield_to_newer(memory)
    leadership_changes.lead_when_caught_up(memory)
    calls.answer_applied(memory)
    for name in memory.agenda.waiting_for_watch():
        if _has_arrived(memory.stores, memory.inventory, name):
            memory.agenda.stop_waiting(name)


def _take(memory: HerderMemory, name: str, entry: ConnectorEntry | None) -> None:
    if entry is not None and entry.foreign:
        memory.stores.park(entry, memory.step.now)
    else:
        _store(memory, name, entry)


def unpark(memory: HerderMemory) -> None:
    """Accept entries that stayed foreign for `FOREIGN_SETTLE_MS`."""
    for entry in memory.stores.parked_until(memory.step.now - FOREIGN_SETTLE_MS):
        _store(memory, entry.name, entry)
    leadership_changes.lead_when_caught_up(memory)


def _store(memory: HerderMemory, name: str, entry: ConnectorEntry | None) -> None:
    memory.stores.set_entry(name, entry)
    if entry is None or entry.wanted_state is TargetState.STOPPED:
        memory.inventory.forget_histories(
            name
        )  # a connector that is created again, or resumed, has a new restart history
    if memory.leadership.role is HerderRole.LEADING:
        connector = memory.inventory.connector(name)
        before, connector.entry = connector.entry, entry
        restart_requests.taken_in(memory, connector, before.restarts if before is not None else {})
        if (
            before is not None
            and entry is not None
            and plugin_eligibility.needs(before) != plugin_eligibility.needs(entry)
        ):
            memory.agenda.place_all()  # other workers may be able to run its units now
        memory.agenda.touch(name)


def _has_arrived(stores: StoreViews, inventory: Inventory, name: str) -> bool:
    connector = inventory.connectors.get(name)
    return connector is None or stores.applied(connector.wait_revision)
