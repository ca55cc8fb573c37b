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

from dataclasses import dataclass, replace

from herdmesh.herder.state.calls.handler import RequestHandler
from herdmesh.herder.state.leadership import leadership_queries
from herdmesh.herder.state.memory import (
    Call,
    CallStage,
    Command,
    HerderMemory,
    Member,
    Op,
    OpKind,
    StoreViews,
)
from herdmesh.herder.state.model import HELD_STATES
from herdmesh.herder.state.model.events import CommandReplied, WriteDone
from herdmesh.herder.state.model.instructions import RecordDrain
from herdmesh.herder.state.model.requests import Answer, Draining, DrainWorker, UndrainWorker
from herdmesh.herder.state.workers import commands
from herdmesh.rpc.errors import HerdmeshError, NoWorker, RequestIdUnknown, StaleEpoch, WorkerNotFound
from herdmesh.session.worker_commands import SetDraining


@dataclass(frozen=True)
class DrainHandler(RequestHandler):
    """Drains of a worker, and their ends."""

    request: DrainWorker | UndrainWorker
    #: False = the request ends a drain.
    drains: bool

    def begin(self, memory: HerderMemory, call: Call) -> Answer | None:
        """Begin or end a drain, or look whether that was done before. Raises as `_tell_worker`."""
        if call.options.request_id:
            call.stage = CallStage.LOOKING_BACK
            self._record(memory, call, retry_only=True)
        else:
            self._tell_worker(memory, call)
        return None

    def on_reply(self, memory: HerderMemory, call: Call, command: Command, reply: CommandReplied) -> Answer | None:
        """The worker has confirmed: the answer, or None while that is recorded."""
        if not call.options.request_id:
            return Draining(self.request.worker_id)
        call.stage = CallStage.WRITING
        self._record(memory, call, retry_only=False)
        return None

    def on_worker_lost(self, memory: HerderMemory, call: Call, command: Command) -> Answer | None:
        """Raises NoWorker: the caller asks again, and gets the state of the worker by then."""
        raise NoWorker(f"worker {command.worker_id} disconnected before it acknowledged the drain; try again")

    def on_write_completed(self, memory: HerderMemory, call: Call, event: WriteDone) -> Answer | None:
        """The record is there, of now or of an earlier request of this id. Raises NoLeader or NotLeader when another
        herder is to say how the worker is by now, and NoWorker while nobody can."""
        refused = leadership_queries.refusal(memory.step, memory.leadership)
        if refused is not None:
            raise refused
        worker_id = self.request.worker_id
        if worker_id not in memory.fleet.members and worker_id not in memory.fleet.departed:
            _require_known(memory.stores, worker_id)
            held = any(
                status.worker_id == worker_id and status.state in HELD_STATES
                for of_connector in memory.stores.statuses.values()
                for status in of_connector.values()
            )
            if self.drains and not held:
                member = Member(worker_id, "", "", 0, (), None, memory.step.now, memory.step.now, draining=True)
                memory.fleet.add_departed(member)
        return Draining(worker_id)

    def on_write_failed(self, memory: HerderMemory, call: Call, error: HerdmeshError) -> Answer | HerdmeshError | None:
        """The drain was not recorded. Where an earlier request of this id was looked up and never made, it is carried
        out. If the request id has expired, nothing is done: the worker may have been undrained since."""
        if isinstance(error, StaleEpoch):
            return super().on_write_failed(memory, call, error)
        if call.stage is not CallStage.LOOKING_BACK or not isinstance(error, RequestIdUnknown):
            return error
        refused = leadership_queries.refusal(memory.step, memory.leadership)
        if refused is not None:
            return refused
        self._tell_worker(memory, call)
        return None

    def _tell_worker(self, memory: HerderMemory, call: Call) -> None:
        """Tell the worker. The caller is answered when it has confirmed: then the next leader learns of it too.

        Raises WorkerNotFound for a worker that is not there, NoWorker for one that cannot be reached now.
        """
        member = memory.fleet.members.get(self.request.worker_id)
        if member is None:
            _require_known(memory.stores, self.request.worker_id)
            raise WorkerNotFound(self.request.worker_id)
        if member.session is None:
            raise NoWorker(f"the stream of worker {member.worker_id} broke a moment ago; try again")
        member.drain_requested = self.drains
        member.draining = member.drain_requested or member.leaving
        memory.fleet.note_unrest()
        memory.agenda.place_all()
        memory.agenda.show_worker(member.worker_id)
        call.stage = CallStage.DRAINING
        commands.send_command(
            memory.step, memory.fleet, memory.call_table, call, member, SetDraining(member.drain_requested)
        )

    def _record(self, memory: HerderMemory, call: Call, *, retry_only: bool) -> None:
        op = memory.call_table.op(Op(OpKind.CALL, call=call.id))
        options = replace(call.options, retry_only=retry_only)
        memory.step.emit(RecordDrain(op, self.request.worker_id, self.drains, options))


def _require_known(stores: StoreViews, worker_id: str) -> None:
    """Raises NoWorker while it is not known whether a worker that did not dial in is there."""
    lease = stores.leases.get(worker_id)
    if not stores.leases_known or (lease is not None and lease.live):
        raise NoWorker(f"worker {worker_id} has not dialled in to this leader yet; try again")
