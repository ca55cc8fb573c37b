"""Commands of the leading herder that do not concern running units, and requests of callers of `WorkerService`.

Owns the commands in progress and nothing else. Each runs in threads and ends in one reply, also when authors' code
raises. Invariant: no command changes the units that the worker holds.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Final, assert_never

import structlog

from herdmesh.api.common.v1 import connector_pb2, offsets_pb2
from herdmesh.api.herder.v1 import offset_messages_pb2 as offset_pb2
from herdmesh.api.herder.v1 import worker_session_service_pb2 as session_pb2
from herdmesh.api.worker.v1 import worker_service_pb2
from herdmesh.connect.error_class import ErrorClass
from herdmesh.engine.runtime import Properties, TaskFailed, classify
from herdmesh.rpc import properties
from herdmesh.rpc.properties import texts
from herdmesh.session import wire as session_wire
from herdmesh.session import worker_commands
from herdmesh.session.model import Failure
from herdmesh.worker.effects.dead_letters import DeadLetters
from herdmesh.worker.effects.offsets import Offsets, OffsetsResult, OutcomeUnknown, Prepared
from herdmesh.worker.effects.plugins import Plugins, planned_task_configs, validate
from herdmesh.worker.effects.runs import RunSpecs, fence
from herdmesh.worker.run import Loggers
from herdmesh.worker.settings import WorkerSettings
from herdmesh.worker.threads import in_thread

_PLAN_TIMEOUT_S: Final = 10.0
_log: structlog.stdlib.BoundLogger = structlog.get_logger(__name__)


class Commands:
    """Executes commands of the session and requests of `WorkerService`."""

    def __init__(
        self,
        settings: WorkerSettings,
        specs: RunSpecs,
        plugins: Plugins,
        loggers: Loggers,
        offsets: Offsets,
        dead_letters: DeadLetters,
    ) -> None:
        self._settings = settings
        self._specs = specs
        self._plugins = plugins
        self._loggers = loggers
        self._offsets = offsets
        self._dead_letters = dead_letters
        self._tasks: set[asyncio.Task[None]] = set()

    def execute(
        self,
        command_id: str,
        question: worker_commands.WorkerCommand,
        send: Callable[[session_pb2.SessionRequest], None],
    ) -> None:
        """Execute the command, then send the reply; without a `command_id` no reply is sent."""
        self._spawn(self._execute(command_id, question, send))

    async def fence_tasks(self, connector: str, task_count: int) -> None:
        """Initialise the ids of tasks 0 to task_count - 1. Raises KafkaException."""
        ids = [self._specs.transactional_id(connector, task) for task in range(task_count)]
        await fence(self._settings.bootstrap_servers, self._settings.access(), ids)

    async def validated(self, config: Properties, *, verdict_only: bool = False) -> worker_service_pb2.ConfigValidation:
        """All errors of the config; with `verdict_only`, without the fields that have none. Raises any error of the
        author's code.
        """
        worker = self._settings.worker_config()

        def validated() -> worker_service_pb2.ConfigValidation:
            self._plugins.catch_up(config, worker)
            return validate(config, self._specs.plugins, worker, self._specs.providers, verdict_only=verdict_only)

        return await in_thread("validation", validated)

    async def close(self) -> None:
        """Cancel the commands in progress."""
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _execute(
        self,
        command_id: str,
        question: worker_commands.WorkerCommand,
        send: Callable[[session_pb2.SessionRequest], None],
    ) -> None:
        try:
            reply = await self._reply(question)
        except Exception as error:  # noqa: BLE001 - an author's code may raise anything
            reply = session_pb2.CommandReply(failure=session_wire.failure_to(Failure(*classify(error))))
            if isinstance(error, OutcomeUnknown):
                reply.offsets.uncertain = True
        if command_id:
            reply.command_id = command_id
            send(session_pb2.SessionRequest(reply=reply))

    async def _reply(self, question: worker_commands.WorkerCommand) -> session_pb2.CommandReply:
        match question:
            case worker_commands.FenceTasks(connector=connector, task_count=task_count):
                await self.fence_tasks(connector, task_count)
                return session_pb2.CommandReply()
            case worker_commands.ValidateOnWorker(config=config, verdict_only=verdict_only):
                validation = await self.validated(texts(config), verdict_only=verdict_only)
                return session_pb2.CommandReply(validation=validation)
            case worker_commands.DescribePlugin(class_name=class_name):
                fields = await in_thread("description", lambda: self._plugins.fields(class_name))
                return session_pb2.CommandReply(plugin_fields=fields)
            case worker_commands.ListLoggers(logger=logger):
                return session_pb2.CommandReply(loggers=self._loggers.listed(logger))
            case worker_commands.SetLogger(logger=logger, level=level):
                changed = self._loggers.carry_out(question)
                _log.info("logger_level", logger=logger, level=level, changed=len(changed))
                return session_pb2.CommandReply(loggers=changed)
            case worker_commands.ReadOffsets():
                return _offsets_reply(await self._offsets.read(question))
            case worker_commands.AlterOffsets():
                return _offsets_reply(await self._offsets.alter(question))
            case worker_commands.PlanTaskConfigs(config=config, tasks_max=tasks_max):
                return session_pb2.CommandReply(tasks=await self._planned(texts(config), tasks_max))
            case worker_commands.ListDeadLettersOnWorker():
                return session_pb2.CommandReply(dead_letters=await self._dead_letters.listed(question))
            case worker_commands.ReplayOnWorker():
                return session_pb2.CommandReply(dead_letters_replayed=await self._dead_letters.replayed(question))
            case worker_commands.SetDraining():
                raise AssertionError("the state answers it")
            case _:
                assert_never(question)

    async def _planned(self, config: Properties, tasks_max: int) -> list[connector_pb2.Properties]:
        try:
            async with asyncio.timeout(_PLAN_TIMEOUT_S):
                made = await in_thread("plan", lambda: planned_task_configs(self._specs, config, tasks_max))
        except TimeoutError:
            raise TaskFailed(
                f"the connector did not make task configs within {_PLAN_TIMEOUT_S:.0f} s", ErrorClass.RETRIABLE
            ) from None
        return [properties.to_proto(one) for one in made]


def _offsets_reply(told: OffsetsResult) -> session_pb2.CommandReply:
    entries = [
        offset_pb2.OffsetEntry(partition_json=partition, offset_json=offset) for partition, offset in told.offsets
    ]
    prepared = None if told.prepared is None else _prepared(told.prepared)
    reply = session_pb2.OffsetsReply(offsets=entries, message=told.message, prepared=prepared)
    return session_pb2.CommandReply(offsets=reply)


def _prepared(prepared: Prepared) -> offsets_pb2.PreparedOffsets:
    return offsets_pb2.PreparedOffsets(
        records=[offsets_pb2.OffsetRecord(topic=topic, key=key, value=value) for topic, key, value in prepared.records],
        group=prepared.group,
        group_offsets=[
            offsets_pb2.GroupOffset(topic=topic, partition=partition, offset=offset, metadata=metadata)
            for topic, partition, offset, metadata in prepared.group_offsets
        ],
    )
