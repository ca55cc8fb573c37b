"""Answers for a write that the broker confirmed but that is missing from the log or not yet readable, and the effect of
a retry. On the memory engine, whose broker loses records and markers here; with a real broker: test_kafka_hung.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable

import pytest

from herdmesh.topicstore import (
    NewRecord,
    Revision,
    StoreCondition,
    StoreRole,
    StoreTuning,
    WriteDecision,
    WriteOutcomeUnknown,
    WriteStage,
)
from herdmesh.topicstore.log import LogBlocked
from herdmesh.topicstore.memory.memory_broker import MemoryBroker
from tests.contract.topicstore_harness import WAIT_S, KeyValues, MemoryCluster, Store, suite_settings, until_role

OWN, AUDIT = "topic", "topic-audit"
_TUNING = StoreTuning(take_over_backoff_ms=1, take_over_backoff_ms_max=5, read_back_ms=300, outcome_timeout_ms=5_000)
_IMPATIENT = StoreTuning(take_over_backoff_ms=1, take_over_backoff_ms_max=5, read_back_ms=300, outcome_timeout_ms=300)


class LosingBroker(MemoryBroker):
    """Loses confirmed records, or their marker (ADR 0006); a take-over ends hanging transactions."""

    def __init__(self) -> None:
        super().__init__()
        self.hanging: dict[str, bool] = {}
        self.blocked = False

    def lose(self, topics: Iterable[str]) -> None:
        """Remove the last records of these topics, as if retention or a bug deleted them before anybody read them."""
        for topic in topics:
            self.topics[topic].partitions[0].records.pop()

    def hang(self, ends: dict[str, bool]) -> None:
        """Leave the last transaction open in these topics, until a take-over ends it: True = by a commit."""
        self.hanging = ends
        for topic in ends:
            partition = self.topics[topic].partitions[0]
            partition.open.append(partition.records[-1].offset)

    def fence(self, transactional_id: str) -> int:
        epoch = super().fence(transactional_id)
        if self.blocked:
            raise LogBlocked("another program to end its transaction, which is open in topic-0", "end it")
        for topic, commit in self.hanging.items():
            self.topics[topic].partitions[0].open.clear()
            if not commit:
                self.lose([topic])
        self.hanging = {}
        self._notify()
        return epoch


class Scene:
    """A writer to whose broker a fault happens right after a write was confirmed."""

    def __init__(self) -> None:
        self.broker = LosingBroker()
        self.cluster = MemoryCluster(suite_settings(OWN), self.broker)
        self._harm: Callable[[], None] = lambda: None

    async def writer(self, tuning: StoreTuning = _TUNING) -> Store:
        store = await self.cluster.open(tuning=tuning, on_stage=self._on_stage)
        await until_role(store, StoreRole.WRITER)
        await store.write(once(b"first"))
        return store

    def after_the_next_commit(self, harm: Callable[[], None]) -> None:
        self._harm = harm

    def _on_stage(self, stage: WriteStage) -> None:
        if stage is WriteStage.AFTER_COMMIT:
            harm, self._harm = self._harm, lambda: None
            harm()


@pytest.fixture
async def scene() -> AsyncIterator[Scene]:
    made = Scene()
    yield made
    await made.cluster.close()


def once(request_id: bytes) -> Callable[[KeyValues], WriteDecision[Revision]]:
    """A write of both topics that a retry does not repeat: the audit record of its id marks it as done."""

    def decide(state: KeyValues) -> WriteDecision[Revision]:
        records = [NewRecord(request_id, request_id), NewRecord(request_id, request_id, AUDIT)]
        return WriteDecision([] if request_id in state.audited else records, lambda _state, revision: revision)

    return decide


async def _told(writing: Awaitable[Revision]) -> str:
    """Reason that a caller gets with an unknown outcome."""
    with pytest.raises(WriteOutcomeUnknown) as unknown:
        await asyncio.wait_for(writing, WAIT_S)
    return unknown.value.reason


@pytest.mark.parametrize("lost", [[OWN, AUDIT], [OWN], [AUDIT]])
async def test_confirmed_write_missing_from_the_log_has_an_unknown_outcome(scene: Scene, lost: list[str]) -> None:
    """Never "not applied": a reader may have seen it. Its remaining records are read like any others."""
    store = await scene.writer()
    scene.after_the_next_commit(lambda: scene.broker.lose(lost))
    said = await _told(store.write(once(b"gone")))
    whole = "a confirmed transaction is not in the log"
    assert said == (whole if len(lost) == 2 else "only a part of a confirmed transaction is in the log")
    await until_role(store, StoreRole.WRITER)
    assert (b"gone" in store.state.entries, b"gone" in store.state.audited) == (OWN not in lost, AUDIT not in lost)
    await store.write(once(b"gone"))
    assert store.state.audited == (b"first", b"gone")


async def test_every_write_of_a_partly_found_transaction_has_an_unknown_outcome(
    scene: Scene,
) -> None:
    store = await scene.writer()
    scene.after_the_next_commit(lambda: scene.broker.lose([OWN, AUDIT]))
    group = [asyncio.ensure_future(store.write(once(one))) for one in (b"one", b"two")]
    said = [await _told(writing) for writing in group]
    assert said == ["only a part of a confirmed transaction is in the log"] * 2
    await until_role(store, StoreRole.WRITER)
    await asyncio.gather(*(store.write(once(one)) for one in (b"one", b"two")))
    assert store.state.audited == (b"first", b"one", b"two")


@pytest.mark.parametrize("hung", [[OWN, AUDIT], [OWN], [AUDIT]])
async def test_confirmed_write_that_hangs_is_answered_once_it_is_committed_again(scene: Scene, hung: list[str]) -> None:
    store = await scene.writer()
    scene.after_the_next_commit(lambda: scene.broker.hang(dict.fromkeys(hung, True)))
    await asyncio.wait_for(store.write(once(b"late")), WAIT_S)
    await until_role(store, StoreRole.WRITER)
    assert store.state.audited == (b"first", b"late")
    assert b"late" in store.state.entries


@pytest.mark.parametrize(
    ("ends", "part"),
    [
        ({OWN: False, AUDIT: False}, ""),
        ({OWN: False}, ", and only a part of it is in the log"),
        ({AUDIT: False}, ", and only a part of it is in the log"),
        ({OWN: False, AUDIT: True}, ", and only a part of it is in the log"),
    ],
)
async def test_confirmed_write_that_hung_and_was_aborted_has_an_unknown_outcome(
    scene: Scene, ends: dict[str, bool], part: str
) -> None:
    """The broker reported it as committed: its absence now does not prove that it was never visible."""
    store = await scene.writer()
    scene.after_the_next_commit(lambda: scene.broker.hang(ends))
    said = await _told(store.write(once(b"gone")))
    assert said == f"a confirmed transaction was not read back within 0.3 s{part}"
    await until_role(store, StoreRole.WRITER)
    other = await scene.cluster.open()
    assert other.state == store.state


async def test_retry_of_an_unknown_write_that_is_committed_later_changes_nothing(
    scene: Scene,
) -> None:
    """While the take-over waits, the store's health names the reason for the operator."""
    store = await scene.writer(_IMPATIENT)
    scene.broker.blocked = True
    scene.after_the_next_commit(lambda: scene.broker.hang({OWN: True, AUDIT: True}))
    assert await _told(store.write(once(b"late"))) == "a confirmed transaction was not read back within 0.3 s"
    async with asyncio.timeout(WAIT_S):
        while store.health.condition is not StoreCondition.TAKE_OVER_BLOCKED:  # noqa: ASYNC110  # nobody tells of it
            await asyncio.sleep(0.01)
    assert "waits for another program to end its transaction, which is open in topic-0" in store.health.message
    assert store.health.message.endswith("if this persists: end it")
    scene.broker.blocked = False
    await until_role(store, StoreRole.WRITER)
    assert store.health.condition is StoreCondition.HEALTHY
    before = store.revision
    assert await store.write(once(b"late")) == before
    assert store.state.audited == (b"first", b"late")
