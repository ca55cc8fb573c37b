"""Event loop of the herder, the one owner of its state: events in through a bounded queue, instructions out.

Owns the queue, the clock's ticks, the table of open sessions, callers' futures and watchers. Does not own any decision
(`state`), wire message (`service`) or store client (`effects`).

Invariants: `Herder.handle` is called from one asyncio task only, one event at a time, in the order posted. Nothing here
waits for a slow peer: an outbox that overflows ends its session, and a watcher keeps at most a set of names.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Generator
from contextlib import contextmanager
from typing import Final, Protocol, assert_never

import structlog

from herdmesh.herder.metrics import HerderMetrics
from herdmesh.herder.state import Herder
from herdmesh.herder.state.model import events as ev
from herdmesh.herder.state.model import instructions as ins
from herdmesh.herder.state.model.requests import Answer, Request, WriteOptions
from herdmesh.herder.wire.values import monotonic_ms
from herdmesh.rpc.errors import HerdmeshError, QueueFull, ShuttingDown, Timeout, WriteOutcomeUnknown
from herdmesh.rpc.monitoring import tracing
from herdmesh.session import messages

QUEUE_MAX: Final = 10_000
#: Calls that may wait, each with its request in memory; the next is refused with QueueFull.
CALLS_MAX: Final = 10_000
OUTBOX_MAX: Final = 10_000
TICK_S: Final = 0.1
#: events are handled for so long before sessions and callers get their turn.
TURN_MS: Final = 10
#: a longer step delays heartbeats and callers, and is logged.
STEP_MS_MAX: Final = 50

_log: structlog.stdlib.BoundLogger = structlog.get_logger(__name__)


class Stores(Protocol):
    """Executor of writes and of leadership instructions; `effects` implements it. Neither method waits."""

    def write(self, wanted: ins.Write) -> None:
        """Start a write; its outcome is posted as WriteDone or WriteFailed."""
        ...

    def campaign(self, wanted: ins.Campaigning) -> None:
        """Campaign for leadership on a new stream, or request generations."""
        ...


class Outbox:
    """Queue of messages that one session still has to send, in order; `end` closes it after the queued messages."""

    def __init__(self) -> None:
        self._waiting: deque[ins.Send] = deque()
        self._ended = False
        self._error: HerdmeshError | None = None
        self._filled = asyncio.Event()

    def put(self, message: ins.Send) -> None:
        if len(self._waiting) >= OUTBOX_MAX:
            self._waiting.clear()
            self.end(QueueFull("the worker takes messages too slowly; dial in again"))
            return
        self._waiting.append(message)
        self._filled.set()

    def end(self, error: HerdmeshError | None) -> None:
        if not self._ended:
            self._ended, self._error = True, error
        self._filled.set()

    async def messages(self) -> AsyncIterator[ins.Send]:
        """Yield messages until `end`. Raises the error that `end` was called with."""
        while True:
            while self._waiting:
                yield self._waiting.popleft()
            if self._ended:
                break
            self._filled.clear()
            await self._filled.wait()
        if self._error is not None:
            raise self._error


class Watcher:
    """Changes that one watch has not sent yet: names only, so a slow caller costs no memory."""

    def __init__(self) -> None:
        self._connectors: set[str] = set()
        self._workers: set[str] = set()
        self._changed = asyncio.Event()

    def mark(self, changes: ins.ViewsChanged) -> None:
        self._connectors |= changes.connectors
        self._workers |= changes.workers
        self._changed.set()

    def wake(self) -> None:
        """The role changed: have the watch check whether this herder still leads."""
        self._changed.set()

    async def changes(self) -> tuple[list[str], list[str]]:
        """Wait for changes; returns connectors and workers, sorted. Both may be empty when only the role changed."""
        await self._changed.wait()
        self._changed.clear()
        connectors, self._connectors = sorted(self._connectors), set()
        workers, self._workers = sorted(self._workers), set()
        return connectors, workers


class Observer(Protocol):
    """Observer of view changes; it is called before any watcher or caller sees a change."""

    def mark(self, changes: ins.ViewsChanged) -> None:
        """These views changed."""
        ...

    def forget(self) -> None:
        """The role changed, and with it every view."""
        ...


class HerderLoop:
    """Event loop of one herder. `on_role` is called whenever it starts or stops serving; `herder.refusal` has the
    state.
    """

    def __init__(self, herder: Herder, on_role: Callable[[], None], metrics: HerderMetrics | None = None) -> None:
        self.herder = herder
        self._on_role = on_role
        self._metrics = metrics
        self._stores: Stores | None = None
        self._queue: deque[ev.Event] = deque()
        self._filled = asyncio.Event()
        self._room = asyncio.Event()
        self._outboxes: dict[int, Outbox] = {}
        self._calls: dict[int, asyncio.Future[Answer | HerdmeshError]] = {}
        self._watchers: set[Watcher] = set()
        self._observers: list[Observer] = []
        self._numbers = itertools.count(1)
        self._stopped = False

    def connect(self, stores: Stores) -> None:
        """Set the executor of writes. Call it once, before `run`."""
        self._stores = stores

    async def run(self) -> None:
        """Handle events until cancelled."""
        next_tick_ms = monotonic_ms()
        if self._metrics is not None:
            self._metrics.show(self.herder)
        try:
            while True:
                wait_s = max(0.0, (next_tick_ms - monotonic_ms()) / 1000)
                event = await self._next(0.0 if self.herder.has_more_to_do else wait_s)
                if event is not None:
                    # Handle several events a turn: with hundreds of writing streams, one event a turn would let the
                    # queue, and the confirmation of our lease in it, fall behind by seconds.
                    turn_end_ms = monotonic_ms() + TURN_MS
                    self._handle(event)
                    while self._queue and monotonic_ms() < turn_end_ms:
                        self._handle(self._take())
                    await asyncio.sleep(0)
                elif self.herder.has_more_to_do:
                    self._handle(ev.Continue())
                if monotonic_ms() >= next_tick_ms:
                    self._handle(ev.Tick())
                    next_tick_ms = monotonic_ms() + int(TICK_S * 1000)
        finally:
            self._stopped = True
            if self._metrics is not None:
                self._metrics.hide()
            for outbox in self._outboxes.values():
                outbox.end(None)
            for future in self._calls.values():
                if not future.done():
                    # After `stop_leading` only calls whose write has begun are left, unless the loop broke.
                    unknown = "this herder stopped before the outcome was known; repeat with the same request_id"
                    future.set_exception(WriteOutcomeUnknown(unknown))

    async def stop_leading(self, timeout_s: float) -> None:
        """Close the sessions, send callers to the next leader, and wait at most `timeout_s` for calls whose write has
        begun.
        """
        self.post_now(ev.LeadershipLost("this herder stops"))
        await asyncio.sleep(0)
        waiting = list(self._calls.values())
        if waiting:
            await asyncio.wait(waiting, timeout=timeout_s)

    async def post(self, event: ev.Event) -> None:
        """Queue an event; waits while the queue is full, which slows down a fast sender."""
        while len(self._queue) >= QUEUE_MAX:
            self._room.clear()
            await self._room.wait()
        self.post_now(event)

    def post_now(self, event: ev.Event) -> None:
        """Queue an event that ends a session or a call, without waiting: each session and call posts at most one."""
        self._queue.append(event)
        self._filled.set()

    # --- sessions

    @contextmanager
    def session(self) -> Generator[tuple[int, Outbox]]:
        """A number and an outbox for one stream; leaving the block posts the end of the stream to the state."""
        number, outbox = next(self._numbers), Outbox()
        self._outboxes[number] = outbox
        try:
            yield number, outbox
        finally:
            del self._outboxes[number]
            self.post_now(ev.StreamBroken(number))

    # --- callers

    async def call(self, request: Request, options: WriteOptions, timeout_s: float) -> Answer:
        """Carry out a request. Raises the error that the state answers with, at the latest `Timeout` at `timeout_s`."""
        if self._stopped:
            raise ShuttingDown("this herder stops; another leads")
        if len(self._calls) >= CALLS_MAX:
            raise QueueFull(f"{CALLS_MAX} calls wait; try again a little later")
        number = next(self._numbers)
        future: asyncio.Future[Answer | HerdmeshError] = asyncio.get_running_loop().create_future()
        self._calls[number] = future
        try:
            received = ev.RequestReceived(number, request, options, monotonic_ms() + int(timeout_s * 1000))
            try:
                async with asyncio.timeout(timeout_s):
                    await self.post(received)
            except TimeoutError:
                raise Timeout("waiting for the herder to take the request") from None
            answer = await future
        except asyncio.CancelledError:
            self.post_now(ev.RequestCancelled(number))
            raise
        finally:
            del self._calls[number]
        if isinstance(answer, HerdmeshError):
            raise answer
        return answer

    def must_lead(self, request: str) -> None:
        """Raise, and count, the error with which this herder refuses requests while it does not lead."""
        refusal = self.herder.refusal
        if refusal is not None:
            if self._metrics is not None:
                self._metrics.record_request(request, refusal.reason, 0.0)
            raise refusal

    @contextmanager
    def reading(self, request: str, *, leader_only: bool = True) -> Generator[None]:
        """Count and time a request that needs no step of the state; with `leader_only`, check first that this herder
        leads.
        """
        if leader_only:
            self.must_lead(request)
        begun_ns, outcome = time.monotonic_ns(), "CANCELLED"
        try:
            yield
            outcome = "OK"
        except HerdmeshError as error:
            outcome = error.reason
            raise
        finally:
            if self._metrics is not None:
                self._metrics.record_request(request, outcome, (time.monotonic_ns() - begun_ns) / 1_000_000_000)

    def observe(self, observer: Observer) -> None:
        """Call the observer with every change from now on."""
        self._observers.append(observer)

    @contextmanager
    def watcher(self) -> Generator[Watcher]:
        """A watcher that gets every change while the block lasts."""
        watcher = Watcher()
        self._watchers.add(watcher)
        try:
            yield watcher
        finally:
            self._watchers.discard(watcher)

    # --- inside

    async def _next(self, wait_s: float) -> ev.Event | None:
        if not self._queue:
            self._filled.clear()
            try:
                async with asyncio.timeout(wait_s):
                    await self._filled.wait()
            except TimeoutError:
                return None
        return self._take()

    def _take(self) -> ev.Event:
        event = self._queue.popleft()
        self._room.set()
        return event

    def _handle(self, event: ev.Event) -> None:
        begun_ns = time.monotonic_ns()
        instructions = self.herder.handle(event, monotonic_ms())
        for instruction in instructions:
            self._carry_out(instruction)
        took_ms = (time.monotonic_ns() - begun_ns) / 1_000_000
        if self._metrics is not None:
            self._metrics.passed(event, instructions, took_ms)
        if took_ms > STEP_MS_MAX:
            name = type(event).__name__
            _log.warning("slow_step", event_name=name, took_ms=round(took_ms), instructions=len(instructions))

    def _carry_out(self, instruction: ins.Instruction) -> None:
        if isinstance(instruction, ins.Write):
            assert self._stores is not None
            self._stores.write(instruction)
            return
        match instruction:
            case ins.Send(session=session):
                outbox = self._outboxes.get(session)
                if outbox is not None:
                    outbox.put(instruction)
                _log_message(instruction)
            case ins.CloseSession(session=session, error=error):
                outbox = self._outboxes.get(session)
                if outbox is not None:
                    outbox.end(error)
                _log.info("session_closed", session=session, error=str(error) if error else "")
            case ins.Reply(call=call, answer=answer):
                future = self._calls.get(call)
                if future is not None and not future.done():
                    future.set_result(answer)
            case ins.ViewsChanged():
                for observer in self._observers:
                    observer.mark(instruction)
                for watcher in self._watchers:
                    watcher.mark(instruction)
            case ins.RoleChanged(error=error):
                _log.info("role", leading=error is None, answer=str(error) if error else "")
                self._on_role()
                for observer in self._observers:
                    observer.forget()
                for watcher in self._watchers:
                    watcher.wake()
            case ins.RenewEpoch() | ins.ReserveGenerations():
                assert self._stores is not None
                self._stores.campaign(instruction)
            case _:
                assert_never(instruction)


def _log_message(sent: ins.Send) -> None:
    """Log one line for a message that moves a unit; heartbeats and the like are not logged."""
    match sent.message:
        case messages.StartUnit(unit=unit, assignment=assignment, traceparent=traceparent):
            trace_id = tracing.trace_id_of(traceparent)
            caller = {"trace_id": trace_id} if trace_id else {}
            generation = assignment.generation
            _log.info("start_unit", unit=unit.log_context, session=sent.session, generation=generation, **caller)
        case messages.StopUnit(unit=unit, reason=reason):
            _log.info("stop_unit", unit=unit.log_context, session=sent.session, reason=reason)
        case messages.Welcome(adopted=adopted):
            _log.info("welcome", session=sent.session, epoch=sent.epoch, adopted=len(adopted))
        case (
            messages.SetUnitTarget()
            | messages.RequestTaskConfigs()
            | messages.SetRate()
            | messages.SendCommand()
            | messages.Heartbeat()
            | messages.Released()
        ):
            pass
        case _:
            assert_never(sent.message)
