"""Scratch folders: temporary files of a process and of all processes that it starts, in one folder that is removed with
the process.

Owns the creation of such a folder in the system's temporary folder, its removal, the removal of folders that killed
processes left, and the JVM options that keep a JVM's files inside. A living process holds a lock on its folder, so a
folder whose lock is free has no owner. Does not interpret the contents of a folder.

Invariant: no folder is removed whose owner lives. A folder that a killed process left is removed when the next process
with the same prefix on this machine creates its own, or when a caller runs `remove_abandoned` (the supervisor of a
stack does).
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Lock
from types import TracebackType
from typing import Final, Self

WORKER: Final = "herd-worker-"
"""The prefix of a worker's folder, which has the files of its JVM and of its runs."""
_TRIES: Final = 3
_redirecting = Lock()


class ScratchFolder:
    """One empty folder, also as a context manager. Creating it removes abandoned folders of the same prefix.

    Raises OSError when no folder can be created.
    """

    def __init__(self, prefix: str) -> None:
        remove_abandoned(prefix)
        for _ in range(_TRIES):
            self.path = Path(tempfile.mkdtemp(prefix=prefix))
            self._lock = _locked(self.path)
            if self._lock is not None:
                return
            # Either another process removed it as abandoned before it was locked, or this file system has no locks. In
            # the second case no other process can lock it either, and so none removes it.
            with suppress(OSError):
                self.path.rmdir()
        self.path.mkdir(mode=0o700)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Remove the folder. A second call has no effect."""
        shutil.rmtree(self.path, ignore_errors=True)
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None


def remove_abandoned(prefix: str) -> None:
    """Remove all folders of this prefix whose owners are dead."""
    for path in Path(tempfile.gettempdir()).glob(f"{prefix}*"):
        if (lock := _locked(path)) is not None:
            shutil.rmtree(path, ignore_errors=True)
            os.close(lock)


def java_options(folder: Path | str) -> tuple[str, str]:
    """Options for a JVM that leaves no file outside `folder`, which must exist.

    The second option: a JVM otherwise publishes its counters in /tmp/hsperfdata_USER, whatever its temporary folder is.
    `jps` and `jstat` do not list such a JVM; `jcmd PID` and `jstack PID` work.
    """
    return f"-Djava.io.tmpdir={folder}", "-XX:+PerfDisableSharedMem"


@contextmanager
def temporary_files_in(folder: Path) -> Generator[None]:
    """Within the block, Python's `tempfile` uses `folder` in this process: for libraries that accept no folder. One
    caller at a time; others wait.
    """
    with _redirecting:
        before, tempfile.tempdir = tempfile.tempdir, str(folder)
        try:
            yield
        finally:
            tempfile.tempdir = before


def _locked(path: Path) -> int | None:
    """Lock a folder. The lock ends with this process, and no child inherits it. None = another process holds it, or the
    folder was removed or belongs to another user.
    """
    try:
        lock = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError:
        return None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.path.samestat(os.stat(path), os.fstat(lock)):  # otherwise the folder was removed meanwhile
            return lock
    except OSError:
        pass
    os.close(lock)
    return None
