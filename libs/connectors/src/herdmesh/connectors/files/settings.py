"""Settings of a `FileSink`, read from its config.

Owns the keys, the rules between them, and the values that a task works with. Locations: `locations`.

Invariant: the settings are consistent; only access to the folder is unchecked.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from herdmesh.connect.errors import IllegalArgumentError
from herdmesh.connectors.files.formats import COMPRESSIONS, Wanted
from herdmesh.connectors.files.locations import (
    DIRECTORY,
    HADOOP_USER,
    S3_ACCESS_KEY,
    S3_ENDPOINT,
    S3_REGION,
    S3_SECRET_KEY,
    Access,
    Location,
)
from herdmesh.connectors.files.partitioners import (
    TIMES,
    FieldPartitioner,
    KafkaPartitioner,
    Partitioner,
    TimePartitioner,
    TogetherPartitioner,
    pattern_problem,
    shown_folder,
    zone_of,
)
from herdmesh.sdk import REQUIRED, Config, ConfigDef, ConfigError, ConfigKey, Importance, Type, Validator
from herdmesh.sdk.validators import at_least, non_empty_string, one_of, one_of_ignoring_case

FORMAT, COMPRESSION = "format", "compression"
JSON_DECIMALS = "json.decimal.format"
FLUSH_RECORDS, FILE_RECORDS = "flush.records", "file.records"
ROTATE_INTERVAL_MS, ROTATE_BYTES = "rotate.interval.ms", "rotate.bytes"
PARTITIONER, PARTITION_FIELDS = "partitioner", "partition.fields"
PATH_FORMAT, DURATION_MS, TIMEZONE = "path.format", "partition.duration.ms", "timezone"
EXTRACTOR, TIMESTAMP_FIELD = "timestamp.extractor", "timestamp.field"
TOPIC_FOLDERS = "topic.folders"
PARTITIONERS = ("none", "kafka", "field", "time")
FLUSH_RECORDS_DEFAULT = 100_000
ROTATE_INTERVAL_MS_DEFAULT = 10_000
ROTATE_BYTES_DEFAULT = 512 * 1024 * 1024
PATH_FORMAT_DEFAULT = "'year'=yyyy/'month'=MM/'day'=dd/'hour'=HH"
DURATION_MS_DEFAULT = 3_600_000
_HIGH, _MEDIUM, _LOW = Importance.HIGH, Importance.MEDIUM, Importance.LOW
_ALL_COMPRESSIONS = tuple(dict.fromkeys(name for names in COMPRESSIONS.values() for name in names))


def optional(rule: Validator) -> Validator:
    """Make a rule accept null."""

    def check(field: str, value: Any) -> None:
        if value is not None:
            rule.check(field, value)

    return Validator(rule.text, check)


def check_zone(field: str, value: Any) -> None:
    """Raise ConfigError for a time zone that does not exist."""
    try:
        zone_of(value or "")
    except ValueError as error:
        fix = "write one as Europe/Berlin or +02:00"
        raise ConfigError.for_value(field, value, "no time zone", fix=fix) from error


def check_pattern(field: str, value: Any) -> None:
    """Raise ConfigError for an invalid folder pattern."""
    try:
        problem = pattern_problem(value or "")
    except IllegalArgumentError as error:
        problem = str(error)
    if problem:
        raise ConfigError.for_value(field, value, problem, fix=PATH_FORMAT_DEFAULT)


KEYS = ConfigDef(
    ConfigKey(
        DIRECTORY, Type.STRING, REQUIRED, _HIGH,
        "Folder of the published files: on a disk that all workers share (created if missing), s3://BUCKET/FOLDER, or "
        "the URI of a Hadoop file system.", non_empty_string(),
    ),
    ConfigKey(FORMAT, Type.STRING, "parquet", _HIGH, "Format of the files.", one_of(*COMPRESSIONS)),
    ConfigKey(
        COMPRESSION, Type.STRING, None, _LOW,
        "Compression of the files: zstd (if not set), snappy, gzip or none for parquet; none (if not set) or gzip for "
        "csv, json and text.", optional(one_of(*_ALL_COMPRESSIONS)),
    ),
    ConfigKey(
        JSON_DECIMALS, Type.STRING, "NUMERIC", _LOW,
        "Decimals in JSON: NUMERIC, a number with all digits, or BASE64, as Java's JsonConverter writes them.",
        one_of_ignoring_case("NUMERIC", "BASE64"),
    ),
    ConfigKey(
        FLUSH_RECORDS, Type.INT, FLUSH_RECORDS_DEFAULT, _MEDIUM, "Publish when a task holds this many records.",
        at_least(1),
    ),
    ConfigKey(
        FILE_RECORDS, Type.INT, 0, _MEDIUM,
        "Maximum number of records in a file; the task publishes when a file has as many. 0 = no limit.", at_least(0),
    ),
    ConfigKey(
        ROTATE_INTERVAL_MS, Type.LONG, ROTATE_INTERVAL_MS_DEFAULT, _MEDIUM,
        "Publish when the oldest record that a task holds has waited this long, in milliseconds.", at_least(1),
    ),
    ConfigKey(
        ROTATE_BYTES, Type.LONG, ROTATE_BYTES_DEFAULT, _MEDIUM,
        "Publish when the records that a task holds take this many bytes of memory.", at_least(1),
    ),
    ConfigKey(
        PARTITIONER, Type.STRING, "none", _MEDIUM,
        "Subfolder of a record: none, by Kafka partition, by fields, or by time.",
        one_of(*PARTITIONERS),
    ),
    ConfigKey(
        PARTITION_FIELDS, Type.LIST, [], _MEDIUM,
        "With partitioner=field: fields that name the subfolders, outermost first.",
    ),
    ConfigKey(
        PATH_FORMAT, Type.STRING, PATH_FORMAT_DEFAULT, _MEDIUM,
        "With partitioner=time: Java date pattern of the subfolders.", Validator("date pattern", check_pattern),
    ),
    ConfigKey(
        DURATION_MS, Type.LONG, DURATION_MS_DEFAULT, _MEDIUM,
        "With partitioner=time: time span of a subfolder, in milliseconds; times are rounded down to a multiple of it.",
        at_least(1),
    ),
    ConfigKey(
        TIMEZONE, Type.STRING, "UTC", _MEDIUM, "With partitioner=time: time zone of the subfolders.",
        Validator("name of a time zone", check_zone),
    ),
    ConfigKey(
        EXTRACTOR, Type.STRING, "Record", _MEDIUM,
        "With partitioner=time: source of a record's time: Record (Kafka's timestamp), Wallclock (time of writing) or "
        "RecordField.",
        one_of(*TIMES),
    ),
    ConfigKey(
        TIMESTAMP_FIELD, Type.STRING, "timestamp", _MEDIUM,
        "With timestamp.extractor=RecordField: field with the time, in milliseconds since 1970 or ISO 8601.",
        non_empty_string(),
    ),
    ConfigKey(TOPIC_FOLDERS, Type.BOOLEAN, False, _LOW,
              "Whether each topic has its own folder, above the partitioner's subfolders."),
    ConfigKey(S3_REGION, Type.STRING, None, _MEDIUM, "Region of the bucket; if not set, from the AWS environment."),
    ConfigKey(
        S3_ENDPOINT, Type.STRING, None, _MEDIUM,
        "Address of an S3-compatible server, http://HOST:PORT; if not set, AWS.",
    ),
    ConfigKey(
        S3_ACCESS_KEY, Type.STRING, None, _MEDIUM,
        "Access key for S3; if not set, the AWS credential chain: environment, files and the machine's role.",
    ),
    ConfigKey(S3_SECRET_KEY, Type.PASSWORD, None, _MEDIUM, "Secret key for S3."),
    ConfigKey(HADOOP_USER, Type.STRING, None, _LOW, "User name for Hadoop's client; if not set, the worker's."),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class FileSettings:
    """The parsed settings of a task."""

    location: Location
    access: Access
    format: Wanted
    partitioner: Partitioner
    topic_folders: bool
    flush_records: int
    file_records: int
    """Records per file; 0 = no limit."""
    rotate_bytes: int
    rotate_s: float


def settings_of(config: Config, *, defaults: bool = True) -> FileSettings:
    """Read the config. `defaults`: `TaskContext.value_defaults`. Raises ConfigError whose field is the key."""
    values = KEYS.parse(config)
    return FileSettings(
        location=Location.parse(values[DIRECTORY]),
        access=Access.of(values),
        format=Wanted(values[FORMAT], _compression(values), values[JSON_DECIMALS].upper() == "NUMERIC", defaults),
        partitioner=_partitioner(values, defaults=defaults),
        topic_folders=values[TOPIC_FOLDERS],
        flush_records=values[FLUSH_RECORDS],
        file_records=values[FILE_RECORDS],
        rotate_bytes=values[ROTATE_BYTES],
        rotate_s=values[ROTATE_INTERVAL_MS] / 1000,
    )


def check(values: Mapping[str, Any]) -> None:
    """Check the rules between parsed keys, like `settings_of`, without
    importing the modules that only a task needs. Raises ConfigError.
    """
    Location.parse(values[DIRECTORY])
    Access.of(values)
    _compression(values)
    _partitioner(values)


def _compression(values: Mapping[str, Any]) -> str | None:
    name, compression = values[FORMAT], values[COMPRESSION]
    if compression is not None and compression not in COMPRESSIONS[name]:
        fix = f"write {' or '.join(COMPRESSIONS[name])}"
        raise ConfigError.for_value(COMPRESSION, compression, f"{name} files do not support it", fix=fix)
    return compression


def _partitioner(values: Mapping[str, Any], *, defaults: bool = True) -> Partitioner:
    kind: str = values[PARTITIONER]
    fields: list[str] = values[PARTITION_FIELDS] or []
    if kind == "field":
        if not fields or not all(fields):
            raise ConfigError.for_value(
                PARTITION_FIELDS, fields, "partitioner=field needs fields", fix="name at least one field"
            )
        return FieldPartitioner(fields, defaults=defaults)
    if kind == "time":
        is_hdfs = Location.parse(values[DIRECTORY]).scheme in ("hdfs", "webhdfs", "swebhdfs")
        if is_hdfs and ":" in shown_folder(values[PATH_FORMAT]):
            why = "HDFS does not allow a colon in a name"
            raise ConfigError.for_value(PATH_FORMAT, values[PATH_FORMAT], why, fix=PATH_FORMAT_DEFAULT)
        times = TIMES[values[EXTRACTOR]](values[TIMESTAMP_FIELD], defaults)
        return TimePartitioner(values[PATH_FORMAT], values[DURATION_MS], values[TIMEZONE], times)
    return KafkaPartitioner() if kind == "kafka" else TogetherPartitioner()
