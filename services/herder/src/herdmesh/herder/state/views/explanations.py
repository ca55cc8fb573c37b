"""Explanations: one line for an operator about why a unit is where it is and what happens next.

Owns the sentences about placement, waiting and moving. Does not own those about failures and restarts
(`restart_policy.explained`). Reads only.

Invariant: a line is empty exactly when the unit runs as wanted and nothing is about to change that.
"""

from __future__ import annotations

from herdmesh.herder.state.leadership import leadership_queries
from herdmesh.herder.state.memory import (
    Connector,
    Fleet,
    HerderMemory,
    Placement,
    Step,
    StoreViews,
    Unit,
)
from herdmesh.herder.state.model import ConnectorEntry
from herdmesh.herder.state.units import handover, task_sets
from herdmesh.herder.state.workers import plugin_eligibility
from herdmesh.session.model import RunState, TargetState

_AS_WANTED = {
    TargetState.STARTED: RunState.RUNNING,
    TargetState.PAUSED: RunState.PAUSED,
    TargetState.STOPPED: RunState.STOPPED,
}
_BECOMING = {TargetState.STARTED: "resuming", TargetState.PAUSED: "pausing", TargetState.STOPPED: "stopping"}


def of_unit(memory: HerderMemory, connector: Connector, unit: Unit) -> str:
    """The line; empty when there is nothing to explain. FAILED units are explained by the restart policy."""
    entry = connector.stored
    if entry is None:
        return ""
    if leadership_queries.refusal(memory.step, memory.leadership) is not None:
        return "no herder leads; it continues on its worker, and the next leader adopts it without a restart"
    if unit.placement is not None:
        return _held(memory.step, memory.stores, memory.fleet, connector, entry, unit, unit.placement)
    if unit.superseded:
        return _stopping(memory.step, entry, unit, unit.superseded[-1])
    if not handover.is_wanted(entry, unit.id):
        return _without_set(connector, entry)
    return _waiting(memory, connector, entry, unit)


def _held(
    step: Step,
    stores: StoreViews,
    fleet: Fleet,
    connector: Connector,
    entry: ConnectorEntry,
    unit: Unit,
    hold: Placement,
) -> str:
    member = fleet.members.get(hold.worker_id)
    if member is None or member.session is None:
        since_ms = member.broken_ms if member is not None else None
        left = _seconds((since_ms or step.now) + step.rules.stream_grace_ms - step.now)
        return f"the stream of {hold.worker_id} broke; it goes elsewhere unless {hold.worker_id} is back within {left}"
    if hold.state is None:
        return f"starting on {hold.worker_id}" + (f": {unit.wait.text()}" if unit.wait is not None else "")
    target = handover.target_of(entry, unit.id)
    if hold.state is not RunState.FAILED and hold.state is not _AS_WANTED[target]:
        return f"{_BECOMING[target]} on {hold.worker_id}"
    if member.draining:
        if _nobody(fleet, entry):
            return f"stays on {hold.worker_id}, which drains, until another worker has {_missing(fleet, entry)}"
        return f"leaves {hold.worker_id}, which drains, next"
    if unit.id.task is None and connector.trouble:
        next_ms = max(connector.generate_ms, connector.write_ms)
        again = f"; retried in {_seconds(next_ms - step.now)}" if next_ms > step.now else ""
        return f"its tasks stay as they are: {connector.trouble}{again}"
    limited = next(
        (one for one in handover.reported_conditions(stores, unit.id, hold) if one.type == "RECONFIGURATION_LIMITED"),
        None,
    )
    if limited is not None:
        return limited.message
    if unit.wait is not None:
        return unit.wait.text()
    stalled = [one.message for one in handover.reported_conditions(stores, unit.id, hold) if one.type == "STALLED"]
    return stalled[0] if stalled else ""


def _stopping(step: Step, entry: ConnectorEntry, unit: Unit, superseded: Placement) -> str:
    line = f"stopping on {superseded.worker_id}"
    if not handover.is_wanted(entry, unit.id):
        return f"{line} for good"
    left = _seconds(superseded.stop_sent_ms + step.rules.stop_timeout_ms - step.now)
    bound = f" ({superseded.worker_id} has {left} to confirm it)"
    if unit.destination is None:
        return f"{line} before it starts elsewhere{bound}"
    if unit.destination == superseded.worker_id:
        return f"{line} before it starts there again{bound}"
    return f"{line} before it starts on {unit.destination}{bound}"


