"""Replicas on a real broker: the owner of the writer election while other replicas join and leave."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from confluent_kafka import ConsumerGroupState, Producer
from confluent_kafka.admin import AdminClient

from herdmesh.topicstore import StoreCondition, StoreRole
from tests.contract.topicstore_harness import WAIT_S, KafkaCluster, Store, put, suite_settings, until_role


async def _until_members(bootstrap: str, group: str, count: int) -> None:
    """Wait until the election group is stable with `count` members, each with its share of the partitions."""
    admin: Any = AdminClient({"bootstrap.servers": bootstrap})  # its annotations are incomplete

    async def settled() -> bool:
        (future,) = admin.describe_consumer_groups([group]).values()
        found = await asyncio.wrap_future(future)
        owned = [member for member in found.members if member.assignment.topic_partitions]
        return found.state is ConsumerGroupState.STABLE and len(found.members) == len(owned) == count

    async with asyncio.timeout(WAIT_S):
        while True:
            if await settled():
                return
            await asyncio.sleep(0.1)


async def _follow(store: Store, seen: list[StoreRole]) -> None:
    async for role in store.role_changes():
        if role is StoreRole.CLOSED:
            return
        seen.append(role)


async def test_joining_and_leaving_replicas_do_not_take_the_election_from_the_writer(
    kafka_bootstrap: str, tmp_topic: Callable[..., str]
) -> None:
    cluster = KafkaCluster(replace(suite_settings(tmp_topic(), kafka_bootstrap), partitions=5))
    group = cluster.settings.election_group
    try:
        store = await cluster.open()
        await until_role(store, StoreRole.WRITER)
        seen: list[StoreRole] = []
        following = asyncio.create_task(_follow(store, seen))
        others = [await cluster.open() for _ in range(2)]
        await _until_members(kafka_bootstrap, group, 3)
        await others[0].close()
        await store.write(put(b"a", b"1"))
        others.append(await cluster.open())
        await _until_members(kafka_bootstrap, group, 3)
        written = await store.write(put(b"a", b"2"))
        assert seen == [StoreRole.WRITER]
        for other in others[1:]:
            await other.wait_for(written.revision)
            assert other.role is StoreRole.REPLICA
            assert other.state.values() == {b"a": b"2"}
        following.cancel()
    finally:
        await cluster.close()


async def test_a_store_names_the_foreign_transaction_it_waits_for(
    kafka_bootstrap: str, tmp_topic: Callable[..., str], caplog: pytest.LogCaptureFixture
) -> None:
    topic = tmp_topic()
    cluster = KafkaCluster(suite_settings(topic, kafka_bootstrap))
    foreign = Producer({"bootstrap.servers": kafka_bootstrap, "transactional.id": f"foreign-{topic}"})
    allowed = asyncio.Event()

    async def may_write() -> bool:
        await allowed.wait()
        return True

    try:
        store = await cluster.open(may_write=may_write)
        await asyncio.to_thread(foreign.init_transactions, WAIT_S)
        foreign.begin_transaction()
        foreign.produce(topic, b"theirs", b"b")
        await asyncio.to_thread(foreign.flush, WAIT_S)
        allowed.set()
        async with asyncio.timeout(WAIT_S):
            while store.health.condition is not StoreCondition.TAKE_OVER_BLOCKED:  # noqa: ASYNC110  # nobody tells of it
                await asyncio.sleep(0.02)
        since_ms, said = store.health.since_ms, store.health.message
        assert f"it waits for another program to end its transaction, which is open in {topic}-0;" in said
        tool = f"kafka-transactions.sh --bootstrap-server {kafka_bootstrap} %s --topic {topic} --partition 0"
        assert tool % "describe-producers" in said
        assert tool % "abort" + " --start-offset OFFSET" in said
        assert store.role is not StoreRole.WRITER
        async with asyncio.timeout(WAIT_S):
            while caplog.text.count("taking over failed, trying again") < 2:  # noqa: ASYNC110  # as above
                await asyncio.sleep(0.02)
        assert (store.health.since_ms, store.health.message) == (since_ms, said)
        await asyncio.to_thread(foreign.commit_transaction, WAIT_S)
        await until_role(store, StoreRole.WRITER)
        assert store.health.condition is StoreCondition.HEALTHY
        assert store.state.entries[b"b"].value == b"theirs"
    finally:
        await cluster.close()
