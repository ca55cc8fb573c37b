"""A config store in a process of its own, for tests that kill or stop one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import grpc.aio

from herdmesh.api.common.v1 import identity_pb2
from herdmesh.api.configstore.v1 import (
    config_read_service_pb2,
    config_read_service_pb2_grpc,
    config_write_service_pb2,
    config_write_service_pb2_grpc,
    leadership_service_pb2_grpc,
)
from herdmesh.api.configstore.v1 import leadership_service_pb2 as leadership
from herdmesh.rpc import properties
from tests.support.store_process import StoreProcess

_Read, _Write = config_read_service_pb2, config_write_service_pb2
WriteResponse = config_write_service_pb2.PutConnectorConfigResponse


class ConfigStoreProcess(StoreProcess):
    """`python -m herdmesh.configstore` on a free port, with stubs to it. `group_id` is the topic's name by default."""

    module = "herdmesh.configstore"
    read_service = "herdmesh.api.configstore.v1.ConfigReadService"
    write_service = "herdmesh.api.configstore.v1.ConfigWriteService"

    def __init__(
        self,
        bootstrap: str,
        topic: str,
        log_path: Path,
        *,
        group_id: str = "",
        more: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
    ) -> None:
        arguments = [
            f"--bootstrap-servers={bootstrap}",
            f"--config-storage-topic={topic}",
            f"--group-id={group_id or topic}",
            "--config-storage-replication-factor=1",
            *more,
        ]
        super().__init__(arguments, log_path, environment)

    def stub(self, channel: grpc.aio.Channel) -> None:
        self.write = config_write_service_pb2_grpc.ConfigWriteServiceStub(channel)
        self.read = config_read_service_pb2_grpc.ConfigReadServiceStub(channel)
        self.lead = leadership_service_pb2_grpc.LeadershipServiceStub(channel)

    async def put(
        self,
        name: str,
        config: dict[str, str],
        *,
        must_not_exist: bool = False,
        must_exist: bool = False,
        request_id: str = "",
    ) -> WriteResponse:
        """Write a config."""
        return await self.write.PutConnectorConfig(
            _Write.PutConnectorConfigRequest(
                options=_Write.WriteOptions(request_id=request_id),
                connector=name,
                config=properties.to_proto(config),
                must_not_exist=must_not_exist,
                must_exist=must_exist,
            )
        )

    async def configs(self) -> dict[str, dict[str, properties.PropertyValue]]:
        """Every connector's config, read to the end of the topic."""
        answer = await self.read.GetSnapshot(_Read.GetSnapshotRequest(linearizable=True))
        return {entry.name: properties.from_proto(entry.config) for entry in answer.connectors if entry.has_config}


@asynccontextmanager
async def leading(config: ConfigStoreProcess) -> AsyncGenerator[identity_pb2.LeaderToken]:
    """Lead as a herder does, with heartbeats, until the end of the block."""
    over = asyncio.Event()
    granted: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    async def heartbeats() -> AsyncIterator[leadership.CampaignRequest]:
        yield leadership.CampaignRequest(herder_id="herder-1", address="127.0.0.1:7203")
        while not over.is_set():
            try:
                await asyncio.wait_for(over.wait(), 1.0)
            except TimeoutError:
                yield leadership.CampaignRequest()

    async def campaign() -> None:
        async for reply in config.lead.Campaign(heartbeats()):
            if not reply.HasField("granted"):
                continue
            epoch = reply.granted.leadership.epoch
            if not granted.done():
                granted.set_result(epoch)
            elif granted.result() != epoch:
                raise AssertionError(
                    f"the leadership of epoch {granted.result()} was lost, and granted again as {epoch}: no heartbeat "
                    "came for the time of the lease, as on a machine that stands still"
                )

    campaigning = asyncio.create_task(campaign())
    try:
        yield identity_pb2.LeaderToken(epoch=await granted, leader_id="herder-1")
    finally:
        over.set()
        await campaigning
