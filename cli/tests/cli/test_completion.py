"""Tests of completion: names come from the cluster; one that does not answer completes nothing and prints nothing."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest
from typer.testing import CliRunner

from herdmesh.api.common.v1 import connector_pb2 as common
from herdmesh.api.herder.v1 import admin_messages_pb2 as admin
from herdmesh.api.herder.v1 import config_messages_pb2 as messages
from herdmesh.api.herder.v1 import connector_pb2 as connectors
from herdmesh.api.herder.v1 import connector_service_pb2_grpc as service
from herdmesh.cli import completion
from herdmesh.cli.app import app
from herdmesh.rpc.server import Server, ServiceRegistration


class Herder(service.ConnectorServiceServicer):
    """A herder with two connectors, a worker and a plugin."""

    async def ListConnectors(
        self, request: messages.ListConnectorsRequest, context: object
    ) -> messages.ListConnectorsResponse:
        found = messages.ListConnectorsResponse()
        for name in ("orders", "users"):
            one = found.connectors.add(name=name, type=common.CONNECTOR_TYPE_SINK)
            one.status.state = common.RUN_STATE_RUNNING
            one.tasks.add(id=common.TaskId(connector=name, task=0))
        return found

    async def ListWorkers(self, request: admin.ListWorkersRequest, context: object) -> admin.ListWorkersResponse:
        worker = connectors.Worker(worker_id="w1", state=connectors.WORKER_STATE_CONNECTED)
        return admin.ListWorkersResponse(workers=[worker])

    async def GetLoggers(self, request: admin.GetLoggersRequest, context: object) -> admin.GetLoggersResponse:
        return admin.GetLoggersResponse(loggers=[admin.LoggerEntry(logger="root", level="INFO", worker_id="w1")])

    async def ListPlugins(self, request: admin.ListPluginsRequest, context: object) -> admin.ListPluginsResponse:
        return admin.ListPluginsResponse(plugins=[common.Plugin(class_name="x.OrdersSink", aliases=["OrdersSink"])])


@pytest.fixture
async def herder() -> Any:
    add = service.add_ConnectorServiceServicer_to_server
    name = "herdmesh.api.herder.v1.ConnectorService"
    server = Server(
        "127.0.0.1:0",
        [ServiceRegistration(Herder(), add, name)],  # pyright: ignore[reportAbstractUsage]
        metrics=False,
    )
    yield f"127.0.0.1:{await server.start()}"
    await server.stop(0)


async def completed(herder: str, line: str) -> list[str]:
    """The names that bash is offered for the last word of a line."""
    words = line.split(" ")
    environment = {
        "_HERD_COMPLETE": "complete_bash",
        "COMP_WORDS": line,
        "COMP_CWORD": str(len(words) - 1),
        "HERDMESH_HERDER": herder,
    }
    done = await asyncio.to_thread(CliRunner().invoke, app, [], prog_name="herd", env=environment)
    assert done.stderr == ""
    return done.stdout.split()


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("herd pause ", ["orders", "users"]),
        ("herd pause o", ["orders"]),
        ("herd get co u", ["users"]),
        ("herd describe connector ", ["orders", "users"]),
        ("herd describe task ", ["orders/0", "users/0"]),
        ("herd get wo ", ["w1"]),
        ("herd drain worker ", ["w1"]),
        ("herd describe pl Or", ["OrdersSink"]),
        ("herd offsets get o", ["orders"]),
        ("herd logs task o", ["orders/0"]),
        ("herd logs wo ", ["w1"]),
        ("herd events u", ["users"]),
        ("herd get co --worker ", ["w1"]),
        ("herd transform --as-connector u", ["users"]),
        ("herd set-logger r", ["root"]),
        ("herd doctor --explain TASK_F", ["TASK_FAILED"]),
        ("herd example run file", ["file-to-parquet"]),
        ("herd get con", ["connectors"]),
        ("herd get co -o y", ["yaml"]),
    ],
)
async def test_names_are_completed(herder: str, line: str, offered: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(completion, "_TIMEOUT_S", 20.0)
    assert await completed(herder, line) == offered


async def test_a_herder_that_does_not_answer_completes_nothing_and_soon() -> None:
    began_s = time.monotonic()
    assert await completed("127.0.0.1:1", "herd pause ") == []
    assert time.monotonic() - began_s < 5
