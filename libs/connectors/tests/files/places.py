"""Folders for staging and publishing, one of each kind, with functions that list their files.

Owns no test. Invariant: a place is empty when it is created, and no two share a folder.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pyarrow import fs

from herdmesh.connectors.files.hadoop import HadoopFileSystem, HadoopJvm, shared_jvm
from herdmesh.connectors.files.locations import Access, Location, opener
from herdmesh.connectors.files.remote_files import RemoteFiles
from herdmesh.engine.sink.staging_folder import Files, LocalFiles
from libs.connectors.tests.files.s3_server import BUCKET, client, keys_for

_fs: Any = fs
KINDS = ("local", "copying", "renaming", "s3", "hdfs")
"""`copying` and `renaming` are pyarrow's local file system with publishing as on S3 and as on Hadoop."""
_SITE = """\
<configuration><property>
  <name>fs.viewfs.mounttable.tests.link./files</name><value>file://{folder}</value>
</property></configuration>
"""


@dataclass
class Place:
    """A folder."""

    directory: str
    """Name of the folder in manifests."""
    look: Callable[[], dict[str, bytes]]
    """Returns every file in it, by path."""
    open: Callable[[str], Files]
    """Opens a location with a new opener."""
    config: Mapping[str, str] = field(default_factory=dict[str, str])
    """Settings with which a connector reaches it."""

    def files(self) -> Files:
        return self.open(self.directory)

    def visible(self) -> dict[str, bytes]:
        return {path: data for path, data in self.look().items() if not path.startswith(".")}

    def hidden(self) -> list[str]:
        return sorted(path for path in self.look() if path.startswith("."))


def local_place(folder: Path, kind: str = "local") -> Place:
    """Return a folder of the local file system, accessed in one of three ways."""
    folder.mkdir(parents=True, exist_ok=True)

    def look() -> dict[str, bytes]:
        return {
            str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()
        }

    def open_remote(location: str) -> Files:
        system = _fs.SubTreeFileSystem(location, _fs.LocalFileSystem())
        return RemoteFiles(system, "", location, renames=kind == "renaming")

    return Place(str(folder), look, LocalFiles if kind == "local" else open_remote)


def s3_place(endpoint: str) -> Place:
    """Return a folder of the bucket."""
    root = f"{BUCKET}/{uuid.uuid4().hex}"
    config = {**keys_for(endpoint), "s3.region": "us-east-1"}

    def look() -> dict[str, bytes]:
        system = client(endpoint)
        found = system.get_file_info(_fs.FileSelector(root, recursive=True, allow_not_found=True))
        paths = sorted(one.path for one in found if one.type == _fs.FileType.File)
        return {path.removeprefix(f"{root}/"): _content(system, path) for path in paths}

    return Place(f"s3://{root}", look, lambda location: opener(Access.of(config))(location), config)


def _content(system: Any, path: str) -> bytes:
    with system.open_input_stream(path, compression=None) as stream:
        return stream.read()


def hadoop_conf(folder: Path) -> Path:
    """Write Hadoop's settings to a folder; return the subfolder that they map to `viewfs://tests/files`."""
    seen = folder / "files"
    seen.mkdir()
    (folder / "core-site.xml").write_text(_SITE.format(folder=seen))
    return seen


def hdfs_place(url: str) -> Place:
    """Return a folder of the HDFS."""
    return hadoop_place(shared_jvm(), f"{url}/tests/{uuid.uuid4().hex}")


def hadoop_place(jvm: HadoopJvm, root: str) -> Place:
    """Return a folder of Hadoop's."""
    location = Location.parse(root)

    system = HadoopFileSystem(jvm, f"{location.scheme}://{location.authority}", None)

    def open_hadoop(text: str) -> Files:
        return RemoteFiles(system, f"/{Location.parse(text).path}/", text, renames=True)

    def look() -> dict[str, bytes]:
        found: dict[str, bytes] = {}
        folders = [f"/{location.path}"]
        while folders:
            try:
                entries = system.get_file_info(_fs.FileSelector(folders.pop()))
            except FileNotFoundError:
                continue
            folders += [one.path for one in entries if one.type == _fs.FileType.Directory]
            for path in (one.path for one in entries if one.type == _fs.FileType.File):
                with system.open_input_stream(path) as stream:
                    found[path.removeprefix(f"/{location.path}/")] = stream.read()
        return dict(sorted(found.items()))

    return Place(root, look, open_hadoop)
