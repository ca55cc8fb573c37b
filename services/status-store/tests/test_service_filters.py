"""Tests of filtered lists and watches, demanded revisions, conditions from write to read, and the order of puts."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from herdmesh.api.common.v1 import connector_pb2, revision_pb2
from herdmesh.api.statusstore.v1 import status_pb2
from herdmesh.api.statusstore.v1 import status_read_service_pb2 as read_pb2
from herdmesh.api.statusstore.v1 import status_write_service_pb2 as write_pb2
from herdmesh.connect.topics.commit_scope import TOPICS_MAX
from herdmesh.rpc import errors, revisions
from herdmesh.statusstore.effects.role import READ_SERVICE
from herdmesh.statusstore.service.wire import CONDITION_MESSAGE_MAX, CONDITIONS_MAX, GROUP_CHARACTERS_MAX
from herdmesh.topicstore import Revision
from herdmesh.topicstore.memory.memory_broker import MemoryBroker
from herdmesh.topicstore.memory.memory_store import MemoryTopicStore
from tests.support.statusstore_memory import (
    APPLIED,
    RUNNING,
    UNASSIGNED,
    W1,
    W2,
    Client,
    Watch,
    kinds,
    put,
    running,
)

FAILED, PAUSED, DESTROYED = (
    connector_pb2.RUN_STATE_FAILED,
    connector_pb2.RUN_STATE_PAUSED,
    connector_pb2.RUN_STATE_DESTROYED,
)


@pytest.fixture
async def client() -> AsyncIterator[Client]:
    async with running(MemoryBroker()) as (made, _, _):
        yield made


def condition(type_: str, message: str = "", since_ms: int = 0) -> connector_pb2.Condition:
    made = connector_pb2.Condition(type=type_, message=message)
    if since_ms:
        made.since.FromMilliseconds(since_ms)
    return made


STALLED = condition("STALLED", "no record for 5 min", 1_700_000_000_123)
RESTARTING = condition("RESTARTING", "2 of 5")


def _names(statuses: Any) -> list[tuple[str, int | None]]:
    return [(status.connector, status.task if status.HasField("task") else None) for status in statuses]


# -- lists


async def test_a_list_by_each_filter_and_by_several(client: Client) -> None:
    await client.put(put("c"), put("c", 0, FAILED), put("c", 1, conditions=[STALLED]))
    await client.put(put("d"), put("d", 0, conditions=[RESTARTING, STALLED]), writer=W2)
    await client.beat(W2, leaving=True)  # its RUNNING reads as UNASSIGNED from now on

    async def listed(**filters: Any) -> list[tuple[str, int | None]]:
        return _names((await client.read.ListStatuses(read_pb2.ListStatusesRequest(**filters), timeout=5)).statuses)

    assert await listed(connectors=["d"]) == [("d", None), ("d", 0)]
    assert await listed(worker_ids=[W1.worker_id]) == [("c", None), ("c", 0), ("c", 1)]
    assert await listed(states=[FAILED]) == [("c", 0)]
    assert await listed(states=[RUNNING]) == [("c", None), ("c", 1)]
    assert await listed(states=[UNASSIGNED, FAILED]) == [("d", None), ("c", 0), ("d", 0)]
    assert await listed(condition_types=["STALLED"]) == [("c", 1), ("d", 0)]
    assert await listed(condition_types=["RESTARTING", "OTHER"]) == [("d", 0)]
    assert await listed(worker_ids=[W1.worker_id], condition_types=["STALLED"], states=[RUNNING]) == [("c", 1)]
    assert await listed(connectors=["nobody"]) == []
    with pytest.raises(errors.RequestInvalid):
        await listed(states=[connector_pb2.RUN_STATE_UNSPECIFIED])


# -- watches


async def _changes(watch: Watch, count: int) -> list[str]:
    """The next changes, other than leases and progress."""
    told: list[str] = []
    while len(told) < count:
        event = await watch.change()
        if event.WhichOneof("event") == "status_put":
            state = connector_pb2.RunState.Name(event.status_put.state).removeprefix("RUN_STATE_")
            told.append(f"{event.status_put.connector}-{event.status_put.task} {state}")
        else:
            told.append(f"{event.status_deleted.connector}-{event.status_deleted.task} gone")
    return told


async def test_a_watch_by_state_gets_statuses_that_leave_the_filter_too(client: Client) -> None:
    await client.put(put("c", 0, FAILED, trace="boom"), put("c", 1))
    watch = Watch(client, states=[FAILED])
    assert kinds(await watch.until("leases")) == ["status_put", "snapshot_complete", "leases"]
    await client.put(put("c", 1, PAUSED))  # passed the filter neither before nor after
    await client.put(put("c", 0, PAUSED))
    await client.put(put("c", 0))
    await client.put(put("c", 1, FAILED))
    await client.put(put("c", 1, DESTROYED))
    assert await _changes(watch, 3) == ["c-0 PAUSED", "c-1 FAILED", "c-1 gone"]
    # The watch filters by the written state: the end of a lease arrives with the lease table.
    assert watch.revision is not None
    watch.call.cancel()


async def test_a_watch_by_condition_gets_statuses_that_lose_it_too(client: Client) -> None:
    await client.put(put("c", 0, conditions=[STALLED]), put("c", 1))
    watch = Watch(client, condition_types=["STALLED"], connectors=["c"])
    snapshot = await watch.until("leases")
    assert [list(event.status_put.conditions) for event in snapshot[:1]] == [[STALLED]]
    assert len(snapshot) == 3
    await client.put(put("d", 0, conditions=[STALLED]))
    await client.put(put("c", 0))
    await client.put(put("c", 0, conditions=[RESTARTING]))
    await client.put(put("c", 0, conditions=[RESTARTING, STALLED]))
    lost, found = [(await watch.change()).status_put for _ in range(2)]
    assert not lost.conditions
    assert list(found.conditions) == [RESTARTING, STALLED]
    watch.call.cancel()


async def test_a_filtered_watch_resumes_without_missing_statuses_that_left_the_filter(client: Client) -> None:
    await client.put(put("c", 0, FAILED))
    watch = Watch(client, states=[FAILED])
    await watch.until("leases")
    watch.call.cancel()
    await client.put(put("c", 0))
    await client.put(put("c", 0, PAUSED))
    resumed = Watch(client, states=[FAILED], resume=watch.revision)
    assert await _changes(resumed, 1) == ["c-0 RUNNING"]
    resumed.call.cancel()


async def test_a_filter_that_topics_cannot_pass_sends_no_topics(client: Client) -> None:
    topic = status_pb2.TopicStatus(topic="t", connector="c", task=0)
    await client.write.PutTopics(write_pb2.PutTopicsRequest(topics=[topic]))
    for filters in ({"states": [RUNNING]}, {"condition_types": ["X"]}, {"worker_ids": ["w"]}, {"connectors": ["d"]}):
        watch = Watch(client, **filters)
        assert kinds(await watch.until("leases")) == ["snapshot_complete", "leases"]
        watch.call.cancel()


# -- demanded revisions


async def test_a_replica_waits_for_the_demanded_revision() -> None:
    broker = MemoryBroker()
    async with running(broker) as (writer, _, _), running(broker, wait_for=READ_SERVICE) as (replica, store, _):
        assert isinstance(store, MemoryTopicStore)
        store.freeze()
        await writer.put(put("c", 0))
        used = status_pb2.TopicStatus(topic="t", connector="c", task=0)
        at_least = (await writer.write.PutTopics(write_pb2.PutTopicsRequest(topics=[used]), timeout=10)).meta.revision
        read, watch = replica.read, Watch(replica, at_least=at_least)
        snapshot = asyncio.ensure_future(watch.until("snapshot_complete"))
        refreshed = asyncio.ensure_future(read.Refresh(read_pb2.RefreshRequest(revision=at_least), timeout=10))
        got = asyncio.ensure_future(
            read.GetStatus(read_pb2.GetStatusRequest(connector="c", at_least=at_least), timeout=10)
        )
        end = asyncio.ensure_future(read.Refresh(read_pb2.RefreshRequest(), timeout=10))
        assert not (await replica.get("c")).tasks  # without a demand: the applied state
        topics = asyncio.ensure_future(
            read.ListTopics(read_pb2.ListTopicsRequest(connector="c", at_least=at_least), timeout=10)
        )
        assert not (await read.ListTopics(read_pb2.ListTopicsRequest(connector="c"), timeout=10)).topics
        assert not any(one.done() for one in (snapshot, refreshed, got, end, topics))
        store.thaw()
        assert kinds(await snapshot) == ["status_put", "topic_put", "snapshot_complete"]
        assert [one.topic for one in (await topics).topics] == ["t"]
        assert _includes((await refreshed).meta, at_least)
        assert _includes((await end).meta, at_least)
        assert [task.task for task in (await got).tasks] == [0]
        watch.call.cancel()


def _includes(meta: revision_pb2.ResponseMeta, wanted: revision_pb2.Revision) -> bool:
    reached, demanded = revisions.from_proto(meta.revision), revisions.from_proto(wanted)
    assert reached is not None
    assert demanded is not None
    return reached.includes(demanded)


async def test_an_impossible_demand_is_refused(client: Client) -> None:
    reply = await client.put(put("c", 0))
    both = Watch(client, resume=reply.meta.revision, at_least=reply.meta.revision)
    with pytest.raises(errors.RequestInvalid):
        await both.next()
    foreign = revisions.to_proto(Revision("another", (0, 0, 0, 0, 0)))
    with pytest.raises(errors.RevisionForeign):
        await Watch(client, at_least=foreign).next()
    with pytest.raises(errors.RevisionForeign):
        await client.read.Refresh(read_pb2.RefreshRequest(revision=foreign), timeout=5)


# -- conditions


async def test_conditions_survive_watch_restart_and_compaction_in_order() -> None:
    broker = MemoryBroker()
    async with running(broker) as (client, _, _):
        watch = Watch(client)
        await watch.until("leases")
        await client.put(put("c", 0))
        await client.put(put("c", 0, conditions=[STALLED, RESTARTING]), put("c", conditions=[RESTARTING]))
        await watch.until("status_put")
        told = (await watch.until("status_put"))[-1].status_put
        assert list(told.conditions) == [STALLED, RESTARTING]
        watch.call.cancel()
    topic = broker.topics["connect-status"]
    before = {record.key: record.value for record in topic.records()}
    topic.min_compaction_lag_ms = 0
    topic.compact(drop_tombstones=True)
    async with running(broker) as (client, _, _):
        got = await client.get("c")
        assert list(got.tasks[0].conditions) == [STALLED, RESTARTING]
        assert list(got.connector.conditions) == [RESTARTING]
        assert got.tasks[0].conditions[0].since.ToMilliseconds() == 1_700_000_000_123
        # Written again as it was read: the same bytes.
        await client.put(*(write_pb2.StatusPut(status=s, mode=put("c").mode) for s in (got.tasks[0], got.connector)))
    assert len(topic.records()) == 4
    after = {record.key: record.value for record in topic.records()}
    assert after == before
    added = b'"conditions":[{"type":"STALLED","message":"no record for 5 min","since_ms":1700000000123},'
    assert added in (after[b"status-task-c-0"] or b"")


async def test_without_conditions_and_incarnation_the_bytes_are_connects() -> None:
    broker = MemoryBroker()
    async with running(broker) as (client, _, _):
        one = put("c", 0, FAILED, generation=3, trace="boom\n\tat é", version="4.3.1", worker_id="w:1")
        await client.put(one, writer=None)
        [record] = broker.topics["connect-status"].records()
        assert record.value == (
            '{"state":"FAILED","trace":"boom\\n\\tat é","worker_id":"w:1","generation":3,"version":"4.3.1"}'.encode()
        )


@pytest.mark.parametrize(
    ("conditions", "field"),
    [
        ([condition("")], "conditions[0].type"),
        ([condition("stalled")], "conditions[0].type"),
        ([condition("S" * 65)], "conditions[0].type"),
        ([STALLED, condition("OK", "two\nlines")], "conditions[1].message"),
        ([condition("OK", "m" * (CONDITION_MESSAGE_MAX + 1))], "conditions[0].message"),
        ([STALLED, STALLED], "conditions"),
        ([condition(f"C{number}") for number in range(CONDITIONS_MAX + 1)], "conditions"),
    ],
)
async def test_conditions_have_limits(client: Client, conditions: list[connector_pb2.Condition], field: str) -> None:
    with pytest.raises(errors.RequestInvalid) as caught:
        await client.put(put("c", 0), put("c", 1, conditions=conditions))
    assert [violation.field for violation in caught.value.violations] == [f"puts[1].status.{field}"]
    assert not (await client.get("c")).tasks


async def test_a_commit_scope_is_limited(client: Client) -> None:
    scope = connector_pb2.CommitScope(group="g", topics=[f"t{number:03}" for number in range(TOPICS_MAX + 1)])
    with pytest.raises(errors.RequestInvalid) as caught:
        await client.put(put("c", 0, commit_scope=scope))
    assert [violation.field for violation in caught.value.violations] == ["puts[0].status.commit_scope.topics"]
    del scope.topics[-1]
    await client.put(put("c", 0, commit_scope=scope))
    assert (await client.get("c")).tasks[0].commit_scope == scope
    scope.group = "g" * (GROUP_CHARACTERS_MAX + 1)
    with pytest.raises(errors.RequestInvalid) as caught:
        await client.put(put("c", 0, commit_scope=scope))
    assert [violation.field for violation in caught.value.violations] == ["puts[0].status.commit_scope.group"]


async def test_a_status_of_the_maximum_size_is_written(client: Client) -> None:
    types = [f"C{number}".ljust(64, "_") for number in range(CONDITIONS_MAX)]
    most = [condition(one, "\x01" * CONDITION_MESSAGE_MAX, 1) for one in types]
    topics = [f"t{number:03}".ljust(249, "_") for number in range(TOPICS_MAX)]  # the longest name in Kafka
    scope = connector_pb2.CommitScope(group="g" * GROUP_CHARACTERS_MAX, topics=topics)
    reply = await client.put(put("c", 0, FAILED, conditions=most, commit_scope=scope, trace="\x01" * 200_000))
    assert reply.outcomes[0].result == APPLIED
    got = (await client.get("c")).tasks[0]
    assert list(got.conditions) == most
    assert got.commit_scope == scope


# -- order


async def test_a_request_that_arrives_after_a_later_one_is_superseded(client: Client) -> None:
    async def send(sequence: int, *puts: write_pb2.StatusPut) -> list[int]:
        request = write_pb2.PutStatusesRequest(writer=W1, puts=puts, sequence=sequence)
        return [outcome.result for outcome in (await client.write.PutStatuses(request, timeout=5)).outcomes]

    assert await send(2, put("c", 0, FAILED)) == [APPLIED]
    late = await send(1, put("c", 0), put("c", 1))
    assert late == [write_pb2.PUT_RESULT_SUPERSEDED, APPLIED]
    assert [task.state for task in (await client.get("c")).tasks] == [FAILED, RUNNING]
    assert await send(3, put("c", 0)) == [APPLIED]
    assert await send(0, put("c", 0, PAUSED)) == [APPLIED]  # requests without sequence are not ordered
