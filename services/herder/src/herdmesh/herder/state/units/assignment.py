"""Assignment: one pure function that chooses which worker runs which unit.

Owns the choice of workers. Does not own the steps that bring a unit there: stop, acknowledge, start (`placement.py`).
Connectors and tasks are balanced by separate calls.

Promises (each is a hypothesis property in tests/units/test_assignment.py, the second also against brute force):
- balanced: no other placement is more even; where every worker can run every unit, the fullest and the emptiest
  differ by at most one. Where plugins limit which worker can run what: an optimal semi-matching (Harvey, Ladner,
  Lovasz, Tamir 2003);
- fewest moves: no placement as even as this one keeps more units in their places;
- deterministic: equal input gives an equal answer, whatever order dictionaries have;
- eligible: no unit goes to a worker that cannot run it.

How: units that the same workers can run are alike, so only their numbers per worker matter. A placement is a flow with
convex costs (a worker's n-th unit costs 2n - 1, and a move a little), and a flow is cheapest when no cycle of changes
has a negative cost (Klein 1967). So: level greedily, many units at a time, then cancel the remaining cycles.
"""

from __future__ import annotations

import heapq
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from operator import attrgetter
from typing import cast

from herdmesh.session.model import UnitId

#: costs of a change: first the change of the sum of squared loads, then the number of moves.
_Cost = tuple[int, int]
_FREE: _Cost = (0, 0)
_ORDER = attrgetter("order")


@dataclass(frozen=True, slots=True)
class Move:
    """`unit` leaves `source` (None = it has no worker) for `target` (None = no worker can run it)."""

    unit: UnitId
    source: str | None
    target: str | None


def assign(
    workers: Collection[str],
    units: Mapping[UnitId, Collection[str]],
    previous: Mapping[UnitId, str],
    rebalance: bool = True,
    moves_max: int | None = None,
) -> list[Move]:
    """The moves that lead from `previous` to a balanced placement of `units`, sorted by unit.

    `units` maps each unit to the workers that have its plugin; `previous` to its current worker. A unit whose worker is
    not among `workers` or lacks the plugin must move. With `rebalance` false only those and the new ones get a worker,
    and no unit that can stay moves. `moves_max` limits the moves that have a target; a second call from the resulting
    placement finds the rest, and just as many. Takes O(units + moves x log workers + workers^3).
    """
    loads = _Loads(sorted(workers), _groups(workers, units, previous))
    loads.place_homeless()
    if rebalance:
        while loads.level() or loads.cancel():
            pass
    found: list[tuple[UnitId, str]] = []
    moves: list[Move] = []
    for group in loads.groups:
        pool, targets = group.pool(), group.targets(moves_max)
        found += zip(pool, targets, strict=False)
        moves += (Move(unit, previous[unit], None) for unit in pool[group.room() :] if unit in previous)
    found.sort(key=lambda one: one[0].order)
    moves += (Move(unit, previous.get(unit), target) for unit, target in found[:moves_max])
    return sorted(moves, key=lambda move: move.unit.order)


@dataclass(slots=True)
class _Group:
    """Units that the same workers can run: which worker has each, which units have none, and each worker's quota."""

    able: tuple[str, ...]
    held: dict[str, list[UnitId]]
    homeless: list[UnitId] = field(default_factory=list[UnitId])
    count: dict[str, int] = field(default_factory=dict[str, int])

    def extra(self, worker: str) -> int:
        """Units that the worker lacks to its quota."""
        return self.count[worker] - len(self.held[worker])

    def pool(self) -> list[UnitId]:
        """The units that change their worker, and those that get none, in order."""
        pool = list(self.homeless)
        for worker in self.able:
            surplus = -self.extra(worker)
            if surplus > 0:
                pool += sorted(self.held[worker], key=_ORDER)[-surplus:]
        return sorted(pool, key=_ORDER)

    def room(self) -> int:
        """The number of units of the pool, from its start, that get a worker."""
        return sum(max(0, self.extra(worker)) for worker in self.able)

    def targets(self, count_max: int | None) -> Iterator[str]:
        """Targets of the first units of the pool: each goes to the worker that needs most of the remaining ones."""
        takers = [(-extra, worker) for worker in self.able if (extra := self.extra(worker)) > 0]
        heapq.heapify(takers)
        left = self.room() if count_max is None else count_max
        while takers and left > 0:
            left -= 1
            needs, worker = takers[0]
            if needs < -1:
                heapq.heapreplace(takers, (needs + 1, worker))
            else:
                heapq.heappop(takers)
            yield worker


def _groups(
    workers: Collection[str], units: Mapping[UnitId, Collection[str]], previous: Mapping[UnitId, str]
) -> list[_Group]:
    usable = frozenset(workers)
    by_given: dict[int, _Group] = {}
    by_able: dict[frozenset[str], _Group] = {}
    place_of = previous.get
    last: Collection[str] | None = None
    homeless: list[UnitId] = []
    held_by: Mapping[str | None, list[UnitId]] = {}
    for unit, given in units.items():  # thousands in one step
        if given is not last:
            last, group = given, by_given.get(id(given))
            if group is None:
                able = usable.intersection(given)
                group = by_able.get(able)
                if group is None:
                    group = by_able[able] = _Group(tuple(sorted(able)), {worker: [] for worker in able})
                by_given[id(given)] = group
            homeless, held_by = group.homeless, cast("Mapping[str | None, list[UnitId]]", group.held)
        held_by.get(place_of(unit), homeless).append(unit)
    return [by_able[able] for able in sorted(by_able, key=sorted)]


