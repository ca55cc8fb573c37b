"""The settings of a `SparkSink`, read from its config.

Owns the sink's keys. The keys of a task's Spark: `session_settings`. The options of a format are Spark's:
`spark.option.<name>` is passed to its writer as `<name>`.

Invariant: the settings name one target, and one staging folder for the rows that are not yet written to it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from herdmesh.connectors.files import folder_problem, unknown
from herdmesh.connectors.spark.session_settings import (
    FILE_FORMATS,
    FORMAT,
    ICEBERG,
    MEMORY,
    MEMORY_KEY,
    OPTION_PREFIX,
    SESSION_PREFIXES,
    options_of,
    refuse_unknown_dialect,
    session_settings_of,
)
from herdmesh.sdk import REQUIRED, Config, ConfigDef, ConfigError, ConfigKey, FieldViolation, Importance, Type
from herdmesh.sdk.validators import at_least, non_empty_string, one_of

MODE, PARTITION_BY = "spark.mode", "spark.partition.by"
STAGING = "staging.directory"
DELTA = "delta"
PATH, PASSWORD, URL, TABLE = (OPTION_PREFIX + name for name in ("path", "password", "url", "dbtable"))
FLUSH_RECORDS, ROTATE_INTERVAL_MS, ROTATE_BYTES = "flush.records", "rotate.interval.ms", "rotate.bytes"
_HIGH, _MEDIUM, _LOW = Importance.HIGH, Importance.MEDIUM, Importance.LOW
_GLOB = re.compile(r"[*?\[\]{}\\]")
"""Characters that Spark treats as a pattern in a path that it reads."""


KEYS = ConfigDef(
    ConfigKey(
        FORMAT, Type.STRING, REQUIRED, _HIGH,
        "Name of the format in Spark: parquet, json, csv, orc, jdbc, or one that a jar of the worker provides.",
        non_empty_string(),
    ),
    ConfigKey(
        STAGING, Type.STRING, REQUIRED, _HIGH,
        "Folder on a disk that all workers share (created if missing), for committed records until Spark has written "
        "them.", non_empty_string(),
    ),
    ConfigKey(
        MODE, Type.STRING, "append", _LOW, "Always append: each commit adds to what the target has.", one_of("append"),
    ),
    ConfigKey(PARTITION_BY, Type.LIST, [], _MEDIUM, "Fields that Spark partitions the target by, in order."),
    MEMORY_KEY,
    ConfigKey(FLUSH_RECORDS, Type.INT, 100_000, _MEDIUM, "Write when a task holds this many records.", at_least(1)),
    ConfigKey(
        ROTATE_INTERVAL_MS, Type.LONG, 10_000, _MEDIUM,
        "Write when the oldest record that a task holds has waited this long, in milliseconds.", at_least(1),
    ),
    ConfigKey(
        ROTATE_BYTES, Type.LONG, 256 * 1024 * 1024, _MEDIUM,
        "Write when the records that a task holds take this many bytes of memory.", at_least(1),
    ),
    ConfigKey(
        PATH, Type.STRING, None, _HIGH, "Target folder of file formats and delta; with iceberg the table name.",
    ),
    ConfigKey(URL, Type.STRING, None, _HIGH, "With jdbc: JDBC URL of the database."),
    ConfigKey(TABLE, Type.STRING, None, _HIGH, "With jdbc: target table; Spark creates it if missing."),
    ConfigKey(PASSWORD, Type.PASSWORD, None, _MEDIUM, "The option password of Spark's writer."),
)  # fmt: skip

_FAR_YEARS = ("jdbc:postgresql:", "jdbc:sqlite:")
"""URLs of databases whose driver writes dates of any year unchanged."""


@dataclass(frozen=True, slots=True)
class SparkSettings:
    """The parsed settings of a task."""

    format: str
    staging: Path
    """Absolute path."""
    partition_by: list[str]
    memory: str
    flush_records: int
    rotate_s: float
    rotate_bytes: int
    options: Mapping[str, str] = field(repr=False)
    """Options of Spark's writer; may contain passwords."""
    session: Mapping[str, str] = field(repr=False)
    """Settings of the Spark session: catalogs, extensions, access to file systems; may contain passwords."""

    @property
    def refuses_far_years(self) -> bool:
        """True for a database whose driver is not known to write dates outside of the years 1 to 9999 unchanged."""
        return self.format == "jdbc" and not self.options["url"].strip().lower().startswith(_FAR_YEARS)


def settings_of(config: Config) -> SparkSettings:
    """Read the config. Raises ConfigError whose field is the key."""
    values = KEYS.parse(config)
    found = SparkSettings(
        format=values[FORMAT].strip(),
        staging=Path(os.path.abspath(values[STAGING].strip())),
        partition_by=values[PARTITION_BY] or [],
        memory=values[MEMORY].lower(),
        flush_records=values[FLUSH_RECORDS],
        rotate_s=values[ROTATE_INTERVAL_MS] / 1000,
        rotate_bytes=values[ROTATE_BYTES],
        options=options_of(config),
        session=session_settings_of(config),
    )
    if pattern := _GLOB.search(str(found.staging)):
        raise ConfigError.for_value(
            STAGING, values[STAGING], f"Spark reads {pattern[0]} as a pattern", fix="name another folder"
        )
    if found.partition_by and found.format == "jdbc":
        raise ConfigError(f"{PARTITION_BY} cannot be used with {FORMAT}=jdbc", field=PARTITION_BY, fix="leave it out")
    for key in _needed(found.format):
        if not (config.get(key) or "").strip():
            raise ConfigError(f"{key} is missing: {FORMAT}={found.format} needs it", field=key, fix=f"set {key}")
    if found.format == "jdbc":
        refuse_unknown_dialect(URL, found.options["url"])
    return found


def problems_of(config: Config) -> list[ConfigError]:
    """Return the errors that the key definitions cannot find."""
    try:
        KEYS.parse(config)
    except ConfigError:
        return []  # the definition reports these errors
    try:
        problem = folder_problem(settings_of(config).staging)
    except ConfigError as error:
        return [error]
    if problem is None:
        return []
    message = str(problem).replace("directory:", f"{STAGING}:", 1)
    return [ConfigError(message, field=STAGING, fix=problem.fix)]


def warnings_of(config: Config) -> list[FieldViolation]:
    """Return warnings about keys without effect."""
    return [one for one in unknown(config, KEYS.keys) if not one.field.startswith((OPTION_PREFIX, *SESSION_PREFIXES))]


def _needed(name: str) -> tuple[str, ...]:
    if name in (*FILE_FORMATS, DELTA, ICEBERG):
        return (PATH,)
    return (URL, TABLE) if name == "jdbc" else ()
