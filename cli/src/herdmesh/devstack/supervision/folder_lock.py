"""The lock of a data folder: one supervisor, or one command that ends a killed supervisor's services, at a time.

Owns the file `stack.lock` with the pid of its holder. Invariant: the kernel releases the lock when the holder ends,
however it ends; no process that the holder starts inherits it.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from types import TracebackType
from typing import IO

from herdmesh.devstack.errors import DataFolderUnusable, StackAlreadyRunning
from herdmesh.devstack.layout import StackLayout


class FolderLock:
    """The lock of one folder, which exists. Also a context manager."""

    def __init__(self, layout: StackLayout) -> None:
        self._layout = layout
        self._file: IO[str] | None = None

    def take(self) -> None:
        """Raises `StackAlreadyRunning` when another process holds it, `DataFolderUnusable`."""
        try:
            file = self._layout.lock_file.open("a+")
        except OSError as error:
            raise DataFolderUnusable(self._layout.data_dir, error) from error
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            pid = _pid_in(file)
            file.close()
            raise StackAlreadyRunning(self._layout.data_dir, pid) from None
        except OSError as error:  # a file system without locks
            file.close()
            raise DataFolderUnusable(self._layout.data_dir, error) from error
        # On a full disk the lock has no pid: `herd down` works all the same.
        with contextlib.suppress(OSError):
            os.ftruncate(file.fileno(), 0)
            os.write(file.fileno(), f"{os.getpid()}\n".encode())
        self._file = file

    def release(self) -> None:
        """No effect when it is not held."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def __enter__(self) -> FolderLock:
        self.take()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()


def _pid_in(file: IO[str]) -> int | None:
    file.seek(0)
    text = file.read().strip()
    return int(text) if text.isdecimal() else None
