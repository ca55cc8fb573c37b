"""The topic store suite, reading: replays, barriers, watches, the audit topic. One set of promises, two engines."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from herdmesh.topicstore import (
    KEEP_ALIVE_KEY,
    NewRecord,
    Revision,
    RevisionCompacted,
    RevisionForeign,
    RevisionInFuture,
    StoreRole,
    StoreTuning,
    WatchChange,
    WatchOverflow,
    WatchProgress,
    WatchSnapshot,
    WriteDecision,
)
from tests.contract.topicstore_harness import (
    Change,
    Cluster,
    KeyValues,
    Watcher,
    Written,
    cluster_of,
    put,
    replace_at,
    until_role,
    writer_of,
)
from tests.support.side_by_side import SideBySide

#: Opening and closing a store of a real broker is mostly waiting. Tests that depend on timing run alone.
together = SideBySide("bootstrap", cluster=cluster_of)

# Reads.


@together
async def test_a_replica_that_starts_late_folds_to_the_same_state(cluster: Cluster) -> None:
    settings = replace(cluster.settings, partitions=3)
    store = await cluster.open(settings)
    await until_role(store, StoreRole.WRITER)
    await asyncio.gather(*(store.write(put(b"%d" % (i % 17), b"v%d" % i)) for i in range(100)))
    await store.write(replace_at(b"3", None, store.state.entries[b"3"].offset))
    late = await cluster.open(settings)
    assert late.state == store.state
    assert late.revision.includes(store.revision)
    assert {entry.partition for entry in late.state.entries.values()} == {0, 1, 2}


@together
async def test_read_barriers_of_many_callers(cluster: Cluster) -> None:
    store = await writer_of(cluster)
    replica = await cluster.open()
    written = await store.write(put(b"a", b"1"))
    revisions = await asyncio.gather(*(replica.barrier() for _ in range(500)))
    assert all(revision.includes(written.revision) for revision in revisions)


@together
async def test_revisions_of_another_store_are_refused(cluster: Cluster) -> None:
    store = await writer_of(cluster)
    foreign = Revision("another", store.revision.next_offsets)
    with pytest.raises(RevisionForeign):
        await store.wait_for(foreign)
    with pytest.raises(RevisionForeign):
        await anext(store.watch(foreign))
    with pytest.raises(RevisionForeign):
        await store.wait_for(Revision(store.revision.store_id, (0, 0)))


# Watches.


@together
async def test_a_watch_gives_the_state_and_then_every_change(cluster: Cluster) -> None:
    store = await writer_of(cluster)
    await store.write(put(b"before", b"1"))
    watcher = Watcher(store)
    await asyncio.gather(*(store.write(put(b"%d" % (i % 5), b"%d" % i)) for i in range(50)))
    last = await store.write(put(b"last", b"1"))
    await watcher.until_revision(last.revision)
    assert watcher.snapshot is not None
    assert watcher.snapshot.state.values() == {b"before": b"1"}
    offsets = [change.entry.offset for change, _ in watcher.changes if change.entry]
    assert offsets == sorted(set(offsets))
    assert len(offsets) == 51
    assert watcher.state() == store.state.entries
    await watcher.stop()


@together
@pytest.mark.parametrize("partitions", [1, 3])
async def test_a_watch_resumes_at_any_revision_it_was_given(cluster: Cluster, partitions: int) -> None:
    settings = replace(cluster.settings, partitions=partitions)
    # Each change has its revision, and no progress event comes in between, however long a write takes.
    store = await cluster.open(settings, tuning=StoreTuning(progress_interval_ms=600_000))
    await until_role(store, StoreRole.WRITER)
    replica = await cluster.open(settings)
    watcher = Watcher(store)
    await watcher.until(lambda me: me.snapshot is not None)
    for round_ in range(4):
        await asyncio.gather(*(store.write(put(b"%d" % i, b"%d-%d" % (i, round_))) for i in range(5)))
    await watcher.until(lambda me: len(me.changes) == 20)
    await replica.wait_for(store.revision)
    for index in (0, 1, 7, 19, 20):
        # Resumed where it was given, on the same replica and on one that read the partitions in another order.
        revision = watcher.revisions[index]
        for resumed_on in (store, replica):
            resumed = Watcher(resumed_on, revision)
            rest = [change for change, _ in watcher.changes[index:]]
            await resumed.until(lambda me, rest=rest: me.error is not None or len(me.changes) >= len(rest))
            assert resumed.error is None
            assert resumed.snapshot is None
            got = [change for change, _ in resumed.changes]
            assert sorted(got, key=repr) == sorted(rest, key=repr)
            for partition in range(partitions):
                of_one = [c.entry.offset for c in got if c.entry and c.entry.partition == partition]
                assert of_one == sorted(set(of_one))
            assert all(given.includes(revision) for given in resumed.revisions)
            await resumed.stop()
    await watcher.stop()


@together
async def test_an_idle_watcher_gets_progress_revisions(cluster: Cluster) -> None:
    store = await cluster.open(tuning=StoreTuning(progress_interval_ms=20))
    await until_role(store, StoreRole.WRITER)
    events = store.watch()
    assert isinstance(await anext(events), WatchSnapshot)
    written = await store.write(put(b"a", b"1"))
    seen = [await anext(events), await anext(events)]
    while isinstance(seen[0], WatchProgress):
        seen = [seen[1], await anext(events)]
    assert isinstance(seen[0], WatchChange)
    assert isinstance(seen[1], WatchProgress)
    assert seen[1].revision.includes(written.revision)
    # A progress revision resumes like any other.
    resumed = store.watch(seen[1].revision)
    await store.write(put(b"b", b"1"))
    event = await anext(resumed)
    while isinstance(event, WatchProgress):
        event = await anext(resumed)
    assert isinstance(event, WatchChange)
    assert [change.key for change in event.changes] == [b"b"]


@together
async def test_a_slow_watcher_is_cut_off_and_can_resume(cluster: Cluster) -> None:
    store = await cluster.open(tuning=StoreTuning(watcher_lag_max=10))
    await until_role(store, StoreRole.WRITER)
    events = store.watch()
    await anext(events)
    await store.write(put(b"first", b"1"))
    first = await anext(events)
    await asyncio.gather(*(store.write(put(b"%d" % i, b"v")) for i in range(11)))
    with pytest.raises(WatchOverflow) as overflow:
        await anext(events)
    assert overflow.value.last == first.revision
    resumed = Watcher(store, overflow.value.last)
    await resumed.until(lambda me: len(me.changes) == 11)
    await resumed.stop()


@together
async def test_a_revision_older_than_the_change_memory_is_refused(cluster: Cluster) -> None:
    store = await cluster.open(tuning=StoreTuning(change_memory=5))
    await until_role(store, StoreRole.WRITER)
    written = [await store.write(put(b"%d" % i, b"v")) for i in range(7)]
    with pytest.raises(RevisionCompacted) as refused:
        await anext(store.watch(written[0].revision))
    assert refused.value.oldest.includes(written[0].revision)
    resumed = Watcher(store, written[1].revision)
    await resumed.until(lambda me: len(me.changes) == 5)
    await resumed.stop()


@together
async def test_a_revision_beyond_the_end_is_refused(cluster: Cluster) -> None:
    store = await writer_of(cluster)
    written = await store.write(put(b"a", b"1"))
    future = Revision(written.revision.store_id, (written.revision.next_offsets[0] + 1000,))
    with pytest.raises(RevisionInFuture):
        await anext(store.watch(future))


@together
async def test_many_watchers(cluster: Cluster) -> None:
    store = await writer_of(cluster)
    watchers = [Watcher(store) for _ in range(1000)]
    for i in range(5):
        await asyncio.gather(*(store.write(put(b"%d-%d" % (i, j), b"v")) for j in range(4)))
    for watcher in watchers:
        await watcher.until(lambda me: len(me.changes) == 20)
        assert watcher.state() == store.state.entries
        await watcher.stop()


@together
@pytest.mark.parametrize("partitions", [1, 3])
async def test_a_watch_resumes_on_a_replica_that_started_later(cluster: Cluster, partitions: int) -> None:
    settings = replace(cluster.settings, partitions=partitions)
    store = await cluster.open(settings)
    await until_role(store, StoreRole.WRITER)
    watcher = Watcher(store)
    await watcher.until(lambda me: me.snapshot is not None)
    for round_ in range(3):
        await asyncio.gather(*(store.write(put(b"%d" % i, b"%d-%d" % (i, round_))) for i in range(5)))
    deleted = await store.write(replace_at(b"3", None, store.state.entries[b"3"].offset))
    await watcher.until_revision(deleted.revision)
    await store.close()
    late = await cluster.open(settings)
    assert len(watcher.changes) == 16
    for index, (_, revision) in enumerate(watcher.changes):
        resumed = Watcher(late, revision)
        rest = [change for change, _ in watcher.changes[index + 1 :]]
        await until_role(late, StoreRole.WRITER)
        after = await late.write(put(b"after", b"%d" % index))
        await resumed.until(
            lambda me, after=after: me.error is not None or Change(b"after", after.entry) in [c for c, _ in me.changes]
        )
        assert resumed.error is None
        got = [change for change, _ in resumed.changes if change.key != b"after"]
        assert sorted(got, key=repr) == sorted(rest, key=repr)
        await resumed.stop()


@together
async def test_a_replica_refuses_to_resume_before_changes_that_may_be_compacted(cluster: Cluster) -> None:
    settings = replace(cluster.settings, topic_configs={"min.compaction.lag.ms": "0"})
    store = await cluster.open(settings)
    await until_role(store, StoreRole.WRITER)
    first = await store.write(put(b"a", b"1"))
    await store.write(put(b"a", b"2"))
    late = await cluster.open(settings)
    with pytest.raises(RevisionCompacted) as refused:
        await anext(late.watch(first.revision))
    assert late.revision.includes(refused.value.oldest)
    assert isinstance(await anext(late.watch()), WatchSnapshot)


@together
async def test_a_watch_waits_for_its_minimum_revision(cluster: Cluster) -> None:
    store = await writer_of(cluster)
    replica = await cluster.open()
    for number in range(5):
        written = await store.write(put(b"a", b"%d" % number))
        snapshot = await anext(replica.watch(at_least=written.revision))
        assert isinstance(snapshot, WatchSnapshot)
        assert snapshot.revision.includes(written.revision)
        assert snapshot.state.entries[b"a"] == written.entry
        # Resumed at the very revision: no change that existed already, and the next one.
        resumed = replica.watch(written.revision, at_least=written.revision)
        after = await store.write(put(b"b", b"%d" % number))
        assert after.entry is not None
        async for event in resumed:
            if isinstance(event, WatchChange):
                assert event.changes == [Change(b"b", after.entry)]
                break
    with pytest.raises(RevisionForeign):
        await anext(replica.watch(at_least=Revision("another", (0,))))


# The audit topic.


def _audited(cluster: Cluster, key: bytes) -> WriteDecision[Written]:
    """Put `key`, with an audit record that holds the revision of the write; provisionally `?`."""
    audit = cluster.settings.audit_topic
    return WriteDecision(
        [
            NewRecord(b"audit", b"?", audit, late=lambda revision: b"%s at %d" % (key, *revision.next_offsets)),
            NewRecord(b"audit", b"plain " + key, audit),
            NewRecord(key, b"v"),
            NewRecord(key + b"-more", b"v"),
        ],
        lambda state, revision: Written(state.entries.get(key), revision),
    )


@together
async def test_an_audit_record_holds_the_revision_of_its_write(cluster: Cluster) -> None:
    store = await writer_of(cluster)
    await store.write(put(b"before", b"1"))
    keys = [b"key-%d" % i for i in range(20)]
    seen: list[tuple[bytes, ...]] = []

    def decide(state: KeyValues, key: bytes) -> WriteDecision[Written]:
        seen.append(state.audited)
        return _audited(cluster, key)

    written = await asyncio.gather(*(store.write(lambda state, key=key: decide(state, key)) for key in keys))
    expected: list[bytes] = []
    for key, one in zip(keys, written, strict=True):
        assert one.entry is not None
        # The record after the key's own is the last of its write.
        assert one.revision.next_offsets == (one.entry.offset + 2,)
        expected += [b"%s at %d" % (key, *one.revision.next_offsets), b"plain " + key]
    assert store.state.audited == tuple(expected)
    # A write decided behind another of its group sees the other's provisional value.
    assert seen[1] == (b"?", b"plain key-0")
    assert (await cluster.open()).state == store.state


@together
async def test_an_audit_record_holds_its_revision_when_another_producer_writes_in_between(cluster: Cluster) -> None:
    """The positions of a write's records are predicted, to save a round trip; here the prediction fails every time."""
    store = await writer_of(cluster)
    for number in range(3):
        key = b"key-%d" % number

        def decide(_: KeyValues, key: bytes = key) -> WriteDecision[Written]:
            cluster.produce_within(b"foreign", key)  # after the applied records, before those decided here
            return _audited(cluster, key)

        written = await store.write(decide)
        assert written.entry is not None
        assert written.revision.next_offsets == (written.entry.offset + 2,)
        assert store.state.audited[-2:] == (b"%s at %d" % (key, *written.revision.next_offsets), b"plain " + key)
        assert store.state.values()[b"foreign"] == key
    assert len(store.state.audited) == 6, "what was sent in vain is not visible"
    assert (await cluster.open()).state == store.state


