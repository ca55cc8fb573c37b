"""A stack without a terminal: `herd up --detach` starts this, `herd down` ends it.

Owns the life of one `Stack` from its start to the last process: until SIGTERM, SIGINT or SIGHUP, or until its data
folder was moved or removed. Prints a line with its time for each change of a service, which is its log,
`supervisor.log`; the state file in the data folder has the present state.

    python -m herdmesh.devstack.supervisor --data DIR --workers N --herders N --store-replicas N
        [--group-id NAME] [--bootstrap-servers HOST:PORT,... [--command-config FILE]]
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import psutil

from herdmesh.devstack.errors import DataFolderGone, DevstackError, StackAlreadyRunning
from herdmesh.devstack.existing_kafka import ExistingKafka
from herdmesh.devstack.layout import ProcessMark, StackLayout, StackState
from herdmesh.devstack.left_behind import kill_stack, refuse_if_supervised, stop_left_behind
from herdmesh.devstack.stack import GROUP_DEFAULT, START_TIMEOUT_S, Stack, StackSettings
from herdmesh.devstack.supervision import log_rotation
from herdmesh.devstack.supervision.state_lines import StateLines

_POLL_S = 0.1
_TAKING_S = 5.0
"""Longest time between the lock of a data folder and the state file with its holder's pid."""
_ERROR = "error:"
"""Begins the line of the log that says why the supervisor ended; further lines may follow."""
#: Longer than the sum of the grace periods of an orderly stop.
STOP_TIMEOUT_S = 60.0


async def run(settings: StackSettings) -> None:
    """Run a stack until a signal, then stop it in order. Raises `DataFolderGone` after the stop when the data folder
    was moved or removed.
    """
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(number, stopping.set)
    lines = StateLines()
    stack = Stack(settings, lambda: _log(lines.changes(stack.state)))
    starting = asyncio.create_task(stack.start())
    ends = [asyncio.create_task(event.wait()) for event in (stopping, stack.folder_gone)]
    await asyncio.wait({starting, *ends}, return_when=asyncio.FIRST_COMPLETED)
    if starting.done():
        starting.result()
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        await stack.stop()
    else:
        starting.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await starting  # it stops the processes that it started
    if stack.folder_gone.is_set():
        raise DataFolderGone(stack.layout.data_dir)


@dataclass(frozen=True, slots=True)
class DetachedSettings:
    """The settings of a stack that are passed to a detached supervisor. `command_config`: a file, because a command
    line is visible to every user of the machine.
    """

    data_dir: Path
    workers: int = 1
    herders: int = 1
    store_replicas: int = 1
    bootstrap_servers: str = ""
    command_config: Path | None = None
    group_id: str = GROUP_DEFAULT

    def of_stack(self) -> StackSettings:
        """Raises `KafkaUnusable`."""
        kafka = ExistingKafka.of(self.bootstrap_servers, self.command_config) if self.bootstrap_servers else None
        counts = (self.workers, self.herders, self.store_replicas)
        return StackSettings(self.data_dir, *counts, kafka=kafka, group_id=self.group_id)

    def arguments(self) -> list[str]:
        """The command line of the supervisor."""
        given = [
            *("--data", str(self.data_dir), "--workers", str(self.workers), "--herders", str(self.herders)),
            *("--store-replicas", str(self.store_replicas), "--group-id", self.group_id),
        ]
        if self.bootstrap_servers:
            given += ["--bootstrap-servers", self.bootstrap_servers]
        if self.command_config is not None:
            given += ["--command-config", str(self.command_config)]
        return given


async def start_detached(
    settings: DetachedSettings, on_state: Callable[[StackState], None] = lambda _: None
) -> StackState:
    """Start a supervisor that outlives this process and wait until its stack is ready. A cancelled start stops it in
    order, one that is cancelled again ends all its processes at once. `on_state` gets the state of the start now and
    then. The time for the start begins when all jars are fetched.

    Raises `StackAlreadyRunning`, and `DevstackError` with the supervisor's own message when it ends before that.
    """
    layout = StackLayout(settings.data_dir)
    layout.create()
    refuse_if_supervised(layout, os.getpid())
    log_path = layout.logs_dir / "supervisor.log"
    with contextlib.suppress(OSError):
        log_rotation.rotate(log_path)
    begun = log_path.stat().st_size if log_path.exists() else 0
    command = [sys.executable, "-m", "herdmesh.devstack.supervisor", *settings.arguments()]
    process = spawn_detached(command, log_path)
    mark = ProcessMark.of(process.pid)
    loop = asyncio.get_running_loop()
    deadline_s = loop.time() + START_TIMEOUT_S + STOP_TIMEOUT_S
    try:
        while loop.time() < deadline_s:
            state = layout.read_state()
            if state is not None and state.supervisor == mark:
                on_state(state)
                if state.ready:
                    return state
                if any(one.state == "fetching" for one in state.services):
                    deadline_s = loop.time() + START_TIMEOUT_S + STOP_TIMEOUT_S
            if process.poll() is not None:
                raise DevstackError(_last_error(log_path, begun))
            await asyncio.sleep(_POLL_S)
    except asyncio.CancelledError:  # Ctrl-C: whoever ends the start expects that nothing runs
        process.terminate()
        try:
            await _end_of(process)
        except (asyncio.CancelledError, TimeoutError):
            await kill_stack(layout, mark)
        raise
    raise DevstackError(f"the stack was not ready in time; see {layout.logs_dir}")


