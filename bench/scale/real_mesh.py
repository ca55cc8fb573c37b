"""A mesh of real processes: a broker, two replicas of each store, two herders and two workers with Spark.

Owns the queries and changes of it: the leader, the writing replica, the place of each unit, `kill -9`. Invariant:
processes are ended by their own ids.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc.aio
import psutil

from bench.usage import memory_mb
from herdmesh.api.common.v1 import store_pb2
from herdmesh.api.configstore.v1 import config_read_service_pb2 as config_pb
from herdmesh.api.configstore.v1.config_read_service_pb2_grpc import ConfigReadServiceStub as ConfigReads
from herdmesh.api.herder.v1 import admin_messages_pb2 as admin_pb
from herdmesh.api.herder.v1 import config_messages_pb2 as pb
from herdmesh.api.herder.v1.connector_service_pb2_grpc import ConnectorServiceStub
from herdmesh.api.statusstore.v1 import status_read_service_pb2 as status_pb
from herdmesh.api.statusstore.v1.status_read_service_pb2_grpc import StatusReadServiceStub as StatusReads
from herdmesh.devstack.stack import Stack, StackSettings
from herdmesh.rpc.client import connect
from herdmesh.rpc.errors import HerdmeshError
from herdmesh.rpc.request_ids import new_request_id

HERDERS = ("herder", "herder-2")
KINDS = ("config-store", "status-store", "herder", "worker")

#: a connector, or (with a number) one of its tasks.
Unit = tuple[str, int | None]


class RealMesh:
    """A stack, and the logs of its herders."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._settings = StackSettings(folder, workers=2, herders=2, store_replicas=2, usual_ports=False)
        self.stack = Stack(self._settings)
        self._read: dict[Path, int] = {}

    async def start(self) -> None:
        await self.stack.start(300)

    async def again(self, service_env: Mapping[str, str]) -> None:
        """Start a new stack on the same data, with more settings."""
        self.stack = Stack(replace(self._settings, service_env=service_env))
        await self.stack.start(300)

    async def drain(self, worker_id: str) -> None:
        """Have the leader move all units off a worker."""
        channel = connect(await self.leader_address())
        request = admin_pb.DrainWorkerRequest(request_id=new_request_id(), worker_id=worker_id)
        await ConnectorServiceStub(channel).DrainWorker(request, timeout=60)
        await channel.close()

    async def undrain(self, worker_id: str) -> None:
        """Let a drained worker take units again."""
        channel = connect(await self.leader_address())
        request = admin_pb.UndrainWorkerRequest(request_id=new_request_id(), worker_id=worker_id)
        await ConnectorServiceStub(channel).UndrainWorker(request, timeout=60)
        await channel.close()

    def news(self) -> list[dict[str, Any]]:
        """The herders' start and stop commands to workers since the last call."""
        found: list[dict[str, Any]] = []
        for log in sorted((self._folder / "logs").glob("herder*.log")):
            text = log.read_bytes()
            end = text.rfind(b"\n") + 1
            lines = text[self._read.get(log, 0) : end].decode(errors="replace").splitlines()
            self._read[log] = end
            found += [json.loads(line) for line in lines if '"start_unit"' in line or '"stop_unit"' in line]
        return found

    async def shown(self) -> dict[Unit, tuple[int, str]]:
        """State and worker of every unit, from the leader; empty while no herder leads."""
        for address in self.stack.addresses("herder"):
            channel = connect(address)
            try:
                return await _shown(channel)
            except HerdmeshError:
                continue
            finally:
                await channel.close()
        return {}

    async def leader(self) -> str:
        """The name of the process that leads."""
        addresses = self.stack.addresses("herder")
        for name, address in zip(HERDERS, addresses, strict=True):
            channel = connect(address)
            try:
                cluster = await ConnectorServiceStub(channel).GetCluster(admin_pb.GetClusterRequest(), timeout=10)
                if cluster.epoch and cluster.leader_address == address:
                    return name
            except HerdmeshError:
                continue
            finally:
                await channel.close()
        raise RuntimeError("no herder leads")

    async def leader_address(self) -> str:
        """The address at which the leader listens."""
        return self.stack.addresses("herder")[HERDERS.index(await self.leader())]

    def worker_name(self, worker_id: str) -> str:
        """The name of the process with that worker id, which is its address."""
        return f"worker-{list(self.stack.addresses('worker')).index(worker_id) + 1}"

    async def writer(self, store: str) -> str:
        """The name of the writing replica of a store; empty while none writes."""
        replicas = [name for name in self.stack.processes if name.startswith(store)]
        for name, address in zip(replicas, self.stack.addresses(store), strict=True):
            channel = connect(address)
            try:
                if store == "config-store":
                    asked = ConfigReads(channel).GetStoreStatus(config_pb.GetStoreStatusRequest(), timeout=2)
                else:
                    asked = StatusReads(channel).GetStoreStatus(status_pb.GetStoreStatusRequest(), timeout=2)
                if (await asked).status.role == store_pb2.STORE_ROLE_WRITER:
                    return name
            except HerdmeshError:
                continue  # it was killed and has not restarted yet
            finally:
                await channel.close()
        return ""

    def pid(self, name: str) -> int:
        """The process that has that name now; 0 = it is restarting."""
        mark = self.stack.processes[name].mark
        return mark.pid if mark is not None else 0

    def terminate(self, name: str) -> None:
        """Send SIGTERM; the supervisor starts the process again, as after a crash."""
        psutil.Process(self.pid(name)).terminate()

    def kill(self, name: str) -> None:
        """Send kill -9; the supervisor starts the process again."""
        psutil.Process(self.pid(name)).kill()

    def usage(self) -> dict[str, float]:
        """Memory and threads of the largest process of each kind; for a worker its own, its JVM's, and those of its
        runs.
        """
        found: dict[str, float] = {}

        def most(figure: str, value: float) -> None:
            found[figure] = max(found.get(figure, 0.0), value)

        for name, process in self.stack.processes.items():
            if process.mark is None:
                continue
            one = psutil.Process(process.mark.pid)
            kind = next(kind for kind in KINDS if name.startswith(kind)).replace("-", " ")
            most(f"{kind}: memory, MB", memory_mb([one]))
            most(f"{kind}: threads", one.num_threads())
            if kind == "worker":
                below = one.children(recursive=True)
                jvms = [child for child in below if child.name() == "java"]
                most("worker's JVM: memory, MB", memory_mb(jvms))
                most("worker's JVM: threads", sum(jvm.num_threads() for jvm in jvms))
                most("worker's runs: memory, MB", memory_mb([child for child in below if child not in jvms]))
                most("worker's runs: processes", len(below) - len(jvms))
        return found


async def _shown(channel: grpc.aio.Channel) -> dict[Unit, tuple[int, str]]:
    found: dict[Unit, tuple[int, str]] = {}
    token = ""
    while True:
        request = pb.ListConnectorsRequest(view=pb.CONNECTOR_VIEW_STATUS, page_token=token)
        page = await ConnectorServiceStub(channel).ListConnectors(request, timeout=30)
        for one in page.connectors:
            found[one.name, None] = (one.status.state, one.status.worker_id)
            for task in one.tasks:
                found[one.name, task.id.task] = (task.status.state, task.status.worker_id)
        token = page.next_page_token
        if not token:
            return found
