"""One real single-node Kafka (KRaft) in a data folder, for `herd up`, the demo, the tests and the benchmark.

Owns everything under the data folder: `kafka/` (the log), `tmp/` (the JVM's temporary files, emptied before each
start), `ports.json`, `broker.lock`, `broker.log`, `server.properties`. Does not own topics: callers create theirs
(auto-creation is off).

Invariants:
- One JVM per data folder. The JVM inherits the locked `broker.lock`, so the kernel holds the folder for exactly as long
  as that JVM lives, however it or its parent dies; there is no stale pid file to guess about.
- `kafka/` exists only when it was formatted completely (formatting, or copying a formatted folder, happens under
  another name, then one rename), and a folder that exists is never formatted again.

The JVM outlives the Python process that started it (a detached stack, kill tests): the code that starts it must stop
it.

    python -m herdmesh.devstack.broker --data DIR    runs one in the foreground
"""

from __future__ import annotations

import argparse
import asyncio
import fcntl
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO

from herdmesh.devstack import _broker_config as config
from herdmesh.devstack import blank_folder, class_archive
from herdmesh.devstack.errors import BrokerAlreadyRunning, BrokerFailed, DevstackError
from herdmesh.devstack.jars import ensure_jars
from herdmesh.devstack.java import Java, find_java
from herdmesh.devstack.ports import HOST, accepts
from herdmesh.devstack.readiness import serving_cluster
from herdmesh.devstack.supervision import log_rotation
from herdmesh.scratch import java_options

START_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 15.0
_FORMAT_TIMEOUT_S = 60.0
_KILL_TIMEOUT_S = 10.0
_POLL_S = 0.02
_PORT_ATTEMPTS = 3
_LOG_TAIL_LINES = 20
_LOG_TAIL_BYTES = 32_768
_CAUSE_LINES = 200
#: The line of an exception, or of what caused it, above its stack.
_CAUSE = re.compile(
    r"^(?:Caused by: |Exception in thread \S+ )?((?:[a-z]\w*\.)+[A-Z]\w*(?:Exception|Error): .*)$", re.MULTILINE
)
#: For a broker that lives for minutes: starts with half the processor time, and never needs its full speed.
QUICK_JVM = ("-XX:TieredStopAtLevel=1",)


