"""Draining: a worker that is to hold nothing, and may be stopped afterwards without anybody noticing.

Owns who drains, and the words for how far it is. Moving the units is placement's work (`placement.py`): a draining
worker takes nothing, and each unit leaves it as soon as somebody else can take it; what nobody else can take runs on.

A drain belongs to one life of a worker. The leader tells the worker, which says so in every later hello, with the ids
of the last requests: so the next leader knows it, and a retry from anew, though nothing is stored. Of a worker that is
gone the leader of that time alone remembers what it confirmed: a retry is told so, and drains no later life.

Invariant: what this leader was asked last about a life of a worker holds, whatever its next hello says.
"""

from __future__ import annotations

from typing import Final

from herdmesh.herder.state import commands
from herdmesh.herder.state.events import WorkerHello
from herdmesh.herder.state.instructions import Ask
from herdmesh.herder.state.mesh import Mesh
from herdmesh.herder.state.questions import SetDraining
from herdmesh.herder.state.records import Call, Member, Stage
from herdmesh.herder.state.requests import Draining, DrainWorker, UndrainWorker
from herdmesh.rpc.errors import NoWorker, WorkerNotFound

#: As many as a worker remembers (`worker.state.machine`).
REQUESTS_MAX: Final = 16
DEPARTED_MAX: Final = 100
OUTCOMES_MAX: Final = 1_000


def begin(mesh: Mesh, call: Call, request: DrainWorker | UndrainWorker) -> Draining | None:
    """Begin or end a drain. It is answered when the worker has confirmed it: then the next leader hears of it too.

    A request that this life of the worker was told before is only waited for, and changes nothing anew. Raises
    WorkerNotFound for a worker that is not there, NoWorker for one that cannot be told now.
    """
    member, request_id = mesh.members.get(request.worker_id), call.options.request_id
    if mesh.drain_outcomes.get(request_id) == request.worker_id:
        return Draining(request.worker_id)
    if member is None:
        lease = mesh.leases.get(request.worker_id)
        if not mesh.leases_known or (lease is not None and lease.live):
            raise NoWorker(f"worker {request.worker_id} has not dialled in to this leader yet; try again")
        raise WorkerNotFound(request.worker_id)
    if member.drain_requests.get(request_id):
        return Draining(member.worker_id)
    if member.session is None:
        raise NoWorker(f"the stream of worker {member.worker_id} broke a moment ago; try again")
    if request_id not in member.drain_requests:
        member.drain_asked = isinstance(request, DrainWorker)
        member.draining = member.drain_asked or member.leaving
        mesh.place_again = True
        mesh.show_worker(member.worker_id)
        _remember(member, request_id, confirmed=False)
    call.stage = Stage.DRAINING
    commands.ask(mesh, call, member, SetDraining(bool(member.drain_asked), request_id))
    return None


def confirmed(mesh: Mesh, call: Call, worker_id: str) -> Draining:
    """The worker has taken note."""
    member = mesh.members.get(worker_id)
    if member is not None:
        _remember(member, call.options.request_id, confirmed=True)
    return Draining(worker_id)


def greet(mesh: Mesh, member: Member, before: Member | None, hello: WorkerHello) -> None:
    """A worker said hello: go on with what was asked of this life of it; else with what it says itself."""
    if before is not None and before.incarnation == member.incarnation:
        member.drain_asked = before.drain_asked
        member.leaving = before.leaving
        member.drain_requests = before.drain_requests
    member.draining = member.leaving or (hello.draining if member.drain_asked is None else member.drain_asked)
    for request_id in hello.drain_request_ids:
        _remember(member, request_id, confirmed=True)


def gone(mesh: Mesh, member: Member, *, held_nothing: bool) -> None:
    """A life of a worker is over; `held_nothing` = nothing had to be taken from it."""
    outcomes, departed = mesh.drain_outcomes, mesh.departed
    outcomes.update((request_id, member.worker_id) for request_id, known in member.drain_requests.items() if known)
    while len(outcomes) > OUTCOMES_MAX:
        del outcomes[next(iter(outcomes))]
    if member.draining and held_nothing:
        departed[member.worker_id] = member
        while len(departed) > DEPARTED_MAX:
            del departed[next(iter(departed))]


def remind(mesh: Mesh, member: Member, says_draining: bool) -> None:
    """After the welcome: tell a worker what it missed."""
    if member.drain_asked is not None and member.drain_asked is not says_draining:
        mesh.tell(member.worker_id, Ask("", SetDraining(member.drain_asked)))


def _remember(member: Member, request_id: str, *, confirmed: bool) -> None:
    if request_id:
        member.drain_requests[request_id] = confirmed
        while len(member.drain_requests) > REQUESTS_MAX:
            del member.drain_requests[next(iter(member.drain_requests))]


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
