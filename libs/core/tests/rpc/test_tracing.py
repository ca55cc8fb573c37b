"""Tracing: off and not loaded by default; calls and errors are the same when it is on."""

from __future__ import annotations

import asyncio
import os
import sys

from herdmesh.rpc.monitoring import tracing

_CALLS = """
import asyncio
from herdmesh.api.configstore.v1 import leadership_service_pb2 as pb2, leadership_service_pb2_grpc as grpc_
from herdmesh.rpc import errors
from herdmesh.rpc.client import connect
from herdmesh.rpc.server import Server, ServiceRegistration

class Servicer(grpc_.LeadershipServiceServicer):
    async def Campaign(self, request_iterator, context):
        async for _ in request_iterator:
            yield pb2.CampaignResponse()
            raise errors.StaleEpoch("over")

async def main():
    name = "herdmesh.api.configstore.v1.LeadershipService"
    add = grpc_.add_LeadershipServiceServicer_to_server
    server = Server("127.0.0.1:0", [ServiceRegistration(Servicer(), add, name)], metrics=False)
    async with connect(f"127.0.0.1:{await server.start()}") as channel:
        call = grpc_.LeadershipServiceStub(channel).Campaign()
        await call.write(pb2.CampaignRequest())
        await call.read()
        try:
            await call.read()
        except errors.StaleEpoch as error:
            print("stream:", error)
        try:
            await grpc_.LeadershipServiceStub(channel).Resign(pb2.ResignRequest())
        except errors.NotBuilt as error:
            print("unary:", error)
    await server.stop(0)

asyncio.run(main())
"""
_LOADED = "import sys, herdmesh.rpc.client; print([name for name in sys.modules if name.startswith('opentelemetry')])"


async def _run(code: str, **env: str) -> str:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", code, stdout=asyncio.subprocess.PIPE, env={**os.environ, **env}
    )
    output, _ = await asyncio.wait_for(process.communicate(), 60)
    return output.decode()


async def test_a_client_without_tracing_loads_no_opentelemetry() -> None:
    assert await _run(_LOADED) == "[]\n"


async def test_calls_and_errors_are_the_same_while_traced() -> None:
    traced = {tracing.TRACING_ENV: "http://127.0.0.1:1", "OTEL_BSP_EXPORT_TIMEOUT": "100"}
    output = await _run(_CALLS, **traced, OTEL_EXPORTER_OTLP_TIMEOUT="0.2")
    stream, unary = output.splitlines()[-2:]
    assert stream == "stream: over"
    assert unary.startswith("unary: herdmesh.api.configstore.v1.LeadershipService/Resign is part of the contract")


def test_a_process_without_tracing_passes_the_trace_context_on() -> None:
    given = tracing.new_traceparent()
    assert tracing.is_traceparent(given)
    assert tracing.current((("herdmesh-caller", "me"), ("traceparent", given))) == given
    for bad in ("", "00-0-0-01", f"00-{'0' * 32}-{'1' * 16}-01", f"{given}-more", given.upper()):
        assert tracing.current((("traceparent", bad),)) == "", bad
    with tracing.within(given):
        assert tracing.current() == ""
