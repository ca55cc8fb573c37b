"""Store conditions for an operator: everything that a broker can refuse or remove has its condition and a message with
the fix, and the store recovers after the fix without a restart of the process.

On the session's broker with access rules, which also creates topics automatically (Kafka's default).
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace
from typing import TypeVar

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition

from herdmesh.topicstore import (
    NewRecord,
    NotAuthorized,
    NotWriter,
    StartError,
    StoreCondition,
    StoreRole,
    StoreTuning,
    TopicMisconfigured,
    TopicRecreated,
    TopicStoreError,
    WriteDecision,
)
from herdmesh.topicstore.kafka.kafka_store import KafkaTopicStore
from tests.contract.topicstore_harness import (
    WAIT_S,
    Change,
    KafkaCluster,
    KeyValues,
    Watcher,
    create,
    put,
    suite_settings,
    until_role,
)
from tests.support.guarded_broker import GuardedBroker
from tests.support.side_by_side import SideBySideTest
from tests.support.waiting import of_stores

_TUNING = StoreTuning(topic_check_interval_ms=100, take_over_backoff_ms_max=200)
#: The guard checks so rarely that only the step under test can detect the fault.
_UNGUARDED = replace(_TUNING, topic_check_interval_ms=600_000)

Store = KafkaTopicStore[KeyValues, Change]
MadeT = TypeVar("MadeT", "Clerk", KafkaCluster)


class Clerk:
    """A user, the user's store and the granted rights."""

    def __init__(self, guarded: GuardedBroker, topic: str) -> None:
        self.guarded = guarded
        self.name, configs = guarded.new_user()
        self.settings = replace(suite_settings(topic, guarded.guarded), client_configs=configs, session_timeout_ms=3000)
        self.stores: list[Store] = []

    async def allow_all(self) -> None:
        settings = self.settings
        await self.guarded.allow_store(self.name, settings.topic, settings.transactional_id, settings.election_group)

    def store(self, tuning: StoreTuning = _TUNING) -> Store:
        """A new store, not started."""
        settings = replace(self.settings, client_id_base=f"{self.name}-{len(self.stores)}")
        self.stores.append(Store(settings, KeyValues(), tuning=tuning))
        return self.stores[-1]

    async def close(self) -> None:
        await asyncio.gather(*(store.close() for store in self.stores))


@asynccontextmanager
async def _closing(made: MadeT) -> AsyncGenerator[MadeT]:
    try:
        yield made
    finally:
        await made.close()


def _clerk(test: SideBySideTest) -> AbstractAsyncContextManager[Clerk]:
    return _closing(Clerk(test.fixture("guarded"), test.topic()))


def _cluster(test: SideBySideTest) -> AbstractAsyncContextManager[KafkaCluster]:
    """A cluster whose clients have all rights."""
    return _closing(KafkaCluster(suite_settings(test.topic(), test.fixture("guarded").bootstrap)))


#: A right takes effect, and a missing topic is noticed, after a while: each test mostly waits.
together = of_stores.making("guarded", clerk=_clerk, cluster=_cluster)


async def until_condition(store: Store, condition: StoreCondition, *said: str) -> None:
    """Wait until the store is in `condition` and its message contains all of `said`."""
    async with asyncio.timeout(WAIT_S):
        while True:
            health = store.health
            if health.condition is condition and all(text in health.message for text in said):
                assert "\n" not in health.message
                return
            await asyncio.sleep(0.02)


async def refused_start(store: Store, *said: str) -> None:
    with pytest.raises(NotAuthorized) as refusal:
        await store.start()
    assert store.role is StoreRole.REPLAYING
    assert store.health.condition is StoreCondition.NOT_AUTHORIZED
    assert str(refusal.value) == store.health.message
    assert all(text in store.health.message for text in said)


