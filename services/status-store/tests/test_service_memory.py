"""Tests of the service over the memory engine, called through real gRPC."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator

import pytest

from herdmesh.api.common.v1 import connector_pb2, identity_pb2
from herdmesh.api.statusstore.v1 import status_pb2
from herdmesh.api.statusstore.v1 import status_read_service_pb2 as read_pb2
from herdmesh.api.statusstore.v1 import status_write_service_pb2 as write_pb2
from herdmesh.connect.json_text import jackson
from herdmesh.rpc import errors, revisions
from herdmesh.rpc.request_ids import new_request_id, time_ms_of
from herdmesh.statusstore.effects.relay import WRITE_SERVICE
from herdmesh.statusstore.effects.requests import REMEMBERED_MAX
from herdmesh.statusstore.effects.role import READ_SERVICE
from herdmesh.statusstore.errors import StoreGone
from herdmesh.topicstore import Revision
from herdmesh.topicstore.memory.memory_broker import MemoryBroker
from herdmesh.topicstore.memory.memory_store import MemoryTopicStore
from tests.support.statusstore_memory import (
    APPLIED,
    PUT_SAFE,
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


@pytest.fixture
async def client() -> AsyncIterator[Client]:
    async with running(MemoryBroker()) as (made, _, _):
        yield made


async def test_one_odd_record_hides_no_other_record() -> None:
    """A foreign writer may store values that a protobuf message cannot carry unchanged: Java may cut a trace within a
    character.
    """
    broker = MemoryBroker()
    half = {"state": "FAILED", "trace": "at \ud83d", "worker_id": "\ud800", "version": "\udc00", "generation": 1}
    condition = {"type": "\ud800", "message": "\ud800", "since_ms": 2**62}
    topic = {"name": "u", "connector": "odd", "task": 0, "discoverTimestamp": -(2**62)}
    async with running(broker) as (client, store, _):
        for key, value in (
            ("status-connector-odd", half),
            ("status-task-odd-0", {**half, "worker_incarnation": "\ud800", "conditions": [condition]}),
            ("status-topic-t:connector-odd", {"topic": {**topic, "name": "\ud800", "discoverTimestamp": 2**62}}),
            ("status-topic-u:connector-odd", {"topic": topic}),
            ("status-task-odd-1", {**half, "state": "\ud800"}),
            ("status-task-odd-2", {**half, "worker_id": None}),
        ):
            broker.produce(store.topic, key.encode(), jackson.dumps(value))
        await client.put(put("c"))
        listed = await client.read.ListStatuses(read_pb2.ListStatusesRequest(linearizable=True), timeout=10)
        assert [status.connector for status in listed.statuses] == ["c", "odd", "odd", "odd"]
        assert listed.statuses[1].trace == "at \ufffd"
        assert listed.statuses[2].conditions[0].since.ToDatetime().year == 9999
        assert [status.HasField("worker_id") for status in listed.statuses] == [True, True, True, False]
        topics = (await client.read.ListTopics(read_pb2.ListTopicsRequest(connector="odd"), timeout=10)).topics
        assert [topic.discover_time.ToDatetime().year for topic in topics] == [1, 9999]
        assert len(await Watch(client).until("snapshot_complete")) == 7
        status = (await client.read.GetStoreStatus(read_pb2.GetStoreStatusRequest(), timeout=10)).status
        assert [one.key for one in status.undecodable] == ["status-task-odd-1"]


async def test_a_put_status_is_returned_by_get(client: Client) -> None:
    condition = connector_pb2.Condition(type="STALLED", message="no record for 5 min")
    condition.since.FromMilliseconds(1_700_000_000_123)
    scope = connector_pb2.CommitScope(group="connect-c", topics=["t", "u"])
    reply = await client.put(
        put("c", version="1.0"),
        put("c", 1, connector_pb2.RUN_STATE_FAILED, trace="boom", commit_scope=scope, conditions=[condition]),
        put("c", 0),
    )
    assert [outcome.result for outcome in reply.outcomes] == [APPLIED] * 3
    got = await client.get("c")
    assert (got.connector.state, got.connector.version, got.connector.worker_id) == (RUNNING, "1.0", W1.worker_id)
    assert not got.connector.HasField("trace")
    assert [task.task for task in got.tasks] == [0, 1]
    failed = got.tasks[1]
    assert (failed.trace, failed.commit_scope, failed.worker_incarnation) == ("boom", scope, "a")
    assert list(failed.conditions) == [condition]
    assert not failed.HasField("version")
    assert failed.update_time.seconds > 1_700_000_000
    assert reply.outcomes[1].stored == failed
    unknown = await client.get("other")
    assert not unknown.HasField("connector")
    listed = await client.read.ListStatuses(read_pb2.ListStatusesRequest(linearizable=True))
    assert [(s.connector, s.task if s.HasField("task") else None) for s in listed.statuses] == [
        ("c", None),
        ("c", 0),
        ("c", 1),
    ]


async def test_outcomes_are_per_item(client: Client) -> None:
    await client.put(put("c", 0, generation=5), put("c", 1, generation=5))
    reply = await client.put(
        put("c", 0, UNASSIGNED, 4, PUT_SAFE),
        put("c", 1, generation=4),
        put("c", 2, generation=4),
        writer=W2,
    )
    assert [outcome.result for outcome in reply.outcomes] == [
        write_pb2.PUT_RESULT_STATUS_NEWER,
        write_pb2.PUT_RESULT_STALE_GENERATION,
        APPLIED,
    ]
    assert reply.outcomes[0].stored.worker_id == W1.worker_id
    assert reply.outcomes[1].stored.generation == 5


async def test_a_batch_of_refused_puts_is_answered_after_a_barrier(client: Client) -> None:
    await client.put(put("c", 0, generation=5))
    reply = await client.put(put("c", 0, UNASSIGNED, 4, PUT_SAFE), writer=W2)
    assert [outcome.result for outcome in reply.outcomes] == [write_pb2.PUT_RESULT_STATUS_NEWER]


async def test_compare_and_set_uses_the_records_own_revision(client: Client) -> None:
    first = (await client.put(put("c", 0))).outcomes[0].stored.revision
    await client.put(put("other", 3))
    assert sum(1 for offset in first.next_offsets if offset) == 1
    second = await client.put(put("c", 0, generation=2, expected=first))
    assert second.outcomes[0].result == APPLIED
    third = await client.put(put("c", 0, generation=3, expected=first))
    assert third.outcomes[0].result == write_pb2.PUT_RESULT_REVISION_MISMATCH
    assert third.outcomes[0].stored.revision == second.outcomes[0].stored.revision
    absent = revisions.to_proto(Revision(first.store_id, (0, 0, 0, 0, 0)))
    assert (await client.put(put("new", 0, expected=absent))).outcomes[0].result == APPLIED
    again = await client.put(put("new", 0, generation=9, expected=absent))
    assert again.outcomes[0].result == write_pb2.PUT_RESULT_REVISION_MISMATCH
    at_least = read_pb2.GetStatusRequest(connector="c", at_least=second.meta.revision)
    assert (await client.read.GetStatus(at_least)).connector.generation == 0
    with pytest.raises(errors.RevisionForeign):
        await client.put(put("c", 0, expected=revisions.to_proto(Revision("another", (1, 0, 0, 0, 0)))))


async def test_a_retry_gets_the_first_outcome(client: Client) -> None:
    first = await client.put(put("c", 0), request_id="r1")
    await client.put(put("c", 0, connector_pb2.RUN_STATE_PAUSED))
    assert await client.put(put("c", 0), request_id="r1") == first
    assert (await client.get("c")).tasks[0].state == connector_pb2.RUN_STATE_PAUSED


async def test_concurrent_retries_write_once(client: Client) -> None:
    first, second = await asyncio.gather(*(client.put(put("c", 0), request_id="r1") for _ in "ab"))
    assert first == second


@pytest.mark.parametrize(
    ("bad", "field"),
    [
        (put("", 0), "puts[0].status.connector"),
        (put("c", -1), "puts[0].status.task"),
        (put("c", 0, connector_pb2.RUN_STATE_STOPPED), "puts[0].status.state"),
        (put("c", 0, connector_pb2.RUN_STATE_UNSPECIFIED), "puts[0].status.state"),
        (put("c", 0, mode=write_pb2.PUT_MODE_UNSPECIFIED), "puts[0].mode"),
    ],
)
async def test_malformed_puts_name_the_field(client: Client, bad: write_pb2.StatusPut, field: str) -> None:
    with pytest.raises(errors.RequestInvalid) as caught:
        await client.put(bad)
    assert [violation.field for violation in caught.value.violations] == [field]


async def test_empty_requests_are_refused(client: Client) -> None:
    with pytest.raises(errors.RequestInvalid):
        await client.put()
    with pytest.raises(errors.RequestInvalid):
        await client.put(put("c", 0), writer=None)
    with pytest.raises(errors.RequestInvalid):
        await client.beat(identity_pb2.WorkerIdentity(worker_id="w"))
    with pytest.raises(errors.RequestInvalid):
        await client.get("")


async def test_a_huge_trace_keeps_its_beginning_and_its_end(client: Client) -> None:
    trace = "begin" + "x" * 3_000_000 + "end"
    await client.put(put("c", 0, connector_pb2.RUN_STATE_FAILED, trace=trace))
    stored = (await client.get("c")).tasks[0].trace
    assert stored.startswith("begin")
    assert stored.endswith("end")
    assert "2900008 characters left out" in stored


async def test_deleting_a_connectors_statuses(client: Client) -> None:
    await client.put(put("c"), put("c", 0), put("c", 1), put("d"))
    topic = status_pb2.TopicStatus(topic="t", connector="c", task=0)
    topic.discover_time.FromMilliseconds(1_700_000_000_000)
    await client.write.PutTopics(write_pb2.PutTopicsRequest(topics=[topic]))
    listed = await client.read.ListTopics(read_pb2.ListTopicsRequest(connector="c"))
    assert list(listed.topics) == [topic]
    delete = client.write.DeleteConnectorStatuses
    await delete(write_pb2.DeleteConnectorStatusesRequest(connector="c", tasks_from=1))
    assert [task.task for task in (await client.get("c")).tasks] == [0]
    await delete(write_pb2.DeleteConnectorStatusesRequest(connector="c", include_topics=True))
    await delete(write_pb2.DeleteConnectorStatusesRequest(connector="c", include_topics=True))
    assert not (await client.get("c")).HasField("connector")
    assert not (await client.read.ListTopics(read_pb2.ListTopicsRequest(connector="c"))).topics
    await client.write.PutTopics(write_pb2.PutTopicsRequest(topics=[topic]))
    await client.write.DeleteTopics(write_pb2.DeleteTopicsRequest(connector="c"))
    assert not (await client.read.ListTopics(read_pb2.ListTopicsRequest(connector="c"))).topics


@pytest.mark.parametrize("evicts", [False, True])
async def test_a_retried_removal_of_topics_keeps_topics_recorded_since(evicts: bool) -> None:
    """The retry meets another writer that took over, or the same process after it discarded the outcome."""

    async def topics(client: Client) -> list[str]:
        return [one.topic for one in (await client.read.ListTopics(read_pb2.ListTopicsRequest(connector="c"))).topics]

    async def record(client: Client, topic: str) -> None:
        recorded = status_pb2.TopicStatus(topic=topic, connector="c", task=0)
        recorded.discover_time.GetCurrentTime()
        await client.write.PutTopics(write_pb2.PutTopicsRequest(topics=[recorded]))

    async def go_on(client: Client) -> None:
        """Send the retry, which keeps the topic recorded since; then a removal with a new id, which removes it."""
        await client.write.DeleteTopics(retried)
        assert await topics(client) == ["new"]
        await client.write.DeleteTopics(write_pb2.DeleteTopicsRequest(connector="c", request_id=new_request_id()))
        assert await topics(client) == []

    broker = MemoryBroker()
    async with running(broker) as (client, _, _):
        await record(client, "old")
        retried = write_pb2.DeleteTopicsRequest(connector="c", request_id=new_request_id())
        await client.write.DeleteTopics(retried)
        assert await topics(client) == []
        while time.time_ns() // 1_000_000 <= (time_ms_of(retried.request_id) or 0):
            pass  # a topic recorded in the same millisecond as the id counts as recorded before it
        await record(client, "new")
        await client.write.DeleteTopics(retried)
        assert await topics(client) == ["new"], "this process knows the request"
        if evicts:
            for _ in range(REMEMBERED_MAX):
                other = write_pb2.DeleteTopicsRequest(connector="nobody", request_id=new_request_id())
                await client.write.DeleteTopics(other)
            await go_on(client)
    if not evicts:
        async with running(broker) as (client, _, _):
            await go_on(client)


async def test_a_first_removal_of_topics_after_a_take_over_removes_them() -> None:
    broker = MemoryBroker()
    recorded = status_pb2.TopicStatus(topic="t", connector="c", task=0)
    recorded.discover_time.GetCurrentTime()
    async with running(broker) as (client, _, _):
        await client.write.PutTopics(write_pb2.PutTopicsRequest(topics=[recorded]))
    asked = write_pb2.DeleteTopicsRequest(connector="c", request_id=new_request_id())
    async with running(broker) as (client, _, _):
        await client.write.DeleteTopics(asked)
        assert not (await client.read.ListTopics(read_pb2.ListTopicsRequest(connector="c"))).topics


# -- leases


async def test_a_running_status_under_a_dead_lease_reads_as_unassigned(client: Client) -> None:
    await client.put(put("c", 0))
    task = (await client.get("c")).tasks[0]
    assert (task.effective_state, task.effective_reason) == (RUNNING, "")
    await client.beat(W1, leaving=True)
    task = (await client.get("c")).tasks[0]
    assert (task.state, task.effective_state, task.effective_reason) == (RUNNING, UNASSIGNED, "LEASE_EXPIRED")
    # A heartbeat sent before it announced that it leaves may arrive later: the lease stays ended.
    assert not (await client.beat(W1)).lease.live
    again = identity_pb2.WorkerIdentity(worker_id=W1.worker_id, incarnation="a2")
    reply = await client.put(put("c", 0, generation=2), writer=again)
    assert reply.outcomes[0].stored.effective_state == RUNNING
    assert (await client.get("c")).tasks[0].effective_state == RUNNING


async def test_the_end_of_a_lease_reaches_its_watchers(client: Client) -> None:
    tables = aiter(client.read.WatchLeases(read_pb2.WatchLeasesRequest(), timeout=60))
    seen: list[tuple[str, str, bool]] = []
    assert not (await anext(tables)).leases.leases
    live, ended = (W1.worker_id, "a", True), (W1.worker_id, "a", False)
    while live not in seen:  # on a busy machine the lease may end before the first event
        await client.beat(W1, lease_ms=500)
        seen += [(one.worker_id, one.incarnation, one.live) for one in (await anext(tables)).leases.leases]
    while seen[-1] != ended:  # the writer repeats its table
        seen += [(one.worker_id, one.incarnation, one.live) for one in (await anext(tables)).leases.leases]
    assert set(seen) == {live, ended}


# -- watch


async def test_a_watch_sends_snapshot_then_leases_then_changes(client: Client) -> None:
    await client.put(put("c"), put("c", 0), put("d"))
    watch = Watch(client, connectors=["c"])
    snapshot = await watch.until("leases")
    assert kinds(snapshot) == ["status_put", "status_put", "snapshot_complete", "leases"]
    assert snapshot[0].status_put.connector == "c"
    assert not snapshot[0].meta.HasField("revision")
    assert [lease.worker_id for lease in snapshot[-1].leases.leases] == [W1.worker_id]
    assert not snapshot[-1].HasField("meta")

    await client.put(put("d", 7), put("c", 0, connector_pb2.RUN_STATE_PAUSED))
    event = await watch.change()
    assert event.status_put.state == connector_pb2.RUN_STATE_PAUSED

    await client.beat(W2)
    while len((await watch.until("leases"))[-1].leases.leases) < 2:
        pass  # W1's own lease, sent a moment later

    await client.put(put("c", state=connector_pb2.RUN_STATE_DESTROYED))
    first, second = await watch.change(), await watch.change()
    assert (first.status_deleted.task, second.status_deleted.HasField("task")) == (0, False)
    # Each status was removed by a record of its own: resuming after either is safe.
    assert first.meta.HasField("revision")
    assert second.meta.HasField("revision")
    watch.call.cancel()


async def test_a_watch_resumes_after_the_last_change_of_a_record() -> None:
    broker = MemoryBroker()
    async with running(broker) as (client, _, _):
        await client.put(put("c"), put("c", 0))
        watch = Watch(client)
        await watch.until("leases")
        broker.produce("connect-status", b"status-connector-c", None)  # as Java writes it: no tombstone for the task
        first, second = await watch.change(), await watch.change()
        assert (first.status_deleted.task, second.status_deleted.HasField("task")) == (0, False)
        assert not first.meta.HasField("revision")
        assert second.meta.HasField("revision")
        watch.call.cancel()


async def test_a_watch_resumes_at_its_revision(client: Client) -> None:
    watch = Watch(client)
    await watch.until("leases")
    resume = watch.revision
    watch.call.cancel()
    await client.put(put("c", 0))
    await client.put(put("c", 0, connector_pb2.RUN_STATE_PAUSED))
    resumed = Watch(client, resume=resume)
    assert (await resumed.next()).WhichOneof("event") == "leases"
    states = [(await resumed.change()).status_put.state for _ in range(2)]
    assert states == [RUNNING, connector_pb2.RUN_STATE_PAUSED]
    assert resumed.revision.next_offsets != resume.next_offsets
    resumed.call.cancel()
    foreign = Watch(client, resume=revisions.to_proto(Revision("another", (0, 0, 0, 0, 0))))
    with pytest.raises(errors.RevisionForeign):
        await foreign.until("progress")


async def test_a_watch_of_a_worker_is_notified_when_the_worker_loses_a_status(client: Client) -> None:
    watch = Watch(client, worker_ids=[W1.worker_id])
    await watch.until("leases")
    await client.put(put("x", 0), writer=W2)
    await client.put(put("c", 0), writer=W1)
    await client.put(put("c", 0, generation=2), writer=W2)
    await client.put(put("c", 0, generation=3), writer=W2)
    await client.put(put("c", 1), writer=W1)
    puts: list[tuple[str, int, str]] = []
    while len(puts) < 3:
        event = await watch.change()
        if event.WhichOneof("event") == "status_put":
            puts.append((event.status_put.connector, event.status_put.task, event.status_put.worker_id))
    assert puts == [("c", 0, W1.worker_id), ("c", 0, W2.worker_id), ("c", 1, W1.worker_id)]
    watch.call.cancel()


async def test_active_topics_are_watched(client: Client) -> None:
    topic = status_pb2.TopicStatus(topic="t", connector="c", task=0)
    await client.write.PutTopics(write_pb2.PutTopicsRequest(topics=[topic]))
    watch = Watch(client)
    assert kinds(await watch.until("leases")) == ["topic_put", "snapshot_complete", "leases"]
    await client.write.DeleteTopics(write_pb2.DeleteTopicsRequest(connector="c", topics=["t"]))
    assert (await watch.change()).topic_deleted.topic == "t"
    watch.call.cancel()


async def _serve_until_the_store_closes() -> None:
    async with running(MemoryBroker()) as (client, store, _):
        watch = Watch(client)
        await watch.until("leases")
        closing = asyncio.ensure_future(store.close())
        with pytest.raises(errors.ShuttingDown):
            await watch.until("progress")
        await closing


async def test_a_store_that_closes_ends_its_watches_then_the_process() -> None:
    with pytest.raises(StoreGone):
        await _serve_until_the_store_closes()


# -- replicas


async def test_replicas_read_and_relay_and_take_over() -> None:
    broker = MemoryBroker()
    async with running(broker) as (writer, writer_store, port):
        await writer.put(put("c", 0))
        await writer.beat(
            W1, lease_ms=60_000
        )  # the worker leaves before its lease ends, however long the replicas take
        async with running(broker, f"127.0.0.1:{port}", READ_SERVICE) as (replica, _, _):
            assert not await replica.health(WRITE_SERVICE)
            with pytest.raises(errors.NotWriter):
                await replica.put(put("c", 1))
            with pytest.raises(errors.NotWriter):
                await replica.beat(W1)
            with pytest.raises(errors.NotWriter):
                await replica.write.DeleteTopics(write_pb2.DeleteTopicsRequest(connector="c"))
            assert (await replica.get("c")).tasks[0].effective_state == RUNNING

            leases = aiter(replica.read.WatchLeases(read_pb2.WatchLeasesRequest(), timeout=60))
            assert [lease.live for lease in (await anext(leases)).leases.leases] == [True]
            await writer.beat(W1, leaving=True)
            assert [lease.live for lease in (await anext(leases)).leases.leases] == [False]
            assert (await replica.get("c")).tasks[0].effective_state == UNASSIGNED

            await writer.beat(W2)
            assert [lease.live for lease in (await anext(leases)).leases.leases] == [False, True]
            assert isinstance(writer_store, MemoryTopicStore)
            writer_store.freeze()
            await replica.serving(WRITE_SERVICE)
            reply = await replica.put(put("c", 1))
            assert reply.outcomes[0].result == APPLIED
            # The first writer does not know yet: it is fenced at its next write, and nothing is applied.
            with pytest.raises((errors.WriterFenced, errors.NotWriter)):
                await writer.put(put("c", 2))
            writer_store.thaw()
            assert [task.task for task in (await replica.get("c")).tasks] == [0, 1]


async def test_a_new_writer_grants_one_full_lease() -> None:
    broker = MemoryBroker()
    async with running(broker) as (first, _, _):
        await first.put(put("c", 0))
    async with running(broker) as (second, _, _):
        task = (await second.get("c")).tasks[0]
        assert (task.effective_state, task.effective_reason) == (RUNNING, "")
        leases = aiter(second.read.WatchLeases(read_pb2.WatchLeasesRequest(), timeout=60))
        [lease] = (await anext(leases)).leases.leases
        assert (lease.worker_id, lease.incarnation, lease.live) == (W1.worker_id, "a", True)


async def test_statuses_of_java_need_no_lease() -> None:
    broker = MemoryBroker()
    async with running(broker) as (client, _, _):
        watch = Watch(client)
        await watch.until("leases")
        value = b'{"state":"RUNNING","trace":null,"worker_id":"java:8083","generation":3,"version":"4.3.1"}'
        broker.produce("connect-status", b"status-task-j-0", value)
        event = await watch.change()
        assert (event.status_put.effective_state, event.status_put.worker_incarnation) == (RUNNING, "")
        watch.call.cancel()
