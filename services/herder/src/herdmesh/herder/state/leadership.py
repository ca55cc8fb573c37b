"""Leading and following.

Owns the role, the epoch and its block of generations. Owns nothing of what a leader does.

Invariants: nothing is decided before the config watch has come to where the epoch was granted; nothing is sent at or
after the moment the lease ends by our own clock; generations of one epoch are given out once, in order, even when the
same epoch is granted a second time after a fail-over of the config store.
"""

from __future__ import annotations

from herdmesh.herder.state import calls
from herdmesh.herder.state.events import LeadershipFollowing, LeadershipGranted
from herdmesh.herder.state.instructions import CloseSession, RenewEpoch, RoleChanged
from herdmesh.herder.state.mesh import Mesh, Role
from herdmesh.herder.state.reign import refusal
from herdmesh.rpc.errors import NoLeader


def granted(mesh: Mesh, event: LeadershipGranted) -> None:
    """An epoch is ours. The same epoch again goes on where it stood."""
    if mesh.role is Role.LEADING and event.epoch == mesh.epoch:
        mesh.lease_until_ms = event.lease_until_ms
        return
    if mesh.role is not Role.FOLLOWING:
        step_down(mesh, "a newer epoch was granted")
    if event.epoch != mesh.epoch:
        mesh.next_generation = event.generation_first
    mesh.epoch = event.epoch
    mesh.generation_limit = event.generation_limit
    mesh.lease_until_ms = event.lease_until_ms
    mesh.leader_id = event.leader_id
    mesh.leader_address = event.leader_address
    mesh.role = Role.CATCHING_UP
    lead_when_caught_up(mesh)


def lead_when_caught_up(mesh: Mesh) -> None:
    """Begin to lead once the configs are those of the epoch's own time or later."""
    if mesh.role is not Role.CATCHING_UP or mesh.epoch_seen < mesh.epoch or mesh.parked:
        return
    mesh.role = Role.LEADING
    mesh.adopting_until_ms = mesh.now + mesh.rules.session_timeout_ms
    mesh.gathering_until_ms = mesh.now + mesh.rules.stream_grace_ms
    mesh.heartbeat_ms = mesh.now
    for name in sorted({*mesh.entries, *mesh.statuses}):
        connector = mesh.connector(name)
        record = connector.entry.task_count_record if connector.entry is not None else None
        # Whoever ran these for the leader before us may do so still; take-overs and fences take numbers off this set.
        connector.unfenced.update(range(record or 0))
        mesh.touch(name)
    mesh.place_again = True
    mesh.out.append(RoleChanged(None))


def following(mesh: Mesh, event: LeadershipFollowing) -> None:
    """Another herder leads."""
    if mesh.role is not Role.FOLLOWING:
        step_down(mesh, f"{event.leader_id} leads under epoch {event.epoch}")
    if (mesh.leader_id, mesh.leader_address) == (event.leader_id, event.leader_address):
        return  # told with every heartbeat
    mesh.leader_id = event.leader_id
    mesh.leader_address = event.leader_address
    mesh.out.append(RoleChanged(refusal(mesh)))


def step_down(mesh: Mesh, why: str) -> None:
    """Stop acting as leader at once: tell the callers and end the sessions. Tasks run on; their workers dial again."""
    if mesh.role is Role.FOLLOWING:
        return
    mesh.role = Role.FOLLOWING
    mesh.leader_id = mesh.leader_address = ""
    for session in mesh.sessions:
        mesh.out.append(CloseSession(session, NoLeader(f"this herder leads no longer: {why}")))
    calls.fail_unwritten(mesh, why)
    mesh.reset_reign()
    mesh.out.append(RoleChanged(refusal(mesh)))


def generations_left(mesh: Mesh) -> bool:
    """True when a unit may be started; asks for a new epoch, and stops leading, when the block is used up."""
    if mesh.next_generation < mesh.generation_limit:
        return True
    mesh.out.append(RenewEpoch(mesh.epoch, give_up=True))
    step_down(mesh, "its block of generations is used up")
    return False
