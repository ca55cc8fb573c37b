"""Wiring of a worker process: `python -m herdmesh.worker`. Owns the order of start and stop, and nothing else.

Start: the offsets file (if configured), Spark, the gRPC server, the session with the herder. A worker that answers
requests can therefore run tasks.
Stop, each stage bounded: leave (the herder moves all units), flush statuses and end the lease, close the session, the
server, Spark, the offsets file.
"""

from __future__ import annotations

import asyncio
import os
import sys
import uuid
from collections.abc import AsyncGenerator, Callable, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any, Final

import structlog

from herdmesh.api.common.v1 import identity_pb2
from herdmesh.api.herder.v1 import worker_session_service_pb2 as session_pb2
from herdmesh.api.worker.v1 import run_service_pb2_grpc, worker_service_pb2_grpc
from herdmesh.engine.librdkafka import native
from herdmesh.kafka.librdkafka import LACKING, SUPPORTED, unsupported
from herdmesh.rpc import process, revisions
from herdmesh.rpc.server import Server, ServiceRegistration, ready_while_serving
from herdmesh.sdk.spark import task_session
from herdmesh.session import wire as session_wire
from herdmesh.session.model import UnitId
from herdmesh.worker.effects.dead_letters import DeadLetters
from herdmesh.worker.effects.offsets import OffsetFile, Offsets
from herdmesh.worker.effects.plugins import ConnectorHost, Plugins, discover
from herdmesh.worker.effects.process_status import ProcessStatus
from herdmesh.worker.effects.runs import (
    Applications,
    EndWatch,
    IdleWatch,
    Processes,
    Reloads,
    Runs,
    RunSpecs,
    SparkApplication,
    Values,
)
from herdmesh.worker.effects.stores import Commands, HerderSession, StatusClient
from herdmesh.worker.errors import SparkUnavailable
from herdmesh.worker.log_lines import RecentLines
from herdmesh.worker.loop import Effects, WorkerLoop
from herdmesh.worker.metrics.collector import WorkerMetrics
from herdmesh.worker.run import Loggers
from herdmesh.worker.service.run_service import RunServicer
from herdmesh.worker.service.worker_service import WorkerServicer
from herdmesh.worker.settings import WorkerSettings
from herdmesh.worker.spark.session import SparkHost, spark_conf
from herdmesh.worker.state import TaskLimits, WorkerLimits, WorkerState, events
from herdmesh.worker.threads import in_thread

WORKER_SERVICE: Final = "herdmesh.api.worker.v1.WorkerService"
RUN_SERVICE: Final = "herdmesh.api.worker.v1.RunService"
_FLUSH_S: Final = 3.0
_SERVER_GRACE_S: Final = 1.0
_SPARK_STOP_S: Final = 6.0
_log: structlog.stdlib.BoundLogger = structlog.get_logger(__name__)


async def serve(
    settings: WorkerSettings, stop: asyncio.Event, on_listening: Callable[[int], None] = lambda _: None
) -> None:
    """Run a worker until `stop` is set; call `on_listening` with the port.

    Raises SparkUnavailable when Spark does not start or dies; OffsetFileUnusable.
    """
    async with ground(settings, stop) as ready:
        if not stop.is_set():
            await serve_on(ready, settings, stop, on_listening)


@dataclass(frozen=True, slots=True)
class Ground:
    """Resources that exist before the first gRPC object of the process."""

    spark: SparkHost
    offsets: OffsetFile | None


@asynccontextmanager
async def ground(settings: WorkerSettings, stop: asyncio.Event) -> AsyncGenerator[Ground]:
    """The open offsets file, if the settings name one, and a running Spark, unless `stop` was set meanwhile.

    Enter this context before the process creates any gRPC server or channel: starting a JVM forks, and gRPC's threads
    do not survive a fork. Raises as `serve`.
    """
    offsets = OffsetFile(settings.offset_storage_file) if settings.offset_storage_file else None
    if offsets is not None:
        offsets.open()
    processes = settings.slots + settings.standby_count()
    spark = SparkHost(_spark_conf(settings, processes))
    try:
        await _unless(stop, spark.start())
        yield Ground(spark, offsets)
    finally:
        await spark.stop(_SPARK_STOP_S)
        if offsets is not None:
            offsets.close()


