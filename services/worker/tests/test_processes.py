"""Assignment of orders to processes, and the launches: no server, no process, a `JobRunner` that tests play."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Protocol

import pytest

from herdmesh.engine.runtime.contract import RunSpec, TaskKind
from herdmesh.rpc.errors import Superseded
from herdmesh.worker.effects.runs.processes import LastWord, Processes, RunLine, RunProcess
from herdmesh.worker.errors import RunLost
from herdmesh.worker.run.run_link import Launch, RunOrder

ORDER = RunOrder(RunSpec("r", "c", 0, 1, TaskKind.SINK, "x:Y", {}, {}, "127.0.0.1:1", "g", "o", "g-c-0"))


@dataclass
class Jobs:
    """Launches that end when the test ends them; `alive` are those that have not ended."""

    alive: dict[str, asyncio.Future[None]] = field(default_factory=dict[str, "asyncio.Future[None]"])
    launches: list[Launch] = field(default_factory=list[Launch])
    cancelled: list[str] = field(default_factory=list[str])

    async def run_job(self, launch: Launch) -> None:
        self.launches.append(launch)
        self.alive[launch.process_id] = over = asyncio.get_running_loop().create_future()
        try:
            await over
        finally:
            del self.alive[launch.process_id]

    def cancel(self, process_id: str) -> None:
        self.cancelled.append(process_id)

    def end(self, launch: Launch, error: str = "") -> None:
        over = self.alive[launch.process_id]
        if error:
            over.set_exception(RunLost(error))
        else:
            over.set_result(None)


class Timer:
    """Replacement for the result of `call_later`."""

    def __init__(self, delay_s: float, call: Callable[[], None]) -> None:
        self.delay_s = delay_s
        self._call: Callable[[], None] | None = call

    def cancel(self) -> None:
        self._call = None

    def fire(self) -> None:
        call, self._call = self._call, None
        if call is not None:
            call()


@dataclass
class World:
    """Processes with so many standbys, with all events of their loop handled; time passes when a test says so."""

    jobs: Jobs
    processes: Processes
    timers: list[Timer]
    runs: dict[str, asyncio.Task[None]] = field(default_factory=dict[str, "asyncio.Task[None]"])

    async def settle(self) -> None:
        for _ in range(10):
            await asyncio.sleep(0)

    async def run(self, run_id: str, order: RunOrder = ORDER) -> asyncio.Task[None]:
        self.runs[run_id] = asyncio.create_task(self.processes.execute(RunLine(run_id), order))
        await self.settle()
        return self.runs[run_id]

    async def dial_in(self, launch: Launch) -> RunProcess:
        process = self.processes.open(launch.process_id, launch.token)
        await self.settle()
        return process

    async def end(self, launch: Launch, error: str = "") -> None:
        self.jobs.end(launch, error)
        await self.settle()

    async def pass_time(self) -> None:
        """Run all timers."""
        for timer in self.timers:
            timer.fire()
        await self.settle()


class Make(Protocol):
    def __call__(self, standbys: int, reuse_wait_s: float = 0.0) -> World: ...


@pytest.fixture
async def make(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Make]:
    made: list[World] = []
    timers: list[Timer] = []

    def call_later(delay_s: float, call: Callable[..., None], *arguments: object) -> Timer:
        timers.append(Timer(delay_s, partial(call, *arguments)))
        return timers[-1]

    def world(standbys: int, reuse_wait_s: float = 0.0) -> World:
        jobs = Jobs()
        made.append(World(jobs, Processes(jobs, standbys, reuse_wait_s), timers))
        made[-1].processes.start("127.0.0.1:1")
        return made[-1]

    monkeypatch.setattr(asyncio.get_running_loop(), "call_later", call_later)
    yield world
    monkeypatch.undo()
    for one in made:
        await one.processes.close(0)
        for run in one.runs.values():
            run.cancel()


def given_to(process: RunProcess) -> str:
    """The run it has, empty = it waits, "home" = it was dismissed."""
    if not process.given.done():
        return ""
    given = process.given.result()
    return given.line.run_id if given is not None else "home"


async def test_an_order_goes_to_a_standby_process_which_is_replaced(make: Make) -> None:
    world = make(2)
    await world.settle()
    first, second = world.jobs.launches
    waiting = [await world.dial_in(first), await world.dial_in(second)]
    assert len(world.jobs.launches) == 2, "as many as are to wait"
    run = await world.run("r1")
    assert [given_to(one) for one in waiting] == ["r1", ""]
    assert len(world.jobs.launches) == 2, "the run that begins has the processor to itself"
    await world.pass_time()
    assert len(world.jobs.launches) == 3
    await world.end(first)
    assert run.done()
    assert run.exception() is None
    assert len(world.jobs.launches) == 3, "its place was taken already"


async def test_without_a_waiting_standby_replacements_are_launched_at_once(make: Make) -> None:
    world = make(2)
    await world.settle()
    for launch in list(world.jobs.launches):
        await world.dial_in(launch)
    await world.run("r1")
    await world.run("r2")
    assert len(world.jobs.launches) == 4
    await world.run("r3")
    assert len(world.jobs.launches) == 5, "one more is on its way than orders wait for"


async def test_without_standbys_each_order_has_a_process_launched(make: Make) -> None:
    world = make(0)
    await world.settle()
    assert not world.jobs.launches
    await world.run("r1")
    await world.run("r2")
    assert len(world.jobs.launches) == 2
    # the first to connect gets the first order
    assert given_to(await world.dial_in(world.jobs.launches[1])) == "r1"
    assert given_to(await world.dial_in(world.jobs.launches[0])) == "r2"
    for launch in list(world.jobs.launches):
        await world.end(launch)
    assert len(world.jobs.launches) == 2


async def test_a_process_that_dies_before_it_connected_fails_the_oldest_order(make: Make) -> None:
    world = make(0)
    first, second = await world.run("r1"), await world.run("r2")
    await world.end(world.jobs.launches[1], "no fork")
    assert isinstance(first.exception(), RunLost), "or it would wait for ever"
    assert "no fork" in str(first.exception())
    assert not second.done()
    assert given_to(await world.dial_in(world.jobs.launches[0])) == "r2"


async def test_a_process_that_dies_with_its_order_is_a_lost_run(make: Make) -> None:
    world = make(0)
    run = await world.run("r1")
    await world.dial_in(world.jobs.launches[0])
    await world.end(world.jobs.launches[0], "killed")
    assert isinstance(run.exception(), RunLost)


async def test_a_standby_that_dies_affects_no_run_and_is_replaced_with_backoff(make: Make) -> None:
    world = make(1)
    await world.settle()
    for count in (1, 2, 3):
        await world.dial_in(world.jobs.launches[-1])
        await world.end(world.jobs.launches[-1], "killed")
        assert len(world.jobs.launches) == count, "not at once"
        await world.pass_time()
        assert len(world.jobs.launches) == count + 1
    assert [timer.delay_s for timer in world.timers] == [0.5, 1.0, 2.0]
    # a process that dies before it connected is handled alike
    await world.end(world.jobs.launches[-1], "killed")
    run = await world.run("r1")
    assert len(world.jobs.launches) == 5, "an order does not wait for the pause"
    assert given_to(await world.dial_in(world.jobs.launches[-1])) == "r1"
    assert not run.done()


async def test_a_process_with_a_broken_line_gets_no_order(make: Make) -> None:
    world = make(1)
    await world.settle()
    process = await world.dial_in(world.jobs.launches[0])
    world.processes.left(process)
    await world.run("r1")
    assert given_to(process) == ""
    assert given_to(await world.dial_in(world.jobs.launches[1])) == "r1"


async def test_a_run_is_cancelled_with_its_process_or_before_it_has_one(make: Make) -> None:
    world = make(0)
    await world.run("r1")
    await world.dial_in(world.jobs.launches[0])
    world.processes.cancel("r1")
    assert world.jobs.cancelled == [world.jobs.launches[0].process_id]
    second = await world.run("r2")
    world.processes.cancel("r2")
    await world.settle()
    assert isinstance(second.exception(), RunLost)
    assert given_to(await world.dial_in(world.jobs.launches[1])) == "home", "nobody is to wait here"
    world.processes.cancel("r3")
    assert len(world.jobs.cancelled) == 1


async def test_a_process_connects_once_and_with_its_own_token(make: Make) -> None:
    world = make(2)
    await world.settle()
    first, second = world.jobs.launches
    with pytest.raises(Superseded):
        world.processes.open(first.process_id, second.token)
    await world.dial_in(first)
    with pytest.raises(Superseded):
        world.processes.open(first.process_id, first.token)
    await world.end(second, "killed")
    with pytest.raises(Superseded):
        world.processes.open(second.process_id, second.token)


async def test_closing_dismisses_standbys_and_launches_nothing(make: Make) -> None:
    world = make(2)
    await world.settle()
    first, second = world.jobs.launches
    waiting = await world.dial_in(first)
    closing = asyncio.create_task(world.processes.close(30))
    await world.settle()
    assert given_to(waiting) == "home"
    assert given_to(await world.dial_in(second)) == "home", "also who comes late"
    await world.end(first)
    assert not closing.done()
    await world.end(second)
    assert closing.done()
    assert len(world.jobs.launches) == 2


async def test_a_finished_run_is_over_with_its_last_word_and_its_process_is_killed_if_late(make: Make) -> None:
    world = make(0)
    for number, goes in enumerate((True, False)):
        run = await world.run(f"r{number}")
        process = await world.dial_in(world.jobs.launches[number])
        given = process.given.result()
        assert given is not None
        given.line.last_word = LastWord.FINISHED
        await world.settle()
        assert not run.done(), "it may still be giving its clients up"
        given.line.closed.set()
        await world.settle()
        assert run.done()
        assert run.exception() is None
        if goes:
            await world.end(world.jobs.launches[number])
        await world.pass_time()
    assert world.jobs.cancelled == [world.jobs.launches[1].process_id], "who does not go is killed, and nobody else"


async def test_a_line_that_breaks_without_a_last_word_does_not_end_the_run(make: Make) -> None:
    world = make(0)
    run = await world.run("r1")
    given = (await world.dial_in(world.jobs.launches[0])).given.result()
    assert given is not None
    given.line.closed.set()
    await world.settle()
    assert not run.done(), "its process may still write"
    await world.end(world.jobs.launches[0], "killed")
    assert isinstance(run.exception(), RunLost)


@pytest.mark.parametrize("goes", [True, False])
async def test_a_failed_run_is_over_once_its_process_is_gone(make: Make, goes: bool) -> None:
    """It may have failed because a commit hangs, which is left to a thread and may still succeed."""
    world = make(0)
    run = await world.run("r1")
    given = (await world.dial_in(world.jobs.launches[0])).given.result()
    assert given is not None
    given.line.last_word = LastWord.FAILED
    given.line.closed.set()
    await world.settle()
    assert not run.done(), "or its task would be another's while it may still write"
    if not goes:
        await world.pass_time()
        assert world.jobs.cancelled == [world.jobs.launches[0].process_id], "nobody waits for ever"
    await world.end(world.jobs.launches[0], "" if goes else "killed")
    assert run.done()
    assert run.exception() is None, "it is not lost: it said how it ended"


# --- processes that execute several runs

REUSES = RunOrder(replace(ORDER.spec, process_reuse=True))


async def finished(world: World, process: RunProcess) -> None:
    """Its run sends its last word and hangs up."""
    given = process.given.result()
    assert given is not None
    given.line.last_word = LastWord.FINISHED
    given.line.closed.set()
    await world.settle()


async def test_a_process_gets_the_next_order_of_runs_that_allow_it(make: Make) -> None:
    world = make(0)
    first = await world.run("r1", REUSES)
    process = await world.dial_in(world.jobs.launches[0])
    second = await world.run("r2", REUSES)
    await finished(world, process)
    assert first.done()
    assert given_to(await world.dial_in(world.jobs.launches[0])) == "r2"
    assert not second.done()
    assert given_to(await world.dial_in(world.jobs.launches[1])) == "home", "its order has a process"
    await world.pass_time()
    assert not world.jobs.cancelled, "the kill of a process that does not exit is called off"
    world.processes.cancel("r1")
    assert not world.jobs.cancelled, "the first run is over"
    world.processes.cancel("r2")
    assert world.jobs.cancelled == [world.jobs.launches[0].process_id]


async def test_a_process_may_connect_again_before_its_run_is_known_to_be_over(make: Make) -> None:
    world = make(1, reuse_wait_s=30)
    await world.settle()
    process = await world.dial_in(world.jobs.launches[0])
    run = asyncio.create_task(world.processes.execute(RunLine("r1"), REUSES))
    await world.settle()
    given = process.given.result()
    assert given is not None
    given.line.last_word = LastWord.FINISHED
    assert world.processes.open(process.process_id, process.token) is process
    given.line.closed.set()
    await world.settle()
    assert run.done()
    await world.pass_time()
    assert not world.jobs.cancelled, "it has moved on"


@pytest.mark.parametrize("word", [None, LastWord.FAILED])
async def test_a_process_does_not_connect_again_before_its_run_finished(make: Make, word: LastWord | None) -> None:
    world = make(0)
    await world.run("r1", REUSES)
    process = await world.dial_in(world.jobs.launches[0])
    given = process.given.result()
    assert given is not None
    given.line.last_word = word
    assert not world.processes.awaits(process.process_id)
    with pytest.raises(Superseded):
        world.processes.open(process.process_id, process.token)


async def test_a_run_that_does_not_allow_it_gets_a_new_process_and_leaves_it(make: Make) -> None:
    world = make(0, reuse_wait_s=30)
    await world.run("r1", REUSES)
    used = await world.dial_in(world.jobs.launches[0])
    await finished(world, used)
    await world.dial_in(world.jobs.launches[0])
    assert given_to(used) == "", "it is kept for a while"
    await world.run("r2")
    assert given_to(used) == "home", "it makes room for the process that is launched"
    new = await world.dial_in(world.jobs.launches[1])
    assert given_to(new) == "r2"
    await finished(world, new)
    assert not world.processes.awaits(new.process_id)
    with pytest.raises(Superseded):
        world.processes.open(new.process_id, new.token)


async def test_a_used_process_is_preferred_and_dismissed_after_its_wait(make: Make) -> None:
    world = make(1, reuse_wait_s=30)
    await world.settle()
    used = await world.dial_in(world.jobs.launches[0])
    await world.run("r1", REUSES)
    standby = await world.dial_in(world.jobs.launches[1])
    await finished(world, used)
    await world.dial_in(world.jobs.launches[0])
    await world.run("r2", REUSES)
    assert (given_to(used), given_to(standby)) == ("r2", "")
    await finished(world, used)
    await world.dial_in(world.jobs.launches[0])
    await world.pass_time()
    assert sorted([given_to(used), given_to(standby)]) == ["", "home"], "one standby is enough"


async def test_a_process_that_dies_while_it_waits_for_another_run_affects_none(make: Make) -> None:
    world = make(0, reuse_wait_s=30)
    run = await world.run("r1", REUSES)
    used = await world.dial_in(world.jobs.launches[0])
    await finished(world, used)
    await world.dial_in(world.jobs.launches[0])
    await world.end(world.jobs.launches[0], "killed")
    assert run.exception() is None
    await world.run("r2", REUSES)
    assert given_to(await world.dial_in(world.jobs.launches[1])) == "r2"


async def test_closing_dismisses_a_process_that_connects_again(make: Make) -> None:
    world = make(0, reuse_wait_s=30)
    await world.run("r1", REUSES)
    used = await world.dial_in(world.jobs.launches[0])
    closing = asyncio.create_task(world.processes.close(30))
    await finished(world, used)
    assert given_to(await world.dial_in(world.jobs.launches[0])) == "home"
    await world.end(world.jobs.launches[0])
    assert closing.done()
