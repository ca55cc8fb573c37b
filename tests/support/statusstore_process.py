"""A status store in a process of its own, for tests that kill or stop one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import grpc.aio

from herdmesh.api.statusstore.v1 import status_read_service_pb2_grpc, status_write_service_pb2_grpc
from tests.support.store_process import StoreProcess


class StatusStoreProcess(StoreProcess):
    """`python -m herdmesh.statusstore` on a free port, with stubs to it. `group_id` is the topic's name by default;
    `more` are further flags, which win over these."""

    module = "herdmesh.statusstore"
    read_service = "herdmesh.api.statusstore.v1.StatusReadService"
    write_service = "herdmesh.api.statusstore.v1.StatusWriteService"

    def __init__(
        self,
        bootstrap: str,
        topic: str,
        log_path: Path,
        *,
        group_id: str = "",
        more: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
    ) -> None:
        arguments = [
            f"--bootstrap-servers={bootstrap}",
            f"--status-storage-topic={topic}",
            f"--group-id={group_id or topic}",
            "--status-storage-replication-factor=1",
            *more,
        ]
        super().__init__(arguments, log_path, environment)

    def stub(self, channel: grpc.aio.Channel) -> None:
        self.write = status_write_service_pb2_grpc.StatusWriteServiceStub(channel)
        self.read = status_read_service_pb2_grpc.StatusReadServiceStub(channel)
