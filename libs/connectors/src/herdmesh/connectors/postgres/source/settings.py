"""The settings of a PostgreSQL source, from Confluent's
JDBC keys, and a warning for each key without effect.

Owns the keys of this source alone and the rules between keys. Shared keys: `table_source.settings`; the connection's:
`postgres.connection`. Does not query the server.

Invariant: a key is honoured, refused or named in a warning; none is ignored silently.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from herdmesh.connect.java import compiled, matches
from herdmesh.connect.spi import ConnectorKind
from herdmesh.connectors.common import check_topics, warned_settings
from herdmesh.connectors.postgres.connection import (
    ConnectionSettings,
    connection_keys,
    connection_settings,
    refuse_others,
    warnings_of_connection,
)
from herdmesh.connectors.postgres.names import check_names
from herdmesh.connectors.postgres.source.catalog import TABLE_TYPES, TableId
from herdmesh.connectors.postgres.source.query_text import one_query
from herdmesh.connectors.postgres.types import Granularity, NumericMapping, TypeOptions
from herdmesh.connectors.table_source.settings import (
    DELAY_MS,
    INCREMENTING,
    INITIAL_MS,
    MAX_ROWS,
    MODE,
    NON_NULL,
    POLL_MS,
    QUERY,
    SUFFIX,
    TASK_TABLES,
    TIMESTAMP,
    TIMESTAMP_INITIAL,
    TOPIC_PREFIX,
    WHITELIST,
    ZONE,
    Mode,
    TableSettings,
    shared_settings,
    timestamps_of,
)
from herdmesh.connectors.table_source.settings import KEYS as SHARED
from herdmesh.sdk import Config, ConfigDef, ConfigError, ConfigKey, FieldViolation, Importance, Type, Validator
from herdmesh.sdk.validators import at_least, one_of

BLACKLIST = "table.blacklist"
INCLUDE, EXCLUDE = "table.include.list", "table.exclude.list"
KEY_COLUMNS = "herdmesh.key.columns"
WAIT_FOR_WRITERS = "herdmesh.wait.for.writers"
_HIGH, _MEDIUM, _LOW = Importance.HIGH, Importance.MEDIUM, Importance.LOW


def _check_types(field: str, value: Any) -> None:
    for one in value or [""]:
        if one.upper() not in TABLE_TYPES:
            raise ConfigError.for_value(field, one, f"must be some of {', '.join(TABLE_TYPES)}", fix="TABLE")


_MAPPING = one_of(*NumericMapping)


def _check_mapping(field: str, value: Any) -> None:
    if value is not None:
        _MAPPING.check(field, value)


_OPTIONAL_MAPPING = Validator(_MAPPING.text, _check_mapping)
_WHAT, _HOW = "Mode", "Connector"
KEYS = ConfigDef(
    *connection_keys(),
    ConfigKey("catalog.pattern", Type.STRING, None, _MEDIUM, "Pattern (SQL's LIKE) of the database's name.", None,
              "Database", 6, "SHORT", "Schema pattern"),
    ConfigKey("schema.pattern", Type.STRING, None, _HIGH,
              "Pattern (SQL's LIKE) of the schemas whose tables are read; if unset, all but the system schemas.",
              None, "Database", 7, "SHORT", "Schema pattern"),
    replace(SHARED[WHITELIST], doc="Tables to read: table, schema.table or database.schema.table."),
    ConfigKey(BLACKLIST, Type.LIST, [], _MEDIUM, "Tables not to read.", None, "Database", 9, "LONG",
              "Table Blacklist"),
    ConfigKey(INCLUDE, Type.LIST, [], _MEDIUM, "Regular expressions of tables to read, as database.schema.table.", None,
              "Database", 10, "LONG", "Table Include List"),
    ConfigKey(EXCLUDE, Type.LIST, [], _MEDIUM, "Regular expressions of tables not to read, as database.schema.table.",
              None, "Database", 11, "LONG", "Table Exclude List"),
    ConfigKey("numeric.precision.mapping", Type.BOOLEAN, False, _LOW, "The same as numeric.mapping=precision_only.",
              None, "Database", 12, "SHORT", "Map Numeric Values By Precision (deprecated)"),
    ConfigKey("numeric.mapping", Type.STRING, None, _LOW,
              "Representation of numeric columns: Decimal (none), integers where they fit (precision_only), or FLOAT64 "
              "too (best_fit, best_fit_eager_double).",
              _OPTIONAL_MAPPING, "Database", 13, "SHORT",
              "Map Numeric Values, Integral or Decimal, By Precision and Scale"),
    ConfigKey("timestamp.granularity", Type.STRING, Granularity.CONNECT_LOGICAL.value, _LOW,
              "Representation of timestamp columns.", one_of(*Granularity), "Database", 14, "MEDIUM",
              "Timestamp granularity"),
    SHARED[ZONE],
    SHARED[MODE],
    replace(SHARED[INCREMENTING], doc="The column whose number grows with each new row; empty: the table's serial or "
            "identity column."),
    *(SHARED[name] for name in (TIMESTAMP, TIMESTAMP_INITIAL, NON_NULL, QUERY, SUFFIX)),
    ConfigKey(WAIT_FOR_WRITERS, Type.BOOLEAN, True, _LOW,
              "With incrementing: wait for open transactions that may still commit a lower number before reading past "
              "it.", None, _WHAT, 8, "SHORT", "Wait for writers"),
    ConfigKey("table.types", Type.LIST, ["TABLE"], _LOW, f"Kinds of tables to read: some of {', '.join(TABLE_TYPES)}.",
              Validator("types of tables", _check_types), _HOW, 1, "MEDIUM", "Table Types"),
    SHARED[POLL_MS],
    SHARED[MAX_ROWS],
    ConfigKey("table.poll.interval.ms", Type.LONG, 60_000, _LOW,
              "Interval between checks for new and removed tables, in milliseconds.",
              at_least(1), _HOW, 4, "SHORT", "Metadata Change Monitoring Interval (ms)"),
    SHARED[TOPIC_PREFIX],
    SHARED[DELAY_MS],
    ConfigKey(KEY_COLUMNS, Type.LIST, [], _MEDIUM,
              "Columns of the record key: one column is the key itself, several are a struct. If unset, records have "
              "no key.", None, _HOW, 7, "MEDIUM", "Key columns"),
)  # fmt: skip

_HIDDEN_WRITERS = ("MATERIALIZED VIEW", "FOREIGN TABLE")
"""Table types with invisible writers: a materialized view shows the
rows committed at its refresh; a foreign table is written elsewhere.
"""
_QUOTED = "names are always quoted; a column is found whatever its case"
_ONE_STATEMENT = "each read of a table is one statement"
#: Confluent's keys without effect: the reason, and the values for which no warning is due.
_WITHOUT_EFFECT: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "dialect.name": ("only PostgreSQL's dialect exists", ("", "PostgreSqlDatabaseDialect")),
    "quote.sql.identifiers": (_QUOTED, ("always",)),
    "sql.quote.identifiers": (_QUOTED, ("true",)),
    "table.names.qualify": ("tables are always qualified with their schema", ("true",)),
    "transaction.isolation.mode": (_ONE_STATEMENT, ("DEFAULT", "READ_COMMITTED", "REPEATABLE_READ", "SERIALIZABLE")),
    "query.retry.attempts": ("an unreachable server is retried without a limit", ()),
    "table.monitoring.startup.polling.limit.ms": ("tables are looked for when the connector starts", ()),
    "date.calendar.system": ("dates are of the Gregorian calendar, as the server's are", ("PROLEPTIC_GREGORIAN",)),
}


@dataclass(frozen=True, slots=True)
class TableChoice:
    """Selection of tables: names as users write them; Java regular expressions for `database.schema.table`."""

    types: tuple[str, ...]
    catalog_pattern: str | None
    schema_pattern: str | None
    whitelist: frozenset[str]
    blacklist: frozenset[str]
    include: tuple[str, ...]
    exclude: tuple[str, ...]

    def has(self, table: TableId) -> bool:
        """True when the table is to be read; the caller has checked its type and the patterns."""
        names = _names_of(table)
        if self.whitelist:
            return bool(self.whitelist & names)
        if self.include and not any(matches(one, str(table)) for one in self.include):
            return False
        return not self.blacklist & names and not any(matches(one, str(table)) for one in self.exclude)


def _names_of(table: TableId) -> set[str]:
    """Return the names by which a list may name it, with and without quotes."""
    plain = (table.database, table.schema, table.table)
    return {".".join(parts[first:]) for parts in (plain, [f'"{one}"' for one in plain]) for first in range(3)}


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceSettings(TableSettings):
    """The settings of a PostgreSQL source. `incrementing`: "" = the table's own serial column."""

    connection: ConnectionSettings
    tables: TableChoice
    types: TypeOptions
    key_columns: tuple[str, ...]
    tables_ms: int
    waits_for_writers: bool

    @property
    def has_sign(self) -> bool:
        """True when one cheap query shows the worker whether there may be new rows."""
        named = bool(self.incrementing) or not self.mode.has_number
        return self.mode is not Mode.BULK and not self.query and named


