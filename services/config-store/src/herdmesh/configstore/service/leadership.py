"""`LeadershipService`: campaign streams and resignation. Served by the elected writer.

Owns the conversion of a stream into a session of `effects.campaigns` and back.

Invariant: a session ends with its stream, whichever side ends the stream.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any, TypeAlias, assert_never

import grpc.aio
from google.protobuf.duration_pb2 import Duration

from herdmesh.api.configstore.v1 import leadership_service_pb2 as pb
from herdmesh.api.configstore.v1 import leadership_service_pb2_grpc as pb_grpc
from herdmesh.configstore.effects.campaigns import Campaigns
from herdmesh.configstore.effects.stores import ConfigTopicStore
from herdmesh.configstore.service import wire
from herdmesh.configstore.state.election import (
    LEASE_MS,
    Message,
    SendFollowing,
    SendGranted,
    SendHeartbeat,
    SendLost,
    SendReserved,
)
from herdmesh.rpc import revisions
from herdmesh.rpc.errors import RequestInvalid

_Context: TypeAlias = "grpc.aio.ServicerContext[Any, Any]"


class LeadershipServicer(pb_grpc.LeadershipServiceServicer):
    """The RPCs of the election, for herders."""

    def __init__(self, store: ConfigTopicStore, campaigns: Campaigns) -> None:
        self._store = store
        self._campaigns = campaigns

    async def Campaign(
        self, request_iterator: AsyncIterator[pb.CampaignRequest], context: _Context
    ) -> AsyncIterator[pb.CampaignResponse]:
        first = await anext(aiter(request_iterator), None)
        if first is None:
            return
        if not first.herder_id or not first.address:
            raise RequestInvalid("the first message must name the herder and its address", "herder_id")
        held = wire.leader_token(first.held) if first.HasField("held") else None
        session = self._campaigns.join(first.herder_id, first.address, held)
        hearing = asyncio.create_task(self._hear(session, request_iterator))
        try:
            async for message in self._campaigns.messages(session):
                yield self._response(message)
        finally:
            hearing.cancel()
            self._campaigns.leave(session)

    async def Resign(self, request: pb.ResignRequest, context: _Context) -> pb.ResignResponse:
        self._campaigns.resign(wire.leader_token(request.leader))
        return pb.ResignResponse(meta=revisions.meta(self._store.revision))

    async def _hear(self, session: int, requests: AsyncIterator[pb.CampaignRequest]) -> None:
        try:
            async for request in requests:
                self._campaigns.heartbeat(session, request.reserve_above)
        finally:
            self._campaigns.leave(session)

    def _response(self, message: Message) -> pb.CampaignResponse:
        response = pb.CampaignResponse(meta=revisions.meta(self._store.revision))
        match message:
            case SendGranted():
                granted = pb.LeadershipGranted(leadership=wire.leadership(message.leadership), lease=_lease())
                response.granted.CopyFrom(granted)
            case SendFollowing():
                response.following.CopyFrom(pb.LeadershipFollowing(leadership=wire.leadership(message.leadership)))
            case SendHeartbeat():
                response.heartbeat.CopyFrom(pb.LeadershipHeartbeat(lease=_lease()))
            case SendReserved():
                response.reserved.CopyFrom(pb.GenerationsReserved(leadership=wire.leadership(message.leadership)))
            case SendLost():
                response.lost.CopyFrom(pb.LeadershipLost(reason=message.reason))
            case _:
                assert_never(message)
        return response


def _lease() -> Duration:
    lease = Duration()
    lease.FromMilliseconds(LEASE_MS)
    return lease
