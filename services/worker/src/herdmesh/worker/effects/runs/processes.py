"""Processes that execute runs: launched, connected, given an order at a time, ended.

Owns the number of standby processes and the assignment of orders to processes. `runs` knows what a run is for. With
`standbys`, that many processes exist before a run needs one; without, one is launched when an order comes, and the rest
is the same.

After a run that allows it (`RunSpec.process_reuse`) a process connects again, and gets the order of another run that
allows it (ADR 0021). It waits for one for `reuse_wait_s`.

Invariants:

- A process executes one run at a time, gets a further order only if its runs allow it, and none once its line is
  broken.
- For every waiting order a process is being launched. One that ends before it connected fails the oldest such order,
  so that no order waits for ever.
- A standby process that dies is replaced, with a growing backoff, and affects no run.
- A process whose run has sent its last word ends, by itself or killed.
- A run is over only when nothing of it can write any more.
"""

from __future__ import annotations

import asyncio
import secrets
import uuid
from collections import deque
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final, Protocol

import structlog

from herdmesh.api.worker.v1 import run_service_pb2
from herdmesh.rpc.errors import Superseded
from herdmesh.session.model import Failure
from herdmesh.worker.errors import RunLost
from herdmesh.worker.run import Launch, RunOrder

_COMMANDS_MAX: Final = 100
#: A launch takes 100 ms of processor time. The run that begins has the processor to itself for that long, unless an
#: order waits.
_YIELD_S: Final = 0.1
#: After its run's last word a process only has to exit, which takes some 50 ms.
_LEAVE_TIMEOUT_S: Final = 5.0
_BACKOFF_S: Final = 0.5
_BACKOFF_S_MAX: Final = 30.0
_log: structlog.stdlib.BoundLogger = structlog.get_logger(__name__)


class JobRunner(Protocol):
    """Launcher of processes: Spark, or, in tests without it, plain subprocesses."""

    async def run_job(self, launch: Launch) -> None:
        """Launch a process; return when it is over. Raises RunLost when it did not end normally."""
        ...

    def cancel(self, process_id: str) -> None:
        """Kill the process; its `run_job` then ends. Never blocks."""
        ...


class LastWord(Enum):
    """Last message of a run: how it ends."""

    FINISHED = auto()
    """No commit of the run is pending and its task is stopped: nothing of the run writes any more."""
    FAILED = auto()
    """Possibly because a call hangs; a thread is left with it, and the call may still take effect (`engine.bounded`).
    """


class RunLine:
    """The worker's end of one run's stream."""

    def __init__(self, run_id: str) -> None:
        self.run_id = run_id
        self.opened = False
        self.last_word: LastWord | None = None
        """None until it is received."""
        self.ended_for: Failure | None = None
        """Why the worker killed the run, when that is the task's fault."""
        self.closed = asyncio.Event()
        self._commands: asyncio.Queue[run_service_pb2.RunResponse | None] = asyncio.Queue(_COMMANDS_MAX)

    def send_command(self, response: run_service_pb2.RunResponse) -> None:
        """Queue a command; it waits if the run has no process yet."""
        if not self._commands.full():
            self._commands.put_nowait(response)

    def end(self) -> None:
        """Accept no more commands: `next` returns None after the queued ones."""
        if self._commands.full():
            self._commands.get_nowait()
        self._commands.put_nowait(None)

    async def next(self) -> run_service_pb2.RunResponse | None:
        """The next command, None at the end."""
        return await self._commands.get()


@dataclass(frozen=True, slots=True)
class Given:
    """The order of a process, and the line of its run."""

    line: RunLine
    order: RunOrder

    @property
    def allows_reuse(self) -> bool:
        """Whether its run may share a process with runs before and after it."""
        return self.order.spec.process_reuse


class RunProcess:
    """One process. `given` becomes its order, or None when it is to exit."""

    def __init__(self, process_id: str) -> None:
        self.process_id = process_id
        self.token = secrets.token_hex(16)
        self.given: asyncio.Future[Given | None] = asyncio.get_running_loop().create_future()
        self.over: asyncio.Future[RunLost | None] = asyncio.get_running_loop().create_future()
        """Error of its end, None = it ended normally."""
        self.leaving: asyncio.TimerHandle | None = None
        """Timer that kills the process if it neither exits nor connects again after its run."""
        self.runs = 0
        """Number of orders it was given."""

    @property
    def may_connect_again(self) -> bool:
        """True once it has finished a run that lets it execute another one."""
        given = self.given.result() if self.given.done() else None
        return given is not None and given.allows_reuse and given.line.last_word is LastWord.FINISHED

    def wait_again(self) -> None:
        """Wait for another order, after it connected again."""
        self.given = asyncio.get_running_loop().create_future()
        if self.leaving is not None:
            self.leaving.cancel()
            self.leaving = None


