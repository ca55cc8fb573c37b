"""Users who keep creating, changing and deleting connectors during faults, and remember the acknowledged changes.

All connectors are STOPPED: they have no tasks, so no task of another connector is moved for them (an instance may be).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

from herdmesh.api.common.v1 import connector_pb2 as common
from herdmesh.api.herder.v1 import config_messages_pb2 as messages
from herdmesh.cli.batch.connector_files import to_properties
from herdmesh.cli.display import views
from herdmesh.cli.errors import CommandError
from herdmesh.rpc.request_ids import new_request_id
from tests.support.mesh import Mesh

_COUNTER = "herdmesh.test.counter"
_PATCHES = 3
_KEPT_ONE_OF = 20
_LIVES_PAUSE_S = 1.0
#: A write costs broker, stores and herders some 40 ms of processor time together: two a second leave the cores to
#: recovering processes, and during an outage one is always in flight.
_CONTROL_PAUSE_S = 0.5


class ControlWriter:
    """Updates one STOPPED connector (it has no tasks to disturb) in a loop; each update carries the next number."""

    def __init__(self, mesh: Mesh, name: str) -> None:
        self.name = name
        self.tried = 0
        self.acknowledged = 0
        self._mesh = mesh
        self._over = asyncio.Event()
        self._writing: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        request = messages.CreateConnectorRequest(
            request_id=new_request_id(),
            name=self.name,
            config=to_properties(_config(0)),
            initial_state=common.TARGET_STATE_STOPPED,
        )
        await self._mesh.client.call(lambda stub: stub.CreateConnector, request)
        self._writing = asyncio.create_task(self._write())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        await _end(self._writing)

    async def assert_nothing_lost(self) -> None:
        """The stored number is at least the last acknowledged one, and one that was really sent."""
        stored = int((await self._mesh.get(self.name))["config"][_COUNTER])
        assert self.acknowledged > 0, "no control write was ever acknowledged"
        assert self.acknowledged <= stored <= self.tried

    async def _write(self) -> None:
        while not self._over.is_set():
            self.tried += 1
            request = messages.UpdateConnectorRequest(
                request_id=new_request_id(), name=self.name, config=to_properties(_config(self.tried))
            )
            try:
                await self._mesh.client.call(lambda stub: stub.UpdateConnector, request, timeout_s=20)
                self.acknowledged = self.tried
            except CommandError as error:
                # refused or unknown during a fault; anything else is a defect
                if error.reason in ("INTERNAL", "CONFIG_INVALID"):
                    raise
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._over.wait(), _CONTROL_PAUSE_S)


@dataclass
class _Life:
    """One connector; None = the outcome is unknown."""

    name: str
    exists: bool | None = None
    patched: int = 0
    patch_tried: int = 0


class LivesWriter:
    """Creates connectors, patches each some times and deletes it, except one in twenty, one after the other."""

    def __init__(self, mesh: Mesh) -> None:
        self.acknowledged = 0
        self._mesh = mesh
        self._lives: list[_Life] = []
        self._broken: list[str] = []
        self._over = asyncio.Event()
        self._writing: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._writing = asyncio.create_task(self._write())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        await _end(self._writing)

    async def assert_nothing_lost(self) -> None:
        """Created connectors exist with their last patch, deleted ones do not; connectors of unknown outcome may do
        either.
        """
        assert not self._broken, self._broken[:3]
        reply = await self._mesh.client.call(lambda stub: stub.ListConnectors, messages.ListConnectorsRequest())
        stored = {one["name"]: one["config"] for one in map(views.connector, reply.connectors)}
        for life in self._lives:
            there = stored.get(life.name)
            assert life.exists is None or life.exists == (there is not None), (life, there)
            if there is not None:
                assert life.patched <= int(there[_COUNTER] or 0) <= life.patch_tried, (life, there)
        assert self.acknowledged > 0, "no life was ever acknowledged"

    async def _write(self) -> None:
        while not self._over.is_set():
            life = _Life(f"life-{len(self._lives)}")
            self._lives.append(life)
            create = messages.CreateConnectorRequest(
                request_id=new_request_id(),
                name=life.name,
                config=to_properties(_config(0)),
                initial_state=common.TARGET_STATE_STOPPED,
            )
            life.exists = await self._try(life, lambda stub: stub.CreateConnector, create) or None
            for number in range(1, _PATCHES + 1):
                life.patch_tried = number
                patch = messages.PatchConnectorRequest(
                    request_id=new_request_id(), name=life.name, patch=to_properties({_COUNTER: str(number)})
                )
                if await self._try(life, lambda stub: stub.PatchConnector, patch):
                    life.exists, life.patched = True, number
            if len(self._lives) % _KEPT_ONE_OF:
                exists, life.exists = life.exists, None
                delete = messages.DeleteConnectorRequest(request_id=new_request_id(), name=life.name)
                if await self._try(life, lambda stub: stub.DeleteConnector, delete, exists):
                    life.exists = False
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._over.wait(), _LIVES_PAUSE_S)

    async def _try(self, life: _Life, method: Callable[[Any], Any], request: Any, exists: bool | None = None) -> bool:
        """True when it is acknowledged."""
        exists = exists if exists is not None else life.exists
        try:
            await self._mesh.client.call(method, request, timeout_s=20)
        except CommandError as error:
            if error.reason in ("INTERNAL", "CONFIG_INVALID", "CONNECTOR_EXISTS"):
                raise
            if error.reason == "CONNECTOR_NOT_FOUND" and exists:
                self._broken.append(f"{life.name} was created and is not found: {error.message}")
            return False
        self.acknowledged += 1
        return True


async def _end(writing: asyncio.Task[None] | None) -> None:
    """Stop writing. Raises the writer's error."""
    assert writing is not None
    writing.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await writing


def _config(number: int) -> dict[str, str]:
    return {
        "connector.class": "FileStreamSink",
        "tasks.max": "1",
        "topics": "nowhere",
        "file": "nowhere.txt",
        _COUNTER: str(number),
    }
