"""Location of files: the parsed key `directory`, and the opened folder.

Owns the kinds of locations and the errors of unusable ones. The local folder: `engine.files`; all others:
`remote_files`, which is imported when one is opened, so that a worker without such targets need not import pyarrow.

    /data/out, file:///data/out      a disk that every worker sees
    s3://bucket/folder               S3, or a service with its protocol (`s3.endpoint`); s3a and s3n mean the same
    hdfs://host:8020/folder          any other scheme: the file system that Hadoop's client has for it

Invariant: an open location names its folder in the same way in every process, without secrets.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from herdmesh.sdk import ConfigError, Files, LocalFiles, OpenFiles

DIRECTORY = "directory"
S3_REGION, S3_ENDPOINT = "s3.region", "s3.endpoint"
S3_ACCESS_KEY, S3_SECRET_KEY = "aws.access.key.id", "aws.secret.access.key"
HADOOP_USER = "hadoop.user"
_DIRECTORY_BYTES_MAX = 2_000
"""Maximum length of the location: it is part of the offset metadata, whose size the broker limits to 4096 bytes."""
_PATH_BYTES_MAX = {"file": 4_095, "s3": 1_024}
"""Maximum bytes of a whole path (Linux), and of an object's key."""
_HADOOP_PATH_BYTES_MAX = 8_000
_FILE_NAME_BYTES_MAX = 230
"""Bytes reserved for the name of a published file: topic, partition, offsets, a number and the format."""
_URI = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*)://(?P<authority>[^/]*)/?(?P<path>.*)")
_S3 = frozenset(("s3", "s3a", "s3n"))
_ENDPOINT = re.compile(r"(?:(?P<scheme>https?)://)?(?P<address>[^/\s]+)/?")


@dataclass(frozen=True, slots=True)
class Location:
    """The parts of a folder's location."""

    scheme: str
    """`file`, `s3`, or a scheme of Hadoop's."""
    authority: str
    """The bucket, or host and port; "" for a local folder."""
    path: str
    """Absolute path of a local folder, else a path without slashes at its ends; "" = the bucket itself."""

    @classmethod
    def parse(cls, directory: str) -> Location:
        """Parse the folder in a config. Raises ConfigError for the field `directory`."""
        found = _URI.fullmatch(directory)
        if found is None:
            return cls("file", "", os.path.abspath(directory))
        scheme, path = found["scheme"].lower(), found["path"].strip("/")
        if scheme == "file":
            return cls("file", "", os.path.abspath(f"/{path}"))
        if scheme in _S3 and not found["authority"]:
            raise ConfigError(f"{DIRECTORY}: {directory} names no bucket", field=DIRECTORY, fix="s3://BUCKET/FOLDER")
        if any(part in ("", ".", "..") for part in path.split("/") if path):
            fix = "write the folder without empty parts, . and .."
            raise ConfigError(f"{DIRECTORY}: {directory} is not a plain folder path", field=DIRECTORY, fix=fix)
        return cls("s3" if scheme in _S3 else scheme, found["authority"], path)

    @property
    def text(self) -> str:
        """The location as written in manifests: a path of the local file system, else a URI."""
        if self.scheme == "file":
            return self.path
        return f"{self.scheme}://{self.authority}/{self.path}".rstrip("/")

    @property
    def subfolder_bytes_max(self) -> int:
        """Maximum bytes of the path of a subfolder, so that file names in it fit."""
        whole = _PATH_BYTES_MAX.get(self.scheme, _HADOOP_PATH_BYTES_MAX)
        return whole - len(os.fsencode(self.path)) - _FILE_NAME_BYTES_MAX - len("//")


