"""Draining: a worker that is to hold nothing, and may be stopped afterwards without anybody noticing.

Owns who drains, and the words for how far it is. Moving the units is placement's work (`placement.py`): a draining
worker takes nothing, and each unit leaves it as soon as somebody else can take it; what nobody else can take runs on.

A drain belongs to one life of a worker. The leader tells the worker, which says so in every later hello: so the next
leader knows it, though nothing is stored.

Invariant: what this leader was asked last about a life of a worker holds, whatever its next hello says.
"""

from __future__ import annotations

from herdmesh.herder.state.instructions import SetDraining
from herdmesh.herder.state.mesh import Mesh
from herdmesh.herder.state.records import Member
from herdmesh.rpc.errors import WorkerNotFound


def ask(mesh: Mesh, worker_id: str, draining: bool) -> None:
    """Begin or end a drain; either may be asked again. Raises WorkerNotFound for a worker that is not there."""
    member = mesh.members.get(worker_id)
    if member is None:
        raise WorkerNotFound(worker_id)
    member.drain_asked = draining
    member.draining = draining or member.leaving
    mesh.tell(worker_id, SetDraining(draining))
    mesh.place_again = True
    mesh.show_worker(worker_id)


def greet(mesh: Mesh, member: Member, before: Member | None, says_draining: bool) -> None:
    """A worker said hello: go on with what was asked of this life of it; else with what it says itself."""
    if before is not None and before.incarnation == member.incarnation:
        member.drain_asked = before.drain_asked
        member.leaving = before.leaving
    member.draining = member.leaving or (says_draining if member.drain_asked is None else member.drain_asked)


def remind(mesh: Mesh, member: Member, says_draining: bool) -> None:
    """After the welcome: tell a worker what it missed."""
    if member.drain_asked is not None and member.drain_asked is not says_draining:
        mesh.tell(member.worker_id, SetDraining(member.drain_asked))


def reason(mesh: Mesh, member: Member) -> str:
    """Why a worker is not simply CONNECTED, in one line; empty when it is."""
    if member.session is None:
        left_ms = max(0, (member.broken_ms or mesh.now) + mesh.rules.stream_grace_ms - mesh.now)
        seconds = -(-left_ms // 1000)
        return f"its stream broke; its units go elsewhere unless it dials in again within {seconds} s"
    if not member.draining:
        return ""
    if not member.load:
        return "it leaves and holds nothing more" if member.leaving else "drained: `herd undrain` gives it work again"
    count = len(member.load)
    text = f"{'it leaves' if member.leaving else 'it drains'}: {count} unit{'s' if count > 1 else ''} to move"
    stuck = sum(1 for unit in member.load if not _has_other_place(mesh, unit.connector))
    return f"{text}, of which {stuck} can run on no other worker" if stuck else text


def _has_other_place(mesh: Mesh, name: str) -> bool:
    entry = mesh.entries.get(name)
    if entry is None:
        return True  # it is being stopped for good
    return any(other.takes_work and other.has_plugin(entry.plugin) for other in mesh.members.values())
