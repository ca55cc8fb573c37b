"""Tests of `FileSinkTask` in every format and every kind of folder: all records put are read back, once."""

from __future__ import annotations

import csv
import gzip
import io
import json
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pyarrow.csv
import pyarrow.parquet
import pytest

from herdmesh.connect.errors import ConfigError, RecordError
from herdmesh.connect.model.data import Schema, Struct
from herdmesh.connect.spi.connector import SinkBatch, TaskContext
from herdmesh.connectors.files.connector import FileSink
from herdmesh.connectors.files.task import FileSinkTask
from libs.connectors.tests.files.places import Place, local_place
from libs.connectors.tests.files.s3_server import BUCKET, keys_for

_csv: Any = pyarrow.csv
_parquet: Any = pyarrow.parquet
ROWS = [
    {"id": 0, "name": "plain", "country": "DE"},
    {"id": 1, "name": 'quote " comma , line\nend é 😀', "country": "FR"},
    {"id": 2, "name": "", "country": "DE"},
    {"id": 3, "name": None, "country": None},
]
TOPIC = "flights"


def _parquet_rows(data: bytes) -> list[Any]:
    return _parquet.read_table(io.BytesIO(data)).to_pylist()


def _csv_rows(data: bytes) -> list[Any]:
    as_python_reads = list(csv.reader(io.StringIO(data.decode(), newline="")))
    found = _csv.read_csv(
        io.BytesIO(data),
        parse_options=_csv.ParseOptions(newlines_in_values=True),
        convert_options=_csv.ConvertOptions(strings_can_be_null=True, quoted_strings_can_be_null=False),
    ).to_pylist()
    assert [list(row) for row in found[:1]] == as_python_reads[:1]
    assert [[str(row["id"]), row["name"] or ""] for row in found] == [line[:2] for line in as_python_reads[1:]]
    return found


def _json_rows(data: bytes) -> list[Any]:
    assert data.endswith(b"\n")
    return [json.loads(line) for line in data.splitlines()]


READERS: Mapping[tuple[str, str | None], tuple[str, Callable[[bytes], list[Any]]]] = {
    ("parquet", None): (".parquet", _parquet_rows),
    ("parquet", "snappy"): (".parquet", _parquet_rows),
    ("csv", None): (".csv", _csv_rows),
    ("csv", "gzip"): (".csv.gz", lambda data: _csv_rows(gzip.decompress(data))),
    ("json", None): (".json", _json_rows),
    ("json", "gzip"): (".json.gz", lambda data: _json_rows(gzip.decompress(data))),
    ("text", None): (".txt", _json_rows),
    ("text", "gzip"): (".txt.gz", lambda data: _json_rows(gzip.decompress(data))),
}
"""Suffixes of the files' names, and functions that read them."""


def task_of(place: Place, run: str = "run-1", /, **config: str) -> FileSinkTask:
    """Return a started task, with the config from the connector."""
    full = {
        "directory": place.directory,
        **place.config,
        **{key.replace("_", "."): value for key, value in config.items()},
    }
    connector = FileSink()
    assert connector.validate(full) == []
    connector.start(full)
    (task_config,) = connector.task_configs(1)
    task = FileSinkTask()
    task.start(task_config, TaskContext("sink", 0, 1, "connect-sink", run))
    return task


def batch(values: Sequence[Any], first: int = 0, partition: int = 0, **more: Any) -> SinkBatch:
    offsets = list(range(first, first + len(values)))
    times = more.pop("timestamps_ms", [1_700_000_000_000 + offset for offset in offsets])
    settings: dict[str, Any] = {"topic": TOPIC, "original_topic": TOPIC, **more}
    return SinkBatch(
        partition=partition, first_offset=first, last_offset=offsets[-1], values=values, keys=[None] * len(values),
        offsets=offsets, timestamps_ms=times, **settings,
    )  # fmt: skip


def commit(task: FileSinkTask) -> None:
    """Commit like the record loop."""
    manifests = task.stage()
    task.publish(manifests)


@pytest.mark.parametrize(("form", "compression"), READERS)
def test_records_put_are_read_back(target: Place, form: str, compression: str | None) -> None:
    suffix, read = READERS[form, compression]
    task = task_of(target, format=form, **({"compression": compression} if compression else {}))
    task.put(batch(ROWS))
    task.put(batch(ROWS, 4))
    task.put(batch(ROWS[:1], 7, partition=1))
    assert not target.look()
    manifests = task.stage()
    assert target.visible() == {}
    task.publish(manifests)
    found = target.visible()
    assert list(found) == [f"flights+0+0000000000+0000000007{suffix}", f"flights+1+0000000007+0000000007{suffix}"]
    assert [read(data) for data in found.values()] == [ROWS + ROWS, ROWS[:1]]
    assert target.hidden() == []
    assert task.stage() == {}


