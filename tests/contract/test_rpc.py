"""Wire promises of every service: health, reflection, errors of the one table.

The stores and the herder run as processes on the memory engine; the worker, which needs Spark, is the shared mesh's.
Every RPC that reflection shows is called with an empty request. Its answer is free, except that an error
carries a reason of `common.v1.ErrorReason` with that reason's code, that nothing is a bug (INTERNAL), and that an RPC
this release does not have answers UNIMPLEMENTED, NOT_BUILT, and its own name.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest
import pytest_asyncio
from google.protobuf.descriptor import MethodDescriptor, ServiceDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from herdmesh.api.configstore.v1 import config_read_service_pb2, config_write_service_pb2, leadership_service_pb2
from herdmesh.api.herder.v1 import connector_service_pb2, worker_session_service_pb2
from herdmesh.api.statusstore.v1 import status_read_service_pb2, status_write_service_pb2
from herdmesh.api.worker.v1 import run_service_pb2, worker_service_pb2
from herdmesh.devstack.ports import HOST, free_port
from herdmesh.rpc import errors, status
from herdmesh.rpc.client import connect
from tests.support.mesh import Mesh

SERVICES: dict[str, Sequence[ServiceDescriptor]] = {
    "config-store": [
        config_read_service_pb2.DESCRIPTOR.services_by_name["ConfigReadService"],
        config_write_service_pb2.DESCRIPTOR.services_by_name["ConfigWriteService"],
        leadership_service_pb2.DESCRIPTOR.services_by_name["LeadershipService"],
    ],
    "status-store": [
        status_read_service_pb2.DESCRIPTOR.services_by_name["StatusReadService"],
        status_write_service_pb2.DESCRIPTOR.services_by_name["StatusWriteService"],
    ],
    "herder": [
        connector_service_pb2.DESCRIPTOR.services_by_name["ConnectorService"],
        worker_session_service_pb2.DESCRIPTOR.services_by_name["WorkerSessionService"],
    ],
    "worker": [
        worker_service_pb2.DESCRIPTOR.services_by_name["WorkerService"],
        run_service_pb2.DESCRIPTOR.services_by_name["RunService"],
    ],
}
#: A drained worker would be of no use to the tests after this one.
NOT_CALLED = {"herdmesh.api.worker.v1.WorkerService.Drain"}
MODULES = {
    "config-store": ["herdmesh.configstore", "--memory"],
    "status-store": ["herdmesh.statusstore", "--memory"],
    "herder": ["herdmesh.herder"],
}
LIGHT = tuple(MODULES)
#: A stream without a message for this long has accepted the call.
STREAM_S = 0.5


@dataclass
class Light:
    """Stores and herder, without Kafka and Spark."""

    addresses: dict[str, str]
    processes: list[asyncio.subprocess.Process] = field(default_factory=lambda: [])


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def light(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Light]:
    made = Light({name: f"{HOST}:{free_port()}" for name in LIGHT})
    log_path: Path = tmp_path_factory.mktemp("light") / "log"
    stores = ["--config-store", made.addresses["config-store"], "--status-store", made.addresses["status-store"]]
    try:
        with log_path.open("wb") as log:
            for name, command in MODULES.items():
                arguments = [*command, "--listen", made.addresses[name], "--metrics=false"]
                if name == "herder":
                    arguments += stores
                made.processes.append(
                    await asyncio.create_subprocess_exec(
                        sys.executable, "-m", *arguments, stdout=log, stderr=log, env={**os.environ}
                    )
                )
            await asyncio.gather(*(_all_serving(made.addresses[name], SERVICES[name]) for name in LIGHT))
            yield made
    finally:
        for process in made.processes:
            if process.returncode is None:
                process.send_signal(signal.SIGTERM)
        codes = await asyncio.gather(*(asyncio.wait_for(process.wait(), 20) for process in made.processes))
    log_text = await asyncio.to_thread(log_path.read_text, "utf-8")
    assert codes == [0] * len(codes), log_text
    assert "rpc_failed_unexpectedly" not in log_text


async def _all_serving(address: str, services: Sequence[ServiceDescriptor]) -> None:
    async with connect(address) as channel:  # with its short backoff: the process has yet to listen
        stub: Any = health_pb2_grpc.HealthStub(channel)
        for service in ["", *(service.full_name for service in services)]:
            request = health_pb2.HealthCheckRequest(service=service)
            async for reply in stub.Watch(request, wait_for_ready=True, timeout=40):
                if reply.status == health_pb2.HealthCheckResponse.SERVING:
                    break


async def _check(address: str, services: Sequence[ServiceDescriptor]) -> list[str]:
    """Check the whole contract of one server. Returns the names of its unimplemented RPCs."""
    unbuilt: list[str] = []
    async with grpc.aio.insecure_channel(address) as channel:
        await _check_reflection(channel, services)
        health: Any = health_pb2_grpc.HealthStub(channel)
        with pytest.raises(grpc.aio.AioRpcError) as unknown:
            await health.Check(health_pb2.HealthCheckRequest(service="no.such.Service"), timeout=10)
        assert unknown.value.code() is grpc.StatusCode.NOT_FOUND
        for service in services:
            for method in service.methods:
                if method.full_name in NOT_CALLED:
                    continue
                error = await _call(channel, method)
                if error is None or error.code() is grpc.StatusCode.DEADLINE_EXCEEDED:
                    continue
                planned = status.unpack(error.code(), error.details() or "", error.trailing_metadata())
                assert status.DETAILS_KEY in dict(error.trailing_metadata() or ()), (method.full_name, error)
                assert status.CODES[type(planned)] is error.code(), (method.full_name, error)
                assert not isinstance(planned, errors.Internal), (method.full_name, error)
                if error.code() is grpc.StatusCode.UNIMPLEMENTED:
                    assert isinstance(planned, errors.NotBuilt)
                    assert method.name in planned.message, planned.message
                    unbuilt.append(method.full_name)
    return unbuilt


async def _check_reflection(channel: grpc.aio.Channel, services: Sequence[ServiceDescriptor]) -> None:
    make_stub: Any = reflection_pb2_grpc.ServerReflectionStub
    call = make_stub(channel).ServerReflectionInfo(timeout=10)
    await call.write(reflection_pb2.ServerReflectionRequest(list_services=""))
    listed = {service.name for service in (await call.read()).list_services_response.service}
    assert listed >= {service.full_name for service in services} | {"grpc.health.v1.Health"}
    for service in services:
        await call.write(reflection_pb2.ServerReflectionRequest(file_containing_symbol=service.full_name))
        assert (await call.read()).file_descriptor_response.file_descriptor_proto
    await call.done_writing()


async def _call(channel: grpc.aio.Channel, method: MethodDescriptor) -> grpc.aio.AioRpcError | None:
    """Call with an empty request; the error, or None when it answered or (a stream) listens."""
    path = f"/{method.containing_service.full_name}/{method.name}"
    request = GetMessageClass(method.input_type)()
    codec: dict[str, Any] = {
        "request_serializer": Message.SerializeToString,
        "response_deserializer": GetMessageClass(method.output_type).FromString,
    }
    call: Any
    try:
        if method.client_streaming:
            call = channel.stream_stream(path, **codec)()
            await call.write(request)
        elif method.server_streaming:
            call = channel.unary_stream(path, **codec)(request)
        else:
            await channel.unary_unary(path, **codec)(request, timeout=10)
            return None
        try:
            await asyncio.wait_for(call.read(), STREAM_S)
        except TimeoutError:
            pass  # it listens
        finally:
            call.cancel()
    except grpc.aio.AioRpcError as error:
        return error
    return None


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("service", LIGHT)
async def test_contract_of_stores_and_herder(service: str, light: Light) -> None:
    unbuilt = await _check(light.addresses[service], SERVICES[service])
    print(f"{service}: not built yet: {', '.join(unbuilt) or 'nothing'}")


@pytest.mark.kafka
@pytest.mark.spark
@pytest.mark.asyncio(loop_scope="session")
@pytest.mark.parametrize("service", SERVICES)
async def test_contract_in_a_whole_mesh(service: str, mesh: Mesh) -> None:
    [address, *_] = mesh.stack.addresses(service)
    await _all_serving(address, SERVICES[service])
    await _check(address, SERVICES[service])


def test_every_rpc_is_covered_by_this_suite() -> None:
    # A service added to protos/ must be added to SERVICES.
    root = next(parent for parent in Path(__file__).parents if (parent / "protos").is_dir())
    declared = {
        line.split()[1] for path in root.glob("protos/**/*.proto") for line in path.read_text("utf-8").splitlines()
        if line.startswith("service ")
    }  # fmt: skip
    assert declared == {service.name for services in SERVICES.values() for service in services}
