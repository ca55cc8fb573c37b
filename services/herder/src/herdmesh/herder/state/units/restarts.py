"""Restarts of units: requested (KIP-745) and automatic ones.

Owns how a unit is restarted, and when a FAILED unit is restarted automatically. Does not own the rule and the history
(`restart_policy.py`), nor the statuses that announce a restart (`leader_statuses.py`).

While a unit waits for its restart its worker keeps it FAILED: the next leader gets the unit with its failure from the
worker's hello, and an operator sees the last error; the status adds when the restart comes. While the restart is under
way the unit is RESTARTING. If the unit is moved or placed anew meanwhile, that start replaces the restart.

Invariants: a restart keeps a unit on its worker. One failure (one assignment that FAILED) is decided once, by the first
leader that learns of it. No failure is decided before the statuses are known: they hold the restarts of earlier
leaders.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable

from herdmesh.herder.state.leadership import leadership_queries
from herdmesh.herder.state.memory import (
    Agenda,
    Connector,
    Fleet,
    HerderMemory,
    Inventory,
    Placement,
    Step,
    Unit,
)
from herdmesh.herder.state.model import restart_policy
from herdmesh.herder.state.model.restart_policy import RestartHistory
from herdmesh.herder.state.units import handover
from herdmesh.session.model import Failure, RunState, TargetState


def restart_unit(memory: HerderMemory, connector: Connector, unit: Unit) -> None:
    """Carry out a requested restart: stop, acknowledge, start, on the same worker, with a new restart history. For a
    unit that no worker holds only the backoff is removed.
    """
    tag = unit.history.tag if unit.history is not None else ""
    unit.history = RestartHistory(tag, from_generation=memory.leadership.next_generation)
    unit.not_before_ms = 0
    _restart(memory.fleet, memory.inventory, connector, unit, "a restart was requested")
    memory.agenda.touch_unit(unit.id)


def restart_failed(memory: HerderMemory, connector: Connector, units: Iterable[Unit]) -> None:
    """Read back the histories of these units, decide about failures, and carry out due restarts."""
    entry = connector.stored
    if entry is None or not memory.stores.statuses_known:
        return
    for unit in units:
        if not handover.is_wanted(entry, unit.id):
            continue
        hold = unit.placement
        failed = hold is not None and hold.state is RunState.FAILED
        if unit.history is not None and not failed and unit.history.is_empty:
            continue  # nearly all of thousands
        tag = restart_policy.tag_of(entry, unit.id)
        if unit.history is None:
            if hold is None and leadership_queries.kept_for(memory, unit.id):
                continue  # its worker may dial in with it, and report its restarts
            handover.read_history(memory.step, memory.stores, memory.inventory, entry, unit)
            assert unit.history is not None
            if unit.history.next_ms is not None:
                memory.agenda.wake_unit(unit.id, unit.history.next_ms)
        elif unit.history.tag != tag:
            unit.history = RestartHistory(tag)
        if entry.wanted_state is TargetState.STOPPED:
            unit.history = RestartHistory(
                tag, from_generation=memory.leadership.next_generation
            )  # a resumed unit has a new history
            continue
        if hold is None or hold.state is not RunState.FAILED:
            unit.history.next_ms = None
            continue
        rules = restart_policy.policy_of(memory.step.rules.restart, entry.config)
        restart_policy.add_status(unit.history, memory.stores.status_of(unit.id), rules, memory.step.now)
        generation = hold.assignment.generation
        if generation not in (unit.history.generation, unit.history.begun):
            _decide(memory.step, memory.agenda, connector, unit, hold)
        elif unit.history.verdict is restart_policy.Verdict.RESTART and unit.history.next_ms is None:
            unit.history.resume_failed(generation, hold.failure, memory.step.now)
            memory.agenda.show(connector.name)
        due_ms = unit.history.next_ms
        member = memory.fleet.members.get(hold.worker_id)
        reachable = member is not None and member.session is not None
        if due_ms is not None and memory.step.now >= due_ms and reachable and entry.wanted_state is TargetState.STARTED:
            if unit.history.is_overdrawn(rules, memory.step.now):
                _decide(memory.step, memory.agenda, connector, unit, hold)
                continue
            unit.history.begin(memory.step.now)
            attempt = f"restart {unit.history.attempt} of {rules.attempts_max}"
            counted = "a restart that does not count" if unit.history.is_free else attempt
            _restart(memory.fleet, memory.inventory, connector, unit, f"it failed; {counted}")


def _decide(step: Step, agenda: Agenda, connector: Connector, unit: Unit, hold: Placement) -> None:
    history, entry = unit.history, connector.stored
    assert history is not None
    assert entry is not None
    history.generation = hold.assignment.generation
    ran_ms = hold.since_ms - hold.ran_since_ms if hold.ran_since_ms is not None else None

    def chance(attempt: int) -> float:
        return zlib.crc32(f"{step.rules.seed}/{unit.id}/{attempt}".encode()) / 2**32

    failure = hold.failure or Failure("failed without a message")
    rules = restart_policy.policy_of(step.rules.restart, entry.config)
    history.fail(rules, failure, step.now, ran_ms, chance, before_us=not hold.since_known)
    if history.next_ms is not None:
        agenda.wake_unit(unit.id, history.next_ms)
    agenda.show(connector.name)


def _restart(fleet: Fleet, inventory: Inventory, connector: Connector, unit: Unit, reason: str) -> None:
    if unit.placement is None:
        return
    unit.restarting = unit.shows_restarting = True
    handover.stop(fleet, inventory, connector, unit, reason, destination=unit.placement.worker_id)
