"""Health, reflection, metrics, retries, settings and the process, through real sockets and real processes."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import urllib.request
from collections.abc import AsyncIterator
from typing import Any

import grpc.aio
import pytest
import structlog
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc
from pydantic import Field, SecretStr, ValidationError

from herdmesh.api.statusstore.v1 import status_read_service_pb2 as read_pb2
from herdmesh.api.statusstore.v1 import status_read_service_pb2_grpc as read_grpc
from herdmesh.devstack.ports import free_port
from herdmesh.rpc import errors
from herdmesh.rpc.client import connect, retrying
from herdmesh.rpc.monitoring import tracing
from herdmesh.rpc.server import CannotListen, Server, ServiceRegistration
from herdmesh.rpc.settings import ServiceSettings

READ = "herdmesh.api.statusstore.v1.StatusReadService"
SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING


class _Named(read_grpc.StatusReadServiceServicer):
    """Answers GetStatus with a number, so that a test sees which server it reached."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.log_fields: list[dict[str, Any]] = []

    async def GetStatus(self, request: Any, context: Any) -> read_pb2.GetStatusResponse:
        self.log_fields.append(structlog.contextvars.get_contextvars())
        response = read_pb2.GetStatusResponse()
        response.tasks.add(generation=self.number)
        return response


def _server(number: int = 0, listen: str = "127.0.0.1:0", metrics: bool = False) -> Server:
    servicer = _Named(number)  # pyright: ignore[reportAbstractUsage]
    registration = ServiceRegistration(servicer, read_grpc.add_StatusReadServiceServicer_to_server, READ)
    return Server(listen, [registration], metrics=metrics)


@pytest.fixture
async def server() -> AsyncIterator[tuple[Server, int]]:
    made = _server()
    port = await made.start()
    yield made, port
    await made.stop(0)


async def _health(channel: grpc.aio.Channel, service: str) -> Any:
    stub: Any = health_pb2_grpc.HealthStub(channel)
    return (await stub.Check(health_pb2.HealthCheckRequest(service=service))).status


async def test_health_is_reported_for_each_service(server: tuple[Server, int]) -> None:
    made, port = server
    async with connect(f"127.0.0.1:{port}") as channel:
        assert await _health(channel, READ) == NOT_SERVING
        assert await _health(channel, "") == NOT_SERVING
        await made.set_serving(READ, True)
        assert await _health(channel, READ) == SERVING
        assert await _health(channel, "") == SERVING
    with pytest.raises(KeyError):
        await made.set_serving("no.such.Service", True)


async def test_reflection_lists_the_served_services(server: tuple[Server, int]) -> None:
    async with connect(f"127.0.0.1:{server[1]}") as channel:
        make_stub: Any = reflection_pb2_grpc.ServerReflectionStub  # its stub package lacks asyncio
        call = make_stub(channel).ServerReflectionInfo()
        await call.write(reflection_pb2.ServerReflectionRequest(list_services=""))
        reply: Any = await call.read()
        await call.done_writing()
    assert {service.name for service in reply.list_services_response.service} >= {READ, "grpc.health.v1.Health"}


async def test_log_lines_of_a_call_have_the_trace_id_of_its_caller() -> None:
    servicer = _Named(0)  # pyright: ignore[reportAbstractUsage]
    registration = ServiceRegistration(servicer, read_grpc.add_StatusReadServiceServicer_to_server, READ)
    made = Server("127.0.0.1:0", [registration], metrics=False)
    traceparent = tracing.new_traceparent()
    try:
        async with connect(f"127.0.0.1:{await made.start()}") as channel:
            stub = read_grpc.StatusReadServiceStub(channel)
            await stub.GetStatus(read_pb2.GetStatusRequest(), metadata=(("traceparent", traceparent),))
            await stub.GetStatus(read_pb2.GetStatusRequest())
    finally:
        await made.stop(0)
    assert servicer.log_fields == [{"trace_id": traceparent.split("-")[1]}, {}]


@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0", "localhost"])
async def test_a_port_in_use_is_reported_once(
    server: tuple[Server, int], host: str, capfd: pytest.CaptureFixture[str]
) -> None:
    """gRPC printed a line of its own about it ("E1128 ... add_port.cc")."""
    says = f"cannot listen on {host}:{server[1]}: Address already in use; end the process .* set another address"
    with pytest.raises(CannotListen, match=says):
        await _server(listen=f"{host}:{server[1]}").start()
    assert "add_port" not in capfd.readouterr().err


