"""Task of `PostgresSink`: each batch is one transaction, with the ledger's row in it.

Owns the session, the transactions, and finding the records of a batch that the server
refuses. Rows: `rows`; their text: `texts`; tables and statements: `tables`; when
upserts are copied directly: `direct_copy`; the ledger: `ledger`, `engine.sql_ledger`.

A batch is first written as a whole. If the server refuses a value or a constraint, the transaction is restarted and
the batch is bisected, each half under a savepoint, until the refused records are found: they are reported as bad
records, the others are written, and the ledger moves past all of them.

Invariant: the rows of a batch and the ledger's row after it commit together or not at all; a bad record is safe in the
dead letter queue before that.
"""

from __future__ import annotations

import re
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import psycopg
from psycopg import IsolationLevel, errors

from herdmesh.connectors.postgres.connection import (
    Connection,
    connect,
    connection_settings,
    message_of,
    server,
    translated,
)
from herdmesh.connectors.postgres.sink.direct_copy import ROWS_MIN, Attempts
from herdmesh.connectors.postgres.sink.key_identity import Keys, proven
from herdmesh.connectors.postgres.sink.ledger import LOCK_TIMEOUT, end_sessions, ensure_table, ledger_of, session_name
from herdmesh.connectors.postgres.sink.rows import BatchReader, Rows, Write, needs_keys, ordered
from herdmesh.connectors.postgres.sink.settings import (
    LEDGER_TABLE,
    PK_FIELDS,
    TABLE_NAME_FORMAT,
    InsertMode,
    sink_settings,
)
from herdmesh.connectors.postgres.sink.tables import Statements, Tables
from herdmesh.connectors.postgres.sink.texts import Texts, lines, texts
from herdmesh.connectors.postgres.sqlstates import Meaning, meaning_of
from herdmesh.engine.runtime import failpoints
from herdmesh.sdk import (
    Config,
    ConfigError,
    ConnectError,
    DataError,
    ErrorClass,
    LedgerSinkTask,
    PartitionId,
    RetriableError,
    SinkBatch,
    TaskContext,
    TaskFailed,
    waits,
)

IDLE_TIMEOUT = b"SET idle_in_transaction_session_timeout = '90s'"
"""The server ends a session that is idle in a transaction for
this time; waiting for dead letters in one takes up to 60 s.
"""
PLAIN_MONEY = b"SET lc_monetary = 'C'"
"""1234.50 is 1,234.5 to `money`, and not 123,450, whatever the database's language."""
#: Errors of a table that changed since this session read its catalog entry.
_OUTDATED = (errors.UndefinedTable, errors.UndefinedColumn, errors.InvalidColumnReference)

_NO_TEXT = re.compile("[\x00\ud800-\udfff]")
_Group = tuple[Rows, list[Texts]]
_Write = tuple[Write, Statements]


