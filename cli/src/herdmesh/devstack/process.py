"""One process of a stack: spawned with its own log, restarted with backoff, stopped within a bound.

Owns the process and everything it spawned. Does not know its purpose. Invariant: after `stop()` neither the process nor
any descendant it had is alive.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import psutil

from herdmesh.devstack.layout import ProcessMark

BACKOFF_FIRST_S = 0.2
BACKOFF_MAX_S = 5.0
#: A process that lived this long starts again with the shortest backoff.
STEADY_S = 20.0


class ManagedProcess:
    """Process that keeps one command running until `stop`.

    `changed` is called, on the event loop, whenever pid, state or the restart count changed.
    """

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        env: Mapping[str, str],
        log_path: Path,
        changed: Callable[[], None],
        *,
        restart: bool = True,
    ) -> None:
        self.name = name
        self.restarts = 0
        self.exit_code: int | None = None
        self._command = list(command)
        #: environment of future starts
        self.environment = {**os.environ, **env}
        self._log_path = log_path
        self._changed = changed
        self._restart = restart
        self._process: asyncio.subprocess.Process | None = None
        self._mark: ProcessMark | None = None
        self._keeper: asyncio.Task[None] | None = None
        self._stopping = False

    @property
    def mark(self) -> ProcessMark | None:
        """The living process, or None between two starts."""
        return self._mark

    async def start(self) -> None:
        """Spawn it. Raises `OSError` when the command cannot be run at all."""
        await self._spawn()
        self._keeper = asyncio.create_task(self._keep(), name=f"keep {self.name}")

    async def stop(self, grace_s: float) -> None:
        """SIGTERM, at most `grace_s` of waiting, then SIGKILL for the rest of its process tree."""
        self._stopping = True
        process, mark = self._process, self._mark
        tree = _tree(mark)
        if process is not None and process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.send_signal(signal.SIGTERM)
                process.send_signal(signal.SIGCONT)  # a stopped process cannot act on SIGTERM
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(process.wait(), grace_s)
        await end_tree(tree)
        if self._keeper is not None:
            self._keeper.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._keeper
        self._mark = None

    def log_tail(self, lines: int = 15) -> str:
        """The last lines of its log, for an error message."""
        try:
            return "\n".join(self._log_path.read_text(errors="replace").splitlines()[-lines:])
        except FileNotFoundError:
            return ""

    async def _spawn(self) -> None:
        with self._log_path.open("ab") as log:
            # a separate session: Ctrl-C reaches the supervisor, which stops the parts in order
            self._process = await asyncio.create_subprocess_exec(
                *self._command,
                env=self.environment,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self.exit_code = None
        self._mark = ProcessMark.of(self._process.pid)
        self._changed()

    async def _keep(self) -> None:
        backoff_s = BACKOFF_FIRST_S
        loop = asyncio.get_running_loop()
        while True:
            assert self._process is not None
            started_s = loop.time()
            tree_mark = self._mark
            self.exit_code = await self._process.wait()
            orphans = _session(tree_mark)
            self._mark = None
            self._changed()
            if self._stopping or not self._restart:
                return
            await end_tree(orphans, grace_s=3.0)
            if loop.time() - started_s > STEADY_S:
                backoff_s = BACKOFF_FIRST_S
            await asyncio.sleep(backoff_s)
            backoff_s = min(backoff_s * 2, BACKOFF_MAX_S)
            self.restarts += 1
            with contextlib.suppress(OSError):  # no process or no log file can be had now: tried again
                await self._spawn()


async def end_tree(processes: Sequence[psutil.Process], grace_s: float = 0.5) -> None:
    """Wait up to `grace_s` for these processes to end by themselves, then kill the rest."""
    alive = list(processes)
    deadline_s = asyncio.get_running_loop().time() + grace_s
    while alive and asyncio.get_running_loop().time() < deadline_s:
        alive = [one for one in alive if _is_alive(one)]
        if alive:
            await asyncio.sleep(0.05)
    for one in alive:
        with contextlib.suppress(psutil.NoSuchProcess):
            one.kill()


def _is_alive(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def _tree(mark: ProcessMark | None) -> list[psutil.Process]:
    root = mark.alive() if mark is not None else None
    if root is None:
        return _session(mark)
    try:
        return [*root.children(recursive=True), root]
    except psutil.NoSuchProcess:
        return []


def _session(mark: ProcessMark | None) -> list[psutil.Process]:
    """Processes that a dead process left: the members of the session it led (a worker's JVM and its Python
    processes)."""
    if mark is None:
        return []
    found: list[psutil.Process] = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, ProcessLookupError, PermissionError):
            if process.pid != mark.pid and os.getsid(process.pid) == mark.pid:
                found.append(process)
    return found
