"""One pass over the new rows of a table: the rows of one statement, in batches.

Owns where a batch may end. Rows that must be sent together (`JdbcPlan.together`) are sent in one batch, because an
offset cannot name a row among them: a batch ends where the place changes. When there are more such rows than memory
may hold, rows with numbers are distinguished by them; others carry the offset of the place before, and are sent again
if the run dies among them.

Invariant: no row of a batch, or of an earlier one, is after the batch's offset, unless all rows of the batch share a
place with further rows.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow

from herdmesh.connectors.spark.jdbc_source.database import Database, Rows
from herdmesh.connectors.spark.jdbc_source.plan import JdbcPlan, RowPlace
from herdmesh.connectors.table_source import TablePlace
from herdmesh.connectors.table_source.task import TIES_MAX
from herdmesh.sdk import SourceBatch

pa: Any = pyarrow


class Sweep:
    """The rows after a place, as of the statement's start."""

    def __init__(
        self, database: Database, plan: JdbcPlan, after: TablePlace, before_us: int | None, fetch_rows: int
    ) -> None:
        """Raises like `Database.rows`."""
        self.plan = plan
        self.place = after
        """The place of the last batch."""
        self.is_among_ties = False
        """The last batch has the place before its rows, because more rows share theirs."""
        self._begun_from = after
        statement, parameters = plan.statement(after, before_us)
        self._rows: Rows = database.rows(plan.relation.label, statement, parameters, plan.columns, fetch_rows)
        self._kept: Any = None
        self._kept_places: list[RowPlace] = []
        self._ended = False
        self._is_first = True

    def batch(self, rows_max: int) -> SourceBatch | None:
        """Return the next batch, of about `rows_max` rows; None = there are no more, and the sweep is closed.

        Raises like `Database.rows`: the sweep is over then, and the next one begins at `place`. Raises DataError for a
        value that Connect cannot represent.
        """
        while not self._ended:
            rows, places = self._more(rows_max)
            cut = rows.num_rows if self._ended or not places else _last_change(places, self.plan.together)
            if not cut and rows.num_rows >= TIES_MAX:
                cut = _last_change(places, operator.eq) if self.plan.numbers_moments else 0
                if not cut:
                    self.is_among_ties = True
                    self._keep(rows, places, rows.num_rows - 1)
                    return self.plan.batch(rows.slice(0, rows.num_rows - 1), self.place)
            self._keep(rows, places, cut)
            if cut:
                self.is_among_ties = False
                self.place = self.plan.place(places[:cut])
                return self.plan.batch(rows.slice(0, cut), self.place)
        return None

    def close(self) -> None:
        """End the statement. Does nothing if it has ended."""
        self._ended = True
        self._rows.close()

    def _more(self, rows_max: int) -> tuple[Any, list[RowPlace]]:
        """Return the kept rows and the next ones, with their places."""
        fetched = self._rows.fetch(rows_max)
        self._ended = fetched.num_rows < rows_max
        places = self.plan.places(fetched)
        if self._is_first and (passed := self.plan.already(places, self._begun_from)):
            fetched, places = fetched.slice(passed), places[passed:]
        self._is_first = self._is_first and not places
        if self._kept is None:
            return fetched, places
        return pa.concat_tables([self._kept, fetched]), self._kept_places + places

    def _keep(self, rows: Any, places: list[RowPlace], cut: int) -> None:
        self._kept = rows.slice(cut) if cut < rows.num_rows else None
        self._kept_places = places[cut:]


def _last_change(places: Sequence[RowPlace], same: Callable[[RowPlace, RowPlace], bool]) -> int:
    """Return the number of rows before the last change of place,
    because later rows may share the last place; 0 = no change.
    """
    last = places[-1]
    return next((at + 1 for at in range(len(places) - 2, -1, -1) if not same(places[at], last)), 0)