async def _end_of(process: subprocess.Popen[bytes]) -> None:
    """Wait for the end of a child. Not in a thread, which could not be cancelled. Raises TimeoutError."""
    async with asyncio.timeout(STOP_TIMEOUT_S):
        while True:
            if process.poll() is not None:
                return
            await asyncio.sleep(_POLL_S)


def _last_error(log_path: Path, begun: int) -> str:
    """The text from the first line after `begun` bytes of the log that begins with `_ERROR`."""
    text = log_path.read_bytes()[begun:].decode(errors="replace")
    _, found, error = f"\n{text}".partition(f"\n{_ERROR} ")
    return error.strip() if found else f"the supervisor ended early; see {log_path}"


def _log(lines: Sequence[str]) -> None:
    now = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    for line in lines:
        print(now, line, flush=True)


def spawn_detached(command: Sequence[str], log_path: Path) -> subprocess.Popen[bytes]:
    """Start a process that outlives this one. Not with asyncio: its transport kills a process that still runs when the
    transport is collected, which Python 3.13 does at the end of the loop.
    """
    with log_path.open("ab") as log:  # appended to, as `log_rotation` requires
        return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)


async def stop_detached(data_dir: Path) -> bool:
    """End the supervisor of a data folder, in order, or the processes that a killed supervisor left running. False when
    nothing runs there. Cancelled, it leaves the supervisor to its stop.
    """
    layout = StackLayout(data_dir)
    loop = asyncio.get_running_loop()
    taking_s = loop.time() + _TAKING_S
    while (supervisor := _supervisor_of(layout)) is None:
        try:
            return await stop_left_behind(layout, os.getpid())
        except StackAlreadyRunning:
            if loop.time() > taking_s:
                raise
            await asyncio.sleep(_POLL_S)  # a supervisor that takes the folder in this moment
    with contextlib.suppress(psutil.NoSuchProcess):
        supervisor.send_signal(signal.SIGTERM)
        supervisor.send_signal(signal.SIGCONT)  # a stopped process cannot act on SIGTERM
    mark = ProcessMark.of(supervisor.pid)
    deadline_s = loop.time() + STOP_TIMEOUT_S
    while mark.alive() is not None:
        if loop.time() > deadline_s:
            raise DevstackError(
                f"process {supervisor.pid} did not stop all services within {STOP_TIMEOUT_S:g} s; their logs are "
                f"in {layout.logs_dir}. Ctrl-C twice during `herd down` ends all of them at once."
            )
        await asyncio.sleep(_POLL_S)
    return True


def _supervisor_of(layout: StackLayout) -> psutil.Process | None:
    state = layout.read_state()
    return state.supervisor.alive() if state is not None and state.supervisor is not None else None


def main() -> int:
    """Command line: run one stack until SIGTERM or SIGINT."""
    parser = argparse.ArgumentParser(prog="python -m herdmesh.devstack.supervisor")
    parser.add_argument("--data", type=Path, required=True, metavar="DIR")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--herders", type=int, default=1)
    parser.add_argument("--store-replicas", type=int, default=1)
    parser.add_argument("--group-id", default=GROUP_DEFAULT)
    parser.add_argument("--bootstrap-servers", default="")
    parser.add_argument("--command-config", type=Path)
    options = parser.parse_args()
    counts = (options.workers, options.herders, options.store_replicas)
    kafka = (options.bootstrap_servers, options.command_config, options.group_id)
    try:
        asyncio.run(run(DetachedSettings(options.data, *counts, *kafka).of_stack()))
    except DevstackError as error:
        print(_ERROR, error, flush=True)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
