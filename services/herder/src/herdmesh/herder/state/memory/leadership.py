"""Leadership part of a herder's memory: its role, its epoch with the generations it may give out, and the leader's id.

Owns these values and the legal ways to change them. Does not own when a leadership begins and ends
(`handlers.leadership_changes`), nor when more generations are requested (`leadership.generations`).

Invariants: a generation is given out once, in rising order, and only from the blocks of the current epoch. The role
goes from FOLLOWING over CATCHING_UP to LEADING, and from any to FOLLOWING.
"""

from __future__ import annotations

from enum import StrEnum, unique

from herdmesh.herder.state.memory.step import Step
from herdmesh.herder.state.model.events import LeadershipGranted
from herdmesh.herder.state.model.instructions import ReserveGenerations


@unique
class HerderRole(StrEnum):
    """Role of this herder. Legal changes: FOLLOWING -> CATCHING_UP -> LEADING; any -> FOLLOWING."""

    FOLLOWING = "FOLLOWING"
    #: the epoch is granted, but the config watch has not reached that point: decisions would use outdated configs.
    CATCHING_UP = "CATCHING_UP"
    LEADING = "LEADING"


class Leadership:
    """Leadership of one herder."""

    def __init__(self, step: Step) -> None:
        self._step = step
        self._role = HerderRole.FOLLOWING
        self._epoch = 0
        self._lease_until_ms = 0
        self._next_generation = 0
        self._generation_limit = 0
        #: the limit above which more generations were requested last.
        self._reserve_above = 0
        #: since when a unit waits for a generation; None = no unit waits.
        self._used_up_ms: int | None = None
        self._leader_id = ""
        self._leader_address = ""
        self._adopting_until_ms = 0
        self._gathering_until_ms = 0
        self._start_count = 0
        self._adopted_count = 0

    @property
    def role(self) -> HerderRole:
        """The current role."""
        return self._role

    @property
    def leads(self) -> bool:
        """True when it serves and decides."""
        return self._role is HerderRole.LEADING

    @property
    def epoch(self) -> int:
        """The epoch that was granted last."""
        return self._epoch

    @property
    def leader_id(self) -> str:
        """The leader as far as this herder knows; empty = none."""
        return self._leader_id

    @property
    def leader_address(self) -> str:
        """The address of the leader."""
        return self._leader_address

    @property
    def adopting_until_ms(self) -> int:
        """Until then workers of the previous leader may still dial in with the units they run."""
        return self._adopting_until_ms

    @property
    def gathering_until_ms(self) -> int:
        """Until then nothing is started while live workers are missing: see `leadership_queries.gathering`."""
        return self._gathering_until_ms

    @property
    def start_count(self) -> int:
        """Starts of units in this leadership."""
        return self._start_count

    @property
    def adopted_count(self) -> int:
        """Units that were adopted from workers in this leadership."""
        return self._adopted_count

    # --- role and lease

    def grant(self, event: LeadershipGranted) -> None:
        """An epoch was granted, and the config watch is to catch up with it. The same epoch again keeps its next
        generation.
        """
        if event.epoch != self._epoch:
            self._next_generation = event.generation_first
        self._epoch = event.epoch
        self._generation_limit = event.generation_limit
        self._reserve_above, self._used_up_ms = 0, None
        self._lease_until_ms = event.lease_until_ms
        self._leader_id, self._leader_address = event.leader_id, event.leader_address
        self._role = HerderRole.CATCHING_UP

    def renew_lease(self, until_ms: int) -> None:
        """The same epoch was granted again while this herder leads."""
        self._lease_until_ms = until_ms

    def extend_lease(self, until_ms: int) -> None:
        """The config store confirmed the epoch."""
        self._lease_until_ms = max(self._lease_until_ms, until_ms)

    def shorten_lease(self, until_ms: int) -> None:
        """The epoch must not outlast this time."""
        self._lease_until_ms = min(self._lease_until_ms, until_ms)

    @property
    def is_over(self) -> bool:
        """True when the lease has ended by our own clock."""
        return self._role is not HerderRole.FOLLOWING and self._step.now >= self._lease_until_ms

    def lead(self, adopting_ms: int, gathering_ms: int) -> None:
        """The config watch has caught up: lead from now on. The times are how long workers have to dial in."""
        assert self._role is HerderRole.CATCHING_UP
        self._role = HerderRole.LEADING
        self._adopting_until_ms = self._step.now + adopting_ms
        self._gathering_until_ms = self._step.now + gathering_ms

    def follow(self, leader_id: str, leader_address: str) -> bool:
        """Another herder leads. False when that was already known."""
        if (self._leader_id, self._leader_address) == (leader_id, leader_address):
            return False
        self._leader_id, self._leader_address = leader_id, leader_address
        return True

    def stop(self) -> None:
        """Stop leading; the leader is unknown."""
        self._role = HerderRole.FOLLOWING
        self._leader_id = self._leader_address = ""

    def end_leadership(self) -> None:
        """Reset the counters."""
        self._start_count = self._adopted_count = 0

    def count_adopted(self) -> None:
        """A unit was adopted from a worker."""
        self._adopted_count += 1

    # --- generations

    @property
    def next_generation(self) -> int:
        """The generation of the next start."""
        return self._next_generation

    @property
    def generation_limit(self) -> int:
        """The first generation that is not reserved."""
        return self._generation_limit

    @property
    def generations_left(self) -> int:
        """The number of generations that are reserved and not given out."""
        return self._generation_limit - self._next_generation

    def take_generation(self) -> int:
        """Give out the next generation, for the start of a unit."""
        taken = self._next_generation
        self._next_generation += 1
        self._start_count += 1
        return taken

    def wait_for_generations(self) -> None:
        """A unit cannot be started, as no generation is left."""
        if self._used_up_ms is None:
            self._used_up_ms = self._step.now

    @property
    def used_up_ms(self) -> int | None:
        """Since when a unit waits for a generation; None = no unit waits."""
        return self._used_up_ms

    def reserve_above_limit(self) -> None:
        """Request the next block from the config store, once for each limit."""
        if self._reserve_above != self._generation_limit:
            self._reserve_above = self._generation_limit
            self._step.emit(ReserveGenerations(self._epoch, self._generation_limit))

    def raise_limit(self, limit: int) -> bool:
        """More generations are reserved. True when units waited for them."""
        if limit <= self._generation_limit:
            return False
        self._generation_limit = limit
        waited, self._used_up_ms = self._used_up_ms is not None, None
        return waited