def settings_of(config: Config) -> SourceSettings:
    """Read the config. Raises ConfigError whose field is the key."""
    values = KEYS.parse(config)
    refuse_others(config, "connector.class=SparkJdbcSource has the same keys, and reads other databases through Spark")
    connection = connection_settings(config)
    mode = Mode(values[MODE])
    query = _query_of(values)
    timestamps = timestamps_of(values, mode)
    if mode.has_number and query and not values[INCREMENTING]:
        raise ConfigError(f"{INCREMENTING}: a query has no serial column of its own", field=INCREMENTING,
                          fix="name a column")  # fmt: skip
    named = ((INCREMENTING, [values[INCREMENTING]]), (TIMESTAMP, timestamps), (KEY_COLUMNS, values[KEY_COLUMNS] or ()))
    for key, columns in named:
        check_names(key, filter(None, columns), "write the column's own name")
    for problem in not_built(config):
        raise problem
    shared = shared_settings(config, values, mode)
    if query:
        check_topics(config, [("the query", values[TOPIC_PREFIX])], "write another prefix, which is the whole name")
    else:
        check_topics(config, [("a table t", f"{values[TOPIC_PREFIX]}t")], "write another prefix")
    return SourceSettings(
        **shared,
        connection=connection,
        mode=mode,
        incrementing=values[INCREMENTING] or "",
        query=query,
        tables=_choice_of(values),
        types=TypeOptions(_numeric_of(values), Granularity(values["timestamp.granularity"]), values[ZONE] or "UTC"),
        key_columns=tuple(one for one in values[KEY_COLUMNS] or () if one),
        tables_ms=values["table.poll.interval.ms"],
        waits_for_writers=values[WAIT_FOR_WRITERS],
    )


