"""Exit statuses of the processes of runs: sent by Spark's daemon, which is their parent, to the worker, which is not.

Spark itself only detects that a process is gone. Owns a datagram socket of the worker, in a folder that only its user
can enter: a process sends its id when it begins, and the daemon then sends how each of its children ended. Owns no
meaning beyond the texts for an operator. Invariants: a reader waits at most `_TELL_S`, a sender at most `_SAY_S`, and a
run is over even without the status. A received status is kept until it is read. On another machine, where the socket
does not exist, nothing is sent. Only the daemon's own children are reaped.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
from collections import OrderedDict
from pathlib import Path
from typing import Any, Final

#: Path of the worker's socket, for the daemon and its children; unset where no worker listens.
SOCKET_VARIABLE: Final = "HERDMESH_DEATHS_SOCKET"
_TELL_S: Final = 1.0
#: A kernel buffers few datagrams of a socket (Linux: 10), and the worker's loop may be busy when many processes end at
#: once. Longer than a busy loop, short for a process that forks.
_SAY_S: Final = 0.5
_KEPT_MAX: Final = 1_000
_SOCKET_PATH_BYTES_MAX: Final = 103
"""Limit of macOS; Linux allows four more."""
#: Signals sent by somebody else, or by the kernel when memory is short: not the process' own doing.
_FROM_OUTSIDE: Final = frozenset((signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT))


# --- in the daemon and its children


def say_begun(process_id: str) -> None:
    """Send this child's process id, for which the daemon will report the end."""
    _send("begun", os.getpid(), process_id)


def watch_children() -> None:
    """Set up the reports of children's ends, in the daemon before it forks. Spark's daemon sets its children's ends to
    be ignored when it begins, so the handler is set with its first fork.
    """
    daemon = os.getpid()

    def reap_from_now_on() -> None:
        # A child that forks inherits this hook, too, and its children are its own.
        if os.getpid() == daemon and signal.getsignal(signal.SIGCHLD) is not _reap:
            signal.signal(signal.SIGCHLD, _reap)

    if SOCKET_VARIABLE in os.environ:
        os.register_at_fork(after_in_parent=reap_from_now_on)


def _reap(_number: int, _frame: Any) -> None:
    with contextlib.suppress(ChildProcessError):  # no child is left
        while (found := os.waitpid(-1, os.WNOHANG))[0]:
            _send("ended", *found)


def _send(*words: object) -> None:
    path = os.environ.get(SOCKET_VARIABLE)
    if not path:
        return
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as line:
        line.settimeout(_SAY_S)
        line.sendto(" ".join(map(str, words)).encode(), path)


# --- in the worker


class Deaths(asyncio.DatagramProtocol):
    """Received statuses. Call `start` first, on the loop."""

    def __init__(self) -> None:
        self._socket: Path | None = None
        self._transport: asyncio.BaseTransport | None = None
        self._processes: dict[int, str] = {}
        """Live processes, by pid."""
        self._ended: OrderedDict[str, int] = OrderedDict()
        self._waiting: dict[str, asyncio.Event] = {}

    async def start(self, folder: Path) -> str:
        """Listen on a socket in `folder`; returns its path. Raises OSError, also when the path is too long for a
        socket.
        """
        path = str(folder / "deaths")
        if len(os.fsencode(path)) > _SOCKET_PATH_BYTES_MAX:
            raise OSError(f"{path} has over {_SOCKET_PATH_BYTES_MAX} bytes, too many for a socket: shorten TMPDIR")
        self._socket = Path(path)
        loop = asyncio.get_running_loop()
        self._transport, _ = await loop.create_datagram_endpoint(lambda: self, path, family=socket.AF_UNIX)
        return path

    def close(self) -> None:
        """Stop listening, and remove the socket."""
        if self._transport is not None:
            self._transport.close()
        if self._socket is not None:
            self._socket.unlink(missing_ok=True)

    def datagram_received(self, data: bytes, addr: Any) -> None:
        """Handle a datagram of a child or of the daemon."""
        match data.decode(errors="replace").split():
            case ["begun", pid, process_id] if pid.isdecimal():
                self._processes[int(pid)] = process_id
            case ["ended", pid, status] if pid.isdecimal() and status.isdecimal():
                self._note(self._processes.pop(int(pid), None), int(status))
            case _:
                return

    def kept(self) -> list[str]:
        """Processes whose status was not read yet."""
        return list(self._ended)

    async def status_of(self, process_id: str) -> int | None:
        """The process' exit status, as from `os.waitpid`; None when it does not arrive soon."""
        if process_id not in self._ended:
            told = self._waiting[process_id] = asyncio.Event()
            try:
                # The status may arrive in the same step of the loop as the timeout: only `_ended` counts.
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(told.wait(), _TELL_S)
            finally:
                del self._waiting[process_id]
        return self._ended.pop(process_id, None)

    def _note(self, process_id: str | None, status: int) -> None:
        if process_id is None:
            return
        self._ended[process_id] = status
        if len(self._ended) > _KEPT_MAX:
            self._ended.popitem(last=False)
        if (told := self._waiting.get(process_id)) is not None:
            told.set()


def words_for(status: int) -> str:
    """Text for an operator about a process that ended without its last word."""
    code = os.waitstatus_to_exitcode(status)
    if code >= 0:
        return f"its process exited with code {code} before its run ended"
    number = -code
    known = number in signal.valid_signals()
    name = signal.Signals(number).name if known and number < signal.SIGRTMIN else f"signal {number}"
    what = signal.strsignal(number) if known else None
    text = f"its process was killed by {name}" + (f" ({what})" if what else "")
    return f"{text}: by the kernel because memory ran out, or by another process" if number == signal.SIGKILL else text


def is_own_doing(status: int) -> bool:
    """True when the process crashed or exited itself, so that its own code is the cause."""
    code = os.waitstatus_to_exitcode(status)
    return code >= 0 or -code not in _FROM_OUTSIDE
