"""Idempotent target for databases, by Spark's JDBC writer: each file of rows is written once.

Owns the ledger: a table `herdmesh_writes` beside the target's, with
a row for each writer (connector, partition and staging folder).

    writer                                 | last_number | scratch
    connect-orders/orders-0@9c41...#1b0f9a | 17          | s.hm_6f1c...

Spark's writer commits in a connection of its own, so it cannot keep a ledger. It therefore writes to a scratch table
with the target's columns, and one transaction of ours moves the rows: `UPDATE ... SET last_number = 18 WHERE writer =
me AND last_number < 18 AND scratch = mine`, which changes one row or none, `INSERT INTO target SELECT ... FROM
scratch`, commit. The scratch table's name is in the ledger before the table is created, so the next owner drops it; an
owner that was suspended meanwhile moves nothing.

Invariant: the rows of a number are in the target if and only if the ledger has reached that number.
"""

from __future__ import annotations

import hashlib
import re
import uuid
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, ClassVar, Final

from herdmesh.connectors.spark.session_settings import FORMAT
from herdmesh.connectors.spark.sink.settings import TABLE, SparkSettings
from herdmesh.connectors.spark.sink.targets import SparkWriter, place_of
from herdmesh.engine.runtime import failpoints
from herdmesh.sdk import ConfigError, ErrorClass, TaskFailed
from herdmesh.sdk.spark import task_session

LEDGER: Final = "herdmesh_writes"
_EMPTY_COPIES: Final = (
    "CREATE TABLE {new} AS SELECT * FROM {old} WHERE 1 = 0",
    "CREATE TABLE {new} AS SELECT * FROM {old} WITH NO DATA",
    "SELECT * INTO {new} FROM {old} WHERE 1 = 0",
)
"""Statements that create an empty table with the columns of another: most databases; Derby; SQL Server."""


