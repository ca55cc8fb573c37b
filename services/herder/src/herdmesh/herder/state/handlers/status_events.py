"""Status watch events: units' statuses and workers' leases of the status store.

Owns how each event changes this herder's copy of them, and which connectors and units are reconciled again.

Invariant: only a leader reconciles connectors; a follower only stores the events, for the time when it leads.
"""

from __future__ import annotations

from typing import assert_never

from herdmesh.herder.state.memory import (
    HerderMemory,
    HerderRole,
    Inventory,
    Leadership,
)
from herdmesh.herder.state.model import StatusEntry
from herdmesh.herder.state.model import events as ev
from herdmesh.herder.state.units import handover
from herdmesh.session.model import UnitId

StatusEvent = ev.StatusSnapshot | ev.StatusPut | ev.StatusDeleted | ev.LeasesChanged


def handle(memory: HerderMemory, event: StatusEvent) -> None:
    """Apply an event of the status watch; on a leader, mark the connectors that it concerns for reconciliation."""
    match event:
        case ev.StatusSnapshot():
            names = memory.stores.replace_statuses(event.statuses)
            memory.agenda.place_all()
            if memory.leadership.role is HerderRole.LEADING:
                for name in sorted(names):
                    memory.inventory.connector(name).committed = None
                    memory.agenda.touch(name)
        case ev.StatusPut(status=status):
            before = memory.stores.put_status(status)
            _status_changed(memory.leadership, memory.inventory, status.unit, before, status)
        case ev.StatusDeleted(unit=unit):
            before = memory.stores.delete_status(unit)
            _status_changed(memory.leadership, memory.inventory, unit, before, None)
        case ev.LeasesChanged(leases=leases):
            if memory.stores.set_leases(leases) or memory.step.now < memory.leadership.adopting_until_ms:
                memory.agenda.place_all()
        case _:
            assert_never(event)


def _status_changed(
    leadership: Leadership, inventory: Inventory, unit: UnitId, before: StatusEntry | None, now: StatusEntry | None
) -> None:
    """The status of one unit changed."""
    if leadership.role is HerderRole.LEADING:
        inventory.connector(unit.connector)
        handover.commit_scope_changed(inventory, unit, before, now)
        inventory.agenda.touch_unit(unit)
