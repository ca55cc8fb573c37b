"""Database client of a source: statements through Spark's JDBC, rows as Arrow.

Owns the connection, opened as Spark opens it (drivers, dialects, logins), the columns that Spark finds in a relation,
the rows of one statement in parts, and the classification of a database's errors. The statements: `plan`.

Rows are read by Spark's own reader (`JdbcUtils`), without its jobs: a DataFrame guarantees an order of rows only by
sorting all of them, and has no parameters. One statement is one consistent view, in the database's own order.

Invariant: all errors are Connect's and contain no password: RetriableError; ConfigError when the config or the table
must change; ConnectError for a value that no driver reads; TaskFailed when Spark in this process is gone.
"""

from __future__ import annotations

import json
from collections.abc import Generator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, Final

from py4j.protocol import (  # pyright: ignore[reportMissingTypeStubs]
    Py4JJavaError,
    Py4JNetworkError,
)

from herdmesh.connect.config import database_place, kind_of
from herdmesh.connectors.spark.jdbc_source.settings import JdbcSettings
from herdmesh.connectors.table_source.settings import PASSWORD, QUERY, URL, USER, WHITELIST
from herdmesh.sdk import ConfigError, ConnectError, ErrorClass, RetriableError, TaskFailed, UnreachableError
from herdmesh.sdk.spark import task_session

_NO_DRIVER: Final = ("No suitable driver", "ClassNotFoundException")
_NOW: Final = ("SELECT CURRENT_TIMESTAMP", "VALUES CURRENT_TIMESTAMP", "SELECT CURRENT_TIMESTAMP FROM dual")
"""Statements for the current time: most databases; Derby and DB2; Oracle."""
_NOW_SQLITE: Final = ("SELECT strftime('%Y-%m-%d %H:%M:%f', 'now')",)
"""SQLite's statement: its driver cannot read the text of its CURRENT_TIMESTAMP."""
_CONFIG: Final = ("42", "3D", "3F", "0A", "22")
"""SQL states of errors that a retry cannot fix: rights, syntax, missing or unsupported objects, values."""
_CONFIG_CLASSES: Final = ("SQLSyntaxErrorException", "SQLInvalidAuthorizationSpecException",
                          "SQLFeatureNotSupportedException")  # fmt: skip
_NO_CONNECTION: Final = "08"
"""Class of the SQL states of a connection that cannot be opened, or broke."""
_HIDDEN: Final = "***"

Parameter = tuple[str, int]
""""number" with an integer, or "moment" with microseconds since 1970."""


@dataclass(frozen=True, slots=True)
class JdbcColumn:
    """A column as Spark reads it."""

    name: str
    type: str
    """Spark's type: `integer`, `decimal(10,2)`, `timestamp`, ..."""
    nullable: bool
    is_time: bool
    """True for a time of day, which Spark reads as a `timestamp` of 1970-01-01."""


@dataclass(frozen=True, slots=True)
class Columns:
    """The columns of a relation."""

    columns: tuple[JdbcColumn, ...]
    spark: Any
    """The same columns as Spark's schema, in the JVM."""


