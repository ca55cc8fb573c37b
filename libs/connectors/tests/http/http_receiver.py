"""Receiver of HTTP requests on real sockets: it sends
configured responses, counts requests, and can be killed.

Owns the server and its log of requests. In the test's process a function returns the responses; as a separate process
(`python -m libs.connectors.tests.http.http_receiver FILE [PORT]`) it accepts everything, writes each request to the
file before it responds, and can be killed like any other process.

Invariant: a request with a success response is in `taken`, and in the
file of the separate process; one line of the file is one request.
"""

from __future__ import annotations

import gzip
import json
import os
import signal
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

WAIT_S = 30.0
PEM = Path(__file__).parent / "http_receiver.pem"
"""A certificate for 127.0.0.1 that only these tests trust, and its key."""


@dataclass(frozen=True)
class Answer:
    """The response; `hangs`: send nothing until the receiver stops; `breaks`: close the connection."""

    status: int = 200
    headers: Mapping[str, str] = field(default_factory=lambda: dict[str, str]())
    body: bytes = b""
    hangs: bool = False
    breaks: bool = False


@dataclass(frozen=True)
class Received:
    """One request."""

    method: str
    path: str
    headers: Mapping[str, str]
    """Names in lower case."""
    body: bytes
    """Decompressed."""

    @property
    def offsets(self) -> list[int]:
        """Offsets of the request's records, in order."""
        return offsets_of(self.headers["herdmesh-offsets"])

    @property
    def partition(self) -> tuple[str, int]:
        """Source partition of the request's records."""
        _, topic, number, _ = self.headers["idempotency-key"].split("/")
        return topic, int(number)

    def values(self) -> list[Any]:
        """Values in a body with one JSON value per line."""
        return [json.loads(line) for line in self.body.splitlines()]


def offsets_of(text: str) -> list[int]:
    """Return the offsets in a header `Herdmesh-Offsets`."""
    found: list[int] = []
    for part in text.split(","):
        first, _, last = part.partition("-")
        found += range(int(first), int(last or first) + 1)
    return found


class Receiver:
    """Receiver in this process. `answer` is called for each request, from any thread."""

    def __init__(
        self, answer: Callable[[Received], Answer] = lambda _: Answer(), *, port: int = 0, tls: bool = False
    ) -> None:
        self.answer = answer
        self.received: list[Received] = []
        self.taken: list[Received] = []
        self.busy_most = 0
        """Maximum number of concurrent requests so far."""
        self._busy = 0
        self._changed = threading.Condition()
        self._over = threading.Event()
        self._server = ThreadingHTTPServer(("127.0.0.1", port), self._handler())
        self._server.daemon_threads = True
        self._server.block_on_close = False
        self.port = self._server.server_port
        if tls:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(PEM)
            self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self.url = f"{'https' if tls else 'http'}://127.0.0.1:{self.port}/in"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))
        self._thread.start()

    def __enter__(self) -> Receiver:
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def until(self, is_so: Callable[[], bool]) -> None:
        """Wait until the condition holds; it is checked at each request."""
        with self._changed:
            assert self._changed.wait_for(is_so, WAIT_S), "it did not come"

    def exchange(self, request: Received) -> Answer:
        """Store a request, and return its response."""
        with self._changed:
            self.received.append(request)
            self._busy += 1
            self.busy_most = max(self.busy_most, self._busy)
            self._changed.notify_all()
        answer = self.answer(request)
        with self._changed:
            self._busy -= 1
            if 200 <= answer.status < 300 and not (answer.hangs or answer.breaks):
                self.taken.append(request)
            self._changed.notify_all()
        if answer.hangs:
            self._over.wait(WAIT_S)
        return answer

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        return _handler(self.exchange)


def _handler(exchange: Callable[[Received], Answer]) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def _answer(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            headers = {name.lower(): value for name, value in self.headers.items()}
            if headers.get("content-encoding") == "gzip":
                body = gzip.decompress(body)
            answer = exchange(Received(self.command, self.path, headers, body))
            if answer.hangs or answer.breaks:
                self.close_connection = True
                return
            self.send_response(answer.status)
            for name, value in {"Content-Length": str(len(answer.body)), **answer.headers}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(answer.body)

        do_POST = do_PUT = do_PATCH = do_DELETE = _answer  # noqa: N815 - the server's names

        def log_message(self, format: str, *args: Any) -> None:
            return

    return Handler


class ReceiverProcess:
    """Receiver in a separate process, which can be killed; the file has its requests, line by line."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._child: subprocess.Popen[bytes] | None = None
        self.port = 0

    def start(self, most: int = sys.maxsize) -> None:
        """Start the process, on the previous port if there was one; return when it listens. It accepts `most` requests,
        sends no response to the last of them, and accepts no more.
        """
        ready = self._file.with_suffix(".port")
        ready.unlink(missing_ok=True)
        command = [sys.executable, "-m", __name__, str(self._file), str(self.port), str(most)]
        self._child = subprocess.Popen(command, cwd=Path(__file__).parents[4])
        deadline_s = time.monotonic() + WAIT_S
        while not (ready.exists() and ready.read_text()):
            assert self._child.poll() is None, "the receiver ended"
            assert time.monotonic() < deadline_s, "the receiver does not begin"
            time.sleep(0.02)
        self.port = int(ready.read_text())

    def kill(self) -> None:
        """Kill the process at once."""
        if self._child is not None:
            self._child.send_signal(signal.SIGKILL)
            self._child.wait(WAIT_S)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/in"

    def taken(self) -> list[Received]:
        """Return all requests that it ever accepted, without a line that its death cut off."""
        found: list[Received] = []
        for line in self._file.read_text().splitlines() if self._file.exists() else []:
            try:
                one = json.loads(line)
            except ValueError:
                continue
            found.append(Received(one["method"], one["path"], one["headers"], one["body"].encode()))
        return found


def main(file: Path, port: int, most: int) -> None:
    """Accept `most` requests, until killed."""
    lock, left = threading.Lock(), most
    with file.open("a") as out:

        def write(request: Received) -> Answer:
            nonlocal left
            one = {
                "method": request.method, "path": request.path, "headers": dict(request.headers),
                "body": request.body.decode(),
            }  # fmt: skip
            with lock:
                if not left:
                    threading.Event().wait()
                if file.stat().st_size and not file.read_bytes().endswith(b"\n"):
                    out.write("\n")
                out.write(json.dumps(one) + "\n")
                out.flush()
                os.fsync(out.fileno())
                left -= 1
                if not left:
                    threading.Event().wait()
            return Answer()

        server = ThreadingHTTPServer(("127.0.0.1", port), _handler(write))
        server.daemon_threads = True
        file.with_suffix(".port").write_text(str(server.server_port))
        server.serve_forever()


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
