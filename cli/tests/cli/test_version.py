"""Tests of `herd version` with herders of given releases: the client's release and theirs, and the exit code."""

from __future__ import annotations

import asyncio
import json
from importlib.metadata import version
from typing import Any

from typer.testing import CliRunner

from herdmesh.api.herder.v1 import admin_messages_pb2 as admin_pb
from herdmesh.api.herder.v1 import connector_service_pb2_grpc as herder_grpc
from herdmesh.cli.app import app
from herdmesh.rpc.server import Server, ServiceRegistration

SERVICE = "herdmesh.api.herder.v1.ConnectorService"
OURS = version("herdmesh-cli")


class _Herder(herder_grpc.ConnectorServiceServicer):
    def __init__(self, version: str, epoch: int) -> None:
        self._answer = admin_pb.GetClusterResponse(version=version, epoch=epoch)

    async def GetCluster(self, request: Any, context: Any) -> admin_pb.GetClusterResponse:
        return self._answer


async def _serve(version: str, epoch: int) -> tuple[Server, str]:
    servicer: Any = _Herder(version, epoch)  # pyright: ignore[reportAbstractUsage]  # the rest is the generated base's
    add = herder_grpc.add_ConnectorServiceServicer_to_server
    server = Server("127.0.0.1:0", [ServiceRegistration(servicer, add, SERVICE)], metrics=False)
    port = await server.start()
    await server.set_all_serving(True)
    return server, f"127.0.0.1:{port}"


async def _herd(*arguments: str) -> tuple[int, str]:
    # in a thread: the command runs an event loop of its own
    done = await asyncio.to_thread(CliRunner().invoke, app, ["version", *arguments], catch_exceptions=False)
    return done.exit_code, done.stdout


async def test_without_herder_option_no_request_is_sent() -> None:
    code, text = await _herd()
    assert (code, text.splitlines()[0].split(" (")[0]) == (0, f"herd {OURS}")
    code, text = await _herd("-o", "json")
    found = json.loads(text)
    assert (code, found["client"]["version"], found["herders"]) == (0, OURS, [])


async def test_each_herder_reports_its_own_version() -> None:
    """A leader and a follower of different releases, as in a rolling upgrade."""
    old, old_address = await _serve("0.0.9", epoch=4)
    new, new_address = await _serve("0.1.0", epoch=0)
    try:
        code, text = await _herd("--herder", f"{old_address},{new_address}", "-o", "json")
        assert code == 0
        assert json.loads(text)["herders"] == [
            {"address": old_address, "version": "0.0.9", "leads": True, "error": None},
            {"address": new_address, "version": "0.1.0", "leads": False, "error": None},
        ]
        code, text = await _herd("--herder", f"{old_address},{new_address}")
        rows = [line.split() for line in text.splitlines()[2:]]
        assert (code, rows) == (0, [[old_address, "0.0.9", "leads"], [new_address, "0.1.0", "follows"]])
    finally:
        await old.stop(0)
        await new.stop(0)


async def test_a_herder_that_does_not_answer_leads_to_exit_code_6() -> None:
    code, text = await _herd("--herder", "127.0.0.1:1", "-o", "json")
    (found,) = json.loads(text)["herders"]
    assert (code, found["version"]) == (6, None)
    assert found["error"]
