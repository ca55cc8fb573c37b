"""Addresses of services that a user names: checked before the first call.

Owns the form `HOST:PORT`, the resolution of names, and the recognition of a service that is not a herder. Sends no
request of a command. Invariant: an address that can never work (a URL, no port, an unknown name) is refused within a
second, with the corrected form where there is one.
"""

from __future__ import annotations

import asyncio
import ipaddress
import re
import socket
from collections.abc import Awaitable, Callable
from typing import Any, Final

import grpc
from grpc_health.v1 import health_pb2

from herdmesh.cli.errors import EXIT_UNAVAILABLE, EXIT_USAGE, CommandError
from herdmesh.rpc import errors as rpc_errors

_SCHEME: Final = re.compile(r"^([a-zA-Z][a-zA-Z0-9+.-]*)://(.*)$")
_PORT_MAX: Final = 65_535
_HEALTH_S: Final = 2.0
HERDER_PORT: Final = 7203
#: Full name of a service -> its name for people, and the option that takes its address.
_SERVICES: Final = {
    "herdmesh.api.herder.v1.ConnectorService": ("a herder", "--herder"),
    "herdmesh.api.configstore.v1.ConfigReadService": ("a config store", "--config-store"),
    "herdmesh.api.statusstore.v1.StatusReadService": ("a status store", "--status-store"),
    "herdmesh.api.worker.v1.WorkerService": ("a worker", ""),
}
_HERDER: Final = next(iter(_SERVICES))


def check_addresses(text: str, option: str = "--herder", usual_port: int = HERDER_PORT) -> str:
    """The addresses, comma separated, without blanks. Raises CommandError for one that cannot be used."""
    found = [one.strip() for one in text.split(",") if one.strip()]
    if not found:
        raise _refused(f"{option} names no address", f"Write it as HOST:PORT, for example 127.0.0.1:{usual_port}.")
    for one in found:
        _check_form(one, option, usual_port)
    return ",".join(found)


def _check_form(address: str, option: str, usual_port: int) -> None:
    url = _SCHEME.match(address)
    if url is not None:
        host = url[2].partition("/")[0]
        bare = host if _port_of(host) else f"{host or '127.0.0.1'}:{usual_port}"
        raise _refused(
            f"{address} is a URL; services speak gRPC at HOST:PORT, without {url[1]}://", f"Write {option} {bare}"
        )
    host, colon, port = address.rpartition(":")
    bare_ipv6 = address.count(":") > 1 and not address.startswith("[")
    if not colon or address.endswith("]") or bare_ipv6:
        named = f"[{address}]" if bare_ipv6 else address
        raise _refused(f"{address} has no port", f"Write {option} {named}:{usual_port} (the usual port).")
    if not host or any(one in host for one in "/ @"):
        raise _refused(f"{address} has no usable host name", "Write it as HOST:PORT.")
    if not port.isascii() or not port.isdigit() or not 0 < int(port) <= _PORT_MAX:
        raise _refused(f"{address}: {port or 'nothing'} is no port number (1 to {_PORT_MAX})", "Write it as HOST:PORT.")


def _port_of(host: str) -> str:
    return host.rpartition(":")[2] if re.search(r":\d+$", host) else ""


async def check_resolvable(addresses: str) -> None:
    """Return when one of the addresses' hosts has an IP address. Raises CommandError when none has."""
    loop = asyncio.get_running_loop()
    failed: list[tuple[str, socket.gaierror | UnicodeError]] = []
    for one in addresses.split(","):
        host = one.rpartition(":")[0].strip("[]")
        if _is_numeric(host):
            return
        try:
            await loop.getaddrinfo(host, None, type=socket.SOCK_STREAM)
        except (socket.gaierror, UnicodeError) as error:
            failed.append((host, error))
        else:
            return
    hosts = ", ".join(dict.fromkeys(host for host, _ in failed))
    reason = failed[0][1]
    if isinstance(reason, socket.gaierror) and reason.errno == socket.EAI_AGAIN:
        raise CommandError(
            "UNREACHABLE",
            f"the name {hosts} cannot be resolved now ({reason.strerror})",
            "Check the spelling and this machine's DNS, then try again.",
            EXIT_UNAVAILABLE,
        )
    said = reason.strerror if isinstance(reason, socket.gaierror) else str(reason)
    raise _refused(f"no machine is called {hosts} ({said})", "Correct the name, or use its IP address.")


def _is_numeric(host: str) -> bool:
    try:
        ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return False
    return True


def _refused(message: str, next_step: str) -> CommandError:
    return CommandError("USAGE", message, next_step, EXIT_USAGE)


async def wrong_service(channel: grpc.aio.Channel, address: str) -> CommandError | None:
    """The error for an address at which another service than a herder answers; None when it is a herder, or cannot be
    recognised.
    """
    served = [name for name in _SERVICES if await _serves(channel, name)]
    if not served or _HERDER in served:
        return None
    kind, option = _SERVICES[served[0]]
    use = f"; {option} {address} is for commands that query {kind}" if option else ""
    return _refused(
        f"{address} is {kind}, not a herder",
        f"Name a herder with --herder or HERDMESH_HERDER; its usual port is {HERDER_PORT}{use}.",
    )


def speaks_http(error: rpc_errors.HerdmeshError, address: str) -> CommandError | None:
    """The error for an address at which an HTTP server answers, such as a metrics page; None for any other failure."""
    if "http1" not in error.message.lower():
        return None
    return _refused(
        f"{address} is an HTTP server, not a herder (a service's metrics are at its own port + 1000)",
        f"Name a herder with --herder or HERDMESH_HERDER; its usual port is {HERDER_PORT}.",
    )


async def _serves(channel: grpc.aio.Channel, service: str) -> bool:
    # by method name: the generated health stub carries no types
    check: Callable[..., Awaitable[Any]] = channel.unary_unary(
        "/grpc.health.v1.Health/Check",
        request_serializer=health_pb2.HealthCheckRequest.SerializeToString,
        response_deserializer=health_pb2.HealthCheckResponse.FromString,
    )
    try:
        await check(health_pb2.HealthCheckRequest(service=service), timeout=_HEALTH_S)
    except rpc_errors.HerdmeshError:
        return False
    return True
