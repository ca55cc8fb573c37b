"""Tests of encoded views: lists and watches of statuses are encoded once for all callers, and joined with the current
leases.
"""

from __future__ import annotations

from typing import Any, cast

from herdmesh.api.common.v1 import connector_pb2
from herdmesh.api.statusstore.v1 import status_read_service_pb2 as pb
from herdmesh.statusstore.effects.leases import LeaseKeeper
from herdmesh.statusstore.service import wire
from herdmesh.statusstore.service.reads import StatusReadService
from herdmesh.statusstore.state.leases import BecameWriter, Heartbeat
from herdmesh.topicstore.memory.memory_broker import MemoryBroker
from tests.support.statusstore_memory import W1, put, running

_NO_CONTEXT = cast(Any, None)


async def _list(service: StatusReadService, **filters: Any) -> pb.ListStatusesResponse:
    request = pb.ListStatusesRequest(**filters)
    return pb.ListStatusesResponse.FromString(cast(bytes, await service.ListStatuses(request, _NO_CONTEXT)))


async def _watched(service: StatusReadService) -> int:
    count = 0
    async for event in service.WatchStatuses(pb.WatchStatusesRequest(), _NO_CONTEXT):
        sent = cast("object", event)
        if not isinstance(sent, bytes):
            break  # the end of the snapshot
        count += pb.WatchStatusesResponse.FromString(sent).HasField("status_put")
    return count


async def test_more_readers_cause_no_more_encoding() -> None:
    async with running(MemoryBroker()) as (client, store, _):
        await client.put(*(put("c", task) for task in range(30)), writer=W1)
        keeper = LeaseKeeper()
        service = StatusReadService(store, keeper)
        first = await _list(service)
        assert list(first.statuses) == [
            wire.status_to(stored, store.revision, keeper.table) for stored in store.state.statuses()
        ]
        made = service.views.statuses.made_count
        assert made == 30
        for _ in range(50):
            assert await _list(service) == first
            assert await _watched(service) == 30
        assert (await _list(service, connectors=["other"])).statuses == []
        assert service.views.statuses.made_count == made
        await client.put(put("c", 7, generation=2), writer=W1)
        assert (await _list(service)).statuses[7].generation == 2
        assert service.views.statuses.made_count == made + 1, "what changed, and nothing else"


async def test_the_end_of_a_lease_shows_in_cached_views() -> None:
    async with running(MemoryBroker()) as (client, store, _):
        await client.put(put("c", 0), writer=W1)
        keeper = LeaseKeeper()
        keeper.handle(BecameWriter({}, 60_000))
        service = StatusReadService(store, keeper)
        keeper.handle(Heartbeat(W1.worker_id, W1.incarnation, 60_000, leaving=False))
        assert (await _list(service)).statuses[0].effective_state == connector_pb2.RUN_STATE_RUNNING
        keeper.handle(Heartbeat(W1.worker_id, W1.incarnation, 60_000, leaving=True))
        assert (await _list(service)).statuses[0].effective_state == connector_pb2.RUN_STATE_UNASSIGNED
        keeper.close()
