"""Settings that all sources of tables share: the keys of
Confluent's JDBC source, in its words, and the modes.

Owns the definitions of the shared keys and their meaning for reading. The selection of tables, and further keys:
`postgres.source.settings` and `spark.jdbc_source.settings`.

Invariant: a shared key means the same in every source of tables.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from herdmesh.connect.config import parse_value
from herdmesh.sdk import REQUIRED, Config, ConfigError, ConfigKey, Importance, Type, Validator
from herdmesh.sdk.validators import at_least, non_empty_string, one_of

URL, USER, PASSWORD = "connection.url", "connection.user", "connection.password"
MODE = "mode"
INCREMENTING = "incrementing.column.name"
TIMESTAMP = "timestamp.column.name"
TIMESTAMP_INITIAL = "timestamp.initial"
INITIAL_MS = "timestamp.initial.ms"
"""Aiven's name for `timestamp.initial`."""
NON_NULL = "validate.non.null"
QUERY, SUFFIX = "query", "query.suffix"
WHITELIST = "table.whitelist"
ZONE = "db.timezone"
POLL_MS, MAX_ROWS, DELAY_MS = "poll.interval.ms", "batch.max.rows", "timestamp.delay.interval.ms"
TOPIC_PREFIX = "topic.prefix"
TASK_TABLES = "tables"
"""Key of a task's config: its tables."""
JAVA_CLASSES = frozenset((
    "io.confluent.connect.jdbc.JdbcSourceConnector", "io.aiven.connect.jdbc.JdbcSourceConnector",
    "JdbcSourceConnector", "JdbcSource",
))  # fmt: skip
"""Class names of Java's connectors, which read any database."""
BATCH_ROWS = 5_000
_FROM_NOW: Final = -1
"""The value of `timestamp.initial` that means now."""
_HIGH, _MEDIUM, _LOW = Importance.HIGH, Importance.MEDIUM, Importance.LOW


class Mode(StrEnum):
    """How new and changed rows are distinguished from rows already read."""

    BULK = "bulk"
    INCREMENTING = "incrementing"
    TIMESTAMP = "timestamp"
    TIMESTAMP_INCREMENTING = "timestamp+incrementing"

    @property
    def has_timestamp(self) -> bool:
        """True if a row has the moment of its last change."""
        return self in (Mode.TIMESTAMP, Mode.TIMESTAMP_INCREMENTING)

    @property
    def has_number(self) -> bool:
        """True if a row has an increasing number."""
        return self in (Mode.INCREMENTING, Mode.TIMESTAMP_INCREMENTING)


def _check_zone(field: str, value: Any) -> None:
    try:
        ZoneInfo(value or "")
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise ConfigError.for_value(
            field, value, "Invalid time zone identifier", fix="UTC, or Europe/Berlin"
        ) from error


_WHAT, _HOW = "Mode", "Connector"
_SHARED = (
    ConfigKey(WHITELIST, Type.LIST, [], _MEDIUM, "Tables to read, as SQL names them: table, schema.table or "
              "catalog.schema.table.", None, "Database", 8, "LONG", "Table Whitelist"),
    ConfigKey(INCREMENTING, Type.STRING, "", _MEDIUM, "The column whose number grows with each new row.", None, _WHAT,
              2, "MEDIUM", "Incrementing Column Name"),
    ConfigKey(ZONE, Type.STRING, "UTC", _MEDIUM, "Time zone of timestamps without one.",
              Validator("a time zone", _check_zone), "Database", 15, "MEDIUM", "DB time zone"),
    ConfigKey(MODE, Type.STRING, REQUIRED, _HIGH,
              "bulk: all rows, every poll.interval.ms. incrementing: rows with a higher number than the last. "
              "timestamp: rows with a later timestamp than the last. timestamp+incrementing: both; the number orders "
              "rows with equal timestamps.", one_of(*Mode), _WHAT, 1,
              "MEDIUM", "Table Loading Mode"),
    ConfigKey(TIMESTAMP, Type.LIST, [], _MEDIUM,
              "Column with the time of a row's last change; of several, the first that is not null.",
              None, _WHAT, 3, "MEDIUM", "Timestamp Column Name"),
    ConfigKey(TIMESTAMP_INITIAL, Type.LONG, None, _LOW,
              "Start position without an offset: rows later than this time, in milliseconds since 1970; -1 = now. If "
              "unset, all rows.", None, _WHAT, 4, "MEDIUM",
              "Unix time value of initial timestamp"),
    ConfigKey(NON_NULL, Type.BOOLEAN, True, _LOW, "Refuse a table whose incrementing or timestamp column "
              "may be null: such rows would not be read.", None, _WHAT, 5, "SHORT", "Validate Non Null"),
    ConfigKey(QUERY, Type.STRING, "", _MEDIUM, "A query to read instead of tables. It may have a WHERE of its own.",
              None, _WHAT, 6, "LONG", "Query"),
    ConfigKey(SUFFIX, Type.STRING, "", _LOW, "Text appended to every query.", None, _WHAT, 7, "SHORT",
              "Query suffix"),
    ConfigKey(POLL_MS, Type.INT, 5_000, _HIGH,
              "Interval between two queries of a table, in milliseconds.", at_least(1), _HOW, 2,
              "SHORT", "Poll Interval (ms)"),
    ConfigKey(MAX_ROWS, Type.INT, BATCH_ROWS, _LOW, "Maximum number of rows in a batch.", at_least(1), _HOW, 3,
              "SHORT", "Max Rows Per Batch"),
    ConfigKey(TOPIC_PREFIX, Type.STRING, REQUIRED, _HIGH,
              "Prefix of topic names; the table's name follows. For a query, the whole topic name.",
              non_empty_string(), _HOW, 5, "MEDIUM", "Topic Prefix"),
    ConfigKey(DELAY_MS, Type.LONG, 0, _HIGH,
              "Minimum age of a row's timestamp before the row is read, in milliseconds, so that transactions that "
              "began earlier can commit.", at_least(0), _HOW, 6, "MEDIUM",
              "Delay Interval (ms)"),
)  # fmt: skip
KEYS: Mapping[str, ConfigKey] = {key.name: key for key in _SHARED}
"""The shared keys by name, in the groups and positions of Confluent's connector."""


