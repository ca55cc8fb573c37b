"""The task of a PostgreSQL source: reads the new rows of its tables in turn.

Owns the connection, and waiting for transactions that may still commit a lower number. The schedule and the places:
`table_source.task`; one pass over a table: `Sweep`; its SQL: `SourcePlan`; the open writers: `open_writers`.

Invariant: in incrementing mode a number is passed only when no open transaction can commit a lower one (unless the
config switches this wait off).
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import msgspec
from psycopg import errors

from herdmesh.connectors.postgres.connection import Connection, errors_translated, server
from herdmesh.connectors.postgres.source import open_writers
from herdmesh.connectors.postgres.source.catalog import TableId, columns_of_query, columns_of_table, serial_column
from herdmesh.connectors.postgres.source.open_writers import Read, Writers
from herdmesh.connectors.postgres.source.plan import SourcePlan, opened
from herdmesh.connectors.postgres.source.settings import SourceSettings, check_tables, settings_of, topic_of
from herdmesh.connectors.postgres.source.sweep import Sweep
from herdmesh.connectors.table_source import (
    QUERY_PARTITION,
    Mode,
    Relation,
    TablePlace,
    TableProgress,
    TableSourceTask,
    table_partition,
)
from herdmesh.connectors.table_source.settings import QUERY, TASK_TABLES
from herdmesh.connectors.table_source.task import CONNECT_AGAIN_S
from herdmesh.sdk import Config, ConfigError, RetriableError, SourceBatch, SourceTaskContext, waits

_WAIT_S: Final = 0.1
"""Maximum wait of a poll for open transactions to end."""
_LOOK_AGAIN_S: Final = 0.02
"""Interval at which the poll checks them."""
#: The server's errors for a table that was changed since the catalog was read.
_CHANGED = (errors.UndefinedColumn, errors.UndefinedTable)
_log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Waiting:
    """Rows up to a number, to be read when the writers have ended."""

    upto: int
    read: Read
    """The relations that are read, and may be written to."""
    writers: Writers


@dataclass(slots=True, eq=False)
class _Table(TableProgress):
    """One table, or the query, and the progress of reading it."""

    table: TableId | None = None
    """None = the query."""
    plan: SourcePlan | None = None
    waiting: _Waiting | None = None
    is_warned: bool = False
    """The check for invisible writers was done."""
    is_compared: bool = False
    """The highest number was compared with the place."""


class PostgresSourceTask(TableSourceTask[SourceSettings, _Table]):
    """Reads some tables, or a query, of one PostgreSQL database."""

    _connection: Connection | None = None

    def start(self, config: Config, context: SourceTaskContext) -> None:
        self._settings = settings_of(config)
        self._context = context
        self._connect_s = 0.0
        self._waiting_ends_s = 0.0
        self._away = ""  # the error of the last attempt
        self._tables = deque(
            _Table(relation, *self._start_place(context.committed_offset(relation.partition)), table=table)
            for relation, table in _relations(config, self._settings)
        )

    def poll(self) -> SourceBatch | None:
        place = server(self._settings.connection)
        try:
            with waits.on(place, "rows"):
                self._connect()
                self._waiting_ends_s = time.monotonic() + _WAIT_S
                batch = self._poll_tables()
        except RetriableError as error:
            self._disconnect()
            error.waits_for = error.waits_for or place
            self._away = self._away if not error.tried else str(error)
            raise
        waiting = [table for table in self._tables if table.waiting is not None]
        if batch is None and waiting:
            # None would end the run, although there are new rows.
            raise RetriableError("; ".join(map(_reason, waiting)), waits_for=place)
        return batch

    def wake_after_ms(self) -> int:
        """0 if the connector's sign shows the worker that there are new rows."""
        return 0 if self._settings.has_sign else self._next_due_ms()

    def stop(self) -> None:
        if self._connection is not None:
            self._disconnect()

    def _wait_for_rows(self, looked_at: set[_Table]) -> bool:
        if not any(one.waiting for one in self._tables) or time.monotonic() >= self._waiting_ends_s:
            return False
        # Most transactions take milliseconds.
        time.sleep(_LOOK_AGAIN_S)  # waits: at most `_WAIT_S`; then the poll raises the reason
        looked_at -= {one for one in looked_at if one.waiting is not None}
        return True

    def _begin(self, table: _Table) -> SourceBatch | None:
        connection = self._connection
        assert connection is not None
        plan = self._plan(connection, table)
        if plan is None:
            return None
        if table.from_now:
            table.place, table.from_now = TablePlace(moment_us=_now_us(connection)), False
            return SourceBatch(table.relation.topic, (), table.relation.partition, table.place.offset())
        upto: int | None = None
        if self._settings.mode is Mode.INCREMENTING and self._settings.waits_for_writers:
            upto = self._decided(connection, table, plan)
            if upto is None:
                return None
        try:
            self._open(table, Sweep(connection, plan, table.place, upto))
        except ConfigError as error:
            if table.table is not None and isinstance(error.__cause__, _CHANGED):
                raise RetriableError(
                    f"{table.relation.label} was changed while its definition was read: {error}"
                ) from error
            raise
        return None

    def _decided(self, connection: Connection, table: _Table, plan: SourcePlan) -> int | None:
        """Return the number up to which all rows are decided; None
        = there is no new number, or it is not decided yet.
        """
        if table.waiting is None:
            relation = table.relation
            found = open_writers.highest_and_read(
                connection, plan.highest(table.place), relation.source, relation.label
            )
            if found is None:
                self._compare(connection, table, plan)
                self._put_off(table)
                return None
            highest, read = found
            self._warn_of_hidden(connection, table, read)
            table.waiting = _Waiting(highest, read, open_writers.writers_of(connection, read))
        waiting = table.waiting
        waiting.writers = open_writers.still_open(connection, waiting.read, waiting.writers)
        if waiting.writers:
            return None
        table.waiting = None
        return waiting.upto

    def _compare(self, connection: Connection, table: _Table, plan: SourcePlan) -> None:
        """Warn once for each table whose rows were renumbered from
        1: they would stay below the place and never be read.
        """
        if table.is_compared or table.table is None or table.place.number is None:
            return
        table.is_compared = True
        with errors_translated(f"cannot read {table.relation.label}"):
            row = connection.execute(plan.highest(TablePlace()).encode()).fetchone()
        if row is not None and row[0] is not None and row[0] < table.place.number:
            _log.warning(
                "%s: its highest number is %d, and rows up to %d count as read: rows that are numbered again from 1 "
                "(after TRUNCATE ... RESTART IDENTITY, or in a new table) are skipped; to read: herd offsets reset",
                table.relation.label, row[0], table.place.number,
            )  # fmt: skip

    def _warn_of_hidden(self, connection: Connection, table: _Table, read: Read) -> None:
        """Warn once for each source about relations whose writers are invisible and may commit lower numbers."""
        if table.is_warned:
            return
        table.is_warned = True
        with errors_translated("cannot check whether the server is a standby"):
            row = connection.execute("SELECT pg_is_in_recovery()").fetchone()
        standby = ["a standby"] if row is not None and row[0] else []
        if hidden := [*read.hidden, *standby]:
            _log.warning(
                "%s reads %s: open transactions there are not visible, so a row that is committed after one with a "
                "higher number is not read; read the tables themselves at the primary, have sequences with CACHE 1, or "
                "use mode=bulk",
                table.relation.label, ", ".join(hidden),
            )  # fmt: skip

    def _plan(self, connection: Connection, table: _Table) -> SourcePlan | None:
        """Return the plan for the present columns; None = the table is gone."""
        if table.table is None:
            columns = columns_of_query(connection, self._settings.query, field=QUERY)
        else:
            columns = columns_of_table(connection, table.table)
            if not columns:
                _log.warning("%s no longer exists; looking for it again", table.relation.label)
                self._put_off(table)
                return None
        if table.plan is None or not table.plan.reads(columns):
            serial = ""
            if table.table is not None and self._settings.mode.has_number and not self._settings.incrementing:
                serial = serial_column(connection, table.table)
            table.plan = SourcePlan(table.relation, columns, self._settings, serial)
        return table.plan

    def _connect(self) -> Connection:
        if self._connection is not None and not self._connection.closed:
            return self._connection
        now_s = time.monotonic()
        if now_s < self._connect_s:
            raise RetriableError(self._away, next_try_s=self._connect_s - now_s, tried=False)
        self._connect_s = now_s + CONNECT_AGAIN_S
        self._connection = opened(self._settings)
        return self._connection

    def _disconnect(self) -> None:
        """Close the connection, and discard the open sweep and the waits. The places stay."""
        self._close_sweep()
        for table in self._tables:
            table.waiting = None
        if self._connection is not None:
            self._connection.close()
        self._connection = None


