"""The settings of a `SparkJdbcSource`, from Confluent's
JDBC keys, and a warning for each key without effect.

Owns the selection of keys and the rules between them. The definitions of shared keys: `table_source.settings`.
Does not query the database.

Invariant: a key is honoured, refused or named in a warning; the repr of the settings shows no password.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from herdmesh.connect.spi import ConnectorKind
from herdmesh.connectors.common import check_topics, warned_settings
from herdmesh.connectors.spark.session_settings import MEMORY, MEMORY_KEY, OPTION_PREFIX, refuse_unknown_dialect
from herdmesh.connectors.table_source.settings import (
    DELAY_MS,
    INCREMENTING,
    INITIAL_MS,
    JAVA_CLASSES,
    MAX_ROWS,
    MODE,
    NON_NULL,
    PASSWORD,
    POLL_MS,
    QUERY,
    SUFFIX,
    TASK_TABLES,
    TIMESTAMP,
    TIMESTAMP_INITIAL,
    TOPIC_PREFIX,
    URL,
    USER,
    WHITELIST,
    ZONE,
    Mode,
    TableSettings,
    login_keys,
    shared_settings,
    timestamps_of,
)
from herdmesh.connectors.table_source.settings import KEYS as SHARED
from herdmesh.sdk import Config, ConfigDef, ConfigError, ConfigKey, FieldViolation, Importance, Type

DRIVER: Final = OPTION_PREFIX + "driver"
_POSTGRES: Final = re.compile(r"(jdbc:)?postgres(ql)?:", re.IGNORECASE)
_WITH_PASSWORD: Final = re.compile(r"[?;&:](password|pwd)=|//[^/@?;]*:[^/@?;]*@|:thin:[^/@]*/[^@]*@", re.IGNORECASE)
"""`?password=...`, `//user:...@host`, Oracle's `:thin:user/...@`."""
_PART: Final = r'(?:"(?:[^"]|"")+"|`[^`]+`|\[[^\]]+\]|[^\s."\'`;,()\[\]]+)'
_TABLE: Final = re.compile(rf"{_PART}(?:\.{_PART})*")
_LAST: Final = re.compile(rf"({_PART})$")
_OURS: Final = frozenset(("url", "dbtable", "query", "user", "password", "preparequery"))
"""Options of Spark's that other keys set."""


KEYS = ConfigDef(
    *login_keys("JDBC connection URL, jdbc:mysql://host:3306/database or as the driver wants it."),
    *(SHARED[name] for name in (
        WHITELIST, INCREMENTING, MODE, TIMESTAMP, TIMESTAMP_INITIAL, NON_NULL, QUERY, SUFFIX, ZONE, POLL_MS, MAX_ROWS,
        TOPIC_PREFIX, DELAY_MS,
    )),
    ConfigKey(DRIVER, Type.STRING, None, Importance.LOW,
              "Class of the driver, if the driver does not register itself for such URLs."),
    MEMORY_KEY,
)  # fmt: skip

#: Confluent's keys without effect: the reason, and the values for which no warning is due.
_WITHOUT_EFFECT: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "connection.attempts": ("an unreachable database is retried without a limit", ()),
    "connection.backoff.ms": ("an unreachable database is retried without a limit", ()),
    "query.retry.attempts": ("an unreachable database is retried without a limit", ()),
    "dialect.name": ("Spark knows the dialect by connection.url", ("",)),
    "quote.sql.identifiers": ("columns are quoted, tables are used as written", ()),
    "sql.quote.identifiers": ("columns are quoted, tables are used as written", ()),
    "table.names.qualify": ("tables are queried as they are written", ()),
    "transaction.isolation.mode": ("each read of a table is one statement", ("DEFAULT",)),
    "date.calendar.system": ("dates are of the Gregorian calendar", ("PROLEPTIC_GREGORIAN",)),
    "numeric.mapping": ("types are Spark's", ("none",)),
    "numeric.precision.mapping": ("types are Spark's", ("false",)),
    "timestamp.granularity": ("timestamps are Connect's Timestamp", ("connect_logical",)),
    "table.poll.interval.ms": ("table.whitelist names all tables there are", ()),
    "table.types": ("table.whitelist names tables and views alike", ()),
}
_REFUSED: Final = ("table.blacklist", "table.include.list", "table.exclude.list", "catalog.pattern", "schema.pattern")
"""Keys that select from a list of tables, which does not exist here.
They are refused: ignoring them would read other tables than intended.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class JdbcSettings(TableSettings):
    """The settings of a `SparkJdbcSource`."""

    options: Mapping[str, str] = field(repr=False)
    """Options for Spark's JDBC: `url`, `user`, `password`, and the `spark.option.*`."""
    memory: str
    tables: tuple[str, ...]
    zone: str

    @property
    def url(self) -> str:
        """The database's URL."""
        return self.options["url"]


def settings_of(config: Config) -> JdbcSettings:
    """Read the config. Raises ConfigError whose field is the key."""
    values = KEYS.parse(config)
    options = _options_of(config, values)
    mode = Mode(values[MODE])
    query, tables = _what_of(config, values)
    topics = [(f"table {table}", values[TOPIC_PREFIX] + topic_name(table)) for table in tables]
    check_topics(config, topics or [("the query", values[TOPIC_PREFIX])], f"read it by a {QUERY} with another prefix")
    timestamps_of(values, mode)
    incrementing = (values[INCREMENTING] or "").strip()
    if mode.has_number and not incrementing:
        raise ConfigError(f"{INCREMENTING}: mode={mode} needs it", field=INCREMENTING, fix="name a column")
    return JdbcSettings(
        **shared_settings(config, values, mode),
        options=options,
        memory=values[MEMORY].lower(),
        mode=mode,
        incrementing=incrementing if mode.has_number else "",
        query=query,
        tables=tables,
        zone=values[ZONE] or "UTC",
    )


