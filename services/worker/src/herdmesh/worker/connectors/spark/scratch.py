"""A folder of a run's own in the machine's temporary folder, gone with the run however that ends.

Owns its making, its end, and the removal of what runs left that were killed: each holds a lock on its folder for as
long as its process lives, so a folder whose lock is free is nobody's. Knows nothing of what is in it.

Invariant: no folder is removed whose owner lives. What a killed run left is gone when the next run on its machine has
made a folder.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Final

_PREFIX: Final = "herdmesh-spark-stream-"
_TRIES: Final = 3


class Scratch:
    """The folder, empty. Making it removes what dead runs left; raises OSError where none can be made."""

    def __init__(self) -> None:
        _remove_abandoned()
        for _ in range(_TRIES):
            self.path = Path(tempfile.mkdtemp(prefix=_PREFIX))
            self._lock = _locked(self.path)
            if self._lock is not None:
                return
            # Another run took it for a dead one's before it was locked; or this file system has no locks, and so
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


def _remove_abandoned() -> None:
    for path in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
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
