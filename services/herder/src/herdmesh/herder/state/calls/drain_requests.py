"""Drain and undrain requests: `DrainWorker` and `UndrainWorker`, from the request to its answer.

Owns the steps of such a call: look up the record of an earlier request of the same id, send the worker the command,
record its confirmation, answer. Does not own which workers drain, nor the moves of units: `drains.py` and
`placement.py`.

The config store records the worker's confirmation under the request's id before the caller is answered, and every
request with an id first looks for that record. So a retry gets the first outcome from whichever herder leads, also when
the worker has left since. It drains neither a worker that was undrained meanwhile nor a later incarnation. That holds
as well when the record reached the store only after the incarnation that confirmed it had ended: the answer shows the
worker as it is now. A request that was not recorded is carried out when it is retried.

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
    """Starts and ends of drains."""

    request: DrainWorker | UndrainWorker
    #: False = the request ends a drain.
    drains: bool

    def begin(self, memory: HerderMemory, call: Call) -> Answer | None:
        """Start or end a drain; with a request id, look up an earlier request first. Raises as `_send_draining`."""
        if call.options.request_id:
            call.stage = CallStage.LOOKING_BACK
            self._record(memory, call, retry_only=True)
        else:
            self._send_draining(memory, call)
        return None

    def on_reply(self, memory: HerderMemory, call: Call, command: Command, reply: CommandReplied) -> Answer | None:
        """The worker confirmed: the answer, or None while the confirmation is being recorded."""
        if not call.options.request_id:
            return Draining(self.request.worker_id)
        call.stage = CallStage.WRITING
        self._record(memory, call, retry_only=False)
        return None

    def on_worker_lost(self, memory: HerderMemory, call: Call, command: Command) -> Answer | None:
        """Raises NoWorker: the caller's retry gets the state of the worker at that time."""
        raise NoWorker(f"worker {command.worker_id} disconnected before it acknowledged the drain; try again")

    def on_write_completed(self, memory: HerderMemory, call: Call, event: WriteDone) -> Answer | None:
        """The store has the record, of this or of an earlier request of the id. Raises NoLeader or NotLeader when
        another herder must answer, and NoWorker while the state of the worker is unknown.
        """
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
        """The drain was not recorded. If the store knows no earlier request of this id, carry it out. If the request id
        has expired, do nothing: the worker may have been undrained since.
        """
        if isinstance(error, StaleEpoch):
            return super().on_write_failed(memory, call, error)
        if call.stage is not CallStage.LOOKING_BACK or not isinstance(error, RequestIdUnknown):
            return error
        refused = leadership_queries.refusal(memory.step, memory.leadership)
        if refused is not None:
            return refused
        self._send_draining(memory, call)
        return None

    def _send_draining(self, memory: HerderMemory, call: Call) -> None:
        """Send the worker the command. The caller is answered after the worker's confirmation: from then on the next
        leader learns of the drain too.

        Raises WorkerNotFound for an unknown worker, NoWorker for one that cannot be reached now.
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
    """Raises NoWorker while it is unknown whether a worker that did not dial in exists."""
    lease = stores.leases.get(worker_id)
    if not stores.leases_known or (lease is not None and lease.live):
        raise NoWorker(f"worker {worker_id} has not dialled in to this leader yet; try again")
