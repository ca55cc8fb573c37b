"""Memory: everything that a herder remembers, and the few ways in which it changes.

Owns the records of workers, units, connectors and calls (`entities`), the trace contexts (`traces`), and the whole that
holds them (`herder_memory`). Owns no decision: those are in the rooms above.
"""

from herdmesh.herder.state.memory.entities import (
    Balance,
    Call,
    Command,
    Connector,
    Generate,
    Hold,
    Member,
    Op,
    OpKind,
    Stage,
    Unit,
    has,
)
from herdmesh.herder.state.memory.herder_memory import Mesh, Role

__all__ = [
    "Balance",
    "Call",
    "Command",
    "Connector",
    "Generate",
    "Hold",
    "Member",
    "Mesh",
    "Op",
    "OpKind",
    "Role",
    "Stage",
    "Unit",
    "has",
]
