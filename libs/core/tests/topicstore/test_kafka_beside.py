"""Refusals of a write's extra records and offsets that only a broker makes: by its access rules, and by a topic's
limits.

On the session's broker with access rules, which also creates topics automatically (Kafka's default).
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, replace

import pytest

from herdmesh.topicstore import Beside, BesideRefused, GroupOffset, NewRecord, StoreCondition, StoreRole
from tests.contract.topicstore_harness import KafkaCluster, Store, put, put_beside, suite_settings, until_role
from tests.support.guarded_broker import GuardedBroker
from tests.support.side_by_side import SideBySideTest
from tests.support.waiting import of_stores


@dataclass
class Guest:
    """A store of a user who has exactly the rights that stores need, with a topic and a group that are not the
    store's.
    """

    guarded: GuardedBroker
    user: str
    cluster: KafkaCluster
    #: With all rights.
    everywhere: KafkaCluster
    topic: str
    group: str

    async def writer(self) -> Store:
        settings = self.cluster.settings
        await self.guarded.allow_store(self.user, settings.topic, settings.transactional_id, settings.election_group)
        store = await self.cluster.open()
        await until_role(store, StoreRole.WRITER)
        return store

    async def refused(self, store: Store, beside: Beside) -> BesideRefused:
        """Return the refusal, after a check that it wrote nothing and left the store unchanged."""
        offsets = await self.everywhere.group_offsets(self.group)
        with pytest.raises(BesideRefused) as refusal:
            await store.write(put_beside(b"a", b"1", beside))
        await until_role(store, StoreRole.WRITER)
        await store.write(put(b"b", b"1"))
        assert store.state.values() == {b"b": b"1"}
        assert store.health.condition is StoreCondition.HEALTHY
        assert await self.everywhere.lying_in(self.topic) == []
        assert await self.everywhere.group_offsets(self.group) == offsets
        assert "\n" not in str(refusal.value)
        return refusal.value


@asynccontextmanager
async def _guest(guarded: GuardedBroker, topic: str) -> AsyncGenerator[Guest]:
    user, configs = guarded.new_user()
    own = suite_settings(topic, guarded.guarded)
    other = f"other-{topic}"
    guest = Guest(
        guarded,
        user,
        KafkaCluster(replace(own, client_configs=configs)),
        KafkaCluster(suite_settings(other, guarded.bootstrap)),
        other,
        f"sink-{topic}",
    )
    try:
        yield guest
    finally:
        await guest.cluster.close()


def _made(test: SideBySideTest) -> AbstractAsyncContextManager[Guest]:
    return _guest(test.fixture("guarded"), test.topic())


together = of_stores.making("guarded", guest=_made)


@together
async def test_a_topic_without_write_permission_is_named(guest: Guest, guarded: GuardedBroker) -> None:
    store = await guest.writer()
    await guarded.create_topic(guest.topic)
    beside = Beside([NewRecord(b"key", b"1", guest.topic)])
    refusal = await guest.refused(store, beside)  # it may not even know whether the topic exists
    assert f"topic {guest.topic!r}" in str(refusal)
    await guarded.allow(guest.user, f"topic:{guest.topic}", "DESCRIBE")
    refusal = await guest.refused(store, beside)
    assert f"topic {guest.topic!r}" in str(refusal)
    assert "authorization failed" in refusal.reason
    await guarded.allow(guest.user, f"topic:{guest.topic}", "WRITE")
    await store.write(put_beside(b"a", b"1", beside))
    assert await guest.everywhere.lying_in(guest.topic) == [(0, b"key", b"1")]


@together
async def test_a_group_without_commit_permission_is_named(guest: Guest, guarded: GuardedBroker) -> None:
    store = await guest.writer()
    await guarded.create_topic(guest.topic)
    await guarded.allow(guest.user, f"topic:{guest.topic}", "READ", "WRITE")
    beside = Beside([NewRecord(b"key", b"1", guest.topic)], guest.group, [GroupOffset(guest.topic, 0, 7, "noted")])
    refusal = await guest.refused(store, beside)
    assert refusal.what == f"offsets of group {guest.group!r}"
    assert "authorization failed" in refusal.reason
    await guarded.allow(guest.user, f"group:{guest.group}", "READ")
    await store.write(put_beside(b"a", b"1", beside))
    assert await guest.everywhere.lying_in(guest.topic) == [(0, b"key", b"1")]
    assert await guest.everywhere.group_offsets(guest.group) == {(guest.topic, 0): (7, "noted")}


@together
async def test_a_record_that_its_topic_rejects_is_refused(guest: Guest, guarded: GuardedBroker) -> None:
    store = await guest.writer()
    await guarded.create_topic(guest.topic, max_message_bytes="1000")
    await guarded.allow(guest.user, f"topic:{guest.topic}", "WRITE")
    good = NewRecord(b"good", b"1", guest.topic)
    refusal = await guest.refused(store, Beside([good, NewRecord(b"large", b"x" * 5_000, guest.topic)]))
    assert f"topic {guest.topic!r}" in refusal.what
    await store.write(put_beside(b"a", b"1", Beside([good])))
    assert await guest.everywhere.lying_in(guest.topic) == [(0, b"good", b"1")]


@together
async def test_offset_metadata_longer_than_the_broker_allows_is_refused(guest: Guest, guarded: GuardedBroker) -> None:
    store = await guest.writer()
    await guarded.create_topic(guest.topic)
    await guarded.allow(guest.user, f"topic:{guest.topic}", "READ")
    await guarded.allow(guest.user, f"group:{guest.group}", "READ")
    offsets = [GroupOffset(guest.topic, 0, 7, "x" * 5_000)]
    refusal = await guest.refused(store, Beside(group=guest.group, group_offsets=offsets))
    assert refusal.what == f"offsets of group {guest.group!r}"
