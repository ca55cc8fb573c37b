"""`io.confluent.connect.s3.S3SinkConnector`: that connector's configuration for `FileSink`.

Owns its keys, what they are in `FileSink`'s words, and which have no effect here. The task is `FileSink`'s.

    topics.dir/<topic>/<partitioner's folders>/<topic>+<partition>+<first offset>+<last offset>.<format>

Invariant: a key is honoured, or refused, or named in a warning; none is dropped in silence.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from herdmesh.connect.config import REQUIRED, ConfigDef, ConfigKey, FieldViolation, Importance, Type, Validator
from herdmesh.connect.connector import Config, PartitionId, SinkConnector
from herdmesh.connect.errors import ConfigError
from herdmesh.connect.validators import at_least, non_empty_string, one_of
from herdmesh.worker.connectors.files import file_sink, settings, without_effect
from herdmesh.worker.connectors.files.locations import (
    DIRECTORY,
    S3_ACCESS_KEY,
    S3_ENDPOINT,
    S3_REGION,
    S3_SECRET_KEY,
)
from herdmesh.worker.connectors.files.partitioners import TIMES

_BUCKET, _STORE_URL, _TOPICS_DIR, _FLUSH_SIZE = "s3.bucket.name", "store.url", "topics.dir", "flush.size"
_FORMAT_CLASS, _PARTITIONER_CLASS, _STORAGE_CLASS = "format.class", "partitioner.class", "storage.class"
_ROTATE_MS, _SCHEDULE_MS = "rotate.interval.ms", "rotate.schedule.interval.ms"
_LINES_COMPRESSION, _PARQUET_CODEC = "s3.compression.type", "parquet.codec"
_FIELDS, _LOCALE = "partition.field.name", "locale"
_FORMATS = {
    "io.confluent.connect.s3.format.json.JsonFormat": "json",
    "io.confluent.connect.s3.format.parquet.ParquetFormat": "parquet",
}
_PARTITIONER = "io.confluent.connect.storage.partitioner."
_PARTITIONERS = {
    f"{_PARTITIONER}DefaultPartitioner": "kafka",
    f"{_PARTITIONER}FieldPartitioner": "field",
    f"{_PARTITIONER}TimeBasedPartitioner": "time",
    f"{_PARTITIONER}HourlyPartitioner": "time",
    f"{_PARTITIONER}DailyPartitioner": "time",
}
_FIXED_TIMES = {
    f"{_PARTITIONER}HourlyPartitioner": ("'year'=YYYY/'month'=MM/'day'=dd/'hour'=HH", 3_600_000),
    f"{_PARTITIONER}DailyPartitioner": ("'year'=YYYY/'month'=MM/'day'=dd", 86_400_000),
}
_STORAGE = "io.confluent.connect.s3.storage.S3Storage"
_HIGH, _MEDIUM, _LOW = Importance.HIGH, Importance.MEDIUM, Importance.LOW

#: Keys of Confluent's without effect: why, and the values that ask for nothing else.
_WITHOUT_EFFECT: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "behavior.on.null.values": ("a tombstone is a record without fields (JSON: null)", ("write",)),
    "schema.compatibility": ("a file has the fields of its records, whatever their schemas", ("NONE",)),
    _LOCALE: ("folders of a time are numbers, and English where names of days are asked for", ("en", "en-US", "en_US")),
    "s3.part.size": ("parts have Arrow's size", ()),
    "s3.part.retries": ("requests are tried again as AWS's clients do", ()),
    "s3.retry.backoff.ms": ("requests are tried again as AWS's clients do", ()),
    "filename.offset.zero.pad.width": ("offsets have ten digits", ("10",)),
    "directory.delim": ("folders end with a slash", ("/",)),
    "file.delim": ("parts of a file's name are told apart by +", ("+",)),
}


def _one_class(choices: Mapping[str, str] | Sequence[str]) -> Validator:
    names = tuple(choices)

    def check(field: str, value: Any) -> None:
        if value not in names:
            raise ConfigError.for_value(field, value, "not built here", fix=f"write one of {', '.join(names)}")

    return Validator(f"[{', '.join(names)}]", check)


def _interval(field: str, value: Any) -> None:
    if value is None or (value < 1 and value != -1):
        raise ConfigError.for_value(field, value, "Value must be at least 1, or -1 for none", fix="write -1")


_INTERVAL = Validator("[1,...], or -1 for none", _interval)
_ZONE = Validator("name of a time zone", settings.check_zone)

KEYS = ConfigDef(
    ConfigKey(_BUCKET, Type.STRING, REQUIRED, _HIGH, "The S3 Bucket.", non_empty_string()),
    ConfigKey(S3_REGION, Type.STRING, "us-west-2", _MEDIUM, "The AWS region to be used the connector."),
    ConfigKey(_STORE_URL, Type.STRING, None, _HIGH, "Store's connection URL, if applicable."),
    ConfigKey(_TOPICS_DIR, Type.STRING, "topics", _HIGH, "Top level directory to store the data ingested from Kafka."),
    ConfigKey(_FORMAT_CLASS, Type.STRING, REQUIRED, _HIGH,
              "The format class to use when writing data to the store.", _one_class(_FORMATS)),
    ConfigKey(_STORAGE_CLASS, Type.STRING, _STORAGE, _HIGH, "The underlying storage layer.", _one_class([_STORAGE])),
    ConfigKey(_FLUSH_SIZE, Type.INT, REQUIRED, _HIGH,
              "Number of records written to store before invoking file commits.", at_least(1)),
    ConfigKey(_ROTATE_MS, Type.LONG, -1, _HIGH,
              "The time interval in milliseconds to invoke file commits: here, how long the oldest record waits.",
              _INTERVAL),
    ConfigKey(_SCHEDULE_MS, Type.LONG, -1, _MEDIUM,
              "The time interval in milliseconds to periodically invoke file commits: here, how long the oldest record "
              "waits.", _INTERVAL),
    ConfigKey(_LINES_COMPRESSION, Type.STRING, "none", _LOW, "Compression type for files of JSON.",
              one_of("none", "gzip")),
    ConfigKey(_PARQUET_CODEC, Type.STRING, "snappy", _LOW, "The Parquet compression codec to be used for output files.",
              one_of("none", "gzip", "snappy", "zstd")),
    ConfigKey(_PARTITIONER_CLASS, Type.STRING, f"{_PARTITIONER}DefaultPartitioner", _HIGH,
              "The partitioner to use when writing data to the store.", _one_class(_PARTITIONERS)),
    ConfigKey(_FIELDS, Type.LIST, [], _MEDIUM,
              "The names of the partitioning fields when FieldPartitioner is used."),
    ConfigKey(settings.DURATION_MS, Type.LONG, -1, _MEDIUM,
              "The duration of a partition in milliseconds used by TimeBasedPartitioner.", _INTERVAL),
    ConfigKey(settings.PATH_FORMAT, Type.STRING, "", _MEDIUM,
              "This configuration is used to set the format of the data directories when partitioning with "
              "TimeBasedPartitioner."),
    ConfigKey(_LOCALE, Type.STRING, "", _MEDIUM, "The locale to use when partitioning with TimeBasedPartitioner."),
    ConfigKey(settings.TIMEZONE, Type.STRING, "", _MEDIUM,
              "The timezone to use when partitioning with TimeBasedPartitioner."),
    ConfigKey(settings.EXTRACTOR, Type.STRING, "Wallclock", _MEDIUM,
              "The extractor that gets the timestamp for records when partitioning with TimeBasedPartitioner.",
              one_of(*TIMES)),
    ConfigKey(settings.TIMESTAMP_FIELD, Type.STRING, "timestamp", _MEDIUM,
              "The record field to be used as timestamp by the timestamp extractor.", non_empty_string()),
    ConfigKey(S3_ACCESS_KEY, Type.STRING, None, _HIGH,
              "The AWS access key ID used to authenticate personal AWS credentials such as IAM credentials."),
    ConfigKey(S3_SECRET_KEY, Type.PASSWORD, None, _HIGH,
              "The secret access key used to authenticate personal AWS credentials such as IAM credentials."),
)  # fmt: skip
"""Confluent's, of version 10, as far as they have an effect; `locale` is shown because its absence would surprise."""


