"""The search for a Java that can run the broker. Owns the search order and the version check, nothing else.

Order: `JAVA_HOME`, then `PATH` (Spark's order, so that both run on the same Java).
"""

from __future__ import annotations

import functools
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from herdmesh.devstack.errors import JavaMissing, JavaTooOld

JAVA_VERSION_MIN = 17
_INSTALL_HINT = (
    f"Install a Java {JAVA_VERSION_MIN}+ runtime (Debian/Ubuntu: apt install openjdk-17-jre-headless; "
    "Fedora: dnf install java-17-openjdk-headless; macOS: brew install openjdk@17) or point JAVA_HOME at one."
)
_VERSION_TIMEOUT_S = 30
_VERSION = re.compile(r'version "(?:1\.)?(\d+)')


@dataclass(frozen=True, slots=True)
class Java:
    """A checked Java: the executable and its major version (17, 21, ...)."""

    executable: Path
    version: int


def find_java() -> Java:
    """The Java to run the broker with.

    Raises `JavaMissing` (none found, or JAVA_HOME points nowhere) or `JavaTooOld` (naming the one found).
    """
    home = os.environ.get("JAVA_HOME")
    if home:
        executable = Path(home) / "bin" / "java"
        if not executable.is_file():
            raise JavaMissing(f"JAVA_HOME is {home}, but there is no bin/java in it. {_INSTALL_HINT}")
    else:
        found = shutil.which("java")
        if found is None:
            raise JavaMissing(f"No java in PATH, and JAVA_HOME is not set. {_INSTALL_HINT}")
        executable = Path(found)
    try:
        now = executable.stat()
    except OSError as error:
        raise JavaMissing(f"{executable} cannot be run: {error}. {_INSTALL_HINT}") from error
    version = _major_version(executable, now.st_ino, now.st_mtime_ns)
    if version < JAVA_VERSION_MIN:
        raise JavaTooOld(f"{executable} is Java {version}; {JAVA_VERSION_MIN} or newer is needed. {_INSTALL_HINT}")
    return Java(executable, version)


@functools.cache  # the check starts a JVM, and an unchanged file gives the same result
def _major_version(executable: Path, _inode: int, _changed_ns: int) -> int:
    try:
        done = subprocess.run(
            [str(executable), "-XX:+PerfDisableSharedMem", "-version"],
            capture_output=True,
            text=True,
            timeout=_VERSION_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise JavaMissing(f"{executable} cannot be run: {error}. {_INSTALL_HINT}") from error
    match = _VERSION.search(done.stderr + done.stdout)
    if match is None:
        # macOS ships a /usr/bin/java that only prompts for an installation.
        said = " ".join((done.stderr + done.stdout).split())[:200]
        raise JavaMissing(f"{executable} prints no version (its output: {said!r}). {_INSTALL_HINT}")
    return int(match[1])


def main() -> int:
    """Print the Java that will be used; exit 1 with the reason when there is none (called by `make setup`)."""
    try:
        java = find_java()
    except (JavaMissing, JavaTooOld) as error:
        print(error, file=sys.stderr)
        return 1
    print(f"Java {java.version} ({java.executable})")
    return 0


if __name__ == "__main__":
    sys.exit(main())
