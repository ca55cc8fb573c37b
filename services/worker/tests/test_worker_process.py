"""A real worker process with real Spark and a real broker, driven over the real Session protocol by a scripted herder.

One worker serves the tests in order; those that kill start their own. Times are printed, with generous limits.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import time
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc.aio
import psutil
import pytest
import pytest_asyncio
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from herdmesh.api.common.v1 import connector_pb2, revision_pb2
from herdmesh.api.herder.v1 import worker_session_service_pb2 as session_pb2
from herdmesh.api.worker.v1 import task_pb2, worker_service_pb2, worker_service_pb2_grpc
from herdmesh.rpc import properties
from herdmesh.rpc.server import Server
from services.worker.tests import fakes
from services.worker.tests.fakes import WAIT_S, RememberingStatusStore, ScriptedHerder, assignment, start_task, unit

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(180)]

IDLE = task_pb2.TASK_ACTIVITY_IDLE
RUNNING, PAUSED = connector_pb2.RUN_STATE_RUNNING, connector_pb2.RUN_STATE_PAUSED
FAILED, UNASSIGNED = connector_pb2.RUN_STATE_FAILED, connector_pb2.RUN_STATE_UNASSIGNED
START_TIMEOUT_S = 90.0


@dataclass
class WorkerProcess:
    """One worker, its herder and its status store."""

    bootstrap: str
    folder: Path
    herder: ScriptedHerder = field(default_factory=ScriptedHerder)
    store: RememberingStatusStore = field(default_factory=RememberingStatusStore)
    servers: list[Server] = field(default_factory=lambda: [])
    process: asyncio.subprocess.Process | None = None
    herder_address: str = ""

    async def start(self) -> None:
        herder_server, self.herder_address = await fakes.serve_herder(self.herder)
        store_server, store_address = await fakes.serve_store(self.store)
        self.servers = [herder_server, store_server]
        env = {
            **os.environ,
            "HERDMESH_LISTEN": "127.0.0.1:0",
            "HERDMESH_HERDER": self.herder_address,
            "HERDMESH_STATUS_STORE": store_address,
            "HERDMESH_BOOTSTRAP_SERVERS": self.bootstrap,
            "HERDMESH_OFFSET_STORAGE_REPLICATION_FACTOR": "1",
            "HERDMESH_METRICS": "false",
            "HERDMESH_STALLED_MS": "1000",
            "HERDMESH_LINGER_MS": "500",
            "HERDMESH_WARM_RUNS_MAX": "1",
            "HERDMESH_LOG_LEVEL": os.environ.get("HERDMESH_LOG_LEVEL", "warning"),
        }
        begun = time.monotonic()
        self.process = await asyncio.create_subprocess_exec(sys.executable, "-m", "herdmesh.worker", env=env)
        await self.herder.until_session(timeout_s=START_TIMEOUT_S)
        print(f"worker ready after {time.monotonic() - begun:.1f} s")

    async def stop(self) -> None:
        if self.process is not None and self.process.returncode is None:
            self.process.kill()
            await self.process.wait()
        for server in self.servers:
            await server.stop(0)

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    def sink(self, name: str, topic: str, **more: str) -> dict[str, str | None]:
        return {
            "name": name,
            "connector.class": "FileStreamSink",
            "topics": topic,
            "file": str(self.folder / name),
            "key.converter": "org.apache.kafka.connect.storage.StringConverter",
            "value.converter": "org.apache.kafka.connect.storage.StringConverter",
            "herdmesh.linger.ms": "500",
            **more,
        }

    def start_sink(self, name: str, topic: str, **more: str) -> None:
        config = self.sink(name, topic, **more)
        self.herder.send(start_task(name, config, config))

    def lines(self, name: str) -> list[str]:
        path = self.folder / name
        return path.read_text().splitlines() if path.exists() else []

    async def until_activity(self, name: str, activity: task_pb2.TaskActivity.ValueType) -> Any:
        def found() -> Any:
            progress = self.herder.progress(name)
            return progress if progress is not None and progress.activity == activity else None

        return await self.herder.until(found, f"{name} {task_pb2.TaskActivity.Name(activity)}")

    async def until(self, name: str, condition: Callable[[], Any], what: str, *, generation: int = 1) -> Any:
        """Poll the effect of another process on this task; fails at once when the task is FAILED under that
        assignment."""

        def found() -> Any:
            for report in self.herder.reports():
                if report.unit == unit(name) and report.assignment.generation == generation:
                    assert report.state != FAILED, f"{name} not {what}, but FAILED: {report.failure.message}"
            return condition()

        return await until(found, f"{name} {what}")

    async def tasks(self) -> Sequence[worker_service_pb2.HeldTask]:
        async with grpc.aio.insecure_channel(self.herder.hellos[-1].address) as channel:
            stub = worker_service_pb2_grpc.WorkerServiceStub(channel)
            return (await stub.ListTasks(worker_service_pb2.ListTasksRequest())).tasks


@dataclass(frozen=True)
class Stuck:
    """A task whose file is a pipe that nobody reads, and its record larger than the pipe's buffer."""

    path: Path
    topic: str


