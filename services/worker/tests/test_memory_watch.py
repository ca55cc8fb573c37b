"""A process that grows beyond its bound is killed, also one that lets nothing else of it run; no other is touched."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import AsyncIterator

import pytest

from herdmesh.engine.contract import ErrorClass
from herdmesh.worker.effects.memory_watch import MemoryWatch, used_bytes
from herdmesh.worker.effects.processes import LastWord, RunLine

MB = 1 << 20
#: Takes 64 MB at each line, without giving the interpreter's lock up (a regular expression), and says so.
GROWS = """
import re, sys
taken = []
for _ in sys.stdin:
    taken.append(bytearray(b"x") * (64 << 20))
    print(len(taken), flush=True)
    if sys.argv[1] == "locked" and len(taken) == 4:
        re.match("(a*)*b", "a" * 64)
"""


class Grower:
    """A process that is told when to take more."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process

    async def take(self) -> None:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(b"\n")
        await self.process.stdin.drain()
        await self.process.stdout.readline()

    async def ended(self) -> int:
        async with asyncio.timeout(20):
            return await self.process.wait()


async def grower(how: str = "free") -> Grower:
    pipe = asyncio.subprocess.PIPE
    return Grower(await asyncio.create_subprocess_exec(sys.executable, "-c", GROWS, how, stdin=pipe, stdout=pipe))


@pytest.fixture
async def growers() -> AsyncIterator[tuple[Grower, Grower]]:
    both = (await grower("locked"), await grower())
    yield both
    for one in both:
        if one.process.returncode is None:
            one.process.kill()
            await one.process.wait()


async def test_one_that_grows_beyond_its_bound_is_killed_though_nothing_of_it_can_look(
    growers: tuple[Grower, Grower],
) -> None:
    watch, line, other = MemoryWatch(look_s=0.01), RunLine("r1"), RunLine("r2")
    grows, stays = growers
    with (
        watch.bounding(line, grows.process.pid, 230 * MB),
        watch.bounding(other, stays.process.pid, 230 * MB),
    ):
        for one in (grows, stays):
            await one.take()
        assert 64 * MB < used_bytes(stays.process.pid) < 230 * MB
        for _ in range(3):
            await grows.take()
        assert await grows.ended() == -signal.SIGKILL
        assert line.ended_for is not None
        assert line.ended_for.error_class is ErrorClass.RETRIABLE
        assert "more than herdmesh.memory.max=230MB: its process had 2" in line.ended_for.message
        await stays.take()
        assert stays.process.returncode is None
        assert other.ended_for is None
    assert used_bytes(grows.process.pid) == 0


async def test_one_that_has_said_its_last_word_is_left_to_end(growers: tuple[Grower, Grower]) -> None:
    """What it said counts, so it is not to be FAILED for its memory after it."""
    watch, done, over = MemoryWatch(look_s=0.01), RunLine("r1"), RunLine("r2")
    first, second = growers
    for one in growers:
        await one.take()
    done.last_word = LastWord.FINISHED
    with watch.bounding(done, first.process.pid, MB), watch.bounding(over, second.process.pid, MB):
        assert await second.ended() == -signal.SIGKILL
        await first.take()
    assert done.ended_for is None


async def test_without_a_bound_nothing_looks(growers: tuple[Grower, Grower]) -> None:
    before = asyncio.all_tasks()
    with MemoryWatch().bounding(RunLine("r1"), growers[0].process.pid, 0):
        assert asyncio.all_tasks() == before