@together
async def test_each_missing_right_is_named_and_granting_it_recovers_the_store(
    clerk: Clerk, guarded: GuardedBroker
) -> None:
    settings, store = clerk.settings, clerk.store()
    topic = f"topic:{settings.topic}"
    await refused_start(store, f"describe topic {settings.topic}", f"--operation Describe --topic {settings.topic}")
    await guarded.allow(clerk.name, topic, "DESCRIBE")
    await refused_start(store, f"create topic {settings.topic}", f"User:{clerk.name}", "--operation Create")
    await guarded.allow(clerk.name, topic, "CREATE")
    await refused_start(store, f"read the configs of topic {settings.topic}", "--operation DescribeConfigs")
    await guarded.allow(clerk.name, topic, "DESCRIBE_CONFIGS")
    await refused_start(store, f"read from topic {settings.topic}", "--operation Read")
    await guarded.allow(clerk.name, topic, "READ")
    await store.start()
    # From here on the store serves reads, and gets past each further missing right without help.
    await until_condition(store, StoreCondition.NOT_AUTHORIZED, f"join group {settings.election_group}", "--group")
    assert store.role is StoreRole.REPLICA
    with pytest.raises(NotAuthorized):
        await store.write(put(b"a", b"1"))
    await guarded.allow(clerk.name, f"group:{settings.election_group}", "READ")
    await until_condition(store, StoreCondition.NOT_AUTHORIZED, f"write to topic {settings.topic}", "--operation Write")
    await guarded.allow(clerk.name, topic, "WRITE")
    await until_condition(
        store, StoreCondition.NOT_AUTHORIZED, f"use transactional id {settings.transactional_id}", "--transactional-id"
    )
    assert store.role is StoreRole.TAKING_OVER
    await store.barrier()
    await guarded.allow(clerk.name, f"transactional_id:{settings.transactional_id}", "WRITE")
    await until_role(store, StoreRole.WRITER)
    assert (store.health.condition, store.health.message) == (StoreCondition.HEALTHY, "")
    audited = NewRecord(b"k", b"v", settings.audit_topic)
    await store.write(lambda _: WriteDecision([NewRecord(b"a", b"1"), audited], lambda _state, revision: revision))
    assert [record.value for record in await store.read_audit([0])] == [b"v"]


@together
async def test_losing_the_right_to_write_keeps_reads_and_recovers(clerk: Clerk, guarded: GuardedBroker) -> None:
    """Detected by the guard without any write, and by a write before the guard checks."""
    await clerk.allow_all()
    topic = f"topic:{clerk.settings.topic}"
    store = clerk.store()
    await store.start()
    await until_role(store, StoreRole.WRITER)
    await store.write(put(b"a", b"1"))
    await guarded.deny(clerk.name, topic, "WRITE")
    # The denial is of a prefix, so of the audit topic too, and the guard may check the two while it takes effect:
    # wait until the message names the topic itself.
    await until_condition(store, StoreCondition.NOT_AUTHORIZED, f"write to topic {clerk.settings.topic}:")
    with pytest.raises(NotAuthorized) as refusal:
        await store.write(put(b"a", b"2"))
    assert (refusal.value.operation, refusal.value.resource) == ("write to", f"topic {clerk.settings.topic}")
    await store.barrier()
    assert store.state.values() == {b"a": b"1"}
    await guarded.relent(clerk.name, topic, "WRITE")
    await until_role(store, StoreRole.WRITER)
    assert store.health.condition is StoreCondition.HEALTHY
    await store.close()

    unguarded = clerk.store(_UNGUARDED)
    await unguarded.start()
    await until_role(unguarded, StoreRole.WRITER)
    await guarded.deny(clerk.name, topic, "WRITE")
    with pytest.raises(NotAuthorized, match="write to topic"):
        await unguarded.write(put(b"a", b"3"))
    await guarded.relent(clerk.name, topic, "WRITE")
    await until_role(unguarded, StoreRole.WRITER)
    await unguarded.write(put(b"a", b"4"))


