"""Agenda: which connectors and units are to be reconciled, when, and which views have changed.

Owns the marks and the timers. Does not own the reconciliation (`units.lifecycle`, `units.placement`).

Invariant: only the function that reconciles takes a mark off; work that one step leaves over stays marked.
"""

from __future__ import annotations

import heapq
from collections.abc import Container

from herdmesh.herder.state.memory.step import Step
from herdmesh.herder.state.model.instructions import ViewsChanged
from herdmesh.session.model import UnitId

#: in place of a task's number among timers: the connector itself, and the connector with all its units.
_CONNECTOR, _WHOLE = -1, -2


class Agenda:
    """Agenda of one herder. Marks and timers end with the leadership; the marks of changed views do not."""

    def __init__(self, step: Step) -> None:
        self._step = step
        #: connectors to reconcile before this event ends, and which of their units; None = all of them.
        self._dirty: dict[str, set[int | None] | None] = {}
        #: units that are left for the next step, because this one has reached its limit.
        self._dirty_later: set[UnitId] = set()
        #: connectors that wait to read back their own write.
        self._waiting: set[str] = set()
        #: every unit is to be placed anew: workers, or the units that may run, changed.
        self._place_all = False
        #: connectors with units that need a place, while nothing else changed.
        self._place_names: set[str] = set()
        #: time, connector, and the number of the task, `_CONNECTOR` or `_WHOLE`.
        self._timers: list[tuple[int, str, int]] = []
        self._changed_connectors: set[str] = set()
        self._changed_workers: set[str] = set()

    def end_leadership(self) -> None:
        """Forget all marks and timers."""
        self._dirty.clear()
        self._dirty_later.clear()
        self._waiting.clear()
        self._timers.clear()
        self._place_all = False
        self._place_names.clear()

    # --- marks

    def touch(self, name: str) -> None:
        """A connector changed: reconcile all of it before this event ends."""
        self._dirty[name] = None
        self._changed_connectors.add(name)

    def touch_unit(self, unit: UnitId) -> None:
        """One unit changed: reconcile it, and the steps that its connector waits for, before this event ends. Marking
        the whole connector for a change of each of N tasks would take N x N checks.
        """
        tasks = self._dirty.setdefault(unit.connector, set())
        if tasks is not None:
            tasks.add(unit.task)
        self._changed_connectors.add(unit.connector)

    def touch_later(self, unit: UnitId) -> None:
        """Reconcile a unit in the next step, which follows at once."""
        self._dirty_later.add(unit)

    def touch_deferred(self) -> None:
        """A step begins: mark the units that the previous step left for it."""
        for unit in self._dirty_later:
            self.touch_unit(unit)
        self._dirty_later.clear()

    def take_dirty(self, count_max: int) -> list[tuple[str, set[int | None] | None]]:
        """The first marked connectors by name, at most `count_max`, and which of their units; their marks are taken
        off.
        """
        return [(name, self._dirty.pop(name)) for name in sorted(self._dirty)[:count_max]]

    @property
    def has_dirty(self) -> bool:
        """True while a connector is marked for this step."""
        return bool(self._dirty)

    @property
    def has_deferred(self) -> bool:
        """True while a unit is marked for the next step."""
        return bool(self._dirty_later)

    @property
    def is_empty(self) -> bool:
        """True when nothing is to be reconciled or placed before another event, or the next timer."""
        return not (self._dirty or self._dirty_later or self.has_places_to_find)

    # --- timers

    def wake(self, name: str, at_ms: int) -> None:
        """Reconcile a connector at `at_ms`."""
        heapq.heappush(self._timers, (at_ms, name, _WHOLE))

    def wake_unit(self, unit: UnitId, at_ms: int) -> None:
        """Reconcile one unit at `at_ms`."""
        order = _CONNECTOR if unit.task is None else unit.task
        heapq.heappush(self._timers, (at_ms, unit.connector, order))

    def touch_due(self, connectors: Container[str]) -> None:
        """Mark the units and connectors whose timer is due, of these connectors."""
        while self._timers and self._timers[0][0] <= self._step.now:
            _, name, order = heapq.heappop(self._timers)
            if name not in connectors:
                continue
            if order == _WHOLE:
                self.touch(name)
            else:
                self.touch_unit(UnitId(name, None if order == _CONNECTOR else order))

    # --- placement

    def place_all(self) -> None:
        """Place every unit anew once all marked connectors were reconciled."""
        self._place_all = True

    def place_units_of(self, name: str) -> None:
        """Place the units of a connector once all marked connectors were reconciled."""
        self._place_names.add(name)

    def take_place_all(self) -> bool:
        """True when every unit is to be placed anew; the mark is taken off, and those of single connectors with it."""
        if not self._place_all:
            return False
        self._place_all = False
        self._place_names.clear()
        return True

    def take_place_names(self) -> set[str]:
        """The connectors whose units need a place; their marks are taken off."""
        names, self._place_names = self._place_names, set()
        return names

    @property
    def has_places_to_find(self) -> bool:
        """True while any unit is to be placed."""
        return self._place_all or bool(self._place_names)

    # --- reading back

    def wait_for_watch(self, name: str) -> None:
        """A connector waits until the config watch has brought its own write."""
        self._waiting.add(name)

    def waiting_for_watch(self) -> list[str]:
        """The connectors that wait for the config watch."""
        return list(self._waiting)

    def stop_waiting(self, name: str) -> None:
        """A connector has read its write back: reconcile it."""
        self._waiting.discard(name)
        self.touch(name)

    # --- views

    def show(self, name: str) -> None:
        """Only the view of a connector changed."""
        self._changed_connectors.add(name)

    def show_worker(self, worker_id: str) -> None:
        """The view of a worker changed."""
        self._changed_workers.add(worker_id)

    def announce_views(self) -> None:
        """The event ends: announce the changed views to watchers."""
        if self._changed_connectors or self._changed_workers:
            self._step.emit(ViewsChanged(frozenset(self._changed_connectors), frozenset(self._changed_workers)))
            self._changed_connectors.clear()
            self._changed_workers.clear()
