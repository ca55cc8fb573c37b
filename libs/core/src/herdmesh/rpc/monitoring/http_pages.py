"""HTTP pages of a service, on its port + 1000: `/metrics`, `/healthz` and `/readyz`; every other path is 404.

Owns the server, the paths and their answers. Does not own the series (`telemetry`) nor the meaning of ready, which each
service passes in. `/healthz` is 200 while the event loop of the process responds; a liveness probe may restart the
process otherwise. `/readyz` is 200 while the service can do its work now, else 503 with the reason.

Invariant: no page says what was not checked for this very request: both health pages ask the event loop, and a loop
that does not respond within `LOOP_TIMEOUT_S` is unhealthy and not ready.
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field
from http import HTTPStatus
from socketserver import ThreadingMixIn
from typing import Any, Final
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server
from wsgiref.types import StartResponse, WSGIEnvironment

import structlog

from herdmesh.rpc.monitoring import telemetry

METRICS: Final = "/metrics"
HEALTHZ: Final = "/healthz"
READYZ: Final = "/readyz"
LOOP_TIMEOUT_S: Final = 2.0
"""Probes commonly wait for 1 to 5 s."""
_STUCK: Final = f"the event loop did not respond within {LOOP_TIMEOUT_S:g} s"
_log: structlog.stdlib.BoundLogger = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Readiness:
    """The answer of `/readyz`: `reason` is one line for an operator, `services` has each gRPC service's health."""

    ready: bool
    reason: str
    services: dict[str, str] = field(default_factory=dict[str, str])


class HttpPages:
    """The pages, on a thread of their own. `readiness` is called on the event loop that called `start`."""

    def __init__(self, host: str, port: int, readiness: Callable[[], Readiness]) -> None:
        self._host = host
        self._wanted_port = port
        self._readiness = readiness
        self._loop: asyncio.AbstractEventLoop | None = None
        self._server: WSGIServer | None = None

    def start(self) -> int:
        """Serve on the port, or on any free one when it is taken (0 = any). Returns the port."""
        self._loop = asyncio.get_running_loop()
        telemetry.meter("herdmesh.rpc")  # makes the meter provider now, which takes longer than a probe waits
        try:
            self._server = self._listen(self._wanted_port)
        except OSError as error:
            _log.warning("metrics_port_taken", port=self._wanted_port, error=str(error))
            self._server = self._listen(0)
        threading.Thread(target=self._server.serve_forever, name="http pages", daemon=True).start()
        return self._server.server_port

    async def stop(self) -> None:
        """Close the pages; returns when their thread has left its loop (at most 0.5 s)."""
        if self._server is not None:
            server, self._server = self._server, None
            await asyncio.to_thread(server.shutdown)
            server.server_close()

    def _listen(self, port: int) -> WSGIServer:
        return make_server(self._host, port, self._answer, _ThreadedServer, _SilentHandler)

    def _answer(self, request: WSGIEnvironment, respond: StartResponse) -> Iterable[bytes]:
        status, content_type, body = self._page(request["PATH_INFO"], request["REQUEST_METHOD"])
        headers = [("Content-Type", content_type), ("Content-Length", str(len(body))), ("Cache-Control", "no-store")]
        respond(f"{status.value} {status.phrase}", headers)
        return [] if request["REQUEST_METHOD"] == "HEAD" else [body]

    def _page(self, path: str, method: str) -> tuple[HTTPStatus, str, bytes]:
        if path not in (METRICS, HEALTHZ, READYZ):
            return _json(HTTPStatus.NOT_FOUND, {"error": f"no such page; there are {METRICS}, {HEALTHZ} and {READYZ}"})
        if method not in ("GET", "HEAD"):
            return _json(HTTPStatus.METHOD_NOT_ALLOWED, {"error": "only GET and HEAD are allowed"})
        if path == METRICS:
            text, content_type = telemetry.page_text()
            return HTTPStatus.OK, content_type, text
        assert self._loop is not None
        found = telemetry.read_on_loop(self._loop, self._readiness, LOOP_TIMEOUT_S)
        if path == HEALTHZ:
            healthy = found is not None
            return _json(_status(healthy), {"healthy": healthy, "reason": "" if healthy else _STUCK})
        found = found or Readiness(False, _STUCK)
        return _json(_status(found.ready), asdict(found))


class _ThreadedServer(ThreadingMixIn, WSGIServer):
    """A server that answers each request in a thread: a slow page delays no probe."""

    daemon_threads = True


class _SilentHandler(WSGIRequestHandler):
    """A handler that logs no request: probes come every few seconds."""

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing."""


def _status(good: bool) -> HTTPStatus:
    return HTTPStatus.OK if good else HTTPStatus.SERVICE_UNAVAILABLE


def _json(status: HTTPStatus, answer: dict[str, Any]) -> tuple[HTTPStatus, str, bytes]:
    return status, "application/json", json.dumps(answer).encode() + b"\n"