@together
async def test_losing_the_right_to_join_the_election_keeps_reads_and_recovers(
    clerk: Clerk, guarded: GuardedBroker
) -> None:
    await clerk.allow_all()
    group = clerk.settings.election_group
    store = clerk.store()
    await store.start()
    await until_role(store, StoreRole.WRITER)
    await guarded.deny(clerk.name, f"group:{group}", "READ")
    await until_condition(store, StoreCondition.NOT_AUTHORIZED, f"join group {group}")
    assert store.role is StoreRole.REPLICA
    await store.barrier()
    await guarded.relent(clerk.name, f"group:{group}", "READ")
    await until_role(store, StoreRole.WRITER)
    assert store.health.condition is StoreCondition.HEALTHY


@together
@pytest.mark.parametrize("tuning", [_TUNING, _UNGUARDED], ids=["guard", "reader"])
async def test_losing_the_right_to_read_closes_the_store(
    clerk: Clerk, guarded: GuardedBroker, tuning: StoreTuning
) -> None:
    await clerk.allow_all()
    store = clerk.store(tuning)
    await store.start()
    watcher = Watcher(store)
    await watcher.until(lambda me: me.snapshot is not None)
    await guarded.deny(clerk.name, f"topic:{clerk.settings.topic}", "READ")
    await until_role(store, StoreRole.CLOSED)
    assert store.health.condition is StoreCondition.NOT_AUTHORIZED
    assert f"read from topic {clerk.settings.topic}" in store.health.message
    await watcher.until(lambda me: isinstance(me.error, NotAuthorized))
    with pytest.raises(NotAuthorized):
        await store.barrier()


@together
async def test_a_wrong_password_is_not_reported_as_an_unreachable_broker(clerk: Clerk) -> None:
    configs = {**clerk.settings.client_configs, "sasl.password": "wrong"}
    clerk.settings = replace(clerk.settings, client_configs=configs, start_timeout_ms=6_000)
    store = clerk.store()
    await refused_start(store, f"log in to Kafka at {clerk.guarded.guarded}", "kafka_client_configs")
    assert "wrong" not in store.health.message.replace("wrong credentials", "")


# Topics with the wrong settings.


@together
@pytest.mark.parametrize("policy", ["delete", "compact,delete"])
async def test_a_wrong_cleanup_policy_is_reported_with_the_command_that_fixes_it(
    guarded: GuardedBroker, cluster: KafkaCluster, policy: str
) -> None:
    topic = cluster.settings.topic
    await guarded.create_topic(topic, cleanup_policy=policy)
    with pytest.raises(TopicMisconfigured):
        await cluster.open(tuning=_TUNING)
    (store,) = cluster.opened
    assert store.health.condition is StoreCondition.CLEANUP_POLICY_WRONG
    assert f"cleanup.policy={policy}" in store.health.message
    assert f"kafka-configs.sh --bootstrap-server {guarded.bootstrap} --alter" in store.health.message
    assert f"--entity-name {topic} --add-config cleanup.policy=compact" in store.health.message
    await guarded.set_policy(topic, "compact")
    await store.start()
    assert store.health.condition is StoreCondition.HEALTHY


@together
async def test_a_compacted_audit_topic_is_refused_by_name(guarded: GuardedBroker, cluster: KafkaCluster) -> None:
    audit = cluster.settings.audit_topic
    assert audit is not None
    await guarded.create_topic(audit, cleanup_policy="compact")
    with pytest.raises(TopicMisconfigured):
        await cluster.open()
    (store,) = cluster.opened
    assert store.health.condition is StoreCondition.CLEANUP_POLICY_WRONG
    assert f"--entity-name {audit} --add-config cleanup.policy=delete" in store.health.message


@together
async def test_a_cleanup_policy_changed_at_runtime_is_reported_while_the_store_serves(
    guarded: GuardedBroker, cluster: KafkaCluster
) -> None:
    store = await cluster.open(tuning=_TUNING)
    await until_role(store, StoreRole.WRITER)
    await guarded.set_policy(cluster.settings.topic, "delete")
    await until_condition(store, StoreCondition.CLEANUP_POLICY_WRONG, "kafka-configs.sh")
    await store.write(put(b"a", b"1"))
    await guarded.set_policy(cluster.settings.topic, "compact")
    await until_condition(store, StoreCondition.HEALTHY)


