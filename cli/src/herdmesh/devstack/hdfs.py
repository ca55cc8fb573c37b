"""One real HDFS in one process, for tests: Hadoop's mini cluster of a name node and a data node.

Owns everything under the folder: `hdfs.log`, `details.json`, `target/` with the nodes' files. Empty at each start.

It is HDFS' own code, with its protocols, leases and permissions (which it takes the client's word for: no Kerberos).
What it cannot show is more than one copy of a block, and name nodes that take over from each other.

Invariants:
- It listens on 127.0.0.1 only.
- After `stop()` its process does not live. It outlives the Python process that started it: whoever starts it stops it.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
import time
from pathlib import Path

from herdmesh.devstack import class_archive
from herdmesh.devstack.errors import DevstackError
from herdmesh.devstack.jars import ensure_jars
from herdmesh.devstack.java import Java, find_java

START_TIMEOUT_S = 90.0
STOP_TIMEOUT_S = 20.0
_POLL_S = 0.05
_LOG_TAIL_LINES = 20
_GROUP = "hdfs"
_MAIN = "org.apache.hadoop.test.MiniDFSClusterManager"
_SETTINGS = {
    "dfs.namenode.edits.noeditlogchannelflush": "true",  # a power cut of a test's server is no matter
    "dfs.namenode.handler.count": "4",
    "dfs.datanode.handler.count": "2",
}


class HdfsServer:
    """A server with its files in `folder` (made when absent). Not bound to an event loop; one caller at a time."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder.absolute()
        self.log_path = self.folder / "hdfs.log"
        self._details = self.folder / "details.json"
        self._child: subprocess.Popen[bytes] | None = None
        self._archive: Path | None = None
        self._port = 0

    @property
    def url(self) -> str:
        """`hdfs://127.0.0.1:PORT`, known while it serves. Raises DevstackError before."""
        if not self._port:
            raise DevstackError(f"the HDFS in {self.folder} was not started yet")
        return f"hdfs://127.0.0.1:{self._port}"

    def is_running(self) -> bool:
        """True while the server lives (serving or not)."""
        return self._child is not None and self._child.poll() is None

    async def start(self, timeout_s: float = START_TIMEOUT_S) -> None:
        """Fetch the jars when needed, start, and return when it serves.

        Raises DevstackError with the end of its log, `JavaMissing`, `JavaTooOld`, `JarsUnavailable`. Nothing is left
        running when it raises or is cancelled. `timeout_s` bounds the server's own start.
        """
        if self.is_running():
            raise DevstackError(f"the HDFS in {self.folder} runs already")
        java = await asyncio.to_thread(find_java)
        classpath = await asyncio.to_thread(ensure_jars, _GROUP)
        self._spawn(java, classpath)
        try:
            await self._until_it_serves(time.monotonic() + timeout_s)
        except BaseException:
            self._kill()
            raise

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
        self._kill()

    @property
    def _fresh_archive(self) -> Path:
        return self.folder / "hdfs.jsa"

    def _spawn(self, java: Java, classpath: str) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(self.folder / "target", ignore_errors=True)
        self._details.unlink(missing_ok=True)
        self._fresh_archive.unlink(missing_ok=True)
        self._archive = class_archive.archive_path(java, classpath)
        command = [
            *(str(java.executable), *class_archive.jvm_options(self._archive, self._fresh_archive)),
            *("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Djava.awt.headless=true"),
            *("-cp", classpath, _MAIN, "-format", "-datanodes", "1", "-nnport", "0", "-writeDetails", self._details),
            *(part for name, value in _SETTINGS.items() for part in ("-D", f"{name}={value}")),
        ]
        with self.log_path.open("ab") as log:
            self._child = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=self.folder, start_new_session=True
            )

    async def _until_it_serves(self, deadline_s: float) -> None:
        while not (port := self._port_told()):
            if not self.is_running():
                raise DevstackError(self._with_log("the HDFS ended while starting"))
            if time.monotonic() > deadline_s:
                raise DevstackError(self._with_log("the HDFS did not serve in time"))
            await asyncio.sleep(_POLL_S)
        self._port = port

    def _port_told(self) -> int:
        """Of the name node, which the server tells when it serves; 0 before."""
        try:
            return int(json.loads(self._details.read_text())["namenode_port"])
        except (FileNotFoundError, ValueError):  # ValueError: it is about to tell
            return 0

    def _kill(self) -> None:
        child, self._child = self._child, None
        self._port = 0
        if child is not None:
            child.kill()
            child.wait()

    def _with_log(self, message: str) -> str:
        lines = self.log_path.read_text(errors="replace").splitlines()[-_LOG_TAIL_LINES:]
        return "\n".join([f"{message}. The end of {self.log_path}:", *lines])
