"""The PostgreSQL server program of a development stack, and the user it runs as.

Owns the search for the Debian package's server, its download where it is absent, and the drop of root's rights, which
PostgreSQL refuses. Owns `<cache>/postgres/`, shared by clones. One server in a folder: `postgres`.

It fetches the packages that apt would install for `postgresql` and that this machine lacks: the distribution's version,
its signatures checked by apt. Nothing is installed: they are unpacked beside the jars.

Invariant: a server in the cache has its final name only when all its packages are unpacked.

    python -m herdmesh.devstack.postgres_server    finds or fetches one, from `make test`
"""

from __future__ import annotations

import fcntl
import os
import pwd
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from herdmesh.devstack.errors import DevstackError
from herdmesh.devstack.jars import cache_dir

_HINT = "Install it (Debian/Ubuntu: apt install postgresql), or put its `postgres` and `initdb` in PATH."
DEBIAN = Path("/usr/lib/postgresql")
"""Folder of the servers of Debian's packages, by version."""
_APT_TIMEOUT_S = 600
_OUTPUT_TAIL_LINES = 10
_SYSTEM_USERS = ("postgres", "nobody")
#: psql comes with the client's package, which the server's depends on.
_PROGRAMS = ("postgres", "initdb", "psql")
_SERVER_PACKAGE = re.compile(r"\bpostgresql-\d+\b")
#: A server needs only the shared libraries of other packages; the C library is the system's, LLVM is
#: for compiled queries, which are off.
_LIBRARY = re.compile(r"lib(?!c6|c-|llvm|perl|json-perl)[a-z0-9.+-]+")
#: The only right of root that is kept: to pass through folders that belong to root alone.
_PASS_THROUGH = "+dac_override"


