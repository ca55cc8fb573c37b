"""Faults that only the memory engine lets a test inject: a lost response, a frozen replica, compaction at any time."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import AsyncIterator, Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from herdmesh.topicstore import NotApplied, StoreRole, StoreTuning, WatchSnapshot, WriteOutcomeUnknown, WriterFenced
from tests.contract.topicstore_harness import (
    Conflict,
    Decide,
    MemoryCluster,
    Watcher,
    Written,
    create,
    put,
    put_once,
    replace_at,
    suite_settings,
    until_role,
)

_QUICK = StoreTuning(take_over_backoff_ms=1, take_over_backoff_ms_max=5, outcome_timeout_ms=50)
#: For an outcome that the log reveals sooner or later.
_CERTAIN = StoreTuning(take_over_backoff_ms=1, take_over_backoff_ms_max=5)


@pytest.fixture
async def cluster() -> AsyncIterator[MemoryCluster]:
    made = MemoryCluster(suite_settings("topic"))
    yield made
    await made.close()


async def test_a_lost_response_of_an_applied_commit_is_found_in_the_log(cluster: MemoryCluster) -> None:
    store = await cluster.open(tuning=_CERTAIN)
    await until_role(store, StoreRole.WRITER)
    store.lose_next_answer(applied=True)
    written = await store.write(create(b"a", b"1"))
    assert written.entry == store.state.entries[b"a"]
    # The log answered before the commit failed; the writer starts over.
    await until_role(store, StoreRole.REPLICA)
    await until_role(store, StoreRole.WRITER)
    await store.write(put(b"b", b"1"))


async def test_a_lost_response_of_an_aborted_commit_is_reported_as_not_applied(cluster: MemoryCluster) -> None:
    store = await cluster.open(tuning=_CERTAIN)
    await until_role(store, StoreRole.WRITER)
    store.lose_next_answer(applied=False)
    results = await asyncio.gather(
        store.write(create(b"a", b"1")), store.write(create(b"a", b"2")), return_exceptions=True
    )
    assert isinstance(results[0], WriterFenced)
    # Refused because of a write that then failed: decided again, it is neither refused nor lost silently.
    assert isinstance(results[1], NotApplied | Written)
    await until_role(store, StoreRole.WRITER)
    await store.write(put(b"b", b"1"))
    await store.barrier()
    assert (b"a" in store.state.entries) == isinstance(results[1], Written)


async def test_an_outcome_that_cannot_be_learned_is_reported_as_unknown(cluster: MemoryCluster) -> None:
    store = await cluster.open(tuning=_QUICK)
    await until_role(store, StoreRole.WRITER)
    writing = asyncio.ensure_future(store.write(put(b"a", b"1")))
    await asyncio.sleep(0)
    store.lose_next_answer(applied=True)
    store.freeze()
    with pytest.raises(WriteOutcomeUnknown):
        await writing
    store.thaw()
    await until_role(store, StoreRole.WRITER)
    await store.write(put(b"b", b"1"))
    assert store.state.values() == {b"a": b"1", b"b": b"1"}


async def test_a_frozen_writer_answers_nothing_from_its_old_state(cluster: MemoryCluster) -> None:
    first = await cluster.open(tuning=_CERTAIN)
    await until_role(first, StoreRole.WRITER)
    a = (await first.write(put(b"a", b"1"))).entry
    await first.write(put(b"same", b"1"))
    assert a is not None
    second = await cluster.open(tuning=_CERTAIN)
    first.freeze()
    await until_role(second, StoreRole.WRITER)
    await second.write(replace_at(b"a", b"2", a.offset))
    await second.write(put(b"same", b"2"))
    await second.write(create(b"b", b"1"))
    assert first.role is StoreRole.WRITER
    stale = [
        asyncio.ensure_future(first.write(decide))
        for decide in (
            create(b"a", b"3"),  # refused before and now, but with the current value
            put_once(b"same", b"1"),  # a no-op in its old state, a write now
            create(b"b", b"2"),  # possible in its old state, refused now
        )
    ]
    barrier = asyncio.ensure_future(first.barrier())
    await asyncio.wait({stale[2]})
    for _ in range(50):
        await asyncio.sleep(0)
    assert [task.done() for task in stale] == [
        False,
        False,
        True,
    ]  # the write was fenced, the others wait for the current state
    assert not barrier.done()
    first.thaw()
    refused, no_op, fenced = await asyncio.gather(*stale, return_exceptions=True)
    assert isinstance(refused, Conflict)
    assert refused.found == second.state.entries[b"a"]
    assert isinstance(no_op, NotApplied)
    assert isinstance(fenced, WriterFenced)
    assert (await barrier).includes(second.revision)
    assert first.role is StoreRole.REPLICA
    assert first.state == second.state
    assert second.state.values() == {b"a": b"2", b"same": b"2", b"b": b"1"}


async def test_a_replica_that_lagged_takes_over_with_all_writes(cluster: MemoryCluster) -> None:
    first = await cluster.open(tuning=_CERTAIN)
    await until_role(first, StoreRole.WRITER)
    await asyncio.gather(*(first.write(put(b"%d" % i, b"v")) for i in range(1200)))
    second = await cluster.open(tuning=_CERTAIN)
    await asyncio.gather(first.close(), until_role(second, StoreRole.WRITER))
    assert second.state == first.state
    with pytest.raises(Conflict):
        await second.write(create(b"7", b"w"))


async def test_callers_that_time_out_during_an_outage_leave_nothing_behind(cluster: MemoryCluster) -> None:
    """The broker is unreachable, and impatient callers come and go: neither their writes nor their re-checks pile
    up.
    """
    store = await cluster.open(tuning=StoreTuning(pending_writes_max=20, group_commit_ms=0))
    await until_role(store, StoreRole.WRITER)
    await store.write(put(b"a", b"1"))
    store.freeze(calls=True)
    in_flight = asyncio.ensure_future(store.write(put(b"b", b"1")))
    for _ in range(20):
        await asyncio.sleep(0)
    quiet = len(asyncio.all_tasks())
    waiting: weakref.WeakSet[Callable[..., object]] = weakref.WeakSet()

    async def abandon(decide: Decide, turns: int) -> None:
        waiting.add(decide)
        impatient = asyncio.ensure_future(store.write(decide))
        for _ in range(turns):
            await asyncio.sleep(0)
        impatient.cancel()
        await asyncio.gather(impatient, return_exceptions=True)

    for number in range(300):
        await abandon(put(b"%d" % number, b"v"), 1)
    gc.collect()
    assert len(waiting) <= 21
    store.thaw()
    await asyncio.gather(in_flight, return_exceptions=True)
    # Now the same with re-checks: the store is unfrozen, answers refusals, and the end of the topic cannot be read.
    await until_role(store, StoreRole.WRITER)
    store.freeze(calls=True)
    for number in range(100):
        await abandon(create(b"a", b"%d" % number), 5)
    await asyncio.sleep(0)
    assert len(asyncio.all_tasks()) <= quiet + 2
    store.thaw()
    await until_role(store, StoreRole.WRITER)
    assert (await store.write(put(b"c", b"1"))).entry is not None


_OPERATIONS = st.lists(
    st.tuples(st.sampled_from([b"a", b"b", b"c", b"d"]), st.one_of(st.none(), st.binary(min_size=1, max_size=2))),
    max_size=30,
)


@given(operations=_OPERATIONS, compact_after=st.lists(st.integers(0, 30), max_size=3), drop=st.booleans())
def test_compaction_changes_no_snapshot(
    operations: list[tuple[bytes, bytes | None]], compact_after: list[int], drop: bool
) -> None:
    async def run() -> None:
        cluster = MemoryCluster(suite_settings("topic"))
        store = await cluster.open()
        await until_role(store, StoreRole.WRITER)
        watcher = Watcher(store)
        await watcher.until(lambda me: me.snapshot is not None)
        topic = cluster.broker.topics["topic"]
        for index, (key, value) in enumerate(operations):
            found = store.state.entries.get(key)
            await store.write(replace_at(key, value, found.offset if found else None))
            if index in compact_after:
                topic.compact(drop_tombstones=drop, young_too=True)
        topic.compact(drop_tombstones=drop, young_too=True)
        late = await cluster.open()
        snapshot = await anext(late.watch())
        assert isinstance(snapshot, WatchSnapshot)
        assert snapshot.state == late.state == store.state
        assert snapshot.revision == late.revision == store.revision
        folded = dict(operations)
        assert store.state.values() == {key: value for key, value in folded.items() if value is not None}
        await store.barrier()
        await asyncio.sleep(0)
        assert watcher.state() == store.state.entries
        await watcher.stop()
        await cluster.close()

    asyncio.run(run())
