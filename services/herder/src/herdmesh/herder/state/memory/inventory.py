"""Inventory part of a herder's memory: connectors, their units, and which worker holds each.

Owns the records and every change of placements. Does not own the wanted state (`units.lifecycle`), nor the choice of
workers (`units.placement`).

Invariant: a member's `load` always equals the placements of the units: every placement begins and ends through `take`,
`supersede` and `drop`.
"""

from __future__ import annotations

from collections.abc import Mapping

from herdmesh.herder.state.memory.agenda import Agenda
from herdmesh.herder.state.memory.entities import Balance, Connector, Placement, Unit
from herdmesh.herder.state.memory.fleet import Fleet
from herdmesh.herder.state.memory.step import Step
from herdmesh.herder.state.memory.store_views import StoreViews
from herdmesh.herder.state.memory.traces import Traces
from herdmesh.herder.state.model.restart_policy import RestartHistory
from herdmesh.session.model import UnitId


class Inventory:
    """Inventory of one herder."""

    def __init__(self, step: Step, agenda: Agenda, stores: StoreViews, fleet: Fleet, balance: Balance) -> None:
        self._step = step
        #: gets the marks for changes made here.
        self.agenda = agenda
        self._stores = stores
        self._fleet = fleet
        self._balance = balance
        self._connectors: dict[str, Connector] = {}
        #: by name, stored connectors, and deleted ones that are still winding down.
        self.connectors: Mapping[str, Connector] = self._connectors
        self.traces = Traces()
        #: of units that this herder restarted during an earlier leadership, until it has read their statuses since.
        self._histories_before: dict[UnitId, RestartHistory] = {}

    def end_leadership(self) -> None:
        """Forget all connectors, except the restarts that were begun."""
        for name, connector in self._connectors.items():
            self.agenda.show(name)
            for unit in connector.units.values():
                if unit.history is not None and unit.history.attempts_ms:
                    self._histories_before[unit.id] = unit.history
        self._connectors.clear()

    # --- connectors

    def connector(self, name: str) -> Connector:
        """The record, created when missing."""
        found = self._connectors.get(name)
        if found is None:
            found = self._connectors[name] = Connector(name, self._stores.entries.get(name))
        return found

    def remove(self, name: str) -> None:
        """Remove a deleted connector that has wound down."""
        del self._connectors[name]

    # --- restart histories of an earlier leadership

    def forget_histories(self, connector: str) -> None:
        """A connector was deleted or stopped: when created again or resumed, it has a new restart history."""
        if self._histories_before:
            kept = {unit: one for unit, one in self._histories_before.items() if unit.connector != connector}
            self._histories_before = kept

    def take_history_before(self, unit: UnitId) -> RestartHistory | None:
        """Take out the restart history of a unit from an earlier leadership of this herder."""
        return self._histories_before.pop(unit, None)

    # --- placements: every change goes through here, so that a member's load always equals the placements

    def take(self, unit: Unit, hold: Placement) -> None:
        """`hold` becomes the unit's one placement."""
        assert unit.placement is None, f"{unit.id} is held already"
        unit.placement = hold
        unit.newest_generation = max(unit.newest_generation, hold.assignment.generation)
        unit.destination = None
        unit.last_worker_id = hold.worker_id
        unit.idle_since_ms = None
        unit.waits_for = ""
        self._load(unit.id, hold.worker_id, +1)

    def supersede(self, unit: Unit, hold: Placement) -> None:
        """`hold` is one more placement that must stop the unit."""
        hold.stop_sent_ms = self._step.now
        unit.superseded.append(hold)
        self._load(unit.id, hold.worker_id, +1)
        self.agenda.wake_unit(unit.id, self._step.now + self._step.rules.stop_timeout_ms)
        if unit.id.task is not None:
            self._connectors[unit.id.connector].superseded_tasks += 1

    def drop(self, unit: Unit, hold: Placement) -> None:
        """`hold` has ended."""
        if unit.placement is hold:
            unit.placement = None
            unit.progress = unit.wait = None
        else:
            unit.superseded.remove(hold)
            if unit.id.task is not None:
                self._connectors[unit.id.connector].superseded_tasks -= 1
        if unit.placement is None and not unit.superseded:
            unit.idle_since_ms = self._step.now
        self._load(unit.id, hold.worker_id, -1)

    def _load(self, unit: UnitId, worker_id: str, change: int) -> None:
        self._balance.outdated = True
        self.agenda.show(unit.connector)
        self.agenda.show_worker(worker_id)
        member = self._fleet.members.get(worker_id)
        if member is None:
            return
        count = member.load.get(unit, 0) + change
        if count:
            member.load[unit] = count
        else:
            del member.load[unit]
