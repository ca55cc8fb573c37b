"""Health of a store: one condition, the one that explains the others, logged once per change; on the memory engine,
which has no broker to refuse anything. Refusals by a broker are in `test_kafka_health`.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace

import pytest

from herdmesh.api.common.v1 import store_pb2
from herdmesh.rpc.store_status import meta_if_open, store_status
from herdmesh.topicstore import (
    BrokerUnreachable,
    ForeignWriter,
    NotAuthorized,
    StoreClosed,
    StoreCondition,
    StoreRole,
    StoreTuning,
    TopicMisconfigured,
    TopicRecreated,
    WriterFenced,
    start_when_possible,
    starting,
)
from herdmesh.topicstore.core import MayWrite, always
from herdmesh.topicstore.errors import TakeOverBlocked
from herdmesh.topicstore.health import HealthBook, Part, condition_of
from herdmesh.topicstore.log import LogBlocked, LogUnavailable, Positions
from herdmesh.topicstore.memory.memory_broker import MemoryBroker
from herdmesh.topicstore.memory.memory_store import MemoryLog, MemoryTopicStore
from tests.contract.topicstore_harness import WAIT_S, Change, KeyValues, Watcher, put, suite_settings, until_role

SETTINGS = suite_settings("t")
UNREACHABLE = BrokerUnreachable("127.0.0.1:1", "refused")
REFUSED = NotAuthorized("write to", "topic t", "grant it")
TUNING = StoreTuning(topic_check_interval_ms=10, may_write_interval_ms=10, take_over_backoff_ms=10)


def test_conditions_and_roles_equal_those_of_the_contract() -> None:
    conditions = {name.removeprefix("STORE_CONDITION_") for name in store_pb2.StoreCondition.keys()}  # noqa: SIM118
    assert {one.name for one in StoreCondition} == conditions - {"UNSPECIFIED"}
    roles = {name.removeprefix("STORE_ROLE_") for name in store_pb2.StoreRole.keys()}  # noqa: SIM118
    assert {one.name for one in StoreRole} == roles - {"UNSPECIFIED"}


@pytest.mark.parametrize(
    ("error", "condition"),
    [
        (UNREACHABLE, StoreCondition.BROKER_UNREACHABLE),
        (TopicMisconfigured("t", "cleanup.policy", "compact", "delete"), StoreCondition.CLEANUP_POLICY_WRONG),
        (TopicMisconfigured("t", "partitions", "1", "2"), StoreCondition.PARTITION_COUNT_WRONG),
        (REFUSED, StoreCondition.NOT_AUTHORIZED),
        (TopicRecreated("t", "a", "b"), StoreCondition.TOPIC_RECREATED),
        (ForeignWriter("group g", ["a", "b"]), StoreCondition.FOREIGN_WRITER),
        (WriterFenced("by another"), StoreCondition.FENCED),
        (TakeOverBlocked("its reader", "look"), StoreCondition.TAKE_OVER_BLOCKED),
        (StoreClosed("a bug"), StoreCondition.FAILED),
    ],
    ids=lambda value: value.name if isinstance(value, StoreCondition) else "",
)
def test_each_error_has_its_condition_and_one_log_line_with_the_fix(
    error: Exception, condition: StoreCondition
) -> None:
    book = HealthBook(lambda: 1)
    book.note(Part.START, error)  # pyright: ignore[reportArgumentType]  # ids= widens the parameter's type
    assert book.health.condition is condition is condition_of(error)  # pyright: ignore[reportArgumentType]
    assert book.health.message
    assert "\n" not in book.health.message


def test_the_condition_of_the_earliest_part_is_logged_once_per_change(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "herdmesh.topicstore.health")
    clock = [10]
    book = HealthBook(lambda: clock[0])
    book.note(Part.WRITING, REFUSED)
    clock[0] = 20
    book.note(Part.WRITING, NotAuthorized("use", "transactional id t", "grant it"))
    assert (book.health.condition, book.health.since_ms) == (
        StoreCondition.NOT_AUTHORIZED,
        10,
    )  # the same condition, with another message
    book.note(Part.TOPIC, UNREACHABLE)
    book.note(Part.TOPIC, UNREACHABLE)
    assert (book.health.condition, book.health.since_ms) == (StoreCondition.BROKER_UNREACHABLE, 20)
    clock[0] = 30
    book.note(Part.TOPIC, None)
    assert (book.health.condition, book.health.since_ms) == (StoreCondition.NOT_AUTHORIZED, 30)
    book.note(Part.WRITING, None)
    assert (book.health.condition, book.health.message) == (StoreCondition.HEALTHY, "")
    told = [record.getMessage().split(":")[0] for record in caplog.records]
    refused = "NOT_AUTHORIZED"
    assert told == [refused, refused, "BROKER_UNREACHABLE", refused, "healthy again, after NOT_AUTHORIZED"]


def _store(
    broker: MemoryBroker, may_write: MayWrite = always, tuning: StoreTuning = TUNING
) -> MemoryTopicStore[KeyValues, Change]:
    return MemoryTopicStore[KeyValues, Change](broker, SETTINGS, KeyValues(), may_write=may_write, tuning=tuning)


async def _until(store: MemoryTopicStore[KeyValues, Change], condition: StoreCondition) -> None:
    async with asyncio.timeout(WAIT_S):
        while True:
            if store.health.condition is condition:
                return
            await asyncio.sleep(0.01)


async def test_a_store_retries_its_start_and_reports_the_cause_meanwhile(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(starting, "BACKOFF_S_FIRST", 0.01)
    broker = MemoryBroker()
    topic = broker.create_topic(SETTINGS.topic, 1, "delete")
    store = _store(broker)
    opening = asyncio.create_task(start_when_possible(store))
    await _until(store, StoreCondition.CLEANUP_POLICY_WRONG)
    status = store_status(store, 0, [])
    assert (status.role, status.topic) == (store_pb2.STORE_ROLE_REPLAYING, "t")
    assert status.condition == store_pb2.STORE_CONDITION_CLEANUP_POLICY_WRONG
    assert meta_if_open(store) is None
    topic.cleanup_policy = "compact"
    await asyncio.wait_for(opening, WAIT_S)
    await until_role(store, StoreRole.WRITER)
    assert store.health.condition is StoreCondition.HEALTHY
    assert meta_if_open(store) is not None
    await store.close()


async def test_a_closed_store_is_not_started_again() -> None:
    store = _store(MemoryBroker())
    await store.close()
    with pytest.raises(StoreClosed):
        await start_when_possible(store)
    assert store.role is StoreRole.CLOSED


@pytest.mark.parametrize("anew", [False, True])
async def test_a_deleted_topic_closes_the_store_and_fails_every_caller(anew: bool) -> None:
    broker = MemoryBroker()
    store = _store(broker)
    await store.start()
    await until_role(store, StoreRole.WRITER)
    await store.write(put(b"a", b"1"))
    watcher = Watcher(store)
    await watcher.until(lambda me: me.snapshot is not None)
    later = asyncio.create_task(store.wait_for(replace(store.revision, next_offsets=(1000,))))
    del broker.topics[SETTINGS.topic]
    if anew:
        broker.create_topic(SETTINGS.topic, 1, "compact")
    await until_role(store, StoreRole.CLOSED)
    assert store.health.condition is StoreCondition.TOPIC_RECREATED
    assert ("created again" in store.health.message) is anew
    await watcher.until(lambda me: isinstance(me.error, TopicRecreated))
    with pytest.raises(TopicRecreated):
        await asyncio.wait_for(later, WAIT_S)
    with pytest.raises(TopicRecreated):
        await store.write(put(b"a", b"2"))
    assert store_status(store, 0, []).role == store_pb2.STORE_ROLE_CLOSED


async def test_writers_get_the_cause_of_a_fault_instead_of_the_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both writes queued before the fault and writes that arrive while its cause is looked up."""
    gone = TopicRecreated("t", "a", "b")
    looked, found = asyncio.Event(), asyncio.Event()

    async def check(_: MemoryLog) -> None:
        looked.set()
        await found.wait()
        raise gone

    store = _store(MemoryBroker(), tuning=replace(TUNING, topic_check_interval_ms=60_000))
    await store.start()
    await until_role(store, StoreRole.WRITER)
    monkeypatch.setattr(MemoryLog, "check", check)
    waiting = asyncio.create_task(store.write(put(b"k", b"1")))
    await asyncio.sleep(0)  # it is in the queue, and not in a transaction
    store.on_fault(StoreClosed("the reader failed"))
    async with asyncio.timeout(WAIT_S):
        await looked.wait()
        asking = asyncio.create_task(store.write(put(b"k", b"2")))
        await asyncio.sleep(0)
        assert not waiting.done()
        assert not asking.done()
        found.set()
        assert await asyncio.gather(waiting, asking, return_exceptions=True) == [gone, gone]
        await until_role(store, StoreRole.CLOSED)
    assert store.health.condition is StoreCondition.TOPIC_RECREATED


