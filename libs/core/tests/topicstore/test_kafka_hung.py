"""A store whose transaction Kafka left without a marker (ADR 0006), in one of its topics or in both: the store
continues, its caller gets the true outcome, and its replicas have the decided state.

The state is created in the broker's files, as in tests/faults/test_hung_transactions.py. One broker of this module's
own is stopped once for all stores.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import pytest

from herdmesh.devstack.broker import QUICK_JVM, Broker
from herdmesh.topicstore import (
    KEEP_ALIVE_KEY,
    NewRecord,
    Revision,
    StoreRole,
    StoreTuning,
    WriteDecision,
    WriteOutcomeUnknown,
    WriteStage,
)
from herdmesh.topicstore.kafka import kafka_store
from herdmesh.topicstore.kafka.hanging_transaction import decided
from herdmesh.topicstore.kafka.reader import KafkaReader
from herdmesh.topicstore.kafka.topics import Shard
from herdmesh.topicstore.settings import TopicSettings
from libs.core.tests.engine.harness import Kafka
from tests.contract.topicstore_harness import KafkaCluster, KeyValues, Store, suite_settings, until_role
from tests.support.broker_files import cut_marker
from tests.support.waiting import of_stores

pytestmark = pytest.mark.own_broker

#: Their transaction outcomes may not be read: a hanging transaction is committed, since its audit record is visible.
SECRETIVE, HASTY = "secretive", "hasty"
#: Writes wait for a slow broker; also the write before the fault, or its writer would lose the election.
_TUNING = StoreTuning(read_back_ms=5_000, outcome_timeout_ms=60_000)
#: Its caller gets the answer "outcome unknown" before the broker is back.
_IMPATIENT = StoreTuning(read_back_ms=5_000, outcome_timeout_ms=1)


@dataclass
class Half:
    """A store, and its write that the broker confirmed before it lost the marker in the topics `lost`."""

    cluster: KafkaCluster
    lost: list[str]
    store: Store
    write: asyncio.Task[Revision]

    @classmethod
    async def of(cls, bootstrap: str, topic: str, *lost: str, tuning: StoreTuning = _TUNING) -> Half:
        loop, confirmed = asyncio.get_running_loop(), asyncio.Event()

        def on_stage(stage: WriteStage) -> None:
            if stage is WriteStage.AFTER_COMMIT:
                loop.call_soon_threadsafe(confirmed.set)

        cluster = KafkaCluster(suite_settings(topic, bootstrap))
        store = await cluster.open(on_stage=on_stage, tuning=tuning)
        await until_role(store, StoreRole.WRITER)
        await store.write(audited(topic, b"a", b"1"))
        confirmed.clear()
        await cast(Any, store)._log._reader.stop()  # else it would have read the write before the broker is gone
        write = asyncio.create_task(store.write(audited(topic, b"b", b"2")))
        await confirmed.wait()
        return cls(cluster, [f"{topic}{suffix}" for suffix in lost], store, write)

    def read_on(self) -> None:
        log = cast(Any, self.store)._log
        log._reader = KafkaReader(log._settings, log._shards, log._reader._positions)
        log._reader.start(log._events)

    async def states_after_one_more(self) -> list[KeyValues]:
        """States of this replica and of a new one that reads the topics from the beginning."""
        await until_role(self.store, StoreRole.WRITER)
        await self.store.write(audited(self.cluster.settings.topic, b"c", b"3"))
        states = [self.store.state.copy(), (await self.cluster.open()).state.copy()]
        for state in states:
            state.entries.pop(KEEP_ALIVE_KEY, None)
            state.audited = tuple(value for value in state.audited if value.isdigit())
        return states


def audited(topic: str, key: bytes, value: bytes) -> Callable[[KeyValues], WriteDecision[Revision]]:
    """A write of both topics that a retry does not repeat: its audit record marks it as done."""

    def decide(state: KeyValues) -> WriteDecision[Revision]:
        records = [NewRecord(key, value), NewRecord(key, value, f"{topic}-audit")]
        return WriteDecision([] if value in state.audited else records, lambda _state, revision: revision)

    return decide


def _decided(settings: TopicSettings, shards: list[Shard]) -> Any:
    return dict.fromkeys(shards) if settings.topic in (SECRETIVE, HASTY) else decided(settings, shards)


async def _goes_on(half: Half) -> None:
    if half.cluster.settings.topic == HASTY:
        await until_role(half.store, StoreRole.WRITER)
        await half.store.write(audited(HASTY, b"b", b"2"))  # the same request once more
    else:
        await half.write
    for state in await half.states_after_one_more():
        assert state.values() == {b"a": b"1", b"b": b"2", b"c": b"3"}, half.lost
        assert state.audited == (b"1", b"2", b"3"), half.lost


@asynccontextmanager
async def _broker(folder: Path) -> AsyncGenerator[Broker]:
    broker = Broker(folder, port=0, jvm=QUICK_JVM)
    await broker.start()
    try:
        yield broker
    finally:
        await broker.stop()


@of_stores
@pytest.mark.slow
async def test_a_write_whose_marker_the_broker_lost_ends_as_it_was_decided(tmp_path: Path) -> None:
    begun: list[Half] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kafka_store, "decided", _decided)
        async with _broker(tmp_path) as broker:
            try:
                begun += await asyncio.gather(
                    Half.of(broker.bootstrap, "one", ""),
                    Half.of(broker.bootstrap, "other", "-audit"),
                    Half.of(broker.bootstrap, "both", "", "-audit"),
                    Half.of(broker.bootstrap, SECRETIVE, ""),
                )
                # last: its outcome timeout is short
                begun.append(await Half.of(broker.bootstrap, HASTY, "", tuning=_IMPATIENT))
                markers = Kafka(broker.bootstrap)
                for topic in (
                    topic for half in begun for topic in half.lost
                ):  # a commit is answered before its marker is written
                    await asyncio.to_thread(markers.settled, topic, 1)
                await broker.stop()
                with pytest.raises(WriteOutcomeUnknown, match=r"not read back within 5 s"):
                    await begun[-1].write
                for topic in (topic for half in begun for topic in half.lost):
                    cut_marker(tmp_path, topic, 0)
                await broker.start()
                for half in begun:
                    half.read_on()
                await asyncio.gather(*(_goes_on(half) for half in begun))
            finally:
                for half in begun:
                    half.write.cancel()
                    await half.cluster.close()
