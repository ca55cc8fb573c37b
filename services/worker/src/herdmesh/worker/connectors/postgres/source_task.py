"""The task of a PostgreSQL source: looks at its tables in turn and hands on what is new.

Owns when a table is looked at, how far it has been read, and the connection. One look is a `Sweep`; how a table is
read, a `Plan`; who may still commit what would be passed, `source_writers`.

Invariant: a table's place moves only by batches that were handed on, in their order; whatever breaks, reading goes on
behind the last of them.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec
from psycopg import errors

from herdmesh.sdk import Config, ConfigError, RetriableError, SourceBatch, SourceTask, SourceTaskContext, waits
from herdmesh.worker.connectors.postgres import source_writers
from herdmesh.worker.connectors.postgres.catalog import (
    TableId,
    columns_of_query,
    columns_of_table,
    serial_column,
)
from herdmesh.worker.connectors.postgres.common import Connection, errors_translated, server
from herdmesh.worker.connectors.postgres.source_config import (
    QUERY,
    TASK_TABLES,
    Mode,
    SourceSettings,
    check_tables,
    settings_of,
    topic_of,
)
from herdmesh.worker.connectors.postgres.source_place import QUERY_PARTITION, Place, table_partition
from herdmesh.worker.connectors.postgres.source_plan import Plan, Relation, opened
from herdmesh.worker.connectors.postgres.source_sweep import Sweep
from herdmesh.worker.connectors.postgres.source_writers import Read, Writers

_CONNECT_AGAIN_S: Final = 1.0
"""How soon after another a connection is tried."""
_WAIT_S: Final = 0.1
"""How long a poll waits for those who write to a table to end, at most, and how often it looks."""
_LOOK_AGAIN_S: Final = 0.02
#: What the server says of a table that is not any more as the catalog said a moment ago.
_CHANGED = (errors.UndefinedColumn, errors.UndefinedTable)
_log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Waiting:
    """Numbers up to a bound are read when these have ended."""

    upto: int
    read: Read
    """What is read, and so may be written to."""
    writers: Writers


@dataclass(slots=True, eq=False)
class _Source:
    """One table, or the query, and how far it is."""

    relation: Relation
    table: TableId | None
    place: Place
    from_now: bool
    """Its place is the time at which the server is first asked."""
    due_s: float = 0.0
    """When it is to be looked at next, of the monotonic clock."""
    plan: Plan | None = None
    waiting: _Waiting | None = None
    is_warned: bool = False
    is_compared: bool = False
    """Its highest number was compared with its place."""
    """It was looked whether there are writers that cannot be seen."""


class PostgresSourceTask(SourceTask):
    """Reads some tables, or a query. The server is asked nothing before the first poll: that one is tried again."""

    _connection: Connection | None = None
    _sweep: Sweep | None = None
    _swept: _Source | None = None

    def start(self, config: Config, context: SourceTaskContext) -> None:
        self._settings = settings_of(config)
        self._context = context
        self._connect_s = 0.0
        self._away = ""  # what the last try said
        self._sources = deque(
            self._source(relation, table, context.committed_offset(relation.partition))
            for relation, table in _relations(config, self._settings)
        )

    def poll(self) -> SourceBatch | None:
        place = server(self._settings.connection)
        try:
            with waits.on(place, "rows"):
                batch = self._poll(self._connected())
        except RetriableError as error:
            self._disconnect()
            error.waits_for = error.waits_for or place
            self._away = self._away if not error.tried else str(error)
            raise
        waiting = [source for source in self._sources if source.waiting is not None]
        if batch is None and waiting:
            # Not "nothing", which would end the run: there are rows already.
            raise RetriableError("; ".join(map(_reason, waiting)), waits_for=place)
        return batch

    def wake_after_ms(self) -> int:
        """0 where the worker sees by the connector's sign that there is more."""
        if self._settings.has_sign:
            return 0
        due_s = min((source.due_s for source in self._sources), default=0.0)
        return max(1, int((due_s - time.monotonic()) * 1000))

    def may_yield(self) -> bool:
        """Not in the middle of a table without places, nor before all of them were read: the next run reads them anew.
        Nor among the rows of one place."""
        if self._settings.mode is Mode.BULK:
            return self._sweep is None and all(source.due_s > 0.0 for source in self._sources)
        return self._sweep is None or not self._sweep.is_among_ties

    def stop(self) -> None:
        if self._connection is not None:
            self._disconnect()

    def _source(self, relation: Relation, table: TableId | None, offset: Mapping[str, Any] | None) -> _Source:
        settings = self._settings
        if settings.mode is Mode.BULK:
            return _Source(relation, table, Place(), from_now=False)
        if offset is None and settings.mode.has_timestamp:
            return _Source(relation, table, Place(moment_us=settings.initial_us), settings.from_now)
        return _Source(relation, table, Place.of(offset), from_now=False)

    def _poll(self, connection: Connection) -> SourceBatch | None:
        """The next batch of whatever is due."""
        looked_at: set[_Source] = set()
        give_up_s = time.monotonic() + _WAIT_S
        while True:
            was_reading = self._sweep is not None
            batch = self._next_batch()
            if batch is not None or (was_reading and self._settings.mode is Mode.BULK and self.may_yield()):
                return batch  # none, though a table may be due again already: here others get their turn
            now_s = time.monotonic()
            due = [one for one in self._sources if one.due_s <= now_s and one not in looked_at]
            if due:
                looked_at.add(due[0])
                batch = self._begin(connection, due[0])
                if batch is not None:
                    return batch
            elif any(one.waiting for one in self._sources) and now_s < give_up_s:
                # Most transactions take milliseconds.
                time.sleep(_LOOK_AGAIN_S)  # waits: no longer than `_WAIT_S`; then the poll raises what it waits for
                looked_at = {one for one in looked_at if one.waiting is None}
            else:
                return None

    def _next_batch(self) -> SourceBatch | None:
        """Of the sweep that is open; None = there is none, or it has come to its end."""
        if self._sweep is None or self._swept is None:
            return None
        rows_max = max(1, min(self._settings.batch_rows, self._context.poll_records_max()))
        batch = self._sweep.batch(rows_max)
        if self._settings.mode is not Mode.BULK:
            self._swept.place = self._sweep.place
        if batch is None:
            self._put_off(self._swept)
            self._sweep = self._swept = None
        return batch

    def _put_off(self, source: _Source) -> None:
        """It has been looked at: it is due again an interval later, behind all others."""
        source.due_s = time.monotonic() + self._settings.poll_ms / 1000
        self._sources.remove(source)
        self._sources.append(source)

    def _begin(self, connection: Connection, source: _Source) -> SourceBatch | None:
        """Look at a source: open a sweep if there may be something in it. Returns a batch only to store a place."""
        plan = self._plan(connection, source)
        if plan is None:
            return None
        if source.from_now:
            source.place, source.from_now = Place(moment_us=_now_us(connection)), False
            return SourceBatch(source.relation.topic, (), source.relation.partition, source.place.offset())
        upto: int | None = None
        if self._settings.mode is Mode.INCREMENTING and self._settings.waits_for_writers:
            upto = self._decided(connection, source, plan)
            if upto is None:
                return None
        try:
            self._sweep = Sweep(connection, plan, source.place, upto)
        except ConfigError as error:
            if source.table is not None and isinstance(error.__cause__, _CHANGED):
                raise RetriableError(f"{source.relation.label} was changed while it was looked at: {error}") from error
            raise
        self._swept = source
        return None

    def _decided(self, connection: Connection, source: _Source, plan: Plan) -> int | None:
        """Up to which number all rows are decided; None = there is no new one, or not yet."""
        if source.waiting is None:
            relation = source.relation
            found = source_writers.highest_and_read(
                connection, plan.highest(source.place), relation.source, relation.label
            )
            if found is None:
                self._compare(connection, source, plan)
                self._put_off(source)
                return None
            highest, read = found
            self._warn_of_hidden(connection, source, read)
            source.waiting = _Waiting(highest, read, source_writers.writers_of(connection, read))
        waiting = source.waiting
        waiting.writers = source_writers.still_open(connection, waiting.read, waiting.writers)
        if waiting.writers:
            return None
        source.waiting = None
        return waiting.upto

    def _compare(self, connection: Connection, source: _Source, plan: Plan) -> None:
        """Once for each table: rows that are numbered anew, from 1 on, lie before its place for ever."""
        if source.is_compared or source.table is None or source.place.number is None:
            return
        source.is_compared = True
        with errors_translated(f"cannot read {source.relation.label}"):
            row = connection.execute(plan.highest(Place()).encode()).fetchone()
        if row is not None and row[0] is not None and row[0] < source.place.number:
            _log.warning(
                "%s: its highest number is %d, and rows up to %d count as read: those that are numbered anew (after "
                "TRUNCATE ... RESTART IDENTITY, or in a table made again) are not; to read them: herd offsets reset",
                source.relation.label, row[0], source.place.number,
            )  # fmt: skip

    def _warn_of_hidden(self, connection: Connection, source: _Source, read: Read) -> None:
        """Once for each source: lower numbers may be committed by somebody who is not seen."""
        if source.is_warned:
            return
        source.is_warned = True
        with errors_translated("cannot ask what the server is"):
            row = connection.execute("SELECT pg_is_in_recovery()").fetchone()
        standby = ["a standby"] if row is not None and row[0] else []
        if hidden := [*read.hidden, *standby]:
            _log.warning(
                "%s reads %s: who writes there is not seen, so a row that is committed after one with a higher number "
                "is not read; read the tables themselves at the primary, have sequences with CACHE 1, or use mode=bulk",
                source.relation.label, ", ".join(hidden),
            )  # fmt: skip

    def _plan(self, connection: Connection, source: _Source) -> Plan | None:
        """The plan for the columns there are now; None = the table is gone."""
        if source.table is None:
            columns = columns_of_query(connection, self._settings.query, field=QUERY)
        else:
            columns = columns_of_table(connection, source.table)
            if not columns:
                _log.warning("%s is gone; it is looked for again", source.relation.label)
                self._put_off(source)
                return None
        if source.plan is None or not source.plan.reads(columns):
            serial = ""
            if source.table is not None and self._settings.mode.has_number and not self._settings.incrementing:
                serial = serial_column(connection, source.table)
            source.plan = Plan(source.relation, columns, self._settings, serial)
        return source.plan

    def _connected(self) -> Connection:
        if self._connection is not None and not self._connection.closed:
            return self._connection
        now_s = time.monotonic()
        if now_s < self._connect_s:
            raise RetriableError(self._away, next_try_s=self._connect_s - now_s, tried=False)
        self._connect_s = now_s + _CONNECT_AGAIN_S
        self._connection = opened(self._settings)
        return self._connection

    def _disconnect(self) -> None:
        """Forget the connection and what was going on in it. What was passed stays passed."""
        if self._sweep is not None:
            self._sweep.close()
        self._sweep = self._swept = None
        for source in self._sources:
            source.waiting = None
        if self._connection is not None:
            self._connection.close()
        self._connection = None


