"""The watch hub alone: every watcher gets every change in order, a few watchers per turn, and only slow ones are cut
off.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing

import pytest

from herdmesh.topicstore.contract import Revision, StoreRole, WatchChange, WatchProgress
from herdmesh.topicstore.errors import StoreClosed, WatchOverflow
from herdmesh.topicstore.memory.memory_store import MemoryBroker, MemoryTopicStore
from herdmesh.topicstore.settings import StoreTuning, TopicSettings
from herdmesh.topicstore.watch import WatchHub
from tests.contract.topicstore_harness import Change, KeyValues, put, until_role

_TUNING = StoreTuning(change_memory=400, watcher_lag_max=100, progress_interval_ms=60_000)
_Events = AsyncGenerator[WatchChange[int] | WatchProgress]


class _Store:
    """A hub over a state that counts: change n is published at offset n."""

    def __init__(self, tuning: StoreTuning = _TUNING) -> None:
        self.next_offset = 0
        self.busy = False
        self.hub: WatchHub[int] = WatchHub(tuning, self.revision, lambda: self.busy)
        self.hub.begin([0])

    def revision(self) -> Revision:
        return Revision("store", (self.next_offset,))

    def publish(self, count: int = 1) -> None:
        for _ in range(count):
            self.next_offset += 1
            self.hub.publish(0, self.next_offset - 1, [self.next_offset - 1])
        self.hub.wake()


class _Watchers:
    """Many watchers that read on as soon as they get a change."""

    def __init__(self, store: _Store, count: int) -> None:
        self.seen: list[list[int]] = [[] for _ in range(count)]
        self.changed = asyncio.Event()
        self.tasks = [asyncio.create_task(self._read(store.hub.follow(), seen)) for seen in self.seen]

    async def _read(self, events: _Events, seen: list[int]) -> None:
        async with aclosing(events):
            async for event in events:
                assert isinstance(event, WatchChange)
                seen += event.changes
                self.changed.set()

    async def until(self, told: int) -> None:
        async with asyncio.timeout(20):
            while min(map(len, self.seen)) < told:
                self.changed.clear()
                await self.changed.wait()

    async def stop(self) -> list[BaseException | None]:
        for task in self.tasks:
            task.cancel()
        return await asyncio.gather(*self.tasks, return_exceptions=True)


async def _turns_until(condition: Callable[[], bool]) -> None:
    for _ in range(100_000):
        if condition():
            return
        await asyncio.sleep(0)
    raise AssertionError("not in 100,000 turns of the event loop")


@pytest.mark.parametrize("busy", [False, True])
async def test_a_thousand_watchers_get_every_change_in_order_a_few_per_turn(busy: bool) -> None:
    store = _Store()
    watchers = _Watchers(store, 1_000)
    await asyncio.sleep(0)  # all watchers wait
    store.busy = busy
    store.publish(2)
    told = 0
    most = 0
    while told < 2_000:
        await asyncio.sleep(0)
        now = sum(map(len, watchers.seen))
        most = max(most, now - told)
        told = now
        store.busy = busy and now < 100  # at the pace of a busy store this would take half a second
    assert most <= 16, "one turn of the event loop belonged to the watchers"
    await watchers.until(2)
    assert all(seen == [0, 1] for seen in watchers.seen)
    await watchers.stop()


async def test_endless_writes_starve_no_watcher() -> None:
    store = _Store()
    store.busy = True
    watchers = _Watchers(store, 40)
    await asyncio.sleep(0)
    for _ in range(30):
        store.publish()
        await asyncio.sleep(0)
    await watchers.until(30)
    assert all(seen == list(range(30)) for seen in watchers.seen)
    await watchers.stop()


async def test_lag_from_waiting_for_a_turn_cuts_no_watcher_off() -> None:
    store = _Store()
    store.busy = True
    watchers = _Watchers(store, 40)
    await asyncio.sleep(0)
    for _ in range(3):
        store.publish(_TUNING.watcher_lag_max)  # three times the allowed lag of a slow watcher
        await asyncio.sleep(0)
    store.busy = False
    await watchers.until(3 * _TUNING.watcher_lag_max)
    assert not any(task.done() for task in watchers.tasks)
    await watchers.stop()


async def test_a_slow_watcher_is_cut_off_with_its_last_revision() -> None:
    store = _Store()
    slow = store.hub.follow()
    first = asyncio.ensure_future(anext(slow))
    await asyncio.sleep(0)
    store.publish()
    assert isinstance(await first, WatchChange)
    store.publish(_TUNING.watcher_lag_max + 1)
    with pytest.raises(WatchOverflow) as cut_off:
        await anext(slow)
    assert cut_off.value.last == Revision("store", (1,))


async def test_the_hub_is_crowded_when_most_watchers_lag_and_wait_for_their_turn() -> None:
    store = _Store()
    store.busy = True
    watchers = _Watchers(store, 40)
    await asyncio.sleep(0)
    store.publish(60)
    await _turns_until(store.hub.crowded)
    store.busy = False  # the writes are held back
    await _turns_until(lambda: not store.hub.crowded())
    await watchers.until(60)
    await watchers.stop()


async def test_watchers_that_do_not_read_never_make_the_hub_crowded() -> None:
    store = _Store()
    slow = [store.hub.follow() for _ in range(40)]
    firsts = [asyncio.ensure_future(anext(one)) for one in slow]
    await asyncio.sleep(0)
    store.publish()
    await asyncio.gather(*firsts)
    store.busy = True
    store.publish(_TUNING.watcher_lag_max)
    assert not store.hub.crowded()
    for one in slow:
        await one.aclose()


async def test_all_idle_watchers_get_the_revision_from_one_timer() -> None:
    store = _Store(StoreTuning(progress_interval_ms=20))
    events = [store.hub.follow() for _ in range(50)]
    async with asyncio.timeout(20):
        assert {type(event) for event in await asyncio.gather(*map(anext, events))} == {WatchProgress}
        assert {type(event) for event in await asyncio.gather(*map(anext, events))} == {WatchProgress}
    for one in events:
        await one.aclose()


async def test_closing_wakes_idle_watchers_and_those_waiting_for_a_turn() -> None:
    store = _Store()
    store.busy = True
    watchers = _Watchers(store, 40)
    await asyncio.sleep(0)
    store.publish()
    await asyncio.sleep(0)
    store.hub.close(StoreClosed("closed"))
    async with asyncio.timeout(20):
        outcomes = await asyncio.gather(*watchers.tasks, return_exceptions=True)
    assert all(isinstance(outcome, StoreClosed) for outcome in outcomes)
    assert all(seen == [0] for seen in watchers.seen), "what was published before is told first"


async def test_continuous_writes_cut_off_none_of_many_reading_watchers() -> None:
    tuning = StoreTuning(watcher_lag_max=40, change_memory=60)
    settings = TopicSettings(topic="t", transactional_id="t", election_group="t")
    store: MemoryTopicStore[KeyValues, Change] = MemoryTopicStore(MemoryBroker(), settings, KeyValues(), tuning=tuning)
    await store.start()
    await until_role(store, StoreRole.WRITER)
    seen: list[list[int]] = [[] for _ in range(40)]

    async def read(mine: list[int]) -> None:
        async for event in store.watch():
            if isinstance(event, WatchChange):
                mine.append(event.revision.next_offsets[0])
                if len(mine) == 200:
                    return

    readers = [asyncio.create_task(read(mine)) for mine in seen]
    await asyncio.sleep(0)
    for number in range(200):
        await store.write(put(b"key", b"%d" % number))
    async with asyncio.timeout(30):
        await asyncio.gather(*readers)
    assert all(mine == seen[0] == sorted(set(mine)) for mine in seen)
    await store.close()
