"""Staging of files for sinks that write to a folder: stage, commit, publish (docs/design/worker.md, section 3).

Owns the names of staged files, the manifest that names them, publishing and cleaning. Does not write the files'
content, and does not commit; the file system's part is `staging_folder`.

    stage    a hidden file `.staged-<group>-<run>-<name>` is written and synced; no consumer reads it
    commit   the fenced offset commit carries the manifest: folder, prefix and names, or the name of a hidden file that
             has the names when they are many
    publish  each file gets its name, which never replaces one, and loses its hidden name

Who may do what: only the owner of a partition, after taking the fence, cleans its staged files or publishes the files
that its committed offset names. An earlier owner that still stages cannot commit any more, so its staged files are
never named.

An owner that was stopped after it took the fence may continue when others have owned the partition since. The files it
then publishes were committed. But it cleans only files that it saw *before* it took the fence: no later owner has
staged any of those.

Invariant: a published file is complete, named by a committed offset, and never changed or deleted here; a staged file
that a committed offset names is not deleted before it is published.
"""

from __future__ import annotations

import hashlib
import json
import logging
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar, cast

from herdmesh.connect.spi import PartitionId, StagingSinkTask
from herdmesh.engine.runtime import ManifestInvalid, OffsetsLost, TaskFailed
from herdmesh.engine.sink.staging_folder import Files, LocalFiles, OpenFiles

T = TypeVar("T")
R = TypeVar("R")

_TOPIC_CHARS_MAX = 120
_STAGED = re.compile(
    r"\.staged[-/](?P<group>[0-9a-f]{8})-(?P<run>[0-9a-f]{12})-(?P<topic>[^+/]+)\+(?P<partition>\d+)\+.*"
)
_LIST_SUFFIX = ".manifest"

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Manifest:
    """The files of one commit of one partition. The file that is published as `a/b/name` in `folder` is staged there as
    `prefix` + `name`."""

    folder: str
    prefix: str
    names: tuple[str, ...]
    listed: str = ""
    """Path of the staged file that has the names, as a JSON array; "" = `names` has them."""

    def encode(self) -> str:
        """The text for the offset metadata."""
        files = {"m": self.listed} if self.listed else {"f": self.names}
        return json.dumps({"d": self.folder, "p": self.prefix, **files}, separators=(",", ":"))

    @classmethod
    def decode(cls, text: str) -> Manifest:
        """The manifest of a text. Raises ManifestInvalid."""
        try:
            parsed = cast("Mapping[str, Any]", json.loads(text))
            folder, prefix = str(parsed["d"]), str(parsed["p"])
            if "m" in parsed:
                return cls(folder, prefix, (), str(parsed["m"]))
            return cls(folder, prefix, tuple(map(str, parsed["f"])))
        except (ValueError, KeyError, TypeError) as error:
            raise ManifestInvalid(f"the manifest in the offset metadata cannot be read: {text}") from error

    def staged_path(self, name: str) -> str:
        """Path in the folder of the staged form of a published file."""
        return self.prefix + name.rpartition("/")[2]

    def is_too_long(self) -> bool:
        """True when the broker might not accept the text, wrapped in JSON as the loop does."""
        return len(json.dumps(self.encode())) > StagingSinkTask.MANIFEST_BYTES_MAX

    def with_names(self, files: Files) -> Manifest | None:
        """The same manifest with all names; None = the file that has them is gone. Raises ManifestInvalid."""
        if not self.listed:
            return self
        try:
            names = cast("Sequence[Any]", json.loads(files.read(self.listed)))
            return Manifest(self.folder, self.prefix, tuple(map(str, names)), self.listed)
        except FileNotFoundError:
            return None
        except (ValueError, TypeError) as error:
            raise ManifestInvalid(f"the manifest {self.folder}/{self.listed} cannot be read") from error


