"""Memory watchdog of runs with a bound (`herdmesh.memory.max`): measured five times a second, killed above it.

Owns the looking. What counts is what the kernel says the process has, in memory and swapped out, whoever allocated it:
Python, Arrow, Kafka's client, a library; and what the processes have that it started, a JVM say. It is looked at from
the worker, because a process that allocates may keep its interpreter's lock (ADR 0010). Owns no process. A run is
looked at while its line is open; a worker that stood still may hear late that it is closed, and if its pid is another
process' by then, that one is taken for it.

What a run started is looked for once a second, and counts from the second time that it is found: a fork that is about
to execute something else seems to have all that its parent has.

Invariants: a run is killed for its memory only before its last word, and what it started with it; its line says why
before it is killed; without such runs nothing wakes.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import signal
import time
from collections.abc import Collection, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import structlog

from herdmesh.connect.config import text_of_bytes
from herdmesh.connect.error_class import ErrorClass
from herdmesh.session.model import Failure
from herdmesh.worker.effects.runs.process_trees import ProcessId, is_there, started_by
from herdmesh.worker.effects.runs.processes import RunLine

LOOK_S: Final = 0.2
STARTED_S: Final = 1.0
"""Between two looks for processes that runs started."""
MEMORY_MAX: Final = "herdmesh.memory.max"
_USED: Final = re.compile(rb"^Vm(?:RSS|Swap):\s+([0-9]+) kB$", re.MULTILINE)
_log: structlog.stdlib.BoundLogger = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class _Bound:
    pid: int
    max_bytes: int


class MemoryWatch:
    """All bounded runs of this worker."""

    def __init__(self, look_s: float = LOOK_S, started_s: float = STARTED_S) -> None:
        self._look_s = look_s
        self._started_s = started_s
        self._bounds: dict[RunLine, _Bound] = {}
        #: What runs had started at the last look for it, and of that what was there at the look before, too.
        self._started: Mapping[int, frozenset[ProcessId]] = {}
        self._counted: Mapping[int, frozenset[ProcessId]] = {}
        self._looking: asyncio.Task[None] | None = None

    @contextmanager
    def bounding(self, line: RunLine, pid: int, max_bytes: int) -> Generator[None]:
        """While inside, the run has no more than so many bytes; 0 = as many as there are."""
        if max_bytes:
            self._bounds[line] = _Bound(pid, max_bytes)
            if self._looking is None:
                self._looking = asyncio.create_task(self._look(), name="memory watch")
        try:
            yield
        finally:
            self._bounds.pop(line, None)

    async def _look(self) -> None:
        next_s = 0.0
        try:
            while self._bounds:
                if time.monotonic() >= next_s:
                    await self._look_for_started()
                    next_s = time.monotonic() + self._started_s
                for line, bound in list(self._bounds.items()):
                    if line.last_word is None:
                        self._look_at(line, bound)
                await asyncio.sleep(self._look_s)
        finally:
            self._started, self._counted = {}, {}
            self._looking = None

    async def _look_for_started(self) -> None:
        found = await asyncio.to_thread(started_by, [bound.pid for bound in self._bounds.values()])
        self._counted = {pid: now & self._started.get(pid, frozenset()) for pid, now in found.items()}
        self._started = found

    def _look_at(self, line: RunLine, bound: _Bound) -> None:
        own = used_bytes(bound.pid)
        shares = [used_bytes(one.pid) for one in self._counted.get(bound.pid, ())]
        if own + sum(shares) <= bound.max_bytes:
            return
        del self._bounds[line]
        line.ended_for = Failure(
            f"the task used more than {MEMORY_MAX}={text_of_bytes(bound.max_bytes)}: {_had(own, shares)}; raise the "
            "bound, or have the task hold less at a time",
            error_class=ErrorClass.RETRIABLE,
        )
        _log.warning("run_over_memory_max", run_id=line.run_id, used_bytes=own, max_bytes=bound.max_bytes,
                     started=len(shares), used_by_started_bytes=sum(shares))  # fmt: skip
        _kill(bound.pid)
        for one in self._started.get(bound.pid, ()):
            if is_there(one):
                _kill(one.pid)


def _had(own: int, shares: Collection[int]) -> str:
    """Who had how much, and what became of it."""
    shares = [one for one in shares if one]
    if not shares:
        return f"its process had {_mb(own)}MB and was killed"
    started = "the process it started" if len(shares) == 1 else f"the {len(shares)} it started"
    return f"its process had {_mb(own)}MB and {started} {_mb(sum(shares))}MB, and all were killed"


def _mb(size_bytes: int) -> int:
    """Rounded up: what is over a bound of whole megabytes must not read as if it had just them."""
    return -(-size_bytes >> 20)


def _kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, signal.SIGKILL)


def used_bytes(pid: int) -> int:
    """What a process of this machine has in memory and in swap, with what it shares; 0 = it is gone."""
    try:
        status = Path(f"/proc/{pid}/status").read_bytes()
    except OSError:
        return 0
    return sum(int(one) for one in _USED.findall(status)) * 1024
