"""The generations that the leader still has: blocks of numbers that order assignments, reserved by the config store.

Owns when the next block is asked for, and whether a unit may be started now. Does not own the epoch: a leader that gets
no block gives its epoch up (`leadership_changes.give_up_used_up`).

The config store reserves a block with the epoch and more on request. The next one is asked for while there are some
left, so that nobody waits for it; where starts are faster than the store, units wait for it a moment.

Invariant: the generations of one epoch are given out once, in order.
"""

from __future__ import annotations

from herdmesh.herder.state.memory import Mesh
from herdmesh.herder.state.model.instructions import ReserveGenerations

#: With no more generations than this left, the next block is asked for: half a block, as one step may start 400 units.
RESERVE_AT = 500
#: How long units wait for a block before the epoch is given up: a store that cannot write this is not heard for longer.
RESERVE_MS = 2_000


def generations_left(mesh: Mesh) -> bool:
    """True when a unit may be started now. Otherwise it waits: every unit is placed anew once there are more."""
    if mesh.next_generation < mesh.generation_limit:
        return True
    mesh.used_up_ms = mesh.now if mesh.used_up_ms is None else mesh.used_up_ms
    reserve_ahead(mesh)
    return False


def reserve_ahead(mesh: Mesh) -> None:
    """Ask for the next block when little is left of this one."""
    if mesh.generation_limit - mesh.next_generation <= RESERVE_AT and mesh.reserve_above != mesh.generation_limit:
        mesh.reserve_above = mesh.generation_limit
        mesh.out.append(ReserveGenerations(mesh.epoch, mesh.generation_limit))


def raise_limit(mesh: Mesh, limit: int) -> None:
    if limit > mesh.generation_limit:
        mesh.generation_limit = limit
        mesh.place_again = mesh.place_again or mesh.used_up_ms is not None
        mesh.used_up_ms = None
