"""One MariaDB server in a folder, for the tests of databases that Spark's JDBC reaches.

Owns the server's process, its data and port. The server is the one in PATH, or Debian's packages unpacked below the
cache (`_PACKAGES`, see `FIX`); nothing is fetched here, and there is no Python client: statements go through `mariadb`.

Invariant: listens on 127.0.0.1 only; after `stop` and `kill` it does not run.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

from herdmesh.devstack.jars import cache_dir
from herdmesh.devstack.ports import free_port

_PACKAGES = "mariadb-server-core mariadb-server mariadb-client-core libmariadb3 libaio1 liburing2 mariadb-common"
FIX = (
    "no MariaDB server: apt install mariadb-server, or unpack Debian's packages beside the jars: cd "
    f"$(mktemp -d) && apt-get download {_PACKAGES} && for one in *.deb; do dpkg-deb -x $one "
    "~/.cache/herdmesh/mariadb/root; done"
)
USER, PASSWORD = "shop", "se cret"
_START_S = 60.0
_STOP_S = 30.0


def base() -> Path | None:
    """The folder with `bin/mariadb`, None where there is no server."""
    unpacked = cache_dir() / "mariadb" / "root" / "usr"
    if (unpacked / "sbin" / "mariadbd").is_file():
        return unpacked
    found = shutil.which("mariadbd", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
    return None if found is None else Path(found).resolve().parents[1]


class MariaDb:
    """`settings`: options of the server's command line. Database `shop` and a user with a password are created."""

    def __init__(self, folder: Path, settings: Sequence[str] = ()) -> None:
        found = base()
        assert found is not None, FIX
        self._base, self._folder, self._settings = found, folder, tuple(settings)
        self._process: subprocess.Popen[bytes] | None = None
        root = found.parent
        libraries = [str(one) for parent in (found / "lib", root / "lib") for one in parent.glob("*-linux-*")]
        self._environment = {**os.environ, "LD_LIBRARY_PATH": ":".join(libraries)} if root != Path("/") else None
        self.port = free_port()

    @property
    def url(self) -> str:
        """The URL for MariaDB's driver, in a form that Spark knows too: a database of MySQL's kind."""
        return f"jdbc:mysql://127.0.0.1:{self.port}/shop?permitMysqlScheme=true"

    @property
    def mariadb_url(self) -> str:
        """By the driver's own name, which Spark does not know."""
        return f"jdbc:mariadb://127.0.0.1:{self.port}/shop"

    def start(self) -> None:
        """Create the data when they are missing, start, and return when it answers."""
        data = self._folder / "data"
        if not data.exists():
            self._folder.mkdir(parents=True, exist_ok=True)
            self._checked([
                *(str(self._base / "bin" / "mariadb-install-db"), "--no-defaults", f"--basedir={self._base}"),
                *(f"--datadir={data}", "--auth-root-authentication-method=normal", "--skip-test-db", *_as_user()),
            ])  # fmt: skip
        with (self._folder / "mariadb.log").open("ab") as log:
            self._process = subprocess.Popen(
                [
                    *(str(self._base / "sbin" / "mariadbd"), "--no-defaults", f"--basedir={self._base}"),
                    *(f"--datadir={data}", f"--port={self.port}", "--bind-address=127.0.0.1", *_as_user()),
                    *(f"--socket={self._folder / 'socket'}", "--innodb-buffer-pool-size=32M", *self._settings),
                    f"--lc-messages-dir={self._base / 'share' / 'mysql'}",
                ],
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        deadline_s = time.monotonic() + _START_S
        while True:
            try:
                made = "CREATE DATABASE IF NOT EXISTS shop CHARACTER SET utf8mb4; CREATE USER IF NOT EXISTS "
                self.run(f"{made}{USER}@127.0.0.1 IDENTIFIED BY '{PASSWORD}'; GRANT ALL ON *.* TO {USER}@127.0.0.1")
                return
            except RuntimeError:
                if self._process.poll() is not None or time.monotonic() > deadline_s:
                    self.kill()
                    raise
                time.sleep(0.05)

    def stop(self) -> None:
        """Stop in order."""
        if self._process is not None:
            self._process.terminate()
            try:
                self._process.wait(_STOP_S)
            finally:
                self.kill()

    def kill(self) -> None:
        """Send SIGKILL, and wait until it has ended. Can be started again."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def run(self, statements: str, database: str = "") -> list[list[str]]:
        """Execute; the rows of the last one as texts, `NULL` for null. Raises RuntimeError with its error message."""
        done = self._checked([
            *(str(self._base / "bin" / "mariadb"), "--no-defaults", "--user=root", f"--port={self.port}"),
            *("--host=127.0.0.1", "--protocol=tcp", "--default-character-set=utf8mb4", "--batch"),
            *("--skip-column-names", f"--execute={statements}", *([database] if database else [])),
        ])  # fmt: skip
        return [line.split("\t") for line in done.splitlines()]

    def _checked(self, command: Sequence[str]) -> str:
        done = subprocess.run(
            command, env=self._environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120,
            check=False,
        )  # fmt: skip
        if done.returncode != 0:
            raise RuntimeError(f"{command[0]}: {done.stderr.strip() or done.stdout.strip()}")
        return done.stdout


def _as_user() -> list[str]:
    """Options to run as root, which it otherwise refuses."""
    return ["--user=root"] if os.geteuid() == 0 else []
