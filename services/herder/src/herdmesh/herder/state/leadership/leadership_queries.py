"""What can be told of the current reign: whether this herder serves, and whom it still waits for.

Owns these questions, and reads only; `leadership_changes.py` makes a reign begin and end.
"""

from __future__ import annotations

from herdmesh.herder.state.memory import Mesh, Role
from herdmesh.herder.state.model import HELD_STATES, UnitId
from herdmesh.rpc.errors import HerdmeshError, NoLeader, NotLeader


def refusal(mesh: Mesh) -> HerdmeshError | None:
    """Why this herder does not serve now; None when it leads."""
    if mesh.role is Role.LEADING:
        return None
    if mesh.role is Role.CATCHING_UP:
        return NoLeader("this herder was just elected and still reads the config store; try again")
    if mesh.leader_address and mesh.leader_id != mesh.rules.herder_id:
        return NotLeader(mesh.leader_address)
    return NoLeader("no herder leads at the moment; try again")


def adopting(mesh: Mesh) -> bool:
    """True while workers of the leader before us may still dial in with what they run."""
    if not (mesh.statuses_known and mesh.leases_known):
        return True
    if mesh.now >= mesh.adopting_until_ms:
        return False
    return any(lease.live and lease.worker_id not in mesh.members for lease in mesh.leases.values())


def gathering(mesh: Mesh) -> bool:
    """True while workers that live are about to dial in to a new leader: what the first one was given would move to the
    others a moment later. They have as long as one whose stream broke, from when they miss a leader that froze."""
    return mesh.now < mesh.gathering_until_ms and adopting(mesh)


def assembling(mesh: Mesh) -> bool:
    """True while nothing runs anywhere and more workers may join behind the first."""
    return mesh.now < mesh.assembling_until_ms


def kept_for(mesh: Mesh, unit: UnitId) -> bool:
    """True when a worker with a live lease last reported that it has the unit, and may yet dial in with it. A lease
    table that calls somebody dead who talks to us was not written for a while: it says nothing of the others either."""
    if mesh.now >= mesh.adopting_until_ms:
        return False
    status = mesh.status_of(unit)
    if status is None or status.state not in HELD_STATES or status.worker_id in mesh.members:
        return False
    return mesh.lease_lives(status.worker_id, status.worker_incarnation) or any(
        member.session is not None
        and (lease := mesh.leases.get(member.worker_id)) is not None
        and not lease.live
        and lease.incarnation == member.incarnation
        for member in mesh.members.values()
    )
