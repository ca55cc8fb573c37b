"""Extra records and offsets beside a write, on both engines: they exist exactly when the write's records do.

Refusals that only a broker makes (access rules, a topic's own limit of size) are in
`libs/core/tests/topicstore/test_kafka_beside.py`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from herdmesh.topicstore import (
    Beside,
    BesideRefused,
    GroupOffset,
    NewRecord,
    NotApplied,
    Revision,
    StoreRole,
    WriteDecision,
    WriteStage,
    partition_of,
)
from tests.contract.topicstore_harness import (
    WAIT_S,
    Cluster,
    Store,
    Written,
    cluster_of,
    create,
    put,
    put_beside,
    until_role,
    writer_of,
)
from tests.support.side_by_side import SideBySide

PARTITIONS = 3
together = SideBySide("bootstrap", cluster=cluster_of)


def names(cluster: Cluster) -> tuple[str, str]:
    """Names of another topic and of a group, this test's own."""
    return f"{cluster.settings.topic}-other", f"{cluster.settings.topic}-sink"


async def stays_well(cluster: Cluster, store: Store, **values: bytes) -> None:
    """Check that `store` still writes, has `values` besides, and that a replica agrees."""
    await until_role(store, StoreRole.WRITER)
    await store.write(put(b"well", b"1"))
    expected = {key.encode(): value for key, value in values.items()} | {b"well": b"1"}
    assert store.state.values() == expected
    assert (await cluster.open()).state.values() == expected


async def nothing_beside(cluster: Cluster) -> bool:
    other, group = names(cluster)
    return await cluster.lying_in(other) == [] and await cluster.group_offsets(group) == {}


@together
async def test_extra_records_and_offsets_of_a_write_exist_when_it_is_answered(cluster: Cluster) -> None:
    store = await writer_of(cluster)
    other, group = names(cluster)
    await cluster.make_topic(other, PARTITIONS)
    beside = Beside(
        [NewRecord(b"key", b"value", other), NewRecord(b"gone", None, other)],
        group,
        [GroupOffset(other, 0, 7, "noted"), GroupOffset(other, 2, 0)],
    )
    written = await store.write(put_beside(b"a", b"1", beside))
    assert written.entry is not None
    assert written.entry == store.state.entries[b"a"]
    assert written.revision.next_offsets == (written.entry.offset + 1,)
    expected = [(partition_of(key, PARTITIONS), key, value) for key, value in ((b"key", b"value"), (b"gone", None))]
    assert sorted(await cluster.lying_in(other)) == sorted(expected)
    assert await cluster.group_offsets(group) == {(other, 0): (7, "noted"), (other, 2): (0, "")}
    # A second request with the same offset commits it again; offsets that are not named stay.
    moved = Beside(group=group, group_offsets=[GroupOffset(other, 0, 9)])
    await store.write(put_beside(b"a", b"2", moved))
    assert await cluster.group_offsets(group) == {(other, 0): (9, ""), (other, 2): (0, "")}
    assert len(await cluster.lying_in(other)) == 2
    await stays_well(cluster, store, a=b"2")


@together
async def test_a_late_value_works_with_extra_records(cluster: Cluster) -> None:
    """Also when the records have to be sent twice, because another producer wrote in between."""
    store = await writer_of(cluster)
    other, group = names(cluster)
    await cluster.make_topic(other, 1)
    audit = NewRecord(b"?", b"?", cluster.settings.audit_topic, late=lambda at: b"at %d" % at.next_offsets)

    def decide(value: bytes) -> Callable[[object], WriteDecision[Revision]]:
        beside = Beside([NewRecord(b"key", value, other)], group, [GroupOffset(other, 0, 1)])
        return lambda _: WriteDecision([NewRecord(b"a", value), audit], lambda _, revision: revision, beside)

    first = await store.write(decide(b"1"))
    await cluster.produce(b"foreign", b"1")
    second = await store.write(decide(b"2"))
    assert store.state.audited == tuple(b"at %d" % revision.next_offsets for revision in (first, second))
    assert await cluster.lying_in(other) == [(0, b"key", b"1"), (0, b"key", b"2")]
    await stays_well(cluster, store, a=b"2", foreign=b"1")


@together
@pytest.mark.parametrize("wrong", ["topic", "group topic", "group partition", "size"])
async def test_extra_records_that_kafka_refuses_leave_nothing_written(cluster: Cluster, wrong: str) -> None:
    store = await writer_of(cluster)
    other, group = names(cluster)
    await cluster.make_topic(other, PARTITIONS)
    nowhere = f"{other}-nowhere"
    records = [NewRecord(b"good", b"1", other)]
    offsets = [GroupOffset(other, 0, 7)]
    said = other
    match wrong:
        case "topic":
            records.append(NewRecord(b"bad", b"1", nowhere))
            said = nowhere
        case "group topic":
            offsets.append(GroupOffset(nowhere, 0, 7))
            said = nowhere
        case "group partition":
            offsets.append(GroupOffset(other, PARTITIONS, 7))
        case _:
            records.append(NewRecord(b"bad", b"x" * 2_000_000, other))
    with pytest.raises(BesideRefused) as refused:
        await store.write(put_beside(b"a", b"1", Beside(records, group, offsets)))
    assert repr(said) in str(refused.value)
    assert not isinstance(refused.value, NotApplied), "the same call is not promised to work"
    await stays_well(cluster, store)
    assert await nothing_beside(cluster)
    assert nowhere not in await cluster.topics(), "nobody makes a topic by naming it"
    await store.write(put_beside(b"a", b"1", Beside(records[:1], group, offsets[:1])))
    assert await cluster.lying_in(other) == [(partition_of(b"good", PARTITIONS), b"good", b"1")]
    assert await cluster.group_offsets(group) == {(other, 0): (7, "")}


