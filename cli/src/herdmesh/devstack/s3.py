"""One real S3-compatible server over a data folder, for tests: S3Proxy, whose objects are files.

Owns everything under the folder: `objects/` (a folder for each bucket), `s3.log`, `s3proxy.properties`. Creates only
the requested buckets.

It serves S3's protocol over HTTP and checks signatures (AWS version 4). Its objects survive `kill` and `stop`. It does
not reproduce S3's own durability and consistency, nor the behaviour of S3 when it is slow or partly unreachable.

Invariant: it listens on 127.0.0.1 only.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from herdmesh.devstack.errors import DevstackError
from herdmesh.devstack.java_server import JavaServer
from herdmesh.devstack.ports import HOST, accepts, free_port

ACCESS_KEY, SECRET_KEY = "herdmesh", "herdmesh-secret"
"""The only keys that it accepts."""
_MAIN = "org.gaul.s3proxy.Main"


class S3Server(JavaServer):
    """A server of the objects in `folder`. `buckets`: those that exist from the beginning."""

    what = "the S3 server"
    group = "s3"
    start_timeout_s = 60.0
    stop_timeout_s = 10.0

    def __init__(self, folder: Path, *, buckets: Sequence[str] = ()) -> None:
        super().__init__(folder)
        self._buckets = tuple(buckets)
        self._port: int | None = None

    @property
    def endpoint(self) -> str:
        """`http://127.0.0.1:PORT`, known from the first start on. Raises DevstackError before."""
        if self._port is None:
            raise DevstackError(f"the S3 server in {self.folder} was not started yet")
        return f"http://{HOST}:{self._port}"

    def _prepared(self) -> Sequence[str | Path]:
        for bucket in self._buckets:
            (self.folder / "objects" / bucket).mkdir(parents=True, exist_ok=True)
        self._port = free_port()
        properties = self.folder / "s3proxy.properties"
        settings = {
            "s3proxy.endpoint": self.endpoint,
            "s3proxy.authorization": "aws-v2-or-v4",
            "s3proxy.identity": ACCESS_KEY,
            "s3proxy.credential": SECRET_KEY,
            "jclouds.provider": "filesystem-nio2",
            "jclouds.filesystem.basedir": str(self.folder / "objects"),
        }
        properties.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        return ("-DLOG_LEVEL=warn", _MAIN, "--properties", properties)

    async def _serves(self) -> bool:
        assert self._port is not None
        return await accepts(self._port)
