"""The memory engine under faults: a writer that stops or dies at each stage of a write, and a watch that resumes on a
replica which replayed a compacted log.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from herdmesh.topicstore import (
    NotApplied,
    Revision,
    RevisionCompacted,
    StoreClosed,
    StoreRole,
    StoreTuning,
    WriteOutcomeUnknown,
    WriteStage,
)
from herdmesh.topicstore.memory.memory_broker import MemoryBroker
from herdmesh.topicstore.memory.memory_store import MemoryTopicStore
from tests.contract.topicstore_harness import (
    Change,
    Entry,
    KeyValues,
    MemoryCluster,
    Watcher,
    Written,
    put,
    replace_at,
    suite_settings,
    until_role,
)
from tests.support.sizes import SOAKING, soak_or

_QUICK = StoreTuning(take_over_backoff_ms=1, take_over_backoff_ms_max=5, outcome_timeout_ms=50)
#: From here on a write is in the topic whatever happens to its writer.
_COMMITTED = (WriteStage.AFTER_COMMIT, WriteStage.BEFORE_READ_BACK, WriteStage.BEFORE_ANSWER)
_BEFORE_COMMIT = [stage for stage in WriteStage if stage not in _COMMITTED]

Store = MemoryTopicStore[KeyValues, Change]


@pytest.fixture
async def cluster() -> AsyncIterator[MemoryCluster]:
    made = MemoryCluster(suite_settings("topic"))
    yield made
    await made.close()


async def _writer_harmed_at(cluster: MemoryCluster, stage: WriteStage, harm: str) -> Store:
    """A writer to which `harm` happens at `stage` of its second write."""
    writes = 0

    def on_stage(reached: WriteStage) -> None:
        nonlocal writes
        writes += reached is WriteStage.BEFORE_SEND
        if reached is stage and writes == 2:
            store.kill() if harm == "kill" else store.freeze(calls=True)

    store = await cluster.open(tuning=_QUICK, on_stage=on_stage)
    await until_role(store, StoreRole.WRITER)
    await store.write(put(b"a", b"1"))
    return store


@pytest.mark.parametrize("stage", list(WriteStage))
async def test_a_writer_that_dies_leaves_a_whole_write_or_none(cluster: MemoryCluster, stage: WriteStage) -> None:
    store = await _writer_harmed_at(cluster, stage, "kill")
    second = await cluster.open(tuning=_QUICK)
    result = (await asyncio.gather(store.write(put(b"a", b"2")), return_exceptions=True))[0]
    await until_role(second, StoreRole.WRITER)
    assert second.state.values() == {b"a": b"2" if stage in _COMMITTED else b"1"}
    assert isinstance(result, Written | WriteOutcomeUnknown)
    if isinstance(result, Written):
        assert stage in _COMMITTED
    with pytest.raises(StoreClosed):
        await store.write(put(b"a", b"3"))
    await second.write(put(b"b", b"1"))


@pytest.mark.parametrize("stage", _BEFORE_COMMIT)
async def test_a_writer_that_stops_is_fenced_when_it_continues(cluster: MemoryCluster, stage: WriteStage) -> None:
    first = await _writer_harmed_at(cluster, stage, "freeze")
    second = await cluster.open(tuning=_QUICK)
    writing = asyncio.ensure_future(first.write(put(b"a", b"2")))
    await until_role(second, StoreRole.WRITER)
    assert second.state.values() == {b"a": b"1"}
    entry = second.state.entries[b"a"]
    await second.write(replace_at(b"a", b"3", entry.offset))
    first.thaw()
    with pytest.raises(NotApplied):
        await writing
    await first.barrier()
    assert first.state == second.state
    assert first.state.values() == {b"a": b"3"}


async def test_no_reader_passes_an_open_transaction(cluster: MemoryCluster) -> None:
    store = await _writer_harmed_at(cluster, WriteStage.BEFORE_COMMIT, "freeze")
    reader = await cluster.open(replace(cluster.settings, election_group="others", transactional_id="another"))
    writing = asyncio.ensure_future(store.write(put(b"a", b"2")))
    for _ in range(20):
        await asyncio.sleep(0)
    assert cluster.broker.topics["topic"].partitions[0].open
    await cluster.produce(b"foreign", b"1")
    await reader.barrier()
    assert reader.state.values() == {b"a": b"1"}
    await cluster.usurp()  # ends the transaction
    await reader.barrier()
    assert reader.state.values() == {b"a": b"1", b"foreign": b"1"}
    store.thaw()
    with pytest.raises(NotApplied):
        await writing


_VALUES = st.one_of(st.none(), st.binary(min_size=1, max_size=2))
_WRITES = st.lists(st.tuples(st.just("write"), st.sampled_from([b"a", b"b"]), _VALUES), max_size=6)
_CLEANINGS = st.tuples(
    st.tuples(st.just("wait"), st.sampled_from([1, 29, 31, 61]), st.none()),
    st.tuples(st.just("compact"), st.booleans(), st.none()),
)
#: Writes, passing time and runs of the log cleaner; repeated some times.
_STEPS = st.lists(st.tuples(_WRITES, _CLEANINGS), min_size=1, max_size=4).map(
    lambda rounds: [step for writes, cleaning in rounds for step in (*writes, *cleaning)]
)
_LAG_MS = 60_000


@settings(max_examples=soak_or(60, 2_000), deadline=None, derandomize=not SOAKING)
@given(steps=_STEPS, partitions=st.sampled_from([1, 3]))
def test_a_watch_resumed_on_a_restarted_replica_misses_and_repeats_nothing(
    steps: list[tuple[str, bytes | int | bool, bytes | None]], partitions: int
) -> None:
    """For every revision a watcher got, on a replica that replays the compacted log: all later changes once, or
    `RevisionCompacted`; and never the latter for a revision younger than half of the topic's lag.
    """

    async def run() -> None:
        now_ms = 1_000_000
        broker = MemoryBroker(lambda: now_ms)
        configs = {"min.compaction.lag.ms": str(_LAG_MS)}
        cluster = MemoryCluster(replace(suite_settings("topic"), partitions=partitions, topic_configs=configs), broker)
        store = await cluster.open()
        await until_role(store, StoreRole.WRITER)
        watcher = Watcher(store)
        await watcher.until(lambda me: me.snapshot is not None)
        written = [(now_ms, store.revision)]
        for step, what, value in [*steps, ("write", b"end", b"1")]:
            if step == "wait":
                now_ms += int(what) * 1_000
            elif step == "compact":
                broker.topics["topic"].compact(drop_tombstones=bool(what))
            else:
                assert isinstance(what, bytes)
                found = store.state.entries.get(what)
                done = await store.write(replace_at(what, value, found.offset if found else None))
                written.append((now_ms, done.revision))
        await watcher.until_revision(written[-1][1])
        late = await cluster.open()
        for index, (_, revision) in enumerate(watcher.changes[:-1]):
            rest = [change for change, _ in watcher.changes[index + 1 :]]
            resumed = Watcher(late, revision)
            await resumed.until(lambda me: me.error is not None or any(c.key == b"end" for c, _ in me.changes))
            for _ in range(5):
                await asyncio.sleep(0)
            if resumed.error is None:
                got = [change for change, _ in resumed.changes]
                assert sorted(got, key=repr) == sorted(rest, key=repr)
                assert _fold(_fold({}, watcher.changes[: index + 1]), resumed.changes) == store.state.entries
            else:
                assert isinstance(resumed.error, RevisionCompacted)
                # The change of this revision is old, or a later change is.
                since = [at_ms for at_ms, made in written if made.includes(revision)]
                assert min(since) < now_ms - _LAG_MS // 2
            await resumed.stop()
        await watcher.stop()
        await cluster.close()

    asyncio.run(run())


def _fold(entries: dict[bytes, Entry], changes: Sequence[tuple[Change, Revision]]) -> dict[bytes, Entry]:
    for change, _ in changes:
        if change.entry is None:
            entries.pop(change.key, None)
        else:
            entries[change.key] = change.entry
    return entries
