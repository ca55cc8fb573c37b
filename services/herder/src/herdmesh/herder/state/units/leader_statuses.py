"""Leader statuses: the changes that the leader itself writes to units' statuses in the status store.

Owns the changes that no worker makes:
- FAILED, waiting for a restart: the worker's own record, its trace kept, with the condition RESTARTING ("3 of 10, next
  at ..."). Connect's readers see FAILED with its trace, as they know it; ours see when the restart comes.
- a restart under way: RESTARTING, the trace kept, until the worker reports the next start. Connect does so for
  requested restarts (docs/reference/connect/herder.md, section 4.4); here automatic restarts are shown in the same way.
- a connector that the leader judges FAILED though its worker runs it (too many tasks, `task_sets.py`).
- the restart history (condition RESTARTS) where a record has lost it.

Races: every change names the record that it overwrites. If a worker has written anything meanwhile, the store refuses
the change, the watch brings the worker's record, and the leader compares again. The change has the worker's name and
generation, so that the worker's next write meets no other process. So a late change never overwrites a worker's record.

Invariant: one write of a unit's status is under way at a time; the same change is not written over the same record
twice, unless it failed.
"""

from __future__ import annotations

from collections.abc import Iterable

from herdmesh.herder.state.memory import (
    Agenda,
    CallTable,
    Connector,
    Op,
    OpKind,
    Step,
    StoreViews,
    Unit,
)
from herdmesh.herder.state.model import ConnectorEntry, RestartNote
from herdmesh.herder.state.model.instructions import PutStatus, StatusChange
from herdmesh.herder.state.model.restart_policy import add_status, note_of, policy_of
from herdmesh.rpc.errors import HerdmeshError, RequestInvalid
from herdmesh.session.model import RunState

RETRY_MS = 1_000


def write_changes(
    step: Step, stores: StoreViews, call_table: CallTable, connector: Connector, units: Iterable[Unit]
) -> None:
    """Write the missing changes to the statuses of these units of a connector."""
    entry = connector.stored
    if entry is None:
        return
    changes: list[tuple[Unit, StatusChange]] = []
    for unit in units:
        if unit.status_op is not None or step.now < unit.status_ms:
            continue
        change = _change(step, stores, entry, unit)
        if change is None or change == unit.status_change:
            continue
        changes.append((unit, change))
    if not changes:
        return
    op = call_table.op(Op(OpKind.STATUS, connector.name, tasks=tuple(unit.id.task for unit, _ in changes)))
    for unit, change in changes:
        unit.status_op, unit.status_change = op, change
    step.emit(PutStatus(op, connector.name, tuple(change for _, change in changes)))


def on_write_completed(
    step: Step, agenda: Agenda, connector: Connector, number: int, op: Op, error: HerdmeshError | None
) -> None:
    """A write ended: each change was applied, or refused because a newer record is there. With `error` the outcome is
    unknown, and the write is retried after a moment, unless the store will always refuse it.
    """
    for task in op.tasks:
        unit = connector.units.get(task)
        if unit is None or unit.status_op != number:
            continue
        unit.status_op = None
        if error is not None and not isinstance(error, RequestInvalid):
            unit.status_change = None
            unit.status_ms = step.now + RETRY_MS
            agenda.wake_unit(unit.id, unit.status_ms)
        agenda.touch_unit(unit.id)


def _change(step: Step, stores: StoreViews, entry: ConnectorEntry, unit: Unit) -> StatusChange | None:
    stored, hold, history = stores.status_of(unit.id), unit.placement, unit.history
    if stored is None or stored.revision is None or history is None:
        return None
    judged = hold is not None and hold.judged
    if history.is_empty and stored.note is None and not (unit.shows_restarting or judged):
        return None  # nearly all of thousands
    policy = policy_of(step.rules.restart, entry.config)
    add_status(history, stored, policy, step.now)  # the record that replaces it keeps these attempts
    note = note_of(history, policy.attempts_max)
    if unit.shows_restarting:
        told = stored.state is RunState.RESTARTING and _are_equal_notes(stored.note, note)
        if told or (hold is not None and stored.generation >= hold.assignment.generation):
            return None
        if history.attempts_ms and stored.generation > history.begun:
            return None  # a status of a unit started after that failure: no restart is under way
        return StatusChange(stored, RunState.RESTARTING, stored.trace, note)
    if hold is None or hold.state is None or stored.generation != hold.assignment.generation:
        return None
    if judged and hold.failure is not None and stored.state is not RunState.FAILED:
        return StatusChange(stored, RunState.FAILED, hold.failure.trace or hold.failure.message, note)
    if stored.state is not hold.state or _are_equal_notes(stored.note, note):
        return None
    return StatusChange(stored, stored.state, stored.trace, note)


def _are_equal_notes(one: RestartNote | None, other: RestartNote | None) -> bool:
    """True when two notes are equal except for times, which lose their fractions in text."""
    if one is None or other is None:
        return one is other
    return (one.tag, len(one.attempts_ms), one.attempt, one.next_ms is None) == (
        other.tag,
        len(other.attempts_ms),
        other.attempt,
        other.next_ms is None,
    )
