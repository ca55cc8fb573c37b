"""Settings of a PostgreSQL sink, from the keys of Confluent's JDBC sink, and a warning for each key without effect.

Owns these keys, except those of the connection (`connection`), and the rules between them. Needs no database.

Invariant: a key is honoured, refused or named in a warning; none is ignored silently.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, tzinfo
from enum import StrEnum
from typing import Any
from zoneinfo import ZoneInfo

from herdmesh.connect.spi import ConnectorKind
from herdmesh.connectors.common import warned_settings
from herdmesh.connectors.postgres.connection import connection_keys, quoted
from herdmesh.connectors.postgres.names import check_names
from herdmesh.connectors.postgres.unchanged_placeholder import DEFAULT, placeholder_validator
from herdmesh.sdk import Config, ConfigDef, ConfigError, ConfigKey, FieldViolation, Importance, Type, Validator
from herdmesh.sdk.validators import at_least, non_empty_string, optional_at_least

INSERT_MODE, DELETE_ENABLED = "insert.mode", "delete.enabled"
PK_MODE, PK_FIELDS = "pk.mode", "pk.fields"
TABLE_NAME_FORMAT, FIELDS_WHITELIST = "table.name.format", "fields.whitelist"
AUTO_CREATE, AUTO_EVOLVE = "auto.create", "auto.evolve"
LEDGER_TABLE = "herdmesh.ledger.table"
PLACEHOLDER = "herdmesh.unavailable.value.placeholder"
MAX_RETRIES = "max.retries"
_DB_TIMEZONE, QUOTE = "db.timezone", "quote.sql.identifiers"
_KAFKA_NAMES = ("__connect_topic", "__connect_partition", "__connect_offset")
_PART = re.compile(r'(?:"((?:[^"]|"")*)"|(?!")([^.]*))(\.|$)', re.DOTALL)
_HIGH, _MEDIUM, _LOW = Importance.HIGH, Importance.MEDIUM, Importance.LOW
_WRITES, _MAPPING, _DDL, _RETRIES = "Writes", "Data Mapping", "DDL Support", "Retries"


class InsertMode(StrEnum):
    """Statement for a record with a value."""

    INSERT = "insert"
    UPSERT = "upsert"
    UPDATE = "update"


class PkMode(StrEnum):
    """Source of the primary key."""

    NONE = "none"
    KAFKA = "kafka"
    RECORD_KEY = "record_key"
    RECORD_VALUE = "record_value"


def _one_of(kind: type[StrEnum]) -> Validator:
    """Validator of one of the names, in lower or upper case, as in Confluent's connector."""
    choices = [one.value for one in kind]

    def check(field: str, value: Any) -> None:
        if value not in choices and value not in [one.upper() for one in choices]:
            raise ConfigError.for_value(field, value, "Invalid enumerator", fix=f"write one of {', '.join(choices)}")

    return Validator(f"[{', '.join(choices)}]", check)


def _zone(field: str, value: Any) -> None:
    _zone_of(field, value)


def _quoting(field: str, value: Any) -> None:
    if str(value).lower() not in ("always", "never"):
        raise ConfigError.for_value(field, value, "Invalid enumerator", fix="write always or never")