class Database:
    """One connection, for one thread. It is opened at the first query."""

    def __init__(self, settings: JdbcSettings) -> None:
        self._settings = settings
        self._options = dict(settings.options)
        self._begun: Any = None
        self._java: Any = None

    @property
    def place(self) -> str:
        """The database's name in waits: `mysql db:3306`, or `sqlite database` for a URL without a host."""
        return database_place(self._settings.url)

    def begin(self) -> None:
        """Start Spark in the background."""
        if self._begun is None or task_session.has_failed(self._begun):
            self._begun = task_session.begin(self._settings.memory, {})

    def columns(self, relation: str) -> Columns:
        """Return the columns of a relation, with Spark's types. `relation`: text for FROM."""
        field = QUERY if self._settings.query else WHITELIST
        with self._errors_translated(f"cannot read {_shown(relation)}", field):
            connection, utils = self._connected(), self._utils()
            prepared = connection.prepareStatement(f"SELECT * FROM {relation} WHERE 1 = 0")
            try:
                args = [getattr(utils, f"getSchema$default${number}")() for number in (4, 5, 6)]
                found = utils.getSchema(connection, prepared.executeQuery(), self._dialect(), *args)
            finally:
                prepared.close()
            self._roll_back()
            fields = json.loads(found.json())["fields"]
        return Columns(
            tuple(
                JdbcColumn(
                    one["name"],
                    one["type"] if isinstance(one["type"], str) else str(one["type"]["type"]),
                    bool(one["nullable"]),
                    bool(one["metadata"].get("logical_time_type")),
                )
                for one in fields
            ),
            found,
        )

    def quoted(self, names: Sequence[str]) -> list[str]:
        """Quote column names for this database's SQL."""
        with self._errors_translated("cannot quote names"):
            dialect = self._dialect()
            return [str(dialect.quoteIdentifier(name)) for name in names]

    def now_us(self) -> int:
        """Return the database's clock in microseconds since 1970, in whole milliseconds."""
        ways = _NOW_SQLITE if self._settings.url.startswith("jdbc:sqlite:") else _NOW
        with self._errors_translated("cannot read the database's time"):
            connection = self._connected()
            for number, way in enumerate(ways, 1):
                try:
                    return self._time_by(connection, way)
                except Py4JJavaError:
                    self._roll_back()
                    if number == len(ways):
                        raise
        raise AssertionError("no way to ask for the time")

    def rows(
        self, label: str, statement: str, parameters: Sequence[Parameter], columns: Columns, fetch_rows: int
    ) -> Rows:
        """Run a statement that selects these columns, in this order. `label`: name of the relation, for messages."""
        with self._errors_translated(f"cannot read {label}"):
            connection = self._connected()
            self._dialect().beforeFetch(connection, self._jdbc_options())
            prepared = connection.prepareStatement(statement)
            prepared.setFetchSize(fetch_rows)
            for place, (kind, value) in enumerate(parameters, 1):
                if kind == "number":
                    prepared.setLong(place, value)
                else:
                    prepared.setTimestamp(place, self._moment(value))
            rows = self._utils().resultSetToRows(prepared.executeQuery(), columns.spark, self._dialect())
        return Rows(self, label, prepared, rows, columns)

    def close(self) -> None:
        """Close the connection. Does nothing if it is closed, or was never opened."""
        connection, self._java = self._java, None
        if connection is not None:
            with suppress(Exception):  # all important data is committed in Kafka
                connection.rollback()
            with suppress(Exception):
                connection.close()

    def next_of(self, label: str, prepared: Any, rows: Any, columns: Columns, rows_max: int) -> Any:
        """Return a table of the next rows for `Rows`; shorter than `rows_max` at the end."""
        with self._errors_translated(f"cannot read {label}"):
            taken = self._jvm().scala.jdk.javaapi.CollectionConverters.asJava(rows.take(rows_max).toList())
            session = task_session.session_of(self._begun)
            found = task_session.arrow_of(session, taken, columns.spark)
            if found.num_rows < rows_max:
                self.ended(prepared)
            return found

    def ended(self, prepared: Any) -> None:
        """End the statement and its transaction for `Rows`. Does nothing if they have ended."""
        with suppress(Exception):
            prepared.close()
        self._roll_back()

    def _connected(self) -> Any:
        if self._java is None:
            jvm = self._jvm()
            zones = jvm.java.util.TimeZone
            # Drivers read and send timestamps without a zone in the JVM's zone.
            zones.setDefault(zones.getTimeZone(self._settings.zone))
            self._java = self._dialect().createConnectionFactory(self._jdbc_options()).apply(-1)
            self._java.setAutoCommit(False)  # otherwise some drivers fetch all rows at once
        return self._java

    def _jdbc_options(self) -> Any:
        jvm = self._jvm()
        given = jvm.PythonUtils.toScalaMap(
            {**self._options, "dbtable": "herdmesh"}
        )  # the option is required, and its value is unused
        return jvm.org.apache.spark.sql.execution.datasources.jdbc.JDBCOptions(given)

    def _jvm(self) -> Any:
        self.begin()
        untyped: Any = task_session.session_of(self._begun)
        return untyped.sparkContext._jvm

    def _utils(self) -> Any:
        return self._jvm().org.apache.spark.sql.execution.datasources.jdbc.JdbcUtils

    def _dialect(self) -> Any:
        return self._jvm().org.apache.spark.sql.jdbc.JdbcDialects.get(self._settings.url)

    def _moment(self, moment_us: int) -> Any:
        seconds, fraction_us = divmod(moment_us, 1_000_000)
        found = self._jvm().java.sql.Timestamp(seconds * 1_000)
        found.setNanos(fraction_us * 1_000)
        return found

    def _time_by(self, connection: Any, statement: str) -> int:
        prepared = connection.prepareStatement(statement)
        try:
            result = prepared.executeQuery()
            result.next()
            return int(result.getTimestamp(1).getTime()) * 1_000
        finally:
            prepared.close()
            self._roll_back()

    def _roll_back(self) -> None:
        """Roll back the transaction: nothing was written, and an
        open transaction would show old rows, or block writers.
        """
        with suppress(Exception):  # the next statement reports the error
            if self._java is not None:
                self._java.rollback()

    @contextmanager
    def _errors_translated(self, doing: str, field: str = "") -> Generator[None]:
        try:
            yield
        except task_session.ERRORS as error:
            # Without the cause: its text may contain secrets that are masked here.
            raise self._translated(error, doing, field) from None

    def _translated(self, error: Exception, doing: str, field: str) -> Exception:
        """Return Connect's error. `field`: the key to change when the database refuses the statement."""
        said = self._hidden(f"{doing}: {task_session.cause_of(error)}")
        if isinstance(error, Py4JNetworkError | OSError):
            return TaskFailed(f"this task's Spark has ended: {said}", ErrorClass.RETRIABLE)
        if any(one in str(error) for one in _NO_DRIVER):
            return ConfigError(
                f"{URL}: the worker has no driver for {kind_of(self._settings.url)} ({said})", field=URL,
                fix="name the driver's jar in HERDMESH_SPARK_JARS on every worker (setting spark_jars), or its class "
                "in spark.option.driver",
            )  # fmt: skip
        return self._of_database(error, said, field)

    def _of_database(self, error: Exception, said: str, field: str) -> ConnectError:
        """Classify an error by SQL state, class and number of `java.sql.SQLException`."""
        java: Any = getattr(error, "java_exception", None)
        state = kind = ""
        number = 0
        with suppress(Exception):  # exceptions other than SQLException have none of them
            kind = str(java.getClass().getName())
            state, number = str(java.getSQLState() or ""), int(java.getErrorCode())
        if state.startswith("28") or kind.endswith("AuthorizationSpecException"):
            return ConfigError(
                f"{USER}: {said}", field=USER, fix=f"set {USER} and {PASSWORD} to a login that it accepts"
            )
        of_sqlite = kind.startswith("org.sqlite.") and number == 1
        if state.startswith(_CONFIG) or kind.endswith(_CONFIG_CLASSES) or of_sqlite or "UNRECOGNIZED_SQL_TYPE" in said:
            return ConfigError(said, field=field)
        if kind == "java.sql.SQLException" and not state and not number:
            return ConnectError(said)  # drivers raise it for values that they cannot read
        if state.startswith(_NO_CONNECTION):
            return UnreachableError(said, waits_for=self.place)
        return RetriableError(said, waits_for=self.place)

    def _hidden(self, text: str) -> str:
        for name, value in self._options.items():
            if value and ("password" in name.lower() or "secret" in name.lower()):
                text = text.replace(value, _HIDDEN)
        return text


class Rows:
    """The rows of one statement, in order."""

    def __init__(self, database: Database, label: str, prepared: Any, rows: Any, columns: Columns) -> None:
        self._database = database
        self._label = label
        self._prepared = prepared
        self._rows = rows
        self._columns = columns

    def fetch(self, rows_max: int) -> Any:
        """Return the next rows as a pyarrow Table; fewer than `rows_max`
        means that there are no more, and the statement has ended.
        """
        return self._database.next_of(self._label, self._prepared, self._rows, self._columns, rows_max)

    def close(self) -> None:
        """End the statement. Does nothing if it has ended."""
        self._database.ended(self._prepared)


def _shown(relation: str) -> str:
    return "the query" if relation.startswith("(") else relation.rpartition(" ")[0] or relation
