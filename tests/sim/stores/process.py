"""Simulated processes and the network between them and their clients.

Owns one `Life` per start of a process: a real `TopicStoreCore` over a `SimLog`, the servicers that the story puts on
it, and the gate through which everything comes in and goes out. Knows no story.

Stopping a process (SIGSTOP) shuts the gate, killing it shuts it for good. Both may happen inside `on_stage`, that is in
the middle of a synchronous step of the store: the step's remainder then runs on unseen. From outside, this equals
having stopped right there, because no answer, event or request of it passes the gate.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine
from typing import Any, Generic, Protocol, TypeVar

from herdmesh.rpc.errors import HerdmeshError, Internal, Timeout, Unreachable
from herdmesh.rpc.status import as_herdmesh_error
from herdmesh.topicstore import StoreRole, StoreTuning, TopicSettings, WriteStage
from herdmesh.topicstore.core import MayWrite, TopicStoreCore, always
from tests.sim.stores.broker import SESSION_TIMEOUT_S, SimBroker
from tests.sim.stores.log import SimLog

AnswerT = TypeVar("AnswerT")
ServerT = TypeVar("ServerT", bound="Server")

#: Small, so that stories meet every limit: resuming too late, being cut off, a queue that is full.
TUNING = StoreTuning(
    pending_writes_max=64,
    change_memory=150,
    watcher_lag_max=40,
    progress_interval_ms=1_000,
    outcome_timeout_ms=9_000,
    may_write_interval_ms=300,
)
_STREAM_AHEAD = 8


class Server(Protocol):
    """The servicers of one life. `become` gets each role, `run` runs until cancelled."""

    def become(self, role: StoreRole) -> None: ...

    async def run(self) -> None: ...


class Harm:
    """Fault for a life that reaches a stage: "kill" or "stop"."""

    def __init__(self, stage: WriteStage, deed: str) -> None:
        self.stage = stage
        self.deed = deed


class Life(Generic[ServerT]):
    """One start of a process until its end."""

    def __init__(
        self,
        name: str,
        number: int,
        broker: SimBroker,
        settings: TopicSettings,
        initial: Any,
        serve: Callable[[TopicStoreCore[Any, Any]], ServerT],
        rng: random.Random,
        may_write: MayWrite = always,
    ) -> None:
        self.name = name
        self.label = f"{name}/{number}"
        self.reader_delay_s = 0.0
        self.lose_answer: bool | None = None
        self.harm: Harm | None = None
        self.on_harm: Callable[[Life[ServerT], str], None] = lambda _life, _deed: None
        self.on_death: Callable[[Life[ServerT]], None] = lambda _: None
        self.stopped = False
        self.dead = False
        self._over = False
        self.bugs: list[str] = []
        self._rng = rng
        self._go = asyncio.Event()
        self._go.set()
        self.log = SimLog(broker, settings, self)
        self.store: TopicStoreCore[Any, Any] = TopicStoreCore(self.log, initial, may_write, TUNING, self.on_stage)
        self.server = serve(self.store)
        self._open_replies: dict[asyncio.Future[Any], None] = {}
        self._open_streams: dict[asyncio.Queue[Any], None] = {}
        self._expiry: asyncio.TimerHandle | None = None
        self.main = asyncio.get_running_loop().create_task(self._main())

    async def _main(self) -> None:
        await self.store.start()
        await self.gate()
        running = asyncio.get_running_loop().create_task(self.server.run())
        async for role in self.store.role_changes():
            self.server.become(role)
        await self.gate()
        running.cancel()
        self.kill()  # the store closed itself: the process ends

    # Called by the log.

    async def gate(self) -> None:
        while self.stopped or self.dead:
            await self._go.wait()
            if self._over:
                raise asyncio.CancelledError

    def on_stage(self, stage: WriteStage) -> None:
        if self.stopped or self.dead or self.harm is None or self.harm.stage is not stage:
            return
        harm, self.harm = self.harm, None
        self.on_harm(self, f"{harm.deed} {stage.value}")
        if harm.deed == "kill":
            self.kill()
        else:
            self.stop()

    def chance(self, of: float) -> bool:
        return self._rng.random() < of

    def number(self, low: int, high: int) -> int:
        return self._rng.randint(low, high)

    def hop_s(self) -> float:
        return self._rng.choice((0.0005, 0.001, 0.001, 0.002, 0.01))

    # Called by the story.

    def stop(self) -> None:
        """SIGSTOP; the group drops it after the session's time."""
        if not self.dead and not self.stopped:
            self.stopped = True
            self._go.clear()
            self._expiry = asyncio.get_running_loop().call_later(SESSION_TIMEOUT_S, self.log.expire)

    def go_on(self) -> None:
        """SIGCONT."""
        if not self.dead and self.stopped:
            self.stopped = False
            self._go.set()
            if self._expiry is not None:
                self._expiry.cancel()
            # It learns of the loss only after it acted on its old knowledge.
            asyncio.get_running_loop().call_later(self.hop_s() * 20, self._learn)

    def kill(self) -> None:
        """SIGKILL; its connections break at once."""
        if self.dead:
            return
        self.dead = True
        self._go.clear()
        self.log.cut()
        asyncio.get_running_loop().call_later(SESSION_TIMEOUT_S, self.log.expire)
        for reply in list(self._open_replies):
            if not reply.done():
                reply.set_exception(Unreachable("the connection broke"))
        for stream in list(self._open_streams):
            _put_over(stream, Unreachable("the connection broke"))
        self.on_death(self)

    async def close(self) -> None:
        """SIGTERM: the store leaves its election, then the process ends."""
        await self.store.close()
        self.kill()
        self.log.expire()

    def end(self) -> None:
        """The story is over: everything that waits at the gate ends."""
        self.on_death = lambda _: None
        self.kill()
        self._over = True
        self._go.set()

    def _learn(self) -> None:
        if not self.dead and not self.stopped:
            self.log.rejoin()

    # Calls.

    async def serve(self, work: Coroutine[Any, Any, AnswerT], reply: asyncio.Future[AnswerT]) -> None:
        """Run one call here and answer it when the process may."""
        answer: Any = None
        error: BaseException | None = None
        try:
            await self.gate()
            answer = await work
        except asyncio.CancelledError:
            work.close()
            raise
        except Exception as raised:  # noqa: BLE001  # as the server's interceptor does
            error = self._known(raised)
        await self.gate()
        if reply.done():
            return
        if error is None:
            reply.set_result(answer)
        else:
            reply.set_exception(error)

    async def call(self, work: Coroutine[Any, Any, AnswerT], timeout_s: float) -> AnswerT:
        """A unary call of a client. Raises `HerdmeshError`."""
        loop = asyncio.get_running_loop()
        if self.dead:
            work.close()
            raise Unreachable("nobody listens")
        reply: asyncio.Future[AnswerT] = loop.create_future()
        self._open_replies[reply] = None
        serving = loop.create_task(self.serve(work, reply))
        try:
            async with asyncio.timeout(timeout_s):
                return await reply
        except TimeoutError:
            self._hanging_up = loop.create_task(self._hang_up(serving))
            raise Timeout("the store worked on it") from None
        finally:
            del self._open_replies[reply]

    async def _hang_up(self, serving: asyncio.Task[None]) -> None:
        await self.gate()
        serving.cancel()

    async def stream(self, events: AsyncGenerator[AnswerT, None]) -> AsyncIterator[AnswerT]:
        """A streaming call of a client, flow-controlled. Raises `HerdmeshError` when it ends."""
        if self.dead:
            raise Unreachable("nobody listens")
        queue: asyncio.Queue[AnswerT | HerdmeshError] = asyncio.Queue(_STREAM_AHEAD)
        self._open_streams[queue] = None
        pumping = asyncio.get_running_loop().create_task(self._pump(events, queue))
        try:
            while True:
                item = await queue.get()
                if isinstance(item, HerdmeshError):
                    raise item
                yield item
        finally:
            del self._open_streams[queue]
            pumping.cancel()

    async def _pump(self, events: AsyncGenerator[AnswerT, None], queue: asyncio.Queue[AnswerT | HerdmeshError]) -> None:
        error: HerdmeshError = Unreachable("the stream ended")
        try:
            await self.gate()
            async for event in events:
                await self.gate()
                await queue.put(event)
                await self.gate()
        except Exception as raised:  # noqa: BLE001  # as the server's interceptor does
            error = self._known(raised)
        await self.gate()
        _put_over(queue, error)

    def _known(self, raised: Exception) -> HerdmeshError:
        known = as_herdmesh_error(raised)
        if known is None:
            self.bugs.append(f"{self.label}: {raised!r}")
            return Internal("sim")
        return known


def _put_over(queue: asyncio.Queue[Any], error: HerdmeshError) -> None:
    """The end of a stream is always delivered; earlier events that wait are lost with the connection."""
    while not queue.empty():
        queue.get_nowait()
    queue.put_nowait(error)
