"""Choice of the application that executes a run, and the end of a connector's own: most tests start no process."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field, replace

import pytest

from herdmesh.rpc.errors import Superseded
from herdmesh.worker.effects.runs import applications
from herdmesh.worker.effects.runs.applications import Applications, SparkApplication
from herdmesh.worker.effects.runs.processes import LastWord, Processes, RunLine
from herdmesh.worker.errors import RunLost
from herdmesh.worker.run.run_link import Launch, RunOrder
from services.worker.tests.test_processes import ORDER, Jobs


@dataclass
class OwnJobs(Jobs):
    """Jobs of a connector's own application."""

    closed: asyncio.Event = field(default_factory=asyncio.Event)

    async def close(self) -> None:
        self.closed.set()


@dataclass
class World:
    """The worker's application, and the other applications that were created, in order."""

    shared: Jobs
    all: Applications
    made: list[tuple[str, OwnJobs]]

    async def run(self, run_id: str, connector: str, isolation: str | None) -> tuple[RunLine, asyncio.Task[None]]:
        config = {"herdmesh.isolation": isolation}
        order = RunOrder(replace(ORDER.spec, connector=connector, connector_config=config))
        line = RunLine(run_id)
        run = asyncio.create_task(self.all.execute(line, order))
        await self.settle()
        return line, run

    async def settle(self) -> None:
        for _ in range(10):
            await asyncio.sleep(0)

    async def dial_in(self, launch: Launch) -> None:
        self.all.open(launch.process_id, launch.token)
        await self.settle()


@pytest.fixture
async def world(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[World]:
    monkeypatch.setattr(applications, "_IDLE_S", 0.0)
    shared, made = Jobs(), list[tuple[str, OwnJobs]]()

    def make(connector: str) -> OwnJobs:
        made.append((connector, OwnJobs()))
        return made[-1][1]

    found = World(shared, Applications(Processes(shared, standbys=0), make), made)
    found.all.start("127.0.0.1:1")
    yield found
    await found.all.close(0)


async def _finish(line: RunLine, run: asyncio.Task[None], jobs: Jobs, launch: Launch) -> None:
    line.last_word = LastWord.FINISHED
    line.closed.set()
    jobs.end(launch)
    await run


async def test_a_run_uses_the_application_of_its_order_which_ends_after_its_last_run(world: World) -> None:
    shared = await world.run("r1", "a", None)
    also_shared = await world.run("r2", "b", "process")
    one, two = await world.run("r3", "c", "application"), await world.run("r4", "c", "application")
    other = await world.run("r5", "d", "application")
    assert [name for name, _ in world.made] == ["c", "d"]
    (_, of_c), (_, of_d) = world.made
    assert [len(jobs.launches) for jobs in (world.shared, of_c, of_d)] == [2, 2, 1]
    for jobs in (world.shared, of_c, of_d):
        for launch in jobs.launches:
            await world.dial_in(launch)
    with pytest.raises(Superseded):
        world.all.open(of_c.launches[0].process_id, of_c.launches[0].token)
    world.all.cancel("r5")
    assert (world.shared.cancelled, of_c.cancelled) == ([], [])
    assert of_d.cancelled == [of_d.launches[0].process_id]
    await _finish(*one, of_c, of_c.launches[0])
    assert not of_c.closed.is_set()
    await _finish(*two, of_c, of_c.launches[1])
    await of_c.closed.wait()
    assert not of_d.closed.is_set()
    again = await world.run("r6", "c", "application")
    assert [name for name, _ in world.made] == ["c", "d", "c"]
    for _, run in (shared, also_shared, other, again):
        run.cancel()


async def test_the_loss_of_an_application_loses_only_its_own_runs(world: World) -> None:
    _, lost = await world.run("r1", "c", "application")
    _, kept = await world.run("r2", "d", "application")
    (_, of_c), (_, of_d) = world.made
    for jobs in (of_c, of_d):
        await world.dial_in(jobs.launches[0])
    of_c.end(of_c.launches[0], "the application ended")
    with pytest.raises(RunLost, match="the application ended"):
        await lost
    assert not kept.done()
    kept.cancel()


async def test_a_run_whose_spark_does_not_start_fails_with_the_cause() -> None:
    """A real process, whose JVM refuses its options."""
    jobs = SparkApplication("c", lambda _: {"spark.master": "local[1]", "spark.driver.memory": "nonsense"})
    with pytest.raises(RunLost, match="Spark application did not start"):
        await jobs.run_job(Launch("p", "127.0.0.1:1", "t"))
    await jobs.close()
