"""Prometheus' own checker, `promtool`: from PATH, or from the distribution's package, unpacked beside the jars.

Owns its discovery. A test that needs it calls `promtool()`, which skips the test with the reason where there is none.
"""

from __future__ import annotations

import fcntl
import functools
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from herdmesh.devstack.jars import cache_dir

_PACKAGE = "prometheus"
_HINT = "install promtool (Debian: apt install prometheus) and put it on PATH"
_TIMEOUT_S = 120.0


@functools.cache
def promtool() -> str:
    """Path of promtool. Skips the calling test where there is none and apt cannot fetch one."""
    found = shutil.which("promtool")
    if found is not None:
        return found
    folder = cache_dir() / "promtool"
    binary = folder / "root" / "usr" / "bin" / "promtool"
    if binary.exists():
        return str(binary)
    if shutil.which("apt-get") is None or shutil.which("dpkg-deb") is None:
        pytest.skip(f"there is no promtool, and no apt to fetch it with: {_HINT}")
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not binary.exists():
            _fetch(folder)
    return str(binary)


def run(*arguments: str, page: str = "", cwd: Path | None = None) -> tuple[int, str]:
    """Run promtool with `page` as its input. Returns exit status and output."""
    done = subprocess.run(
        [promtool(), *arguments], input=page, cwd=cwd, text=True, timeout=_TIMEOUT_S, check=False,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    return done.returncode, done.stdout


def _fetch(folder: Path) -> None:
    work = folder / "partial"
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir()
    download = subprocess.run(
        ["apt-get", "--quiet", "download", _PACKAGE], cwd=work, text=True, timeout=_TIMEOUT_S, check=False,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    archives = list(work.glob("*.deb"))
    if download.returncode != 0 or not archives:
        pytest.skip(f"there is no promtool, and apt cannot fetch it: {_HINT}\n{download.stdout[-500:]}")
    subprocess.run(["dpkg-deb", "-x", str(archives[0]), str(work / "root")], check=True, timeout=_TIMEOUT_S)
    shutil.rmtree(folder / "root", ignore_errors=True)
    os.rename(work / "root", folder / "root")
    shutil.rmtree(work)