def _without_set(connector: Connector, entry: ConnectorEntry) -> str:
    """The line of a task that no worker is to hold: it was stopped, or its set is being created."""
    if entry.wanted_state is TargetState.STOPPED:
        return ""
    trouble = f": {connector.trouble}" if connector.trouble else ""
    return f"waits for its connector to make a task set{trouble}"


def _waiting(memory: HerderMemory, connector: Connector, entry: ConnectorEntry, unit: Unit) -> str:
    status = memory.stores.status_of(unit.id)
    if not memory.stores.status_store_read:
        return "waits until this herder has read the status store: it may be running somewhere"
    if status is not None and leadership_queries.kept_for(memory, unit.id):
        left = _seconds(memory.leadership.adopting_until_ms - memory.step.now)
        return f"runs on {status.worker_id}, which has {left} to dial in to this leader before it starts elsewhere"
    if leadership_queries.gathering(memory):
        left = _seconds(memory.leadership.gathering_until_ms - memory.step.now)
        return f"waits up to {left} for the workers that have not dialled in to this leader yet"
    if leadership_queries.assembling(memory.fleet):
        left = _seconds(memory.fleet.assembling.until_ms - memory.step.now)
        return f"waits up to {left} for more workers: the first has just joined, and nothing runs yet"
    if unit.waits_for and memory.step.now < unit.waits_until_ms and unit.waits_for not in memory.fleet.members:
        return f"waits up to {_seconds(unit.waits_until_ms - memory.step.now)} for worker {unit.waits_for} to return"
    if unit.id.task is not None and not task_sets.gate_open(entry):
        return _behind_gate(connector, entry)
    nobody = _nobody(memory.fleet, entry)
    if nobody:
        return f"waits for a worker: {nobody}"
    if memory.step.now < unit.not_before_ms:
        return f"its worker released it; it is started again in {_seconds(unit.not_before_ms - memory.step.now)}"
    return f"starts on {unit.destination} next" if unit.destination is not None else "is placed on a worker next"


def _behind_gate(connector: Connector, entry: ConnectorEntry) -> str:
    """The line of a task whose set waits: it starts only when no task of the old set can run (`task_sets.py`)."""
    old = sorted(
        {
            hold.worker_id
            for unit in connector.tasks()
            for hold in unit.placements()
            if hold is not unit.placement or not handover.matches(entry, unit.id, hold.assignment)
        }
    )
    if old:
        return f"waits until the tasks of its old set have stopped on {', '.join(old)}"
    if connector.unfenced:
        return f"its old task set must be fenced first{f': {connector.trouble}' if connector.trouble else ''}"
    return f"its new task set is being written{f': {connector.trouble}' if connector.trouble else ''}"


def _nobody(fleet: Fleet, entry: ConnectorEntry) -> str:
    """Why no worker can run it; empty when one can."""
    if any(member.takes_work and plugin_eligibility.runs(fleet, member, entry) for member in fleet.members.values()):
        return ""
    connected = [member for member in fleet.members.values() if member.session is not None]
    if not connected:
        return "no worker is connected"
    have = sorted(member.worker_id for member in connected if plugin_eligibility.runs(fleet, member, entry))
    if not have:
        return f"no connected worker has {_missing(fleet, entry)}"
    return f"every worker that has {_missing(fleet, entry)} drains: {', '.join(have)}"


def _missing(fleet: Fleet, entry: ConnectorEntry) -> str:
    """The plugins of a config by which workers differ."""
    members = [member for member in fleet.members.values() if member.session is not None]
    lacking = dict.fromkeys(
        step for member in members for step in plugin_eligibility.lacks(fleet, member, entry.config)
    )
    return " and ".join(map(plugin_eligibility.text, (entry.plugin, *lacking)))


def _seconds(ms: int) -> str:
    return f"{max(0, -(-ms // 1000))} s"
