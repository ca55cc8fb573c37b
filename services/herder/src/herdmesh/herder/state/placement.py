"""Bringing units to the places `assign` chooses.

Owns which workers and units take part, and turning moves into stops and starts. The choice itself is `assignment.py`.

Who takes part: workers with an open stream that are not draining. A worker whose stream broke a moment ago is left out
with everything it holds until it returns or is lost: neither its units nor its place are given away. While workers of
the leader before may still dial in, nothing that runs is moved for balance alone: what is missing may be with them.

Invariant: nothing is moved unless it must be (its worker drains or lacks the plugin) or balance needs it.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from herdmesh.herder.state import holds, lifecycle, reign
from herdmesh.herder.state.assignment import assign
from herdmesh.herder.state.mesh import Mesh, Role
from herdmesh.herder.state.model import UnitId
from herdmesh.herder.state.records import Connector, Unit


@dataclass(slots=True)
class _Round:
    """The units of one kind (connectors, or tasks) that take part in one call of `assign`."""

    units: dict[UnitId, frozenset[str]] = field(default_factory=dict[UnitId, frozenset[str]])
    places: dict[UnitId, str] = field(default_factory=dict[UnitId, str])
    records: dict[UnitId, tuple[Connector, Unit]] = field(default_factory=dict[UnitId, tuple[Connector, Unit]])


def place(mesh: Mesh) -> None:
    """Give every unit that needs one a place, and balance."""
    workers = [member.worker_id for member in mesh.members.values() if member.takes_work]
    connectors, tasks = _Round(), _Round()
    able: dict[str, frozenset[str]] = {}
    for connector in mesh.connectors.values():
        entry = connector.stored
        if entry is None:
            continue
        class_name = entry.class_name
        if class_name not in able:
            able[class_name] = frozenset(worker for worker in workers if lifecycle.able(mesh, entry, worker))
        for unit in connector.units.values():
            _enter(mesh, connector, unit, able[class_name], connectors if unit.id.task is None else tasks)
    rebalance = not reign.adopting(mesh)
    for round_ in (connectors, tasks):
        for move in assign(workers, round_.units, round_.places, rebalance):
            connector, unit = round_.records[move.unit]
            if unit.hold is not None:
                reason = f"moves to {move.target}" if move.target else "its worker drains and no other can take it"
                holds.stop(mesh, connector, unit, reason, destination=move.target)
            else:
                unit.destination = move.target
    for round_ in (connectors, tasks):
        for connector, unit in round_.records.values():
            entry = connector.stored
            if unit.destination is None or entry is None or not lifecycle.ready(mesh, entry, unit):
                continue
            lifecycle.start_at_destination(mesh, connector, entry, unit)
            if mesh.role is not Role.LEADING:
                return


def _enter(mesh: Mesh, connector: Connector, unit: Unit, able: frozenset[str], round_: _Round) -> None:
    """Let the unit take part, unless its place must not be decided now."""
    entry = connector.stored
    assert entry is not None
    place = unit.destination
    if unit.hold is not None:
        member = mesh.members.get(unit.hold.worker_id)
        if member is None or member.session is None:
            return
        place = unit.hold.worker_id
    elif not holds.wanted(entry, unit.id):
        return
    elif place is None and not unit.strays and not lifecycle.ready(mesh, entry, unit):
        return  # waits for its set, for its old worker, or for its backoff; it gets a place when it may start
    round_.units[unit.id] = able
    round_.records[unit.id] = (connector, unit)
    if place is not None:
        round_.places[unit.id] = place
