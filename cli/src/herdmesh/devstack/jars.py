"""The pinned jars, by group: fetched once with the Ivy inside pyspark, checked against committed sums.

Owns the cache folder `<cache>/jars/<group>-<hash of the sums>/`, shared by clones. Does not own the list of pinned
jars: that is `deploy/jars/ivy.xml`, with `deploy/jars/<group>.sha256`; an installed package has a copy of both
(`cli/setup.py`).

Invariant: a class path only ever has files whose sums were checked in this call, or in an earlier one of this process
since which they have not changed. A folder gets its final name by one rename, after all its sums matched; a
partial download never has that name.

    ensure_jars("broker")                      -> class path, fetching when needed
    python -m herdmesh.devstack.jars broker    the same, from `make setup`
    python -m herdmesh.devstack.jars --pin connect    after a change of ivy.xml: fetch and write new sums
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import fcntl
import functools
import hashlib
import importlib.util
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Generator, Sequence
from pathlib import Path

from herdmesh.devstack.errors import DevstackError, JarsUnavailable
from herdmesh.devstack.java import find_java
from herdmesh.scratch import java_options

BROKER_MB = 45
"""Size of the broker's jars, as users are told."""
RETRY_DELAYS_S = (1.0, 3.0)
_IVY_TIMEOUT_S = 900
_SPACE_MIN = 16 * 1024 * 1024
"""Bytes: with less the disk counts as the reason of a failed fetch, for no jar is larger."""
_TICK_NS = 2_000_000_000
_OUTPUT_TAIL_LINES = 15

Fetch = Callable[[str, Path], None]
"""Function that fetches all jars of a group into a folder (second argument), which it creates; raises
`JarsUnavailable`.
"""


def ensure_jars(group: str, *, fetch: Fetch | None = None, retry_delays_s: Sequence[float] = RETRY_DELAYS_S) -> str:
    """The class path of a group (`broker`, `connect`), fetched first when the cache lacks it or is damaged.

    Blocks: up to a minute on a cold cache, about 0.1 s (hashing 44 MB) on a warm one, once in a process. Safe to call
    from several processes at once. Raises `JarsUnavailable`, and `JavaMissing` or `JavaTooOld` when it must fetch.
    """
    folder, sums = _pinned(group)
    if mismatches(folder, sums):
        try:
            with _locked(folder.with_suffix(".lock")):
                if mismatches(folder, sums):  # another process may have fetched while this one waited
                    _install(group, folder, sums, fetch or fetch_with_ivy, retry_delays_s)
        except OSError as error:
            where = error.filename or folder.parent
            raise JarsUnavailable(
                f"The {group} jars cannot be kept: {where}: {error.strerror}. HERDMESH_CACHE_DIR=DIR names another "
                "folder for them."
            ) from error
    return os.pathsep.join(str(folder / name) for name in sums)


def to_fetch(group: str) -> int:
    """Number of jars of a group that was not fetched yet; 0 = it was (`ensure_jars` checks the files)."""
    folder, sums = _pinned(group)
    return 0 if folder.is_dir() else len(sums)


async def fetch_ahead(group: str) -> None:
    """`ensure_jars` in processes of its own, which end when this call is cancelled: a thread would end with the
    download. Raises `JarsUnavailable`.
    """
    command = [sys.executable, "-m", "herdmesh.devstack.jars", group]
    process = await asyncio.create_subprocess_exec(
        *command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, start_new_session=True
    )
    try:
        _, errors = await process.communicate()
    except BaseException:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()
        raise
    if process.returncode:
        raise JarsUnavailable(errors.decode(errors="replace").strip())


def cache_dir() -> Path:
    """`HERDMESH_CACHE_DIR`, else `herdmesh` in `XDG_CACHE_HOME`, else in `~/.cache`."""
    own = os.environ.get("HERDMESH_CACHE_DIR")
    if own:
        return Path(own).expanduser().absolute()
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "herdmesh"


