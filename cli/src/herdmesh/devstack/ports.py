"""Which port a server may take that is started here. Owns that choice and whether a port is taken; not which servers
there are.

Invariant: a port that nobody wished for is one that the kernel gives to nobody by itself, neither to a connection
that goes out nor to a listener on port 0, so that it is still free when its server starts, or starts again after a
kill. And it is in a thousand of an even number: the pages of metrics, 1,000 above their servers, meet no server.
"""

from __future__ import annotations

import asyncio
import random
import socket
from collections.abc import Collection, Iterable

from herdmesh.devstack.errors import DevstackError

HOST = "127.0.0.1"
#: Below the ports that kernels give away (Linux: from 32,768, others: from 49,152), above those with names.
_THOUSANDS = range(10, 31, 2)
_PAGE_ABOVE = 1_000
_TRIES = 10_000
_CONNECT_TIMEOUT_S = 0.5

_random = random.SystemRandom()


def is_free(port: int) -> bool:
    """True when a server could listen on this port of the loopback address."""
    with socket.socket() as probe:
        # As servers bind: connections of a former one in TIME_WAIT are no obstacle, a listener is.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except (OSError, OverflowError):
            return False
        return True


def free_port(wishes: Iterable[int] = (), avoid: Collection[int] = ()) -> int:
    """The first of `wishes` that is free and not to be avoided, else any such port, whose page's port is free too.

    Raises:
        DevstackError: none was found.
    """
    for port in wishes:
        if port not in avoid and is_free(port):
            return port
    for _ in range(_TRIES):
        port = _random.choice(_THOUSANDS) * 1_000 + _random.randrange(1_000)
        if port not in avoid and is_free(port) and is_free(port + _PAGE_ABOVE):
            return port
    raise DevstackError(
        f"no free port on {HOST}: {_TRIES} were tried from 10,000 to 31,000; end servers that listen there"
    )


def free_ports(count: int) -> list[int]:
    """Different ones."""
    found: list[int] = []
    while len(found) < count:
        found.append(free_port(avoid=found))
    return found


async def accepts(port: int) -> bool:
    """True when something listens on the port."""
    try:
        async with asyncio.timeout(_CONNECT_TIMEOUT_S):
            _, writer = await asyncio.open_connection(HOST, port)
    except (OSError, TimeoutError):
        return False
    writer.close()
    return True
