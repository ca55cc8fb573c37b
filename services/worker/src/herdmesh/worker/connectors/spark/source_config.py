"""What a `SparkJdbcSource`'s configuration says: Confluent's JDBC keys, read, and a warning for each without effect.

Owns which of the keys there are here and the rules between them. Their definitions are the PostgreSQL source's
(`postgres.source_config`), but for those that say something else here. Asks no database.

Invariant: a key is honoured, or refused, or named in a warning; what `settings_of` returns shows no password.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from herdmesh.connect.connector import ConnectorKind
from herdmesh.sdk import Config, ConfigDef, ConfigError, ConfigKey, FieldViolation, Importance, Type
from herdmesh.sdk.validators import non_empty_string
from herdmesh.worker.connectors.common import check_topics, warned_settings
from herdmesh.worker.connectors.postgres import source_config as postgres
from herdmesh.worker.connectors.postgres.common import PASSWORD, URL, USER
from herdmesh.worker.connectors.postgres.source_config import (
    INCREMENTING,
    MODE,
    POLL_MS,
    QUERY,
    TASK_TABLES,
    TIMESTAMP,
    TIMESTAMP_INITIAL,
    WHITELIST,
    ZONE,
    Mode,
)
from herdmesh.worker.connectors.spark import settings as spark_settings
from herdmesh.worker.connectors.spark.settings import MEMORY, OPTION_PREFIX, refuse_unknown_dialect

DRIVER: Final = OPTION_PREFIX + "driver"
NON_NULL: Final = "validate.non.null"
_SAME: Final = (MODE, TIMESTAMP, TIMESTAMP_INITIAL, NON_NULL, QUERY, "query.suffix", ZONE, POLL_MS, "batch.max.rows",
                "topic.prefix", "timestamp.delay.interval.ms")  # fmt: skip
_POSTGRES: Final = re.compile(r"(jdbc:)?postgres(ql)?:", re.IGNORECASE)
_WITH_PASSWORD: Final = re.compile(r"[?;&:](password|pwd)=|//[^/@?;]*:[^/@?;]*@|:thin:[^/@]*/[^@]*@", re.IGNORECASE)
"""`?password=...`, `//user:...@host`, Oracle's `:thin:user/...@`."""
_PART: Final = r'(?:"(?:[^"]|"")+"|`[^`]+`|\[[^\]]+\]|[^\s."\'`;,()\[\]]+)'
_TABLE: Final = re.compile(rf"{_PART}(?:\.{_PART})*")
_LAST: Final = re.compile(rf"({_PART})$")
_OURS: Final = frozenset(("url", "dbtable", "query", "user", "password", "preparequery"))
"""Options of Spark's that follow from other keys."""


def _key(name: str, **changed: Any) -> ConfigKey:
    """The PostgreSQL source's key, with some of its attributes changed."""
    return replace(postgres.KEYS.keys[name], **changed)


KEYS = ConfigDef(
    _key(URL, doc="JDBC connection URL, jdbc:mysql://host:3306/database or as the driver wants it.",
         validator=non_empty_string()),
    _key(USER),
    _key(PASSWORD),
    _key(WHITELIST, doc="Tables to read, as SQL names them: table, schema.table or catalog.schema.table."),
    _key(INCREMENTING, doc="The column whose number grows with each new row."),
    *(_key(name) for name in _SAME),
    ConfigKey(DRIVER, Type.STRING, None, Importance.LOW, "The driver's class, where it does not say by itself that it "
              "is for such URLs."),
    replace(spark_settings.KEYS.keys[MEMORY]),
)  # fmt: skip

