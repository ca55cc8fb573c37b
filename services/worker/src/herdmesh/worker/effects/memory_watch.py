"""Runs whose memory is bounded (`herdmesh.memory.max`): looked at five times a second, and killed once they have more.

Owns the looking. What counts is what the kernel says the process has, in memory and swapped out, whoever allocated it:
Python, Arrow, Kafka's client, a library. It is looked at from the worker, because a process that allocates may keep its
interpreter's lock (ADR 0010). Owns no process. A run is looked at while its line is open; a worker that stood still may
hear late that it is closed, and if its pid is another process' by then, that one is taken for it.

Invariants: a run is killed for its memory only before its last word; its line says why before it is killed; without
such runs nothing wakes.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import signal
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import structlog

from herdmesh.connect.sizes import text_of_bytes
from herdmesh.engine.contract import ErrorClass
from herdmesh.worker.effects.processes import RunLine
from herdmesh.worker.state.model import Failure

LOOK_S: Final = 0.2
MEMORY_MAX: Final = "herdmesh.memory.max"
_USED: Final = re.compile(rb"^Vm(?:RSS|Swap):\s+([0-9]+) kB$", re.MULTILINE)
_log: structlog.stdlib.BoundLogger = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class _Bound:
    pid: int
    max_bytes: int


class MemoryWatch:
    """All bounded runs of this worker."""

    def __init__(self, look_s: float = LOOK_S) -> None:
        self._look_s = look_s
        self._bounds: dict[RunLine, _Bound] = {}
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
        try:
            while self._bounds:
                for line, bound in list(self._bounds.items()):
                    if line.last_word is None and (used := used_bytes(bound.pid)) > bound.max_bytes:
                        self._end(line, bound, used)
                await asyncio.sleep(self._look_s)
        finally:
            self._looking = None

    def _end(self, line: RunLine, bound: _Bound, used: int) -> None:
        del self._bounds[line]
        line.ended_for = Failure(
            f"the task used more than {MEMORY_MAX}={text_of_bytes(bound.max_bytes)}: its process had "
            f"{used >> 20}MB and was killed; raise the bound, or have the task hold less at a time",
            error_class=ErrorClass.RETRIABLE,
        )
        _log.warning("run_over_memory_max", run_id=line.run_id, used_bytes=used, max_bytes=bound.max_bytes)
        with contextlib.suppress(ProcessLookupError):
            os.kill(bound.pid, signal.SIGKILL)


def used_bytes(pid: int) -> int:
    """What a process of this machine has in memory and in swap, with what it shares; 0 = it is gone."""
    try:
        status = Path(f"/proc/{pid}/status").read_bytes()
    except OSError:
        return 0
    return sum(int(one) for one in _USED.findall(status)) * 1024
