"""Runs over the real RunService, executed in plain subprocesses: no Spark and no Kafka needed."""

from __future__ import annotations

import asyncio
import pickle
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from pydantic import SecretStr

from herdmesh.api.worker.v1 import run_service_pb2, run_service_pb2_grpc
from herdmesh.connect.error_class import ErrorClass
from herdmesh.connect.errors import ConfigError
from herdmesh.connect.plugins.plugin_registry import PluginRegistry
from herdmesh.connect.spi import waits
from herdmesh.connect.topics import offsets_file
from herdmesh.engine.runtime.contract import (
    ProgressReport,
    RunEnd,
    RunOutcome,
    RunSpec,
    Share,
    Stop,
    TaskKind,
    TaskSetClaim,
)
from herdmesh.engine.runtime.errors import TaskFailed
from herdmesh.engine.runtime.measures import Measures
from herdmesh.rpc.server import Server, ServiceRegistration
from herdmesh.session.model import Assignment, UnitId
from herdmesh.topicstore.contract import Revision
from herdmesh.worker import wire
from herdmesh.worker.effects.offsets.offset_file import OffsetFile
from herdmesh.worker.effects.runs import run_executor as runs_module
from herdmesh.worker.effects.runs.applications import Applications, ClosableJobs
from herdmesh.worker.effects.runs.processes import Processes
from herdmesh.worker.effects.runs.run_executor import Runs
from herdmesh.worker.effects.runs.specs import RunSpecs
from herdmesh.worker.errors import RunLost
from herdmesh.worker.run.run_link import Launch, RunOrder, WorkerLink, channel_to
from herdmesh.worker.service.run_service import RunServicer
from herdmesh.worker.settings import WorkerSettings
from herdmesh.worker.state import events, instructions
from herdmesh.worker.state.model import TaskSpec

pytestmark = pytest.mark.timed

PROGRAM = """
import pickle, sys
from herdmesh.worker.spark.entry import execute
execute(pickle.load(sys.stdin.buffer))
"""
UNIT = UnitId("c", 0)
SINK = {"connector.class": "FileStreamSink", "name": "c", "topics": "t", "file": "f"}
SERVICE = "herdmesh.api.worker.v1.RunService"
#: Timeout for other processes; no test measures it.
WAIT_S = 60.0


@dataclass
class SubprocessJobs:
    """A `JobRunner` without Spark. `launched` gets each launch; `hold` delays its execution, until `released` lets all
    held ones end.
    """

    hold: bool = False
    launched: asyncio.Queue[Launch] = field(default_factory=lambda: asyncio.Queue[Launch]())
    released: asyncio.Event = field(default_factory=asyncio.Event)

    async def run_job(self, launch: Launch) -> None:
        self.launched.put_nowait(launch)
        if self.hold:
            await self.released.wait()
            return
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", PROGRAM, stdin=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
        )
        _, errors = await process.communicate(pickle.dumps(launch))
        if process.returncode:
            raise RunLost(errors.decode().strip().splitlines()[-1])

    def cancel(self, process_id: str) -> None:
        self.released.set()


def no_application(connector: str) -> ClosableJobs:
    raise AssertionError(f"{connector} did not ask for one")


ASSIGNMENT = Assignment(3, 12, "i1", Revision("store", (40,)), "7:aa")
CLAIM = TaskSetClaim("connect-configs", 57, "i1", "7:aa")


@dataclass
class Bench:
    """Runs behind a real server, and their events."""

    jobs: SubprocessJobs
    processes: Applications
    runs: Runs
    server: Server
    said: asyncio.Queue[events.Event]

    def submit(self, config: dict[str, str | None], run_id: str = "r1") -> None:
        spec = TaskSpec({**SINK, **config}, {"file": "f"}, 1)
        self.runs.submit(instructions.SubmitRun(run_id, UNIT, spec, None, ASSIGNMENT, 57))

    async def next(self) -> events.Event:
        async with asyncio.timeout(WAIT_S):
            return await self.said.get()


