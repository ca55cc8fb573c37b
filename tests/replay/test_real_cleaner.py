"""Records that the cleaner of a real broker leaves: those of the cleaner's model, with the same reading as before.

In `make soak` only: a cleaner takes its time. The model is `tests.support.config_world.Cleaner`.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from typing import Any

import pytest
from confluent_kafka import Producer

from herdmesh.configstore.state.config import ConfigState
from herdmesh.configstore.state.mutations import (
    CommitTaskConfigs,
    DeleteConnector,
    LeaderToken,
    Mutation,
    PutConnectorConfig,
    PutLoggerLevel,
    PutTaskCount,
    SetTargetState,
    WriteContext,
)
from herdmesh.configstore.state.writes import plan, plan_epoch
from herdmesh.connect.topics import config_topic
from herdmesh.connect.topics.config_records import (
    CommitRecord,
    ConnectorRecord,
    LoggerRecord,
    TargetState,
    TaskConfigRecord,
)
from herdmesh.connect.topics.decoding import Tombstone
from herdmesh.devstack.broker import Broker
from herdmesh.topicstore import StoreRole
from herdmesh.topicstore.contract import StoredRecord, WriteDecision
from herdmesh.topicstore.kafka.kafka_store import KafkaTopicStore
from herdmesh.topicstore.settings import MURMUR2_RANDOM, TopicSettings
from tests.support.config_topic import TOPIC
from tests.support.config_world import Java, Replica, entry, follows_java
from tests.support.read_topic import committed_records
from tests.support.sizes import SOAKING

pytestmark = [
    pytest.mark.own_broker,
    pytest.mark.skipif(not SOAKING, reason="a broker's cleaner takes its time: make soak"),
    pytest.mark.timeout(300),
]

_WAIT_S = 120.0
_TOPIC_CONFIGS = {
    "segment.ms": "100",
    "min.cleanable.dirty.ratio": "0.01",
    "max.compaction.lag.ms": "1",
    "min.compaction.lag.ms": "0",
    "delete.retention.ms": "0",
}
_LEADER = LeaderToken(1, "h")
_LEVEL = PutLoggerLevel(LoggerRecord("root", "INFO"))
#: Ours; Java's in between; ours again. Configs behind their task sets, lives that ended, sets that shrank.
_HISTORY: tuple[Mutation | list[Java], ...] = (
    *(PutConnectorConfig(name, {"v": "1"}) for name in ("moved", "gone", "again", "small", "adopted", "foreign")),
    *(CommitTaskConfigs(name, [{"t": "1"}, {"t": "2"}]) for name in ("moved", "gone", "again", "small", "adopted")),
    *(PutTaskCount(name, 2) for name in ("moved", "gone", "small")),
    DeleteConnector("gone"),
    DeleteConnector("again"),
    PutConnectorConfig("again", {"v": "2"}, initial_target_state=TargetState.PAUSED),
    CommitTaskConfigs("small", [{"t": "3"}]),
    [TaskConfigRecord("adopted", 0, {"t": "of a leader that died"})],
    [ConnectorRecord("foreign", {"v": "j"}), TaskConfigRecord("foreign", 0, {"t": "j"}), CommitRecord("foreign", 1)],
    [Tombstone("connector", "foreign"), Tombstone("target-state", "foreign"), ConnectorRecord("foreign", {"v": "k"})],
    SetTargetState("adopted", TargetState.STOPPED),
    PutConnectorConfig("small", {"v": "2"}),
    PutConnectorConfig("moved", {"v": "2"}),
)


@pytest.fixture(scope="module")
def tidy_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    broker = Broker(tmp_path_factory.mktemp("cleaner"), port=0, settings={"log.cleaner.backoff.ms": "100"})
    asyncio.run(broker.start())
    yield broker
    asyncio.run(broker.stop())


@contextlib.asynccontextmanager
async def _opened(settings: TopicSettings) -> AsyncGenerator[KafkaTopicStore[Any, Any]]:
    store = KafkaTopicStore[Any, Any](settings, ConfigState())
    await store.start()
    try:
        async with asyncio.timeout(_WAIT_S):
            async for role in store.role_changes():
                if role is StoreRole.WRITER:
                    break
        yield store
    finally:
        await store.close()


async def _write(store: KafkaTopicStore[Any, Any], mutation: Mutation) -> None:
    context = WriteContext(type(mutation).__name__, 1, f"incarnation of {mutation}", leader=_LEADER)

    def decide(state: ConfigState) -> WriteDecision[None]:
        return WriteDecision(plan(state, mutation, context).records, _nothing)

    await store.write(decide)


def _nothing(*_: object) -> None:
    return None


def _java(bootstrap: str, topic: str, records: Sequence[Java]) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "partitioner": MURMUR2_RANDOM})
    for record in records:
        key, value = record if isinstance(record, tuple) else config_topic.encode(record)
        producer.produce(topic, key=key, value=value)
    assert producer.flush(_WAIT_S) == 0


def _is_clean(records: Sequence[StoredRecord], end: int) -> bool:
    """Whether before `end` there is one record of each key and no tombstone."""
    old = [record for record in records if record.offset < end]
    return len({record.key for record in old}) == len(old) and all(record.value is not None for record in old)


async def test_a_topic_cleaned_by_a_real_broker_reads_as_before(
    tidy_broker: Broker, tmp_topic: Callable[..., str]
) -> None:
    topic, bootstrap = tmp_topic("configs"), tidy_broker.bootstrap
    settings = TopicSettings(
        topic, f"{topic}-writer", f"{topic}-election", bootstrap_servers=bootstrap, topic_configs=_TOPIC_CONFIGS
    )
    async with _opened(settings) as store:
        await store.write(lambda state: WriteDecision(plan_epoch(state, _LEADER.leader_id, "h:1"), _nothing))
        for step in _HISTORY:
            if isinstance(step, list):
                await asyncio.to_thread(_java, bootstrap, topic, step)
                await store.barrier()
            else:
                await _write(store, step)
        end = store.revision.next_offsets[0]
        async with asyncio.timeout(_WAIT_S):
            while not _is_clean(
                left := await asyncio.to_thread(committed_records, bootstrap, topic, _WAIT_S, named=TOPIC), end
            ):
                await _write(store, _LEVEL)  # the segment in use is never cleaned: make the broker roll it
                await asyncio.sleep(0.2)
        before: ConfigState = store.state
        replica = Replica()
        for record in left:
            replica.read(record)
        names = {one.name for one in before.stored()} | {one.name for one in replica.state.stored()}
        assert len(names) == 6
        for name in names:
            after = replica.state.connector(name)
            assert after.foreign == before.connector(name).foreign == (name == "foreign")
            if after.foreign:
                follows_java(after, replica)
            else:
                assert entry(after) == entry(before.connector(name))
        assert (replica.state.leadership, replica.state.session_key) == (before.leadership, before.session_key)
        assert {task.properties["t"] for task in replica.state.connector("moved").tasks} == {"1", "2"}
        assert [task.properties["t"] for task in replica.state.connector("adopted").tasks] == ["1", "2"]
    async with _opened(settings) as store:  # and a store that starts on it sees the same
        for name in names:
            assert entry(store.state.connector(name)) == entry(replica.state.connector(name))