def _reason(source: _Source) -> str:
    assert source.waiting is not None
    processes = sorted({str(process or "a prepared transaction") for process in source.waiting.writers.values()})
    return f"{source.relation.label} is read when these can commit no lower number any more: {', '.join(processes)}"


def _now_us(connection: Connection) -> int:
    """The server's clock, in microseconds since 1970."""
    with errors_translated("cannot ask for the time"):
        row = connection.execute("SELECT (extract(epoch FROM statement_timestamp()) * 1000000)::int8").fetchone()
    assert row is not None
    return row[0]


def table_relation(table: TableId, settings: SourceSettings) -> Relation:
    """A table as it is read."""
    return Relation(str(table), table.sql, topic_of(table, settings), table.table, table_partition(table))


def query_relation(settings: SourceSettings) -> Relation:
    """The query as it is read. On a line of its own, because a comment may be its last."""
    return Relation("the query", f"({settings.query}\n)", settings.topic_prefix, None, QUERY_PARTITION)


def written(tables: Sequence[TableId]) -> str:
    """Tables for a task's config."""
    return msgspec.json.encode([(one.database, one.schema, one.table) for one in tables]).decode()


def tables_of(config: Config) -> list[TableId]:
    """The reverse of `written`. Raises ConfigError when the config has none."""
    text = config.get(TASK_TABLES) or ""
    try:
        return [TableId(*one) for one in msgspec.json.decode(text, type=list[tuple[str, str, str]])]
    except msgspec.DecodeError as error:
        raise ConfigError.for_value(TASK_TABLES, text, f"is no list of tables: {error}") from error


def _relations(config: Config, settings: SourceSettings) -> list[tuple[Relation, TableId | None]]:
    if settings.query:
        return [(query_relation(settings), None)]
    found = tables_of(config)
    check_tables(config, settings, found)
    return [(table_relation(table, settings), table) for table in found]