KEYS = ConfigDef(
    *connection_keys("Connection"),
    ConfigKey(INSERT_MODE, Type.STRING, "insert", _HIGH,
              "How a record is written. insert: as a new row; an existing key is an error of the record. upsert: the "
              "row of its key is updated, or inserted if missing. update: the row of its key is updated if it exists.",
              _one_of(InsertMode), _WRITES, 1, "MEDIUM", "Insert Mode"),
    ConfigKey("batch.size", Type.INT, 3000, _MEDIUM,
              "No effect: a batch is the records of one poll (consumer.override.max.poll.records).",
              at_least(0), _WRITES, 2, "SHORT", "Batch Size"),
    ConfigKey(DELETE_ENABLED, Type.BOOLEAN, False, _MEDIUM,
              "A record without a value deletes the row of its key. Needs pk.mode=record_key.",
              None, _WRITES, 3, "SHORT", "Enable deletes"),
    ConfigKey("table.types", Type.LIST, ["TABLE"], _LOW,
              "No effect: the connector writes to tables, partitioned tables and updatable views.",
              None, _WRITES, 4, "MEDIUM", "Table Types"),
    ConfigKey(TABLE_NAME_FORMAT, Type.STRING, "${topic}", _MEDIUM,
              "Table for the records of a topic; ${topic} is replaced by its name. A dot separates schema and table; a "
              "part in double quotes may contain dots.",
              non_empty_string(), _MAPPING, 1, "LONG", "Table Name Format"),
    ConfigKey(PK_MODE, Type.STRING, "none", _HIGH,
              "Source of the primary key: none; kafka (topic, partition and offset); record_key (the record's key, or "
              "fields of it); record_value (fields of the record's value).",
              _one_of(PkMode), _MAPPING, 2, "MEDIUM", "Primary Key Mode"),
    ConfigKey(PK_FIELDS, Type.LIST, [], _MEDIUM,
              "Names of the primary key columns. For kafka: three names. For record_key and record_value: the fields "
              "to use, all if empty. For a key that is not a struct: the name of its one column.",
              None, _MAPPING, 3, "LONG", "Primary Key Fields"),
    ConfigKey(FIELDS_WHITELIST, Type.LIST, [], _MEDIUM,
              "Fields of the value that are written besides the primary key; empty: all.",
              None, _MAPPING, 4, "LONG", "Fields Whitelist"),
    ConfigKey(_DB_TIMEZONE, Type.STRING, "UTC", _MEDIUM,
              "Time zone in which a Timestamp is written to a column without time zone.",
              Validator("a time zone", _zone), _MAPPING, 5, "MEDIUM", "DB Time Zone"),
    ConfigKey(AUTO_CREATE, Type.BOOLEAN, False, _MEDIUM,
              "Create a missing table from the records' schemas.", None, _DDL, 1, "SHORT", "Auto-Create"),
    ConfigKey(AUTO_EVOLVE, Type.BOOLEAN, False, _MEDIUM,
              "Add missing columns for fields that are optional or have a default. Columns are never dropped.",
              None, _DDL, 2, "SHORT", "Auto-Evolve"),
    ConfigKey(QUOTE, Type.STRING, "always", _MEDIUM,
              "always: table and column names keep the case of topics and fields; never: names are in lower case.",
              Validator("[always, never]", _quoting), _DDL, 3, "MEDIUM", "Quote Identifiers"),
    ConfigKey(MAX_RETRIES, Type.INT, None, _MEDIUM,
              "Number of failed attempts in a row after which the task fails and its restart policy applies; unset: it "
              "retries without a limit.",
              optional_at_least(0), _RETRIES, 1, "SHORT", "Maximum Retries"),
    ConfigKey("retry.backoff.ms", Type.INT, 3000, _MEDIUM,
              "No effect: the backoff begins at 300 ms and doubles up to errors.retry.delay.max.ms.",
              at_least(0), _RETRIES, 2, "SHORT", "Retry Backoff (millis)"),
    ConfigKey(PLACEHOLDER, Type.STRING, DEFAULT, _LOW,
              "Placeholder for a value that did not change and was not sent (unavailable.value.placeholder of the CDC "
              "source): an upsert or update leaves the column unchanged. Empty: the placeholder is written.",
              placeholder_validator(may_be_empty=True)),
    ConfigKey(LEDGER_TABLE, Type.STRING, "herdmesh_ledger", _LOW,
              "Table that stores the position of each connector and partition; created if missing. Meshes that write "
              "to the same database with connectors of the same name each need their own table.",
              non_empty_string()),
)  # fmt: skip

_WITHOUT_EFFECT: Mapping[str, str] = {
    "batch.size": "a batch is the records of one poll: set consumer.override.max.poll.records",
    "table.types": "tables, partitioned tables and updatable views are written",
    "retry.backoff.ms": "the backoff begins at 300 ms and doubles up to errors.retry.delay.max.ms",
    "dialect.name": "this connector writes to PostgreSQL only",
    "db.timezone.date": "a Date has no time zone and is written unchanged",
    "mssql.use.merge.holdlock": "it is for another database",
    "trim.sensitive.log": "it configures the log of the Java connector",
}


