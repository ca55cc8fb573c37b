"""Settings of Confluent's storage sinks, translated to `FileSink`'s.

Owns the keys that those connectors share, their translation, and the list of keys without effect. The differences of
one connector (`s3`, `hdfs`) are a `Dialect`. The task is `FileSink`'s.

    topics.dir/<topic>/<partitioner's folders>/<topic>+<partition>+<first offset>+<last offset>.<format>

Invariant: a key is honoured, refused or named in a warning; none is ignored silently.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from herdmesh.connectors.common import no_effect
from herdmesh.connectors.files import connector, key_warnings, settings
from herdmesh.connectors.files.partitioners import TIMES
from herdmesh.sdk import (
    REQUIRED,
    Config,
    ConfigDef,
    ConfigError,
    ConfigKey,
    FieldViolation,
    Importance,
    PartitionId,
    SinkConnector,
    Type,
    Validator,
)
from herdmesh.sdk.validators import at_least, non_empty_string, one_of, one_of_ignoring_case

TOPICS_DIR, FLUSH_SIZE, PARQUET_CODEC = "topics.dir", "flush.size", "parquet.codec"
_FORMAT_CLASS, _PARTITIONER_CLASS, _STORAGE_CLASS = "format.class", "partitioner.class", "storage.class"
_ROTATE_MS, _SCHEDULE_MS = "rotate.interval.ms", "rotate.schedule.interval.ms"
FIELDS, _LOCALE = "partition.field.name", "locale"
_PARTITIONER = "io.confluent.connect.storage.partitioner."
_OLD_PARTITIONER = "io.confluent.connect.hdfs.partitioner."
_KINDS = {"Default": "kafka", "Field": "field", "TimeBased": "time", "Hourly": "time", "Daily": "time"}
_FIXED_TIMES = {
    "Hourly": ("'year'=YYYY/'month'=MM/'day'=dd/'hour'=HH", 3_600_000),
    "Daily": ("'year'=YYYY/'month'=MM/'day'=dd", 86_400_000),
}
_HIGH, _MEDIUM, _LOW = Importance.HIGH, Importance.MEDIUM, Importance.LOW

#: Shared keys without effect: the reason, and the values for which no warning is due.
_WITHOUT_EFFECT: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "schema.compatibility": ("records with another schema go into another file", ("NONE",)),
    _LOCALE: ("folder names from timestamps are numbers, and names of days are English", ("en", "en-US", "en_US")),
    "filename.offset.zero.pad.width": ("offsets have ten digits", ("10",)),
    "directory.delim": ("folders end with a slash", ("/",)),
    "file.delim": ("parts of a file's name are separated by +", ("+",)),
}


@dataclass(frozen=True, slots=True)
class Dialect:
    """The differences of one connector from the shared settings."""

    java: str
    """The name of its definition in `known_keys`."""
    keys: ConfigDef
    formats: Mapping[str, str]
    """`FileSink`'s formats, by Confluent's class name."""
    lines_compression: str
    """The key for the compression of all formats but Parquet; "" = there is none."""
    folder: Callable[[Config, Mapping[str, Any]], dict[str, str | None]]
    """Function from a config and its parsed values to `FileSink`'s keys for the location and access to it."""
    written: Mapping[str, str]
    """`FileSink`'s keys, and the keys that they were translated from."""
    without_effect: Mapping[str, tuple[str, tuple[str, ...]]]
    refused: Mapping[str, tuple[tuple[str, ...], str, str]] = field(
        default_factory=dict[str, tuple[tuple[str, ...], str, str]]
    )
    """Keys for unsupported features: the harmless values, the reason, and the fix."""


_PARTITIONERS = {f"{package}{kind}Partitioner": kind for package in (_PARTITIONER, _OLD_PARTITIONER) for kind in _KINDS}


def _one_class(choices: Mapping[str, str] | Sequence[str]) -> Validator:
    names = tuple(choices)

    def check(field: str, value: Any) -> None:
        if value not in names:
            why = "Value must be non-null" if value is None else "not supported here"
            raise ConfigError.for_value(field, value, why, fix=f"write one of {', '.join(names)}")

    return Validator(f"[{', '.join(names)}]", check)


def _interval(field: str, value: Any) -> None:
    if value is None or (value < 1 and value != -1):
        raise ConfigError.for_value(field, value, "Value must be at least 1, or -1 for none", fix="write -1")


_INTERVAL = Validator("[1,...], or -1 for none", _interval)
_ZONE = Validator("name of a time zone", settings.check_zone)


