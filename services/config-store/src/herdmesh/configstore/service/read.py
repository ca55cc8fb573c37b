"""`ConfigReadService`: snapshot, watch, history, refresh, and the health of this replica. Served by every replica.

Owns nothing but the conversion; content and freshness come from the topic store.

Invariant: a watcher can resume from every revision it was given, and from no other.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterator
from functools import partial
from typing import Any, TypeAlias, assert_never

import grpc.aio

from herdmesh.api.common.v1 import store_pb2
from herdmesh.api.configstore.v1 import config_read_service_pb2 as pb
from herdmesh.api.configstore.v1 import config_read_service_pb2_grpc as pb_grpc
from herdmesh.configstore import errors
from herdmesh.configstore.effects import history
from herdmesh.configstore.effects.stores import ConfigTopicStore
from herdmesh.configstore.service import wire
from herdmesh.configstore.state.changes import (
    Change,
    ConnectorChanged,
    LeadershipChanged,
    LoggerLevelChanged,
    RestartRequested,
    SessionKeyChanged,
)
from herdmesh.configstore.state.config import ConfigState
from herdmesh.configstore.state.connector import ConnectorState
from herdmesh.rpc import encoded, java_values, revisions
from herdmesh.rpc.encoded import EncodedViews
from herdmesh.rpc.errors import RequestInvalid
from herdmesh.rpc.store_status import meta_if_open, store_status
from herdmesh.topicstore import WatchChange, WatchSnapshot

_Context: TypeAlias = "grpc.aio.ServicerContext[Any, Any]"
#: Cache of encoded views that are equal for all callers: room for the snapshot of a large cluster.
_VIEWS_BYTES_MAX = 16 * 1024 * 1024
#: A change goes to all watchers within a moment; for a slower watcher it is encoded again.
_CHANGES_BYTES_MAX = 256 * 1024
#: After this many changes of other connectors, a watcher gets a progress event, so that it can resume from there.
_SKIPPED_MAX = 100
_CONNECTORS = pb.GetSnapshotResponse.CONNECTORS_FIELD_NUMBER
#: Variants of a connector's encoded view: as stored, and as one part of the snapshot that opens a watch.
_ENTRY, _PART = "entry", "part"
_PAGE_SIZE = 100
_PAGE_SIZE_MAX = 1_000
_PAGE_TOKEN = re.compile("[0-9]{1,18}")


class ConfigReadServicer(pb_grpc.ConfigReadServiceServicer):
    """The read RPCs of one replica."""

    def __init__(self, store: ConfigTopicStore) -> None:
        self._store = store
        self.views = EncodedViews(_VIEWS_BYTES_MAX)
        self._changes = EncodedViews(_CHANGES_BYTES_MAX)

    async def GetSnapshot(self, request: pb.GetSnapshotRequest, context: _Context) -> pb.GetSnapshotResponse:
        at_least = revisions.from_proto(request.at_least)
        # Wait also if the request names no revision, so that a replica that replays or closes refuses.
        await self._store.wait_for(at_least or self._store.revision)
        if request.linearizable:
            await self._store.barrier()
        state, revision = self._store.state, self._store.revision
        entries = [
            encoded.field(_CONNECTORS, self._entry(connector, revision.store_id))
            for connector in wire.chosen(state, request.connectors)
        ]
        return encoded.response(
            pb.GetSnapshotResponse, wire.snapshot_head(state, revision).SerializeToString(), *entries
        )

    async def Watch(self, request: pb.WatchRequest, context: _Context) -> AsyncIterator[pb.WatchResponse]:
        wanted = frozenset(request.connectors)
        resume, at_least = revisions.from_proto(request.resume), revisions.from_proto(request.at_least)
        if resume is not None and at_least is not None:
            raise RequestInvalid(
                "resume is set, so at_least must not be: at_least is for a watch without resume", "at_least"
            )
        skipped = 0
        async for event in self._store.watch(resume, at_least=at_least):
            store_id = event.revision.store_id
            if isinstance(event, WatchSnapshot):
                for part in self._snapshot_parts(event.state, wanted, store_id):
                    yield part
                yield pb.WatchResponse(meta=revisions.meta(event.revision), snapshot_complete=pb.SnapshotComplete())
            elif isinstance(event, WatchChange):
                told = [position for position, change in enumerate(event.changes) if _is_wanted(change, wanted)]
                for position in told:
                    # Only the last change of a record has a revision: resuming between changes would skip the rest of
                    # the record's changes.
                    yield self._change(event, position, last=position == told[-1])
                skipped = 0 if told else skipped + 1
            if not isinstance(event, WatchChange | WatchSnapshot) or skipped >= _SKIPPED_MAX:
                skipped = 0
                yield pb.WatchResponse(meta=revisions.meta(event.revision), progress=pb.WatchProgress())

    def _snapshot_parts(self, state: ConfigState, wanted: frozenset[str], store_id: str) -> Iterator[pb.WatchResponse]:
        for connector in state.stored():
            if not wanted or connector.name in wanted:
                make = partial(wire.snapshot_part, connector, store_id)
                yield encoded.response(pb.WatchResponse, self.views.get((_PART, connector.name), connector, make))
        if state.leadership is not None:
            yield wire.change(LeadershipChanged(state.leadership), store_id)
        if state.session_key is not None:
            yield wire.change(SessionKeyChanged(state.session_key, state.session_key_revision), store_id)
        for level in state.logger_levels.values():
            yield wire.change(level, store_id)

    def _change(self, event: WatchChange[Change], position: int, *, last: bool) -> pb.WatchResponse:
        def make() -> pb.WatchResponse:
            response = wire.change(event.changes[position], event.revision.store_id)
            if last:
                response.meta.CopyFrom(revisions.meta(event.revision))
            return response

        return encoded.response(pb.WatchResponse, self._changes.get((event.revision, position, last), event, make))

    def _entry(self, connector: ConnectorState, store_id: str) -> bytes:
        return self.views.get((_ENTRY, connector.name), connector, partial(wire.entry, connector, store_id))

    async def Refresh(self, request: pb.RefreshRequest, context: _Context) -> pb.RefreshResponse:
        revision = revisions.from_proto(request.revision)
        if revision is None:
            await self._store.barrier()
        else:
            await self._store.wait_for(revision)
        return pb.RefreshResponse(meta=revisions.meta(self._store.revision))

    async def GetStoreStatus(self, request: pb.GetStoreStatusRequest, context: _Context) -> pb.GetStoreStatusResponse:
        refused = self._store.state.refused
        # Both topics have one partition: the topic store opens them with no other number.
        latest = [
            store_pb2.UndecodableRecord(
                topic=one.topic, offset=one.offset, key=one.key, reason=java_values.text(one.reason)
            )
            for one in refused.latest
        ]
        return pb.GetStoreStatusResponse(
            meta=meta_if_open(self._store), status=store_status(self._store, refused.count, latest)
        )

    async def GetHistory(self, request: pb.GetHistoryRequest, context: _Context) -> pb.GetHistoryResponse:
        if not request.connector:
            raise errors.name_missing()
        if request.page_size < 0:
            raise RequestInvalid("must not be negative", "page_size")
        if request.page_token and not _PAGE_TOKEN.fullmatch(request.page_token):
            raise RequestInvalid("is not the next_page_token of an earlier page", "page_token")
        before = int(request.page_token) if request.page_token else None
        size = min(request.page_size or _PAGE_SIZE, _PAGE_SIZE_MAX)
        page = await history.page(self._store, request.connector, before, size)
        return pb.GetHistoryResponse(
            meta=revisions.meta(self._store.revision),
            changes=[wire.history_entry(change) for change in page.changes],
            next_page_token="" if page.next_before is None else str(page.next_before),
        )


def _is_wanted(change: Change, wanted: frozenset[str]) -> bool:
    """True if a watch of the connectors `wanted` gets this change. Changes of the whole cluster go to every watch."""
    if not wanted:
        return True
    match change:
        case ConnectorChanged():
            return change.name in wanted
        case RestartRequested():
            return change.request.connector in wanted
        case LeadershipChanged() | SessionKeyChanged() | LoggerLevelChanged():
            return True
        case _:
            assert_never(change)
