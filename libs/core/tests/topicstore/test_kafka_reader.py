"""The reader of a topic whose log is truncated, and a reader that is stuck."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, cast

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from herdmesh.topicstore import NewRecord, StoredRecord, StoreRole, StoreTuning, WriteDecision, WriteOutcomeUnknown
from herdmesh.topicstore.errors import NotAuthorized, StoreClosed
from herdmesh.topicstore.kafka.reader import KafkaReader
from herdmesh.topicstore.log import Positions
from tests.contract.topicstore_harness import WAIT_S, KafkaCluster, put, suite_settings, until_role


class _Events:
    """Records the reader's callbacks."""

    def __init__(self) -> None:
        self.records: list[StoredRecord] = []
        self.positions: Positions = ()
        self.fault: Exception | None = None
        self.told = asyncio.Condition()

    def on_records(self, records: Sequence[StoredRecord], positions: Positions) -> None:
        self.records += records
        self.positions = positions
        self._notify()

    def on_owner(self, owned: bool) -> None:
        raise AssertionError(f"a reader knows no owner ({owned})")

    def on_election_refused(self, error: NotAuthorized | None) -> None:
        raise AssertionError(f"a reader knows no election ({error})")

    def on_fault(self, error: StoreClosed | NotAuthorized) -> None:
        self.fault = error
        self._notify()

    def _notify(self) -> None:
        async def notify() -> None:
            async with self.told:
                self.told.notify_all()

        self._notifying = asyncio.get_running_loop().create_task(notify())

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(WAIT_S), self.told:
            await self.told.wait_for(condition)


async def test_records_deleted_by_retention_from_the_audit_topic_are_skipped(
    kafka_bootstrap: str, tmp_topic: Callable[..., str]
) -> None:
    """A reader at offset 0 whose audit topic now begins at 6: it lagged, and retention deleted the records before
    it.
    """
    cluster = KafkaCluster(suite_settings(tmp_topic(), kafka_bootstrap))
    settings = cluster.settings
    audit = settings.audit_topic
    assert audit is not None
    try:
        store = await cluster.open()
        await until_role(store, StoreRole.WRITER)
        for number in range(5):  # a record and a marker in each topic every time
            value = b"%d" % number
            records = [NewRecord(b"a", value), NewRecord(b"audit", value, audit)]
            await store.write(lambda _, records=records: WriteDecision(records, lambda _state, revision: revision))
    finally:
        await cluster.close()
    admin: Any = AdminClient({"bootstrap.servers": kafka_bootstrap})
    (deleted,) = admin.delete_records([TopicPartition(audit, 0, 6)]).values()
    await asyncio.wrap_future(deleted)
    shards = [(settings.topic, 0), (audit, 0)]
    skipping = await _read(KafkaReader(settings, shards, (0, 0)), lambda events: events.positions == (10, 10))
    assert skipping.fault is None
    assert [record.value for record in skipping.records if record.topic == audit] == [b"3", b"4"]
    assert len([record for record in skipping.records if record.topic == settings.topic]) == 5
    beyond = await _read(KafkaReader(settings, shards, (0, 1000)), lambda events: events.fault is not None)
    assert isinstance(beyond.fault, StoreClosed)  # not skipped: this is not the topic it read


async def _read(reader: KafkaReader, condition: Callable[[_Events], bool]) -> _Events:
    events = _Events()
    reader.start(events)
    try:
        await events.until(lambda: condition(events) or events.fault is not None)
    finally:
        await reader.stop()
    return events


async def test_a_store_whose_reader_is_stuck_makes_room_for_another_writer(
    kafka_bootstrap: str, tmp_topic: Callable[..., str]
) -> None:
    cluster = KafkaCluster(suite_settings(tmp_topic(), kafka_bootstrap))
    try:
        store = await cluster.open(tuning=StoreTuning(read_back_ms=300))
        await until_role(store, StoreRole.WRITER)
        other = await cluster.open()
        await cast(Any, store)._log._reader.stop()
        with pytest.raises(WriteOutcomeUnknown):  # it cannot be read back
            async with asyncio.timeout(WAIT_S):
                await store.write(put(b"a", b"1"))
        await until_role(other, StoreRole.WRITER)
        await other.write(put(b"b", b"2"))
        assert other.state.values() == {b"a": b"1", b"b": b"2"}
        assert "makes no progress" in store.health.message
    finally:
        await cluster.close()
