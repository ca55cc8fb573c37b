"""Test of a supervisor that is started by a command that ends before it."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from pathlib import Path

import psutil

#: As `herd up --detach`: starts it on an event loop, and ends after all objects are collected.
STARTER = """
import asyncio, gc, sys
from pathlib import Path
from herdmesh.devstack.supervisor import spawn_detached

async def start():
    command = [sys.executable, "-c", "import sys; print('ready', flush=True); sys.stdin.read(); input()"]
    return (await asyncio.to_thread(spawn_detached, command, Path(sys.argv[1]))).pid

print(asyncio.run(start()), flush=True)
gc.collect()
"""


def test_a_detached_process_gets_no_signal_from_its_starter(tmp_path: Path) -> None:
    """The process ends by its own error (its input is empty), and not by a kill when the loop of its starter ends."""
    log = tmp_path / "supervisor.log"
    done = subprocess.run([sys.executable, "-c", STARTER, str(log)], capture_output=True, text=True, check=True)
    pid = int(done.stdout)
    with contextlib.suppress(psutil.NoSuchProcess):
        psutil.Process(pid).wait(30)
    assert log.read_text().startswith("ready\n")
    assert "EOFError" in log.read_text()
