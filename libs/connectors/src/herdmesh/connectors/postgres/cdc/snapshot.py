"""Snapshot of the captured tables at the point where the stream begins.

Owns reading the rows: in one transaction, with the snapshot that was exported when the slot was created, by COPY.
`events` makes the records.

A statement that rewrites a table (ALTER TABLE of a type, TRUNCATE) hides its rows
from older snapshots. So the file of each table is noted at the start of the
snapshot. If the table has another file when it is read, the snapshot starts again.

Invariant: the rows are those of all transactions that committed
before the snapshot's place in the log, and of no other.
"""

from __future__ import annotations

import logging
from collections.abc import Generator, Iterator, Sequence
from typing import Any, cast

from psycopg.errors import InsufficientPrivilege, UndefinedColumn, UndefinedTable

from herdmesh.connectors.postgres.cdc import catalog
from herdmesh.connectors.postgres.cdc.catalog import Published
from herdmesh.connectors.postgres.cdc.pgoutput import Row
from herdmesh.connectors.postgres.cdc.replication import Snapshot
from herdmesh.connectors.postgres.cdc.settings import USER, CdcSettings
from herdmesh.connectors.postgres.cdc.stream import CHUNK_BYTES_MAX
from herdmesh.connectors.postgres.cdc.tables import Table, table_of
from herdmesh.connectors.postgres.cdc.text_forms import copy_row
from herdmesh.connectors.postgres.connection import Connection, errors_translated, literal, message_of, quoted
from herdmesh.sdk import ConfigError, RetriableError

_log = logging.getLogger(__name__)


class SnapshotReader:
    """One snapshot, read once from the first table to the last."""

    def __init__(self, connection: Connection, snapshot: Snapshot, settings: CdcSettings) -> None:
        """Import the snapshot; the connection that exported it is not needed afterwards. `connection` must not be used
        for anything else. Raises RetriableError when the server is unreachable.
        """
        self._connection = connection
        self._settings = settings
        with errors_translated("the snapshot cannot be taken", field=USER):
            self._run("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
            self._run(f"SET TRANSACTION SNAPSHOT {literal(snapshot.name)}")
            self._run("SET LOCAL row_security = off")  # the log has the rows that a policy would hide
        self.tables: Sequence[Published] = catalog.published(connection, settings)
        self._files = {table.oid: self._file_of(table) for table in self.tables}

    def read(self) -> Iterator[tuple[Table, list[Row]]]:
        """Yield the rows of all tables, in groups; an empty table has none.

        Raises:
            RetriableError: the server is unreachable, or a table was changed meanwhile: the snapshot must start again.
            ConfigError: no right to read a table, or a policy hides rows of it.
        """
        for number, published in enumerate(self.tables, 1):
            relation = catalog.relation_of(self._connection, published)
            table = table_of(relation, catalog.facts_of(self._connection, relation), self._settings)
            count = 0
            if not relation.columns:
                continue
            for rows in self._rows(published, [column.name for column in relation.columns]):
                count += len(rows)
                yield table, rows
            _log.info("snapshot: read %s, %d rows, table %d of %d", published.sql, count, number, len(self.tables))

    def _rows(self, table: Published, columns: Sequence[str]) -> Generator[list[Row], None, None]:
        where = f" WHERE {table.row_filter}" if table.row_filter else ""
        names = ", ".join(map(quoted, columns))
        only = "" if table.is_partitioned else "ONLY "
        question = f"COPY (SELECT {names} FROM {only}{table.sql}{where}) TO STDOUT"
        rows: list[Row] = []
        size = 0
        with errors_translated(f"{table.sql} cannot be read", field=USER):
            try:
                with self._connection.cursor() as cursor, cursor.copy(cast(Any, question)) as copy:
                    for line in copy:  # the server sends one row per message
                        rows.append(cast("Row", copy_row(bytes(line)[:-1])))
                        size += len(line)
                        if len(rows) >= self._settings.batch_changes or size >= CHUNK_BYTES_MAX:
                            yield rows
                            rows, size = [], 0
            except InsufficientPrivilege as error:
                if "row-level security" not in str(error):
                    raise
                user = self._settings.connection.user
                raise ConfigError(
                    f"{table.sql} cannot be read completely: {message_of(error)}; row security policies hide rows that "
                    "the log has",
                    field=USER, fix=f"ALTER ROLE {quoted(user)} BYPASSRLS, or leave the table out",
                ) from error  # fmt: skip
            except (UndefinedTable, UndefinedColumn) as error:
                raise RetriableError(
                    f"{table.sql} was changed during the snapshot; the snapshot begins again: {error}"
                ) from error
        if rows:
            yield rows
        if self._file_of(table) != self._files[table.oid]:
            raise RetriableError(f"{table.sql} was rewritten during the snapshot; the snapshot begins again")

    def _file_of(self, table: Published) -> int | None:
        with errors_translated(f"{table.sql} cannot be looked up", field=USER):
            found = self._connection.execute("SELECT pg_relation_filenode(%s::oid)::int8", (table.oid,)).fetchone()
        return None if found is None else found[0]

    def _run(self, command: str) -> None:
        self._connection.execute(cast(Any, command))