@dataclass(frozen=True, slots=True)
class Server:
    """The programs of a server. `libraries`: folders of shared libraries that come with it; empty = the system's."""

    bin: Path
    libraries: Sequence[Path] = ()
    _as_user: Sequence[str] = field(default_factory=lambda: _as_user())

    def hand_over(self, folder: Path) -> None:
        """Make the server's user the owner of the folder, which is empty."""
        if os.geteuid() == 0:
            user = _system_user()
            os.chown(folder, user.pw_uid, user.pw_gid)

    def run(self, command: Sequence[str], log: IO[bytes], timeout_s: float) -> int:
        """Run a program of the server to its end; returns its exit code. Raises DevstackError when it takes too
        long."""
        try:
            done = subprocess.run(
                [*self._as_user, *command],
                env=self._environment(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd="/",
                timeout=timeout_s,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise DevstackError(f"{command[0]} took over {timeout_s:g} s") from error
        return done.returncode

    def spawn(self, command: Sequence[str], log: IO[bytes]) -> subprocess.Popen[bytes]:
        """Start the server; its process is the one returned."""
        return subprocess.Popen(
            [*self._as_user, *command],
            env=self._environment(),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd="/",
            # Ctrl-C in a terminal goes to the whole process group: the starter must be the one to end it.
            start_new_session=True,
        )

    def _environment(self) -> Mapping[str, str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("PG", "LC_", "LANG"))}
        if self.libraries:
            kept["LD_LIBRARY_PATH"] = os.pathsep.join(map(str, self.libraries))
        return {**kept, "LC_ALL": "C"}


def find_server() -> Server:
    """The newest server of the Debian package, else one in PATH, else one of the cache, fetched when it is not there.

    Blocks: a minute when it must fetch. Raises DevstackError that names the package to install.
    """
    found = _installed()
    if found is not None:
        return Server(found)
    folder = cache_dir() / "postgres"
    found = _newest(folder / "root" / "usr" / "lib" / "postgresql")
    if found is None:
        found = _fetched(folder)
    return Server(found, tuple(_libraries(folder / "root")))


def _installed() -> Path | None:
    found = _newest(DEBIAN)
    if found is None and (path := shutil.which("postgres")) is not None:
        beside = Path(path).resolve().parent
        found = beside if (beside / "initdb").is_file() else None
    return found


def _newest(folder: Path) -> Path | None:
    """`<folder>/<version>/bin` of the newest version that has a server and its client."""
    versions = [one for one in folder.glob("*/bin") if all((one / program).is_file() for program in _PROGRAMS)]
    return max(versions, key=lambda one: [int(part) for part in re.findall(r"\d+", one.parent.name)], default=None)


def _fetched(folder: Path) -> Path:
    """Fetch and unpack the server's packages into `<folder>/root`."""
    if shutil.which("apt-get") is None or shutil.which("dpkg-deb") is None:
        raise DevstackError(f"No PostgreSQL server was found, and there is no apt to fetch one with. {_HINT}")
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        root = folder / "root"
        found = _newest(root / "usr" / "lib" / "postgresql")
        if found is not None:  # another process fetched it while this one waited
            return found
        work = folder / "partial"
        shutil.rmtree(work, ignore_errors=True)
        shutil.rmtree(root, ignore_errors=True)
        (work / "root").mkdir(parents=True)
        (work / "archives" / "partial").mkdir(parents=True)
        (work / "lists" / "partial").mkdir(parents=True)
        print("No PostgreSQL server was found: fetching the distribution's packages", file=sys.stderr, flush=True)
        packages = _packages(work)
        _apt(work, "apt-get", "download", *packages)
        for archive in sorted((work / "archives").glob("*.deb")):
            _checked(["dpkg-deb", "-x", str(archive), str(work / "root")], work)
        if _newest(work / "root" / "usr" / "lib" / "postgresql") is None:
            raise DevstackError(f"The packages {', '.join(packages)} have no PostgreSQL server. {_HINT}")
        os.rename(work / "root", root)
        shutil.rmtree(work)
    found = _newest(root / "usr" / "lib" / "postgresql")
    assert found is not None
    return found


def _packages(work: Path) -> list[str]:
    """Packages to unpack: the server, its client, and those of their libraries that this machine lacks."""
    _apt(work, "apt-get", "update")
    server = _SERVER_PACKAGE.search(_apt(work, "apt-cache", "depends", "postgresql"))
    if server is None:
        raise DevstackError(f"apt knows no PostgreSQL server to install. {_HINT}")
    planned = _apt(work, "apt-get", "--simulate", "--no-install-recommends", "install", server[0])
    names = [line.split()[1] for line in planned.splitlines() if line.startswith("Inst ")]
    client = server[0].replace("-", "-client-")
    return [server[0], client, *(name for name in names if _LIBRARY.fullmatch(name))]


def _apt(work: Path, program: str, *arguments: str) -> str:
    """Run one of apt's programs with separate lists and archives: it needs no rights, and leaves the system's alone.
    Downloads go to `<work>/archives`.
    """
    options = {
        "Dir::State::lists": str(work / "lists"),
        "Dir::Cache::archives": str(work / "archives"),
        "Dir::Cache::pkgcache": "",
        "Dir::Cache::srcpkgcache": "",
        # It would drop root's rights for a user that cannot write here.
        "APT::Sandbox::User": "root",
    }
    command = [program, "--quiet"]
    for name, value in options.items():
        command += ["-o", f"{name}={value}"]
    return _checked([*command, *arguments], work / "archives")


def _checked(command: Sequence[str], folder: Path) -> str:
    try:
        done = subprocess.run(
            command,
            env={**os.environ, "LC_ALL": "C", "DEBIAN_FRONTEND": "noninteractive"},
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=_APT_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise DevstackError(f"{command[0]} took over {_APT_TIMEOUT_S} s. {_HINT}") from error
    if done.returncode != 0:
        tail = "\n".join(done.stdout.splitlines()[-_OUTPUT_TAIL_LINES:])
        raise DevstackError(f"No PostgreSQL server was found, and apt could not fetch one. {_HINT}\n{tail}")
    return done.stdout


def _libraries(root: Path) -> Iterator[Path]:
    """Folders of shared libraries under an unpacked root: `usr/lib/<machine>`, `lib/<machine>`."""
    for parent in (root / "usr" / "lib", root / "lib"):
        yield from (one for one in sorted(parent.glob("*-linux-*")) if one.is_dir())


def _system_user() -> pwd.struct_passwd:
    for name in _SYSTEM_USERS:
        try:
            return pwd.getpwnam(name)
        except KeyError:
            continue
    raise DevstackError(f"PostgreSQL does not run as root, and there is none of the users {', '.join(_SYSTEM_USERS)}")


def _as_user() -> Sequence[str]:
    """Prefix of a command that runs without root's rights; empty for a process without them."""
    if os.geteuid() != 0:
        return ()
    setpriv = shutil.which("setpriv")
    if setpriv is None:
        raise DevstackError("PostgreSQL does not run as root, and there is no setpriv (util-linux) to start it with")
    user = _system_user()
    plain = [setpriv, f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--clear-groups"]
    able = [*plain, f"--inh-caps={_PASS_THROUGH}", f"--ambient-caps={_PASS_THROUGH}", "--"]
    tried = subprocess.run([*able, "true"], stdin=subprocess.DEVNULL, capture_output=True, cwd="/", check=False)
    return able if tried.returncode == 0 else [*plain, "--"]


def main() -> int:
    """Command line: find or fetch a server, and print which."""
    try:
        print(f"PostgreSQL server: {find_server().bin}")
    except DevstackError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