class S3SinkConnector(SinkConnector):
    """Confluent's S3 sink, as far as docs/connectors/file-sink.md says."""

    class_name = "io.confluent.connect.s3.S3SinkConnector"
    aliases = ("S3SinkConnector", "S3Sink")
    version = file_sink.FileSink.version

    @classmethod
    def config_def(cls) -> ConfigDef:
        return KEYS

    def validate(self, config: Config) -> Sequence[ConfigError]:
        try:
            translated = task_config_of(config)
            settings.KEYS.parse(translated)
        except ConfigError as problem:
            return [_in_our_words(problem)]
        return [_in_our_words(one) for one in file_sink.problems_of(settings.KEYS, translated)]

    def warnings(self, config: Config) -> Sequence[FieldViolation]:
        return warnings_of(config)

    def start(self, config: Config) -> None:
        settings.check(settings.KEYS.parse(task_config_of(config)))
        super().start(config)

    def task_class(self) -> str:
        return file_sink.FileSink().task_class()

    def task_configs(self, max_tasks: int) -> list[dict[str, str | None]]:
        return [task_config_of(self.config) for _ in range(max_tasks)]

    def alter_offsets(self, config: Config, offsets: Mapping[PartitionId, int | None]) -> bool:
        return True  # the group's are all it has


