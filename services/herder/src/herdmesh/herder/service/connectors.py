"""`ConnectorService`: the API for users, the CLI and the REST gateway.

Owns the translation of requests into the state's requests and of answers and views into responses; decides nothing.
RPCs that need workers are in `queries` and `offsets`, changes of many connectors in `batches`.

Invariants: a view is encoded once for all callers, is as new as `encoded_views` promises, and is served by the leader
only (GetCluster names the leader, from a follower too). A follower names the leader before it reads the request.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Hashable, Iterator, Sequence
from typing import Any, Final, TypeAlias, TypeVar, cast

import grpc.aio

from herdmesh.api.common.v1 import revision_pb2
from herdmesh.api.herder.v1 import admin_messages_pb2 as admin_pb
from herdmesh.api.herder.v1 import config_messages_pb2 as pb
from herdmesh.api.herder.v1 import connector_pb2
from herdmesh.api.herder.v1 import lifecycle_messages_pb2 as lifecycle_pb
from herdmesh.api.worker.v1 import worker_service_pb2
from herdmesh.herder.effects.cluster_id import ClusterId
from herdmesh.herder.effects.topic_tracking import TopicTracking
from herdmesh.herder.effects.topics import Topics
from herdmesh.herder.loop import HerderLoop
from herdmesh.herder.service.batches import BatchRpcs
from herdmesh.herder.service.encoded_views import EncodedMeshViews
from herdmesh.herder.state.model import Validation
from herdmesh.herder.state.model import requests as rq
from herdmesh.herder.wire import values, views
from herdmesh.rpc import encoded, properties, revisions
from herdmesh.rpc.errors import ConnectorNotFound, RequestInvalid
from herdmesh.rpc.monitoring import tracing
from herdmesh.session import wire as session_wire
from herdmesh.session.model import TargetState

CONNECTOR_SERVICE: Final = "herdmesh.api.herder.v1.ConnectorService"
PAGE_SIZE_MAX: Final = 1000
#: connectors encoded before other coroutines get a turn.
_SHOWN_AT_ONCE: Final = 100
#: a part of a snapshot is sent after so many bytes of connectors: about as much as a stream buffers for its reader.
_PART_BYTES: Final = 64 * 1024
CALLER_KEY: Final = "herdmesh-caller"
#: share of the caller's time by which the herder times out earlier, so that its answer with the stage still arrives.
_ANSWER_MARGIN: Final = 0.05

_Context: TypeAlias = "grpc.aio.ServicerContext[Any, Any]"
AnswerT = TypeVar("AnswerT", bound=rq.Answer)


class ConnectorServicer(BatchRpcs):
    """The public service. `version` is this release's."""

    def __init__(
        self,
        loop: HerderLoop,
        topics: Topics,
        tracking: TopicTracking,
        cluster_id: ClusterId,
        request_timeout_ms: int,
        version: str,
    ) -> None:
        self._loop = loop
        self._topics = topics
        self._tracking = tracking
        self._cluster_id = cluster_id
        self._herder = loop.herder
        self._views = EncodedMeshViews(loop.herder)
        loop.observe(self._views)
        self._timeout_s = request_timeout_ms / 1000
        self._version = version

    # --- reads of connectors

    async def CreateConnector(
        self, request: pb.CreateConnectorRequest, context: _Context
    ) -> pb.CreateConnectorResponse:
        self._must_lead(rq.CreateConnector)
        return await self._create(request, context, None)

    async def GetConnector(self, request: pb.GetConnectorRequest, context: _Context) -> pb.GetConnectorResponse:
        with self._loop.reading("GetConnector"):
            name = self._herder.name_of(request.name)
            shown = self._views.connector_now(name)
            if shown is None:
                raise ConnectorNotFound(name)
            return encoded.response(pb.GetConnectorResponse, self._views.meta(), self._views.full(shown))

    async def ListConnectors(self, request: pb.ListConnectorsRequest, context: _Context) -> pb.ListConnectorsResponse:
        with self._loop.reading("ListConnectors"):
            if not 0 <= request.page_size <= PAGE_SIZE_MAX:
                raise RequestInvalid(f"page_size must be 0 to {PAGE_SIZE_MAX}", "page_size")
            size = request.page_size or PAGE_SIZE_MAX
            status = request.view == pb.CONNECTOR_VIEW_STATUS
            key = (status, size, request.page_token)
            page = self._views.kept_page(key)
            if page is None:
                page = await self._page(key, request.page_token, size, status=status)
            return encoded.response(pb.ListConnectorsResponse, self._views.meta(), page)

    async def WatchConnectors(
        self, request: pb.WatchConnectorsRequest, context: _Context
    ) -> AsyncIterator[pb.WatchConnectorsResponse]:
        watched = frozenset(request.names)
        sent_versions = _SentVersions()
        with self._loop.watcher() as watcher:
            with self._loop.reading(
                "WatchConnectors"
            ):  # timed up to the end of the snapshot: the stream itself has no end
                names, workers = self._herder.connector_names(), [view.worker_id for view in self._herder.workers()]
                for response in self._parts(names, workers, watched, sent_versions):
                    yield response
                    self._still_leads()
                complete = pb.WatchConnectorsSnapshotComplete()
                last = pb.WatchConnectorsResponse(meta=self._meta(), snapshot_complete=complete)
            yield last  # a caller that has the snapshot may hang up at once: that response was complete
            while True:
                names, workers = await watcher.changes()
                self._still_leads()
                for response in self._changes(names, workers, watched, sent_versions):
                    yield response

    async def UpdateConnector(
        self, request: pb.UpdateConnectorRequest, context: _Context
    ) -> pb.UpdateConnectorResponse:
        self._must_lead(rq.UpdateConnector)
        return await self._update(request, context, None)

    async def PatchConnector(self, request: pb.PatchConnectorRequest, context: _Context) -> pb.PatchConnectorResponse:
        self._must_lead(rq.PatchConnector)
        wanted = rq.PatchConnector(request.name, properties.from_proto(request.patch))
        written = await self._call(wanted, rq.Written, request.request_id, request.expected_revision, context)
        return pb.PatchConnectorResponse(
            meta=self._meta(),
            connector=self._changed(written.name),
            warnings=_warnings(written),
            unchanged=written.unchanged,
        )

    async def DeleteConnector(
        self, request: pb.DeleteConnectorRequest, context: _Context
    ) -> pb.DeleteConnectorResponse:
        self._must_lead(rq.DeleteConnector)
        wanted = rq.DeleteConnector(_named(request.name))
        await self._call(wanted, rq.Written, request.request_id, request.expected_revision, context)
        return pb.DeleteConnectorResponse(meta=self._meta())

    async def ValidateConfig(self, request: pb.ValidateConfigRequest, context: _Context) -> pb.ValidateConfigResponse:
        self._must_lead(rq.ValidateConfig)
        wanted = rq.ValidateConfig(properties.from_proto(request.config))
        validated = await self._call(wanted, rq.Validated, "", None, context)
        validation = validated.validation.wire
        assert isinstance(validation, worker_service_pb2.ConfigValidation)
        return pb.ValidateConfigResponse(meta=self._meta(), validation=validation)

    # --- changes of connectors

    async def PauseConnector(
        self, request: lifecycle_pb.PauseConnectorRequest, context: _Context
    ) -> lifecycle_pb.PauseConnectorResponse:
        view = await self._set_target(request, TargetState.PAUSED, context)
        return lifecycle_pb.PauseConnectorResponse(meta=self._meta(), connector=view)

    async def ResumeConnector(
        self, request: lifecycle_pb.ResumeConnectorRequest, context: _Context
    ) -> lifecycle_pb.ResumeConnectorResponse:
        view = await self._set_target(request, TargetState.STARTED, context)
        return lifecycle_pb.ResumeConnectorResponse(meta=self._meta(), connector=view)

    async def StopConnector(
        self, request: lifecycle_pb.StopConnectorRequest, context: _Context
    ) -> lifecycle_pb.StopConnectorResponse:
        view = await self._set_target(request, TargetState.STOPPED, context)
        return lifecycle_pb.StopConnectorResponse(meta=self._meta(), connector=view)

    async def RestartConnector(
        self, request: lifecycle_pb.RestartConnectorRequest, context: _Context
    ) -> lifecycle_pb.RestartConnectorResponse:
        self._must_lead(rq.RestartConnector)
        wanted = rq.RestartConnector(_named(request.name), request.include_tasks, request.only_failed)
        answer = await self._call(wanted, rq.Restarting, request.request_id, None, context)
        return lifecycle_pb.RestartConnectorResponse(meta=self._meta(), items=views.restart_items(answer))

    async def RestartTask(
        self, request: lifecycle_pb.RestartTaskRequest, context: _Context
    ) -> lifecycle_pb.RestartTaskResponse:
        self._must_lead(rq.RestartTask)
        wanted = rq.RestartTask(_named(request.name), request.task)
        await self._call(wanted, rq.Restarting, request.request_id, None, context)
        return lifecycle_pb.RestartTaskResponse(meta=self._meta())

    # --- topics in use

    async def ListTopics(self, request: admin_pb.ListTopicsRequest, context: _Context) -> admin_pb.ListTopicsResponse:
        with self._loop.reading("ListTopics"):
            topics = await self._topics.of(self._herder.name_of(request.name), self._timeout_of(context))
            return admin_pb.ListTopicsResponse(meta=self._meta(), topics=topics)

    async def ResetTopics(
        self, request: admin_pb.ResetTopicsRequest, context: _Context
    ) -> admin_pb.ResetTopicsResponse:
        with self._loop.reading("ResetTopics"):
            name = self._herder.name_of(request.name)
            await self._topics.reset(name, request.request_id, self._timeout_of(context))
            self._tracking.reset(name)
            return admin_pb.ResetTopicsResponse(meta=self._meta())

    # --- plugins, workers, the cluster

    async def ListPlugins(
        self, request: admin_pb.ListPluginsRequest, context: _Context
    ) -> admin_pb.ListPluginsResponse:
        with self._loop.reading("ListPlugins"):
            plugins = [values.plugin_to_proto(plugin) for plugin in self._herder.plugins()]
            refused = [values.refused_plugin_to_proto(*one) for one in self._herder.refused_plugins()]
            return admin_pb.ListPluginsResponse(meta=self._meta(), plugins=plugins, refused=refused)

    async def ListWorkers(
        self, request: admin_pb.ListWorkersRequest, context: _Context
    ) -> admin_pb.ListWorkersResponse:
        with self._loop.reading("ListWorkers"):
            shown = [self._views.worker(view.worker_id) for view in self._herder.workers()]
            number = admin_pb.ListWorkersResponse.WORKERS_FIELD_NUMBER
            workers = [self._views.of_worker(one, number) for one in shown if one is not None]
            return encoded.response(admin_pb.ListWorkersResponse, self._views.meta(), *workers)

    async def DrainWorker(
        self, request: admin_pb.DrainWorkerRequest, context: _Context
    ) -> admin_pb.DrainWorkerResponse:
        self._must_lead(rq.DrainWorker)
        if not request.worker_id:
            raise RequestInvalid("name the worker to drain", "worker_id")
        await self._call(rq.DrainWorker(request.worker_id), rq.Draining, request.request_id, None, context)
        return admin_pb.DrainWorkerResponse(meta=self._meta(), worker=self._worker(request.worker_id))

    async def UndrainWorker(
        self, request: admin_pb.UndrainWorkerRequest, context: _Context
    ) -> admin_pb.UndrainWorkerResponse:
        self._must_lead(rq.UndrainWorker)
        if not request.worker_id:
            raise RequestInvalid("name the worker to undrain", "worker_id")
        await self._call(rq.UndrainWorker(request.worker_id), rq.Draining, request.request_id, None, context)
        return admin_pb.UndrainWorkerResponse(meta=self._meta(), worker=self._worker(request.worker_id))

    async def GetCluster(self, request: admin_pb.GetClusterRequest, context: _Context) -> admin_pb.GetClusterResponse:
        with self._loop.reading("GetCluster", leader_only=False):
            return views.cluster(
                self._herder.cluster(), self._version, self._cluster_id.known, self._herder.config_revision
            )

    # --- inside

    async def _create(
        self, request: pb.CreateConnectorRequest, context: _Context, verdict: Validation | None
    ) -> pb.CreateConnectorResponse:
        wanted = rq.CreateConnector(
            request.name,
            properties.from_proto(request.config),
            values.requested_target_state(request.initial_state, "initial_state"),
            tuple(session_wire.offset_from(offset) for offset in request.initial_offsets),
            verdict,
        )
        written = await self._call(wanted, rq.Written, request.request_id, None, context)
        return pb.CreateConnectorResponse(
            meta=self._meta(), connector=self._changed(written.name), warnings=_warnings(written)
        )

    async def _update(
        self, request: pb.UpdateConnectorRequest, context: _Context, verdict: Validation | None
    ) -> pb.UpdateConnectorResponse:
        config = properties.from_proto(request.config)
        wanted = rq.UpdateConnector(request.name, config, request.allow_missing, verdict)
        written = await self._call(wanted, rq.Written, request.request_id, request.expected_revision, context)
        return pb.UpdateConnectorResponse(
            meta=self._meta(),
            connector=self._changed(written.name),
            created=written.created,
            warnings=_warnings(written),
            unchanged=written.unchanged,
        )

    async def _set_target(self, request: Any, target: TargetState, context: _Context) -> connector_pb2.Connector:
        self._must_lead(rq.SetTarget)
        wanted = rq.SetTarget(_named(request.name), target)
        written = await self._call(wanted, rq.Written, request.request_id, request.expected_revision, context)
        return self._changed(written.name)

    async def _call(
        self,
        wanted: rq.Request,
        answer_type: type[AnswerT],
        request_id: str,
        expected: revision_pb2.Revision | None,
        context: _Context,
    ) -> AnswerT:
        revision = revisions.from_proto(expected) if expected is not None else None
        options = rq.WriteOptions(
            request_id, revision, _caller(context), traceparent=tracing.current(context.invocation_metadata())
        )
        answer = await self._loop.call(wanted, options, self._timeout_of(context, wanted))
        assert isinstance(answer, answer_type), f"{wanted} was answered by {answer}"
        return answer

    async def _page(self, key: Hashable, after: str, size: int, *, status: bool) -> bytes:
        """The connectors after `after` and the token of the next page, as fields of a list."""
        names = [name for name in self._herder.connector_names() if name > after]
        wanted = tuple(names[:size])
        for first in range(0, len(wanted), _SHOWN_AT_ONCE):
            if first:
                await asyncio.sleep(0)  # give heartbeats a turn
                self._still_leads()
            for name in wanted[first : first + _SHOWN_AT_ONCE]:
                shown = self._views.connector(name)
                if shown is not None:
                    self._views.status(shown) if status else self._views.full(shown)
        token = wanted[-1] if len(names) > size else ""
        rest = pb.ListConnectorsResponse(next_page_token=token).SerializeToString()
        return self._views.page(wanted, key, rest, status=status)

    def _changes(
        self, names: list[str], workers: list[str], watched: frozenset[str], sent_versions: _SentVersions
    ) -> Iterator[pb.WatchConnectorsResponse]:
        """Changes that this watch has not sent yet, each with the state at the time of sending."""
        for name in names:
            if watched and name not in watched:
                continue
            shown = self._views.connector(name)
            if not sent_versions.connector(name, shown.version if shown is not None else 0):
                continue
            if shown is not None:
                yield encoded.response(pb.WatchConnectorsResponse, self._views.meta(), self._views.full(shown))
            else:
                yield pb.WatchConnectorsResponse(meta=self._meta(), deleted=name)
        for worker_id in workers:
            worker = self._views.worker(worker_id)
            if not sent_versions.worker(worker_id, worker.version if worker is not None else 0):
                continue
            if worker is not None:
                sent = self._views.of_worker(worker, pb.WatchConnectorsResponse.WORKER_FIELD_NUMBER)
                yield encoded.response(pb.WatchConnectorsResponse, self._views.meta(), sent)
            else:
                yield pb.WatchConnectorsResponse(meta=self._meta(), worker=views.gone_worker(worker_id))

    def _parts(
        self, names: list[str], workers: list[str], watched: frozenset[str], sent_versions: _SentVersions
    ) -> Iterator[pb.WatchConnectorsResponse]:
        """A snapshot, many connectors to a message: a message costs more than its content."""
        fields: list[bytes] = []
        size = 0
        for name in names:
            shown = self._views.connector(name) if not watched or name in watched else None
            if shown is None:
                continue
            sent_versions.connector(name, shown.version)
            fields.append(self._views.full(shown))
            size += len(fields[-1])
            if size >= _PART_BYTES:
                yield self._part(fields)
                fields, size = [], 0
        for worker_id in workers:
            worker = self._views.worker(worker_id)
            if worker is not None:
                sent_versions.worker(worker_id, worker.version)
                fields.append(self._views.of_worker(worker, pb.WatchConnectorsSnapshotPart.WORKERS_FIELD_NUMBER))
        if fields:
            yield self._part(fields)

    def _part(self, fields: list[bytes]) -> pb.WatchConnectorsResponse:
        number = pb.WatchConnectorsResponse.SNAPSHOT_PART_FIELD_NUMBER
        part = encoded.field(number, b"".join(fields))
        return encoded.response(pb.WatchConnectorsResponse, self._views.meta(), part)

    def _timeout_of(self, context: _Context, wanted: rq.Request | None = None) -> float:
        left_s = cast("float | None", context.time_remaining())  # None without a deadline, although the stubs deny it
        if left_s is None:
            return self._timeout_s
        left_s *= 1 - _ANSWER_MARGIN
        # Only the caller can know how long a connector needs to change offsets in another system: use the caller's
        # deadline.
        return left_s if isinstance(wanted, rq.ChangeOffsets) else min(self._timeout_s, left_s)

    def _must_lead(self, request: type[rq.Request]) -> None:
        self._loop.must_lead(request.__name__)

    def _still_leads(self) -> None:
        refusal = self._herder.refusal
        if refusal is not None:
            raise refusal

    def _meta(self) -> revision_pb2.ResponseMeta:
        return revisions.meta(self._herder.config_revision)

    def _worker(self, worker_id: str) -> connector_pb2.Worker:
        view = self._herder.worker(worker_id)
        return views.worker(view) if view is not None else views.gone_worker(worker_id)

    def _changed(self, name: str) -> connector_pb2.Connector:
        """The connector after a change; only its name when it was deleted since."""
        view = self._herder.connector(name)
        return views.connector(view) if view is not None else views.gone_connector(name)


