"""Tests of one process of a stack: restarted when it dies, never left behind, and distinguished from a later one with
its pid.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import signal
import sys
import time
from pathlib import Path

import psutil
import pytest

from herdmesh.devstack.layout import ProcessMark, ServiceState, StackLayout, StackState
from herdmesh.devstack.ports import PortReservations, is_free
from herdmesh.devstack.process import ManagedProcess

#: Starts a child of its own, reports it, and ignores SIGTERM: the worst kind to stop.
STUBBORN = (
    "import signal,subprocess,sys,time\n"
    "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
    "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
    "print('child', child.pid, flush=True)\n"
    "time.sleep(600)\n"
)


class Watched:
    """A managed process and the event of its changes."""

    def __init__(self, tmp_path: Path, code: str, *, restart: bool = True) -> None:
        self.changed = asyncio.Event()
        self.log = tmp_path / "process.log"
        self.process = ManagedProcess(
            "test", [sys.executable, "-c", code], {}, self.log, self.changed.set, restart=restart
        )

    async def until(self, what: str) -> None:
        """Wait until a change satisfies an expression over `p`."""
        async with asyncio.timeout(60):
            while not eval(what, {"p": self.process}):
                self.changed.clear()
                await self.changed.wait()

    async def child_pid(self) -> int:
        deadline_s = time.monotonic() + 60
        while (found := re.search(r"child (\d+)\n", self._written())) is None:
            assert time.monotonic() < deadline_s, "no child was announced"
            await asyncio.sleep(0.02)
        return int(found[1])

    def _written(self) -> str:
        """The process's log; a line may be written in parts."""
        return self.log.read_text() if self.log.exists() else ""


async def test_a_dead_process_is_started_again(tmp_path: Path) -> None:
    watched = Watched(tmp_path, "import time; time.sleep(600)")
    await watched.process.start()
    try:
        mark = watched.process.mark
        assert mark is not None
        os.kill(mark.pid, signal.SIGKILL)
        await watched.until("p.restarts == 1 and p.mark is not None")
        assert watched.process.mark != mark
    finally:
        await watched.process.stop(1)


async def test_without_restart_its_exit_code_is_kept(tmp_path: Path) -> None:
    watched = Watched(tmp_path, "print('last words'); raise SystemExit(7)", restart=False)
    await watched.process.start()
    await watched.until("p.exit_code is not None")
    assert watched.process.exit_code == 7
    assert watched.process.log_tail() == "last words"
    await watched.process.stop(1)


async def test_stop_ends_the_whole_tree_of_a_process_that_ignores_sigterm(tmp_path: Path) -> None:
    watched = Watched(tmp_path, STUBBORN)
    await watched.process.start()
    child = psutil.Process(await watched.child_pid())
    await watched.process.stop(0.3)
    await until_gone(child)


async def until_gone(process: psutil.Process) -> None:
    """Wait until the process is dead; its parent may reap it at any moment."""
    async with asyncio.timeout(20):
        with contextlib.suppress(psutil.NoSuchProcess):
            while True:
                if not process.is_running() or process.status() == psutil.STATUS_ZOMBIE:
                    return
                await asyncio.sleep(0.02)


async def test_children_of_a_killed_process_are_ended_before_its_restart(tmp_path: Path) -> None:
    watched = Watched(tmp_path, STUBBORN)
    await watched.process.start()
    try:
        child = psutil.Process(await watched.child_pid())
        assert watched.process.mark is not None
        os.kill(watched.process.mark.pid, signal.SIGKILL)
        await watched.until("p.restarts == 1")
        await until_gone(child)  # it has been killed; a busy machine takes a moment to end it
    finally:
        await watched.process.stop(0.3)


def test_state_survives_and_a_reused_pid_is_not_ours(tmp_path: Path) -> None:
    layout = StackLayout(tmp_path)
    layout.create()
    mine = ProcessMark.of(os.getpid())
    state = StackState(supervisor=mine, herder="h:1", services=[ServiceState("herder", "h:1", mark=mine)])
    layout.write_state(state)
    assert layout.read_state() == state
    assert mine.alive() is not None
    assert ProcessMark(os.getpid(), mine.create_time_s - 5).alive() is None


def test_ports_are_remembered_and_never_shared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HERDMESH_CACHE_DIR", str(tmp_path / "cache"))
    names = ["config-store", "status-store", "herder", "worker-1", "worker-2"]
    reservations = PortReservations()
    first = StackLayout(tmp_path).choose_ports(names, reservations, usual=False)
    assert len(set(first.values())) == len(names)
    assert all(is_free(port) for port in first.values())
    assert StackLayout(tmp_path).choose_ports(names, reservations, usual=False) == first
    # Another stack that remembers the same ports, and starts before the first one's servers listen.
    other = StackLayout(tmp_path).choose_ports(names, PortReservations(), usual=False)
    assert not set(other.values()) & set(first.values())
    reservations.release()
    again = PortReservations()
    assert all(again.take(port) for port in first.values())
    again.release()
