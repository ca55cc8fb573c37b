"""The standard suite for authors, applied to `FileSink`, on a local
disk and on S3, to `S3Sink`, and with Hadoop's client to `HdfsSink`.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pyarrow import fs

from herdmesh.connectors.files.connector import FileSink
from herdmesh.connectors.files.hadoop import shared_jvm
from herdmesh.connectors.files.hdfs.connector import HdfsSinkConnector
from herdmesh.connectors.files.s3.connector import S3SinkConnector
from herdmesh.sdk.testing import BadConfig, RecordForm, SinkRunSuite, SinkSuite, SinkWorld
from libs.connectors.tests.files.places import hadoop_place
from libs.connectors.tests.files.s3_server import BUCKET, client, keys_for
from tests.support.sizes import SOAKING

_fs: Any = fs


class Folder(SinkWorld):
    """A folder of the local disk."""

    forms = (RecordForm.MAP, RecordForm.STRUCT, RecordForm.TEXT)

    def config(self) -> dict[str, str]:
        return {"directory": str(self.folder / "out"), "format": "json"}

    def bad_configs(self) -> list[BadConfig]:
        (self.folder / "file").touch()
        return [
            ({"directory": str(self.folder / "file")}, "directory"),
            ({"format": "xml"}, "format"),
            ({"partitioner": "field"}, "partition.fields"),
            ({"compression": "rar"}, "compression"),
        ]

    def found(self) -> list[int]:
        return [number for text in self.texts() for number in _numbers(text)]

    def texts(self) -> list[bytes]:
        """Return the content of each visible file."""
        files = (self.folder / "out").glob("*.json")
        return [path.read_bytes() for path in files if not path.name.startswith(".")]


class Objects(Folder):
    """A folder of a bucket."""

    def __init__(self, folder: Path, endpoint: str) -> None:
        super().__init__(folder)
        self._endpoint = endpoint
        self._system = client(endpoint)
        self._read: dict[tuple[str, int, int], bytes] = {}

    def config(self) -> dict[str, str]:
        return {
            "directory": f"s3://{BUCKET}/{self.name}", "format": "json", **keys_for(self._endpoint),
        }  # fmt: skip

    def bad_configs(self) -> list[BadConfig]:
        return [
            ({"directory": f"s3://{BUCKET}-that-is-not-there/a"}, "directory"),
            ({"s3.endpoint": "no address"}, "s3.endpoint"),
            ({"aws.secret.access.key": None}, "aws.secret.access.key"),
        ]

    def texts(self) -> list[bytes]:
        listed = self._system.get_file_info(
            _fs.FileSelector(f"{BUCKET}/{self.name}", recursive=True, allow_not_found=True)
        )
        seen = [
            (one.path, one.size, one.mtime_ns)
            for one in listed
            if one.type == _fs.FileType.File and "/.staged/" not in one.path
        ]
        for one in seen:
            if one not in self._read:
                with self._system.open_input_stream(one[0], compression=None) as stream:
                    self._read[one] = stream.read()
        return [self._read[one] for one in seen]


class ConfluentsObjects(Objects):
    """The same with the keys of Confluent's connector."""

    def config(self) -> dict[str, str]:
        return {
            "s3.bucket.name": BUCKET, "s3.region": "us-east-1", "store.url": self._endpoint, "topics.dir": self.name,
            "format.class": "io.confluent.connect.s3.format.json.JsonFormat", "flush.size": "100",
            **{key: value for key, value in keys_for(self._endpoint).items() if key.startswith("aws.")},
        }  # fmt: skip

    def bad_configs(self) -> list[BadConfig]:
        return [
            ({"s3.bucket.name": f"{BUCKET}-that-is-not-there"}, "s3.bucket.name"),
            ({"flush.size": "0"}, "flush.size"),
            ({"format.class": "io.confluent.connect.s3.format.avro.AvroFormat"}, "format.class"),
            ({"partitioner.class": "io.confluent.connect.storage.partitioner.FieldPartitioner"},
             "partition.field.name"),
        ]  # fmt: skip


