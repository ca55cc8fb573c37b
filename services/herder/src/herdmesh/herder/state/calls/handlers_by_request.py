"""Handlers by request: the class that carries out each kind of request.

Owns this mapping and nothing else. A kind of request without a handler is an error of the type check.
"""

from __future__ import annotations

from typing import assert_never

from herdmesh.herder.state.calls.config_writes import (
    CreateHandler,
    DeleteHandler,
    PatchHandler,
    SetTargetHandler,
    UpdateHandler,
)
from herdmesh.herder.state.calls.dead_letters import ListDeadLettersHandler, ReplayDeadLettersHandler
from herdmesh.herder.state.calls.drain_requests import DrainHandler
from herdmesh.herder.state.calls.handler import RequestHandler
from herdmesh.herder.state.calls.loggers import GetLoggersHandler, SetLoggersHandler
from herdmesh.herder.state.calls.offset_changes import ChangeOffsetsHandler, GetOffsetsHandler
from herdmesh.herder.state.calls.plans import PlanHandler
from herdmesh.herder.state.calls.plugin_definitions import PluginHandler
from herdmesh.herder.state.calls.restart_requests import RestartConnectorHandler, RestartTaskHandler
from herdmesh.herder.state.calls.validations import ValidateHandler
from herdmesh.herder.state.model import requests as rq


def handler_of(request: rq.Request) -> RequestHandler:
    """The handler of a request."""
    match request:
        case rq.CreateConnector():
            return CreateHandler(request)
        case rq.UpdateConnector():
            return UpdateHandler(request)
        case rq.PatchConnector():
            return PatchHandler(request)
        case rq.DeleteConnector():
            return DeleteHandler(request)
        case rq.SetTarget():
            return SetTargetHandler(request)
        case rq.RestartConnector():
            return RestartConnectorHandler(request)
        case rq.RestartTask():
            return RestartTaskHandler(request)
        case rq.ValidateConfig():
            return ValidateHandler(request)
        case rq.PlanConfig():
            return PlanHandler(request)
        case rq.GetPlugin():
            return PluginHandler(request)
        case rq.GetLoggers():
            return GetLoggersHandler(request)
        case rq.SetLoggers():
            return SetLoggersHandler(request)
        case rq.DrainWorker():
            return DrainHandler(request, drains=True)
        case rq.UndrainWorker():
            return DrainHandler(request, drains=False)
        case rq.ListDeadLetters():
            return ListDeadLettersHandler(request)
        case rq.ReplayDeadLetters():
            return ReplayDeadLettersHandler(request)
        case rq.GetOffsets():
            return GetOffsetsHandler(request)
        case rq.ChangeOffsets():
            return ChangeOffsetsHandler(request)
        case _:
            assert_never(request)
