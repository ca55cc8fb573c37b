"""Check that a process is fit for another run: nothing of the run before is left in it.

Owns the comparison with the state of the process before its first run, and the reset of what every run sets for its
process: secrets and log fields. Log levels, streams and threads are restored by those that change them. Does not decide
whether a connector allows reuse (`RunSpec.process_reuse`).

Invariant: in doubt the process ends, and the next run begins in another one.
"""

from __future__ import annotations

import gc
import os
import threading
import time
from pathlib import Path
from typing import Final

from herdmesh.connect.config import forget_secrets
from herdmesh.rpc.process import log_without

RUNS_MAX: Final = 500
"""Runs of one process: bounds whatever leaks a little in each."""
GROWTH_BYTES_MAX: Final = 64 * 1024 * 1024
"""Memory of a process above what it had before its first run."""
THREADS_TIMEOUT_S: Final = 2.0
"""How long a process waits for the threads of its clients, which take some 15 ms to end."""
LOG_FIELDS: Final = ("unit", "run_id", "trace_id")
"""Fields of all log lines of a run."""
_LOOK_S: Final = 0.005
_STATM: Final = Path("/proc/self/statm")
_TASKS: Final = Path("/proc/self/task")
_CLIENT_THREAD: Final = "rdk:"
"""Beginning of the names of librdkafka's threads."""


class ProcessState:
    """The state of this process before its first run."""

    def __init__(self) -> None:
        self._runs = 0
        self._threads = frozenset(threading.enumerate())
        self._memory_bytes = _memory_bytes()

    def renew(self) -> str:
        """Prepare the process for another run. Returns why it must end instead; "" = it is ready."""
        self._runs += 1
        if self._runs >= RUNS_MAX:
            return f"it has executed {self._runs} runs"
        gc.collect()  # closes clients that are left in reference cycles
        if left := self._threads_left():
            return f"threads of the run are left: {', '.join(left)}"
        grown = _memory_bytes() - self._memory_bytes
        if grown > GROWTH_BYTES_MAX:
            return f"it has grown by {grown >> 20} MB"
        # Only now: threads of the run that were about to end may have logged its secrets.
        forget_secrets()
        log_without(*LOG_FIELDS)
        return ""

    def _threads_left(self) -> list[str]:
        deadline_s = time.monotonic() + THREADS_TIMEOUT_S
        while left := [*self._own_left(), *_client_threads()]:
            if time.monotonic() >= deadline_s:
                return left
            time.sleep(_LOOK_S)
        return left

    def _own_left(self) -> list[str]:
        return [one.name for one in threading.enumerate() if one not in self._threads]


def _client_threads() -> list[str]:
    """Names of the threads of Kafka clients that are not closed yet."""
    if not _TASKS.is_dir():
        return ["unknown, as this system does not list them"]
    found: list[str] = []
    for one in _TASKS.iterdir():
        try:
            name = (one / "comm").read_text(encoding="utf-8", errors="replace").strip()
        except OSError:
            continue  # it has just ended
        if name.startswith(_CLIENT_THREAD):
            found.append(name)
    return found


def _memory_bytes() -> int:
    """The process' resident memory without pages of files, in bytes; 0 where it is unknown."""
    try:
        _, resident, shared, *_ = _STATM.read_text(encoding="ascii").split()
    except (OSError, ValueError):
        return 0
    return (int(resident) - int(shared)) * os.sysconf("SC_PAGE_SIZE")