def topic_of(table: TableId, settings: SourceSettings) -> str:
    """Return the topic of a table's rows."""
    return settings.topic_prefix + table.table


def check_tables(config: Config, settings: SourceSettings, found: Iterable[TableId]) -> None:
    """Raise ConfigError for tables whose topic names would be invalid."""
    topics = ((f"table {table}", topic_of(table, settings)) for table in found)
    check_topics(config, topics, f"leave the table out ({BLACKLIST}), or read it by a {QUERY}")


def not_built(config: Config) -> list[ConfigError]:
    """Return an error for Confluent's alias of the query key: without it, unwanted tables would be read."""
    if not (config.get("query.masked") or "").strip():
        return []
    message = "query.masked is not supported: texts of a query are shown as they are written"
    fix = f"write {QUERY}, with references to a config provider for its secrets"
    return [ConfigError(message, field="query.masked", fix=fix)]


def _query_of(values: Mapping[str, Any]) -> str:
    query = one_query(QUERY, values[QUERY])
    chosen = [key for key in (WHITELIST, BLACKLIST, INCLUDE, EXCLUDE) if values[key]]
    if query and chosen:
        raise ConfigError(
            f"{QUERY}: a query is read instead of tables, and {', '.join(chosen)} chooses tables",
            field=QUERY,
            fix=f"leave out {QUERY}, or {', '.join(chosen)}",
        )
    return query


def _choice_of(values: Mapping[str, Any]) -> TableChoice:
    lists: list[list[str]] = [list(values[key] or ()) for key in (WHITELIST, BLACKLIST, INCLUDE, EXCLUDE)]
    white, black, include, exclude = lists
    if white and (black or include or exclude):
        raise ConfigError(f"{WHITELIST}: it names all tables, so no other list can choose", field=WHITELIST,
                          fix="write one of the lists")  # fmt: skip
    for key, patterns in ((INCLUDE, include), (EXCLUDE, exclude)):
        for pattern in patterns:
            try:
                compiled(pattern)
            except ConfigError as error:
                raise ConfigError.for_value(key, pattern, str(error), fix=error.fix) from error
    return TableChoice(
        tuple(dict.fromkeys(one.upper() for one in values["table.types"])),
        values["catalog.pattern"],
        values["schema.pattern"],
        frozenset(white),
        frozenset(black),
        tuple(include),
        tuple(exclude),
    )


def _numeric_of(values: Mapping[str, Any]) -> NumericMapping:
    if values["numeric.mapping"] is not None:
        return NumericMapping(values["numeric.mapping"])
    return NumericMapping.PRECISION_ONLY if values["numeric.precision.mapping"] else NumericMapping.NONE


def warnings_of(config: Config) -> list[FieldViolation]:
    """Return a warning, with the reason, for every key without the effect that its value requests; for a refused
    config, the unknown keys.
    """
    own = {*KEYS.keys, TASK_TABLES, "task.class", INITIAL_MS}
    found = warned_settings(config, own, ConnectorKind.SOURCE, _WITHOUT_EFFECT, java="jdbc-source")
    try:
        settings = settings_of(config)
    except ConfigError:
        return found
    found = [*warnings_of_connection(config), *found]
    hidden = [kind for kind in settings.tables.types if kind in _HIDDEN_WRITERS] if not settings.query else []
    if settings.mode is Mode.INCREMENTING and settings.waits_for_writers and hidden:
        message = (
            f"table.types: with mode=incrementing rows of a {' or a '.join(hidden)} can be missed: open "
            "transactions with lower numbers are not visible there, so a row committed late is not read"
        )
        found.append(FieldViolation("table.types", message, "read the tables themselves, or write mode=bulk"))
    if settings.mode is not Mode.INCREMENTING and config.get(WAIT_FOR_WRITERS) is not None:
        message = (
            f"{WAIT_FOR_WRITERS} has no effect: with mode={settings.mode} new rows are not found by a number alone"
        )
        found.append(FieldViolation(WAIT_FOR_WRITERS, message, "leave it out, or set timestamp.delay.interval.ms"))
    return found
