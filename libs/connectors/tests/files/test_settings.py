"""Tests of configs of `FileSink`, `ParquetSink` and Confluent's S3 sink, without any file system."""

from __future__ import annotations

from pathlib import Path

import pytest

from herdmesh.connect.errors import ConfigError
from herdmesh.connect.plugins.plugin_registry import PluginRegistry, describe
from herdmesh.connectors.files.confluent_settings import task_config_of, warnings_of
from herdmesh.connectors.files.connector import FileSink
from herdmesh.connectors.files.hdfs.connector import DIALECT as HDFS
from herdmesh.connectors.files.hdfs.connector import HdfsSinkConnector
from herdmesh.connectors.files.locations import Access, Location, opener
from herdmesh.connectors.files.s3.connector import DIALECT, S3SinkConnector
from herdmesh.connectors.files.settings import settings_of
from herdmesh.connectors.parquet.connector import ParquetSink

P = "io.confluent.connect.storage.partitioner."
S3 = {
    "s3.bucket.name": "bucket",
    "flush.size": "1000",
    "format.class": "io.confluent.connect.s3.format.json.JsonFormat",
    "storage.class": "io.confluent.connect.s3.storage.S3Storage",
}


@pytest.mark.parametrize(
    ("written", "text"),
    [
        ("/data/out/", "/data/out"),
        ("file:///data/out", "/data/out"),
        ("s3://bucket/a/b/", "s3://bucket/a/b"),
        ("s3a://bucket", "s3://bucket"),
        ("hdfs://host:8020/a", "hdfs://host:8020/a"),
        ("abfs://container@account/a", "abfs://container@account/a"),
    ],
)
def test_equivalent_locations_have_one_name(written: str, text: str) -> None:
    assert Location.parse(written).text == text
    assert Location.parse(text).text == text


def test_a_local_folder_is_made_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert Location.parse("out").text == str(tmp_path / "out")
    assert opener(Access())(str(tmp_path / "out")).location == str(tmp_path / "out")


@pytest.mark.parametrize("bad", ["s3:///folder", "s3://bucket/../x", "s3://bucket/a//x", "hdfs://h/./x"])
def test_an_invalid_location_is_refused_by_its_field(bad: str) -> None:
    with pytest.raises(ConfigError) as failed:
        Location.parse(bad)
    assert (failed.value.field, bool(failed.value.fix)) == ("directory", True)


@pytest.mark.parametrize(
    ("config", "field"),
    [
        ({"format": "xml"}, "format"),
        ({"format": "csv", "compression": "zstd"}, "compression"),
        ({"compression": "rar"}, "compression"),
        ({"partitioner": "field"}, "partition.fields"),
        ({"partitioner": "daily"}, "partitioner"),
        ({"path.format": "yyyy/bbb"}, "path.format"),
        ({"path.format": "YYYY-'W'ww"}, "path.format"),
        ({"path.format": "yyyy//MM"}, "path.format"),
        ({"directory": "hdfs://h:1/x", "partitioner": "time", "path.format": "HH:mm"}, "path.format"),
        ({"path.format": "yyyy/'..'/MM"}, "path.format"),
        ({"path.format": "'open"}, "path.format"),
        ({"timezone": "Europe/Nowhere"}, "timezone"),
        ({"timezone": ""}, "timezone"),
        ({"timestamp.extractor": "Clock"}, "timestamp.extractor"),
        ({"rotate.bytes": "0"}, "rotate.bytes"),
        ({"s3.endpoint": "not an address"}, "s3.endpoint"),
        ({"aws.access.key.id": "only"}, "aws.secret.access.key"),
    ],
)
def test_invalid_settings_are_refused_by_their_field(tmp_path: Path, config: dict[str, str], field: str) -> None:
    full = {"directory": str(tmp_path), **config}
    with pytest.raises(ConfigError) as failed:
        FileSink().start(full)
    assert failed.value.field == field
    with pytest.raises(ConfigError) as failed:
        settings_of(full)
    assert failed.value.field == field


