"""Connector instances: objects of authors' classes, each call in a thread of its own.

Owns the instances. Decides nothing: the state requests one call per connector at a time, and abandons a connector whose
code does not return. Invariant: instances are replaced or removed on the event loop only.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from typing import Any, Final, TypeVar

import structlog

from herdmesh.connect.error_class import ErrorClass
from herdmesh.connect.errors import error_text
from herdmesh.connect.spi import ConnectorContext, Wait, Waits, checked_error, entered
from herdmesh.engine.runtime import classify
from herdmesh.session.model import Failure, UnitId
from herdmesh.worker.effects.offsets import Offsets
from herdmesh.worker.effects.plugins.task_configs import Started, planned_task_configs, started, task_configs
from herdmesh.worker.effects.runs import RunSpecs, Values
from herdmesh.worker.state import events, instructions
from herdmesh.worker.state.model import Config
from herdmesh.worker.threads import in_thread

T = TypeVar("T")
#: Interval between checks of the waits of connectors.
_LOOK_S: Final = 1.0
_log: structlog.stdlib.BoundLogger = structlog.get_logger(__name__)


class ConnectorHost:
    """Runs the connectors of this worker."""

    def __init__(self, specs: RunSpecs, offsets: Offsets, emit: Callable[[events.Event], Awaitable[None]]) -> None:
        self._specs = specs
        self._offsets = offsets
        self._emit = emit
        self._instances: dict[str, Started] = {}
        self._waits: dict[str, tuple[int, Waits]] = {}
        self._emitted_waits: dict[str, Wait] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._look: asyncio.Task[None] | None = None

    def start(self, instruction: instructions.StartConnector) -> None:
        """Create and start an instance, then emit ConnectorStarted."""
        self._spawn(self._start(instruction))

    def stop(self, instruction: instructions.StopConnector) -> None:
        """Stop and remove the instance, then emit ConnectorStopped."""
        self._spawn(self._stop(instruction))

    def make_task_configs(self, instruction: instructions.MakeTaskConfigs) -> None:
        """Request task configs from the instance, or from a temporary one, then emit TaskConfigsMade."""
        self._spawn(self._make_task_configs(instruction))

    def values(self, connector: str) -> Values | None:
        """The config values with which the running instance was started; None = no instance runs."""
        running = self._instances.get(connector)
        return None if running is None else Values((running.resolved,))

    def abandon(self, connector: str) -> None:
        """Forget the instance; its threads end with the process at the latest."""
        _log.warning("connector_abandoned", unit=f"[{connector}|worker]")
        self._instances.pop(connector, None)
        self._waits.pop(connector, None)
        self._emitted_waits.pop(connector, None)

    async def close(self) -> None:
        """Cancel all pending work."""
        for task in [*self._tasks, *([self._look] if self._look is not None else [])]:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _start(self, instruction: instructions.StartConnector) -> None:
        name = instruction.connector
        failure: Failure | None = None
        begun = asyncio.Event()
        context = self._context(instruction, begun)
        try:
            self._instances[name] = await in_thread(
                f"start of {name}", lambda: _within(context.waits, started, self._specs, instruction.config, context)
            )
        except Exception as error:  # noqa: BLE001 - an author's code may raise anything
            failure = _failure(error)
        values = self.values(name)
        if failure is None and values is not None and values.ttl_ms is not None:
            await self._emit(events.ValuesResolved(UnitId(name), str(instruction.op_id), values.ttl_ms))
        await self._emit(events.ConnectorStarted(name, instruction.op_id, failure))
        begun.set()

    def _context(self, instruction: instructions.StartConnector, begun: asyncio.Event) -> ConnectorContext:
        """The context of an instance that calls from its own threads, also after this worker has stopped it. `begun` is
        set when the state knows of the start.
        """
        name, loop = instruction.connector, asyncio.get_running_loop()
        outdated = events.TasksOutdated(instruction.connector, instruction.op_id)
        #: held until the event is queued; one event serves all requests made meanwhile.
        pending = threading.Lock()
        #: acquired at the first error and never released: an instance fails once.
        failed = threading.Lock()

        async def tell() -> None:
            try:
                await self._emit(outdated)
            finally:
                pending.release()

        def request() -> None:
            if not pending.acquire(blocking=False):
                return
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody needs task configs any more
                loop.call_soon_threadsafe(lambda: self._spawn(tell()))

        async def tell_error(error: Exception) -> None:
            await begun.wait()  # the error may come from `start`
            await self._emit(events.ConnectorRaised(name, instruction.op_id, _failure(error)))

        def fail(error: Exception) -> None:
            if failed.acquire(blocking=False):  # only the first: an author may call this in a loop
                error = checked_error(error)
                _log.error("connector_raised", unit=f"[{name}|worker]", error=error_text(error))
                with contextlib.suppress(RuntimeError):  # as above
                    loop.call_soon_threadsafe(lambda: self._spawn(tell_error(error)))

        def committed(partitions: Sequence[Mapping[str, Any] | None]) -> list[Mapping[str, Any] | None]:
            return self._offsets.committed(name, instruction.config, partitions)

        waits = Waits()
        self._waits[name] = instruction.op_id, waits
        if self._look is None:
            self._look = asyncio.create_task(self._look_at_waits(), name="waits of connectors")
        return ConnectorContext(request, fail, committed, waits)

    async def _look_at_waits(self) -> None:
        """Emit the beginning, change and end of waits of instances."""
        while True:
            await asyncio.sleep(_LOOK_S)
            for name, (op_id, waits) in list(self._waits.items()):
                wait = waits.shown()
                if wait == self._emitted_waits.get(name):
                    continue
                if wait is None:
                    del self._emitted_waits[name]
                else:
                    self._emitted_waits[name] = wait
                await self._emit(events.ConnectorWaits(name, op_id, wait))

    async def _stop(self, instruction: instructions.StopConnector) -> None:
        name = instruction.connector
        instance = self._instances.pop(name, None)
        self._waits.pop(name, None)
        self._emitted_waits.pop(name, None)
        if instance is not None:
            try:
                await in_thread(f"stop of {name}", instance.instance.stop)
            except Exception:  # noqa: BLE001 - an author's code may raise anything; Connect too only logs it here
                _log.exception("connector_stop_failed", unit=f"[{name}|worker]")
        await self._emit(events.ConnectorStopped(name, instruction.op_id))

    async def _make_task_configs(self, instruction: instructions.MakeTaskConfigs) -> None:
        name = instruction.connector
        tasks: list[Config] = []
        failure: Failure | None = None
        instance = self._instances.get(name)
        try:
            tasks = await in_thread(f"task configs of {name}", lambda: self._task_configs(instance, instruction))
        except Exception as error:  # noqa: BLE001 - an author's code may raise anything
            failure = _failure(error)
        await self._emit(events.TaskConfigsMade(name, instruction.op_id, tasks, failure))

    def _task_configs(self, running: Started | None, instruction: instructions.MakeTaskConfigs) -> list[Config]:
        """Task configs of the instance. Called in a thread."""
        if running is not None:
            return task_configs(running, instruction.tasks_max)
        return planned_task_configs(self._specs, instruction.config, instruction.tasks_max)


def _failure(error: Exception) -> Failure:
    message, trace, error_class = classify(error)
    if isinstance(error, ImportError):
        error_class = ErrorClass.BAD_CONFIG
    return Failure(message, trace, error_class)


def _within(waits: Waits, call: Callable[..., T], *args: Any) -> T:
    """The call's result; waits that the call reports are added to `waits`."""
    with entered(waits):
        return call(*args)
