"""Virtual time and the processes that live in it.

Owns the one queue of future events, each process's clock, and the meaning of dead and frozen. Coroutines
of the product (servicers, watches) are run by hand, without an event loop: `Pump` resumes them whenever the `Answer`
they wait for is set.

Invariants: everything happens through `Scheduler.run_until`, in the order of time and then of scheduling: one seed
gives one story; nothing runs in a dead process, and events for a frozen one wait until it continues.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable, Coroutine, Generator
from heapq import heappop, heappush
from typing import Any

from herdmesh.rpc.errors import HerdmeshError, Unreachable

Deed = Callable[[], object]


class Scheduler:
    """The queue. `now` is milliseconds."""

    def __init__(self) -> None:
        self.now = 0
        self.handled = 0
        #: the story is over: nothing more happens.
        self.stopped = False
        self._queue: list[tuple[int, int, Process | None, int, Deed]] = []
        self._numbers = itertools.count()

    def at(self, at_ms: int, deed: Deed) -> None:
        """Schedule `deed` outside of any process."""
        heappush(self._queue, (max(self.now, at_ms), next(self._numbers), None, 0, deed))

    def at_process(self, at_ms: int, process: Process, life: int, deed: Deed) -> None:
        """Schedule `process.take(life, deed)`."""
        if at_ms < self.now:
            at_ms = self.now
        heappush(self._queue, (at_ms, next(self._numbers), process, life, deed))

    def run_until(self, end_ms: int) -> None:
        """Execute all events up to `end_ms`, and set the time to it."""
        queue = self._queue
        handled = 0
        while queue and queue[0][0] <= end_ms and not self.stopped:
            self.now, _, process, life, deed = heappop(queue)
            handled += 1
            if process is None:
                deed()
            elif process.life == life:  # an event for another life is void: no need to deliver it
                process.take(life, deed)
        self.handled += handled
        self.now = end_ms


class Running:
    """The process whose code runs at this moment: code that reads "the" clock gets this one's.

    No attribute of the class `Process`: writing one invalidates the interpreter's caches of the class and of all
    below it, and this is written twice for each event.
    """

    __slots__ = ("process",)

    def __init__(self) -> None:
        self.process: Process | None = None


RUNNING = Running()


class Process:
    """One process of the mesh, through all its lives. `crashed` gets errors that its code raised."""

    def __init__(self, name: str, scheduler: Scheduler, crashed: Callable[[Process, Exception], None]) -> None:
        self.name = name
        self.scheduler = scheduler
        self.alive = False
        self.frozen = False
        self.life = 0
        self._crashed = crashed
        self._skew_ms = 1_000
        #: when its clock last leapt, in the scheduler's time.
        self.leapt_ms = 0
        self._frozen_ms = 0
        self._backlog: deque[tuple[int, Deed]] = deque()
        #: called, in order, when this life ends: the effects that its peers see.
        self.on_death: list[Deed] = []

    @property
    def now_ms(self) -> int:
        """This process' monotonic clock."""
        return self.scheduler.now + self._skew_ms

    @property
    def well(self) -> bool:
        return self.alive and not self.frozen

    def start(self) -> None:
        """Begin a new life."""
        assert not self.alive
        self.alive, self.frozen = True, False
        self.life += 1

    def kill(self) -> None:
        """End at once, with everything in memory."""
        if not self.alive:
            return
        self.alive = self.frozen = False
        self.life += 1
        self._backlog.clear()
        ending, self.on_death = self.on_death, []
        for deed in ending:
            deed()

    def freeze(self) -> None:
        """Freeze (SIGSTOP, or its machine sleeps)."""
        if self.well:
            self.frozen, self._frozen_ms = True, self.scheduler.now

    def thaw(self, *, clock_stood_still: bool = False) -> None:
        """Continue. On a machine that slept, its clock did not advance."""
        if not (self.alive and self.frozen):
            return
        self.frozen = False
        if clock_stood_still:
            self._skew_ms -= self.scheduler.now - self._frozen_ms
        while self._backlog and self.well:
            life, deed = self._backlog.popleft()
            self.take(life, deed)

    def jump(self, ms: int) -> None:
        """Its clock leaps forward."""
        self._skew_ms += ms
        self.leapt_ms = self.scheduler.now

    def take(self, life: int, deed: Deed) -> None:
        """Run an event meant for one life of this process."""
        if not self.alive or self.life != life:
            return
        if self.frozen:
            self._backlog.append((life, deed))
            return
        before, RUNNING.process = RUNNING.process, self
        try:
            deed()
        except Exception as error:  # noqa: BLE001 - any error that the product raises here is a finding
            self._crashed(self, error)
        finally:
            RUNNING.process = before

    def after(self, ms: float, deed: Deed) -> None:
        """Run an event in this life, later."""
        scheduler = self.scheduler
        scheduler.at_process(scheduler.now + int(ms), self, self.life, deed)


