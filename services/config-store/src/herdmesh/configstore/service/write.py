"""`ConfigWriteService`: every mutation. Served by the elected writer; other replicas answer NOT_WRITER.

Owns the conversion of requests into mutations and of results into responses. The rules are in `state.writes`; the topic
store commits and acknowledges.

Invariant: a response describes the state right after the write itself; the response to a retry describes the current
state, at the revision of the connector's last change.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import grpc.aio

from herdmesh.api.configstore.v1 import config_write_service_pb2 as pb
from herdmesh.api.configstore.v1 import config_write_service_pb2_grpc as pb_grpc
from herdmesh.configstore import errors
from herdmesh.configstore.effects import history
from herdmesh.configstore.effects.stores import ConfigTopicStore
from herdmesh.configstore.service import wire
from herdmesh.configstore.state import mutations, offset_changes, writes
from herdmesh.configstore.state.config import ConfigState
from herdmesh.configstore.state.connector import ConnectorState
from herdmesh.connect.topics import Properties
from herdmesh.rpc import revisions
from herdmesh.rpc.errors import OffsetsRefused, RequestInvalid
from herdmesh.topicstore import Beside, BesideRefused, Revision, WriteDecision

_Context: TypeAlias = "grpc.aio.ServicerContext[Any, Any]"


@dataclass(frozen=True, slots=True)
class _Applied:
    """The result of a write, from which the response is made."""

    revision: Revision
    connector: ConnectorState
    outcome: Mapping[str, Any]


class ConfigWriteServicer(pb_grpc.ConfigWriteServiceServicer):
    """The write RPCs of one replica. `now_ms` returns epoch milliseconds, `fresh_id` a unique id."""

    def __init__(
        self,
        store: ConfigTopicStore,
        audit_topic: str | None,
        now_ms: Callable[[], int],
        fresh_id: Callable[[], str],
    ) -> None:
        self._store = store
        self._audit_topic = audit_topic
        self._now_ms = now_ms
        self._fresh_id = fresh_id

    async def PutConnectorConfig(
        self, request: pb.PutConnectorConfigRequest, context: _Context
    ) -> pb.PutConnectorConfigResponse:
        mutation = mutations.PutConnectorConfig(
            request.connector,
            wire.properties_from_proto(request.config),
            must_not_exist=request.must_not_exist,
            must_exist=request.must_exist,
            initial_target_state=wire.target_state_from_proto(request.initial_target_state, "initial_target_state"),
            patch=wire.properties_from_proto(request.patch) if request.HasField("patch") else None,
            initial_offsets=self._brought(request),
            only_if_changed=request.only_if_changed,
        )
        applied = await self._apply("PutConnectorConfig", mutation, request.connector, request.options)
        return pb.PutConnectorConfigResponse(
            meta=revisions.meta(applied.revision),
            connector=_entry(applied),
            created=applied.outcome.get("created") is True,
            unchanged=applied.outcome.get("unchanged") is True,
        )

    async def DeleteConnector(
        self, request: pb.DeleteConnectorRequest, context: _Context
    ) -> pb.DeleteConnectorResponse:
        mutation = mutations.DeleteConnector(request.connector)
        applied = await self._apply("DeleteConnector", mutation, request.connector, request.options)
        return pb.DeleteConnectorResponse(meta=revisions.meta(applied.revision))

    async def SetTargetState(self, request: pb.SetTargetStateRequest, context: _Context) -> pb.SetTargetStateResponse:
        target_state = wire.target_state_from_proto(request.target_state, "target_state")
        if target_state is None:
            raise RequestInvalid("must be STARTED, PAUSED or STOPPED", "target_state")
        mutation = mutations.SetTargetState(request.connector, target_state)
        applied = await self._apply("SetTargetState", mutation, request.connector, request.options)
        return pb.SetTargetStateResponse(meta=revisions.meta(applied.revision), connector=_entry(applied))

    async def CommitTaskConfigs(
        self, request: pb.CommitTaskConfigsRequest, context: _Context
    ) -> pb.CommitTaskConfigsResponse:
        mutation = mutations.CommitTaskConfigs(
            request.connector,
            [wire.properties_from_proto(task) for task in request.tasks],
            revisions.from_proto(request.config_revision),
            request.fenced_generation if request.HasField("fenced_generation") else None,
        )
        applied = await self._apply("CommitTaskConfigs", mutation, request.connector, request.options)
        return pb.CommitTaskConfigsResponse(meta=revisions.meta(applied.revision), connector=_entry(applied))

    async def PutTaskCount(self, request: pb.PutTaskCountRequest, context: _Context) -> pb.PutTaskCountResponse:
        mutation = mutations.PutTaskCount(request.connector, request.task_count)
        applied = await self._apply("PutTaskCount", mutation, request.connector, request.options)
        return pb.PutTaskCountResponse(meta=revisions.meta(applied.revision))

    async def RequestRestart(self, request: pb.RequestRestartRequest, context: _Context) -> pb.RequestRestartResponse:
        mutation = wire.request_restart_from_proto(request)
        applied = await self._apply("RequestRestart", mutation, request.restart.connector, request.options)
        items = wire.restart_items_to_proto(applied.outcome.get("items"))
        return pb.RequestRestartResponse(meta=revisions.meta(applied.revision), items=items)

    async def PutSessionKey(self, request: pb.PutSessionKeyRequest, context: _Context) -> pb.PutSessionKeyResponse:
        mutation = mutations.PutSessionKey(wire.session_key_from_proto(request.session_key))
        applied = await self._apply("PutSessionKey", mutation, "", request.options)
        return pb.PutSessionKeyResponse(meta=revisions.meta(applied.revision))

    async def PutLoggerLevel(self, request: pb.PutLoggerLevelRequest, context: _Context) -> pb.PutLoggerLevelResponse:
        mutation = mutations.PutLoggerLevel(wire.logger_from_proto(request.logger_level))
        applied = await self._apply("PutLoggerLevel", mutation, "", request.options)
        return pb.PutLoggerLevelResponse(meta=revisions.meta(applied.revision))

    async def RecordDrain(self, request: pb.RecordDrainRequest, context: _Context) -> pb.RecordDrainResponse:
        mutation = mutations.RecordDrain(request.worker_id, request.draining)
        applied = await self._apply("RecordDrain", mutation, "", request.options)
        return pb.RecordDrainResponse(meta=revisions.meta(applied.revision))

    async def RecordOffsets(self, request: pb.RecordOffsetsRequest, context: _Context) -> pb.RecordOffsetsResponse:
        told = wire.offset_outcome_from_proto(request.told)
        mutation = mutations.RecordOffsets(request.connector, request.change, request.ended, told)
        applied = await self._apply(offset_changes.OPERATION, mutation, request.connector, request.options)
        return pb.RecordOffsetsResponse(
            meta=revisions.meta(applied.revision),
            ended=offset_changes.has_ended(applied.outcome),
            repeated=applied.outcome.get("repeated") is True,
            overtaken=applied.outcome.get("overtaken") is True,
            told=wire.offset_outcome_to_proto(applied.outcome.get("told")),
        )

    async def RestoreConnector(
        self, request: pb.RestoreConnectorRequest, context: _Context
    ) -> pb.RestoreConnectorResponse:
        connector, revision = request.connector, revisions.from_proto(request.revision)
        if not connector:
            raise errors.name_missing()
        if revision is None:
            raise RequestInvalid("name a revision with a config, as GetHistory returns it", "revision")
        past: Properties | None = None
        if not self._store.state.requests.is_known(request.options.request_id):
            # A retry gets its first outcome, also when history has changed since.
            past = await history.config_at(self._store, connector, revision)
        mutation = mutations.RestoreConnector(connector, revision, past, wire.properties_from_proto(request.secrets))
        applied = await self._apply("RestoreConnector", mutation, connector, request.options)
        return pb.RestoreConnectorResponse(
            meta=revisions.meta(applied.revision),
            connector=_entry(applied),
            created=applied.outcome.get("created") is True,
            secrets_from_current=applied.outcome.get("secrets_from_current", ()),
        )

    def _brought(self, request: pb.PutConnectorConfigRequest) -> Beside | None:
        if not request.HasField("initial_offsets"):
            return None
        return wire.beside_from_proto(request.initial_offsets, (self._store.topic, self._audit_topic or ""))

    async def _apply(
        self, operation: str, mutation: mutations.Mutation, connector: str, options: pb.WriteOptions
    ) -> _Applied:
        write_context = self._context(operation, options)

        def decide(state: ConfigState) -> WriteDecision[_Applied]:
            # A replica knows the id of its store only after it has replayed its topic.
            plan = writes.plan(state, mutation, replace(write_context, store_id=self._store.revision.store_id))

            def applied(after: ConfigState, revision: Revision) -> _Applied:
                at = revision if plan.records else _last_change(after, connector, revision)
                return _Applied(at, after.connector(connector), plan.outcome)

            return WriteDecision(plan.records, applied, plan.beside)

        try:
            return await self._store.write(decide)
        except BesideRefused as refused:
            raise OffsetsRefused(connector, str(refused)) from None

    def _context(self, operation: str, options: pb.WriteOptions) -> mutations.WriteContext:
        return mutations.WriteContext(
            operation=operation,
            now_ms=self._now_ms(),
            new_incarnation=self._fresh_id(),
            audit_topic=self._audit_topic,
            request_id=options.request_id,
            expected_revision=revisions.from_proto(options.expected_revision),
            caller=options.caller,
            leader=wire.leader_token(options.leader) if options.HasField("leader") else None,
            retry_only=options.retry_only,
        )


def _last_change(state: ConfigState, connector: str, revision: Revision) -> Revision:
    """The revision of the connector's last change: a retry's own change is no later, and every watch has received it.
    `revision` itself may lie past the end of a transaction, and an idle watch receives that one seconds later.
    """
    places = state.history.before(connector, None, 1)
    if not places or not places[0].revision_offset:
        return revision
    return Revision(revision.store_id, (min(places[0].revision_offset, *revision.next_offsets),))


def _entry(applied: _Applied) -> Any:
    return wire.entry(applied.connector, applied.revision.store_id)
