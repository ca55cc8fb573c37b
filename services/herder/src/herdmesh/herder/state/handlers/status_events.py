"""Status watch events: units' statuses and workers' leases that the status store has.

Owns how each changes what this herder has stored of them, and which connectors and units are looked at again.

Invariant: only a leader looks at connectors; a follower stores what it reads, for the day that it leads.
"""

from __future__ import annotations

from typing import assert_never

from herdmesh.herder.state.memory import Mesh, Role
from herdmesh.herder.state.model import StatusEntry, UnitId
from herdmesh.herder.state.model import events as ev
from herdmesh.herder.state.units import holds

StatusEvent = ev.StatusSnapshot | ev.StatusPut | ev.StatusDeleted | ev.LeasesChanged


def handle(mesh: Mesh, event: StatusEvent) -> None:
    """Apply what the status watch brought; on a leader, look again at the connectors it concerns."""
    match event:
        case ev.StatusSnapshot():
            names = set(mesh.statuses)
            mesh.statuses.clear()
            for status in event.statuses:
                mesh.statuses.setdefault(status.unit.connector, {})[status.unit.task] = status
            mesh.statuses_known = True
            names.update(mesh.statuses)
        case ev.StatusPut(status=status):
            of_connector = mesh.statuses.setdefault(status.unit.connector, {})
            before, of_connector[status.unit.task] = of_connector.get(status.unit.task), status
            _status_changed(mesh, status.unit, before, status)
            return
        case ev.StatusDeleted(unit=unit):
            of_connector = mesh.statuses.get(unit.connector, {})
            before = of_connector.pop(unit.task, None)
            if not of_connector:
                mesh.statuses.pop(unit.connector, None)
            _status_changed(mesh, unit, before, None)
            return
        case ev.LeasesChanged(leases=leases):
            mesh.leases = {lease.worker_id: lease for lease in leases}
            first, mesh.leases_known = not mesh.leases_known, True
            mesh.place_again = mesh.place_again or first or mesh.now < mesh.adopting_until_ms
            names = set[str]()
        case _:
            assert_never(event)
    if isinstance(event, ev.StatusSnapshot):
        mesh.place_again = True
    if mesh.role is Role.LEADING:
        for name in sorted(names):
            mesh.connector(name).committed = None
            mesh.touch(name)


def _status_changed(mesh: Mesh, unit: UnitId, before: StatusEntry | None, now: StatusEntry | None) -> None:
    """The status of one unit changed."""
    if mesh.role is Role.LEADING:
        mesh.connector(unit.connector)
        holds.scope_told(mesh, unit, before, now)
        mesh.touch_unit(unit)
