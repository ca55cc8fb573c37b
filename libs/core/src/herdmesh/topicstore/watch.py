"""The watch hub: one shared memory of changes, many watchers reading it at their own pace.

Owns the ring of the last changes and who sleeps on it. A watcher is a cursor into the ring, so a thousand of them
cost a thousand integers, and publishing costs the same with none or many. Never touches the state.

Promises to each watcher: *ordered* (per partition in topic order), *unique*, *resumable* at any revision it was
given while the ring remembers it. It does not promise every intermediate value: a snapshot skips them, and so does
compaction.
Invariant: revisions in the ring never go back, so the place to resume is found by bisection.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from herdmesh.topicstore.contract import Revision, WatchChange, WatchProgress
from herdmesh.topicstore.errors import NotApplied, RevisionCompacted, WatchOverflow
from herdmesh.topicstore.settings import StoreTuning

_ChangeT = TypeVar("_ChangeT")


@dataclass(frozen=True, slots=True)
class _Entry(Generic[_ChangeT]):
    partition: int
    offset: int
    event: WatchChange[_ChangeT]


class WatchHub(Generic[_ChangeT]):
    """All watchers of one store. `revision()` is that of the applied state."""

    def __init__(self, tuning: StoreTuning, revision: Callable[[], Revision]) -> None:
        self._tuning = tuning
        self._revision = revision
        self._ring: list[_Entry[_ChangeT] | None] = [None] * tuning.change_memory
        self._head = 0  # entries ever published; entry i lies at ring[i % size] while i >= _tail
        self._tail = 0
        self._floors: dict[int, int] = {}  # partition -> first offset that can be resumed; absent: none, as yet
        self._sleepers: set[asyncio.Future[bool]] = set()
        self._closed: NotApplied | None = None

    def remember_from(self, partition: int, offset: int) -> None:
        """During the first replay: from `offset` on, no compaction can have removed anything from this partition."""
        self._floors.setdefault(partition, offset)

    def begin(self, floor: Sequence[int]) -> None:
        """The first replay ended and saw records below `floor`. What was not to be remembered cannot be resumed:
        compaction may have removed a tombstone there, so that a watcher would never hear of a deletion."""
        for partition, offset in enumerate(floor):
            self._floors.setdefault(partition, offset)

    def publish(self, partition: int, offset: int, changes: Sequence[_ChangeT]) -> None:
        """Remember the changes of one record if they can be resumed; `wake` tells the watchers."""
        if partition not in self._floors:
            return
        size = len(self._ring)
        if self._head - self._tail == size:
            forgotten = self._ring[self._tail % size]
            assert forgotten is not None
            self._floors[forgotten.partition] = forgotten.offset + 1
            self._tail += 1
        self._ring[self._head % size] = _Entry(partition, offset, WatchChange(changes, self._revision()))
        self._head += 1

    def wake(self) -> None:
        sleepers, self._sleepers = self._sleepers, set()
        for sleeper in sleepers:
            if not sleeper.done():
                sleeper.set_result(True)

    def close(self, error: NotApplied) -> None:
        """End every watch with `error`."""
        self._closed = error
        self.wake()

    def floor(self) -> Revision:
        """The oldest revision that can be resumed."""
        return Revision(self._revision().store_id, tuple(self._floors[p] for p in range(len(self._floors))))

    def follow(self) -> AsyncIterator[WatchChange[_ChangeT] | WatchProgress]:
        """Changes after this call, for a watcher that holds the state of this moment."""
        return self._events(self._head, self._revision(), self._head)

    def resume(self, resume: Revision) -> AsyncIterator[WatchChange[_ChangeT] | WatchProgress]:
        """Changes after `resume`, which must be included in the current revision. Raises `RevisionCompacted`."""
        floor = self.floor()
        if not resume.includes(floor):
            raise RevisionCompacted(resume, floor)
        start = bisect_left(
            range(self._tail, self._head), True, key=lambda i: not resume.includes(self._entry(i).event.revision)
        )
        return self._events(self._tail + start, resume, self._head)

    async def _events(
        self, cursor: int, since: Revision, mixed_until: int
    ) -> AsyncIterator[WatchChange[_ChangeT] | WatchProgress]:
        # Entries below `mixed_until` are from before this watch. A replica reads partitions in an order of its own, so
        # among them are changes the watcher has already (below `since`): they are left out, and the revisions given to
        # it never go below `since`.
        backlog = mixed_until - cursor
        last = since
        while True:
            while cursor < self._head:
                lag = self._head - cursor
                if cursor < self._tail or lag > max(backlog, self._tuning.watcher_lag_max):
                    raise WatchOverflow(last, lag)
                entry = self._entry(cursor)
                cursor += 1
                event = entry.event
                if cursor <= mixed_until:
                    if entry.offset < since.next_offsets[entry.partition]:
                        continue
                    event = WatchChange(event.changes, _later(event.revision, since))
                last = event.revision
                # A record that changed nothing is told as progress at once: somebody may wait to see it applied.
                yield event if event.changes else WatchProgress(last)
            backlog = 0
            if self._closed is not None:
                raise self._closed
            if not await self._sleep() and cursor == self._head:
                last = self._revision()
                yield WatchProgress(last)

    def _entry(self, index: int) -> _Entry[_ChangeT]:
        entry = self._ring[index % len(self._ring)]
        assert entry is not None
        return entry

    async def _sleep(self) -> bool:
        """True when something was published, False when the progress interval passed without."""
        loop = asyncio.get_running_loop()
        sleeper: asyncio.Future[bool] = loop.create_future()
        timer = loop.call_later(self._tuning.progress_interval_ms / 1000, _doze_off, sleeper)
        self._sleepers.add(sleeper)
        try:
            return await sleeper
        finally:
            timer.cancel()
            self._sleepers.discard(sleeper)


def _doze_off(sleeper: asyncio.Future[bool]) -> None:
    if not sleeper.done():
        sleeper.set_result(False)


def _later(one: Revision, other: Revision) -> Revision:
    return Revision(one.store_id, tuple(map(max, one.next_offsets, other.next_offsets)))