@together
@pytest.mark.parametrize(("wanted", "found"), [(1, 2), (5, 4)], ids=["config-topic", "status-topic"])
async def test_a_wrong_partition_count_is_reported(
    guarded: GuardedBroker, cluster: KafkaCluster, wanted: int, found: int
) -> None:
    settings = replace(cluster.settings, partitions=wanted)
    await guarded.create_topic(settings.topic, found, cleanup_policy="compact")
    with pytest.raises(TopicMisconfigured):
        await cluster.open(settings)
    (store,) = cluster.opened
    assert store.health.condition is StoreCondition.PARTITION_COUNT_WRONG
    assert f"partitions={found}, this store needs partitions={wanted}" in store.health.message
    assert f"kafka-topics.sh --bootstrap-server {guarded.bootstrap} --delete" in store.health.message
    assert ("set this store's number of partitions" in store.health.message) is (wanted > 1)


@together
async def test_partitions_added_at_runtime_close_the_store(guarded: GuardedBroker, cluster: KafkaCluster) -> None:
    """A key would be written to another partition than before, and exist twice."""
    store = await cluster.open(tuning=_TUNING)
    await until_role(store, StoreRole.WRITER)
    await guarded.add_partitions(cluster.settings.topic, 2)
    await until_role(store, StoreRole.CLOSED)
    assert store.health.condition is StoreCondition.PARTITION_COUNT_WRONG


# Topics that are deleted.


async def _writer_of(replicas: list[Store]) -> Store:
    """The replica that became the writer."""
    waiting = [asyncio.create_task(until_role(store, StoreRole.WRITER)) for store in replicas]
    await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    for task in waiting:
        task.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)
    return next(store for store in replicas if store.role is StoreRole.WRITER)


def _fill(cluster: KafkaCluster, records: int) -> None:
    """Write to the topic as another program would. Repeat until the topic has the records: on a busy machine, records
    that were acknowledged right after a topic was recreated were missing, likely written to the log being deleted.
    """
    producer = Producer({"bootstrap.servers": cluster.settings.bootstrap_servers})
    deadline = time.monotonic() + WAIT_S
    while True:
        _produce(producer, cluster.settings.topic, records)
        if _end(cluster) >= records:
            return
        assert time.monotonic() < deadline, "the topic made anew never took the records"


def _end(cluster: KafkaCluster) -> int:
    consumer = Consumer({"bootstrap.servers": cluster.settings.bootstrap_servers, "group.id": "looks-only"})
    try:
        return consumer.get_watermark_offsets(TopicPartition(cluster.settings.topic, 0), timeout=WAIT_S)[1]
    finally:
        consumer.close()


def _produce(producer: Producer, topic: str, records: int) -> None:
    failures: list[KafkaError] = []

    def delivered(error: KafkaError | None, _message: object) -> None:
        if error is not None:
            failures.append(error)

    for number in range(records):
        producer.produce(topic, b"v", b"of-the-new-topic-%d" % number, on_delivery=delivered)
    assert producer.flush(WAIT_S) == 0
    assert not failures


async def _write(store: Store, keys: range) -> None:
    for number in keys:
        await store.write(create(b"%d" % number, b"v"))


async def _ask_until_it_ends(store: Store) -> None:
    while True:  # the topic answers for as long as the broker works on the deletion
        await store.barrier()


