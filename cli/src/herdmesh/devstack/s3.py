"""One real S3-compatible server over a data folder, for tests: S3Proxy, whose objects are files.

Owns everything under the folder: `objects/` (a folder for each bucket), `s3.log`, `s3proxy.properties`. Makes no
buckets but those it is asked for.

It answers S3's protocol over HTTP and checks signatures (AWS version 4). Its objects survive `kill` and `stop`. What it
cannot show is S3's own durability and consistency, nor how S3 behaves when it is slow or partly away.

Invariants:
- It listens on 127.0.0.1 only.
- After `stop()` and `kill()` its process does not live. It outlives the Python process that started it: whoever starts
  it stops it.
"""

from __future__ import annotations

import asyncio
import socket
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

from herdmesh.devstack import class_archive
from herdmesh.devstack.errors import DevstackError
from herdmesh.devstack.jars import ensure_jars
from herdmesh.devstack.java import Java, find_java

HOST = "127.0.0.1"
ACCESS_KEY, SECRET_KEY = "herdmesh", "herdmesh-secret"
"""The only keys that it knows."""
START_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 10.0
_CONNECT_TIMEOUT_S = 0.5
_POLL_S = 0.02
_ATTEMPTS = 3
_LOG_TAIL_LINES = 20
_GROUP = "s3"
_MAIN = "org.gaul.s3proxy.Main"


class S3Server:
    """A server of the objects in `folder` (made when absent). Not bound to an event loop; one caller at a time.

    `buckets`: those there are from the beginning.
    """

    def __init__(self, folder: Path, *, buckets: Sequence[str] = ()) -> None:
        self.folder = folder.absolute()
        self.log_path = self.folder / "s3.log"
        self._buckets = tuple(buckets)
        self._port: int | None = None
        self._child: subprocess.Popen[bytes] | None = None
        self._archive: Path | None = None

    @property
    def endpoint(self) -> str:
        """`http://127.0.0.1:PORT`, known from the first start on. Raises DevstackError before."""
        if self._port is None:
            raise DevstackError(f"the S3 server in {self.folder} was not started yet")
        return f"http://{HOST}:{self._port}"

    def is_running(self) -> bool:
        """True while the server lives (serving or not)."""
        return self._child is not None and self._child.poll() is None

    async def start(self, timeout_s: float = START_TIMEOUT_S) -> None:
        """Fetch the jar when needed, start, and return when it serves.

        Raises DevstackError with the end of its log, `JavaMissing`, `JavaTooOld`, `JarsUnavailable`. Nothing is left
        running when it raises or is cancelled. `timeout_s` bounds the server's own start.
        """
        if self.is_running():
            raise DevstackError(f"the S3 server in {self.folder} runs already")
        for bucket in self._buckets:
            (self.folder / "objects" / bucket).mkdir(parents=True, exist_ok=True)
        java = await asyncio.to_thread(find_java)
        classpath = await asyncio.to_thread(ensure_jars, _GROUP)
        deadline_s = time.monotonic() + timeout_s
        for attempt in range(1, _ATTEMPTS + 1):
            self._port = _free_port()
            begun = self._log_bytes()
            self._spawn(java, classpath)
            try:
                if await self._serves(deadline_s):
                    return
            except BaseException:
                self.kill()
                raise
            if attempt == _ATTEMPTS or "Address already in use" not in self._log_from(begun):
                raise DevstackError(self._with_log("the S3 server ended while starting"))

    async def stop(self, timeout_s: float = STOP_TIMEOUT_S) -> None:
        """End it in order (SIGTERM); kill it when that takes over `timeout_s`. Harmless when not running."""
        child = self._child
        if child is not None and child.poll() is None:
            child.terminate()
            try:
                await asyncio.to_thread(child.wait, timeout_s)
            except subprocess.TimeoutExpired:
                pass  # killed below
            else:
                if self._archive is not None:
                    await asyncio.to_thread(class_archive.keep, self._fresh_archive, self._archive)
        self.kill()

    def kill(self) -> None:
        """SIGKILL the server and wait until it is gone. It can be started again at once."""
        child, self._child = self._child, None
        if child is not None:
            child.kill()
            child.wait()

    @property
    def _fresh_archive(self) -> Path:
        return self.folder / "s3.jsa"

    def _spawn(self, java: Java, classpath: str) -> None:
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
        self._archive = class_archive.archive_path(java, classpath)
        self._fresh_archive.unlink(missing_ok=True)
        command = [
            *(str(java.executable), *class_archive.jvm_options(self._archive, self._fresh_archive)),
            *("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Djava.awt.headless=true"),
            *("-DLOG_LEVEL=warn", "-cp", classpath, _MAIN, "--properties", str(properties)),
        ]
        with self.log_path.open("ab") as log:
            self._child = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=self.folder, start_new_session=True
            )

    async def _serves(self, deadline_s: float) -> bool:
        """True once it takes clients, False when it ended. Raises DevstackError when it does neither in time."""
        assert self._port is not None
        while self.is_running():
            if await _accepts(self._port):
                return True
            if time.monotonic() > deadline_s:
                raise DevstackError(self._with_log("the S3 server did not serve in time"))
            await asyncio.sleep(_POLL_S)
        return False

    def _log_bytes(self) -> int:
        return self.log_path.stat().st_size if self.log_path.exists() else 0

    def _log_from(self, begun: int) -> str:
        with self.log_path.open("rb") as log:
            log.seek(begun)
            return log.read().decode(errors="replace")

    def _with_log(self, message: str) -> str:
        lines = self._log_from(0).splitlines()[-_LOG_TAIL_LINES:]
        return "\n".join([f"{message}. The end of {self.log_path}:", *lines])


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])


async def _accepts(port: int) -> bool:
    try:
        _, writer = await asyncio.wait_for(asyncio.open_connection(HOST, port), _CONNECT_TIMEOUT_S)
    except (OSError, TimeoutError):
        return False
    writer.close()
    return True