_QUOTE_BOOLEAN = "sql.quote.identifiers"
"""Aiven's key for `quote.sql.identifiers`."""
#: Keys of Java's JDBC sinks that would write other rows, or to other tables: the values that change nothing, the
#: behaviour here, and the fix.
_OTHERWISE: Mapping[str, tuple[tuple[str, ...], str, str]] = {
    "table.name.normalize": (("", "false"), "topic names are used unchanged", "rename topics with RegexRouter"),
    "topics.to.tables.mapping": (("",), f"{TABLE_NAME_FORMAT} names the tables", "rename topics with RegexRouter"),
    "handle.tombstone": (("", "false"), "a record without a value is never ignored silently",
                         "filter them with Filter and the predicate RecordIsTombstone"),
    "replace.null.with.default": (("", "true"), "a field without a value gets its schema's default", "leave it out"),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class TableName:
    """A table's name in the config or a topic."""

    schema: str
    """Empty: the first schema in the connection's search path
    that has the table, or, for a new table, that allows it.
    """
    table: str

    @property
    def sql(self) -> str:
        """Return the table's SQL name."""
        return quoted(self.schema, self.table) if self.schema else quoted(self.table)

    def __str__(self) -> str:
        return f"{self.schema}.{self.table}" if self.schema else self.table


@dataclass(frozen=True, slots=True)
class SinkSettings:
    """The sink's settings about records."""

    insert_mode: InsertMode
    pk_mode: PkMode
    pk_fields: tuple[str, ...]
    whitelist: frozenset[str]
    """Empty: all fields."""
    deletes: bool
    auto_create: bool
    auto_evolve: bool
    folds_case: bool
    """Write names of tables and columns in lower case."""
    zone: tzinfo
    table_format: str
    retries_max: int | None
    """None = no limit."""
    ledger: TableName
    placeholder: str
    """Placeholder of unchanged values; empty = none."""

    def table_of(self, topic: str) -> TableName:
        """Return the table of a topic. Raises ConfigError if it would be in another database."""
        return _table_name(TABLE_NAME_FORMAT, self.table_format.replace("${topic}", topic), folds=self.folds_case)


def sink_settings(config: Config) -> SinkSettings:
    """Read a sink's settings, except those of its connection. Raises ConfigError."""
    parsed = KEYS.parse(_in_these_words(config))
    for problem in not_built(config):
        raise problem
    pk_mode = PkMode(parsed[PK_MODE].lower())
    pk_fields: tuple[str, ...] = tuple(name for name in parsed[PK_FIELDS] if name)
    found = SinkSettings(
        insert_mode=InsertMode(parsed[INSERT_MODE].lower()),
        pk_mode=pk_mode,
        pk_fields=pk_fields or (_KAFKA_NAMES if pk_mode is PkMode.KAFKA else ()),
        whitelist=frozenset(filter(None, parsed[FIELDS_WHITELIST])),
        deletes=parsed[DELETE_ENABLED],
        auto_create=parsed[AUTO_CREATE],
        auto_evolve=parsed[AUTO_EVOLVE],
        folds_case=parsed[QUOTE].lower() == "never",
        zone=_zone_of(_DB_TIMEZONE, parsed[_DB_TIMEZONE]),
        table_format=parsed[TABLE_NAME_FORMAT],
        retries_max=parsed[MAX_RETRIES],
        ledger=_table_name(LEDGER_TABLE, parsed[LEDGER_TABLE], folds=False),
        placeholder=parsed[PLACEHOLDER],
    )
    for problem in _problems(found):
        raise problem
    check_names(PK_FIELDS, found.pk_fields, "write the columns' own names")
    if not (config.get("transforms") or "").strip():  # transformations may rename topics
        for topic in filter(None, (one.strip() for one in (config.get("topics") or "").split(","))):
            found.table_of(topic)
    return found


def not_built(config: Config) -> list[ConfigError]:
    """Return an error for every key of other JDBC sinks whose effect would be other rows than this sink writes."""
    return [
        ConfigError.for_value(key, text, f"not supported here: {does}", fix=fix)
        for key, (same, does, fix) in _OTHERWISE.items()
        if (text := (config.get(key) or "").strip()).lower() not in same
    ]


def _in_these_words(config: Config) -> Config:
    """Rename the keys and values for which Aiven's fork of Confluent's connector has other names."""
    found = dict(config)
    if (config.get(INSERT_MODE) or "").strip().lower() == "multi":
        found[INSERT_MODE] = InsertMode.INSERT.value
    quotes = (config.get(_QUOTE_BOOLEAN) or "").strip().lower()
    if quotes and QUOTE not in config:
        if quotes not in ("true", "false"):
            raise ConfigError.for_value(_QUOTE_BOOLEAN, quotes, "Expected value to be either true or false")
        found[QUOTE] = "always" if quotes == "true" else "never"
    return found


def warnings(config: Config) -> list[FieldViolation]:
    """Return warnings about keys without effect, with the reason."""
    own = {*KEYS.keys, *_WITHOUT_EFFECT, *_OTHERWISE, _QUOTE_BOOLEAN}
    return [
        *(FieldViolation(key, f"{key} has no effect: {why}", "leave it out")
          for key, why in _WITHOUT_EFFECT.items() if key in config),
        *warned_settings(config, own, ConnectorKind.SINK, java="jdbc-sink"),
    ]  # fmt: skip


def _problems(found: SinkSettings) -> list[ConfigError]:
    problems: list[ConfigError] = []
    if found.deletes and found.pk_mode is not PkMode.RECORD_KEY:
        problems.append(ConfigError(
            "Primary key mode must be 'record_key' when delete support is enabled", field=DELETE_ENABLED,
            fix=f"write {PK_MODE}=record_key",
        ))  # fmt: skip
    if found.insert_mode is not InsertMode.INSERT and found.pk_mode is PkMode.NONE:
        problems.append(ConfigError(
            f"{INSERT_MODE}={found.insert_mode} finds rows by their primary key, but {PK_MODE} is none", field=PK_MODE,
            fix="write the source of the key: record_key, record_value or kafka",
        ))  # fmt: skip
    if found.pk_mode is PkMode.KAFKA and len(found.pk_fields) != len(_KAFKA_NAMES):
        problems.append(ConfigError(
            f"{PK_FIELDS} must name three columns for {PK_MODE}=kafka (topic, partition, offset), or none, and names "
            f"{len(found.pk_fields)}", field=PK_FIELDS, fix=f"leave it out: {', '.join(_KAFKA_NAMES)}",
        ))  # fmt: skip
    return problems


def _zone_of(field: str, value: Any) -> tzinfo:
    if str(value).upper() in ("UTC", "Z", "GMT"):
        return UTC
    try:
        return ZoneInfo(str(value))
    except (OSError, ValueError, LookupError) as error:
        raise ConfigError.for_value(
            field, value, "Invalid time zone identifier", fix="write one as Europe/Berlin or UTC"
        ) from error


def _parts_of(text: str) -> list[str]:
    """Split a name at dots; each part may be quoted, as in Java. A part
    is empty if its quote is not closed, or text follows the quote.
    """
    parts: list[str] = []
    while found := _PART.match(text):
        in_quotes, plain, dot = found.groups()
        parts.append(plain if in_quotes is None else in_quotes.replace('""', '"'))
        if not dot:
            return parts
        text = text[found.end() :]
    return [*parts, ""]


def _table_name(key: str, text: str, *, folds: bool) -> TableName:
    parts = _parts_of(text.lower() if folds else text)
    fix = "rename topics by a transformation (RegexRouter), or write another name, a part with dots in double quotes"
    if len(parts) > 2 or not all(parts):
        raise ConfigError(
            f"{key}: {text} is not a table name: a dot separates schema and table, and other dots must be within "
            "double quotes", field=key, fix=fix,
        )  # fmt: skip
    check_names(key, parts, fix)
    return TableName("" if len(parts) == 1 else parts[0], parts[-1])
