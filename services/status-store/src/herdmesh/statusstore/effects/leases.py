"""The lease table in real time.

Owns the clock, the one timer and the watchers of the table; `state.leases` decides.

Invariant: a watcher that waits on `changed(version)` misses no change. Several changes between two checks of a watcher,
or within `PUBLISH_EVERY_S`, count as one, so that a thousand workers that start together do not send a thousand tables
to every watcher. Only the monotonic clock decides; the wall clock is read for display, so its jumps neither end nor
prolong a lease.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from typing import Final, assert_never

from herdmesh.statusstore.state.leases import Event, Instruction, Lease, LeaseTable, Publish, Tick, WakeAt
from herdmesh.topicstore.errors import StoreClosed

#: Minimum time between two notifications of the watchers; the first change is published at once.
PUBLISH_EVERY_S: Final = 0.1


@dataclass(frozen=True, slots=True)
class ShownLease:
    """A lease with its end as epoch milliseconds."""

    worker_id: str
    incarnation: str
    live: bool
    expire_time_ms: int


class LeaseKeeper:
    """The lease table of a process and its watchers; one per process, for use on one event loop."""

    def __init__(self) -> None:
        self.table = LeaseTable()
        self.version = 0
        self._timer: asyncio.TimerHandle | None = None
        self._publishing: asyncio.TimerHandle | None = None
        self._published_s = 0.0
        self._changed = asyncio.Event()
        self._closed = False

    def handle(self, event: Event) -> None:
        """Apply one event at the current time."""
        self._execute(self.table.handle(event, _now_ms()))

    def shown(self) -> list[ShownLease]:
        """The table for readers, sorted by worker id."""
        return [self._shown(lease) for lease in self.table.leases()]

    def shown_of(self, worker_id: str) -> ShownLease | None:
        """The lease of one worker."""
        lease = self.table.get(worker_id)
        return None if lease is None else self._shown(lease)

    async def changed(self, version: int) -> None:
        """Wait until the table differs from that of `version`. Raises `StoreClosed` after `close`."""
        while self.version == version:
            if self._closed:
                raise StoreClosed
            await self._changed.wait()

    def close(self) -> None:
        """Stop the timers and end the waits for changes."""
        self._closed = True
        for timer in (self._timer, self._publishing):
            if timer is not None:
                timer.cancel()
        self._changed.set()

    @staticmethod
    def from_shown(lease: ShownLease) -> Lease:
        """A lease shown by another replica, converted to this process's clock."""
        expires_ms = _now_ms() + lease.expire_time_ms - _epoch_ms()
        return Lease(lease.worker_id, lease.incarnation, expires_ms, lease.live)

    def _shown(self, lease: Lease) -> ShownLease:
        # Rounded to 10 ms: the two clocks are read one after the other, and equal leases should be shown equal.
        expire_time_ms = round((_epoch_ms() + lease.expires_ms - _now_ms()) / 10) * 10
        return ShownLease(lease.worker_id, lease.incarnation, lease.live, expire_time_ms)

    def _execute(self, instructions: list[Instruction]) -> None:
        for instruction in instructions:
            match instruction:
                case _ if self._closed:
                    pass
                case Publish():
                    self._publish_soon()
                case WakeAt():
                    if self._timer is not None:
                        self._timer.cancel()
                    delay_s = max(0, instruction.at_ms - _now_ms()) / 1000
                    self._timer = asyncio.get_running_loop().call_later(delay_s, self.handle, Tick())
                case _:
                    assert_never(instruction)

    def _publish_soon(self) -> None:
        if self._publishing is None:
            loop = asyncio.get_running_loop()
            due_s = self._published_s + PUBLISH_EVERY_S
            if due_s <= loop.time():
                self._publish()
            else:
                self._publishing = loop.call_at(due_s, self._publish)

    def _publish(self) -> None:
        self._publishing = None
        self._published_s = asyncio.get_running_loop().time()
        self.version += 1
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()


def _now_ms() -> int:
    return time.monotonic_ns() // 1_000_000


def _epoch_ms() -> int:
    return time.time_ns() // 1_000_000