@contextmanager
def linked(launch: Launch) -> Generator[WorkerLink]:
    """The link of a process with one run."""
    with channel_to(launch) as channel, WorkerLink(launch, channel) as link:
        yield link


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    said: asyncio.Queue[events.Event] = asyncio.Queue()
    jobs = SubprocessJobs()
    specs = RunSpecs(WorkerSettings(), PluginRegistry.discover())
    processes = Applications(Processes(jobs, standbys=0), no_application)
    runs = Runs(processes, specs, lambda _unit, _spec: None, dict, said.put)
    servicer = RunServicer(processes, runs, said.put)
    add = run_service_pb2_grpc.add_RunServiceServicer_to_server
    server = Server("127.0.0.1:0", [ServiceRegistration(servicer, add, SERVICE)], metrics=False)
    processes.start(f"127.0.0.1:{await server.start()}")
    yield Bench(jobs, processes, runs, server, said)
    jobs.released.set()
    await runs.close(5)
    await server.stop(0)


async def in_thread(call: Callable[[], None]) -> None:
    await asyncio.to_thread(call)


async def test_a_failing_run_reports_its_failure_before_its_end(bench: Bench) -> None:
    bench.submit({"value.converter": "org.example.NoConverter"})
    hello = await bench.next()
    assert isinstance(hello, events.RunHello)
    assert hello.pid > 0
    failed = await bench.next()
    assert isinstance(failed, events.RunFailed)
    assert failed.failure.error_class is ErrorClass.BAD_CONFIG
    assert "org.example.NoConverter" in failed.failure.message
    assert "Traceback" in failed.failure.trace
    assert await bench.next() == events.RunEnded("r1")


async def test_a_failed_run_is_not_over_before_its_process(bench: Bench) -> None:
    """A hanging commit is left to one of its threads and may still succeed: no other owner gets the task until then."""
    bench.jobs.hold = True
    bench.submit({})
    launch = await bench.jobs.launched.get()

    def run() -> None:
        with linked(launch) as link:
            assert link.order() is not None
            assert link.last_word(run_service_pb2.RunRequest(failed=run_service_pb2.RunFailed()))

    await in_thread(run)
    assert isinstance(await bench.next(), events.RunHello)
    assert isinstance(await bench.next(), events.RunFailed)
    await bench.server.stop(1)  # all messages of the line were received
    assert bench.said.empty()
    bench.jobs.released.set()
    assert await bench.next() == events.RunEnded("r1")


async def test_a_run_of_an_unknown_class_fails_without_a_process(bench: Bench) -> None:
    bench.submit({"connector.class": "org.example.Nothing"})
    failed = await bench.next()
    assert isinstance(failed, events.RunFailed)
    assert failed.failure.error_class is ErrorClass.BAD_CONFIG
    assert "FileStreamSink" in failed.failure.message, "it says what there is"
    assert await bench.next() == events.RunEnded("r1")
    assert bench.jobs.launched.empty()


