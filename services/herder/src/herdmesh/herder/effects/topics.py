"""Topics that connectors use (KIP-558): listed and reset for users, kept by the status store.

Owns the two stubs and the two settings that switch this off. Does not own which topics are recorded, and when
(`topic_tracking`). As in Connect neither call checks that the connector exists: the list of an unknown one is empty.

Invariant: a list requested after the response to a reset has none of the topics that were reset, whichever herder leads
by then: the list is read up to the end of the topic.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import TYPE_CHECKING, Final, TypeVar

from herdmesh.api.statusstore.v1 import status_pb2
from herdmesh.api.statusstore.v1 import status_read_service_pb2 as read_pb
from herdmesh.api.statusstore.v1 import status_write_service_pb2 as write_pb
from herdmesh.api.statusstore.v1.status_read_service_pb2_grpc import StatusReadServiceStub
from herdmesh.api.statusstore.v1.status_write_service_pb2_grpc import StatusWriteServiceStub
from herdmesh.herder.effects.watches import STATUS_READ_SERVICE
from herdmesh.herder.effects.writes import STATUS_WRITE_SERVICE
from herdmesh.rpc.client import RETRIABLE, connect, retrying
from herdmesh.rpc.errors import Timeout, TopicTrackingDisabled, WriteOutcomeUnknown
from herdmesh.rpc.request_ids import new_request_id

if TYPE_CHECKING:
    import grpc.aio

    from herdmesh.api.statusstore.v1.status_read_service_pb2_grpc import StatusReadServiceAsyncStub
    from herdmesh.api.statusstore.v1.status_write_service_pb2_grpc import StatusWriteServiceAsyncStub

LISTING: Final = "reading topics from the status store"
RECORDING: Final = "recording topics in the status store"
RESETTING: Final = "resetting topics in the status store"
_ResultT = TypeVar("_ResultT")


class Topics:
    """Topics by connector. `enabled` and `resettable` are Connect's topic.tracking.enable and .allow.reset."""

    def __init__(self, status_store: str, *, enabled: bool, resettable: bool) -> None:
        several = "," in status_store
        self._read_channel: grpc.aio.Channel = connect(status_store, STATUS_READ_SERVICE if several else "")
        self._write_channel: grpc.aio.Channel = connect(status_store, STATUS_WRITE_SERVICE if several else "")
        self._read: StatusReadServiceAsyncStub = StatusReadServiceStub(self._read_channel)
        self._write: StatusWriteServiceAsyncStub = StatusWriteServiceStub(self._write_channel)
        self._enabled = enabled
        self._resettable = resettable

    async def of(self, connector: str, timeout_s: float) -> list[str]:
        """The recorded topics, sorted. Raises TopicTrackingDisabled, Timeout, and the errors of the store."""
        self._check(reset=False)
        request = read_pb.ListTopicsRequest(connector=connector, linearizable=True)
        response = await _within(timeout_s, LISTING, retrying(lambda: self._read.ListTopics(request), timeout_s))
        return sorted({topic.topic for topic in response.topics})

    async def put(self, topics: list[status_pb2.TopicStatus], timeout_s: float) -> None:
        """Record topics in use. Raises Timeout, and the errors of the store."""
        request = write_pb.PutTopicsRequest(request_id=new_request_id(), topics=topics)
        retried = (*RETRIABLE, WriteOutcomeUnknown)
        sent = retrying(lambda: self._write.PutTopics(request), timeout_s, retry_on=retried)
        await _within(timeout_s, RECORDING, sent)

    async def reset(self, connector: str, request_id: str, timeout_s: float) -> None:
        """Delete the recorded topics; those still in use are recorded again. Raises as `of`."""
        self._check(reset=True)
        request = write_pb.DeleteTopicsRequest(request_id=request_id or new_request_id(), connector=connector)
        retried = (*RETRIABLE, WriteOutcomeUnknown)
        sent = retrying(lambda: self._write.DeleteTopics(request), timeout_s, retry_on=retried)
        await _within(timeout_s, RESETTING, sent)

    async def close(self) -> None:
        await self._read_channel.close()
        await self._write_channel.close()

    def _check(self, *, reset: bool) -> None:
        if not self._enabled:
            raise TopicTrackingDisabled("HERDMESH_TOPIC_TRACKING_ENABLE")
        if reset and not self._resettable:
            raise TopicTrackingDisabled("HERDMESH_TOPIC_TRACKING_ALLOW_RESET")


async def _within(timeout_s: float, stage: str, answer: Awaitable[_ResultT]) -> _ResultT:
    try:
        async with asyncio.timeout(timeout_s):
            return await answer
    except (TimeoutError, Timeout):
        raise Timeout(stage) from None