@together
async def test_invalid_extra_records_are_refused_without_failing_other_writes(cluster: Cluster) -> None:
    store = await writer_of(cluster)
    other, group = names(cluster)
    await cluster.make_topic(other, 1)
    wrong = [
        Beside([NewRecord(b"a", b"1")]),
        Beside([NewRecord(b"a", b"1", cluster.settings.topic)]),
        Beside([NewRecord(b"a", b"1", cluster.settings.audit_topic)]),
        Beside([NewRecord(b"a", b"1", other, late=lambda _: b"2")]),
        Beside(group=group, group_offsets=[GroupOffset(other, 0, -1)]),
        Beside(group_offsets=[GroupOffset(other, 0, 1)]),
    ]
    for beside in wrong:
        with pytest.raises(ValueError, match=r"beside|late|is no offset"):
            await store.write(put_beside(b"a", b"1", beside))
    alone = Beside([NewRecord(b"a", b"1", other)])
    with pytest.raises(ValueError, match="without records"):
        await store.write(lambda _: WriteDecision([], lambda _, revision: revision, alone))
    assert store.role is StoreRole.WRITER
    await stays_well(cluster, store)
    assert await nothing_beside(cluster)


@together
@pytest.mark.parametrize("stage", [WriteStage.BEFORE_SEND, WriteStage.AFTER_SEND, WriteStage.BEFORE_COMMIT])
async def test_a_writer_fenced_in_the_middle_leaves_no_extra_records(cluster: Cluster, stage: WriteStage) -> None:
    """Another writer fences it while its transaction is open."""
    armed = False

    def on_stage(reached: WriteStage) -> None:
        nonlocal armed
        if armed and reached is stage:
            armed = False
            cluster.usurp_within()

    store = await cluster.open(on_stage=on_stage)
    await until_role(store, StoreRole.WRITER)
    other, group = names(cluster)
    await cluster.make_topic(other, 1)
    armed = True
    beside = Beside([NewRecord(b"key", b"1", other)], group, [GroupOffset(other, 0, 7)])
    with pytest.raises(NotApplied):
        await store.write(put_beside(b"a", b"1", beside))
    await stays_well(cluster, store)
    assert await nothing_beside(cluster)
    await store.write(put_beside(b"a", b"2", beside))
    assert await cluster.lying_in(other) == [(0, b"key", b"1")]
    assert await cluster.group_offsets(group) == {(other, 0): (7, "")}


@together
async def test_concurrent_writes_keep_all_their_extra_records(cluster: Cluster) -> None:
    store = await writer_of(cluster)
    other, group = names(cluster)
    await cluster.make_topic(other, PARTITIONS)

    def write(number: int) -> asyncio.Future[Written]:
        key, value = b"key-%d" % number, b"%d" % number
        beside = Beside([NewRecord(key, value, other)], f"{group}-{number}", [GroupOffset(other, 0, number)])
        return asyncio.ensure_future(
            store.write(put_beside(key, value, beside) if number % 3 == 0 else put(key, value))
        )

    async with asyncio.timeout(WAIT_S):
        written = await asyncio.gather(*(write(number) for number in range(30)))
    offsets = [one.entry.offset for one in written if one.entry is not None]
    assert offsets == sorted(offsets), "in the order in which they came"
    assert store.state.values() == {b"key-%d" % number: b"%d" % number for number in range(30)}
    expected = {b"key-%d" % number: b"%d" % number for number in range(0, 30, 3)}
    assert {key: value for _, key, value in await cluster.lying_in(other)} == expected
    assert len(await cluster.lying_in(other)) == len(expected)
    for number in range(0, 30, 3):
        assert await cluster.group_offsets(f"{group}-{number}") == {(other, 0): (number, "")}


@together
async def test_a_write_that_waits_for_a_transaction_of_its_own_is_decided_on_the_one_before(cluster: Cluster) -> None:
    store = await writer_of(cluster)
    other, _ = names(cluster)
    await cluster.make_topic(other, 1)
    beside = Beside([NewRecord(b"key", b"1", other)])
    decided: list[bool] = []

    def decide(state: object) -> WriteDecision[Written]:
        decided.append(b"a" in store.state.entries)
        decision = create(b"b", b"1")(store.state)
        return WriteDecision(decision.records, decision.result, beside)

    first, second, third = await asyncio.gather(
        store.write(put(b"a", b"1")), store.write(decide), store.write(put(b"c", b"1"))
    )
    assert decided[-1], "it was decided when what came before it was applied"
    assert first.entry is not None
    assert second.entry is not None
    assert third.entry is not None
    # A marker ends each transaction.
    assert second.entry.offset == first.entry.offset + 2
    assert third.entry.offset == second.entry.offset + 2