def keys_of(
    formats: Mapping[str, str], storages: Sequence[str], *, first: Sequence[ConfigKey], last: Sequence[ConfigKey]
) -> ConfigDef:
    """Return a connector's definition: its own keys first and last, the shared ones in between. The shared keys are
    those of version 10 that have an effect; `locale` is listed because users expect it.
    """
    return ConfigDef(
        *first,
        ConfigKey(TOPICS_DIR, Type.STRING, "topics", _HIGH,
                  "Top level directory to store the data ingested from Kafka."),
        ConfigKey(_FORMAT_CLASS, Type.STRING, REQUIRED, _HIGH,
                  "The format class to use when writing data to the store.", _one_class(formats)),
        ConfigKey(_STORAGE_CLASS, Type.STRING, storages[0], _HIGH, "The underlying storage layer.",
                  _one_class(storages)),
        ConfigKey(FLUSH_SIZE, Type.INT, REQUIRED, _HIGH,
                  "Number of records written to store before invoking file commits.", at_least(1)),
        ConfigKey(_ROTATE_MS, Type.LONG, -1, _HIGH,
                  "The time interval in milliseconds to invoke file commits: here, how long the oldest record waits.",
                  _INTERVAL),
        ConfigKey(_SCHEDULE_MS, Type.LONG, -1, _MEDIUM,
                  "The time interval in milliseconds to periodically invoke file commits: here, how long the oldest "
                  "record waits.", _INTERVAL),
        ConfigKey(PARQUET_CODEC, Type.STRING, "snappy", _LOW,
                  "The Parquet compression codec to be used for output files.",
                  one_of("none", "gzip", "snappy", "zstd")),
        ConfigKey(settings.JSON_DECIMALS, Type.STRING, "BASE64", _LOW,
                  "Specify the JSON serialization format for Connect DECIMAL logical type values: BASE64 or NUMERIC.",
                  one_of_ignoring_case("BASE64", "NUMERIC")),
        ConfigKey(_PARTITIONER_CLASS, Type.STRING, f"{_PARTITIONER}DefaultPartitioner", _HIGH,
                  "The partitioner to use when writing data to the store.", _one_class(_PARTITIONERS)),
        ConfigKey(FIELDS, Type.LIST, [], _MEDIUM,
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
        *last,
    )  # fmt: skip


class StorageSink(SinkConnector):
    """Base class of Confluent's storage sinks, with the differences that docs/connectors/file-sink.md lists."""

    version = connector.FileSink.version

    @classmethod
    @abstractmethod
    def dialect(cls) -> Dialect:
        """Return the dialect of this connector."""

    @classmethod
    def config_def(cls) -> ConfigDef:
        return cls.dialect().keys

    def not_built(self, config: Config) -> Sequence[ConfigError]:
        return _not_built(self.dialect(), config)

    def validate(self, config: Config) -> Sequence[ConfigError]:
        dialect = self.dialect()
        found = _not_built(dialect, config)
        fields = {one.field for one in found}
        try:
            translated = task_config_of(dialect, {key: value for key, value in config.items() if key not in fields})
            settings.KEYS.parse(translated)
        except ConfigError as problem:
            return [*found, _in_their_words(dialect, problem)]
        if found:  # probe the store only with a usable config
            return found
        return [_in_their_words(dialect, one) for one in connector.problems_of(settings.KEYS, translated)]

    def warnings(self, config: Config) -> Sequence[FieldViolation]:
        return warnings_of(self.dialect(), config)

    def start(self, config: Config) -> None:
        settings.check(settings.KEYS.parse(task_config_of(self.dialect(), config)))
        super().start(config)

    def task_class(self) -> str:
        return connector.FileSink().task_class()

    def task_configs(self, max_tasks: int) -> list[dict[str, str | None]]:
        return [task_config_of(self.dialect(), self.config) for _ in range(max_tasks)]

    def alter_offsets(self, config: Config, offsets: Mapping[PartitionId, int | None]) -> bool:
        return True  # the sink has no offsets beside those of its consumer group


def task_config_of(dialect: Dialect, config: Config) -> dict[str, str | None]:
    """Translate a config to `FileSink`'s keys. Raises ConfigError whose field is Confluent's key."""
    values = dialect.keys.parse(config)
    for problem in _not_built(dialect, config):
        raise problem
    kind, form = _PARTITIONERS[values[_PARTITIONER_CLASS]], dialect.formats[values[_FORMAT_CLASS]]
    intervals = [ms for ms in (values[_ROTATE_MS], values[_SCHEDULE_MS]) if ms > 0]
    compression = PARQUET_CODEC if form == "parquet" else dialect.lines_compression
    found: dict[str, str | None] = {
        **dialect.folder(config, values),
        settings.FORMAT: form,
        settings.COMPRESSION: values[compression] if compression else "none",
        settings.JSON_DECIMALS: None if form == "parquet" else values[settings.JSON_DECIMALS],
        settings.FILE_RECORDS: str(values[FLUSH_SIZE]),
        settings.FLUSH_RECORDS: str((1 << 31) - 1),
        settings.ROTATE_INTERVAL_MS: str(min(intervals, default=(1 << 63) - 1)),
        settings.TOPIC_FOLDERS: "true",
        settings.PARTITIONER: _KINDS[kind],
    }
    if kind == "Field":
        found[settings.PARTITION_FIELDS] = ",".join(values[FIELDS])
    if _KINDS[kind] == "time":
        found |= _time_keys(kind, values)
    ours = {*dialect.keys.keys, *_WITHOUT_EFFECT, *dialect.without_effect, *dialect.refused}
    of_all = {key: value for key, value in config.items() if key not in ours}
    return {**of_all, **{key: value for key, value in found.items() if value is not None}}


def _not_built(dialect: Dialect, config: Config) -> list[ConfigError]:
    """Return an error for every key that requests an unsupported feature."""
    return [
        ConfigError.for_value(key, text, f"not supported here: {why}", fix=fix)
        for key, (same, why, fix) in dialect.refused.items()
        if (text := (config.get(key) or "").strip()).lower() not in same
    ]


def below(root: str, values: Mapping[str, Any]) -> str:
    """Return the path of the folder `topics.dir` in `root`; `root` has no slash at its end."""
    folder = (values[TOPICS_DIR] or "").strip("/")
    return f"{root}/{folder}" if folder else root


def _time_keys(kind: str, values: Mapping[str, Any]) -> dict[str, str]:
    pattern, duration_ms = _FIXED_TIMES.get(kind, (values[settings.PATH_FORMAT], values[settings.DURATION_MS]))
    if not pattern or duration_ms < 1 or not values[settings.TIMEZONE]:
        missing = (
            settings.PATH_FORMAT if not pattern else settings.DURATION_MS if duration_ms < 1 else settings.TIMEZONE
        )
        raise ConfigError(f"{missing} is missing: {kind}Partitioner needs it", field=missing, fix="set it")
    _ZONE.check(settings.TIMEZONE, values[settings.TIMEZONE])
    return {
        settings.PATH_FORMAT: pattern,
        settings.DURATION_MS: str(duration_ms),
        settings.TIMEZONE: values[settings.TIMEZONE],
        settings.EXTRACTOR: values[settings.EXTRACTOR],
        settings.TIMESTAMP_FIELD: values[settings.TIMESTAMP_FIELD],
    }


def _in_their_words(dialect: Dialect, problem: ConfigError) -> ConfigError:
    """Translate the field of an error back to Confluent's key."""
    names = {settings.PARTITION_FIELDS: FIELDS, settings.FILE_RECORDS: FLUSH_SIZE, **dialect.written}
    written = names.get(problem.field)
    if written is None:
        return problem
    fix = problem.fix
    for ours, key in names.items():
        fix = fix.replace(ours, key)
    return ConfigError(str(problem).replace(problem.field, written), field=written, fix=fix)


_OF_PARTITIONERS: Mapping[str, tuple[str, ...]] = {
    FIELDS: ("Field",),
    settings.PATH_FORMAT: ("TimeBased",),
    settings.DURATION_MS: ("TimeBased",),
    settings.TIMESTAMP_FIELD: ("TimeBased", "Hourly", "Daily"),
}
"""Keys, and the partitioners that read them."""


def _of_other_partitioners(config: Config) -> list[FieldViolation]:
    """Return the keys that the configured partitioner does not read."""
    kind = _PARTITIONERS.get((config.get(_PARTITIONER_CLASS) or "").strip())
    return [
        no_effect(key, f"it is for {' and '.join(f'{one}Partitioner' for one in kinds)}")
        for key, kinds in _OF_PARTITIONERS.items()
        if kind is not None and kind not in kinds and (config.get(key) or "").strip()
    ]


def warnings_of(dialect: Dialect, config: Config) -> list[FieldViolation]:
    """Return a warning for every key without the effect that its value requests, with the reason."""
    silent = {**_WITHOUT_EFFECT, **dialect.without_effect}
    found = [
        no_effect(name, why)
        for name, (why, same) in silent.items()
        if (text := (config.get(name) or "").strip()) and text not in same
    ]
    found += _of_other_partitioners(config)
    if (config.get(_ROTATE_MS) or "-1").strip() != "-1":
        message = f"{_ROTATE_MS} limits here how long the oldest record waits; it is not a span of record timestamps"
        found.append(FieldViolation(_ROTATE_MS, message, f"or use {_SCHEDULE_MS}"))
    return [*found, *key_warnings.unknown(config, {*dialect.keys.keys, *silent, *dialect.refused}, dialect.java)]
