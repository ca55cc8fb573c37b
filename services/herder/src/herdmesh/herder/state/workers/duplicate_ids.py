"""Duplicate worker ids: two living workers of one id, which of them is accepted, and the condition that shows it.

Owns that decision alone. A worker that is restarted under its id replaces its former incarnation, so the latest process
to dial in is taken for the only one. If the replaced process dials in again while the other's session is open, both
live: the replaced one is refused, or they would evict each other for ever, and each time with all units.

Invariant: a process that was replaced is accepted again only when no other holds a session under its id.
"""

from __future__ import annotations

from herdmesh.herder.state.memory import (
    Agenda,
    Member,
    Step,
)
from herdmesh.herder.state.model.events import WorkerHello
from herdmesh.rpc.errors import Superseded
from herdmesh.session.model import Condition

#: How long after its last attempt the refused process is shown; it dials at least every few seconds.
_SHOWN_MS = 60_000
#: Remembered incarnations of one id: a worker that crashes again and again must not fill the memory.
_REPLACED_MAX = 20


def refusal(step: Step, agenda: Agenda, before: Member | None, event: WorkerHello) -> Superseded | None:
    """The error with which this process is refused under its id; None when it is accepted."""
    if before is None or before.session is None or event.incarnation not in before.replaced:
        return None
    before.duplicate, before.duplicate_ms = event.address, step.now
    agenda.show_worker(before.worker_id)
    return Superseded(
        f"another process took over the worker id {before.worker_id} and is alive at {before.address}: set worker_id "
        "or "
        "advertised_address of one of the two to a unique value, and restart it"
    )


def replaced(before: Member | None, event: WorkerHello) -> tuple[str, ...]:
    """The incarnations of this id that the new one replaces, the latest last."""
    if before is None:
        return ()
    if before.incarnation == event.incarnation:
        return before.replaced
    return (*(one for one in before.replaced if one != event.incarnation), before.incarnation)[-_REPLACED_MAX:]


def conditions(step: Step, member: Member) -> tuple[Condition, ...]:
    """DUPLICATE_WORKER_ID for as long as another process keeps dialling under this worker's id."""
    if not member.duplicate or step.now - member.duplicate_ms > _SHOWN_MS:
        return ()
    told = (
        f"another process uses the id {member.worker_id} as well, at {member.duplicate}, and is refused: set worker_id "
        "or advertised_address of one of the two to a unique value, and restart it"
    )
    return (Condition("DUPLICATE_WORKER_ID", told, member.duplicate_ms),)
