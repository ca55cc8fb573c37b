"""The three services over real gRPC, on the memory engine: one store process as callers see it, or two replicas."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from herdmesh.api.common.v1 import connector_pb2, identity_pb2, revision_pb2
from herdmesh.api.configstore.v1 import (
    config_pb2,
    config_read_service_pb2,
    config_read_service_pb2_grpc,
    config_write_service_pb2,
    config_write_service_pb2_grpc,
    leadership_service_pb2,
    leadership_service_pb2_grpc,
)
from herdmesh.configstore.effects.campaigns import Campaigns
from herdmesh.configstore.effects.stores import fresh_id, monotonic_ms, wall_clock_ms
from herdmesh.configstore.service.leadership import LeadershipServicer
from herdmesh.configstore.service.read import ConfigReadServicer
from herdmesh.configstore.service.roles import LEADERSHIP_SERVICE, READ_SERVICE, WRITE_SERVICE, follow_roles
from herdmesh.configstore.service.write import ConfigWriteServicer
from herdmesh.configstore.settings import ConfigStoreSettings
from herdmesh.configstore.state.changes import Change
from herdmesh.configstore.state.config import ConfigState
from herdmesh.rpc import properties
from herdmesh.rpc.client import connect
from herdmesh.rpc.errors import (
    ConnectorExists,
    ConnectorNotFound,
    HerdmeshError,
    NotBuilt,
    NotWriter,
    RequestInvalid,
    RevisionForeign,
    RevisionMismatch,
    ShuttingDown,
    StaleEpoch,
    StoreReplaying,
)
from herdmesh.rpc.server import Server, ServiceRegistration
from herdmesh.topicstore import MemoryBroker, MemoryTopicStore, StoreTuning

_Read, _Write, _Lead = config_read_service_pb2, config_write_service_pb2, leadership_service_pb2
_SETTINGS = ConfigStoreSettings(memory=True)
_WAIT_S = 10.0
_SERVING = health_pb2.HealthCheckResponse.SERVING


@dataclass
class Replica:
    """One config store in this process, and stubs to it."""

    store: MemoryTopicStore[ConfigState, Change]
    server: Server
    campaigns: Campaigns

    async def start(self) -> None:
        port = await self.server.start()
        self.channel = connect(f"127.0.0.1:{port}")
        self.write = config_write_service_pb2_grpc.ConfigWriteServiceStub(self.channel)
        self.read = config_read_service_pb2_grpc.ConfigReadServiceStub(self.channel)
        self.lead = leadership_service_pb2_grpc.LeadershipServiceStub(self.channel)
        self.health: Any = health_pb2_grpc.HealthStub(self.channel)  # its generated stub declares no methods
        self.tasks: list[asyncio.Task[None]] = []

    async def join(self) -> None:
        await self.store.start()
        following = follow_roles(self.store, self.campaigns, self.server.set_serving)
        self.tasks = [asyncio.create_task(following), asyncio.create_task(self.campaigns.run())]

    async def close(self) -> None:
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)
        await self.store.close()
        await self.channel.close()
        await self.server.stop(0)

    async def until_serving(self, service: str) -> None:
        async with asyncio.timeout(_WAIT_S):
            async for answer in self.health.Watch(health_pb2.HealthCheckRequest(service=service)):
                if answer.status == _SERVING:
                    return

    async def serves(self, service: str) -> bool:
        answer = await self.health.Check(health_pb2.HealthCheckRequest(service=service))
        return bool(answer.status == _SERVING)

    async def put(
        self, name: str, config: dict[str, properties.PropertyValue] | None = None, **fields: object
    ) -> config_write_service_pb2.PutConnectorConfigResponse:
        request = _Write.PutConnectorConfigRequest(connector=name, config=properties.to_proto(config or {}), **fields)  # pyright: ignore[reportArgumentType]
        return await self.write.PutConnectorConfig(request)

    async def entry(self, name: str) -> config_pb2.ConnectorEntry:
        answer = await self.read.GetSnapshot(_Read.GetSnapshotRequest(linearizable=True, connectors=[name]))
        (entry,) = answer.connectors
        return entry

    async def epoch(self, herder: str = "herder") -> identity_pb2.LeaderToken:
        """Lead for as long as the stream's task lives."""
        campaign = Campaign(self, herder)
        granted = await campaign.until("granted")
        return identity_pb2.LeaderToken(epoch=granted.granted.leadership.epoch, leader_id=herder)


