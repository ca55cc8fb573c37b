"""The common part of Java servers in one process, for tests, except the broker.

Owns the start, the wait until the server serves, its log, its class-data archive, and its end. Its arguments and its
readiness check are defined by each server (`hdfs`, `s3`).

Invariant: after `stop()` and `kill()` its process does not live. It outlives the Python process that started it: the
code that starts it must stop it.
"""

from __future__ import annotations

import asyncio
import subprocess
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

from herdmesh.devstack import class_archive
from herdmesh.devstack.errors import DevstackError
from herdmesh.devstack.jars import ensure_jars
from herdmesh.devstack.java import find_java
from herdmesh.scratch import java_options

_ATTEMPTS = 3
"""Attempts to start, when another process binds the port meanwhile."""
_POLL_S = 0.02
_LOG_TAIL_LINES = 20
_JVM = ("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Djava.awt.headless=true")


class JavaServer(ABC):
    """A server with its files in `folder` (created when absent). Not bound to an event loop; one caller at a time."""

    what: ClassVar[str]
    """Name for error messages: "the S3 server"."""
    group: ClassVar[str]
    """Group of jars; the server's files are named after it."""
    start_timeout_s: ClassVar[float]
    stop_timeout_s: ClassVar[float]

    def __init__(self, folder: Path) -> None:
        self.folder = folder.absolute()
        self.log_path = self.folder / f"{self.group}.log"
        self._fresh_archive = self.folder / f"{self.group}.jsa"
        self._archive: Path | None = None
        self._child: subprocess.Popen[bytes] | None = None

    def is_running(self) -> bool:
        """True while the server lives (serving or not)."""
        return self._child is not None and self._child.poll() is None

    async def start(self, timeout_s: float | None = None) -> None:
        """Fetch the jars when needed, start, and return when it serves.

        Raises DevstackError with the end of its log, `JavaMissing`, `JavaTooOld`, `JarsUnavailable`. No process is left
        running when it raises or is cancelled. `timeout_s` bounds the server's own start; None = `start_timeout_s`.
        """
        if self.is_running():
            raise DevstackError(f"{self.what} in {self.folder} runs already")
        java = await asyncio.to_thread(find_java)
        classpath = await asyncio.to_thread(ensure_jars, self.group)
        self.folder.mkdir(parents=True, exist_ok=True)
        self._archive = class_archive.archive_path(java, classpath)
        deadline_s = time.monotonic() + (self.start_timeout_s if timeout_s is None else timeout_s)
        for attempt in range(1, _ATTEMPTS + 1):
            begun = self.log_path.stat().st_size if self.log_path.exists() else 0
            self._spawn(str(java.executable), classpath)
            try:
                if await self._until_it_serves(deadline_s):
                    return
            except BaseException:
                self.kill()
                raise
            if attempt == _ATTEMPTS or "Address already in use" not in self._log_from(begun):
                self.kill()
                raise DevstackError(self._with_log(f"{self.what} ended while starting"))

    async def stop(self, timeout_s: float | None = None) -> None:
        """End it in order (SIGTERM); kill it when that takes over `timeout_s` (None = `stop_timeout_s`). No effect when
        not running.
        """
        child = self._child
        if child is not None and child.poll() is None:
            child.terminate()
            try:
                await asyncio.to_thread(child.wait, self.stop_timeout_s if timeout_s is None else timeout_s)
            except subprocess.TimeoutExpired:
                pass  # killed below
            else:
                if self._archive is not None:
                    await asyncio.to_thread(class_archive.keep, self._fresh_archive, self._archive)
        self.kill()

    def kill(self) -> None:
        """SIGKILL the server and wait until it has ended. It can be started again at once."""
        child, self._child = self._child, None
        if child is not None:
            child.kill()
            child.wait()

    @abstractmethod
    def _prepared(self) -> Sequence[str | Path]:
        """Prepare the server's folder; returns its own options, the class to run and its arguments. Called at each
        attempt to start it.
        """

    @abstractmethod
    async def _serves(self) -> bool:
        """True when it accepts clients."""

    def _spawn(self, java: str, classpath: str) -> None:
        assert self._archive is not None
        self._fresh_archive.unlink(missing_ok=True)
        temporary = self.folder / "tmp"
        temporary.mkdir(exist_ok=True)
        options = [*class_archive.jvm_options(self._archive, self._fresh_archive), *java_options(temporary)]
        command = [java, *options, *_JVM, "-cp", classpath, *self._prepared()]
        with self.log_path.open("ab") as log:
            self._child = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=self.folder, start_new_session=True
            )

    async def _until_it_serves(self, deadline_s: float) -> bool:
        """Wait; returns True when it serves, False when it ended. Raises DevstackError when it does neither in time."""
        while self.is_running():
            if await self._serves():
                return True
            if time.monotonic() > deadline_s:
                raise DevstackError(self._with_log(f"{self.what} did not serve in time"))
            await asyncio.sleep(_POLL_S)
        return False

    def _log_from(self, begun: int) -> str:
        with self.log_path.open("rb") as log:
            log.seek(begun)
            return log.read().decode(errors="replace")

    def _with_log(self, message: str) -> str:
        lines = self._log_from(0).splitlines()[-_LOG_TAIL_LINES:]
        return "\n".join([f"{message}. The end of {self.log_path}:", *lines])
