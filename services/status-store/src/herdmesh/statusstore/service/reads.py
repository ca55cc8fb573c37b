"""StatusReadService: served by every replica from its applied state.

Owns the shape of a watch: statuses and topics of a snapshot, SNAPSHOT_COMPLETE, the leases, then changes.
`_StatusWatch` describes the filters and the revisions from which a watch can resume.

Invariant: no call here changes anything.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Sequence
from contextlib import aclosing, suppress
from functools import partial
from typing import Any, Final, assert_never, cast

from herdmesh.api.common.v1 import revision_pb2, store_pb2
from herdmesh.api.statusstore.v1 import status_pb2
from herdmesh.api.statusstore.v1 import status_read_service_pb2 as pb2
from herdmesh.api.statusstore.v1 import status_read_service_pb2_grpc as pb2_grpc
from herdmesh.rpc import encoded, java_values, revisions
from herdmesh.rpc.encoded import EncodedViews
from herdmesh.rpc.errors import RequestInvalid
from herdmesh.rpc.store_status import meta_if_open, store_status
from herdmesh.statusstore.effects.leases import LeaseKeeper
from herdmesh.statusstore.effects.store import Store
from herdmesh.statusstore.service import wire
from herdmesh.statusstore.service.filters import StatusFilter
from herdmesh.statusstore.state.leases import PULSE_MS, LeaseTable
from herdmesh.statusstore.state.statuses import (
    Change,
    StatusGone,
    StatusPut,
    StatusState,
    StoredStatus,
    TopicGone,
    TopicPut,
)
from herdmesh.topicstore.contract import Revision, WatchChange, WatchEvent, WatchProgress, WatchSnapshot

#: A filtered watch gets a progress event after this many changes of other statuses, so that it can resume from there.
SKIPPED_MAX: Final = 100
#: Cache of encoded views that are equal for all callers: room for the statuses of a large cluster.
_VIEWS_BYTES_MAX: Final = 8 * 1024 * 1024
#: A change goes to all watchers within a moment; for a slower watcher it is encoded again.
_CHANGES_BYTES_MAX: Final = 256 * 1024
_STATUSES: Final = pb2.ListStatusesResponse.STATUSES_FIELD_NUMBER
_STATUS_PUT: Final = pb2.WatchStatusesResponse.STATUS_PUT_FIELD_NUMBER

_Context = Any  # grpc.aio.ServicerContext; generic in the stubs only
_Events = AsyncGenerator[WatchEvent[StatusState, Change]]


class StatusReadService(pb2_grpc.StatusReadServiceServicer):
    """The servicer of reads."""

    def __init__(self, store: Store, keeper: LeaseKeeper) -> None:
        self._store = store
        self._keeper = keeper
        self._leases = _LeaseMessages(keeper)
        self.views = StatusViews(keeper)

    async def GetStatus(self, request: pb2.GetStatusRequest, context: _Context) -> pb2.GetStatusResponse:
        name = wire.named(request.connector)
        await self._applied(request.at_least)
        state, revision, leases = self._store.state, self._store.revision, self._keeper.table
        response = pb2.GetStatusResponse(
            meta=revisions.meta(revision),
            tasks=[wire.status_to(stored, revision, leases) for stored in state.tasks_of(name)],
        )
        connector = state.get(name, None)
        if connector is not None:
            response.connector.CopyFrom(wire.status_to(connector, revision, leases))
        return response

    async def ListStatuses(self, request: pb2.ListStatusesRequest, context: _Context) -> pb2.ListStatusesResponse:
        await self._applied(request.at_least)
        if request.linearizable:
            await self._store.barrier()
        wanted = StatusFilter.of(request)
        state, revision, leases = self._store.state, self._store.revision, self._keeper.table
        statuses = [
            encoded.field(_STATUSES, self.views.status(stored, revision))
            for stored in state.statuses(request.connectors)
            if wanted.takes(stored.status, leases.effective(stored.status)[0])
        ]
        meta = pb2.ListStatusesResponse(meta=revisions.meta(revision)).SerializeToString()
        return encoded.response(pb2.ListStatusesResponse, meta, *statuses)

    async def Refresh(self, request: pb2.RefreshRequest, context: _Context) -> pb2.RefreshResponse:
        revision = revisions.from_proto(request.revision)
        if revision is None:
            await self._store.barrier()
        else:
            await self._store.wait_for(revision)
        return pb2.RefreshResponse(meta=revisions.meta(self._store.revision))

    async def ListTopics(self, request: pb2.ListTopicsRequest, context: _Context) -> pb2.ListTopicsResponse:
        name = wire.named(request.connector)
        await self._applied(request.at_least)
        if request.linearizable:
            await self._store.barrier()
        return pb2.ListTopicsResponse(
            meta=revisions.meta(self._store.revision),
            topics=[wire.topic_to(topic) for topic in self._store.state.topics_of(name)],
        )

    async def GetStoreStatus(self, request: pb2.GetStoreStatusRequest, context: _Context) -> pb2.GetStoreStatusResponse:
        state = self._store.state
        latest = [
            store_pb2.UndecodableRecord(
                topic=self._store.topic,
                partition=one.partition,
                offset=one.offset,
                key=one.key,
                reason=java_values.text(one.reason),
            )
            for one in state.undecodable
        ]
        return pb2.GetStoreStatusResponse(
            meta=meta_if_open(self._store), status=store_status(self._store, state.undecodable_count, latest)
        )

    async def WatchLeases(
        self, request: pb2.WatchLeasesRequest, context: _Context
    ) -> AsyncIterator[pb2.WatchLeasesResponse]:
        told = -1
        while True:
            version = self._keeper.version
            # The writer repeats its table, changed or not, so that replicas detect a silent writer.
            if self._keeper.table.known and (version != told or self._keeper.table.writing):
                told = version
                yield self._leases.table()
            with suppress(TimeoutError):
                async with asyncio.timeout(PULSE_MS / 1000):
                    await self._keeper.changed(version)

    async def WatchStatuses(
        self, request: pb2.WatchStatusesRequest, context: _Context
    ) -> AsyncIterator[pb2.WatchStatusesResponse]:
        watch = _StatusWatch(self._keeper, self._leases, self.views, request)
        resume = revisions.from_proto(request.resume)
        at_least = revisions.from_proto(request.at_least)
        if at_least is not None:
            if resume is not None:
                raise RequestInvalid(
                    "resume is set, so at_least must not be: at_least is for a watch without resume", "at_least"
                )
            await self._store.wait_for(at_least)
        async with (
            aclosing(cast(_Events, self._store.watch(resume))) as events,
            aclosing(watch.merged(events, resumes=resume is not None)) as merged,
        ):
            async for event in merged:
                yield event

    async def _applied(self, at_least: revision_pb2.Revision) -> None:
        # Without a requested revision wait for the current one: this refuses while the store still replays.
        await self._store.wait_for(revisions.from_proto(at_least) or self._store.revision)


class StatusViews:
    """Statuses and changes as sent, each encoded once for all callers.

    Invariant: a status is joined with the current lease of its worker.
    """

    def __init__(self, keeper: LeaseKeeper) -> None:
        self.statuses = EncodedViews(_VIEWS_BYTES_MAX)
        self._changes = EncodedViews(_CHANGES_BYTES_MAX)
        self._keeper = keeper

    def status(self, stored: StoredStatus, revision: Revision) -> bytes:
        """One encoded status."""
        leases = self._keeper.table
        key = (stored.status.connector, stored.task, leases.effective(stored.status))
        return self.statuses.get(key, stored, partial(wire.status_to, stored, revision, leases))

    def change(self, change: Change, revision: Revision, *, last: bool) -> pb2.WatchStatusesResponse:
        """The message of a change; the last message of a record has its revision."""
        told = revision if last else None
        key = (id(change), self._keeper.version, told)  # the change is kept, so its id is not reused
        make = partial(_message, change, revision, self._keeper.table, told)
        return encoded.response(pb2.WatchStatusesResponse, self._changes.get(key, change, make))


class _StatusWatch:
    """One watch: its filters and its position.

    A message has a revision only where resuming from it loses nothing: at SNAPSHOT_COMPLETE, and at the last message of
    each record's changes (a connector's tombstone gives several). Messages before that carry no revision.
    """

    def __init__(
        self,
        keeper: LeaseKeeper,
        leases: _LeaseMessages,
        views: StatusViews,
        request: pb2.WatchStatusesRequest,
    ) -> None:
        self._keeper = keeper
        self._views = views
        self._lease_messages = leases
        self._filter = StatusFilter.of(request)
        self._skipped = 0
        self._leases_version = -1

    async def merged(self, events: _Events, resumes: bool) -> AsyncGenerator[pb2.WatchStatusesResponse]:
        """Yield events of the store and changes of the leases, each as soon as it is available."""
        event: asyncio.Future[WatchEvent[StatusState, Change]] = asyncio.ensure_future(anext(events))
        lease: asyncio.Future[None] | None = None
        if resumes:
            for message in self._leases():
                yield message
        try:
            while True:
                if lease is None and self._leases_version >= 0:
                    lease = asyncio.ensure_future(self._keeper.changed(self._leases_version))
                await asyncio.wait({event, lease} if lease else {event}, return_when=asyncio.FIRST_COMPLETED)
                if lease is not None and lease.done():
                    lease.result()
                    lease = None
                    for message in self._leases():
                        yield message
                if event.done():
                    for message in self._messages(event.result()):
                        yield message
                    event = asyncio.ensure_future(anext(events))
        finally:
            waiting: list[asyncio.Future[Any]] = [event] if lease is None else [event, lease]
            for future in waiting:
                future.cancel()
            await asyncio.gather(*waiting, return_exceptions=True)

    def _leases(self) -> Iterator[pb2.WatchStatusesResponse]:
        """The whole table; nothing while it is unknown (no writer yet): it is sent as soon as it is known."""
        self._leases_version = self._keeper.version
        if self._keeper.table.known:
            yield self._lease_messages.event()

    def _messages(self, event: WatchEvent[StatusState, Change]) -> Iterator[pb2.WatchStatusesResponse]:
        match event:
            case WatchSnapshot():
                yield from self._snapshot(event.state, event.revision)
                yield pb2.WatchStatusesResponse(
                    meta=revisions.meta(event.revision), snapshot_complete=pb2.StatusSnapshotComplete()
                )
                yield from self._leases()
            case WatchChange():
                yield from self._changes(event.changes, event.revision)
            case WatchProgress():
                yield self._progress(event.revision)
            case _:
                assert_never(event)

    def _snapshot(self, state: StatusState, revision: Revision) -> Iterator[pb2.WatchStatusesResponse]:
        for stored in state.statuses():
            if self._wanted(stored):
                status = encoded.field(_STATUS_PUT, self._views.status(stored, revision))
                yield encoded.response(pb2.WatchStatusesResponse, status)
        for connector in sorted(state.topics):
            if self._filter.takes_topics_of(connector):
                for topic in state.topics_of(connector):
                    yield pb2.WatchStatusesResponse(topic_put=wire.topic_to(topic))

    def _changes(self, changes: Sequence[Change], revision: Revision) -> Iterator[pb2.WatchStatusesResponse]:
        wanted = [change for change in changes if self._concerns(change)]
        for change in wanted:
            # Only the last message of a record has its revision.
            yield self._views.change(change, revision, last=change is wanted[-1])
        self._skipped = 0 if wanted else self._skipped + 1
        if self._skipped >= SKIPPED_MAX:
            yield self._progress(revision)

    def _progress(self, revision: Revision) -> pb2.WatchStatusesResponse:
        self._skipped = 0
        return pb2.WatchStatusesResponse(meta=revisions.meta(revision), progress=pb2.StatusWatchProgress())

    def _concerns(self, change: Change) -> bool:
        match change:
            case StatusPut():
                # A watcher also gets the change by which a status stops passing its filter.
                return self._wanted(change.stored) or (change.previous is not None and self._wanted(change.previous))
            case StatusGone():
                return self._wanted(change.previous)
            case TopicPut():
                return self._filter.takes_topics_of(change.status.connector)
            case TopicGone():
                return self._filter.takes_topics_of(change.previous.connector)
            case _:
                assert_never(change)

    def _wanted(self, stored: StoredStatus) -> bool:
        return self._filter.takes(stored.status, stored.status.state)


def _message(
    change: Change, revision: Revision, leases: LeaseTable, told: Revision | None
) -> pb2.WatchStatusesResponse:
    """The message of a change; `told` is the revision it has, None for none."""
    meta = None if told is None else revisions.meta(told)
    match change:
        case StatusPut():
            return pb2.WatchStatusesResponse(meta=meta, status_put=wire.status_to(change.stored, revision, leases))
        case StatusGone():
            gone = status_pb2.Status(connector=change.previous.status.connector, task=change.previous.task)
            return pb2.WatchStatusesResponse(meta=meta, status_deleted=gone)
        case TopicPut():
            return pb2.WatchStatusesResponse(meta=meta, topic_put=wire.topic_to(change.status))
        case TopicGone():
            gone_topic = status_pb2.TopicStatus(topic=change.previous.topic, connector=change.previous.connector)
            return pb2.WatchStatusesResponse(meta=meta, topic_deleted=gone_topic)
        case _:
            assert_never(change)


class _LeaseMessages:
    """The lease table as sent, encoded once for all watchers.

    Invariant: a message has the current table; the ends of leases in it, which every heartbeat moves, are at most
    `PULSE_MS` old.
    """

    def __init__(self, keeper: LeaseKeeper) -> None:
        self._keeper = keeper
        self._table = b""
        self._version = -1
        self._made_ms = 0

    def event(self) -> pb2.WatchStatusesResponse:
        """The table as an event of a watch of statuses."""
        number = pb2.WatchStatusesResponse.LEASES_FIELD_NUMBER
        return encoded.response(pb2.WatchStatusesResponse, encoded.field(number, self._encoded()))

    def table(self) -> pb2.WatchLeasesResponse:
        """The table as an event of a watch of leases."""
        number = pb2.WatchLeasesResponse.LEASES_FIELD_NUMBER
        return encoded.response(pb2.WatchLeasesResponse, encoded.field(number, self._encoded()))

    def _encoded(self) -> bytes:
        now_ms = time.monotonic_ns() // 1_000_000
        if self._version != self._keeper.version or now_ms - self._made_ms > PULSE_MS:
            self._table = wire.leases_to(self._keeper.shown()).SerializeToString()
            self._version, self._made_ms = self._keeper.version, now_ms
        return self._table
