"""Answering what the leading herder asks besides running units, and the same for callers of `WorkerService`.

Owns the answers under way and nothing else; each is found in threads and ends in one reply, also when authors' code
raises. Invariant: no answer changes anything of what the worker holds.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

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
from herdmesh.worker.state import questions
from herdmesh.worker.state.model import Failure


class Commands:
    """Answers questions of the session and of `WorkerService`."""

    def __init__(self, settings: WorkerSettings, specs: RunSpecs) -> None:
        self._settings = settings
        self._specs = specs
        self._tasks: set[asyncio.Task[None]] = set()

    def answer(
        self, command_id: str, question: questions.Question, send: Callable[[session_pb2.SessionRequest], None]
    ) -> None:
        """Find the answer, then send it; without a `command_id` only do what was asked."""
        self._spawn(self._answer(command_id, question, send))

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

    async def _answer(
        self, command_id: str, question: questions.Question, send: Callable[[session_pb2.SessionRequest], None]
    ) -> None:
        try:
            reply = await self._reply(question)
        except Exception as error:  # noqa: BLE001 - an author's code may raise anything
            reply = session_pb2.CommandReply(failure=wire.failure_to(Failure(*classify(error))))
        if command_id:
            reply.command_id = command_id
            send(session_pb2.SessionRequest(reply=reply))

    async def _reply(self, question: questions.Question) -> session_pb2.CommandReply:
        match question:
            case questions.FenceIds(connector=connector, task_count=task_count):
                await self.fence_tasks(connector, task_count)
                return session_pb2.CommandReply()
            case questions.ValidateConfig(config=config):
                return session_pb2.CommandReply(validation=await self.validated(config))
            case _:
                raise ValueError(f"this worker cannot answer {question}")
