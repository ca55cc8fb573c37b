"""The fold of records into state: always in order within a shard, a transaction of ours as one piece, however the
reader interleaves the partitions.
"""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import Sequence
from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from herdmesh.topicstore import Revision, StoredRecord
from herdmesh.topicstore.applied import Applied, Flight, Outcome
from herdmesh.topicstore.log import LogIdentity

_IDENTITY = LogIdentity("id", "topic", 3, "audit")


@dataclass
class Journal:
    """A state that is the list of applied records."""

    records: list[tuple[int, int]] = field(default_factory=lambda: list[tuple[int, int]]())

    def apply(self, record: StoredRecord) -> Sequence[tuple[int, int]]:
        place = (_IDENTITY.shard_of(record), record.offset)
        self.records.append(place)
        return [place]

    def copy(self) -> Journal:
        return Journal(list(self.records))


def record(shard: int, offset: int) -> StoredRecord:
    topic, partition = ("audit", 0) if shard == 3 else ("topic", shard)
    return StoredRecord(topic, partition, offset, b"k", b"v", 0)


def opened() -> tuple[Applied[Journal, tuple[int, int]], list[tuple[int, int]]]:
    published: list[tuple[int, int]] = []

    def publish(partition: int, offset: int, changes: Sequence[tuple[int, int]]) -> None:
        assert list(changes) == [(partition, offset)]
        assert applied.revision.next_offsets[partition] == offset + 1
        published.append((partition, offset))

    applied: Applied[Journal, tuple[int, int]] = Applied(Journal(), publish)
    applied.open(_IDENTITY)
    return applied, published


@st.composite
def landings(draw: st.DrawFn) -> tuple[list[int], list[tuple[int, int]], list[list[tuple[int, int]]]]:
    """Sizes of the writes of a transaction, positions of its records, and the batches in which a reader finds them
    among other records.
    """
    owners = [draw(st.lists(st.booleans(), max_size=6)) for _ in range(4)]
    ours = [(shard, offset) for shard, flags in enumerate(owners) for offset, mine in enumerate(flags) if mine]
    # Decision order is any order that keeps each shard's own.
    decided = _interleave(draw, [[place for place in ours if place[0] == shard] for shard in range(4)])
    found = _interleave(draw, [[(shard, offset) for offset in range(len(flags))] for shard, flags in enumerate(owners)])
    sizes: list[int] = []
    while sum(sizes) < len(decided):
        sizes.append(draw(st.integers(1, len(decided) - sum(sizes))))
    cuts = sorted(draw(st.lists(st.integers(0, len(found)), max_size=4)))
    batches = [found[start:end] for start, end in zip([0, *cuts], [*cuts, len(found)], strict=True)]
    return sizes, decided, batches


def _interleave(draw: st.DrawFn, queues: list[list[tuple[int, int]]]) -> list[tuple[int, int]]:
    queues = [list(queue) for queue in queues if queue]
    merged: list[tuple[int, int]] = []
    while queues:
        queue = draw(st.sampled_from(queues))
        merged.append(queue.pop(0))
        queues = [queue for queue in queues if queue]
    return merged


@given(landings())
def test_a_transaction_is_applied_as_one_and_shards_keep_their_order(
    landing: tuple[list[int], list[tuple[int, int]], list[list[tuple[int, int]]]],
) -> None:
    sizes, decided, batches = landing

    async def run() -> None:
        applied, published = opened()
        answered: list[list[tuple[int, int]]] = []

        def completed(write: int, revision: Revision) -> None:
            assert write == len(answered)
            answered.append([place for place in applied.state.records if place in decided])

        flight = Flight(sizes, completed)
        if decided:
            applied.expect(flight)
            flight.place(decided)
        positions = [0, 0, 0, 0]
        for batch in batches:
            for shard, offset in batch:
                positions[shard] = offset + 1
            applied.feed([record(*place) for place in batch], tuple(positions))
        order = applied.state.records
        assert sorted(order) == sorted(place for batch in batches for place in batch)
        for shard in range(4):
            offsets = [offset for of, offset in order if of == shard]
            assert offsets == sorted(offsets)
        assert [place for place in order if place in decided] == decided
        # Each write was answered right after its own records and before the next one's.
        assert [len(seen) for seen in answered] == [sum(sizes[: i + 1]) for i in range(len(sizes))]
        assert published == [place for place in order if place[0] < 3]
        if decided:
            assert await flight.outcome is Outcome.LANDED
        assert applied.wait(tuple(positions)).done()

    asyncio.run(run())


