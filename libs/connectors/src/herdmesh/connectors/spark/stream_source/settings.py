"""Settings of a `SparkStreamSource`, and the formats that it supports.

Owns the keys, and for each format the rules that make its positions reliable: required options, options that are fixed
because the order of rows depends on them, and whether it ends. All other options are Spark's: `spark.option.<name>` is
passed to its reader as `<name>`.

Invariant: a format is listed only if its stream continues from a given offset and gives the same rows between two
offsets at every read; the repr of the settings shows no password.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from herdmesh.connect.spi import ConnectorKind
from herdmesh.connectors.common import warned_settings
from herdmesh.connectors.spark.session_settings import (
    FILE_FORMATS,
    FORMAT,
    ICEBERG,
    MEMORY,
    MEMORY_KEY,
    OPTION_PREFIX,
    SESSION_PREFIXES,
    options_of,
    session_settings_of,
)
from herdmesh.sdk import REQUIRED, Config, ConfigDef, ConfigError, ConfigKey, FieldViolation, Importance, Type
from herdmesh.sdk.validators import at_least, non_empty_string

TOPIC, KEY_COLUMN, POLL_MS, BATCH_ROWS = "topic", "key.column", "poll.interval.ms", "batch.max.rows"
KAFKA, RATE = "kafka", "rate-micro-batch"
_SECRET_OPTIONS: Final = ("sasl.jaas.config", "ssl.keystore.password", "ssl.key.password", "ssl.truststore.password")
_HIGH, _MEDIUM, _LOW = Importance.HIGH, Importance.MEDIUM, Importance.LOW


@dataclass(frozen=True, slots=True)
class Format:
    """A supported format."""

    needs: tuple[str, ...]
    """Required options; `a|b` = one of them."""
    named_by: tuple[str, ...] = ()
    """Options whose values identify the stream, in the source partition."""
    unless_given: Mapping[str, str] = field(default_factory=dict[str, str])
    """Default size of a slice, by the format's own options."""
    fixed: Mapping[str, str] = field(default_factory=dict[str, str])
    """Options on which the order of rows depends; "" = must be left out."""
    is_endless: bool = False
    """The stream always has more rows: read one slice at each poll interval, not at once."""


FORMATS: Final[Mapping[str, Format]] = {
    KAFKA: Format(
        ("kafka.bootstrap.servers", "subscribe|subscribePattern|assign"),
        unless_given={"maxOffsetsPerTrigger": "50000"},
        fixed={"minPartitions": "", "maxRecordsPerPartition": ""},
    ),
    ICEBERG: Format(
        ("path",),
        named_by=("path",),
        unless_given={"streaming-max-files-per-micro-batch": "10"},
        fixed={"split-size": "134217728", "lookback": "10", "file-open-cost": "4194304"},
    ),
    RATE: Format(("rowsPerBatch",), fixed={"numPartitions": "1"}, is_endless=True),
}  # fmt: skip
_CHECKPOINT: Final = "only its checkpoint knows which files it has read"
_WHY_NOT: Final[Mapping[str, str]] = {
    **dict.fromkeys((*FILE_FORMATS, "text", "avro", "xml", "binaryFile"), _CHECKPOINT),
    "delta": "Spark reports its position only to a query with a checkpoint",
    "jdbc": "Spark does not stream it",
    "rate": "it counts from the creation of its checkpoint",
    "socket": "it does not send the same data twice",
}
_INSTEAD: Final[Mapping[str, str]] = {
    "jdbc": "connector.class=SparkJdbcSource", "rate": f"{FORMAT}={RATE}", "text": "connector.class=FileStreamSource",
}  # fmt: skip

KEYS = ConfigDef(
    ConfigKey(FORMAT, Type.STRING, REQUIRED, _HIGH, f"Name of the format: {', '.join(FORMATS)}.", non_empty_string()),
    ConfigKey(TOPIC, Type.STRING, REQUIRED, _HIGH, "Topic to write to.", non_empty_string()),
    ConfigKey(KEY_COLUMN, Type.STRING, "", _MEDIUM, "Column whose value is the record's key as well; empty = no keys."),
    ConfigKey(POLL_MS, Type.INT, 5_000, _MEDIUM, "Interval between checks for new data, in milliseconds.", at_least(1)),
    ConfigKey(BATCH_ROWS, Type.INT, 5_000, _LOW, "Maximum number of rows in a batch.", at_least(1)),
    MEMORY_KEY,
    *(
        ConfigKey(f"{OPTION_PREFIX}kafka.{name}", Type.PASSWORD, None, _LOW,
                  f"With kafka: setting of its client, {name}.")
        for name in _SECRET_OPTIONS
    ),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class StreamSettings:
    """The parsed settings of a task."""

    name: str
    """Spark's name of the format."""
    format: Format
    topic: str
    key_column: str
    """Column of the record key; "" = records have no key."""
    poll_s: float
    batch_rows: int
    memory: str
    partition: Mapping[str, Any]
    """Source partition, as in the offsets topic."""
    options: Mapping[str, str] = field(repr=False)
    """Options of Spark's reader; may contain passwords."""
    session: Mapping[str, str] = field(repr=False)
    """Settings of the Spark session; may contain passwords."""


def settings_of(config: Config) -> StreamSettings:
    """Read the config. Raises ConfigError whose field is the key."""
    values = KEYS.parse(config)
    name = values[FORMAT].strip()
    found = _format_of(name)
    given = options_of(config)
    lower = {option.lower(): value for option, value in given.items()}
    for needed in found.needs:
        if not any((lower.get(one.lower()) or "").strip() for one in needed.split("|")):
            key = OPTION_PREFIX + needed.split("|")[0]
            raise ConfigError(f"{key} is missing: {FORMAT}={name} needs it", field=key, fix=f"set {key}")
    for option in given:
        if option.lower() in map(str.lower, found.fixed):
            key = OPTION_PREFIX + option
            raise ConfigError(f"{key}: it decides the order of rows, which positions depend on", field=key,
                              fix="leave it out")  # fmt: skip
    unless = {option: value for option, value in found.unless_given.items() if option.lower() not in lower}
    fixed = {option: value for option, value in found.fixed.items() if value}
    return StreamSettings(
        name=name,
        format=found,
        topic=values[TOPIC].strip(),
        key_column=(values[KEY_COLUMN] or "").strip(),
        poll_s=values[POLL_MS] / 1000,
        batch_rows=values[BATCH_ROWS],
        memory=values[MEMORY].lower(),
        partition={"format": name, **{option: lower[option.lower()].strip() for option in found.named_by}},
        options={**given, **unless, **fixed},
        session=session_settings_of(config),
    )


def warnings_of(config: Config) -> list[FieldViolation]:
    """Return warnings about keys without effect."""
    own = {*KEYS.keys, "task.class"}
    return warned_settings(config, own, ConnectorKind.SOURCE, prefixes=(OPTION_PREFIX, *SESSION_PREFIXES))


def _format_of(name: str) -> Format:
    found = FORMATS.get(name)
    if found is None:
        why = _WHY_NOT.get(name, "it is not known whether its stream can continue from a given position")
        fix = _INSTEAD.get(name, f"write one of {', '.join(FORMATS)}")
        raise ConfigError(f"{FORMAT}={name} cannot be read from a stored position: {why}", field=FORMAT, fix=fix)
    return found
