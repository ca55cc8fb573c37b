"""Generations of the leader: blocks of numbers that order assignments, reserved by the config store.

Owns when the next block is requested, and whether a unit may be started now. Does not own the epoch: a leader that gets
no block gives its epoch up (`leadership_changes.abandon_used_up_epoch`).

The config store reserves a block with the epoch and more on request. The leader requests the next one before the block
runs out, so that no unit waits for it; if starts are faster than the store, units wait for it a moment.

Invariant: the generations of one epoch are given out once, in order.
"""

from __future__ import annotations

from herdmesh.herder.state.memory import (
    Agenda,
    Leadership,
)

#: The next block is requested when no more generations than this are left: half a block, as one step may start 400.
RESERVE_AT = 500
#: Time that units wait for a block before the epoch is given up: a store that cannot write is waited for no longer.
RESERVE_MS = 2_000


def generations_left(leadership: Leadership) -> bool:
    """True when a unit may be started now. Otherwise it waits: every unit is placed anew once there are more."""
    if leadership.generations_left:
        return True
    leadership.wait_for_generations()
    reserve_ahead(leadership)
    return False


def reserve_ahead(leadership: Leadership) -> None:
    """Request the next block when little is left of this one."""
    if leadership.generations_left <= RESERVE_AT:
        leadership.reserve_above_limit()


def raise_limit(agenda: Agenda, leadership: Leadership, limit: int) -> None:
    if leadership.raise_limit(limit):
        agenda.place_all()