#: Confluent's keys without effect: why, and the values that ask for nothing else.
_WITHOUT_EFFECT: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "connection.attempts": ("a database that is away is asked again until it is back", ()),
    "connection.backoff.ms": ("a database that is away is asked again until it is back", ()),
    "query.retry.attempts": ("a database that is away is asked again until it is back", ()),
    "dialect.name": ("Spark knows the dialect by connection.url", ("",)),
    "quote.sql.identifiers": ("columns are quoted, tables stand as they are written", ()),
    "sql.quote.identifiers": ("columns are quoted, tables stand as they are written", ()),
    "table.names.qualify": ("tables are asked for as they are written", ()),
    "transaction.isolation.mode": ("a look at a table is one statement", ("DEFAULT",)),
    "date.calendar.system": ("dates are of the Gregorian calendar", ("PROLEPTIC_GREGORIAN",)),
    "numeric.mapping": ("types are Spark's", ("none",)),
    "numeric.precision.mapping": ("types are Spark's", ("false",)),
    "timestamp.granularity": ("timestamps are Connect's Timestamp", ("connect_logical",)),
    "table.poll.interval.ms": ("table.whitelist names all tables there are", ()),
    "table.types": ("table.whitelist names tables and views alike", ()),
}
_REFUSED: Final = ("table.blacklist", "table.include.list", "table.exclude.list", "catalog.pattern", "schema.pattern")
"""They choose among tables that nobody has listed here: without effect, other tables would be read than were meant."""


@dataclass(frozen=True, slots=True)
class JdbcSettings:
    """A source's configuration, read."""

    options: Mapping[str, str] = field(repr=False)
    """For Spark's JDBC: `url`, `user`, `password`, and the `spark.option.*`."""
    memory: str
    mode: Mode
    incrementing: str
    """"" = the mode has none."""
    timestamps: tuple[str, ...]
    """The first that is not null is a row's moment; () = the mode has none."""
    initial_us: int | None
    """Microseconds since 1970; None = from the first row."""
    from_now: bool
    """Without an offset only what comes after the first look."""
    delay_ms: int
    requires_not_null: bool
    query: str
    """"" = tables are read."""
    suffix: str
    tables: tuple[str, ...]
    zone: str
    topic_prefix: str
    poll_ms: int
    batch_rows: int

    @property
    def url(self) -> str:
        """The database's."""
        return self.options["url"]


def settings_of(config: Config) -> JdbcSettings:
    """Read the configuration. Raises ConfigError whose field is the key."""
    values = KEYS.parse(config)
    options = _options_of(config, values)
    mode = Mode(values[MODE])
    query, tables = _what_of(config, values)
    topics = [(f"table {table}", values["topic.prefix"] + topic_name(table)) for table in tables]
    check_topics(config, topics or [("the query", values["topic.prefix"])], f"read it by a {QUERY} with another prefix")
    timestamps = tuple(one for one in values[TIMESTAMP] or () if one)
    if mode.has_timestamp and not timestamps:
        raise ConfigError(f"{TIMESTAMP}: mode={mode} needs it", field=TIMESTAMP, fix="name a column")
    incrementing = (values[INCREMENTING] or "").strip()
    if mode.has_number and not incrementing:
        raise ConfigError(f"{INCREMENTING}: mode={mode} needs it", field=INCREMENTING, fix="name a column")
    initial = postgres.initial_of(config, values)
    return JdbcSettings(
        options=options,
        memory=values[MEMORY].lower(),
        mode=mode,
        incrementing=incrementing if mode.has_number else "",
        timestamps=timestamps if mode.has_timestamp else (),
        initial_us=None if initial in (None, postgres.FROM_NOW) else initial * 1_000,
        from_now=initial == postgres.FROM_NOW,
        delay_ms=values["timestamp.delay.interval.ms"],
        requires_not_null=values[NON_NULL],
        query=query,
        suffix=values["query.suffix"] or "",
        tables=tables,
        zone=values[ZONE] or "UTC",
        topic_prefix=values["topic.prefix"],
        poll_ms=values[POLL_MS],
        batch_rows=values["batch.max.rows"],
    )


def topic_name(table: str) -> str:
    """What a topic is called after a table, without prefix: its name alone, without quotes."""
    found = _LAST.search(table)
    name = found[1] if found else table
    return name[1:-1] if name[0] in '"`[' else name


def warnings_of(config: Config) -> list[FieldViolation]:
    """Every key that has not the effect it asks for, with why."""
    own = {*KEYS.keys, TASK_TABLES, "task.class", postgres.INITIAL_MS}
    found = warned_settings(config, own, ConnectorKind.SOURCE, _WITHOUT_EFFECT, (OPTION_PREFIX,), java="jdbc-source")
    return [*_warnings_of_java(config), *_warnings_of_late_rows(config), *found]