def _warnings(written: rq.Written) -> Sequence[worker_service_pb2.ConfigWarning]:
    """The worker's warnings about a config that it accepts."""
    wire = written.validation.wire if written.validation is not None else None
    return wire.warnings if isinstance(wire, worker_service_pb2.ConfigValidation) else ()


class _SentVersions:
    """Versions that a watch sent last, so that nothing is sent twice; 0 = the deletion."""

    def __init__(self) -> None:
        self._connectors: dict[str, int] = {}
        self._workers: dict[str, int] = {}

    def connector(self, name: str, version: int) -> bool:
        """Note the version. True when it was not sent yet."""
        if not version:
            return self._connectors.pop(name, None) is not None
        if self._connectors.get(name) == version:
            return False
        self._connectors[name] = version
        return True

    def worker(self, worker_id: str, version: int) -> bool:
        """Note the version. True when it was not sent yet."""
        if self._workers.get(worker_id) == version:
            return False
        self._workers[worker_id] = version
        return True


def _named(name: str) -> str:
    if not name:
        raise RequestInvalid("name the connector", "name")
    return name


def _caller(context: _Context) -> str:
    """The caller's name: as it names itself, else the address it calls from."""
    for key, value in context.invocation_metadata() or ():
        if key == CALLER_KEY and isinstance(value, str):
            return value
    return context.peer()
