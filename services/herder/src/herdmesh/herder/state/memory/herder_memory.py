"""Herder memory: the parts of everything that a herder remembers, joined.

Owns nothing but the parts: each part owns its invariants, and a function takes the parts that it changes. Functions
that coordinate most of them take the whole.

Invariant: no part outlives the epoch except the copies of the stores, restarts that were begun, and the types of
connector classes (source or sink): a new leader starts from stores and hellos, and a former leader also from its own
restarts.
"""

from __future__ import annotations

from dataclasses import dataclass

from herdmesh.herder.state.memory.agenda import Agenda
from herdmesh.herder.state.memory.call_table import CallTable
from herdmesh.herder.state.memory.entities import Balance
from herdmesh.herder.state.memory.fleet import Fleet
from herdmesh.herder.state.memory.inventory import Inventory
from herdmesh.herder.state.memory.leadership import Leadership
from herdmesh.herder.state.memory.session_key_state import SessionKeyState
from herdmesh.herder.state.memory.step import Step
from herdmesh.herder.state.memory.store_views import StoreViews
from herdmesh.herder.state.model import Rules


@dataclass(frozen=True, slots=True)
class HerderMemory:
    """Memory of one herder process; only `machine.Herder` drives it."""

    step: Step
    agenda: Agenda
    leadership: Leadership
    stores: StoreViews
    fleet: Fleet
    inventory: Inventory
    call_table: CallTable
    balance: Balance
    session_key: SessionKeyState

    def end_leadership(self) -> None:
        """Forget everything that belongs to an epoch; calls whose write is under way are completed without one."""
        for worker_id in self.fleet.members:
            self.agenda.show_worker(worker_id)
        self.inventory.end_leadership()
        self.fleet.end_leadership()
        self.call_table.end_leadership()
        self.agenda.end_leadership()
        self.balance.end_leadership()
        self.leadership.end_leadership()
        self.session_key.end_leadership()


def new_memory(rules: Rules) -> HerderMemory:
    """The memory of a new herder."""
    step = Step(rules)
    agenda, leadership, balance = Agenda(step), Leadership(step), Balance()
    stores, fleet = StoreViews(), Fleet(step, leadership)
    inventory = Inventory(step, agenda, stores, fleet, balance)
    return HerderMemory(step, agenda, leadership, stores, fleet, inventory, CallTable(), balance, SessionKeyState())
