"""The status store as a process over a real broker: what was acknowledged survives kill -9."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from herdmesh.api.common.v1 import connector_pb2, identity_pb2
from herdmesh.api.statusstore.v1 import status_pb2
from herdmesh.api.statusstore.v1 import status_read_service_pb2 as read_pb2
from herdmesh.api.statusstore.v1 import status_read_service_pb2_grpc as read_grpc
from herdmesh.api.statusstore.v1 import status_write_service_pb2 as write_pb2
from herdmesh.api.statusstore.v1 import status_write_service_pb2_grpc as write_grpc
from herdmesh.rpc.client import connect, retrying
from herdmesh.statusstore.effects.relay import WRITE_SERVICE

pytestmark = pytest.mark.kafka
WORKER = identity_pb2.WorkerIdentity(worker_id="127.0.0.1:7204", incarnation="a")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@asynccontextmanager
async def _process(port: int, bootstrap: str, group: str) -> AsyncGenerator[asyncio.subprocess.Process]:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "herdmesh.statusstore",
        *("--listen", f"127.0.0.1:{port}", "--bootstrap-servers", bootstrap, "--group-id", group),
        *("--status-storage-topic", f"{group}-status", "--status-storage-replication-factor", "1", "--metrics=false"),
        env={**os.environ},
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.send_signal(signal.SIGKILL)
            await process.wait()


async def _writer(channel: Any) -> None:
    """Wait until the write service says SERVING; the health watch survives that nobody listens yet."""
    stub: Any = health_pb2_grpc.HealthStub(channel)

    async def watch() -> None:
        async for reply in stub.Watch(health_pb2.HealthCheckRequest(service=WRITE_SERVICE), wait_for_ready=True):
            if reply.status == health_pb2.HealthCheckResponse.SERVING:
                return

    await retrying(watch, deadline_s=45)


async def test_acknowledged_statuses_survive_kill_9(kafka_bootstrap: str, tmp_topic: Callable[..., str]) -> None:
    group, port = tmp_topic("group"), _free_port()
    async with connect(f"127.0.0.1:{port}") as channel:
        write, read = write_grpc.StatusWriteServiceStub(channel), read_grpc.StatusReadServiceStub(channel)

        async with _process(port, kafka_bootstrap, group) as first:
            await _writer(channel)
            statuses = [
                status_pb2.Status(connector="c", task=task, state=connector_pb2.RUN_STATE_RUNNING, generation=1)
                for task in range(20)
            ]
            puts = [write_pb2.StatusPut(status=status, mode=write_pb2.PUT_MODE_PUT) for status in statuses]
            reply = await write.PutStatuses(write_pb2.PutStatusesRequest(writer=WORKER, puts=puts), timeout=20)
            assert {outcome.result for outcome in reply.outcomes} == {write_pb2.PUT_RESULT_APPLIED}
            before = await read.GetStatus(read_pb2.GetStatusRequest(connector="c"), timeout=10)
            first.send_signal(signal.SIGKILL)
            await first.wait()

        async with _process(port, kafka_bootstrap, group) as second:
            await _writer(channel)
            after = await read.GetStatus(
                read_pb2.GetStatusRequest(connector="c", at_least=reply.meta.revision), timeout=20
            )
            assert list(after.tasks) == list(before.tasks)
            assert len(after.tasks) == 20
            # Nobody sent a heartbeat to the new writer yet: it granted one full lease.
            assert {task.effective_state for task in after.tasks} == {connector_pb2.RUN_STATE_RUNNING}
            second.send_signal(signal.SIGTERM)
            assert await asyncio.wait_for(second.wait(), 10) == 0
