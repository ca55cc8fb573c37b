"""A config store in this process over real gRPC on the memory engine, and a herder's campaign stream to it.

Owns the wiring that tests of the service share; the tests own what the store does. The tests' `conftest.py` makes
fixtures of it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from grpc_health.v1 import health_pb2, health_pb2_grpc

from herdmesh.api.common.v1 import identity_pb2
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
from herdmesh.configstore.effects.stores import fresh_id, monotonic_ms
from herdmesh.configstore.service.leadership import LeadershipServicer
from herdmesh.configstore.service.read import ConfigReadServicer
from herdmesh.configstore.service.roles import LEADERSHIP_SERVICE, READ_SERVICE, WRITE_SERVICE, follow_roles
from herdmesh.configstore.service.write import ConfigWriteServicer
from herdmesh.configstore.settings import ConfigStoreSettings
from herdmesh.configstore.state.changes import Change
from herdmesh.configstore.state.config import ConfigState
from herdmesh.rpc import properties
from herdmesh.rpc.client import connect
from herdmesh.rpc.server import Server, ServiceRegistration
from herdmesh.topicstore import StoreTuning
from herdmesh.topicstore.memory.memory_broker import MemoryBroker
from herdmesh.topicstore.memory.memory_store import MemoryTopicStore

WAIT_S = 45.0
SETTINGS = ConfigStoreSettings(memory=True)
_Read, _Write, _Lead = config_read_service_pb2, config_write_service_pb2, leadership_service_pb2
_SERVING = health_pb2.HealthCheckResponse.SERVING


@dataclass
class Replica:
    """One config store in this process, and stubs to it."""

    broker: MemoryBroker
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
        async with asyncio.timeout(WAIT_S):
            async for answer in self.health.Watch(health_pb2.HealthCheckRequest(service=service)):
                if answer.status == _SERVING:
                    return

    async def serves(self, service: str) -> bool:
        answer = await self.health.Check(health_pb2.HealthCheckRequest(service=service))
        return bool(answer.status == _SERVING)

    async def put(
        self, name: str, config: Mapping[str, properties.PropertyValue] | None = None, **fields: object
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

    def beat(self, reserve_above: int = 0) -> None:
        self._messages.put_nowait(_Lead.CampaignRequest(reserve_above=reserve_above))

    def end(self) -> None:
        self._messages.put_nowait(None)

    async def next(self) -> leadership_service_pb2.CampaignResponse:
        async with asyncio.timeout(WAIT_S):
            return await anext(self._replies)

    async def until(self, event: str) -> leadership_service_pb2.CampaignResponse:
        while (reply := await self.next()).WhichOneof("event") != event:
            pass
        return reply

    async def _requests(self) -> AsyncIterator[leadership_service_pb2.CampaignRequest]:
        while (message := await self._messages.get()) is not None:
            yield message


Cluster = Callable[..., Awaitable[Replica]]


class Replicas:
    """Replicas of one store on one broker of the memory engine. `clock_ms` is the writers' wall clock."""

    def __init__(self, broker: MemoryBroker, clock_ms: Callable[[], int]) -> None:
        self.broker = broker
        self._clock_ms = clock_ms
        self._made: list[Replica] = []

    async def add(self, *, join: bool = True, tuning: StoreTuning | None = None) -> Replica:
        """Add a replica; `join=False` leaves it before its replay."""
        initial = ConfigState(SETTINGS.audit_topic)
        tuning = tuning or StoreTuning(progress_interval_ms=100)
        store = MemoryTopicStore[ConfigState, Change](self.broker, SETTINGS.topic_settings(), initial, tuning=tuning)
        campaigns = Campaigns(store, monotonic_ms)
        writer = ConfigWriteServicer(store, SETTINGS.audit_topic, self._clock_ms, fresh_id)
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
        one = Replica(self.broker, store, Server("127.0.0.1:0", services, metrics=False), campaigns)
        await one.start()
        self._made.append(one)
        if join:
            await one.join()
        return one

    async def close(self) -> None:
        for one in self._made:
            await one.close()