def pinned_dir() -> Path:
    """The folder with `ivy.xml` and the checksums: `jars` in `HERDMESH_DEPLOY_DIR`, else this package's own copy, else
    `deploy/jars` of the checkout that has this file. Raises `JarsUnavailable` when there is none.
    """
    own = os.environ.get("HERDMESH_DEPLOY_DIR")
    here = Path(__file__).resolve()
    found = (
        [Path(own, "jars")] if own else [here.with_name("pinned_jars"), *(one / "deploy/jars" for one in here.parents)]
    )
    for folder in found:
        if (folder / "ivy.xml").is_file():
            return folder
    raise JarsUnavailable(
        f"the list of pinned jars is missing: {found[0]} has no ivy.xml. Install the package herdmesh-cli again, or "
        "set HERDMESH_DEPLOY_DIR to the deploy folder of a checkout."
    )


def parse_sums(text: str) -> dict[str, str]:
    """Parse the format of `sha256sum`: jar name -> sha256."""
    sums: dict[str, str] = {}
    for line in text.splitlines():
        digest, _, name = line.partition("  ")
        sums[name] = digest
    return sums


def mismatches(folder: Path, sums: dict[str, str]) -> list[str]:
    """Names of jars that are missing in `folder` or do not match `sums`."""
    return [name for name, digest in sums.items() if _sha256(folder / name) != digest]


