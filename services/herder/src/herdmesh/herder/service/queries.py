"""RPCs of `ConnectorService` that workers answer: plans, plugins, loggers, dead letters.

Owns the translation of these requests and answers; decides nothing.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, Final, TypeAlias, TypeVar, cast

import grpc.aio

from herdmesh.api.common.v1 import revision_pb2
from herdmesh.api.herder.v1 import admin_messages_pb2 as admin_pb
from herdmesh.api.herder.v1 import config_messages_pb2 as pb
from herdmesh.api.herder.v1 import connector_service_pb2_grpc as pb_grpc
from herdmesh.api.worker.v1 import worker_service_pb2
from herdmesh.herder.state.model import requests as rq
from herdmesh.herder.wire import values, views
from herdmesh.rpc import properties
from herdmesh.rpc.errors import RequestInvalid

LETTERS_MAX: Final = 1_000
"""Dead letters in one page, and in one replay."""
REPLAY_BYTES_MAX: Final = 16 * 1024 * 1024
"""Bytes of one replay request: herder and worker keep it in memory, and it shares a stream with heartbeats."""

_Context: TypeAlias = "grpc.aio.ServicerContext[Any, Any]"
AnswerT = TypeVar("AnswerT", bound=rq.Answer)


class QueryRpcs(pb_grpc.ConnectorServiceServicer):
    """Mixin of the public service that queries workers."""

    async def PlanConfig(self, request: pb.PlanConfigRequest, context: _Context) -> pb.PlanConfigResponse:
        self._must_lead(rq.PlanConfig)
        wanted = rq.PlanConfig(request.name, properties.from_proto(request.config))
        planned = await self._call(wanted, rq.Planned, "", None, context)
        return pb.PlanConfigResponse(
            meta=self._meta(),
            validation=cast("worker_service_pb2.ConfigValidation", planned.validation.wire),
            steps=[views.plan_step(step) for step in planned.steps],
            notes=planned.notes,
        )

    async def GetPlugin(self, request: admin_pb.GetPluginRequest, context: _Context) -> admin_pb.GetPluginResponse:
        described = await self._call(rq.GetPlugin(request.class_name), rq.PluginDescribed, "", None, context)
        return admin_pb.GetPluginResponse(
            meta=self._meta(),
            plugin=values.plugin_to_proto(described.plugin),
            fields=cast("tuple[worker_service_pb2.ConfigField, ...]", described.fields),
        )

    async def GetLoggers(self, request: admin_pb.GetLoggersRequest, context: _Context) -> admin_pb.GetLoggersResponse:
        listed = await self._call(rq.GetLoggers(request.logger), rq.LoggersListed, "", None, context)
        loggers = [views.logger(worker_id, level) for worker_id, level in listed.loggers]
        return admin_pb.GetLoggersResponse(meta=self._meta(), loggers=loggers)

    async def SetLoggers(self, request: admin_pb.SetLoggersRequest, context: _Context) -> admin_pb.SetLoggersResponse:
        wanted = rq.SetLoggers(request.logger, request.level, request.worker_id)
        done = await self._call(wanted, rq.LoggersSet, request.request_id, None, context)
        return admin_pb.SetLoggersResponse(meta=self._meta(), affected=done.affected)

    async def ListDeadLetters(
        self, request: admin_pb.ListDeadLettersRequest, context: _Context
    ) -> admin_pb.ListDeadLettersResponse:
        self._must_lead(rq.ListDeadLetters)
        if not 0 <= request.page_size <= LETTERS_MAX:
            raise RequestInvalid(f"page_size must be 0 to {LETTERS_MAX}", "page_size")
        if len(request.places) > LETTERS_MAX:
            raise RequestInvalid(f"at most {LETTERS_MAX} places at once", "places")
        told = await self._call(rq.ListDeadLetters(request.name, request), rq.DeadLettersAnswer, "", None, context)
        response = cast("admin_pb.ListDeadLettersResponse", told.wire)
        response.meta.CopyFrom(self._meta())
        return response

    async def ReplayDeadLetters(
        self, request: admin_pb.ReplayDeadLettersRequest, context: _Context
    ) -> admin_pb.ReplayDeadLettersResponse:
        self._must_lead(rq.ReplayDeadLetters)
        if len(request.letters) > LETTERS_MAX:
            raise RequestInvalid(f"at most {LETTERS_MAX} dead letters at once", "letters")
        if request.ByteSize() > REPLAY_BYTES_MAX:
            raise RequestInvalid(f"at most {REPLAY_BYTES_MAX} bytes of corrected dead letters at once", "letters")
        if request.letters and request.page_token:
            raise RequestInvalid("page_token continues a replay of all dead letters: name none", "letters")
        wanted = rq.ReplayDeadLetters(request.name, request)
        told = await self._call(wanted, rq.DeadLettersAnswer, request.request_id, None, context)
        response = cast("admin_pb.ReplayDeadLettersResponse", told.wire)
        response.meta.CopyFrom(self._meta())
        return response

    @abstractmethod
    async def _call(
        self,
        wanted: rq.Request,
        answer_type: type[AnswerT],
        request_id: str,
        expected: revision_pb2.Revision | None,
        context: _Context,
    ) -> AnswerT: ...

    @abstractmethod
    def _must_lead(self, request: type[rq.Request]) -> None:
        """Raise the error that names the leader when this herder does not lead. Call it before any other check."""

    @abstractmethod
    def _meta(self) -> revision_pb2.ResponseMeta: ...