def test_two_problems_are_reported_at_once(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    problems = FileSink().validate({"directory": str(tmp_path / "file"), "format": "csv", "compression": "zstd"})
    assert {one.field for one in problems} == {"directory", "compression"}


def test_a_parquet_sink_is_a_file_sink_of_one_format(tmp_path: Path) -> None:
    connector = ParquetSink()
    config = {"directory": str(tmp_path), "topics": "t"}
    connector.start(config)
    assert connector.task_configs(1) == [config]  # as before other formats were supported
    assert settings_of(config).format.name == "parquet"
    assert set(FileSink.config_def().keys) == set(ParquetSink.config_def().keys)
    with pytest.raises(ConfigError, match="format"):
        connector.start({**config, "format": "csv"})


def test_confluents_s3_sink_translates_to_a_file_sink() -> None:
    assert describe(S3SinkConnector).class_name == "io.confluent.connect.s3.S3SinkConnector"
    config = {
        **S3, "topics": "t", "topics.dir": "/lake/", "s3.region": "eu-central-1", "store.url": "http://127.0.0.1:1",
        "partitioner.class": f"{P}TimeBasedPartitioner", "path.format": "'d'=YYYY-MM-dd", "timezone": "Europe/Berlin",
        "partition.duration.ms": "86400000", "timestamp.extractor": "RecordField", "timestamp.field": "at.ms",
        "rotate.interval.ms": "60000", "rotate.schedule.interval.ms": "30000", "locale": "en-US",
        "s3.compression.type": "gzip", "aws.access.key.id": "a", "aws.secret.access.key": "b",
    }  # fmt: skip
    assert task_config_of(DIALECT, config) == {
        "topics": "t", "directory": "s3://bucket/lake", "format": "json", "compression": "gzip", "file.records": "1000",
        "flush.records": "2147483647", "rotate.interval.ms": "30000", "topic.folders": "true", "partitioner": "time",
        "path.format": "'d'=YYYY-MM-dd", "partition.duration.ms": "86400000", "timezone": "Europe/Berlin",
        "timestamp.extractor": "RecordField", "timestamp.field": "at.ms", "s3.region": "eu-central-1",
        "s3.endpoint": "http://127.0.0.1:1", "aws.access.key.id": "a", "aws.secret.access.key": "b",
        "json.decimal.format": "BASE64",
    }  # fmt: skip
    settings_of(task_config_of(DIALECT, config))


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ({}, {"partitioner": "kafka", "compression": "none", "directory": "s3://bucket/topics"}),
        (
            {"partitioner.class": f"{P}FieldPartitioner", "partition.field.name": "a,b"},
            {"partitioner": "field", "partition.fields": "a,b"},
        ),
        (
            {"partitioner.class": f"{P}DailyPartitioner", "timezone": "UTC", "locale": "en"},
            {
                "partitioner": "time",
                "path.format": "'year'=YYYY/'month'=MM/'day'=dd",
                "timestamp.extractor": "Wallclock",
            },
        ),
        ({"json.decimal.format": "numeric"}, {"json.decimal.format": "numeric"}),
        (
            {
                "partitioner.class": f"{P}TimeBasedPartitioner",
                "path.format": "'y'=YYYY/'m'=MM/",
                "timezone": "+02:00",
                "partition.duration.ms": "3600000",
            },
            {"path.format": "'y'=YYYY/'m'=MM/", "timezone": "+02:00"},
        ),
        (
            {"format.class": "io.confluent.connect.s3.format.parquet.ParquetFormat"},
            {"format": "parquet", "compression": "snappy"},
        ),
    ],
)
def test_confluents_classes_are_aliases(more: dict[str, str], expected: dict[str, str]) -> None:
    found = task_config_of(DIALECT, {**S3, **more})
    assert {key: found[key] for key in expected} == expected
    settings_of(found)


@pytest.mark.parametrize(
    ("more", "field"),
    [
        ({"format.class": "io.confluent.connect.s3.format.avro.AvroFormat"}, "format.class"),
        ({"storage.class": "com.example.Storage"}, "storage.class"),
        ({"partitioner.class": f"{P}TimeBasedPartitioner", "timezone": "UTC"}, "path.format"),
        ({"partitioner.class": f"{P}HourlyPartitioner"}, "timezone"),
        ({"partitioner.class": f"{P}HourlyPartitioner", "timezone": "Mars"}, "timezone"),
        ({"partitioner.class": f"{P}FieldPartitioner"}, "partition.field.name"),
        ({"flush.size": "0"}, "flush.size"),
        ({"rotate.interval.ms": "0"}, "rotate.interval.ms"),
        ({"store.url": "not an address"}, "store.url"),
    ],
)
def test_unsupported_s3_sink_settings_are_refused_by_key(more: dict[str, str], field: str) -> None:
    told = {problem.field for problem in S3SinkConnector().validate({**S3, **more})}
    told |= {name for name, value in S3SinkConnector.config_def().validate({**S3, **more}).items() if value.problems}
    assert told == {field}
    with pytest.raises(ConfigError):
        S3SinkConnector().start({**S3, **more})


def test_errors_and_fixes_name_confluents_keys() -> None:
    (problem,) = S3SinkConnector().validate({**S3, "store.url": "http://127.0.0.1:9"})
    assert (problem.field, problem.fix) == ("s3.bucket.name", "check s3.bucket.name, store.url and s3.region")


