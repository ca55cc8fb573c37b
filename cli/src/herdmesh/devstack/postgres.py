"""One real PostgreSQL in a data folder, for tests, examples and the benchmark.

Owns everything under the folder: `data/` (the cluster), `postgres.log`, `port`. The server program: `postgres_server`.
Creates no roles and no tables beyond those of `initdb`.

The server listens on 127.0.0.1 only and has no Unix socket. Every user logs in without a password, except members of
the role `herdmesh_passwords`, if a test creates it. PostgreSQL refuses to run as root: started by root it runs as the
system user `postgres` or `nobody`, who gets `data/` and, where the machine allows it, the right to pass through
folders that are root's (a folder of pytest's, a cache in root's home).

Invariants:
- `data/` exists only when `initdb` completed: it is created under another name, then renamed.
- After `stop()` and `kill()` no process of the server lives. Killed, it loses nothing that it acknowledged.

The server outlives the Python process that started it: the code that starts it must stop it.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path

import psutil

from herdmesh.devstack.errors import DevstackError
from herdmesh.devstack.ports import HOST, free_port
from herdmesh.devstack.postgres_server import Server, find_server

USER = "herdmesh"
"""The superuser, and the user of `Postgres.dsn`."""
PASSWORDS_ROLE = "herdmesh_passwords"
"""Members of this role need their password."""
START_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 15.0
_INIT_TIMEOUT_S = 120.0
_KILL_TIMEOUT_S = 10.0
_POLL_S = 0.02
_ATTEMPTS = 5
_LOG_TAIL_LINES = 20
#: `postmaster.pid`: index of the line with the server's status (PostgreSQL's pidfile.h).
_STATUS_LINE = 7

_SETTINGS: Mapping[str, str] = {
    "wal_level": "logical",
    "fsync": "on",
    # Small and fast: a test server has few rows and no queries worth compiling.
    "shared_buffers": "32MB",
    "jit": "off",
    "max_wal_senders": "10",
    "max_replication_slots": "10",
    "timezone": "UTC",
    "log_timezone": "UTC",
    "log_line_prefix": "%m [%p] ",
}
_HBA = f"""\
host all +{PASSWORDS_ROLE} {HOST}/32 scram-sha-256
host all all {HOST}/32 trust
host replication all {HOST}/32 trust
"""


class Postgres:
    """A server in `folder` (created when absent). Not bound to an event loop; one object, one caller at a time.

    `port`: 0 = any free one. A folder remembers its port: a second start uses the same one if it is free.
    `settings`: entries of postgresql.conf in addition to those here.
    """

    def __init__(self, folder: Path, port: int = 0, settings: Mapping[str, str] | None = None) -> None:
        self.folder = folder.absolute()
        self.log_path = self.folder / "postgres.log"
        self._wanted_port = port
        self._settings = {**_SETTINGS, **(settings or {})}
        self._port: int | None = None
        self._child: subprocess.Popen[bytes] | None = None

    @property
    def port(self) -> int:
        """Known from the first start on; the same after `stop` and `kill`. Raises DevstackError before."""
        if self._port is None:
            raise DevstackError(f"the PostgreSQL in {self.folder} was not started yet")
        return self._port

    @property
    def dsn(self) -> str:
        """`postgresql://herdmesh@127.0.0.1:PORT/postgres`, a superuser."""
        return f"postgresql://{USER}@{HOST}:{self.port}/postgres"

    @property
    def pid(self) -> int | None:
        """Process id of the running server, else None."""
        return self._child.pid if self._child is not None and self.is_running() else None

    def is_running(self) -> bool:
        """True while the server lives (serving or not)."""
        return self._child is not None and self._child.poll() is None

    async def start(self, timeout_s: float = START_TIMEOUT_S) -> None:
        """Find or fetch the server, create the cluster when needed, start, and return when it serves.

        Raises DevstackError with the end of its log, or with the package to install. No process is left running when it
        raises or is cancelled. `timeout_s` bounds the server's own start.
        """
        if self.is_running():
            raise DevstackError(f"the PostgreSQL in {self.folder} runs already (process {self.pid})")
        self.folder.mkdir(parents=True, exist_ok=True)
        server = await asyncio.to_thread(find_server)
        await asyncio.to_thread(self._init_once, server)
        deadline_s = time.monotonic() + timeout_s
        for attempt in range(1, _ATTEMPTS + 1):
            self._port = self._choose_port()
            begun = self._log_bytes()
            self._spawn(server)
            try:
                if await self._serves(deadline_s):
                    (self.folder / "port").write_text(f"{self._port}\n")
                    return
            except BaseException:
                self.kill()
                raise
            # Another process bound the port first, or the last process of a killed server was still there.
            if attempt == _ATTEMPTS or not self._worth_another(begun):
                raise DevstackError(self._with_log("PostgreSQL ended while starting"))
            await asyncio.sleep(_POLL_S)

    async def stop(self, timeout_s: float = STOP_TIMEOUT_S) -> None:
        """End the server in order, disconnecting its clients (SIGINT); kill it when that takes over `timeout_s`. No
        effect when not running.
        """
        if self._child is None or not self.is_running():
            self._child = None
            return
        self._child.send_signal(signal.SIGINT)
        await asyncio.to_thread(_wait, self._child, timeout_s)
        self.kill()

    def kill(self) -> None:
        """SIGKILL the server and all its processes, and wait until they have ended. It can be started again at once."""
        child, self._child = self._child, None
        if child is None or child.poll() is not None:
            return
        tree = _stopped_tree(child.pid)
        for process in tree:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        child.wait(_KILL_TIMEOUT_S)
        psutil.wait_procs(tree, _KILL_TIMEOUT_S)

    @property
    def _data(self) -> Path:
        return self.folder / "data"

    def _init_once(self, server: Server) -> None:
        if self._data.exists():
            return
        fresh = self.folder / "data.making"
        shutil.rmtree(fresh, ignore_errors=True)
        fresh.mkdir(mode=0o700)
        server.hand_over(fresh)
        command = [
            *(str(server.bin / "initdb"), "-D", str(fresh), "-U", USER, "-A", "trust"),
            *("-E", "UTF8", "--no-locale", "--no-sync"),
        ]
        with self.log_path.open("ab") as log:
            code = server.run(command, log, timeout_s=_INIT_TIMEOUT_S)
        if code != 0:
            raise DevstackError(self._with_log(f"initdb failed (exit {code})"))
        hba = fresh / "pg_hba.conf"
        hba.write_text(_HBA)
        os.rename(fresh, self._data)

    def _choose_port(self) -> int:
        """The folder's own port if it is free, else the wanted one, else any."""
        wishes: list[int] = []
        with contextlib.suppress(OSError, ValueError):
            wishes.append(int((self.folder / "port").read_text()))
        if self._wanted_port:
            wishes.append(self._wanted_port)
        return free_port(wishes)

    def _spawn(self, server: Server) -> None:
        settings = {**self._settings, "listen_addresses": HOST, "port": str(self.port), "unix_socket_directories": ""}
        command = [str(server.bin / "postgres"), "-D", str(self._data)]
        for name, value in settings.items():
            command += ["-c", f"{name}={value}"]
        with self.log_path.open("ab") as log:
            self._child = server.spawn(command, log)

    async def _serves(self, deadline_s: float) -> bool:
        """Wait; returns True once it accepts clients, False when it ended. Raises DevstackError when it does neither in
        time.
        """
        while self.is_running():
            if self._status() == "ready":
                return True
            if time.monotonic() > deadline_s:
                raise DevstackError(self._with_log("PostgreSQL did not serve in time"))
            await asyncio.sleep(_POLL_S)
        return False

    def _status(self) -> str:
        """Status of the running server, from its own file: `starting`, `ready`, `stopping`; "" = no status yet."""
        try:
            lines = (self._data / "postmaster.pid").read_text().splitlines()
        except OSError:
            return ""
        ours = len(lines) > _STATUS_LINE and self._child is not None and lines[0].strip() == str(self._child.pid)
        return lines[_STATUS_LINE].strip() if ours else ""

    def _worth_another(self, begun: int) -> bool:
        with self.log_path.open("rb") as log:
            log.seek(begun)
            said = log.read()
        return b"Address already in use" in said or b"pre-existing shared memory block" in said

    def _log_bytes(self) -> int:
        return self.log_path.stat().st_size if self.log_path.exists() else 0

    def _with_log(self, message: str) -> str:
        try:
            lines = self.log_path.read_text(errors="replace").splitlines()[-_LOG_TAIL_LINES:]
        except OSError:
            lines = []
        return "\n".join([f"{message}. The end of {self.log_path}:", *lines])


def _wait(child: subprocess.Popen[bytes], timeout_s: float) -> None:
    with contextlib.suppress(subprocess.TimeoutExpired):
        child.wait(timeout_s)


def _stopped_tree(pid: int) -> list[psutil.Process]:
    """The process and all its children, stopped first, so that it starts no more while they are counted."""
    try:
        root = psutil.Process(pid)
        root.suspend()
        return [root, *root.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []
