"""Folders of remote file systems: S3 and services with its protocol, by pyarrow; Hadoop's, by Hadoop's client.

Owns publishing of staged objects, and the classification of these file systems' errors. Locations: `locations`.

    S3        an object appears whole when its upload ends. Publish = copy within S3, then delete the staged one.
    Hadoop    publish = rename.

S3 cannot create an object "unless the name is taken", and Hadoop's file systems differ in renaming to a name that is
taken (HDFS refuses it), so the name is checked before. A staged file belongs to one run, and its name to one commit, so
all processes that publish it copy the same bytes, and a run that arrives after it was published and deleted finds
nothing to copy. The check cannot detect another connector that publishes the same name in between: two connectors that
write one topic to one folder cannot be distinguished (on a local disk the hard link detects it).

Invariant: a published object is never overwritten by one with other content, except in that case.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Generator, Iterable
from contextlib import ExitStack, contextmanager
from typing import Any, Protocol, runtime_checkable

from pyarrow import fs

from herdmesh.connectors.files.locations import (
    DIRECTORY,
    HADOOP_USER,
    S3_ACCESS_KEY,
    S3_ENDPOINT,
    S3_REGION,
    Access,
    Location,
)
from herdmesh.sdk import ConfigError, RetriableError, TaskFailed, UnreachableError, waits

_fs: Any = fs
"""Untyped: the stubs lack what newer versions have."""
AT_ONCE = 8
ATTEMPTS, ATTEMPTS_OF_PROBE = 5, 2
"""Attempts of a request to S3: a few seconds in all before the run fails and is retried, fewer when a user waits."""
CONNECT_TIMEOUT_S = 5
REQUEST_TIMEOUT_S = 60
"""S3 responds to the copy of a large object only when it is complete."""
_COMPARED_BYTES = 1 << 20
_JARS = "use file or s3, or give workers the jars of this file system (HERDMESH_SPARK_JARS)"
_HOPELESS = {
    "NO_SUCH_BUCKET": (DIRECTORY, "create the bucket, or name another"),
    "ACCESS_DENIED": (DIRECTORY, "grant these credentials the right to list, read, write and delete objects there"),
    "INVALID_ACCESS_KEY_ID": (S3_ACCESS_KEY, "use keys that exist at this endpoint"),
    "SIGNATURE_DOES_NOT_MATCH": (S3_ACCESS_KEY, "check the two keys"),
    "AccessControlException": (DIRECTORY, f"grant the user write permission there, or name another ({HADOOP_USER})"),
    "No FileSystem for scheme": (DIRECTORY, _JARS),
    "ClassNotFoundException": (DIRECTORY, _JARS),
    "is not a valid DFS filename": (
        DIRECTORY,
        "HDFS does not allow a colon in a name: check the folders of the partitioner",
    ),
}
"""Errors of S3 and Hadoop that a retry cannot fix: the key to change and the fix."""
_NO_RESPONSE = re.compile(
    "NETWORK_CONNECTION|curlCode|connection refused|timed out|millis timeout|UnknownHost|NoRouteToHost|"
    "ConnectException",
    re.IGNORECASE,
)
"""Errors of S3 and Hadoop that mean that the storage cannot be reached."""
_REQUEST_ID = re.compile(r"\s*\(?Request ID:[^)]*\)?")


@runtime_checkable
class Closes(Protocol):
    """A file system with resources to close."""

    def close(self) -> None:
        """Release the resources."""
        ...


class RemoteFiles:
    """A folder of one of pyarrow's file systems, or of a file system with the part of that interface used here."""

    hidden = ".staged/"
    at_once = AT_ONCE

    def __init__(self, system: Any, prefix: str, location: str, *, renames: bool) -> None:
        """`prefix`: prefix of the folder's paths in the file system, with a slash at
        the end or "". `location`: the folder's name in manifests. `renames`: publish
        by a rename, which must be atomic; else by a copy, which must be atomic.
        """
        self._system = system
        self._prefix = prefix
        self.location = location
        self._renames = renames

    @contextmanager
    def writing(self, path: str) -> Generator[Any]:
        with self._translating(f"writing {path}"), ExitStack() as stack:
            with waits.on(self.location, f"opening {path}"):
                self._make_folder_of(path)
                # A stream that an error closes may leave an object. It is never named in a manifest, and is swept.
                stream = stack.enter_context(self._system.open_output_stream(self._path(path), compression=None))
            yield stream
            with waits.on(self.location, f"uploading the rest of {path}"):
                stack.close()

    def read(self, path: str) -> bytes:
        with (
            self._errors_translated(f"reading {path}"),
            self._system.open_input_stream(self._path(path), compression=None) as stream,
        ):
            return stream.read()

    def exists(self, path: str) -> bool:
        with self._errors_translated(f"looking for {path}"):
            return self._system.get_file_info(self._path(path)).type == _fs.FileType.File

    def publish(self, staged: str, published: str) -> bool:
        if self.exists(published):
            if self.exists(staged) and not self._are_same(staged, published):
                raise TaskFailed(
                    f"{self.location}/{published} already exists and is a different file; move it away, {staged} waits "
                    "to take its name"
                )
            return True
        source, target = self._path(staged), self._path(published)
        with self._errors_translated(f"publishing {published}"):
            self._make_folder_of(published)
            try:
                if self._renames:
                    self._system.move(source, target)
                else:
                    self._system.copy_file(source, target)
            except OSError:
                if self.exists(staged):
                    raise
                return self.exists(published)  # another owner published it meanwhile
        return True

    def sync(self, paths: Iterable[str]) -> None:
        """Do nothing: an acknowledged write is durable on these file systems."""

    def delete(self, path: str) -> None:
        with self._errors_translated(f"deleting {path}"):
            try:
                self._system.delete_file(self._path(path))
            except FileNotFoundError:
                pass
            except OSError:
                if self.exists(path):
                    raise

    def staged(self) -> list[str]:
        folder = self._path(self.hidden.rstrip("/"))
        try:
            with self._errors_translated("listing staged files"):
                found = self._system.get_file_info(_fs.FileSelector(folder))
        except FileNotFoundError:  # nothing was staged yet. Creating the folder in advance would hide a missing bucket.
            return []
        return [self.hidden + one.base_name for one in found if one.type == _fs.FileType.File]

    def probe(self) -> None:
        """Write, list and delete a test object. Raises ConfigError when that fails."""
        name = f"{self.hidden}probe-{uuid.uuid4().hex}"
        try:
            with self.writing(name) as stream:
                stream.write(b"x")
            self.staged()
            self.delete(name)
        except RetriableError as error:
            keys = f"{DIRECTORY}, {S3_ENDPOINT} and {S3_REGION}" if self.location.startswith("s3:") else DIRECTORY
            raise ConfigError(str(error), field=DIRECTORY, fix=f"check {keys}") from error

    def close(self) -> None:
        """Close the file system, if it has resources that nothing else uses."""
        if isinstance(self._system, Closes):
            self._system.close()

    def _path(self, path: str) -> str:
        return self._prefix + path

    def _make_folder_of(self, path: str) -> None:
        folder = self._path(path).rpartition("/")[0]
        if folder and self._system.type_name != "s3":  # on S3 folders are only parts of names
            self._system.create_dir(folder, recursive=True)

    def _are_same(self, one: str, other: str) -> bool:
        with self._errors_translated(f"comparing {one} and {other}"):
            try:
                with self._reading(one) as first, self._reading(other) as second:
                    while True:
                        parts = first.read(_COMPARED_BYTES), second.read(_COMPARED_BYTES)
                        if parts[0] != parts[1]:
                            return False
                        if not parts[0]:
                            return True
            except FileNotFoundError:  # published and deleted meanwhile
                return self.exists(other)

    def _reading(self, path: str) -> Any:
        return self._system.open_input_stream(self._path(path), compression=None)

    @contextmanager
    def _errors_translated(self, doing: str) -> Generator[None]:
        """Show the call as a wait, and translate its errors as `_translating` does."""
        with self._translating(doing), waits.on(self.location, doing):
            yield

    @contextmanager
    def _translating(self, doing: str) -> Generator[None]:
        """Raise ConfigError for errors that a user must fix,
        FileNotFoundError unchanged, UnreachableError without a response,
        RetriableError for all others.
        """
        try:
            yield
        except FileNotFoundError:
            raise
        except OSError as error:
            text = " ".join(_REQUEST_ID.sub("", str(error)).split())
            message = f"{self.location}: {doing} failed: {text}"
            for word, (key, fix) in _HOPELESS.items():
                if word in text:
                    raise ConfigError(message, field=key, fix=fix) from error
            kind = UnreachableError if _NO_RESPONSE.search(text) else RetriableError
            raise kind(message, waits_for=self.location) from error