def login_keys(url_doc: str, group: str = "Database") -> tuple[ConfigKey, ConfigKey, ConfigKey]:
    """Return the keys `connection.url`, `.user` and `.password`, as Confluent's JDBC connectors define them."""
    return (
        ConfigKey(URL, Type.STRING, REQUIRED, _HIGH, url_doc, non_empty_string(), group, 1, "LONG", "JDBC URL"),
        ConfigKey(USER, Type.STRING, None, _HIGH, "JDBC connection user.", None, group, 2, "MEDIUM", "JDBC User"),
        ConfigKey(PASSWORD, Type.PASSWORD, None, _HIGH, "JDBC connection password.", None, group, 3, "SHORT",
                  "JDBC Password"),
    )  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class TableSettings:
    """The settings that all sources of tables have."""

    mode: Mode
    incrementing: str
    """The column with an increasing number; "" = the mode has none, or the source finds it."""
    timestamps: tuple[str, ...]
    """Columns with the moment of a row's last change; the
    first that is not null counts. () = the mode has none.
    """
    initial_us: int | None
    """Start without an offset, in microseconds since 1970; None = at the first row."""
    from_now: bool
    """Start without an offset at the rows that are newer than the first query."""
    delay_ms: int
    """Minimum age of a row's moment before the row is read."""
    requires_not_null: bool
    query: str
    """"" = read tables."""
    suffix: str
    """Text appended to every query."""
    topic_prefix: str
    poll_ms: int
    batch_rows: int


def timestamps_of(values: Mapping[str, Any], mode: Mode) -> tuple[str, ...]:
    """Return the timestamp columns in the config. Raises
    ConfigError when the mode needs one and none is named.
    """
    found = tuple(one for one in values[TIMESTAMP] or () if one)
    if mode.has_timestamp and not found:
        raise ConfigError(f"{TIMESTAMP}: mode={mode} needs it", field=TIMESTAMP, fix="name a column")
    return found


def shared_settings(config: Config, values: Mapping[str, Any], mode: Mode) -> dict[str, Any]:
    """Return the fields of `TableSettings` that every source reads in the same way: all but `mode`, `incrementing` and
    `query`. Raises ConfigError whose field is the key.
    """
    initial_ms = _initial_ms(config, values)
    return {
        "timestamps": timestamps_of(values, mode) if mode.has_timestamp else (),
        "initial_us": None if initial_ms in (None, _FROM_NOW) else initial_ms * 1_000,
        "from_now": initial_ms == _FROM_NOW,
        "delay_ms": values[DELAY_MS],
        "requires_not_null": values[NON_NULL],
        "suffix": values[SUFFIX] or "",
        "topic_prefix": values[TOPIC_PREFIX],
        "poll_ms": values[POLL_MS],
        "batch_rows": values[MAX_ROWS],
    }


def _initial_ms(config: Config, values: Mapping[str, Any]) -> int | None:
    """Return the start in milliseconds since 1970; also from Aiven's key, whose 0 means all rows since 1970."""
    text = (config.get(INITIAL_MS) or "").strip()
    if values[TIMESTAMP_INITIAL] is not None or not text:
        return values[TIMESTAMP_INITIAL]
    found: int = parse_value(INITIAL_MS, text, Type.LONG)
    if found < 0:
        raise ConfigError.for_value(INITIAL_MS, text, "Value must be at least 0", fix=f"{TIMESTAMP_INITIAL}=-1 is now")
    return found
