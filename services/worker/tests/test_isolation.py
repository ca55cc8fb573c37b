"""Runs that end in every bad way beside one that works: a real worker, real Spark, a real broker.

All are processes under one JVM and one daemon. Whatever one does to its own process, its task's status shows it, and
the others are not affected.
"""

from __future__ import annotations

import asyncio
import os
import re
import time
from collections.abc import AsyncIterator, Callable

import psutil
import pytest
import pytest_asyncio

from herdmesh.api.common.v1 import connector_pb2
from herdmesh.api.herder.v1 import worker_session_service_pb2 as session_pb2
from herdmesh.api.worker.v1 import worker_service_pb2
from services.worker.tests import breaking_sink
from services.worker.tests.fakes import assignment, unit
from services.worker.tests.test_worker_process import (
    FAILED,
    RUNNING,
    WorkerProcess,
    create_topic,
    is_java,
    produce,
)

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(180)]

#: Slots and standby processes of the worker, and one more.
_TURNS_MAX = 12
#: Expected text of its status, and how often its process had to die for that.
SAID = {
    "segv": r"its process was killed by SIGSEGV \(Segmentation fault\)",
    "abort": r"its process was killed by SIGABRT \(Aborted\)",
    "exit": "its process exited with code 3 before its run ended",
    "kill": r"the process of the task died 4 times in a row: its process was killed by SIGKILL \(Killed\): by the ",
    "grow": r"the task used more than herdmesh.memory.max=256MB: its process had (\d+)MB and was killed",
}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def worker(kafka_bootstrap: str, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[WorkerProcess]:
    """A worker that has the connector which breaks."""
    folder = tmp_path_factory.mktemp("isolation")
    breaking_sink.install(folder / "plugins")
    path = os.pathsep.join((str(folder / "plugins"), os.environ.get("PYTHONPATH", "")))
    running = WorkerProcess(kafka_bootstrap, folder)
    try:
        with pytest.MonkeyPatch.context() as environment:
            environment.setenv("PYTHONPATH", path)
            environment.setenv("HERDMESH_SLOTS", "8")
            await running.start()
        yield running
    finally:
        await running.stop()


async def test_a_run_that_dies_affects_no_other_and_its_status_has_the_cause(
    worker: WorkerProcess, tmp_topic: Callable[..., str]
) -> None:
    steady = await create_topic(worker.bootstrap, tmp_topic("steady"), 1)
    pid = await _steady(worker, "steady", steady)
    topic = await create_topic(worker.bootstrap, tmp_topic("broken"), 1)
    await produce(worker.bootstrap, topic, ["the last straw"])
    begun = time.monotonic()
    for how in SAID:
        more = {"herdmesh.memory.max": "256MB"} if how == "grow" else {}
        worker.start_sink(how, topic, **{"connector.class": "Breaks", "how": how, **more})

    async def failed(how: str) -> None:
        report = await worker.herder.until_report(how, FAILED)
        print(f"{how}: {time.monotonic() - begun:.1f} s: {report.failure.message}")
        found = re.match(SAID[how], report.failure.message)
        assert found, report.failure.message
        assert report.failure.error_class == connector_pb2.ERROR_CLASS_RETRIABLE
        if how in ("segv", "abort"):
            assert "breaking_sink.py" in report.failure.trace, "where it stood"
        if how == "grow":
            assert 256 < int(found[1]) < 2_048

    await asyncio.gather(*map(failed, SAID))
    await _goes_on(worker, "steady", steady, pid)
    runs = {how: (await _held(worker, how)).progress.run_count for how in SAID}
    assert runs == {"segv": 1, "abort": 1, "exit": 1, "kill": 4, "grow": 1}


async def test_the_death_of_a_connectors_own_application_affects_no_other_connector(
    worker: WorkerProcess, tmp_topic: Callable[..., str]
) -> None:
    """Its JVM differs from the worker's, and starts anew with the next run."""
    shared, own = [await create_topic(worker.bootstrap, tmp_topic(name), 1) for name in ("shared", "own")]
    beside = await _steady(worker, "shared", shared)
    pid = await _steady(worker, "own", own, **{"herdmesh.isolation": "application"})
    jvm = _jvm_over(pid)
    assert jvm.pid != _jvm_over(beside).pid
    assert worker.pid in [one.pid for one in jvm.parents()]
    jvm.kill()

    await worker.until("own", lambda: worker.herder.progress("own").pid not in (0, pid), "in another run")
    await produce(worker.bootstrap, own, ["after"])
    await worker.until("own", lambda: worker.lines("own")[-1:] == ["after"], "writing on")
    again = _jvm_over((await _held(worker, "own")).progress.pid)
    assert again.pid not in (jvm.pid, _jvm_over(beside).pid)
    await _goes_on(worker, "shared", shared, beside)


async def test_a_run_can_fork_processes_while_grpc_works(worker: WorkerProcess, tmp_topic: Callable[..., str]) -> None:
    """As pyspark starts the JVM of a task's own Spark, while gRPC reports the run to the worker."""
    topic = await create_topic(worker.bootstrap, tmp_topic("forks"), 1)
    await produce(worker.bootstrap, topic, ["one"])
    worker.start_sink("forks", topic, **{"connector.class": "Breaks", "how": "forks"})
    report = await worker.herder.until_report("forks", FAILED)
    assert f" 0 of {breaking_sink.CHILDREN} children died" in f" {report.failure.message}"


def _jvm_over(pid: int) -> psutil.Process:
    """The JVM whose daemon forked the run."""
    return next(one for one in psutil.Process(pid).parents() if is_java(one))


async def _steady(worker: WorkerProcess, name: str, topic: str, **more: str) -> int:
    """Start a sink that works; the pid of its run."""
    await produce(worker.bootstrap, topic, ["before"])
    worker.start_sink(name, topic, **{"herdmesh.trigger": "continuous", **more})
    await worker.herder.until_report(name, RUNNING)
    await worker.until(name, lambda: worker.lines(name) == ["before"], "writing")
    pid = (await _held(worker, name)).progress.pid
    assert pid
    return pid


async def _goes_on(worker: WorkerProcess, name: str, topic: str, pid: int) -> None:
    """Check that the sink still works in the run that it had."""
    await produce(worker.bootstrap, topic, ["after"])
    await worker.until(name, lambda: worker.lines(name)[-1:] == ["after"], "writing on")
    held = await _held(worker, name)
    assert (held.progress.pid, held.progress.run_count) == (pid, 1)


async def _held(worker: WorkerProcess, name: str) -> worker_service_pb2.HeldTask:
    return next(one for one in await worker.tasks() if one.task.connector == name)


async def test_a_process_executes_one_run_after_another_of_connectors_that_allow_it(
    worker: WorkerProcess, tmp_topic: Callable[..., str]
) -> None:
    """Runs with a process of their own are between those that may share one."""
    topic = await create_topic(worker.bootstrap, tmp_topic("turns"), 1)
    await produce(worker.bootstrap, topic, ["one"])
    own = [await _one_turn(worker, "turn-own", topic, **{"herdmesh.isolation": "process"})]
    turns = list[int]()
    # A process needs some milliseconds after its run until it waits for another one; a turn that begins meanwhile gets
    # another process.
    while len(turns) == len(set(turns)):
        assert len(turns) < _TURNS_MAX, "each run had a new process"
        turns.append(await _one_turn(worker, f"turn-{len(turns)}", topic))
    own.append(await _one_turn(worker, "turn-bounded", topic, **{"herdmesh.memory.max": "512MB"}))
    assert len({*own, *turns}) == len(set(turns)) + 2


async def _one_turn(worker: WorkerProcess, name: str, topic: str, **more: str) -> int:
    """The pid of a run of a task that is started, and stopped after its first record."""
    worker.start_sink(name, topic, **more)
    await worker.herder.until_report(name, RUNNING)
    await worker.until(name, lambda: worker.lines(name) == ["one"], "writing")
    pid = (await _held(worker, name)).progress.pid
    stop = session_pb2.StopUnit(unit=unit(name), assignment=assignment())
    worker.herder.send(session_pb2.SessionResponse(epoch=1, stop=stop))
    await worker.herder.until_report(name, connector_pb2.RUN_STATE_UNASSIGNED)
    return pid