class _Loads:
    """Quotas of each group on each worker, during one call."""

    def __init__(self, workers: list[str], groups: list[_Group]) -> None:
        self.groups = groups
        self._load = dict.fromkeys(workers, 0)
        for group in groups:
            for worker in group.able:
                group.count[worker] = len(group.held[worker])
                self._load[worker] += group.count[worker]

    def place_homeless(self) -> None:
        """Put each on the emptiest worker that can run it; the units with the fewest able workers first."""
        for group in sorted(self.groups, key=lambda group: (len(group.able), group.able)):
            emptiest = [(self._load[worker], worker) for worker in group.able]
            heapq.heapify(emptiest)
            for _ in group.homeless if emptiest else ():
                load, worker = emptiest[0]
                heapq.heapreplace(emptiest, (load + 1, worker))
                group.count[worker] += 1
                self._load[worker] += 1

    def level(self) -> bool:
        """Lower one worker's load along a shortest chain of moves to one that is two or more below it; False when
        no such pair exists.
        """
        for source in sorted(self._load, key=lambda worker: (-self._load[worker], worker)):
            chain = self._chain_down(source)
            if chain:
                unit_count = (self._load[source] - self._load[chain[-1][1]]) // 2
                self._shift(chain, min(unit_count, *(group.count[giver] for giver, _, group in chain)))
                return True
        return False

    def _chain_down(self, source: str) -> list[tuple[str, str, _Group]]:
        steps: dict[str, tuple[str, str, _Group]] = {}
        frontier = [source]
        while frontier:
            found: list[str] = []
            for giver in frontier:
                for group in self.groups:
                    if not group.count.get(giver):
                        continue
                    for taker in group.able:
                        if taker != source and taker not in steps:
                            steps[taker] = (giver, taker, group)
                            found.append(taker)
            lower = [worker for worker in found if self._load[worker] <= self._load[source] - 2]
            if lower:
                return _trace(steps, min(lower, key=lambda worker: (self._load[worker], worker)), source)
            frontier = found
        return []

    def cancel(self) -> bool:
        """Make one change that keeps the loads as even and saves a move; False when none exists.

        Bellman-Ford over the workers and one extra node, "a load of no worker": an edge from it to a worker means that
        the worker's load falls, an edge to it that the load rises. A cycle through it swaps two neighbouring loads.
        """
        edges = list(self._edges())
        cost: dict[str, _Cost] = dict.fromkeys([*self._load, ""], _FREE)
        steps: dict[str, tuple[str, str, _Group | None]] = {}
        for _ in range(len(cost)):
            changed = ""
            last: str | None = None
            for giver, taker, group, (evenness, moves) in edges:
                reached = (cost[giver][0] + evenness, cost[giver][1] + moves)
                if reached < cost[taker]:
                    cost[taker], steps[taker] = reached, (giver, taker, group)
                    last = changed = taker
            if last is None:
                return False
            cycle = _cycle(steps, changed)
            if cycle:
                chain = [(giver, taker, group) for giver, taker, group in cycle if group is not None]
                # Through the extra node each further unit costs more; around workers only, shift as many as save a
                # move.
                self._shift(chain, 1 if len(chain) < len(cycle) else min(map(_saving, chain)))
                return True
        return False

    def _edges(self) -> Iterator[tuple[str, str, _Group | None, _Cost]]:
        for worker, load in self._load.items():
            yield worker, "", None, (2 * load + 1, 0)
            if load:
                yield "", worker, None, (1 - 2 * load, 0)
        cheapest: dict[tuple[str, str], tuple[int, _Group]] = {}
        for group in self.groups:
            gives = [(giver, -1 if group.extra(giver) > 0 else 0) for giver in group.able if group.count[giver]]
            takes = [(taker, 1 if group.extra(taker) >= 0 else 0) for taker in group.able]
            for giver, saved in gives:
                for taker, moved in takes:
                    known = cheapest.get((giver, taker))
                    if taker != giver and (known is None or saved + moved < known[0]):
                        cheapest[giver, taker] = (saved + moved, group)
        for (giver, taker), (moves, group) in cheapest.items():
            yield giver, taker, group, (0, moves)

    def _shift(self, chain: list[tuple[str, str, _Group]], unit_count: int) -> None:
        for giver, taker, group in chain:
            group.count[giver] -= unit_count
            group.count[taker] += unit_count
            self._load[giver] -= unit_count
            self._load[taker] += unit_count


def _saving(step: tuple[str, str, _Group]) -> int:
    """The number of units that can take this step at the cost of the first one."""
    giver, taker, group = step
    to_spare = group.extra(giver) if group.extra(giver) > 0 else group.count[giver]
    return min(to_spare, -group.extra(taker)) if group.extra(taker) < 0 else to_spare


def _trace(steps: Mapping[str, tuple[str, str, _Group]], last: str, source: str) -> list[tuple[str, str, _Group]]:
    path: list[tuple[str, str, _Group]] = []
    while last != source:
        path.append(steps[last])
        last = steps[last][0]
    path.reverse()
    return path


def _cycle(steps: Mapping[str, tuple[str, str, _Group | None]], start: str) -> list[tuple[str, str, _Group | None]]:
    """The cycle that the steps back from `start` run into; empty when they end."""
    seen: set[str] = set()
    node = start
    while node in steps and node not in seen:
        seen.add(node)
        node = steps[node][0]
    if node not in steps:
        return []
    cycle, first = [steps[node]], node
    while cycle[-1][0] != first:
        cycle.append(steps[cycle[-1][0]])
    cycle.reverse()
    return cycle
