"""Tests of `herd --trace` and TRACEPARENT: the trace id reaches the herder."""

from __future__ import annotations

import asyncio
import os
from typing import Any

import pytest
from typer.testing import CliRunner

from herdmesh.api.herder.v1 import admin_messages_pb2 as admin
from herdmesh.api.herder.v1 import connector_service_pb2_grpc as service
from herdmesh.cli.app import app
from herdmesh.rpc.monitoring import tracing
from herdmesh.rpc.server import Server, ServiceRegistration


class Herder(service.ConnectorServiceServicer):
    """A herder that records the trace of each call."""

    def __init__(self) -> None:
        self.traces: list[str] = []

    async def ListWorkers(self, request: admin.ListWorkersRequest, context: Any) -> admin.ListWorkersResponse:
        self.traces.append(tracing.current(context.invocation_metadata()))
        return admin.ListWorkersResponse()


async def _herd(*options: str) -> tuple[str, list[str]]:
    """Run `herd [options] get workers`; returns its standard error, and the traces that the herder received."""
    herder = Herder()  # pyright: ignore[reportAbstractUsage]
    add = service.add_ConnectorServiceServicer_to_server
    registration = ServiceRegistration(herder, add, "herdmesh.api.herder.v1.ConnectorService")
    server = Server("127.0.0.1:0", [registration], metrics=False)
    try:
        address = f"127.0.0.1:{await server.start()}"
        done = await asyncio.to_thread(
            CliRunner().invoke, app, [*options, "get", "workers", "--herder", address, "-o", "json"]
        )
    finally:
        await server.stop(0)
    assert done.exit_code == 0, done.output
    return done.stderr, herder.traces


async def test_a_trace_is_begun_continued_or_absent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(tracing.TRACEPARENT_ENV, "")
    assert await _herd() == ("", [""])
    said, (begun,) = await _herd("--trace")
    assert said == f"trace {begun.split('-')[1]}\n"
    assert os.environ[tracing.TRACEPARENT_ENV] == begun
    assert await _herd() == ("", [begun])
    assert await _herd("--trace") == (said, [begun])
    monkeypatch.setenv(tracing.TRACEPARENT_ENV, "nonsense")
    assert await _herd() == ("", [""])
