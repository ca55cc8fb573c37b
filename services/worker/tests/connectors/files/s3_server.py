"""A server that speaks S3's protocol, in a process of its own: moto, which keeps objects in memory.

It is a mock of AWS and not S3: what is tested against it is what we ask over HTTP and what we make of the answers, not
S3's durability or consistency. Owns the process. Invariant: it ends with the process that started it.

`python -m services.worker.tests.connectors.files.s3_server` prints its port and serves until its input ends.
"""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import threading
from collections.abc import Generator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

from pyarrow import fs

ROOT = Path(__file__).parents[5]
ACCESS_KEY, SECRET_KEY = "test", "testing-secret"
BUCKET = "herdmesh"
_fs: Any = fs


@contextmanager
def s3_server() -> Generator[str]:
    """A server with an empty bucket `BUCKET`: its address, `http://127.0.0.1:PORT`."""
    process = subprocess.Popen(
        [sys.executable, "-m", __name__], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        port = process.stdout.readline().strip()
        assert port.isdecimal(), "the S3 server did not start: is moto installed?"
        client(f"http://127.0.0.1:{port}", allow_bucket_creation=True).create_dir(BUCKET)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.kill()
        process.communicate()


def keys_for(endpoint: str) -> dict[str, str]:
    """What `FileSink` needs to reach the server."""
    return {"s3.endpoint": endpoint, "aws.access.key.id": ACCESS_KEY, "aws.secret.access.key": SECRET_KEY}


def client(endpoint: str, **more: Any) -> Any:
    """A file system of the test's own."""
    scheme, _, address = endpoint.partition("://")
    return _fs.S3FileSystem(
        access_key=ACCESS_KEY,
        secret_key=SECRET_KEY,
        region="us-east-1",
        scheme=scheme,
        endpoint_override=address,
        **more,
    )


def serve() -> None:
    """Serve until the standard input ends."""
    moto: Any = import_module("moto.moto_server.werkzeug_app")  # neither has types
    werkzeug: Any = import_module("werkzeug.serving")
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    application = moto.DomainDispatcherApplication(moto.create_backend_app)
    server = werkzeug.make_server("127.0.0.1", 0, application, threaded=True)
    print(server.server_port, flush=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    sys.stdin.read()
    os._exit(0)


if __name__ == "__main__":
    serve()
