"""`worker.v1.WorkerService`: held tasks, plugins, validation, fencing, log lines, and the use of processes.

Owns no state; queries the loop and the effects.
"""

from __future__ import annotations

from typing import Any, Final

import grpc.aio

from herdmesh.api.worker.v1 import worker_service_pb2, worker_service_pb2_grpc
from herdmesh.rpc import properties
from herdmesh.rpc.errors import RequestInvalid
from herdmesh.session import wire as session_wire
from herdmesh.session.model import UnitId
from herdmesh.worker import wire
from herdmesh.worker.effects.plugins import Plugins
from herdmesh.worker.effects.process_status import ProcessStatus
from herdmesh.worker.effects.stores import Commands
from herdmesh.worker.log_lines import RecentLines
from herdmesh.worker.loop import WorkerLoop
from herdmesh.worker.threads import in_thread

_LINES_USUAL: Final = 200
_LINES_MAX: Final = 1_000
_Context = grpc.aio.ServicerContext[Any, Any]


class WorkerServicer(worker_service_pb2_grpc.WorkerServiceServicer):
    """Serves `WorkerService`."""

    def __init__(
        self, loop: WorkerLoop, commands: Commands, plugins: Plugins, lines: RecentLines, status: ProcessStatus
    ) -> None:
        self._loop = loop
        self._commands = commands
        self._plugins = plugins
        self._lines = lines
        self._status = status

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

    async def GetWorkerStatus(
        self, request: worker_service_pb2.GetWorkerStatusRequest, context: _Context
    ) -> worker_service_pb2.GetWorkerStatusResponse:
        """What this worker's processes use now."""
        pids: dict[UnitId, int] = {}
        for task in self._loop.tasks():
            if pid := wire.task_progress_to(task).pid:
                pids[task.unit] = pid
        return await in_thread("worker status", lambda: self._status.measured(pids))

    async def ListLogLines(
        self, request: worker_service_pb2.ListLogLinesRequest, context: _Context
    ) -> worker_service_pb2.ListLogLinesResponse:
        """A page of the latest log lines."""
        if not 0 <= request.page_size <= _LINES_MAX:
            raise RequestInvalid(f"page_size is not 0 to {_LINES_MAX}", "page_size")
        if request.HasField("task") and not request.connector:
            raise RequestInvalid("a task is named without its connector", "connector")
        page = self._lines.page(
            request.connector,
            request.task if request.HasField("task") else None,
            since_ms=request.since.ToMilliseconds() if request.HasField("since") else 0,
            after_number=request.after_number,
            size=request.page_size or _LINES_USUAL,
        )
        found = worker_service_pb2.ListLogLinesResponse(
            last_number=page.last_number,
            more=page.more,
            cut=page.cut,
            incarnation=self._status.incarnation,
        )
        for one in page.lines:
            line = found.lines.add(number=one.number, text=one.text)
            line.time.FromMilliseconds(one.time_ms)
            if one.unit is not None:
                line.connector = one.unit.connector
                if one.unit.task is not None:
                    line.task = one.unit.task
        return found