def topic_name(table: str) -> str:
    """Return the topic of a table, without prefix: the table's name alone, without quotes."""
    found = _LAST.search(table)
    name = found[1] if found else table
    return name[1:-1] if name[0] in '"`[' else name


def warnings_of(config: Config) -> list[FieldViolation]:
    """Return a warning, with the reason, for every key without the effect that its value requests."""
    own = {*KEYS.keys, TASK_TABLES, "task.class", INITIAL_MS}
    found = warned_settings(config, own, ConnectorKind.SOURCE, _WITHOUT_EFFECT, (OPTION_PREFIX,), java="jdbc-source")
    return [*_warnings_of_java(config), *_warnings_of_late_rows(config), *found]


def _warnings_of_java(config: Config) -> list[FieldViolation]:
    """Return warnings about a config for Java's connector whose effect differs here."""
    name = config.get("connector.class")
    if name not in JAVA_CLASSES:
        return []
    message = f"connector.class: of this {URL} {name} is SparkJdbcSource, which starts a Spark for each task"
    found = [FieldViolation("connector.class", message, "write connector.class=SparkJdbcSource")]
    names = [one.strip() for one in (config.get(WHITELIST) or "").split(",")]
    if bare := [one for one in names if one and "." not in one]:
        message = (
            f"{WHITELIST}: offsets are stored under the names as written here ({', '.join(bare)}); the Java "
            "connector's offsets have the schema or the catalog before the name, if the database has one: with other "
            "names all rows are read again"
        )
        found.append(
            FieldViolation(
                WHITELIST, message, "to continue from the Java connector's offsets, write the names as in them"
            )
        )
    return found


def _warnings_of_late_rows(config: Config) -> list[FieldViolation]:
    """Warn about a mode that may miss rows, whatever the other keys are."""
    if (config.get(MODE) or "").strip() != Mode.INCREMENTING:
        return []
    message = (
        f"{MODE}: {Mode.INCREMENTING} does not read a row that is committed after one with a higher number: not every "
        "database lists the transactions that may still commit a lower number"
    )
    fix = "have one writer at a time number rows, or use timestamp+incrementing with timestamp.delay.interval.ms"
    return [FieldViolation(MODE, message, fix)]


def _options_of(config: Config, values: Mapping[str, Any]) -> dict[str, str]:
    url = values[URL].strip()
    if _POSTGRES.match(url):
        raise ConfigError(f"{URL}: PostgreSQL has a connector of its own, that needs no JVM", field=URL,
                          fix="connector.class=PostgresSource")  # fmt: skip
    if not url.startswith("jdbc:"):  # do not show the URL: it may contain a password
        raise ConfigError(
            f"{URL}: the value is not a JDBC URL", field=URL, fix="write it like jdbc:mysql://host:3306/database"
        )
    refuse_unknown_dialect(URL, url)
    if _WITH_PASSWORD.search(url):
        raise ConfigError(f"{URL}: it contains a password, and everybody who may read the config sees it", field=URL,
                          fix=f"set it in {PASSWORD}")  # fmt: skip
    found = {
        name.removeprefix(OPTION_PREFIX): value
        for name, value in config.items()
        if name.startswith(OPTION_PREFIX) and value
    }
    for name in found:
        if name.lower() in _OURS:
            raise ConfigError(f"{OPTION_PREFIX}{name}: it is derived from other keys", field=OPTION_PREFIX + name,
                              fix=f"leave it out; use {URL}, {USER}, {PASSWORD} and {QUERY}")  # fmt: skip
    logins = {"user": (config.get(USER) or "").strip(), "password": config.get(PASSWORD) or ""}
    return {**found, "url": url, **{name: value for name, value in logins.items() if value}}


def not_built(config: Config) -> list[ConfigError]:
    """Return an error for every key that needs a search for tables."""
    return [
        ConfigError(f"{name} is not supported: this connector does not discover tables", field=name,
                    fix=f"name all of them in {WHITELIST}")
        for name in _REFUSED if (config.get(name) or "").strip()
    ]  # fmt: skip


def _what_of(config: Config, values: Mapping[str, Any]) -> tuple[str, tuple[str, ...]]:
    """Return the query, "" = none, and the tables. Raises ConfigError unless exactly one of them is set."""
    for problem in not_built(config):
        raise problem
    query = (values[QUERY] or "").strip().rstrip(";").rstrip()
    tables = tuple(dict.fromkeys(one.strip() for one in values[WHITELIST] or () if one.strip()))
    if query and tables:
        raise ConfigError(f"{QUERY}: a query is read instead of tables, and {WHITELIST} names tables", field=QUERY,
                          fix=f"leave out {QUERY}, or {WHITELIST}")  # fmt: skip
    if not query and not tables:
        raise ConfigError(f"{WHITELIST}: there is nothing to read", field=WHITELIST,
                          fix=f"name tables, or write {QUERY}: this connector does not discover tables")  # fmt: skip
    for table in tables:
        if not _TABLE.fullmatch(table):
            raise ConfigError.for_value(WHITELIST, table, "is not a table name", fix='orders, or shop."Order lines"')
    return query, tables
