"""Draining: a worker that is to hold nothing, and may be stopped afterwards without anybody noticing.

Owns who drains, and the words for how far it is. Moving the units is placement's work (`placement.py`): a draining
worker takes nothing, and each unit leaves it as soon as somebody else can take it; what nobody else can take runs on.

A drain belongs to one life of a worker. The leader tells the worker, which says so in every later hello: so the next
leader knows it. What the worker has confirmed is recorded with the config store under the request's id before the
caller is told; every request with an id begins by asking for that record. So a retry is told by whoever leads that it
was done, also when the worker has left since, and drains neither what was undrained meanwhile nor a later life. That
holds as well when the record waited for the store until the life that confirmed it was over: the answer shows the
worker as it is now. A request that was not recorded is carried out when it comes again.

Invariant: what this leader was asked last about a life of a worker holds, whatever its next hello says.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from herdmesh.herder.state import abilities, commands, reign
from herdmesh.herder.state.events import WorkerHello
from herdmesh.herder.state.instructions import Ask, RecordDrain
from herdmesh.herder.state.mesh import Mesh
from herdmesh.herder.state.model import HELD_STATES
from herdmesh.herder.state.questions import SetDraining
from herdmesh.herder.state.records import Call, Member, Op, OpKind, Stage
from herdmesh.herder.state.requests import Draining, DrainWorker, UndrainWorker
from herdmesh.rpc.errors import NoWorker, WorkerNotFound

DEPARTED_MAX: Final = 100
#: a thousand restarts of workers under one leader.
LEFT_MAX: Final = 1_000


def begin(mesh: Mesh, call: Call, request: DrainWorker | UndrainWorker) -> None:
    """Begin or end a drain, or look whether that was done before. Raises as `tell` does."""
    if call.options.request_id:
        call.stage = Stage.LOOKING_BACK
        _record(mesh, call, request, retry_only=True)
    else:
        tell(mesh, call, request)


def tell(mesh: Mesh, call: Call, request: DrainWorker | UndrainWorker) -> None:
    """Tell the worker. The caller is answered when it has confirmed it: then the next leader hears of it too.

    Raises WorkerNotFound for a worker that is not there, NoWorker for one that cannot be told now.
    """
    member = mesh.members.get(request.worker_id)
    if member is None:
        _require_known(mesh, request.worker_id)
        raise WorkerNotFound(request.worker_id)
    if member.session is None:
        raise NoWorker(f"the stream of worker {member.worker_id} broke a moment ago; try again")
    member.drain_asked = isinstance(request, DrainWorker)
    member.draining = member.drain_asked or member.leaving
    mesh.unrest_ms = mesh.now
    mesh.place_again = True
    mesh.show_worker(member.worker_id)
    call.stage = Stage.DRAINING
    commands.ask(mesh, call, member, SetDraining(member.drain_asked))


def confirmed(mesh: Mesh, call: Call, request: DrainWorker | UndrainWorker) -> Draining | None:
    """The worker has taken note: the answer, or None while that is recorded."""
    if not call.options.request_id:
        return Draining(request.worker_id)
    call.stage = Stage.WRITING
    _record(mesh, call, request, retry_only=False)
    return None


def recorded(mesh: Mesh, request: DrainWorker | UndrainWorker) -> Draining:
    """The record is there, of now or of an earlier request of this id. Raises NoLeader or NotLeader when somebody else
    is to say how the worker is by now, and NoWorker while nobody can."""
    refused = reign.refusal(mesh)
    if refused is not None:
        raise refused
    worker_id = request.worker_id
    if worker_id not in mesh.members and worker_id not in mesh.departed:
        _require_known(mesh, worker_id)
        held = any(
            status.worker_id == worker_id and status.state in HELD_STATES
            for of_connector in mesh.statuses.values()
            for status in of_connector.values()
        )
        if isinstance(request, DrainWorker) and not held:
            _departs(mesh, Member(worker_id, "", "", 0, (), None, mesh.now, mesh.now, draining=True))
    return Draining(worker_id)


def greet(mesh: Mesh, member: Member, before: Member | None, hello: WorkerHello) -> None:
    """A worker said hello: go on with what was asked of this life of it; else with what it says itself."""
    if before is not None and before.incarnation == member.incarnation:
        member.drain_asked = before.drain_asked
    if hello.leaving or member.incarnation in mesh.left:
        leaves(mesh, member)
    member.draining = member.leaving or (hello.draining if member.drain_asked is None else member.drain_asked)


def leaves(mesh: Mesh, member: Member) -> None:
    """A worker stops for good: this life of it takes no work any more, however often it dials in."""
    if mesh.now >= mesh.leaving_until_ms:
        mesh.leaving_since_ms = mesh.now
    wait_ms = mesh.rules.leave_gather_ms
    mesh.leaving_until_ms = min(mesh.now + wait_ms, mesh.leaving_since_ms + 3 * wait_ms)
    member.leaving = member.draining = True
    mesh.left.pop(member.incarnation, None)
    mesh.left[member.incarnation] = None
    while len(mesh.left) > LEFT_MAX:
        del mesh.left[next(iter(mesh.left))]


def gathers_leavers(mesh: Mesh) -> bool:
    """True while more workers may say that they leave. What moved to one of them would start there in vain: until then
    units run on where they are. Over at once when nobody is left who takes work."""
    return mesh.now < mesh.leaving_until_ms and any(member.takes_work for member in mesh.members.values())


def gone(mesh: Mesh, member: Member, *, held_nothing: bool) -> None:
    """A life of a worker is over; `held_nothing` = nothing had to be taken from it."""
    if member.draining and held_nothing:
        _departs(mesh, member)


def remind(mesh: Mesh, member: Member, says_draining: bool) -> None:
    """After the welcome: tell a worker what it missed."""
    if member.drain_asked is not None and member.drain_asked is not says_draining:
        mesh.tell(member.worker_id, Ask("", SetDraining(member.drain_asked)))


def _record(mesh: Mesh, call: Call, request: DrainWorker | UndrainWorker, *, retry_only: bool) -> None:
    op, draining = mesh.op(Op(OpKind.CALL, call=call.id)), isinstance(request, DrainWorker)
    options = replace(call.options, retry_only=retry_only)
    mesh.out.append(RecordDrain(op, request.worker_id, draining, options))


def _require_known(mesh: Mesh, worker_id: str) -> None:
    """Raises NoWorker while it is not known whether a worker that did not dial in is there."""
    lease = mesh.leases.get(worker_id)
    if not mesh.leases_known or (lease is not None and lease.live):
        raise NoWorker(f"worker {worker_id} has not dialled in to this leader yet; try again")


def _departs(mesh: Mesh, member: Member) -> None:
    mesh.departed[member.worker_id] = member
    while len(mesh.departed) > DEPARTED_MAX:
        del mesh.departed[next(iter(mesh.departed))]


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
    return any(other.takes_work and abilities.runs(mesh, other, entry) for other in mesh.members.values())
