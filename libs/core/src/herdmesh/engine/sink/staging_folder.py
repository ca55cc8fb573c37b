"""Folder in which files are staged and published: what `staging` needs of a file system, and the local one.

Owns the protocol and the local folder. Names and manifests are `staging`'s; file systems that need a library of their
own live with the connectors that use them.

Invariant: what `publish` gave its name is complete, and took no other file's place.
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
        """Names the folder for other processes: an absolute path, or a URI."""
        ...

    @property
    def hidden(self) -> str:
        """What paths of staged files begin with: readers skip such. Ends with a slash where a listing of the folder
        itself would be long."""
        ...

    @property
    def at_once(self) -> int:
        """How many calls are worth making side by side: more than 1 where each waits for a network."""
        ...

    def writing(self, path: str) -> AbstractContextManager[Any]:
        """A binary stream into a new file. What was written would survive a power cut once the context ended without
        an error."""
        ...

    def read(self, path: str) -> bytes:
        """A whole small file. Raises FileNotFoundError."""
        ...

    def exists(self, path: str) -> bool:
        """Whether there is such a file."""
        ...

    def publish(self, staged: str, published: str) -> bool:
        """Have the staged file under its published name, whole or not at all, making folders on the way; the staged one
        may stay. True = it is there, by this call or an earlier one; False = neither exists.

        Raises:
            TaskFailed: a file with other content has the name; nothing is changed.
        """
        ...

    def sync(self, paths: Iterable[str]) -> None:
        """Return when the names of these files, as they are now, would survive a power cut."""
        ...

    def delete(self, path: str) -> None:
        """Remove a staged file, if it is there."""
        ...

    def staged(self) -> list[str]:
        """The paths that begin with `hidden`."""
        ...


OpenFiles = Callable[[str], Files]
"""The folder at a location. Raises ConfigError or TaskFailed."""


class LocalFiles:
    """A folder on a disk that every worker sees. Publishes by a hard link, which never replaces a file."""

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
                    f"{target} exists already and is another file; {source} waits to take its name"
                ) from None
        except OSError as error:
            if error.errno not in _NO_LINKS:
                raise
            return _rename(source, target)
        return True

    def sync(self, paths: Iterable[str]) -> None:
        folders = {parent for path in paths for parent in Path(path).parents}  # up to this folder itself
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
    """True also when the staged name is gone by now: then its owner has just published it."""
    try:
        return staged.samefile(published)
    except FileNotFoundError:
        return published.exists()


def _rename(staged: Path, published: Path) -> bool:
    """For file systems without hard links. The fence leaves one manifest per range of offsets, so only its publishers
    race here, with the same file."""
    if published.exists():
        return True
    try:
        os.rename(staged, published)
    except FileNotFoundError:
        return published.exists()
    return True


def _sync_folder(folder: Path) -> None:
    """Of a folder that is gone there is nothing to keep."""
    try:
        descriptor = os.open(folder, os.O_RDONLY)
    except FileNotFoundError:
        return
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
