"""Tests of the command line's client with a busy herder, and of `herd drain worker` with workers that leave."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from herdmesh.api.configstore.v1 import config_read_service_pb2_grpc as config_grpc
from herdmesh.api.herder.v1 import admin_messages_pb2 as admin
from herdmesh.api.herder.v1 import config_messages_pb2 as messages
from herdmesh.api.herder.v1 import connector_pb2
from herdmesh.api.herder.v1 import connector_service_pb2_grpc as service
from herdmesh.cli.app import app
from herdmesh.cli.commands.drain import drain_worker
from herdmesh.cli.display.output import Format
from herdmesh.cli.errors import CommandError
from herdmesh.cli.mesh.client import PATIENCE_S, TIMEOUT_ENV, HerderClient, find_patience_s
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


@pytest.mark.parametrize(
    ("address", "message", "next_step"),
    [
        ("http://herder.example:7203", "is a URL", "--herder herder.example:7203"),
        ("https://herder.example/x", "is a URL", "--herder herder.example:7203"),
        ("localhost", "has no port", "--herder localhost:7203"),
        ("127.0.0.1:", "nothing is no port number", "HOST:PORT"),
        ("127.0.0.1:72o3", "72o3 is no port number", "HOST:PORT"),
        ("127.0.0.1:99999", "99999 is no port number", "HOST:PORT"),
        (":7203", "no usable host", "HOST:PORT"),
        ("2001:db8::1", "has no port", "--herder [2001:db8::1]:7203"),
        ("127.0.0.1:7203,nowhere", "nowhere has no port", "nowhere:7203"),
        (" , ", "names no address", "HOST:PORT"),
    ],
)
def test_an_address_that_cannot_work_is_refused_at_once(address: str, message: str, next_step: str) -> None:
    with pytest.raises(CommandError) as error:
        HerderClient(address)
    assert (error.value.reason, error.value.exit_code) == ("USAGE", 2)
    assert message in error.value.message
    assert next_step in error.value.next_step


@pytest.mark.parametrize("address", ["127.0.0.1:7203", "[::1]:7203", "herder.example:1, other.example:65535"])
def test_an_address_that_may_work_is_taken(address: str) -> None:
    assert HerderClient(address).address


async def test_a_name_that_no_machine_has_is_refused_at_once() -> None:
    began_s = time.monotonic()
    with pytest.raises(CommandError) as error:
        async with HerderClient("no-such-machine.invalid:7203") as client:
            await client.call(lambda stub: stub.ListWorkers, admin.ListWorkersRequest())
    assert "no-such-machine.invalid" in error.value.message
    assert error.value.exit_code in (2, 6), "6 where this machine has no DNS, and cannot know"
    assert time.monotonic() - began_s < PATIENCE_S / 2


async def test_a_store_in_place_of_a_herder_is_recognised() -> None:
    class Store(config_grpc.ConfigReadServiceServicer):
        """Serves nothing: its name is enough."""

    add = config_grpc.add_ConfigReadServiceServicer_to_server
    store: Any = Store()  # pyright: ignore[reportAbstractUsage]
    name = "herdmesh.api.configstore.v1.ConfigReadService"
    server = Server("127.0.0.1:0", [ServiceRegistration(store, add, name)], metrics=False)
    address = f"127.0.0.1:{await server.start()}"
    try:
        async with HerderClient(address) as client:
            with pytest.raises(CommandError) as error:
                await client.call(lambda stub: stub.ListWorkers, admin.ListWorkersRequest())
    finally:
        await server.stop(0)
    assert (error.value.reason, error.value.exit_code) == ("USAGE", 2)
    assert error.value.message == f"{address} is a config store, not a herder"
    assert "--herder" in error.value.next_step


async def test_an_http_server_in_place_of_a_herder_is_recognised() -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    async with server, HerderClient(address) as client:
        with pytest.raises(CommandError) as error:
            await client.call(lambda stub: stub.ListWorkers, admin.ListWorkersRequest())
    assert error.value.message.startswith(f"{address} is an HTTP server")


async def test_a_wait_is_announced_within_a_second_and_ends_at_the_timeout() -> None:
    said: list[tuple[float, str]] = []
    began_s = time.monotonic()

    def say(line: str) -> None:
        said.append((time.monotonic() - began_s, line))

    async with HerderClient("127.0.0.1:1", patience_s=1.5, on_wait=say) as client:
        with pytest.raises(CommandError) as error:
            await client.call(lambda stub: stub.ListWorkers, admin.ListWorkersRequest())
    assert (error.value.reason, error.value.exit_code) == ("UNREACHABLE", 6)
    ((after_s, line),) = said
    assert line.startswith("waiting for a leading herder at 127.0.0.1:1, at most 1.5 s (")
    assert after_s >= 0.5, "a quick failure is not announced"


async def test_a_server_that_accepts_and_never_answers_ends_at_the_timeout() -> None:
    server = await asyncio.start_server(lambda reader, writer: None, "127.0.0.1", 0)
    address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    began_s = time.monotonic()
    async with HerderClient(address, patience_s=1.0) as client:
        with pytest.raises(CommandError):
            await client.call(lambda stub: stub.ListWorkers, admin.ListWorkersRequest())
    server.close()
    assert time.monotonic() - began_s < PATIENCE_S, "not the whole usual time"


def test_the_timeout_is_read_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    assert find_patience_s() == PATIENCE_S
    monkeypatch.setenv(TIMEOUT_ENV, "2.5")
    assert find_patience_s() == 2.5
    for wrong in ("soon", "0", "-1", "inf", "nan"):
        monkeypatch.setenv(TIMEOUT_ENV, wrong)
        with pytest.raises(CommandError) as error:
            find_patience_s()
        assert error.value.exit_code == 2


def test_the_timeout_of_the_command_line_comes_first() -> None:
    began_s = time.monotonic()
    done = CliRunner().invoke(app, ["--timeout", "0.3", "get", "workers", "--herder", "127.0.0.1:1"])
    assert done.exit_code == 6
    assert "no herder answers at 127.0.0.1:1" in done.stderr
    assert time.monotonic() - began_s < PATIENCE_S / 2