async def serve_on(
    ready: Ground, settings: WorkerSettings, stop: asyncio.Event, on_listening: Callable[[int], None]
) -> None:
    """Like `serve`, on resources that the caller has opened with `ground`."""
    spark, offsets = ready.spark, ready.offsets
    found = await in_thread("plugins", lambda: discover(settings.plugin_path))
    specs = RunSpecs(settings, found.registry, offsets.of if offsets is not None else None)
    _warn(settings)
    incarnation = uuid.uuid4().hex
    metrics = WorkerMetrics(specs.plugin, settings.slots, version("herdmesh-worker"))
    loop = WorkerLoop(WorkerState(incarnation[:12], _limits(settings)), metrics)
    watch = IdleWatch(settings.bootstrap_servers, settings.access(), settings.watch_interval_ms, specs, loop.emit)
    plugins, loggers = Plugins(found), Loggers()
    shared = Processes(spark, settings.standby_count(), settings.reuse_wait_s())
    processes = Applications(shared, lambda connector: SparkApplication(connector, _conf_of(settings)))
    runs = Runs(processes, specs, watch.remember_sign, loggers.changed, loop.emit)
    told = Offsets(specs, offsets)
    commands = Commands(settings, specs, plugins, loggers, told, DeadLetters(specs, offsets))
    lines, status = RecentLines(), ProcessStatus(incarnation, settings.slots, sees_runs=settings.sees_runs)
    for_runs = RunServicer(processes, runs, loop.emit, offsets, lines)
    server = _server(settings, WorkerServicer(loop, commands, plugins, lines, status), for_runs, loop)
    port = await server.start()
    metrics.start()
    on_listening(port)
    address = settings.address(port)
    processes.start(settings.local_address(port))
    connectors = ConnectorHost(specs, told, loop.emit)
    worker = identity_pb2.WorkerIdentity(worker_id=settings.worker_id or address, incarnation=incarnation)

    def hello() -> session_pb2.WorkerHello:
        return session_pb2.WorkerHello(
            worker=worker,
            address=address,
            slots=settings.slots,
            plugins=plugins.all(),
            refused_plugins=plugins.refused(),
            has_plugin_folders=plugins.has_folders,
            holdings=[session_wire.held_unit_to(one) for one in loop.held_units()],
            epoch_max=loop.epoch_max(),
            draining=loop.draining(),
            leaving=loop.leaving(),
            logger_revision=revisions.to_proto(loggers.revision),
        )

    def given(unit: UnitId) -> Values | None:
        return connectors.values(unit.connector) if unit.task is None else specs.values(unit)

    effects = Effects(
        runs=runs,
        connectors=connectors,
        reloads=Reloads(given, specs.values_now, loop.emit),
        watch=watch,
        ends=EndWatch(loop.partitions_with_work, watch.ends_of, loop.emit),
        statuses=StatusClient(settings.status_store, worker, specs, loop.emit),
        session=HerderSession(settings.herder, hello, loop.emit),
        commands=commands,
    )
    found.when_changed(_telling(plugins, effects.session))
    background = [*effects.watch.start(), *effects.ends.start(), *effects.statuses.start(), *effects.session.start()]
    await server.set_all_serving(True)
    try:
        with lines.copying_log():
            code = await _until_over(loop, effects, background, stop, spark.lost, server)
    finally:
        found.close()
        specs.providers.close()
        metrics.close()
    if code:
        raise SparkUnavailable("Spark's JVM died: the worker released its tasks and ends; start it again")


def _warn(settings: WorkerSettings) -> None:
    """Log settings without effect, and a Kafka client that lacks the fast path or required functions."""
    for one in settings.warnings():
        _log.warning("setting_without_effect", setting=one.field, why=one.message, fix=one.fix)
    if disabled := native.fast_path_disabled():
        refused = LACKING if unsupported() else ()
        package = f"confluent-kafka=={SUPPORTED[-1]}" if refused else "--force-reinstall herdmesh-core"
        _log.warning("fast_path_disabled", message=disabled, lacking=refused, next=f"pip install {package}")


def _telling(plugins: Plugins, session: HerderSession) -> Callable[[], object]:
    """A callback, safe to call from any thread, that sends the list of all plugins to the herder."""
    loop = asyncio.get_running_loop()

    def tell() -> None:
        told = session_pb2.WorkerPlugins(plugins=plugins.all(), refused=plugins.refused())
        session.send(session_pb2.SessionRequest(plugins=told))

    return lambda: loop.call_soon_threadsafe(tell)