def test_confluents_hdfs_sink_translates_to_a_file_sink() -> None:
    """In both versions."""
    config = {
        "topics": "t", "hdfs.url": "hdfs://nn:8020/", "flush.size": "3", "hive.integration": "false",
        "format.class": "io.confluent.connect.hdfs.parquet.ParquetFormat",
        "partitioner.class": "io.confluent.connect.hdfs.partitioner.FieldPartitioner", "partition.field.name": "a",
        "storage.class": "io.confluent.connect.hdfs.storage.HdfsStorage",
    }  # fmt: skip
    found = task_config_of(HDFS, config)
    assert found == {
        "topics": "t", "directory": "hdfs://nn:8020/topics", "format": "parquet", "compression": "snappy",
        "file.records": "3", "flush.records": "2147483647", "rotate.interval.ms": "9223372036854775807",
        "topic.folders": "true", "partitioner": "field", "partition.fields": "a",
    }  # fmt: skip
    settings_of(found)
    assert warnings_of(HDFS, config) == []
    text = {"store.url": "viewfs:///", "format.class": "io.confluent.connect.hdfs3.string.StringFormat"}
    found = task_config_of(HDFS, {**config, **text})
    assert (found["directory"], found["format"], found["compression"]) == ("viewfs:///topics", "text", "none")
    said = warnings_of(HDFS, {**config, "logs.dir": "wal", "hadoop.conf.dir": "/etc/hadoop", "hive.home": "x"})
    assert [one.field for one in said] == ["hadoop.conf.dir", "logs.dir", "hive.home"]
    names = ("io.confluent.connect.hdfs.HdfsSinkConnector", "HdfsSink", "Hdfs3SinkConnector")
    registry = PluginRegistry([describe(HdfsSinkConnector)])
    assert all(registry.find(name).connector is HdfsSinkConnector for name in names)


@pytest.mark.parametrize(
    ("more", "field"),
    [
        ({"hdfs.url": ""}, "store.url"),
        ({"hdfs.url": "/data"}, "hdfs.url"),
        ({"store.url": "s3://bucket"}, "store.url"),
        ({"hive.integration": "true"}, "hive.integration"),
        ({"hdfs.authentication.kerberos": "true"}, "hdfs.authentication.kerberos"),
        ({"format.class": "io.confluent.connect.hdfs3.avro.AvroFormat"}, "format.class"),
    ],
)
def test_unsupported_hdfs_sink_settings_are_refused_by_key(more: dict[str, str], field: str) -> None:
    config = {
        "hdfs.url": "hdfs://nn:8020", "flush.size": "3", "format.class": "io.confluent.connect.hdfs3.json.JsonFormat",
        **more,
    }  # fmt: skip
    with pytest.raises(ConfigError) as refused:
        HdfsSinkConnector().start(config)
    assert refused.value.field == field


def test_keys_without_effect_have_warnings() -> None:
    said = warnings_of(DIALECT, {
        **S3, "name": "n", "topics": "t", "behavior.on.null.values": "fail", "s3.part.size": "5", "file.delim": "+",
        "schema.compatibility": "NONE", "rotate.interval.ms": "5", "s3.bucket": "b", "transforms.a.type": "x",
    })  # fmt: skip
    assert {one.field for one in said} == {"behavior.on.null.values", "s3.part.size", "s3.bucket", "rotate.interval.ms"}
    assert warnings_of(DIALECT, S3) == []


def test_keys_that_depend_on_another_have_warnings(tmp_path: Path) -> None:
    said = FileSink().warnings({
        "name": "n", "topics": "t", "directory": str(tmp_path), "partition.fields": "a", "timezone": "UTC",
        "s3.region": "eu", "hadoop.user": "u", "partitioner": "time", "partition.field": "a",
        "timestamp.field": "at", "value.converter.schemas.enable": "false",
    })  # fmt: skip
    assert [one.field for one in said] == [
        "partition.fields", "timestamp.field", "s3.region", "hadoop.user", "partition.field",
    ]  # fmt: skip
    assert ParquetSink().warnings({"directory": str(tmp_path), "topics": "t", "compression": "snappy"}) == []


@pytest.mark.parametrize(
    ("partitioner", "key", "value", "warned"),
    [
        ("Field", "path.format", "yyyy", True), ("Hourly", "path.format", "yyyy", True),
        ("TimeBased", "path.format", "yyyy", False), ("TimeBased", "partition.field.name", "a", True),
        ("Default", "timestamp.field", "at", True), ("Daily", "timestamp.field", "at", False),
    ],
)  # fmt: skip
def test_a_key_of_another_partitioner_has_a_warning(partitioner: str, key: str, value: str, warned: bool) -> None:
    config = {**S3, "partitioner.class": f"{P}{partitioner}Partitioner", key: value}
    assert [one.field for one in warnings_of(DIALECT, config)] == ([key] if warned else [])
