"""The read barrier: many callers, few fetches of the log's end, no caller released by a fetch begun before its call."""

from __future__ import annotations

import asyncio

from herdmesh.topicstore import StoreClosed
from herdmesh.topicstore.barrier import Barrier
from herdmesh.topicstore.log import LogUnavailable, Positions


class SlowLog:
    """A log whose end grows with each fetch; the test releases fetches by hand."""

    def __init__(self) -> None:
        self.fetches = 0
        self.failures = 0
        self.gate = asyncio.Event()
        self.asked = asyncio.Event()
        self.waiting: list[tuple[Positions, asyncio.Future[None]]] = []

    async def end(self) -> Positions:
        if self.failures:
            self.failures -= 1
            raise LogUnavailable("out of reach")
        self.fetches += 1
        mine = self.fetches
        await self.gate.wait()
        return (mine,)

    def wait(self, target: Positions) -> asyncio.Future[None]:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.waiting.append((target, future))
        self.asked.set()
        return future


async def turns(count: int = 10) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


async def test_callers_share_the_next_fetch_and_never_one_in_flight() -> None:
    log = SlowLog()
    barrier = Barrier(log.end, log.wait)
    running = asyncio.create_task(barrier.run())
    early = [asyncio.ensure_future(barrier.pass_through()) for _ in range(100)]
    await turns()
    assert log.fetches == 1
    late = [asyncio.ensure_future(barrier.pass_through()) for _ in range(100)]
    await turns()
    assert log.fetches == 1
    log.gate.set()
    await turns()
    assert log.fetches == 2
    (first, first_wait), (second, second_wait) = log.waiting
    assert (first, second) == ((1,), (2,))
    first_wait.set_result(None)
    await turns()
    assert all(call.done() for call in early)
    assert not any(call.done() for call in late)
    second_wait.set_result(None)
    await asyncio.gather(*early, *late)
    running.cancel()


async def test_an_unreachable_log_is_queried_again() -> None:
    log = SlowLog()
    log.failures = 1
    log.gate.set()
    barrier = Barrier(log.end, log.wait)
    running = asyncio.create_task(barrier.run())
    call = asyncio.ensure_future(barrier.pass_through())
    await log.asked.wait()
    log.waiting[0][1].set_result(None)
    await call
    running.cancel()


async def test_closing_releases_every_caller() -> None:
    log = SlowLog()
    barrier = Barrier(log.end, log.wait)
    running = asyncio.create_task(barrier.run())
    calls = [asyncio.ensure_future(barrier.pass_through())]
    await turns()
    calls.append(asyncio.ensure_future(barrier.pass_through()))
    await turns()
    running.cancel()
    barrier.fail(StoreClosed())
    results = await asyncio.gather(*calls, return_exceptions=True)
    assert all(isinstance(result, StoreClosed) for result in results)