@pytest.mark.parametrize("form", ["parquet", "json"])
def test_the_next_owner_publishes_only_committed_files(target: Place, form: str) -> None:
    config = {"format": form, "partitioner": "field", "partition_fields": "country"}
    dead = task_of(target, **config)
    dead.put(batch(ROWS))
    committed = dead.stage()
    dead.put(batch(ROWS, 4))
    dead.stage()
    slept = task_of(target, "run-2", **config)

    next_one = task_of(target, "run-3", **config)
    next_one.recover(committed)
    names = [path.rpartition("/")[0] for path in target.visible()]
    assert names == ["country=DE", "country=FR", "country=__HIVE_DEFAULT_PARTITION__"]
    assert target.hidden() == []

    next_one.put(batch(ROWS, 4))
    later = next_one.stage()
    slept.recover(committed)
    dead.publish(committed)
    next_one.publish(later)
    _, read = READERS[form, None]
    assert sorted(row["id"] for data in target.visible().values() for row in read(data)) == sorted([0, 1, 2, 3] * 2)


def test_a_full_file_is_followed_by_another(tmp_path: Any) -> None:
    place = local_place(tmp_path / "out")
    task = task_of(place, format="json", file_records="3")
    task.put(batch([{"id": number} for number in range(2)]))
    assert not task.commit_due()
    task.put(batch([{"id": number} for number in range(2, 8)], 2))
    assert task.commit_due()
    commit(task)
    ids = {path: [row["id"] for row in _json_rows(data)] for path, data in place.visible().items()}
    assert ids == {
        "flights+0+0000000000+0000000002.json": [0, 1, 2],
        "flights+0+0000000003+0000000005.json": [3, 4, 5],
        "flights+0+0000000006+0000000007.json": [6, 7],
    }
    assert not task.commit_due()


@pytest.mark.parametrize(
    ("config", "is_due"),
    [
        ({"flush_records": "4"}, True),
        ({"flush_records": "5"}, False),
        ({"rotate_bytes": "50"}, True),
        ({"rotate_bytes": "1000000"}, False),
    ],
)
def test_a_commit_is_due_at_each_configured_limit(tmp_path: Any, config: dict[str, str], is_due: bool) -> None:
    task = task_of(local_place(tmp_path / "out"), rotate_interval_ms="3600000", **config)
    assert not task.commit_due()
    task.put(batch(ROWS))
    assert task.commit_due() is is_due
    commit(task)
    assert not task.commit_due()


def test_topic_folders_use_transformed_topic_names(tmp_path: Any) -> None:
    place = local_place(tmp_path / "out")
    task = task_of(place, format="json", topic_folders="true", partitioner="kafka")
    task.put(batch(ROWS[:2]))
    task.put(batch(ROWS[2:], 2, topic="routed"))
    commit(task)
    assert list(place.visible()) == [
        "flights/partition=0/flights+0+0000000000+0000000001.json",
        "routed/partition=0/flights+0+0000000002+0000000003.json",
    ]


@pytest.mark.parametrize("form", ["parquet", "csv", "json"])
def test_structs_are_partitioned_by_their_fields(tmp_path: Any, form: str) -> None:
    text = Schema("STRING")
    schema = Schema("STRUCT", fields=(("id", Schema("INT64")), ("name", text), ("country", text)))
    values = [Struct(schema, [number, "n", country]) for number, country in enumerate(["DE", "FR", "DE"])]
    place = local_place(tmp_path / "out")
    task = task_of(place, format=form, partitioner="field", partition_fields="country")
    task.put(batch(values, value_schema=schema))
    commit(task)
    found = {path.split("/")[0]: data for path, data in place.visible().items()}
    _, read = READERS[form, None]
    assert {folder: [int(row["id"]) for row in read(data)] for folder, data in found.items()} == {
        "country=DE": [0, 2], "country=FR": [1],
    }  # fmt: skip


class _Reporter:
    def __init__(self) -> None:
        self.said: list[tuple[int, str]] = []

    def report(self, batch: SinkBatch, index: int, error: BaseException) -> Future[None]:
        self.said.append((index, str(error)))
        return Future()

    def flush_dead_letters(self) -> None:
        return


def test_a_record_without_a_folder_is_reported_or_ends_the_run(tmp_path: Any) -> None:
    rows = [{"id": 0, "country": "DE"}, {"id": 1, "country": ["no", "folder"]}, {"id": 2, "country": "x" * 300}]
    place = local_place(tmp_path / "out")
    task = task_of(place, format="json", partitioner="field", partition_fields="country")
    with pytest.raises(RecordError, match=r"partition 0, offset 1: .*country cannot name a folder"):
        task.put(batch(rows))

    reporter = _Reporter()
    task = FileSinkTask()
    config = {"directory": place.directory, "format": "json", "partitioner": "field", "partition.fields": "country"}
    task.start(config, TaskContext("sink", 0, 1, "connect-sink", "run-2", reporter))
    task.put(batch(rows))
    commit(task)
    assert list(place.visible()) == ["country=DE/flights+0+0000000000+0000000000.json"]
    assert [index for index, _ in reporter.said] == [1, 2]