class StagingFolder:
    """The staged and published files of one task in one folder.

    Create it in the task's `start`, which runs before the fence is taken: it cleans only files that exist at that
    moment.
    """

    def __init__(self, folder: Path | Files, group: str, run_id: str, open_files: OpenFiles = LocalFiles) -> None:
        """`folder`: a path is one of the local file system. `group`: the consumer group whose offsets carry the
        manifests. `run_id`: unique among all runs ever. `open_files`: opens the folders that earlier commits name.
        """
        self._files: Files = LocalFiles(folder) if isinstance(folder, Path) else folder
        self._open_files = open_files
        self._group = _digest(group, 8)
        self._prefix = f"{self._files.hidden}{self._group}-{_digest(run_id, 12)}-"
        self._found = self._files.staged()
        #: Files with names that belong to the last commit, and to the one before it.
        self._lists: list[str] = []
        self._lists_before: list[str] = []

    def new_name(
        self, partition: PartitionId, first_offset: int, last_offset: int, suffix: str, subfolder: str = ""
    ) -> str:
        """A name that no published file has: `<topic>+<partition>+<first>+<last><suffix>`, and a number when these
        offsets were published before, as after a rewind. `subfolder`: "" or `a/b`, created when the file is published.
        No two files of a partition that are staged at the same time may begin at one offset.

        Raises TaskFailed: the subfolder is outside of this folder, or hidden. A sink that derives it from records must
        escape such values, or refuse the record, before.
        """
        topic, number = partition
        stem = f"{short_topic(topic)}+{number}+{first_offset:010d}+{last_offset:010d}"
        if subfolder:
            check_inside(subfolder)
            stem = f"{subfolder}/{stem}"
        name, attempt = stem + suffix, 1
        while self._files.exists(name):
            attempt += 1
            name = f"{stem}+{attempt}{suffix}"
        return name

    def writing(self, name: str) -> AbstractContextManager[Any]:
        """A binary stream into the staged file that will be published under this name; durable after a context without
        error.
        """
        return self._files.writing(self._manifest([name]).staged_path(name))

    def each(self, write: Callable[[T], R], files: Sequence[T]) -> list[R]:
        """Call `write` for each file to be staged, in parallel if that is faster. Raises the error of a call."""
        return _each(self._files, write, files)

    def staged_path(self, name: str) -> Path:
        """In a local folder: path to write the file that will be published under this name. The writer syncs it."""
        return Path(self._files.location, self._manifest([name]).staged_path(name))

    def begin(self) -> None:
        """Call first at each `stage`: the commit after the last stage succeeded, so lists that only the commits before
        it named are deleted.
        """
        for path in self._lists_before:
            self._files.delete(path)
        self._lists_before, self._lists = self._lists, []

    def staged(self, names: Iterable[str]) -> Manifest:
        """The manifest of staged files of a partition; syncs the folder, so that their hidden names survive a power
        loss. If there are many names, they go into a staged file of their own.
        """
        manifest = self._manifest(names)
        paths = [manifest.staged_path(name) for name in manifest.names]
        if manifest.is_too_long():
            listed = paths[0] + _LIST_SUFFIX
            with self._files.writing(listed) as file:
                file.write(json.dumps(manifest.names).encode())
            self._lists.append(listed)
            paths.append(listed)
            manifest = Manifest(manifest.folder, manifest.prefix, (), listed)
        self._files.sync(paths)
        return manifest

    def recover(self, manifests: Mapping[PartitionId, Manifest | None]) -> None:
        """Take over these partitions: publish the files that their offsets name, delete all others staged for them.

        Raises:
            OffsetsLost: a named file exists neither staged nor published; raised after everything else is done.
        """
        lost: list[str] = []
        kept: set[str] = set()
        for manifest in filter(None, manifests.values()):
            full = manifest.with_names(self._open_files(manifest.folder))
            if full is None:  # any file of that run may belong to the commit
                kept.update(path for path in self._found if path.startswith(manifest.prefix))
            else:
                kept.update(map(full.staged_path, full.names))
            lost.extend(publish(manifest, self._open_files))
            if manifest.listed and manifest.folder == self._files.location:
                kept.add(manifest.listed)
                self._lists.append(manifest.listed)
        self._sweep(manifests.keys(), kept)
        if lost:
            raise OffsetsLost(
                f"committed files are neither staged nor published: {', '.join(lost)}; the records in them are lost "
                "unless somebody moved the published files"
            )

    def _manifest(self, names: Iterable[str]) -> Manifest:
        return Manifest(self._files.location, self._prefix, tuple(names))

    def _sweep(self, partitions: Collection[PartitionId], kept: Collection[str]) -> None:
        owned = {(short_topic(topic), str(number)) for topic, number in partitions}
        for path in self._found:
            found = _STAGED.fullmatch(path)
            if found is None or found["group"] != self._group or path in kept:
                continue
            if (found["topic"], found["partition"]) in owned:
                _log.info("deleting %s/%s, which was never committed", self._files.location, path)
                self._files.delete(path)


def publish(manifest: Manifest, open_files: OpenFiles = LocalFiles) -> list[str]:
    """Give the staged files of a committed manifest their names; a file that already has its name is not changed.

    Returns:
        Paths of files that exist neither staged nor published.

    Raises:
        TaskFailed: another file has the name; nothing is overwritten, and the staged file stays.
    """
    files = open_files(manifest.folder)
    full = manifest.with_names(files)
    if full is None:
        return [f"{manifest.folder}/{manifest.listed}"]
    is_there = _each(files, lambda name: files.publish(full.staged_path(name), name), full.names)
    # First the names, durably: a power loss must not leave a file without a name.
    files.sync(full.names)
    _each(files, files.delete, [full.staged_path(name) for name in full.names])
    return [f"{manifest.folder}/{name}" for name, there in zip(full.names, is_there, strict=True) if not there]


def _each(files: Files, call: Callable[[T], R], items: Sequence[T]) -> list[R]:
    if files.at_once == 1 or len(items) < 2:
        return [call(item) for item in items]
    with ThreadPoolExecutor(min(files.at_once, len(items)), thread_name_prefix="files") as pool:
        return list(pool.map(call, items))


def check_inside(subfolder: str) -> None:
    """Check that the path is relative to, and inside, its folder, with no hidden part. Raises TaskFailed."""
    if "\0" in subfolder or any(not part or part.startswith(".") for part in subfolder.split("/")):
        raise TaskFailed(f"{subfolder!r} is not a path of a subfolder: no part may be empty or begin with a dot")


def short_topic(topic: str) -> str:
    """The topic as part of a file name: long names are cut and get a digest that distinguishes them."""
    if len(topic) <= _TOPIC_CHARS_MAX:
        return topic
    return f"{topic[:_TOPIC_CHARS_MAX]}~{_digest(topic, 8)}"


def _digest(text: str, chars: int) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:chars]
