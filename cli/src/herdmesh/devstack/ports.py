"""The choice of a port for a server that is started here. Owns that choice, the check whether a port is taken, and
reservations that keep two stacks starting at the same moment from the same port (`PortReservations`); not the list
of servers.

Invariant: an unrequested port is one that the kernel never assigns by itself, neither to an outgoing connection nor to
a listener on port 0, so that it is still free when its server starts, or starts again after a kill. Its thousand is
even: a metrics page, 1,000 above its server, then never has the port of another server.
"""

from __future__ import annotations

import asyncio
import errno
import fcntl
import os
import random
import socket
from collections.abc import Callable, Collection, Iterable
from pathlib import Path
from typing import IO

import psutil

from herdmesh.devstack.errors import DevstackError
from herdmesh.devstack.jars import cache_dir

HOST = "127.0.0.1"
#: Below the ports that kernels assign (Linux: from 32,768, others: from 49,152), above the well-known ones.
_THOUSANDS = range(10, 31, 2)
_PAGE_ABOVE = 1_000
_TRIES = 10_000
_CONNECT_TIMEOUT_S = 0.5

_random = random.SystemRandom()


def is_free(port: int) -> bool:
    """True when a server could listen on this port of the loopback address."""
    with socket.socket() as probe:
        # As servers bind: connections of an earlier server in TIME_WAIT are no obstacle, a listener is.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except (OSError, OverflowError):
            return False
        return True


def refusal_to_listen(host: str, port: int) -> str:
    """The reason why a server could not listen there, with the process that has the port; empty when it could. Port 0
    is any free port. An unknown host is left to the server.
    """
    try:
        family, kind, _, _, address = socket.getaddrinfo(
            host.strip("[]") or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except OSError:
        return ""
    with socket.socket(family, kind) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(address)
        except OSError as error:
            return owner_of(port) if error.errno == errno.EADDRINUSE else (error.strerror or str(error))
    return ""


def owner_of(port: int) -> str:
    """Text that names the process that listens on a port."""
    pid = listener(port)
    if pid is None:
        return "another process listens there"
    try:
        return f"process {pid} ({psutil.Process(pid).name()}) listens there"
    except psutil.Error:
        return f"process {pid} listens there"


class PortReservations:
    """Ports that this process has chosen for servers which do not listen yet.

    Each is a locked file in this user's cache, so a reservation ends with its process, however that dies. The file is
    removed with the reservation; a killed process leaves an empty file, which counts as free. Where the cache cannot be
    written (an image with the jars in it), nothing is reserved.
    """

    def __init__(self) -> None:
        self._folder = cache_dir() / "ports"
        self._held: dict[int, IO[bytes]] = {}

    def take(self, port: int) -> bool:
        """Reserve the port; False when another process, or another stack of this one, has it."""
        if port in self._held:
            return True
        path = self._path(port)
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            lock = path.open("wb")
        except OSError:
            return True
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # Its owner released and removed it between the open and the lock: another process may hold a new file.
            if os.path.samestat(path.stat(), os.fstat(lock.fileno())):
                self._held[port] = lock
                return True
        except OSError:
            pass
        lock.close()
        return False

    def release(self) -> None:
        """Release all reservations. A second call has no effect."""
        while self._held:
            port, lock = self._held.popitem()
            self._path(port).unlink(missing_ok=True)  # before its lock ends, while this process still owns it
            lock.close()

    def _path(self, port: int) -> Path:
        return self._folder / f"{port}.lock"


def _any_port(_: int) -> bool:
    return True


def free_port(wishes: Iterable[int] = (), avoid: Collection[int] = (), take: Callable[[int], bool] = _any_port) -> int:
    """The first of `wishes` that is free, not to be avoided and granted by `take`, else any such port for which the
    port of the metrics page is free too.

    Raises:
        DevstackError: none was found.
    """
    for port in wishes:
        if port not in avoid and is_free(port) and take(port):
            return port
    for _ in range(_TRIES):
        port = _random.choice(_THOUSANDS) * 1_000 + _random.randrange(1_000)
        if port not in avoid and is_free(port) and is_free(port + _PAGE_ABOVE) and take(port):
            return port
    raise DevstackError(
        f"no free port on {HOST}: {_TRIES} were tried from 10,000 to 31,000; end servers that listen there"
    )


def free_ports(count: int) -> list[int]:
    """Free ports, all different."""
    found: list[int] = []
    while len(found) < count:
        found.append(free_port(avoid=found))
    return found


def listener(port: int) -> int | None:
    """The process that listens on the port; None when there is none or its owner is not visible to this user."""
    try:
        connections = psutil.net_connections("tcp")
    except psutil.Error:  # macOS shows connections only to root
        return None
    listening = (one for one in connections if one.status == psutil.CONN_LISTEN)
    return next((one.pid for one in listening if one.laddr[1:] == (port,)), None)


async def accepts(port: int) -> bool:
    """True when something listens on the port."""
    try:
        async with asyncio.timeout(_CONNECT_TIMEOUT_S):
            _, writer = await asyncio.open_connection(HOST, port)
    except (OSError, TimeoutError):
        return False
    writer.close()
    return True