class PostgresSinkTask(LedgerSinkTask):
    """One task, with one session."""

    _connection: Connection | None = None

    def start(self, config: Config, context: TaskContext) -> None:
        self._settings = sink_settings(config)
        self._where = connection_settings(config)
        self._run_id = context.run_id
        # With errors.tolerance=all and no reporter, a bad record is skipped without a report.
        self._reporter = context.reporter or (context.errant if context.tolerates_errors else None)
        self._reader = BatchReader(self._settings)
        self._ledger = ledger_of(self._current, self._settings.ledger, context.connector, context.run_id)
        self._failures = 0

    def claim(self, partitions: Sequence[PartitionId]) -> Mapping[PartitionId, int]:
        with self._session("the ledger cannot be claimed") as connection:
            end_sessions(connection, self._ledger.owners(partitions))
            with connection.transaction():
                return self._ledger.claim(partitions)

    def begin(self, starts: Mapping[PartitionId, int]) -> None:
        with self._session("the ledger cannot be set") as connection, connection.transaction():
            self._ledger.begin(starts)

    def put(self, batch: SinkBatch) -> None:
        if not len(batch):
            return  # `advance` moves the row past filtered records
        with self._session(f"records of {batch.topic} cannot be written") as connection:
            self._tables.trim()
            try:
                self._write(connection, batch)
            except _OUTDATED:
                connection.close()
                self._write(self._connected(), batch)

    def advance(self, positions: Mapping[PartitionId, int]) -> None:
        if not self._ledger.behind(positions):
            return
        with self._session("the ledger cannot be updated") as connection, connection.transaction():
            self._ledger.advance(positions)

    def forget(self, partitions: Sequence[PartitionId]) -> None:
        with self._session("rows of the ledger cannot be deleted") as connection, connection.transaction():
            self._ledger.forget(partitions)

    def stop(self) -> None:
        if self._connection is not None:
            self._connection.close()

    @contextmanager
    def _session(self, doing: str) -> Generator[Connection]:
        """Yield the session, reopened if it was lost. Translates the server's errors to Connect's."""
        try:
            with waits.on(server(self._where), f"no response yet; without it {doing}"):
                yield self._connected()
        except (psycopg.Error, RetriableError) as error:
            found = error if isinstance(error, RetriableError) else _translated(error, doing)
            if not isinstance(found, RetriableError):
                raise found from error
            found.waits_for = found.waits_for or server(self._where)
            self._failures += 1
            if self._settings.retries_max is not None and self._failures > self._settings.retries_max:
                raise TaskFailed(f"{found} (tried {self._failures} times)", ErrorClass.RETRIABLE) from error
            raise found from error
        self._failures = 0

    def _connected(self) -> Connection:
        if self._connection is not None and not self._connection.closed:
            return self._connection
        self._connection = None
        connection = connect(self._where, application_name=session_name(self._run_id), prepare_threshold=None)
        try:
            connection.isolation_level = IsolationLevel.READ_COMMITTED
            connection.execute(LOCK_TIMEOUT)
            connection.execute(IDLE_TIMEOUT)
            connection.execute(PLAIN_MONEY)
            # The previous session may still exist at the server and lock the row; its transaction ends only with it.
            end_sessions(connection, [self._run_id])
            self._connection = connection
            ensure_table(connection, self._settings.ledger, self._ledger)
        except BaseException:
            self._connection = None
            connection.close()
            raise
        self._tables = Tables(connection, self._settings)
        self._attempts = Attempts()
        return connection

    def _current(self) -> Connection:
        """Return the present session: a new one would be outside of the open transaction."""
        assert self._connection is not None
        return self._connection

    def _write(self, connection: Connection, batch: SinkBatch) -> None:
        refused: dict[int, Exception] = {}
        groups = self._prepared(batch, range(len(batch)), refused)
        try:
            writes = self._ordered(batch.topic, groups)
            straight = not refused and any(map(_may_go_straight, writes)) and self._attempts.due(batch.topic)
            if not (straight and self._write_straight(connection, batch, writes)):
                self._write_all(connection, batch, writes, refused, straight=False)
        except psycopg.Error as error:
            if not _is_of_records(error):
                raise
            try:
                self._write_most(connection, batch, dict(refused), deferred=True)
            except psycopg.Error as late:
                if not _is_of_records(late):
                    raise
                self._write_most(connection, batch, refused, deferred=False)
        failpoints.hit("after-target-commit")

    def _write_straight(self, connection: Connection, batch: SinkBatch, writes: Sequence[_Write]) -> bool:
        """Write the batch by direct COPY. False: a key may exist already; nothing was written."""
        try:
            self._write_all(connection, batch, writes, {}, straight=True)
        except psycopg.Error as error:
            if not self._attempts.failed(batch.topic, error):
                raise
            return False
        self._attempts.succeeded(batch.topic)
        return True

    def _write_all(
        self,
        connection: Connection,
        batch: SinkBatch,
        writes: Sequence[_Write],
        refused: Mapping[int, Exception],
        *,
        straight: bool,
    ) -> None:
        with connection.transaction():
            if not self._moved(batch):
                return
            _run(connection, writes, set(), straight=straight)
            if (
                refused
            ):  # check deferred constraints before reporting, because a failure here would lead to a second report
                connection.execute("SET CONSTRAINTS ALL IMMEDIATE")
            self._report_refused(batch, refused)
            failpoints.hit("before-target-commit")

    def _write_most(
        self, connection: Connection, batch: SinkBatch, refused: dict[int, Exception], *, deferred: bool
    ) -> None:
        """Write the batch without the records that the server refuses. `deferred`: deferred constraints are checked at
        the end; a violation then raises without naming the record.
        """
        with connection.transaction():
            if not self._moved(batch):
                return
            if not deferred:
                connection.execute("SET CONSTRAINTS ALL IMMEDIATE")
            places = [place for place in range(len(batch)) if place not in refused]
            self._halve(connection, batch, places, refused, set())
            if deferred:
                connection.execute("SET CONSTRAINTS ALL IMMEDIATE")
            self._report_refused(batch, refused)
            failpoints.hit("before-target-commit")

    def _moved(self, batch: SinkBatch) -> bool:
        """Move the ledger's row. Its errors are never attributed to a record."""
        try:
            return self._ledger.move(batch)
        except _OUTDATED:
            raise
        except psycopg.Error as error:
            raise translated(error, "the ledger cannot be updated", field=LEDGER_TABLE) from error

    def _halve(
        self,
        connection: Connection,
        batch: SinkBatch,
        places: list[int],
        refused: dict[int, Exception],
        used: set[str],
    ) -> None:
        """Write as many of the records at these places as possible. Records before them are written."""
        if not places:
            return
        groups: list[_Group] = []
        try:
            with connection.transaction():
                groups = self._prepared(batch, places, refused)
                _run(connection, self._ordered(batch.topic, groups), used, straight=False)
        except psycopg.Error as error:
            if not _is_of_records(error):
                raise
            if len(places) == 1:
                refused[places[0]] = DataError(f"PostgreSQL refuses the record: {message_of(error)}{_hint(groups)}")
                return
            middle = len(places) // 2
            self._halve(connection, batch, places[:middle], refused, used)
            self._halve(connection, batch, places[middle:], refused, used)

    def _prepared(self, batch: SinkBatch, places: Sequence[int], refused: dict[int, Exception]) -> list[_Group]:
        """Return the rows of the records at these places, and their
        texts. Records that cannot be rows are added to `refused`.
        """
        found: list[_Group] = []
        try:
            for rows in self._reader.read(batch, places):
                statements = self._tables.statements(batch.topic, rows.shape)
                found.append((rows, _texts_of(rows, statements)))
        except DataError as error:
            if len(places) == 1:
                refused[places[0]] = error
                return []
        else:
            return found
        good = [place for place in places if self._prepared(batch, [place], refused)]
        return self._prepared(batch, good, refused) if good else []

    def _ordered(self, topic: str, groups: list[_Group]) -> list[_Write]:
        """Return the writes in order. Raises psycopg.Error if the server cannot determine equal keys."""
        inserts = self._settings.insert_mode is InsertMode.INSERT
        keys = self._keys(topic, groups) if needs_keys(groups, inserts=inserts) else []
        is_strict = any(self._tables.statements(topic, rows.shape).is_strict for rows, _ in groups)
        writes = ordered(groups, keys, inserts=inserts, strictly=is_strict)
        return [(write, self._tables.statements(topic, write.shape)) for write in writes]

    def _keys(self, topic: str, groups: list[_Group]) -> list[Keys]:
        """Return the keys of each group: by their texts if these prove identity, else from the database."""
        found: list[Keys] = []
        #: groups to query if one of them is not proven, by the names of their key columns.
        asked: dict[tuple[str, ...], list[int]] = {}
        named = [tuple(column.name for column in rows.shape.keys) for rows, _ in groups]
        for (rows, written), names in zip(groups, named, strict=True):
            columns = self._tables.statements(topic, rows.shape).keys
            own = proven(columns, rows.values[: len(names)], written[: len(names)])
            if own is None:
                asked[names] = [at for at, one in enumerate(named) if one == names]
            found.append(own or Keys((), ()))
        stages = {names: self._tables.key_stage(topic, groups[places[0]][0].shape) for names, places in asked.items()}
        for names, places in asked.items():
            joined: list[Texts] = [
                [text for at in places for text in groups[at][1][column]] for column in range(len(names))
            ]
            answer = self._tables.same_keys(stages[names], joined)
            start = 0
            for at in places:
                end = start + len(groups[at][0].places)
                found[at] = Keys(answer.identities[start:end], answer.images[start:end])
                start = end
        return found

    def _report_refused(self, batch: SinkBatch, refused: Mapping[int, Exception]) -> None:
        """Report the refused records. Raises DataError, or RecordError, if the config requires a failure."""
        for place, error in sorted(refused.items()):
            if self._reporter is None:
                at = f"{batch.original_topic}-{batch.partition} at offset {batch.offsets[place]}"
                raise DataError(f"{error} (record of {at})") from error
            self._reporter.report(batch, place, error)
        if refused and self._reporter is not None:
            self._reporter.flush_dead_letters()


