"""A config store in a process of its own, for tests that kill or stop one.

Owns the process and its log. Waits on what the process says (its log, its health), never on time.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

from grpc_health.v1 import health_pb2, health_pb2_grpc

from herdmesh.api.configstore.v1 import (
    config_read_service_pb2,
    config_read_service_pb2_grpc,
    config_write_service_pb2,
    config_write_service_pb2_grpc,
    leadership_service_pb2_grpc,
)
from herdmesh.configstore.service.roles import READ_SERVICE, WRITE_SERVICE
from herdmesh.rpc import properties
from herdmesh.rpc.client import connect
from herdmesh.rpc.errors import Unreachable

_START_S = 20.0
_SERVE_S = 30.0

_Read, _Write = config_read_service_pb2, config_write_service_pb2
WriteResponse = config_write_service_pb2.PutConnectorConfigResponse


class ConfigStoreProcess:
    """`python -m herdmesh.configstore` on a free port, with stubs to it."""

    def __init__(self, bootstrap: str, topic: str, log_path: Path) -> None:
        self._arguments = [
            "--listen=127.0.0.1:0",
            f"--bootstrap-servers={bootstrap}",
            f"--config-storage-topic={topic}",
            f"--group-id={topic}",
            "--config-storage-replication-factor=1",
            "--metrics=false",
        ]
        self._log_path = log_path
        self._process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        """Spawn it and wait until it answers health."""
        command = [sys.executable, "-m", "herdmesh.configstore", *self._arguments]
        self._process = await asyncio.create_subprocess_exec(
            *command, stdin=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.PIPE
        )
        address: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._reading = asyncio.create_task(self._read_log(address))
        async with asyncio.timeout(_START_S):
            self.address = await address
        self.channel = connect(self.address)
        self.write = config_write_service_pb2_grpc.ConfigWriteServiceStub(self.channel)
        self.read = config_read_service_pb2_grpc.ConfigReadServiceStub(self.channel)
        self.lead = leadership_service_pb2_grpc.LeadershipServiceStub(self.channel)
        self._health: Any = health_pb2_grpc.HealthStub(self.channel)  # its generated stub declares no methods

    async def until_reading(self) -> None:
        """Until it has replayed its topic."""
        await self._until(READ_SERVICE, serving=True)

    async def until_writing(self) -> None:
        """Until it is the writer."""
        await self._until(WRITE_SERVICE, serving=True)

    async def until_not_writing(self) -> None:
        """Until it says that it is not the writer."""
        await self._until(WRITE_SERVICE, serving=False)

    def signal(self, number: signal.Signals) -> None:
        """Send a signal."""
        assert self._process is not None
        os.kill(self._process.pid, number)

    async def kill(self) -> None:
        """SIGKILL, and wait until it is gone. Safe to call again."""
        assert self._process is not None
        if self._process.returncode is None:
            self._process.kill()
        await self._process.wait()
        await self._reading
        await self.channel.close()

    async def stop(self) -> int:
        """SIGTERM; returns the exit code."""
        assert self._process is not None
        self._process.terminate()
        code = await self._process.wait()
        await self.kill()
        return code

    async def put(
        self,
        name: str,
        config: dict[str, str],
        *,
        must_not_exist: bool = False,
        must_exist: bool = False,
        request_id: str = "",
    ) -> WriteResponse:
        """Write a config."""
        return await self.write.PutConnectorConfig(
            _Write.PutConnectorConfigRequest(
                options=_Write.WriteOptions(request_id=request_id),
                connector=name,
                config=properties.to_proto(config),
                must_not_exist=must_not_exist,
                must_exist=must_exist,
            )
        )

    async def configs(self) -> dict[str, dict[str, properties.PropertyValue]]:
        """Every connector's config, read to the end of the topic."""
        answer = await self.read.GetSnapshot(_Read.GetSnapshotRequest(linearizable=True))
        return {entry.name: properties.from_proto(entry.config) for entry in answer.connectors if entry.has_config}

    async def _until(self, service: str, *, serving: bool) -> None:
        wanted = health_pb2.HealthCheckResponse.SERVING if serving else health_pb2.HealthCheckResponse.NOT_SERVING
        async with asyncio.timeout(_SERVE_S):
            while True:
                try:
                    async for answer in self._health.Watch(health_pb2.HealthCheckRequest(service=service)):
                        if answer.status == wanted:
                            return
                except Unreachable:
                    await asyncio.sleep(0.05)

    async def _read_log(self, address: asyncio.Future[str]) -> None:
        assert self._process is not None
        assert self._process.stderr is not None
        with self._log_path.open("ab") as log:
            while line := await self._process.stderr.readline():
                log.write(line)
                if b'"listening"' in line and not address.done():
                    address.set_result(json.loads(line)["address"])
        if not address.done():
            address.set_exception(RuntimeError(f"it ended; see {self._log_path}"))
