"""Memory watchdog of runs with a limit (`herdmesh.memory.max`): measures five times a second, kills a run above it.

Owns the measurement: what the kernel reports for the process, in memory and swapped out, whoever allocated it (Python,
Arrow, Kafka's client, a library), and the same for the processes that it started, such as a JVM. The worker measures,
because an allocating process may hold its interpreter's lock (ADR 0010). Owns no process. A run is measured while its
line is open. A worker that was frozen may learn late that a line is closed; if another process has that pid by then,
the watchdog mistakes it for the run.

The processes that a run started are listed once a second, and one counts from the second time it is found: a fork that
is about to execute another program seems to have all of its parent's memory.

Invariants: a run is killed for its memory only before its last word, together with the processes it started. Its line
has the reason before the kill. Without limited runs no timer runs.
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
"""Interval between searches for processes that runs started."""
MEMORY_MAX: Final = "herdmesh.memory.max"
_USED: Final = re.compile(rb"^Vm(?:RSS|Swap):\s+([0-9]+) kB$", re.MULTILINE)
_log: structlog.stdlib.BoundLogger = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class _Bound:
    pid: int
    max_bytes: int


class MemoryWatch:
    """All limited runs of this worker."""

    def __init__(self, look_s: float = LOOK_S, started_s: float = STARTED_S) -> None:
        self._look_s = look_s
        self._started_s = started_s
        self._bounds: dict[RunLine, _Bound] = {}
        #: Processes that runs had started at the last search, and those of them that were also found by the search
        #: before.
        self._started: Mapping[int, frozenset[ProcessId]] = {}
        self._counted: Mapping[int, frozenset[ProcessId]] = {}
        self._looking: asyncio.Task[None] | None = None

    @contextmanager
    def bounding(self, line: RunLine, pid: int, max_bytes: int) -> Generator[None]:
        """Limit the run's memory inside this context; 0 = no limit."""
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
    """The memory of each part, and that they were killed."""
    shares = [one for one in shares if one]
    if not shares:
        return f"its process had {_mb(own)}MB and was killed"
    started = "the process it started" if len(shares) == 1 else f"the {len(shares)} it started"
    return f"its process had {_mb(own)}MB and {started} {_mb(sum(shares))}MB, and all were killed"


def _mb(size_bytes: int) -> int:
    """Megabytes, rounded up: more than a limit of whole megabytes must not read as equal to it."""
    return -(-size_bytes >> 20)


def _kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, signal.SIGKILL)


def used_bytes(pid: int) -> int:
    """Bytes of a local process in memory and in swap, including shared ones; 0 = it is gone."""
    try:
        status = Path(f"/proc/{pid}/status").read_bytes()
    except OSError:
        return 0
    return sum(int(one) for one in _USED.findall(status)) * 1024