@together
async def test_late_values_are_for_the_audit_topic_only(cluster: Cluster) -> None:
    store = await writer_of(cluster)
    with pytest.raises(ValueError, match="late"):
        await store.write(
            lambda _: WriteDecision(
                [NewRecord(b"a", b"1", late=lambda _: b"2")], lambda _s, revision: Written(None, revision)
            )
        )
    await store.write(put(b"a", b"1"))


@together
async def test_audit_records_can_be_read_again(cluster: Cluster) -> None:
    store = await writer_of(cluster)
    for number in range(3):
        await store.write(lambda _, number=number: _audited(cluster, b"%d" % number))
    # Two records and a marker each.
    found = await store.read_audit([7, 0, 4, 2, 5, 1000, 0])
    assert [record.offset for record in found] == [0, 4, 7]
    assert [record.value for record in found] == [b"0 at 2", b"plain 1", b"plain 2"]
    assert {record.topic for record in found} == {cluster.settings.audit_topic}
    assert await store.read_audit([]) == []
    replica = await cluster.open()
    assert await replica.read_audit(range(9)) == await store.read_audit(range(100))
    assert len(await replica.read_audit(range(9))) == 6


@together
async def test_a_store_without_an_audit_topic_has_no_audit(cluster: Cluster) -> None:
    store = await cluster.open(replace(cluster.settings, audit_topic=None))
    assert await store.read_audit([0]) == []


# The writer's identity.


@together
async def test_an_idle_writer_sends_keep_alives_for_its_identity(cluster: Cluster) -> None:
    store = await cluster.open(tuning=StoreTuning(keep_alive_ms=20))
    await until_role(store, StoreRole.WRITER)  # of two that join at once either may become it
    replica = await cluster.open(tuning=StoreTuning(keep_alive_ms=20))
    watcher = Watcher(replica)

    def kept_alive() -> list[bytes]:
        return [change.entry.value for change, _ in watcher.changes if change.entry and change.key == KEEP_ALIVE_KEY]

    await watcher.until(lambda _: len(kept_alive()) >= 2)
    assert set(kept_alive()) == {b'{"version":1}'}
    await watcher.stop()