class Campaign:
    """A herder's campaign stream; heartbeats are sent by hand."""

    def __init__(self, replica: Replica, herder: str, held: identity_pb2.LeaderToken | None = None) -> None:
        self._messages: asyncio.Queue[leadership_service_pb2.CampaignRequest | None] = asyncio.Queue()
        first = _Lead.CampaignRequest(herder_id=herder, address=f"{herder}:1", held=held)
        self._messages.put_nowait(first)
        self._call = replica.lead.Campaign(self._requests())
        self._replies = aiter(self._call)

    def beat(self) -> None:
        self._messages.put_nowait(_Lead.CampaignRequest())

    def end(self) -> None:
        self._messages.put_nowait(None)

    async def next(self) -> leadership_service_pb2.CampaignResponse:
        async with asyncio.timeout(_WAIT_S):
            return await anext(self._replies)

    async def until(self, event: str) -> leadership_service_pb2.CampaignResponse:
        while (reply := await self.next()).WhichOneof("event") != event:
            pass
        return reply

    async def _requests(self) -> AsyncIterator[leadership_service_pb2.CampaignRequest]:
        while (message := await self._messages.get()) is not None:
            yield message


Cluster = Callable[[], Awaitable[Replica]]


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    """Makes replicas of one store."""
    broker = MemoryBroker()
    made: list[Replica] = []

    async def replica(*, join: bool = True) -> Replica:
        initial = ConfigState(_SETTINGS.audit_topic)
        tuning = StoreTuning(progress_interval_ms=100)
        store = MemoryTopicStore[ConfigState, Change](broker, _SETTINGS.topic_settings(), initial, tuning=tuning)
        campaigns = Campaigns(store, monotonic_ms)
        writer = ConfigWriteServicer(store, _SETTINGS.audit_topic, wall_clock_ms, fresh_id)
        services = [
            ServiceRegistration(
                ConfigReadServicer(store),
                config_read_service_pb2_grpc.add_ConfigReadServiceServicer_to_server,
                READ_SERVICE,
            ),
            ServiceRegistration(
                writer, config_write_service_pb2_grpc.add_ConfigWriteServiceServicer_to_server, WRITE_SERVICE
            ),
            ServiceRegistration(
                LeadershipServicer(store, campaigns),
                leadership_service_pb2_grpc.add_LeadershipServiceServicer_to_server,
                LEADERSHIP_SERVICE,
            ),
        ]
        one = Replica(store, Server("127.0.0.1:0", services, metrics=False), campaigns)
        await one.start()
        made.append(one)
        if join:
            await one.join()
        return one

    yield replica
    for one in made:
        await one.close()


@pytest.fixture
async def writer(cluster: Cluster) -> Replica:
    """One replica that writes and runs the election."""
    one = await cluster()
    await one.until_serving(LEADERSHIP_SERVICE)
    return one


async def test_a_connector_through_its_life(writer: Replica) -> None:
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


async def test_refusals_come_as_their_classes(writer: Replica) -> None:
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


async def test_what_is_not_built_says_so(writer: Replica) -> None:
    with pytest.raises(NotBuilt, match="GetHistory"):
        await writer.read.GetHistory(_Read.GetHistoryRequest(connector="c1"))
    with pytest.raises(NotBuilt, match="RestoreConnector"):
        await writer.write.RestoreConnector(_Write.RestoreConnectorRequest(connector="c1"))


