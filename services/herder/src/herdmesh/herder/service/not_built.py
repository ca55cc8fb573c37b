"""RPCs of `ConnectorService` that the contract has and this release does not do.

Owns their one answer: NOT_BUILT, by name. Each leaves this file when it is built.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import grpc.aio

from herdmesh.api.herder.v1 import connector_service_pb2_grpc as pb_grpc
from herdmesh.api.herder.v1 import offset_messages_pb2 as offset_pb
from herdmesh.rpc.errors import NotBuilt

_Context: TypeAlias = "grpc.aio.ServicerContext[Any, Any]"


class NotBuiltRpcs(pb_grpc.ConnectorServiceServicer):
    """Refuses what is not built yet."""

    async def GetOffsets(self, request: offset_pb.GetOffsetsRequest, context: _Context) -> offset_pb.GetOffsetsResponse:
        raise NotBuilt("GetOffsets")

    async def AlterOffsets(
        self, request: offset_pb.AlterOffsetsRequest, context: _Context
    ) -> offset_pb.AlterOffsetsResponse:
        raise NotBuilt("AlterOffsets")

    async def ResetOffsets(
        self, request: offset_pb.ResetOffsetsRequest, context: _Context
    ) -> offset_pb.ResetOffsetsResponse:
        raise NotBuilt("ResetOffsets")

    async def RewindOffsets(
        self, request: offset_pb.RewindOffsetsRequest, context: _Context
    ) -> offset_pb.RewindOffsetsResponse:
        raise NotBuilt("RewindOffsets")
