"""Memory: everything that a herder remembers, in parts that own their invariants.

Owns the records of workers, units, connectors and calls (`entities`), the trace contexts (`traces`), and the parts:
the event being handled (`step`), the marks for reconciliation (`agenda`), role and epoch (`leadership`), the copies of
the stores (`store_views`), workers (`fleet`), connectors and the placements of their units (`inventory`), calls, writes
and commands under way (`call_table`), the session key (`session_key_state`); `herder_memory` joins them. Owns no
decision: those are in the rooms above, whose functions take the parts that they change.
"""

from herdmesh.herder.state.memory.agenda import Agenda
from herdmesh.herder.state.memory.call_table import CallTable
from herdmesh.herder.state.memory.entities import (
    Balance,
    Call,
    CallStage,
    Command,
    Connector,
    Generate,
    Member,
    Op,
    OpKind,
    Placement,
    Unit,
    has,
)
from herdmesh.herder.state.memory.fleet import Fleet
from herdmesh.herder.state.memory.herder_memory import HerderMemory, new_memory
from herdmesh.herder.state.memory.inventory import Inventory
from herdmesh.herder.state.memory.leadership import HerderRole, Leadership
from herdmesh.herder.state.memory.session_key_state import SessionKeyState
from herdmesh.herder.state.memory.step import Step
from herdmesh.herder.state.memory.store_views import StoreViews

__all__ = [
    "Agenda",
    "Balance",
    "Call",
    "CallStage",
    "CallTable",
    "Command",
    "Connector",
    "Fleet",
    "Generate",
    "HerderMemory",
    "HerderRole",
    "Inventory",
    "Leadership",
    "Member",
    "Op",
    "OpKind",
    "Placement",
    "SessionKeyState",
    "Step",
    "StoreViews",
    "Unit",
    "has",
    "new_memory",
]
