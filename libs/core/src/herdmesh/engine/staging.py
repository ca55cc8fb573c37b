"""Stage, commit, publish for sinks that write files to a folder (design section 6).

Owns the names of staged files, the manifest that names them, publishing and cleaning. Does not write the files'
content, and does not commit.

    stage    a hidden file `.staged-<group>-<run>-<name>` is written and synced; nobody reads it
    commit   the fenced offset commit carries the manifest: folder, prefix and names
    publish  each file gets its name by a hard link, which never replaces one, and loses its hidden name

Who may do what: only the owner of a partition, after taking the fence, cleans its staged files or publishes what its
committed offset names. An earlier owner that still stages cannot commit any more, so what it stages is never named.

Invariant: a published file is complete, named by a committed offset, and never changed or deleted here.
"""

from __future__ import annotations

import errno
import hashlib
import json
import logging
import os
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from herdmesh.connect.connector import PartitionId
from herdmesh.engine.errors import ManifestInvalid, OffsetsLost, TaskFailed

_TOPIC_CHARS_MAX = 120
_STAGED = re.compile(r"\.staged-(?P<group>[0-9a-f]{8})-(?P<run>[0-9a-f]{12})-(?P<topic>[^+]+)\+(?P<partition>\d+)\+.*")
_NO_LINKS = frozenset((errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK))

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Manifest:
    """The files of one commit of one partition: hidden as `prefix` + name in `folder`."""

    folder: str
    prefix: str
    names: tuple[str, ...]

    def encode(self) -> str:
        """As text for the offset metadata."""
        return json.dumps({"d": self.folder, "p": self.prefix, "f": self.names}, separators=(",", ":"))

    @classmethod
    def decode(cls, text: str) -> Manifest:
        """From the text. Raises ManifestInvalid."""
        try:
            parsed = cast("Mapping[str, Any]", json.loads(text))
            return cls(str(parsed["d"]), str(parsed["p"]), tuple(map(str, parsed["f"])))
        except (ValueError, KeyError, TypeError) as error:
            raise ManifestInvalid(f"the manifest in the offset metadata cannot be read: {text}") from error


class StagingFolder:
    """The staged and published files of one task in one folder."""

    def __init__(self, folder: Path, group: str, run_id: str) -> None:
        """`group`: the consumer group whose offsets carry the manifests. `run_id`: unique among all runs ever."""
        self._folder = folder
        self._group = _digest(group, 8)
        self._prefix = f".staged-{self._group}-{_digest(run_id, 12)}-"

    def new_name(self, partition: PartitionId, first_offset: int, last_offset: int, suffix: str) -> str:
        """A name no published file has: `<topic>+<partition>+<first>+<last><suffix>`, and a number when these offsets
        were published before, as after a rewind."""
        topic, number = partition
        stem = f"{short_topic(topic)}+{number}+{first_offset:010d}+{last_offset:010d}"
        name, attempt = stem + suffix, 1
        while (self._folder / name).exists():
            attempt += 1
            name = f"{stem}+{attempt}{suffix}"
        return name

    def staged_path(self, name: str) -> Path:
        """Where to write the file that will be published under this name."""
        return self._folder / (self._prefix + name)

    def staged(self, names: Iterable[str]) -> Manifest:
        """The manifest of staged files; syncs the folder, so that their hidden names survive a power cut."""
        _sync_folder(self._folder)
        return Manifest(str(self._folder), self._prefix, tuple(names))

    def recover(self, manifests: Mapping[PartitionId, Manifest | None]) -> None:
        """Take over these partitions: publish what their offsets name, delete what else was staged for them.

        Raises:
            OffsetsLost: a named file exists neither staged nor published; raised after all else is done.
        """
        lost: list[str] = []
        kept: set[str] = set()
        for manifest in filter(None, manifests.values()):
            lost.extend(publish(manifest))
            kept.update(manifest.prefix + name for name in manifest.names)
        self._sweep(manifests.keys(), kept)
        if lost:
            raise OffsetsLost(
                f"committed files are neither staged nor published: {', '.join(lost)}; the records in them are lost "
                "unless somebody moved the published files"
            )

    def _sweep(self, partitions: Collection[PartitionId], kept: Collection[str]) -> None:
        owned = {(short_topic(topic), str(number)) for topic, number in partitions}
        for entry in os.scandir(self._folder):
            found = _STAGED.fullmatch(entry.name)
            if found is None or found["group"] != self._group or entry.name in kept:
                continue
            if (found["topic"], found["partition"]) in owned:
                _log.info("deleting %s, which was never committed", entry.path)
                Path(entry.path).unlink(missing_ok=True)


def publish(manifest: Manifest) -> list[str]:
    """Give the staged files of a committed manifest their names; a file that already has its name is left alone.

    Returns:
        Paths of files that exist neither staged nor published.

    Raises:
        TaskFailed: another file has the name; nothing is overwritten, and the staged file stays.
    """
    folder = Path(manifest.folder)
    lost = [
        str(folder / name)
        for name in manifest.names
        if not _publish_one(folder / (manifest.prefix + name), folder / name)
    ]
    if folder.is_dir():
        _sync_folder(folder)
    return lost


def _publish_one(staged: Path, published: Path) -> bool:
    """True when the file has its name now, by us or by another owner before us."""
    try:
        os.link(staged, published)
    except FileNotFoundError:
        return published.exists()
    except FileExistsError:
        if not _same_file(staged, published):
            raise TaskFailed(
                f"{published} exists already and is another file; {staged} waits to take its name"
            ) from None
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        return _rename(staged, published)
    staged.unlink(missing_ok=True)
    return True


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
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def short_topic(topic: str) -> str:
    """The topic as part of a file name: long names are cut and told apart by a digest."""
    if len(topic) <= _TOPIC_CHARS_MAX:
        return topic
    return f"{topic[:_TOPIC_CHARS_MAX]}~{_digest(topic, 8)}"


def _digest(text: str, chars: int) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:chars]
