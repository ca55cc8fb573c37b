"""Commands that are not about one unit: fencing task ids and validating configs, for the herder and for others.

Owns the calls under way and nothing else; each runs in threads and ends in a reply.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from confluent_kafka import KafkaException

from herdmesh.api.herder.v1 import worker_session_service_pb2 as session_pb2
from herdmesh.api.worker.v1 import worker_service_pb2
from herdmesh.engine.contract import Properties
from herdmesh.engine.failure import classify
from herdmesh.worker import wire
from herdmesh.worker.effects.fence import fence
from herdmesh.worker.effects.specs import RunSpecs
from herdmesh.worker.effects.threads import in_thread
from herdmesh.worker.effects.validation import validate
from herdmesh.worker.settings import WorkerSettings
from herdmesh.worker.state import events, instructions
from herdmesh.worker.state.model import Failure


class Commands:
    """Carries out commands of the session and of `WorkerService`."""

    def __init__(
        self, settings: WorkerSettings, specs: RunSpecs, emit: Callable[[events.Event], Awaitable[None]]
    ) -> None:
        self._settings = settings
        self._specs = specs
        self._emit = emit
        self._tasks: set[asyncio.Task[None]] = set()

    def fence(self, instruction: instructions.FenceIds) -> None:
        """Fence, then CommandDone."""
        self._spawn(self._fence(instruction))

    def validate(
        self, instruction: instructions.ValidateConfig, send: Callable[[session_pb2.SessionRequest], None]
    ) -> None:
        """Validate, then send the reply."""
        self._spawn(self._validate(instruction, send))

    async def fence_tasks(self, connector: str, task_count: int) -> None:
        """Initialise the ids of tasks 0 to task_count - 1. Raises KafkaException."""
        ids = [self._specs.transactional_id(connector, task) for task in range(task_count)]
        await fence(self._settings.bootstrap_servers, ids)

    async def validated(self, config: Properties) -> worker_service_pb2.ConfigValidation:
        """Everything wrong with the config. Raises what the author's code raises."""
        worker = self._settings.worker_config()
        return await in_thread("validation", lambda: validate(config, self._specs.plugins, worker))

    async def close(self) -> None:
        """Stop waiting for what is under way."""
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _fence(self, instruction: instructions.FenceIds) -> None:
        failure: Failure | None = None
        try:
            await self.fence_tasks(instruction.connector, instruction.task_count)
        except KafkaException as error:
            failure = Failure(*classify(error))
        await self._emit(events.CommandDone(instruction.command_id, failure))

    async def _validate(
        self, instruction: instructions.ValidateConfig, send: Callable[[session_pb2.SessionRequest], None]
    ) -> None:
        command_id = instruction.command_id
        try:
            validation = await self.validated(instruction.config)
            reply = session_pb2.CommandReply(command_id=command_id, validation=validation)
        except Exception as error:  # noqa: BLE001 - an author's validate may raise anything
            failure = wire.failure_to(Failure(*classify(error)))
            reply = session_pb2.CommandReply(command_id=command_id, failure=failure)
        send(session_pb2.SessionRequest(reply=reply))