@pytest.mark.parametrize(("scheme", "fields"), [("file", 20), ("s3", 5)])
def test_a_record_with_too_long_a_path_is_reported(tmp_path: Any, s3: str, scheme: str, fields: int) -> None:
    """Each folder's name is short enough, the whole path is
    not: Linux allows 4,095 bytes, S3 1,024 for a key.
    """
    place = local_place(tmp_path / "out")
    directory = place.directory if scheme == "file" else f"s3://{BUCKET}/too-long"
    names = [f"f{number}" for number in range(fields)]
    config = {
        "directory": directory, "format": "json", "partitioner": "field", "partition.fields": ",".join(names),
        **(keys_for(s3) if scheme == "s3" else {}),
    }  # fmt: skip
    reporter = _Reporter()
    task = FileSinkTask()
    task.start(config, TaskContext("sink", 0, 1, "connect-sink", "run-1", reporter))
    rows = [dict.fromkeys(names, "é" * 110), dict.fromkeys(names, "a" if scheme == "file" else "é" * 60)]
    task.put(batch(rows))
    commit(task)
    assert [index for index, _ in reporter.said] == [0]
    assert "its folder name has" in reporter.said[0][1]
    if scheme == "file":
        assert list(place.visible()) == [
            "/".join(f"{name}=a" for name in names) + "/flights+0+0000000001+0000000001.json"
        ]


def test_texts_and_bytes_are_written_as_unchanged_lines(tmp_path: Any) -> None:
    place = local_place(tmp_path / "out")
    task = task_of(place, format="text")
    task.put(batch(["one", "two é"], value_schema=Schema("STRING")))
    task.put(batch([b"three", b"\xff"], 2))
    task.put(batch([None, {"id": 1}], 4))
    commit(task)
    assert list(place.visible().values()) == [b'one\ntwo \xc3\xa9\nthree\n\xff\nnull\n{"id":1}\n']


def test_json_has_one_value_per_line_of_any_type(tmp_path: Any) -> None:
    place = local_place(tmp_path / "out")
    task = task_of(place, format="json")
    values = ["a\nb", None, 2**63 - 1, [1.5, True], b"bytes", {"n": "\ud800"}]
    for offset, value in enumerate(values):
        task.put(batch([value], offset))
    commit(task)
    (data,) = place.visible().values()
    assert _json_rows(data) == ["a\nb", None, 2**63 - 1, [1.5, True], "Ynl0ZXM=", {"n": "\ud800"}]


def test_a_missing_bucket_is_reported_by_its_field(s3: str) -> None:
    keys = keys_for(s3)
    (problem,) = FileSink().validate({"directory": "s3://nobody-made-this/x", **keys})
    assert (problem.field, "NO_SUCH_BUCKET" in str(problem)) == ("directory", True)
    assert "create the bucket" in problem.fix
    with pytest.raises(ConfigError) as failed:
        FileSinkTask().start({"directory": "s3://nobody-made-this/x", **keys}, TaskContext("s", 0, 1, "g", "r"))
    assert failed.value.field == "directory"


@pytest.mark.parametrize(
    ("wrong", "said"),
    [("aws.access.key.id", "INVALID_ACCESS_KEY_ID"), ("aws.secret.access.key", "SIGNATURE_DOES_NOT_MATCH")],
)
def test_refused_access_keys_are_reported(s3: str, wrong: str, said: str) -> None:
    (problem,) = FileSink().validate({"directory": f"s3://{BUCKET}/x", **keys_for(s3), wrong: "nobody's"})
    assert (problem.field, said in str(problem)) == ("aws.access.key.id", True)
    assert "keys" in problem.fix


def test_an_unreachable_server_is_a_problem_of_the_folder() -> None:
    keys = {"s3.endpoint": "http://127.0.0.1:9", "aws.access.key.id": "a", "aws.secret.access.key": "b"}
    (problem,) = FileSink().validate({"directory": "s3://bucket/x", **keys})
    assert (problem.field, "s3.endpoint" in problem.fix) == ("directory", True)


@pytest.mark.parametrize(
    ("directory", "said", "fix"),
    [
        ("hdfs://127.0.0.1:9/x", "Connection refused", "check directory"),
        ("abfs://c@h/x", "AzureBlobFileSystem not found", "HERDMESH_SPARK_JARS"),  # Hadoop knows it, its jar is missing
    ],
)
def test_an_unsupported_hadoop_scheme_is_a_problem_of_the_folder(directory: str, said: str, fix: str) -> None:
    (problem,) = FileSink().validate({"directory": directory})
    assert problem.field == "directory"
    assert said in str(problem)
    assert fix in problem.fix


def test_a_hadoop_folder_is_probed(hadoop_folder: Path) -> None:
    directory = hadoop_folder / "tried"
    assert FileSink().validate({"directory": "viewfs://tests/files/tried"}) == []
    assert [path.name for path in directory.rglob("*") if path.is_file()] == []
    (hadoop_folder / "file").touch()
    (problem,) = FileSink().validate({"directory": "viewfs://tests/files/file/x"})
    assert problem.field == "directory"