class Broker:
    """A broker in `data_dir` (created when absent). Not bound to an event loop; one object, one caller at a time.

    `port`: the port to prefer for clients (the controller's is the next one); any free one is used when it is busy, and
    0 means any. A folder remembers its ports: a second start uses the same ones if they are free. `settings`:
    server.properties entries in addition to those here. `jvm`: options of the JVM in addition to those here.
    """

    def __init__(
        self,
        data_dir: Path,
        *,
        port: int = 9092,
        heap_mb: int = 512,
        settings: Mapping[str, str] | None = None,
        jvm: Sequence[str] = (),
    ) -> None:
        self.data_dir = data_dir.absolute()
        self.log_path = self.data_dir / "broker.log"
        self._preferred_port = port
        self._heap_mb = heap_mb
        self._settings = dict(settings or {})
        self._jvm = tuple(jvm)
        self._ports: config.Ports | None = None
        self._pid: int | None = None
        self._child: subprocess.Popen[bytes] | None = None
        self._archive: Path | None = None

    @property
    def bootstrap(self) -> str:
        """`127.0.0.1:PORT`. Known from the first start (or adoption) on; the same after `stop` and `kill`."""
        if self._ports is None:
            raise BrokerFailed(f"the broker in {self.data_dir} was not started yet")
        return f"{HOST}:{self._ports.client}"

    @property
    def pid(self) -> int | None:
        """Process id of the running JVM, else None. Detects a JVM that died."""
        return self._pid if self.is_running() else None

    def is_running(self) -> bool:
        """True while the JVM lives (serving or not)."""
        if self._child is not None:
            return self._child.poll() is None
        return self._pid is not None and _lock_is_held(self._lock_path)

    async def start(self, timeout_s: float = START_TIMEOUT_S) -> None:
        """Fetch jars and format when needed, start the JVM, and return when it serves clients.

        Raises `BrokerAlreadyRunning` (naming the pid), `BrokerFailed` (with the tail of the log), `JavaMissing`,
        `JavaTooOld`, `JarsUnavailable`. No process is left running when it raises or is cancelled. `timeout_s` bounds
        the JVM's own start; fetching jars comes in addition.
        """
        self.data_dir.mkdir(parents=True, exist_ok=True)
        with self._lock_path.open("a+") as lock:
            if not _try_lock(lock):
                raise BrokerAlreadyRunning(self.data_dir, _pid_in(lock))
            _write_pid(lock, None)
            java = await asyncio.to_thread(find_java)
            classpath = await asyncio.to_thread(ensure_jars, "broker")
            await asyncio.to_thread(self._format_once, java, classpath, lock)
            deadline = time.monotonic() + timeout_s
            avoid: set[int] = set()
            for attempt in range(1, _PORT_ATTEMPTS + 1):
                self._ports = config.choose_ports(self.data_dir, self._preferred_port, avoid)
                self._spawn(java, classpath, lock)
                try:
                    await self._wait_until_serving(deadline)
                except config.PortTaken:
                    # Another process bound one of them after they were chosen.
                    avoid |= {self._ports.client, self._ports.controller}
                    if attempt == _PORT_ATTEMPTS:
                        raise BrokerFailed(self._with_log("no free port was found")) from None
                    continue
                except BaseException:
                    self.kill()
                    raise
                config.remember_ports(self.data_dir, self._ports)
                return

    async def adopt(self, timeout_s: float = START_TIMEOUT_S) -> bool:
        """Take over a broker that already runs in the folder (its starter was killed). False when none runs, or it
        was killed because nobody knows its ports: its starter was killed before it served.
        """
        if not await self.find():
            return False
        try:
            if self._ports is None:
                raise config.PortTaken
            await self._wait_until_serving(time.monotonic() + timeout_s)
        except config.PortTaken:  # it listens on other ports than the remembered ones
            self.kill()
            return False
        return True

    async def find(self, timeout_s: float = _FORMAT_TIMEOUT_S) -> bool:
        """Find the JVM that runs in the folder, whether it serves or not, so that `stop` and `kill` end it. False when
        none runs. Waits up to `timeout_s` for the end of a formatter whose starter was killed, some seconds.
        """
        deadline_s = time.monotonic() + timeout_s
        while _lock_is_held(self._lock_path):
            with self._lock_path.open("r") as lock:
                self._pid = _pid_in(lock)
            if self._pid is not None:
                self._ports = config.remembered_ports(self.data_dir)
                return True
            if time.monotonic() > deadline_s:
                break
            await asyncio.sleep(_POLL_S)
        return False

    async def stop(self, timeout_s: float = STOP_TIMEOUT_S) -> None:
        """End the JVM in order (SIGTERM); SIGKILL when that takes over `timeout_s`. No effect when not running."""
        if not self.is_running():
            self._forget()
            return
        self._signal(signal.SIGTERM)
        if not await self._wait_for_end(timeout_s):
            self._signal(signal.SIGKILL)
            await self._wait_for_end(_KILL_TIMEOUT_S)
        elif self._archive is not None:
            await asyncio.to_thread(class_archive.keep, self._fresh_archive, self._archive)
        self._forget()

    def kill(self) -> None:
        """SIGKILL the JVM and wait until it has ended (milliseconds). Its folder can be started again at once."""
        if self.is_running():
            self._signal(signal.SIGKILL)
            deadline = time.monotonic() + _KILL_TIMEOUT_S
            while self.is_running() and time.monotonic() < deadline:
                time.sleep(_POLL_S)
        self._forget()

    @property
    def _lock_path(self) -> Path:
        return self.data_dir / "broker.lock"

    @property
    def _fresh_archive(self) -> Path:
        return self.data_dir / "broker.jsa"

    def _format_once(self, java: Java, classpath: str, lock: IO[str]) -> None:
        """Create `kafka/` completely or not at all. A half-formatted folder has another name and is removed."""
        log_dir = self.data_dir / "kafka"
        if (log_dir / "meta.properties").is_file():
            return
        if log_dir.exists():
            raise BrokerFailed(
                f"{log_dir} holds no meta.properties: it is damaged, or not a Kafka folder. "
                "It is not formatted again; move it away to start with an empty broker."
            )
        fresh = self.data_dir / "kafka.formatting"
        shutil.rmtree(fresh, ignore_errors=True)
        properties = self.data_dir / "format.properties"
        config.write_server_properties(properties, fresh, config.Ports(9092, 9093), self._settings)
        kept = blank_folder.kept_path(classpath, properties, fresh)
        if not blank_folder.copy(kept, fresh, config.new_id(), config.new_id()):
            self._format(java, classpath, lock, properties)
            blank_folder.keep(fresh, kept)
        properties.unlink()
        os.rename(fresh, log_dir)

    def _format(self, java: Java, classpath: str, lock: IO[str], properties: Path) -> None:
        archive = class_archive.archive_path(java, classpath)
        command = [
            *(str(java.executable), "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"),
            *(*class_archive.use_options(archive), *self._temporary(), "-cp", classpath),
            *(config.write_log_config(self.data_dir), "kafka.tools.StorageTool", "format"),
            *("-t", config.new_id(), "-c", str(properties)),
        ]
        failed = f"formatting a folder in {self.data_dir}"
        with self._open_log() as log:
            try:
                # The formatter inherits the lock, so that the next start waits for one whose parent was killed.
                done = subprocess.run(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    pass_fds=[lock.fileno()],
                    env=_jvm_environment(),
                    timeout=_FORMAT_TIMEOUT_S,
                    check=False,
                )
            except subprocess.TimeoutExpired as error:
                raise BrokerFailed(self._with_log(f"{failed} took over {_FORMAT_TIMEOUT_S:g} s")) from error
        if done.returncode != 0:
            raise BrokerFailed(self._with_log(f"{failed} failed (exit {done.returncode})"))

    def _temporary(self) -> Sequence[str]:
        """An empty temporary folder, and the options with which a JVM uses it."""
        folder = self.data_dir / "tmp"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        return java_options(folder)

    def _spawn(self, java: Java, classpath: str, lock: IO[str]) -> None:
        assert self._ports is not None
        properties = self.data_dir / "server.properties"
        config.write_server_properties(properties, self.data_dir / "kafka", self._ports, self._settings)
        self._archive = class_archive.archive_path(java, classpath)
        self._fresh_archive.unlink(missing_ok=True)
        command = [
            *(str(java.executable), *class_archive.jvm_options(self._archive, self._fresh_archive)),
            *(f"-Xmx{self._heap_mb}m", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20", *self._jvm),
            *("-XX:+ExitOnOutOfMemoryError", "-Djava.awt.headless=true", config.write_log_config(self.data_dir)),
            *(*self._temporary(), "-cp", classpath, "kafka.Kafka", str(properties)),
        ]
        with self._open_log() as log:
            self._child = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.data_dir,
                env=_jvm_environment(),
                pass_fds=[lock.fileno()],
                # Ctrl-C in a terminal goes to the whole process group: the supervisor must be the one to end the JVM.
                start_new_session=True,
            )
        self._pid = self._child.pid
        _write_pid(lock, self._pid)

    async def _wait_until_serving(self, deadline: float) -> None:
        """Wait until the broker itself returns this cluster's id to an admin client. Raises `BrokerFailed`,
        `PortTaken`.
        """
        assert self._ports is not None
        cluster_id = config.cluster_id(self.data_dir / "kafka")
        while True:
            if not self.is_running():
                if "Address already in use" in self._log_tail():
                    raise config.PortTaken
                code = self._child.returncode if self._child else "unknown"
                raise BrokerFailed(self._with_log(f"the broker ended while starting (exit {code})"))
            if await accepts(self._ports.client):
                found = await asyncio.to_thread(serving_cluster, self.bootstrap)
                if found == cluster_id:
                    return
                if found is not None:
                    self.kill()
                    raise config.PortTaken
            if time.monotonic() > deadline:
                raise BrokerFailed(self._with_log("the broker did not serve in time"))
            await asyncio.sleep(_POLL_S)

    async def _wait_for_end(self, timeout_s: float) -> bool:
        deadline = time.monotonic() + timeout_s
        while self.is_running():
            if time.monotonic() > deadline:
                return False
            await asyncio.sleep(_POLL_S)
        return True

    def _signal(self, number: signal.Signals) -> None:
        if self._pid is not None:
            try:
                os.kill(self._pid, number)
            except ProcessLookupError:
                pass  # it ended between the check and the signal

    def _forget(self) -> None:
        self._child = None
        self._pid = None

    def _open_log(self) -> IO[bytes]:
        log_rotation.rotate(self.log_path)
        return self.log_path.open("ab")

    def _log_tail(self, lines: int = _LOG_TAIL_LINES) -> str:
        try:
            with self.log_path.open("rb") as log:
                log.seek(max(0, self.log_path.stat().st_size - _LOG_TAIL_BYTES))
                found = log.read().decode(errors="replace").splitlines()
        except OSError:
            return ""
        return "\n".join(found[-lines:])

    def _with_log(self, message: str) -> str:
        text = self._log_tail(_CAUSE_LINES)
        cause = _CAUSE.findall(text)
        because = f": {cause[-1].strip()}" if cause else ""
        return f"{message}{because}. The end of {self.log_path}:\n" + "\n".join(text.splitlines()[-_LOG_TAIL_LINES:])


