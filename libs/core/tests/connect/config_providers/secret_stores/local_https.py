"""A local HTTP or HTTPS server that answers as a test says, and the certificate authority that clients trust it by.

Owns the sockets. The test supplies the answers of a store, taken from the store's published REST reference.
"""

from __future__ import annotations

import datetime
import ipaddress
import json
import ssl
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import rsa


@dataclass(frozen=True)
class Request:
    """A received request."""

    method: str
    path: str
    query: Mapping[str, list[str]]
    headers: Mapping[str, str]
    """With names in lower case."""
    body: bytes

    @property
    def json(self) -> Any:
        """The body as JSON."""
        return json.loads(self.body or b"{}")

    @property
    def form(self) -> Mapping[str, str]:
        """The body of a form."""
        return {name: values[0] for name, values in parse_qs(self.body.decode()).items()}


Answer = tuple[int, Any] | tuple[int, Any, Mapping[str, str]]


class LocalServer:
    """Answers with status, JSON and headers; `certificate` = over TLS."""

    def __init__(self, answer: Callable[[Request], Answer], certificate: Path | None = None) -> None:
        self.asked: list[Request] = []
        self._answer = answer
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        scheme = "http"
        if certificate is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate)
            self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
            scheme = "https"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))
        self._thread.start()
        self.url = f"{scheme}://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> LocalServer:
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        local = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True

            def do_GET(self) -> None:  # the name that http.server calls
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                at = urlsplit(self.path)
                headers = {name.lower(): value for name, value in self.headers.items()}
                request = Request(self.command, at.path, parse_qs(at.query), headers, body)
                local.asked.append(request)
                answer = local._answer(request)
                status, said = answer[0], answer[1]
                data = json.dumps(said).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(data)))
                if len(answer) == 3:
                    for name, value in answer[2].items():
                        self.send_header(name, value)
                self.end_headers()
                self.wfile.write(data)

            do_POST = do_PUT = do_GET  # noqa: N815 - the name that http.server calls

            def log_message(self, format: str, *args: Any) -> None:
                """Log nothing: tests read `asked`."""

        return Handler


def certificate(folder: Path) -> Path:
    """A PEM file with a key and a self-signed certificate for 127.0.0.1: it is its own authority."""
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "127.0.0.1")])
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(7)
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    file = folder / "local.pem"
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    file.write_bytes(private + made.public_bytes(serialization.Encoding.PEM))
    return file
