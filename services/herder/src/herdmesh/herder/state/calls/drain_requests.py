"""Drain and undrain requests: `DrainWorker` and `UndrainWorker`, from the request to its answer.

Owns the steps of such a call: look for the record of an earlier request of the same id, tell the worker, record what it
has confirmed, answer. Does not own who drains, nor moving the units: `drains.py` and `placement.py`.

The worker's confirmation is recorded with the config store under the request's id before the caller is answered; every
request with an id begins by asking for that record. So a retry gets the first outcome from whichever herder leads, also
when the worker has left since, and drains neither what was undrained meanwhile nor a later life of the worker. That
holds as well when the record reached the store only after the life that confirmed it had ended: the answer shows the
worker as it is now. A request that was not recorded is carried out when it comes again.

Invariant: a caller with a request id is answered only after the config store has the record.
"""

from __future__ import annotations

from dataclasses import replace

from herdmesh.herder.state.leadership import leadership_queries
from herdmesh.herder.state.memory import Call, Member, Mesh, Op, OpKind, Stage
from herdmesh.herder.state.model import HELD_STATES
from herdmesh.herder.state.model.instructions import RecordDrain
from herdmesh.herder.state.model.questions import SetDraining
from herdmesh.herder.state.model.requests import Draining, DrainWorker, UndrainWorker
from herdmesh.herder.state.workers import commands, drains
from herdmesh.rpc.errors import NoWorker, WorkerNotFound


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
    refused = leadership_queries.refusal(mesh)
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
            drains.add_departed(mesh, Member(worker_id, "", "", 0, (), None, mesh.now, mesh.now, draining=True))
    return Draining(worker_id)


def _record(mesh: Mesh, call: Call, request: DrainWorker | UndrainWorker, *, retry_only: bool) -> None:
    op, draining = mesh.op(Op(OpKind.CALL, call=call.id)), isinstance(request, DrainWorker)
    options = replace(call.options, retry_only=retry_only)
    mesh.out.append(RecordDrain(op, request.worker_id, draining, options))


def _require_known(mesh: Mesh, worker_id: str) -> None:
    """Raises NoWorker while it is not known whether a worker that did not dial in is there."""
    lease = mesh.leases.get(worker_id)
    if not mesh.leases_known or (lease is not None and lease.live):
        raise NoWorker(f"worker {worker_id} has not dialled in to this leader yet; try again")