@dataclass(frozen=True, slots=True)
class Access:
    """Endpoint and credentials of a remote file system."""

    s3_region: str | None = None
    """None = from the AWS environment."""
    s3_endpoint: str | None = None
    """`http://host:port` of a server with S3's protocol; None = AWS."""
    s3_access_key: str | None = field(default=None, repr=False)
    """None = from the AWS environment, or the machine's role."""
    s3_secret_key: str | None = field(default=None, repr=False)
    hadoop_user: str | None = None

    @classmethod
    def of(cls, settings: Mapping[str, Any]) -> Access:
        """Read the values of keys. Raises ConfigError."""
        keys = (S3_REGION, S3_ENDPOINT, S3_ACCESS_KEY, S3_SECRET_KEY, HADOOP_USER)
        found = cls(*(settings.get(key) or None for key in keys))
        if (found.s3_access_key is None) != (found.s3_secret_key is None):
            missing = S3_SECRET_KEY if found.s3_secret_key is None else S3_ACCESS_KEY
            raise ConfigError(
                f"{missing} is missing: both keys are needed for a login", field=missing, fix="set both, or neither"
            )
        found.s3_address()
        return found

    def s3_address(self) -> tuple[str, str | None]:
        """Return the scheme, and host and port, of the endpoint; None = AWS's own. Raises ConfigError."""
        if self.s3_endpoint is None:
            return "https", None
        found = _ENDPOINT.fullmatch(self.s3_endpoint)
        if found is None:
            raise ConfigError.for_value(
                S3_ENDPOINT, self.s3_endpoint, "not a server address", fix="http://HOST:PORT or https://HOST"
            )
        return found["scheme"] or "https", found["address"]


def opener(access: Access) -> OpenFiles:
    """Return a function that opens the folder at a location, written
    as in a manifest or as in a config, and caches the folder.
    """

    @cache
    def open_files(text: str) -> Files:
        location = Location.parse(text)
        if location.scheme == "file":
            return LocalFiles(location.path)
        from herdmesh.connectors.files import remote_files  # imported late, see the module's docstring

        return remote_files.open_folder(location, access)

    return open_files


def problem_of(directory: str, access: Access) -> ConfigError | None:
    """Return the reason why files cannot be written there, or None. Writes a test file; leaves nothing behind except,
    where there was none, an empty folder for staged objects.
    """
    try:
        location = Location.parse(directory)
        if location.scheme == "file":
            return folder_problem(Path(location.path))
        if len(os.fsencode(location.text)) > _DIRECTORY_BYTES_MAX:
            return _too_long()
        from herdmesh.connectors.files import remote_files  # imported late, see the module's docstring

        with closing(remote_files.open_folder(location, access, remote_files.ATTEMPTS_OF_PROBE)) as folder:
            folder.probe()
    except ConfigError as problem:
        return problem
    return None


def folder_problem(folder: Path) -> ConfigError | None:
    """Return the reason why files cannot be written to a local folder, or None.

    Writes a test file, because permission bits do not apply to root
    and do not show a read-only or full disk. Leaves nothing behind.
    """
    absolute = folder.absolute()
    if len(os.fsencode(absolute)) > _DIRECTORY_BYTES_MAX:
        return _too_long()
    existing = absolute
    while not existing.exists() and existing != existing.parent:
        existing = existing.parent
    if not existing.is_dir():
        return ConfigError(f"{DIRECTORY}: {existing} is not a folder", field=DIRECTORY, fix="name another folder")
    try:
        with TemporaryDirectory(prefix=".herdmesh-probe-", dir=existing) as probe:
            (Path(probe) / "file").write_bytes(b"x")
    except OSError as error:
        fix = f"name a folder that this worker may write to, or grant it write permission on {existing}"
        return ConfigError(f"{DIRECTORY}: {absolute} cannot be written: {error.strerror}", field=DIRECTORY, fix=fix)
    return None


def make_folder(location: Location) -> None:
    """Create a local folder; on other file systems folders are created with their files. Raises ConfigError."""
    if location.scheme != "file":
        return
    folder = Path(location.path)
    problem = folder_problem(folder)
    if problem is not None:
        raise problem
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"{DIRECTORY}: {folder} cannot be created: {error.strerror}", field=DIRECTORY) from error


def _too_long() -> ConfigError:
    return ConfigError(f"{DIRECTORY}: the path is longer than {_DIRECTORY_BYTES_MAX} bytes", field=DIRECTORY)