def _texts_of(rows: Rows, statements: Statements) -> list[Texts]:
    """Return the texts of rows, by column. Raises DataError, with the column, for a value without a text."""
    found: list[Texts] = []
    for column, values, form in zip(rows.shape.columns, rows.values, statements.forms, strict=True):
        try:
            found.append(texts(values, form))
        except DataError as error:
            raise DataError(f"column {column.name}: {error}") from error
    return found


def _translated(error: psycopg.Error, doing: str) -> ConnectError:
    """Like `translated`; if the table does not support the upsert, with the requirement as the fix."""
    found = translated(error, doing, field=TABLE_NAME_FORMAT)
    if not isinstance(found, ConfigError) or "ON CONFLICT" not in str(error):
        return found
    return ConfigError(
        str(found), field=PK_FIELDS,
        fix=f"give the table a unique index of the columns in {PK_FIELDS}, no more and no less, without WHERE, and not "
        "deferrable; or write insert.mode=insert or update, as foreign tables and tables with rules need",
    )  # fmt: skip


def _may_go_straight(write: _Write) -> bool:
    return bool(write[1].straight) and len(write[0].texts[0]) >= ROWS_MIN


def _run(connection: Connection, writes: Sequence[_Write], used: set[str], *, straight: bool) -> None:
    """Execute the writes. `used`: stages that may have rows of this transaction."""
    with connection.cursor() as cursor:
        for write, statements in writes:
            if straight and _may_go_straight((write, statements)):
                cursor.execute(statements.proof.encode())
                _copy(cursor, statements.straight, write)
                continue
            if statements.clear in used:
                cursor.execute(statements.clear.encode())
            if statements.copy:
                _copy(cursor, statements.copy, write)
            if statements.absent:
                used.add(statements.clear)
                _require_rows(cursor, statements.absent)
            if statements.merge:
                used.add(statements.clear)
                cursor.execute(statements.merge.encode())


def _require_rows(cursor: psycopg.Cursor[tuple[Any, ...]], absent: str) -> None:
    """Raise a record error if rows are missing in the table."""
    row = cursor.execute(absent.encode()).fetchone()
    if row is not None and row[0]:
        raise errors.NoDataFound(
            "the record has the placeholder of an unchanged value (herdmesh.unavailable.value.placeholder), but the "
            "row with that value does not exist"
        )


def _copy(cursor: psycopg.Cursor[tuple[Any, ...]], statement: str, write: Write) -> None:
    with cursor.copy(statement.encode()) as copy:
        copy.write(lines(write.texts))


def _is_of_records(error: psycopg.Error) -> bool:
    return meaning_of(error, writes=True) is Meaning.RECORD


def _hint(groups: Sequence[_Group]) -> str:
    """Return a hint to a byte that the server refuses: its error does not name the column."""
    named = [
        column.name for rows, written in groups for column, texts in zip(rows.shape.columns, written, strict=False)
        if any(text is not None and _NO_TEXT.search(text) for text in texts)
    ]  # fmt: skip
    return (
        f" (column {', '.join(named)}: text in PostgreSQL cannot contain U+0000 or half a surrogate pair)"
        if named
        else ""
    )
