"""Write results: the outcome of each write that this herder requested from a store.

Owns finding the origin of the write: a call, a connector's task set, its statuses, or the session key.

Invariant: the result of a write of an earlier leadership changes nothing, unless a call waits for it.
"""

from __future__ import annotations

from herdmesh.herder.state.calls import calls
from herdmesh.herder.state.leadership import session_keys
from herdmesh.herder.state.memory import (
    HerderMemory,
    OpKind,
)
from herdmesh.herder.state.model import events as ev
from herdmesh.herder.state.units import leader_statuses, lifecycle, task_sets


def handle(memory: HerderMemory, event: ev.WriteDone | ev.WriteFailed) -> None:
    """Pass the result of a write to its origin."""
    op = memory.call_table.take_op(event.op)
    if op is None:
        return  # of an earlier leadership
    if op.kind is OpKind.CALL:
        if isinstance(event, ev.WriteDone):
            calls.on_write_completed(memory, op.call, event)
        else:
            calls.on_write_failed(memory, op.call, event.error)
        return
    if op.kind is OpKind.SESSION_KEY:
        if isinstance(event, ev.WriteDone):
            session_keys.on_write_completed(memory.session_key, event.revision)
        else:
            session_keys.on_write_failed(memory.step, memory.session_key)
        return
    connector = memory.inventory.connectors.get(op.connector)
    if connector is None:
        return
    if op.kind is OpKind.STATUS:
        error = event.error if isinstance(event, ev.WriteFailed) else None
        leader_statuses.on_write_completed(memory.step, memory.agenda, connector, event.op, op, error)
    elif op.kind is OpKind.CLEAN:
        lifecycle.cleaned(memory.step, memory.agenda, connector)
    elif isinstance(event, ev.WriteDone):
        task_sets.on_write_completed(memory.agenda, connector, event.revision)
    else:
        task_sets.on_write_failed(memory.step, memory.agenda, connector, op.kind, event.error)