class Answer:
    """An awaitable of a coroutine: a result or an error, set once."""

    __slots__ = ("_error", "_result", "_waiting", "done")

    def __init__(self) -> None:
        self.done = False
        self._result: Any = None
        self._error: HerdmeshError | None = None
        self._waiting: list[Deed] = []

    def set(self, result: Any = None, error: HerdmeshError | None = None) -> None:
        """Set the outcome; the first one counts."""
        if self.done:
            return
        self.done, self._result, self._error = True, result, error
        waiting, self._waiting = self._waiting, []
        for deed in waiting:
            deed()

    def then(self, deed: Deed) -> None:
        if self.done:
            deed()
        else:
            self._waiting.append(deed)

    @property
    def outcome(self) -> tuple[Any, HerdmeshError | None]:
        """Result and error, once done."""
        return self._result, self._error

    def __await__(self) -> Generator[Answer, None, Any]:
        if not self.done:
            yield self
        if self._error is not None:
            raise self._error
        return self._result


class Pump:
    """Runs a coroutine as far as it goes, each time its awaited answer is set. `ended(result, error)` is called
    once.
    """

    __slots__ = ("_cancelled", "_coroutine", "_ended")

    def __init__(
        self, coroutine: Coroutine[Any, Any, Any], ended: Callable[[Any, HerdmeshError | None], object]
    ) -> None:
        self._coroutine = coroutine
        self._ended = ended
        self._cancelled = False
        self._step()

    def cancel(self) -> None:
        """Stop it; no callback is called."""
        self._cancelled = True
        self._coroutine.close()

    def _step(self) -> None:
        if self._cancelled:
            return
        try:
            waits_for = self._coroutine.send(None)
        except StopIteration as stop:
            self._ended(stop.value, None)
        except HerdmeshError as error:
            self._ended(None, error)
        else:
            assert isinstance(waits_for, Answer), f"a coroutine of the product waits for {waits_for!r}"
            waits_for.then(self._step)


class Inbox:
    """The receiving end of a stream of responses, as an async iterator."""

    def __init__(self) -> None:
        self._messages: deque[Any] = deque()
        self._ended = False
        self._error: HerdmeshError | None = None
        self._waiting: Answer | None = None

    def put(self, message: Any) -> None:
        self._messages.append(message)
        self._wake()

    def end(self, error: HerdmeshError | None) -> None:
        self._ended, self._error = True, error
        self._wake()

    def _wake(self) -> None:
        waiting, self._waiting = self._waiting, None
        if waiting is not None:
            waiting.set()

    def __aiter__(self) -> Inbox:
        return self

    async def __anext__(self) -> Any:
        while not self._messages:
            if self._error is not None:
                raise self._error
            if self._ended:
                raise StopAsyncIteration
            self._waiting = Answer()
            await self._waiting
        return self._messages.popleft()


def unreachable(name: str) -> Unreachable:
    return Unreachable(f"{name} does not answer")
