"""One pass over the new rows of a table: a query on the server, whose rows come in batches.

Owns the server-side cursor, its transaction, and where a batch may end. SQL and columns: `plan`.

Rows of one place (the same timestamp; a number that is not unique) are sent in one batch, because an offset cannot name
a row among them: a batch ends where the place changes. When there are more such rows than are kept in memory, the first
batches carry the offset of the place before: their rows are sent again if the run dies among them.

Invariant: the offset of a batch is one behind which no row of this batch, or of one before it, lies, unless all rows of
the batch share a place that more rows have.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

import psycopg

from herdmesh.connectors.postgres.connection import Connection, errors_translated
from herdmesh.connectors.postgres.source.plan import Plan, Row
from herdmesh.connectors.table_source import Place
from herdmesh.connectors.table_source.task import TIES_MAX
from herdmesh.sdk import SourceBatch


class Sweep:
    """The rows behind a place, as they are when it is made."""

    def __init__(self, connection: Connection, plan: Plan, after: Place, upto: int | None = None) -> None:
        """Raises RetriableError when the server is away, ConfigError when it refuses the query."""
        self.plan = plan
        self.place = after
        """That of the last batch."""
        self.is_among_ties = False
        """The last batch had the place before, because there are more rows of its own."""
        self._connection = connection
        self._kept: Sequence[Row] = ()
        self._ended = False
        with errors_translated(f"cannot read {plan.relation.label}"):
            connection.execute("BEGIN READ ONLY")
            self._cursor: psycopg.ServerCursor[Row] = connection.cursor("herdmesh", binary=True)
            self._cursor.execute(plan.query(after, upto).encode())

    def batch(self, rows_max: int) -> SourceBatch | None:
        """The next batch, of about `rows_max` rows; None = there are no more, and the sweep is closed.

        Raises RetriableError when the connection breaks: the sweep is over then, and `place` is where to begin the
        next. Raises DataError for a value that Connect cannot have.
        """
        while not self._ended:
            with errors_translated(f"cannot read {self.plan.relation.label}"):
                fetched = self._cursor.fetchmany(rows_max)
            rows = [*self._kept, *fetched] if self._kept else fetched
            if len(fetched) < rows_max:
                self.close()  # at once: whoever alters the table waits for this
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
        """End the transaction. Harmless when it has ended, or the connection has."""
        self._ended = True
        if self._connection.closed or self._connection.broken:
            return
        with contextlib.suppress(psycopg.Error):
            self._cursor.close()
        with contextlib.suppress(psycopg.Error):
            self._connection.execute("ROLLBACK")


def _last_change(plan: Plan, rows: Sequence[Row]) -> int:
    """How many rows come before the last change of place: those behind it may have more like them; 0 = there is no
    change. All, where rows have no place."""
    if not rows or not plan.ties(rows[-1], rows[-1]):
        return len(rows)
    last = rows[-1]
    return next((at for at in range(len(rows) - 1, 0, -1) if not plan.ties(rows[at - 1], last)), 0)
