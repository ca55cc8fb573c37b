"""Tests of the command line's client with a busy herder, and of `herd drain worker` with workers that leave."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
import typer

from herdmesh.api.herder.v1 import admin_messages_pb2 as admin
from herdmesh.api.herder.v1 import config_messages_pb2 as messages
from herdmesh.api.herder.v1 import connector_pb2
from herdmesh.api.herder.v1 import connector_service_pb2_grpc as service
from herdmesh.cli.client import HerderClient
from herdmesh.cli.commands.drain import drain_worker
from herdmesh.cli.output import Format
from herdmesh.rpc.errors import HerdmeshError, QueueFull
from herdmesh.rpc.server import Server, ServiceRegistration

DRAINING = connector_pb2.Worker(
    worker_id="w1", incarnation="one", state=connector_pb2.WORKER_STATE_DRAINING, connectors=["a"]
)
DRAINED = connector_pb2.Worker(worker_id="w1", incarnation="one", state=connector_pb2.WORKER_STATE_DRAINED)
GONE = connector_pb2.Worker(worker_id="w1", state=connector_pb2.WORKER_STATE_LOST)
ANEW = connector_pb2.Worker(worker_id="w1", incarnation="two", state=connector_pb2.WORKER_STATE_CONNECTED)
AWAY = connector_pb2.Worker(worker_id="w1", incarnation="one", state=connector_pb2.WORKER_STATE_LOST, connectors=["a"])


class Herder(service.ConnectorServiceServicer):
    """A herder that refuses the first calls, and reports one worker with the given states."""

    def __init__(self, refusals: list[HerdmeshError], story: list[connector_pb2.Worker], listed: bool = True) -> None:
        self._refusals, self._story, self._listed = refusals, story, listed
        self.requests: list[Any] = []

    async def DrainWorker(self, request: admin.DrainWorkerRequest, context: object) -> admin.DrainWorkerResponse:
        self.requests.append(request)
        if self._refusals:
            raise self._refusals.pop(0)
        return admin.DrainWorkerResponse(worker=self._story[0 if len(self.requests) == 1 else -1])

    async def WatchConnectors(
        self, request: messages.WatchConnectorsRequest, context: object
    ) -> AsyncIterator[messages.WatchConnectorsResponse]:
        for worker in self._story if self._listed else ():
            yield messages.WatchConnectorsResponse(worker=worker)
        yield messages.WatchConnectorsResponse(snapshot_complete=messages.WatchConnectorsSnapshotComplete())
        await asyncio.Event().wait()


async def serving(herder: Herder) -> tuple[Server, str]:
    """Start the herder on a port of its own."""
    add = service.add_ConnectorServiceServicer_to_server
    name = "herdmesh.api.herder.v1.ConnectorService"
    server = Server("127.0.0.1:0", [ServiceRegistration(herder, add, name)], metrics=False)
    return server, f"127.0.0.1:{await server.start()}"


async def test_a_call_to_a_busy_herder_is_retried_with_the_same_request() -> None:
    refusals: list[HerdmeshError] = [QueueFull("4000 calls are under way"), QueueFull("4000 calls are under way")]
    herder = Herder(refusals, [DRAINED])  # pyright: ignore[reportAbstractUsage]
    server, address = await serving(herder)
    try:
        async with HerderClient(address) as client:
            request = admin.DrainWorkerRequest(request_id="once", worker_id="w1")
            reply = await client.call(lambda stub: stub.DrainWorker, request)
    finally:
        await server.stop(0)
    assert reply.worker == DRAINED
    assert herder.requests == [request] * 3


async def drained(story: list[connector_pb2.Worker], listed: bool = True) -> None:
    """Run `herd drain worker w1` in a thread of its own, because the command has its own event loop."""
    server, address = await serving(Herder([], story, listed))  # pyright: ignore[reportAbstractUsage]
    try:
        await asyncio.to_thread(drain_worker, "w1", address, Format.JSON, True, 20.0)
    finally:
        await server.stop(0)


@pytest.mark.parametrize("story", [[DRAINED], [DRAINING, DRAINED], [DRAINING, AWAY, DRAINED]])
async def test_a_drain_ends_when_the_worker_is_empty_or_has_left_empty(
    story: list[connector_pb2.Worker], capsys: pytest.CaptureFixture[str]
) -> None:
    await drained(story)
    assert '"state": "DRAINED"' in capsys.readouterr().out


async def test_the_drain_of_a_worker_that_left_before_the_watch_is_found_by_the_same_request(
    capsys: pytest.CaptureFixture[str],
) -> None:
    await drained([DRAINING, DRAINED], listed=False)
    assert '"state": "DRAINED"' in capsys.readouterr().out


@pytest.mark.parametrize("story", [[GONE], [DRAINING, GONE]])
async def test_a_drain_of_a_lost_worker_fails_with_the_reason(
    story: list[connector_pb2.Worker], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(typer.Exit) as error:
        await drained(story)
    assert error.value.exit_code == 3
    assert "was lost before it was drained" in capsys.readouterr().out


async def test_a_drain_of_a_restarted_worker_fails_with_the_reason(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(typer.Exit) as error:
        await drained([DRAINING, ANEW])
    assert error.value.exit_code == 3
    assert "drain it again" in capsys.readouterr().out