def _reason(table: _Table) -> str:
    assert table.waiting is not None
    processes = sorted({str(process or "a prepared transaction") for process in table.waiting.writers.values()})
    return f"{table.relation.label} is read once these can no longer commit a lower number: {', '.join(processes)}"


def _now_us(connection: Connection) -> int:
    """Return the server's clock, in microseconds since 1970."""
    with errors_translated("cannot read the server's time"):
        row = connection.execute("SELECT (extract(epoch FROM statement_timestamp()) * 1000000)::int8").fetchone()
    assert row is not None
    return row[0]


def table_relation(table: TableId, settings: SourceSettings) -> Relation:
    """Return the relation of a table."""
    return Relation(str(table), table.sql, topic_of(table, settings), table.table, table_partition(str(table)))


def query_relation(settings: SourceSettings) -> Relation:
    """Return the relation of the query. A line break follows the query, because it may end with a comment."""
    return Relation("the query", f"({settings.query}\n)", settings.topic_prefix, None, QUERY_PARTITION)


def tables_text(tables: Sequence[TableId]) -> str:
    """Format tables for a task's config."""
    return msgspec.json.encode([(one.database, one.schema, one.table) for one in tables]).decode()


def tables_of(config: Config) -> list[TableId]:
    """Parse the text of `tables_text`. Raises ConfigError when the config has none."""
    text = config.get(TASK_TABLES) or ""
    try:
        return [TableId(*one) for one in msgspec.json.decode(text, type=list[tuple[str, str, str]])]
    except msgspec.DecodeError as error:
        raise ConfigError.for_value(TASK_TABLES, text, f"is not a list of tables: {error}") from error


def _relations(config: Config, settings: SourceSettings) -> list[tuple[Relation, TableId | None]]:
    if settings.query:
        return [(query_relation(settings), None)]
    found = tables_of(config)
    check_tables(config, settings, found)
    return [(table_relation(table, settings), table) for table in found]