class JdbcTarget:
    """One table of a database."""

    keeps_numbers: ClassVar[bool] = True

    def __init__(self, settings: SparkSettings) -> None:
        self._spark = SparkWriter(settings)
        self._options = settings.options
        self._place = place_of(settings)
        self._table = settings.options["dbtable"].strip()
        schema = self._table.rpartition(".")[0]
        self._beside = f"{schema}." if schema else ""
        self._ledger = f"{self._beside}{LEDGER}"

    def begin(self) -> None:
        self._spark.begin()

    def last_number(self, writer: str) -> int:
        writer = _key_of(writer)
        with self._errors_translated(), self._connection() as database:
            self._make_ledger(database)
            found = database.rows(f"SELECT last_number FROM {self._ledger} WHERE writer = ?", writer)
            if not found:
                database.run(f"INSERT INTO {self._ledger} (writer, last_number, scratch) VALUES (?, 0, '')", writer)
            database.commit()
            return int(found[0][0]) if found else 0

    def write(self, path: Path, writer: str, number: int | None) -> None:
        assert number is not None
        if self.last_number(writer) >= number:
            return
        with self._errors_translated():
            rows = self._spark.rows(path)
            names, kinds = self._names_in_target(rows)
            scratch = self._make_scratch(writer)
            self._spark.appending(_with_own_digits(rows, kinds), dbtable=scratch).save()
            self._move(names, scratch, writer, number)

    def _make_scratch(self, writer: str) -> str:
        """Create an empty table with the target's columns. Its name is in the ledger first."""
        writer = _key_of(writer)
        scratch = f"{self._beside}hm_{uuid.uuid4().hex[:16]}"
        with self._connection() as database:
            left = database.rows(f"SELECT scratch FROM {self._ledger} WHERE writer = ?", writer)
            database.run(f"UPDATE {self._ledger} SET scratch = ? WHERE writer = ?", scratch, writer)
            database.commit()
            if left and left[0][0]:
                database.drop(str(left[0][0]))
            database.run_one_of([copy.format(new=scratch, old=self._table) for copy in _EMPTY_COPIES])
        return scratch

    def _move(self, names: str, scratch: str, writer: str, number: int) -> None:
        with self._connection() as database:
            moved = database.run(
                f"UPDATE {self._ledger} SET last_number = {number:d} "
                f"WHERE writer = ? AND last_number < {number:d} AND scratch = ?", _key_of(writer), scratch,
            )  # fmt: skip
            if moved == 1:
                database.run(f"INSERT INTO {self._table} ({names}) SELECT {names} FROM {scratch}")
                failpoints.hit("before-target-commit")
                database.commit()
                failpoints.hit("after-target-commit")
            else:
                database.roll_back()
            database.drop(scratch)
        if moved != 1 and self.last_number(writer) < number:
            raise TaskFailed(
                f"another owner writes to {self._table} for {writer}: this run wrote nothing", ErrorClass.RETRIABLE
            )

    def _names_in_target(self, rows: Any) -> tuple[str, Mapping[str, str]]:
        """Return the target's columns, quoted, and Spark's type of each, by name in the rows. Creates the target if it
        is missing. Raises ConfigError for a column that it does not have.
        """
        session = self._spark.session()
        with self._connection() as database:
            if not database.has(self._table):
                database.make(self._table, rows)
        there = session.read.format("jdbc").options(**self._options).load().dtypes
        has = {name.lower(): name for name, _ in there}
        if missing := [name for name in rows.columns if name.lower() not in has]:
            raise ConfigError(
                f"{self._table} has no column {', '.join(missing)}", field=TABLE, fix="add them to the table, or drop "
                "the fields with a transformation",
            )  # fmt: skip
        dialect = session.sparkContext._jvm.org.apache.spark.sql.jdbc.JdbcDialects.get(self._options["url"])
        kinds = dict(there)
        quoted = ", ".join(dialect.quoteIdentifier(has[name.lower()]) for name in rows.columns)
        return quoted, {name: kinds[has[name.lower()]] for name in rows.columns}

    def _make_ledger(self, database: _Connection) -> None:
        if database.has(self._ledger):
            return
        columns = "writer VARCHAR(400) NOT NULL PRIMARY KEY, last_number BIGINT NOT NULL, scratch VARCHAR(200) NOT NULL"
        try:
            database.run(f"CREATE TABLE {self._ledger} ({columns})")
        except Exception:
            database.roll_back()
            if not database.has(self._ledger):  # if it exists now, another task has just created it
                raise
        database.commit()

    @contextmanager
    def _errors_translated(self) -> Generator[None]:
        with task_session.errors_translated(f"{FORMAT}=jdbc, writing {self._table}", TABLE, self._place):
            yield

    @contextmanager
    def _connection(self) -> Generator[_Connection]:
        jvm = self._spark.session().sparkContext._jvm
        zones = jvm.java.util.TimeZone
        # Drivers send moments to columns without a zone in the JVM's zone, which must not depend on the worker's
        # machine.
        zones.setDefault(zones.getTimeZone("UTC"))
        of_spark = jvm.org.apache.spark.sql
        options = of_spark.execution.datasources.jdbc.JdbcOptionsInWrite(jvm.PythonUtils.toScalaMap(self._options))
        # Connect as Spark does, with its drivers and login providers.
        dialect = of_spark.jdbc.JdbcDialects.get(self._options["url"])
        opened = dialect.createConnectionFactory(options).apply(-1)
        try:
            opened.setAutoCommit(False)
            yield _Connection(opened, of_spark.execution.datasources.jdbc.JdbcUtils, dialect, options)
        finally:
            with suppress(Exception):  # all important data is committed, or the error being raised reports it
                opened.rollback()
            opened.close()


