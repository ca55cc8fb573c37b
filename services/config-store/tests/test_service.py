"""Tests of the three services over real gRPC, on the memory engine: one store process as callers see it, or two
replicas.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from herdmesh.api.common.v1 import connector_pb2, identity_pb2, revision_pb2
from herdmesh.api.configstore.v1 import (
    config_pb2,
    config_read_service_pb2,
    config_write_service_pb2,
    leadership_service_pb2,
)
from herdmesh.configstore.service.roles import LEADERSHIP_SERVICE, READ_SERVICE, WRITE_SERVICE
from herdmesh.rpc import properties
from herdmesh.rpc.errors import (
    ConnectorExists,
    ConnectorNotFound,
    HerdmeshError,
    NotWriter,
    RequestInvalid,
    RevisionForeign,
    RevisionMismatch,
    ShuttingDown,
    StaleEpoch,
    StoreReplaying,
)
from herdmesh.topicstore import StoreTuning
from tests.support.configstore_replica import WAIT_S, Campaign, Cluster, Replica

_Read, _Write, _Lead = config_read_service_pb2, config_write_service_pb2, leadership_service_pb2


async def test_a_connector_from_create_to_delete(writer: Replica) -> None:
    made = await writer.put(
        "c1",
        {"name": "c1", "k": None, "n": properties.JsonValue('{"a":1}')},
        must_not_exist=True,
        initial_target_state=2,
    )
    assert made.created
    entry = made.connector
    assert properties.from_proto(entry.config) == {"name": "c1", "k": None, "n": properties.JsonValue('{"a":1}')}
    assert entry.target_state == connector_pb2.TARGET_STATE_PAUSED
    assert entry.incarnation
    assert not entry.foreign

    token = await writer.epoch()
    committed = await writer.write.CommitTaskConfigs(
        _Write.CommitTaskConfigsRequest(
            options=_Write.WriteOptions(leader=token),
            connector="c1",
            tasks=[properties.to_proto({"t": "0"}), properties.to_proto({"t": "1"})],
            config_revision=entry.config_revision,
        )
    )
    assert [properties.from_proto(task) for task in committed.connector.tasks] == [{"t": "0"}, {"t": "1"}]
    assert len(committed.connector.task_digests) == 2
    assert committed.connector.task_config_generation == 1
    assert committed.connector.applied_config == entry.config

    state = await writer.write.SetTargetState(_Write.SetTargetStateRequest(connector="c1", target_state=1))
    assert state.connector.target_state == connector_pb2.TARGET_STATE_STARTED
    assert await writer.entry("c1") == state.connector

    await writer.write.DeleteConnector(
        _Write.DeleteConnectorRequest(
            options=_Write.WriteOptions(expected_revision=entry.config_revision), connector="c1"
        )
    )
    snapshot = await writer.read.GetSnapshot(_Read.GetSnapshotRequest())
    assert list(snapshot.connectors) == []
    assert snapshot.leadership.epoch == token.epoch


async def test_refusals_arrive_as_their_error_classes(writer: Replica) -> None:
    await writer.put("c1")
    with pytest.raises(ConnectorExists):
        await writer.put("c1", must_not_exist=True)
    with pytest.raises(ConnectorNotFound):
        await writer.put("c2", must_exist=True)
    stale = (await writer.entry("c1")).config_revision
    await writer.put("c1")
    with pytest.raises(RevisionMismatch):
        await writer.put("c1", options=_Write.WriteOptions(expected_revision=stale))
    foreign = revision_pb2.Revision(store_id="other", next_offsets=[1])
    with pytest.raises(RevisionForeign):
        await writer.put("c1", options=_Write.WriteOptions(expected_revision=foreign))
    options = _Write.WriteOptions(leader=identity_pb2.LeaderToken(epoch=9, leader_id="x"))
    with pytest.raises(StaleEpoch):
        await writer.write.CommitTaskConfigs(_Write.CommitTaskConfigsRequest(options=options, connector="c1"))
    with pytest.raises(RequestInvalid):
        await writer.write.SetTargetState(_Write.SetTargetStateRequest(connector="c1"))


async def test_restart_requests_session_keys_and_logger_levels(writer: Replica) -> None:
    await writer.put("c1")
    options = _Write.WriteOptions(leader=await writer.epoch())
    key = config_pb2.SessionKey(key=b"secret", algorithm="HmacSHA256")
    key.create_time.FromMilliseconds(1_700_000_000_000)
    events = aiter(writer.read.Watch(_Read.WatchRequest()))
    while not (await anext(events)).HasField("snapshot_complete"):
        pass
    await writer.write.PutTaskCount(_Write.PutTaskCountRequest(options=options, connector="c1", task_count=3))
    await writer.write.PutSessionKey(_Write.PutSessionKeyRequest(options=options, session_key=key))
    level = config_pb2.LoggerLevel(logger="org", level="DEBUG")
    put = await writer.write.PutLoggerLevel(_Write.PutLoggerLevelRequest(logger_level=level))
    level.revision.CopyFrom(put.meta.revision)
    restart = config_pb2.RestartRequest(connector="c1", only_failed=True)
    await writer.write.RequestRestart(_Write.RequestRestartRequest(options=options, restart=restart))

    seen: list[config_read_service_pb2.WatchResponse] = []
    async with asyncio.timeout(WAIT_S):
        while not (event := await anext(events)).HasField("restart_requested"):
            seen.append(event)
    kinds = [one.WhichOneof("event") for one in seen if not one.HasField("progress")]
    assert kinds == ["connector_changed", "connector_changed", "session_key_changed", "logger_level_changed"]
    assert event.restart_requested == restart
    snapshot = await writer.read.GetSnapshot(_Read.GetSnapshotRequest())
    assert (snapshot.session_key.key, snapshot.session_key.algorithm) == (key.key, key.algorithm)
    assert snapshot.session_key.create_time == key.create_time
    assert snapshot.session_key in [one.session_key_changed for one in seen]
    assert snapshot.connectors[0].task_count_record == 3
    begins: list[str | None] = []
    async with asyncio.timeout(WAIT_S):
        async for event in writer.read.Watch(_Read.WatchRequest()):
            begins.append(event.WhichOneof("event"))
            if begins[-1] == "logger_level_changed":
                assert event.logger_level_changed == level
            if begins[-1] == "snapshot_complete":
                break
    assert begins[-2:] == ["logger_level_changed", "snapshot_complete"], "whoever begins to watch now is told it too"


async def test_one_of_many_concurrent_writes_at_one_revision_succeeds(writer: Replica) -> None:
    at = (await writer.put("c1")).connector.config_revision
    options = _Write.WriteOptions(expected_revision=at)
    answers = await asyncio.gather(
        *(writer.put("c1", {"by": str(number)}, options=options) for number in range(20)), return_exceptions=True
    )
    won = [answer for answer in answers if not isinstance(answer, BaseException)]
    assert len(won) == 1
    assert sum(isinstance(answer, RevisionMismatch) for answer in answers) == 19
    assert await writer.entry("c1") == won[0].connector


async def test_a_repeated_request_id_is_applied_once(writer: Replica) -> None:
    options = _Write.WriteOptions(request_id="r1")
    answers = await asyncio.gather(
        *(writer.put("c1", {"k": "v"}, must_not_exist=True, options=options) for _ in range(10))
    )
    assert all(answer.created for answer in answers)
    assert len({answer.connector.incarnation for answer in answers}) == 1
    with pytest.raises(ConnectorExists):
        await writer.put("c1", must_not_exist=True, options=_Write.WriteOptions(request_id="r2"))


async def test_a_watch_mirrors_the_store_and_resumes(writer: Replica) -> None:
    await writer.put("c1")
    await writer.put("c2")
    events = aiter(writer.read.Watch(_Read.WatchRequest()))
    first = [await anext(events) for _ in range(3)]
    assert [one.connector_changed.name for one in first[:2]] == ["c1", "c2"]
    assert all(list(one.connector_changed.kinds) == [_Read.CONNECTOR_CHANGE_KIND_SNAPSHOT] for one in first[:2])
    assert not first[0].meta.HasField("revision")
    assert first[2].HasField("snapshot_complete")

    await writer.put("c1", {"k": "v"})
    await writer.write.DeleteConnector(_Write.DeleteConnectorRequest(connector="c2"))
    async with asyncio.timeout(WAIT_S):
        changes = [one async for one in _changes(events, 5, writer.store.revision.next_offsets[0])]
    kinds = [[_Read.ConnectorChangeKind.Name(kind)[22:] for kind in one.connector_changed.kinds] for one in changes]
    assert kinds == [["CONFIG_UPDATED"], ["MANIFEST"], ["CONFIG_REMOVED"], [], ["MANIFEST"]][: len(kinds)]
    mirror = {one.connector_changed.name: one.connector_changed for one in changes}
    assert mirror["c1"].after == await writer.entry("c1")
    assert not mirror["c2"].HasField("after")

    resumed = aiter(writer.read.Watch(_Read.WatchRequest(resume=changes[0].meta.revision, connectors=["c2"])))
    async with asyncio.timeout(WAIT_S):
        assert (await anext(resumed)) == changes[2]
        while not (event := await anext(resumed)).HasField("progress"):
            pass
    assert event.meta.revision.next_offsets[0] >= changes[-1].meta.revision.next_offsets[0]


async def test_a_filtered_watch_gets_progress_while_other_connectors_change(cluster: Cluster) -> None:
    writer = await cluster(
        tuning=StoreTuning(progress_interval_ms=600_000)
    )  # so that the progress events are not sent for idleness
    await writer.until_serving(WRITE_SERVICE)
    events = aiter(writer.read.Watch(_Read.WatchRequest(connectors=["wanted"])))
    begun = await anext(events)
    assert begun.HasField("snapshot_complete")
    for number in range(60):  # a config and a manifest each
        await writer.put("other", {"k": str(number)})
    async with asyncio.timeout(WAIT_S):
        event = await anext(events)
    assert event.HasField("progress")
    assert event.meta.revision.next_offsets[0] >= begun.meta.revision.next_offsets[0] + 100


async def test_a_filtered_watch_gets_restarts_of_its_connectors_and_changes_of_the_cluster(writer: Replica) -> None:
    options = _Write.WriteOptions(leader=await writer.epoch())
    events = aiter(writer.read.Watch(_Read.WatchRequest(connectors=["wanted"])))
    while not (await anext(events)).HasField("snapshot_complete"):
        pass
    for name in ("other", "wanted"):
        await writer.put(name)
        restart = config_pb2.RestartRequest(connector=name, include_tasks=True)
        await writer.write.RequestRestart(_Write.RequestRestartRequest(options=options, restart=restart))
    level = config_pb2.LoggerLevel(logger="a.b", level="DEBUG")
    await writer.write.PutLoggerLevel(_Write.PutLoggerLevelRequest(logger_level=level))
    restarted: list[str] = []
    async with asyncio.timeout(WAIT_S):
        while not (event := await anext(events)).HasField("logger_level_changed"):
            if event.HasField("restart_requested"):
                restarted.append(event.restart_requested.connector)
    assert restarted == ["wanted"]


async def _changes(
    events: AsyncIterator[config_read_service_pb2.WatchResponse], at_most: int, end: int
) -> AsyncIterator[config_read_service_pb2.WatchResponse]:
    """Changes until `at_most` arrived, or a progress event shows that the watcher has all before `end`. (A progress
    event alone proves little: a watcher gets one after 0.1 s without changes, also between two changes.)
    """
    seen = 0
    async for event in events:
        if event.HasField("progress"):
            if event.meta.revision.next_offsets[0] >= end:
                return
            continue
        yield event
        seen += 1
        if seen == at_most:
            return


async def test_replicas_read_and_only_the_writer_writes(writer: Replica, cluster: Cluster) -> None:
    replica = await cluster()
    await replica.until_serving(READ_SERVICE)
    assert not await replica.serves(WRITE_SERVICE)
    assert not await replica.serves(LEADERSHIP_SERVICE)
    written = await writer.put("c1", {"k": "v"})
    answer = await replica.read.GetSnapshot(_Read.GetSnapshotRequest(at_least=written.meta.revision))
    assert list(answer.connectors) == [written.connector]
    refreshed = await replica.read.Refresh(_Read.RefreshRequest())
    assert refreshed.meta.revision.next_offsets[0] >= written.meta.revision.next_offsets[0]
    with pytest.raises(NotWriter):
        await replica.put("c2")
    with pytest.raises(NotWriter):
        await Campaign(replica, "herder").next()
    with pytest.raises(NotWriter):
        await replica.lead.Resign(_Lead.ResignRequest())


async def test_a_replaying_store_refuses_requests(cluster: Cluster) -> None:
    replaying = await cluster(join=False)
    foreign = revision_pb2.Revision(store_id="s", next_offsets=[1])
    with pytest.raises(StoreReplaying):
        await replaying.put("c1", options=_Write.WriteOptions(expected_revision=foreign))
    with pytest.raises(StoreReplaying):
        await replaying.read.GetSnapshot(_Read.GetSnapshotRequest())
    assert not await replaying.serves(READ_SERVICE)
    replaying.tasks = []


async def test_leadership_is_granted_confirmed_and_handed_over(writer: Replica) -> None:
    first = Campaign(writer, "a")
    granted = await first.until("granted")
    second = Campaign(writer, "b")
    leadership = granted.granted.leadership
    assert (leadership.epoch, leadership.leader_id, leadership.leader_address) == (1, "a", "a:1")
    assert granted.granted.lease.ToMilliseconds() == 4000
    assert (await second.until("following")).following.leadership == leadership
    first.beat()
    assert (await first.next()).heartbeat.lease.ToMilliseconds() == 4000
    await writer.lead.Resign(_Lead.ResignRequest(leader=identity_pb2.LeaderToken(epoch=1, leader_id="a")))
    assert (await first.until("lost")).lost.reason == "resigned"
    assert (await second.until("granted")).granted.leadership.epoch == 2
    snapshot = await writer.read.GetSnapshot(_Read.GetSnapshotRequest())
    assert (snapshot.leadership.epoch, snapshot.leadership.leader_id) == (2, "b")


async def test_an_incumbent_keeps_its_epoch_when_the_store_fails_over(writer: Replica, cluster: Cluster) -> None:
    replica = await cluster()
    campaign = Campaign(writer, "a")
    leadership = (await campaign.until("granted")).granted.leadership
    await writer.store.close()
    with pytest.raises((NotWriter, ShuttingDown)):
        await campaign.until("lost")
    await replica.until_serving(LEADERSHIP_SERVICE)
    other = Campaign(replica, "b")
    # begun before the other campaign is answered: the time for a reconnect is short on a busy machine
    again = Campaign(replica, "a", identity_pb2.LeaderToken(epoch=leadership.epoch, leader_id="a"))
    assert (await other.next()).following.leadership == leadership
    assert (await again.next()).granted.leadership == leadership


async def test_a_campaign_without_herder_id_is_refused(writer: Replica) -> None:
    with pytest.raises(HerdmeshError):
        await Campaign(writer, "").next()
    campaign = Campaign(writer, "a")
    await campaign.until("granted")
    campaign.end()
    with pytest.raises(StopAsyncIteration):
        await campaign.until("lost")