def fetch_with_ivy(group: str, folder: Path) -> None:
    """Resolve and download a group into `folder`. `folder/../ivy` is Ivy's own cache, kept between attempts."""
    temporary = folder.parent / "tmp"
    temporary.mkdir(parents=True, exist_ok=True)
    command = [
        *(str(find_java().executable), *java_options(temporary), "-jar", str(_ivy_jar())),
        *("-ivy", str(pinned_dir() / "ivy.xml")),
        *("-cache", str(folder.parent / "ivy"), "-confs", group, "-types", "jar", "bundle"),
        *("-retrieve", f"{folder}/[artifact]-[revision](-[classifier]).[ext]"),
    ]
    settings = os.environ.get("HERDMESH_IVY_SETTINGS")  # for sites that mirror the public repository
    if settings:
        command += ["-settings", settings]
    try:
        done = subprocess.run(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=_IVY_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise JarsUnavailable(f"Ivy did not finish within {_IVY_TIMEOUT_S} s") from error
    if done.returncode != 0:
        tail = "\n".join(done.stdout.splitlines()[-_OUTPUT_TAIL_LINES:])
        raise JarsUnavailable(f"Ivy could not fetch the {group} jars (exit {done.returncode}):\n{tail}")


def pin(group: str) -> int:
    """Fetch the jars that `ivy.xml` names now and write their sums for commit. Returns the number of jars."""
    work = cache_dir() / "jars" / f"pin-{group}-{os.getpid()}"
    try:
        fetch_with_ivy(group, work / "jars")
        jars = sorted((work / "jars").iterdir())
        lines = [f"{_sha256(jar)}  {jar.name}\n" for jar in jars]
    finally:
        shutil.rmtree(work, ignore_errors=True)
    (pinned_dir() / f"{group}.sha256").write_text("".join(lines))
    return len(lines)


def _install(group: str, folder: Path, sums: dict[str, str], fetch: Fetch, retry_delays_s: Sequence[float]) -> None:
    """Fetch into a work folder beside `folder`, check, rename. Called under the group's lock. Ivy's own cache in the
    work folder stays after a failed or killed fetch: on a slow network the next one continues with it.
    """
    work = folder.with_suffix(".partial")
    fresh = work / "jars"
    shutil.rmtree(fresh, ignore_errors=True)  # left by a killed process; under the lock no other process uses it
    for delay_s in (*retry_delays_s, None):
        try:
            fetch(group, fresh)
            wrong = mismatches(fresh, sums)
            if not wrong:
                break
            # Ivy's cached files may be the cause: the next attempt starts from nothing.
            shutil.rmtree(work)
            raise JarsUnavailable(f"these {group} jars do not match deploy/jars/{group}.sha256: {', '.join(wrong)}")
        except JarsUnavailable as error:
            full = shutil.disk_usage(folder.parent).free < _SPACE_MIN
            shutil.rmtree(fresh, ignore_errors=True)
            if full:
                raise JarsUnavailable(
                    f"The {group} jars could not be fetched: the disk of {folder.parent} is full. Free space, or name "
                    "a folder on another disk with HERDMESH_CACHE_DIR=DIR."
                ) from error
            if delay_s is None:
                with contextlib.suppress(OSError):
                    work.rmdir()  # unless Ivy's cache is in it
                raise JarsUnavailable(
                    f"The {group} jars could not be fetched in {len(retry_delays_s) + 1} attempts. Check the network "
                    f"(or set HERDMESH_IVY_SETTINGS to an Ivy settings file of your mirror), then run again.\n{error}"
                ) from error
            print(f"{str(error).splitlines()[0]}; trying again in {delay_s:g} s", file=sys.stderr, flush=True)
            time.sleep(delay_s)
    if folder.exists():  # damaged; processes that run from it keep their open files
        os.rename(folder, work / "damaged")
    os.rename(fresh, folder)
    shutil.rmtree(work)


@contextlib.contextmanager
def _locked(path: Path) -> Generator[None]:
    """Hold `path` against other processes. The kernel releases it when the holder dies, however it dies."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _pinned(group: str) -> tuple[Path, dict[str, str]]:
    """The folder of a group in the cache, and its sums. Raises `JarsUnavailable` for an unknown group."""
    sums_text = _sums_file(group).read_bytes()
    name = f"{group}-{hashlib.sha256(sums_text).hexdigest()[:16]}"
    return cache_dir() / "jars" / name, parse_sums(sums_text.decode())


def _sums_file(group: str) -> Path:
    folder = pinned_dir()
    path = folder / f"{group}.sha256"
    if not path.is_file():
        known = ", ".join(sorted(file.stem for file in folder.glob("*.sha256")))
        raise JarsUnavailable(f"there is no group of jars named {group!r}; there are: {known}")
    return path


def _ivy_jar() -> Path:
    spec = importlib.util.find_spec("pyspark")
    for location in (spec.submodule_search_locations or []) if spec else []:
        for jar in sorted(Path(location, "jars").glob("ivy-*.jar")):
            return jar
    raise JarsUnavailable(
        "The jars are fetched with the Ivy inside pyspark, which is not installed: install herdmesh, or "
        "herdmesh-cli[standalone]."
    )


def _sha256(path: Path) -> str | None:
    """Checksum of a file, computed once per process, and again when the file has changed."""
    try:
        now = path.stat()
        changed_ns = max(now.st_mtime_ns, now.st_ctime_ns)
        # A file that was written just now can be written again within the same tick of its clock.
        steady = time.time_ns() - changed_ns > _TICK_NS
        return (_digest if steady else _digest.__wrapped__)(path, now.st_ino, now.st_size, changed_ns)
    except OSError:
        return None


@functools.cache
def _digest(path: Path, _inode: int, _size_bytes: int, _changed_ns: int) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line: make the named groups available, or pin them again."""
    parser = argparse.ArgumentParser(
        prog="python -m herdmesh.devstack.jars", description="Fetch and check pinned jars."
    )
    parser.add_argument("groups", nargs="+", metavar="GROUP", help="broker or connect")
    parser.add_argument("--pin", action="store_true", help="fetch the jars of ivy.xml and write their checksums")
    options = parser.parse_args(arguments)
    groups: list[str] = options.groups
    try:
        for group in groups:
            count = pin(group) if options.pin else len(ensure_jars(group).split(os.pathsep))
            print(f"{group}: {count} jars, all sums match")
    except DevstackError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
