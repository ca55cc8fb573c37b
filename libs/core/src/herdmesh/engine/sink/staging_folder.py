"""Folder in which files are staged and published: the interface that `staging` needs, and the local file system.

Owns the protocol and the local folder. Names and manifests are in `staging`; file systems that need a library of their
own are with the connectors that use them.

Invariant: a file published by `publish` is complete, and replaced no other file.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Generator, Iterable
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, Protocol

from herdmesh.engine.runtime import TaskFailed

_NO_LINKS = frozenset((errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK))


class Files(Protocol):
    """One folder of a file system. Paths are relative to it, with forward slashes. Thread-safe."""

    @property
    def location(self) -> str:
        """Identifies the folder for other processes: an absolute path, or a URI."""
        ...

    @property
    def hidden(self) -> str:
        """Prefix of the paths of staged files: readers skip such files. Ends with a slash where a listing of the folder
        itself would be long.
        """
        ...

    @property
    def at_once(self) -> int:
        """How many parallel calls are useful: more than 1 if each waits for a network."""
        ...

    def writing(self, path: str) -> AbstractContextManager[Any]:
        """A binary stream into a new file. The content survives a power loss once the context ended without an
        error."""
        ...

    def read(self, path: str) -> bytes:
        """A whole small file. Raises FileNotFoundError."""
        ...

    def exists(self, path: str) -> bool:
        """Whether the file exists."""
        ...

    def publish(self, staged: str, published: str) -> bool:
        """Give the staged file its published name, completely or not at all, and create its folders; the staged file
        may stay. True = it is published, by this call or an earlier one; False = neither file exists.

        Raises:
            TaskFailed: a file with other content has the name; nothing is changed.
        """
        ...

    def sync(self, paths: Iterable[str]) -> None:
        """Return when the current names of these files would survive a power loss."""
        ...

    def delete(self, path: str) -> None:
        """Remove a staged file, if it exists."""
        ...

    def staged(self) -> list[str]:
        """The paths that begin with `hidden`."""
        ...


OpenFiles = Callable[[str], Files]
"""Opens the folder at a location. Raises ConfigError or TaskFailed."""


class LocalFiles:
    """A folder on a disk that every worker can access. Publishes by a hard link, which never replaces a file."""

    hidden = ".staged-"
    at_once = 1

    def __init__(self, folder: Path | str) -> None:
        self._folder = Path(folder)
        self.location = str(folder)

    @contextmanager
    def writing(self, path: str) -> Generator[Any]:
        with open(self._folder / path, "xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())

    def read(self, path: str) -> bytes:
        return (self._folder / path).read_bytes()

    def exists(self, path: str) -> bool:
        return (self._folder / path).exists()

    def publish(self, staged: str, published: str) -> bool:
        source, target = self._folder / staged, self._folder / published
        if "/" in published and source.exists():
            target.parent.mkdir(parents=True, exist_ok=True)
        try:
            os.link(source, target)
        except FileNotFoundError:
            return target.exists()
        except FileExistsError:
            if not _same_file(source, target):
                raise TaskFailed(
                    f"{target} already exists and is a different file; move it away, {source} waits to take its name"
                ) from None
        except OSError as error:
            if error.errno not in _NO_LINKS:
                raise
            return _rename(source, target)
        return True

    def sync(self, paths: Iterable[str]) -> None:
        folders = {parent for path in paths for parent in Path(path).parents}  # up to and including this folder
        for folder in folders:
            _sync_folder(self._folder / folder)

    def delete(self, path: str) -> None:
        (self._folder / path).unlink(missing_ok=True)

    def staged(self) -> list[str]:
        try:
            return [entry.name for entry in os.scandir(self._folder) if entry.name.startswith(self.hidden)]
        except FileNotFoundError:
            return []


def _same_file(staged: Path, published: Path) -> bool:
    """True also when the staged name no longer exists: then its owner has just published the file."""
    try:
        return staged.samefile(published)
    except FileNotFoundError:
        return published.exists()


def _rename(staged: Path, published: Path) -> bool:
    """Publish on file systems without hard links. The fence leaves one manifest per range of offsets, so only its
    publishers race here, with the same file.
    """
    if published.exists():
        return True
    try:
        os.rename(staged, published)
    except FileNotFoundError:
        return published.exists()
    return True


def _sync_folder(folder: Path) -> None:
    """Sync the folder; a deleted folder needs no sync."""
    try:
        descriptor = os.open(folder, os.O_RDONLY)
    except FileNotFoundError:
        return
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