def task_config_of(config: Config) -> dict[str, str | None]:
    """The same in `FileSink`'s keys. Raises ConfigError whose field is the key as it was written."""
    values = KEYS.parse(config)
    kind, form = values[_PARTITIONER_CLASS], _FORMATS[values[_FORMAT_CLASS]]
    intervals = [ms for ms in (values[_ROTATE_MS], values[_SCHEDULE_MS]) if ms > 0]
    found: dict[str, str | None] = {
        DIRECTORY: "s3://" + "/".join(filter(None, (values[_BUCKET], (values[_TOPICS_DIR] or "").strip("/")))),
        settings.FORMAT: form,
        settings.COMPRESSION: values[_PARQUET_CODEC if form == "parquet" else _LINES_COMPRESSION],
        settings.FILE_RECORDS: str(values[_FLUSH_SIZE]),
        settings.FLUSH_RECORDS: str((1 << 31) - 1),
        settings.ROTATE_INTERVAL_MS: str(min(intervals, default=(1 << 63) - 1)),
        settings.TOPIC_FOLDERS: "true",
        settings.PARTITIONER: _PARTITIONERS[kind],
        S3_REGION: values[S3_REGION],
        S3_ENDPOINT: values[_STORE_URL],
        S3_ACCESS_KEY: config.get(S3_ACCESS_KEY),
        S3_SECRET_KEY: config.get(S3_SECRET_KEY),
    }
    if _PARTITIONERS[kind] == "field":
        found[settings.PARTITION_FIELDS] = ",".join(values[_FIELDS])
    if _PARTITIONERS[kind] == "time":
        found |= _time_keys(kind, values)
    return {**_of_all(config), **{key: value for key, value in found.items() if value is not None}}


def _time_keys(kind: str, values: Mapping[str, Any]) -> dict[str, str]:
    pattern, duration_ms = _FIXED_TIMES.get(kind, (values[settings.PATH_FORMAT], values[settings.DURATION_MS]))
    if not pattern or duration_ms < 1 or not values[settings.TIMEZONE]:
        missing = (
            settings.PATH_FORMAT if not pattern else settings.DURATION_MS if duration_ms < 1 else settings.TIMEZONE
        )
        raise ConfigError(f"{missing} is missing: {kind} needs it", field=missing, fix="set it")
    _ZONE.check(settings.TIMEZONE, values[settings.TIMEZONE])
    return {
        settings.PATH_FORMAT: pattern,
        settings.DURATION_MS: str(duration_ms),
        settings.TIMEZONE: values[settings.TIMEZONE],
        settings.EXTRACTOR: values[settings.EXTRACTOR],
        settings.TIMESTAMP_FIELD: values[settings.TIMESTAMP_FIELD],
    }


def _of_all(config: Config) -> dict[str, str | None]:
    """What of the config is no key of this connector: the task's, too."""
    return {key: value for key, value in config.items() if key not in KEYS.keys and key not in _WITHOUT_EFFECT}


_WRITTEN = {
    DIRECTORY: _BUCKET,
    S3_ENDPOINT: _STORE_URL,
    settings.PARTITION_FIELDS: _FIELDS,
    settings.FILE_RECORDS: _FLUSH_SIZE,
}
"""`FileSink`'s keys, and those they were made from."""


def _in_our_words(problem: ConfigError) -> ConfigError:
    """About the key as it was written."""
    written = _WRITTEN.get(problem.field)
    if written is None:
        return problem
    fix = problem.fix
    for ours, key in _WRITTEN.items():
        fix = fix.replace(ours, key)
    return ConfigError(str(problem).replace(problem.field, written), field=written, fix=fix)


def warnings_of(config: Config) -> list[FieldViolation]:
    """Every key that has not the effect it asks for, with why."""
    found = [
        without_effect.without_effect(name, why)
        for name, (why, same) in _WITHOUT_EFFECT.items()
        if (text := (config.get(name) or "").strip()) and text not in same
    ]
    if (config.get(_ROTATE_MS) or "-1").strip() != "-1":
        message = f"{_ROTATE_MS} is how long the oldest record waits here, not a span of the records' own times"
        found.append(FieldViolation(_ROTATE_MS, message, f"or use {_SCHEDULE_MS}"))
    return [*found, *without_effect.unknown(config, {*KEYS.keys, *_WITHOUT_EFFECT})]
