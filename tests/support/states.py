"""A user who keeps pausing, resuming, stopping and restarting one connector during faults, and remembers the
acknowledged changes.

Invariant: the change acknowledged last is the state the herder shows in the end, and each acknowledged change has its
effect before the next is requested. The connector has one task, so that no other task is moved when it comes and goes:
see `tests.chaos.run`.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from herdmesh.api.herder.v1 import config_messages_pb2 as configs
from herdmesh.api.herder.v1 import lifecycle_messages_pb2 as messages
from herdmesh.cli.batch.connector_files import to_properties
from herdmesh.cli.display import views
from herdmesh.cli.errors import CommandError
from herdmesh.rpc.request_ids import new_request_id
from tests.support.mesh import Mesh

#: Only to distinguish late from never: a round of faults, a broker that restarts, and a task that is started again
#: after both.
EFFECT_S = 180.0
#: Between two changes, most of which end or start a process.
_PAUSE_S = 0.5
_TARGETS = ("STARTED", "PAUSED", "STOPPED")
_SHOWN = {"STARTED": "RUNNING", "PAUSED": "PAUSED", "STOPPED": "STOPPED"}
_DEFECTS = ("INTERNAL", "CONFIG_INVALID", "CONNECTOR_NOT_FOUND", "NAME_INVALID", "REQUEST_INVALID")


class StateWriter:
    """`async with` during faults, then `rest`: nothing of it runs any more."""

    def __init__(self, mesh: Mesh, name: str, topic: str, file: Path, seed: int) -> None:
        self.name = name
        self.acknowledged = 0
        self._mesh, self._topic, self._file = mesh, topic, file
        self._draw = random.Random(seed)
        self._possible = {"STARTED"}
        """The acknowledged target state, and those requested since whose outcome is unknown."""
        self._was_stopped = False
        """It may have been stopped since it was STARTED last: then it has no task while it is PAUSED, as in Connect."""
        self._over = asyncio.Event()
        self._writing: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        config = {"connector.class": "FileStreamSink", "tasks.max": "1", "topics": self._topic}
        config["file"] = str(self._file)
        request = configs.CreateConnectorRequest(
            request_id=new_request_id(), name=self.name, config=to_properties(config)
        )
        await self._mesh.client.call(lambda stub: stub.CreateConnector, request)
        await self._until_in_effect(0)
        self._writing = asyncio.create_task(self._write())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._writing is not None
        self._over.set()
        self._writing.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._writing

    async def rest(self) -> None:
        """Stop it. Asserts that this change, too, has its effect."""
        assert self.acknowledged > 0, "no change of state was ever acknowledged"
        until_s = asyncio.get_running_loop().time() + EFFECT_S
        while not await self._set("STOPPED"):
            assert asyncio.get_running_loop().time() < until_s, f"{self.name} cannot be stopped"
            await asyncio.sleep(0.2)
        await self._until_in_effect(0)

    async def _write(self) -> None:
        while not self._over.is_set():
            above = 0
            if self._possible <= {"STARTED"} and self._draw.random() < 1 / 3:
                (task,) = (await self._until_in_effect(0))["tasks"]
                above = task["generation"] if await self._restart() else 0
            else:
                await self._set(self._draw.choice([one for one in _TARGETS if {one} != self._possible]))
            await self._until_in_effect(above)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._over.wait(), _PAUSE_S)

    async def _set(self, target: str) -> bool:
        """True when it is acknowledged."""
        request_id = new_request_id()
        self._possible.add(target)
        self._was_stopped |= target == "STOPPED"
        if target == "STARTED":
            resume = messages.ResumeConnectorRequest(request_id=request_id, name=self.name)
            done = await self._try(lambda stub: stub.ResumeConnector, resume)
        elif target == "PAUSED":
            pause = messages.PauseConnectorRequest(request_id=request_id, name=self.name)
            done = await self._try(lambda stub: stub.PauseConnector, pause)
        else:
            stop = messages.StopConnectorRequest(request_id=request_id, name=self.name)
            done = await self._try(lambda stub: stub.StopConnector, stop)
        if done:
            self._possible = {target}
        return done

    async def _restart(self) -> bool:
        """True when a restart of instance and task is acknowledged."""
        request = messages.RestartConnectorRequest(request_id=new_request_id(), name=self.name, include_tasks=True)
        return await self._try(lambda stub: stub.RestartConnector, request)

    async def _try(self, method: Callable[[Any], Any], request: Any) -> bool:
        try:
            await self._mesh.client.call(method, request, timeout_s=20)
        except CommandError as error:
            # refused or unknown during a fault; anything else is a defect
            if error.reason in _DEFECTS:
                raise
            return False
        self.acknowledged += 1
        return True

    async def _until_in_effect(self, above: int) -> views.Json:
        """The connector when a possible target state is shown with its effect; for a restarted task, with a generation
        above this one. Asserts that it comes.
        """
        loop = asyncio.get_running_loop()
        until_s = loop.time() + EFFECT_S
        shown: object = None
        while True:
            try:
                one = await self._mesh.get(self.name)
                shown = one["target_state"], one["connector"], one["tasks"]
                if one["target_state"] in self._possible and self._in_effect(one, above):
                    self._was_stopped &= one["target_state"] != "STARTED"
                    return one
            except CommandError as error:
                shown = error
            asked = f"{self.name}: {' or '.join(sorted(self._possible))}, generation above {above}"
            assert loop.time() < until_s, f"{asked}; not so after {EFFECT_S:g} s: {shown}"
            await asyncio.sleep(0.1)

    def _in_effect(self, one: views.Json, above: int) -> bool:
        target: str = one["target_state"]
        if one["connector"]["state"] != _SHOWN[target]:
            return False
        states = [task["state"] for task in one["tasks"]]
        if not states:
            return target == "STOPPED" or (target == "PAUSED" and self._was_stopped)
        return states == [_SHOWN[target]] and target != "STOPPED" and one["tasks"][0]["generation"] > above