async def test_a_topic_deleted_during_the_first_read_ends_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    broker = MemoryBroker()

    async def gone(_: MemoryLog) -> Positions:
        broker.topics.pop(SETTINGS.topic, None)
        raise LogUnavailable("no leader")

    monkeypatch.setattr(MemoryLog, "end", gone)
    store = _store(broker)
    with pytest.raises(TopicRecreated):
        await asyncio.wait_for(start_when_possible(store), WAIT_S)
    assert store.role is StoreRole.CLOSED


async def test_a_foreign_writer_is_named_until_it_is_gone() -> None:
    members = ["worker-1 (/127.0.0.1)"]

    async def may_write() -> bool:
        if members:
            raise ForeignWriter("Connect's group 'g'", members)
        return True

    store = _store(MemoryBroker(), may_write)
    await store.start()
    await _until(store, StoreCondition.FOREIGN_WRITER)
    assert "worker-1 (/127.0.0.1)" in store.health.message
    await store.barrier()  # reads work meanwhile
    members.clear()
    await until_role(store, StoreRole.WRITER)
    assert store.health.condition is StoreCondition.HEALTHY
    await store.close()


async def test_a_take_over_blocked_by_its_own_reader_reports_it_and_finally_closes_the_store(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    allowed = False

    async def may_write() -> bool:
        return allowed

    async def never_read(_: MemoryLog) -> Positions:
        return (1_000,)

    store = _store(MemoryBroker(), may_write, replace(TUNING, read_back_ms=10))
    await store.start()
    monkeypatch.setattr(MemoryLog, "end", never_read)
    allowed = True
    await _until(store, StoreCondition.FAILED)
    assert "makes no progress although the broker answers" in store.health.message
    said = [line for line in caplog.messages if line.startswith("TAKE_OVER_BLOCKED")]
    assert len(said) == 1, "once, however often it tries"
    assert "it waits for its own reader, which did not reach the end of 't' in 10 ms;" in said[0]
    assert "BROKER_UNREACHABLE" not in caplog.text


async def test_a_fenced_writer_reports_it_until_it_writes_again() -> None:
    broker = MemoryBroker()
    allowed = True

    async def may_write() -> bool:
        return allowed

    store = _store(broker, may_write)
    await store.start()
    await until_role(store, StoreRole.WRITER)
    allowed = False
    broker.fence(SETTINGS.transactional_id)
    with pytest.raises(WriterFenced):
        await store.write(put(b"a", b"1"))
    assert store.health.condition is StoreCondition.FENCED
    assert "group.id" in store.health.message
    allowed = True
    await until_role(store, StoreRole.WRITER)
    assert store.health.condition is StoreCondition.HEALTHY
    await store.close()


async def test_a_replica_that_does_not_own_the_election_is_healthy() -> None:
    broker = MemoryBroker()
    first, second = _store(broker), _store(broker)
    await first.start()
    await until_role(first, StoreRole.WRITER)
    await second.start()
    assert (second.role, second.health.condition) == (StoreRole.REPLICA, StoreCondition.HEALTHY)
    await asyncio.gather(first.close(), second.close())


@pytest.mark.parametrize("failure", [LogBlocked("another program", "end it"), REFUSED, ForeignWriter("group g", ["a"])])
async def test_a_replica_that_loses_the_election_during_take_over_reports_nothing(
    failure: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    entered, lost = asyncio.Event(), asyncio.Event()

    async def fails_late(_: object = None) -> bool:
        entered.set()
        await lost.wait()
        raise failure

    broker = MemoryBroker()
    refuses = isinstance(failure, ForeignWriter)
    first = _store(broker, fails_late if refuses else always)
    if not refuses:
        monkeypatch.setattr(first._log, "take_over", fails_late)  # pyright: ignore[reportPrivateUsage]
    second = _store(broker)
    await asyncio.gather(first.start(), second.start())
    await entered.wait()
    await first._log.leave_election()  # pyright: ignore[reportPrivateUsage]
    lost.set()
    await until_role(second, StoreRole.WRITER)
    await second.write(put(b"a", b"1"))
    await first.wait_for(second.revision)
    assert (first.role, first.health.condition) == (StoreRole.REPLICA, StoreCondition.HEALTHY)
    await asyncio.gather(first.close(), second.close())