def is_java(process: psutil.Process) -> bool:
    """True for a JVM; the process may end meanwhile."""
    try:
        return process.name() == "java"
    except psutil.NoSuchProcess:
        return False


async def until(condition: Callable[[], Any], what: str, timeout_s: float = WAIT_S) -> Any:
    """Poll an effect of another process; the timeout fails the test."""
    deadline = time.monotonic() + timeout_s
    while not (found := condition()):
        assert time.monotonic() < deadline, f"not {what} within {timeout_s:g} s"
        await asyncio.sleep(0.02)
    return found


async def produce(bootstrap: str, topic: str, values: Sequence[str]) -> None:
    """Produce in a thread, as `create_topic`: the herder and the store that the worker calls live on the loop."""

    def write() -> int:
        producer = Producer({"bootstrap.servers": bootstrap, "partitioner": "murmur2_random"})
        for number, value in enumerate(values):
            producer.produce(topic, value, str(number))
        return producer.flush(WAIT_S)

    assert await asyncio.to_thread(write) == 0


async def create_topic(bootstrap: str, topic: str, partitions: int = 2) -> str:
    def create() -> None:
        admin: Any = AdminClient({"bootstrap.servers": bootstrap})
        for future in admin.create_topics([NewTopic(topic, partitions, 1)]).values():
            future.result(WAIT_S)

    await asyncio.to_thread(create)
    return topic


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def worker(kafka_bootstrap: str, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[WorkerProcess]:
    """The worker that the tests share."""
    running = WorkerProcess(kafka_bootstrap, tmp_path_factory.mktemp("worker"))
    try:
        await running.start()
        yield running
    finally:
        await running.stop()


async def test_a_sink_runs_goes_idle_and_is_woken(worker: WorkerProcess, tmp_topic: Callable[..., str]) -> None:
    topic = await create_topic(worker.bootstrap, tmp_topic())
    await produce(worker.bootstrap, topic, [f"a{i}" for i in range(500)])
    begun = time.monotonic()
    worker.start_sink("one", topic)
    await worker.until("one", lambda: worker.lines("one"), "writing")
    print(f"first record {time.monotonic() - begun:.2f} s after StartUnit")
    await worker.herder.until_report("one", RUNNING)
    progress = await worker.until_activity("one", IDLE)
    assert (progress.records_in, progress.run_count, progress.pid) == (500, 1, 0)
    assert {(p.topic, p.position) for p in progress.partitions} == {
        (p.topic, p.end_offset) for p in progress.partitions
    }
    assert sorted(worker.lines("one")) == sorted(f"a{i}" for i in range(500))
    statuses = await worker.until(
        "one", lambda: [s for s in worker.store.of("one") if s.HasField("commit_scope")], "written as committed"
    )
    assert statuses[-1].state == RUNNING
    assert list(statuses[-1].commit_scope.topics) == [topic]
    assert statuses[-1].version

    begun = time.monotonic()
    await produce(worker.bootstrap, topic, ["woken"])
    await worker.until("one", lambda: worker.lines("one")[-1:] == ["woken"], "woken")
    print(f"woken record {time.monotonic() - begun:.2f} s after it was produced")
    await worker.herder.until(lambda: worker.herder.progress("one").records_in == 501, "counted on")
    progress = await worker.until_activity("one", IDLE)
    assert progress.run_count == 2
    assert len(worker.herder.reports()) == 1, "it was RUNNING all the time"


async def test_a_run_stays_warm_until_another_task_needs_its_slot(
    worker: WorkerProcess, tmp_topic: Callable[..., str]
) -> None:
    topics = {name: await create_topic(worker.bootstrap, tmp_topic(name)) for name in ("warm-a", "warm-b")}
    for name, topic in topics.items():
        config = {key: value for key, value in worker.sink(name, topic).items() if key != "herdmesh.linger.ms"}
        worker.herder.send(start_task(name, config, config))

    def idle() -> list[str]:
        told = {name: worker.herder.progress(name) for name in topics}
        return [name for name, progress in told.items() if progress is not None and progress.activity == IDLE]

    (rests,) = await worker.herder.until(idle, "one of them idle, as only one may be warm")
    (stays,) = set(topics) - {rests}
    await produce(worker.bootstrap, topics[rests], ["woken"])
    await worker.until(rests, lambda: worker.lines(rests) == ["woken"], "woken")
    kept = await worker.until_activity(stays, IDLE)
    assert (kept.run_count, kept.pid) == (1, 0), "its first run stayed until the other was warm"
    await produce(worker.bootstrap, topics[rests], ["at once"])
    await worker.until(rests, lambda: worker.lines(rests) == ["woken", "at once"], "reading on")
    assert worker.herder.progress(rests).run_count == 2, "in the run that stayed"
    for name in topics:
        worker.herder.send(
            session_pb2.SessionResponse(epoch=1, stop=session_pb2.StopUnit(unit=unit(name), assignment=assignment()))
        )
        await worker.herder.until_report(name, UNASSIGNED)


async def test_pause_and_resume(worker: WorkerProcess, tmp_topic: Callable[..., str]) -> None:
    change = session_pb2.SetUnitTargetState(unit=unit("one"), target_state=connector_pb2.TARGET_STATE_PAUSED)
    worker.herder.send(session_pb2.SessionResponse(epoch=1, set_target_state=change))
    await worker.herder.until_report("one", PAUSED)
    change.target_state = connector_pb2.TARGET_STATE_STARTED
    worker.herder.send(session_pb2.SessionResponse(epoch=1, set_target_state=change))
    await worker.herder.until(lambda: worker.herder.reports()[-1].state == RUNNING, "resumed")


async def test_a_new_partition_and_a_new_topic_wake(worker: WorkerProcess, tmp_topic: Callable[..., str]) -> None:
    stem = tmp_topic("grows")
    worker.start_sink("many", "", **{"topics": "", "topics.regex": f"{stem}.*"})
    await worker.herder.until_report("many", RUNNING)
    await worker.until_activity("many", IDLE)
    await produce(worker.bootstrap, await create_topic(worker.bootstrap, f"{stem}-later"), ["from a new topic"])
    await worker.until("many", lambda: "from a new topic" in worker.lines("many"), "reading the new topic")


async def test_a_failing_task_is_failed_with_its_trace_while_others_run(
    worker: WorkerProcess, tmp_topic: Callable[..., str]
) -> None:
    topic = await create_topic(worker.bootstrap, tmp_topic())
    await produce(worker.bootstrap, topic, ["no json"])
    worker.start_sink("bad", topic, **{"value.converter": "JsonConverter", "value.converter.schemas.enable": "false"})
    report = await worker.herder.until_report("bad", FAILED)
    assert topic in report.failure.message
    assert "Traceback" in report.failure.trace
    status = await until(lambda: [s for s in worker.store.of("bad") if s.state == FAILED], "written as FAILED")
    assert status[0].trace
    held = {task.task.connector: task.state for task in await worker.tasks()}
    assert (held["bad"], held["one"]) == (FAILED, RUNNING)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def stuck(worker: WorkerProcess) -> AsyncIterator[Stuck]:
    """A stuck task, started by the first test that uses it; most of its time passes while another test runs. The limit
    is long enough for its start, which counts: a task that is ended before it is RUNNING is never shown as STALLED.
    """
    path, topic = worker.folder / "stuck", await create_topic(worker.bootstrap, "worker-process-stuck")
    os.mkfifo(path)
    reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    try:
        await produce(worker.bootstrap, topic, ["x" * 200_000])
        worker.start_sink("stuck", topic, **{"consumer.override.max.poll.interval.ms": "15000"})
        yield Stuck(path, topic)
    finally:
        os.close(reader)


async def test_a_task_whose_put_hangs_is_shown_as_stalled(worker: WorkerProcess, stuck: Stuck) -> None:
    stalled = await worker.until(
        "stuck", lambda: [s for s in worker.store.of("stuck") if s.conditions], "shown as STALLED"
    )
    assert (stalled[0].state, stalled[0].conditions[0].type) == (RUNNING, "STALLED")
    assert "15 s" in stalled[0].conditions[0].message


async def _start_busy(worker: WorkerProcess, topic: str) -> None:
    """Start a worker with a run that does not end by itself."""
    worker.folder.mkdir()
    await worker.start()
    await produce(
        worker.bootstrap, await create_topic(worker.bootstrap, topic), [json.dumps({"id": i}) for i in range(100)]
    )
    worker.start_sink(topic, topic, **{"herdmesh.trigger": "continuous"})
    await worker.herder.until_report(topic, RUNNING)


async def test_a_worker_whose_jvm_is_killed_announces_its_leave_and_ends(
    kafka_bootstrap: str, tmp_path: Path, tmp_topic: Callable[..., str]
) -> None:
    """No process is left running, and the herder is informed. (SIGKILL of its Python: faults `test_kills.py`.)"""
    worker = WorkerProcess(kafka_bootstrap, tmp_path / "jvm")
    try:
        await _start_busy(worker, tmp_topic())
        family = psutil.Process(worker.pid).children(recursive=True)
        begun = time.monotonic()
        next(one for one in family if is_java(one)).kill()
        await worker.herder.until(
            lambda: any(one.WhichOneof("message") == "leaving" for one in worker.herder.said), "told that it leaves"
        )
        print(f"after kill of the JVM the herder knew in {time.monotonic() - begun:.2f} s")
        worker.herder.send(session_pb2.SessionResponse(epoch=1, released=session_pb2.SessionReleased()))
        assert worker.process is not None
        async with asyncio.timeout(60):
            assert await worker.process.wait() == 1
        # its last messages may still be on their way to the herder when the process is gone
        await worker.herder.until(lambda: worker.herder.reports()[-1].state == UNASSIGNED, "released")
        _, alive = await asyncio.to_thread(psutil.wait_procs, family, 30)
        assert not alive, f"left behind: {alive}"
        print(f"after kill of the JVM the worker had ended in {time.monotonic() - begun:.2f} s")
    finally:
        await worker.stop()


async def test_a_task_whose_put_hangs_is_killed_and_restarted(worker: WorkerProcess, stuck: Stuck) -> None:
    report = await worker.herder.until_report("stuck", FAILED)
    assert report.failure.error_class == connector_pb2.ERROR_CLASS_RETRIABLE
    assert "15 s (max.poll.interval.ms)" in report.failure.message
    failed = await until(lambda: [s for s in worker.store.of("stuck") if s.state == FAILED], "written as FAILED")
    assert not failed[0].conditions
    stuck.path.unlink()
    config = worker.sink("stuck", stuck.topic)
    worker.herder.send(start_task("stuck", config, config, generation=2))
    await worker.until(
        "stuck", lambda: worker.lines("stuck") == ["x" * 200_000], "past the record it was stuck with", generation=2
    )


async def test_a_connector_makes_task_configs(worker: WorkerProcess, tmp_topic: Callable[..., str]) -> None:
    config = worker.sink("maker", tmp_topic())
    start = session_pb2.StartUnit(
        unit=unit("maker", None),
        assignment=assignment(),
        connector_config=properties.to_proto(dict(config)),
        target_state=connector_pb2.TARGET_STATE_STARTED,
        tasks_max=2,
    )
    worker.herder.send(session_pb2.SessionResponse(epoch=1, start=start))
    ask = session_pb2.GenerateTaskConfigs(connector="maker", assignment=assignment(), tasks_max=2)
    worker.herder.send(session_pb2.SessionResponse(epoch=1, generate_task_configs=ask))
    await worker.herder.until_report("maker", RUNNING, task=None)

    def made() -> Any:
        found = [one.task_configs for one in worker.herder.said if one.WhichOneof("message") == "task_configs"]
        return found[0] if found else None

    configs = await worker.herder.until(made, "task configs")
    assert len(configs.tasks) == 2
    assert configs.tasks[0].entries["file"].text == config["file"]
    assert configs.tasks[0].entries["task.class"].text == "org.apache.kafka.connect.file.FileStreamSinkTask"


async def test_fencing_and_validation_get_replies(worker: WorkerProcess) -> None:
    fence = session_pb2.FenceCommand(command_id="f", connector="nobody", task_count=3)
    worker.herder.send(session_pb2.SessionResponse(epoch=1, fence=fence))
    config = properties.to_proto({"connector.class": "FileStreamSink", "name": "v", "tasks.max": "many"})
    validate = session_pb2.ValidateCommand(command_id="v", config=config)
    worker.herder.send(session_pb2.SessionResponse(epoch=1, validate=validate))

    def replies() -> Any:
        said = [one.reply for one in worker.herder.said if one.WhichOneof("message") == "reply"]
        return {one.command_id: one for one in said} if len(said) == 2 else None

    answered = await worker.herder.until(replies, "two replies")
    assert not answered["f"].HasField("failure"), answered["f"].failure.message
    errors = {one.name: list(one.errors) for one in answered["v"].validation.fields if one.errors}
    assert "tasks.max" in errors
    assert "topics" in errors


async def test_tasks_run_on_without_herder_and_store_and_are_adopted(
    worker: WorkerProcess, tmp_topic: Callable[..., str]
) -> None:
    topic = await create_topic(worker.bootstrap, tmp_topic())
    revision = revision_pb2.Revision(store_id="config", next_offsets=[7])
    level = session_pb2.SetLoggerCommand(logger="nobody.writes.here", level="WARN", revision=revision)
    worker.herder.send(session_pb2.SessionResponse(epoch=1, set_logger=level))
    worker.start_sink("steady", topic)
    await worker.herder.until_report("steady", RUNNING)
    await worker.until_activity("steady", IDLE)
    worker.store.away = True
    await worker.servers[0].stop(0)
    await produce(worker.bootstrap, topic, ["while they are away"])
    await worker.until("steady", lambda: worker.lines("steady") == ["while they are away"], "writing without a herder")
    sessions = len(worker.herder.hellos)
    worker.herder.epoch = 2
    worker.servers[0], _ = await fakes.serve_herder(worker.herder, worker.herder_address)
    begun = time.monotonic()
    await worker.herder.until_session(sessions + 1)
    print(f"session again {time.monotonic() - begun:.2f} s after the herder came back")
    held = {holding.unit.connector: holding for holding in worker.herder.hellos[-1].holdings}
    assert held["steady"].state == RUNNING
    assert held["steady"].assignment == assignment()
    assert held["bad"].failure.trace
    assert worker.herder.hellos[-1].logger_revision == revision, "whoever leads now tells it later levels alone"
    start_counts = {task.task.connector: task.start_count for task in await worker.tasks()}
    assert start_counts["steady"] == 1
    worker.store.away = False


async def test_an_idle_source_is_woken_by_its_file(worker: WorkerProcess, tmp_topic: Callable[..., str]) -> None:
    path, topic = worker.folder / "source.txt", await create_topic(worker.bootstrap, tmp_topic())
    path.write_text("first\n")
    config: dict[str, str | None] = {
        "name": "tail",
        "connector.class": "FileStreamSource",
        "file": str(path),
        "topic": topic,
        "value.converter": "org.apache.kafka.connect.storage.StringConverter",
        "herdmesh.linger.ms": "300",
    }
    worker.herder.send(start_task("tail", config, config, epoch=2))
    await worker.herder.until_report("tail", RUNNING)
    await worker.herder.until(
        lambda: (p := worker.herder.progress("tail")) is not None and p.records_in == 1 and p.activity == IDLE,
        "idle after its line",
    )
    with path.open("a") as file:
        file.write("second\n")
    await worker.herder.until(lambda: worker.herder.progress("tail").records_in == 2, "woken by the file")


async def test_a_stale_status_stops_the_task(worker: WorkerProcess, tmp_topic: Callable[..., str]) -> None:
    worker.store.stale.add("late")
    topic = await create_topic(worker.bootstrap, tmp_topic())
    config = worker.sink("late", topic)
    worker.herder.send(start_task("late", config, config, epoch=2))
    await worker.herder.until_report("late", UNASSIGNED)


async def test_sigterm_leaves_in_order(worker: WorkerProcess) -> None:
    assert worker.process is not None
    family = psutil.Process(worker.pid).children(recursive=True)
    worker.herder.said.clear()
    begun = time.monotonic()
    worker.process.send_signal(signal.SIGTERM)
    await worker.herder.until(
        lambda: any(one.WhichOneof("message") == "leaving" for one in worker.herder.said), "leaving"
    )
    worker.herder.send(session_pb2.SessionResponse(epoch=2, released=session_pb2.SessionReleased()))
    async with asyncio.timeout(60):
        assert await worker.process.wait() == 0
    print(f"clean stop took {time.monotonic() - begun:.2f} s")

    def released() -> set[str]:
        return {report.unit.connector for report in worker.herder.reports() if report.state == UNASSIGNED}

    # its last messages may still be on their way to the herder when the process is gone
    await worker.herder.until(lambda: {"one", "many", "steady", "tail", "maker", "bad"} <= released(), "released")
    assert worker.store.of("one")[-1].state == UNASSIGNED
    assert worker.store.of("bad")[-1].state == FAILED, "a failure stays readable"
    assert worker.store.leases[-1].leaving
    _, alive = await asyncio.to_thread(psutil.wait_procs, family, 30)
    assert not alive
