"""Placement: stops and starts that bring units to the workers that `assign` chooses.

Owns which workers and units take part, and turning moves into stops and starts. Does not own the choice of workers
(`assignment.py`).

Workers with an open stream that are not draining take part. A worker whose stream broke a moment ago is left out with
all its units until it returns or is lost: its units do not move, and no other unit gets its share. A worker that
returns gets back the units that no other worker took. New and lost units go to the emptiest worker. A unit that a
worker holds is never moved here for balance: that comes later (`balance.py`).

Invariant: no unit is moved unless it must be (its worker leaves, drains or lacks a plugin); and no unit is stopped to
be moved while no other worker can run it, unless its worker leaves for good.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from herdmesh.herder.state.memory import (
    Connector,
    Fleet,
    HerderMemory,
    Inventory,
    Unit,
)
from herdmesh.herder.state.model import ConnectorEntry
from herdmesh.herder.state.units import handover, lifecycle
from herdmesh.herder.state.units.assignment import Move, assign
from herdmesh.herder.state.workers import drains, plugin_eligibility
from herdmesh.session.model import UnitId

#: moves begun and units started in one step; the rest follow in the next, decided anew.
CHANGES_MAX = 100


@dataclass(slots=True)
class Round:
    """The units of one kind (connectors, or tasks) that take part in one call of `assign`."""

    units: dict[UnitId, frozenset[str]] = field(default_factory=dict[UnitId, frozenset[str]])
    places: dict[UnitId, str] = field(default_factory=dict[UnitId, str])
    free: list[tuple[Connector, Unit]] = field(default_factory=list[tuple[Connector, Unit]])
    """Units without a worker."""


def place(memory: HerderMemory) -> None:
    """Choose a worker for every unit that needs one, and begin the moves and starts."""
    workers = taking_work(memory.fleet)
    connectors, tasks = rounds(memory, workers)
    memory.balance.outdated = True
    left = CHANGES_MAX
    for round_ in (connectors, tasks):
        moves = assign(workers, round_.units, round_.places, rebalance=False, moves_max=CHANGES_MAX)
        if sum(move.target is not None for move in moves) == CHANGES_MAX:
            memory.agenda.place_all()  # there may be more
        for move in moves:
            connector = memory.inventory.connectors[move.unit.connector]
            unit = connector.units[move.unit.task]
            if unit.placement is None:
                unit.destination = move.target
            elif left > 0:
                left -= _stop_to_move(memory.fleet, memory.inventory, move, connector, unit)
            else:
                memory.agenda.place_all()
    may_start = lifecycle.may_start(memory)
    for round_ in (connectors, tasks):
        for connector, unit in round_.free:
            entry = connector.stored
            if unit.destination is None:
                place = round_.places.get(unit.id, "")
                unit.destination = place if place in round_.units[unit.id] else None
            if not may_start or unit.destination is None or entry is None:
                continue
            if not lifecycle.ready_itself(memory, entry, unit):
                continue
            if left == 0:
                memory.agenda.place_all()
                return
            left -= 1
            if not lifecycle.start_at_destination(memory, connector, unit):
                return


def place_some(memory: HerderMemory, names: Collection[str]) -> None:
    """Choose a worker for the units of these connectors that need one, while nothing else changed.

    Each goes to the emptiest worker, as with `assign`, so that the loads stay as even as they were. Requests `place` if
    that need not hold: workers differ in their plugins, or an awaited worker has returned.
    """
    takers = {member.worker_id: member for member in memory.fleet.members.values() if member.takes_work}
    alike = next(iter(takers.values()), None)
    if alike is None:
        return
    if not all(member.has_same_plugins(alike) for member in takers.values()):
        memory.agenda.place_all()
        return
    loads = _loads(memory.inventory, takers)
    left = CHANGES_MAX
    for name in sorted(names):
        connector = memory.inventory.connectors.get(name)
        entry = connector.stored if connector is not None else None
        if connector is None or entry is None or not plugin_eligibility.runs(memory.fleet, alike, entry):
            continue
        for unit in sorted(connector.units.values(), key=lambda unit: unit.id.order):
            if not lifecycle.ready(memory, entry, unit):
                continue
            if unit.waits_for in takers:
                memory.agenda.place_all()
                return
            if left == 0:
                memory.agenda.place_units_of(name)
                continue
            left -= 1
            of_kind = loads[unit.id.task is None]
            if unit.destination not in takers:
                unit.destination = min(of_kind, key=lambda worker_id: (of_kind[worker_id], worker_id))
                of_kind[unit.destination] += 1
            if not lifecycle.start_at_destination(memory, connector, unit):
                return


def _loads(inventory: Inventory, takers: Collection[str]) -> tuple[dict[str, int], dict[str, int]]:
    """The numbers of tasks, and of connectors, that each of these workers has or will get."""
    tasks, connectors = dict.fromkeys(takers, 0), dict.fromkeys(takers, 0)
    for connector in inventory.connectors.values():
        for task, unit in connector.units.items():
            worker_id = unit.placement.worker_id if unit.placement is not None else unit.destination
            of_kind = connectors if task is None else tasks
            if worker_id in of_kind:
                of_kind[worker_id] += 1
    return tasks, connectors


def places(
    memory: HerderMemory,
    entry: ConnectorEntry,
    wanted: Collection[UnitId],
    begun: Mapping[UnitId, str | None] | None = None,
) -> dict[UnitId, str | None]:
    """The workers of the `wanted` units of a connector if `entry` were stored and nothing else happened (None = no
    worker), and the new workers of units of other connectors that would move for it. Changes nothing.

    `begun` is the result for an entry stored before this one: its units are assumed to be on those workers.
    """
    begun = begun or {}
    workers = taking_work(memory.fleet)
    kinds = rounds(memory, workers, without=entry.name)
    known = memory.inventory.connectors.get(entry.name)
    able = frozenset(worker for worker in workers if lifecycle.able(memory.fleet, entry, worker))
    away = {member.worker_id for member in memory.fleet.members.values() if member.session is None}
    mine = {unit_id: _place_now(known.units.get(unit_id.task)) if known is not None else None for unit_id in wanted}
    mine.update((unit_id, place) for unit_id, place in begun.items() if unit_id in mine)
    for unit_id, place in mine.items():
        if place in away:
            continue  # its worker may return in a moment; until then the unit is left there
        round_ = kinds[0] if unit_id.task is None else kinds[1]
        round_.units[unit_id] = able
        if place is not None:
            round_.places[unit_id] = place
    found = {unit_id: place if place in able or place in away else None for unit_id, place in mine.items()}
    for round_ in kinds:
        moved = {unit_id: place for unit_id, place in begun.items() if unit_id in round_.units and place is not None}
        round_.places.update(moved)
        found.update(moved)
        if _have_same_plugins(memory.fleet):
            # Like `place_some`: one after the other to the emptiest worker, and no other unit moves for it.
            load = Counter(round_.places.values())
            for unit_id in sorted((one for one in mine if one in round_.units), key=lambda one: one.order):
                if able and found[unit_id] is None:
                    emptiest = min(able, key=lambda worker_id: (load[worker_id], worker_id))
                    found[unit_id] = round_.places[unit_id] = emptiest
                    load[emptiest] += 1
        for move in assign(workers, round_.units, round_.places, rebalance=False):
            if move.unit in mine or move.source is not None:
                found[move.unit] = move.target
    return found


def _have_same_plugins(fleet: Fleet) -> bool:
    """True when all workers that take work can run the same units."""
    takers = [member for member in fleet.members.values() if member.takes_work]
    return all(member.has_same_plugins(takers[0]) for member in takers)


def _place_now(unit: Unit | None) -> str | None:
    """The worker that holds a unit, is to get it, or is waited for."""
    if unit is None:
        return None
    return unit.placement.worker_id if unit.placement is not None else unit.destination or unit.waits_for or None


def taking_work(fleet: Fleet) -> list[str]:
    """The workers that can be given units now."""
    return [member.worker_id for member in fleet.members.values() if member.takes_work]


def rounds(memory: HerderMemory, workers: list[str], without: str = "") -> tuple[Round, Round]:
    """The connectors and the tasks that take part; `without` leaves one connector out."""
    listening = {member.worker_id for member in memory.fleet.members.values() if member.session is not None}
    connectors, tasks = Round(), Round()
    able: dict[tuple[plugin_eligibility.Named, ...], frozenset[str]] = {}
    if drains.gathers_leavers(memory.fleet):
        listening.difference_update(member.worker_id for member in memory.fleet.members.values() if member.leaving)
    may_start = lifecycle.may_start(memory)
    for connector in memory.inventory.connectors.values():
        entry = connector.stored
        if entry is None or connector.name == without:
            continue
        needs = plugin_eligibility.needs_of(connector, entry)
        if needs not in able:
            able[needs] = frozenset(worker for worker in workers if lifecycle.able(memory.fleet, entry, worker))
        workers_able = able[needs]
        for task, unit in connector.units.items():  # thousands in one step
            round_ = connectors if task is None else tasks
            if unit.placement is not None:
                place_now = unit.placement.worker_id
                if place_now not in listening:
                    continue
            elif _needs_worker(memory, entry, unit, may_start=may_start):
                place_now = _place_now(unit)
                round_.free.append((connector, unit))
            else:
                continue
            unit_id = unit.id
            round_.units[unit_id] = workers_able
            if place_now is not None:
                round_.places[unit_id] = place_now
    return connectors, tasks


def _needs_worker(memory: HerderMemory, entry: ConnectorEntry, unit: Unit, *, may_start: bool) -> bool:
    """False for an unheld unit whose worker must not be decided now: it is not wanted, or waits for its set, for its
    old worker, or for its backoff; it gets a worker when it may start. `may_start`: the result of
    `lifecycle.may_start`.
    """
    if unit.destination is not None or unit.superseded:
        return handover.is_wanted(entry, unit.id)
    return may_start and lifecycle.ready_itself(memory, entry, unit)


def _stop_to_move(fleet: Fleet, inventory: Inventory, move: Move, connector: Connector, unit: Unit) -> bool:
    """Stop a held unit that is to move; False when it runs on, because no other worker can run it."""
    assert unit.placement is not None
    if move.target is not None:
        because = _why_moved(fleet, connector, unit.placement.worker_id)
        handover.stop(
            fleet, inventory, connector, unit, f"moves to {move.target}", destination=move.target, because=because
        )
    elif fleet.members[unit.placement.worker_id].leaving:
        handover.stop(fleet, inventory, connector, unit, "its worker leaves and no other can take it")
    else:
        return False
    return True


def _why_moved(fleet: Fleet, connector: Connector, source: str) -> str:
    member, entry = fleet.members[source], connector.stored
    if member.leaving:
        return f"worker {source} left"
    if member.draining:
        return f"worker {source} drains"
    if entry is not None and not lifecycle.able(fleet, entry, source):
        return f"worker {source} has not all plugins of its config"
    return f"worker {source} cannot run it any more"
