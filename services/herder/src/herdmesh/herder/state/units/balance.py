"""Balance: moves of running units from fuller workers to emptier ones, later, a few at a time, and only if that gains.

Owns when units move although they need not, which and how many; and the sentences about a pending balance. Does not own
moves that are necessary (the worker left, drains or lacks a plugin): `placement.py` makes those, and nothing here
delays them.

A move is a restart, so it waits until the mesh is calm: for `balance_delay_ms` loads were uneven, no worker joined,
left, broke its stream, drained or was undrained, and no unit was placed because of that; and no start or stop is under
way. Then units move in waves of at most `balance_moves_max`; the next wave is decided anew once all units of the last
one have started. A balance begins only if some worker would lose at least one unit and `balance_threshold_percent` of
its load. Once begun it continues until loads are as even as they can be, unless the mesh is no longer calm.

Invariant: no unit moves for balance that was placed less than `balance_delay_ms` ago.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from herdmesh.herder.state.leadership import leadership_queries
from herdmesh.herder.state.memory import (
    Agenda,
    Balance,
    Fleet,
    HerderMemory,
    Inventory,
    Member,
    Step,
    Unit,
)
from herdmesh.herder.state.units import handover, lifecycle, placement
from herdmesh.herder.state.units.assignment import Move, assign
from herdmesh.session.model import UnitId

#: between two checks of all units, and so at least between two waves.
CHECK_MS = 1_000
#: a start without a report for so long delays no balance: its unit may never come up.
STARTING_MS_MAX = 300_000


def tick(memory: HerderMemory) -> None:
    """Count the moves of a balance, and begin a wave of them when it is due."""
    pending = memory.balance
    if memory.step.now - pending.checked_ms < CHECK_MS or memory.agenda.has_dirty or memory.agenda.has_deferred:
        return
    if memory.agenda.has_places_to_find:
        return
    due = bool(pending.moves) and memory.step.rules.balance_enabled and _was_calm(memory)
    if not (pending.outdated or due):
        return
    pending.checked_ms = memory.step.now
    due = due and not in_flight(memory)
    if not (pending.outdated or due):
        return
    moves = _worthwhile(memory, spare_recent=due)
    if due and not moves:
        due, moves = False, _worthwhile(memory, spare_recent=False)  # recently placed units move later, if at all
    _note(memory.step, memory.agenda, memory.balance, moves)
    if not moves:
        pending.under_way = False
        return
    for move in moves[: memory.step.rules.balance_moves_max] if due else ():
        _begin(memory.fleet, memory.inventory, move)
        pending.under_way = True


def in_flight(memory: HerderMemory) -> int:
    """The number of units that are being stopped or started, or are about to be."""
    count = 0
    may_start = lifecycle.may_start(memory)
    for connector in memory.inventory.connectors.values():
        entry = connector.stored
        for unit in connector.units.values():
            hold = unit.placement
            if unit.superseded:
                count += 1
            elif hold is not None:
                count += hold.state is None and memory.step.now - hold.since_ms < STARTING_MS_MAX
            elif unit.destination is not None and entry is not None and may_start:
                count += lifecycle.ready_itself(memory, entry, unit)
    return count


def reason(memory: HerderMemory, member: Member) -> str:
    """Why a worker has more or fewer units than its share, and what happens next, in one line; empty when it has its
    share.
    """
    pending = memory.balance
    change = pending.changes.get(member.worker_id, 0)
    if not change:
        return ""
    count = abs(change)
    share = f"{count} unit{'s' if count > 1 else ''} {'fewer' if change > 0 else 'more'} than its share"
    if not memory.step.rules.balance_enabled:
        return f"{share}; balance is disabled (balance_enabled)"
    bound = f"at most {memory.step.rules.balance_moves_max} at a time"
    if pending.under_way:
        return f"{share}; balancing, {bound}: {pending.moves} to move"
    left_ms = _due_ms(memory.step, memory.fleet, memory.balance) - memory.step.now
    if left_ms > 0:
        return f"{share}; balanced, {bound}, once no worker or unit has changed for {-(-left_ms // 1000)} s more"
    if not _was_calm(memory):
        return f"{share}; balanced, {bound}, once no worker is waited for"
    return f"{share}; balanced, {bound}, once no start or stop is under way"


def _was_calm(memory: HerderMemory) -> bool:
    """True when no worker joined or left for the delay, and none is about to."""
    return (
        memory.step.now >= _due_ms(memory.step, memory.fleet, memory.balance)
        and not leadership_queries.adopting(memory)
        and not memory.fleet.awaits_return
        and all(member.session is not None for member in memory.fleet.members.values())
    )


def _due_ms(step: Step, fleet: Fleet, balance: Balance) -> int:
    """The end of the delay, which begins when a worker joins or leaves and when a unit should move."""
    since_ms = fleet.unrest_ms if balance.under_way else max(fleet.unrest_ms, balance.since_ms)
    return since_ms + step.rules.balance_delay_ms


def _worthwhile(memory: HerderMemory, *, spare_recent: bool) -> list[Move]:
    """All moves of a balance; none if it would gain too little to begin."""
    moves = _moves(memory, spare_recent=spare_recent)
    return moves if memory.balance.under_way or _gains(memory.step, memory.fleet, moves) else []


def _moves(memory: HerderMemory, *, spare_recent: bool) -> list[Move]:
    """The moves that would make loads as even as possible; `spare_recent` leaves recently placed units out."""
    workers = placement.taking_work(memory.fleet)
    found: list[Move] = []
    for round_ in placement.rounds(memory, workers):
        for _, unit in round_.free:
            # It may wait for long, for instance for the fence of its task set; running units do not make room for it.
            del round_.units[unit.id]
            round_.places.pop(unit.id, None)
        if spare_recent:
            for unit_id in round_.units:  # thousands in one step
                if _is_recent(memory.step, _unit(memory.inventory, unit_id)):
                    round_.units[unit_id] = round_.units[unit_id] & {round_.places[unit_id]}
        moves = assign(workers, round_.units, round_.places)
        found += [move for move in moves if move.source in workers and move.target is not None]
    return [move for move in found if _unit(memory.inventory, move.unit).placement is not None]


def _is_recent(step: Step, unit: Unit) -> bool:
    placed_ms = unit.placement.placed_ms if unit.placement is not None else None
    return placed_ms is not None and step.now - placed_ms < step.rules.balance_delay_ms


def _gains(step: Step, fleet: Fleet, moves: Sequence[Move]) -> bool:
    for is_task in (False, True):
        of_kind = [move for move in moves if (move.unit.task is not None) is is_task]
        for worker_id, change in _changes(of_kind).items():
            member = fleet.members.get(worker_id)
            load = sum((unit.task is not None) is is_task for unit in member.load) if member is not None else 0
            if change < 0 and -100 * change >= step.rules.balance_threshold_percent * load:
                return True
    return False


def _changes(moves: Sequence[Move]) -> Mapping[str, int]:
    changes = Counter[str]()
    for move in moves:
        assert move.source is not None
        assert move.target is not None
        changes[move.source] -= 1
        changes[move.target] += 1
    return changes


def _note(step: Step, agenda: Agenda, balance: Balance, moves: Sequence[Move]) -> None:
    pending = balance
    changes = {worker_id: change for worker_id, change in _changes(moves).items() if change}
    if moves and not pending.moves:
        pending.since_ms = step.now
    for worker_id in {*changes, *pending.changes}:
        agenda.show_worker(worker_id)
    pending.moves, pending.changes, pending.outdated = len(moves), changes, False


def _begin(fleet: Fleet, inventory: Inventory, move: Move) -> None:
    assert move.source is not None
    assert move.target is not None
    connector, unit = inventory.connectors[move.unit.connector], _unit(inventory, move.unit)
    because = f"worker {move.source} had more than its share"
    handover.stop(
        fleet,
        inventory,
        connector,
        unit,
        f"moves to {move.target} for balance",
        destination=move.target,
        because=because,
    )
    unit.balancing = True


def _unit(inventory: Inventory, unit_id: UnitId) -> Unit:
    return inventory.connectors[unit_id.connector].units[unit_id.task]