def _jvm_environment() -> dict[str, str]:
    """The environment of the JVMs. In another locale a JVM may not be able to open a path with letters beyond ASCII,
    and it translates the system's error messages, by which a taken port is recognised.
    """
    return {**os.environ, "LC_ALL": "C.UTF-8"}


def _try_lock(file: IO[str]) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _lock_is_held(path: Path) -> bool:
    try:
        with path.open("r") as file:
            return not _try_lock(file)
    except FileNotFoundError:
        return False


def _pid_in(lock: IO[str]) -> int | None:
    lock.seek(0)
    text = lock.read().strip()
    return int(text) if text.isdigit() else None


def _write_pid(lock: IO[str], pid: int | None) -> None:
    lock.seek(0)
    lock.truncate()
    lock.write("" if pid is None else f"{pid}\n")
    lock.flush()


async def _run_in_foreground(broker: Broker) -> int:
    """Run until SIGINT or SIGTERM (0), or until the JVM ends by itself (1)."""
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stopping.set)
    await broker.start()
    print(f"Kafka serves at {broker.bootstrap} (process {broker.pid}). Ctrl-C stops it.", flush=True)
    while not stopping.is_set():
        if not broker.is_running():
            print(f"The broker ended by itself; see {broker.log_path}.", file=sys.stderr)
            return 1
        try:
            await asyncio.wait_for(stopping.wait(), timeout=1.0)
        except TimeoutError:
            continue
    await broker.stop()
    return 0


def main() -> int:
    """Command line: one broker in the foreground."""
    parser = argparse.ArgumentParser(prog="python -m herdmesh.devstack.broker", description="Run one Kafka broker.")
    parser.add_argument("--data", type=Path, required=True, metavar="DIR", help="data folder, created when absent")
    parser.add_argument("--port", type=int, default=9092, help="preferred port; another is taken when it is busy")
    options = parser.parse_args()
    try:
        return asyncio.run(_run_in_foreground(Broker(options.data, port=options.port)))
    except DevstackError as error:
        print(error, file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