def open_folder(location: Location, access: Access, attempts: int = ATTEMPTS) -> RemoteFiles:
    """Return the folder, without contacting it; `attempts`: of a request to S3. A probe of Hadoop has the same number
    of connect attempts, and its own JVM, until it is closed.
    """
    if location.scheme == "s3":
        prefix = "/".join(filter(None, (location.authority, location.path))) + "/"
        return RemoteFiles(_s3(access, attempts), prefix, location.text, renames=False)
    prefix = f"/{location.path}/" if location.path else "/"
    return RemoteFiles(_hadoop(location, access, attempts), prefix, location.text, renames=True)


def _s3(access: Access, attempts: int) -> Any:
    scheme, address = access.s3_address()
    return _fs.S3FileSystem(
        access_key=access.s3_access_key,
        secret_key=access.s3_secret_key,
        region=access.s3_region or ("us-east-1" if address else None),
        scheme=scheme,
        endpoint_override=address,
        connect_timeout=CONNECT_TIMEOUT_S,
        request_timeout=REQUEST_TIMEOUT_S,
        allow_delayed_open=True,  # a small object needs one request
        retry_strategy=_fs.AwsStandardS3RetryStrategy(max_attempts=attempts),
    )


def _hadoop(location: Location, access: Access, attempts: int) -> Any:
    from herdmesh.connectors.files import hadoop  # imports pyspark, which S3 does not need

    address = f"{location.scheme}://{location.authority}"
    if attempts == ATTEMPTS_OF_PROBE:
        patience = hadoop.Patience(5_000, attempts, 10_000, refused_retries=attempts, rules=True)
        return hadoop.HadoopFileSystem(hadoop.HadoopJvm(), address, access.hadoop_user, patience)
    return hadoop.HadoopFileSystem(hadoop.shared_jvm(), address, access.hadoop_user)
