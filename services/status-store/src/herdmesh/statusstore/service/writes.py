"""StatusWriteService: the topic store decides and writes every call; a replica that is not the writer refuses it.

Owns nothing but the steps of a call: check, convert, `store.write`, convert back. Invariant: a call whose `request_id`
this process has answered before gets the same response; a removal that another process may have answered removes no
topic that was recorded after its id was created.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from herdmesh.api.statusstore.v1 import status_write_service_pb2 as pb2
from herdmesh.api.statusstore.v1 import status_write_service_pb2_grpc as pb2_grpc
from herdmesh.rpc import revisions
from herdmesh.rpc.errors import NotWriter, RequestInvalid
from herdmesh.statusstore.effects.leases import LeaseKeeper
from herdmesh.statusstore.effects.requests import Requests
from herdmesh.statusstore.effects.store import Store
from herdmesh.statusstore.service import wire
from herdmesh.statusstore.state.leases import LEASE_MS_MAX, LEASE_MS_MIN, Heartbeat, StatusWritten
from herdmesh.statusstore.state.sequences import Sequences
from herdmesh.statusstore.state.statuses import StatusState
from herdmesh.statusstore.state.writes import (
    Put,
    decide_connector_deletion,
    decide_puts,
    decide_topic_deletion,
    decide_topics,
)
from herdmesh.topicstore.contract import NewRecord, Revision, StoreRole, WriteDecision

#: A larger call would be one larger transaction.
BATCH_MAX: Final = 1_000

_Context = Any  # grpc.aio.ServicerContext; generic in the stubs only


class StatusWriteService(pb2_grpc.StatusWriteServiceServicer):
    """The servicer of writes."""

    def __init__(self, store: Store, keeper: LeaseKeeper, requests: Requests, lease_ms: int) -> None:
        self._store = store
        self._keeper = keeper
        self._lease_ms = lease_ms
        self._requests = requests
        self._sequences = Sequences()

    async def PutStatuses(self, request: pb2.PutStatusesRequest, context: _Context) -> pb2.PutStatusesResponse:
        self._require_writer()
        _check_batch(len(request.puts), "puts")
        current = self._store.revision
        puts = [wire.put_from(put, request.writer, current, index) for index, put in enumerate(request.puts)]
        if request.writer.worker_id and request.writer.incarnation:
            self._keeper.handle(StatusWritten(request.writer.worker_id, request.writer.incarnation, self._lease_ms))
        order = (request.writer.worker_id, request.writer.incarnation, request.sequence)
        return await self._requests.once("PutStatuses", request.request_id, lambda: self._put(puts, order))

    async def PutTopics(self, request: pb2.PutTopicsRequest, context: _Context) -> pb2.PutTopicsResponse:
        _check_batch(len(request.topics), "topics")
        topics = [wire.topic_from(topic) for topic in request.topics]
        revision = await self._write("PutTopics", request.request_id, lambda state: decide_topics(state, topics))
        return pb2.PutTopicsResponse(meta=revisions.meta(revision))

    async def DeleteTopics(self, request: pb2.DeleteTopicsRequest, context: _Context) -> pb2.DeleteTopicsResponse:
        connector = wire.named(request.connector)
        topics, by_ms = tuple(request.topics), self._requests.maybe_since(request.request_id)
        revision = await self._write(
            "DeleteTopics", request.request_id, lambda state: decide_topic_deletion(state, connector, topics, by_ms)
        )
        return pb2.DeleteTopicsResponse(meta=revisions.meta(revision))

    async def DeleteConnectorStatuses(
        self, request: pb2.DeleteConnectorStatusesRequest, context: _Context
    ) -> pb2.DeleteConnectorStatusesResponse:
        connector = wire.named(request.connector)
        tasks_from = request.tasks_from if request.HasField("tasks_from") else None
        include_topics, generation_below = request.include_topics, request.generation_below
        revision = await self._write(
            "DeleteConnectorStatuses",
            request.request_id,
            lambda state: decide_connector_deletion(state, connector, tasks_from, include_topics, generation_below),
        )
        return pb2.DeleteConnectorStatusesResponse(meta=revisions.meta(revision))

    async def Heartbeat(self, request: pb2.HeartbeatRequest, context: _Context) -> pb2.HeartbeatResponse:
        self._require_writer()
        worker = request.worker
        if not worker.worker_id or not worker.incarnation:
            raise RequestInvalid("a heartbeat names worker_id and incarnation", "worker")
        lease_ms = request.lease.ToMilliseconds() if request.HasField("lease") else self._lease_ms
        lease_ms = min(max(lease_ms, LEASE_MS_MIN), LEASE_MS_MAX)
        self._keeper.handle(Heartbeat(worker.worker_id, worker.incarnation, lease_ms, request.leaving))
        response = pb2.HeartbeatResponse(meta=revisions.meta(self._store.revision))
        lease = self._keeper.shown_of(worker.worker_id)
        if lease is not None:
            response.lease.CopyFrom(wire.lease_to(lease))
        return response

    async def _put(self, puts: Sequence[Put], order: tuple[str, str, int]) -> pb2.PutStatusesResponse:
        keys = [put.key for put in puts]

        def decide(state: StatusState) -> WriteDecision[pb2.PutStatusesResponse]:
            decision = decide_puts(state, puts, self._sequences.late(*order, keys))

            def result(applied: StatusState, revision: Revision) -> pb2.PutStatusesResponse:
                outcomes = [
                    wire.outcome_to(outcome, applied.get(*put.key), revision, self._keeper.table)
                    for put, outcome in zip(puts, decision.results, strict=True)
                ]
                return pb2.PutStatusesResponse(meta=revisions.meta(revision), outcomes=outcomes)

            return WriteDecision(decision.records, result)

        return await self._store.write(decide)

    async def _write(
        self, method: str, request_id: str, records: Callable[[StatusState], Sequence[NewRecord]]
    ) -> Revision:
        """Write the records that `records` decides on the current state; returns the revision of the write."""

        def decide(state: StatusState) -> WriteDecision[Revision]:
            return WriteDecision(records(state), lambda _, revision: revision)

        return await self._requests.once(method, request_id, lambda: self._store.write(decide))

    def _require_writer(self) -> None:
        if self._store.role is not StoreRole.WRITER:
            raise NotWriter(f"this replica does not write (its role is {self._store.role.value})")


def _check_batch(count: int, field: str) -> None:
    if count == 0:
        raise RequestInvalid("there is nothing to write", field)
    if count > BATCH_MAX:
        raise RequestInvalid(f"{count} in one call; at most {BATCH_MAX} are written at once", field)
