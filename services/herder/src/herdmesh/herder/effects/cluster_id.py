"""Cluster id: the id of the Kafka cluster whose topics the stores keep, for GetCluster.

Owns the request to the config store, which gets the id from the broker when it opens its topic: a herder has no Kafka
client. The request is retried until it succeeds and then never repeated: a cluster keeps its id.

Invariant: `known` is empty or the id; no caller waits for it.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

import structlog

from herdmesh.api.configstore.v1 import config_read_service_pb2 as pb
from herdmesh.api.configstore.v1.config_read_service_pb2_grpc import ConfigReadServiceStub
from herdmesh.herder.effects.watches import CONFIG_READ_SERVICE
from herdmesh.rpc.client import connect
from herdmesh.rpc.errors import HerdmeshError

if TYPE_CHECKING:
    import grpc.aio

    from herdmesh.api.configstore.v1.config_read_service_pb2_grpc import ConfigReadServiceAsyncStub

_REQUEST_TIMEOUT_S: Final = 5.0
_RETRY_S: Final = 0.25
_RETRY_S_MAX: Final = 10.0

_log: structlog.stdlib.BoundLogger = structlog.get_logger(__name__)


class ClusterId:
    """The cluster id, once `run` has fetched it."""

    def __init__(self, config_store: str) -> None:
        self.known = ""
        self._channel: grpc.aio.Channel = connect(config_store, CONFIG_READ_SERVICE if "," in config_store else "")
        self._stub: ConfigReadServiceAsyncStub = ConfigReadServiceStub(self._channel)

    async def run(self) -> None:
        """Request the id until it is known, then return."""
        pause_s = _RETRY_S
        while not self.known:
            try:
                answer = await self._stub.GetStoreStatus(pb.GetStoreStatusRequest(), timeout=_REQUEST_TIMEOUT_S)
                self.known = answer.status.cluster_id
            except HerdmeshError as error:
                _log.debug("cluster_id_unknown", error=f"{error.reason}: {error.message}")
            if not self.known:
                await asyncio.sleep(pause_s)
                pause_s = min(2 * pause_s, _RETRY_S_MAX)

    async def close(self) -> None:
        await self._channel.close()
