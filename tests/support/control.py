"""A user who keeps changing a config while things die, and remembers what was acknowledged."""

from __future__ import annotations

import asyncio
import contextlib
from types import TracebackType
from typing import Self

from herdmesh.api.common.v1 import connector_pb2 as common
from herdmesh.api.herder.v1 import config_messages_pb2 as messages
from herdmesh.cli.commands.apply import to_properties
from herdmesh.cli.errors import CommandError
from herdmesh.rpc.request_ids import new_request_id
from tests.support.mesh import Mesh

_COUNTER = "herdmesh.test.counter"


class ControlWriter:
    """Updates one STOPPED connector (it has no tasks to disturb) in a loop; each update carries the next number."""

    def __init__(self, mesh: Mesh, name: str) -> None:
        self.name = name
        self.tried = 0
        self.acknowledged = 0
        self._mesh = mesh
        self._writing: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        request = messages.CreateConnectorRequest(
            request_id=new_request_id(),
            name=self.name,
            config=to_properties(self._config(0)),
            initial_state=common.TARGET_STATE_STOPPED,
        )
        await self._mesh.client.call(lambda stub: stub.CreateConnector, request)
        self._writing = asyncio.create_task(self._write())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._writing is not None
        self._writing.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._writing

    async def assert_nothing_lost(self) -> None:
        """The stored number is at least the last acknowledged one, and one that was really sent."""
        stored = int((await self._mesh.get(self.name))["config"][_COUNTER])
        assert self.acknowledged > 0, "no control write was ever acknowledged"
        assert self.acknowledged <= stored <= self.tried

    async def _write(self) -> None:
        while True:
            self.tried += 1
            request = messages.UpdateConnectorRequest(
                request_id=new_request_id(), name=self.name, config=to_properties(self._config(self.tried))
            )
            try:
                await self._mesh.client.call(lambda stub: stub.UpdateConnector, request, timeout_s=20)
                self.acknowledged = self.tried
            except CommandError as error:
                # refused or unknown while something is dead; anything else is a defect
                if error.reason in ("INTERNAL", "CONFIG_INVALID"):
                    raise
            await asyncio.sleep(0.05)

    def _config(self, number: int) -> dict[str, str]:
        return {
            "connector.class": "FileStreamSink",
            "tasks.max": "1",
            "topics": "nowhere",
            "file": "nowhere.txt",
            _COUNTER: str(number),
        }
