"""Execution of faults on the processes of a stack, with a record of the harmed services and times.

Owns signals and the timeline. Decides nothing (`faults` does) and judges nothing (`run` does). Invariant: a frozen
process is woken again, whatever happens to the run.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
from collections import Counter
from collections.abc import Coroutine, Sequence
from typing import Any

import psutil

from tests.chaos.faults import Fault, Way
from tests.chaos.truth import daemons_of, jvm_of, runs_of
from tests.support.mesh import Mesh, role_of

#: Time for a broker to stop and its JVM to start again, beside a mesh that dials it: 44 s were seen.
BROKER_BACK_S = 180.0
_SIGNALS = {Way.KILL: signal.SIGKILL, Way.STOP: signal.SIGTERM, Way.FREEZE: signal.SIGSTOP}


class Harm:
    """The faults of one run. `harmed` maps a service to when it was harmed last (monotonic seconds)."""

    def __init__(self, mesh: Mesh) -> None:
        self.timeline: list[str] = []
        self.harmed: dict[str, float] = {}
        self.last_s = 0.0
        """When the last harm ended: a kill at once, a freeze when it is woken, the broker's when it serves again."""
        self.done: Counter[tuple[str, Way]] = Counter()
        self._mesh = mesh
        self._begun_s = time.monotonic()
        self._frozen: dict[int, psutil.Process] = {}
        self._waking: set[asyncio.Task[None]] = set()

    def note(self, text: str) -> None:
        """Add one line to the timeline, printed as it happens."""
        line = f"{time.monotonic() - self._begun_s:7.1f} s  {text}"
        self.timeline.append(line)
        print(line, flush=True)

    @property
    def count(self) -> int:
        """Number of faults so far."""
        return self.done.total()

    async def do(self, fault: Fault) -> bool:
        """Harm one process; a freeze ends by itself later. False when no such process exists now."""
        service, process = await self._victim(fault)
        if process is None:
            self.note(f"{fault.way} {fault.target}: there is none now")
            return False
        long = f" for {fault.freeze_s:g} s" if fault.way is Way.FREEZE else ""
        part = "" if fault.target in (service, role_of(service)) else f" ({fault.target})"
        self.note(f"{fault.way} {service}{part}, process {process.pid}{long}")
        self.done[fault.target, fault.way] += 1
        self.harmed[service] = self.last_s = time.monotonic()
        with contextlib.suppress(psutil.NoSuchProcess):
            process.send_signal(_SIGNALS[fault.way])
            if fault.way is Way.FREEZE:
                self._frozen[process.pid] = process
                self._later(self._wake(service, process, fault.freeze_s))
        if service == "broker" and fault.way is not Way.FREEZE:
            self._later(self._until_broker_is_back(process.pid))
        return True

    async def has(self, fault: Fault) -> bool:
        """Whether a process for this fault exists now."""
        return (await self._victim(fault))[1] is not None

    async def over(self) -> None:
        """Wait until nothing is frozen any more and the broker is back."""
        while self._waking:
            await asyncio.gather(*self._waking)

    def wake_all(self) -> None:
        """Wake all frozen processes."""
        for task in self._waking:
            task.cancel()
        for process in self._frozen.values():
            with contextlib.suppress(psutil.NoSuchProcess):
                process.send_signal(signal.SIGCONT)
        self._frozen.clear()

    def _later(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._waking.add(task)
        task.add_done_callback(self._waking.discard)

    async def _wake(self, service: str, process: psutil.Process, after_s: float) -> None:
        await _pause(after_s)
        self._frozen.pop(process.pid, None)
        with contextlib.suppress(psutil.NoSuchProcess):
            process.send_signal(signal.SIGCONT)
        self.harmed[service] = self.last_s = time.monotonic()
        self.note(f"SIGCONT {service}, process {process.pid}")

    async def _until_broker_is_back(self, old_pid: int) -> None:
        state = self._mesh.stack.state
        async with asyncio.timeout(BROKER_BACK_S):
            while True:
                broker = next(one for one in state.services if one.name == "broker")
                if broker.state == "serving" and broker.mark is not None and broker.mark.pid != old_pid:
                    break
                await asyncio.sleep(0.05)
        self.harmed["broker"] = self.last_s = time.monotonic()
        self.note("broker serves again")

    async def _victim(self, fault: Fault) -> tuple[str, psutil.Process | None]:
        """The process a fault is for, and the service it belongs to."""
        stack = self._mesh.stack
        if fault.target == "broker":
            pid = stack.broker.pid
            return "broker", None if pid is None else psutil.Process(pid)
        found: list[tuple[str, psutil.Process]] = []
        for name in await self._candidates(fault.target):
            mark = stack.processes[name].mark
            process = None if mark is None else mark.alive()
            found += [] if process is None else [(name, one) for one in _inside(process, fault.target)]
        return found[int(fault.pick * len(found))] if found else (fault.target, None)

    async def _candidates(self, target: str) -> Sequence[str]:
        """Names of the live services of this kind."""
        stack = self._mesh.stack
        alive = [name for name, process in stack.processes.items() if process.mark is not None]
        if target not in ("leader", "follower"):
            role = "worker" if target in ("jvm", "daemon", "run") else target
            return [name for name in alive if role_of(name) == role]
        herders = [name for name in alive if role_of(name) == "herder"]
        leader_address = await self._mesh.leader_address()
        leads = [name for name in herders if self._mesh.service_at(leader_address) == name] if leader_address else []
        return leads if target == "leader" else [name for name in herders if name not in leads]


def _inside(service: psutil.Process, target: str) -> Sequence[psutil.Process]:
    """The process itself; of a worker its JVM, the daemon that forks its runs, or its runs."""
    with contextlib.suppress(psutil.NoSuchProcess):
        if target == "run":
            return runs_of(service)
        if target == "daemon":
            return daemons_of(service)
        if target == "jvm":
            jvm = jvm_of(service)
            return [] if jvm is None else [jvm]
        return [service]
    return []


async def _pause(seconds: float) -> None:
    """Wait for the duration of a fault, which is part of the fault."""
    over = asyncio.Event()
    handle = asyncio.get_running_loop().call_later(seconds, over.set)
    try:
        await over.wait()
    finally:
        handle.cancel()


def own_sessions(pids: Sequence[int]) -> list[psutil.Process]:
    """Processes that live in sessions which these processes led."""
    found: list[psutil.Process] = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, ProcessLookupError, PermissionError):
            if os.getsid(process.pid) in pids and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
    return found
