"""A small HTTP server for the examples: it accepts what is posted, and refuses bodies with a certain text.

python -m herdmesh.cli.example.receiver FILE REFUSED_TEXT [PORT]

Owns FILE: one accepted body per line. Prints its address when it listens. Listens on 127.0.0.1 only.
"""

from __future__ import annotations

import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path


def main(file: str, refused: str, port: str = "0") -> None:
    """Serve until the process ends."""
    lock = threading.Lock()
    path = Path(file)
    path.touch()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length", 0))).decode("utf-8", "replace")
            accepted = refused not in body
            if accepted:
                with lock, path.open("a", encoding="utf-8") as accepted_bodies:
                    accepted_bodies.write(body + "\n")
            answer = b"" if accepted else f"refused: it has {refused}".encode()
            self.send_response(204 if accepted else 422)
            self.send_header("content-length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, format: str, *args: object) -> None:  # the base class' name
            """Log nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", int(port)), Handler)
    print(f"http://127.0.0.1:{server.server_port}", flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main(*sys.argv[1:])
