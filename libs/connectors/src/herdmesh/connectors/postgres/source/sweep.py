"""One pass over the new rows of a table: a query on the server, whose rows come in batches.

Owns the server-side cursor, its transaction, and where a batch may end. SQL and columns: `plan`.

Rows of one place (the same timestamp; a number that is not unique) are sent in one batch, because an offset cannot name
a row among them: a batch ends where the place changes. When there are more such rows than memory may hold, the first
batches carry the offset of the place before: their rows are sent again if the run dies among them.

Invariant: no row of a batch, or of an earlier one, is after the batch's offset, unless all rows of the batch share a
place with further rows.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

import psycopg

from herdmesh.connectors.postgres.connection import Connection, errors_translated
from herdmesh.connectors.postgres.source.plan import Row, SourcePlan
from herdmesh.connectors.table_source import TablePlace
from herdmesh.connectors.table_source.task import TIES_MAX
from herdmesh.sdk import SourceBatch


class Sweep:
    """The rows after a place, as of the query's start."""

    def __init__(self, connection: Connection, plan: SourcePlan, after: TablePlace, upto: int | None = None) -> None:
        """Raises RetriableError when the server is unreachable, ConfigError when it refuses the query."""
        self.plan = plan
        self.place = after
        """The place of the last batch."""
        self.is_among_ties = False
        """The last batch has the place before its rows, because more rows share theirs."""
        self._connection = connection
        self._kept: Sequence[Row] = ()
        self._ended = False
        with errors_translated(f"cannot read {plan.relation.label}"):
            connection.execute("BEGIN READ ONLY")
            self._cursor: psycopg.ServerCursor[Row] = connection.cursor("herdmesh", binary=True)
            self._cursor.execute(plan.query(after, upto).encode())

    def batch(self, rows_max: int) -> SourceBatch | None:
        """Return the next batch, of about `rows_max` rows; None = there are no more, and the sweep is closed.

        Raises RetriableError when the connection breaks: the sweep is over then, and the next one begins at `place`.
        Raises DataError for a value that Connect cannot represent.
        """
        while not self._ended:
            with errors_translated(f"cannot read {self.plan.relation.label}"):
                fetched = self._cursor.fetchmany(rows_max)
            rows = [*self._kept, *fetched] if self._kept else fetched
            if len(fetched) < rows_max:
                self.close()  # at once, because an ALTER TABLE waits for this transaction
            cut = len(rows) if self._ended else _last_change(self.plan, rows)
            if cut:
                self._kept = rows[cut:]
                self.is_among_ties = False
                given = rows[:cut]
                self.place = self.plan.place_after(given)
                return self.plan.batch(given, self.place)
            if len(rows) >= TIES_MAX:
                self._kept = rows[-1:]
                self.is_among_ties = True
                return self.plan.batch(rows[:-1], self.place)
            self._kept = rows
        self.close()
        return None

    def close(self) -> None:
        """End the transaction. Does nothing if it, or the connection, has ended."""
        self._ended = True
        if self._connection.closed or self._connection.broken:
            return
        with contextlib.suppress(psycopg.Error):
            self._cursor.close()
        with contextlib.suppress(psycopg.Error):
            self._connection.execute("ROLLBACK")


def _last_change(plan: SourcePlan, rows: Sequence[Row]) -> int:
    """Return the number of rows before the last change of place, because later rows may share the last place; 0 = no
    change. All rows, if rows have no place.
    """
    if not rows or not plan.ties(rows[-1], rows[-1]):
        return len(rows)
    last = rows[-1]
    return next((at for at in range(len(rows) - 1, 0, -1) if not plan.ties(rows[at - 1], last)), 0)