@dataclass(frozen=True, slots=True, eq=False)
class _Waiting:
    given: Given
    process: asyncio.Future[RunProcess]


class Processes:
    """All processes of this worker's runs, from `start` to `close`."""

    def __init__(self, jobs: JobRunner, standbys: int, reuse_wait_s: float = 0.0) -> None:
        """`standbys` is the number of processes that wait for an order. `reuse_wait_s`: how long others wait that have
        executed a run; 0 = such a process gets an order that waits already, or exits.
        """
        self._jobs = jobs
        self._standbys = standbys
        self._reuse_wait_s = reuse_wait_s
        self._address = ""
        self._launched = 0
        self._prefix = uuid.uuid4().hex[:12]
        self._alive: dict[str, RunProcess] = {}
        self._on_their_way: dict[str, RunProcess] = {}
        self._ready: deque[RunProcess] = deque()
        self._by_run: dict[str, RunProcess] = {}
        self._orders: deque[_Waiting] = deque()
        self._keeping: asyncio.TimerHandle | None = None
        self._yielding: asyncio.TimerHandle | None = None
        self._failures = 0
        self._pause: asyncio.TimerHandle | None = None
        self._closing = False
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self, address: str) -> None:
        """Accept processes at `address`, and launch the standby ones."""
        self._address = address
        self._reconcile()

    async def execute(self, line: RunLine, order: RunOrder) -> None:
        """Give the order to a process; return when the run is over. A run that finished is over with its last word,
        since its process only has to exit; a run that failed is over with its process. Raises RunLost when the run
        ended without a last word, or no process could be launched.
        """
        waiting = _Waiting(Given(line, order), asyncio.get_running_loop().create_future())
        self._orders.append(waiting)
        self._reconcile()
        process = await waiting.process
        hung_up = asyncio.ensure_future(line.closed.wait())
        try:
            await asyncio.wait((process.over, hung_up), return_when=asyncio.FIRST_COMPLETED)
        finally:
            hung_up.cancel()
        if line.closed.is_set() and line.last_word is not None:
            self._see_off(process, waiting.given)
            if line.last_word is LastWord.FINISHED:
                return
        lost = await asyncio.shield(process.over)
        if lost is not None and line.last_word is None:
            raise lost

    def cancel(self, run_id: str) -> None:
        """Kill the process of a run, or remove its waiting order. Never blocks."""
        process = self._by_run.get(run_id)
        if process is not None:
            self._jobs.cancel(process.process_id)
            return
        for waiting in self._orders:
            if waiting.given.line.run_id == run_id:
                self._refuse(waiting, "it was cancelled before a process began it")
                return

    def awaits(self, process_id: str) -> bool:
        """True for a process that was launched and has not connected, or may connect again."""
        process = self._alive.get(process_id)
        return process is not None and (process_id in self._on_their_way or process.may_connect_again)

    def open(self, process_id: str, token: str) -> RunProcess:
        """The process that connected, for the first time or again. Raises Superseded for one that this worker did not
        launch, or that is over.
        """
        process = self._alive.get(process_id)
        if process is None or not self.awaits(process_id) or not secrets.compare_digest(process.token, token):
            raise Superseded(f"this worker does not wait for process {process_id}")
        if self._on_their_way.pop(process_id, None) is None:
            process.wait_again()
            self._keep()
        self._ready.append(process)
        self._reconcile()
        return process

    def left(self, process: RunProcess) -> None:
        """Assign no order to the process any more: its line is broken or ended."""
        if process in self._ready:
            self._ready.remove(process)

    async def close(self, timeout_s: float) -> None:
        """Dismiss standby processes, launch none any more, and wait up to `timeout_s` for the others to end."""
        self._closing = True
        for timer in (self._pause, self._yielding, self._keeping):
            if timer is not None:
                timer.cancel()
        self._reconcile()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=timeout_s)
        for task in list(self._tasks):
            task.cancel()

    def _reconcile(self) -> None:
        """Assign waiting orders, dismiss surplus processes, launch missing ones."""
        self._assign()
        standbys = 0 if self._closing else self._standbys
        if self._keeping is None or self._closing:
            self._dismiss(len(self._ready) - standbys)
        if self._closing or not self._address:
            return
        may_launch = self._pause is None and (self._yielding is None or not self._ready)
        missing = max(0, standbys - len(self._ready)) if may_launch else 0
        for_orders = max(0, len(self._orders) - len(self._on_their_way))
        # No process that is ready fits the remaining orders: one makes room for each launch.
        self._dismiss(min(for_orders, len(self._ready)))
        for _ in range(len(self._orders) + missing - len(self._on_their_way)):
            self._launch()

    def _assign(self) -> None:
        """Give the waiting orders, in their order, to processes that are ready."""
        for waiting in [*self._orders]:
            if waiting.process.done():  # nobody waits for it any more
                self._orders.remove(waiting)
            elif (process := self._fit(waiting.given)) is not None:
                self._orders.remove(waiting)
                self._ready.remove(process)
                self._give(waiting, process)

    def _fit(self, given: Given) -> RunProcess | None:
        """The process for an order: the last one that executed a run, if this run allows it; else a new one."""
        new = next((one for one in self._ready if one.runs == 0), None)
        if not given.allows_reuse:
            return new
        return next((one for one in reversed(self._ready) if one.runs), new)

    def _dismiss(self, count: int) -> None:
        """Dismiss so many ready processes, those first that have waited longest."""
        for _ in range(count):
            self._ready.popleft().given.set_result(None)

    def _keep(self) -> None:
        """Keep the processes that are ready for some time."""
        if not self._reuse_wait_s:
            return
        if self._keeping is not None:
            self._keeping.cancel()
        self._keeping = asyncio.get_running_loop().call_later(self._reuse_wait_s, self._kept)

    def _kept(self) -> None:
        self._keeping = None
        self._reconcile()

    def _give(self, waiting: _Waiting, process: RunProcess) -> None:
        self._failures = 0
        process.runs += 1
        self._by_run[waiting.given.line.run_id] = process
        if self._yielding is None:
            self._yielding = asyncio.get_running_loop().call_later(_YIELD_S, self._yielded)
        process.given.set_result(waiting.given)
        waiting.process.set_result(process)

    def _see_off(self, process: RunProcess, given: Given) -> None:
        """Expect the process to exit or to connect again: the run that it was given is over."""
        if given.line.last_word is LastWord.FINISHED:
            self._by_run.pop(given.line.run_id, None)
        has_moved_on = not process.given.done() or process.given.result() is not given
        if not process.over.done() and not has_moved_on:
            later = asyncio.get_running_loop().call_later
            process.leaving = later(_LEAVE_TIMEOUT_S, self._jobs.cancel, process.process_id)

    def _refuse(self, waiting: _Waiting, error: str) -> None:
        self._orders.remove(waiting)
        if not waiting.process.done():
            waiting.process.set_exception(RunLost(error))

    def _launch(self) -> None:
        self._launched += 1
        process = RunProcess(f"{self._prefix}-{self._launched}")
        self._alive[process.process_id] = self._on_their_way[process.process_id] = process
        task = asyncio.create_task(self._live(process), name=f"process {process.process_id}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _live(self, process: RunProcess) -> None:
        lost: RunLost | None = None
        try:
            await self._jobs.run_job(Launch(process.process_id, self._address, process.token))
        except RunLost as found:
            lost = found
        finally:
            self._ended(process, lost)

    def _ended(self, process: RunProcess, lost: RunLost | None) -> None:
        error = None if lost is None else str(lost)
        del self._alive[process.process_id]
        self.left(process)
        process.over.set_result(lost)
        if process.leaving is not None:
            process.leaving.cancel()
        given = process.given.result() if process.given.done() else None
        if given is not None:
            self._by_run.pop(given.line.run_id, None)
            if error is not None and given.line.last_word is not None:
                _log.warning("process_ended_abnormally", process_id=process.process_id, error=error)
        unheard = self._on_their_way.pop(process.process_id, None) is not None
        if unheard and len(self._orders) > len(self._on_their_way):
            self._refuse(self._orders[0], error or "its process ended before its first message")
        elif not process.given.done() and not self._closing:
            self._pause_after(error or "it ended by itself")
        self._reconcile()

    def _pause_after(self, error: str) -> None:
        """Replace a process that ended without a run, with a backoff that grows with each such end in a row."""
        pause_s = min(_BACKOFF_S * 2**self._failures, _BACKOFF_S_MAX)
        self._failures += 1
        _log.warning("standby_lost", error=error, again_s=pause_s)
        if self._pause is not None:
            self._pause.cancel()
        self._pause = asyncio.get_running_loop().call_later(pause_s, self._resume)

    def _yielded(self) -> None:
        self._yielding = None
        self._reconcile()

    def _resume(self) -> None:
        self._pause = None
        self._reconcile()