async def test_a_wait_during_a_runs_preparation_is_reported(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """For example for a secret store that does not answer."""
    monkeypatch.setattr(runs_module, "LOOK_S", 0.01)
    monkeypatch.setattr(waits, "SHOWN_AFTER_S", 0.0)
    is_told = threading.Event()

    def before(_unit: UnitId, _spec: TaskSpec) -> None:
        with waits.on("Vault", "secret app"):
            assert is_told.wait(WAIT_S)
        raise ConfigError("it is sealed")

    specs = RunSpecs(WorkerSettings(), PluginRegistry.discover())
    runs = Runs(bench.processes, specs, before, dict, bench.said.put)
    runs.submit(instructions.SubmitRun("r1", UNIT, TaskSpec({**SINK}, {"file": "f"}, 1), None, ASSIGNMENT, 57))
    said = await bench.next()
    assert isinstance(said, events.RunLiveness)
    assert said.wait is not None
    assert (said.wait.waits_for, said.wait.message) == ("Vault", "secret app")
    is_told.set()
    assert await bench.next() == events.RunLiveness("r1", 0, 0)
    assert isinstance(await bench.next(), events.RunFailed)
    await runs.close(WAIT_S)


async def test_commands_reach_the_run_also_those_sent_before_it_connected(bench: Bench) -> None:
    bench.jobs.hold = True
    bench.submit({})
    launch = await bench.jobs.launched.get()
    bench.runs.share("r1", 250)
    bench.runs.stop("r1", "paused")

    def run() -> None:
        with linked(launch) as link:
            assert link.order() is not None
            heard = list[object]()
            while len(heard) < 2:
                heard += link.commands()
            assert heard == [Share(250), Stop("paused")]
            for count in range(1_000):
                link.progress(ProgressReport(records_in=count, measures=Measures(commit_failures=1)))
            assert link.last_word(wire.run_finished_to(RunOutcome(RunEnd.STOPPED, ProgressReport(records_in=1_000))))

    await in_thread(run)
    bench.jobs.released.set()
    seen: list[events.Event] = []
    while not seen or not isinstance(seen[-1], events.RunEnded):
        seen.append(await bench.next())
    assert isinstance(seen[0], events.RunHello)
    assert isinstance(seen[-2], events.RunFinished)
    assert seen[-2].progress.records_in == 1_000
    counts = [one.progress.records_in for one in seen if isinstance(one, events.RunProgress)]
    assert counts == sorted(counts)
    assert len(counts) < 1_000, "the latest progress wins"
    measured = [one.progress.measures.commit_failures for one in seen if isinstance(one, events.RunProgress)]
    assert sum(measured) == 1_000, "but for what it measured"


async def test_a_broken_line_becomes_a_stop_within_a_second(bench: Bench) -> None:
    bench.jobs.hold = True
    bench.submit({})
    launch = await bench.jobs.launched.get()
    dialled, broken = threading.Event(), threading.Event()
    took: list[float] = []

    def run() -> None:
        with linked(launch) as link:
            assert link.order() is not None
            dialled.set()
            assert broken.wait(WAIT_S)
            since = time.monotonic()
            while not (heard := link.commands()):
                assert time.monotonic() < since + WAIT_S
            took.append(time.monotonic() - since)
            assert isinstance(heard[0], Stop)
            assert not link.last_word(wire.run_finished_to(RunOutcome(RunEnd.STOPPED, ProgressReport())))

    running = asyncio.create_task(in_thread(run))
    assert await asyncio.to_thread(dialled.wait, WAIT_S)
    broken.set()
    await bench.server.stop(0)
    await running
    print(f"a broken line became a stop within {took[0]:.2f} s")
    assert took[0] < 3.0  # a second is expected; three times that on a busy machine


@pytest.mark.parametrize("other", [{"process_id": "other"}, {"token": "other"}])
async def test_an_unknown_process_is_refused(bench: Bench, other: dict[str, str]) -> None:
    bench.jobs.hold = True
    bench.submit({})
    launch = await bench.jobs.launched.get()

    def run() -> None:
        with linked(replace(launch, **other)) as link, pytest.raises(RunLost, match="does not wait for process"):
            link.order()

    await in_thread(run)


async def test_a_process_connects_once(bench: Bench) -> None:
    """Another process that knows its token comes too late."""
    bench.jobs.hold = True
    bench.submit({})
    launch = await bench.jobs.launched.get()

    def run() -> None:
        with linked(launch) as link:
            assert link.order() is not None
            with linked(launch) as second, pytest.raises(RunLost, match="does not wait for process"):
                second.order()

    await in_thread(run)


async def test_a_lost_process_ends_the_run_with_its_error(bench: Bench) -> None:
    bench.processes.start("127.0.0.1:1")
    bench.submit({})
    assert (await bench.jobs.launched.get()).address == "127.0.0.1:1"
    ended = await bench.next()
    assert isinstance(ended, events.RunEnded)
    assert "did not accept the process" in (ended.error or "")


async def test_a_standby_waits_for_its_order_and_exits_with_its_worker(bench: Bench) -> None:
    """Real processes: two exist before any run, the run gets one of them, and a third replaces it."""
    processes, said = Applications(Processes(bench.jobs, standbys=2), no_application), bench.said
    runs = Runs(processes, RunSpecs(WorkerSettings(), PluginRegistry.discover()), lambda _u, _s: None, dict, said.put)
    servicer = RunServicer(processes, runs, said.put)
    add = run_service_pb2_grpc.add_RunServiceServicer_to_server
    server = Server("127.0.0.1:0", [ServiceRegistration(servicer, add, SERVICE)], metrics=False)
    processes.start(f"127.0.0.1:{await server.start()}")
    launched = {(await bench.jobs.launched.get()).process_id for _ in range(2)}
    assert bench.jobs.launched.empty()
    spec = TaskSpec({**SINK, "value.converter": "org.example.NoConverter"}, {"file": "f"}, 1)
    runs.submit(instructions.SubmitRun("r1", UNIT, spec, None, ASSIGNMENT, 57))
    assert isinstance(await bench.next(), events.RunHello)
    third = await bench.jobs.launched.get()
    assert third.process_id not in launched
    assert isinstance(await bench.next(), events.RunFailed)
    assert await bench.next() == events.RunEnded("r1")
    begun = time.monotonic()
    await runs.close(WAIT_S)
    assert time.monotonic() - begun < WAIT_S - 1, "those that waited ended by themselves"
    assert bench.jobs.launched.empty(), "nobody took their place"
    await server.stop(0)


def test_an_order_survives_the_wire() -> None:
    claim = TaskSetClaim("connect-configs", 40, "i1", "7:aa")
    spec = RunSpec(
        "r",
        "c",
        1,
        2,
        TaskKind.SOURCE,
        "x:Y",
        {"null": None, "a": "b"},
        {},
        "127.0.0.1:1",
        "g",
        "o",
        "g-c-1",
        worker_config={"k": None},
        source_offsets={b"\xff": b"\x00"},
        claim=claim,
    )
    order = RunOrder(spec, {"root": 10})
    assert RunOrder.from_wire(order.to_wire().order) == order


async def test_store_offsets_returns_when_the_offsets_are_on_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only while the run is the task's current one; offsets of an older run are refused, and change nothing."""
    monkeypatch.setattr("herdmesh.worker.effects.runs.run_executor._LINE_CLOSE_TIMEOUT_S", 0.1)
    path = tmp_path / "offsets"
    file = OffsetFile(str(path))
    file.open()
    jobs, said = SubprocessJobs(hold=True), asyncio.Queue[events.Event]()
    specs = RunSpecs(WorkerSettings(offset_storage_file=str(path)), PluginRegistry.discover(), file.of)
    processes = Applications(Processes(jobs, standbys=0), no_application)
    runs = Runs(processes, specs, lambda _unit, _spec: None, dict, said.put)
    add = run_service_pb2_grpc.add_RunServiceServicer_to_server
    servicer = RunServicer(processes, runs, said.put, file)
    server = Server("127.0.0.1:0", [ServiceRegistration(servicer, add, SERVICE)], metrics=False)
    processes.start(f"127.0.0.1:{await server.start()}")
    source: dict[str, str | None] = {"connector.class": "FileStreamSource", "name": "c", "file": "f", "topic": "t"}
    submit = instructions.SubmitRun("r1", UNIT, TaskSpec(source, source, 1), None, ASSIGNMENT, None)
    runs.submit(submit)
    launch = await jobs.launched.get()
    stored, over = threading.Event(), threading.Event()
    key, other = b'["c",{}]', b'["d",{}]'

    def run() -> None:
        with linked(launch) as link:
            order = link.order()
            assert order is not None
            assert order.spec.source_offsets == {}
            link.store_offsets({key: b"1", other: b"7"})
            assert offsets_file.decode(path.read_bytes()) == {key: b"1", other: b"7"}
            link.store_offsets({key: b"2", other: None})
            assert offsets_file.decode(path.read_bytes()) == {key: b"2"}
            stored.set()
            assert over.wait(WAIT_S)
            with pytest.raises(TaskFailed, match="the offsets could not be stored") as refused:
                link.store_offsets({key: b"3"})
            assert refused.value.error_class is ErrorClass.RETRIABLE

    running = asyncio.create_task(in_thread(run))
    assert await asyncio.to_thread(stored.wait, WAIT_S)
    jobs.released.set()  # Spark reports that the process is over; it is not, and its line stays open
    while not isinstance(await asyncio.wait_for(said.get(), WAIT_S), events.RunEnded):
        pass
    over.set()
    await running
    assert file.of("c") == {key: b"2"}
    jobs.released.clear()
    runs.submit(submit)
    assert (await _ordered(await jobs.launched.get())).spec.source_offsets == {key: b"2"}
    jobs.released.set()
    await runs.close(5)
    await server.stop(0)
    file.close()


def test_progress_survives_the_wire() -> None:
    request = run_service_pb2.RunRequest(progress=wire.progress_to(ProgressReport(records_in=3)))
    event = wire.run_event_from("r", request)
    assert event == events.RunProgress("r", ProgressReport(records_in=3))


async def _ordered(launch: Launch) -> RunOrder:
    """The order for a process that connects."""

    def dial() -> RunOrder | None:
        with linked(launch) as link:
            return link.order()

    order = await asyncio.to_thread(dial)
    assert order is not None
    return order


async def test_a_run_verifies_its_task_set_from_the_last_known_config_offset(bench: Bench) -> None:
    bench.jobs.hold = True
    bench.submit({})
    assert (await _ordered(await bench.jobs.launched.get())).spec.claim == CLAIM


def test_without_a_config_topic_a_run_verifies_no_task_set() -> None:
    specs = RunSpecs(WorkerSettings(config_storage_topic=""), PluginRegistry.discover())
    assert specs.claim(ASSIGNMENT, 57) is None


async def test_a_stuck_loop_is_reported_by_another_thread_of_its_process(bench: Bench) -> None:
    specs = RunSpecs(WorkerSettings(stalled_ms=1_000), PluginRegistry.discover())
    said, jobs = bench.said, SubprocessJobs(hold=True)
    processes = Applications(Processes(jobs, standbys=0), no_application)
    runs = Runs(processes, specs, lambda _unit, _spec: None, dict, said.put)
    add = run_service_pb2_grpc.add_RunServiceServicer_to_server
    servicer = RunServicer(processes, runs, said.put)
    server = Server("127.0.0.1:0", [ServiceRegistration(servicer, add, SERVICE)], metrics=False)
    processes.start(f"127.0.0.1:{await server.start()}")
    config: dict[str, str | None] = {**SINK, "consumer.override.max.poll.interval.ms": "7000"}
    spec = TaskSpec(config, {"file": "f"}, 1)
    runs.submit(instructions.SubmitRun("r1", UNIT, spec, None, ASSIGNMENT, 57))
    launch = await jobs.launched.get()
    moves, over = threading.Event(), threading.Event()

    def run() -> None:
        with linked(launch) as link:
            assert link.order() is not None
            assert moves.wait(WAIT_S)
            while not over.wait(0.01):
                link.commands()
            assert link.last_word(wire.run_finished_to(RunOutcome(RunEnd.STOPPED, ProgressReport())))

    running = asyncio.create_task(in_thread(run))
    hello = await bench.next()
    assert isinstance(hello, events.RunHello)
    assert hello.silence_end_ms == 7_000

    async def next_pulse() -> events.RunLiveness:
        one = await bench.next()
        assert isinstance(one, events.RunLiveness)
        return one

    stood = [await next_pulse() for _ in range(3)]
    assert 0 < stood[0].silent_ms < stood[1].silent_ms < stood[2].silent_ms
    assert {one.moved_ms for one in stood} == {stood[0].moved_ms}
    moves.set()
    while (one := await next_pulse()).silent_ms > 0:
        pass
    assert one.moved_ms > stood[0].moved_ms
    over.set()
    await running
    jobs.released.set()
    while not isinstance(await bench.next(), events.RunEnded):
        pass
    await runs.close(5)
    await server.stop(0)


@pytest.mark.parametrize(
    ("worker", "connector", "wanted_ms"),
    [
        ("", {}, 300_000),
        ("consumer.max.poll.interval.ms=60000", {}, 60_000),
        ("consumer.max.poll.interval.ms=60000", {"consumer.override.max.poll.interval.ms": "7000"}, 7_000),
    ],
)
def test_the_limit_of_time_without_progress_is_max_poll_interval_ms(
    worker: str, connector: dict[str, str | None], wanted_ms: int
) -> None:
    specs = RunSpecs(WorkerSettings(worker_properties=SecretStr(worker)), PluginRegistry.discover())
    for plugin in (SINK, {**SINK, "connector.class": "FileStreamSource", "topic": "t"}):
        config: dict[str, str | None] = {**plugin, **connector}
        made = specs.without_class(UNIT, TaskSpec(config, config, 1))
        assert made.poll_interval_max_ms == wanted_ms


@pytest.mark.parametrize("value", ["0", "soon", "-1"])
def test_an_invalid_max_poll_interval_ms_is_refused_by_name(value: str) -> None:
    specs = RunSpecs(WorkerSettings(), PluginRegistry.discover())
    config: dict[str, str | None] = {**SINK, "consumer.override.max.poll.interval.ms": value}
    with pytest.raises(ConfigError) as refused:
        specs.without_class(UNIT, TaskSpec(config, config, 1))
    assert refused.value.field == "consumer.override.max.poll.interval.ms"
