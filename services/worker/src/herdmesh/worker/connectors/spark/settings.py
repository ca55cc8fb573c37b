"""What a `SparkSink`'s configuration says.

Owns the keys and the values a task works with. What a format's own options mean is Spark's: `spark.option.<name>` goes
to its writer as `<name>`.

Invariant: what `settings_of` returns names one target and one folder for what waits to be written there.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from herdmesh.sdk import (
    REQUIRED,
    Config,
    ConfigDef,
    ConfigError,
    ConfigKey,
    FieldViolation,
    Importance,
    Type,
    Validator,
)
from herdmesh.sdk.validators import at_least, non_empty_string, one_of
from herdmesh.worker.connectors.files.locations import folder_problem
from herdmesh.worker.connectors.files.without_effect import unknown

FORMAT, MODE, PARTITION_BY, MEMORY = "spark.format", "spark.mode", "spark.partition.by", "spark.memory"
STAGING = "staging.directory"
OPTION_PREFIX = "spark.option."
SESSION_PREFIXES = ("spark.sql.", "spark.hadoop.")
"""Keys that are settings of the Spark that writes, by the names that Spark has for them."""
DELTA, ICEBERG = "delta", "iceberg"
PATH, PASSWORD, URL, TABLE = (OPTION_PREFIX + name for name in ("path", "password", "url", "dbtable"))
FLUSH_RECORDS, ROTATE_INTERVAL_MS, ROTATE_BYTES = "flush.records", "rotate.interval.ms", "rotate.bytes"
FILE_FORMATS = ("parquet", "json", "csv", "orc")
"""Those that come with Spark and write files."""
_NOT_OURS_TO_GIVE = ("spark.sql.catalogImplementation", "spark.sql.hive.", "spark.sql.session.timeZone")
"""Of those: what makes Spark load code from elsewhere than the worker's jars, or changes what a moment means."""
_HIGH, _MEDIUM, _LOW = Importance.HIGH, Importance.MEDIUM, Importance.LOW
_MEMORY = re.compile(r"\d+[mg]", re.IGNORECASE)
_MEMORY_MIB_MIN = 450
_MARIADB = re.compile(r"jdbc:mariadb:(?!.*ansi_quotes)", re.IGNORECASE | re.DOTALL)
_GLOB = re.compile(r"[*?\[\]{}\\]")
"""What Spark takes for a pattern in a path it is to read."""


def _check_memory(name: str, value: Any) -> None:
    text = str(value)
    if not _MEMORY.fullmatch(text):
        raise ConfigError.for_value(name, value, "not an amount of memory", fix="write one as 512m or 2g")
    if int(text[:-1]) * (1024 if text[-1] in "gG" else 1) < _MEMORY_MIB_MIN:
        raise ConfigError.for_value(name, value, "Spark does not start with so little", fix="write 512m or more")


KEYS = ConfigDef(
    ConfigKey(
        FORMAT, Type.STRING, REQUIRED, _HIGH,
        "Name of the format as Spark knows it: parquet, json, csv, orc, jdbc, or one of a jar of the worker's.",
        non_empty_string(),
    ),
    ConfigKey(
        STAGING, Type.STRING, REQUIRED, _HIGH,
        "A folder on a disk all workers see (made when absent): what is committed waits there until Spark has written "
        "it.", non_empty_string(),
    ),
    ConfigKey(
        MODE, Type.STRING, "append", _LOW, "Always append: each commit adds to what the target has.", one_of("append"),
    ),
    ConfigKey(PARTITION_BY, Type.LIST, [], _MEDIUM, "Fields by whose values Spark partitions the target, in order."),
    ConfigKey(
        MEMORY, Type.STRING, "512m", _MEDIUM, "Heap of each task's Spark.",
        Validator("amount of memory, as 512m", _check_memory),
    ),
    ConfigKey(FLUSH_RECORDS, Type.INT, 100_000, _MEDIUM, "Write when a task holds so many records.", at_least(1)),
    ConfigKey(
        ROTATE_INTERVAL_MS, Type.LONG, 10_000, _MEDIUM,
        "Write when the oldest record a task holds has waited so long, in milliseconds.", at_least(1),
    ),
    ConfigKey(
        ROTATE_BYTES, Type.LONG, 256 * 1024 * 1024, _MEDIUM,
        "Write when what a task holds takes so many bytes of memory.", at_least(1),
    ),
    ConfigKey(
        PATH, Type.STRING, None, _HIGH, "Where a format of files, or delta, writes; with iceberg the table's name.",
    ),
    ConfigKey(URL, Type.STRING, None, _HIGH, "With jdbc: the database, as its driver names it."),
    ConfigKey(TABLE, Type.STRING, None, _HIGH, "With jdbc: the table; Spark makes it when it is absent."),
    ConfigKey(PASSWORD, Type.PASSWORD, None, _MEDIUM, "The option password of Spark's writer."),
)  # fmt: skip