def test_a_service_whose_port_is_taken_says_so_without_a_trace(server: tuple[Server, int]) -> None:
    code = """
import sys
from herdmesh.rpc.process import run
from herdmesh.rpc.server import Server
from herdmesh.rpc.settings import ServiceSettings

async def main(settings, stop):
    await Server(settings.listen, [], metrics=False).start()

run("herdmesh.test", lambda: ServiceSettings(listen=sys.argv[1]), main)
"""
    command = [sys.executable, "-c", code, f"127.0.0.1:{server[1]}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    last = json.loads(done.stdout.splitlines()[-1])
    assert (last["event"], last["level"], "exception" in last) == ("cannot_listen", "error", False)
    assert f"cannot listen on 127.0.0.1:{server[1]}: Address already in use" in last["error"]
    assert done.stderr == ""


async def test_metrics_are_served_on_port_plus_1000() -> None:
    port = free_port()
    made = _server(listen=f"127.0.0.1:{port}", metrics=True)
    await made.start()
    async with connect(f"127.0.0.1:{port}") as channel:
        await read_grpc.StatusReadServiceStub(channel).GetStatus(read_pb2.GetStatusRequest())
    page = await asyncio.to_thread(
        lambda: urllib.request.urlopen(f"http://127.0.0.1:{port + 1000}/metrics", timeout=30).read().decode()
    )
    await made.stop(0)
    assert "herdmesh_rpc_server_duration_seconds_bucket" in page
    assert "StatusReadService/GetStatus" in page


async def test_calls_reach_the_healthy_replica() -> None:
    first, second = _server(1), _server(2)
    ports = [await first.start(), await second.start()]
    try:
        await second.set_serving(READ, True)
        async with connect([f"127.0.0.1:{port}" for port in ports], health_service=READ) as channel:
            stub = read_grpc.StatusReadServiceStub(channel)
            replies = [await stub.GetStatus(read_pb2.GetStatusRequest(), wait_for_ready=True, timeout=60) for _ in "ab"]
        assert [reply.tasks[0].generation for reply in replies] == [2, 2]
    finally:
        await first.stop(0)
        await second.stop(0)


def test_invalid_addresses_are_rejected() -> None:
    with pytest.raises(ValueError, match="no address"):
        connect(" , ")
    with pytest.raises(ValueError, match="must be numeric"):
        connect(["store-a:1", "store-b:1"])


async def test_retrying_repeats_a_call_until_it_succeeds() -> None:
    outcomes: list[errors.HerdmeshError | None] = [errors.StoreReplaying("1"), errors.QueueFull("2"), None]
    retried: list[str] = []

    async def call() -> str:
        outcome = outcomes.pop(0)
        if outcome is not None:
            raise outcome
        return "done"

    assert await retrying(call, deadline_s=60, on_retry=lambda error: retried.append(error.reason)) == "done"
    assert retried == ["STORE_REPLAYING", "QUEUE_FULL"]


async def test_exhausted_retries_raise_the_last_error() -> None:
    async def refused() -> None:
        raise errors.NotWriter("a replica")

    async def wrong() -> None:
        raise errors.ConnectorNotFound("x")

    with pytest.raises(errors.NotWriter):
        await retrying(refused, deadline_s=0.05)
    with pytest.raises(errors.ConnectorNotFound):
        await retrying(wrong, deadline_s=60)
    with pytest.raises(errors.Timeout):
        await retrying(asyncio.Event().wait, deadline_s=0.02)


class _Settings(ServiceSettings):
    listen: str = "127.0.0.1:7000"
    group_id: str = "connect-cluster"
    memory: bool = False
    lease_ms: int = Field(default=6000, description="how long", gt=0)
    password: SecretStr = SecretStr("")


def test_settings_are_read_from_flags_and_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HERDMESH_GROUP_ID", "from-environment")
    monkeypatch.setenv("HERDMESH_LEASE_MS", "100")
    monkeypatch.setenv("HERDMESH_PASSWORD", "hunter2")
    settings = _Settings.load(["--lease-ms", "200", "--memory", "--listen=127.0.0.1:1"])
    assert (settings.group_id, settings.lease_ms, settings.memory) == ("from-environment", 200, True)
    assert settings.listen == "127.0.0.1:1"
    assert "hunter2" not in json.dumps(settings.redacted())
    assert settings.password.get_secret_value() == "hunter2"
    with pytest.raises(ValidationError):
        settings.memory = False  # type: ignore[misc]


def test_wrong_settings_name_the_field() -> None:
    with pytest.raises(ValidationError, match="lease_ms"):
        _Settings.load(["--lease_ms", "0"])


_PROCESS = """
import asyncio, sys
from herdmesh.rpc.errors import FieldViolation, InvalidConfig
from herdmesh.rpc.process import run
from herdmesh.rpc.settings import ServiceSettings

what = sys.argv[1]

def load():
    if what == "settings":
        raise InvalidConfig([FieldViolation("group_id", "is empty")])
    return ServiceSettings(listen="127.0.0.1:0", _cli_parse_args=False)

async def main(settings, stop):
    if what == "fails":
        raise ZeroDivisionError("boom")
    print("ready", file=sys.stderr, flush=True)
    await stop.wait()
    if what == "hangs":
        print("hanging", file=sys.stderr, flush=True)
        await asyncio.Event().wait()

run("herdmesh.probe", load, main)
"""


async def _process(what: str) -> asyncio.subprocess.Process:
    pipe = asyncio.subprocess.PIPE
    return await asyncio.create_subprocess_exec(
        sys.executable, "-c", _PROCESS, what, stdout=pipe, stderr=pipe, env={**os.environ}
    )


async def test_process_exit_codes() -> None:
    for what, code, event in (("settings", 2, "wrong_settings"), ("fails", 1, "failed")):
        process = await _process(what)
        log, _ = await asyncio.wait_for(process.communicate(), 30)
        assert process.returncode == code
        assert json.loads(log.decode().splitlines()[-1])["event"] == event


async def test_process_stops_at_sigterm_and_is_killed_by_the_second() -> None:
    process = await _process("stops")
    assert process.stderr is not None
    await process.stderr.readline()
    process.send_signal(signal.SIGTERM)
    assert await asyncio.wait_for(process.wait(), 30) == 0

    process = await _process("hangs")
    assert process.stderr is not None
    await process.stderr.readline()
    process.send_signal(signal.SIGTERM)
    await process.stderr.readline()
    process.send_signal(signal.SIGTERM)
    assert await asyncio.wait_for(process.wait(), 30) == 130
