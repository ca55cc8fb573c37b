"""RPCs of `ConnectorService` about a connector's offsets (KIP-875).

Owns the translation of these requests and answers, and their bounds; decides nothing.
"""

from __future__ import annotations

from typing import Any, Final, TypeAlias

import grpc.aio

from herdmesh.api.herder.v1 import offset_messages_pb2 as pb
from herdmesh.herder.service.queries import QueryRpcs
from herdmesh.herder.state.model import requests as rq
from herdmesh.rpc.errors import RequestInvalid
from herdmesh.session import wire as session_wire

ALTER_BYTES_MAX: Final = 16 * 1024 * 1024
"""Bytes of one request: herder and worker keep it in memory, and it shares a stream with heartbeats."""

_Context: TypeAlias = "grpc.aio.ServicerContext[Any, Any]"


class OffsetRpcs(QueryRpcs):
    """Mixin of the public service that lists and changes offsets."""

    async def GetOffsets(self, request: pb.GetOffsetsRequest, context: _Context) -> pb.GetOffsetsResponse:
        told = await self._call(rq.GetOffsets(request.name), rq.OffsetsAnswer, "", None, context)
        return pb.GetOffsetsResponse(meta=self._meta(), offsets=_entries(told), message=told.message)

    async def AlterOffsets(self, request: pb.AlterOffsetsRequest, context: _Context) -> pb.AlterOffsetsResponse:
        self._must_lead(rq.ChangeOffsets)
        if request.ByteSize() > ALTER_BYTES_MAX:
            raise RequestInvalid(f"at most {ALTER_BYTES_MAX} bytes of offsets at once", "offsets")
        wanted = rq.ChangeOffsets(
            request.name, tuple(session_wire.offset_from(one) for one in request.offsets), dry_run=request.dry_run
        )
        told = await self._call(wanted, rq.OffsetsAnswer, request.request_id, None, context)
        return pb.AlterOffsetsResponse(meta=self._meta(), offsets=_entries(told), message=told.message)

    async def ResetOffsets(self, request: pb.ResetOffsetsRequest, context: _Context) -> pb.ResetOffsetsResponse:
        wanted = rq.ChangeOffsets(request.name, reset=True, dry_run=request.dry_run)
        told = await self._call(wanted, rq.OffsetsAnswer, request.request_id, None, context)
        return pb.ResetOffsetsResponse(meta=self._meta(), offsets=_entries(told), message=told.message)

    async def RewindOffsets(self, request: pb.RewindOffsetsRequest, context: _Context) -> pb.RewindOffsetsResponse:
        self._must_lead(rq.ChangeOffsets)
        if not request.HasField("time"):
            raise RequestInvalid("name the time to go back to", "time")
        time_ms = request.time.ToMilliseconds()
        if time_ms < 0:
            raise RequestInvalid("records are not older than 1970-01-01T00:00:00Z", "time")
        wanted = rq.ChangeOffsets(
            request.name, rewind_to_ms=time_ms, dry_run=request.dry_run, allow_forward=request.allow_forward
        )
        told = await self._call(wanted, rq.OffsetsAnswer, request.request_id, None, context)
        return pb.RewindOffsetsResponse(meta=self._meta(), offsets=_entries(told), message=told.message)


def _entries(told: rq.OffsetsAnswer) -> list[pb.OffsetEntry]:
    return [session_wire.offset_to(one) for one in told.offsets]