async def _until_over(
    loop: WorkerLoop,
    effects: Effects,
    background: Sequence[asyncio.Task[None]],
    stop: asyncio.Event,
    spark_lost: asyncio.Event,
    server: Server,
) -> int:
    """Handle events until the state emits Exit, then close everything; return the exit code.

    Raises the exception of a background task that failed.
    """
    signals = [
        asyncio.create_task(_when(stop, loop, events.LeaveRequested()), name="stop"),
        asyncio.create_task(_when(spark_lost, loop, events.SparkGone("Spark's JVM died")), name="Spark lost"),
    ]
    running = asyncio.create_task(loop.run(effects), name="worker loop")
    try:
        await asyncio.wait({running, *background}, return_when=asyncio.FIRST_COMPLETED)
        for task in background:
            if task.done():
                # A background task failed, which is a bug. Ending the process is better than running on without that
                # task: other workers run the tasks until a new process starts.
                task.result()
        return await running
    finally:
        for task in (*signals, running):
            task.cancel()
        await _close(effects, server)


def _server(settings: WorkerSettings, worker: WorkerServicer, runs: RunServicer, loop: WorkerLoop) -> Server:
    add_worker = worker_service_pb2_grpc.add_WorkerServiceServicer_to_server
    add_runs = run_service_pb2_grpc.add_RunServiceServicer_to_server
    services = [
        ServiceRegistration(worker, add_worker, WORKER_SERVICE),
        ServiceRegistration(runs, add_runs, RUN_SERVICE),
    ]

    def ready(serving: bool) -> tuple[bool, str]:
        if not serving:
            return ready_while_serving(serving)
        if loop.has_session():
            return True, "the leading herder can give this worker tasks"
        return False, f"no session with a leading herder ({settings.herder}); running tasks go on"

    return Server(settings.listen, services, settings.metrics, ready)


async def _close(effects: Effects, server: Server) -> None:
    await server.set_all_serving(False)
    await effects.ends.close()
    await effects.watch.close()
    await effects.connectors.close()
    await effects.reloads.close()
    await effects.commands.close()
    # In parallel, so that reports and statuses of the last stops do not wait for each other.
    await asyncio.gather(effects.statuses.close(_FLUSH_S), effects.session.close())
    await effects.runs.close(_SERVER_GRACE_S)
    await server.stop(_SERVER_GRACE_S)


def _spark_conf(settings: WorkerSettings, processes: int) -> Mapping[str, str]:
    conf = spark_conf(settings.spark_master, processes, settings.spark_driver_memory)
    return {**conf, **task_session.environment(settings.spark_jars, settings.spark_home)}


def _conf_of(settings: WorkerSettings) -> Callable[[str], Mapping[str, str]]:
    """The Spark settings for a connector's own application: the worker's settings with an application name of its
    own."""
    conf = _spark_conf(settings, settings.slots)
    return lambda connector: {**conf, "spark.app.name": f"herdmesh-worker: {connector}"}


def _limits(settings: WorkerSettings) -> WorkerLimits:
    tasks = TaskLimits(
        settings.slots,
        settings.share_ms,
        settings.warm_count(),
        settings.stop_timeout_ms,
        settings.stalled_ms,
    )
    return WorkerLimits(tasks, leave_timeout_ms=settings.leave_timeout_ms)


async def _when(happened: asyncio.Event, loop: WorkerLoop, event: events.Event) -> None:
    await happened.wait()
    await loop.emit(event)


async def _unless(stop: asyncio.Event, work: Coroutine[Any, Any, None]) -> None:
    """Await the work, or cancel it when `stop` is set."""
    task = asyncio.create_task(work)
    stopped = asyncio.create_task(stop.wait())
    await asyncio.wait((task, stopped), return_when=asyncio.FIRST_COMPLETED)
    stopped.cancel()
    if not task.done():
        task.cancel()
        return
    await task


def main() -> None:
    """Entry point of the console script."""
    # Spark's JVM and the runs write to the worker's standard error: one stream has all lines of a worker.
    os.dup2(sys.stdout.fileno(), sys.stderr.fileno())

    async def in_environment(settings: WorkerSettings, stop: asyncio.Event) -> None:
        os.environ.update({"HERDMESH_LOG_LEVEL": settings.log_level, process.LOG_FORMAT_ENV: settings.log_format})
        await serve(settings, stop)

    process.run("herdmesh.worker", WorkerSettings.load, in_environment)


if __name__ == "__main__":
    main()