_FAR_YEARS = ("jdbc:postgresql:", "jdbc:sqlite:")
"""URLs of databases whose driver writes days of any year as they are."""


@dataclass(frozen=True, slots=True)
class SparkSettings:
    """What a task works with."""

    format: str
    staging: Path
    """Absolute."""
    partition_by: list[str]
    memory: str
    flush_records: int
    rotate_s: float
    rotate_bytes: int
    options: Mapping[str, str] = field(repr=False)
    """For Spark's writer; may have passwords."""
    session: Mapping[str, str] = field(repr=False)
    """Of the Spark that writes: catalogs, extensions, access to file systems; may have passwords."""

    @property
    def refuses_far_years(self) -> bool:
        """True for a database whose driver is not known to write days outside of the years 1 to 9999 as they are."""
        return self.format == "jdbc" and not self.options["url"].strip().lower().startswith(_FAR_YEARS)


def settings_of(config: Config) -> SparkSettings:
    """Read the configuration. Raises ConfigError whose field is the key."""
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
            STAGING, values[STAGING], f"Spark takes {pattern[0]} for a pattern", fix="name another folder"
        )
    if found.partition_by and found.format == "jdbc":
        raise ConfigError(f"{PARTITION_BY} is not for {FORMAT}=jdbc", field=PARTITION_BY, fix="leave it out")
    for key in _needed(found.format):
        if not (config.get(key) or "").strip():
            raise ConfigError(f"{key} is missing: {FORMAT}={found.format} needs it", field=key, fix=f"set {key}")
    if found.format == "jdbc":
        refuse_unknown_dialect(URL, found.options["url"])
    return found


def problems_of(config: Config) -> list[ConfigError]:
    """What the definition does not see."""
    try:
        KEYS.parse(config)
    except ConfigError:
        return []  # told by the definition
    try:
        problem = folder_problem(settings_of(config).staging)
    except ConfigError as error:
        return [error]
    if problem is None:
        return []
    message = str(problem).replace("directory:", f"{STAGING}:", 1)
    return [ConfigError(message, field=STAGING, fix=problem.fix)]


def warnings_of(config: Config) -> list[FieldViolation]:
    """Keys without effect."""
    return [one for one in unknown(config, KEYS.keys) if not one.field.startswith((OPTION_PREFIX, *SESSION_PREFIXES))]


def _needed(name: str) -> tuple[str, ...]:
    if name in (*FILE_FORMATS, DELTA, ICEBERG):
        return (PATH,)
    return (URL, TABLE) if name == "jdbc" else ()


def refuse_unknown_dialect(key: str, url: str) -> None:
    """Raises ConfigError with this key for a URL whose database Spark would take for one that quotes names by `"`."""
    if _MARIADB.match(url):
        raise ConfigError(
            f"{key}: Spark does not know jdbc:mariadb, and quotes names in a way that MariaDB does not take", field=key,
            fix="write jdbc:mysql://host:3306/database?permitMysqlScheme=true, which MariaDB's driver takes",
        )  # fmt: skip


def options_of(config: Config) -> dict[str, str]:
    """What goes to Spark's reader or writer."""
    return {
        name.removeprefix(OPTION_PREFIX): value
        for name, value in config.items()
        if name.startswith(OPTION_PREFIX) and value is not None
    }


def session_settings_of(config: Config) -> dict[str, str]:
    """Of the task's Spark. Raises ConfigError for what connectors may not say."""
    found = {key: value for key, value in config.items() if key.startswith(SESSION_PREFIXES) and value is not None}
    for key in found:
        if key.startswith(_NOT_OURS_TO_GIVE):
            raise ConfigError(f"{key} is not for connectors to say", field=key, fix="leave it out")
    return found
