"""A stack without a terminal: `herd up --detach` starts this, `herd down` ends it.

Owns the life of one `Stack` from SIGTERM or SIGINT to the last process. Prints nothing but errors: the state file in
the data folder has the rest.

    python -m herdmesh.devstack.supervisor --data DIR --workers N --herders N --store-replicas N
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import psutil

from herdmesh.devstack.errors import DevstackError
from herdmesh.devstack.layout import ProcessMark, StackLayout, StackState
from herdmesh.devstack.left_behind import stop_left_behind
from herdmesh.devstack.stack import START_TIMEOUT_S, Stack, StackSettings

_POLL_S = 0.1
#: Longer than the sum of the grace periods of an orderly stop.
STOP_TIMEOUT_S = 60.0


async def run(settings: StackSettings) -> None:
    """Run a stack until SIGTERM or SIGINT, then stop it in order."""
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stopping.set)
    stack = Stack(settings)
    starting = asyncio.create_task(stack.start())
    stop_wanted = asyncio.create_task(stopping.wait())
    await asyncio.wait({starting, stop_wanted}, return_when=asyncio.FIRST_COMPLETED)
    if not starting.done():
        starting.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await starting  # it stops the processes that it started
        return
    starting.result()
    await stop_wanted
    await stack.stop()


async def start_detached(settings: StackSettings) -> StackState:
    """Start a supervisor that outlives this process and wait until its stack is ready. Only the folder and the counts
    of the settings are passed to it.

    Raises `DevstackError` with the supervisor's own message when it ends before that.
    """
    layout = StackLayout(settings.data_dir)
    layout.create()
    log_path = layout.logs_dir / "supervisor.log"
    command = [
        *(sys.executable, "-m", "herdmesh.devstack.supervisor", "--data", str(settings.data_dir)),
        *("--workers", str(settings.workers), "--herders", str(settings.herders)),
        *("--store-replicas", str(settings.store_replicas)),
    ]
    process = await asyncio.to_thread(spawn_detached, command, log_path)
    mark = ProcessMark.of(process.pid)
    deadline_s = asyncio.get_running_loop().time() + START_TIMEOUT_S + STOP_TIMEOUT_S
    while asyncio.get_running_loop().time() < deadline_s:
        state = layout.read_state()
        if state is not None and state.ready and state.supervisor == mark:
            return state
        if process.poll() is not None:
            raise DevstackError(log_path.read_text(errors="replace").strip() or f"ended early; see {log_path}")
        await asyncio.sleep(_POLL_S)
    raise DevstackError(f"the stack was not ready in time; see {layout.logs_dir}")


def spawn_detached(command: Sequence[str], log_path: Path) -> subprocess.Popen[bytes]:
    """Start a process that outlives this one. Not with asyncio: its transport kills a process that still runs when the
    transport is collected, which Python 3.13 does at the end of the loop.
    """
    with log_path.open("wb") as log:
        return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)


async def stop_detached(data_dir: Path) -> bool:
    """End the supervisor of a data folder, in order, or the processes that a killed supervisor left running. False when
    nothing runs there.
    """
    layout = StackLayout(data_dir)
    state = layout.read_state()
    supervisor = state.supervisor.alive() if state is not None and state.supervisor is not None else None
    if supervisor is None:
        return await stop_left_behind(layout, os.getpid())
    supervisor.send_signal(signal.SIGTERM)
    try:
        await asyncio.to_thread(supervisor.wait, STOP_TIMEOUT_S)
    except psutil.TimeoutExpired:
        raise DevstackError(f"process {supervisor.pid} did not stop within {STOP_TIMEOUT_S:g} s") from None
    return True


def main() -> int:
    """Command line: run one stack until SIGTERM or SIGINT."""
    parser = argparse.ArgumentParser(prog="python -m herdmesh.devstack.supervisor")
    parser.add_argument("--data", type=Path, required=True, metavar="DIR")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--herders", type=int, default=1)
    parser.add_argument("--store-replicas", type=int, default=1)
    options = parser.parse_args()
    settings = StackSettings(options.data, options.workers, options.herders, options.store_replicas)
    try:
        asyncio.run(run(settings))
    except DevstackError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
