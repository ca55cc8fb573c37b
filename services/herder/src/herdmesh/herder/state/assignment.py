"""Which worker runs what: one pure function.

Owns the choice of places and nothing about how a unit gets there (stop, ack, start: `placement.py`). Connectors and
tasks are balanced by separate calls.

Promises (each a hypothesis property in tests/test_assignment.py), where every worker can take every unit:
- balanced: the fullest and the emptiest worker differ by at most one unit;
- fewest moves: no balanced result keeps more units in their places;
- deterministic: equal input gives an equal answer, whatever order dictionaries have.
Where plugins limit who can take what, no unit goes where it cannot run, and no chain of moves could lower the load of a
worker that is two or more above another (an optimal semi-matching: Harvey, Ladner, Lovasz, Tamir 2003).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from herdmesh.herder.state.model import UnitId

Group = frozenset[str]


@dataclass(frozen=True, slots=True)
class Move:
    """`unit` leaves `source` (None = was nowhere) for `target` (None = nobody can take it)."""

    unit: UnitId
    source: str | None
    target: str | None


def assign(
    workers: Collection[str],
    units: Mapping[UnitId, Collection[str]],
    previous: Mapping[UnitId, str],
    rebalance: bool = True,
) -> list[Move]:
    """The moves that lead from `previous` to a balanced placement of `units`, sorted by unit.

    `units` maps each unit to the workers that have its plugin; `previous` to where it is now. A unit whose worker is
    not among `workers` or lacks the plugin must move. With `rebalance` false only those and the new ones get a
    place, and nothing that can stay moves.
    """
    loads = _Loads(workers)
    usable = frozenset(workers)
    free: list[tuple[UnitId, Group]] = []
    for unit in sorted(units, key=lambda item: item.order):
        group = usable.intersection(units[unit])
        place = previous.get(unit)
        if place is not None and place in group:
            loads.put(unit, group, place)
        else:
            free.append((unit, group))
    for unit, group in free:
        if group:
            loads.put(unit, group, loads.emptiest(group))
    fresh = {unit for unit, _ in free}
    if rebalance:
        while loads.improve(fresh):
            pass
    places = dict(loads.places())
    return [
        Move(unit, previous.get(unit), places.get(unit))
        for unit in sorted(units, key=lambda item: item.order)
        if previous.get(unit) != places.get(unit)
    ]


class _Loads:
    """Who has what during one call. Units with the same possible workers are alike, so they are kept together."""

    def __init__(self, workers: Collection[str]) -> None:
        self._held: dict[str, dict[Group, list[UnitId]]] = {worker: {} for worker in sorted(workers)}
        self._count: dict[str, int] = dict.fromkeys(self._held, 0)

    def put(self, unit: UnitId, group: Group, worker: str) -> None:
        self._held[worker].setdefault(group, []).append(unit)
        self._count[worker] += 1

    def emptiest(self, group: Group) -> str:
        return min(group, key=lambda worker: (self._count[worker], worker))

    def places(self) -> Iterator[tuple[UnitId, str]]:
        for worker, groups in self._held.items():
            for units in groups.values():
                for unit in units:
                    yield unit, worker

    def improve(self, fresh: Collection[UnitId]) -> bool:
        """Lower the load of one worker by one, through as few moves as do it; False when no worker's can be."""
        for source in sorted(self._count, key=lambda worker: (-self._count[worker], worker)):
            path = self._path_down(source)
            if path:
                for giver, taker in reversed(path):
                    self._shift(giver, taker, fresh)
                return True
        return False

    def _path_down(self, source: str) -> list[tuple[str, str]]:
        """The shortest chain of moves from `source` to the emptiest worker that is at least two below it."""
        steps: dict[str, tuple[str, str]] = {}
        frontier = [source]
        while frontier:
            found: list[str] = []
            for giver in frontier:
                for taker in sorted(self._takers(giver)):
                    if taker != source and taker not in steps:
                        steps[taker] = (giver, taker)
                        found.append(taker)
            lower = [worker for worker in found if self._count[worker] <= self._count[source] - 2]
            if lower:
                return self._trace(steps, min(lower, key=lambda worker: (self._count[worker], worker)), source)
            frontier = found
        return []

    def _takers(self, giver: str) -> set[str]:
        return {taker for group, units in self._held[giver].items() if units for taker in group}

    def _trace(self, steps: Mapping[str, tuple[str, str]], last: str, source: str) -> list[tuple[str, str]]:
        path: list[tuple[str, str]] = []
        while last != source:
            path.append(steps[last])
            last = steps[last][0]
        path.reverse()
        return path

    def _shift(self, giver: str, taker: str, fresh: Collection[UnitId]) -> None:
        """Move one unit: one that has no place to lose if there is, else the last in order."""
        candidates = [(group, unit) for group, units in self._held[giver].items() if taker in group for unit in units]
        group, unit = max(candidates, key=lambda item: (item[1] in fresh, item[1].order))
        self._held[giver][group].remove(unit)
        self._count[giver] -= 1
        self.put(unit, group, taker)
