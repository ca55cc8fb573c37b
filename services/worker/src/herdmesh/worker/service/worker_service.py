"""`worker.v1.WorkerService`: held tasks, plugins, validation and fencing. Owns no state; queries the loop and the
effects.
"""

from __future__ import annotations

from typing import Any

import grpc.aio

from herdmesh.api.worker.v1 import worker_service_pb2, worker_service_pb2_grpc
from herdmesh.rpc import properties
from herdmesh.rpc.errors import RequestInvalid
from herdmesh.session import wire as session_wire
from herdmesh.session.model import UnitId
from herdmesh.worker import wire
from herdmesh.worker.effects.plugins import Plugins
from herdmesh.worker.effects.stores import Commands
from herdmesh.worker.loop import WorkerLoop

_Context = grpc.aio.ServicerContext[Any, Any]


class WorkerServicer(worker_service_pb2_grpc.WorkerServiceServicer):
    """Serves `WorkerService`."""

    def __init__(self, loop: WorkerLoop, commands: Commands, plugins: Plugins) -> None:
        self._loop = loop
        self._commands = commands
        self._plugins = plugins

    async def ListTasks(
        self, request: worker_service_pb2.ListTasksRequest, context: _Context
    ) -> worker_service_pb2.ListTasksResponse:
        """The held tasks, each with its number of starts on this worker."""
        tasks = [
            worker_service_pb2.HeldTask(
                task=wire.task_id_to(task.unit),
                state=session_wire.RUN_STATES.to_wire(task.state),
                generation=task.assignment.generation,
                start_count=self._loop.start_count(task.unit),
                progress=wire.task_progress_to(task),
            )
            for task in self._loop.tasks()
        ]
        return worker_service_pb2.ListTasksResponse(tasks=tasks, connectors=self._loop.connectors())

    async def GetTaskProgress(
        self, request: worker_service_pb2.GetTaskProgressRequest, context: _Context
    ) -> worker_service_pb2.GetTaskProgressResponse:
        """Progress of tasks."""
        wanted = {UnitId(one.connector, one.task) for one in request.tasks}
        found = [wire.task_progress_to(task) for task in self._loop.tasks() if not wanted or task.unit in wanted]
        return worker_service_pb2.GetTaskProgressResponse(tasks=found)

    async def ValidateConfig(
        self, request: worker_service_pb2.ValidateConfigRequest, context: _Context
    ) -> worker_service_pb2.ValidateConfigResponse:
        """Connect's validation result; errors of the config are data, not an error of the call."""
        validation = await self._commands.validated(properties.texts(properties.from_proto(request.config)))
        return worker_service_pb2.ValidateConfigResponse(validation=validation)

    async def ListPlugins(
        self, request: worker_service_pb2.ListPluginsRequest, context: _Context
    ) -> worker_service_pb2.ListPluginsResponse:
        """The plugins this worker can load."""
        return worker_service_pb2.ListPluginsResponse(plugins=self._plugins.all(), refused=self._plugins.refused())

    async def FenceTasks(
        self, request: worker_service_pb2.FenceTasksRequest, context: _Context
    ) -> worker_service_pb2.FenceTasksResponse:
        """Returns when every earlier owner of the tasks is fenced."""
        if not request.connector:
            raise RequestInvalid("no connector is named", "connector")
        if request.task_count < 0:
            raise RequestInvalid("task_count is negative", "task_count")
        await self._commands.fence_tasks(request.connector, request.task_count)
        return worker_service_pb2.FenceTasksResponse()

    async def Drain(
        self, request: worker_service_pb2.DrainRequest, context: _Context
    ) -> worker_service_pb2.DrainResponse:
        """Returns when no unit is held any more."""
        await self._loop.drain()
        return worker_service_pb2.DrainResponse()
