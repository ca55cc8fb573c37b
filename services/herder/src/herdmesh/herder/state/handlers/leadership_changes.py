"""Changes of leadership: this herder is granted an epoch, begins to lead, and stops leading.

Owns the role and the epoch. Does not own a leader's work, nor when more generations are requested (`generations.py`): a
leader that gets none gives its epoch up here.

Invariants: nothing is decided before the config watch has come to where the epoch was granted; nothing is sent at or
after the end of the lease by our own clock; generations of one epoch are given out once, in order, even when the same
epoch is granted a second time after a fail-over of the config store.
"""

from __future__ import annotations

from herdmesh.herder.state.calls import calls
from herdmesh.herder.state.leadership.generations import RESERVE_MS, raise_limit
from herdmesh.herder.state.leadership.leadership_queries import refusal
from herdmesh.herder.state.memory import (
    Agenda,
    HerderMemory,
    HerderRole,
    Leadership,
)
from herdmesh.herder.state.model.events import GenerationsReserved, LeadershipFollowing, LeadershipGranted
from herdmesh.herder.state.model.instructions import RenewEpoch, RoleChanged
from herdmesh.rpc.errors import NoLeader

#: A leader without a heartbeat for this time has lost its epoch (the config store's `election.LEASE_MS`).
EPOCH_LEASE_MS = 4_000


def granted(memory: HerderMemory, event: LeadershipGranted) -> None:
    """The config store granted this herder an epoch. The same epoch again continues with its state."""
    if memory.leadership.role is HerderRole.LEADING and event.epoch == memory.leadership.epoch:
        memory.leadership.renew_lease(event.lease_until_ms)
        raise_limit(memory.agenda, memory.leadership, event.generation_limit)
        return
    if memory.leadership.role is not HerderRole.FOLLOWING:
        step_down(memory, "a newer epoch was granted")
    memory.leadership.grant(event)
    yield_to_newer(memory)
    lead_when_caught_up(memory)


def lead_when_caught_up(memory: HerderMemory) -> None:
    """Begin to lead once the configs are as new as the epoch or newer."""
    if (
        memory.leadership.role is not HerderRole.CATCHING_UP
        or memory.stores.epoch_seen < memory.leadership.epoch
        or memory.stores.has_parked
    ):
        return
    # A leader that froze loses its epoch before its workers notice. The difference is added to their time to dial in.
    unnoticed_ms = max(0, memory.step.rules.session_timeout_ms - EPOCH_LEASE_MS)
    memory.leadership.lead(memory.step.rules.session_timeout_ms, memory.step.rules.stream_grace_ms + unnoticed_ms)
    memory.fleet.begin_heartbeats()
    for name in sorted({*memory.stores.entries, *memory.stores.statuses}):
        connector = memory.inventory.connector(name)
        record = connector.entry.task_count_record if connector.entry is not None else None
        # Workers of the previous leader may still run these tasks, also tasks that it started after its epoch had
        # ended.
        connector.unfenced.update(range(record or 0))
        memory.agenda.touch(name)
    memory.agenda.place_all()
    memory.step.emit(RoleChanged(None))


def following(memory: HerderMemory, event: LeadershipFollowing) -> None:
    """Another herder leads."""
    if memory.leadership.role is not HerderRole.FOLLOWING:
        step_down(memory, f"{event.leader_id} leads under epoch {event.epoch}")
    if memory.leadership.follow(event.leader_id, event.leader_address):  # every heartbeat repeats it
        memory.step.emit(RoleChanged(refusal(memory.step, memory.leadership)))


def yield_to_newer(memory: HerderMemory) -> None:
    """Stop leading when the config topic has a newer epoch, even if our clock says that the lease holds: the machine
    may have slept. So no leader acts on records that were written after the epoch of its successor.
    """
    if memory.leadership.role is not HerderRole.FOLLOWING and memory.stores.epoch_seen > memory.leadership.epoch:
        # The store must learn of it too: a store that confirmed the old epoch for ever would keep every herder from
        # leading.
        memory.step.emit(RenewEpoch(memory.leadership.epoch, abandon=True))
        step_down(memory, f"epoch {memory.stores.epoch_seen} was granted")


def step_down(memory: HerderMemory, why: str) -> None:
    """Stop acting as leader at once: answer the callers and end the sessions. Tasks run on; their workers dial the next
    leader.
    """
    if memory.leadership.role is HerderRole.FOLLOWING:
        return
    memory.leadership.stop()
    memory.fleet.close_sessions(NoLeader(f"this herder leads no longer: {why}"))
    calls.fail_unwritten(memory, why)
    memory.end_leadership()
    memory.step.emit(RoleChanged(refusal(memory.step, memory.leadership)))


def reserved(agenda: Agenda, leadership: Leadership, event: GenerationsReserved) -> None:
    """The config store reserved more generations."""
    if leadership.role is not HerderRole.FOLLOWING and event.epoch == leadership.epoch:
        raise_limit(agenda, leadership, event.generation_limit)


def abandon_used_up_epoch(memory: HerderMemory) -> None:
    """Stop leading and request a new epoch when units have waited too long for generations."""
    if memory.leadership.used_up_ms is not None and memory.step.now - memory.leadership.used_up_ms >= RESERVE_MS:
        memory.step.emit(RenewEpoch(memory.leadership.epoch, abandon=True))
        step_down(memory, "its generations are used up, and the config store reserved no more")