async def test_the_small_records(writer: Replica) -> None:
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
    await writer.write.PutLoggerLevel(_Write.PutLoggerLevelRequest(logger_level=level))
    restart = config_pb2.RestartRequest(connector="c1", only_failed=True)
    await writer.write.RequestRestart(_Write.RequestRestartRequest(options=options, restart=restart))

    seen: list[config_read_service_pb2.WatchResponse] = []
    async with asyncio.timeout(_WAIT_S):
        while not (event := await anext(events)).HasField("restart_requested"):
            seen.append(event)
    kinds = [one.WhichOneof("event") for one in seen if not one.HasField("progress")]
    assert kinds == ["connector_changed", "connector_changed", "session_key_changed", "logger_level_changed"]
    assert event.restart_requested == restart
    snapshot = await writer.read.GetSnapshot(_Read.GetSnapshotRequest())
    assert snapshot.session_key == key
    assert snapshot.connectors[0].task_count_record == 3


async def test_one_of_many_writers_of_one_revision_wins(writer: Replica) -> None:
    at = (await writer.put("c1")).connector.config_revision
    options = _Write.WriteOptions(expected_revision=at)
    answers = await asyncio.gather(
        *(writer.put("c1", {"by": str(number)}, options=options) for number in range(20)), return_exceptions=True
    )
    won = [answer for answer in answers if not isinstance(answer, BaseException)]
    assert len(won) == 1
    assert sum(isinstance(answer, RevisionMismatch) for answer in answers) == 19
    assert await writer.entry("c1") == won[0].connector


async def test_a_request_id_is_applied_once_however_often_it_comes(writer: Replica) -> None:
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
    async with asyncio.timeout(_WAIT_S):
        changes = [one async for one in _changes(events, 5)]
    kinds = [[_Read.ConnectorChangeKind.Name(kind)[22:] for kind in one.connector_changed.kinds] for one in changes]
    assert kinds == [["CONFIG_UPDATED"], ["MANIFEST"], ["CONFIG_REMOVED"], [], ["MANIFEST"]][: len(kinds)]
    mirror = {one.connector_changed.name: one.connector_changed for one in changes}
    assert mirror["c1"].after == await writer.entry("c1")
    assert not mirror["c2"].HasField("after")

    resumed = aiter(writer.read.Watch(_Read.WatchRequest(resume=changes[0].meta.revision, connectors=["c2"])))
    async with asyncio.timeout(_WAIT_S):
        assert (await anext(resumed)) == changes[2]
        while not (event := await anext(resumed)).HasField("progress"):
            pass
    assert event.meta.revision.next_offsets[0] >= changes[-1].meta.revision.next_offsets[0]


async def _changes(
    events: AsyncIterator[config_read_service_pb2.WatchResponse], at_most: int
) -> AsyncIterator[config_read_service_pb2.WatchResponse]:
    """Changes until the watcher is idle or `at_most` came."""
    seen = 0
    async for event in events:
        if event.HasField("progress"):
            if seen:
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


async def test_a_store_that_replays_refuses(cluster: Callable[..., Awaitable[Replica]]) -> None:
    replaying = await cluster(join=False)
    foreign = revision_pb2.Revision(store_id="s", next_offsets=[1])
    with pytest.raises(StoreReplaying):
        await replaying.put("c1", options=_Write.WriteOptions(expected_revision=foreign))
    with pytest.raises(StoreReplaying):
        await replaying.read.GetSnapshot(_Read.GetSnapshotRequest())
    assert not await replaying.serves(READ_SERVICE)
    replaying.tasks = []


async def test_leadership_is_granted_confirmed_and_handed_over(writer: Replica) -> None:
    first, second = Campaign(writer, "a"), Campaign(writer, "b")
    granted = await first.until("granted")
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
    assert (await other.next()).following.leadership == leadership
    again = Campaign(replica, "a", identity_pb2.LeaderToken(epoch=leadership.epoch, leader_id="a"))
    assert (await again.next()).granted.leadership == leadership


async def test_a_campaign_without_a_name_is_refused(writer: Replica) -> None:
    with pytest.raises(HerdmeshError):
        await Campaign(writer, "").next()
    campaign = Campaign(writer, "a")
    await campaign.until("granted")
    campaign.end()
    with pytest.raises(StopAsyncIteration):
        await campaign.until("lost")
