"""Settings of a task's Spark session that all connectors of this family share: format, heap, options and session keys.

Owns their keys and the refusal of keys that a connector must not set. Starts no Spark.

Invariant: no connector setting makes Spark load code from elsewhere than the worker's jars.
"""

from __future__ import annotations

import re
from typing import Any

from herdmesh.sdk import Config, ConfigError, ConfigKey, Importance, Type, Validator

FORMAT, MEMORY = "spark.format", "spark.memory"
OPTION_PREFIX = "spark.option."
SESSION_PREFIXES = ("spark.sql.", "spark.hadoop.")
"""Prefixes of keys that are settings of the Spark session, by Spark's own names."""
ICEBERG = "iceberg"
FILE_FORMATS = ("parquet", "json", "csv", "orc")
"""Built-in formats of Spark that write files."""
_RESERVED = ("spark.sql.catalogImplementation", "spark.sql.hive.", "spark.sql.session.timeZone")
"""Session settings that would make Spark load code from elsewhere, or change the meaning of timestamps."""
_MEMORY = re.compile(r"\d+[mg]", re.IGNORECASE)
_MEMORY_MIB_MIN = 450
_MARIADB = re.compile(r"jdbc:mariadb:(?!.*ansi_quotes)", re.IGNORECASE | re.DOTALL)


def _check_memory(name: str, value: Any) -> None:
    text = str(value)
    if not _MEMORY.fullmatch(text):
        raise ConfigError.for_value(name, value, "not an amount of memory", fix="write one as 512m or 2g")
    if int(text[:-1]) * (1024 if text[-1] in "gG" else 1) < _MEMORY_MIB_MIN:
        raise ConfigError.for_value(name, value, "too little memory to start Spark", fix="write 512m or more")


MEMORY_KEY = ConfigKey(
    MEMORY, Type.STRING, "512m", Importance.MEDIUM, "Heap size of each task's Spark.",
    Validator("amount of memory, as 512m", _check_memory),
)  # fmt: skip


def refuse_unknown_dialect(key: str, url: str) -> None:
    """Raise ConfigError with this key for a URL whose database
    Spark would wrongly take for one that quotes names by `"`.
    """
    if _MARIADB.match(url):
        raise ConfigError(
            f"{key}: Spark does not know jdbc:mariadb, and quotes names in a way that MariaDB does not accept",
            field=key,
            fix="write jdbc:mysql://host:3306/database?permitMysqlScheme=true, which MariaDB's driver accepts",
        )  # fmt: skip


def options_of(config: Config) -> dict[str, str]:
    """Return the options of Spark's reader or writer."""
    return {
        name.removeprefix(OPTION_PREFIX): value
        for name, value in config.items()
        if name.startswith(OPTION_PREFIX) and value is not None
    }


def session_settings_of(config: Config) -> dict[str, str]:
    """Return the settings of the task's Spark session. Raises
    ConfigError for keys that a connector must not set.
    """
    found = {key: value for key, value in config.items() if key.startswith(SESSION_PREFIXES) and value is not None}
    for key in found:
        if key.startswith(_RESERVED):
            raise ConfigError(f"{key} cannot be set by a connector", field=key, fix="leave it out")
    return found
