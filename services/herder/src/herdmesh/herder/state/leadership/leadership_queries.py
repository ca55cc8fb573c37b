"""Leadership queries: whether this herder serves, and for which workers it still waits.

Owns these queries, and reads only. Does not own the beginning and the end of a leadership (`leadership_changes.py`).
"""

from __future__ import annotations

from herdmesh.herder.state.memory import (
    Fleet,
    HerderMemory,
    HerderRole,
    Leadership,
    Step,
)
from herdmesh.herder.state.model import HELD_STATES
from herdmesh.rpc.errors import HerdmeshError, NoLeader, NotLeader
from herdmesh.session.model import UnitId


def refusal(step: Step, leadership: Leadership) -> HerdmeshError | None:
    """The error with which this herder refuses requests now; None when it leads."""
    if leadership.role is HerderRole.LEADING:
        return None
    if leadership.role is HerderRole.CATCHING_UP:
        return NoLeader("this herder was just elected and still reads the config store; try again")
    if leadership.leader_address and leadership.leader_id != step.rules.herder_id:
        return NotLeader(leadership.leader_address)
    return NoLeader("no herder leads at the moment; try again")


def adopting(memory: HerderMemory) -> bool:
    """True while workers of the previous leader may still dial in with the units they run."""
    if not memory.stores.status_store_read:
        return True
    if memory.step.now >= memory.leadership.adopting_until_ms:
        return False
    return any(lease.live and lease.worker_id not in memory.fleet.members for lease in memory.stores.leases.values())


def gathering(memory: HerderMemory) -> bool:
    """True while live workers are about to dial in to a new leader: units given to the first one would move to the
    others a moment later. The time is the grace of a broken stream, counted from when workers notice a frozen leader.
    """
    return memory.step.now < memory.leadership.gathering_until_ms and adopting(memory)


def assembling(fleet: Fleet) -> bool:
    """True while nothing runs anywhere and more workers may join after the first."""
    return fleet.assembling.is_open


def kept_for(memory: HerderMemory, unit: UnitId) -> bool:
    """True when a worker with a live lease last reported that it has the unit, and may yet dial in with it. If the
    lease table calls a connected worker dead, the table was not written for a while, so that its dead leases prove
    nothing.
    """
    if memory.step.now >= memory.leadership.adopting_until_ms:
        return False
    status = memory.stores.status_of(unit)
    if status is None or status.state not in HELD_STATES or status.worker_id in memory.fleet.members:
        return False
    return memory.stores.lease_lives(status.worker_id, status.worker_incarnation) or any(
        member.session is not None
        and (lease := memory.stores.leases.get(member.worker_id)) is not None
        and not lease.live
        and lease.incarnation == member.incarnation
        for member in memory.fleet.members.values()
    )
