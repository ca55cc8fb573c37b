"""The watch hub: one shared ring of recent changes, read by many watchers at their own pace.

Owns the ring, the sleeping watchers, and the order in which they are woken. A watcher is a cursor into the ring, so a
thousand of them cost a thousand integers, and publishing costs the same with none or many. Never touches the state.

Notifying a thousand watchers at once would block the event loop for everything else, above all for answers to writes.
So a few are woken per turn of the loop, the longest asleep first; and while writes come in (`busy`), watchers are woken
at a pace that leaves most of the processor to the writes. No watcher starves: writes are delayed when most watchers
fall behind because of it (`crowded`), and a watcher is not cut off for lag that the hub itself causes.

Promises to each watcher: *ordered* (per partition in topic order), *unique*, *resumable* at any revision it was given
while the ring remembers it. Not every intermediate value is promised: a snapshot skips them, and so does compaction.
Invariants: revisions in the ring never go back, so the place to resume is found by bisection; a sleeping watcher with
unread changes is in the queue of those to be woken.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from collections import deque
from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from herdmesh.topicstore.contract import Revision, WatchChange, WatchProgress
from herdmesh.topicstore.errors import NotApplied, RevisionCompacted, WatchOverflow
from herdmesh.topicstore.settings import StoreTuning

_ChangeT = TypeVar("_ChangeT")
_T = TypeVar("_T")

#: Watchers woken in one turn of the event loop. One takes some 100 us: a turn stays far below a write's time.
_AT_ONCE = 4
#: Pause between two such turns while writes come in and more than `_FEW` watchers are open.
_PACE_S = 0.002
_FEW = 16


@dataclass(frozen=True, slots=True)
class _Entry(Generic[_ChangeT]):
    partition: int
    offset: int
    event: WatchChange[_ChangeT]


@dataclass(slots=True, eq=False)
class _Watcher:
    """A cursor: the number of the next entry to deliver. `in_line` while the hub delays it."""

    cursor: int
    in_line: bool = False


@dataclass(slots=True, eq=False)
class _Sleeper:
    """A sleeping watcher. Woken with True when there is a change to deliver, with False when `until_s` passed without
    one.
    """

    woken: asyncio.Future[bool]
    until_s: float
    saw: int


class WatchHub(Generic[_ChangeT]):
    """All watchers of one store. `revision()` is the revision of the applied state; `busy()` is true while writes come
    in.
    """

    def __init__(self, tuning: StoreTuning, revision: Callable[[], Revision], busy: Callable[[], bool]) -> None:
        self._tuning = tuning
        self._revision = revision
        self._busy = busy
        self._ring: list[_Entry[_ChangeT] | None] = [None] * tuning.change_memory
        self._head = 0  # number of entries ever published; entry i is at ring[i % size] while i >= _tail
        self._tail = 0
        self._floors: dict[int, int] = {}  # partition -> first offset that can be resumed; absent: none yet
        self._watchers: set[_Watcher] = set()
        self._sleepers: dict[_Sleeper, None] = {}  # longest asleep first, so `saw` and `until_s` only rise
        self._waking = False
        self._line: deque[asyncio.Future[None]] = (
            deque()
        )  # watchers that wait for their turn to deliver a change while `busy()`
        self._alarm: asyncio.TimerHandle | None = None
        self._closed: NotApplied | None = None
        #: Watchers that were cut off because their callers read too slowly.
        self.cut_off = 0

    @property
    def watcher_count(self) -> int:
        """The number of open watches."""
        return len(self._watchers)

    def remember_from(self, partition: int, offset: int) -> None:
        """During the first replay: from `offset` on, no compaction can have removed anything from this partition."""
        self._floors.setdefault(partition, offset)

    def begin(self, floor: Sequence[int]) -> None:
        """End the first replay, which read records below `floor`. Changes before a floor cannot be resumed: compaction
        may have removed a tombstone there, so that a watcher would never see a deletion.
        """
        for partition, offset in enumerate(floor):
            self._floors.setdefault(partition, offset)

    def publish(self, partition: int, offset: int, changes: Sequence[_ChangeT]) -> None:
        """Remember the changes of one record if they can be resumed; `wake` notifies the watchers."""
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
        """Begin to notify the watchers of the published changes."""
        if self._sleepers and not self._waking:
            self._waking = True
            self._soon(self._wake_some)

    def crowded(self) -> bool:
        """True while most watchers, delayed by the hub, lag so far that they would soon be cut off, or while one of
        them lags so far that the ring would soon overwrite its next entry. Watchers that wait for their own callers do
        not count: writes do not wait for them.
        """
        limit = self._head - self._tuning.watcher_lag_max // 2
        last = self._head - len(self._ring) // 2
        behind = 0
        for watcher in self._watchers:
            if watcher.in_line and watcher.cursor < limit:
                if watcher.cursor < last:
                    return True
                behind += 1
        return behind * 2 > len(self._watchers)

    def close(self, error: NotApplied) -> None:
        """End every watch with `error`."""
        self._closed = error
        if self._alarm is not None:
            self._alarm.cancel()
        sleepers, self._sleepers = self._sleepers, {}
        for sleeper in sleepers:
            _settle(sleeper.woken, True)
        while self._line:
            _settle(self._line.popleft(), None)

    def floor(self) -> Revision:
        """The oldest revision that can be resumed."""
        return Revision(self._revision().store_id, tuple(self._floors[p] for p in range(len(self._floors))))

    def follow(self) -> AsyncGenerator[WatchChange[_ChangeT] | WatchProgress]:
        """Yield changes after this call, for a watcher that has the current state."""
        return self._events(self._head, self._revision(), self._head)

    def resume(self, resume: Revision) -> AsyncGenerator[WatchChange[_ChangeT] | WatchProgress]:
        """Yield changes after `resume`, which must be included in the current revision. Raises `RevisionCompacted`."""
        floor = self.floor()
        if not resume.includes(floor):
            raise RevisionCompacted(resume, floor)
        start = bisect_left(
            range(self._tail, self._head), True, key=lambda i: not resume.includes(self._entry(i).event.revision)
        )
        return self._events(self._tail + start, resume, self._head)

    async def _events(
        self, cursor: int, since: Revision, mixed_until: int
    ) -> AsyncGenerator[WatchChange[_ChangeT] | WatchProgress]:
        # Entries below `mixed_until` are older than this watch. A replica reads partitions in an order of its own, so
        # some of them are changes that the watcher already has (below `since`). Those are left out, and the revisions
        # given to the watcher never go below `since`.
        watcher = _Watcher(cursor)
        backlog = mixed_until - cursor
        last = since
        self._watchers.add(watcher)
        try:
            while True:
                while watcher.cursor < self._head:
                    lag = self._head - watcher.cursor
                    if watcher.cursor < self._tail or lag > max(backlog, self._tuning.watcher_lag_max):
                        self.cut_off += 1
                        raise WatchOverflow(last, lag)
                    if self._must_pace() and self._closed is None:
                        head = self._head
                        watcher.in_line = True
                        await self._turn()
                        watcher.in_line = False
                        backlog += self._head - head  # the watcher did not cause the lag of this wait
                        if watcher.cursor < self._tail:
                            continue
                    entry = self._entry(watcher.cursor)
                    watcher.cursor += 1
                    event = entry.event
                    if watcher.cursor <= mixed_until:
                        if entry.offset < since.next_offsets[entry.partition]:
                            continue
                        event = WatchChange(event.changes, _later(event.revision, since))
                    last = event.revision
                    # Deliver a record without changes as progress at once: a caller may wait to see it applied.
                    yield event if event.changes else WatchProgress(last)
                if self._closed is not None:
                    raise self._closed
                watcher.in_line = True  # from the next change on, the hub delays it
                told = await self._sleep()
                watcher.in_line = False
                # The watcher did not cause the lag of its sleep and of the wait for its turn.
                backlog = self._head - watcher.cursor
                if not told and not backlog:
                    last = self._revision()
                    yield WatchProgress(last)
        finally:
            self._watchers.discard(watcher)

    def _entry(self, index: int) -> _Entry[_ChangeT]:
        entry = self._ring[index % len(self._ring)]
        assert entry is not None
        return entry

    async def _sleep(self) -> bool:
        """Sleep; return True when a change was published, False when the progress interval passed without one."""
        loop = asyncio.get_running_loop()
        until_s = loop.time() + self._tuning.progress_interval_ms / 1000
        sleeper = _Sleeper(loop.create_future(), until_s, self._head)
        self._sleepers[sleeper] = None
        if self._alarm is None:
            self._alarm = loop.call_at(until_s, self._ring_alarm)
        try:
            return await sleeper.woken
        finally:
            self._sleepers.pop(sleeper, None)

    def _wake_some(self) -> None:
        self._waking = self._wake_first(lambda sleeper: sleeper.saw < self._head, published=True)
        if self._waking:
            self._soon(self._wake_some)

    async def _turn(self) -> None:
        """Wait in line for the turn to deliver a change."""
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._line.append(turn)
        if len(self._line) == 1:
            self._soon(self._let_some_through)
        await turn

    def _let_some_through(self) -> None:
        for _ in range(min(_AT_ONCE, len(self._line))):
            _settle(self._line.popleft(), None)
        if self._line:
            self._soon(self._let_some_through)

    def _must_pace(self) -> bool:
        return len(self._watchers) > _FEW and self._busy()

    def _soon(self, step: Callable[[], None]) -> None:
        loop = asyncio.get_running_loop()
        if self._must_pace():
            loop.call_later(_PACE_S, step)
        else:
            loop.call_soon(step)

    def _ring_alarm(self) -> None:
        """Fire the one timer of all sleepers: for the longest asleep, then for the next."""
        loop = asyncio.get_running_loop()
        self._alarm = None
        now_s = loop.time()
        more = self._wake_first(lambda sleeper: sleeper.until_s <= now_s, published=False)
        first = next(iter(self._sleepers), None)
        if first is not None:
            self._alarm = loop.call_at(now_s if more else first.until_s, self._ring_alarm)

    def _wake_first(self, due: Callable[[_Sleeper], bool], *, published: bool) -> bool:
        """Wake some of the first sleepers that are due. True when more are due."""
        for _ in range(_AT_ONCE):
            first = next(iter(self._sleepers), None)
            if first is None or not due(first):
                return False
            del self._sleepers[first]
            _settle(first.woken, published)
        first = next(iter(self._sleepers), None)
        return first is not None and due(first)


def _settle(waiting: asyncio.Future[_T], result: _T) -> None:
    if not waiting.done():
        waiting.set_result(result)


def _later(one: Revision, other: Revision) -> Revision:
    return Revision(one.store_id, tuple(map(max, one.next_offsets, other.next_offsets)))
