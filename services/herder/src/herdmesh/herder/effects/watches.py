"""Watches of the two stores: their streams of changes, posted to the loop as events.

Owns the watch streams: resume after a break, and a new snapshot when the store no longer has the revision. Does not own
the reaction to a change.

Invariant: the loop gets a whole snapshot or nothing of it, then every change in order; a broken stream costs time,
never a change.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Final

import structlog

from herdmesh.api.configstore.v1 import config_read_service_pb2 as config_pb
from herdmesh.api.configstore.v1.config_read_service_pb2_grpc import ConfigReadServiceStub
from herdmesh.api.statusstore.v1 import status_read_service_pb2 as status_pb
from herdmesh.api.statusstore.v1.status_read_service_pb2_grpc import StatusReadServiceStub
from herdmesh.herder.state.model import ClusterLevel, ConnectorEntry, StatusEntry
from herdmesh.herder.state.model import events as ev
from herdmesh.herder.wire import stores as wire
from herdmesh.herder.wire.values import wall_clock_ms
from herdmesh.rpc import revisions
from herdmesh.rpc.client import connect
from herdmesh.rpc.errors import HerdmeshError, RevisionCompacted, RevisionForeign, RevisionInFuture
from herdmesh.topicstore.contract import Revision

if TYPE_CHECKING:
    import grpc.aio

    from herdmesh.api.configstore.v1.config_read_service_pb2_grpc import ConfigReadServiceAsyncStub
    from herdmesh.api.statusstore.v1.status_read_service_pb2_grpc import StatusReadServiceAsyncStub

CONFIG_READ_SERVICE: Final = "herdmesh.api.configstore.v1.ConfigReadService"
STATUS_READ_SERVICE: Final = "herdmesh.api.statusstore.v1.StatusReadService"
RETRY_S_MAX: Final = 0.5

Post = Callable[[Any], Awaitable[None]]
_log: structlog.stdlib.BoundLogger = structlog.get_logger(__name__)


class _Watch:
    """Base of both watches: the channel and the reconnects."""

    def __init__(self, what: str, addresses: str, service: str, post: Post) -> None:
        self._what = what
        self.channel: grpc.aio.Channel = connect(addresses, service if "," in addresses else "")
        self._post = post
        self._resume: Revision | None = None

    async def run(self) -> None:
        """Follow the store until cancelled."""
        while True:
            try:
                await self._follow()
            except (RevisionCompacted, RevisionInFuture, RevisionForeign) as error:
                _log.info("watch_starts_over", what=self._what, error=str(error))
                self._resume = None
            except HerdmeshError as error:
                _log.info("watch_broke", what=self._what, error=f"{error.reason}: {error.message}")
            await asyncio.sleep(random.uniform(RETRY_S_MAX / 5, RETRY_S_MAX))

    async def close(self) -> None:
        await self.channel.close()

    async def _follow(self) -> None:
        raise AssertionError("a watch follows something")


class ConfigWatch(_Watch):
    """Watch of the config store's connectors."""

    def __init__(self, addresses: str, post: Post) -> None:
        super().__init__("config store", addresses, CONFIG_READ_SERVICE, post)
        self._stub: ConfigReadServiceAsyncStub = ConfigReadServiceStub(self.channel)

    async def _follow(self) -> None:
        request = config_pb.WatchRequest()
        snapshot: list[ConnectorEntry] | None = []
        epoch, key = 0, None
        loggers: list[ClusterLevel] = []
        if self._resume is not None:
            request.resume.CopyFrom(revisions.to_proto(self._resume))
            snapshot = None
        async for response in self._stub.Watch(request):
            revision = revisions.from_proto(response.meta.revision)
            kind = response.WhichOneof("event")
            if snapshot is not None:
                if kind == "connector_changed":
                    snapshot.append(wire.entry(response.connector_changed.after))
                elif kind == "leadership_changed":
                    epoch = response.leadership_changed.epoch
                elif kind == "session_key_changed":
                    key = wire.session_key(response.session_key_changed, wall_clock_ms())
                elif kind == "logger_level_changed":
                    loggers.append(wire.cluster_level(response.logger_level_changed))
                elif kind == "snapshot_complete" and revision is not None:
                    await self._post(ev.ConfigSnapshot(snapshot, revision, epoch, key, loggers))
                    self._resume, snapshot = revision, None
                continue
            await self._post(self._event(response, revision))
            # A response without a revision is followed by more changes of the same record: resuming from here would
            # skip them.
            self._resume = revision or self._resume

    def _event(self, response: config_pb.WatchResponse, revision: Revision | None) -> ev.Event:
        match response.WhichOneof("event"):
            case "connector_changed":
                changed = response.connector_changed
                entry = wire.entry(changed.after) if changed.HasField("after") else None
                return ev.ConfigChanged(changed.name, entry, revision)
            case "leadership_changed":
                return ev.EpochRecorded(response.leadership_changed.epoch, revision)
            case "restart_requested":
                restart = response.restart_requested
                return ev.RestartRecorded(restart.connector, restart.include_tasks, restart.only_failed, revision)
            case "session_key_changed":
                key = wire.session_key(response.session_key_changed, wall_clock_ms())
                return ev.SessionKeyRecorded(key, revision)
            case "logger_level_changed":
                return ev.LoggerRecorded(wire.cluster_level(response.logger_level_changed), revision)
            case _:
                return ev.ConfigProgress(revision)


class StatusWatch(_Watch):
    """Watch of the status store's statuses and leases."""

    def __init__(self, addresses: str, post: Post) -> None:
        super().__init__("status store", addresses, STATUS_READ_SERVICE, post)
        self._stub: StatusReadServiceAsyncStub = StatusReadServiceStub(self.channel)

    async def _follow(self) -> None:
        request = status_pb.WatchStatusesRequest()
        snapshot: list[StatusEntry] | None = []
        if self._resume is not None:
            request.resume.CopyFrom(revisions.to_proto(self._resume))
            snapshot = None
        async for response in self._stub.WatchStatuses(request):
            revision = revisions.from_proto(response.meta.revision)
            match response.WhichOneof("event"):
                case "status_put" if snapshot is not None:
                    snapshot.append(wire.status(response.status_put))
                case "snapshot_complete" if snapshot is not None:
                    await self._post(ev.StatusSnapshot(snapshot))
                    snapshot = None
                case "status_put":
                    await self._post(ev.StatusPut(wire.status(response.status_put)))
                case "status_deleted":
                    await self._post(ev.StatusDeleted(wire.status_unit(response.status_deleted)))
                case "leases":
                    leases = [wire.lease(lease) for lease in response.leases.leases]
                    await self._post(ev.LeasesChanged(leases))
                case _:
                    pass  # the herder does not use topics and progress from here
            if snapshot is None and revision is not None:
                self._resume = revision
