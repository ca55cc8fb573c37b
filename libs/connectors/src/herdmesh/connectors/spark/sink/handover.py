"""Staging folder of files that are committed but not yet written to the target by Spark.

Owns publishing for this sink: Spark writes the staged file's rows to the target, and then the file gets its name as the
mark that it was written. Names, manifests, the fence and cleaning: `engine.staging`.

    stage    `.staged/<group>-<run>-<name>` is written and synced; Spark does not read it by itself
    commit   the fenced offset commit names it
    publish  Spark writes its rows to the target; then it gets its name and loses the hidden one
    later    the named file is deleted when a later commit names others

Invariant: a file has its name only if the target has its rows; a
file named by a committed offset exists under one of its two names.
"""

from __future__ import annotations

import hashlib
import os
import re
import uuid
from collections.abc import Callable, Collection, Generator, Iterable
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from herdmesh.engine.sink import short_topic
from herdmesh.sdk import LocalFiles, PartitionId, TaskFailed

Write = Callable[[Path, str], None]
"""Function that makes Spark write the rows of a Parquet file of this name to the target. Must do nothing if the target
keeps numbers and has the rows.
"""
_IDENTITY = ".identity"
_NAME = re.compile(r"(?P<topic>[^+]+)\+(?P<partition>\d+)\+\d+\+\d+(\+\d+)?(\+n(?P<number>\d+))?\.parquet")


class HandoverFolder(LocalFiles):
    """The files of one connector."""

    hidden = ".staged/"

    def __init__(self, folder: Path | str, write: Write) -> None:
        super().__init__(folder)
        self._at = Path(folder)
        self._write = write

    @contextmanager
    def writing(self, path: str) -> Generator[Any]:
        (self._at / path).parent.mkdir(parents=True, exist_ok=True)
        with super().writing(path) as file:
            yield file

    def publish(self, staged: str, published: str) -> bool:
        if self.exists(published):
            return True
        source = self._at / staged
        if not source.exists():
            return False
        self._write(source, published)
        return super().publish(staged, published)

    def staged(self) -> list[str]:
        return [self.hidden + name for name in _names_in(self._at / self.hidden)]

    def written_files(self) -> list[str]:
        """Return the names of files whose rows the target has."""
        return [name for name in _names_in(self._at) if _NAME.fullmatch(name)]

    def forget(self, names: Iterable[str]) -> None:
        """Delete such files, which no committed offset names any more."""
        for name in names:
            self.delete(name)


def folder_of(staging_directory: Path, group: str) -> Path:
    """Return the connector's own folder: the files of two connectors that read one topic must not mix."""
    readable = re.sub(r"[^A-Za-z0-9._-]", "_", group)[:80]
    return staging_directory / f"{readable}-{hashlib.sha256(group.encode()).hexdigest()[:8]}"


def suffix_of(number: int | None) -> str:
    """Return the suffix of file names with this number, for `number_of`."""
    return ".parquet" if number is None else f"+n{number}.parquet"


def number_of(name: str) -> int | None:
    """Return the number in a file's name, None = it has none."""
    found = _NAME.fullmatch(name)
    return int(found["number"]) if found and found["number"] else None


def identity_of(folder: Path) -> str:
    """Return a text unique to this folder, created at the first call. Two clusters may have connectors, topics and
    folders of the same names, and write to one database: their numbers must not be confused.
    """
    files = LocalFiles(folder)
    if not files.exists(_IDENTITY):
        fresh = f"{_IDENTITY}-{uuid.uuid4().hex}"
        with files.writing(fresh) as stream:
            stream.write(uuid.uuid4().hex[:12].encode())
        with suppress(TaskFailed):  # another task created it first
            files.publish(fresh, _IDENTITY)
        files.sync([_IDENTITY])
        files.delete(fresh)
    return files.read(_IDENTITY).decode()


def writer_of(group: str, name: str, identity: str) -> str:
    """Return the writer of a file's number: one for each
    connector and partition, of the folder with this identity.
    """
    topic, partition = name.split("+")[:2]
    return f"{group}/{topic}-{partition}@{identity}"


def of_partitions(names: Iterable[str], partitions: Collection[PartitionId]) -> list[str]:
    """Return the names of files of these partitions."""
    owned = {(short_topic(topic), str(number)) for topic, number in partitions}
    return [name for name in names if tuple(name.split("+")[:2]) in owned]


def _names_in(folder: Path) -> list[str]:
    try:
        return [entry.name for entry in os.scandir(folder) if entry.is_file()]
    except FileNotFoundError:
        return []