def _with_own_digits(rows: Any, kinds: Mapping[str, str]) -> Any:
    """Convert floats of 32 bits for decimal columns to doubles with the same digits: a database would store 0.1 as
    0.10000000149011612, or cut it to six digits. `kinds`: from `JdbcTarget._names_in_target`.
    """
    narrow = {name for name, kind in rows.dtypes if kind == "float" and kinds[name].startswith("decimal")}
    if not narrow:
        return rows
    columns = {name: rows["`" + name.replace("`", "``") + "`"] for name in rows.columns}
    return rows.select(*(
        one.cast("string").cast("double").alias(name) if name in narrow else one for name, one in columns.items()
    ))  # fmt: skip


class _Connection:
    """The used part of `java.sql.Connection`. The driver begins transactions."""

    def __init__(self, java: Any, of_spark: Any, dialect: Any, options: Any) -> None:
        """`of_spark`: Spark's `JdbcUtils`, which know each database's types. `dialect`: Spark's dialect of the
        database. `options`: the options for both.
        """
        self._java = java
        self._of_spark = of_spark
        self._quoted = dialect.quoteIdentifier
        self._options = options

    def run(self, statement: str, *texts: str) -> int:
        """Execute a statement; returns the number of changed rows."""
        prepared = self._prepared(statement, texts)
        try:
            return prepared.executeUpdate()
        finally:
            prepared.close()

    def rows(self, statement: str, *texts: str) -> list[list[Any]]:
        """Return the rows of a query with one column."""
        prepared = self._prepared(statement, texts)
        try:
            result = prepared.executeQuery()
            found: list[list[Any]] = []
            while result.next():
                found.append([result.getObject(1)])
            return found
        finally:
            prepared.close()

    def has(self, table: str) -> bool:
        """Return whether this connection can read such a table."""
        try:
            self.rows(f"SELECT 1 FROM {table} WHERE 1 = 0")
        except Exception:  # noqa: BLE001 - each driver has its own class for it; creating the table reports all other errors
            self.roll_back()
            return False
        return True

    def make(self, table: str, rows: Any) -> None:
        """Create a table for the columns of a DataFrame, with Spark's types for this database. Spark's writer does it
        too, but without a dialect for the database it cannot detect that the table is missing.
        """
        self._of_spark.createTable(self._java, table, rows._jdf.schema(), False, self._options)
        if self._options.url().lower().startswith("jdbc:mysql:"):
            # Spark's TIMESTAMP on MySQL has whole seconds, and ends in 2038.
            moments = [name for name, kind in rows.dtypes if kind == "timestamp"]
            for name in map(self._quoted, moments):
                self.run(f"ALTER TABLE {table} MODIFY COLUMN {name} DATETIME(6) NULL DEFAULT NULL")
        self.commit()

    def run_one_of(self, statements: Sequence[str]) -> None:
        """Execute the first statement that the database accepts. Raises the error of the first one if all fail."""
        first: Exception | None = None
        for statement in statements:
            try:
                self.run(statement)
            except Exception as error:  # noqa: BLE001 - as in `has`
                self.roll_back()
                first = first or error
            else:
                self.commit()
                return
        assert first is not None
        raise first

    def drop(self, table: str) -> None:
        """Drop a table of ours, if it exists."""
        try:
            self.run(f"DROP TABLE {table}")
        except Exception:  # noqa: BLE001 - as in `has`
            self.roll_back()
        else:
            self.commit()

    def commit(self) -> None:
        self._java.commit()

    def roll_back(self) -> None:
        self._java.rollback()

    def _prepared(self, statement: str, texts: Sequence[str]) -> Any:
        prepared = self._java.prepareStatement(statement)
        for place, text in enumerate(texts, start=1):
            prepared.setString(place, text)
        return prepared


def _key_of(writer: str) -> str:
    """Return a writer's key for the ledger: databases cut texts, ignore case, or lack letters, and if two writers
    shared a row, the records of one of them would be left out.
    """
    readable = re.sub(r"[^ -~]", "_", writer)[:300]
    return f"{readable}#{hashlib.sha256(writer.encode()).hexdigest()[:16]}"