@together
@pytest.mark.parametrize("anew", ["absent", "empty", "longer"])
async def test_a_topic_deleted_at_runtime_closes_the_store(
    guarded: GuardedBroker, cluster: KafkaCluster, anew: str
) -> None:
    """Deleted; or recreated; or recreated and longer than before, so that no offset reveals it. Two replicas use it
    meanwhile, and none of their requests recreates it on a broker that creates topics automatically.
    """
    topic = cluster.settings.topic
    replicas = [await cluster.open(tuning=_TUNING), await cluster.open(tuning=_TUNING)]
    writer = await _writer_of(replicas)
    await _write(writer, range(5))
    watcher = Watcher(writer)
    await watcher.until(lambda me: me.snapshot is not None)
    before = writer.revision
    await guarded.delete_topic(topic)
    if anew != "absent":
        await guarded.create_topic(topic, cleanup_policy="compact")
    if anew == "longer":
        await asyncio.to_thread(_fill, cluster, 100)
    if anew == "absent":
        # Every read of a store makes the store request the topic by name, again and again.
        asking = asyncio.gather(*(_ask_until_it_ends(store) for store in replicas), return_exceptions=True)
        assert [type(answer) for answer in await asyncio.wait_for(asking, WAIT_S)] == [TopicRecreated] * 2
    for store in replicas:
        await until_role(store, StoreRole.CLOSED)
        assert store.health.condition is StoreCondition.TOPIC_RECREATED
        assert f"topic {topic!r} was deleted" in store.health.message
        assert ("created again" in store.health.message) is (anew != "absent")
        with pytest.raises(TopicRecreated):
            await store.barrier()
        with pytest.raises(TopicRecreated):
            await store.wait_for(before)
    await watcher.until(lambda me: isinstance(me.error, TopicRecreated))
    assert await guarded.has_topic(topic) is (anew != "absent")

    fresh = await cluster.open(tuning=_TUNING)
    assert fresh.revision.store_id != before.store_id
    assert not {b"%d" % number for number in range(5)} & set(fresh.state.entries)
    assert len(fresh.state.entries) == (100 if anew == "longer" else 0)


@together
async def test_take_over_checks_the_topic_before_it_fences(guarded: GuardedBroker, cluster: KafkaCluster) -> None:
    """The guard has not checked yet when a replica becomes the writer of a recreated topic."""
    first = await cluster.open(tuning=_UNGUARDED)
    await until_role(first, StoreRole.WRITER)
    await _write(first, range(5))
    second = await cluster.open(tuning=_UNGUARDED)
    await guarded.delete_topic(cluster.settings.topic)
    await guarded.create_topic(cluster.settings.topic, cleanup_policy="compact")
    await asyncio.to_thread(_fill, cluster, 100)
    await first.close()
    await until_role(second, StoreRole.CLOSED)
    assert second.health.condition is StoreCondition.TOPIC_RECREATED


@together
async def test_a_write_into_a_recreated_topic_is_not_acknowledged(
    guarded: GuardedBroker, cluster: KafkaCluster
) -> None:
    store = await cluster.open(tuning=_UNGUARDED)
    await until_role(store, StoreRole.WRITER)
    await _write(store, range(5))
    await guarded.delete_topic(cluster.settings.topic)
    await guarded.create_topic(cluster.settings.topic, cleanup_policy="compact")
    with pytest.raises(TopicStoreError):  # which one depends on the part that notices first
        await store.write(put(b"late", b"1"))
    with contextlib.suppress(TopicRecreated, NotWriter):
        await store.write(put(b"later", b"1"))
    await until_role(store, StoreRole.CLOSED)
    assert store.health.condition is StoreCondition.TOPIC_RECREATED


@together
async def test_an_unreachable_broker_is_reported_and_retried(guarded: GuardedBroker, cluster: KafkaCluster) -> None:
    nowhere = replace(cluster.settings, bootstrap_servers="127.0.0.1:1", start_timeout_ms=300)
    with pytest.raises(StartError):
        await cluster.open(nowhere)
    (store,) = cluster.opened
    assert store.health.condition is StoreCondition.BROKER_UNREACHABLE
    assert "127.0.0.1:1" in store.health.message
    since_ms = store.health.since_ms
    with pytest.raises(StartError):
        await store.start()
    assert store.health.since_ms == since_ms