def _warnings_of_java(config: Config) -> list[FieldViolation]:
    """What of a config for Java's connector is other than its author may think."""
    name = config.get("connector.class")
    if name not in postgres.JAVA_CLASSES:
        return []
    message = f"connector.class: of this {URL} {name} is SparkJdbcSource, with a Spark of each task's own"
    found = [FieldViolation("connector.class", message, "write connector.class=SparkJdbcSource to say so")]
    names = [one.strip() for one in (config.get(WHITELIST) or "").split(",")]
    if bare := [one for one in names if one and "." not in one]:
        message = (
            f"{WHITELIST}: offsets are found by the names as they are here ({', '.join(bare)}); Java's have "
            "the schema, or the catalog, before them where the database has one, and without it all rows are read anew"
        )
        found.append(FieldViolation(WHITELIST, message, "to go on with Java's offsets, write names as they have them"))
    return found


def _warnings_of_late_rows(config: Config) -> list[FieldViolation]:
    """Of a mode in which rows may be missed, whatever else the config says."""
    if (config.get(MODE) or "").strip() != Mode.INCREMENTING:
        return []
    message = (
        f"{MODE}: {Mode.INCREMENTING} does not read a row that is committed after one with a higher number: who may "
        "still commit a lower number is not known of all databases"
    )
    fix = "have one writer at a time number rows, or use timestamp+incrementing with timestamp.delay.interval.ms"
    return [FieldViolation(MODE, message, fix)]


def _options_of(config: Config, values: Mapping[str, Any]) -> dict[str, str]:
    url = values[URL].strip()
    if _POSTGRES.match(url):
        raise ConfigError(f"{URL}: PostgreSQL has a connector of its own, that needs no JVM", field=URL,
                          fix="connector.class=PostgresSource")  # fmt: skip
    if not url.startswith("jdbc:"):  # not shown: a password may be in it
        raise ConfigError(f"{URL}: it is no JDBC URL", field=URL, fix="write it like jdbc:mysql://host:3306/database")
    refuse_unknown_dialect(URL, url)
    if _WITH_PASSWORD.search(url):
        raise ConfigError(f"{URL}: there is a password in it, and everybody who may see the config sees it", field=URL,
                          fix=f"write it as {PASSWORD}")  # fmt: skip
    found = {
        name.removeprefix(OPTION_PREFIX): value
        for name, value in config.items()
        if name.startswith(OPTION_PREFIX) and value
    }
    for name in found:
        if name.lower() in _OURS:
            raise ConfigError(f"{OPTION_PREFIX}{name}: it follows from other keys", field=OPTION_PREFIX + name,
                              fix=f"leave it out; there are {URL}, {USER}, {PASSWORD} and {QUERY}")  # fmt: skip
    logins = {"user": (config.get(USER) or "").strip(), "password": config.get(PASSWORD) or ""}
    return {**found, "url": url, **{name: value for name, value in logins.items() if value}}


def not_built(config: Config) -> list[ConfigError]:
    """Every key that would have tables looked for."""
    return [
        ConfigError(f"{name} is not built: this connector does not look for tables", field=name,
                    fix=f"name all of them in {WHITELIST}")
        for name in _REFUSED if (config.get(name) or "").strip()
    ]  # fmt: skip


def _what_of(config: Config, values: Mapping[str, Any]) -> tuple[str, tuple[str, ...]]:
    """The query, "" = none, and the tables. Raises ConfigError unless there is one of them."""
    for problem in not_built(config):
        raise problem
    query = (values[QUERY] or "").strip().rstrip(";").rstrip()
    tables = tuple(dict.fromkeys(one.strip() for one in values[WHITELIST] or () if one.strip()))
    if query and tables:
        raise ConfigError(f"{QUERY}: a query is read instead of tables, and {WHITELIST} names tables", field=QUERY,
                          fix=f"leave out {QUERY}, or {WHITELIST}")  # fmt: skip
    if not query and not tables:
        raise ConfigError(f"{WHITELIST}: there is nothing to read", field=WHITELIST,
                          fix=f"name tables, or write {QUERY}: this connector does not look for tables")  # fmt: skip
    for table in tables:
        if not _TABLE.fullmatch(table):
            raise ConfigError.for_value(WHITELIST, table, "is no name of a table", fix='orders, or shop."Order lines"')
    return query, tables
