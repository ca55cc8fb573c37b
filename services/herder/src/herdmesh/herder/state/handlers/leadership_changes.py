"""Changes of leadership: this herder is granted an epoch, begins to lead, and stops leading.

Owns the role and the epoch. Does not own what a leader does, nor when more generations are asked for
(`generations.py`): a leader that gets none gives its epoch up here.

Invariants: nothing is decided before the config watch has come to where the epoch was granted; nothing is sent at or
after the moment the lease ends by our own clock; generations of one epoch are given out once, in order, even when the
same epoch is granted a second time after a fail-over of the config store.
"""

from __future__ import annotations

from herdmesh.herder.state.calls import calls
from herdmesh.herder.state.leadership.generations import RESERVE_MS, raise_limit
from herdmesh.herder.state.leadership.leadership_queries import refusal
from herdmesh.herder.state.memory import Mesh, Role
from herdmesh.herder.state.model.events import GenerationsReserved, LeadershipFollowing, LeadershipGranted
from herdmesh.herder.state.model.instructions import CloseSession, RenewEpoch, RoleChanged
from herdmesh.rpc.errors import NoLeader

#: A leader whose last word is so old has lost its epoch (the config store's `election.LEASE_MS`).
EPOCH_LEASE_MS = 4_000


def granted(mesh: Mesh, event: LeadershipGranted) -> None:
    """An epoch is ours. The same epoch again goes on where it stood."""
    if mesh.role is Role.LEADING and event.epoch == mesh.epoch:
        mesh.lease_until_ms = event.lease_until_ms
        raise_limit(mesh, event.generation_limit)
        return
    if mesh.role is not Role.FOLLOWING:
        step_down(mesh, "a newer epoch was granted")
    if event.epoch != mesh.epoch:
        mesh.next_generation = event.generation_first
    mesh.epoch = event.epoch
    mesh.generation_limit = event.generation_limit
    mesh.reserve_above, mesh.used_up_ms = 0, None
    mesh.lease_until_ms = event.lease_until_ms
    mesh.leader_id = event.leader_id
    mesh.leader_address = event.leader_address
    mesh.role = Role.CATCHING_UP
    yield_to_newer(mesh)
    lead_when_caught_up(mesh)


def lead_when_caught_up(mesh: Mesh) -> None:
    """Begin to lead once the configs are those of the epoch's own time or later."""
    if mesh.role is not Role.CATCHING_UP or mesh.epoch_seen < mesh.epoch or mesh.parked:
        return
    mesh.role = Role.LEADING
    mesh.adopting_until_ms = mesh.now + mesh.rules.session_timeout_ms
    # A leader that stood still loses its epoch before its workers miss it: they have the difference, too.
    unnoticed_ms = max(0, mesh.rules.session_timeout_ms - EPOCH_LEASE_MS)
    mesh.gathering_until_ms = mesh.now + mesh.rules.stream_grace_ms + unnoticed_ms
    mesh.heartbeat_ms = mesh.now
    for name in sorted({*mesh.entries, *mesh.statuses}):
        connector = mesh.connector(name)
        record = connector.entry.task_count_record if connector.entry is not None else None
        # Whoever ran these for the leader before us, or was started by it after its time, may do so still.
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


def yield_to_newer(mesh: Mesh) -> None:
    """End a reign that is over by the config topic's own word, whatever our clock says of the lease: the machine may
    have slept. So nobody acts on what was written after the epoch of the next leader."""
    if mesh.role is not Role.FOLLOWING and mesh.epoch_seen > mesh.epoch:
        # Told to the store as well: one that confirmed the old epoch for ever would keep everybody from leading.
        mesh.out.append(RenewEpoch(mesh.epoch, give_up=True))
        step_down(mesh, f"epoch {mesh.epoch_seen} was granted")


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


def reserved(mesh: Mesh, event: GenerationsReserved) -> None:
    """There are more generations."""
    if mesh.role is not Role.FOLLOWING and event.epoch == mesh.epoch:
        raise_limit(mesh, event.generation_limit)


def give_up_used_up(mesh: Mesh) -> None:
    """Stop leading and ask for a new epoch when units have waited too long for generations."""
    if mesh.used_up_ms is not None and mesh.now - mesh.used_up_ms >= RESERVE_MS:
        mesh.out.append(RenewEpoch(mesh.epoch, give_up=True))
        step_down(mesh, "its generations are used up, and the config store reserved no more")