def _numbers(text: bytes) -> list[int]:
    """Return the numbers of a file's records. A tombstone has none."""
    values: list[Any] = [json.loads(line) for line in text.splitlines()]
    fields: list[Any] = [value["id"] if isinstance(value, dict) else value for value in values]
    return [int(number) for number in fields if number is not None]


class HadoopsFolder(Folder):
    """A folder in Hadoop's view file system, with the keys of Confluent's connector."""

    def __init__(self, folder: Path, seen: Path) -> None:
        super().__init__(folder)
        self._seen = seen

    def config(self) -> dict[str, str]:
        return {
            "store.url": "viewfs://tests/files", "topics.dir": self.name, "flush.size": "100",
            "format.class": "io.confluent.connect.hdfs3.json.JsonFormat",
        }  # fmt: skip

    def bad_configs(self) -> list[BadConfig]:
        return [
            ({"store.url": "nofs://host"}, "store.url"),
            ({"flush.size": "0"}, "flush.size"),
            ({"format.class": "io.confluent.connect.hdfs3.avro.AvroFormat"}, "format.class"),
        ]

    def texts(self) -> list[bytes]:
        return [path.read_bytes() for path in (self._seen / self.name).glob("*/partition=*/[!.]*.json")]


class Hdfs(Folder):
    """A folder in HDFS."""

    def __init__(self, folder: Path, url: str) -> None:
        super().__init__(folder)
        self._place = hadoop_place(shared_jvm(), f"{url}/suite/{self.name}")

    def config(self) -> dict[str, str]:
        return {"directory": self._place.directory, "format": "json"}

    def bad_configs(self) -> list[BadConfig]:
        return [({"directory": "hdfs://127.0.0.1:9/a"}, "directory"), ({"hadoop.user": "nobody"}, "directory")]

    def texts(self) -> list[bytes]:
        return list(self._place.visible().values())


class OnS3:
    """Base class with the session's S3 server."""

    @pytest.fixture
    def outside(self, s3: str) -> str:
        return s3


class TestFolder(SinkSuite):
    connector = FileSink
    world = Folder


class TestFolderRuns(SinkRunSuite):
    connector = FileSink
    world = Folder


class TestObjects(OnS3, SinkSuite):
    """`TestConfluentsObjects` kills the task on S3: it is the same task."""

    connector = FileSink
    world = Objects
    test_resume_after_a_kill_at_every_point = None  # pyright: ignore[reportAssignmentType]


class TestConfluentsObjects(OnS3, SinkSuite):
    """In `make test` `TestFolder` covers a commit of one batch: it is the same task."""

    connector = S3SinkConnector
    world = ConfluentsObjects
    periods = (1, 3) if SOAKING else (3,)


class TestConfluentsObjectsRuns(OnS3, SinkRunSuite):
    connector = S3SinkConnector
    world = ConfluentsObjects


class WithHadoop:
    """Base class with the session's view file system."""

    @pytest.fixture
    def outside(self, hadoop_folder: Path) -> Path:
        return hadoop_folder


class TestHadoopsFolder(WithHadoop, SinkSuite):
    """In `make test` `TestFolder` covers a commit of one batch: it is the same task."""

    connector = HdfsSinkConnector
    world = HadoopsFolder
    periods = (1, 3) if SOAKING else (3,)


class TestHadoopsFolderRuns(WithHadoop, SinkRunSuite):
    connector = HdfsSinkConnector
    world = HadoopsFolder


class OnHdfs:
    """Base class with the session's HDFS."""

    pytestmark = pytest.mark.skipif(not SOAKING, reason="a JVM for each run: make soak")

    @pytest.fixture
    def outside(self, hdfs: str) -> str:
        return hdfs


class TestHdfs(OnHdfs, SinkSuite):
    connector = FileSink
    world = Hdfs


class TestHdfsRuns(OnHdfs, SinkRunSuite):
    connector = FileSink
    world = Hdfs