@given(landings(), st.integers(0, 3))
def test_records_of_a_transaction_are_applied_when_the_rest_never_arrives(
    landing: tuple[list[int], list[tuple[int, int]], list[list[tuple[int, int]]]], cut: int
) -> None:
    """The marker in shard `cut` was lost: that shard cannot be read from the first record of the transaction on."""
    sizes, decided, batches = landing
    hidden_from = min((offset for shard, offset in decided if shard == cut), default=7)

    async def run() -> None:
        applied, _ = opened()
        flight = Flight(sizes, lambda _write, _revision: None)
        if decided:
            applied.expect(flight)
            flight.place(decided)
        positions, fed = [0, 0, 0, 0], list[tuple[int, int]]()
        for batch in batches:
            batch = [(shard, offset) for shard, offset in batch if shard != cut or offset < hidden_from]
            fed += batch
            for shard, offset in batch:
                positions[shard] = offset + 1
            applied.feed([record(*place) for place in batch], tuple(positions))
        assert applied.read_to(tuple(positions)).done(), "a take-over waits for what is held back for ever"
        applied.settle_at_end()
        assert sorted(applied.state.records) == sorted(fed)
        for shard in range(4):
            offsets = [offset for of, offset in applied.state.records if of == shard]
            assert offsets == sorted(offsets)
        assert applied.wait(tuple(positions)).done()
        if decided:
            came = set(decided) & set(fed)
            whole = len(came) == len(decided)
            assert await flight.outcome is (Outcome.LANDED if whole else Outcome.PARTLY if came else Outcome.ABSENT)

    asyncio.run(run())


async def test_a_transaction_that_the_reader_passes_without_records_was_aborted() -> None:
    applied, _ = opened()
    landed: list[int] = []
    flight = Flight([2], lambda write, _: landed.append(write))
    applied.expect(flight)
    flight.place([(0, 4), (1, 7)])
    applied.feed([record(0, 3)], (4, 0, 0, 0))
    assert not flight.outcome.done()
    applied.feed([record(1, 8)], (4, 9, 0, 0))
    assert await flight.outcome is Outcome.ABSENT
    assert applied.state.records == [(0, 3), (1, 8)]
    assert landed == []


async def test_the_revision_does_not_pass_records_that_wait_for_their_transaction() -> None:
    applied, _ = opened()
    flight = Flight([2], lambda _write, _revision: None)
    applied.expect(flight)
    flight.place([(0, 0), (1, 0)])
    applied.feed([record(0, 0), record(0, 1)], (2, 0, 0, 0))
    reached = applied.wait((2, 0, 0, 0))
    assert applied.revision.next_offsets == (0, 0, 0)
    assert not reached.done()
    applied.feed([record(1, 0)], (3, 1, 0, 0))
    assert reached.done()
    assert applied.revision.next_offsets == (3, 1, 0)


async def test_snapshots_are_copied_once_per_state() -> None:
    applied, _ = opened()
    first = applied.snapshot()
    assert applied.snapshot() is first
    applied.feed([record(0, 0)], (1, 0, 0, 0))
    assert applied.snapshot() is not first
    assert first.records == []


async def test_a_cancelled_waiter_is_released_although_no_record_arrives() -> None:
    applied, _ = opened()
    waiting: weakref.WeakSet[asyncio.Future[None]] = weakref.WeakSet()

    def wait_and_leave() -> None:
        left = applied.wait((10, 0, 0))
        waiting.add(left)
        left.cancel()

    for _ in range(100):
        wait_and_leave()
    await asyncio.sleep(0)
    gc.collect()
    assert len(waiting) == 0
    stayed = applied.wait((1, 0, 0))
    applied.feed([record(0, 0)], (1, 0, 0, 0))
    await stayed
