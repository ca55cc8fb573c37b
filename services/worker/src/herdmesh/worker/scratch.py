"""A folder of a process' own in the machine's temporary folder, gone with the process however that ends.

Owns its making, its end, and the removal of what processes left that were killed: each holds a lock on its folder for
as long as it lives, so a folder whose lock is free is nobody's. Knows nothing of what is in it: a worker's
(`spark.session`) has all that its JVM, its Python processes and their crashes leave; a run of `SparkStreamSource` has
one of its own in there.

Invariant: no folder is removed whose owner lives. What a killed owner left is gone when the next one of its kind on its
machine has made a folder.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Final

_TRIES: Final = 3


class Scratch:
    """The folder, empty. Making it removes what dead owners left of the same `prefix`; raises OSError where none can be
    made."""

    def __init__(self, prefix: str) -> None:
        _remove_abandoned(prefix)
        for _ in range(_TRIES):
            self.path = Path(tempfile.mkdtemp(prefix=prefix))
            self._lock = _locked(self.path)
            if self._lock is not None:
                return
            # Another owner took it for a dead one's before it was locked; or this file system has no locks, and so
            # nobody takes it for one.
            with suppress(OSError):
                self.path.rmdir()
        self.path.mkdir(mode=0o700)

    def close(self) -> None:
        """Remove it. Harmless when it is closed."""
        shutil.rmtree(self.path, ignore_errors=True)
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None


def _remove_abandoned(prefix: str) -> None:
    for path in Path(tempfile.gettempdir()).glob(f"{prefix}*"):
        if (lock := _locked(path)) is not None:
            shutil.rmtree(path, ignore_errors=True)
            os.close(lock)


def _locked(path: Path) -> int | None:
    """The lock of a folder, which ends with this process (no other inherits it). None = another has it, or the folder
    is gone, or another user's."""
    try:
        lock = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError:
        return None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.path.samestat(os.stat(path), os.fstat(lock)):  # else it was removed meanwhile
            return lock
    except OSError:
        pass
    os.close(lock)
    return None
