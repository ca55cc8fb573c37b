"""A process that exceeds its memory limit is killed, also one that blocks all its threads, together with the processes
it started, which count; no other is affected.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Iterator, Mapping

import pytest

from herdmesh.connect.error_class import ErrorClass
from herdmesh.worker.effects.runs import memory_watch
from herdmesh.worker.effects.runs.memory_watch import MemoryWatch, used_bytes
from herdmesh.worker.effects.runs.process_trees import ProcessId, started_by
from herdmesh.worker.effects.runs.processes import LastWord, RunLine

MB = 1 << 20
#: Allocates 64 MB at each line, without releasing the interpreter's lock (a regular expression), and reports it.
GROWS = """
import re, sys
taken = []
for _ in sys.stdin:
    taken.append(bytearray(b"x") * (64 << 20))
    print(len(taken), flush=True)
    if sys.argv[1] == "locked" and len(taken) == 4:
        re.match("(a*)*b", "a" * 64)
"""

#: Has a child of its child do the same, with its input and output, and waits for it.
STARTS = """
import subprocess, sys
grows = [sys.executable, "-c", sys.argv[1], "free"]
subprocess.run([sys.executable, "-c", "import subprocess, sys; subprocess.run(sys.argv[1:])", *grows])
"""


class Grower:
    """A process that allocates more on command."""

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


async def grower(how: str = "free", code: str = GROWS) -> Grower:
    pipe = asyncio.subprocess.PIPE
    return Grower(await asyncio.create_subprocess_exec(sys.executable, "-c", code, how, stdin=pipe, stdout=pipe))


@pytest.fixture
async def growers() -> AsyncIterator[tuple[Grower, Grower]]:
    both = (await grower("locked"), await grower())
    yield both
    for one in both:
        if one.process.returncode is None:
            one.process.kill()
            await one.process.wait()


async def test_a_process_over_its_limit_is_killed_although_it_holds_the_gil(
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


async def test_a_process_over_its_limit_after_its_last_word_is_not_killed(growers: tuple[Grower, Grower]) -> None:
    """Its last word counts, so the task must not become FAILED for its memory afterwards."""
    watch, done, over = MemoryWatch(look_s=0.01), RunLine("r1"), RunLine("r2")
    first, second = growers
    for one in growers:
        await one.take()
    done.last_word = LastWord.FINISHED
    with watch.bounding(done, first.process.pid, MB), watch.bounding(over, second.process.pid, MB):
        assert await second.ended() == -signal.SIGKILL
        await first.take()
    assert done.ended_for is None


async def test_without_a_limit_no_watch_runs(growers: tuple[Grower, Grower]) -> None:
    before = asyncio.all_tasks()
    with MemoryWatch().bounding(RunLine("r1"), growers[0].process.pid, 0):
        assert asyncio.all_tasks() == before


async def test_the_memory_of_child_processes_counts_and_they_are_killed_too() -> None:
    """Two generations below a process that allocates nothing itself, like the JVM of a run with its own Spark."""
    watch, line = MemoryWatch(look_s=0.01, started_s=0.05), RunLine("r1")
    parent = await grower(GROWS, STARTS)
    try:
        await parent.take()
        (found,) = started_by([parent.process.pid]).values()
        assert len(found) == 2
        assert max(used_bytes(one.pid) for one in found) > 64 * MB
        with watch.bounding(line, parent.process.pid, 230 * MB):
            for _ in range(3):
                await parent.take()
            assert await parent.ended() == -signal.SIGKILL
        assert used_bytes(parent.process.pid) == 0
    finally:
        if parent.process.returncode is None:
            parent.process.kill()
            await parent.process.wait()
    assert line.ended_for is not None
    assert "MB and the 2 it started 2" in line.ended_for.message
    assert "MB, and all were killed; raise the bound" in line.ended_for.message
    assert parent.process.stdout is not None
    async with asyncio.timeout(20):
        await parent.process.stdout.read()  # until no process has the other end any more


async def test_a_child_process_found_once_does_not_count_yet(
    growers: tuple[Grower, Grower], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A fork that has not yet executed its program has all pages of its parent, but shares them."""
    run, other = growers
    fork = started_by([os.getpid()])[os.getpid()]
    (of_other,) = (one for one in fork if one.pid == other.process.pid)
    looks: Iterator[frozenset[ProcessId]] = iter([frozenset({of_other}), frozenset[ProcessId]()] * 10)
    looked, line = asyncio.Event(), RunLine("r1")
    loop = asyncio.get_running_loop()

    def now_and_then(roots: list[int]) -> Mapping[int, frozenset[ProcessId]]:
        found = next(looks, None)
        if found is None:
            loop.call_soon_threadsafe(looked.set)
        return {root: found or frozenset() for root in roots}

    monkeypatch.setattr(memory_watch, "started_by", now_and_then)
    await other.take()
    watch = MemoryWatch(look_s=0.001, started_s=0)
    with watch.bounding(line, run.process.pid, used_bytes(run.process.pid) + 32 * MB):
        async with asyncio.timeout(20):
            await looked.wait()
    assert line.ended_for is None
    assert other.process.returncode is None
